"""Where reading a log begins: behind the newest snapshot that fits it, or at its first line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from eventq.core.state import State
from eventq.storage.archived import needed
from eventq.storage.disk import open_to_read
from eventq.storage.errors import LinesLost, LogDamaged, LogNewer
from eventq.storage.mending import whole_line
from eventq.storage.segments import Cursor, find_segments, segment_path
from eventq.storage.snapshot import load, snapshots

__all__ = ["stands_there", "where_to_begin"]


def where_to_begin(queue: Path, until: int | None) -> tuple[State, Cursor]:
    """A state of the queue in this directory, and the place in its log where it stands.

    Not after entry `until`; None: as late as can be. Raises LinesLost where a snapshot is ahead
    of the log, Archived where its beginning is, and LogDamaged where it has lost that.
    """
    log = queue / "log"
    segments = find_segments(log)
    reaches = False
    for seq in snapshots(queue / "snapshots"):
        if until is not None and seq > until:
            continue
        loaded = load(queue / "snapshots", seq, log)
        if loaded is not None and stands_there(loaded[1]):
            return loaded
        if not reaches:  # as far as the newest, so as far as the others
            _check_reaches(queue, segments, seq)
            reaches = True
    first = segments[0] if segments else 1
    if first != 1 and until != 0:
        if (archived := needed(log, 1, until)) is not None:
            raise archived
        raise LogDamaged(segment_path(log, 1), 1, 0, 1, f"the log begins only with entry {first}")
    return State(), Cursor(log)


def stands_there(cursor: Cursor) -> bool:
    """Whether the line that ends at the cursor is the one that was known to end there."""
    assert cursor.hash is not None
    tail = b'"' + cursor.hash + b'"}\n'
    try:
        with open_to_read(cursor.file) as file:
            file.seek(cursor.offset - len(tail))
            return file.read(len(tail)) == tail
    except (OSError, ValueError):
        return False


def _check_reaches(queue: Path, segments: list[int], seq: int) -> None:
    """Raise LinesLost where the log ends before an entry after which a snapshot was taken: its name
    says so much, whatever has become of what it holds. Damage is told by who reads the log."""
    with suppress(LogDamaged, LogNewer):
        if (last := _last_seq(queue / "log", segments)) < seq:
            raise LinesLost(queue, last, seq)


def _last_seq(log: Path, segments: list[int]) -> int:
    if not segments:
        return 0
    cursor = Cursor(log, segments[-2:][0])  # the last may not have a whole line yet
    for _ in cursor.forward():
        pass
    with open_to_read(cursor.file) as file:
        file.seek(cursor.offset)
        tail = file.read()
    whole = cursor.hash is not None and whole_line(tail, cursor.hash) is not None
    return cursor.seq + whole  # one that lacks only its newline is not lost
