"""What the next writer mends under the lock: a torn tail, and a segment that a failed sync left.

What is cut off is kept. Nothing else is ever mended, but that lines which a power cut took are
written again from the redo file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eventq.storage.chain import fits
from eventq.storage.disk import Disk, read_file
from eventq.storage.errors import LogDamaged
from eventq.storage.redo import missing
from eventq.storage.segments import Cursor, find_segments, segment_path

__all__ = ["mend", "pread", "renew", "whole_line"]


def mend(disk: Disk, segment: int, cursor: Cursor, torn: Path, sync: Callable[[], None]) -> bool:
    """Make the open segment end where the cursor stands, or behind one line more.

    A last line that lacks only its newline is finished: True. What else stands there is cut off
    and kept in the folder `torn`: False. `sync` is how the segment is synced.
    """
    size = os.fstat(segment).st_size
    if size == cursor.offset:
        return False
    tail = pread(disk, segment, size - cursor.offset, cursor.offset)
    assert cursor.hash is not None
    line = whole_line(tail, cursor.hash)
    if line is not None:
        end = cursor.offset + len(line)
        disk.pwrite(segment, b"\n", end - 1)
        disk.ftruncate(segment, end)
        return True  # synced with what comes behind it, or before a yes that rests on it
    with suppress(FileExistsError):
        disk.mkdir(torn)
    disk.write_file(torn / f"{cursor.seq + 1:020}.{os.urandom(4).hex()}", tail)
    disk.sync_folder(torn)
    disk.sync_folder(torn.parent)
    disk.ftruncate(segment, cursor.offset)
    sync()
    return False


def renew(disk: Disk, log: Path, mark: Path) -> None:
    """Put a synced copy of the last segment in its place: after a failed sync, which left the mark,
    and where the file has another name, such as that in a backup made of hard links.

    After a failed sync the kernel may have dropped what it could not write, show it all the same
    for a while, and not say so again. The copy holds the bytes that were checked, and the lines
    that the redo file alone has. Raises LogDamaged where a line does not fit.
    """
    segments = find_segments(log)
    if segments:
        file = segment_path(log, segments[-1])
        text, cursor = read_file(file), Cursor(log, segments[-1])
        damage: LogDamaged | None = None
        try:
            for _ in cursor.follow(io.BytesIO(text)):
                pass
        except LogDamaged as error:
            damage = error
        redone = missing(cursor)
        if damage is not None and not redone:
            raise damage
        whole = text[: cursor.offset] + redone + text[cursor.offset + len(redone) :]
        aside = file.with_suffix(".tmp")
        disk.write_file(aside, whole, os.O_TRUNC)
        disk.rename(aside, file)
    disk.sync_folder(log)
    with suppress(FileNotFoundError):
        disk.unlink(mark)  # if that does not last, one renewal more is done


def whole_line(tail: bytes, last: bytes) -> bytes | None:
    """The line that a tail is, but for its newline: that is missing, or became another byte."""
    whole = tail.rstrip(b"\0")
    for line in (whole + b"\n", whole[:-1] + b"\n"):
        if fits(line, last):
            return line
    return None


def pread(disk: Disk, descriptor: int, size: int, offset: int) -> bytes:
    """All these bytes; the kernel may give fewer at a time, and gives none past the end."""
    parts = []
    while size > 0 and (part := disk.pread(descriptor, size, offset)):
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return b"".join(parts)
