"""What a worker tells of its work while it goes on: one method for each thing that happens.

`Witness` itself writes to the logger `eventq.worker`. Make a subclass to print or to count; its
methods may be called from several threads at once.
"""

from __future__ import annotations

import logging

from eventq.core.record import Lease, Task
from eventq.worker.outcome import Failure

__all__ = ["Witness"]

_log = logging.getLogger("eventq.worker")

SHOWN = 1000
"""How many characters of an error are logged; the queue has the whole."""


class Witness:
    """Tells the log of Python."""

    def began(self, lease: Lease) -> None:
        """The handler is called."""
        _log.debug("task %r: attempt %d begins", lease.task, lease.attempt)

    def succeeded(self, lease: Lease) -> None:
        """The queue has the result."""
        _log.info("task %r: succeeded", lease.task)

    def failed(self, lease: Lease, failure: Failure, task: Task) -> None:
        """The queue has the failure; `task` is how the task stands after it."""
        _log.warning(
            "task %r: attempt %d failed, and it is %s now: %s\n%s",
            lease.task,
            lease.attempt,
            task.status,
            _inert(failure.error[:SHOWN]),
            _inert(failure.trace),
        )

    def handed_back(self, lease: Lease) -> None:
        """The worker stops, so the task went back to the queue, at no attempt."""
        _log.info("task %r: handed back", lease.task)

    def dropped(self, lease: Lease) -> None:
        """The lease was lost meanwhile, so what the handler did counts for nothing."""
        _log.warning("task %r: lease %d was lost, its work is dropped", lease.task, lease.id)

    def busy(self, worker: str, task: str, lease: int) -> None:
        """A worker of this name holds a task already, left by an earlier run or held by another
        worker of the same name: it waits until that lease has ended."""
        _log.warning("worker %r waits: lease %d of task %r is in its name", worker, lease, task)


def _inert(text: str) -> str:
    """Text in which nothing acts on a terminal; lines are kept."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
