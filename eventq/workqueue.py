"""WorkQueue: the one object that remembers, with a method for each thing that can be asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from attrs import evolve as with_changes
from attrs import fields

from eventq.core.commands import (
    OF_THE_QUEUE,
    Cancel,
    Close,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
)
from eventq.core.current import Current
from eventq.core.errors import BadValue
from eventq.core.events import Enqueued, Event, Kind, Redriven, Started, TaskEvent
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy, seconds
from eventq.core.record import Lease, Task
from eventq.core.select import Select
from eventq.core.state import Draft, State
from eventq.core.values import check_name
from eventq.handle import Handle, no_answer
from eventq.storage.archive import archive, bring_back
from eventq.storage.archived import Moved
from eventq.storage.errors import NotAQueue
from eventq.storage.folders import folder_at
from eventq.storage.log import Log
from eventq.storage.memory import MemoryLog

__all__ = ["WorkQueue"]


class WorkQueue(Handle):
    """A work queue whose whole state is one log. Open it with `open` or `in_memory`.

    Every method that asks something of the queue raises a `Refusal` where the rules refuse it,
    and then nothing has changed. A handle may be used by several threads. A handler of signals
    that breaks into what its own thread asks, and asks as well, is refused with HandleBusy. `by`
    says who asks, `why` is what an operator says about it; both are kept in the log.
    """

    def enqueue(
        self,
        id: str | None = None,  # the word of the design, and of the task's field
        payload: Any = None,
        *,
        after: Iterable[str] = (),
        key: str | None = None,
        max_attempts: int | None = OF_THE_QUEUE,
        not_before: datetime | None = None,
        by: str | None = None,
    ) -> Task:
        """Add a task; `after` are the ids that it needs. Without an id the queue makes one.

        Of the tasks with one `key`, one at a time is out. Before `not_before` (a datetime with
        its zone) it is not handed out. `max_attempts` None is unlimited.

        The same id with the same content again changes nothing and is answered with the task as
        it stands. Raises BadValue, OtherContent, QueueClosed, CycleError, QueueFull.
        """
        payload = self._log.door.payload("the payload", payload)
        command = Enqueue(
            id, payload, after, key=key, max_attempts=max_attempts, not_before=not_before
        )
        id = command.id
        if command.after:
            self._log.door.check_size("the task", (payload, id, command.key, *command.after))
        return self._ask(command, lambda now, _: _task(now, id or f"#{now.seq}"), by)

    def enqueue_all(self, tasks: Iterable[Enqueue], *, by: str | None = None) -> list[Task]:
        """Add a batch, whole or not at all; its tasks may name each other in any order.

        Answers one task for each that was asked for, in their order. Raises as `enqueue` does.
        """
        command = EnqueueAll(self._log.door.batch(EnqueueAll(tasks).tasks))

        def tasks_of(now: Draft, events: tuple[Event, ...]) -> list[Task]:
            made = (e.task for e in events if type(e) is Enqueued and e.task[0] == "#")
            records: Any = now.records  # each of these tasks is there
            return [Task.of(records[task.id or next(made)]) for task in command.tasks]

        return self._ask(command, tasks_of, by)

    def start(
        self,
        worker: Hashable = None,
        *,
        lease_for: timedelta | float | None = None,
        wait: timedelta | float | None = None,
        unless: Callable[[], object] = bool,
        by: str | None = None,
    ) -> Lease | None:
        """Hand out the first task in the line, to this worker or to nobody named.

        The lease runs for `lease_for` (a timedelta or seconds), else for as long as the queue
        has it. None when there is nothing to hand out; with `wait`, only after waiting for it so
        long, or as soon as the queue is closed and nothing can come any more, or `unless()` is
        true, which is looked at whenever the log has grown and on `wake`. Where all is recorded,
        a wait that got nothing is one entry. Raises UnknownWorker, WorkerBusy, and HandleFinished
        when the handle is shut meanwhile.
        """
        if worker is not None and type(worker) is not str and self._log.path is not None:
            check_name("the name of a worker", worker)
        command = Start(worker, lease_for)
        if wait is None:
            return self._ask(command, _lease, by)
        patience = seconds(wait)
        if not isinstance(patience, timedelta):
            raise BadValue(f"wait must be a timedelta or seconds, not {wait!r}")
        until = time.monotonic() + patience.total_seconds()
        lease = self._ask(command, _lease, by, idle=False)
        while lease is None and not unless():
            left = until - time.monotonic()
            if left <= 0 or not _something_to_come(self.state):
                return self._ask(command, _lease, by) if self.policy.record else None
            self.wait(lambda state, now: unless() or _worth_asking(state, now), left)
            if not unless():
                lease = self._ask(command, _lease, by, idle=False)
        return lease

    def complete(self, lease: Lease | int, result: Any = None, *, by: str | None = None) -> Task:
        """The work of this lease is done. Raises StaleLease."""
        if result is not None:
            result = self._log.door.payload("the result", result)
        return self._ask(Complete(_id(lease), result), _task_of, by)

    def complete_and_start(
        self,
        lease: Lease | int,
        result: Any = None,
        *,
        lease_for: timedelta | float | None = None,
        by: str | None = None,
    ) -> Lease | None:
        """Complete, then start for the same worker, in one entry; refused whole.

        Raises StaleLease, UnknownWorker.
        """
        held = lease if isinstance(lease, Lease) else None
        if type(lease) is int:
            held = self.state.lease(lease)
        if held is None:  # whoever asks, it is refused as `complete` refuses it
            self.complete(lease, result, by=by)
        worker = None if held is None else held.worker
        command = CompleteAndStart(
            _id(lease), self._log.door.payload("the result", result), worker, lease_for
        )
        return self._ask(command, _lease, by)

    def fail(
        self,
        lease: Lease | int,
        error: str = "",
        *,
        kind: Kind = "retryable",
        retry_after: timedelta | float | None = None,
        by: str | None = None,
    ) -> Task:
        """The work of this lease failed; `permanent` goes straight to the dead letters.

        It is tried again when `retry_after` (a timedelta or seconds) has passed, else as the
        queue backs off. Raises StaleLease.
        """
        command = Fail(_id(lease), self._log.door.error(error), kind, retry_after)
        return self._ask(command, _task_of, by)

    def renew(
        self,
        lease: Lease | int,
        lease_for: timedelta | float | None = None,
        *,
        by: str | None = None,
    ) -> Lease:
        """Let this lease run on, for `lease_for` from now or as long as the queue has it.

        Written only where it moves the expiry by more than half of that. Raises StaleLease.
        """
        id = _id(lease)
        renewed = self._ask(Renew(id, lease_for), lambda now, _: now.lease(id), by)
        assert renewed is not None
        return renewed

    def release(self, lease: Lease | int, *, by: str | None = None) -> Task:
        """Hand the task of this lease back, at no attempt. Raises StaleLease."""
        return self._ask(Release(_id(lease)), _task_of, by)

    def redrive(self, task: str, *, why: str | None = None, by: str | None = None) -> Task:
        """Give a DEAD or PARKED task fresh attempts. Raises UnknownTask, WrongStatus."""
        return self._ask(Redrive(task), lambda now, _: _task(now, task), by, why)

    def redrive_all(
        self, select: Select | None = None, *, why: str | None = None, by: str | None = None
    ) -> list[Task]:
        """Give fresh attempts to all DEAD tasks that are selected (all of them by default), in
        the order of their death, in one entry; answers these tasks."""

        def tasks_of(now: Draft, events: tuple[Event, ...]) -> list[Task]:
            return [_task(now, event.task) for event in events if isinstance(event, Redriven)]

        command = RedriveAll(Select() if select is None else select)
        chosen = command.select
        self._log.door.check_size("the selection", (chosen.error, *(chosen.tasks or ())))
        return self._ask(command, tasks_of, by, why)

    def resolve(self, task: str, *, why: str | None = None, by: str | None = None) -> Task:
        """A person did a DEAD, PARKED or CANCELLED task by hand: it has SUCCEEDED.

        Raises UnknownTask, WrongStatus.
        """
        return self._ask(Resolve(task), lambda now, _: _task(now, task), by, why)

    def cancel(
        self,
        task: str,
        *,
        lease: Lease | int | None = None,
        error: str | None = None,
        why: str | None = None,
        by: str | None = None,
    ) -> Task:
        """Take an unfinished task out of the work; what needs it is BLOCKED.

        A worker names its lease. Raises UnknownTask, WrongStatus, StaleLease.
        """
        command = Cancel(task, None if lease is None else _id(lease), self._log.door.error(error))
        return self._ask(command, lambda now, _: _task(now, task), by, why)

    def restore(self, task: str, *, why: str | None = None, by: str | None = None) -> Task:
        """Bring a CANCELLED task back, with fresh attempts. Raises UnknownTask, WrongStatus."""
        return self._ask(Restore(task), lambda now, _: _task(now, task), by, why)

    def close(self, *, why: str | None = None, by: str | None = None) -> None:
        """Admit no new tasks; what was admitted drains. Closing twice is harmless.

        This closes the queue, for everybody. To let go of the handle, leave its `with` block.
        """
        self._ask(Close(), no_answer, by, why)

    def reopen(self, *, why: str | None = None, by: str | None = None) -> None:
        """Admit new tasks again. Reopening twice is harmless."""
        self._ask(Reopen(), no_answer, by, why)

    def pause(self, *, why: str | None = None, by: str | None = None) -> None:
        """Hand nothing out until `resume`; what is due goes on. Pausing twice is harmless."""
        self._ask(Pause(), no_answer, by, why)

    def resume(self, *, why: str | None = None, by: str | None = None) -> None:
        """Hand out again. Resuming twice is harmless."""
        self._ask(Resume(), no_answer, by, why)

    @contextmanager
    def alone(self) -> Iterator[State]:
        """In here nobody else writes to the queue, no other thread and no other process: it stands
        as this state says until a command of this thread changes it.

        All others wait meanwhile, so be quick, and wait for nothing. Raises HandleFinished,
        ReadOnly.
        """
        with self._log.alone():
            yield self._looked(Current.state, locked=True)

    def reconfigure(self, *, why: str | None = None, by: str | None = None, **parts: Any) -> Policy:
        """Agree on another policy: the `parts` that are given change, as `open` takes them."""
        known = [part.name for part in fields(Policy) if part.init]
        if unknown := [name for name in parts if name not in known]:
            raise BadValue(f"a policy has no part {unknown[0]!r}; it has {', '.join(known)}")
        with self.alone() as now:  # nobody changes another part meanwhile
            policy = with_changes(now.policy, **parts)
            self._log.door.check_pool(policy.pool)
            return self._ask(Reconfigure(policy), lambda now, _: now.policy, by, why)

    def tick(self, *, by: str | None = None) -> None:
        """Carry out what is due, and nothing else."""
        self._ask(Tick(), no_answer, by)

    def archive(
        self, to: str | os.PathLike[str], *, before: int | None = None, keep: int = 1
    ) -> list[Moved]:
        """Write a snapshot, then move the oldest segments of the log to another folder.

        Only those whose entries all come `before` that seq, and never the newest `keep` of them.
        Answers what was moved. What needs those entries then raises Archived, until they are
        brought back. Raises ArchiveRefused, OSError.
        """
        log = self._log
        if isinstance(log, MemoryLog):
            raise BadValue("a queue in memory has nothing to archive")
        self.snapshot()
        return archive(log, folder_at("to", to), before=before, keep=keep)

    @staticmethod
    def unarchive(
        path: str | os.PathLike[str],
        source: str | os.PathLike[str] | None = None,
        *,
        since: int = 1,
    ) -> list[Moved]:
        """Copy archived segments back into the log of the queue in this directory: those with
        entries from `since` on.

        They are looked for where they were moved to, or in the folder `source`, and stay there.
        Answers what is in the log again. Needs no handle, since there may be none without them.
        Raises NotAQueue, ArchiveRefused, OSError.
        """
        queue = folder_at("the path of a queue", path)
        if not (queue / "log").is_dir():
            raise NotAQueue(queue, "it has no folder `log`")
        log = Log(queue)
        try:
            return bring_back(
                log, None if source is None else folder_at("source", source), since=since
            )
        finally:
            log.shut()


def _worth_asking(state: State, now: datetime) -> bool:
    """Whether a start could find anything at this time, or never will."""
    if state.first_due(now) is not None or not _something_to_come(state):
        return True
    return state.dispatch == "running" and state.first() is not None


def _something_to_come(state: State) -> bool:
    """Whether there may be something to hand out one day: the queue is open, or not drained."""
    left = (Status.PENDING, Status.READY, Status.DELAYED, Status.RUNNING)
    return state.admission == "open" or state.count(*left) > 0


def _id(lease: Lease | int) -> int:
    return lease.id if isinstance(lease, Lease) else lease


def _task(now: Draft, name: str) -> Task:
    record = now.records[name]
    assert record is not None
    return Task.of(record)


def _task_of(now: Draft, events: tuple[Event, ...]) -> Task:
    """The task of the first event: the one that was asked about."""
    first = events[0]
    assert isinstance(first, TaskEvent)
    return _task(now, first.task)


def _lease(now: Draft, events: tuple[Event, ...]) -> Lease | None:
    """The lease that this entry gave, if it gave one."""
    return now.lease(now.seq) if events and isinstance(events[-1], Started) else None
