"""The lifecycle: which event may follow which status, and where it leads. Written here alone.

1. The next status depends on the status and the type of the event, and on nothing else.
2. An event that is not in the row of its task's status is impossible, and never skipped.
3. `decide` asks these tables what may happen, `evolve` where it leads, and the picture in the
   README is drawn from them.
4. FAILED is where a task stands inside an entry, between its failure and what follows from it;
   no task rests there.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from eventq.core.events import (
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Event,
    Expired,
    Failed,
    Forgotten,
    Opened,
    Parked,
    Paused,
    Readied,
    Reconfigured,
    Redriven,
    Released,
    Renewed,
    Reopened,
    Resolved,
    Restored,
    Resumed,
    Started,
    TaskEvent,
    Unblocked,
)

__all__ = [
    "FINISHED",
    "LEADS",
    "QUEUE",
    "ROOTS",
    "TASK",
    "Row",
    "Status",
    "picture",
    "sources",
]


class Status(StrEnum):
    """Where one task stands. ABSENT: no such task, or one that retention has forgotten."""

    ABSENT = "ABSENT"
    PENDING = "PENDING"
    READY = "READY"
    DELAYED = "DELAYED"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    SUCCEEDED = "SUCCEEDED"
    DEAD = "DEAD"
    PARKED = "PARKED"
    BLOCKED = "BLOCKED"
    CANCELLED = "CANCELLED"

    __hash__ = str.__hash__  # that of Enum is written in Python, and states are counted often


S = Status

ROOTS = frozenset({S.DEAD, S.PARKED, S.CANCELLED})
"""A task that stands here keeps what depends on it from running."""

FINISHED = frozenset({S.SUCCEEDED, S.CANCELLED})
"""A task that stands here asks for nothing more; all others are unfinished."""


@frozen
class Row:
    """One event of the table: where a task may stand before it, and where it stands after."""

    sources: tuple[Status, ...]
    target: Status


TASK: dict[type[TaskEvent], Row] = {
    Enqueued: Row((S.ABSENT,), S.PENDING),
    Readied: Row((S.PENDING, S.DELAYED, S.FAILED), S.READY),
    Delayed: Row((S.PENDING, S.FAILED), S.DELAYED),
    Started: Row((S.READY,), S.RUNNING),
    Renewed: Row((S.RUNNING,), S.RUNNING),
    Released: Row((S.RUNNING,), S.READY),
    Completed: Row((S.RUNNING,), S.SUCCEEDED),
    Failed: Row((S.RUNNING,), S.FAILED),
    Expired: Row((S.RUNNING,), S.FAILED),
    Died: Row((S.FAILED,), S.DEAD),
    Parked: Row((S.FAILED,), S.PARKED),
    Blocked: Row((S.PENDING,), S.BLOCKED),
    Unblocked: Row((S.BLOCKED,), S.PENDING),
    Redriven: Row((S.DEAD, S.PARKED), S.PENDING),
    Restored: Row((S.CANCELLED,), S.PENDING),
    Resolved: Row((S.DEAD, S.PARKED, S.CANCELLED), S.SUCCEEDED),
    Cancelled: Row(
        (S.PENDING, S.READY, S.DELAYED, S.RUNNING, S.BLOCKED, S.DEAD, S.PARKED), S.CANCELLED
    ),
    Forgotten: Row((S.SUCCEEDED, S.CANCELLED), S.ABSENT),
}

LEADS: dict[type[TaskEvent], dict[Status, Status]] = {
    event: dict.fromkeys(row.sources, row.target) for event, row in TASK.items()
}
"""The same table for look-up: LEADS[event][status] is the next status, or a KeyError."""


@frozen
class QueueRow:
    """One queue event: which of the queue's two standings it moves, from where, to where."""

    moves: str
    sources: tuple[str, ...]
    target: str | None


QUEUE: dict[type, QueueRow] = {
    Opened: QueueRow("admission", ("absent",), "open"),
    Closed: QueueRow("admission", ("open",), "closed"),
    Reopened: QueueRow("admission", ("closed",), "open"),
    Paused: QueueRow("dispatch", ("running",), "paused"),
    Resumed: QueueRow("dispatch", ("paused",), "running"),
    Reconfigured: QueueRow("admission", ("open", "closed"), None),
}
"""`target` None: the standing stays as it is."""


def sources(event: type[Event]) -> tuple[Status, ...]:
    """Where a task may stand for this event to happen to it, in the order of the table."""
    return TASK[event].sources  # type: ignore[index]  # a queue event is a KeyError, as it should be


def picture() -> str:
    """The lifecycle as a Mermaid state diagram, drawn from the table."""
    arrows: dict[tuple[Status, Status], list[str]] = {}
    for event, row in TASK.items():
        for source in row.sources:
            arrows.setdefault((source, row.target), []).append(event.__name__)

    def name(status: Status) -> str:
        return "[*]" if status is S.ABSENT else status.value

    lines = ["stateDiagram-v2"]
    for (source, target), events in arrows.items():
        lines.append(f"    {name(source)} --> {name(target)}: {', '.join(events)}")
    return "\n".join(lines)
