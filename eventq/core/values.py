"""What the values of a command must be: names, texts, times and collections of ids.

Checked as the command is made, so that a bad value is refused before anything is read or changed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Set
from datetime import UTC, datetime
from typing import Any

from eventq.core.errors import BadValue

__all__ = [
    "LARGEST",
    "NAME_LIMIT",
    "a_kind",
    "a_worker",
    "check_moment",
    "check_name",
    "check_seq",
    "check_whole",
    "dependencies",
    "in_utc",
    "named",
    "optional_text",
    "optional_time",
    "shortened",
    "shown",
    "storable",
    "text",
]

LARGEST = 10**100
"""The largest whole number that is taken: Python does not write, or read, one of any length."""

SHOWN = 200
"""How many characters of a value that is refused are told."""

NAME_LIMIT = 512
"""How many bytes of UTF-8 an id, a key or the name of a worker may have."""


def shown(value: object) -> str:
    """The value as an error tells it: not at length, and whatever it is."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of more digits than Python writes"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def check_name(what: str, value: object) -> None:
    """Raise BadValue unless the value is a non-empty text of at most 512 bytes without controls."""
    if type(value) is not str:
        raise BadValue(f"{what} must be a text, not {shown(value)}")
    if value.isascii() and value.isprintable() and 0 < len(value) <= NAME_LIMIT:
        return
    if not value:
        raise BadValue(f"{what} must not be empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadValue(f"{what} {value[:40]!r} holds a lone surrogate, which no log can") from None
    if size > NAME_LIMIT:
        raise BadValue(f"{what} {value[:40]!r}... has {size} bytes; at most {NAME_LIMIT} fit")
    for character in value:
        if unicodedata.category(character) == "Cc":
            raise BadValue(f"{what} {value[:40]!r} holds the control character {character!r}")


def check_whole(what: str, value: object, least: int, *, optional: bool = False) -> None:
    """Raise BadValue unless the value is a whole number (never a bool) of at least `least` and at
    most LARGEST, or None where that is optional."""
    if optional and value is None:
        return
    if type(value) is not int or not least <= value <= LARGEST:
        most = " and at most 10**100" if type(value) is int and value > LARGEST else ""
        none = " or None" if optional else ""
        raise BadValue(
            f"{what} must be a whole number of at least {least}{most}{none}, not {shown(value)}"
        )


def check_seq(value: object) -> None:
    """Raise BadValue unless the value is a whole number, as the seq of an entry is."""
    if type(value) is not int:
        raise BadValue(f"seq must be a whole number, that of an entry, not {shown(value)}")


def check_moment(what: str, value: object) -> datetime:
    """The value in UTC, if it is a datetime with its time zone. Raises BadValue."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise BadValue(f"{what} must be a datetime with its time zone, not {shown(value)}")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise BadValue(f"{what} is {value}, a time that UTC has not") from None


def storable(text: str | None) -> str | None:
    """The text with lone surrogates spelled out, so that a failure can always be recorded."""
    if not isinstance(text, str) or (type(text) is str and text.isascii()):
        return text
    return str.encode(text, "utf-8", "backslashreplace").decode()


def shortened(text: str, most: int) -> str:
    """The text with no more bytes of UTF-8 than that; a longer one is cut, and says so."""
    if len(text) <= most // 6:  # no character takes more bytes, spelled out or not
        return text
    data = text[: most + 1].encode(errors="backslashreplace")
    if len(data) <= most:
        return data.decode()
    mark = f"... (cut, {len(text):,} characters in all)"[:most]
    return data[: most - len(mark)].decode(errors="ignore") + mark


def named(what: str) -> Any:
    """A validator: a name, called so in the error."""

    def check(instance: object, attribute: Any, value: object) -> None:
        check_name(what, value)

    return check


def dependencies(value: Iterable[str]) -> tuple[str, ...]:
    """A converter: the ids that a task needs, each once, in the order given."""
    if value == ():
        return ()
    if isinstance(value, str | bytes):
        raise BadValue(f"after must be a collection of ids, not the text {shown(value)}")
    try:
        # A set has no order of its own, and none that comes of hashing may show anywhere.
        return tuple(sorted(value) if isinstance(value, Set) else dict.fromkeys(value))
    except TypeError as error:
        raise BadValue(f"after must be a collection of ids: {error}") from None


def a_worker(instance: object, attribute: Any, value: object) -> None:
    """A validator: the name of a worker, or in memory any hashable value."""
    if isinstance(value, str):
        check_name("the name of a worker", value)
    else:
        try:
            hash(value)
        except TypeError:
            raise BadValue(f"a worker must be hashable, not {shown(value)}") from None


def optional_text(instance: object, attribute: Any, value: object) -> None:
    """A validator: a text, or None."""
    if value is not None and not isinstance(value, str):
        raise BadValue(f"{attribute.name} must be a text or None, not {shown(value)}")


def text(instance: object, attribute: Any, value: object) -> None:
    """A validator: a text."""
    if not isinstance(value, str):
        raise BadValue(f"{attribute.name} must be a text, not {shown(value)}")


def a_kind(instance: object, attribute: Any, value: object) -> None:
    """A validator: the kind of a failure."""
    if value not in ("retryable", "permanent"):
        raise BadValue(f"kind must be 'retryable' or 'permanent', not {shown(value)}")


def in_utc(value: object) -> object:
    """A converter: the same moment, told in UTC, as the log does."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return check_moment("the moment", value)
    return value


def optional_time(instance: object, attribute: Any, value: object) -> None:
    """A validator: a time with its zone, or None."""
    if value is not None:
        check_moment(attribute.name, value)
