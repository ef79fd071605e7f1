"""The pool contract: a fixed pool of workers, and a limit on the jobs that are not done yet.

Admission can be closed; what was admitted drains. What is done is kept, in the order in which it
was done.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Any

from eventq.contracts.face import Face, Path, named, whole
from eventq.core.errors import (
    BadValue,
    QueueClosed,
    QueueFull,
    StaleLease,
    UnknownWorker,
    WorkerBusy,
)
from eventq.core.policy import Capacity, Policy, Retry
from eventq.core.record import plain

__all__ = ["WorkerPool"]


class WorkerPool(Face):
    """Workers that hold a job each, and at most `capacity` jobs ready or busy.

    `workers` is their number, and they are known as 0 to n - 1, or a collection of ids. In memory
    a job is any object, never looked into, and comes back as the same object; a worker is known
    by any hashable value. With a `path` the pool outlives the process: jobs are JSON values, and
    workers are texts or whole numbers.
    """

    def __init__(
        self, workers: int | Iterable[Hashable], capacity: int, path: Path | None = None
    ) -> None:
        self._names = {worker: named(worker, path) for worker in _ids(workers)}
        pool = tuple(self._names.values())
        if path is not None:  # a set of ids comes in another order each time
            pool = tuple(sorted(pool, key=str))
        super().__init__(
            path,
            Policy(
                capacity=Capacity(whole("capacity", capacity, 0), "unresolved"),
                pool=pool,
                retry=Retry(max_attempts=None, max_redrives=None),
            ),
        )

    def _known(self, worker: Hashable) -> Hashable:
        """How the queue is told of this worker of the pool. Raises UnknownWorker, a ValueError."""
        try:
            return self._names[worker]
        except (KeyError, TypeError):
            raise UnknownWorker(worker, tuple(islice(self._names, 11))) from None

    def submit(self, job: Any) -> bool:
        """Add a job; False when there is no room, or admission is closed."""
        try:
            self._queue.enqueue(None, job)
        except (QueueFull, QueueClosed):
            return False
        return True

    def claim(self, worker: Hashable) -> Any:
        """Give the first ready job to this worker; None when there is none, or it is busy."""
        try:
            lease = self._queue.start(self._known(worker))
        except WorkerBusy:
            return None
        return None if lease is None else lease.payload

    def complete(self, worker: Hashable) -> Any:
        """The job of this worker is done, and given back. Raises ValueError for an idle one."""
        lease = self._held(self._known(worker))
        if lease is not None:
            try:
                self._queue.complete(lease)
            except StaleLease:
                lease = None
        if lease is None:
            raise ValueError(f"worker {worker!r} is idle: it has no job to complete")
        return lease.payload

    def close(self) -> None:
        """Admit no more jobs; those admitted drain. Closing twice is harmless."""
        self._queue.close()

    @property
    def closed(self) -> bool:
        """Whether admission is closed."""
        return self._queue.state.admission == "closed"

    @property
    def ready(self) -> list[Any]:
        """The jobs that nobody has yet, first come first; changing it changes nothing."""
        return [task.payload for task in self._queue.state.line()]

    @property
    def busy(self) -> dict[Any, Any]:
        """The job of each worker that has one; changing it changes nothing."""
        return self._out(self._queue.state)

    @property
    def done(self) -> list[Any]:
        """The jobs that are done, in the order in which they were; changing it changes nothing."""
        state = self._queue.state
        records = (state.record(task) for _, task in state.in_finished)
        return [plain(record.task.payload) for record in records if record is not None]


def _ids(workers: int | Iterable[Hashable]) -> Iterable[Hashable]:
    if isinstance(workers, int):
        return range(whole("workers", workers, 0))
    if isinstance(workers, str | bytes):
        raise BadValue(f"workers must be a number or a collection of ids, not {workers!r}")
    try:
        return dict.fromkeys(workers)
    except TypeError as error:
        raise BadValue(f"workers must be a number or a collection of ids: {error}") from None
