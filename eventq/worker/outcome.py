"""What becomes of a lease: how a handler ended, in which words it failed, and telling the queue.

Threads, processes and asyncio differ in how they call a handler. What comes of it is here, once.
Nothing that a handler raises gets past `perform`, and no lease that was lost gets past `settle`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from attrs import frozen

from eventq.core.errors import BadValue, StaleLease, UnknownWorker
from eventq.core.events import Kind
from eventq.core.policy import seconds
from eventq.core.record import Lease
from eventq.core.values import shortened
from eventq.worker.context import Context, Permanent, TaskFailed
from eventq.workqueue import WorkQueue

if TYPE_CHECKING:
    from eventq.worker.witness import Witness

__all__ = [
    "ERROR_LIMIT",
    "Done",
    "Failure",
    "HandedBack",
    "Handler",
    "Outcome",
    "failure",
    "not_storable",
    "perform",
    "settle",
]

Handler = Callable[[Context], Any]

ERROR_LIMIT = 64 * 1024
"""How many bytes of an error are kept. A longer one is cut, and says so."""

LINE_LIMIT = 400
TRACE_LIMIT = 8 * 1024
"""How many characters of a line of a traceback, and of the whole, are logged."""


@frozen
class Done:
    """The handler has returned this."""

    result: Any = None


@frozen
class Failure:
    """The handler has raised, or its process is gone. `trace` is for the log of Python alone."""

    error: str
    kind: Kind = "retryable"
    retry_after: timedelta | None = None
    trace: str = ""


@frozen
class HandedBack:
    """The task was not worked to an end, and that is no fault of its own."""


Outcome = Done | Failure | HandedBack


def perform(
    handler: Handler, context: Context, permanent: tuple[type[BaseException], ...]
) -> Outcome:
    """Call a handler, in this thread."""
    try:
        return Done(handler(context))
    except BaseException as error:  # noqa: BLE001  # SystemExit too is but a failure of this task
        return failure(error, permanent)


# Words for a failure.


def failure(error: BaseException, permanent: tuple[type[BaseException], ...]) -> Failure:
    """What the queue is told of an exception, which may be as hostile as it likes."""
    final = issubclass(type(error), (Permanent, *permanent))
    return Failure(
        shortened(_shown(error), ERROR_LIMIT),
        "permanent" if final else "retryable",
        _retry_after(error),
        _trace(error),
    )


def not_storable(error: BaseException) -> Failure:
    """The failure of a task whose result no queue could take: the next would be no better."""
    why = str(error) if type(error) is BadValue else _shown(error)
    return Failure(shortened(f"the result cannot be stored: {why}", ERROR_LIMIT), "permanent")


def _shown(error: BaseException) -> str:
    """Its type and its text; of a `TaskFailed` the text alone."""
    name = "an exception"
    try:
        name = _plain(type(error).__name__)
        text = _plain(str(error))
    except BaseException as worse:  # noqa: BLE001  # __str__ may raise anything
        return f"{name} (why cannot be told: {_kind(worse)})"
    if not text:
        return name
    return text if type(error) in (TaskFailed, Permanent) else f"{name}: {text}"


def _kind(error: BaseException) -> str:
    try:
        return _plain(type(error).__name__)
    except BaseException:  # noqa: BLE001
        return "an exception"


def _plain(text: str) -> str:
    """The same text, of the type str itself: a subclass may behave in any way."""
    return "".join((text,))


def _trace(error: BaseException) -> str:
    try:
        lines = "".join(traceback.format_exception(error)).split("\n")
        return "\n".join(line[:LINE_LIMIT] for line in lines)[:TRACE_LIMIT].rstrip()
    except BaseException:  # noqa: BLE001
        return ""


def _retry_after(error: BaseException) -> timedelta | None:
    """When to try again, where it says so in a way that makes sense."""
    if not issubclass(type(error), TaskFailed):
        return None
    try:
        wait = seconds(error.retry_after)  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001  # a subclass may have anything in its place
        return None
    return wait if type(wait) is timedelta and wait >= timedelta() else None


# Telling the queue.


def settle(
    q: WorkQueue,
    lease: Lease,
    outcome: Outcome,
    witness: Witness,
    *,
    lease_for: timedelta | None = None,
    go_on: bool = False,
) -> Lease | None:
    """Tell the queue what became of a lease; with `go_on`, the next one of its worker, if the
    queue has one to give along with its answer.

    A lease that was lost meanwhile is dropped.
    """
    following = None
    try:
        match outcome:
            case Done(result):
                try:
                    following = _complete(q, lease, result, lease_for, go_on=go_on)
                except BadValue as error:
                    return settle(q, lease, not_storable(error), witness)
                witness.succeeded(lease)
            case Failure(error, kind, retry_after):
                task = q.fail(lease, error, kind=kind, retry_after=retry_after)
                witness.failed(lease, outcome, task)
            case HandedBack():
                q.release(lease)
                witness.handed_back(lease)
    except StaleLease:
        witness.dropped(lease)
    return following


def _complete(
    q: WorkQueue, lease: Lease, result: Any, lease_for: timedelta | None, *, go_on: bool
) -> Lease | None:
    if go_on:
        try:
            return q.complete_and_start(lease, result, lease_for=lease_for)
        except UnknownWorker:
            pass  # the pool was changed: what is done is done, though the worker gets no more
    q.complete(lease, result)
    return None
