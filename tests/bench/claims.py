"""What a claim costs (start, then complete) in a queue full of tasks that cannot be handed out.

At most twice what it costs in an empty queue, however many tasks are delayed, wait, are blocked
or stand behind a busy key, in memory and on disk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

from eventq import Enqueue, Retry, WorkQueue

from .commands import work
from .measure import Scale, busy, collector, new_paths, scratch, turns, unsynced
from .table import Table

__all__ = ["tables"]

HELD = 100_000
CLAIMS = 1_000
BATCH = 1_000
LIMIT = 2.0
FAR = datetime(2999, 1, 1, tzinfo=UTC)
ONCE = Retry(max_attempts=1)

_numbers = itertools.count()


def tables(scale: Scale) -> Iterator[Table]:
    """In memory, then on disk."""
    yield _table(scale, "in memory", lambda: WorkQueue.in_memory(history=False, retry=ONCE))
    with scratch(scale) as folder, ExitStack() as opened:
        path = new_paths(folder)
        yield _table(
            scale,
            "on disk, synced",
            lambda: opened.enter_context(WorkQueue.open(path(), retry=ONCE, snapshots=False)),
        )


# What is in the way: each fills an empty queue with n tasks that cannot be handed out.


def _add(queue: WorkQueue, tasks: Iterable[Enqueue]) -> None:
    rest = iter(tasks)
    while batch := list(itertools.islice(rest, BATCH)):
        queue.enqueue_all(batch)


def _nothing(queue: WorkQueue, n: int) -> None:
    pass


def _delayed(queue: WorkQueue, n: int) -> None:
    _add(queue, (Enqueue(f"late-{i}", not_before=FAR) for i in range(n)))


def _waiting(queue: WorkQueue, n: int) -> None:
    """Below one task that nobody has enqueued."""
    _add(queue, (Enqueue(f"wide-{i}", None, ("missing",)) for i in range(n)))


def _waiting_deep(queue: WorkQueue, n: int) -> None:
    """Each below the one before."""
    _add(queue, (Enqueue(f"deep-{i}", None, (f"deep-{i - 1}",)) for i in range(n)))


def _blocked(queue: WorkQueue, n: int) -> None:
    """Below one dead task."""
    queue.enqueue("root")
    lease = queue.start()
    assert lease is not None
    queue.fail(lease, "no")
    _add(queue, (Enqueue(f"blocked-{i}", None, ("root",)) for i in range(n)))


def _dead(queue: WorkQueue, n: int) -> None:
    _add(queue, (Enqueue(f"dead-{i}") for i in range(n)))
    while (lease := queue.start()) is not None:
        queue.fail(lease, "no")


def _one_key(queue: WorkQueue, n: int) -> None:
    """All behind the first of them, which is out."""
    _add(queue, (Enqueue(f"same-{i}", key="busy") for i in range(n + 1)))
    queue.start("holder")


def _many_keys(queue: WorkQueue, n: int) -> None:
    """So many keys, each with one task out and one behind it."""
    _add(queue, (Enqueue(f"held-{i}", key=f"key-{i}") for i in range(n)))
    for _ in range(n):
        queue.start()
    _add(queue, (Enqueue(f"behind-{i}", key=f"key-{i}") for i in range(n)))


FULL_OF: dict[str, Callable[[WorkQueue, int], None]] = {
    "nothing": _nothing,
    "delayed": _delayed,
    "waiting for one unknown task": _waiting,
    "waiting, each for the one before": _waiting_deep,
    "blocked below one dead task": _blocked,
    "dead": _dead,
    "behind one busy key": _one_key,
    "behind busy keys of their own": _many_keys,
}


# The claims.


def _claims(queue: WorkQueue, n: int, key: str | None) -> float:
    """Seconds that n claims keep the process busy; every task is behind all that is in the way."""
    _add(queue, [Enqueue(f"free-{next(_numbers)}", key=key) for _ in range(n)])
    return work(queue, n)


def _combined(queue: WorkQueue, n: int, key: str | None) -> float:
    """The same with complete_and_start."""
    _add(queue, [Enqueue(f"free-{next(_numbers)}", key=key) for _ in range(n)])
    lease = queue.start("worker")
    begin = busy()
    while lease is not None:
        lease = queue.complete_and_start(lease)
    return busy() - begin


ASKED: dict[str, Callable[[WorkQueue, int], float]] = {
    "start + complete": partial(_claims, key=None),
    "complete_and_start": partial(_combined, key=None),
    "of one free key": partial(_claims, key="free"),
}


def _table(scale: Scale, where: str, new: Callable[[], WorkQueue]) -> Table:
    held, n = scale.of(HELD), min(scale.few(CLAIMS, 200), max(1, scale.of(HELD) // 2))
    queues = {}
    with collector(on=scale.collector), unsynced():
        for full, fill in FULL_OF.items():
            fill(queues.setdefault(full, new()), held)

    def case(run: Callable[[WorkQueue, int], float], queue: WorkQueue) -> Callable[[], float]:
        return lambda: run(queue, n) / n * 1e6

    found = turns(
        {
            (asked, full): case(ASKED[asked], queue)
            for asked in ASKED
            for full, queue in queues.items()
        },
        scale,
    )
    base = next(iter(FULL_OF))
    table = Table(
        f"A claim {where}, in a queue with {held:,} tasks that cannot be handed out",
        ["all of them", *ASKED, *(f"{asked} /" for asked in ASKED)],
        "microseconds of processor time, medians; then times those in an empty queue; the "
        "collector " + ("on" if scale.collector else "off"),
    )
    worst = 0.0
    for full in queues:
        ratios = [found.ratio((asked, full), (asked, base)) for asked in ASKED]
        table.row(full, *(found.median((asked, full)) for asked in ASKED), *ratios)
        worst = max(worst, *ratios)
    table.ask(f"any claim {where}, against the empty queue", worst, at_most=LIMIT)
    return table
