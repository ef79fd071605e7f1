"""A condition on the dead letters, for a monitor: `growth > 20/1h or total > 500`.

    condition   = both { "or" both }
    both        = one { "and" one }
    one         = "(" condition ")" | word sign value
    word        = "total" | "dead" | "blocked" | "parked" | "growth" | "oldest"
    sign        = ">" | ">=" | "<" | "<=" | "==" | "!="
    value       = number | number "/" age  (growth: in this time; without one, in an hour)
                | age                      (oldest)
    age         = number ("s" | "m" | "h" | "d")

It is read by hand, into values; nothing of it is ever run as code.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from attrs import frozen

from eventq.queries.letters import HOUR, Letters

__all__ = ["UNITS", "BadCondition", "Condition", "age", "condition"]

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}

COUNTS = ("total", "dead", "blocked", "parked")
WORDS = (*COUNTS, "growth", "oldest")

LONGEST = 1000
DEEPEST = 50
"""How long a condition may be, and how deep its parentheses: more is a slip."""

_TOKEN = re.compile(
    r"\s*(?:([a-z]+)|(\d+(?:\.\d+)?(?:[a-z]+)?(?:/\d+(?:\.\d+)?[a-z]*)?)|([<>=!]=?|[()]))"
)


class BadCondition(ValueError):
    """A text that is no condition; it says where and what was expected there."""


def age(text: str) -> timedelta:
    """An age like 30s, 5m, 2h or 1d. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text, re.ASCII)
    if found is None:
        raise ValueError(f"{text!r} is no length of time like 30s, 5m, 2h or 1d")
    try:
        return timedelta(**{UNITS[found[2]]: float(found[1])})
    except OverflowError:
        raise ValueError(f"{text!r} is longer than any time that can be told") from None


@frozen
class _One:
    """One comparison."""

    word: str
    sign: str
    value: float | timedelta
    window: timedelta

    def holds(self, found: Letters) -> bool:
        """Whether it is so for these letters."""
        have = found.growth(self.window) if self.word == "growth" else getattr(found, self.word)
        return SIGNS[self.sign](have, self.value)


@frozen
class Condition:
    """Several of which all, or any, must hold."""

    every: bool
    parts: tuple[Condition | _One, ...]

    def holds(self, found: Letters) -> bool:
        """Whether it is so for these letters."""
        answers = (part.holds(found) for part in self.parts)
        return all(answers) if self.every else any(answers)


def condition(text: str) -> Condition:
    """The condition that this text tells. Raises BadCondition."""
    if len(text) > LONGEST:
        raise BadCondition(f"it is longer than {LONGEST:,} characters")
    reader = _Reader(text)
    found = reader.any_of(0)
    if reader.next:
        raise BadCondition(f"{reader.next!r} at character {reader.at + 1}: expected `and` or `or`")
    return found


class _Reader:
    """Reads a condition from left to right; `next` is the next word, empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._end = 0
        self.at = 0
        self.next = ""
        self._step()

    def _step(self) -> str:
        """Take the next word, and look at the next."""
        taken = self.next
        self.at = self._end
        while self.at < len(self._text) and self._text[self.at].isspace():
            self.at += 1
        found = _TOKEN.match(self._text, self.at)
        if found is None and self.at < len(self._text):
            raise BadCondition(f"{self._text[self.at]!r} at character {self.at + 1} means nothing")
        self.next = "" if found is None else found[0]
        self._end = len(self._text) if found is None else found.end()
        return taken

    def _wrong(self, expected: str) -> BadCondition:
        where = f"{self.next!r} at character {self.at + 1}" if self.next else "it ends too early"
        return BadCondition(f"{where}: expected {expected}")

    def any_of(self, depth: int) -> Condition:
        parts = [self._all_of(depth)]
        while self.next == "or":
            self._step()
            parts.append(self._all_of(depth))
        return Condition(False, tuple(parts))

    def _all_of(self, depth: int) -> Condition:
        parts = [self._one(depth)]
        while self.next == "and":
            self._step()
            parts.append(self._one(depth))
        return Condition(True, tuple(parts))

    def _one(self, depth: int) -> Condition | _One:
        if self.next == "(":
            if depth == DEEPEST:
                raise BadCondition(f"more than {DEEPEST} parentheses within each other")
            self._step()
            inner = self.any_of(depth + 1)
            if self.next != ")":
                raise self._wrong("`)`, `and` or `or`")
            self._step()
            return inner
        if self.next not in WORDS:
            raise self._wrong(f"one of {', '.join(WORDS)}")
        word = self._step()
        if self.next not in SIGNS:
            raise self._wrong(f"one of {' '.join(SIGNS)}")
        sign = self._step()
        value, window = self._value(word)
        return _One(word, sign, value, window)

    def _value(self, word: str) -> tuple[float | timedelta, timedelta]:
        number, slash, window = self.next.partition("/")
        if word == "oldest":
            try:
                value: float | timedelta = age(self.next)
            except ValueError:
                raise self._wrong("an age like 30s, 5m, 2h or 1d") from None
        else:
            if not re.fullmatch(r"\d+(?:\.\d+)?", number, re.ASCII) or (slash and word != "growth"):
                like = "20 or 20/1h" if word == "growth" else "20"
                raise self._wrong(f"a number like {like}")
            value = float(number)
        if slash:
            try:
                length = age(window)
            except ValueError:
                raise self._wrong("a number and a time like 20/1h") from None
            self._step()
            return value, length
        self._step()
        return value, HOUR
