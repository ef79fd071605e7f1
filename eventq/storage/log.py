"""The log as a handle has it: its state, appending, snapshots, letting go.

The order of a write is: lock, catch up, decide, write, unlock, sync, answer. `following` has the
lock and what others write, `syncing` what makes an answer last; the package says what is promised.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import get_ident

from eventq.core.events import Entry
from eventq.core.state import State
from eventq.core.values import check_whole
from eventq.storage.beginning import where_to_begin
from eventq.storage.codec import encode
from eventq.storage.disk import DISK, Disk
from eventq.storage.errors import Archived, HandleBusy, LogDamaged, LogNewer, QueueReplaced
from eventq.storage.following import NOTHING, UNKNOWN, Followed
from eventq.storage.lines import seq_at
from eventq.storage.lock import NOW, TIMEOUT
from eventq.storage.payload import SIZE_LIMIT, Door
from eventq.storage.replaying import entries_since, fold, lost, state_after
from eventq.storage.segments import Cursor, segment_path
from eventq.storage.snapshot import save
from eventq.storage.syncing import Durability
from eventq.storage.watch import Watch

__all__ = ["SEGMENT_BYTES", "Log"]

SEGMENT_BYTES = 64 * 1024 * 1024
"""How large a segment grows before the next is begun."""

AN_ENTRY = 200
"""About how many bytes of log an entry takes."""


class Log(Followed):
    """The log of one queue, open for this process."""

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        size_limit: int = SIZE_LIMIT,
        lock_timeout: float | None = TIMEOUT,
        durability: Durability = "power",
        disk: Disk = DISK,
    ) -> None:
        check_whole("segment_bytes", segment_bytes, 1)
        super().__init__(path, read_only, durability, disk, lock_timeout)
        self._segment_bytes = segment_bytes
        self.door = Door(size_limit)
        self._pwrite = disk.pwrite
        self.unsaved = 0
        """How many bytes of log were read or written since the last snapshot."""

    # Reading.

    def state(self) -> State:
        """The state of all that was written: from the newest snapshot that fits, or from the
        first line."""
        begin, self._cursor = where_to_begin(self.path, None)
        if not self._cursor.file.exists():
            return begin
        try:
            state = fold(self.path, begin, self._cursor.forward())
        except (LogDamaged, LogNewer) as error:
            if not self.read_only or error.seq == 1:
                raise
            self.damage = error
            state = self.state_at(self._cursor.seq)
        self.unsaved = AN_ENTRY * (state.seq - begin.seq)
        return state

    def state_anew(self) -> State:
        """The state as for who opens the log now: where it was read to is archived."""
        with self._syncing:
            place = self._cursor
            try:
                state = self.state()
            except BaseException:
                self._cursor = place  # to be told the same again
                raise
            self._leave_segment()
            return state

    def _look(self) -> None:
        """See that what stands at the path is what this handle has read, before its past is read
        from there."""
        with self.mutex, suppress(Archived):  # which is told by who needs what is archived
            self.look()

    def state_at(self, seq: int) -> State:
        """The state after this entry, which was read before. Raises LogDamaged where it is lost,
        QueueReplaced."""
        self._look()
        state = state_after(self.path, seq)
        if state.seq < seq:
            raise lost(self.path, seq)
        return state

    def seq_at(self, then: datetime) -> int:
        """The seq of the last entry that is not later than this moment. Raises QueueReplaced."""
        self._look()
        return seq_at(self._folder, then)

    def entries(self, since: int) -> Iterator[Entry]:
        """The entries from this seq on, checked from the segment that holds it. Raises
        QueueReplaced."""
        self._look()
        return entries_since(self.path, since)

    # Writing, under the lock.

    def put_back(self) -> None:
        """Write to the segment what `state` has read from the redo file, since a power cut took it
        from there. Under the lock. Raises OSError."""
        cursor = self._cursor
        (at, redone), cursor.redone = cursor.redone, (0, b"")
        if redone and cursor.file.exists():  # else others have done so, and archived it since
            self._segment = self._open(cursor.file)
            self.disk.write_all(self._segment, redone, at)
            self.sync()

    def append(self, entry: Entry) -> int:
        """Write an entry, under the lock, caught up; how many bytes it takes. Raises OSError: then
        nothing was written."""
        if self._finished is not None:  # a handler of a signal has forked, and this is the child
            self.check_alive()
        cursor = self._cursor
        last = cursor.hash
        assert last is not None
        line, digest = encode(entry, last, first=not cursor.offset)
        if cursor.offset and cursor.offset + len(line) > self._segment_bytes:
            self._roll()
            cursor = self._cursor
            line, digest = encode(entry, last, first=True)
        elif self._segment < 0:
            self._segment = self.disk.open(cursor.file, os.O_RDWR | os.O_CREAT)
        if not cursor.offset:
            self._sync_names()
        after = cursor.behind(len(line), entry.seq, digest)
        assert entry.seq == cursor.seq + 1
        start, size, written = cursor.offset, len(line), 0
        try:
            while written < size:
                written += self._pwrite(self._segment, line[written:], start + written)
            self.write_again(line, start)
        except BaseException:
            self._take_back(start, size)
            raise
        self._cursor = after  # in one step: an interrupt finds the log before the line or behind it
        self.unsaved += size
        self._unsynced += size
        return size

    def _take_back(self, start: int, size: int) -> None:
        """Let the segment end where a write that failed began."""
        try:
            # A line that got there whole, in spite of an interrupt, may have been read.
            if os.fstat(self._segment).st_size < start + size:
                self.disk.ftruncate(self._segment, start)
        except OSError as error:
            self._finished = f"a failed write could not be rolled back ({error})"

    def _roll(self) -> None:
        """Sync the full segment and begin the next."""
        self.look(locked=True)  # a name is about to be made
        cursor = self._cursor
        self.sync()
        self.disk.ftruncate(self._lock, os.fstat(self._lock).st_size + 1)
        file = segment_path(self._folder, cursor.seq + 1)
        descriptor = self.disk.open(file, os.O_RDWR | os.O_CREAT)
        if os.fstat(descriptor).st_size:  # the lock has lost its size, which tells of segments
            os.close(descriptor)
            self._begun = UNKNOWN
            raise QueueReplaced(file, "is there already, and this handle has not read it")
        after = cursor.copy()
        after.next_segment(0)
        self._switch(descriptor, after)

    def sync_for_good(self, seq: int | None = None) -> None:
        """As `sync`, for what was read without the lock: where a sync of another's has failed this
        one proves nothing, and all is on disk when the log is renewed."""
        self.sync(seq)
        if not self.read_only and self._mark.exists():
            with self.alone():
                self.look(locked=True)

    def snapshot(self, state: State, cursor: Cursor) -> Path:
        """Write a snapshot of this state, which is that of the cursor."""
        self.sync_for_good()  # in the segment: who opens with it looks for its line there
        with self.mutex:
            self.look()
        return save(self.path / "snapshots", state, cursor, self.disk)

    def place_for_snapshot(self) -> Cursor:
        """Where the log stands, for a snapshot that is now on its way."""
        self.unsaved = 0
        return self._cursor.copy()

    def place(self) -> Cursor:
        """Where the log was read or written to."""
        return self._cursor.copy()

    def watch(self) -> Watch:
        """What wakes up whenever this log grows."""
        return Watch(self._folder)

    def shut(self) -> None:
        """Let go of the files. The handle answers nothing more. Raises OSError where a last sync of
        what was answered before it fails, HandleFinished where one has failed, HandleBusy in a
        handler of a signal that broke into a call of its own thread."""
        if os.getpid() != self._pid:  # in a forked child nothing of it is ours
            return
        with self.mutex:
            if self.user == get_ident():
                raise HandleBusy  # a handler of a signal: the command that it broke into goes on
            self._leave_mark()
            try:
                if self._later is not None and self._segment >= 0:
                    self._later.stop()
                    self.sync(self.seq)
                if self._redo is not None and self._finished is None:
                    self._empty_redo()
            finally:
                if self._finished is None:
                    self._finished = "it was shut"
                self.let_go = NOTHING
                self._leave_redo(0)
                with self._syncing:
                    for descriptor in (self._segment, self._lock, self._names):
                        if descriptor >= 0:
                            os.close(descriptor)
                    self._segment = self._lock = self._names = -1

    def _empty_redo(self) -> None:
        """Leave a log of segments alone, for whoever copies or looks into them. What fails, or has
        to be waited for, is left to the next."""
        with suppress(OSError, Archived, LogDamaged):
            self._flock(self._lock, NOW)  # until that file is closed
            self.look(locked=True)
            begun = os.fstat(self._lock).st_size
            if self._redo is not None and not self._followed(begun, locked=True):
                self.sync()  # no later segment is there: so all of the log is in its segments
                self._redo.empty()
