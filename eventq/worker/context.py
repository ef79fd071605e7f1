"""What a handler is given, and how it says that a task has failed."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

from eventq.core.record import Lease

__all__ = ["Context", "Permanent", "TaskFailed"]


class TaskFailed(Exception):
    """Raised by a handler: the task has failed, and this text alone is its error.

    It is tried again when `retry_after` (a timedelta or seconds) has passed, else as the queue
    backs off. Any other exception is a failure too; its error then begins with its type.
    """

    def __init__(self, error: str = "", *, retry_after: timedelta | float | None = None) -> None:
        super().__init__(error)
        self.retry_after = retry_after


class Permanent(TaskFailed):
    """Raised by a handler: trying again is of no use. The task goes to the dead letters."""


class Context:
    """The lease that a handler works under. It may be asked from any thread."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self._lost = threading.Event()

    def __repr__(self) -> str:
        lost = ", lost" if self.lost else ""
        return f"<Context of task {self.task!r}, attempt {self.attempt}{lost}>"

    @property
    def task(self) -> str:
        """The id of the task."""
        return self.lease.task

    @property
    def payload(self) -> Any:
        """What the task was enqueued with."""
        return self.lease.payload

    @property
    def attempt(self) -> int:
        """How many times the task was handed out by now: 1 the first time."""
        return self.lease.attempt

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: it ran out, or the task was cancelled or ended by others.

        Whatever the handler does from then on is dropped, so it had better return soon. This is
        noticed within half a second or so.
        """
        return self._lost.is_set()

    def wait_lost(self, seconds: float) -> bool:
        """Sleep so long, or until the lease is lost; whether it is. Not for coroutines, which are
        cancelled when it is."""
        return self._lost.wait(seconds)

    def lose(self) -> None:
        """Called by the worker, once the lease is lost."""
        self._lost.set()
