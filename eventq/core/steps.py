"""What each event does to a draft, besides leading where the table says.

Each step is given the draft's own record of the task, which still has the status that it had
before the event. No step knows a rule.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from eventq.core.events import (
    Blocked,
    Cancelled,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Expired,
    Failed,
    Forgotten,
    Parked,
    Readied,
    Redriven,
    Released,
    Renewed,
    Resolved,
    Restored,
    Started,
    TaskEvent,
    Unblocked,
)
from eventq.core.lifecycle import Status
from eventq.core.record import Record
from eventq.core.state import Draft

__all__ = ["DOES", "LEASE_EXPIRED"]

LEASE_EXPIRED = "lease expired"
"""The error of an expired lease."""

# Bound once: to look a member up on its class costs more than much of what is done here.
READY = Status.READY
SUCCEEDED = Status.SUCCEEDED
DEAD = Status.DEAD
PARKED = Status.PARKED
BLOCKED = Status.BLOCKED
CANCELLED = Status.CANCELLED


def _enqueued(draft: Draft, event: Enqueued, record: Record) -> None:
    if event.after:
        _bind(draft, record)


def _named(draft: Draft, task: str) -> bool:
    """Whether anything unfinished names this task."""
    return bool(draft.edges.size) and next(draft.dependents(task), None) is not None


def _bind(draft: Draft, record: Record) -> None:
    """The task is unfinished from here on: it needs what it names, and keeps that from going."""
    record.needs = 0
    for dependency in record.task.after:
        above = draft.records[dependency]
        if above is None or above.status is not SUCCEEDED:
            record.needs += 1
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished = draft.in_finished.remove((above.mark, dependency), draft.owner)
        edge = (dependency, record.born, record.task.task)
        draft.edges = draft.edges.add(edge, draft.owner)


def _unbind(draft: Draft, record: Record) -> None:
    """The task is finished: what it alone still named may be let go."""
    for dependency in record.task.after:
        edge = (dependency, record.born, record.task.task)
        draft.edges = draft.edges.remove(edge, draft.owner)
        above = draft.records[dependency]
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished = draft.in_finished.add((above.mark, dependency), draft.owner)


def _sleep(draft: Draft, record: Record) -> None:
    """The task is CANCELLED: it waits for nothing, but may be restored."""
    for dependency in record.task.after:
        edge = (dependency, record.born, record.task.task)
        draft.sleeping = draft.sleeping.add(edge, draft.owner)


def _wake(draft: Draft, record: Record) -> None:
    """The task is not CANCELLED any more."""
    for dependency in record.task.after:
        edge = (dependency, record.born, record.task.task)
        draft.sleeping = draft.sleeping.remove(edge, draft.owner)


def _enter_line(draft: Draft, record: Record) -> None:
    """The task is READY, at the place that it has. With a key, it is up to `place_front` whether
    it is in the line."""
    task = record.task
    if task.key is None:
        draft.in_line = draft.in_line.add((record.mark, task.task), draft.owner)
    else:
        draft.by_key = draft.by_key.add((task.key, record.mark, task.task), draft.owner)


def _leave_line(draft: Draft, record: Record) -> None:
    task = record.task
    if task.key is None:
        draft.in_line = draft.in_line.remove((record.mark, task.task), draft.owner)
    else:
        draft.by_key = draft.by_key.remove((task.key, record.mark, task.task), draft.owner)


def _free_key(draft: Draft, record: Record) -> None:
    """The task holds its key no more, if it did."""
    key = record.task.key
    if key is not None and draft.holders[key] == record.task.task:
        draft.holders.drop(key)


def _set_timer(draft: Draft, record: Record, when: datetime | None) -> None:
    """The task is due at this time, by the event of this position."""
    if when is not None:
        record.timer = draft.position
        draft.due = draft.due.add((when, record.timer, record.task.task), draft.owner)


def _stop_timer(draft: Draft, record: Record) -> None:
    when = record.until or record.expires
    if when is not None:
        draft.due = draft.due.remove((when, record.timer, record.task.task), draft.owner)
        record.until = record.expires = None
        record.timer = 0


def _leave_list(draft: Draft, record: Record) -> None:
    """Take the task out of the list where it stands, if it stands in one."""
    item = (record.mark, record.task.task)
    status = record.status
    if status is READY:
        _leave_line(draft, record)
    elif status is DEAD or status is BLOCKED:
        draft.in_letters = draft.in_letters.remove(item, draft.owner)
    elif status is PARKED:
        draft.in_parking = draft.in_parking.remove(item, draft.owner)
    elif status is CANCELLED and not _named(draft, record.task.task):
        draft.in_finished = draft.in_finished.remove(item, draft.owner)


def _end_lease(draft: Draft, record: Record) -> None:
    if record.lease is not None:
        draft.leases.drop(record.lease)
        if record.worker is not None:
            draft.busy.drop(record.worker)
        record.lease = record.worker = None
        if record.expires is not None:
            _stop_timer(draft, record)


def _finish(draft: Draft, record: Record) -> None:
    """The task is SUCCEEDED or CANCELLED from here on."""
    record.ended = draft.at
    record.mark = draft.position
    if not _named(draft, record.task.task):
        draft.in_finished = draft.in_finished.add((record.mark, record.task.task), draft.owner)


def _succeed(draft: Draft, record: Record) -> None:
    """Whatever names the task needs one dependency less."""
    record.needs = 0
    record.error = None
    _finish(draft, record)
    if not draft.edges.size:
        return
    for below in list(draft.dependents(record.task.task)):
        if below.owner is draft.owner:
            below.needs -= 1
        else:
            fewer = draft.records[below.task.task] = below.copy(draft.owner)
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
    if draft.seq in draft.leases:  # which is among the changes, where it is there
        raise KeyError(draft.seq)  # one entry hands out one task
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
    draft.in_letters = draft.in_letters.add((record.mark, event.task), draft.owner)


def _parked(draft: Draft, event: Parked, record: Record) -> None:
    record.mark = draft.position
    record.since = draft.at
    draft.in_parking = draft.in_parking.add((record.mark, event.task), draft.owner)


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
    draft.in_finished = draft.in_finished.remove((record.mark, event.task), draft.owner)
    if record.status is CANCELLED:
        _wake(draft, record)
    draft.records.drop(event.task)


DOES: dict[type[TaskEvent], Callable[[Draft, Any, Record], None]] = {
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
