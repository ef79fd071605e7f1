"""A disk that is really full: no yes, no harm, and the queue goes on when there is room."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from disk import Ticks, check_chain, log_bytes
from terminal import environment

from eventq import WorkQueue

PROGRAM = Path(__file__).parent / "full_disk.py"

DISKS = {
    "tmpfs": 'mount -t tmpfs -o size=512k none "$1"',
    "ext4": 'mount -o loop "$1.image" "$1"',
}
"""File systems of a small size, and how they are mounted: for one process alone, so that nothing
is left of them when it ends."""


@pytest.mark.parametrize("kind", DISKS)
def test_a_full_disk(kind: str, tmp_path: Path) -> None:
    """See `full_disk.py`: refused, rolled back, the others unharmed, and none opened again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if kind == "ext4":
        mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if mkfs is None:
            pytest.skip("there is no mkfs.ext4 here")
        with (tmp_path / "disk.image").open("wb") as image:
            image.truncate(2 << 20)
        subprocess.run([mkfs, "-q", image.name], check=True)
    script = f'{DISKS[kind]} || exit 77; shift; exec "$@"'
    ran = subprocess.run(
        [
            *("unshare", "-rm" if os.geteuid() else "-m", "sh", "-c", script, "sh", disk),
            *(sys.executable, "-W", "error", PROGRAM, disk),
        ],
        capture_output=True,
        text=True,
        env=environment(),
    )
    if ran.returncode == 77 or ran.stderr.startswith("unshare:"):
        pytest.skip(f"no {kind} can be mounted here: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    did = json.loads(ran.stdout)
    print(kind, did)
    assert did["refused"] == 12
    assert did["refused, by the other too"] >= 10
    assert did["snapshots refused"] >= 1
    assert did["entries"] == did["done"] + 1


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """The kernel takes what fits and refuses the rest: it is rolled back, and goes on when it may,
    in a handle that was never shut."""
    path = tmp_path / "q"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with WorkQueue.open(path, clock=Ticks()) as q:
            for more in range(1, 400, 7):
                before, text = q.state, log_bytes(path)
                size = sum(map(len, text.values()))
                resource.setrlimit(resource.RLIMIT_FSIZE, (size + more, limits[1]))
                with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
                    q.enqueue(None, "x" * 300)
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                assert q.state is before
                assert log_bytes(path) == text
                q.enqueue()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    check_chain(path)
