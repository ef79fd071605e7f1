"""What `decide` asks of a state, and nothing else: a database could answer it.

`Reading` does so for a state in memory, handed out or in the making; whatever else people want to
know is asked of a `State`.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from datetime import datetime
from typing import Protocol

from attrs import define, field

from eventq.core.lifecycle import Status
from eventq.core.ordered import Sorted
from eventq.core.persistent import Lookup, Map
from eventq.core.policy import Policy, Retention
from eventq.core.record import Lease, Record, Task

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

    def unknown(self, tasks: Collection[str]) -> bool:
        """Whether nobody has enqueued any of these: looked up in one go."""

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
    standing: dict[Status, int] = field(factory=lambda: dict.fromkeys(Status, 0))
    in_line: Sorted[tuple[int, str]] = field(factory=Sorted)
    in_letters: Sorted[tuple[int, str]] = field(factory=Sorted)
    """DEAD and BLOCKED tasks."""
    in_parking: Sorted[tuple[int, str]] = field(factory=Sorted)
    in_finished: Sorted[tuple[int, str]] = field(factory=Sorted)
    """What retention may let go: finished, and named by nothing unfinished."""
    edges: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """(dependency, born, dependent) of every unfinished dependent."""
    sleeping: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """The same of every CANCELLED one: it waits for nothing, but may be restored."""
    due: Sorted[tuple[datetime, int, str]] = field(factory=Sorted)
    """When leases expire and delays end."""
    by_key: Sorted[tuple[str, int, str]] = field(factory=Sorted)
    """(key, place, task) of every READY task with a key."""
    behind_dead: Sorted[tuple[int, str]] = field(factory=Sorted)
    """Those of keys whose holder is DEAD or PARKED: whether they can go is up to the policy."""
    owner: object = None
    """The token of the draft that owns the sets and the records, or did."""
    records: Lookup[str, Record] = field(factory=Map)
    leases: Lookup[int, str] = field(factory=Map)
    """The task of each current lease."""
    busy: Lookup[Hashable, int] = field(factory=Map)
    """The lease that each named worker holds."""
    holders: Lookup[str, str] = field(factory=Map)
    """The task that holds each key."""
    fronts: Lookup[str, tuple[bool, int, str]] = field(factory=Map)
    """Of each key, the READY task that can go next, and whether only a dead holder is in its way;
    of the tasks of that key, it alone stands in the line (or behind the dead)."""

    # The questions of `decide`.

    def record(self, task: str) -> Record | None:
        return self.records[task]

    def unknown(self, tasks: Collection[str]) -> bool:
        return self.records.none_of(tasks)

    def _edges(self, edges: Sorted[tuple[str, int, str]], task: str) -> Iterator[Record]:
        for dependency, _, dependent in edges.since((task,)):
            if dependency != task:
                return
            record = self.records[dependent]
            assert record is not None
            yield record

    def dependents(self, task: str) -> Iterator[Record]:
        return self._edges(self.edges, task) if self.edges.size else _NONE

    def dormant(self, task: str) -> Iterator[Record]:
        return self._edges(self.sleeping, task) if self.sleeping.size else _NONE

    def first(self) -> Record | None:
        first = self.in_line.first()
        if self.behind_dead.size and self.policy.keys.on_death == "open":
            other = self.behind_dead.first()
            if other is not None and (first is None or other < first):
                first = other
        return None if first is None else self.records[first[1]]

    def count(self, *statuses: Status) -> int:
        return sum(self.standing[status] for status in statuses)

    def leased(self, lease: int) -> Record | None:
        task = self.leases[lease]
        return None if task is None else self.records[task]

    def held_by(self, worker: Hashable) -> Record | None:
        lease = self.busy[worker]
        return None if lease is None else self.leased(lease)

    def first_due(self, at: datetime) -> Record | None:
        first = self.due.first() if self.due.size else None
        return None if first is None or first[0] > at else self.records[first[2]]

    def holder(self, key: str) -> Record | None:
        task = self.holders[key]
        return None if task is None else self.records[task]

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
            record = self.records[task]
            assert record is not None
            yield record

    def __len__(self) -> int:
        """How many tasks there are."""
        return sum(self.standing.values()) - self.standing[S.ABSENT]

    # The answers to commands.

    def task(self, task: str) -> Task | None:
        """This task as it stands, or None when it is unknown."""
        record = self.records[task]
        return None if record is None else Task.of(record)

    def lease(self, lease: int) -> Lease | None:
        """This lease, if it is current."""
        record = self.leased(lease)
        return None if record is None else Lease.of(lease, record)
