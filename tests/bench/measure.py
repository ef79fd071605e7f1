"""How to measure: cases take turns, so that what slows the machine slows all of them alike."""

from __future__ import annotations

import gc
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from attrs import field, frozen

__all__ = [
    "LEAST",
    "QUICK",
    "WHOLE",
    "Scale",
    "Turns",
    "busy",
    "collector",
    "elsewhere",
    "environment",
    "machine",
    "new_paths",
    "resident",
    "scratch",
    "seconds",
    "turns",
    "unsynced",
]


@frozen
class Scale:
    """How large a run is: no size exceeds `limit`, and each case has so many turns."""

    limit: int = 1 << 62
    repeats: int = 5
    collector: bool = False
    """Whether Python's collector of cycles stays on while a case runs."""
    tasks: int = 200_000
    """How many tasks `passing` lets through."""
    folder: Path = field(factory=lambda: Path(tempfile.gettempdir()))
    """Where logs are written: the disk that is measured."""

    def of(self, size: int) -> int:
        """This size, or the largest that the run has time for."""
        return min(size, self.limit)

    def few(self, many: int, few: int) -> int:
        """How many commands a case asks: many in a whole run, else few."""
        return many if self.limit > QUICK.limit else self.of(few)

    def sizes(self, *sizes: int) -> list[int]:
        """These sizes, as far as the run has time for them."""
        return sorted({self.of(size) for size in sizes})

    def turns(self, most: int) -> int:
        """How many turns a case that takes long has."""
        return min(most, self.repeats)


WHOLE = Scale()
QUICK = Scale(limit=2_000, repeats=2)
LEAST = Scale(limit=20, repeats=1)
"""Only to see that all parts run."""


class Turns:
    """What the cases cost in each round of turns."""

    def __init__(self, costs: Mapping[Any, list[float]]) -> None:
        self._costs = costs

    def median(self, case: Any) -> float:
        """The median of what a case cost."""
        return statistics.median(self._costs[case])

    def ratio(self, case: Any, base: Any) -> float:
        """How many times the base a case cost: the median over the rounds, each by itself."""
        pairs = zip(self._costs[case], self._costs[base], strict=True)
        return statistics.median(one / other for one, other in pairs)


Cost = float | Mapping[str, float]


def turns(cases: Mapping[Any, Callable[[], Cost]], scale: Scale, most: int = 5) -> Turns:
    """Let each case run once a round, in an order that turns round by round.

    A case gives its own cost, and sets up what it needs before it begins to count. One that gives
    the costs of several steps by name is asked for by (case, step).
    """
    names = list(cases)
    costs: dict[Any, list[float]] = defaultdict(list)
    gc.collect()
    gc.freeze()  # what was built before is not looked through between the cases
    try:
        for turn in range(scale.turns(most)):
            shift = turn % len(names)
            for name in names[shift:] + names[:shift]:
                gc.collect()
                with collector(on=scale.collector):
                    cost = cases[name]()
                if isinstance(cost, float):
                    costs[name].append(cost)
                else:
                    for step, part in cost.items():
                        costs[name, step].append(part)
    finally:
        gc.unfreeze()
    return Turns(costs)


@contextmanager
def collector(*, on: bool) -> Iterator[None]:
    """With Python's collector of cycles on or off."""
    was = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        yield
    finally:
        (gc.enable if was else gc.disable)()


busy = time.process_time
"""Seconds for which this process was busy: what does not wait for a disk is measured by them, so
that it does not count when others have the processor."""


def seconds(act: Callable[[], object]) -> float:
    """For how long this keeps the process busy."""
    begin = busy()
    act()
    return busy() - begin


@contextmanager
def unsynced() -> Iterator[None]:
    """With syncing left out, where it is not the disk that is measured."""

    def nothing(*_: int) -> None:
        pass

    with (
        mock.patch("os.fdatasync", nothing),
        mock.patch("os.posix_fadvise", nothing),
        mock.patch("eventq.storage.syncing.HEAD_START", 0.0),
        mock.patch("eventq.storage.redo.Redo.AFTER", 1 << 62),
    ):
        yield


def resident() -> int:
    """How many bytes of memory this process has at the moment."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def environment() -> dict[str, str]:
    """The environment of a process that is to import what this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def elsewhere(act: Callable[[str], Any], argument: str) -> Any:
    """What this gives in a process of its own, where nothing was allocated and freed before."""
    code = (
        f"from json import dumps; from {act.__module__} import {act.__name__}; "
        f"print(dumps({act.__name__}({argument!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    return json.loads(done.stdout)


@contextmanager
def scratch(scale: Scale) -> Iterator[Path]:
    """A folder on the disk that is measured, for as long as a part runs."""
    with tempfile.TemporaryDirectory(prefix="eventq-bench-", dir=scale.folder) as folder:
        yield Path(folder)


def new_paths(folder: Path) -> Callable[[], Path]:
    """Gives a path in the folder that was not given before."""
    numbers = itertools.count(1)
    return lambda: folder / str(next(numbers))


def machine() -> dict[str, Any]:
    """What these figures were measured on."""
    import attrs
    import msgspec

    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "attrs": attrs.__version__,
        "msgspec": msgspec.__version__,
    }
