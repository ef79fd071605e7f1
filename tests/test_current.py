"""The state that a handle goes on from in place: what goes wrong midway leaves no trace in it."""

from __future__ import annotations

import errno
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk import Queues, check_chain

from eventq import (
    Capacity,
    CycleError,
    Enqueue,
    ImpossibleEvent,
    QueueFull,
    Retention,
    State,
    WorkerBusy,
    WorkQueue,
)
from eventq.core.commands import Complete
from eventq.core.current import EVENTS, Current
from eventq.core.decide import RULES
from eventq.core.events import Readied
from eventq.core.evolve import replay
from eventq.testing.faults import FaultyDisk


def as_logged(q: WorkQueue) -> State:
    """The state that follows from the entries alone."""
    return replay(State(), q.entries())


def some(q: WorkQueue, number: int) -> None:
    """Tasks that stand in all kinds of lists, since the state was last held on to."""
    for i in range(number):
        q.enqueue(f"{i}", i)
        q.enqueue(f"below {i}", after=[f"{i}"], key="k")
    for _ in range(number // 2):
        lease = q.start()
        assert lease is not None
        q.complete(lease)


def a_cycle(q: WorkQueue) -> None:
    with pytest.raises(CycleError):
        q.enqueue_all([Enqueue("x"), Enqueue("y", after=["z"]), Enqueue("z", after=["y"])])


def no_room(q: WorkQueue) -> None:
    with pytest.raises(QueueFull):
        q.enqueue_all([Enqueue(f"x{i}") for i in range(1000)])


def a_busy_worker(q: WorkQueue) -> None:
    """It has started meanwhile, and then another lease is completed in its name."""
    held, other = q.start("w"), q.start("v")
    assert held is not None
    assert other is not None
    named = type(other)(other.id, other.task, other.payload, other.attempt, "w", other.expires)
    with pytest.raises(WorkerBusy):
        q.complete_and_start(named)
    assert q.state.lease(other.id) is not None


@pytest.mark.parametrize("number", [4, EVENTS // 4], ids=["few", "many"])
@pytest.mark.parametrize("refused", [a_cycle, no_room, a_busy_worker])
def test_a_refusal_behind_the_first_event_changes_nothing(
    refused: Callable[[WorkQueue], None], number: int, make: Queues
) -> None:
    """What was told before it is taken back, however much has passed since the state was kept."""
    q = make(capacity=Capacity(2 * number + 50))
    some(q, number)
    refused(q)
    q.enqueue("goes on")
    assert q.state == as_logged(q)
    q.state.check()
    held = q.state
    again = as_logged(q)
    refused_again = [a_cycle, no_room]
    for refuse in refused_again:
        refuse(q)
    q.enqueue("and on")
    assert held == again  # what was handed out never changes
    assert q.state == as_logged(q)


def test_the_last_state_is_that_of_the_log_behind_a_refusal(q: WorkQueue) -> None:
    """Also when it is asked for by its seq, before anything else is."""
    some(q, 2)
    seq = q.state.seq
    a_cycle(q)
    assert q.at(seq) == as_logged(q)
    assert q.state == as_logged(q)


def test_an_event_that_cannot_be_folded_never_reaches_the_log(
    make: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that tells one too many leaves log and memory as they were."""

    def wrong(telling: Any, command: Any) -> None:
        RULES[Complete](telling, command)
        telling.tell(Readied("0"))

    q = make()
    some(q, 4)
    lease = q.start("w")
    assert lease is not None
    before = q.state
    monkeypatch.setattr("eventq.core.current.RULES", {**RULES, Complete: wrong})
    with pytest.raises(ImpossibleEvent):
        q.complete(lease)
    monkeypatch.undo()
    assert q.state == as_logged(q) == before
    q.complete(lease)
    assert q.state == as_logged(q)


def test_a_write_that_fails_changes_nothing(tmp_path: Path) -> None:
    """The memory goes back to what the log says, for each command in turn."""
    disk = FaultyDisk()
    with WorkQueue.open(tmp_path / "q", disk=disk) as q:
        some(q, 5)
        lease = q.start("w")
        assert lease is not None
        asks: list[Callable[[], Any]] = [
            lambda: q.enqueue("new", after=["also new"]),
            lambda: q.enqueue_all([Enqueue(), Enqueue()]),
            lambda: q.complete_and_start(lease),
            lambda: q.fail(lease, "x", kind="permanent"),
            lambda: q.cancel("4"),
            lambda: q.close(),
        ]
        for ask in asks:
            disk.fail("pwrite", error=errno.ENOSPC, written=3)
            with pytest.raises(OSError, match="No space left"):
                ask()
            assert q.state == as_logged(q)
        for ask in asks[:2]:
            ask()
        assert q.state == as_logged(q)
    check_chain(tmp_path / "q")


def test_what_is_finished_is_let_go_of_before_long(tmp_path: Path) -> None:
    """However large it is: only so much of the log is kept to go back with."""
    with WorkQueue.open(tmp_path / "q", retention=Retention(count=0), durability="process") as q:
        tracemalloc.start()
        for _ in range(40):
            q.enqueue(None, "x" * 1_000_000)
            lease = q.start()
            assert lease is not None
            q.complete(lease, "y" * 1_000_000)
            q.tick()
        del lease
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 10_000_000


def test_entries_without_events_are_let_go_of_too() -> None:
    """As those of a worker that asks again and again where all is recorded."""
    with WorkQueue.in_memory(history=False, record=True) as q:
        tracemalloc.start()
        for _ in range(2000):
            assert q.start() is None
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert q.state.seq == 2001
        assert held < 100_000


def test_what_others_wrote_is_not_held_on_to(tmp_path: Path) -> None:
    """Who follows for long, and asks for nothing, keeps what an undoing needs, and no more."""
    with WorkQueue.open(tmp_path / "q") as q, WorkQueue.open(tmp_path / "q") as other:
        for _ in range(8):
            other.enqueue_all([Enqueue(None) for _ in range(EVENTS // 5)])
            assert q.head == other.head
            assert len(q._current._since) < 8


MAPS = ("records", "leases", "busy", "holders", "fronts")


@pytest.mark.parametrize("seed", range(3))
def test_a_state_that_was_handed_out_never_changes(seed: int, make: Queues) -> None:
    """However often the handle keeps another one since, in the place of those nobody holds."""
    rng = random.Random(seed)
    q = make()
    held: list[tuple[State, dict[str, dict[Any, Any]]]] = []
    for step in range(400):
        q._current._undo = rng.choice([1, 10, 100])
        q.enqueue(f"{step}", key=rng.choice([None, "a", "b", "c"]))
        if rng.random() < 0.6 and (lease := q.start(rng.choice([None, f"w{step}"]))) is not None:
            act = rng.choice([q.complete, q.fail, q.release, lambda _: None])
            act(lease)
        if rng.random() < 0.1:
            state = q.state
            held.append((state, {name: dict(getattr(state, name).items()) for name in MAPS}))
    assert len(held) > 20
    for state, maps in held:
        assert state == q.at(state.seq)
        assert {name: dict(getattr(state, name).items()) for name in MAPS} == maps
        state.check()


def test_a_state_that_it_begins_with_stays_as_it_is() -> None:
    """Others may hold it."""
    with WorkQueue.in_memory() as q:
        some(q, 10)
        entries = list(q.entries())
    begin = replay(State(), entries[:10])
    again = replay(State(), entries[:10])
    current = Current(begin, 1)
    for entry in entries[10:]:
        current.fold(entry)
        current.settle()
    assert current.state() == replay(begin, entries[10:])
    for name in MAPS:
        assert dict(getattr(begin, name).items()) == dict(getattr(again, name).items())
