"""Figures as people read them: a table with its title, its rows and what was asked of them."""

from __future__ import annotations

from typing import Any, Literal

from attrs import asdict, define, field, frozen

__all__ = ["Asked", "Table", "figure"]


@frozen
class Asked:
    """One requirement and what was measured of it."""

    what: str
    measured: float
    bound: float
    sense: Literal["at most", "at least"] = "at most"

    @property
    def holds(self) -> bool:
        """Whether it is met."""
        if self.sense == "at most":
            return self.measured <= self.bound
        return self.measured >= self.bound

    def __str__(self) -> str:
        verdict = "holds" if self.holds else f"MISSED by {self._by()}"
        return (
            f"{self.what}: {figure(self.measured)}, asked {self.sense} "
            f"{figure(self.bound)}: {verdict}"
        )

    def _by(self) -> str:
        more, less = max(self.measured, self.bound), min(self.measured, self.bound)
        return f"a factor of {figure(more / less)}" if less else "any factor"


@define
class Table:
    """Rows of figures under one title; the first column says what the row is about."""

    title: str
    columns: list[str]
    note: str = ""
    rows: list[list[Any]] = field(factory=list)
    asked: list[Asked] = field(factory=list)

    def row(self, *cells: Any) -> None:
        """Add a row. None is a cell that was not measured."""
        self.rows.append(list(cells))

    def ask(
        self,
        what: str,
        measured: float,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        """Add a requirement, of one bound."""
        if at_most is not None:
            self.asked.append(Asked(what, measured, at_most))
        if at_least is not None:
            self.asked.append(Asked(what, measured, at_least, "at least"))

    def plain(self) -> dict[str, Any]:
        """The table as JSON tells it."""
        asked = [{**asdict(asked), "holds": asked.holds} for asked in self.asked]
        return {
            "title": self.title,
            "note": self.note,
            "columns": self.columns,
            "rows": self.rows,
            "asked": asked,
        }

    def __str__(self) -> str:
        cells = [self.columns, *([figure(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [self.title, "=" * len(self.title)]
        lines += [self.note] if self.note else []
        for number, row in enumerate(cells):
            first, *rest = zip(row, widths, strict=True)
            texts = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in rest)]
            lines.append("  ".join(texts).rstrip())
            if not number:
                lines.append("  ".join("-" * width for width in widths))
        lines += [f"  * {asked}" for asked in self.asked]
        return "\n".join(lines) + "\n"


def figure(cell: Any) -> str:
    """A number with three digits that count; a text as it is."""
    if cell is None:
        return "-"
    if isinstance(cell, float):
        if cell == 0:
            return "0"
        if abs(cell) >= 99.95:
            return f"{cell:,.0f}"
        digits = 1 if abs(cell) >= 9.995 else 2 if abs(cell) >= 0.0995 else 4
        return f"{cell:.{digits}f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
