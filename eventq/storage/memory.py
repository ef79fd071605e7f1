"""A log without a path: the entries in a list, or nowhere."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from eventq.core.events import Entry
from eventq.core.evolve import Folded, replay
from eventq.core.state import State
from eventq.storage.chain import GENESIS
from eventq.storage.errors import HandleFinished
from eventq.storage.payload import OpenDoor

__all__ = ["MemoryLog"]


class MemoryLog:
    """Keeps the entries for as long as the queue lives; with `history=False`, none of them."""

    path = None
    unsaved = 0

    def __init__(self, *, history: bool) -> None:
        self._entries: list[Entry] | None = [] if history else None
        self.mutex = threading.RLock()
        self.user = 0
        self.grown = threading.Condition(self.mutex)
        self.head = (0, GENESIS)
        self.read_only = False
        self.door = OpenDoor()
        self._shut = False

    def take(self) -> bool:
        """Who has the mutex has all there is to take. Whether there is something that was not read:
        nobody else writes."""
        if self._shut:
            self.check_alive()
        return False

    def let_go(self) -> None:
        """The mutex is all."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the mutex over several commands of this thread."""
        with self.mutex:
            self.check_alive()
            yield

    @property
    def seq(self) -> int:
        """The seq of the last entry."""
        return self.head[0]

    def behind(self, *, locked: bool = False) -> bool:  # noqa: ARG002
        """Whether others wrote: nobody else can."""
        return False

    def catch_up(self, *, locked: bool = False) -> tuple[list[Folded], bool]:  # noqa: ARG002
        """What others wrote: nobody else can."""
        return [], False

    def append(self, entry: Entry) -> int:
        """Keep an entry, which takes no bytes of a log."""
        if self._entries is not None:
            self._entries[entry.seq - 1 :] = [entry]  # an interrupt may have left one there
        self.head = (entry.seq, GENESIS)
        self.grown.notify_all()
        return 0

    def sync_soon(self, size: int) -> None:
        """There is no disk."""

    def secure(self, seq: int) -> None:
        """Nothing is safer than the process."""

    def sync_for_good(self, seq: int) -> None:
        """Nothing outlives the process."""

    def entries(self, since: int) -> Iterator[Entry]:
        """The entries from this seq on."""
        return iter(self._kept()[since - 1 : self.seq])

    def seq_at(self, then: datetime) -> int:
        """The seq of the last entry that is not later than this moment."""
        return bisect_right(self._kept(), then, hi=self.seq, key=lambda entry: entry.at)

    def _kept(self) -> list[Entry]:
        if self._entries is None:
            raise ValueError(
                "this queue in memory was made with history=False: it keeps no entries"
            )
        return self._entries

    def state_at(self, seq: int) -> State:
        """The state after this entry."""
        return replay(State(), itertools.islice(self.entries(1), seq))

    def check_alive(self) -> None:
        """Raise HandleFinished once it was shut."""
        if self._shut:
            raise HandleFinished("this queue in memory answers nothing more: it was shut")

    @contextmanager
    def watch(self) -> Iterator[_Waiting]:
        """What wakes up whenever an entry is kept."""
        yield _Waiting(self)

    def shut(self) -> None:
        """The queue answers nothing more."""
        with self.mutex:
            self._shut = True


class _Waiting:
    """Sees every entry that is kept from the moment that it was made."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._seen = log.head
        self._woken = False

    def wait(self, seconds: float) -> None:
        """Return when an entry was kept since the last wait, when woken, or after so long."""
        with self._log.grown:
            self._log.grown.wait_for(
                lambda: self._woken or self._log.head != self._seen, min(seconds, 3600.0)
            )
            self._seen = self._log.head
            self._woken = False

    def wake(self) -> None:
        """End the wait that goes on, or the next one, at once. Called from any thread."""
        with self._log.grown:
            self._woken = True
            self._log.grown.notify_all()
