"""WorkQueue: what each method asks, answers and leaves in the log, in memory and on disk alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from disk import Queues, out

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
    Select,
    StaleLease,
    Status,
    Task,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WorkQueue,
    WrongStatus,
)

S = Status


def test_a_new_queue_is_empty_and_open(q: WorkQueue) -> None:
    """Its log has one entry; under the policy that holds when nothing is told."""
    assert (q.state.seq, len(q.state), q.state.admission, q.state.dispatch) == (
        1,
        0,
        "open",
        "running",
    )
    assert q.policy == Policy(retry=Retry(max_attempts=3, max_redrives=3, max_releases=None))
    assert (q.task("a"), q.dead_letters(), q.parked(), q.start()) == (None, [], [], None)
    assert q.clock_behind == timedelta()


def test_every_queue_has_an_id_of_its_own(make: Queues) -> None:
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
            q.enqueue("a", **other)
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


def test_a_batch_is_admitted_whole_or_not_at_all(make: Queues) -> None:
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
    assert [*q.entries()][-1].why == "tired \\ud800"


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


def test_complete_and_start_is_refused_whole(make: Queues) -> None:
    """Where the worker may not start, the task is not completed either."""
    q = make(pool=["w", "v"])
    q.enqueue("a")
    lease = out(q, "w")
    state = q.state
    stranger = Lease(lease.id, "a", None, 1, "x", None)
    with pytest.raises(UnknownWorker):
        q.complete_and_start(stranger)
    with pytest.raises(StaleLease):
        q.complete_and_start(lease.id + 1)
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
    for name, refusal in (("b", WrongStatus), ("x", UnknownTask)):
        for ask in (q.redrive, q.restore, q.resolve):
            with pytest.raises(refusal):
                ask(name)
    with pytest.raises(UnknownTask):
        q.cancel("x")
    task = q.resolve("a")
    assert (task.status, task.ended) == (S.SUCCEEDED, q.state.at)
    with pytest.raises(WrongStatus):
        q.cancel("a")
    assert q.redrive_all() == []


def test_a_bulk_redrive_answers_the_tasks_that_it_means(q: WorkQueue) -> None:
    """In the order of their death; the others stay where they are."""
    for name in "abc":
        q.enqueue(name)
    for error in ("HTTP 503", "no such file", "HTTP 502"):
        q.fail(out(q), error, kind="permanent")
    tasks = q.redrive_all(Select(how="prefix", error="HTTP"), why="it is back")
    assert [(task.id, task.status, task.redrives) for task in tasks] == [
        ("a", S.READY, 1),
        ("c", S.READY, 1),
    ]
    seq = q.state.seq
    assert q.redrive_all(Select(tasks=["a", "x"])) == []
    assert q.state.seq == seq
    assert [task.id for task in q.redrive_all()] == ["b"]


def test_what_already_holds_is_answered_yes(q: WorkQueue) -> None:
    """And writes nothing, however often it is asked."""
    seq = q.state.seq
    for ask in (q.reopen, q.close, q.close, q.reopen, q.resume, q.pause, q.pause, q.resume):
        ask()
    assert q.state.seq == seq + 4
    assert q.reconfigure(retry=Retry()) == q.policy
    assert q.state.seq == seq + 4


def test_a_paused_queue_hands_nothing_out(q: WorkQueue) -> None:
    """Until it is resumed; work that is out may end."""
    q.enqueue("a")
    q.enqueue("b")
    lease = out(q)
    q.pause()
    assert q.start() is None
    q.complete(lease)
    q.resume()
    assert out(q).task == "b"


def test_reconfigure_changes_the_parts_that_are_given(q: WorkQueue) -> None:
    """It answers the policy from then on; a part that is none is a bad value."""
    policy = q.reconfigure(capacity=Capacity(0), lease_for=5)
    assert policy == q.policy == Policy(Capacity(0), lease_for=timedelta(seconds=5))
    with pytest.raises(QueueFull):
        q.enqueue("a")
    assert q.reconfigure(capacity=None).lease_for == timedelta(seconds=5)
    for bad in ({"mood": "good"}, {"capacity": 5}, {"pool": "abc"}, {"lease_for": -1}):
        with pytest.raises(BadValue):
            q.reconfigure(**bad)
    with pytest.raises(BadValue, match=r"no part 'kapacity'; it has capacity, pool, .*, record$"):
        q.reconfigure(kapacity=5)


@pytest.mark.parametrize("seq", ["1", True, 1.0, None])
def test_a_seq_is_a_whole_number(q: WorkQueue, seq: Any) -> None:
    """Anything else is told so, and is no entry that is not there."""
    for ask in (q.at, q.entries):
        with pytest.raises(BadValue, match=f"seq must be a whole number, .* not {seq!r}$"):
            ask(seq)


def test_parked_tasks_wait_for_a_person(make: Queues) -> None:
    """They are no dead letters; what they block is."""
    q = make(retry=Retry(max_attempts=1, max_redrives=0))
    q.enqueue("a")
    q.enqueue("b", after=["a"])
    q.fail(out(q), "boom")
    assert q.parked() == [DeadLetter("a", S.PARKED, "failed after 1 attempts: boom", "a")]
    assert q.dead_letters() == [DeadLetter("b", S.BLOCKED, "blocked by a", "a")]


def test_tick_carries_out_what_is_due(make: Queues) -> None:
    """Here: what retention lets go; with nothing due it writes nothing."""
    q = make(retention=Retention(1))
    for name in "abc":
        q.enqueue(name)
        q.cancel(name)
    q.tick()
    assert [task.id for task in q.state.tasks()] == ["c"]
    seq = q.state.seq
    q.tick()
    assert q.state.seq == seq


def test_workers(make: Queues) -> None:
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


NO_LEASE: list[Any] = [None, 0, -1, True, 1.0, "1", [], {}, Any, b"1"]


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


def test_after_the_last_time_that_there_is_a_queue_goes_on(make: Queues) -> None:
    """A clock that was that wrong once ends nothing: time stands there."""
    at = datetime.max.replace(tzinfo=UTC)
    q = make(clock=lambda: at)
    at = datetime(2026, 11, 30, tzinfo=UTC)
    q.enqueue("a")
    assert out(q).task == "a"
    assert q.state.at == datetime.max.replace(tzinfo=UTC)
