"""Reading a log: events a second through `WorkQueue.open`, and the memory of what was read.

At least 300,000 events a second on one core, and a cost per event that grows by half at most from
1,000 tasks to 1,000,000. Everything is done that opening does: read, check the hashes, decode,
fold.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

from eventq import WorkQueue

from . import logs
from .measure import Scale, busy, elsewhere, resident, scratch, turns
from .table import Table

__all__ = ["tables"]

RATE = 300_000
GROWTH = 1.5
MILLION = 1_000_000


def tables(scale: Scale) -> Iterator[Table]:
    """Speed, then memory."""
    with scratch(scale) as folder:
        yield _speed(scale, folder)
        yield _memory(scale, folder)


def _opened(path: Path) -> WorkQueue:
    return WorkQueue.open(path, read_only=True, snapshots=False)


def _read(path: Path, repeat: int) -> Callable[[], float]:
    def cost() -> float:
        spent = 0.0
        for _ in range(repeat):
            begin = busy()
            queue = _opened(path)
            spent += busy() - begin
            queue.shut()
            del queue
            gc.collect()
        return spent / repeat

    return cost


def _path(folder: Path, shape: str, tasks: int) -> Path:
    path = folder / f"{shape.replace(' ', '-')}-{tasks}"
    if not path.exists():
        logs.write(path, shape, tasks)
    return path


def _speed(scale: Scale, folder: Path) -> Table:
    cases, sizes = {}, {}
    for shape, (_, each) in logs.SHAPES.items():
        for tasks in scale.sizes(1_000, MILLION // each, MILLION):
            path = _path(folder, shape, tasks)
            sizes[shape, tasks] = logs.size(path)
            cases[shape, tasks] = _read(path, max(1, scale.of(20_000) // tasks))
    found = turns(cases, scale, 3)
    table = Table(
        "A log read from its file by WorkQueue.open: read, hashes, decode, fold",
        ["shape", "tasks", "events", "MB", "seconds", "events/s", "us/event", "times the least"],
        "read_only, from the cache of the file system; seconds busy; the collector "
        + ("on" if scale.collector else "off"),
    )
    least: dict[str, float] = {}
    for shape, tasks in cases:
        each = logs.SHAPES[shape][1]
        events = tasks * each + 1
        spent = found.median((shape, tasks))
        first = least.setdefault(shape, spent / events)
        growth = spent / events / first
        megabytes = sizes[shape, tasks] / 1e6
        rate = events / spent
        table.row(shape, tasks, events, megabytes, spent, rate, spent / events * 1e6, growth)
        if tasks == MILLION // each:
            table.ask(f"{events:,} events, {shape}, events a second", rate, at_least=RATE)
        if tasks == MILLION:
            table.ask(f"{tasks:,} tasks against 1,000, {shape}", growth, at_most=GROWTH)
    return table


# Memory.


def grown(path: str) -> int:
    """By how many bytes this process grew to hold the state of that queue."""
    gc.collect()
    before = resident()
    queue = _opened(Path(path))
    gc.collect()
    after = resident()
    queue.shut()
    return after - before


def _traced(path: Path) -> int:
    """What tracemalloc counts for the state of that queue."""
    gc.collect()
    tracemalloc.start()
    try:
        queue = _opened(path)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        queue.shut()
    finally:
        tracemalloc.stop()
    return held


def _memory(scale: Scale, folder: Path) -> Table:
    table = Table(
        "Memory of a state that was read, bytes a task",
        ["tasks that are", "tasks", "by growth of the process", "tasks", "by tracemalloc"],
        "payloads of about 40 bytes and ids of about 10 included",
    )
    for kind, shape in (
        ("finished", "one at a time, finished"),
        ("waiting in the line", "batches of 100, waiting"),
    ):
        many, few = scale.of(MILLION), scale.of(50_000)
        process = elsewhere(grown, str(_path(folder, shape, many)))
        traced = _traced(_path(folder, shape, few))
        table.row(kind, many, process / many, few, traced / few)
    return table
