"""All the rules: what follows from a command, or why it is refused.

`decide(state, command, at)` is pure: the time comes in with the command. It folds with `evolve`
as it goes, so that each rule sees the state as its own events have made it. Each command has one
function here, whose checks stand in the order of the refusals; what may follow which status is
asked of the table in `lifecycle`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from eventq.core.admission import admit
from eventq.core.backoff import delay, later
from eventq.core.commands import (
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
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
from eventq.core.downstream import (
    Telling,
    block_below,
    free_below,
    line_up,
    ready_below,
    settle,
)
from eventq.core.errors import (
    BadValue,
    StaleLease,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WrongStatus,
)
from eventq.core.events import (
    Cancelled,
    Closed,
    Completed,
    Died,
    Event,
    Expired,
    Failed,
    Forgotten,
    Kind,
    Opened,
    Parked,
    Paused,
    Readied,
    Reconfigured,
    Redriven,
    Released,
    Renewed,
    Reopened,
    Resolved,
    Restored,
    Resumed,
    Started,
    TaskEvent,
)
from eventq.core.graph import blocks
from eventq.core.lifecycle import LEADS, Status, sources
from eventq.core.policy import Policy
from eventq.core.reading import Questions
from eventq.core.record import Record
from eventq.core.select import selected
from eventq.core.state import Draft, State

__all__ = ["DUE_LIMIT", "RULES", "decide"]

S = Status

DUE_LIMIT = 1000
"""How much due work one entry carries out at most."""


def decide(state: State, command: Command, at: datetime) -> tuple[tuple[Event, ...], State]:
    """What follows from a command at this time: the events, and the state after them.

    No events: what was asked for already holds, or there was nothing to do. Raises a Refusal,
    and then nothing has changed.
    """
    telling = Telling(state, at)
    RULES[type(command)](telling, command)
    after = telling.now
    return tuple(telling.events), after.done() if isinstance(after, Draft) else after


# Enqueueing.


def _open(t: Telling, command: Open) -> None:
    if t.now.admission != "absent":
        raise BadValue("this log is open already: the first entry alone opens it")
    t.tell(Opened(command.queue, command.policy))


def _enqueue(t: Telling, command: Enqueue) -> None:
    admit(t, [(command.id or f"#{t.seq}", command)])


def _enqueue_all(t: Telling, command: EnqueueAll) -> None:
    tasks = []
    made = 0
    for task in command.tasks:
        name = task.id
        if name is None:
            made += 1
            name = f"#{t.seq}.{made}"
        tasks.append((name, task))
    admit(t, tasks)


# Handing out, and what becomes of it.


def _known_worker(policy: Policy, worker: Hashable) -> None:
    if policy.pool is not None and worker not in policy.members:
        raise UnknownWorker(worker, policy.pool)


def _due(t: Telling) -> None:
    """Carry out what is due, the earliest first, as much as fits into one entry: leases that ran
    out and delays that ended, then what retention lets go."""
    left = DUE_LIMIT
    while left and (record := t.now.first_due(t.at)) is not None:
        left -= 1
        if record.status is S.RUNNING:
            t.tell(Expired(record.task.task, record.attempt))
            _after_failure(t, record, "retryable", None)
        else:
            t.tell(Readied(record.task.task))
    if t.now.policy.retention is not None:
        for record in list(islice(t.now.surplus(t.at), left)):
            t.tell(Forgotten(record.task.task))


def _hand_out(t: Telling, worker: Hashable, lease_for: timedelta | None) -> None:
    now = t.now
    if worker is not None and (held := now.held_by(worker)) is not None:
        assert held.lease is not None
        raise WorkerBusy(worker, held.task.task, held.lease)
    first = now.first()
    if first is not None and now.dispatch == "running":
        length = lease_for or now.policy.lease_for
        expires = None if length is None else later(t.at, length)
        t.tell(Started.of(first.task.task, first.attempt + 1, worker, expires))


def _start(t: Telling, command: Start) -> None:
    _known_worker(t.now.policy, command.worker)
    _due(t)
    _hand_out(t, command.worker, command.lease_for)


def _leased(state: Questions, lease: int, asked: str) -> Record:
    record = state.leased(lease)
    if record is None:
        raise StaleLease(lease, asked)
    return record


def _complete(t: Telling, command: Complete | CompleteAndStart) -> None:
    name = _leased(t.now, command.lease, "complete").task.task
    t.tell(Completed(name, command.result))
    ready_below(t, name)


def _complete_and_start(t: Telling, command: CompleteAndStart) -> None:
    _known_worker(t.now.policy, command.worker)
    _complete(t, command)
    _due(t)
    _hand_out(t, command.worker, command.lease_for)


def _fail(t: Telling, command: Fail) -> None:
    record = _leased(t.now, command.lease, "fail")
    t.tell(Failed(record.task.task, record.attempt, command.error, command.kind))
    _after_failure(t, record, command.kind, command.retry_after)


def _after_failure(t: Telling, record: Record, kind: Kind, retry_after: timedelta | None) -> None:
    """A hand-out failed: back to the line, now or later, or to the dead letters, or parked."""
    name = record.task.task
    limit = record.task.max_attempts
    if kind == "retryable" and (limit is None or record.attempt < limit):
        if retry_after is None:
            backoff = t.now.policy.retry.backoff
            retry_after = (
                timedelta()
                if backoff is None
                else delay(backoff, t.now.queue, name, record.redrives, record.attempt)
            )
        line_up(t, name, later(t.at, retry_after))
        return
    redrives = t.now.policy.retry.max_redrives
    parks = redrives is not None and record.redrives >= redrives
    t.tell(Parked(name) if parks else Died(name))
    block_below(t, name, name)


def _renew(t: Telling, command: Renew) -> None:
    record = _leased(t.now, command.lease, "renew")
    length = command.lease_for or t.now.policy.lease_for
    if length is None or record.expires is None:
        return  # a lease without an end has nothing to renew
    expires = later(t.at, length)
    if expires - record.expires > length / 2:
        t.tell(Renewed(record.task.task, expires))


def _release(t: Telling, command: Release) -> None:
    record = _leased(t.now, command.lease, "release")
    releases, limit = record.releases + 1, t.now.policy.retry.max_releases
    if limit is not None and releases > limit:
        name = record.task.task
        t.tell(Failed(name, record.attempt, f"released {releases} times", "retryable"))
        _after_failure(t, record, "retryable", None)
    else:
        t.tell(Released(record.task.task))


# What a person asks.


def _standing(state: Questions, name: str, asked: str, event: type[TaskEvent]) -> Record:
    """This task, if the event may happen to it where it stands."""
    record = state.record(name)
    if record is None:
        raise UnknownTask(name, asked)
    if record.status not in LEADS[event]:
        raise WrongStatus(name, asked, record.status, sources(event))
    return record


def _redrive(t: Telling, command: Redrive) -> None:
    name = command.task
    _standing(t.now, name, "redrive", Redriven)
    _redriven(t, name)
    free_below(t, [name])


def _redriven(t: Telling, name: str) -> None:
    t.tell(Redriven(name))
    t.tell(Readied(name))  # it has run, so all that it needs has succeeded, and its time has come


def _redrive_all(t: Telling, command: RedriveAll) -> None:
    names = selected(t.now, command.select)
    for name in names:
        _redriven(t, name)
    free_below(t, names)


def _cancel(t: Telling, command: Cancel) -> None:
    name = command.task
    record = t.now.record(name)
    # A worker that names a lease is told one thing, whatever became of the task.
    if command.lease is not None and (record is None or record.lease != command.lease):
        raise StaleLease(command.lease, f"cancel {name!r}")
    if record is not None and record.status is S.CANCELLED:
        return  # what was asked for holds already
    _standing(t.now, name, "cancel", Cancelled)
    t.tell(Cancelled(name, command.error))
    block_below(t, name, name)


def _restore(t: Telling, command: Restore) -> None:
    name = command.task
    _standing(t.now, name, "restore", Restored)
    t.tell(Restored(name))
    settle(t, name)
    if not blocks(t.now.record(name)):
        free_below(t, [name])


def _resolve(t: Telling, command: Resolve) -> None:
    name = command.task
    _standing(t.now, name, "resolve", Resolved)
    t.tell(Resolved(name))
    free_below(t, [name])


def _close(t: Telling, command: Close) -> None:
    if t.now.admission == "open":
        t.tell(Closed())


def _reopen(t: Telling, command: Reopen) -> None:
    if t.now.admission == "closed":
        t.tell(Reopened())


def _pause(t: Telling, command: Pause) -> None:
    if t.now.dispatch == "running":
        t.tell(Paused())


def _resume(t: Telling, command: Resume) -> None:
    if t.now.dispatch == "paused":
        t.tell(Resumed())


def _reconfigure(t: Telling, command: Reconfigure) -> None:
    if t.now.policy != command.policy:
        t.tell(Reconfigured(command.policy))


def _tick(t: Telling, command: Tick) -> None:
    _due(t)


RULES: dict[type[Command], Callable[[Telling, Any], None]] = {
    Open: _open,
    Enqueue: _enqueue,
    EnqueueAll: _enqueue_all,
    Start: _start,
    Complete: _complete,
    CompleteAndStart: _complete_and_start,
    Fail: _fail,
    Renew: _renew,
    Release: _release,
    Redrive: _redrive,
    RedriveAll: _redrive_all,
    Cancel: _cancel,
    Restore: _restore,
    Resolve: _resolve,
    Close: _close,
    Reopen: _reopen,
    Pause: _pause,
    Resume: _resume,
    Reconfigure: _reconfigure,
    Tick: _tick,
}
"""Each tells what follows from its command. Raises a Refusal, perhaps in the midst of it."""
