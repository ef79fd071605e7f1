"""What has happened: one immutable class for each event, to one task or to the queue.

An event holds results, never policy, so that an old log folds to the same state under tomorrow's
rules. The order of the fields here is the order on the wire.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Literal

from attrs import define, field, frozen

from eventq.core.policy import Policy

__all__ = [
    "QUEUE_EVENTS",
    "TASK_EVENTS",
    "Blocked",
    "Cancelled",
    "Closed",
    "Completed",
    "Delayed",
    "Died",
    "Enqueued",
    "Entry",
    "Event",
    "Expired",
    "Failed",
    "Forgotten",
    "Json",
    "Kind",
    "Opened",
    "Parked",
    "Paused",
    "Readied",
    "Reconfigured",
    "Redriven",
    "Released",
    "Renewed",
    "Reopened",
    "Resolved",
    "Restored",
    "Resumed",
    "Started",
    "TaskEvent",
    "Unblocked",
]

Kind = Literal["retryable", "permanent"]


class Json(bytes):
    """A JSON text, kept as the bytes that were written; how a queue with a path holds payloads (a
    store may have a class of its own, which reads faster)."""

    __slots__ = ()

    def value(self) -> Any:
        """The value that the text stands for, made afresh at each call."""
        return json.loads(self)

    def same(self, other: Json) -> bool:
        """Whether both are the same content: equal as text with sorted keys (1 is not 1.0)."""
        return self == other or self._sorted() == other._sorted()

    def _sorted(self) -> str:
        return json.dumps(self.value(), sort_keys=True)


@define
class TaskEvent:
    """What has happened to exactly one task. Each event has a class of its own, which is frozen."""

    task: str


@define
class _Enqueued(TaskEvent):
    """An event in the making: attrs takes twice as long to make one of a frozen class."""

    payload: Any = None
    after: tuple[str, ...] = ()
    key: str | None = None
    max_attempts: int | None = None
    not_before: datetime | None = None


@frozen
class Enqueued(_Enqueued):
    """`after` are the ids that it needs; `max_attempts` is the limit that applies, or None."""

    @classmethod
    def of(
        cls,
        task: str,
        payload: Any,
        after: tuple[str, ...],
        key: str | None,
        max_attempts: int | None,
        not_before: datetime | None,
    ) -> Enqueued:
        """The same as the class itself, faster: a batch makes thousands, a replay millions."""
        made: Any = _Enqueued(task, payload, after, key, max_attempts, not_before)
        made.__class__ = cls
        enqueued: Enqueued = made
        return enqueued


@frozen
class Readied(TaskEvent):
    """It entered the line, at the back."""

    @classmethod
    def of(cls, task: str) -> Readied:
        """As with `Enqueued`."""
        made: Any = TaskEvent(task)
        made.__class__ = cls
        readied: Readied = made
        return readied


@frozen
class Delayed(TaskEvent):
    """It waits until this time before it is ready."""

    until: datetime


@define
class _Started(TaskEvent):
    attempt: int
    worker: Any = None
    expires: datetime | None = None


@frozen
class Started(_Started):
    """It was handed out. The id of the lease is the seq of the entry that holds this event."""

    @classmethod
    def of(cls, task: str, attempt: int, worker: Any, expires: datetime | None) -> Started:
        """As with `Enqueued`."""
        made: Any = _Started(task, attempt, worker, expires)
        made.__class__ = cls
        started: Started = made
        return started


@frozen
class Renewed(TaskEvent):
    """Its lease ends at this time now."""

    expires: datetime


@frozen
class Released(TaskEvent):
    """It was handed back: the attempt is not counted and its place is kept."""


@frozen
class Completed(TaskEvent):
    """It has succeeded, with this result."""

    result: Any = None


@frozen
class Failed(TaskEvent):
    """This attempt has failed, with the error that its worker told."""

    attempt: int
    error: str
    kind: Kind


@frozen
class Expired(TaskEvent):
    """The lease of this attempt ran out, which is a failure."""

    attempt: int


@frozen
class Died(TaskEvent):
    """It entered the dead letters."""


@frozen
class Parked(TaskEvent):
    """It died again after its last allowed redrive: a person must look."""


@frozen
class Blocked(TaskEvent):
    """A root stands above it. The root is told to the reader of the log and not kept."""

    root: str


@frozen
class Unblocked(TaskEvent):
    """No root stands above it any more: it waits for what it needs."""


@frozen
class Redriven(TaskEvent):
    """It is dead, or parked, no more: its attempts start afresh."""


@frozen
class Restored(TaskEvent):
    """It is cancelled no more: its attempts start afresh."""


@frozen
class Resolved(TaskEvent):
    """A person did it by hand."""


@frozen
class Cancelled(TaskEvent):
    """It is not to be done; with the error that was given, if one was."""

    error: str | None = None


@frozen
class Forgotten(TaskEvent):
    """Retention let go of it; the log keeps the history."""


@frozen
class Opened:
    """The first event of every log: the id of the queue and what was agreed."""

    queue: str
    policy: Policy


@frozen
class Closed:
    """No new tasks are admitted."""


@frozen
class Reopened:
    """New tasks are admitted again."""


@frozen
class Paused:
    """Nothing is handed out."""


@frozen
class Resumed:
    """Tasks are handed out again."""


@frozen
class Reconfigured:
    """This was agreed, from here on."""

    policy: Policy


QueueEvent = Opened | Closed | Reopened | Paused | Resumed | Reconfigured
Event = TaskEvent | QueueEvent

TASK_EVENTS: tuple[type[TaskEvent], ...] = (
    Enqueued,
    Readied,
    Delayed,
    Started,
    Renewed,
    Released,
    Completed,
    Failed,
    Expired,
    Died,
    Parked,
    Blocked,
    Unblocked,
    Redriven,
    Restored,
    Resolved,
    Cancelled,
    Forgotten,
)
QUEUE_EVENTS: tuple[type[QueueEvent], ...] = (
    Opened,
    Closed,
    Reopened,
    Paused,
    Resumed,
    Reconfigured,
)


@define
class _Entry:
    """An entry in the making, see `_Enqueued`."""

    seq: int
    at: datetime
    do: str
    events: tuple[Event, ...]
    ask: dict[str, Any] = field(factory=dict)
    by: str | None = None
    why: str | None = None


@frozen
class Entry(_Entry):
    """One accepted command and the events that followed from it: one line of the log.

    `do` names what was asked, `by` who asked, `why` the reason that an operator gave; `ask` holds
    each argument of the command that the events do not.
    """

    @classmethod
    def of(
        cls,
        seq: int,
        at: datetime,
        do: str,
        events: tuple[Event, ...],
        ask: dict[str, Any],
        by: str | None,
        why: str | None,
    ) -> Entry:
        """The same as the class itself, faster."""
        made: Any = _Entry(seq, at, do, events, ask, by, why)
        made.__class__ = cls
        entry: Entry = made
        return entry
