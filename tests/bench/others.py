"""Other queues in the same run: tasks put and worked a second, and a log read back.

Peers that are not installed are skipped, with a line that says so.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

from eventq import WorkQueue

from . import logs
from .measure import Scale, new_paths, scratch, seconds, turns
from .peers import Handle, Peer, eventq_itself, installed
from .peers.peer import PAYLOAD
from .peers.sqlite_by_hand import SQLite
from .table import Table
from .together import Work, rate

__all__ = ["tables"]

TASKS = 20_000
FEW = 500
"""How many tasks one peer has at a time before the next has its turn: enough that what it costs to
come back to its code does not count."""
SHORT = 10
"""How many times fewer tasks go through a short queue than through a long one."""
STEPS = ("put", "work", "whole", "short")
FASTER = [
    ("eventq", "persist-queue", 1.4),
    ("eventq", "litequeue, FULL", 2.5),
    ("eventq, complete_and_start", "SQLite by hand, FULL", 1.1),
    *(
        (f"eventq, process{how}", peer, 1.0)
        for how in ("", ", complete_and_start")
        for peer in (
            "SQLite by hand, NORMAL",
            "persist-queue, NORMAL",
            "persist-queue, clearing, NORMAL",
            "litequeue, NORMAL",
            "huey, no fsync (no ack)",
        )
    ),
]
"""How many times as fast, at whole tasks, the first of two is to be at least."""
LOG = 1_000_000
"""How many events the log has that is replayed."""


def tables(scale: Scale) -> Iterator[Table]:
    """One process, several, and replay."""
    peers, missing = installed()
    note = f"\nnot installed, so skipped: {', '.join(missing)}" if missing else ""
    for synced in (True, False):
        with scratch(scale) as folder:
            yield _alone(scale, folder, [peer for peer in peers if peer.synced is synced], note)
    with scratch(scale) as folder:
        yield _together(scale, folder)
    with scratch(scale) as folder:
        yield _replay(scale, folder)


def _times(n: int, act: Callable[[], object]) -> float:
    """Seconds each of so many."""
    begin = time.perf_counter()
    for _ in range(n):
        act()
    return (time.perf_counter() - begin) / n


def _put_and_work(handle: Handle) -> None:
    handle.put(PAYLOAD)
    handle.work()


def _steps(handles: Mapping[str, Handle], n: int) -> dict[str, float]:
    """All peers through all steps, from empty queues, in turns of a few tasks: seconds a task."""
    acts: dict[str, tuple[Callable[[Handle], None], int]] = {
        "put": (lambda handle: handle.put(PAYLOAD), n),
        "work": (lambda handle: handle.work(), n),
        "short": (_put_and_work, n // SHORT),
    }
    costs: dict[str, list[float]] = defaultdict(list)
    for handle in handles.values():
        handle.put(PAYLOAD)  # so that there is always a next one
    few = min(n // SHORT, FEW)
    for step, (act, number) in acts.items():
        for _ in range(number // few):
            for name, handle in handles.items():
                cost = _times(few, partial(act, handle))
                costs[f"{name}: {step}"].append(cost)
    for handle in handles.values():
        handle.close()
    medians = {step: statistics.median(each) for step, each in costs.items()}
    whole = {
        f"{name}: whole": medians[f"{name}: put"] + medians[f"{name}: work"] for name in handles
    }
    return medians | whole


def _alone(scale: Scale, folder: Path, peers: list[Peer], note: str) -> Table:
    n = scale.few(TASKS, 100)
    path = new_paths(folder)
    found = turns(
        {"all": lambda: _steps({peer.name: peer.open(path()) for peer in peers}, n)}, scale, 1
    )
    base = peers[0].name
    table = Table(
        f"Queues {'synced at each step' if peers[0].synced else 'not synced'}, {n:,} tasks",
        ["queue", "put/s", "work/s", "whole/s", "short/s", *(f"{step} /" for step in STEPS)],
        f"a second; then how many times as fast as {base}; the queues take turns of {FEW} tasks\n"
        f"put: {n:,} into an empty queue; work: take these one by one, and say that each is done;\n"
        "whole: both; short: put one and work it, in a queue that is all but empty" + note,
    )
    for peer in peers:
        names = [("all", f"{peer.name}: {step}") for step in STEPS]
        bases = [("all", f"{base}: {step}") for step in STEPS]
        rates = (1 / found.median(name) for name in names)
        ratios = (found.ratio(other, name) for name, other in zip(names, bases, strict=True))
        table.row(peer.name, *rates, *ratios)
    for ours, theirs, least in FASTER:
        if {ours, theirs} <= {peer.name for peer in peers} and n == TASKS:
            ratio = found.ratio(("all", f"{theirs}: whole"), ("all", f"{ours}: whole"))
            table.ask(f"whole tasks of {ours} against {theirs}", ratio, at_least=least)
    return table


# Several processes.


def _eventq(folder: Path) -> Handle:
    return next(peer for peer in eventq_itself.PEERS if peer.synced).open(folder)


def _sqlite(folder: Path) -> Handle:
    return SQLite(folder, "full")


def _putting(handle: Handle, count: int) -> Callable[[], None]:
    def act() -> None:
        for _ in range(count):
            handle.put(PAYLOAD)

    return act


def _whole(handle: Handle, count: int) -> Callable[[], None]:
    def act() -> None:
        for _ in range(count):
            _put_and_work(handle)

    return act


def eventq_puts(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process enqueues."""
    return _putting(_eventq(folder), count)


def eventq_works(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process enqueues, starts and completes."""
    return _whole(_eventq(folder), count)


def sqlite_puts(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process inserts."""
    return _putting(_sqlite(folder), count)


def sqlite_works(folder: Path, number: int, count: int) -> Callable[[], None]:
    """Each process inserts, takes, and says that it is done."""
    return _whole(_sqlite(folder), count)


def _together(scale: Scale, folder: Path) -> Table:
    count = scale.few(500, 50)
    path = new_paths(folder)
    works: dict[str, Work] = {
        "eventq, put": eventq_puts,
        "SQLite, put": sqlite_puts,
        "eventq, whole": eventq_works,
        "SQLite, whole": sqlite_works,
    }
    numbers = [2, 8] if scale.few(8, 2) == 8 else [2]

    def cost(name: str, processes: int) -> float:
        where = path()
        (_eventq if name.startswith("eventq") else _sqlite)(where).close()
        return 1 / rate(works[name], where, processes, count, collector=scale.collector)

    cases = {
        (name, processes): partial(cost, name, processes) for processes in numbers for name in works
    }
    found = turns(cases, scale, scale.few(3, 1))
    table = Table(
        "Several processes on one queue, synced, SQLite by hand beside it",
        ["processes", *(f"{name}/s" for name in works), "put, eventq /", "whole, eventq /"],
        "all processes together; then how many times as fast eventq is",
    )
    for processes in numbers:
        rates = (1 / found.median((name, processes)) for name in works)
        ratios = (
            found.ratio((f"SQLite, {step}", processes), (f"eventq, {step}", processes))
            for step in ("put", "whole")
        )
        table.row(processes, *rates, *ratios)
    return table


# Replay.


def _replay(scale: Scale, folder: Path) -> Table:
    tasks = scale.few(LOG // 4, 2_000)
    shape = "one at a time, finished"
    each = logs.SHAPES[shape][1]
    ours = folder / "eventq"
    logs.write(ours, shape, tasks)
    cases = {"eventq": lambda: seconds(lambda: WorkQueue.open(ours, read_only=True).shut())}
    events = {"eventq": tasks * each + 1}
    note = (
        "events a second, of finished tasks; read from the disk, decoded, folded\n"
        "eventsourcing: each task by its repository; by hand: all events in order, with its "
        "recorder and its mapper"
    )
    try:
        peer = import_module(".peers.event_sourcing", __package__)
    except ImportError:
        note += "\nnot installed, so skipped: eventsourcing"
    else:
        theirs = folder / "eventsourcing"
        number = peer.write(theirs, tasks)
        ids = peer.ids(theirs)
        events |= dict.fromkeys(("eventsourcing", "eventsourcing, by hand"), number)
        cases["eventsourcing"] = lambda: seconds(lambda: peer.load(theirs, ids))
        cases["eventsourcing, by hand"] = lambda: seconds(lambda: peer.read(theirs))
    found = turns(cases, scale, 3)
    table = Table(
        f"Replay of {tasks:,} finished tasks",
        ["", "events", "seconds", "events/s", "eventq /"],
        note,
    )
    for name, number in events.items():
        spent = found.median(name)
        faster = spent / number / (found.median("eventq") / events["eventq"])
        table.row(name, number, spent, number / spent, faster)
        if name == "eventsourcing" and tasks == LOG // 4:
            table.ask("events replayed in a second, against eventsourcing", faster, at_least=5)
    return table
