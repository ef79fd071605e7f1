"""eventq: an event-sourced work queue, whose whole state is one append-only log.

with WorkQueue.open("nightly") as q:
    q.enqueue("fetch", {"url": "..."})
    q.enqueue("parse", after=["fetch"])
    lease = q.start("worker-1")
    q.complete(lease)
"""

from eventq.core.commands import Enqueue
from eventq.core.errors import (
    BadValue,
    CycleError,
    EventqError,
    ImpossibleEvent,
    OtherContent,
    QueueClosed,
    QueueFull,
    Refusal,
    StaleLease,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WrongStatus,
)
from eventq.core.events import Entry
from eventq.core.lifecycle import Status
from eventq.core.policy import Backoff, Capacity, Keys, Policy, Retention, Retry
from eventq.core.record import DeadLetter, Lease, Task
from eventq.core.select import Select
from eventq.core.state import State
from eventq.storage.errors import (
    Archived,
    ArchiveRefused,
    HandleBusy,
    HandleFinished,
    LinesLost,
    LockTimeout,
    LockUnsupported,
    LogDamaged,
    LogNewer,
    NotAQueue,
    QueueReplaced,
    ReadOnly,
)
from eventq.workqueue import WorkQueue

__all__ = [
    "ArchiveRefused",
    "Archived",
    "Backoff",
    "BadValue",
    "Capacity",
    "CycleError",
    "DeadLetter",
    "Enqueue",
    "Entry",
    "EventqError",
    "HandleBusy",
    "HandleFinished",
    "ImpossibleEvent",
    "Keys",
    "Lease",
    "LinesLost",
    "LockTimeout",
    "LockUnsupported",
    "LogDamaged",
    "LogNewer",
    "NotAQueue",
    "OtherContent",
    "Policy",
    "QueueClosed",
    "QueueFull",
    "QueueReplaced",
    "ReadOnly",
    "Refusal",
    "Retention",
    "Retry",
    "Select",
    "StaleLease",
    "State",
    "Status",
    "Task",
    "UnknownTask",
    "UnknownWorker",
    "WorkQueue",
    "WorkerBusy",
    "WrongStatus",
]
