"""Admitting a flow to a queue: the whole graph as one batch, or nothing of it and the reason."""

from __future__ import annotations

import os

from eventq import EventqError, OtherContent, WorkQueue
from eventq.cli.flow import Flow, spec_of
from eventq.cli.holders import NAME
from eventq.core.lifecycle import FINISHED

__all__ = ["NotAdmitted", "admit"]


class NotAdmitted(EventqError):
    """A flow that does not fit this queue."""


def admit(q: WorkQueue, flow: Flow) -> None:
    """Enqueue the whole flow, or nothing of it. What is there already is passed over."""
    _only_commands(q)
    state = q.state
    names = {task.id for task in flow.tasks}
    lost = [
        f"{flow.path}: task {task.id!r} is after {name!r}, which is neither in the flow nor in "
        "the queue: it would wait for ever; mend the name or enqueue that task first"
        for task in flow.tasks
        for name in task.after
        if name not in names and name not in state
    ]
    if lost:
        raise NotAdmitted("\n".join(lost))
    try:
        q.enqueue_all([task.command() for task in flow.tasks], by=f"{NAME}/{os.getpid()}")
    except OtherContent as error:
        raise NotAdmitted(_other_content(q, flow, error.task)) from None


def _only_commands(q: WorkQueue) -> None:
    """Refuse a queue whose tasks are no commands, before one of them is taken out."""
    for task in q.state.tasks():
        if task.status not in FINISHED:
            try:
                spec_of(task.payload)
            except ValueError as error:
                raise NotAdmitted(
                    f"task {task.id!r} of this queue is no command: {error}; "
                    "run the flow in a queue of its own"
                ) from None


def _other_content(q: WorkQueue, flow: Flow, name: str) -> str:
    """What of a task differs from what the queue has of it, and what to do."""
    there = q.task(name)
    here = next(task for task in flow.tasks if task.id == name)
    assert there is not None
    old = there.payload if isinstance(there.payload, dict) else {}
    differs = [
        f"{field} was {old.get(field)!r} and is {value!r}"
        for field, value in here.spec.payload().items()
        if old.get(field) != value
    ]
    if set(there.after) != set(here.after):
        differs.append(f"after was {list(there.after)} and is {list(here.after)}")
    return (
        f"{flow.path}: task {name!r} is in the queue already ({there.status}) with other content: "
        f"{'; '.join(differs)}. A task keeps what it was enqueued with: give it another name, "
        "run the changed flow in a new queue, or change it back"
    )
