"""Where choices come from, and what is drawn with them: payloads, lengths of time, policies.

Where the draws come from is left open: a seeded `random.Random`, or hypothesis, which can shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random
from typing import Any, Protocol, TypeVar

from attrs import frozen

from eventq.core.policy import Backoff, Capacity, Keys, Policy, Retention, Retry

__all__ = [
    "IN_MEMORY",
    "LENGTHS",
    "ON_DISK",
    "POOL",
    "Draw",
    "Opaque",
    "Seeded",
    "draw_backoff",
    "draw_policy",
    "draw_time",
]

T = TypeVar("T")

POOL = ("w1", "w2")

LENGTHS = (1, 2, 0.5, 5, 30, 3600)
"""Seconds that a lease may last, a delay, or a retry may wait."""


class Draw(Protocol):
    """Where choices come from."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred draws."""


@frozen
class Seeded:
    """Choices from a seeded source: the same seed gives the same commands."""

    random: Random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random.random() * len(options))]

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent


class Opaque:
    """A payload for a queue in memory, which must hand back the same object and never look at it:
    it cannot be compared with another, nor hashed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise AssertionError(f"payload {self!r} was compared with {other!r}")

    __hash__ = None  # type: ignore[assignment]


IN_MEMORY: tuple[Any, ...] = (Opaque("this"), Opaque("that"), None)
ON_DISK: tuple[Any, ...] = (
    None,
    {"a": 1, "b": [True, "\u2028\x00\N{SNOWMAN}"]},
    {"b": [True, "\u2028\x00\N{SNOWMAN}"], "a": 1},
    {"a": 1.0, "b": [True, "\u2028\x00\N{SNOWMAN}"]},
    1,
    1.0,
    True,
    "1",
)


def draw_time(draw: Draw) -> timedelta:
    """How far the clock moves: a little, seldom much, and sometimes back."""
    if draw.chance(20):
        return timedelta(seconds=draw.pick((-1, -0.5, -30, -7200)))
    if draw.chance(15):
        return timedelta(seconds=draw.pick((3600, 86400)))
    return timedelta(seconds=draw.pick((1, 0.5, 2, 5, 31)))


def draw_backoff(draw: Draw) -> Backoff:
    """Waits that come to an end within a few commands, and some that nobody lives to see."""
    cap = draw.pick((30, 2, 1e-6, 36_525 * 86_400))
    base, factor = draw.pick((1, 0.5, 1e-6, 86400)), draw.pick((2, 1, 1.5, 1e300))
    return Backoff(base, factor, cap, draw.pick(("none", "full", "equal")))


def draw_policy(draw: Draw) -> Policy:
    """A policy under which much happens within few commands."""
    capacity = None
    if draw.chance(40):
        capacity = Capacity(draw.pick((3, 2, 5, 1, 0)), draw.pick(("waiting", "unresolved")))
    retention = None
    if draw.chance(50):
        age = timedelta(seconds=draw.pick((0, 5, 3600))) if draw.chance(40) else None
        retention = Retention(draw.pick((0, 2, None)), age)
    retry = Retry(
        max_attempts=draw.pick((1, 2, 3, None)),
        max_redrives=draw.pick((None, 1, 3, 0)),
        max_releases=draw.pick((None, 1, 0)),
        backoff=draw_backoff(draw) if draw.chance(40) else None,
    )
    return Policy(
        capacity,
        POOL if draw.chance(30) else None,
        retry,
        retention,
        draw.pick(LENGTHS) if draw.chance(40) else None,
        Keys("halt" if draw.chance(40) else "open"),
        record=draw.chance(25),
    )
