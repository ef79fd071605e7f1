"""The state of a queue: every task, and the lists that rules ask for.

`State` is what the events of a log fold to, and is never changed once it is handed out. `Draft`
is the writable copy that `evolve` works on. What can be asked of either stands in `reading`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import define, frozen

from eventq.core.lifecycle import FINISHED, Status
from eventq.core.persistent import Map, own
from eventq.core.reading import Reading
from eventq.core.record import Record

__all__ = ["Draft", "State", "flat", "place_front", "rebuilt"]

S = Status


@frozen(eq=False, repr=False)
class State(Reading):
    """A whole queue as it stood after entry `seq`. `State()` is that of an empty log."""

    def __eq__(self, other: object) -> bool:
        """Whether both queues stand the same in everything that can be asked."""
        if not isinstance(other, State):
            return NotImplemented
        return _facts(self) == _facts(other)

    __hash__ = None  # type: ignore[assignment]

    def check(self) -> None:
        """Raise AssertionError, naming each invariant that does not hold."""
        from eventq.core.invariants import broken

        found = broken(self)
        if found:
            raise AssertionError("; ".join(found))


def _facts(state: State) -> tuple[Any, ...]:
    return (
        state.queue,
        state.policy,
        state.seq,
        state.at,
        state.position,
        state.admission,
        state.dispatch,
        state.in_order(),
    )


@define(eq=False, repr=False)
class Draft(Reading):
    """A writable copy of a state, for `evolve` alone."""

    @classmethod
    def of(cls, state: State | Draft) -> Draft:
        """A draft that starts as this state, which stays as it is: what a draft changes, it
        copies first. One of another draft is good until that one goes on."""
        owner = object()
        return cls(
            state.queue,
            state.policy,
            state.seq,
            state.at,
            state.position,
            state.admission,
            state.dispatch,
            state.records.owned(owner),
            state.standing.copy(),
            state.in_line,
            state.in_letters,
            state.in_parking,
            state.in_finished,
            state.leases,
            state.busy,
            state.edges,
            state.sleeping,
            state.due,
            state.holders,
            state.by_key,
            state.fronts,
            state.behind_dead,
            owner,
        )

    @classmethod
    def flat(cls, state: State) -> Draft:
        """A draft of a state without tasks, for a long replay where nobody looks at what comes
        between: its maps are plain dicts, its records all its own and changed in place, and the
        tasks are counted only when it is done."""
        assert not len(state)
        draft = cls.of(state)
        plain: Any = [{} for _ in range(5)]
        draft.records, draft.leases, draft.busy, draft.holders, draft.fronts = plain
        draft.standing = dict.fromkeys(Status, 0)
        return draft

    def done(self) -> State:
        """The state that this draft has become; it can be changed no more."""
        if flat(self):
            for record in self.records.values():
                self.standing[record.status] += 1
            self.records, self.leases = Map(self.records), Map(self.leases)
            self.busy, self.holders = Map(self.busy), Map(self.holders)
            self.fronts = Map(self.fronts)
        self.__class__ = State  # type: ignore[assignment]  # the same fields, frozen
        return self  # type: ignore[return-value]


def flat(draft: Draft) -> bool:
    """Whether this is a flat draft."""
    return not isinstance(draft.records, Map)


def place_front(draft: Draft, key: str) -> None:
    """Put the READY task of this key that can go next, and it alone, into the line.

    While the key is held, that is its holder; else the first by place. Where the holder is DEAD
    or PARKED, the first stands aside, for the policy to say whether it can go.
    """
    holder = draft.holder(key)
    dead = holder is not None and holder.status in (S.DEAD, S.PARKED)
    front: tuple[int, str] | None = None
    if holder is None or dead:
        first = next(draft.by_key.since((key,)), None)
        if first is not None and first[0] == key:
            front = first[1:]
    elif holder.status is S.READY:
        front = (holder.mark, holder.task.task)
    there = draft.fronts.get(key)
    here = None if front is None else (dead, *front)
    if there == here:
        return
    owner = draft.owner
    draft.fronts = own(draft.fronts, owner)
    if there is not None:
        if there[0]:
            draft.behind_dead = draft.behind_dead.remove(there[1:], owner)
        else:
            draft.in_line = draft.in_line.remove(there[1:], owner)
        del draft.fronts[key]
    if here is not None:
        if dead:
            draft.behind_dead = draft.behind_dead.add(here[1:], owner)
        else:
            draft.in_line = draft.in_line.add(here[1:], owner)
        draft.fronts[key] = here


def rebuilt(records: Iterable[Record], **rest: Any) -> State:
    """The state with these tasks, whose lists all follow from them; `rest` are its other fields.

    In time n log n in the tasks and their dependencies.
    """
    owner = object()
    by_id = Map({record.task.task: record for record in records}, owner)
    draft = Draft(records=by_id, owner=owner, **rest)
    draft.leases, draft.busy, draft.fronts = Map(None, owner), Map(None, owner), Map(None, owner)
    named: set[str] = set()
    ended: list[Record] = []
    keys: set[str] = set()
    for record in draft.in_order():
        name, status, after = record.task.task, record.status, record.task.after
        draft.standing[status] += 1
        if status in FINISHED:
            ended.append(record)
        else:
            named.update(after)
        _list(draft, record, keys)
        if record.lease is not None:
            draft.leases[record.lease] = name
            if record.worker is not None:
                draft.busy[record.worker] = record.lease
        for dependency in after:
            edge = (dependency, record.born, name)
            if status is S.CANCELLED:
                draft.sleeping = draft.sleeping.add(edge, owner)
            elif status is not S.SUCCEEDED:
                draft.edges = draft.edges.add(edge, owner)
    for record in ended:
        if record.task.task not in named:
            item = (record.mark, record.task.task)
            draft.in_finished = draft.in_finished.add(item, owner)
    for key in keys:
        place_front(draft, key)
    return draft.done()


def _list(draft: Draft, record: Record, keys: set[str]) -> None:
    """Put the task into the list where it stands; the keys of those in the line are collected."""
    name, status, owner = record.task.task, record.status, draft.owner
    item = (record.mark, name)
    if status is S.READY and record.task.key is not None:
        keys.add(record.task.key)
        draft.by_key = draft.by_key.add((record.task.key, *item), owner)
    elif status is S.READY:
        draft.in_line = draft.in_line.add(item, owner)
    elif status is S.PARKED:
        draft.in_parking = draft.in_parking.add(item, owner)
    elif status in (S.DEAD, S.BLOCKED):
        draft.in_letters = draft.in_letters.add(item, owner)
    if (when := record.until or record.expires) is not None:
        draft.due = draft.due.add((when, record.timer, name), owner)
