"""Carries out what has happened: state and entry in, state out. It knows none of the rules.

`evolve` is the definition and `replay` the fast way for many entries; one law joins them:
`replay(state, entries) == reduce(evolve, entries, state)`. Where an event may happen and where it
leads stands in the table of `lifecycle`; here is only what else it does. `tell` folds a single
event into a draft, for `decide`, so that nothing is folded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, cast

from eventq.core.errors import ImpossibleEvent
from eventq.core.events import (
    TASK_EVENTS,
    Blocked,
    Cancelled,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Event,
    Expired,
    Failed,
    Forgotten,
    Opened,
    Parked,
    Readied,
    Reconfigured,
    Redriven,
    Released,
    Renewed,
    Resolved,
    Restored,
    Started,
    TaskEvent,
    Unblocked,
)
from eventq.core.lifecycle import LEADS, QUEUE, Status
from eventq.core.record import Record
from eventq.core.state import Draft, State, place_front

__all__ = ["Folded", "begin", "evolve", "replay", "take_for", "tell"]

# Bound once: to look a member up on its class costs more than much of what is done here.
ABSENT = Status.ABSENT
READY = Status.READY
SUCCEEDED = Status.SUCCEEDED
DEAD = Status.DEAD
PARKED = Status.PARKED
BLOCKED = Status.BLOCKED
CANCELLED = Status.CANCELLED

LEASE_EXPIRED = "lease expired"


class Folded(Protocol):
    """What a fold needs of an entry."""

    @property
    def seq(self) -> int:
        """Its number."""

    @property
    def at(self) -> datetime:
        """Its time."""

    @property
    def events(self) -> Sequence[Event]:
        """What followed from the command, in order."""


def evolve(state: State, entry: Folded) -> State:
    """The state after this entry. Raises ImpossibleEvent, and ValueError for a wrong seq."""
    return replay(state, (entry,))


def replay(
    state: State,
    entries: Iterable[Folded],
    *,
    keep: Callable[[State], None] | None = None,
    every: int = 1000,
) -> State:
    """The state after these entries, in time linear in their events.

    `keep` is given the state after each entry whose seq is a multiple of `every`.
    """
    draft = Draft.of(state, flat=keep is None and not len(state))
    for entry in entries:
        seq = entry.seq
        begin(draft, seq, entry.at)
        for event in entry.events:
            tell(draft, event)
        if keep is not None and not seq % every:
            state = draft.done()
            keep(state)
            draft = Draft.of(state)
    return draft.done()


def begin(draft: Draft, seq: int, at: datetime) -> None:
    """Begin the entry `seq`, at this time. Raises ValueError unless it is the next one."""
    if seq != draft.seq + 1:
        raise ValueError(f"entry {seq} cannot follow entry {draft.seq}")
    draft.seq = seq
    draft.at = at


def tell(draft: Draft, event: Event) -> None:
    """Carry out one event of the entry that was begun. Raises ImpossibleEvent."""
    draft.position += 1
    steps = _STEPS.get(type(event))
    if steps is None:
        _tell_queue(draft, event)
        return
    name = event.task  # type: ignore[union-attr]  # only a task's events have steps
    record = draft.records.get(name)
    status = ABSENT if record is None else record.status
    step = steps.get(status)
    if step is None or draft.position == 1:  # before the queue was opened, nothing can be
        raise ImpossibleEvent(event, status, draft.seq, () if record is None else (repr(record),))
    target, does = step
    if draft.flat:
        if record is None:
            record = Record(cast(Enqueued, event), draft.position, ABSENT)
            draft.records[name] = record
    else:
        standing = draft.standing
        standing[status] -= 1
        standing[target] += 1
        record = (
            Record(cast(Enqueued, event), draft.position, ABSENT)
            if record is None
            else record.copy()
        )
        draft.records[name] = record
    does(draft, event, record)
    record.status = target
    if record.task.key is not None:
        place_front(draft, record.task.key)


def _tell_queue(draft: Draft, event: Any) -> None:
    row = QUEUE[type(event)]
    stands = getattr(draft, row.moves)
    if stands not in row.sources:
        raise ImpossibleEvent(event, stands, draft.seq)
    if row.target is not None:
        setattr(draft, row.moves, row.target)
    if isinstance(event, Opened):
        draft.queue = event.queue
    if isinstance(event, Opened | Reconfigured):
        draft.policy = event.policy


# What else each event does, besides leading where the table says. The record is the draft's own
# and still has the status that it had before the event.


def _enqueued(draft: Draft, event: Enqueued, record: Record) -> None:
    if event.after:
        _bind(draft, record)


def _named(draft: Draft, task: str) -> bool:
    """Whether anything unfinished names this task."""
    return len(draft.edges) > 0 and next(draft.dependents(task), None) is not None


def _bind(draft: Draft, record: Record) -> None:
    """The task is unfinished from here on: it needs what it names, and keeps that from going."""
    record.needs = 0
    for dependency in record.task.after:
        above = draft.records.get(dependency)
        if above is None or above.status is not SUCCEEDED:
            record.needs += 1
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished.remove((above.mark, dependency))
        draft.edges.add((dependency, record.born, record.task.task))


def _unbind(draft: Draft, record: Record) -> None:
    """The task is finished: what it alone still named may be let go."""
    for dependency in record.task.after:
        draft.edges.remove((dependency, record.born, record.task.task))
        above = draft.records.get(dependency)
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished.add((above.mark, dependency))


def _sleep(draft: Draft, record: Record) -> None:
    """The task is CANCELLED: it waits for nothing, but may be restored."""
    for dependency in record.task.after:
        draft.sleeping.add((dependency, record.born, record.task.task))


def _wake(draft: Draft, record: Record) -> None:
    """The task is not CANCELLED any more."""
    for dependency in record.task.after:
        draft.sleeping.remove((dependency, record.born, record.task.task))


def _enter_line(draft: Draft, record: Record) -> None:
    """The task is READY, at the place that it has. With a key, it is up to `place_front` whether
    it is in the line."""
    task = record.task
    if task.key is None:
        draft.in_line.add((record.mark, task.task))
    else:
        draft.by_key.add((task.key, record.mark, task.task))


def _leave_line(draft: Draft, record: Record) -> None:
    task = record.task
    if task.key is None:
        draft.in_line.remove((record.mark, task.task))
    else:
        draft.by_key.remove((task.key, record.mark, task.task))


def _free_key(draft: Draft, record: Record) -> None:
    """The task holds its key no more, if it did."""
    key = record.task.key
    if key is not None and draft.holders.get(key) == record.task.task:
        del draft.holders[key]


def _set_timer(draft: Draft, record: Record, when: datetime | None) -> None:
    """The task is due at this time, by the event of this position."""
    if when is not None:
        record.timer = draft.position
        draft.due.add((when, record.timer, record.task.task))


def _stop_timer(draft: Draft, record: Record) -> None:
    when = record.until or record.expires
    if when is not None:
        draft.due.remove((when, record.timer, record.task.task))
        record.until = record.expires = None
        record.timer = 0


def _leave_list(draft: Draft, record: Record) -> None:
    """Take the task out of the list where it stands, if it stands in one."""
    item = (record.mark, record.task.task)
    status = record.status
    if status is READY:
        _leave_line(draft, record)
    elif status is DEAD or status is BLOCKED:
        draft.in_letters.remove(item)
    elif status is PARKED:
        draft.in_parking.remove(item)
    elif status is CANCELLED and not _named(draft, record.task.task):
        draft.in_finished.remove(item)


def _end_lease(draft: Draft, record: Record) -> None:
    if record.lease is not None:
        del draft.leases[record.lease]
        if record.worker is not None:
            del draft.busy[record.worker]
        record.lease = record.worker = None
        if record.expires is not None:
            _stop_timer(draft, record)


def _finish(draft: Draft, record: Record) -> None:
    """The task is SUCCEEDED or CANCELLED from here on."""
    record.ended = draft.at
    record.mark = draft.position
    if not _named(draft, record.task.task):
        draft.in_finished.add((record.mark, record.task.task))


def _succeed(draft: Draft, record: Record) -> None:
    """Whatever names the task needs one dependency less."""
    record.needs = 0
    record.error = None
    _finish(draft, record)
    if not len(draft.edges):
        return
    for below in list(draft.dependents(record.task.task)):
        fewer = below
        if not draft.flat:
            fewer = draft.records[below.task.task] = below.copy()
        fewer.needs -= 1


def _afresh(record: Record) -> None:
    record.since = None
    record.attempt = record.releases = 0
    record.error = None


def _readied(draft: Draft, event: Readied, record: Record) -> None:
    if record.until is not None:
        _stop_timer(draft, record)
    record.mark = draft.position
    _enter_line(draft, record)


def _delayed(draft: Draft, event: Delayed, record: Record) -> None:
    record.until = event.until
    _set_timer(draft, record, event.until)


def _started(draft: Draft, event: Started, record: Record) -> None:
    _leave_line(draft, record)
    record.attempt += 1
    record.lease = draft.seq
    record.worker = event.worker
    record.expires = event.expires
    draft.leases[draft.seq] = event.task
    if event.worker is not None:
        draft.busy[event.worker] = draft.seq
    if event.expires is not None:
        _set_timer(draft, record, event.expires)
    if record.task.key is not None:
        draft.holders[record.task.key] = event.task


def _renewed(draft: Draft, event: Renewed, record: Record) -> None:
    _stop_timer(draft, record)
    record.expires = event.expires
    _set_timer(draft, record, event.expires)


def _released(draft: Draft, event: Released, record: Record) -> None:
    _end_lease(draft, record)
    record.attempt -= 1
    record.releases += 1
    _enter_line(draft, record)


def _completed(draft: Draft, event: Completed, record: Record) -> None:
    _end_lease(draft, record)
    if record.task.after:
        _unbind(draft, record)
    record.result = event.result
    _free_key(draft, record)
    _succeed(draft, record)


def _failed(draft: Draft, event: Failed, record: Record) -> None:
    _end_lease(draft, record)
    record.releases = 0
    record.error = event.error


def _expired(draft: Draft, event: Expired, record: Record) -> None:
    _end_lease(draft, record)
    record.releases = 0
    record.error = LEASE_EXPIRED


def _died(draft: Draft, event: Died | Blocked, record: Record) -> None:
    record.mark = draft.position
    record.since = draft.at
    draft.in_letters.add((record.mark, event.task))


def _parked(draft: Draft, event: Parked, record: Record) -> None:
    record.mark = draft.position
    record.since = draft.at
    draft.in_parking.add((record.mark, event.task))


def _unblocked(draft: Draft, event: Unblocked, record: Record) -> None:
    _leave_list(draft, record)
    record.since = None


def _redriven(draft: Draft, event: Redriven, record: Record) -> None:
    _leave_list(draft, record)
    _afresh(record)
    record.redrives += 1


def _restored(draft: Draft, event: Restored, record: Record) -> None:
    _leave_list(draft, record)
    _wake(draft, record)
    _afresh(record)
    record.ended = None
    _bind(draft, record)


def _resolved(draft: Draft, event: Resolved, record: Record) -> None:
    _leave_list(draft, record)
    if record.status is CANCELLED:
        _wake(draft, record)
    else:
        _unbind(draft, record)
    record.since = None
    _free_key(draft, record)
    _succeed(draft, record)


def _cancelled(draft: Draft, event: Cancelled, record: Record) -> None:
    _leave_list(draft, record)
    _end_lease(draft, record)
    _unbind(draft, record)
    _sleep(draft, record)
    if record.until is not None:
        _stop_timer(draft, record)
    record.since = None
    record.error = event.error
    _free_key(draft, record)
    _finish(draft, record)


def _forgotten(draft: Draft, event: Forgotten, record: Record) -> None:
    draft.in_finished.remove((record.mark, event.task))
    if record.status is CANCELLED:
        _wake(draft, record)
    del draft.records[event.task]


_DOES: dict[type[TaskEvent], Callable[[Draft, Any, Record], None]] = {
    Enqueued: _enqueued,
    Readied: _readied,
    Delayed: _delayed,
    Started: _started,
    Renewed: _renewed,
    Released: _released,
    Completed: _completed,
    Failed: _failed,
    Expired: _expired,
    Died: _died,
    Parked: _parked,
    Blocked: _died,
    Unblocked: _unblocked,
    Redriven: _redriven,
    Restored: _restored,
    Resolved: _resolved,
    Cancelled: _cancelled,
    Forgotten: _forgotten,
}

_Step = tuple[Status, Callable[[Draft, Any, Record], None]]
_STEPS: dict[type, dict[Status, _Step]] = {
    event: {status: (target, _DOES[event]) for status, target in LEADS[event].items()}
    for event in TASK_EVENTS
}
"""Both tables in one, for look-up."""


def take_for(other: type, event: type[TaskEvent]) -> None:
    """Let the fold take another class, with the same fields, for that of an event: one that a
    store reads faster."""
    _STEPS[other] = _STEPS[event]
