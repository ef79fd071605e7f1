"""How events, policies and the answers of `why` are told in words: one line each, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    Unblocked,
)
from eventq.core.policy import Policy

__all__ = ["EVENTS", "counted", "policy_words", "tell"]


def counted(number: int, one: str, many: str = "") -> str:
    """The number with its word: 1 task, 2 tasks."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def policy_words(policy: Policy) -> str:
    """What was agreed for a queue."""
    retry, capacity = policy.retry, policy.capacity
    parts = [
        "unlimited attempts"
        if retry.max_attempts is None
        else counted(retry.max_attempts, "attempt"),
        "never parks"
        if retry.max_redrives is None
        else f"parks after {counted(retry.max_redrives, 'redrive')}",
    ]
    if retry.max_releases is not None:
        parts.append(f"at most {counted(retry.max_releases, 'release')} in a row")
    if capacity is not None:
        parts.append(f"room for {capacity.limit:,} {capacity.counts}")
    if policy.pool is not None:
        parts.append(f"pool {', '.join(map(str, policy.pool)) or 'of nobody'}")
    if policy.retention is not None:
        parts.append(f"keeps {policy.retention.count:,} finished")
    return ", ".join(parts)


def _json(text: bytes | None) -> str:
    return "" if text is None else text.decode(errors="backslashreplace")


def _enqueued(event: Enqueued) -> str:
    parts = ["enqueued"]
    if event.after:
        parts.append(f"after {', '.join(event.after)}")
    if event.key is not None:
        parts.append(f"key {event.key}")
    parts.append("any attempts" if event.max_attempts is None else f"max {event.max_attempts}")
    if event.payload is not None:
        parts.append(f"payload {_json(event.payload)}")
    return ", ".join(parts)


def _started(event: Started) -> str:
    to = "nobody named" if event.worker is None else event.worker
    return f"handed out to {to}, attempt {event.attempt}"


def _with(word: str, rest: str | None) -> str:
    return f"{word}: {rest}" if rest else word


def _failed(event: Failed) -> str:
    permanent = ", for good" if event.kind == "permanent" else ""
    return _with(f"failed attempt {event.attempt}{permanent}", event.error)


EVENTS: dict[type[Event], str | Callable[[Any], str]] = {
    Enqueued: _enqueued,
    Readied: "ready, at the back of the line",
    Delayed: "delayed until {e.until}",
    Started: _started,
    Renewed: "renewed until {e.expires}",
    Released: "handed back unworked, to its place in the line",
    Completed: lambda e: _with("succeeded", e.result and f"result {_json(e.result)}"),
    Failed: _failed,
    Expired: "failed attempt {e.attempt}: lease expired",
    Died: "dead",
    Parked: "parked: a person must look",
    Blocked: "blocked by {e.root}",
    Unblocked: "unblocked",
    Redriven: "redriven: attempts start afresh",
    Restored: "restored: attempts start afresh",
    Resolved: "resolved by hand: succeeded",
    Cancelled: lambda e: _with("cancelled", e.error),
    Forgotten: "forgotten: the queue knows it no more",
    Opened: lambda e: f"queue {e.queue} opened: {policy_words(e.policy)}",
    Closed: "closed to new tasks",
    Reopened: "open to new tasks again",
    Paused: "paused: nothing is handed out",
    Resumed: "resumed",
    Reconfigured: lambda e: f"agreed anew: {policy_words(e.policy)}",
}
"""For each event its sentence, `e` being the event, or what makes it."""


def tell(event: Event) -> str:
    """What has happened, without the task's name."""
    told = EVENTS[type(event)]
    return told.format(e=event) if isinstance(told, str) else told(event)
