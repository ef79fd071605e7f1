"""What the contracts share: a queue in memory or on a path, and how it is told of workers.

In memory a worker may be any hashable value, None among them, which the core takes for nobody. So
it is told of a worker as a tuple of one, which is equal to another when the workers are. On a path
it is told of one by a name, the worker as JSON text, from which the worker can be read again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Self

from eventq.core.errors import BadValue
from eventq.core.policy import Policy
from eventq.core.record import Lease
from eventq.core.state import State
from eventq.workqueue import WorkQueue

__all__ = ["Face", "Path", "named", "whole"]

Path = str | os.PathLike[str]


def whole(what: str, value: object, least: int) -> int:
    """The value, if it is a whole number (never a bool) of at least `least`; else BadValue."""
    if type(value) is not int or value < least:
        raise BadValue(f"{what} must be a whole number of at least {least}, not {value!r}")
    return value


def named(worker: Hashable, path: Path | None) -> Hashable:
    """How the queue is told of this worker. Raises TypeError for one that is not hashable."""
    if path is None:
        hash(worker)
        return (worker,)
    if type(worker) not in (str, int):
        raise BadValue(f"on a path a worker must be a text or a whole number, not {worker!r}")
    return json.dumps(worker)


class Face:
    """A queue with this policy, behind the words of a contract.

    Leaving its `with` block, or `shut`, lets go of the files of a path; all stays as it is there.
    """

    def __init__(self, path: Path | None, policy: Policy) -> None:
        agreed: dict[str, Any] = {
            "capacity": policy.capacity,
            "pool": policy.pool,
            "retry": policy.retry,
            "retention": policy.retention,
        }
        self._path = path
        self._queue = (
            WorkQueue.in_memory(history=False, **agreed)
            if path is None
            else WorkQueue.open(path, **agreed)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shut()

    def shut(self) -> None:
        """Let go of the files of a path; opening it again goes on from there."""
        self._queue.shut()

    def _held(self, name: Hashable) -> Lease | None:
        """The lease of the worker that the queue knows by this name."""
        state = self._queue.state
        record = state.held_by(name)
        return None if record is None or record.lease is None else state.lease(record.lease)

    def _out(self, state: State) -> dict[Any, Any]:
        """What each worker holds, in the order of handing out."""
        return {self._worker(lease): lease.payload for lease in state.running()}

    def _worker(self, lease: Lease) -> Any:
        """The worker that the queue was told of, as the caller knows it."""
        name: Any = lease.worker
        return name[0] if self._path is None else json.loads(name)
