"""Times: leases that run out, delays, and a clock that may be wrong."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from disk import NOON, Queues, Ticks, check_chain, lines, out

from eventq import (
    Backoff,
    BadValue,
    Retention,
    Retry,
    StaleLease,
    State,
    Status,
    WorkQueue,
)
from eventq.core.evolve import replay

S = Status


def test_leases_run_out_and_can_be_renewed(make: Queues) -> None:
    """By the clock of the handle; a renewal is written where it moves the expiry by much."""
    clock = Ticks()
    q = make(clock=clock, lease_for=60)
    q.enqueue("a")
    lease = out(q, "w")
    assert lease.expires == clock.at + timedelta(seconds=60)
    seq = q.state.seq
    assert q.renew(lease) == lease
    assert q.state.seq == seq
    clock.at += timedelta(seconds=40)
    longer = q.renew(lease.id, 100)
    assert longer.expires == clock.at + timedelta(seconds=100)
    assert (q.state.seq, longer.id) == (seq + 1, lease.id)
    clock.at += timedelta(seconds=200)
    q.tick()
    task = q.task("a")
    assert task is not None
    assert (task.status, task.error, task.attempt) == (S.READY, "lease expired", 1)
    for ask in (q.renew, q.complete, q.fail, q.release):
        with pytest.raises(StaleLease):
            ask(lease)
    assert out(q, lease_for=timedelta(seconds=1)).expires == clock.at + timedelta(seconds=1)


def test_a_task_waits_for_its_time_and_its_key(make: Queues) -> None:
    """Delayed until then; behind the one that holds its key."""
    clock = Ticks()
    q = make(clock=clock)
    later = NOON + timedelta(hours=1)
    task = q.enqueue("a", key="k", not_before=later)
    assert (task.status, task.until, task.not_before, task.key) == (S.DELAYED, later, later, "k")
    q.enqueue("b", key="k")
    held = out(q)
    assert (held.task, q.start()) == ("b", None)
    clock.at = later
    assert q.start() is None
    task = q.fail(held, retry_after=90)
    assert (task.status, task.until) == (S.DELAYED, clock.at + timedelta(seconds=90))
    assert q.start() is None
    clock.at += timedelta(hours=1)
    again = out(q)
    q.complete(again)
    assert (again.task, out(q).task) == ("b", "a")


@pytest.mark.parametrize("part", ["lease_for", "age", "base", "cap"])
def test_no_length_of_time_is_too_long_to_be_read_again(part: str, make: Queues) -> None:
    """It is refused, or the log that it is written to gives it back."""
    for length in (timedelta.max, timedelta(days=150_000, microseconds=1), 1e300, 10**30):
        parts: dict[str, Any] = {}
        try:
            if part == "age":
                parts["retention"] = Retention(age=length)
            elif part == "lease_for":
                parts["lease_for"] = length
            else:
                backoff: dict[str, Any] = {"base": 1, "cap": 60} | {part: length}
                parts["retry"] = Retry(backoff=Backoff(**backoff))
            q = make(**parts)
        except BadValue:
            continue
        assert [entry.seq for entry in q.entries()] == [1]
        assert q.at(1).policy == replay(State(), q.entries()).policy == q.policy
        q.enqueue("a")
        q.fail(out(q))


def test_a_time_that_no_calendar_has_is_refused(q: WorkQueue) -> None:
    """As a bad value, before anything changes."""
    q.enqueue("a")
    lease = out(q)
    state = q.state
    early = timezone(timedelta(hours=-1))
    for ask in (
        lambda: q.enqueue("b", not_before=datetime.max.replace(tzinfo=early)),
        lambda: q.enqueue("b", not_before=datetime(2026, 11, 30)),  # noqa: DTZ001
        lambda: q.start(lease_for=timedelta.max),
        lambda: q.renew(lease, timedelta.max),
        lambda: q.fail(lease, retry_after=timedelta.max),
        lambda: q.fail(lease, retry_after=float("nan")),
    ):
        with pytest.raises(BadValue):
            ask()
    assert q.state is state


# The clock.


def times(q: WorkQueue) -> list[datetime]:
    return [entry.at for entry in q.entries()]


def test_the_clock_is_an_argument(make: Queues) -> None:
    """Its time is that of the entries, in UTC, whatever its zone."""
    there = timezone(timedelta(hours=5, minutes=30))
    clock = Ticks(datetime(2026, 11, 30, 17, 30, tzinfo=there))
    q = make(clock=clock)
    q.enqueue("a")
    assert times(q) == [NOON + timedelta(seconds=1), NOON + timedelta(seconds=2)]
    task = q.cancel("a")
    assert task.ended == q.state.at == NOON + timedelta(seconds=3)
    assert q.clock_behind == timedelta()


def test_time_never_falls_and_never_stands_still(make: Queues) -> None:
    """With a clock that was set back, time goes on from the last entry as fast as it runs."""
    clock = Ticks()
    q = make(clock=clock)
    begun = time.monotonic()
    q.enqueue()
    clock.at -= timedelta(days=1)
    before = q.state.at
    assert before is not None
    assert timedelta(hours=23) < q.clock_behind < timedelta(hours=24)
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        q.enqueue()
    passed = time.monotonic() - begun
    found = times(q)
    assert found == sorted(found)
    assert found[-1] > before
    assert timedelta() < found[-1] - before <= timedelta(seconds=passed)
    clock.at += timedelta(days=2)
    q.enqueue()
    assert times(q)[-1] == clock.at
    assert q.clock_behind == timedelta()


def test_time_goes_on_behind_what_another_wrote(tmp_path: Path) -> None:
    """Also while somebody looks again and again, and when half a line stands at the end."""
    path = tmp_path / "q"
    ahead = Ticks(NOON + timedelta(days=1))
    with (
        WorkQueue.open(path, clock=ahead) as other,
        WorkQueue.open(path, clock=Ticks()) as q,
    ):
        other.enqueue("a")
        last = other.state.at
        assert last is not None
        assert q.state.at == last
        with next((path / "log").iterdir()).open("ab") as file:
            file.write(b'{"v":1,')
        begun = time.monotonic()
        while time.monotonic() < begun + 0.02:
            assert q.state.seq == 2
        q.enqueue("b")
        at = q.state.at
        assert at is not None
        assert at - last >= timedelta(seconds=0.02)
        assert other.state.at == at
        other.enqueue("c")
        assert times(q) == sorted(times(q))
    check_chain(path)


def test_a_queue_opened_again_goes_on_from_its_last_entry(tmp_path: Path) -> None:
    """Also from a snapshot, with a clock that is behind."""
    path = tmp_path / "q"
    with WorkQueue.open(path, clock=Ticks(NOON + timedelta(days=1))) as q:
        q.enqueue()
        q.snapshot()
        at = q.state.at
    with WorkQueue.open(path, clock=Ticks()) as q:
        assert q.clock_behind > timedelta(hours=23)
        q.enqueue()
        assert q.state.at is not None
        assert at is not None
        assert timedelta() < q.state.at - at < timedelta(minutes=1)


def test_a_clock_without_a_zone_is_refused(tmp_path: Path) -> None:
    """Nobody could tell what time it meant; nothing is written."""

    def naive() -> datetime:
        return datetime(2026, 11, 30, 12)  # noqa: DTZ001

    with pytest.raises(BadValue, match="zone"):
        WorkQueue.open(tmp_path / "q", clock=naive)
    with pytest.raises(BadValue, match="zone"):
        WorkQueue.in_memory(clock=naive)
    WorkQueue.open(tmp_path / "q").shut()
    with WorkQueue.open(tmp_path / "q", clock=naive) as q, pytest.raises(BadValue, match="zone"):
        q.enqueue()
    assert len(lines(tmp_path / "q")) == 1


def test_a_clock_that_fails_changes_nothing(make: Queues) -> None:
    """What it raises is raised, and the handle goes on."""
    broken: list[bool] = []

    def clock() -> datetime:
        if broken:
            raise ZeroDivisionError
        return datetime.now(UTC)

    q = make(clock=clock)
    broken.append(True)
    state = q.state
    with pytest.raises(ZeroDivisionError):
        q.enqueue("a")
    assert q.state is state
    broken.clear()
    q.enqueue("a")
