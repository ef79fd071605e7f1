"""run/: which processes the workers of a queue have started, and the end of what dead ones left.

Several `eventq work` share a queue, so each launcher of each has a file of its own there, locked
while the worker or its launcher lives, and removed when the worker ends. It is written as
leftovers.py says. A file that nobody holds is that of a worker that was killed together with its
launcher: its commands may still run.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from eventq.cli.leftovers import end_leftovers, sign, take

__all__ = ["end_left_behind", "record_file"]


@contextlib.contextmanager
def record_file(queue: Path) -> Iterator[int]:
    """A locked file for one launcher to record its processes in; gives the open file."""
    folder = queue / "run"
    folder.mkdir(mode=0o700, exist_ok=True)
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    new = folder / f".{name}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    lock = os.open(new, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sign(lock, "worker")
        file = new.rename(folder / f"{name}.lock")  # only now, when it is held, others see it
        yield lock
        file.unlink(missing_ok=True)
    finally:
        os.close(lock)


def end_left_behind(queue: Path) -> None:
    """End every command that a dead worker of this queue, and its dead launcher, left running."""
    for file in (queue / "run").glob("*.lock"):
        try:
            lock = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if take(lock, "worker"):
                end_leftovers(lock, queue)
                file.unlink(missing_ok=True)
        finally:
            os.close(lock)
