"""Printing: text from outside is inert, columns are aligned, and only a terminal is told less.

Every text goes through `inert` here, so that no command can forget it. On a terminal there are
tables with colour where the word alone says it too, and long text is cut with an ellipsis; in a
pipe there is plain aligned text, whole. JSON is one value a line, in ASCII, so it is inert too.
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
    from rich.text import Text

__all__ = ["LONG", "Column", "Screen", "ago", "emit", "span", "when"]

ELLIPSIS = "…"

LONG = 600
"""How many characters of one text a terminal is given at most."""

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
    """The head of one column of a table; `gives` says that it is cut first for want of room."""

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
        """One line, which a terminal cuts at its edge."""
        text = self.cut(text, LONG)
        if self.terminal:
            self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            sys.stdout.write(text + "\n")

    def _grid(self, rows: Iterable[tuple[str, str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for name, text in rows:
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
        from rich.table import Table

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=not column.gives,
                overflow="ellipsis",
            )
        for row in rows:
            table.add_row(*map(_cell, row))
        self._console.print(table)


def _cell(text: str) -> Text:
    from rich.text import Text

    return Text(text, style=STYLES.get(text, ""), no_wrap=True, overflow="ellipsis")


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
    """A span of time in its two largest units."""
    seconds = max(0, int(much.total_seconds()))
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        if seconds >= size:
            parts.append(f"{seconds // size} {name}")
            seconds %= size
    return " ".join(parts[:2]) or "0 s"


def ago(at: datetime, now: datetime) -> str:
    """How long ago that was."""
    return f"{span(now - at)} ago" if now >= at else f"in {span(at - now)}"
