"""run.lock: one runner of a queue at a time, and an end of what a dead one has left running.

The file is written as leftovers.py says. It is never removed, and empty while nobody runs the
queue. Its first line is on disk before a runner takes its first task, and stays until the leases
of that runner have ended: so it alone says which leases a dead runner has left. A name is no proof,
since anybody may call a worker as a runner calls its own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from eventq.cli.holders import NAME
from eventq.cli.leftovers import end_leftovers, sign, signed, take
from eventq.core.errors import EventqError
from eventq.core.record import Lease
from eventq.core.state import State
from eventq.storage.disk import DISK

__all__ = ["RunLocked", "begin_run", "last_runner", "leases_of", "run_lock"]


class RunLocked(EventqError):
    """Another runner works on this queue."""


@contextlib.contextmanager
def run_lock(queue: Path) -> Iterator[int]:
    """Hold the run lock of this queue; gives its open file, to which commands are recorded.

    What a dead runner has left running is ended first; whose leases are left is told by
    `last_runner`, until `begin_run`. Raises RunLocked, at once, when another runner holds the lock.
    """
    lock = os.open(queue / "run.lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if not take(lock, NAME):
            holder = signed(lock)
            since = f" since {holder['at']}" if "at" in holder else ""
            raise RunLocked(
                f"{queue} is being run by process {holder.get(NAME, '(unknown)')}{since}: "
                "one runner at a time; wait until it is done, or stop it first"
            )
        end_leftovers(lock, queue)
        yield lock
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)


def last_runner(lock: int) -> int | None:
    """The pid of the runner that signed this file last and did not come to its end."""
    pid = signed(lock).get(NAME)
    return pid if type(pid) is int else None


def begin_run(queue: Path, lock: int) -> None:
    """Sign the file: what is handed out from now on is this runner's. Called when nothing of the
    last one is left."""
    os.ftruncate(lock, 0)
    sign(lock, NAME, at=datetime.now(UTC).isoformat(timespec="seconds"))
    os.fsync(lock)  # a power cut that leaves the leases in the log leaves this too
    DISK.sync_folder(queue)


def leases_of(state: State, pid: int) -> list[Lease]:
    """The current leases of the workers of this runner, and of nobody who is called alike."""
    own = re.compile(rf"{NAME}/{pid}/[1-9][0-9]*")
    running = state.running()
    return [one for one in running if isinstance(one.worker, str) and own.fullmatch(one.worker)]
