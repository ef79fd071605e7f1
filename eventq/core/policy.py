"""What was agreed for a queue: room, pool, retries, leases, keys and retention.

The policy is part of the state, because it is part of the history: it comes in with the first
event of the log. A field that an older log lacks means off.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from datetime import timedelta
from math import isfinite
from typing import Any, Literal

from attrs import field, frozen

from eventq.core.errors import BadValue
from eventq.core.values import LARGEST, check_whole, shown

__all__ = [
    "Backoff",
    "Capacity",
    "Keys",
    "Policy",
    "Retention",
    "Retry",
    "at_least",
    "length",
    "seconds",
]

Counts = Literal["waiting", "unresolved"]
Jitter = Literal["none", "full", "equal"]
OnDeath = Literal["open", "halt"]


def at_least(least: int, *, optional: bool = False) -> Any:
    """A validator: a whole number (never a bool) of at least `least`, or None where optional."""

    def check(instance: object, attribute: Any, value: object) -> None:
        if type(value) is not int or not least <= value <= LARGEST:
            check_whole(attribute.name, value, least, optional=optional)

    return check


def _counts(instance: object, attribute: Any, value: object) -> None:
    if value not in ("waiting", "unresolved"):
        raise BadValue(f"counts must be 'waiting' or 'unresolved', not {shown(value)}")


@frozen
class Capacity:
    """How many tasks may be in the queue at once; it limits enqueueing and nothing else.

    `counts="waiting"` counts tasks PENDING, READY and DELAYED, `"unresolved"` RUNNING ones too.
    """

    limit: int = field(validator=at_least(0))
    counts: Counts = field(default="waiting", validator=_counts)


def _is(kind: type, *, optional: bool = True) -> Any:
    def check(instance: object, attribute: Any, value: object) -> None:
        if not (isinstance(value, kind) or (optional and value is None)):
            none = " or None" if optional else ""
            raise BadValue(f"{attribute.name} must be a {kind.__name__}{none}, not {shown(value)}")

    return check


def _on_death(instance: object, attribute: Any, value: object) -> None:
    if value not in ("open", "halt"):
        raise BadValue(f"on_death must be 'open' or 'halt', not {shown(value)}")


def _to_float(value: object) -> object:
    return float(value) if type(value) is int else value


def seconds(value: object) -> Any:
    """A converter: whole or broken seconds as a timedelta; anything else as it is."""
    if type(value) is int or (type(value) is float and isfinite(value)):
        try:
            return timedelta(seconds=value)
        except OverflowError:
            return value
    return value


def length(least: timedelta, *, optional: bool = False) -> Any:
    """A validator: a timedelta of at least `least`, or None where optional."""

    def check(instance: object, attribute: Any, value: object) -> None:
        if optional and value is None:
            return
        if not isinstance(value, timedelta) or not least <= value <= A_CENTURY:
            none = " or None" if optional else ""
            raise BadValue(
                f"{attribute.name} must be a timedelta or seconds, at least "
                f"{least.total_seconds():g} s and at most a century{none}, not {shown(value)}"
            )

    return check


A_CENTURY = timedelta(days=36525)
"""The longest time: what is longer, a float of seconds would not give back the same."""

A_MOMENT = timedelta(microseconds=1)
"""The shortest time that the log can tell."""


def _factor(instance: object, attribute: Any, value: object) -> None:
    if type(value) is not float or not isfinite(value) or value < 1:
        raise BadValue(f"factor must be a number of at least 1, not {shown(value)}")


def _jitter(instance: object, attribute: Any, value: object) -> None:
    if value not in ("none", "full", "equal"):
        raise BadValue(f"jitter must be 'none', 'full' or 'equal', not {shown(value)}")


@frozen
class Backoff:
    """How long a task waits after a failure: `base * factor ** attempt`, at most `cap`.

    Of that, jitter "full" takes a fraction, "equal" one half and a fraction of the other; the
    fraction follows from the queue, the task and the attempt, so that it can be told again.
    """

    base: timedelta = field(converter=seconds, validator=length(A_MOMENT))
    factor: float = field(default=2.0, converter=_to_float, validator=_factor)
    cap: timedelta = field(
        default=timedelta(hours=1), converter=seconds, validator=length(A_MOMENT)
    )
    jitter: Jitter = field(default="none", validator=_jitter)


@frozen
class Retry:
    """How often a task is tried, and how long it waits in between.

    `max_attempts` hand-outs before it is DEAD (None: no limit; each task may have its own);
    `max_redrives` before another death parks it (None: never); `max_releases` in a row before one
    more counts as a failure (None: no limit); `backoff` None tries again at once.
    """

    max_attempts: int | None = field(default=3, validator=at_least(1, optional=True))
    max_redrives: int | None = field(default=3, validator=at_least(0, optional=True))
    max_releases: int | None = field(default=None, validator=at_least(0, optional=True))
    backoff: Backoff | None = field(default=None, validator=_is(Backoff))


@frozen
class Keys:
    """What the death of a task does to its key: "open" lets the next one go, "halt" none."""

    on_death: OnDeath = field(default="open", validator=_on_death)


@frozen
class Retention:
    """Which finished tasks, that nothing unfinished names, are kept; the log keeps them all.

    At most `count` (0 keeps none; None: any number), each for at most `age` after its end (None:
    for ever). The oldest go first.
    """

    count: int | None = field(default=None, validator=at_least(0, optional=True))
    age: timedelta | None = field(
        default=None, converter=seconds, validator=length(timedelta(0), optional=True)
    )


def _pool(value: Iterable[Hashable] | None) -> tuple[Hashable, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes):
        raise BadValue(f"pool must be a collection of workers, not the text {shown(value)}")
    try:
        # A set has no order of its own, and none that comes of hashing may show anywhere.
        pool = tuple(sorted(value, key=repr) if isinstance(value, Set) else dict.fromkeys(value))
    except TypeError as error:
        raise BadValue(f"pool must be a collection of hashable workers: {error}") from None
    if None in pool:
        raise BadValue("pool: None is nobody's name and cannot be a worker of a fixed pool")
    return pool


def _bool(instance: object, attribute: Any, value: object) -> None:
    if type(value) is not bool:
        raise BadValue(f"{attribute.name} must be True or False, not {shown(value)}")


@frozen
class Policy:
    """All that was agreed. No capacity: no limit. No pool: anyone. No retention: keep all.

    `lease_for` is how long a lease runs unless a start says otherwise (None: for ever); with
    `record`, starts that got nothing and refusals are kept in the log too, as entries without
    events.
    """

    capacity: Capacity | None = field(default=None, validator=_is(Capacity))
    pool: tuple[Hashable, ...] | None = field(default=None, converter=_pool)
    members: frozenset[Hashable] = field(init=False, eq=False, repr=False)
    """The same pool, to ask whether somebody is in it."""
    retry: Retry = field(factory=Retry, validator=_is(Retry, optional=False))
    retention: Retention | None = field(default=None, validator=_is(Retention))
    lease_for: timedelta | None = field(
        default=None, converter=seconds, validator=length(A_MOMENT, optional=True)
    )
    keys: Keys = field(factory=Keys, validator=_is(Keys, optional=False))
    record: bool = field(default=False, validator=_bool)

    @members.default
    def _members(self) -> frozenset[Hashable]:
        return frozenset(self.pool or ())
