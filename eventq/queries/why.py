"""Why a task does not run: one answer of a fixed list, and the chain that leads to its root.

Pure: what a state alone can say. Who cancelled a task, or what a forgotten one has become, stands
in the log and is told by who reads it.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from enum import StrEnum
from itertools import takewhile

from attrs import frozen

from eventq.core.graph import blocks
from eventq.core.lifecycle import ROOTS, Status
from eventq.core.record import Lease, Record
from eventq.core.state import State

__all__ = ["Kind", "Step", "Why", "why"]

S = Status


class Kind(StrEnum):
    """The answers there are. The last three are those of tasks that ask for nothing more."""

    NEEDS = "needs"
    """A task that it needs has not succeeded yet."""
    MISSING = "missing"
    """It needs an id that nobody has enqueued."""
    UNTIL = "until"
    """It is delayed until a stated time."""
    BEHIND = "behind"
    """Another task of its key is out, or goes first."""
    SHUT = "shut"
    """Its key is held by a DEAD or PARKED task, and the queue halts there."""
    RUNNING = "running"
    """It runs under a lease."""
    PAUSED = "paused"
    """It could run, but the queue hands nothing out."""
    UNASKED = "unasked"
    """It could run, but no worker has asked."""
    BLOCKED = "blocked"
    """A root stands above it."""
    DEAD = "dead"
    PARKED = "parked"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Nobody has enqueued it, or it was forgotten."""


_RESTING = {
    S.DEAD: Kind.DEAD,
    S.PARKED: Kind.PARKED,
    S.SUCCEEDED: Kind.SUCCEEDED,
    S.CANCELLED: Kind.CANCELLED,
    S.RUNNING: Kind.RUNNING,
    S.DELAYED: Kind.UNTIL,
}


@frozen
class Step:
    """One task of the chain and why it does not run. Fields that say nothing of it are empty."""

    task: str
    status: Status
    kind: Kind
    on: str | None = None
    """The next task of the chain: of all that keep this one, the one that it leads through."""
    needs: tuple[str, ...] = ()
    """All that it names and that has not succeeded, as written."""
    key: str | None = None
    """The key on which it waits."""
    ahead: int = 0
    """How many tasks stand before it in the line."""
    reason: str | None = None
    """Why it is DEAD or PARKED."""
    lease: Lease | None = None
    until: datetime | None = None
    error: str | None = None
    """That of its last failure, or the one with which it was cancelled."""


@frozen
class Why:
    """The answer for one task: the steps from it to its root, at least the one about itself."""

    steps: tuple[Step, ...]

    @property
    def task(self) -> str:
        return self.steps[0].task

    @property
    def kind(self) -> Kind:
        """Why the task itself does not run."""
        return self.steps[0].kind

    @property
    def root(self) -> Step:
        """The step with which all would begin to move."""
        return self.steps[-1]


def why(state: State, task: str) -> Why:
    """Why this task does not run, as the queue stands.

    The chain of a BLOCKED task leads through the first dependency, as written, that is a root or
    BLOCKED. That of a PENDING one leads to the nearest id that nobody has enqueued, since only a
    person can move that; where there is none, through the first dependency that has not succeeded.
    That of a READY one that its key keeps leads to the task that holds the key, or goes first.
    """
    steps: list[Step] = []
    way = _way_to_missing(state, task)
    at: str | None = task
    while at is not None and len(steps) <= len(state):  # longer, it is a cycle: no lawful log
        step = _step(state, at, way.get(at))
        steps.append(step)
        at = step.on
    return Why(tuple(steps))


def _unmet(state: State, record: Record) -> tuple[str, ...]:
    """The dependencies of this task that have not succeeded."""
    return tuple(
        name
        for name in record.task.after
        if (above := state.record(name)) is None or above.status is not S.SUCCEEDED
    )


def _way_to_missing(state: State, task: str) -> dict[str, str]:
    """For each task on the way to the nearest id that nobody has enqueued, the next one on it."""
    record = state.record(task)
    came_from: dict[str, str] = {}
    frontier = deque([task] if record is not None and record.status is S.PENDING else [])
    while frontier:
        at = frontier.popleft()
        record = state.record(at)
        if record is None:
            way = {}
            while at != task:
                way[came_from[at]] = at
                at = came_from[at]
            return way
        if record.status is S.PENDING:
            for name in _unmet(state, record):
                if name not in came_from:
                    came_from[name] = at
                    frontier.append(name)
    return {}


def _step(state: State, name: str, onwards: str | None) -> Step:
    """This task by itself; `onwards` is where the chain is to lead, if it matters."""
    record = state.record(name)
    if record is None:
        return Step(name, S.ABSENT, Kind.UNKNOWN)
    status = record.status
    if status is S.PENDING:
        needs = _unmet(state, record)
        on = onwards or needs[0]
        return Step(name, status, Kind.NEEDS if on in state else Kind.MISSING, on, needs)
    if status is S.BLOCKED:
        on = next(above for above in record.task.after if blocks(state.record(above)))
        return Step(name, status, Kind.BLOCKED, on, _unmet(state, record))
    if status is S.READY:
        kind, holder = _in_the_way(state, record)
        key = None if holder is None else record.task.key
        ahead = _ahead(state, record) if holder is None else 0
        return Step(name, status, kind, holder, key=key, ahead=ahead, error=record.error)
    return Step(
        name,
        status,
        _RESTING[status],
        reason=state.reason(name) if status in ROOTS else None,
        lease=None if record.lease is None else state.lease(record.lease),
        until=record.until,
        error=record.error,
    )


def _in_the_way(state: State, record: Record) -> tuple[Kind, str | None]:
    """Why this READY task does not run, and the task that keeps it, if one does."""
    key = record.task.key
    if key is not None:
        holder = state.holder(key)
        if holder is not None and holder.status in (S.DEAD, S.PARKED):
            if state.policy.keys.on_death == "halt":
                return Kind.SHUT, holder.task.task
        elif holder is not None and holder is not record:
            return Kind.BEHIND, holder.task.task
        front = state.fronts[key]
        if front is not None and front[2] != record.task.task:
            return Kind.BEHIND, front[2]
    return (Kind.PAUSED if state.dispatch == "paused" else Kind.UNASKED), None


def _ahead(state: State, record: Record) -> int:
    """How many tasks that can go stand before this one in the line."""
    lines = [state.in_line]
    if state.policy.keys.on_death == "open":
        lines.append(state.behind_dead)
    return sum(1 for line in lines for _ in takewhile(lambda one: one[0] < record.mark, line))
