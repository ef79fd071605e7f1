"""What was agreed for a queue: room, pool, retries and retention.

The policy is part of the state, because it is part of the history: it comes in with the first
event of the log. A field that an older log lacks means off.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal

from attrs import field, frozen

from eventq.core.errors import BadValue

__all__ = ["Capacity", "Policy", "Retention", "Retry", "at_least"]

Counts = Literal["waiting", "unresolved"]


def at_least(least: int, *, optional: bool = False) -> Any:
    """A validator: a whole number (never a bool) of at least `least`, or None where optional."""

    def check(instance: object, attribute: Any, value: object) -> None:
        if optional and value is None:
            return
        if type(value) is not int or value < least:
            none = " or None" if optional else ""
            raise BadValue(
                f"{attribute.name} must be a whole number of at least {least}{none}, not {value!r}"
            )

    return check


def _counts(instance: object, attribute: Any, value: object) -> None:
    if value not in ("waiting", "unresolved"):
        raise BadValue(f"counts must be 'waiting' or 'unresolved', not {value!r}")


@frozen
class Capacity:
    """How many tasks may be in the queue at once; it limits enqueueing and nothing else.

    `counts="waiting"` counts tasks PENDING, READY and DELAYED, `"unresolved"` RUNNING ones too.
    """

    limit: int = field(validator=at_least(0))
    counts: Counts = field(default="waiting", validator=_counts)


@frozen
class Retry:
    """How often a task is tried.

    `max_attempts` hand-outs before it is DEAD (None: no limit; each task may have its own);
    `max_redrives` before another death parks it (None: never); `max_releases` in a row before one
    more counts as a failure (None: no limit).
    """

    max_attempts: int | None = field(default=3, validator=at_least(1, optional=True))
    max_redrives: int | None = field(default=3, validator=at_least(0, optional=True))
    max_releases: int | None = field(default=None, validator=at_least(0, optional=True))


@frozen
class Retention:
    """How many finished tasks, that nothing unfinished names, are kept; the log keeps them all.

    `count=0` keeps none. The oldest go first.
    """

    count: int = field(validator=at_least(0))


def _pool(value: Iterable[Hashable] | None) -> tuple[Hashable, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes):
        raise BadValue(f"pool must be a collection of workers, not the text {value!r}")
    try:
        pool = tuple(dict.fromkeys(value))
    except TypeError as error:
        raise BadValue(f"pool must be a collection of hashable workers: {error}") from None
    if None in pool:
        raise BadValue("pool: None is nobody's name and cannot be a worker of a fixed pool")
    return pool


def _is(kind: type) -> Any:
    def check(instance: object, attribute: Any, value: object) -> None:
        if value is not None and not isinstance(value, kind):
            raise BadValue(f"{attribute.name} must be a {kind.__name__} or None, not {value!r}")

    return check


def _retry(instance: object, attribute: Any, value: object) -> None:
    if not isinstance(value, Retry):
        raise BadValue(f"retry must be a Retry, not {value!r}")


@frozen
class Policy:
    """All that was agreed. No capacity: no limit. No pool: anyone. No retention: keep all."""

    capacity: Capacity | None = field(default=None, validator=_is(Capacity))
    pool: tuple[Hashable, ...] | None = field(default=None, converter=_pool)
    retry: Retry = field(factory=Retry, validator=_retry)
    retention: Retention | None = field(default=None, validator=_is(Retention))
