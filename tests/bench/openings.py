"""Opening a queue with a long past: from its snapshot, against a replay of all of it.

A million entries stand behind it; retention is on, so that what is left are the unfinished tasks
and the few finished ones that are kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from eventq import Enqueue, Retention, WorkQueue

from .measure import Scale, busy, elsewhere, resident, scratch, turns
from .table import Table

__all__ = ["tables"]

ENTRIES = 1_000_000
UNFINISHED = 10_000
KEPT = 1_000
BATCH = 500
SHARE = 0.05


def tables(scale: Scale) -> Iterator[Table]:
    """One queue, opened in two ways."""
    with scratch(scale) as folder:
        yield _opening(scale, folder / "queue")


def _write(path: Path, entries: int, unfinished: int) -> None:
    """Tasks pass through one by one, in front of others that wait for what nobody enqueues."""
    with WorkQueue.open(path, retention=Retention(count=KEPT), durability="process") as queue:
        queue.enqueue_all(
            Enqueue(f"waiting-{i}", {"number": i}, ("never",)) for i in range(unfinished)
        )
        done = 0
        while queue.head[0] < entries:
            queue.enqueue_all(Enqueue(f"task-{done + i}", {"number": i}) for i in range(BATCH))
            done += BATCH
            lease = queue.start("worker")
            while lease is not None:
                lease = queue.complete_and_start(lease)
        queue.snapshot()
        queue.enqueue("last")


def opened(path: str) -> dict[str, float]:
    """What it costs this process to open the queue: seconds, and bytes that it grew by."""
    before, begin = resident(), busy()
    with WorkQueue.open(path, read_only=True) as queue:
        return {
            "busy": busy() - begin,
            "grown": resident() - before,
            "tasks": len(queue.state),
            "seq": queue.state.seq,
        }


def _opening(scale: Scale, path: Path) -> Table:
    entries, unfinished = scale.of(ENTRIES), scale.of(UNFINISHED)
    _write(path, entries, unfinished)
    bare = path.with_name("bare")
    shutil.copytree(path, bare, ignore=shutil.ignore_patterns("snapshots"))
    (bare / "snapshots").mkdir()
    ways = {"from the newest snapshot": path, "all of the log": bare}
    found = turns(
        {name: lambda where=where: elsewhere(opened, str(where)) for name, where in ways.items()},
        scale,
        3,
    )
    table = Table(
        f"Opening a queue with {entries:,} entries behind it",
        ["read", "entries", "tasks there", "ms busy", "MB grown", "share of a whole replay"],
        f"retention keeps {KEPT:,} finished tasks; {unfinished:,} are unfinished",
    )
    for name in ways:
        table.row(
            name,
            int(found.median((name, "seq"))),
            int(found.median((name, "tasks"))),
            found.median((name, "busy")) * 1e3,
            found.median((name, "grown")) / 1e6,
            found.ratio((name, "busy"), ("all of the log", "busy")),
        )
    if entries == ENTRIES:
        share = found.ratio(("from the newest snapshot", "busy"), ("all of the log", "busy"))
        table.ask("opening from a snapshot against a whole replay", share, at_most=SHARE)
    return table
