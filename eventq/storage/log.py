"""The log on disk: appending, with the kernel's lock; syncing, shared by all who wait.

A queue is a directory: `log/` holds the segments, `snapshots/` the snapshots, `lock` is the file
whose kernel lock makes one writer of many. The order of a write is: lock, catch up, decide, write,
unlock, sync, answer. What was answered is on disk, as far as the disk is honest.

* A torn tail (the last line of the last segment, cut short by a crash, or zeros) is cut by the
  next writer under the lock, and the cut bytes are kept in `torn/`. A last line that lacks only
  its newline is finished. Anything else that does not fit is damage, and never mended.
* A write that fails is rolled back to the last good end under the same lock; a sync that fails
  finishes the handle, since the kernel may have dropped what it could not write.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import io
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from eventq.core.errors import ImpossibleEvent
from eventq.core.events import Entry, Json
from eventq.core.evolve import Folded, replay
from eventq.core.state import State
from eventq.storage.beginning import where_to_begin
from eventq.storage.codec import decode, encode
from eventq.storage.disk import DISK, Disk
from eventq.storage.errors import HandleFinished, LogDamaged, NotAQueue, ReadOnly
from eventq.storage.folders import make_folders, sync_names
from eventq.storage.mending import mend, pread, renew
from eventq.storage.payload import to_json
from eventq.storage.segments import CUT_SHORT, Cursor, find_segments, segment_path
from eventq.storage.snapshot import save
from eventq.storage.watch import Watch

__all__ = ["SEGMENT_BYTES", "Log"]

SEGMENT_BYTES = 64 * 1024 * 1024
"""How large a segment grows before the next is begun."""

WRITABLE = 0o200
"""The bit that a full segment loses. Who has it open sees by that that another follows."""

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
        disk: Disk = DISK,
    ) -> None:
        self.path = path
        self.read_only = read_only
        self._segment_bytes = segment_bytes
        self._disk = disk
        self._pwrite, self._fdatasync = disk.pwrite, disk.fdatasync  # once: each command needs them
        self.mutex = threading.RLock()
        self._syncing = threading.RLock()  # a handler of a signal may ask in the midst of it
        self._finished: str | None = None
        self._pid = os.getpid()
        self._synced = 0
        self._unmarked = False
        self.unsaved = 0
        """How many bytes of log were read or written since the last snapshot."""
        self.damage: LogDamaged | None = None
        """What a reader found wrong when it opened the log; it can read what stands before."""
        self._segment = -1
        self._closed = False
        self._lock = -1
        self._folder = path / "log"
        self._mark = path / "unsynced"
        if not read_only:
            make_folders(disk, path)
            self._lock = disk.open(path / "lock", os.O_RDWR | os.O_CREAT)
        elif not self._folder.is_dir():
            raise NotAQueue(path, "it has no folder `log`")
        self._cursor = Cursor(self._folder)

    # The lock.

    def __enter__(self) -> None:
        self.check_alive()  # in a forked child, another thread may hold the mutex for ever
        self.mutex.acquire()
        try:
            self.check_alive()
            if self.read_only:
                raise ReadOnly(self.path)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except BaseException:
            self.mutex.release()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if self._lock >= 0:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        finally:
            self.mutex.release()

    def check_alive(self) -> None:
        """Raise HandleFinished where this handle answers nothing more."""
        if self._finished is not None:
            self._leave_mark()
            raise HandleFinished(
                f"this handle of {self.path} answers nothing more: {self._finished}"
            )
        if os.getpid() != self._pid:
            raise HandleFinished(
                f"this handle of {self.path} belongs to process {self._pid}, which was forked: "
                "open the queue again in this one"
            )

    # Reading.

    def state(self) -> State:
        """The state of all that was written: from the newest snapshot that fits, or from the
        first line."""
        begin, self._cursor = where_to_begin(self.path, None)
        if not self._cursor.file.exists():
            return begin
        try:
            state = self._fold(begin, self._cursor.forward())
        except LogDamaged as error:
            if not self.read_only or error.seq == 1:
                raise
            self.damage = error
            state = self.state_at(self._cursor.seq)
        self.unsaved = AN_ENTRY * (state.seq - begin.seq)
        return state

    def state_at(self, seq: int) -> State:
        """The state after this entry."""
        begin, cursor = where_to_begin(self.path, seq)
        return self._fold(begin, itertools.islice(cursor.forward(), seq - begin.seq))

    def _fold(self, begin: State, entries: Iterator[Folded]) -> State:
        """Replay with the collector of cycles off: a fold makes none, and much that is kept."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return replay(begin, entries)
        except ImpossibleEvent as error:
            raise error.told(self._story(error.task, error.seq)) from None
        finally:
            if collecting:
                gc.enable()

    def _story(self, task: str | None, seq: int) -> list[str]:
        """All that the log says of a task before this entry, oldest first."""
        return [
            f"entry {entry.seq}: {event}"
            for entry in itertools.takewhile(lambda entry: entry.seq < seq, self.entries(1))
            for event in entry.events
            if getattr(event, "task", None) == task
        ]

    def entries(self, since: int) -> Iterator[Entry]:
        """The entries from this seq on, checked from the segment that holds it."""
        segments = [first for first in find_segments(self._folder) if first <= since]
        cursor = Cursor(self._folder, segments[-1] if segments else 1)
        for entry in cursor.forward(decode):
            if entry.seq >= since:
                yield entry

    def behind(self, *, certain: bool = False) -> bool:
        """Whether there may be something that this handle has not read. Who means to write is
        `certain`, and does not take the permissions of a file for a sign that it is the last."""
        cursor = self._cursor
        if self._segment < 0:
            return cursor.file.exists()
        segment = os.fstat(self._segment)
        if not segment.st_nlink:  # a copy was put in its place, see `renew`
            self._go_on(self._open(cursor.file), cursor)
            segment = os.fstat(self._segment)
        self._closed = not segment.st_mode & WRITABLE
        if segment.st_size != cursor.offset:
            return True
        return (self._closed or certain) and os.access(
            f"{self._folder}/{cursor.seq + 1:020}.jsonl", os.F_OK
        )

    def catch_up(self) -> Iterator[Folded]:
        """What was written since this handle last looked."""
        cursor = self._cursor
        if self._segment < 0:
            if self.damage is not None:
                raise self.damage.with_traceback(None)  # the state would be short, and not say so
            self._segment = self._open(cursor.file)
        while True:
            rest = os.fstat(self._segment).st_size - cursor.offset
            if rest < 0:
                raise cursor.damaged(f"the file has lost {-rest} bytes that were read before")
            end = cursor.offset + rest
            if rest:
                yield from cursor.follow(
                    io.BytesIO(pread(self._disk, self._segment, rest, cursor.offset))
                )
            after = cursor.copy()
            if not after.next_segment(end - cursor.offset):
                if (
                    cursor.offset < end
                    and cursor.overtaken()
                    and os.fstat(self._segment).st_size == end
                ):
                    raise cursor.damaged(CUT_SHORT)
                return
            self._go_on(self._open(after.file), after)
            cursor = after

    def _go_on(self, descriptor: int, cursor: Cursor) -> None:
        """Put another file in the place of the open segment, when nobody is syncing that."""
        with self._syncing:
            old, self._segment, self._cursor = self._segment, descriptor, cursor
            os.close(old)

    def _open(self, file: Path) -> int:
        self._closed = not file.stat().st_mode & WRITABLE
        if not self.read_only:
            try:
                return self._disk.open(file, os.O_RDWR)
            except PermissionError:
                if not self._closed:
                    raise
        return self._disk.open(file, os.O_RDONLY)

    @property
    def seq(self) -> int:
        """The seq of the last line that was read or written."""
        return self._cursor.seq

    @property
    def head(self) -> tuple[int, str]:
        """The seq and the hash of the last line that was read or written."""
        last = self._cursor.hash
        return self._cursor.seq, (last or b"").decode()

    def payload(self, what: str, value: Any) -> Json | None:
        """What a queue holds for this payload: its JSON text. Raises BadValue."""
        return to_json(what, value)

    # Writing, under the lock.

    def renew(self) -> None:
        """After a failed sync: put a synced copy of the open segment in its place, see `mending`.

        Called under the lock.
        """
        if self._mark.exists():
            renew(self._disk, self._folder, self._mark)

    def mend(self) -> bool:
        """Cut a torn tail, or finish a line that lacks its newline; whether it did the latter.

        Called under the lock, caught up.
        """
        torn = self.path / "torn"
        return mend(self._disk, self._segment, self._cursor, torn, self._sync_segment)

    def append(self, entry: Entry) -> None:
        """Write an entry, under the lock, caught up. Raises OSError: then nothing was written."""
        cursor = self._cursor
        assert cursor.hash is not None
        last = cursor.hash.decode()
        line, digest = encode(entry, last, first=not cursor.offset)
        full = cursor.offset + len(line) > self._segment_bytes
        if cursor.offset and (full or self._closed):
            self._roll()
            cursor = self._cursor
            line, digest = encode(entry, last, first=True)
        elif self._segment < 0:
            self._begin_segment()
        if not cursor.offset:
            self._sync_names()
        after = cursor.copy()
        after.offset += len(line)
        after.lines += 1
        after.seq = entry.seq
        after.hash = digest.encode()
        if self._cursor is not cursor or entry.seq != cursor.seq + 1:
            raise HandleFinished("a signal handler asked in the midst of a command: it was dropped")
        self._write(line)
        self._cursor = after  # in one step: an interrupt finds the log before the line or behind it
        self.unsaved += len(line)

    def _sync_names(self) -> None:
        """Make the name of a new segment last before its first line is: whoever made the file may
        have got no further. The first one, and so the whole queue, with the folders above."""
        try:
            sync_names(self._disk, self.path, new=self._cursor.first == 1)
        except OSError as error:
            self._finished = f"a sync failed ({error})"
            raise

    def _write(self, line: bytes) -> None:
        offset = self._cursor.offset
        rest = memoryview(line)
        try:
            while rest:
                written = self._pwrite(self._segment, rest, offset)
                offset += written
                rest = rest[written:]
        except BaseException:
            try:
                # A line that got there whole, in spite of an interrupt, may have been read.
                if os.fstat(self._segment).st_size < self._cursor.offset + len(line):
                    self._disk.ftruncate(self._segment, self._cursor.offset)
            except OSError as error:
                self._finished = f"a failed write could not be rolled back ({error})"
            raise

    def _begin_segment(self) -> None:
        self._segment = self._disk.open(self._cursor.file, os.O_RDWR | os.O_CREAT)

    def _roll(self) -> None:
        """Sync the full segment and begin the next."""
        cursor = self._cursor
        if self._closed and cursor.overtaken():  # full, and yet the next is not there
            raise cursor.damaged(CUT_SHORT)
        self._sync_now(cursor.seq)
        self._disk.fchmod(self._segment, 0o400)
        file = segment_path(self._folder, cursor.seq + 1)
        descriptor = self._disk.open(file, os.O_RDWR | os.O_CREAT)
        after = cursor.copy()
        after.next_segment(0)
        self._go_on(descriptor, after)

    # Syncing, without the lock.

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
                os.close(self._disk.open(self._mark, os.O_WRONLY | os.O_CREAT))
                self._unmarked = False

    def snapshot(self, state: State, cursor: Cursor) -> Path:
        """Write a snapshot of this state, which is that of the cursor."""
        self.sync(state.seq)
        return save(self.path / "snapshots", state, cursor, self._disk)

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
        """Let go of the files. The handle answers nothing more."""
        if os.getpid() != self._pid:  # in a forked child nothing of it is ours
            return
        with self.mutex:
            self._leave_mark()
            if self._finished is None:
                self._finished = "it was shut"
            with self._syncing:
                for descriptor in (self._segment, self._lock):
                    if descriptor >= 0:
                        os.close(descriptor)
                self._segment = self._lock = -1
