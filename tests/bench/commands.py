"""Commands in memory: microseconds each, with little and much in the queue.

Nothing may grow with finished work, and little with work that waits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from eventq import Enqueue, Lease, Retry, WorkQueue

from .measure import Scale, busy, collector, turns
from .table import Table

__all__ = ["tables", "work"]

COMMANDS = 1_000
"""How many commands one turn asks."""

_numbers = itertools.count()


def _filled(waiting: int, finished: int) -> WorkQueue:
    """A queue with so many finished tasks, and so many in the line."""
    queue = WorkQueue.in_memory(history=False, retry=Retry(max_attempts=None))
    for first in range(0, finished, 1_000):
        _batch(queue, min(1_000, finished - first))
        lease = queue.start()
        while lease is not None:
            lease = queue.complete_and_start(lease)
    for first in range(0, waiting, 1_000):
        _batch(queue, min(1_000, waiting - first))
    return queue


def _batch(queue: WorkQueue, n: int) -> list[str]:
    names = [f"task-{next(_numbers)}" for _ in range(n)]
    queue.enqueue_all([Enqueue(name, name) for name in names])
    return names


def _leases(queue: WorkQueue, n: int) -> list[Lease]:
    return [lease for lease in (queue.start() for _ in range(n)) if lease is not None]


# Each gives the seconds of n commands, and leaves as many tasks in the line as there were.


def _enqueue(queue: WorkQueue, n: int) -> float:
    names = [f"task-{next(_numbers)}" for _ in range(n)]
    begin = busy()
    for name in names:
        queue.enqueue(name, name)
    spent = busy() - begin
    work(queue, n)
    return spent


def _again(queue: WorkQueue, n: int) -> float:
    name = f"task-{next(_numbers)}"
    queue.enqueue(name, name)
    begin = busy()
    for _ in range(n):
        queue.enqueue(name, name)
    spent = busy() - begin
    work(queue, 1)
    return spent


def _after(queue: WorkQueue, n: int) -> float:
    """Each needs one task that is there."""
    (above,) = _batch(queue, 1)
    names = [f"task-{next(_numbers)}" for _ in range(n)]
    begin = busy()
    for name in names:
        queue.enqueue(name, name, after=(above,))
    spent = busy() - begin
    for name in names:
        queue.cancel(name)
    work(queue, 1)
    return spent


def _batches(queue: WorkQueue, n: int) -> float:
    """In batches of 100: seconds for n tasks."""
    begin = busy()
    for _ in range(n // 100 or 1):
        _batch(queue, min(100, n))
    spent = busy() - begin
    work(queue, n)
    return spent


def work(queue: WorkQueue, n: int) -> float:
    """Seconds of n tasks that are started and completed."""
    begin = busy()
    for _ in range(n):
        lease = queue.start("worker")
        assert lease is not None
        queue.complete(lease)
    return busy() - begin


def _start_and_complete(queue: WorkQueue, n: int) -> float:
    _batch(queue, n)
    return work(queue, n)


def _complete_and_start(queue: WorkQueue, n: int) -> float:
    _batch(queue, n)
    lease = queue.start("worker")
    begin = busy()
    for _ in range(n):
        assert lease is not None
        lease = queue.complete_and_start(lease)
    spent = busy() - begin
    if lease is not None:
        queue.release(lease)
    return spent


def _start_and_fail(queue: WorkQueue, n: int) -> float:
    """Each failure sends its task to the back of the line."""
    begin = busy()
    for _ in range(n):
        lease = queue.start("worker")
        assert lease is not None
        queue.fail(lease, "no")
    return busy() - begin


def _start_and_release(queue: WorkQueue, n: int) -> float:
    begin = busy()
    for _ in range(n):
        lease = queue.start("worker")
        assert lease is not None
        queue.release(lease)
    return busy() - begin


def _cancel_and_restore(queue: WorkQueue, n: int) -> float:
    names = _batch(queue, n)
    begin = busy()
    for name in names:
        queue.cancel(name)
        queue.restore(name)
    spent = busy() - begin
    work(queue, n)
    return spent


def _look(queue: WorkQueue, n: int) -> float:
    names = _batch(queue, n)
    begin = busy()
    for name in names:
        queue.task(name)
    spent = busy() - begin
    work(queue, n)
    return spent


ASKED: dict[str, Callable[[WorkQueue, int], float]] = {
    "enqueue": _enqueue,
    "enqueue, known already": _again,
    "enqueue, after one": _after,
    "enqueue_all of 100, a task": _batches,
    "start + complete": _start_and_complete,
    "complete_and_start": _complete_and_start,
    "start + fail (retry)": _start_and_fail,
    "start + release": _start_and_release,
    "cancel + restore": _cancel_and_restore,
    "task(id)": _look,
}


def tables(scale: Scale) -> Iterator[Table]:
    """All commands in queues of several sizes, which take turns."""
    least, *larger = scale.sizes(1_000, 100_000, 1_000_000)
    fillings = {(least, 0): f"{least:,} waiting"}
    fillings |= {(n, 0): f"{n:,} waiting" for n in larger}
    fillings |= {(least, n): f"{n:,} finished" for n in larger[:1]}
    with collector(on=scale.collector):
        queues = {filling: _filled(*filling) for filling in fillings}
    n = min(scale.few(COMMANDS, 200), max(1, least // 2))

    def case(run: Callable[[WorkQueue, int], float], queue: WorkQueue) -> Callable[[], float]:
        return lambda: run(queue, n) / n * 1e6

    cases = {
        (asked, filling): case(run, queue)
        for asked, run in ASKED.items()
        for filling, queue in queues.items()
    }
    found = turns(cases, scale)
    base, *others = fillings
    table = Table(
        "Commands in memory",
        ["asked", *fillings.values(), *(f"{fillings[other]} /" for other in others)],
        f"microseconds; finished: behind {least:,} waiting, all kept; then times the first; the "
        "collector " + ("on" if scale.collector else "off"),
    )
    worst = 0.0
    for asked in ASKED:
        ratios = {other: found.ratio((asked, other), (asked, base)) for other in others}
        table.row(
            asked, *(found.median((asked, filling)) for filling in fillings), *ratios.values()
        )
        worst = max([worst, *(ratio for (_, finished), ratio in ratios.items() if finished)])
    if worst:
        table.ask("any command with finished work behind, against none", worst, at_most=1.5)
    yield table
