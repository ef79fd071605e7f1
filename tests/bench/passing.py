"""Many tasks through a queue on disk that keeps the last 1,000: memory and open time stay flat.

Batches come in and are worked off one task after the other. Every tenth task has a key of its own,
every tenth needs the one before, every hundredth fails once, and each batch has its own worker, so
that whatever is kept of what is forgotten would show. Asked for with `--tasks 10000000`, it takes
some 20 minutes of one core and 7 GB of disk.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from eventq import Enqueue, Retention, WorkQueue
from eventq.storage.snapshot import snapshots

from . import logs
from .measure import Scale, busy, elsewhere, resident, scratch
from .table import Table

__all__ = ["tables"]

BATCH = 500
KEPT = 1_000
PARTS = 10
OPENED = 10
"""How often the queue is opened, by a process of its own, in each part of the run."""
FLAT = 1.25
ENOUGH = 100_000
"""With fewer tasks, nothing stands still before the end."""


def tables(scale: Scale) -> Iterator[Table]:
    """One run, looked at in ten places."""
    with scratch(scale) as folder:
        yield _passing(scale, folder / "queue")


def _batch(first: int, size: int) -> Iterator[Enqueue]:
    for i in range(first, first + size):
        yield Enqueue(
            f"task-{i}",
            {"url": f"https://example.org/page/{i}"},
            (f"task-{i - 1}",) if i % 10 == 5 else (),
            key=f"key-{i}" if i % 10 == 0 else None,
        )


def _work(queue: WorkQueue, worker: str) -> None:
    """Work off all that is in the line; every hundredth task fails at first."""
    lease = queue.start(worker)
    while lease is not None:
        if lease.attempt == 1 and lease.task.endswith("99"):
            queue.fail(lease, "HTTP 503")
            lease = queue.start(worker)
        else:
            lease = queue.complete_and_start(lease)


def opened(path: str) -> dict[str, float]:
    """What it costs this process to open that queue: seconds, and bytes that it grew by; and how
    many entries it had to read behind the newest snapshot."""
    before, begin, wall = resident(), busy(), time.perf_counter()
    with WorkQueue.open(path) as queue:
        spent, waited = busy() - begin, time.perf_counter() - wall
        grown = resident() - before
        tail = queue.state.seq - max(snapshots(Path(path) / "snapshots"), default=0)
    return {"busy": spent, "wall": waited, "grown": grown, "tail": tail}


def _passing(scale: Scale, path: Path) -> Table:
    tasks, many = min(scale.tasks, scale.limit), scale.few(OPENED, 1)
    table = Table(
        f"{tasks:,} tasks through a queue on disk that keeps the last {KEPT:,}",
        [
            "tasks",
            "tasks/s busy",
            "tasks/s",
            "MB resident",
            "tasks kept",
            "MB of log",
            "kB of a snapshot",
            "open, ms",
            "longest, ms",
            "for entries",
            "MB opened",
        ],
        'synced by and by (durability="process"); batches of '
        f"{BATCH}, then start, and complete_and_start; in each part the queue is opened {many} "
        "times by a process of its own: median and longest,\nin time busy, and the entries that "
        "were read behind the newest snapshot at the longest; a new snapshot after 8 MB of log",
    )
    looked: list[dict[str, float]] = []
    kept = Retention(count=KEPT)
    with WorkQueue.open(path, retention=kept, durability="process") as queue:
        done = 0
        for part in range(1, PARTS + 1):
            spent = waited = 0.0
            looks = []
            for look in range(1, many + 1):
                until = (tasks * ((part - 1) * many + look)) // (PARTS * many)
                begin, wall = busy(), time.perf_counter()
                while done < until:
                    size = min(BATCH, until - done)
                    queue.enqueue_all(_batch(done, size))
                    _work(queue, f"worker-{done}")
                    done += size
                spent += busy() - begin
                waited += time.perf_counter() - wall
                looks.append(elsewhere(opened, str(path)))
            each = max(1, tasks // PARTS)
            longest = max(looks, key=itemgetter("busy"))
            newest = max((path / "snapshots").iterdir(), default=None)
            looked.append({"resident": resident(), "open": longest["busy"]})
            table.row(
                done,
                each / spent,
                each / waited,
                resident() / 1e6,
                len(queue.state),
                logs.size(path) / 1e6,
                None if newest is None else newest.stat().st_size / 1e3,
                statistics.median(one["busy"] for one in looks) * 1e3,
                longest["busy"] * 1e3,
                longest["tail"],
                statistics.median(one["grown"] for one in looks) / 1e6,
            )
            print(f"{done:,} of {tasks:,} tasks ...", file=sys.stderr, flush=True)
    if tasks < ENOUGH:
        return table
    for what, said in (("resident", "memory"), ("open", "the longest time to open")):
        first, last = looked[1][what], looked[-1][what]
        table.ask(
            f"{said} at {tasks:,} tasks against {2 * tasks // PARTS:,}", last / first, at_most=FLAT
        )
    return table
