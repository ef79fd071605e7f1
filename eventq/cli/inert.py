"""Text from outside on its way to a terminal: nothing in it may act, only be read."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["inert", "storable"]

_ACTING = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_COLOUR = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")


def inert(text: str) -> str:
    """The text with each control character, direction mark or lone surrogate spelled out."""
    if text.isprintable():
        return text
    return "".join(
        _spelled(character) if unicodedata.category(character) in _ACTING else character
        for character in text
    )


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def storable(data: bytes, most: int = 300) -> str:
    """The last line of some output that says anything, as a short text that any log can hold.

    Colours are dropped; bytes that are no UTF-8 become U+FFFD.
    """
    text = _COLOUR.sub("", data.decode(errors="replace"))
    lines = (line.strip() for line in reversed(re.split(r"[\r\n]", text)))
    last = inert(next(filter(None, lines), ""))
    return last if len(last) <= most else last[: most - 3] + "..."
