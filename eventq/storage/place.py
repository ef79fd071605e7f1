"""Whether the files that a handle has open are still those that stand at their paths.

A queue may be moved away and another put there, as a backup is restored. Who then went on with
the open files would write where nobody looks, and with the names of new ones into another log.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from eventq.storage.archived import needed
from eventq.storage.beginning import stands_there
from eventq.storage.errors import QueueReplaced
from eventq.storage.redo import reaches
from eventq.storage.segments import Cursor

__all__ = ["LOOK_EVERY", "check_lock", "check_segment", "is_last", "last_named", "names"]

LOOK_EVERY = 0.1
"""How many seconds a look is good for. It costs some microseconds for the paths: a command pays
for it only if none did shortly before. What happens in between went to the files that were moved,
and stays whole there."""


TICK_NS = 12_000_000
"""How many nanoseconds must have passed for a change of a name to show in the time of its folder:
two changes in one tick of the kernel's clock may bear the same time, before Linux 6.13."""


def last_named(folder: int) -> int | None:
    """When a name in this open folder last came, went or moved, in nanoseconds: as long as that
    does not change, none does. None for a moment ago, when another may not show."""
    then = os.fstat(folder).st_mtime_ns
    return then if abs(time.time_ns() - then) > TICK_NS else None


def check_lock(queue: Path, lock: int) -> None:
    """Raise QueueReplaced unless this open file is the lock of the queue at this path."""
    if not _same(queue / "lock", lock):
        raise QueueReplaced(queue / "lock", "is not the file that this handle has locked")


def check_segment(cursor: Cursor, segment: int) -> bool:
    """Whether this open file is the segment of the cursor; False: a copy of it was put in its
    place, as after a failed sync. Raises Archived where it was archived meanwhile, QueueReplaced
    for anything else."""
    if _same(cursor.file, segment):
        return True
    here = max(cursor.seq, cursor.first)
    if (archived := needed(cursor.log, here, here)) is not None:
        raise archived
    if cursor.offset and not stands_there(cursor):
        raise _rewritten(cursor)
    return False


def is_last(cursor: Cursor, segment: int) -> bool:
    """Whether this open segment ends with the line that ends at the cursor. Raises QueueReplaced
    where another stands in its place, as when a backup is copied over the files."""
    if not cursor.offset:
        return not os.lseek(segment, 0, os.SEEK_END)
    assert cursor.hash is not None
    tail = cursor.hash + b'"}\n'
    there = os.pread(segment, len(tail) + 1, cursor.offset - len(tail))
    if there == tail:
        return True
    if len(there) < len(tail) or there.startswith(tail):
        return False  # it is shorter, or goes on
    if reaches(cursor):  # zeros, since a power cut after which nobody has opened it to write
        return len(there) == len(tail)
    raise _rewritten(cursor)


def _rewritten(cursor: Cursor) -> QueueReplaced:
    """The error for a segment that has not the line any more that ends at the cursor."""
    what = f"does not hold entry {cursor.seq} any more, as this handle has read it"
    return QueueReplaced(cursor.file, what)


def names(file: Path) -> int:
    """How many names this file has: more than one where a backup was made of hard links, which
    would go on with the queue. 0 where there is none."""
    try:
        return file.stat().st_nlink
    except FileNotFoundError:
        return 0


def _same(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
