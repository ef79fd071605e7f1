"""What can be worked out from the facts that the reference model notes, from scratch each time.

Whether a task is PENDING, BLOCKED, DELAYED or READY, by which root, who holds a key, what is due
and what goes next: no counters, no lists, no indexes. `look()` is everything that can be asked.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Any, Self

from eventq.core.events import Enqueued
from eventq.core.lifecycle import Status
from eventq.testing.facts import ROOTS, UNFINISHED, Look, Moment, canonical
from eventq.testing.reasons import Reasons

__all__ = ["Noted"]

S = Status


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
        self.dispatch = now.dispatch
        self.handed = now.handed
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
                self.dispatch,
                self.handed,
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
        if not all(self.status(above) is S.SUCCEEDED for above in facts.task.after):
            return S.PENDING
        return S.READY if facts.until is None else S.DELAYED

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

    def holds(self, key: str) -> str | None:
        """The task that holds this key: the last of its tasks to be handed out, unless it has
        SUCCEEDED or was CANCELLED since."""
        outs = [(task, position) for of, task, position in self.handed if of == key]
        for task, position in outs[-1:]:
            facts = self._tasks.get(task)
            if facts is not None and facts.out == position:
                return task
        return None

    def holders(self) -> dict[str, str]:
        """Which task holds which key."""
        keys = {facts.task.key for facts in self._tasks.values() if facts.task.key is not None}
        held = {key: self.holds(key) for key in keys}
        return {key: task for key, task in held.items() if task is not None}

    def may_go(self, task: str) -> bool:
        """Whether the key of this task, if it has one, lets it go next."""
        key = self._tasks[task].task.key
        holder = None if key is None else self.holds(key)
        if holder is None or holder == task:
            return True
        gives_way = self._tasks[holder].own in (S.DEAD, S.PARKED)
        return gives_way and self.policy.keys.on_death == "open"

    def first(self) -> str | None:
        """The first in the line that may go."""
        for task in self.line():
            if self.may_go(task):
                return task
        return None

    def due(self) -> list[tuple[datetime, int, str]]:
        """What happens with time: when each lease runs out and each delay ends, by that and by the
        position of the event that set it."""
        return sorted(
            (when, facts.timer, name)
            for name, facts in self._tasks.items()
            for when in (facts.until, facts.expires)
            if when is not None
        )

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
        kept, now = self.policy.retention, self.at
        if kept is None or now is None:
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
        too_many = len(free) if kept.count is None else kept.count
        return [
            name
            for number, name in enumerate(free)
            if len(free) - number > too_many
            or (kept.age is not None and now - (self._tasks[name].ended or now) >= kept.age)
        ]

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
            "key": facts.task.key,
            "status": status,
            "attempt": facts.attempt,
            "max_attempts": facts.task.max_attempts,
            "not_before": facts.task.not_before,
            "redrives": facts.redrives,
            "releases": facts.releases,
            "place": facts.place if status in (S.READY, S.RUNNING) else None,
            "until": facts.until,
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
            "expires": facts.expires,
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
        shown = {name: self.task(name) or {} for name in self._tasks}
        statuses = [task["status"] for task in shown.values()]
        reasons = Reasons(self, shown)
        return Look(
            self.seq,
            self.at,
            self.policy,
            self.admission,
            self.dispatch,
            [*shown.values()],
            self.line(),
            self.first(),
            [self.lease(lease) or {} for lease in self.leases()],
            [(when, name) for when, _, name in self.due()],
            self.holders(),
            self.letters(S.DEAD, S.BLOCKED),
            self.letters(S.PARKED),
            {s: statuses.count(s) for s in Status if s not in (S.ABSENT, S.FAILED)},
            {name: self.needed_by(name) for name in names},
            {n: reasons.steps(n) for n, task in shown.items() if task["status"] in UNFINISHED},
        )
