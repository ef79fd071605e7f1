"""At the door of a queue: the values, texts and sizes that it takes, and what it refuses."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec

from eventq.core.commands import Enqueue
from eventq.core.errors import BadValue
from eventq.core.events import Json
from eventq.core.values import NAME_LIMIT, check_name, check_whole, shortened

__all__ = ["SIZE_LIMIT", "Door", "OpenDoor", "Text", "to_json"]

SIZE_LIMIT = 64 * 1024 * 1024
"""How many bytes a caller may send with one command, unless told otherwise: what becomes of it
has no limit, nor has reading."""

DEPTH_LIMIT = 200
"""How deep a value may be nested: every JSON reader in use copes with that."""

_PLAIN = frozenset({str, int, bool, type(None)})

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class Text(Json):
    """A JSON text that is read as fast as can be."""

    __slots__ = ()

    def value(self) -> Any:
        """The value that the text stands for, made afresh at each call. Raises BadValue for one
        that no queue takes."""
        try:
            return _decode(self)
        except (msgspec.DecodeError, RecursionError):
            return self._slowly()

    def _slowly(self) -> Any:
        """What another program wrote, and Python alone reads, if that."""
        try:
            return json.loads(self, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise BadValue(
                f"a payload or result of {len(self):,} bytes in the log is none that a queue takes "
                f"({error}): another program wrote it, and `eventq verify` tells in which entry"
            ) from None


def to_json(what: str, value: Any, limit: int = SIZE_LIMIT, of: str | None = None) -> Json | None:
    """The JSON text of a value. None, and None alone, is told as null.

    Raises BadValue, naming the place (`what`, and the task that it is `of`), for a value that
    would not come back the same: NaN, a tuple or a set, a key that is not a text, a lone
    surrogate, an object of one's own; and for one of more bytes than the limit.
    """
    if value is None:
        return None
    if not _flat(value):
        _check(_place(what, of), value, limit)
    try:
        text = Text(_encode(value))
    except ValueError:  # a lone surrogate, a number that is too long
        _check(_place(what, of), value, limit)
        raise
    if len(text) > limit:
        raise BadValue(f"{_place(what, of)} has {len(text)} bytes as JSON; at most {limit} fit")
    return text


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:40]} is more than a float can be")
    return value


def _flat(value: Any) -> bool:
    """Whether this is as most payloads are: the encoder sees what is wrong with these."""
    if type(value) is not dict:
        return False
    for key, inner in value.items():
        if type(key) is not str or type(inner) not in _PLAIN:
            return False
    return True


def _place(what: str, of: str | None) -> str:
    return what if of is None else f"{what} of {of}"


class Door:
    """What a queue with a path takes of what a caller sends, up to a limit in bytes."""

    def __init__(self, limit: int) -> None:
        check_whole("size_limit", limit, 1)
        self._limit = limit

    def payload(self, what: str, value: Any) -> Any:
        """What the queue holds for this payload or result: its JSON text. Raises BadValue."""
        return to_json(what, value, self._limit)

    def error(self, text: Any) -> Any:
        """What the queue holds of this error text: one longer than the limit is cut, and says so,
        since a failure can always be recorded."""
        return shortened(text, self._limit) if isinstance(text, str) else text

    def check_size(self, what: str, parts: Iterable[str | bytes | None]) -> None:
        """Raise BadValue where these texts have more bytes of UTF-8 together than the limit."""
        size = 0
        for part in parts:
            if part:
                size += len(part.encode() if isinstance(part, str) and not part.isascii() else part)
        if size > self._limit:
            raise BadValue(f"{what} has {size} bytes; at most {self._limit} fit: send less at once")

    def batch(self, tasks: Iterable[Enqueue]) -> list[Enqueue]:
        """What the queue holds of these tasks: each with its payload as JSON. Raises BadValue, also
        where all that is sent with them has more bytes than the limit."""
        held = []
        limit = self._limit
        most = 0  # of what no name adds up to
        for task in tasks:
            payload = to_json("the payload", task.payload, limit, task.id or "the task")
            if payload is not None:
                task = task.holding(payload)
                most += len(payload)
            most += NAME_LIMIT * (2 + len(task.after))
            held.append(task)
        if most > limit:
            sent = ((task.payload, task.id, task.key, *task.after) for task in held)
            self.check_size("the batch", chain.from_iterable(sent))
        return held

    def check_pool(self, pool: Iterable[Any] | None) -> None:
        """Raise BadValue unless these workers have names, which fit into one command."""
        names = tuple(pool or ())
        for name in names:
            check_name("the name of a worker", name)
        self.check_size("the pool", names)


class OpenDoor:
    """What a queue in memory takes: the very objects, of any size."""

    def payload(self, what: str, value: Any) -> Any:  # noqa: ARG002  # as on disk
        """The object itself."""
        return value

    def error(self, text: Any) -> Any:
        """All of it."""
        return text

    def check_size(self, what: str, parts: Iterable[Any]) -> None:
        """Memory is the caller's own."""

    def batch(self, tasks: Iterable[Enqueue]) -> list[Enqueue]:
        """The tasks themselves."""
        return list(tasks)

    def check_pool(self, pool: Iterable[Any] | None) -> None:
        """Workers are any values."""


def _check(what: str, value: Any, limit: int) -> None:
    stack: list[tuple[str, Any, int]] = [(what, value, 0)]
    count = 0
    digits = sys.get_int_max_str_digits() or math.inf
    while stack:
        where, value, depth = stack.pop()
        count += 1
        if 2 * count > limit + 2:  # each has two bytes at least, with its comma
            raise BadValue(f"{what} has more than {limit} bytes as JSON; no more fit")
        kind = type(value)
        if depth > DEPTH_LIMIT:
            raise BadValue(f"{what} is nested deeper than {DEPTH_LIMIT} levels (or holds itself)")
        if kind is str:
            _check_text(where, value)
        elif kind is dict:
            for key, inner in value.items():
                if type(key) is not str:
                    raise BadValue(
                        f"{where} has a key of the type {type(key).__name__}, "
                        "and JSON would give it back as a text"
                    )
                _check_text(f"a key of {where}", key)
                stack.append((f"{where}[{key!r}]" if depth < 4 else where, inner, depth + 1))
        elif kind is list:
            for i, inner in enumerate(value):
                stack.append((f"{where}[{i}]" if depth < 4 else where, inner, depth + 1))
        elif kind is float:
            if not math.isfinite(value):
                raise BadValue(f"{where} is {value!r}, which JSON has not")
        elif kind is int:
            if value.bit_length() > 3 * digits:  # it may have too many
                try:
                    str(value)
                except ValueError:
                    raise BadValue(
                        f"{where} is a number of more digits than Python reads back"
                    ) from None
        elif value is not None and kind is not bool:
            raise BadValue(
                f"{where} is of the type {kind.__name__}, which JSON would not give back the same"
            )


def _check_text(where: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadValue(f"{where} holds a lone surrogate, which UTF-8 has not") from None
