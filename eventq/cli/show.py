"""Printing: text from outside is inert, columns are aligned, and only a terminal is told less.

Every text goes through `inert` here, so that no command can forget it. On a terminal there are
tables with colour where the word alone says it too: the last column is wrapped (below its row, if
there is no room beside it), long text in the others is cut with an ellipsis. In a pipe there is
plain aligned text, whole. JSON is one value a line, in ASCII, so it is inert too.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import frozen

from eventq.cli.inert import inert

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["LONG", "Column", "Screen", "ago", "emit", "span", "when"]

ELLIPSIS = "…"

LONG = 600
"""How many characters of one text a terminal is given at most."""

LEAST = 24
"""How wide the last column of a terminal's table is at least, where its text asks for so much."""

NARROW = 12
"""How narrow a column that gives becomes to make room for it."""

HANG = 8
"""How far the rest of a line is indented that was wrapped."""

WIDE = 48
"""How wide a column in a pipe grows: what is wider still is whole, and moves its own row alone."""

STYLES = {
    "READY": "cyan",
    "RUNNING": "blue",
    "SUCCEEDED": "green",
    "DEAD": "red",
    "PARKED": "red",
    "BLOCKED": "yellow",
    "CANCELLED": "magenta",
}
"""The colour of a cell that says just this. Colour repeats the word, and is dropped by NO_COLOR."""


@frozen
class Column:
    """The head of one column of a table; `gives` says that it is cut first for want of room. The
    last one is never cut."""

    title: str
    right: bool = False
    gives: bool = False


class Screen:
    """Standard output, as a terminal or as a pipe."""

    def __init__(self) -> None:
        self.terminal = sys.stdout.isatty()
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(highlight=False, markup=False, emoji=False)

    def line(self, text: str = "", style: str = "") -> None:
        """One line, whole: a terminal wraps it where it ends."""
        text = inert(text)
        if self.terminal and style:
            self._console.print(text, style=style, soft_wrap=True)
        else:
            sys.stdout.write(text + "\n")

    def cut(self, text: str, most: int) -> str:
        """The text, on a terminal at most this long."""
        text = inert(text)
        return text if not self.terminal or len(text) <= most else text[: most - 1] + ELLIPSIS

    def fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Lines of a name and what it stands for; a terminal wraps what is too long for one."""
        found = [(name, self.cut(text, LONG)) for name, text in pairs if text]
        if self.terminal:
            self._grid(found)
            return
        width = max((len(name) for name, _ in found), default=0)
        for name, text in found:
            sys.stdout.write(f"{name:<{width}}  {text}\n")

    def row(self, text: str) -> None:
        """One line; on a terminal, what has no room on it stands indented below."""
        text = self.cut(text, LONG)
        if not self.terminal or _width(text) <= self._console.width:
            self.line(text)
            return
        from rich.text import Text

        for number, part in enumerate(Text(text).wrap(self._console, self._console.width - HANG)):
            self.line(" " * HANG * bool(number) + part.plain.rstrip())

    def _grid(self, rows: list[tuple[str, str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            if " " not in text:  # one word is there to be copied
                self.line(f"{name:<{width}}  {text}")
                continue
            grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
            grid.add_column(width=width)
            grid.add_column(overflow="fold")
            grid.add_row(name, Text(text))
            self._console.print(grid)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
        """Rows under their titles."""
        cells = [[self.cut(cell, LONG) for cell in row] for row in rows]
        if self.terminal:
            self._rich(columns, cells)
            return
        lines = [[column.title for column in columns], *cells]
        widths = [min(WIDE, max(map(_width, column))) for column in zip(*lines, strict=True)]
        for line in lines:
            text = "  ".join(map(_padded, columns, line, widths))
            sys.stdout.write(text.rstrip() + "\n")

    def _rich(self, columns: Sequence[Column], rows: list[list[str]]) -> None:
        """A table; where too little room is left for the last column, it stands below its row."""
        from rich.padding import Padding

        lines = [[column.title for column in columns], *rows]
        *widths, last = (max(map(_width, column)) for column in zip(*lines, strict=True))
        room = self._console.width
        beside = room - min(last, LEAST) - 2 * len(columns)
        fitted = _fitted(columns[:-1], widths, beside)
        if sum(fitted) <= beside:
            rest = room - sum(fitted) - 2 * len(columns)
            self._console.print(_grid_of(columns, [*fitted, min(last, rest)], lines))
            return
        fitted = _fitted(columns[:-1], widths, room - 2 * len(widths), least=1)
        for number, line in enumerate(lines):
            self._console.print(_grid_of(columns[:-1], fitted, [line[:-1]], titled=not number))
            if line[-1]:
                below = _cell(line[-1]) if number else _title(line[-1])
                self._console.print(Padding(below, (0, 0, 0, 4)), overflow="fold")


def _grid_of(
    columns: Sequence[Column], widths: list[int], lines: list[list[str]], *, titled: bool = True
) -> Table:
    """These lines in columns of these widths; the first are titles, unless it is said otherwise."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        grid.add_column(
            justify="right" if column.right else "left",
            width=width,
            no_wrap=column.gives,
            overflow="ellipsis" if column.gives else "fold",
        )
    for number, line in enumerate(lines):
        grid.add_row(*map(_cell if number or not titled else _title, line))
    return grid


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(text, style=STYLES.get(text, ""))


def _title(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="bold")


def _fitted(
    columns: Sequence[Column], widths: list[int], room: int, *, least: int = NARROW
) -> list[int]:
    """The widths, less what is too much for this room: the widest of those that give do, and, if
    that is not enough and `least` is less than NARROW, all others down to that."""
    fitted = list(widths)
    while sum(fitted) > room:
        giving = [i for i, column in enumerate(columns) if column.gives and fitted[i] > NARROW]
        if not giving and least < NARROW:
            giving = [i for i, width in enumerate(fitted) if width > least]
        if not giving:
            break
        fitted[max(giving, key=fitted.__getitem__)] -= 1
    return fitted


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(column: Column, text: str, width: int) -> str:
    gap = " " * (width - _width(text))
    return gap + text if column.right else text + gap


def emit(value: Any, *, to_stderr: bool = False) -> None:
    """One JSON value on a line of its own, in ASCII."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write(json.dumps(value) + "\n")


def when(at: datetime | None) -> str:
    """A time as people read it, in UTC, to the second."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}Z"


def span(much: timedelta) -> str:
    """A span of time in its largest unit and the next one, where that is not zero."""
    seconds = max(0, int(much.total_seconds()))
    units = [("d", 86400), ("h", 3600), ("min", 60), ("s", 1)]
    while len(units) > 1 and seconds < units[0][1]:
        del units[0]
    parts: list[str] = []
    for name, size in units[:2]:
        if seconds >= size or not parts:
            parts.append(f"{seconds // size} {name}")
        seconds %= size
    return " ".join(parts)


def ago(at: datetime, now: datetime) -> str:
    """How long ago that was."""
    return f"{span(now - at)} ago" if now >= at else f"in {span(at - now)}"
