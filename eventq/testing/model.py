"""The reference model: the whole queue again, written the slow, obvious way.

`Model` notes only what has happened to each task itself. Whether a task is PENDING, BLOCKED or
READY is worked out from that, from scratch, each time it is asked: no counters, no lists, no
indexes. It shares the nouns with the queue that it audits (commands, events, refusals, the policy
and the names of the statuses) and none of its rules, so that a mistake has to be made twice, in
two ways of thinking, before it passes.

It foretells for each command the exact events in their exact order, or the refusal, and what is
answered; `look()` is everything that may be asked of the queue after it. It has no log: `copy()`
keeps an earlier moment.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any

from attrs import evolve, frozen

from eventq.core.commands import (
    OF_THE_QUEUE,
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Redrive,
    Release,
    Reopen,
    Restore,
    Start,
    Tick,
)
from eventq.core.errors import (
    CycleError,
    OtherContent,
    QueueClosed,
    QueueFull,
    StaleLease,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WrongStatus,
)
from eventq.core.events import (
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Died,
    Enqueued,
    Event,
    Failed,
    Forgotten,
    Json,
    Kind,
    Opened,
    Parked,
    Readied,
    Redriven,
    Released,
    Reopened,
    Restored,
    Started,
    Unblocked,
)
from eventq.core.lifecycle import Status
from eventq.testing.facts import UNFINISHED, WAITING, Facts, Look, Moment, Noted, canonical

__all__ = ["Look", "Model", "Outcome", "canonical"]

S = Status


@frozen
class Outcome:
    """What follows from a command: its events and its answer, a task, a lease, a list or None."""

    events: tuple[Event, ...]
    answer: Any


class Model(Noted):
    """A queue that foretells what a queue under the same policy does. Begin it with `Open`."""

    def __init__(self, moment: Moment | None = None) -> None:
        super().__init__(moment)
        self._events: list[Event] = []

    def do(self, command: Command, at: datetime) -> Outcome:
        """Carry a command out. Raises the refusal, and then nothing has changed."""
        trial = self.copy()
        trial.seq += 1
        trial.at = at
        answer = getattr(trial, f"_{command.do}")(command)
        events = tuple(trial._events)
        if events:
            trial._events = []
            vars(self).update(vars(trial))
        return Outcome(events, answer)

    # What follows from a command.

    def _tell(self, event: Event, task: str | None = None, **facts: Any) -> None:
        """Tell an event, and note these facts of its task."""
        self.position += 1
        self._events.append(event)
        if task is not None:
            self._tasks[task] = evolve(self._tasks[task], **facts)

    def _follow(self, task: str) -> None:
        """Tell what follows from the last event of this task.

        Breadth-first from it along those that need it, and for each whose status is not what was
        told of it last, the event that tells it.
        """
        reached = [task]
        for name in reached:
            reached += [below for below in self.dependents(name) if below not in reached]
        for name in reached:
            facts, status = self._tasks[name], self.status(name)
            if status is facts.told:
                continue
            if facts.told is S.BLOCKED:
                self._tell(Unblocked(name), name, told=S.PENDING, listed=None)
            if status is S.BLOCKED:
                root = self.root(name)
                assert root is not None
                self._tell(Blocked(name, root), name, told=S.BLOCKED, listed=self.position + 1)
            elif status is S.READY:
                self._tell(Readied(name), name, told=S.READY, place=self.position + 1)

    def _end(self, event: Event, task: str, status: Status, **facts: Any) -> None:
        """Tell an event that makes a task a root or finishes it, and what follows."""
        self._tell(
            event,
            task,
            own=status,
            told=status,
            listed=self.position + 1,
            place=None,
            lease=None,
            worker=None,
            **facts,
        )
        self._follow(task)

    def _wait_afresh(self, event: Event, task: str, **facts: Any) -> None:
        """Tell an event that brings a task back with fresh attempts, and what follows."""
        self._tell(
            event,
            task,
            own=S.PENDING,
            told=S.PENDING,
            attempt=0,
            releases=0,
            error=None,
            ended=None,
            listed=None,
            **facts,
        )
        self._follow(task)

    def _open(self, command: Open) -> None:
        self.queue, self.policy, self.admission = command.queue, command.policy, "open"
        self._tell(Opened(command.queue, command.policy))

    def _enqueue(self, command: Enqueue) -> dict[str, Any] | None:
        named = _named(command, self.seq)
        self._admit(named)
        return self.task(named[0][0])

    def _enqueue_all(self, command: EnqueueAll) -> list[dict[str, Any] | None]:
        named = _named(command, self.seq)
        self._admit(named)
        return [self.task(name) for name, _ in named]

    def _admit(self, asked: Sequence[tuple[str, Enqueue]]) -> None:
        new: dict[str, Enqueue] = {}
        for name, task in asked:
            there: Enqueued | Enqueue | None = new.get(name)
            if name in self._tasks:
                there = self._tasks[name].task
            if there is None:
                new[name] = task
            elif not self._same_content(there, task):
                raise OtherContent(name, self.status(name), "other content")
        if not new:
            return
        if self.admission == "closed":
            raise QueueClosed(next(iter(new)))
        if cycle := _cycle(self._needs(new)):
            raise CycleError(cycle)
        self._check_room(new)
        for name, task in new.items():
            limit = task.max_attempts
            if limit is OF_THE_QUEUE:
                limit = self.policy.retry.max_attempts
            enqueued = Enqueued(name, task.payload, task.after, None, limit, None)
            self._tasks[name] = Facts(enqueued)
            self._tell(enqueued)
            self._follow(name)

    def _same_content(self, there: Enqueued | Enqueue, task: Enqueue) -> bool:
        if type(there.payload) is Json and type(task.payload) is Json:
            same = canonical(there.payload) == canonical(task.payload)
        else:
            same = there.payload is task.payload
        return same and set(there.after) == set(task.after)

    def needs_with(self, command: Enqueue | EnqueueAll) -> dict[str, tuple[str, ...]]:
        """What each task would need with those of this command, also if it is to be refused."""
        return self._needs(dict(_named(command, self.seq + 1)))

    def _needs(self, new: dict[str, Enqueue]) -> dict[str, tuple[str, ...]]:
        """What each task needs, with these; one that SUCCEEDED needs nothing."""
        needs = {n: f.task.after for n, f in self._tasks.items() if f.own is not S.SUCCEEDED}
        return {name: task.after for name, task in new.items()} | needs

    def _check_room(self, new: dict[str, Enqueue]) -> None:
        capacity = self.policy.capacity
        if capacity is None:
            return
        counted = WAITING if capacity.counts == "waiting" else (*WAITING, S.RUNNING)
        taken = sum(self.status(name) in counted for name in self._tasks)
        wanted = {
            above
            for name, facts in self._tasks.items()
            if self.status(name) is S.PENDING
            for above in facts.task.after
        }
        asked = [name for name in new if name not in wanted]
        if asked and taken + len(asked) > capacity.limit:
            raise QueueFull(len(asked), taken, capacity.limit, capacity.counts)

    def _check_worker(self, worker: Hashable) -> None:
        pool = self.policy.pool
        if pool is not None and worker not in pool:
            raise UnknownWorker(worker, pool)

    def _hand_out(self, worker: Hashable) -> dict[str, Any] | None:
        for name in self.letting_go():
            self._tell(Forgotten(name))
            del self._tasks[name]
        held = self.held_by(worker)
        if held is not None:
            raise WorkerBusy(worker, held, self._tasks[held].lease or 0)
        line = self.line()
        if not line:
            return None
        attempt = self._tasks[line[0]].attempt + 1
        self._tell(
            Started(line[0], attempt, worker),
            line[0],
            own=S.RUNNING,
            told=S.RUNNING,
            attempt=attempt,
            lease=self.seq,
            worker=worker,
        )
        return self.lease(self.seq)

    def _start(self, command: Start) -> dict[str, Any] | None:
        self._check_worker(command.worker)
        return self._hand_out(command.worker)

    def _current(self, lease: int, asked: str) -> str:
        holder = self.holder(lease)
        if holder is None:
            raise StaleLease(lease, asked)
        return holder

    def _complete(self, command: Complete | CompleteAndStart) -> dict[str, Any] | None:
        name = self._current(command.lease, "complete")
        facts = {"result": command.result, "error": None, "ended": self.at}
        self._end(Completed(name, command.result), name, S.SUCCEEDED, **facts)
        return self.task(name)

    def _complete_and_start(self, command: CompleteAndStart) -> dict[str, Any] | None:
        self._check_worker(command.worker)
        self._complete(command)
        return self._hand_out(command.worker)

    def _fail(self, command: Fail) -> dict[str, Any] | None:
        name = self._current(command.lease, "fail")
        return self._failed(name, command.error, command.kind)

    def _failed(self, name: str, error: str, kind: Kind) -> dict[str, Any] | None:
        facts = self._tasks[name]
        waits = {"own": S.PENDING, "told": S.FAILED, "place": None, "lease": None, "worker": None}
        failed = Failed(name, facts.attempt, error, kind)
        self._tell(failed, name, error=error, releases=0, **waits)
        limit, redrives = facts.task.max_attempts, self.policy.retry.max_redrives
        if kind == "retryable" and (limit is None or facts.attempt < limit):
            self._follow(name)
        elif redrives is not None and facts.redrives >= redrives:
            self._end(Parked(name), name, S.PARKED)
        else:
            self._end(Died(name), name, S.DEAD)
        return self.task(name)

    def _release(self, command: Release) -> dict[str, Any] | None:
        name = self._current(command.lease, "release")
        facts, limit = self._tasks[name], self.policy.retry.max_releases
        releases = facts.releases + 1
        if limit is not None and releases > limit:
            return self._failed(name, f"released {releases} times", "retryable")
        waits = {"own": S.PENDING, "told": S.READY, "lease": None, "worker": None}
        counts = {"attempt": facts.attempt - 1, "releases": releases}
        self._tell(Released(name), name, **waits, **counts)
        return self.task(name)

    def _check_status(self, task: str, asked: str, allowed: Iterable[Status]) -> None:
        status = self.status(task)
        if status is S.ABSENT:
            raise UnknownTask(task, asked)
        if status not in allowed:
            raise WrongStatus(task, asked, status, [*allowed])

    def _redrive(self, command: Redrive) -> dict[str, Any] | None:
        name = command.task
        self._check_status(name, "redrive", (S.DEAD, S.PARKED))
        self._wait_afresh(Redriven(name), name, redrives=self._tasks[name].redrives + 1)
        return self.task(name)

    def _cancel(self, command: Cancel) -> dict[str, Any] | None:
        name = command.task
        if command.lease is not None and self.holder(command.lease) != name:
            raise StaleLease(command.lease, "cancel")
        if name in self._tasks and self.status(name) is S.CANCELLED:
            return self.task(name)
        self._check_status(name, "cancel", UNFINISHED)
        error = command.error
        self._end(Cancelled(name, error), name, S.CANCELLED, error=error, ended=self.at)
        return self.task(name)

    def _restore(self, command: Restore) -> dict[str, Any] | None:
        name = command.task
        self._check_status(name, "restore", (S.CANCELLED,))
        self._wait_afresh(Restored(name), name)
        return self.task(name)

    def _close(self, _: Close) -> None:
        if self.admission == "open":
            self.admission = "closed"
            self._tell(Closed())

    def _reopen(self, _: Reopen) -> None:
        if self.admission == "closed":
            self.admission = "open"
            self._tell(Reopened())

    def _tick(self, _: Tick) -> None:
        for name in self.letting_go():
            self._tell(Forgotten(name))
            del self._tasks[name]


def _named(command: Enqueue | EnqueueAll, seq: int) -> list[tuple[str, Enqueue]]:
    """The tasks that this command asks for, each with its id: a made one where it has none."""
    if isinstance(command, Enqueue):
        return [(command.id or f"#{seq}", command)]
    named: list[tuple[str, Enqueue]] = []
    for task in command.tasks:
        made = sum(name.startswith("#") for name, _ in named)
        named.append((task.id or f"#{seq}.{made + 1}", task))
    return named


def _cycle(needs: dict[str, tuple[str, ...]]) -> list[str] | None:
    """A cycle among these, its first id repeated last; None if there is none.

    Whatever needs nothing that is left is taken away until no more can be; in what stays, every
    task needs one that stays too, so following those comes round.
    """
    left = dict(needs)
    while free := [name for name in left if not any(above in left for above in left[name])]:
        for name in free:
            del left[name]
    if not left:
        return None
    path = [next(iter(left))]
    while True:
        above = next(above for above in left[path[-1]] if above in left)
        if above in path:
            return [*path[path.index(above) :], above]
        path.append(above)
