"""The log among other handles: its lock, whether its files are still those, what others wrote.

What this handle has read before is never taken for the end of the log: the size of the file, under
the lock, says where that is, and the bytes before it whether it is still that log.
"""

from __future__ import annotations

import fcntl
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from eventq.core.evolve import Folded
from eventq.storage.disk import Disk, check_file
from eventq.storage.errors import Archived, HandleBusy, LogDamaged, LogNewer, NotAQueue, ReadOnly
from eventq.storage.folders import make_folders
from eventq.storage.lock import NOW, check_timeout, tell_of_forks, wait_for_lock
from eventq.storage.mending import mend, pread, renew
from eventq.storage.place import LOOK_EVERY, check_lock, check_segment, is_last, last_named, names
from eventq.storage.redo import Redo, reaches
from eventq.storage.segments import CUT_SHORT
from eventq.storage.syncing import Durability, Synced

__all__ = ["AT_ONCE", "NOTHING", "UNKNOWN", "Followed"]

NOTHING: Callable[[], object] = bool
"""What is called where there is nothing to do."""

LONG = 0.001
"""How many seconds a pause has, in the wait for the lock, from which on others are let in."""

UNKNOWN, NO_LOCK = -2, -1
"""No sizes of a file: one that was not looked at, and that of the lock which a reader has not."""

AT_ONCE = 1024 * 1024
"""About how much is read at once of what others wrote."""


class Followed(Synced):
    """The log of a queue, as far as others write it.

    Who holds the lock writes `with log.mutex: try: log.take() ... finally: log.let_go()`, or
    `with log.alone():` where it does not matter when an interrupt lets go of it.
    """

    def __init__(
        self,
        path: Path,
        read_only: bool,
        durability: Durability,
        disk: Disk,
        lock_timeout: float | None,
    ) -> None:
        check_timeout(lock_timeout)
        super().__init__(path, read_only, durability, disk)
        self._lock_timeout = lock_timeout
        self._flock = disk.flock
        self.mutex = threading.RLock()
        self.user = 0
        """The thread that is about a command or a look: a handler of a signal that breaks into it
        would meet all in the midst of a change."""
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
        elif not self._folder.is_dir():
            raise NotAQueue(path, "it has no folder `log`")
        self._names = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not read_only:
            try:
                lock = disk.open(path / "lock", os.O_RDWR | os.O_CREAT)
                self._lock = check_file(lock, path / "lock")
            except BaseException:
                os.close(self._names)
                raise
            self.let_go = partial(self._flock, self._lock, fcntl.LOCK_UN)
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
        segment, self._segment = self._segment, -1  # nor writes a command on what it was about to
        for descriptor in (lock, segment):
            if descriptor >= 0:
                os.close(descriptor)

    def look(self, *, locked: bool = False) -> None:
        """See that what is open is what stands at its path; under the lock, put a synced copy of
        the last segment in its place where a sync has failed, or where it stands elsewhere too.
        Raises QueueReplaced, Archived."""
        named = last_named(self._names)
        if self._lock >= 0:
            check_lock(self.path, self._lock)
        if locked and (self._mark.exists() or names(self._cursor.file) > 1):
            renew(self.disk, self._folder, self._mark)
        if self._segment >= 0 and not check_segment(self._cursor, self._segment):
            self._switch(self._open(self._cursor.file), self._cursor)
        if self._redo is not None and not self._redo.stands():
            self._leave_redo(Redo.AFTER)  # and make a new one with the next line
        if named is None or named != self._named:
            self._begun = UNKNOWN  # a segment may follow, whatever the size of the lock says
        self._look_at, self._named = monotonic() + LOOK_EVERY, named

    # What others wrote.

    def behind(self, *, locked: bool = False) -> bool:
        """Whether there is, or may be, something that this handle has not read."""
        if monotonic() >= self._look_at:
            self.look(locked=locked)
        if self._segment < 0:
            return self._cursor.file.exists()
        lock = NO_LOCK
        if self._lock >= 0:
            of_lock = os.fstat(self._lock)
            lock = of_lock.st_size if of_lock.st_nlink else UNKNOWN
        if lock == UNKNOWN or os.fstat(self._names).st_mtime_ns != self._named:
            self.look(locked=locked)
        if not is_last(self._cursor, self._segment):
            return True
        return lock != self._begun and self._followed(lock, locked=locked)

    def _followed(self, begun: int, *, locked: bool) -> bool:
        """Whether another segment follows, looked up only where the size of the lock says so."""
        if begun == self._begun:
            return False
        there = os.access(f"{self._folder}/{self._cursor.seq + 1:020}.jsonl", os.F_OK)
        if locked and not there:
            try:
                overtaken = self._cursor.overtaken()
            except FileNotFoundError:  # the queue was moved away
                self.look(locked=True)
                raise
            if overtaken:
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

    def _leave_segment(self) -> None:
        """Go on in another segment, which is not open yet. Not while one is synced."""
        old, self._segment, self._begun = self._segment, -1, UNKNOWN
        self._safe = self._covered = 0
        if old >= 0:
            os.close(old)

    def _open(self, file: Path) -> int:
        return self.disk.open(file, os.O_RDONLY if self.read_only else os.O_RDWR)

    @property
    def head(self) -> tuple[int, str]:
        """The seq and the hash of the last line that was read or written."""
        last = self._cursor.hash
        return self._cursor.seq, (last or b"").decode()
