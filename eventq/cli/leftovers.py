"""A file that says who runs commands and which processes these are, and the end of what is left.

    {"runner":4711,"start":88123,"boot":"5f0c…","at":"2026-11-30T12:00:00+00:00"}
    {"lease":26,"pid":4713,"start":88130}

It is locked while the one who wrote it, or the launcher of that one, lives. It survives the death
of both (kill -9), which is all it needs: after a crash of the machine no process is left to be
ended, and the id of the boot tells.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eventq.cli.orders import output_of
from eventq.cli.processes import PATIENCE, end_sessions, process, processes

__all__ = ["end_leftovers", "sign", "signed", "take"]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def sign(lock: int, role: str, **more: str) -> None:
    """Write the first line: who this process is, in this role."""
    me = process(os.getpid())
    line = {role: os.getpid(), "start": me.start if me else 0, "boot": _boot(), **more}
    os.write(lock, json.dumps(line).encode() + b"\n")


def signed(lock: int) -> dict[str, Any]:
    """The first line, of whoever wrote it; nothing where there is none."""
    return next(_lines(lock), {})


def _lines(lock: int) -> Iterator[dict[str, Any]]:
    """The lines of the file. One that was cut short when the machine crashed is passed over."""
    for line in os.pread(lock, os.fstat(lock).st_size, 0).splitlines():
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def take(lock: int, role: str) -> bool:
    """Take the lock, unless who holds it in this role lives; whether it was taken. While only the
    launcher of a dead one does, which is ending what runs, that is waited for."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = signed(lock)
            found = process(holder.get(role, 0))
            alive = found is not None and found.start == holder.get("start") and found.runs
            if alive or time.monotonic() > until:
                return False
            time.sleep(0.02)
        else:
            return True


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
