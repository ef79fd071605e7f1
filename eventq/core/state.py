"""The state of a queue: every task, the lists that rules ask for, and the checks of both.

`State` is what the events of a log fold to, and is never changed once it is handed out. `Draft`
is the writable copy that `evolve` works on. What `decide` asks of either is the protocol
`Questions`, and nothing else: a database could answer it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from datetime import datetime
from heapq import merge
from typing import Any, Protocol

from attrs import define, field, frozen

from eventq.core.lifecycle import FINISHED, ROOTS, Status
from eventq.core.persistent import Map, Sorted
from eventq.core.policy import Policy
from eventq.core.record import DeadLetter, Lease, Record, Task, plain

__all__ = ["Draft", "Questions", "Reading", "State", "place_front"]

S = Status


class Questions(Protocol):
    """What `decide` asks of a state."""

    @property
    def policy(self) -> Policy:
        """What was agreed."""

    @property
    def queue(self) -> str:
        """The id of the queue."""

    @property
    def admission(self) -> str:
        """Whether new tasks are admitted: absent, open or closed."""

    @property
    def dispatch(self) -> str:
        """Whether tasks are handed out: running or paused."""

    def record(self, task: str) -> Record | None:
        """This task, or None when nobody has enqueued it (or it was forgotten)."""

    def dependents(self, task: str) -> Iterator[Record]:
        """The unfinished tasks that name it, in the order in which they were enqueued."""

    def dormant(self, task: str) -> Iterator[Record]:
        """The CANCELLED tasks that name it, in the order in which they were enqueued."""

    def first(self) -> Record | None:
        """The first task in the line."""

    def count(self, *statuses: Status) -> int:
        """How many tasks stand in one of these."""

    def leased(self, lease: int) -> Record | None:
        """The task whose current lease this is."""

    def held_by(self, worker: Hashable) -> Record | None:
        """The task that this worker holds."""

    def first_due(self, at: datetime) -> Record | None:
        """The task whose lease runs out or whose delay ends first, if not after this time."""

    def holder(self, key: str) -> Record | None:
        """The task that holds this key."""

    def surplus(self, at: datetime) -> Iterator[Record]:
        """The finished tasks that nothing unfinished names, beyond what is kept; oldest first."""

    def dead(self) -> list[Record]:
        """The DEAD tasks, in the order of their death."""


class Reading:
    """What can be asked of a state, and of a draft of one. The fields are those of `State`."""

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

    # The questions of `decide`.

    def record(self, task: str) -> Record | None:
        return self.records.get(task)

    def _along(self, edges: Sorted[tuple[str, int, str]], task: str) -> Iterator[Record]:
        for dependency, _, dependent in edges.since((task,)):
            if dependency != task:
                return
            record = self.records.get(dependent)
            assert record is not None
            yield record

    def dependents(self, task: str) -> Iterator[Record]:
        return self._along(self.edges, task)

    def dormant(self, task: str) -> Iterator[Record]:
        return self._along(self.sleeping, task)

    def first(self) -> Record | None:
        first = self.in_line.first()
        if self.policy.keys.on_death == "open":
            other = self.behind_dead.first()
            if other is not None and (first is None or other < first):
                first = other
        return None if first is None else self.records.get(first[1])

    def count(self, *statuses: Status) -> int:
        return sum(self.standing[status] for status in statuses)

    def leased(self, lease: int) -> Record | None:
        task = self.leases.get(lease)
        return None if task is None else self.records.get(task)

    def held_by(self, worker: Hashable) -> Record | None:
        lease = self.busy.get(worker)
        return None if lease is None else self.leased(lease)

    def first_due(self, at: datetime) -> Record | None:
        first = self.due.first()
        return None if first is None or first[0] > at else self.records.get(first[2])

    def holder(self, key: str) -> Record | None:
        task = self.holders.get(key)
        return None if task is None else self.records.get(task)

    def surplus(self, at: datetime) -> Iterator[Record]:
        kept = self.policy.retention
        if kept is None:
            return
        over = 0 if kept.count is None else len(self.in_finished) - kept.count
        for record in self._listed(self.in_finished):
            assert record.ended is not None
            if over <= 0 and (kept.age is None or record.ended + kept.age > at):
                return
            over -= 1
            yield record

    def dead(self) -> list[Record]:
        return [r for r in self._listed(self.in_letters) if r.status is S.DEAD]

    def _listed(self, marks: Sorted[tuple[int, str]]) -> Iterator[Record]:
        for _, task in marks:
            record = self.records.get(task)
            assert record is not None
            yield record

    # What people ask.

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self.records)

    def __contains__(self, task: str) -> bool:
        return task in self.records

    def task(self, task: str) -> Task | None:
        """This task as it stands, or None when it is unknown."""
        record = self.records.get(task)
        return None if record is None else Task.of(record)

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
        return (Task.of(self.records.get(task)) for _, task in merge(free, waiting))  # type: ignore[arg-type]

    def next_due(self) -> datetime | None:
        """When the first lease runs out or the first delay ends; None where none ever does."""
        first = self.due.first()
        return None if first is None else first[0]

    def running(self) -> list[Lease]:
        """The current leases, oldest first."""
        leases = [self.lease(lease) for lease in sorted(self.leases)]
        return [lease for lease in leases if lease is not None]

    def lease(self, lease: int) -> Lease | None:
        """This lease, if it is current."""
        record = self.leased(lease)
        if record is None:
            return None
        task = record.task
        return Lease(
            lease, task.task, plain(task.payload), record.attempt, record.worker, record.expires
        )

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
        record = self.records.get(task)
        if record is None or record.status is not S.BLOCKED:
            return None
        if known is None:
            known = {}
        path: list[str] = []
        while record.status not in ROOTS and record.task.task not in known:
            path.append(record.task.task)
            record = next(
                above
                for above in map(self.records.get, record.task.after)
                if above is not None and (above.status in ROOTS or above.status is S.BLOCKED)
            )
        root = known.get(record.task.task, record.task.task)
        known.update(dict.fromkeys(path, root))
        return root

    def reason(self, task: str) -> str | None:
        """Why this task is a dead letter (or parked); None for any other."""
        record = self.records.get(task)
        if record is None:
            return None
        if record.status in (S.DEAD, S.PARKED):
            return self._died(record)
        root = self.root(task)
        return None if root is None else f"blocked by {root}"


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
