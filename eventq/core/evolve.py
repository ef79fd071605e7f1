"""Carries out what has happened: state and entry in, state out. It knows none of the rules.

`evolve` is the definition and `replay` the fast way for many entries; one law joins them:
`replay(state, entries) == reduce(evolve, entries, state)`. Where an event may happen and where it
leads stands in the table of `lifecycle`, what else it does in `steps`. `tell` folds some of an
entry's events into a draft, for `decide`, so that nothing is folded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from eventq.core.errors import ImpossibleEvent
from eventq.core.events import (
    TASK_EVENTS,
    Event,
    Opened,
    Reconfigured,
    TaskEvent,
)
from eventq.core.lifecycle import LEADS, QUEUE, Status
from eventq.core.record import Record
from eventq.core.state import Draft, State, place_front
from eventq.core.steps import DOES

__all__ = ["Folded", "begin", "carry_out", "evolve", "replay", "take_for", "tell"]

ABSENT = Status.ABSENT


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
    draft = Draft.of(state)
    if keep is None and not len(state):
        _replay_whole(draft, entries)
        return draft.done()
    for entry in entries:
        carry_out(draft, entry)
        if keep is not None and not entry.seq % every:
            state = draft.done()
            keep(state)
            draft = Draft.of(state)
    return draft.done()


def _replay_whole(draft: Draft, entries: Iterable[Folded]) -> None:
    """The same into a draft without tasks, with `begin` and `tell` written out: opening waits for
    it. Where nobody looks at what comes between, the tasks are counted in the end."""
    records = draft.records
    look = records.get  # all that there is are changes
    owner = draft.owner
    for entry in entries:
        seq = entry.seq
        if seq != draft.seq + 1:
            begin(draft, seq, entry.at)
        draft.seq = seq
        draft.at = entry.at
        for event in entry.events:
            steps = _STEPS.get(type(event))
            if steps is None:
                tell(draft, (event,))
                continue
            name = event.task  # type: ignore[union-attr]  # as in `tell`
            record: Any = look(name)
            step = steps.get(ABSENT if record is None else record.status)
            if step is None or not draft.position:
                tell(draft, (event,))
                continue
            draft.position += 1
            if record is None:
                records[name] = record = Record(event, draft.position, ABSENT, owner=owner)  # type: ignore[arg-type]
            try:
                step[1](draft, event, record)
            except KeyError:
                draft.position -= 1
                tell(draft, (event,))
                raise
            record.status = step[0]
            if record.task.key is not None:
                place_front(draft, record.task.key)
    draft.standing = dict.fromkeys(Status, 0)
    for record in records.values():
        draft.standing[record.status] += 1


def carry_out(draft: Draft, entry: Folded) -> None:
    """Carry out an entry. Raises ImpossibleEvent, and ValueError for a wrong seq."""
    begin(draft, entry.seq, entry.at)
    tell(draft, entry.events)


def begin(draft: Draft, seq: int, at: datetime) -> None:
    """Begin the entry `seq`, at this time. Raises ValueError unless it is the next one."""
    if seq != draft.seq + 1:
        raise ValueError(f"entry {seq} cannot follow entry {draft.seq}")
    draft.seq = seq
    draft.at = at


def tell(draft: Draft, events: Sequence[Event]) -> None:
    """Carry out these events of the entry that was begun. Raises ImpossibleEvent."""
    records, standing, owner = draft.records, draft.standing, draft.owner
    for event in events:
        draft.position += 1
        steps = _STEPS.get(type(event))
        if steps is None:
            _tell_queue(draft, event)
            continue
        name = event.task  # type: ignore[union-attr]  # only a task's events have steps
        record = records[name]
        status = ABSENT if record is None else record.status
        step = steps.get(status)
        if step is None or draft.position == 1:  # before the queue was opened, nothing can be
            before = () if record is None else (repr(record),)
            raise ImpossibleEvent(event, status, draft.seq, before)
        target, does = step
        if record is None:
            records[name] = record = Record(event, draft.position, ABSENT, owner=owner)  # type: ignore[arg-type]
        elif record.owner is not owner:
            records[name] = record = record.copy(owner)
        standing[status] -= 1
        standing[target] += 1
        try:
            does(draft, event, record)
        except KeyError:  # no list of the state has what the event takes away
            raise ImpossibleEvent(event, status, draft.seq, (repr(record),)) from None
        record.status = target
        if record.task.key is not None:
            place_front(draft, record.task.key)


def _tell_queue(draft: Draft, event: Any) -> None:
    row = QUEUE[type(event)]
    stands = "absent" if draft.admission == "absent" else getattr(draft, row.moves)
    if stands not in row.sources:
        raise ImpossibleEvent(event, stands, draft.seq)
    if row.target is not None:
        setattr(draft, row.moves, row.target)
    if isinstance(event, Opened):
        draft.queue = event.queue
    if isinstance(event, Opened | Reconfigured):
        draft.policy = event.policy


_Step = tuple[Status, Callable[[Draft, Any, Record], None]]
_STEPS: dict[type, dict[Status, _Step]] = {
    event: {status: (target, DOES[event]) for status, target in LEADS[event].items()}
    for event in TASK_EVENTS
}
"""Both tables in one, for look-up."""


def take_for(other: type, event: type[TaskEvent]) -> None:
    """Let the fold take another class, with the same fields, for that of an event: one that a
    store reads faster."""
    _STEPS[other] = _STEPS[event]
