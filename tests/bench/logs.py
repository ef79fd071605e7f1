"""Logs of many tasks without dependencies, written as a WorkQueue writes them, but not synced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from eventq.core.events import Completed, Enqueued, Entry, Event, Json, Opened, Readied, Started
from eventq.core.policy import Policy
from eventq.storage.log import Log

__all__ = ["SHAPES", "entries", "size", "write"]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
BATCH = 100

Said = tuple[str, tuple[Event, ...], dict[str, Any], str | None]


def _enqueued(i: int) -> tuple[Event, Event]:
    name = f"task-{i}"
    payload = Json(b'{"url":"https://example.org/page/%d"}' % i)
    return Enqueued(name, payload, (), None, 3, None), Readied(name)


def _started(i: int) -> Event:
    return Started(f"task-{i}", 1, "worker-1")


def _singly(tasks: int) -> Iterator[Said]:
    """Enqueue, start, complete; then the next: 4 events a task in 3 entries."""
    seq = 1
    for i in range(tasks):
        yield "enqueue", _enqueued(i), {}, None
        yield "start", (_started(i),), {"worker": "worker-1", "lease_for": None}, "worker-1"
        seq += 3
        yield "complete", (Completed(f"task-{i}"),), {"lease": seq - 1}, "worker-1"


def _batches(tasks: int) -> Iterator[Said]:
    """Batches, none of it worked: 2 events a task."""
    for first in range(0, tasks, BATCH):
        numbers = range(first, min(first + BATCH, tasks))
        yield "enqueue_all", tuple(e for i in numbers for e in _enqueued(i)), {}, None


def _batches_worked(tasks: int) -> Iterator[Said]:
    """Batches, each worked by one worker before the next: 4 events a task, 1.02 entries."""
    seq = 1
    for first in range(0, tasks, BATCH):
        numbers = range(first, min(first + BATCH, tasks))
        yield "enqueue_all", tuple(e for i in numbers for e in _enqueued(i)), {}, None
        yield "start", (_started(first),), {"worker": "worker-1", "lease_for": None}, "worker-1"
        seq += 2
        for i in numbers:
            done = Completed(f"task-{i}")
            if i + 1 < numbers.stop:
                ask = {"lease": seq, "worker": "worker-1", "lease_for": None}
                yield "complete_and_start", (done, _started(i + 1)), ask, "worker-1"
            else:
                yield "complete", (done,), {"lease": seq}, "worker-1"
            seq += 1


SHAPES: dict[str, tuple[Callable[[int], Iterator[Said]], int]] = {
    "one at a time, finished": (_singly, 4),
    "batches of 100, finished": (_batches_worked, 4),
    "batches of 100, waiting": (_batches, 2),
}
"""What happens to the tasks of a log, and how many events each then has."""


def entries(shape: str, tasks: int) -> Iterator[Entry]:
    """The entries of such a log."""
    at = BEGIN
    yield Entry(1, at, "open", (Opened("bench", Policy()),), {}, None)
    for seq, (do, events, ask, by) in enumerate(SHAPES[shape][0](tasks), 2):
        at += STEP
        yield Entry(seq, at, do, events, ask, by)


def write(path: Path, shape: str, tasks: int) -> None:
    """Write such a log into a new queue directory."""
    log = Log(path)
    with log.alone():
        for entry in entries(shape, tasks):
            log.append(entry)
    log.shut()


def size(path: Path) -> int:
    """How many bytes the log of this queue has."""
    return sum(file.stat().st_size for file in (path / "log").iterdir())
