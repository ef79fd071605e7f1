"""Commands on disk, each synced before it is answered, beside a bare loop of append and fdatasync.

The bare loop writes lines as long as those of the log, into a file on the same disk, in the same
run: what is left above it is what eventq costs. Of several processes, the bare loop takes the
lock, appends, lets the lock go and syncs, as eventq does.
"""

from __future__ import annotations

import fcntl
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path

from eventq import Enqueue, WorkQueue

from .measure import Scale, new_paths, scratch, turns, unsynced
from .table import Table
from .together import Work, rate

__all__ = ["tables"]

COMMANDS = 2_000
FEW = 50
"""How many commands one case asks before the next has its turn."""
BATCH = 100
LINE = 320
BATCH_LINE = 19_000
"""About how long a line of the log is, and one of a batch."""
PAYLOAD = {"url": "https://example.org/page", "number": 1}


def tables(scale: Scale) -> Iterator[Table]:
    """One process, then several."""
    with scratch(scale) as folder:
        yield _alone(scale, folder)
    with scratch(scale) as folder:
        yield _together(scale, folder)


# One process. Each case is a generator that asks one command at a time and gives its seconds, so
# that the cases take turns, some commands each: syncs of others slow all of them alike.


def _bare(path: Path, size: int, work: float = 0.0) -> Iterator[float]:
    """Append and sync, after so many seconds of work: a disk that was idle takes longer."""
    line = b"x" * (size - 1) + b"\n"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        while True:
            begin = time.perf_counter()
            while time.perf_counter() < begin + work:
                pass
            os.write(file, line)
            os.fdatasync(file)
            yield time.perf_counter() - begin
    finally:
        os.close(file)


def _enqueue(queue: WorkQueue, n: int) -> Iterator[float]:
    for i in range(n):
        begin = time.perf_counter()
        queue.enqueue(f"task-{i}", PAYLOAD)
        yield time.perf_counter() - begin


def _batches(queue: WorkQueue, n: int) -> Iterator[float]:
    for i in range(n):
        begin = time.perf_counter()
        queue.enqueue_all([Enqueue(f"task-{i}-{j}", PAYLOAD) for j in range(BATCH)])
        yield time.perf_counter() - begin


def _fill(queue: WorkQueue, n: int) -> None:
    queue.enqueue_all([Enqueue(f"task-{i}", PAYLOAD) for i in range(n)])


def _start_and_complete(queue: WorkQueue, n: int) -> Iterator[float]:
    _fill(queue, n)
    for _ in range(n):
        begin = time.perf_counter()
        lease = queue.start("worker")
        assert lease is not None
        queue.complete(lease)
        yield time.perf_counter() - begin


def _complete_and_start(queue: WorkQueue, n: int) -> Iterator[float]:
    _fill(queue, n + 1)
    lease = queue.start("worker")
    for _ in range(n):
        begin = time.perf_counter()
        assert lease is not None
        lease = queue.complete_and_start(lease)
        yield time.perf_counter() - begin


CASES: dict[str, tuple[Callable[[WorkQueue, int], Iterator[float]], int, int]] = {
    "enqueue": (_enqueue, 1, 1),
    "start + complete": (_start_and_complete, 2, 1),
    "complete_and_start": (_complete_and_start, 1, 1),
    "enqueue_all of 100": (_batches, 1, BATCH),
}
"""What is asked, how many entries that is each time, and how many tasks."""


COLUMNS = ["asked", "us", "/ bare", "a second", "tasks/s", "us, quiet", "/ bare, quiet"]
COLUMNS += ["us, not synced", "us, in memory"]


def _costs(path: Callable[[], Path], n: int) -> dict[str, float]:
    """The seconds of each case: synced ones in turns, the others in one go."""
    synced: dict[str, Iterator[float]] = {
        "bare": _bare(path(), LINE),
        "bare, 20 us": _bare(path(), LINE, 20e-6),
        "bare, 40 us": _bare(path(), LINE, 40e-6),
        "bare, 100 tasks": _bare(path(), BATCH_LINE),
    }
    costs: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as opened:

        def queue() -> WorkQueue:
            return opened.enter_context(WorkQueue.open(path(), snapshots=False))

        for name, (run, _, _) in CASES.items():
            synced[name] = run(queue(), n)
        few = min(n, FEW)
        for _ in range(n // few):
            for name, case in synced.items():
                costs[name] += islice(case, few)
        for name, (run, _, _) in CASES.items():
            with unsynced():
                costs[f"{name}, not synced"] += run(queue(), n)
            costs[f"{name}, memory"] += run(WorkQueue.in_memory(), n)
    quiet = {f"{name}, quiet": sorted(costs[name])[n // 10] for name in synced}
    return quiet | {name: statistics.median(each) for name, each in costs.items()}


def _alone(scale: Scale, folder: Path) -> Table:
    n = scale.few(COMMANDS, 100)
    path = new_paths(folder)
    found = turns({"all": lambda: _costs(path, n)}, scale, 3)
    table = Table(
        "Commands on disk, synced, one process",
        COLUMNS,
        f"medians of {n:,} that take turns, {FEW} each; / bare: what an entry costs, in bare "
        f"appends of {LINE} bytes\n(of {BATCH_LINE:,} for a batch) and fdatasync; quiet: of the "
        "tenth that was fastest, when nobody else used the disk;\nnot synced: with fdatasync left "
        "out; the collector " + ("on" if scale.collector else "off"),
    )
    bare = dict.fromkeys(("bare", "bare, 20 us", "bare, 40 us"), ("bare", 1, 1))
    bare["bare, 100 tasks"] = ("bare, 100 tasks", 1, BATCH)
    asked = {
        name: ("bare" if tasks == 1 else "bare, 100 tasks", entries, tasks)
        for name, (_, entries, tasks) in CASES.items()
    }
    for name, (base, entries, tasks) in (bare | asked).items():
        cost, quiet = (found.median(("all", name + how)) for how in ("", ", quiet"))
        ratios = [
            found.ratio(("all", name + how), ("all", base + how)) / entries
            for how in ("", ", quiet")
        ]
        cells: list[float | None] = [
            cost * 1e6,
            ratios[0],
            1 / cost,
            tasks / cost,
            quiet * 1e6,
            ratios[1],
        ]
        for how in ("not synced", "memory"):
            here = name in CASES
            cells.append(found.median(("all", f"{name}, {how}")) * 1e6 if here else None)
        table.row(name if name in CASES else f"{name}: append + fdatasync", *cells)
    if n == COMMANDS:
        share = found.ratio(("all", "bare"), ("all", "enqueue"))
        table.ask("commits of one writer against the bare loop", share, at_least=0.85)
        batch = BATCH / found.median(("all", "enqueue_all of 100"))
        table.ask("tasks enqueued in a second, in batches of 100", batch, at_least=100_000)
    return table


# Several processes at once.


def bare_together(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Lock, append, unlock, sync."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    file = os.open(folder / "file", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    line = b"x" * (LINE - 1) + b"\n"

    def act() -> None:
        for _ in range(count):
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(file, line)
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.fdatasync(file)

    return act


def enqueue_together(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process enqueues tasks of its own."""
    queue = WorkQueue.open(folder, snapshots=False)

    def act() -> None:
        for i in range(count):
            queue.enqueue(f"task-{number}-{i}", PAYLOAD)

    return act


def work_together(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process is a worker: it starts and completes."""
    queue = WorkQueue.open(folder, snapshots=False)

    def act() -> None:
        for _ in range(count):
            lease = queue.start(f"worker-{number}")
            assert lease is not None
            queue.complete(lease)

    return act


def _together(scale: Scale, folder: Path) -> Table:
    count = scale.few(COMMANDS // 2, 50)
    path = new_paths(folder)

    def bare(processes: int) -> float:
        where = path()
        where.mkdir()
        return 1 / rate(bare_together, where, processes, count, collector=scale.collector)

    def asked(work: Work, processes: int) -> float:
        where = path()
        with WorkQueue.open(where, snapshots=False) as queue:
            if work is work_together:
                _fill(queue, processes * count)
        return 1 / rate(work, where, processes, count, collector=scale.collector)

    table = Table(
        "Commands on disk, synced, several processes",
        [
            "processes",
            "bare/s",
            "enqueue/s",
            "start + complete/s",
            "enqueue /",
            "start + complete /",
        ],
        "all processes together; then what a synced entry costs against the bare one",
    )
    numbers = [n for n in (1, 2, 4, 8) if n <= scale.few(8, 4)]
    cases: dict[tuple[int, str], Callable[[], float]] = {}
    for processes in numbers:
        cases[processes, "bare"] = partial(bare, processes)
        cases[processes, "enqueue"] = partial(asked, enqueue_together, processes)
        cases[processes, "work"] = partial(asked, work_together, processes)
    found = turns(cases, scale, scale.few(3, 1))
    for processes in numbers:
        rates = (1 / found.median((processes, what)) for what in ("bare", "enqueue", "work"))
        enqueue = found.ratio((processes, "enqueue"), (processes, "bare"))
        work = found.ratio((processes, "work"), (processes, "bare")) / 2
        table.row(processes, *rates, enqueue, work)
    if 8 in numbers:
        gain = found.ratio((1, "enqueue"), (8, "enqueue"))
        table.ask("commits of eight processes against those of one", gain, at_least=1.8)
    return table
