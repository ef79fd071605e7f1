"""What can be asked of a queue, without changing it: how it stands now, and how it stood."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Self, TypeVar

from eventq.core.current import Current
from eventq.core.errors import BadValue
from eventq.core.events import Entry
from eventq.core.policy import Policy
from eventq.core.record import DeadLetter, Task
from eventq.core.state import State
from eventq.core.values import check_moment, check_seq, shown
from eventq.storage.errors import Archived, HandleBusy, ReadOnly
from eventq.storage.log import Log
from eventq.storage.memory import MemoryLog

__all__ = ["View", "check_clock"]

T = TypeVar("T")

END = datetime.max.replace(tzinfo=UTC)
"""The last time that there is."""


def check_clock(clock: object) -> None:
    """Raise BadValue for what cannot be asked for the time."""
    if not callable(clock):
        raise BadValue(f"clock must be a function that gives the time, not {clock!r}")


class View:
    """What remembers a queue for this process: its log, and the state after the last entry."""

    def __init__(
        self,
        log: Log | MemoryLog,
        state: State,
        clock: Callable[[], datetime],
        undo: int,
    ) -> None:
        check_clock(clock)
        self._log = log
        self._current = Current(state, undo)
        self._clock = clock
        self._know_last()
        if isinstance(log, Log):
            log.meanwhile = self._catch_up
        self._watches: set[Any] = set()
        """Those by which somebody waits for something to happen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path or 'in memory'} at entry {self._log.seq}>"

    def shut(self) -> None:
        """Let go of the files. The handle answers nothing more; the queue goes on without it.

        Whoever waits on it, in another thread, is told so at once by HandleFinished. Raises
        OSError where a last sync fails, and HandleFinished where what was answered with
        durability "process" could not be synced before.
        """
        try:
            self._log.shut()
        finally:
            self.wake()

    def _catch_up(self, *, locked: bool = False) -> None:
        """Read what others wrote; under the lock also mend what a crash of theirs has left."""
        try:
            self._follow(locked=locked)
        except Archived:  # who asked nothing for long begins as who opens the log now
            if isinstance(self._log, MemoryLog):
                raise
            self._current = Current(self._log.state_anew())
            self._know_last()
            self._follow(locked=locked)

    def _restored(self) -> Current:
        """What stands as the log does, as far as it was read: what broke off midway is undone."""
        log, current = self._log, self._current
        if not ((current.whole and current.now.seq == log.seq) or current.restore(log.seq)):
            self._current = current = Current(log.state_at(log.seq))
        return current

    def _follow(self, *, locked: bool) -> None:
        log, current = self._log, self._restored()
        more = log.behind(locked=locked)
        while more:
            entries, more = log.catch_up(locked=locked)
            if entries:
                current.follow(entries)
                self._know_last()

    def _know_last(self) -> None:
        """The last entry is known from now on: where the clock is behind it, time goes on here."""
        self._read_at = time.monotonic()

    def _now(self) -> datetime:
        """The time of the next entry: never before that of the last, and never standing still."""
        now = self._clock()
        if type(now) is not datetime or now.tzinfo is not UTC:
            now = check_moment("what the clock gives", now)
        last = self._current.now.at
        if last is not None and now < last:
            gone = timedelta(seconds=time.monotonic() - self._read_at)
            return last + gone if gone < END - last else END  # a clock may have been that wrong
        return now

    @property
    def path(self) -> Path | None:
        """The directory of the queue; None in memory."""
        return self._log.path

    def _looked(
        self, look: Callable[[Current], T], *, locked: bool = False, read_on: bool = True
    ) -> T:
        """What this look sees of the state, when all was read that others wrote."""
        log = self._log
        log.check_alive()
        me = get_ident()
        with log.mutex:
            if log.user == me:
                raise HandleBusy
            try:
                log.user = me
                log.check_alive()
                if read_on:
                    self._catch_up(locked=locked)
                return look(self._restored())
            finally:
                log.user = 0

    @property
    def state(self) -> State:
        """The state after the last entry, whoever wrote it. It never changes."""
        return self._looked(Current.state)

    @property
    def policy(self) -> Policy:
        """What was agreed for this queue."""
        return self.state.policy

    def task(self, id: str) -> Task | None:  # as in `enqueue`
        """This task as it stands; None when it is unknown."""
        return self.state.task(id)

    def dead_letters(self) -> list[DeadLetter]:
        """The DEAD and BLOCKED tasks with their reasons, in the order in which they came there."""
        return list(self.state.dead_letters())

    def parked(self) -> list[DeadLetter]:
        """The PARKED tasks with their reasons, in the order in which they were parked."""
        return list(self.state.parked())

    def entries(self, since: int = 1) -> Iterator[Entry]:
        """The entries from this seq on, as they were written, checked on the way."""
        check_seq(since)
        self._log.check_alive()
        return self._log.entries(max(since, 1))

    def at(self, when: int | datetime) -> State:
        """The state after the entry with this seq, or as it was at this moment: after the last
        entry that is not later. Raises IndexError for an entry that is not there (yet)."""
        log = self._log
        if isinstance(when, datetime):
            seq = self._seq_at(check_moment("the moment", when))
        else:
            check_seq(seq := when)

        def look(current: Current) -> tuple[int, State | None]:
            return log.seq, current.state() if log.seq == seq else None

        last, state = self._looked(look, read_on=seq > log.seq)
        if state is not None:
            return state
        if not 0 <= seq < last:
            raise IndexError(f"there is no entry {shown(seq)}: the log has {last}")
        return log.state_at(seq)

    def _seq_at(self, then: datetime) -> int:
        """The seq of the last entry that is not later, as far as the log was written by now."""
        log = self._log

        def look(current: Current) -> tuple[int, bool]:
            at = current.now.at
            return log.seq, at is not None and at > then

        last, passed = self._looked(look, read_on=False)
        if not passed:  # else what follows cannot matter, damaged or not
            last, passed = self._looked(look)
        return log.seq_at(then) if passed else last

    @property
    def head(self) -> tuple[int, str]:
        """The seq and the hash of the last entry, which is on disk: keep it to prove the log
        complete one day."""
        head = self._looked(lambda _: self._log.head)
        self._log.sync_for_good(head[0])
        return head

    def snapshot(self) -> Path:
        """Write a snapshot of the state after the last entry, and say where."""
        log = self._log
        if isinstance(log, MemoryLog):
            raise BadValue("a queue in memory has no place for a snapshot")
        if log.read_only:
            raise ReadOnly(log.path)
        state, place = self._looked(lambda current: (current.state(), log.place()))
        return log.snapshot(state, place)

    @property
    def clock_behind(self) -> timedelta:
        """How far the clock is behind the last entry: zero where all is well."""
        last = self.state.at
        behind = (
            timedelta()
            if last is None
            else last - check_moment("what the clock gives", self._clock())
        )
        return max(behind, timedelta())

    def wait(self, wanted: Callable[[State, datetime], object], seconds: float = math.inf) -> bool:
        """Block until `wanted(state, now)` is true; False when so many seconds pass before.

        It is looked at now, and whenever the log has grown, by whomever, something has become
        due, or `wake` was called. Raises HandleFinished, also when the handle is shut meanwhile.
        """
        until = time.monotonic() + seconds
        with self._log.watch() as watch:
            self._watches.add(watch)
            try:
                while True:
                    state = self.state
                    now = self._now()
                    if wanted(state, now):
                        return True
                    left = until - time.monotonic()
                    if left <= 0:
                        return False
                    due = state.next_due()
                    if due is not None and due > now:
                        left = min(left, (due - now).total_seconds())
                    watch.wait(left)
            finally:
                self._watches.discard(watch)

    def wake(self) -> None:
        """Let whoever waits on this handle look again, from any thread: see `wait`."""
        for watch in list(self._watches):
            watch.wake()
