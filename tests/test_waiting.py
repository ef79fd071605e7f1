"""Waiting on a handle: what ends it, that nothing spins, and what the log says of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventq import HandleFinished, Lease, WorkQueue
from eventq.storage import watch

HOUR = 3600.0


@pytest.fixture(params=["in memory", "on disk", "on disk, without inotify"])
def q(request, tmp_path: Path, monkeypatch) -> Iterator[WorkQueue]:
    """A queue where all is recorded."""
    if "without" in request.param:
        monkeypatch.setattr(watch, "_inotify", lambda _: None)
    with (
        WorkQueue.in_memory(record=True)
        if request.param == "in memory"
        else WorkQueue.open(tmp_path / "q", record=True)
    ) as queue:
        yield queue


class Waiting:
    """A call that goes on in a thread of its own."""

    def __init__(self, q: WorkQueue, call: Callable[[], Any]) -> None:
        self._q = q
        self._call = call
        self._ended: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ended.append(self._call())
        except BaseException as error:  # noqa: BLE001  # it is what is asked for
            self._ended.append(error)

    def began(self) -> Waiting:
        """Return once it waits."""
        while not self._q._watches:
            assert self._thread.is_alive(), self._ended
        return self

    def end(self) -> Any:
        """What it answered or raised."""
        self._thread.join(30)
        assert not self._thread.is_alive(), "nothing has ended it"
        return self._ended[0]


def a_start(q: WorkQueue, **more: Any) -> Waiting:
    return Waiting(q, lambda: q.start("w", wait=HOUR, **more)).began()


def starts(q: WorkQueue) -> list[tuple[Any, ...]]:
    return [entry.events for entry in q.entries() if entry.do == "start"]


# What ends it.


def test_shutting_the_handle_ends_every_wait(q: WorkQueue) -> None:
    """Whoever waits is told that it answers nothing more."""
    waiting = [a_start(q), Waiting(q, lambda: q.wait(lambda *_: False))]
    while len(q._watches) < 2:
        pass
    q.shut()
    for one in waiting:
        assert isinstance(one.end(), HandleFinished)


def test_work_ends_it(q: WorkQueue) -> None:
    """Another thread enqueues."""
    waiting = a_start(q)
    q.enqueue("a")
    assert waiting.end().task == "a"


def test_work_of_another_handle_ends_it(tmp_path: Path) -> None:
    """As if it were another process, see test_processes.py."""
    with WorkQueue.open(tmp_path / "q") as q, WorkQueue.open(tmp_path / "q") as other:
        waiting = a_start(q)
        other.enqueue("a")
        assert waiting.end().task == "a"


@pytest.mark.parametrize("what", ["delay", "lease"])
def test_a_due_time_ends_it(q: WorkQueue, what: str) -> None:
    """A delay that is over, and a lease of another that ran out."""
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    q.enqueue("a", not_before=soon if what == "delay" else None)
    if what == "lease":
        assert q.start("other", lease_for=0.2)
    lease = a_start(q).end()
    assert (lease.task, lease.attempt) == ("a", 1 if what == "delay" else 2)


def test_closing_the_queue_ends_it(q: WorkQueue) -> None:
    """Nothing can come any more."""
    waiting = a_start(q)
    q.close()
    assert waiting.end() is None


def test_whoever_started_it_may_end_it(q: WorkQueue) -> None:
    """By what it was given to look at, once it is woken to do so."""
    enough = threading.Event()
    waiting = a_start(q, unless=enough.is_set)
    q.wake()
    enough.set()
    q.wake()
    assert waiting.end() is None
    assert starts(q) == []


def test_a_wait_for_anything_looks_at_the_state(q: WorkQueue) -> None:
    """Whether it is so already, comes to be so, or does not in time."""
    assert q.wait(lambda state, now: state.at <= now)
    assert not q.wait(lambda state, _: "a" in state, seconds=0)
    waiting = Waiting(q, lambda: q.wait(lambda state, _: "b" in state)).began()
    q.enqueue("a")
    q.enqueue("b")
    assert waiting.end() is True
    assert not q._watches


# What it costs.


def test_nothing_spins(tmp_path: Path) -> None:
    """Also where something is due that nobody carries out, or can: a few looks for any time."""
    for q in (WorkQueue.in_memory(), WorkQueue.open(tmp_path / "q")):
        with q:
            q.enqueue("a")
            q.start("other", lease_for=0.05)
            looks: list[datetime] = []
            assert not q.wait(lambda _, now, looks=looks: looks.append(now), seconds=0.3)
            assert len(looks) <= 4


def test_a_wait_that_got_nothing_is_one_entry(q: WorkQueue) -> None:
    """Where all is recorded: whatever woke it on its way, and however many waited."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    waiting = [Waiting(q, lambda n=n: q.start(f"w{n}", wait=0.5)) for n in range(4)]
    for number in range(5):
        q.enqueue(f"t{number}", not_before=tomorrow)
    assert [one.end() for one in waiting] == [None] * 4
    assert starts(q) == [()] * 4


def test_of_all_who_are_woken_one_gets_the_task(q: WorkQueue) -> None:
    """And the others wait on, without a word in the log."""
    waiting = [Waiting(q, lambda n=n: q.start(f"w{n}", wait=HOUR)) for n in range(4)]
    while len(q._watches) < 4:
        pass
    for number in range(4):
        q.enqueue(f"t{number}")
    leases: list[Lease] = [one.end() for one in waiting]
    assert {lease.task for lease in leases} == {f"t{n}" for n in range(4)}
    assert [len(events) for events in starts(q)] == [1] * 4
