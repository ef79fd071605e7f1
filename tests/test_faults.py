"""Every fault at every call that a run makes of the disk: nothing answered yes is lost, and whoever
can go on does.

The run is that of `script.py`. What was tried is counted, so that it cannot come to nothing
unseen: `pytest -s` shows the counts.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from disk import NEVER, small_redo
from script import CALLS, Run, kept, whole

from eventq.testing.faults import FaultyDisk

Fault = Callable[[FaultyDisk, int], None]

FAULTS: dict[str, tuple[str | None, Fault]] = {
    "fails": (None, lambda disk, nth: disk.fail(nth=nth)),
    "fails, as all that follow": (None, lambda d, nth: d.fail(nth=nth, written=40, times=None)),
    "fails half written": ("pwrite", lambda disk, nth: disk.fail("pwrite", nth, written=40)),
    "lacks a byte": ("pwrite", lambda disk, nth: disk.fail("pwrite", nth, written=-1)),
    "is full": ("pwrite", lambda d, nth: d.fail("pwrite", nth, error=errno.ENOSPC, times=None)),
    "comes in pieces": ("pwrite", lambda disk, nth: disk.shorten(nth, to=7)),
}
"""What goes wrong at the nth call of this name, or of any."""


@pytest.mark.parametrize("redo", [False, True])
@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_at_every_call(
    kind: str, redo: bool, ram: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each no leaves the log and the memory as they were, or ends the handle; each yes is on
    disk, also when the power goes at the end."""
    small_redo(monkeypatch, after=1 if redo else NEVER)
    name, fault = FAULTS[kind]
    met: Counter[str] = Counter()
    finished = failures = 0
    for nth in range(1, 1000):
        path, left = ram / str(nth) / "q", ram / str(nth) / "left"
        disk = FaultyDisk()
        fault(disk, nth)
        run = Run(path, disk)
        run.go()
        run.others_go_on()
        run.shut()
        asked = [call for call in disk.calls if name in (None, call.name)]
        if len(asked) < nth:
            break
        met[asked[nth - 1].name] += 1
        finished += run.finished
        failures += run.failures
        disk.leave(path, left)
        whole(path, run.yes, len(run.yes))
        kept(path, run)
        if not run.unmarked:
            whole(left, run.yes, len(run.yes))
            kept(left, run)
    print(
        f"{kind}: {met.total()} faults, {failures} noes, {finished} handles finished; {dict(met)}"
    )
    assert set(met) == (CALLS if name is None else {name})
    assert met.total() >= (130 if name is None else 20)
    if kind != "comes in pieces" and not redo:  # who cannot write there does without
        assert failures > 0.8 * met.total()  # the rest was another's, who dies in the script


@pytest.mark.parametrize("redo", [False, True])
def test_a_disk_that_fills_up_at_any_byte(
    redo: bool, ram: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that there is no more room the run is told no, and goes on with the same handle
    when there is again."""
    small_redo(monkeypatch, after=1 if redo else NEVER)
    tried = 0
    for room in range(0, 20_000, 101):
        path = ram / str(room) / "q"
        disk = FaultyDisk()
        disk.room = room
        run = Run(path, disk)
        run.go()
        run.others_go_on()
        run.shut()
        if not disk.failed:
            break
        tried += 1
        assert run.finished == 0
        disk.leave(path, ram / str(room) / "left")
        whole(ram / str(room) / "left", run.yes, len(run.yes))
    print(f"{tried} disks filled up")
    assert tried > 80
