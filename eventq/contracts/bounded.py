"""The bounded contract: room for so many pending items, and workers that hold one each.

Room is asked for by new items alone: an item that is retried goes to the back of the queue whether
there is room or not. What is finished is not kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from eventq.contracts.face import Face, Path, named, whole
from eventq.core.errors import QueueFull, StaleLease, UnknownTask, WorkerBusy, WrongStatus
from eventq.core.policy import Capacity, Policy, Retention, Retry

__all__ = ["WorkQueue"]


class WorkQueue(Face):
    """Items in the order in which they came, at most `max_pending` of them pending.

    In memory an item is any object, never looked into, and comes back as the same object; a worker
    is known by any hashable value. With a `path` the queue outlives the process: items are JSON
    values, and workers are texts or whole numbers.
    """

    def __init__(self, max_pending: int, path: Path | None = None) -> None:
        super().__init__(
            path,
            Policy(
                capacity=Capacity(whole("max_pending", max_pending, 0)),
                retry=Retry(max_attempts=None, max_redrives=None),
                retention=Retention(0),
            ),
        )

    def enqueue(self, item: Any) -> bool:
        """Add an item at the back; False when there is no room."""
        try:
            self._queue.enqueue(None, item)
        except QueueFull:
            return False
        return True

    def start(self, worker_id: Hashable) -> Any:
        """Give the first pending item to this worker; None when there is none, or it holds one."""
        try:
            lease = self._queue.start(named(worker_id, self._path))
        except WorkerBusy:
            return None
        return None if lease is None else lease.payload

    def complete(self, worker_id: Hashable) -> Any:
        """Take the item that this worker has done, and give it back; None when it holds none."""
        lease = self._held(named(worker_id, self._path))
        if lease is None:
            return None
        try:
            self._queue.complete(lease)
        except StaleLease:
            return None
        return lease.payload

    def fail(self, worker_id: Hashable, retry: bool = True) -> Any:
        """Take the item that this worker failed at, and give it back; None when it holds none.

        It goes to the back of the queue, whatever the room; without `retry` it is dropped.
        """
        lease = self._held(named(worker_id, self._path))
        if lease is None:
            return None
        try:
            if retry:
                self._queue.fail(lease)
            else:
                self._queue.cancel(lease.task, lease=lease)
        except (StaleLease, WrongStatus, UnknownTask):
            return None
        return lease.payload

    def snapshot(self) -> dict[str, Any]:
        """What is pending, in order, and what each worker holds; changing it changes nothing."""
        state = self._queue.state
        return {
            "pending": [task.payload for task in state.line()],
            "in_progress": self._out(state),
        }
