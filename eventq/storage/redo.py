"""The redo file: what a power cut may take from the end of the log stands here once more.

To sync a file that has grown, the file system must write its size as well as its bytes; one that
is written over in place takes two thirds of that time. So who writes much writes each line to its
segment, which shows it to all, and once more to this file, and that is what is synced before an
answer. The segment is synced before anything that only stands here is written over.

It has a fixed size, and byte x of the last segment stands at x modulo that size. Nothing says what
of it is new, or true: the lines that a segment lacks are those that follow its last one in the
chain, and nothing else does. A reader takes them from here; who opens the log to write puts them
back where they belong.

The idea is that of the redo logs of databases (Mohan and others, ARIES, 1992), which are rings too.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from eventq.storage.chain import prev_of
from eventq.storage.disk import Disk, open_to_read
from eventq.storage.errors import LogDamaged

if TYPE_CHECKING:
    from eventq.storage.segments import Cursor

__all__ = ["Redo", "missing", "reaches"]

_NAME = "redo"


class Redo:
    """The redo file of a queue, open for a handle that writes."""

    SIZE: ClassVar = 256 * 1024
    """How many bytes it has: the segment is synced once for so many. Part of the format."""

    AFTER: ClassVar = 16
    """How often a handle syncs the segment before it makes use of this file: who asks for little is
    spared to make it."""

    def __init__(self, disk: Disk, queue: Path) -> None:
        """Under the lock of the queue: make the file, if it is not there. Raises OSError, also for
        one that has another name: a copy of the queue, made of hard links, would write over it."""
        self._disk = disk
        self._file = queue / _NAME
        self.descriptor = disk.open(self._file, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(self.descriptor).st_nlink != 1:
                raise OSError(errno.EMLINK, "it has another name as well", str(self._file))
            size = os.lseek(self.descriptor, 0, os.SEEK_END)
            if size < Redo.SIZE:  # what is there may be all that others have of their lines
                try:
                    disk.write_all(self.descriptor, bytes(Redo.SIZE - size), size)
                except OSError:
                    disk.ftruncate(self.descriptor, size)  # the log may need the room
                    raise
                disk.fsync(self.descriptor)
            disk.sync_folder(queue)
        except BaseException:
            os.close(self.descriptor)
            raise

    def write(self, line: bytes, offset: int) -> None:
        """Write a line that stands at this offset of the segment. Raises OSError."""
        at = offset % Redo.SIZE
        room = Redo.SIZE - at
        self._disk.write_all(self.descriptor, line[:room], at)
        self._disk.write_all(self.descriptor, line[room:], 0)

    def write_soon(self, offset: int, size: int) -> None:
        """As `Disk` does, with the line at this offset of the segment."""
        self._disk.write_soon(self.descriptor, offset % Redo.SIZE, size)

    def holds(self, segment: int, begin: int, end: int) -> bool:
        """Whether all that an open segment holds there stands here as well. Raises OSError."""
        at, size = begin % Redo.SIZE, end - begin
        if size > Redo.SIZE:
            return False
        here = self._disk.pread(self.descriptor, min(size, Redo.SIZE - at), at)
        if at + size > Redo.SIZE:
            here += self._disk.pread(self.descriptor, at + size - Redo.SIZE, 0)
        return here == self._disk.pread(segment, size, begin)

    def stands(self) -> bool:
        """Whether this is still the file of that name, and of no other, at its full size."""
        try:
            there = self._file.stat()
            same = os.path.samestat(there, os.fstat(self.descriptor))
        except OSError:
            return False
        return same and there.st_nlink == 1 and there.st_size >= Redo.SIZE

    def empty(self) -> None:
        """Leave nothing here, when all of the log is synced in its segments. Under the lock."""
        self._disk.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)


def missing(cursor: Cursor) -> bytes:
    """The lines that the last segment lacks behind this cursor, where it is whole no further.

    Raises LogNewer where a newer eventq has written them, OSError where they cannot be read.
    """
    text = _ring(cursor, cursor.offset, Redo.SIZE)
    if not text or not _taken(cursor):
        return b""
    if cursor.offset and prev_of(text[: text.find(b"\n") + 1]) is not None:
        return b""  # that begins a segment, which is not there
    after = cursor.copy()
    try:
        for _ in after.follow(io.BytesIO(text)):
            pass
    except LogDamaged:  # what follows here is older, or not whole
        pass
    return text[: after.offset - cursor.offset]


_NO_FILE = {errno.ENOENT, errno.EISDIR, errno.EINVAL}
"""How `open_to_read` says that there is no file of this name, or something else."""


def reaches(cursor: Cursor) -> bool:
    """Whether the line that ends at this cursor stands here."""
    tail = b'"%b"}\n' % (cursor.hash or b"")
    return _ring(cursor, cursor.offset - len(tail), len(tail)) == tail


def _taken(cursor: Cursor) -> bool:
    """Whether a power cut may have taken the next line: half of it is there at most, or zeros
    where its bytes did not get to the disk and later ones did. Damage is another thing: one bit
    that is flipped makes no two zeros."""
    try:
        with open_to_read(cursor.file) as segment:
            segment.seek(cursor.offset)
            line = segment.readline()
    except FileNotFoundError:
        return False
    return not line.endswith(b"\n") or b"\0\0" in line


def _ring(cursor: Cursor, offset: int, size: int) -> bytes:
    """What stands here for so many bytes of the segment from there on; nothing where that does
    not begin as a line or its end does, as nearly always: then the rest need not be read."""
    at = offset % Redo.SIZE
    redo = cursor.log.parent / _NAME
    try:
        with open_to_read(redo) as file:
            file.seek(at)
            if (text := file.read(1)) not in (b"{", b'"'):
                return b""
            text += file.read(min(size, Redo.SIZE - at) - 1)
            file.seek(0)
            return text + file.read(size - len(text))
    except OSError as error:
        if error.errno in _NO_FILE:
            return b""
        error.filename = str(redo)  # which a failed read does not say
        raise
