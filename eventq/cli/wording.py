"""How events, policies and the answers of `why` are told in words: one line each, as data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from eventq.cli.show import when
from eventq.core.commands import EnqueueAll
from eventq.core.events import (
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Entry,
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

__all__ = ["EVENTS", "asked_about", "counted", "policy_words", "tell", "tell_nothing"]


MOST = 3
"""How many tasks of a refused batch are named; the rest is counted."""


def counted(number: int, one: str, many: str = "") -> str:
    """The number with its word: 1 task, 2 tasks."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _length(much: timedelta) -> str:
    """A length of time, to the last of its seconds."""
    seconds = much.total_seconds()
    if seconds < 60 or not seconds.is_integer():
        return f"{seconds:.6f}".rstrip("0").rstrip(".") + " s"
    parts = []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        whole, seconds = divmod(seconds, size)
        parts += [f"{whole:.0f} {name}"] if whole else []
    return " ".join(parts)


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
    if (backoff := retry.backoff) is not None:
        jitter = "" if backoff.jitter == "none" else f" with {backoff.jitter} jitter"
        wait = f"backs off {_length(backoff.base)} x {backoff.factor:g} ^ attempt{jitter}"
        parts.append(f"{wait}, at most {_length(backoff.cap)}")
    if policy.lease_for is not None:
        parts.append(f"leases for {_length(policy.lease_for)}")
    if capacity is not None:
        parts.append(f"room for {capacity.limit:,} {capacity.counts}")
    if policy.pool is not None:
        parts.append(f"pool {', '.join(map(str, policy.pool)) or 'of nobody'}")
    if policy.keys.on_death == "halt":
        parts.append("a death shuts its key")
    if (kept := policy.retention) is not None and (kept.count, kept.age) != (None, None):
        number = "" if kept.count is None else f" {kept.count:,}"
        age = "" if kept.age is None else f" for {_length(kept.age)}"
        parts.append(f"keeps{number} finished{age}")
    if policy.record:
        parts.append("records refusals")
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
    Delayed: lambda e: f"delayed until {when(e.until)}",
    Started: _started,
    Renewed: lambda e: f"renewed until {when(e.expires)}",
    Released: "handed back at no attempt, to its place in the line",
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


def asked_about(entry: Entry) -> tuple[str, ...]:
    """The tasks that a refused command names, where the entry is of one."""
    command = entry.ask.get("command")
    if isinstance(command, EnqueueAll):
        return tuple(task.id for task in command.tasks if task.id is not None)
    names = (getattr(command, name, None) for name in ("id", "task"))
    return tuple(name for name in names if isinstance(name, str))


def tell_nothing(entry: Entry) -> str:
    """What an entry says of which nothing followed: it is of a refusal, or of a start that got
    nothing."""
    refused = entry.ask.get("refused")
    if refused is None:
        return "there was nothing to hand out"
    lease = getattr(entry.ask.get("command"), "lease", None)
    named = asked_about(entry)
    more = f" and {len(named) - MOST:,} more" if len(named) > MOST else ""
    about = ", ".join(named[:MOST]) + more or ("" if lease is None else f"lease {lease}")
    return f"{about + ': ' if about else ''}refused: {refused.replace('_', ' ')}"


def tell(event: Event) -> str:
    """What has happened, without the task's name."""
    told = EVENTS[type(event)]
    return told.format(e=event) if isinstance(told, str) else told(event)
