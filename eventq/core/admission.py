"""How new tasks are let in: what is a repeat, what closes a cycle, and whether there is room."""

from __future__ import annotations

from typing import Any

from eventq.core.commands import OF_THE_QUEUE, Enqueue
from eventq.core.downstream import Telling, lined_up, settle
from eventq.core.errors import CycleError, OtherContent, QueueClosed, QueueFull
from eventq.core.events import Enqueued, Event, Json
from eventq.core.graph import find_cycle, wanted
from eventq.core.lifecycle import Status
from eventq.core.reading import Questions
from eventq.core.state import Draft

__all__ = ["admit"]

S = Status

COUNTED = {
    "waiting": (S.PENDING, S.READY, S.DELAYED),
    "unresolved": (S.PENDING, S.READY, S.DELAYED, S.RUNNING),
}
"""Which tasks a capacity counts."""


def admit(t: Telling, tasks: list[tuple[str, Enqueue]]) -> None:
    """Enqueue these, each under its id: all, or none and a refusal. Repeats are passed over."""
    before = t.now
    new = dict(tasks)
    if len(new) < len(tasks) or not before.unknown(new):
        new = _new(before, tasks)
    if not new:
        return
    if before.admission != "open":
        raise QueueClosed(next(iter(new)))
    no_room = None if before.policy.capacity is None else _no_room(before, new)
    if no_room is not None:
        if not any(task.after for task in new.values()):
            raise no_room
        t = Telling(Draft.of(before), t.at)  # a cycle would come first: looked for on a copy
    default = before.policy.retry.max_attempts
    free: list[Event] = []  # what is told of tasks that need nothing, one after the other
    for name, task in new.items():
        limit = default if task.max_attempts is OF_THE_QUEUE else task.max_attempts
        event = Enqueued.of(name, task.payload, task.after, task.key, limit, task.not_before)
        if not task.after:
            free += (event, lined_up(t, name, task.not_before))
            continue
        if free:
            t.tell(*free)
            free = []
        if cycle := find_cycle(t.now, name, task.after):
            raise CycleError(cycle)
        t.tell(event)
        settle(t, name)
    if no_room is not None:
        raise no_room
    if free:
        t.tell(*free)


def _new(state: Questions, tasks: list[tuple[str, Enqueue]]) -> dict[str, Enqueue]:
    """Those that are no repeats. Raises OtherContent for one that has only the id of another."""
    new: dict[str, Enqueue] = {}
    for name, task in tasks:
        record = state.record(name)
        known = new.get(name) if record is None else record.task
        if known is None:
            new[name] = task
        elif differs := _differs(known, task):
            raise OtherContent(
                name, "new in this batch" if record is None else record.status, differs
            )
    return new


def _differs(known: Enqueued | Enqueue, task: Enqueue) -> str | None:
    """What of the content differs, in words; None when all is the same."""
    if not _same(known.payload, task.payload):
        return "another payload"
    if known.after != task.after and set(known.after) != set(task.after):
        return "other dependencies"
    if known.key != task.key:
        return f"the key {known.key!r}"
    return None


def _same(one: Any, other: Any) -> bool:
    """Whether two payloads are the same: the same object, or JSON texts of the same value."""
    if isinstance(one, Json) and isinstance(other, Json):
        return one.same(other)
    return one is other


def _no_room(state: Questions, new: dict[str, Enqueue]) -> QueueFull | None:
    """The refusal for want of room, if there is none: judged once, on the state before.

    An id that a PENDING task names is admitted whatever the room.
    """
    capacity = state.policy.capacity
    if capacity is None:
        return None
    taken = state.count(*COUNTED[capacity.counts])
    if taken + len(new) <= capacity.limit:
        return None
    asked = sum(not wanted(state, name) for name in new)
    if not asked or taken + asked <= capacity.limit:
        return None
    return QueueFull(asked, taken, capacity.limit, capacity.counts)
