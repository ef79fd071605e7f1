"""What can be asked of a state: by `decide`, and by people.

What `decide` asks is the protocol `Questions`, and nothing else: a database could answer it.
`Reading` answers that, and whatever people want to know, for a state in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from datetime import datetime
from heapq import merge
from typing import Protocol

from attrs import define, field

from eventq.core.lifecycle import ROOTS, Status
from eventq.core.persistent import Map, Sorted
from eventq.core.policy import Policy, Retention
from eventq.core.record import DeadLetter, Lease, Record, Task, plain

__all__ = ["Questions", "Reading"]

S = Status


_NONE: Iterator[Record] = iter(())


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


@define(eq=False, repr=False)
class Reading:
    """What can be asked of a state, and of a draft of one, and the fields of both.

    `at` is the time of entry `seq`, the last, `position` the number of events so far, `admission`
    "absent", "open" or "closed", `dispatch` "running" or "paused".
    """

    queue: str = ""
    policy: Policy = field(factory=Policy)
    seq: int = 0
    at: datetime | None = None
    position: int = 0
    admission: str = "absent"
    dispatch: str = "running"
    records: Map[str, Record] = field(factory=Map)
    standing: dict[Status, int] = field(factory=lambda: dict.fromkeys(Status, 0))
    in_line: Sorted[tuple[int, str]] = field(factory=Sorted)
    in_letters: Sorted[tuple[int, str]] = field(factory=Sorted)
    """DEAD and BLOCKED tasks."""
    in_parking: Sorted[tuple[int, str]] = field(factory=Sorted)
    in_finished: Sorted[tuple[int, str]] = field(factory=Sorted)
    """What retention may let go: finished, and named by nothing unfinished."""
    leases: Map[int, str] = field(factory=Map)
    busy: Map[Hashable, int] = field(factory=Map)
    """The lease that each named worker holds."""
    edges: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """(dependency, born, dependent) of every unfinished dependent."""
    sleeping: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """The same of every CANCELLED one: it waits for nothing, but may be restored."""
    due: Sorted[tuple[datetime, int, str]] = field(factory=Sorted)
    """When leases expire and delays end."""
    holders: Map[str, str] = field(factory=Map)
    """The task that holds each key."""
    by_key: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """(key, place, task) of every READY task with a key."""
    fronts: Map[str, tuple[bool, int, str]] = field(factory=Map)
    """Of each key, the READY task that can go next, and whether only a dead holder is in its way;
    of the tasks of that key, it alone stands in the line (or behind the dead)."""
    behind_dead: Sorted[tuple[int, str]] = field(factory=Sorted)
    """Those of keys whose holder is DEAD or PARKED: whether they can go is up to the policy."""
    owner: object = None
    """The token of the draft that owns the collections, or did."""

    # The questions of `decide`.

    def record(self, task: str) -> Record | None:
        return self.records.get(task)

    def _along(self, edges: Sorted[tuple[str, int, str]], task: str) -> Iterator[Record]:
        return self._edges(edges, task) if edges.size else _NONE

    def _edges(self, edges: Sorted[tuple[str, int, str]], task: str) -> Iterator[Record]:
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
        return _NONE if kept is None else self._beyond(kept, at)

    def _beyond(self, kept: Retention, at: datetime) -> Iterator[Record]:
        over = 0 if kept.count is None else len(self.in_finished) - kept.count
        for record in self._listed(self.in_finished):
            assert record.ended is not None
            if over <= 0 and (kept.age is None or at - record.ended < kept.age):
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)} tasks at entry {self.seq}>"

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
