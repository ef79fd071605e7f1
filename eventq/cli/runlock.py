"""run.lock: one runner of a queue at a time, and an end of what a dead one has left running.

The file says who runs the queue, and under it the process of each command that was started:

    {"runner":4711,"start":88123,"boot":"5f0c…","at":"2026-11-30T12:00:00+00:00"}
    {"lease":26,"pid":4713,"start":88130}

It is never removed, and empty while nobody runs the queue. It survives the death of the runner
(kill -9), which is all it needs: after a crash of the machine no process is left to be ended, and
the id of the boot tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eventq.cli.processes import PATIENCE, end_sessions, process, processes
from eventq.core.errors import EventqError

__all__ = ["RunLocked", "end_leftovers", "output_of", "run_lock"]


class RunLocked(EventqError):
    """Another runner works on this queue."""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@contextlib.contextmanager
def run_lock(queue: Path) -> Iterator[int]:
    """Hold the run lock of this queue; gives its open file, to which commands are recorded.

    What a dead runner has left running is ended first. Raises RunLocked, at once, when another
    runner holds the lock.
    """
    lock = os.open(queue / "run.lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        _take(lock, queue)
        end_leftovers(lock, queue)
        os.ftruncate(lock, 0)
        me = process(os.getpid())
        holder = {
            "runner": os.getpid(),
            "start": me.start if me else 0,
            "boot": _boot(),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.write(lock, json.dumps(holder).encode() + b"\n")
        yield lock
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def _take(lock: int, queue: Path) -> None:
    """Take the lock. It is waited for only while its holder is dead and its launcher still busy
    ending what that one ran."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = next(_lines(lock), {})
            pid, start = holder.get("runner"), holder.get("start")
            found = None if pid is None else process(pid)
            alive = found is not None and found.start == start and found.runs
            if alive or time.monotonic() > until:
                since = f" since {holder['at']}" if "at" in holder else ""
                raise RunLocked(
                    f"{queue} is being run by process {pid or '(unknown)'}{since}: "
                    "one runner at a time; wait until it is done, or stop it first"
                ) from None
            time.sleep(0.02)
        else:
            return


def _lines(lock: int) -> Iterator[dict[str, Any]]:
    """The lines of the file. One that was cut short when the machine crashed is passed over."""
    for line in os.pread(lock, os.fstat(lock).st_size, 0).splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def end_leftovers(lock: int, queue: Path) -> None:
    """End every session that the last runner started, and wait until it is gone.

    A session is known by the pid and start time of its leader. Where the leader is gone, its
    number may have been given to somebody else: then only those processes are ended that carry
    the lease in their environment, or still write to its output.
    """
    header, *records = [*_lines(lock)] or [{}]
    if header.get("boot") != _boot():
        return
    running = {found.pid: found for found in processes()}
    leaders = set()
    orphaned = {}
    for record in records:
        found = running.get(record["pid"])
        if found is not None and found.start == record["start"]:
            leaders.add(found.pid)
        else:
            orphaned[record["pid"]] = record["lease"]
    end_sessions(leaders)
    until = time.monotonic() + PATIENCE
    while orphaned and time.monotonic() < until:
        left = [
            found.pid
            for found in processes()
            if found.session in orphaned
            and found.session not in leaders
            and found.runs
            and _ours(found.pid, orphaned[found.session], queue)
        ]
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            return
        time.sleep(0.005)


def _ours(pid: int, lease: int, queue: Path) -> bool:
    """Whether this process belongs to a command of this lease of this queue."""
    marks = {b"EVENTQ_LEASE=%d" % lease, b"EVENTQ_QUEUE=" + os.fsencode(os.path.realpath(queue))}
    with contextlib.suppress(OSError):
        if marks <= set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
            return True
    output = output_of(queue, lease)
    for fd in (1, 2):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/fd/{fd}").samefile(output):
                return True
    return False


def output_of(queue: Path, lease: int) -> Path:
    """Where the output of this lease goes."""
    return queue / "output" / f"{lease}.log"
