"""A state kept every 1,000 entries while a log is replayed, and where replay spends its time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eventq.core.evolve import replay
from eventq.core.state import State
from eventq.storage.codec import decode, read
from eventq.storage.segments import Cursor

from . import logs
from .measure import Scale, busy, scratch, turns
from .table import Table

__all__ = ["tables"]

EVERY = 1_000
TASKS = 250_000


def tables(scale: Scale) -> Iterator[Table]:
    """Keeping, then the stages of a replay."""
    with scratch(scale) as folder:
        paths = {}
        for number, shape in enumerate(logs.SHAPES):
            tasks = scale.of(TASKS)
            paths[shape] = folder / str(number)
            logs.write(paths[shape], shape, tasks)
        yield _keeping(scale, paths)
        yield _stages(scale, paths)


def _replayed(path: Path, keep: Callable[[State], None] | None) -> float:
    begin = busy()
    replay(State(), Cursor(path / "log").forward(), keep=keep, every=EVERY)
    return busy() - begin


def _keeping(scale: Scale, paths: dict[str, Path]) -> Table:
    kept: list[State] = []

    def all_kept(path: Path) -> float:
        kept.clear()
        spent = _replayed(path, kept.append)
        kept.clear()
        return spent

    last: list[State] = [State()]

    def last_kept(path: Path) -> float:
        return _replayed(path, lambda state: last.__setitem__(0, state))

    ways: dict[str, Callable[[Path], float]] = {
        "none": lambda path: _replayed(path, None),
        "last": last_kept,
        "all": all_kept,
    }

    def case(run: Callable[[Path], float], path: Path) -> Callable[[], float]:
        return lambda: run(path)

    cases = {
        (shape, way): case(run, path) for shape, path in paths.items() for way, run in ways.items()
    }
    found = turns(cases, scale, 3)
    table = Table(
        "A state kept every 1,000 entries during replay from the file",
        ["shape", "tasks", "none kept, s", "only the last, s", "all, s", "last /", "all /"],
    )
    for shape in paths:
        medians = (found.median((shape, way)) for way in ways)
        ratios = (found.ratio((shape, way), (shape, "none")) for way in ("last", "all"))
        table.row(shape, scale.of(TASKS), *medians, *ratios)
    return table


# Stages.


def _lines(path: Path) -> Iterator[bytes]:
    for file in sorted((path / "log").iterdir()):
        with file.open("rb", buffering=1 << 20) as lines:
            yield from lines


def _spent(act: Callable[[], Any]) -> float:
    begin = busy()
    act()
    return busy() - begin


def _only_read(path: Path) -> None:
    for _ in _lines(path):
        pass


def _hashed(path: Path) -> None:
    last = b""
    for line in _lines(path):
        last = hashlib.sha256(last + line[:-77]).hexdigest().encode()


def _checked(path: Path, parse: Callable[[bytes], Any]) -> None:
    for _ in Cursor(path / "log").forward(parse):
        pass


def _folded(path: Path) -> float:
    entries = list(Cursor(path / "log").forward(read))
    return _spent(lambda: replay(State(), entries))


def _stages(scale: Scale, paths: dict[str, Path]) -> Table:
    stages: dict[str, Callable[[Path], float]] = {
        "lines": lambda path: _spent(lambda: _only_read(path)),
        "and SHA-256": lambda path: _spent(lambda: _hashed(path)),
        "Cursor, read": lambda path: _spent(lambda: _checked(path, read)),
        "Cursor, decode": lambda path: _spent(lambda: _checked(path, decode)),
        "fold alone": _folded,
        "all": lambda path: _replayed(path, None),
    }

    def case(run: Callable[[Path], float], path: Path) -> Callable[[], float]:
        return lambda: run(path)

    cases = {
        (shape, stage): case(run, path)
        for shape, path in paths.items()
        for stage, run in stages.items()
    }
    found = turns(cases, scale, 3)
    table = Table(
        "Where replay spends its time",
        ["shape", "events", *stages],
        "microseconds an event; Cursor: lines, hashes, and each line decoded (`read`: as replay "
        "does, `decode`: whole entries)",
    )
    for shape in paths:
        events = scale.of(TASKS) * logs.SHAPES[shape][1] + 1
        costs = (found.median((shape, stage)) / events * 1e6 for stage in stages)
        table.row(shape, events, *costs)
    return table
