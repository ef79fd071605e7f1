"""Syncing the log of a handle: which file, when, once for all who wait, and what it means that
a sync fails.

The kernel may have dropped what it could not write, show it all the same for a while, and not say
so again. So a failed sync is never tried again: the handle answers nothing more, and a mark tells
who has the lock next not to trust what can be read, see `mending`.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Literal, get_args

from eventq.core.errors import BadValue
from eventq.storage.disk import Disk
from eventq.storage.errors import HandleFinished
from eventq.storage.folders import sync_names
from eventq.storage.later import BYTES, Later
from eventq.storage.redo import Redo
from eventq.storage.segments import Cursor

__all__ = ["Durability", "Synced"]

Durability = Literal["power", "process"]
"""What an answer survives: a power cut, since it is synced before; or the end of the process
alone, since it is written before, and synced soon after."""


HEAD_START = 15e-6
"""How many seconds the disk is given for the bytes of a command before it is asked to sync them.
Who asks at once is put to sleep twice, for the bytes and then for the flush of the disk, and to be
woken costs more than to wait: measured, 2 to 8% of a synced command. Making the answer takes a part
of this anyway."""

NOT_SOON = 10_000
"""How often the segment is synced before a redo file that failed is tried again."""


class Synced:
    """The open segment of a log, and where in it this handle stands."""

    def __init__(self, path: Path, read_only: bool, durability: Durability, disk: Disk) -> None:
        if durability not in get_args(Durability):
            raise BadValue(f"durability must be 'power' or 'process', not {durability!r}")
        self.path = path
        self.read_only = read_only
        self.disk = disk
        self._fdatasync = disk.fdatasync  # once: each command needs it
        self._segment = -1
        self._cursor = Cursor(path / "log")
        self._mark = path / "unsynced"
        self._pid = os.getpid()
        self._finished: str | None = None
        """Why this handle answers nothing more."""
        self._syncing = threading.RLock()  # a handler of a signal may ask in the midst of it
        self._synced = 0
        """The seq of the last entry that is known to last."""
        self._safe = 0
        """How much of the segment this handle knows to be synced in it."""
        self._covered = 0
        """How much of it is either synced, or stands in the redo file as well."""
        self._redo: Redo | None = None
        self._segment_syncs = 0
        """How often the segment was synced before an answer, as far as that counts towards the
        making of a redo file."""
        self._unsynced = 0
        """About how many bytes were written here since the last sync."""
        self._later = Later(lambda: self.sync(self.seq)) if durability == "process" else None
        self._unmarked = False
        self._not_before = 0.0
        """When to ask for a sync, on the monotonic clock: see HEAD_START."""

    @property
    def seq(self) -> int:
        """The seq of the last line that was read or written."""
        return self._cursor.seq

    def check_alive(self) -> None:
        """Raise HandleFinished where this handle answers nothing more."""
        if self._finished is None and os.getpid() != self._pid:
            self.forked()
        if self._finished is not None:
            self._leave_mark()
            raise HandleFinished(
                f"this handle of {self.path} answers nothing more: {self._finished}"
            )

    def forked(self) -> None:
        """In a child that was forked: nothing of this is ours."""
        if self._later is not None:
            self._later.forked()
        self._finished = (
            f"it belongs to process {self._pid}, which was forked: open the queue again in this one"
        )

    def sync_soon(self, size: int) -> None:
        """The last so many bytes were just written: they are to be synced before the answer, and
        the disk can begin with them while that is made."""
        if self._later is None:
            end = self._cursor.offset
            if self._redo is not None and self._covered >= end:
                self._redo.write_soon(end - size, size)
            else:
                self.disk.write_soon(self._segment, end - size, size)
            self._not_before = monotonic() + HEAD_START

    def write_again(self, line: bytes, start: int) -> None:
        """A line was written at this offset of the segment. Under the lock: write it to the redo
        file, if that is worth having, and see whether what others wrote before stands there."""
        end = start + len(line)
        try:
            new = self._redo is None
            if self._redo is None:
                if self._segment_syncs < Redo.AFTER:
                    return
                self._redo = Redo(self.disk, self.path)
            if end - self._safe > Redo.SIZE:
                return  # what is not synced in the segment would be written over there
            self._redo.write(line, start)
            known = max(self._covered, self._safe)
            # Another's sync of it may have failed before: that can be read, and is told nobody.
            if known < start and (new or not self._redo.holds(self._segment, known, start)):
                return
        except OSError:  # it costs time, and no more, to do without
            self._leave_redo(-NOT_SOON)
        else:
            self._covered = end

    def _leave_redo(self, counted: int) -> None:
        """Do without a redo file, with so many syncs counted towards the next: not while one is
        synced."""
        with self._syncing:
            redo, self._redo = self._redo, None
            self._covered, self._segment_syncs = 0, counted
            if redo is not None:
                redo.close()

    def secure(self, seq: int) -> None:
        """Make the entries up to this one as safe as an answer that rests on them has to be."""
        if self._later is None or self._unsynced > BYTES:
            self.sync(seq)
        elif seq > self._synced:
            self._later.ask()

    def sync(self, seq: int | None = None) -> None:
        """Return when all entries up to this one are on disk, in the segment or in the redo file;
        whoever syncs, syncs for all. None: whatever is known of the open segment, in it, since no
        seq tells of bytes that a failed write has left there, and that were cut off again. Where
        that fails the handle is finished, and the log marked."""
        if seq is not None and seq <= self._synced:
            return
        with self._syncing:
            if seq is not None and seq <= self._synced:
                return  # somebody has done so while this one waited
            if self._finished is not None:
                self.check_alive()
            begin = self._not_before
            while monotonic() < begin:
                pass
            cursor = self._cursor
            written = cursor.seq
            end = cursor.offset  # after the seq: another thread may be reading on
            redo = self._redo if seq is not None and self._covered >= end else None
            self._unsynced = 0
            try:
                self._fdatasync(self._segment if redo is None else redo.descriptor)
            except OSError as error:
                self._sync_failed(error)
            self._synced = written
            if redo is None and cursor.first == self._cursor.first:  # else a handler has gone on
                self._safe = end
                self._segment_syncs += self._later is None

    def _sync_failed(self, error: OSError) -> None:
        if not self.read_only:
            self._finished = f"a sync failed ({error}), so what it wrote may be lost"
            self._unmarked = True
            self._leave_mark()
            raise error
        if error.errno not in (errno.EINVAL, errno.EROFS):
            raise error  # else nothing can be written there, and so nothing is unsynced

    def _leave_mark(self) -> None:
        """Say to who has the lock next that what can be read may not be on disk. On a disk that
        fails that may fail as well: then at the next occasion."""
        if self._unmarked:
            with suppress(OSError):
                os.close(self.disk.open(self._mark, os.O_WRONLY | os.O_CREAT))
                self._unmarked = False
                os.utime(self.path / "log")  # as a new name does, it makes all others look

    def _sync_names(self) -> None:
        """Make the name of a new segment last before its first line is: whoever made the file may
        have got no further. The first one, and so the whole queue, with the folders above."""
        try:
            sync_names(self.disk, self.path, new=self._cursor.first == 1)
        except OSError as error:
            self._finished = f"a sync failed ({error})"
            raise

    def _switch(self, segment: int, cursor: Cursor) -> None:
        """Go on with another open file: not while one is synced."""
        with self._syncing:
            old, self._segment, self._cursor = self._segment, segment, cursor
            self._safe = self._covered = 0
            os.close(old)
