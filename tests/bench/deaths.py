"""A death with many tasks below it, and its redrive: linear in the tasks whose standing changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from math import isqrt
from pathlib import Path

from eventq import Enqueue, WorkQueue
from eventq.core.commands import EnqueueAll, Fail, Open, Redrive, Start
from eventq.core.decide import decide
from eventq.core.policy import Policy, Retry
from eventq.core.state import State

from .measure import Scale, scratch, seconds, turns
from .table import Table

__all__ = ["tables"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOT = "root"


def _wide(n: int) -> list[Enqueue]:
    return [Enqueue(f"below-{i}", None, (ROOT,)) for i in range(n)]


def _deep(n: int) -> list[Enqueue]:
    names = [ROOT, *(f"below-{i}" for i in range(n))]
    return [Enqueue(name, None, (above,)) for above, name in pairwise(names)]


def _grid(n: int) -> list[Enqueue]:
    """Each task needs its neighbours above and to the left; the corner needs the root."""
    side = isqrt(n)
    tasks = []
    for row in range(side):
        for column in range(side):
            near = [(row - 1, column), (row, column - 1)]
            after = [f"{r}-{c}" for r, c in near if r >= 0 and c >= 0] or [ROOT]
            tasks.append(Enqueue(f"{row}-{column}", None, after))
    return tasks


SHAPES: dict[str, Callable[[int], list[Enqueue]]] = {"wide": _wide, "deep": _deep, "grid": _grid}


def tables(scale: Scale) -> Iterator[Table]:
    """Through `decide` alone at several sizes, then once through a queue on disk."""
    yield _decided(scale)
    with scratch(scale) as folder:
        yield _on_disk(scale, folder)


def _hung(tasks: list[Enqueue]) -> State:
    """The state with the root handed out, and these tasks below it."""
    state = State()
    for command in (
        Open("bench", Policy(retry=Retry(max_attempts=1))),
        Enqueue(ROOT),
        Start(),
        EnqueueAll(tasks),
    ):
        _, state = decide(state, command, NOW)
    return state


def _decided(scale: Scale) -> Table:
    table = Table(
        "A death and its redrive, by decide",
        ["below the root", "tasks", "death, s", "redrive, s", "death, us/task", "redrive, us/task"],
        "us/task: for each task whose standing changes",
    )
    sizes = scale.sizes(1_000, 10_000, 100_000)
    cases: dict[tuple[str, int, str], Callable[[], float]] = {}
    for shape, make in SHAPES.items():
        for n in sizes:
            before = _hung(make(n))
            repeat = max(1, scale.of(10_000) // n)
            lease = before.running()[0].id
            _, dead = decide(before, Fail(lease, "no", "permanent"), NOW)

            def death(before: State = before, lease: int = lease, repeat: int = repeat) -> float:
                command = Fail(lease, "no", "permanent")
                return seconds(lambda: [decide(before, command, NOW) for _ in range(repeat)])

            def redrive(dead: State = dead, repeat: int = repeat) -> float:
                return seconds(lambda: [decide(dead, Redrive(ROOT), NOW) for _ in range(repeat)])

            cases[shape, n, "death"] = death
            cases[shape, n, "redrive"] = redrive
    found = turns(cases, scale)
    growth: dict[tuple[str, str], list[float]] = {}
    for shape, make in SHAPES.items():
        for n in sizes:
            changed = len(make(n)) + 1
            repeat = max(1, scale.of(10_000) // n)
            costs = [found.median((shape, n, what)) / repeat for what in ("death", "redrive")]
            table.row(shape, changed, *costs, *(cost / changed * 1e6 for cost in costs))
            for what, cost in zip(("death", "redrive"), costs, strict=True):
                growth.setdefault((shape, what), []).append(cost / changed)
    for (shape, what), each in growth.items():
        least, most = f"{sizes[0]:,}", f"{sizes[-1]:,}"
        table.ask(
            f"{what}, {shape}: a task at {most} against {least}", each[-1] / each[0], at_most=2
        )
    return table


def _opened(path: Path) -> None:
    WorkQueue.open(path, snapshots=False).shut()


def _on_disk(scale: Scale, folder: Path) -> Table:
    n = scale.of(100_000)
    table = Table(
        f"The same in a queue on disk, synced, {n:,} tasks",
        [
            "below the root",
            "enqueue_all, s",
            "death, s",
            "redrive, s",
            "dead_letters, s",
            "open, s",
        ],
    )
    for shape, make in SHAPES.items():
        tasks = make(n)
        path = folder / shape
        with WorkQueue.open(path, retry=Retry(max_attempts=1), snapshots=False) as queue:
            queue.enqueue(ROOT)
            lease = queue.start()
            assert lease is not None
            begin = time.perf_counter()
            queue.enqueue_all(tasks)
            enqueued = time.perf_counter()
            queue.fail(lease, "no")
            died = time.perf_counter()
            letters = len(queue.dead_letters())
            assert letters == len(tasks) + 1
            listed = time.perf_counter()
            queue.redrive(ROOT)
            redriven = time.perf_counter()
        again = seconds(partial(_opened, path))
        table.row(shape, enqueued - begin, died - enqueued, redriven - listed, listed - died, again)
    return table
