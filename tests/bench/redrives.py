"""A bulk redrive of 10,000 dead letters by error, through the real command line.

Saved as a plan, run dry and applied, each by a process of its own that opens the queue first.
Other errors stand between, tasks hang below one root or two, and some are parked.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from eventq import Enqueue, Retry, Status, WorkQueue

from .measure import Scale, environment, scratch, unsynced
from .table import Table

__all__ = ["fill", "tables"]

DEAD = 10_000
OTHERS = 20
"""One of so many dies of something else, and one of so many is parked."""
LIMIT = 5.0
"""What "within seconds" is taken for."""
BATCH = 1_000


def tables(scale: Scale) -> Iterator[Table]:
    """One queue, three commands."""
    with scratch(scale) as folder:
        yield _redrives(folder, scale.of(DEAD))


def fill(path: Path, dead: int) -> None:
    """A queue where so many died of `HTTP 503`, and a task hangs below each of them; a third of
    these hang below a task that died of something else too."""
    others = max(1, dead // OTHERS)
    with WorkQueue.open(path, retry=Retry(1, max_redrives=1)) as queue:
        tasks = [Enqueue(f"parked-{i}") for i in range(others)]
        for i in range(dead):
            above = (f"dead-{i}", f"other-{i % others}")
            tasks += [Enqueue(above[0]), Enqueue(f"below-{i}", None, above[: 1 + (i % 3 == 0)])]
        tasks += [Enqueue(f"other-{i}") for i in range(others)]
        for first in range(0, len(tasks), BATCH):
            queue.enqueue_all(tasks[first : first + BATCH])
        while (lease := queue.start()) is not None:
            error = "disk full" if lease.task.startswith("other") else f"HTTP 503 at {lease.id}"
            task = queue.fail(lease, error)
            if lease.task.startswith("parked") and task.status is Status.DEAD:
                queue.redrive(task.id)


def _redrives(folder: Path, dead: int) -> Table:
    path, plan = folder / "queue", folder / "plan.json"
    with unsynced():
        fill(path, dead)
    chosen = ["--error", "HTTP 503*", "--how", "glob"]
    table = Table(
        f"A bulk redrive of {dead:,} dead letters by error, on the command line",
        ["command", "s", "s busy", "selected", "redriven", "unblocked", "blocked", "parked"],
        "whole processes; the queue is read from its log by each; status does nothing else",
    )
    for name, words in {
        "status": ["status"],
        "redrive --save": ["redrive", *chosen, "--save", str(plan)],
        "redrive --dry-run": ["redrive", *chosen, "--dry-run"],
        "redrive --apply": ["redrive", "--apply", str(plan), "--why", "the server is back"],
    }.items():
        spent, busy, said = _run([*words, "--queue", str(path), "--json"])
        table.row(name, spent, busy, *_numbers(said) if words[0] == "redrive" else [None] * 5)
        table.ask(f"{name}, seconds", spent, at_most=LIMIT)
    return table


def _run(words: list[str]) -> tuple[float, float, str]:
    """What a command takes, in seconds and in seconds busy, and what it says."""
    command = [sys.executable, "-m", "eventq", *words]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment())
    spent, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return spent, busy, done.stdout


OUTCOMES = ("redriven", "unblocked", "blocked", "parked")


def _numbers(said: str) -> list[int]:
    """How many tasks were selected, and how many there are of each outcome."""
    values = [json.loads(line) for line in said.splitlines()]
    if "outcome" not in values[0]:
        return [values[0]["selected"], *(len(values[0][kind]) for kind in OUTCOMES)]
    found = [one["outcome"] for one in values]
    return [len(values), *(found.count(kind) for kind in OUTCOMES)]
