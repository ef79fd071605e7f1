"""Plain values to attrs classes and back, strictly: the one cattrs converter.

For policies, flow files and whatever `--json` prints. Where cattrs would quietly make a number of
"1", this converter refuses, and it knows no field that the class does not.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import cattrs

__all__ = ["in_seconds", "moment", "structure", "unstructure"]

T = TypeVar("T")


def moment(at: datetime) -> str:
    """A time as the log spells it: UTC, always with six decimals."""
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return utc.isoformat("T", "microseconds")[:-6] + "Z"


def _exactly(kind: type) -> Any:
    def check(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r} is not {kind.__name__}")
        return value

    return check


def _name(value: Any, _: Any) -> str | None:
    """The name of a worker, or None for nobody named."""
    if value is not None and type(value) is not str:
        raise TypeError(f"{value!r} is not the name of a worker")
    return value


def _time(value: Any, _: Any) -> datetime:
    if type(value) is not str:
        raise TypeError(f"{value!r} is not a time")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError(f"{value!r} does not say its time zone")
    return at


def in_seconds(length: timedelta) -> float:
    """A length of time as the log spells it: a number of seconds, with a point."""
    return length.total_seconds()


def _length(value: Any, _: Any) -> timedelta:
    if type(value) is not float:
        raise TypeError(f"{value!r} is not a number of seconds with a point")
    return timedelta(seconds=value)


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    """A list alone makes a tuple; cattrs would take a text for the list of its letters."""
    if type(value) is not list:
        raise TypeError(f"{value!r} is not a list")
    of = get_args(kind)[0]
    return tuple(_converter.structure(item, of) for item in value)


_converter = cattrs.Converter(forbid_extra_keys=True)
for _kind in (int, str, bool):
    _converter.register_structure_hook(_kind, _exactly(_kind))
_converter.register_structure_hook(datetime, _time)
_converter.register_structure_hook_func(lambda kind: kind is Hashable, _name)
_converter.register_structure_hook_func(_is_tuple, _tuple)
_converter.register_structure_hook(timedelta, _length)
_converter.register_structure_hook(float, _exactly(float))
_converter.register_unstructure_hook(datetime, moment)
_converter.register_unstructure_hook(timedelta, in_seconds)
_converter.register_unstructure_hook(Path, str)


def structure(value: Any, kind: type[T]) -> T:
    """This plain value as that class. Raises cattrs' BaseValidationError, TypeError, ValueError."""
    return _converter.structure(value, kind)


def unstructure(value: Any) -> Any:
    """This value as dicts, lists, texts and numbers."""
    return _converter.unstructure(value)
