"""WorkQueue: the one object that remembers.

It does everything in this order: catch up with the log, decide (into a new state), append, keep
the state, sync, answer. If the write fails, the memory has not moved; if the sync fails, the
handle is finished and answers nothing more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import evolve as with_changes
from attrs import fields

from eventq.core.commands import (
    OF_THE_QUEUE,
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Redrive,
    Release,
    Reopen,
    Restore,
    Start,
    Tick,
    check_name,
)
from eventq.core.decide import decide
from eventq.core.errors import BadValue
from eventq.core.events import Entry, Kind
from eventq.core.evolve import evolve, replay
from eventq.core.policy import Capacity, Policy, Retention, Retry
from eventq.core.record import DeadLetter, Lease, Task
from eventq.core.state import State
from eventq.storage.memory import MemoryLog

__all__ = ["WorkQueue"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class _NotTold:
    def __repr__(self) -> str:
        return "as in the log"


NOT_TOLD: Any = _NotTold()
"""Says that `open` takes this part of the policy from the log."""


class WorkQueue:
    """A work queue whose whole state is one log. Open it with `open` or `in_memory`.

    Every method that asks something of the queue raises a `Refusal` where the rules refuse it,
    and then nothing has changed. A handle may be used by several threads.
    """
