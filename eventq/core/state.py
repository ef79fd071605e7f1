"""The state of a queue: every task, and the lists that rules ask for.

`State` is what the events of a log fold to, and is never changed once it is handed out. `Draft`
is the writable copy that `evolve` works on. What `decide` asks of either stands in `reading`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from heapq import merge
from typing import TYPE_CHECKING, Any, cast

from attrs import define, field, frozen

from eventq.core.lifecycle import FINISHED, ROOTS, Status
from eventq.core.persistent import Changes, Map
from eventq.core.reading import Reading
from eventq.core.record import DeadLetter, Lease, Record, Task

__all__ = ["Draft", "State", "place_front", "rebuilt"]

S = Status


@frozen(eq=False, repr=False)
class State(Reading):
    """A whole queue as it stood after entry `seq`. `State()` is that of an empty log."""

    if TYPE_CHECKING:
        records: Map[str, Record] = field(factory=Map)
        leases: Map[int, str] = field(factory=Map)
        busy: Map[Hashable, int] = field(factory=Map)
        holders: Map[str, str] = field(factory=Map)
        fronts: Map[str, tuple[bool, int, str]] = field(factory=Map)

    def __eq__(self, other: object) -> bool:
        """Whether both queues stand the same in everything that can be asked."""
        if not isinstance(other, State):
            return NotImplemented
        return _facts(self) == _facts(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tasks at entry {self.seq}>"

    def __contains__(self, task: str) -> bool:
        return task in self.records

    def tasks(self) -> list[Task]:
        """All tasks, in the order in which they were enqueued."""
        return [Task.of(record) for record in self.in_order()]

    def in_order(self) -> list[Record]:
        """All records, in the order in which their tasks were enqueued."""
        return sorted(self.records.values(), key=lambda record: record.born)

    def line(self) -> Iterator[Task]:
        """The READY tasks, by place, those that wait for their key included."""
        waiting = sorted((place, task) for _, place, task in self.by_key)
        fronts = {(place, task) for _, place, task in self.fronts.values()}
        free = (item for item in self.in_line if item not in fronts)
        return (Task.of(self.records[task]) for _, task in merge(free, waiting))  # type: ignore[arg-type]

    def next_due(self) -> datetime | None:
        """When the first lease runs out or the first delay ends; None where none ever does."""
        first = self.due.first()
        return None if first is None else first[0]

    def running(self) -> list[Lease]:
        """The current leases, oldest first."""
        leases = [self.lease(lease) for lease in sorted(self.leases)]
        return [lease for lease in leases if lease is not None]

    def dead_letters(self) -> Iterator[DeadLetter]:
        """The DEAD and BLOCKED tasks with their reasons, in the order in which they came there."""
        known: dict[str, str] = {}
        return (self._letter(record, known) for record in self._listed(self.in_letters))

    def parked(self) -> Iterator[DeadLetter]:
        """The PARKED tasks with their reasons, in the order in which they were parked."""
        return (self._letter(record, {}) for record in self._listed(self.in_parking))

    def _letter(self, record: Record, known: dict[str, str]) -> DeadLetter:
        task = record.task.task
        root = self.root(task, known)
        reason = self._died(record) if root is None else f"blocked by {root}"
        return DeadLetter(task, record.status, reason, root or task)

    def _died(self, record: Record) -> str:
        return f"failed after {record.attempt} attempts: {record.error}"

    def needed_by(self, task: str) -> list[str]:
        """The ids of the unfinished tasks that name it, in the order of their arrival."""
        return [record.task.task for record in self.dependents(task)]

    def counts(self) -> dict[Status, int]:
        """How many tasks stand where; statuses in which no task can rest are left out."""
        return {
            status: number
            for status, number in self.standing.items()
            if status not in (S.ABSENT, S.FAILED)
        }

    def root(self, task: str, known: dict[str, str] | None = None) -> str | None:
        """What blocks this task: from it upwards through the first dependency that is a root or
        BLOCKED, in the order as written. None for a task that is not BLOCKED.

        `known` remembers the roots found on the way, for who asks for many.
        """
        record = self.records[task]
        if record is None or record.status is not S.BLOCKED:
            return None
        if known is None:
            known = {}
        path: list[str] = []
        while record.status not in ROOTS and record.task.task not in known:
            path.append(record.task.task)
            record = next(
                above
                for above in map(self.records.__getitem__, record.task.after)
                if above is not None and (above.status in ROOTS or above.status is S.BLOCKED)
            )
        root = known.get(record.task.task, record.task.task)
        known.update(dict.fromkeys(path, root))
        return root

    def reason(self, task: str) -> str | None:
        """Why this task is a dead letter (or parked); None for any other."""
        record = self.records[task]
        if record is None:
            return None
        if record.status in (S.DEAD, S.PARKED):
            return self._died(record)
        root = self.root(task)
        return None if root is None else f"blocked by {root}"

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
        sorted(state.holders.items()),
        state.in_order(),
    )


@define(eq=False, repr=False)
class Draft(Reading):
    """A writable copy of a state, for `evolve` alone."""

    if TYPE_CHECKING:  # the fields of `Reading`, and no others: a draft becomes a state
        records: Changes[str, Record] = field()
        leases: Changes[int, str] = field()
        busy: Changes[Hashable, int] = field()
        holders: Changes[str, str] = field()
        fronts: Changes[str, tuple[bool, int, str]] = field()

    @classmethod
    def of(cls, state: State | Draft) -> Draft:
        """A draft that starts as this state, which stays as it is: what a draft changes, it
        copies first. One of another draft is good until that one goes on."""
        changes: Any = Changes.again if isinstance(state, Draft) else Changes
        return cls(
            state.queue,
            state.policy,
            state.seq,
            state.at,
            state.position,
            state.admission,
            state.dispatch,
            state.standing.copy(),
            state.in_line,
            state.in_letters,
            state.in_parking,
            state.in_finished,
            state.edges,
            state.sleeping,
            state.due,
            state.by_key,
            state.behind_dead,
            object(),
            changes(state.records),
            changes(state.leases),
            changes(state.busy),
            changes(state.holders),
            changes(state.fronts),
        )

    def done(self, *, alone: bool = False) -> State:
        """The state that this draft has become; it can be changed no more. `alone` says that who
        asks needs the state before no more: its maps may be changed then, if nobody holds it."""
        state: Any = self
        state.records = self.records.done(alone=alone)
        state.leases = self.leases.done(alone=alone)
        state.busy = self.busy.done(alone=alone)
        state.holders = self.holders.done(alone=alone)
        state.fronts = self.fronts.done(alone=alone)
        state.__class__ = State  # the same fields, frozen
        return cast(State, state)


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
    there = draft.fronts[key]
    here = None if front is None else (dead, *front)
    if there == here:
        return
    owner = draft.owner
    if there is not None:
        if there[0]:
            draft.behind_dead = draft.behind_dead.remove(there[1:], owner)
        else:
            draft.in_line = draft.in_line.remove(there[1:], owner)
        draft.fronts.drop(key)
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
    by_id = Map({record.task.task: record for record in records})
    state = State(records=by_id, **rest)
    draft = Draft.of(state)
    owner = draft.owner
    named: set[str] = set()
    ended: list[Record] = []
    keys: set[str] = set()
    for record in state.in_order():
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
