"""Carries out what has happened: state and entry in, state out. It knows none of the rules.

`evolve` is the definition and `replay` the fast way for many entries; one law joins them:
`replay(state, entries) == reduce(evolve, entries, state)`. Where an event may happen and where it
leads stands in the table of `lifecycle`; here is only what else it does. `tell` folds a single
event into a draft, for `decide`, so that nothing is folded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from eventq.core.errors import ImpossibleEvent
from eventq.core.events import (
    Blocked,
    Cancelled,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Entry,
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
from eventq.core.state import Draft, State

__all__ = ["begin", "evolve", "replay", "tell"]

S = Status
LEASE_EXPIRED = "lease expired"


def evolve(state: State, entry: Entry) -> State:
    """The state after this entry. Raises ImpossibleEvent, and ValueError for a wrong seq."""
    return replay(state, (entry,))


def replay(
    state: State,
    entries: Iterable[Entry],
    *,
    keep: Callable[[State], None] | None = None,
    every: int = 1000,
) -> State:
    """The state after these entries, in time linear in their events.

    `keep` is given the state after each entry whose seq is a multiple of `every`.
    """
    draft = Draft.of(state)
    for entry in entries:
        begin(draft, entry.seq, entry.at)
        for event in entry.events:
            tell(draft, event)
        if keep is not None and entry.seq % every == 0:
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
    if not isinstance(event, TaskEvent):
        _tell_queue(draft, event)
        return
    if draft.admission == "absent":
        raise ImpossibleEvent(event, "not open yet", draft.seq)
    kind = type(event)
    records = draft.records
    record = records.get(event.task)
    status = S.ABSENT if record is None else record.status
    target = LEADS[kind].get(status)
    if target is None:
        raise ImpossibleEvent(event, status, draft.seq, () if record is None else (repr(record),))
    standing = draft.standing
    standing[status] -= 1
    standing[target] += 1
    if record is None:
        _enqueued(draft, event)  # type: ignore[arg-type]  # the only row from ABSENT
        return
    new = record.moved(target)
    _DOES[kind](draft, event, record, new)
    if target is not S.ABSENT:
        records[event.task] = new


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


# What else each event does, besides leading where the table says.


def _enqueued(draft: Draft, event: Enqueued) -> None:
    task = event.task
    if event.after:
        _bind(draft, task, draft.position, event.after)
    draft.records[task] = Record(
        event,
        draft.position,
        S.PENDING,
        _unmet(draft, event.after),
        0,
        0,
        0,
        0,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
    )


def _unmet(draft: Draft, after: tuple[str, ...]) -> int:
    needs = 0
    for dependency in after:
        above = draft.records.get(dependency)
        if above is None or above.status is not S.SUCCEEDED:
            needs += 1
    return needs


def _named(draft: Draft, task: str) -> bool:
    """Whether anything unfinished names this task."""
    return next(draft.dependents(task), None) is not None


def _bind(draft: Draft, task: str, born: int, after: tuple[str, ...]) -> None:
    """From now on this task is an unfinished one that names these: none of them can be let go."""
    for dependency in after:
        above = draft.records.get(dependency)
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished.remove((above.mark, dependency))
        draft.edges.add((dependency, born, task))


def _unbind(draft: Draft, record: Record) -> None:
    """This task is finished: those that it alone still named may be let go."""
    task = record.task
    for dependency in task.after:
        draft.edges.remove((dependency, record.born, task.task))
        above = draft.records.get(dependency)
        if above is not None and above.ended is not None and not _named(draft, dependency):
            draft.in_finished.add((above.mark, dependency))


def _sleep(draft: Draft, record: Record) -> None:
    for dependency in record.task.after:
        draft.sleeping.add((dependency, record.born, record.task.task))


def _wake(draft: Draft, record: Record) -> None:
    for dependency in record.task.after:
        draft.sleeping.remove((dependency, record.born, record.task.task))


def _leave_list(draft: Draft, record: Record) -> None:
    """Take the task out of the list where it stands, if it stands in one."""
    status = record.status
    if status is S.READY:
        draft.in_line.remove((record.mark, record.task.task))
    elif status in (S.DEAD, S.BLOCKED):
        draft.in_letters.remove((record.mark, record.task.task))
    elif status is S.PARKED:
        draft.in_parking.remove((record.mark, record.task.task))


def _end_lease(draft: Draft, record: Record, new: Record) -> None:
    if record.lease is not None:
        del draft.leases[record.lease]
        if record.worker is not None:
            del draft.busy[record.worker]
        new.lease = new.worker = new.expires = None


def _finish(draft: Draft, record: Record, new: Record) -> None:
    """The task is SUCCEEDED or CANCELLED from here on."""
    new.ended = draft.at
    new.mark = draft.position
    if record.status is S.CANCELLED:
        if not _named(draft, record.task.task):
            draft.in_finished.remove((record.mark, record.task.task))
        _wake(draft, record)
    elif record.task.after:
        _unbind(draft, record)
    if not _named(draft, record.task.task):
        draft.in_finished.add((new.mark, record.task.task))


def _succeed(draft: Draft, record: Record, new: Record) -> None:
    """One dependency less for whatever names this task."""
    _finish(draft, record, new)
    new.needs = 0
    new.error = None
    for below in list(draft.dependents(record.task.task)):
        less = below.moved(below.status)
        less.needs -= 1
        draft.records[below.task.task] = less


def _afresh(new: Record) -> None:
    new.attempt = new.releases = 0
    new.error = None


def _readied(draft: Draft, event: Readied, record: Record, new: Record) -> None:
    new.until = None
    new.mark = draft.position
    draft.in_line.add((new.mark, event.task))


def _delayed(draft: Draft, event: Delayed, record: Record, new: Record) -> None:
    new.until = event.until


def _started(draft: Draft, event: Started, record: Record, new: Record) -> None:
    draft.in_line.remove((record.mark, event.task))
    new.attempt += 1
    new.lease = draft.seq
    new.worker = event.worker
    new.expires = event.expires
    draft.leases[draft.seq] = event.task
    if event.worker is not None:
        draft.busy[event.worker] = draft.seq


def _renewed(draft: Draft, event: Renewed, record: Record, new: Record) -> None:
    new.expires = event.expires


def _released(draft: Draft, event: Released, record: Record, new: Record) -> None:
    _end_lease(draft, record, new)
    new.attempt -= 1
    new.releases += 1
    draft.in_line.add((record.mark, event.task))


def _completed(draft: Draft, event: Completed, record: Record, new: Record) -> None:
    _end_lease(draft, record, new)
    new.result = event.result
    _succeed(draft, record, new)


def _failed(draft: Draft, event: Failed, record: Record, new: Record) -> None:
    _end_lease(draft, record, new)
    new.releases = 0
    new.error = event.error


def _expired(draft: Draft, event: Expired, record: Record, new: Record) -> None:
    _end_lease(draft, record, new)
    new.releases = 0
    new.error = LEASE_EXPIRED


def _died(draft: Draft, event: Died, record: Record, new: Record) -> None:
    new.mark = draft.position
    draft.in_letters.add((new.mark, event.task))


def _parked(draft: Draft, event: Parked, record: Record, new: Record) -> None:
    new.mark = draft.position
    draft.in_parking.add((new.mark, event.task))


def _blocked(draft: Draft, event: Blocked, record: Record, new: Record) -> None:
    new.mark = draft.position
    draft.in_letters.add((new.mark, event.task))


def _unblocked(draft: Draft, event: Unblocked, record: Record, new: Record) -> None:
    _leave_list(draft, record)


def _redriven(draft: Draft, event: Redriven, record: Record, new: Record) -> None:
    _leave_list(draft, record)
    _afresh(new)
    new.redrives += 1


def _restored(draft: Draft, event: Restored, record: Record, new: Record) -> None:
    if not _named(draft, event.task):
        draft.in_finished.remove((record.mark, event.task))
    _wake(draft, record)
    _afresh(new)
    new.ended = None
    _bind(draft, event.task, record.born, record.task.after)
    new.needs = _unmet(draft, record.task.after)


def _resolved(draft: Draft, event: Resolved, record: Record, new: Record) -> None:
    _leave_list(draft, record)
    _succeed(draft, record, new)


def _cancelled(draft: Draft, event: Cancelled, record: Record, new: Record) -> None:
    _leave_list(draft, record)
    _end_lease(draft, record, new)
    new.until = None
    new.error = event.error
    _finish(draft, record, new)
    _sleep(draft, record)


def _forgotten(draft: Draft, event: Forgotten, record: Record, new: Record) -> None:
    draft.in_finished.remove((record.mark, event.task))
    if record.status is S.CANCELLED:
        _wake(draft, record)
    del draft.records[event.task]


_DOES: dict[type[TaskEvent], Callable[[Draft, Any, Record, Record], None]] = {
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
    Blocked: _blocked,
    Unblocked: _unblocked,
    Redriven: _redriven,
    Restored: _restored,
    Resolved: _resolved,
    Cancelled: _cancelled,
    Forgotten: _forgotten,
}
