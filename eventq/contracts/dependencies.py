"""The dependency contract: tasks that wait for each other, are retried, die and are redriven.

A task may name tasks that nobody has submitted yet. When one dies, whatever waits for it, directly
or not, is BLOCKED until it is redriven. All tasks are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from eventq.contracts.face import Face, Path, whole
from eventq.core.errors import CycleError, OtherContent, StaleLease, WrongStatus
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy, Retry
from eventq.core.values import check_name

__all__ = ["CycleError", "WorkQueue"]


class WorkQueue(Face):
    """Tasks, known by their ids, each of which is tried at most `max_attempts` times.

    An id is a non-empty text of at most 512 bytes of UTF-8 without control characters, and does
    not begin with `#`. With a `path` the queue outlives the process.
    """

    def __init__(self, max_attempts: int, path: Path | None = None) -> None:
        attempts = whole("max_attempts", max_attempts, 1)
        super().__init__(path, Policy(retry=Retry(attempts, max_redrives=None)))
        self._submitting = threading.Lock()

    def submit(self, task: str, deps: Iterable[str] = ()) -> bool:
        """Add a task that needs these to succeed first; False when its id is known already.

        A known id is answered whatever `deps` says. Raises CycleError, a ValueError, when the
        task would wait for itself; nothing is changed then.
        """
        check_name("a task's id", task)
        with self._submitting:
            if task in self._queue.state:
                return False
            try:
                self._queue.enqueue(task, after=deps)
            except OtherContent:
                return False
            return True

    def next_ready(self) -> str | None:
        """Hand out the task that has been ready for longest; None when none is."""
        lease = self._queue.start()
        return None if lease is None else lease.task

    def complete(self, task: str) -> bool:
        """A running task has succeeded; False when it is not running."""
        lease = self._lease(task)
        if lease is None:
            return False
        try:
            self._queue.complete(lease)
        except StaleLease:
            return False
        return True

    def fail(self, task: str, error: str = "") -> str | None:
        """A running task has failed: it is READY again, or DEAD after its last attempt.

        None when it is not running.
        """
        lease = self._lease(task)
        if lease is None:
            return None
        try:
            return self._queue.fail(lease, error).status.value
        except StaleLease:
            return None

    def _lease(self, task: str) -> int | None:
        record = self._queue.state.record(task)
        return None if record is None else record.lease

    def status(self, task: str) -> str | None:
        """PENDING, READY, RUNNING, SUCCEEDED, DEAD or BLOCKED; None when it is unknown."""
        record = self._queue.state.record(task)
        return None if record is None else record.status.value

    def dead_letters(self) -> list[tuple[str, str]]:
        """The DEAD and BLOCKED tasks with their reasons, in the order in which they came there."""
        return [(letter.id, letter.reason) for letter in self._queue.dead_letters()]

    def redrive(self, task: str) -> bool:
        """Give a DEAD task fresh attempts, any number of times; False when it is not DEAD."""
        record = self._queue.state.record(task)
        if record is None or record.status is not Status.DEAD:
            return False
        try:
            self._queue.redrive(task)
        except WrongStatus:
            return False
        return True
