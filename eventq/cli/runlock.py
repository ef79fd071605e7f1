"""run.lock: one runner of a queue at a time, and an end of what a dead one has left running.

The file is written as leftovers.py says. It is never removed, and empty while nobody runs the
queue.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from eventq.cli.leftovers import end_leftovers, sign, signed, take
from eventq.core.errors import EventqError

__all__ = ["RunLocked", "run_lock"]


class RunLocked(EventqError):
    """Another runner works on this queue."""


@contextlib.contextmanager
def run_lock(queue: Path) -> Iterator[int]:
    """Hold the run lock of this queue; gives its open file, to which commands are recorded.

    What a dead runner has left running is ended first. Raises RunLocked, at once, when another
    runner holds the lock.
    """
    lock = os.open(queue / "run.lock", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if not take(lock, "runner"):
            holder = signed(lock)
            since = f" since {holder['at']}" if "at" in holder else ""
            raise RunLocked(
                f"{queue} is being run by process {holder.get('runner', '(unknown)')}{since}: "
                "one runner at a time; wait until it is done, or stop it first"
            )
        end_leftovers(lock, queue)
        os.ftruncate(lock, 0)
        sign(lock, "runner", at=datetime.now(UTC).isoformat(timespec="seconds"))
        yield lock
        os.ftruncate(lock, 0)
    finally:
        os.close(lock)
