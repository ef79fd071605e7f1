"""What the reference model notes of each task, and all that can be worked out from it.

`Noted` holds facts alone, each of them something that has happened to one task itself. Whether a
task is PENDING, BLOCKED or READY, and by which root, is worked out from scratch each time it is
asked. `look()` is everything that can be asked of the queue.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from datetime import datetime
from typing import Any, Self

from attrs import asdict, field, frozen

from eventq.core.events import Enqueued, Json
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy

__all__ = [
    "DUE_AT_MOST",
    "UNFINISHED",
    "WAITING",
    "Facts",
    "Look",
    "Moment",
    "Noted",
    "canonical",
    "dumped",
    "plain",
]

S = Status

DUE_AT_MOST = 1000
"""How much due work one entry carries out at most."""

ROOTS = (S.DEAD, S.PARKED, S.CANCELLED)
WAITING = (S.PENDING, S.READY, S.DELAYED)
UNFINISHED = (*WAITING, S.RUNNING, S.BLOCKED, S.DEAD, S.PARKED)


def dumped(value: Any) -> Any:
    """A JSON value as a text that is the same for equal content, and for no other; None is None."""
    return None if value is None else json.dumps(value, sort_keys=True)


def canonical(value: Any) -> Any:
    """A payload or result so that equal content compares equal: a JSON text as `dumped` gives its
    value, anything else as the object that it is."""
    return dumped(value.value()) if type(value) is Json else value


def plain(shown: Any, *, durable: bool) -> Any:
    """A task, a lease, a list of them or None, as plain values that compare as content does."""
    if shown is None:
        return None
    if isinstance(shown, list):
        return [plain(one, durable=durable) for one in shown]
    fields = asdict(shown, recurse=False)
    if durable:
        fields |= {name: dumped(fields[name]) for name in ("payload", "result") if name in fields}
    return fields


@frozen
class Look:
    """Everything that can be asked of a queue, as plain values: what a queue shows, or should.

    Each task is a dict of its public fields by name, each lease one of its own. A dead letter (or
    a parked one) is (id, status, reason, root). `needed_by` gives for each task, and for each id
    that a task names, the unfinished tasks that name it.
    """

    admission: str
    tasks: list[dict[str, Any]]
    line: list[str]
    leases: list[dict[str, Any]]
    dead_letters: list[tuple[str, Status, str, str]]
    parked: list[tuple[str, Status, str, str]]
    counts: dict[Status, int]
    needed_by: dict[str, list[str]]

    def differences(self, other: Look) -> list[str]:
        """What differs between both, in words."""
        return [
            f"{name}: {mine!r} is not {its!r}"
            for name, mine in asdict(self, recurse=False).items()
            if mine != (its := getattr(other, name))
        ]


@frozen
class Facts:
    """What has happened to one task itself.

    `own` is PENDING for a task that waits, whatever it waits for: a dependency, a root that is
    still to be redriven, or its turn in the line. `told` is the status that its last event told.
    """

    task: Enqueued
    own: Status = S.PENDING
    told: Status = S.PENDING
    attempt: int = 0
    releases: int = 0
    redrives: int = 0
    place: int | None = None
    listed: int | None = None
    """The position of the event that made it a dead letter, parked it or finished it."""
    lease: int | None = None
    worker: Hashable = None
    error: str | None = None
    result: Any = None
    ended: datetime | None = None


@frozen(eq=False)
class Moment:
    """All that the model knows at one moment; `tasks` are in the order of their arrival."""

    queue: str = ""
    policy: Policy = field(factory=Policy)
    seq: int = 0
    at: datetime | None = None
    position: int = 0
    admission: str = "absent"
    tasks: dict[str, Facts] = field(factory=dict)


class Noted:
    """A queue as the facts noted of its tasks, and what follows from them."""

    def __init__(self, moment: Moment | None = None) -> None:
        now = moment or Moment()
        self.queue = now.queue
        self.policy = now.policy
        self.seq = now.seq
        self.at = now.at
        self.position = now.position
        self.admission = now.admission
        self._tasks = dict(now.tasks)

    def copy(self) -> Self:
        """The same queue, to go on from here on its own."""
        return type(self)(
            Moment(
                self.queue,
                self.policy,
                self.seq,
                self.at,
                self.position,
                self.admission,
                self._tasks,
            )
        )

    # What can be worked out from the facts.

    def status(self, task: str) -> Status:
        """Where this task stands, from scratch."""
        facts = self._tasks.get(task)
        if facts is None:
            return S.ABSENT
        if facts.own is not S.PENDING:
            return facts.own
        if self.roots_above(task):
            return S.BLOCKED
        if all(self.status(above) is S.SUCCEEDED for above in facts.task.after):
            return S.READY
        return S.PENDING

    def roots_above(self, task: str) -> set[str]:
        """The roots among the direct and transitive dependencies of this task."""
        roots, seen = set(), set()
        to_see = list(self._tasks[task].task.after)
        while to_see:
            above = to_see.pop()
            facts = self._tasks.get(above)
            if above in seen or facts is None or facts.own is S.SUCCEEDED:
                continue
            seen.add(above)
            if facts.own in ROOTS:
                roots.add(above)
            to_see.extend(facts.task.after)
        return roots

    def root(self, task: str) -> str | None:
        """The root that is shown for a BLOCKED task."""
        if self.status(task) is not S.BLOCKED:
            return None
        while self.status(task) not in ROOTS:
            task = next(
                above
                for above in self._tasks[task].task.after
                if self.status(above) in (*ROOTS, S.BLOCKED)
            )
        return task

    def dependents(self, task: str) -> list[str]:
        """The tasks that name this one and have not SUCCEEDED, in the order of their arrival."""
        return [
            name
            for name, facts in self._tasks.items()
            if task in facts.task.after and facts.own is not S.SUCCEEDED
        ]

    def needed_by(self, task: str) -> list[str]:
        """The unfinished tasks that name this one, in the order of their arrival."""
        return [name for name in self.dependents(task) if self.status(name) in UNFINISHED]

    def line(self) -> list[str]:
        """The READY tasks, by place."""
        ready = [name for name in self._tasks if self.status(name) is S.READY]
        return sorted(ready, key=lambda name: self._tasks[name].place or 0)

    def holder(self, lease: int) -> str | None:
        """The task whose current lease this is."""
        held = [name for name, facts in self._tasks.items() if facts.lease == lease]
        return held[0] if held else None

    def held_by(self, worker: Hashable) -> str | None:
        """The task that this worker holds."""
        if worker is None:
            return None
        held = [
            name
            for name, facts in self._tasks.items()
            if facts.own is S.RUNNING and facts.worker == worker
        ]
        return held[0] if held else None

    def letting_go(self) -> list[str]:
        """The finished tasks that retention lets go of now, the oldest first."""
        if self.policy.retention is None:
            return []
        named = {
            above
            for name, facts in self._tasks.items()
            if self.status(name) in UNFINISHED
            for above in facts.task.after
        }
        free = [
            name
            for name, facts in self._tasks.items()
            if facts.own in (S.SUCCEEDED, S.CANCELLED) and name not in named
        ]
        free.sort(key=lambda name: self._tasks[name].listed or 0)
        return free[: max(0, len(free) - (self.policy.retention.count or 0))][:DUE_AT_MOST]

    # What can be asked.

    def ids(self) -> list[str]:
        """The ids of all tasks, in the order of their arrival."""
        return [*self._tasks]

    def content(self, task: str) -> Enqueued:
        """What was enqueued under this id."""
        return self._tasks[task].task

    def leases(self) -> list[int]:
        """The current leases, oldest first."""
        return sorted(f.lease for f in self._tasks.values() if f.lease is not None)

    def task(self, task: str) -> dict[str, Any] | None:
        """This task as it stands, field by field; None when it is unknown."""
        facts = self._tasks.get(task)
        if facts is None:
            return None
        status = self.status(task)
        return {
            "id": task,
            "payload": canonical(facts.task.payload),
            "after": facts.task.after,
            "key": None,
            "status": status,
            "attempt": facts.attempt,
            "max_attempts": facts.task.max_attempts,
            "not_before": None,
            "redrives": facts.redrives,
            "releases": facts.releases,
            "place": facts.place if status in (S.READY, S.RUNNING) else None,
            "until": None,
            "lease": facts.lease,
            "error": facts.error,
            "result": canonical(facts.result),
            "ended": facts.ended,
        }

    def lease(self, lease: int) -> dict[str, Any] | None:
        """This lease, field by field, if it is current."""
        holder = self.holder(lease)
        if holder is None:
            return None
        facts = self._tasks[holder]
        return {
            "id": lease,
            "task": holder,
            "payload": canonical(facts.task.payload),
            "attempt": facts.attempt,
            "worker": facts.worker,
            "expires": None,
        }

    def reason(self, task: str) -> str:
        """Why this task is a dead letter, or parked."""
        facts = self._tasks[task]
        if self.status(task) is S.BLOCKED:
            return f"blocked by {self.root(task)}"
        return f"failed after {facts.attempt} attempts: {facts.error}"

    def letters(self, *statuses: Status) -> list[tuple[str, Status, str, str]]:
        """The tasks that stand there with their reasons and roots, in the order of their death."""
        here = [name for name in self._tasks if self.status(name) in statuses]
        here.sort(key=lambda name: self._tasks[name].listed or 0)
        return [
            (name, self.status(name), self.reason(name), self.root(name) or name) for name in here
        ]

    def look(self) -> Look:
        """Everything that can be asked."""
        names = [*self._tasks, *(n for f in self._tasks.values() for n in f.task.after)]
        statuses = [self.status(name) for name in self._tasks]
        return Look(
            self.admission,
            [self.task(name) or {} for name in self._tasks],
            self.line(),
            [self.lease(lease) or {} for lease in self.leases()],
            self.letters(S.DEAD, S.BLOCKED),
            self.letters(S.PARKED),
            {s: statuses.count(s) for s in Status if s not in (S.ABSENT, S.FAILED)},
            {name: self.needed_by(name) for name in names},
        )
