"""The state of a queue: every task, the lists that rules ask for, and the checks of both.

`State` is what the events of a log fold to, and is never changed once it is handed out. `Draft`
is the writable copy that `evolve` works on. What can be asked of either stands in `reading`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime
from typing import Any

from attrs import define, field, frozen

from eventq.core.lifecycle import FINISHED, Status
from eventq.core.persistent import Map, Sorted
from eventq.core.policy import Policy
from eventq.core.reading import Reading
from eventq.core.record import Record

__all__ = ["Draft", "State", "place_front"]

S = Status


def place_front(state: Reading, key: str) -> None:
    """Put the READY task of this key that can go next, and it alone, into the line.

    While the key is held, that is its holder; else the first by place. Where the holder is DEAD
    or PARKED, the first stands aside, for the policy to say whether it can go.
    """
    holder = state.holder(key)
    dead = holder is not None and holder.status in (S.DEAD, S.PARKED)
    front: tuple[int, str] | None = None
    if holder is None or dead:
        first = next(state.by_key.since((key,)), None)
        if first is not None and first[0] == key:
            front = first[1:]
    elif holder.status is S.READY:
        front = (holder.mark, holder.task.task)
    there = state.fronts.get(key)
    here = None if front is None else (dead, *front)
    if there == here:
        return
    if there is not None:
        (state.behind_dead if there[0] else state.in_line).remove(there[1:])
        del state.fronts[key]
    if here is not None:
        (state.behind_dead if dead else state.in_line).add(here[1:])
        state.fronts[key] = here


@frozen
class State(Reading):
    """A whole queue as it stood after entry `seq`. `State()` is that of an empty log.

    `at` is the time of that entry, `position` the number of events so far, `admission` "absent",
    "open" or "closed", `dispatch` "running" or "paused".
    """

    queue: str = ""
    policy: Policy = field(factory=Policy)
    seq: int = 0
    at: datetime | None = None
    position: int = 0
    admission: str = "absent"
    dispatch: str = "running"
    records: Map[str, Record] = field(factory=Map, repr=False, eq=False)
    standing: dict[Status, int] = field(factory=lambda: dict.fromkeys(Status, 0))
    in_line: Sorted[tuple[int, str]] = field(factory=Sorted, repr=False, eq=False)
    in_letters: Sorted[tuple[int, str]] = field(factory=Sorted, repr=False, eq=False)
    """DEAD and BLOCKED tasks."""
    in_parking: Sorted[tuple[int, str]] = field(factory=Sorted, repr=False, eq=False)
    in_finished: Sorted[tuple[int, str]] = field(factory=Sorted, repr=False, eq=False)
    """What retention may let go: finished, and named by nothing unfinished."""
    leases: Map[int, str] = field(factory=Map, repr=False, eq=False)
    busy: Map[Hashable, int] = field(factory=Map, repr=False, eq=False)
    """The lease that each named worker holds."""
    edges: Sorted[tuple[str, int, str]] = field(factory=Sorted, repr=False, eq=False)
    """(dependency, born, dependent) of every unfinished dependent."""
    sleeping: Sorted[tuple[str, int, str]] = field(factory=Sorted, repr=False, eq=False)
    """The same of every CANCELLED one: it waits for nothing, but may be restored."""
    due: Sorted[tuple[datetime, int, str]] = field(factory=Sorted, repr=False, eq=False)
    """When leases expire and delays end."""
    holders: Map[str, str] = field(factory=Map, repr=False, eq=False)
    """The task that holds each key."""
    by_key: Sorted[tuple[str, int, str]] = field(factory=Sorted, repr=False, eq=False)
    """(key, place, task) of every READY task with a key."""
    fronts: Map[str, tuple[bool, int, str]] = field(factory=Map, repr=False, eq=False)
    """Of each key, the READY task that can go next, and whether only a dead holder is in its way;
    of the tasks of that key, it alone stands in the line (or behind the dead)."""
    behind_dead: Sorted[tuple[int, str]] = field(factory=Sorted, repr=False, eq=False)
    """Those of keys whose holder is DEAD or PARKED: whether they can go is up to the policy."""

    @classmethod
    def rebuilt(cls, records: Iterable[Record], **rest: Any) -> State:
        """The state with these tasks, whose lists all follow from them; `rest` are its other
        fields. In time n log n in the tasks and their dependencies."""
        state = cls(records=Map({record.task.task: record for record in records}), **rest)
        named: set[str] = set()
        ended = []
        lists = {S.READY: state.in_line, S.PARKED: state.in_parking}
        lists |= dict.fromkeys((S.DEAD, S.BLOCKED), state.in_letters)
        for record in state.in_order():
            name, status = record.task.task, record.status
            state.standing[status] += 1
            if status in FINISHED:
                ended.append(record)
            else:
                named.update(record.task.after)
            if status is S.READY and record.task.key is not None:
                state.by_key.add((record.task.key, record.mark, name))
            elif (marks := lists.get(status)) is not None:
                marks.add((record.mark, name))
            if (when := record.until or record.expires) is not None:
                state.due.add((when, record.timer, name))
            if record.lease is not None:
                state.leases[record.lease] = name
                if record.worker is not None:
                    state.busy[record.worker] = record.lease
            if status is not S.SUCCEEDED:
                edges = state.sleeping if status is S.CANCELLED else state.edges
                for dependency in record.task.after:
                    edges.add((dependency, record.born, name))
        for record in ended:
            if record.task.task not in named:
                state.in_finished.add((record.mark, record.task.task))
        for key in {key for key, _, _ in state.by_key}:
            place_front(state, key)
        return state

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


@define
class Draft(Reading):
    """A writable copy of a state, for `evolve` alone."""

    queue: str
    policy: Policy
    seq: int
    at: datetime | None
    position: int
    admission: str
    dispatch: str
    records: Map[str, Record]
    standing: dict[Status, int]
    in_line: Sorted[tuple[int, str]]
    in_letters: Sorted[tuple[int, str]]
    in_parking: Sorted[tuple[int, str]]
    in_finished: Sorted[tuple[int, str]]
    leases: Map[int, str]
    busy: Map[Hashable, int]
    edges: Sorted[tuple[str, int, str]]
    sleeping: Sorted[tuple[str, int, str]]
    due: Sorted[tuple[datetime, int, str]]
    holders: Map[str, str]
    by_key: Sorted[tuple[str, int, str]]
    fronts: Map[str, tuple[bool, int, str]]
    behind_dead: Sorted[tuple[int, str]]

    flat: bool
    """Whether its maps are plain dicts, its records all its own and changed in place, and tasks
    counted only when it is done."""

    @classmethod
    def of(cls, state: State, *, flat: bool = False) -> Draft:
        """A draft that starts as this state, which stays as it is.

        A `flat` one is faster for a long replay, where nobody looks at what comes between. It
        can only start from a state without tasks.
        """

        def fork(of: Map[Any, Any]) -> Any:
            return {} if flat else of.fork()

        return cls(
            state.queue,
            state.policy,
            state.seq,
            state.at,
            state.position,
            state.admission,
            state.dispatch,
            fork(state.records),
            dict.fromkeys(Status, 0) if flat else state.standing.copy(),
            state.in_line.fork(),
            state.in_letters.fork(),
            state.in_parking.fork(),
            state.in_finished.fork(),
            fork(state.leases),
            fork(state.busy),
            state.edges.fork(),
            state.sleeping.fork(),
            state.due.fork(),
            fork(state.holders),
            state.by_key.fork(),
            fork(state.fronts),
            state.behind_dead.fork(),
            flat,
        )

    def done(self) -> State:
        """The state that this draft has become. The draft must not be used any more."""

        def whole(of: Any) -> Any:
            return Map(of) if type(of) is dict else of

        if self.flat:
            for record in self.records.values():
                self.standing[record.status] += 1
        return State(
            self.queue,
            self.policy,
            self.seq,
            self.at,
            self.position,
            self.admission,
            self.dispatch,
            whole(self.records),
            self.standing,
            self.in_line,
            self.in_letters,
            self.in_parking,
            self.in_finished,
            whole(self.leases),
            whole(self.busy),
            self.edges,
            self.sleeping,
            self.due,
            whole(self.holders),
            self.by_key,
            whole(self.fronts),
            self.behind_dead,
        )
