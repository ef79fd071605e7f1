"""A handle on a queue: opening it, and the one way through.

Every command goes the same way: catch up with the log, decide, append, keep the state, sync,
answer. If the write fails, the memory goes back; if the sync fails, the handle is finished and
answers nothing more. What can be asked without changing anything stands in `view`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import get_ident
from typing import Any, Self, TypeVar, cast

from attrs import evolve as with_changes
from attrs import fields

from eventq.core.commands import (
    OF_THE_QUEUE,
    Command,
    Enqueue,
    EnqueueAll,
    Open,
    Start,
)
from eventq.core.current import EVENTS
from eventq.core.errors import BadValue, Refusal
from eventq.core.events import Entry, Event
from eventq.core.policy import Capacity, Keys, Policy, Retention, Retry
from eventq.core.state import Draft, State
from eventq.core.values import check_name, storable
from eventq.storage.disk import DISK, Disk
from eventq.storage.errors import HandleBusy, NotAQueue
from eventq.storage.folders import folder_at
from eventq.storage.lock import TIMEOUT
from eventq.storage.log import SEGMENT_BYTES, Log
from eventq.storage.memory import MemoryLog
from eventq.storage.payload import SIZE_LIMIT, Door
from eventq.storage.segments import Cursor
from eventq.storage.syncing import Durability
from eventq.view import View, check_clock

__all__ = ["NOT_TOLD", "Handle", "no_answer"]

A = TypeVar("A")


_utc_now: Callable[[], datetime] = partial(datetime.now, UTC)


class _NotTold:
    def __repr__(self) -> str:
        return "as in the log"


NOT_TOLD: Any = _NotTold()
"""Says that `open` takes this part of the policy from the log (or from the defaults)."""

SNAPSHOT_BYTES = 8 * 1024 * 1024
"""How much log there must be at least behind a snapshot before the next is taken unasked."""

TASK_BYTES = 250
"""About what a snapshot writes for a task."""


class Handle(View):
    """A view that can also ask for something to happen."""

    def __init__(
        self,
        log: Log | MemoryLog,
        state: State,
        *,
        by: str | None = None,
        clock: Callable[[], datetime] = _utc_now,
        snapshots: bool = True,
        undo: int = EVENTS,
    ) -> None:
        """Not for callers: use `open` or `in_memory`."""
        super().__init__(log, state, clock, undo)
        self._by = by
        self._snapshots = snapshots

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        capacity: Capacity | None = NOT_TOLD,
        pool: Iterable[str] | None = NOT_TOLD,
        retry: Retry = NOT_TOLD,
        retention: Retention | None = NOT_TOLD,
        lease_for: timedelta | float | None = NOT_TOLD,
        keys: Keys = NOT_TOLD,
        record: bool = NOT_TOLD,
        by: str | None = None,
        read_only: bool = False,
        clock: Callable[[], datetime] = _utc_now,
        durability: Durability = "power",
        segment_bytes: int = SEGMENT_BYTES,
        snapshots: bool = True,
        size_limit: int = SIZE_LIMIT,
        lock_timeout: float | None = TIMEOUT,
        disk: Disk = DISK,
    ) -> Self:
        """The queue in this directory, which is made if it is not there.

        What is not told of the policy is taken from the log; what is told and differs from it
        is refused with BadValue. `read_only` needs no lock and changes nothing. `clock` gives
        the time, with its zone. `durability` says what an answer survives: "power" a power cut,
        since it is synced before; "process" a kill of this process and no power cut, since it is
        synced within a second after; that failing is told to who asks next, and by `shut`.
        `segment_bytes` is how large one file of the log grows, and `snapshots` whether snapshots
        are taken unasked. `size_limit` is how many bytes may be sent with one command: a longer
        error is cut, anything else refused. `lock_timeout` is how many seconds a command waits
        for the lock before it raises LockTimeout; None: for as long as it takes. `disk` is what
        it writes with; another than the real one is for tests. Raises NotAQueue, LogDamaged,
        LogNewer, LinesLost, LockTimeout, LockUnsupported, OSError.
        """
        told = _policy(
            capacity=capacity,
            pool=pool,
            retry=retry,
            retention=retention,
            lease_for=lease_for,
            keys=keys,
            record=record,
        )
        Door(size_limit).check_pool(told.get("pool"))
        if by is not None:
            check_name("by", by)
        check_clock(clock)
        log = Log(
            folder_at("the path of a queue", path),
            read_only=read_only,
            segment_bytes=segment_bytes,
            size_limit=size_limit,
            lock_timeout=lock_timeout,
            durability=durability,
            disk=disk,
        )
        try:
            queue = cls(log, log.state(), by=by, clock=clock, snapshots=snapshots)
            if read_only:
                if log.damage is None:  # else all before it can be read
                    queue._catch_up()
                if queue._current.now.admission == "absent":
                    raise NotAQueue(log.path, "its log is empty")
                queue._compare(told)
            else:
                queue._begin(told)
        except BaseException:
            log.shut()
            raise
        return queue

    @classmethod
    def in_memory(
        cls,
        *,
        capacity: Capacity | None = None,
        pool: Iterable[Hashable] | None = None,
        retry: Retry = NOT_TOLD,
        retention: Retention | None = None,
        lease_for: timedelta | float | None = None,
        keys: Keys = NOT_TOLD,
        record: bool = False,
        by: str | None = None,
        clock: Callable[[], datetime] = _utc_now,
        history: bool = True,
    ) -> Self:
        """A queue without a path, for as long as the process lives.

        Payloads and results are any objects, never looked into, and come back as the same
        objects; workers are any hashable values. `history=False` keeps no entries, so that
        memory does not grow with what is finished; `entries` and `at` then have no answer.
        """
        told = _policy(
            capacity=capacity,
            pool=pool,
            retry=retry,
            retention=retention,
            lease_for=lease_for,
            keys=keys,
            record=record,
        )
        if by is not None:
            check_name("by", by)
        log = MemoryLog(history=history)
        undo = EVENTS if history else 0  # what has ended is let go of at once
        queue = cls(log, State(), by=by, clock=clock, snapshots=False, undo=undo)
        queue._begin(told)
        return queue

    def _begin(self, told: dict[str, Any]) -> None:
        """Open the log, or compare what was told with what it says."""
        log = self._log
        with log.alone():
            if isinstance(log, Log):
                log.put_back()
            self._catch_up(locked=True)
            if self._current.now.admission == "absent":
                self._ask(Open(uuid.uuid4().hex, Policy(**told)), no_answer)
                return
        self._compare(told)

    def _compare(self, told: dict[str, Any]) -> None:
        """Refuse what was told and differs from what the log says."""
        agreed = self._current.now.policy
        given = with_changes(agreed, **told)
        for part in fields(Policy):
            there, here = getattr(agreed, part.name), getattr(given, part.name)
            if there != here:
                raise BadValue(
                    f"{part.name} of this queue is {there}, not {here}: leave it out to open the "
                    "queue as it is, or change it with `reconfigure`"
                )

    # The one way through.

    def _ask(
        self,
        command: Command,
        answer: Callable[[Draft, tuple[Event, ...]], A],
        by: str | None = None,
        why: str | None = None,
        *,
        idle: bool = True,
    ) -> A:
        """Carry out a command; the answer is made of the state after it and its events. `idle`: a
        start that gets nothing is recorded, if all is."""
        if by is not None:
            check_name("by", by)
        if why is not None:
            why = self._reason(why)
        log = self._log
        log.check_alive()  # in a forked child, another thread may hold the mutex for ever
        me = get_ident()
        with log.mutex:
            if log.user == me:
                raise HandleBusy
            try:
                log.user = me
                seq, answered, due = self._carried_out(command, answer, by, why, idle)
            finally:
                log.user = 0
        log.secure(seq)
        if due is not None and isinstance(log, Log):
            with suppress(OSError):  # the command was carried out, whatever becomes of this
                log.snapshot(*due)
        return answered

    def _carried_out(
        self,
        command: Command,
        answer: Callable[[Draft, tuple[Event, ...]], A],
        by: str | None,
        why: str | None,
        idle: bool,
    ) -> tuple[int, A, tuple[State, Cursor] | None]:
        """The seq that the answer rests on, the answer, and what a snapshot that is due is of."""
        log = self._log
        try:
            behind = log.take()  # in the wait for the lock, other threads may have moved `now`
            current, seq = self._current, log.seq
            if behind or current.now.seq != seq or not current.whole:
                self._catch_up(locked=True)
                current, seq = self._current, log.seq
            at = self._now()
            if by is None:
                by = self._by or (_asker(command, current.now) if command.asks else None)
            try:
                events = current.decide(command, at)
            except Refusal as refusal:
                if current.now.policy.record:
                    self._catch_up(locked=True)
                    whole = _spelled_out(command, current.now.policy)
                    self._note(at, command.do, whole.refused(refusal.name), by, why)
                raise
            now, size = current.now, 0
            if events:
                entry = Entry.of(seq + 1, at, command.do, events, command.ask(), by, why)
                current.keep(entry)
                size = log.append(entry)
            elif idle and now.policy.record and isinstance(command, Start):
                self._note(at, command.do, command.ask(), by)
        finally:
            log.let_go()
        # From here on others may write: what is still to do is about this process alone.
        if events:
            log.sync_soon(size)
            current.settle(size)
            self._know_last()
        seq, answered = now.seq, answer(now, events)
        return seq, answered, self._snapshot_due() if log.unsaved >= SNAPSHOT_BYTES else None

    def _reason(self, why: object) -> str | None:
        """What an operator says, as the log keeps it."""
        if not isinstance(why, str):
            raise BadValue(f"why must be a text or None, not {why!r}")
        kept = storable(why)
        self._log.door.check_size("why", (kept,))
        return kept

    def _note(
        self, at: datetime, do: str, ask: dict[str, Any], by: str | None, why: str | None = None
    ) -> None:
        """Write an entry of which nothing followed, and go on from the state after it."""
        current = self._current
        entry = Entry(current.now.seq + 1, at, do, (), ask, by, why)
        current.fold(entry)
        current.settle(self._log.append(entry))
        self._know_last()

    def _snapshot_due(self) -> tuple[State, Cursor] | None:
        """The state and where the log stands, if enough of it has passed since the last snapshot.

        That is when what would be read again outweighs what a snapshot writes, so that snapshots
        cost no more than a fixed share of the log itself.
        """
        log = self._log
        if not self._snapshots or isinstance(log, MemoryLog):
            return None
        if log.unsaved < 4 * TASK_BYTES * len(self._current.now):
            return None
        return self._current.state(), log.place_for_snapshot()


def _spelled_out(command: Command, policy: Policy) -> Command:
    """The command with what it leaves to the queue told, as a recorded refusal has to."""
    if isinstance(command, EnqueueAll):
        return EnqueueAll(cast(Enqueue, _spelled_out(task, policy)) for task in command.tasks)
    if isinstance(command, Enqueue) and command.max_attempts is OF_THE_QUEUE:
        return with_changes(command, max_attempts=policy.retry.max_attempts)
    return command


def _policy(**parts: Any) -> dict[str, Any]:
    """What was told of a policy, checked."""
    told = {name: value for name, value in parts.items() if value is not NOT_TOLD}
    policy = Policy(**told)
    return {name: getattr(policy, name) for name in told}


def no_answer(now: Draft, events: tuple[Event, ...]) -> None:
    """No answer."""


def _asker(command: Command, now: Draft) -> str | None:
    """Who asks when nobody says so: the worker that starts, or that holds the lease."""
    worker = getattr(command, "worker", None)
    if worker is None and (lease := getattr(command, "lease", None)) is not None:
        held = now.leased(lease)
        worker = None if held is None else held.worker
    return worker if isinstance(worker, str) else None
