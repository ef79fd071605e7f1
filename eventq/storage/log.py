"""The log on disk: appending, with the kernel's lock; syncing, shared by all who wait.

A queue is a directory: `log/` holds the segments, `snapshots/` the snapshots, `lock` is the file
whose kernel lock makes one writer of many. The order of a write is: lock, catch up, decide, write,
unlock, sync, answer. What was answered is on disk, as far as the disk is honest.
The package says what is promised.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Literal, get_args

from eventq.core.errors import BadValue
from eventq.core.events import Entry
from eventq.core.evolve import Folded
from eventq.core.state import State
from eventq.storage.beginning import where_to_begin
from eventq.storage.codec import encode
from eventq.storage.disk import DISK, Disk
from eventq.storage.errors import HandleFinished, LogDamaged, LogNewer, NotAQueue, ReadOnly
from eventq.storage.folders import make_folders, sync_names
from eventq.storage.later import BYTES, Later
from eventq.storage.lock import AT_ONCE, TIMEOUT, tell_of_forks, wait_for_lock
from eventq.storage.mending import mend, pread, renew
from eventq.storage.payload import SIZE_LIMIT, Door
from eventq.storage.place import LOOK_EVERY, check_lock, check_segment
from eventq.storage.replaying import entries_since, fold, state_after
from eventq.storage.segments import Cursor, segment_path
from eventq.storage.snapshot import save
from eventq.storage.watch import Watch

__all__ = ["SEGMENT_BYTES", "Durability", "Log"]

Durability = Literal["power", "process"]
"""What an answer survives: a power cut, since it is synced before; or the end of the process
alone, since it is written before, and synced soon after."""

SEGMENT_BYTES = 64 * 1024 * 1024
"""How large a segment grows before the next is begun."""

AN_ENTRY = 200
"""About how many bytes of log an entry takes."""


class Log:
    """The log of one queue, open for this process. `with log:` holds the lock."""

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
        if durability not in get_args(Durability):
            raise BadValue(f"durability must be 'power' or 'process', not {durability!r}")
        self.path = path
        self.read_only = read_only
        self._segment_bytes = segment_bytes
        self.door = Door(size_limit)
        self._lock_timeout = lock_timeout
        self.disk = disk
        self._flock = disk.flock
        self._pwrite, self._fdatasync = disk.pwrite, disk.fdatasync  # once: each command needs them
        self.mutex = threading.RLock()
        self._syncing = threading.RLock()  # a handler of a signal may ask in the midst of it
        self._finished: str | None = None
        self._pid = os.getpid()
        self._synced = 0
        self._unsynced = 0
        """About how many bytes were written here since the last sync."""
        self._later = Later(lambda: self.sync(self.seq)) if durability == "process" else None
        self._unmarked = False
        self.unsaved = 0
        """How many bytes of log were read or written since the last snapshot."""
        self.damage: LogDamaged | LogNewer | None = None
        """What a reader could not go past as it opened the log; it can read what stands before."""
        self._segment = -1
        self._lock = -1
        self._look_at = 0.0
        """When to look again whether the queue is still there, on the monotonic clock."""
        self._begun = -2
        """How long the lock was when this segment was last seen to be the last one: the file of
        the lock grows by a byte before each new segment, so that its size says when to look."""
        self._folder = path / "log"
        self._mark = path / "unsynced"
        if not read_only:
            make_folders(disk, path)
            self._lock = disk.open(path / "lock", os.O_RDWR | os.O_CREAT)
        elif not self._folder.is_dir():
            raise NotAQueue(path, "it has no folder `log`")
        self._cursor = Cursor(self._folder)
        tell_of_forks(self)

    # The lock.

    def __enter__(self) -> None:
        self.check_alive()  # in a forked child, another thread may hold the mutex for ever
        self.mutex.acquire()
        try:
            if self._finished is not None:
                self.check_alive()
            if self.read_only:
                raise ReadOnly(self.path)
            try:
                self._flock(self._lock, AT_ONCE)
            except OSError as error:
                wait_for_lock(self._flock, self._lock, self.path, self._lock_timeout, error)
        except BaseException:
            self.mutex.release()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if self._lock >= 0:
                self._flock(self._lock, fcntl.LOCK_UN)
        finally:
            self.mutex.release()

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
        """In a child that was forked: let go of the lock, which is the parent's."""
        self._finished = (
            f"it belongs to process {self._pid}, which was forked: open the queue again in this one"
        )
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def look(self) -> None:
        """See that what is open is what stands at its path. Raises QueueReplaced."""
        if self._lock >= 0:
            check_lock(self.path, self._lock)
        if self._segment >= 0 and not check_segment(self._cursor, self._segment):
            self._switch(self._open(self._cursor.file), self._cursor)
        self._look_at = monotonic() + LOOK_EVERY

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

    def state_at(self, seq: int) -> State:
        """The state after this entry."""
        return state_after(self.path, seq)

    def entries(self, since: int) -> Iterator[Entry]:
        """The entries from this seq on, checked from the segment that holds it."""
        return entries_since(self.path, since)

    def behind(self, *, locked: bool = False) -> bool:
        """Whether there is, or may be, something that this handle has not read."""
        cursor = self._cursor
        if monotonic() >= self._look_at:
            self.look()
        if self._segment < 0:
            return cursor.file.exists()
        segment = os.fstat(self._segment)
        lock = segment if self._lock < 0 else os.fstat(self._lock)
        if not (segment.st_nlink and lock.st_nlink):
            self.look()
            segment = os.fstat(self._segment)
        if segment.st_size != cursor.offset:
            return True
        begun = -1 if self._lock < 0 else lock.st_size
        if begun == self._begun:
            return False
        there = os.access(f"{self._folder}/{cursor.seq + 1:020}.jsonl", os.F_OK)
        if locked and not there:
            self._begun = begun
        return there

    def catch_up(self) -> Iterator[Folded]:
        """What was written since this handle last looked."""
        cursor = self._cursor
        if self._segment < 0:
            if not cursor.file.exists():
                return
            self._segment = self._open(cursor.file)
        while True:
            rest = os.fstat(self._segment).st_size - cursor.offset
            if rest < 0:
                raise cursor.damaged(f"the file has lost {-rest} bytes that were read before")
            end = cursor.offset + rest
            if rest:
                yield from cursor.follow(
                    io.BytesIO(pread(self.disk, self._segment, rest, cursor.offset))
                )
            after = cursor.copy()
            if not after.next_segment(end - cursor.offset):
                return
            self._switch(self._open(after.file), after)
            cursor = after

    def _switch(self, segment: int, cursor: Cursor) -> None:
        """Go on with another open file: not while one is synced."""
        with self._syncing:
            old, self._segment, self._cursor = self._segment, segment, cursor
            os.close(old)

    def _open(self, file: Path) -> int:
        return self.disk.open(file, os.O_RDONLY if self.read_only else os.O_RDWR)

    @property
    def seq(self) -> int:
        """The seq of the last line that was read or written."""
        return self._cursor.seq

    @property
    def head(self) -> tuple[int, str]:
        """The seq and the hash of the last line that was read or written."""
        last = self._cursor.hash
        return self._cursor.seq, (last or b"").decode()

    # Writing, under the lock.

    def renew(self) -> None:
        """After a failed sync: put a synced copy of the open segment in its place, see `mending`.

        Called under the lock.
        """
        if self._mark.exists():
            renew(self.disk, self._folder, self._mark)

    def mend(self) -> bool:
        """Cut a torn tail, or finish a line that lacks its newline; whether it did the latter.

        Called under the lock, caught up.
        """
        if self._segment < 0:
            return False
        torn = self.path / "torn"
        return mend(self.disk, self._segment, self._cursor, torn, self._sync_segment)

    def append(self, entry: Entry) -> None:
        """Write an entry, under the lock, caught up. Raises OSError: then nothing was written."""
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
        after = cursor.copy()
        after.offset += len(line)
        after.lines += 1
        after.seq = entry.seq
        after.hash = digest
        if self._cursor is not cursor or entry.seq != cursor.seq + 1:
            raise HandleFinished("a signal handler asked in the midst of a command: it was dropped")
        self._write(line)
        self._cursor = after  # in one step: an interrupt finds the log before the line or behind it
        self.unsaved += len(line)
        self._unsynced += len(line)

    def _sync_names(self) -> None:
        """Make the name of a new segment last before its first line is: whoever made the file may
        have got no further. The first one, and so the whole queue, with the folders above."""
        try:
            sync_names(self.disk, self.path, new=self._cursor.first == 1)
        except OSError as error:
            self._finished = f"a sync failed ({error})"
            raise

    def _write(self, line: bytes) -> None:
        start = self._cursor.offset
        try:
            written = self._pwrite(self._segment, line, start)
            while written < len(line):
                written += self._pwrite(self._segment, line[written:], start + written)
        except BaseException:
            try:
                # A line that got there whole, in spite of an interrupt, may have been read.
                if os.fstat(self._segment).st_size < start + len(line):
                    self.disk.ftruncate(self._segment, start)
            except OSError as error:
                self._finished = f"a failed write could not be rolled back ({error})"
            raise

    def _roll(self) -> None:
        """Sync the full segment and begin the next."""
        self.look()  # a name is about to be made
        cursor = self._cursor
        self._sync_now(cursor.seq)
        begun = os.fstat(self._lock).st_size + 1
        self.disk.ftruncate(self._lock, begun)
        file = segment_path(self._folder, cursor.seq + 1)
        descriptor = self.disk.open(file, os.O_RDWR | os.O_CREAT)
        after = cursor.copy()
        after.next_segment(0)
        self._switch(descriptor, after)
        self._begun = begun

    # Syncing, without the lock.

    def secure(self, seq: int) -> None:
        """Make the entries up to this one as safe as an answer that rests on them has to be."""
        if self._later is None or self._unsynced > BYTES:
            self.sync(seq)
        elif seq > self._synced:
            self._later.ask()

    def sync(self, seq: int) -> None:
        """Return when all entries up to this one are on disk; whoever syncs, syncs for all."""
        if seq <= self._synced:
            return
        self._sync_now(seq)

    def _sync_now(self, seq: int) -> None:
        with self._syncing:
            if seq <= self._synced:
                return
            self.check_alive()
            written = self._cursor.seq
            self._unsynced = 0
            self._sync_segment()
            self._synced = max(written, seq)

    def _sync_segment(self) -> None:
        """Sync the open segment. Where that fails the handle is finished, and the log marked."""
        try:
            self._fdatasync(self._segment)
        except OSError as error:
            if not self.read_only:
                self._finished = f"a sync failed ({error}), so what it wrote may be lost"
                self._unmarked = True
                self._leave_mark()
                raise
            if error.errno not in (errno.EINVAL, errno.EROFS):
                raise  # else nothing can be written there, and so nothing is unsynced

    def _leave_mark(self) -> None:
        """Say to who opens the log next that what it reads may not be on disk. On a disk that
        fails that may fail as well: then at the next occasion."""
        if self._unmarked:
            with suppress(OSError):
                os.close(self.disk.open(self._mark, os.O_WRONLY | os.O_CREAT))
                self._unmarked = False

    def snapshot(self, state: State, cursor: Cursor) -> Path:
        """Write a snapshot of this state, which is that of the cursor."""
        self.sync(state.seq)
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
        """Let go of the files. The handle answers nothing more. Raises OSError where a last sync
        fails."""
        if os.getpid() != self._pid:  # in a forked child nothing of it is ours
            return
        with self.mutex:
            self._leave_mark()
            try:
                if self._later is not None and self._segment >= 0 and self._finished is None:
                    self._later.stop()
                    self.sync(self.seq)
            finally:
                if self._finished is None:
                    self._finished = "it was shut"
                with self._syncing:
                    for descriptor in (self._segment, self._lock):
                        if descriptor >= 0:
                            os.close(descriptor)
                    self._segment = self._lock = -1
