"""Which dead letters a bulk redrive means: a pure choice among the DEAD tasks of a state.

Told by ids, by error or by age, in any combination; whatever is told must hold. PARKED
tasks are never meant: a person must look at each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from attrs import field, frozen

from eventq.core.errors import BadValue
from eventq.core.policy import at_least
from eventq.core.record import Record
from eventq.core.values import check_name, in_utc, optional_time, shown, storable

__all__ = ["How", "Select", "selected"]

How = Literal["exact", "prefix", "glob", "regex"]


def _matches(how: str, pattern: str) -> Callable[[str], bool]:
    if how == "exact":
        return lambda error: error == pattern
    if how == "prefix":
        return lambda error: error.startswith(pattern)
    if how == "glob":
        return lambda error: fnmatchcase(error, pattern)
    search = re.compile(pattern).search
    return lambda error: search(error) is not None


def _how(instance: object, attribute: Any, value: object) -> None:
    if value not in ("exact", "prefix", "glob", "regex"):
        raise BadValue(f"how must be 'exact', 'prefix', 'glob' or 'regex', not {shown(value)}")


def _error(instance: Select, attribute: Any, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise BadValue(f"error must be a text or None, not {shown(value)}")
    try:
        _matches(instance.how, value)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadValue(f"error {shown(value)} is no regular expression: {error}") from None


def _ids(value: Any) -> Any:
    if value is None or isinstance(value, str | bytes):
        return value
    try:
        return tuple(dict.fromkeys(value))
    except TypeError as error:
        raise BadValue(f"tasks must be a collection of ids: {error}") from None


def _check_ids(instance: object, attribute: Any, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, tuple):
        raise BadValue(f"tasks must be a collection of ids or None, not {shown(value)}")
    for name in value:
        check_name("an id in tasks", name)


@frozen
class Select:
    """`tasks` by their ids; by their last `error`, compared as `how` says; those that died before
    or since a time; of all these the `limit` oldest. None: any."""

    tasks: tuple[str, ...] | None = field(default=None, converter=_ids, validator=_check_ids)
    how: How = field(default="exact", validator=_how)
    error: str | None = field(default=None, converter=storable, validator=_error)
    died_before: datetime | None = field(default=None, converter=in_utc, validator=optional_time)
    died_since: datetime | None = field(default=None, converter=in_utc, validator=optional_time)
    limit: int | None = field(default=None, validator=at_least(0, optional=True))


class Dead(Protocol):
    """What a selection asks of a state."""

    def dead(self) -> list[Record]:
        """The DEAD tasks, in the order of their death."""

    def record(self, task: str) -> Record | None:
        """This task."""


def selected(state: Dead, select: Select) -> list[str]:
    """The ids of the DEAD tasks that are meant, in the order of their death."""
    matches = None if select.error is None else _matches(select.how, select.error)
    wanted = None if select.tasks is None else set(select.tasks)
    found: list[str] = []
    for record in state.dead():
        if select.limit is not None and len(found) == select.limit:
            break
        assert record.since is not None
        if (
            (wanted is None or record.task.task in wanted)
            and (matches is None or matches(record.error or ""))
            and (select.died_before is None or record.since < select.died_before)
            and (select.died_since is None or record.since >= select.died_since)
        ):
            found.append(record.task.task)
    return found
