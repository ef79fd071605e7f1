"""How long a task waits before it is tried again: by rule, never by draw."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

from eventq.core.policy import Backoff

__all__ = ["delay", "fraction", "later"]

THE_END = datetime.max.replace(tzinfo=UTC)


def fraction(queue: str, task: str, redrives: int, attempt: int) -> float:
    """A number from 0 up to, not including, 1: the first 53 bits of SHA-256 over these four,
    joined by newlines, as UTF-8."""
    digest = sha256("\n".join((queue, task, str(redrives), str(attempt))).encode()).digest()
    return (int.from_bytes(digest[:7]) >> 3) / (1 << 53)


def delay(backoff: Backoff, queue: str, task: str, redrives: int, attempt: int) -> timedelta:
    """The wait after this attempt: `base * factor ** attempt`, at most the cap, with jitter.

    Very large attempt numbers give the cap, never an overflow.
    """
    cap = backoff.cap
    try:
        whole = min(backoff.base * backoff.factor**attempt, cap)
    except OverflowError:
        whole = cap
    if backoff.jitter == "none":
        return whole
    part = fraction(queue, task, redrives, attempt)
    if backoff.jitter == "full":
        return whole * part
    return whole / 2 + whole / 2 * part


def later(at: datetime, by: timedelta) -> datetime:
    """The time after this wait; at the latest the last that a datetime can tell."""
    try:
        return at + by
    except OverflowError:
        return THE_END
