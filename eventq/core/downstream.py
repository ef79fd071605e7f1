"""What follows downstream of a task: into the line, into a block, out of it again.

Breadth-first, nearest first, dependents in the order in which they were enqueued; a task's own
next event comes before those of its dependents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from eventq.core.events import Blocked, Delayed, Event, Readied, Unblocked
from eventq.core.evolve import begin, tell
from eventq.core.graph import blocks, root_above
from eventq.core.lifecycle import Status
from eventq.core.record import Record
from eventq.core.state import Draft, State

__all__ = [
    "Telling",
    "block_below",
    "free_below",
    "line_up",
    "lined_up",
    "ready",
    "ready_below",
    "settle",
]

S = Status


class Telling:
    """The entry in the making: the state as its events so far have made it, and these events.

    A state that it is given stays as it is; a draft is changed in place.
    """

    __slots__ = ("at", "events", "now", "seq")

    def __init__(self, state: State | Draft, at: datetime) -> None:
        self.at = at
        self.seq = state.seq + 1
        self.now: State | Draft = state
        self.events: list[Event] = []

    def tell(self, *events: Event) -> None:
        """Let these follow next: one at least."""
        draft: Any = self.now
        if not self.events:
            if not isinstance(draft, Draft):
                self.now = draft = Draft.of(draft)
            begin(draft, self.seq, self.at)
        tell(draft, events)
        self.events += events


def settle(t: Telling, name: str) -> None:
    """Where a PENDING task goes from there, and what it blocks when it is BLOCKED itself."""
    record = t.now.record(name)
    assert record is not None
    if not record.needs:
        ready(t, record)
    elif (root := root_above(t.now, record.task.after)) is not None:
        t.tell(Blocked(name, root))
        block_below(t, name, root)


def ready(t: Telling, record: Record) -> None:
    """All that the task needs has succeeded: to the line, once `not_before` has come."""
    task = record.task
    line_up(t, task.task, task.not_before)


def line_up(t: Telling, name: str, until: datetime | None) -> None:
    """To the back of the line, now or when this time has come."""
    t.tell(lined_up(t, name, until))


def lined_up(t: Telling, name: str, until: datetime | None) -> Readied | Delayed:
    """The event that does so; a wait that is over is none."""
    return Readied.of(name) if until is None or until <= t.at else Delayed(name, until)


def block_below(t: Telling, name: str, root: str) -> None:
    """Whatever waits for this task, and is not blocked yet, is blocked by this root."""
    frontier = deque([name])
    while frontier:
        for below in list(t.now.dependents(frontier.popleft())):
            if below.status is S.PENDING:
                t.tell(Blocked(below.task.task, root))
                frontier.append(below.task.task)


def ready_below(t: Telling, name: str) -> None:
    """This task has succeeded without having blocked anything: ready what waited for it last."""
    for below in list(t.now.dependents(name)):
        if below.status is S.PENDING and not below.needs:
            ready(t, below)


def free_below(t: Telling, freed: Iterable[str]) -> None:
    """These tasks block nothing any more: unblock what no other root keeps, ready what can run.

    First it is found what is free: each BLOCKED task watches one dependency that blocks it, and
    moves on to the next when it is visited and that one blocks no more, so that each edge is
    looked at a constant number of times. Then it is told, nearest first.
    """
    start = list(freed)
    free = set(start)
    watched: dict[str, int] = {}
    frontier = deque(start)
    while frontier:
        for below in t.now.dependents(frontier.popleft()):
            name, after = below.task.task, below.task.after
            if below.status is not S.BLOCKED or name in free:
                continue
            watch = watched.get(name, 0)
            while watch < len(after) and (
                after[watch] in free or not blocks(t.now.record(after[watch]))
            ):
                watch += 1
            watched[name] = watch
            if watch == len(after):
                free.add(name)
                frontier.append(name)
    frontier = deque(start)
    while frontier:
        for below in list(t.now.dependents(frontier.popleft())):
            name = below.task.task
            if below.status is S.BLOCKED and name in free:
                t.tell(Unblocked(name))
                frontier.append(name)
            elif below.status is not S.PENDING:
                continue
            if not below.needs:
                ready(t, below)
