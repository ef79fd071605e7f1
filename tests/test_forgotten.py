"""What is finished and forgotten leaves nothing behind, whatever has happened to it."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import fields
from disk import Ticks

from eventq import Lease, Retention, Retry, State, Status, WorkQueue
from eventq.core.ordered import Sorted
from eventq.core.persistent import Map

DAY = timedelta(days=1)
ROUNDS = 60
RETRY = Retry(1, max_redrives=0)

LISTS = [
    name.name for name in fields(State) if isinstance(getattr(State(), name.name), Map | Sorted)
]
"""Every collection of a state."""


def one_round(queue: WorkQueue, clock: Ticks, number: int, seen: Counter[str]) -> None:
    """Tasks with ids, keys and workers of their own, one for each way to an end."""

    def name(text: str) -> str:
        return f"{text}-{number}"

    def look() -> None:
        state = queue.state
        seen.update({name: len(getattr(state, name)) for name in LISTS})

    def out(task: str, worker: str) -> Lease:
        lease = queue.start(name(worker))
        assert lease is not None
        assert lease.task == name(task)
        look()
        return lease

    queue.enqueue(name("late"), key=name("late"), not_before=clock.at + timedelta(hours=1))
    queue.enqueue(name("done"), key=name("done"))
    queue.enqueue(name("after"), after=[name("done"), name("unknown")], key=name("done"))
    queue.enqueue(name("dies"), key=name("dead"))
    queue.enqueue(name("second"), key=name("dead"))
    queue.enqueue(name("below"), after=[name("dies"), name("second")])
    lease = queue.complete_and_start(out("done", "w"))
    assert lease is not None
    queue.fail(lease, name("HTTP 503"))  # parks
    look()
    queue.fail(out("second", "x"), "no", kind="permanent")
    queue.enqueue(name("runs"), max_attempts=None)
    out("runs", "slow")
    clock.at += DAY  # its lease runs out, and what was late is due
    queue.tick()
    queue.release(out("late", "y"))
    queue.complete(out("late", "y"))
    queue.cancel(name("runs"))
    queue.resolve(name("dies"))
    look()
    queue.redrive(name("second"))
    queue.complete(out("second", "z"))
    queue.cancel(name("below"))
    look()
    queue.restore(name("below"))
    queue.complete(out("below", "z"))
    queue.cancel(name("after"))
    look()


def all_forgotten(state: State) -> None:
    state.check()
    assert {name: len(getattr(state, name)) for name in LISTS} == dict.fromkeys(LISTS, 0)
    assert set(state.standing.values()) == {0}


@pytest.mark.parametrize(
    "retention", [Retention(count=0), Retention(age=timedelta(hours=1))], ids=["count", "age"]
)
def test_nothing_is_left_of_what_is_forgotten(retention: Retention) -> None:
    """Of no task, key, worker or lease: every collection of the state was filled, and is empty."""
    clock = Ticks()
    queue = WorkQueue.in_memory(
        retry=RETRY, retention=retention, lease_for=3600, clock=clock, history=False
    )
    seen: Counter[str] = Counter()
    for number in range(ROUNDS):
        one_round(queue, clock, number, seen)
    assert min(seen[name] for name in LISTS) > 0, seen
    clock.at += DAY
    queue.tick()
    all_forgotten(queue.state)


def test_a_person_lets_go_of_what_is_kept_by_another_policy_and_a_tick(tmp_path: Path) -> None:
    """A thousand at most in one entry; the log keeps them all, and a snapshot none."""
    with WorkQueue.open(tmp_path / "queue", retry=RETRY, lease_for=3600, clock=Ticks()) as queue:
        clock = queue._clock
        assert isinstance(clock, Ticks)
        for number in range(5):
            one_round(queue, clock, number, Counter())
        assert queue.state.count(Status.SUCCEEDED, Status.CANCELLED) == len(queue.state) == 35
        full = queue.snapshot().stat().st_size
        queue.reconfigure(retention=Retention(count=0), why="they are in the archive")
        assert len(queue.state) == 35
        queue.tick()
        all_forgotten(queue.state)
        empty = queue.snapshot().stat().st_size
        assert empty < 1000 < full
    with WorkQueue.open(tmp_path / "queue", read_only=True) as queue:
        all_forgotten(queue.state)


def test_memory_does_not_grow_with_what_has_passed() -> None:
    """Counted by Python itself, once the first tasks are forgotten."""
    clock = Ticks()
    queue = WorkQueue.in_memory(
        retry=RETRY, retention=Retention(count=10), lease_for=3600, clock=clock, history=False
    )
    tracemalloc.start()
    try:
        held = []
        for number in range(4 * ROUNDS):
            if number % ROUNDS == 0:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            one_round(queue, clock, number, Counter())
    finally:
        tracemalloc.stop()
    assert held[-1] - held[1] < 10_000, held  # 840 tasks have passed: their ids alone take 40,000
