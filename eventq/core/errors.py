"""How the core says no: the refusals, in order of precedence, and the one loud error of the fold.

A refusal changes nothing. When several apply to one command, the one that stands first in
`REFUSALS` is raised. Their wire names are permanent: a log may hold them.
"""

from __future__ import annotations

import queue
from collections.abc import Hashable, Sequence
from typing import Any

__all__ = [
    "REFUSALS",
    "BadValue",
    "CycleError",
    "EventqError",
    "ImpossibleEvent",
    "OtherContent",
    "QueueClosed",
    "QueueFull",
    "Refusal",
    "StaleLease",
    "UnknownTask",
    "UnknownWorker",
    "WorkerBusy",
    "WrongStatus",
]


class EventqError(Exception):
    """Whatever eventq raises on purpose."""

    def __reduce__(self) -> Any:
        """As pools of processes send it: not made anew from its words alone."""
        return _again, (type(self), self.args, vars(self))


def _again(kind: type[EventqError], args: tuple[Any, ...], rest: dict[str, Any]) -> EventqError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(rest)
    return error


class Refusal(EventqError):
    """A command turned down. Nothing has changed; `name` is one of a fixed list."""

    name: str


class BadValue(Refusal, ValueError):
    """An argument that no queue could take: a wrong type, an empty id, a limit below zero."""

    name = "bad_value"


class UnknownWorker(Refusal, ValueError):
    """The pool of this queue is fixed, and the worker is not in it."""

    name = "unknown_worker"

    def __init__(self, worker: Hashable, pool: Sequence[Hashable]) -> None:
        shown = ", ".join(map(repr, pool[:10])) + (", ..." if len(pool) > 10 else "")
        super().__init__(
            f"worker {worker!r} is not in the pool of this queue ({shown or 'nobody'}): "
            "start as one of these"
        )
        self.worker = worker


class OtherContent(Refusal, ValueError):
    """The id is taken by a task with another payload, other dependencies or another key."""

    name = "other_content"

    def __init__(self, task: str, status: str, differs: str) -> None:
        super().__init__(
            f"task {task!r} is already there ({status}) with {differs}: "
            "enqueue the same content again or choose another id"
        )
        self.task = task


class QueueClosed(Refusal, RuntimeError):
    """The queue admits no new tasks until it is reopened."""

    name = "closed"

    def __init__(self, task: str) -> None:
        super().__init__(
            f"task {task!r} cannot be enqueued: the queue is closed to new tasks; reopen it first"
        )


class CycleError(Refusal, ValueError):
    """The task would wait for itself. `cycle` lists the ids along it and repeats its first last."""

    name = "cycle"

    def __init__(self, cycle: Sequence[str]) -> None:
        self.cycle = list(cycle)
        steps = len(self.cycle) - 1
        shown = self.cycle if steps <= 12 else [*self.cycle[:6], "...", *self.cycle[-6:]]
        super().__init__(
            f"task {self.cycle[0]!r} would wait for itself, a cycle of {steps}: "
            + " needs ".join(shown)
            + "; take one of these dependencies away"
        )


class QueueFull(Refusal, queue.Full):
    """There is no room for the new tasks."""

    name = "full"

    def __init__(self, new: int, taken: int, limit: int, counts: str) -> None:
        tasks = "1 new task" if new == 1 else f"{new} new tasks"
        super().__init__(
            f"no room for {tasks}: {taken} {counts} of at most {limit}; "
            "try again when some have gone"
        )
        self.limit = limit


class UnknownTask(Refusal, LookupError):
    """No task has this id (or retention has forgotten it)."""

    name = "unknown_task"

    def __init__(self, task: str, asked: str) -> None:
        super().__init__(f"cannot {asked} {task!r}: no task has this id")
        self.task = task


class WrongStatus(Refusal, RuntimeError):
    """The task is there, but where it stands the command does not apply."""

    name = "wrong_status"

    def __init__(self, task: str, asked: str, status: str, allowed: Sequence[str]) -> None:
        *others, last = allowed
        either = f"{', '.join(others)} or {last}" if others else last
        super().__init__(
            f"cannot {asked} {task!r}: it is {status}, and only a task that is {either} can be"
        )
        self.task = task
        self.status = status


class StaleLease(Refusal, RuntimeError):
    """The lease is not the current one of any task: its work may have been given to another."""

    name = "stale_lease"

    def __init__(self, lease: int, asked: str) -> None:
        super().__init__(
            f"cannot {asked}: lease {lease} is not current; "
            "the task was ended or handed out again, so drop this work"
        )
        self.lease = lease


class WorkerBusy(Refusal, RuntimeError):
    """The worker holds a task already. `lease` is the id of the lease that it holds."""

    name = "busy"

    def __init__(self, worker: Hashable, task: str, lease: int) -> None:
        super().__init__(
            f"worker {worker!r} already holds task {task!r} under lease {lease}: "
            "complete, fail or release it first"
        )
        self.worker = worker
        self.task = task
        self.lease = lease


REFUSALS: tuple[type[Refusal], ...] = (
    BadValue,
    UnknownWorker,
    OtherContent,
    QueueClosed,
    CycleError,
    QueueFull,
    UnknownTask,
    WrongStatus,
    StaleLease,
    WorkerBusy,
)


class ImpossibleEvent(EventqError):
    """An event that the lifecycle does not allow where the task (or the queue) stands.

    It means that a log was not written by these rules, or that eventq has a bug; it is never
    skipped. `story` holds what is known of the task, oldest first.
    """

    def __init__(self, event: object, status: str, seq: int, story: Sequence[str] = ()) -> None:
        kind = type(event).__name__
        task = getattr(event, "task", None)
        what = "the queue" if task is None else f"task {task!r}"
        told = "".join(f"\n  {line}" for line in story)
        super().__init__(f"entry {seq}: {kind} cannot happen to {what}, which is {status}{told}")
        self.event = event
        self.task = task
        self.status = status
        self.seq = seq
        self.story = tuple(story)

    def told(self, story: Sequence[str]) -> ImpossibleEvent:
        """The same error with this story."""
        return ImpossibleEvent(self.event, self.status, self.seq, story)
