"""The log on disk: its lock, reading what others wrote, appending.

A queue is a directory: `log/` holds the segments, `snapshots/` the snapshots, `lock` is the file
whose kernel lock makes one writer of many. The order of a write is: lock, catch up, decide, write,
unlock, sync, answer. What was answered is on disk, as far as the disk is honest, see `syncing`.
The package says what is promised.
"""

from __future__ import annotations

import fcntl
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from eventq.core.events import Entry
from eventq.core.evolve import Folded
from eventq.core.state import State
from eventq.core.values import check_whole
from eventq.storage.beginning import where_to_begin
from eventq.storage.codec import encode
from eventq.storage.disk import DISK, Disk
from eventq.storage.errors import (
    Archived,
    HandleBusy,
    LogDamaged,
    LogNewer,
    NotAQueue,
    ReadOnly,
)
from eventq.storage.folders import make_folders
from eventq.storage.lines import end_of
from eventq.storage.lock import NOW, TIMEOUT, check_timeout, tell_of_forks, wait_for_lock
from eventq.storage.mending import mend, pread, renew
from eventq.storage.payload import SIZE_LIMIT, Door
from eventq.storage.place import LOOK_EVERY, check_lock, check_segment, last_named
from eventq.storage.redo import Redo, missing, reaches
from eventq.storage.replaying import entries_since, fold, lost, state_after
from eventq.storage.segments import CUT_SHORT, Cursor, segment_path
from eventq.storage.snapshot import save
from eventq.storage.syncing import Durability, Synced
from eventq.storage.watch import Watch

__all__ = ["SEGMENT_BYTES", "Log"]

SEGMENT_BYTES = 64 * 1024 * 1024
"""How large a segment grows before the next is begun."""

NOTHING: Callable[[], object] = bool
"""What is called where there is nothing to do."""

LONG = 0.001
"""How many seconds a pause has, in the wait for the lock, from which on others are let in."""

UNKNOWN, NO_LOCK = -2, -1
"""No sizes of a file: one that was not looked at, and that of the lock which a reader has not."""

AT_ONCE = 1024 * 1024
"""About how much is read at once of what others wrote."""

AN_ENTRY = 200
"""About how many bytes of log an entry takes."""


class Log(Synced):
    """The log of one queue, open for this process.

    Who holds the lock writes `with log.mutex: try: log.take() ... finally: log.let_go()`, or
    `with log.alone():` where it does not matter when an interrupt lets go of it.
    """

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
        check_timeout(lock_timeout)
        super().__init__(path, read_only, durability, disk)
        self._segment_bytes = segment_bytes
        self.door = Door(size_limit)
        self._lock_timeout = lock_timeout
        self._flock = disk.flock
        self._pwrite = disk.pwrite
        self.mutex = threading.RLock()
        self.user = 0
        """The thread that is about a command or a look: a handler of a signal that breaks into it
        would meet all in the midst of a change."""
        self.unsaved = 0
        """How many bytes of log were read or written since the last snapshot."""
        self.damage: LogDamaged | LogNewer | None = None
        """What a reader could not go past as it opened the log; it can read what stands before."""
        self._lock = -1
        self._look_at = 0.0
        """When to look again whether the queue is still there, on the monotonic clock."""
        self._names = -1
        """The folder of the segments, open: it tells when a name in it came, went or moved."""
        self._named: int | None = None
        """When one last did, as far as that was looked at."""
        self._begun = UNKNOWN
        """How long the lock was when this segment was last seen to be the last one: the file of
        the lock grows by a byte before each new segment, so that its size says when to look."""
        self._turn = threading.Condition(self.mutex)
        self.meanwhile: Callable[[], None] = lambda: None
        """What is done before the lock is waited for: to read what others are writing."""
        self.let_go: Callable[[], object] = NOTHING
        """Lets go of the lock, unless it is to outlast the command, see `alone`. No function of
        Python: an interrupt comes as one begins, and would keep it from being carried out."""
        self._folder = path / "log"
        if not read_only:
            make_folders(disk, path)
            self._lock = disk.open(path / "lock", os.O_RDWR | os.O_CREAT)
            self.let_go = partial(self._flock, self._lock, fcntl.LOCK_UN)
        elif not self._folder.is_dir():
            raise NotAQueue(path, "it has no folder `log`")
        self._names = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        tell_of_forks(self)

    # The lock.

    def take(self) -> bool:
        """Take the lock, under the mutex; for one who lets go of it whatever comes. Whether there
        is, or may be, something that this handle has not read."""
        if self._finished is not None:
            self.check_alive()
        if self.read_only:
            raise ReadOnly(self.path)
        try:
            self._flock(self._lock, NOW)
        except OSError as error:
            self.meanwhile()
            wait = self._lock_timeout
            wait_for_lock(self._flock, self._lock, self.path, wait, error, self._pause)
        try:
            return self.behind(locked=True)
        except Archived:  # which is told to who catches up
            return True

    def _pause(self, seconds: float) -> None:
        """Wait a little for the lock. Where that takes long, other threads may look meanwhile, or
        shut this handle."""
        if seconds < LONG:
            sleep(seconds)
        else:
            user = self.user
            try:
                self._turn.wait(seconds)
            finally:
                self.user = user
            self.check_alive()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock over several commands of this thread."""
        self.check_alive()  # in a forked child, another thread may hold the mutex for ever
        with self.mutex:
            if self.user == threading.get_ident():
                raise HandleBusy
            let_go = self.let_go
            try:
                self.take()
                self.let_go = NOTHING
                yield
            finally:
                if self._lock >= 0:  # it may have been shut meanwhile
                    self.let_go = let_go
                self.let_go()

    def forked(self) -> None:
        """In a child that was forked: let go of the lock, which is the parent's."""
        super().forked()
        self.let_go = NOTHING
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def look(self) -> None:
        """See that what is open is what stands at its path. Raises QueueReplaced, Archived."""
        self._look_at, self._named = 0.0, None
        named = last_named(self._names)
        if self._lock >= 0:
            check_lock(self.path, self._lock)
        if self._segment >= 0 and not check_segment(self._cursor, self._segment):
            self._switch(self._open(self._cursor.file), self._cursor)
        if self._redo is not None and not self._redo.stands():
            self._leave_redo(Redo.AFTER)  # and make a new one with the next line
        self._look_at, self._named = monotonic() + LOOK_EVERY, named

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
            old, self._segment, self._begun = self._segment, -1, UNKNOWN
            if old >= 0:
                os.close(old)
            return state

    def state_at(self, seq: int) -> State:
        """The state after this entry, which was read before. Raises LogDamaged where it is lost."""
        state = state_after(self.path, seq)
        if state.seq < seq:
            raise lost(self.path, seq)
        return state

    def entries(self, since: int) -> Iterator[Entry]:
        """The entries from this seq on, checked from the segment that holds it."""
        return entries_since(self.path, since)

    def behind(self, *, locked: bool = False) -> bool:
        """Whether there is, or may be, something that this handle has not read."""
        if monotonic() >= self._look_at:
            self.look()
        if self._segment < 0:
            return self._cursor.file.exists()
        lock = NO_LOCK
        if self._lock >= 0:
            of_lock = os.fstat(self._lock)
            lock = of_lock.st_size if of_lock.st_nlink else UNKNOWN
        if lock == UNKNOWN or os.fstat(self._names).st_mtime_ns != self._named:
            self.look()
        if os.lseek(self._segment, 0, os.SEEK_END) != self._cursor.offset:
            return True
        return lock != self._begun and self._followed(lock, locked=locked)

    def _followed(self, begun: int, *, locked: bool) -> bool:
        """Whether another segment follows, looked up only where the size of the lock says so."""
        if begun == self._begun:
            return False
        there = os.access(f"{self._folder}/{self._cursor.seq + 1:020}.jsonl", os.F_OK)
        if locked and not there:
            if self._cursor.overtaken():
                raise self._cursor.damaged(CUT_SHORT)
            self._begun = begun
        return there

    def catch_up(self, *, locked: bool = False) -> tuple[list[Folded], bool]:
        """What was written since this handle last looked, as much as is read at once; and whether
        there may be more. Under the lock, what a crash has left is mended."""
        if self._segment < 0:
            if self.damage is not None:
                raise self.damage.with_traceback(None)  # the state would be short, and not say so
            if not self._cursor.file.exists():
                return [], False
            self._segment = self._open(self._cursor.file)
        found = -1
        while True:
            cursor = self._cursor
            end = os.lseek(self._segment, 0, os.SEEK_END)
            rest = end - cursor.offset
            if rest < 0 and self.read_only and reaches(cursor):
                return [], False  # nobody has opened it to write since a power cut
            if rest < 0:
                raise cursor.damaged(f"the file has lost {-rest} bytes that were read before")
            begun = NO_LOCK if self._lock < 0 else os.lseek(self._lock, 0, os.SEEK_END)
            entries: list[Folded] = []
            size = 0
            try:
                while size < rest and not entries:  # a line may be longer than what was read
                    size = min(2 * size or AT_ONCE, rest)
                    text = pread(self.disk, self._segment, size, cursor.offset)
                    entries.extend(cursor.follow(io.BytesIO(text)))
            except (LogDamaged, LogNewer):
                if not entries:  # else told when what stands before it was taken
                    if found == cursor.offset:
                        raise
                    found = cursor.offset  # as in `twice`
                    continue
            if entries:
                return entries, cursor.offset < end or begun != self._begun
            if not self._goes_on(begun, end, locked=locked):
                return [], False

    def _goes_on(self, begun: int, end: int, *, locked: bool) -> bool:
        """Whether there is more to read, where nothing whole follows in this segment, which was so
        long: in the next one, or in this one when it is mended."""
        cursor = self._cursor
        after = cursor.copy()
        if self._followed(begun, locked=locked) and after.next_segment(end - cursor.offset):
            self._switch(self._open(after.file), after)
            return True
        if cursor.offset == end:
            return False
        if cursor.overtaken() and os.lseek(self._segment, 0, os.SEEK_END) == end:
            raise cursor.damaged(CUT_SHORT)
        return locked and mend(self.disk, self._segment, cursor, self.path / "torn", self.sync)

    def _open(self, file: Path) -> int:
        return self.disk.open(file, os.O_RDONLY if self.read_only else os.O_RDWR)

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

    def restore(self) -> None:
        """Write again what a power cut took from the end of the log, see `redo`. Under the lock.
        Raises OSError."""
        end = end_of(self._folder)
        text = missing(end)
        if not text or not end.file.exists():
            return
        segment = self._open(end.file)
        try:
            written = 0
            while written < len(text):
                written += self._pwrite(segment, text[written:], end.offset + written)
            self.disk.ftruncate(segment, end.offset + len(text))
            try:
                self._fdatasync(segment)
            except OSError as error:
                self._sync_failed(error)
        finally:
            os.close(segment)

    def append(self, entry: Entry) -> int:
        """Write an entry, under the lock, caught up; how many bytes it takes. Raises OSError: then
        nothing was written."""
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
        self.look()  # a name is about to be made
        cursor = self._cursor
        self.sync()
        self.disk.ftruncate(self._lock, os.fstat(self._lock).st_size + 1)
        file = segment_path(self._folder, cursor.seq + 1)
        descriptor = self.disk.open(file, os.O_RDWR | os.O_CREAT)
        after = cursor.copy()
        after.next_segment(0)
        self._switch(descriptor, after)

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
        fails, HandleFinished where one failed before that was to come after the answer."""
        if os.getpid() != self._pid:  # in a forked child nothing of it is ours
            return
        with self.mutex:
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
        assert self._redo is not None
        with suppress(OSError):
            self._flock(self._lock, NOW)
            self.look()
            if self._redo is not None and os.fstat(self._lock).st_size == self._begun:
                self.sync()  # no later segment is there: so all of the log is in its segments
                self._redo.empty()
