"""How the command line names a place in a log: by the number of an entry, a time, or an age.

A time is all of the day, the minute or the second that it names, as the output of eventq does: what
begins with it begins with its first moment, and what is shown as it stood then, with its last.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from eventq.queries.condition import age
from eventq.storage.lines import seq_at

__all__ = ["When", "WhenType"]


_SHORTEST = timedelta(microseconds=1)


@frozen
class When:
    """What was named: as it was written, the entry or moment just before it, and its last one."""

    told: str
    before: int | datetime
    last: int | datetime

    def since(self, log: Path) -> int:
        """The first entry of it or after it, which need not be there."""
        return _seq(log, self.before) + 1

    def until(self, log: Path) -> int:
        """The last entry of it or before it, which need not be there if its number was told."""
        return _seq(log, self.last)


def _seq(log: Path, then: int | datetime) -> int:
    return then if isinstance(then, int) else seq_at(log, then)


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(?:(?<=:\d\d:\d\d)\.(\d{1,6}))?)?"
    r" ?(Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)


class WhenType(click.ParamType[When]):
    """An entry, of a number that is not below `least`, or a time, or an age."""

    name = "when"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> When:
        if re.fullmatch(r"[0-9]{1,18}", value):
            if int(value) < self._least:
                self.fail("the first entry is 1", param, ctx)
            return When(value, int(value) - 1, int(value))
        try:
            found = _TIME.fullmatch(value)
            extent = _extent(*found.groups()) if found else _ago(value)
        except (ValueError, OverflowError):
            self.fail(
                f"{value!r} is neither the number of an entry, nor a time like "
                "'2026-11-30 15:31:49Z', nor an age like 10m, 2h or 1d",
                param,
                ctx,
            )
        return When(value, *extent)


def _ago(much: str) -> tuple[datetime, datetime]:
    then = datetime.now(UTC) - age(much)
    return then - _SHORTEST, then


def _extent(
    day: str, minute: str | None, second: str | None, fraction: str | None, zone: str | None
) -> tuple[datetime, datetime]:
    """The moment before what is written so, and its last one; without a zone it is UTC."""
    text = f"{day}T{minute or '00:00'}{second or ':00'}.{fraction or '0':0<6}{zone or 'Z'}"
    if minute is None:
        unit = timedelta(days=1)
    elif second is None:
        unit = timedelta(minutes=1)
    else:
        unit = timedelta(microseconds=10 ** (6 - len(fraction or "")))
    begin = datetime.fromisoformat(text).astimezone(UTC)
    return begin - _SHORTEST, begin + (unit - _SHORTEST)
