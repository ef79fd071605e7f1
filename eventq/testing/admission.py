"""Enqueueing, as the reference model foretells it: what is admitted, and what is refused.

A batch is judged whole: the same content again, other content, a closed queue, a cycle, no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eventq.core.commands import OF_THE_QUEUE, Enqueue, EnqueueAll, Open
from eventq.core.errors import CycleError, OtherContent, QueueClosed, QueueFull
from eventq.core.events import Enqueued, Json, Opened
from eventq.core.lifecycle import Status
from eventq.testing.facts import WAITING, Facts, canonical
from eventq.testing.telling import Telling

__all__ = ["Admission"]

S = Status


class Admission(Telling):
    """A queue that can be opened and enqueued to."""

    def _open(self, command: Open) -> None:
        self.queue, self.policy, self.admission = command.queue, command.policy, "open"
        self._tell(Opened(command.queue, command.policy))

    def _enqueue(self, command: Enqueue) -> dict[str, Any] | None:
        named = _named(command, self.seq)
        self._admit(named)
        return self.task(named[0][0])

    def _enqueue_all(self, command: EnqueueAll) -> list[dict[str, Any] | None]:
        named = _named(command, self.seq)
        self._admit(named)
        return [self.task(name) for name, _ in named]

    def _admit(self, asked: Sequence[tuple[str, Enqueue]]) -> None:
        new: dict[str, Enqueue] = {}
        for name, task in asked:
            there: Enqueued | Enqueue | None = new.get(name)
            if name in self._tasks:
                there = self._tasks[name].task
            if there is None:
                new[name] = task
            elif not self._same_content(there, task):
                raise OtherContent(name, self.status(name), "other content")
        if not new:
            return
        if self.admission == "closed":
            raise QueueClosed(next(iter(new)))
        if cycle := _cycle(self._needs(new)):
            raise CycleError(cycle)
        self._check_room(new)
        for name, task in new.items():
            limit = task.max_attempts
            if limit is OF_THE_QUEUE:
                limit = self.policy.retry.max_attempts
            enqueued = Enqueued(name, task.payload, task.after, task.key, limit, task.not_before)
            self._tasks[name] = Facts(enqueued)
            self._tell(enqueued)
            self._follow(name)

    def _same_content(self, there: Enqueued | Enqueue, task: Enqueue) -> bool:
        if isinstance(there.payload, Json) and isinstance(task.payload, Json):
            same = canonical(there.payload) == canonical(task.payload)
        else:
            same = there.payload is task.payload
        return same and set(there.after) == set(task.after) and there.key == task.key

    def needs_with(self, command: Enqueue | EnqueueAll) -> dict[str, tuple[str, ...]]:
        """What each task would need with those of this command, also if it is to be refused."""
        return self._needs(dict(_named(command, self.seq + 1)))

    def _needs(self, new: dict[str, Enqueue]) -> dict[str, tuple[str, ...]]:
        """What each task needs, with these; one that SUCCEEDED needs nothing."""
        needs = {n: f.task.after for n, f in self._tasks.items() if f.own is not S.SUCCEEDED}
        return {name: task.after for name, task in new.items()} | needs

    def _check_room(self, new: dict[str, Enqueue]) -> None:
        capacity = self.policy.capacity
        if capacity is None:
            return
        counted = WAITING if capacity.counts == "waiting" else (*WAITING, S.RUNNING)
        taken = sum(self.status(name) in counted for name in self._tasks)
        wanted = {
            above
            for name, facts in self._tasks.items()
            if self.status(name) is S.PENDING
            for above in facts.task.after
        }
        asked = [name for name in new if name not in wanted]
        if asked and taken + len(asked) > capacity.limit:
            raise QueueFull(len(asked), taken, capacity.limit, capacity.counts)


def _named(command: Enqueue | EnqueueAll, seq: int) -> list[tuple[str, Enqueue]]:
    """The tasks that this command asks for, each with its id: a made one where it has none."""
    if isinstance(command, Enqueue):
        return [(command.id or f"#{seq}", command)]
    named: list[tuple[str, Enqueue]] = []
    for task in command.tasks:
        made = sum(name.startswith("#") for name, _ in named)
        named.append((task.id or f"#{seq}.{made + 1}", task))
    return named


def _cycle(needs: dict[str, tuple[str, ...]]) -> list[str] | None:
    """A cycle among these, its first id repeated last; None if there is none.

    Whatever needs nothing that is left is taken away until no more can be; in what stays, every
    task needs one that stays too, so following those comes round.
    """
    left = dict(needs)
    while free := [name for name in left if not any(above in left for above in left[name])]:
        for name in free:
            del left[name]
    if not left:
        return None
    path = [next(iter(left))]
    while True:
        above = next(above for above in left[path[-1]] if above in left)
        if above in path:
            return [*path[path.index(above) :], above]
        path.append(above)
