"""WorkQueue: what each method asks, answers and leaves in the log, in memory and on disk alike."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from disk import NOON, Ticks

from eventq import (
    BadValue,
    Capacity,
    CycleError,
    DeadLetter,
    Enqueue,
    Lease,
    OtherContent,
    Policy,
    QueueClosed,
    QueueFull,
    Retention,
    Retry,
    StaleLease,
    State,
    Status,
    Task,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WorkQueue,
    WrongStatus,
)
from eventq.core.evolve import replay

S = Status
Make = Callable[..., WorkQueue]


@pytest.fixture(params=["memory", "disk"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Opens a queue, in memory or on disk; the log must fold to its state when it is let go of."""
    made: list[WorkQueue] = []

    def make(**more: Any) -> WorkQueue:
        more = {"clock": Ticks()} | more
        if request.param == "memory":
            q = WorkQueue.in_memory(**more)
        else:
            q = WorkQueue.open(tmp_path / f"q{len(made)}", **more)
        made.append(q)
        return q

    yield make
    for q in made:
        q.state.check()
        assert replay(State(), q.entries()) == q.state
        q.shut()


@pytest.fixture
def q(make: Make) -> WorkQueue:
    return make()


def out(q: WorkQueue, worker: Any = None) -> Lease:
    lease = q.start(worker)
    assert lease is not None
    return lease


def last(q: WorkQueue) -> tuple[str, str | None, str | None]:
    """What the last entry says was asked, by whom and why."""
    entry = list(q.entries())[-1]
    return entry.do, entry.by, entry.why


def test_a_new_queue_is_empty_and_open(q: WorkQueue) -> None:
    """Its log has one entry; under the policy that holds when nothing is told."""
    assert (q.state.seq, len(q.state), q.state.admission, q.state.dispatch) == (
        1,
        0,
        "open",
        "running",
    )
    assert q.policy == Policy(None, None, Retry(3, 3, None), None)
    assert (q.task("a"), q.dead_letters(), q.parked(), q.start()) == (None, [], [], None)
    assert q.clock_behind == timedelta()
    assert last(q) == ("open", None, None)


def test_every_queue_has_an_id_of_its_own(make: Make) -> None:
    """It is part of the history."""
    ids = {make().state.queue for _ in range(5)}
    assert len(ids) == 5
    assert all(len(one) == 32 for one in ids)


def test_enqueue_answers_the_task(q: WorkQueue) -> None:
    """As it stands then, whole."""
    assert q.enqueue("a", {"n": 1}) == Task(
        id="a",
        payload={"n": 1},
        after=(),
        key=None,
        status=S.READY,
        attempt=0,
        max_attempts=3,
        not_before=None,
        redrives=0,
        releases=0,
        place=3,
        until=None,
        lease=None,
        error=None,
        result=None,
        ended=None,
    )
    task = q.enqueue("b", after=["a", "x", "a"], max_attempts=None)
    assert (task.status, task.after, task.max_attempts) == (S.PENDING, ("a", "x"), None)
    assert q.task("b") == task
    assert q.enqueue(after=["b"]).id == "#4"
    assert q.enqueue(None).id == "#5"


def test_enqueueing_again_answers_the_task_as_it_stands(q: WorkQueue) -> None:
    """And writes nothing; with other content it is refused."""
    payload = [1]
    q.enqueue("a", payload)
    done = q.complete(out(q))
    seq = q.state.seq
    assert q.enqueue("a", payload) == done
    assert done.status is S.SUCCEEDED
    for other in ({"payload": [2]}, {"payload": payload, "after": ["b"]}):
        with pytest.raises(OtherContent):
            q.enqueue("a", **other)  # type: ignore[arg-type]
    assert q.state.seq == seq


def test_a_batch_answers_one_task_for_each_that_was_asked(q: WorkQueue) -> None:
    """In their order: repeats and made ids as well, all as they stand after the batch."""
    old = q.enqueue("old")
    b = Enqueue("b", None, ["c", "#3.1"])
    tasks = q.enqueue_all(
        [b, Enqueue(None, 1), Enqueue("old"), b, Enqueue("c"), Enqueue(None, 2, max_attempts=1)]
    )
    assert [task.id for task in tasks] == ["b", "#3.1", "old", "b", "c", "#3.2"]
    assert [task.payload for task in tasks] == [None, 1, None, None, None, 2]
    assert (tasks[2], tasks[0], tasks[5].max_attempts) == (old, tasks[3], 1)
    assert [task.status for task in tasks[:2]] == [S.PENDING, S.READY]
    assert all(q.task(task.id) == task for task in tasks)
    seq = q.state.seq
    assert q.enqueue_all([]) == []
    assert q.enqueue_all(iter([b, Enqueue("c")])) == [tasks[0], tasks[4]]
    assert q.state.seq == seq


def test_a_batch_is_admitted_whole_or_not_at_all(make: Make) -> None:
    """For every kind of refusal, and the ids in it stay free."""
    q = make(capacity=Capacity(3))
    q.enqueue("old", "x")
    state = q.state
    x, y = Enqueue("x"), Enqueue("y")
    for batch, refusal in [
        ([x, Enqueue("old", "other")], OtherContent),
        ([x, y, Enqueue("x", "other")], OtherContent),
        ([x, Enqueue("y", after=["z"]), Enqueue("z", after=["y"])], CycleError),
        ([x, y, Enqueue("z")], QueueFull),
        ([x, "y"], BadValue),
        (7, BadValue),
    ]:
        with pytest.raises(refusal):
            q.enqueue_all(batch)  # type: ignore[arg-type]
        assert q.state is state
    q.close()
    with pytest.raises(QueueClosed):
        q.enqueue_all([x])
    q.reopen()
    assert len(q.enqueue_all([x, y])) == 2


def test_a_lease_and_how_it_ends(q: WorkQueue) -> None:
    """Started, completed; a lease may be given whole or by its number."""
    q.enqueue("a", ["p"])
    q.enqueue("b")
    lease = q.start("w")
    assert lease == Lease(id=4, task="a", payload=["p"], attempt=1, worker="w", expires=None)
    task = q.complete(lease, {"rows": 3})
    assert (task.status, task.result, task.lease) == (S.SUCCEEDED, {"rows": 3}, None)
    assert task.ended == q.state.at
    other = out(q)
    assert (other.id, other.worker) == (6, None)
    assert q.complete(6).id == "b"
    for again in (lease, other, 6, 99):
        with pytest.raises(StaleLease):
            q.complete(again)


def test_fail_and_release(q: WorkQueue) -> None:
    """Back to the line, or to the dead letters; a release costs no attempt."""
    q.enqueue("a")
    task = q.release(out(q, "w"))
    assert (task.status, task.attempt, task.releases, task.place) == (S.READY, 0, 1, 3)
    task = q.fail(out(q, "w"), "HTTP 503")
    assert (task.status, task.attempt, task.error) == (S.READY, 1, "HTTP 503")
    task = q.fail(out(q, "w"))
    assert (task.status, task.attempt, task.error) == (S.READY, 2, "")
    task = q.fail(out(q, "w").id, "\ud800\x00", kind="permanent")
    assert (task.status, task.attempt, task.error) == (S.DEAD, 3, "\\ud800\x00")
    reason = "failed after 3 attempts: \\ud800\x00"
    assert q.dead_letters() == [DeadLetter("a", S.DEAD, reason, "a")]


def test_any_text_can_be_an_error(q: WorkQueue) -> None:
    """Also one of a class of its own: what a failure says never keeps it from being told."""

    class Words(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    q.enqueue("a")
    task = q.fail(out(q), Words("lost \ud800"))
    assert task.error == "lost \\ud800"
    assert type(task.error) is str
    assert q.cancel("a", error=Words("old"), why=Words("tired \ud800")).error == "old"
    assert last(q) == ("cancel", None, "tired \\ud800")


def test_complete_and_start_hands_out_the_next(q: WorkQueue) -> None:
    """To the worker of the lease, in one entry; None when there is nothing more."""
    for name in "abc":
        q.enqueue(name)
    lease = out(q, "w")
    seq = q.state.seq
    following = q.complete_and_start(lease, "done")
    assert following == Lease(seq + 1, "b", None, 1, "w", None)
    assert q.state.seq == seq + 1
    third = q.complete_and_start(following.id)
    assert third is not None
    assert (third.task, third.worker) == ("c", "w")
    assert q.complete_and_start(third) is None
    assert [q.task(name).status for name in "abc"] == [S.SUCCEEDED] * 3  # type: ignore[union-attr]
    for stale in (lease, 999):
        with pytest.raises(StaleLease):
            q.complete_and_start(stale)


def test_complete_and_start_is_refused_whole(make: Make) -> None:
    """Where the worker may not start, the task is not completed either."""
    q = make(pool=["w", "v"])
    q.enqueue("a")
    lease = out(q, "w")
    state = q.state
    stranger = Lease(lease.id, "a", None, 1, "x", None)
    with pytest.raises(UnknownWorker):
        q.complete_and_start(stranger)
    assert q.state is state
    assert q.complete_and_start(lease.id) is None


def test_what_a_person_asks(q: WorkQueue) -> None:
    """Redrive, cancel, restore, close and reopen, and what they answer."""
    q.enqueue("a")
    q.enqueue("b", after=["a"])
    q.fail(out(q), "boom", kind="permanent")
    assert [letter.reason for letter in q.dead_letters()] == [
        "failed after 1 attempts: boom",
        "blocked by a",
    ]
    task = q.redrive("a")
    assert (task.status, task.attempt, task.redrives) == (S.READY, 0, 1)
    task = q.cancel("a", error="old")
    assert (task.status, task.error) == (S.CANCELLED, "old")
    assert [letter.reason for letter in q.dead_letters()] == ["blocked by a"]
    assert q.restore("a").status is S.READY
    assert q.dead_letters() == []
    lease = out(q, "w")
    with pytest.raises(StaleLease):
        q.cancel("a", lease=lease.id + 1)
    assert q.cancel("a", lease=lease).status is S.CANCELLED
    for ask, refusal in [
        (lambda: q.redrive("a"), WrongStatus),
        (lambda: q.cancel("a"), WrongStatus),
        (lambda: q.restore("b"), WrongStatus),
        (lambda: q.redrive("x"), UnknownTask),
        (lambda: q.cancel("x"), UnknownTask),
        (lambda: q.restore("x"), UnknownTask),
    ]:
        with pytest.raises(refusal):
            ask()
    seq = q.state.seq
    for ask in (q.reopen, q.close, q.close, q.reopen, q.reopen):
        assert ask() is None  # type: ignore[func-returns-value]
    assert q.state.seq == seq + 2


def test_parked_tasks_wait_for_a_person(make: Make) -> None:
    """They are no dead letters; what they block is."""
    q = make(retry=Retry(max_attempts=1, max_redrives=0))
    q.enqueue("a")
    q.enqueue("b", after=["a"])
    q.fail(out(q), "boom")
    assert q.parked() == [DeadLetter("a", S.PARKED, "failed after 1 attempts: boom", "a")]
    assert q.dead_letters() == [DeadLetter("b", S.BLOCKED, "blocked by a", "a")]


def test_tick_carries_out_what_is_due(make: Make) -> None:
    """Here: what retention lets go; with nothing due it writes nothing."""
    q = make(retention=Retention(1))
    for name in "abc":
        q.enqueue(name)
        q.cancel(name)
    assert q.tick() is None  # type: ignore[func-returns-value]
    assert [task.id for task in q.state.tasks()] == ["c"]
    seq = q.state.seq
    q.tick()
    assert q.state.seq == seq


def test_workers(make: Make) -> None:
    """One task for each; who is not in a fixed pool may not start, nor may nobody."""
    q = make(pool=["w"])
    q.enqueue("a")
    q.enqueue("b")
    for worker in ("x", None):
        with pytest.raises(UnknownWorker):
            q.start(worker)
    lease = out(q, "w")
    with pytest.raises(WorkerBusy) as caught:
        q.start("w")
    assert (caught.value.lease, caught.value.task) == (lease.id, "a")


def test_any_hashable_is_a_worker_in_memory(tmp_path: Path) -> None:
    """With a path workers have names."""
    workers: list[Any] = [0, (1, 2), frozenset(), object(), "w", 1.5]
    q = WorkQueue.in_memory(pool=workers)
    for worker in workers:
        q.enqueue(None)
        assert out(q, worker).worker is worker
    assert {entry.by for entry in q.entries()} == {None, "w"}
    with WorkQueue.open(tmp_path / "q") as q:
        for bad in (0, (1, 2), "", "a\n", b"w"):
            with pytest.raises(BadValue, match="name of a worker"):
                q.start(bad)
    with pytest.raises(BadValue, match="name of a worker"):
        WorkQueue.open(tmp_path / "p", pool=["w", 7])  # type: ignore[list-item]
    assert not (tmp_path / "p").exists()


NO_LEASE: list[Any] = [None, 0, -1, True, 1.0, "1", [], {}, object(), b"1"]


@pytest.mark.parametrize("lease", NO_LEASE, ids=repr)
def test_what_is_no_lease_is_a_bad_value(lease: Any, q: WorkQueue) -> None:
    """Whatever it is, and also where the lease 1 would be current."""
    q.enqueue("a")
    q.start("w")
    state = q.state
    for ask in (q.complete, q.complete_and_start, q.fail, q.release):
        with pytest.raises(BadValue):
            ask(lease)
    if lease is not None:
        with pytest.raises(BadValue):
            q.cancel("a", lease=lease)
    assert q.state is state


# Who asked, and why.


def test_who_asked_is_told_in_the_log(make: Make) -> None:
    """The worker that starts or holds the lease, if nobody else is told; or who was named."""
    q = make()
    q.enqueue("a")
    assert last(q) == ("enqueue", None, None)
    lease = out(q, "w")
    assert last(q) == ("start", "w", None)
    q.release(lease)
    assert last(q) == ("release", "w", None)
    q.fail(out(q, "w").id, "x")
    assert last(q) == ("fail", "w", None)
    q.enqueue("b")
    following = q.complete_and_start(out(q, "v"))
    assert last(q) == ("complete_and_start", "v", None)
    q.cancel("b", lease=following)
    assert last(q)[:2] == ("cancel", "v")
    q.complete(out(q))
    assert last(q) == ("complete", None, None)
    q.enqueue("c", by="ann")
    assert last(q) == ("enqueue", "ann", None)
    q.fail(out(q, "w"), by="bob")
    assert last(q) == ("fail", "bob", None)


def test_a_handle_may_say_who_asks(make: Make) -> None:
    """For all that is asked through it, unless the call says otherwise."""
    q = make(by="cron")
    assert last(q) == ("open", "cron", None)
    q.enqueue("a")
    q.start("w")
    assert last(q) == ("start", "cron", None)
    q.cancel("a", by="ann")
    assert last(q) == ("cancel", "ann", None)


def test_why_is_told_in_the_log(q: WorkQueue) -> None:
    """What an operator says about it, whatever it is."""
    q.enqueue("a")
    for ask in (
        lambda why: q.cancel("a", why=why),
        lambda why: q.restore("a", why=why),
        lambda why: q.close(why=why),
        lambda why: q.reopen(why=why),
    ):
        ask("so \u2028\n")
        assert last(q)[2] == "so \u2028\n"
    q.fail(out(q), kind="permanent")
    q.redrive("a", why="\ud800", by="ann")
    assert last(q) == ("redrive", "ann", "\\ud800")
    q.cancel("a")
    assert last(q)[2] is None


@pytest.mark.parametrize("bad", ["", "a\n", "\ud800", 7, b"x", "x" * 513, ["a"], True])
def test_by_is_a_name_and_why_a_text(bad: Any, make: Make, tmp_path: Path) -> None:
    """Refused before anything changes: a line that cannot be read again is never written."""
    q = make()
    q.enqueue("a")
    state = q.state
    asks: list[Callable[[], Any]] = [
        lambda: q.enqueue("b", by=bad),
        lambda: q.start("w", by=bad),
        lambda: q.enqueue_all([Enqueue("b")], by=bad),
        lambda: q.tick(by=bad),
        lambda: q.cancel("a", by=bad),
    ]
    if not isinstance(bad, str):
        asks += [
            lambda: q.cancel("a", why=bad),
            lambda: q.close(why=bad),
            lambda: q.close(why=[bad]),  # type: ignore[arg-type]
        ]
    for ask in asks:
        with pytest.raises(BadValue):
            ask()
        assert q.state is state
    with pytest.raises(BadValue):
        make(by=bad)
