"""A handle: who asked is told in the log, threads may share it, and what it keeps.

What is asked in what words stands in `test_workqueue`.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from disk import Queues, check_chain, lines, out

from eventq import (
    BadValue,
    CycleError,
    Enqueue,
    EventqError,
    HandleFinished,
    LinesLost,
    LogDamaged,
    NotAQueue,
    OtherContent,
    QueueClosed,
    QueueFull,
    QueueReplaced,
    ReadOnly,
    Refusal,
    StaleLease,
    State,
    Status,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WorkQueue,
    WrongStatus,
)
from eventq.core.commands import command
from eventq.core.decide import decide
from eventq.core.evolve import evolve
from eventq.storage.following import Followed

S = Status


def last(q: WorkQueue) -> tuple[str, str | None, str | None]:
    """What the last entry says was asked, by whom and why."""
    entry = list(q.entries())[-1]
    return entry.do, entry.by, entry.why


# Who asked, and why.


def test_who_asked_is_told_in_the_log(make: Queues) -> None:
    """The worker that starts or holds the lease, if nobody else is told; or who was named."""
    q = make(lease_for=60)
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
    assert following is not None
    q.renew(following, 600)
    assert last(q) == ("renew", "v", None)
    q.cancel(following.task, lease=following)
    assert last(q) == ("cancel", "v", None)
    q.enqueue("d")
    q.complete(out(q))
    assert last(q) == ("complete", None, None)
    q.enqueue("c", by="ann")
    assert last(q) == ("enqueue", "ann", None)
    q.fail(out(q, "w"), by="bob")
    assert last(q) == ("fail", "bob", None)


def test_a_handle_may_say_who_asks(make: Queues) -> None:
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
def test_by_is_a_name_and_why_a_text(bad: Any, make: Queues) -> None:
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
            lambda: q.reconfigure(why=bad, lease_for=1),
        ]
    for ask in asks:
        with pytest.raises(BadValue):
            ask()
        assert q.state is state
    with pytest.raises(BadValue):
        make(by=bad)


# What was refused.


def test_what_was_refused_is_kept_where_that_was_agreed(make: Queues) -> None:
    """With every argument; whoever decides it again is refused for the same reason."""
    q = make(record=True, pool=["w"])
    q.enqueue("a", {"n": 10**30, "x": [1.0, -0.0]})
    lease = out(q, "w")
    refused: list[tuple[Callable[[], Any], type[Refusal]]] = [
        (lambda: q.start(), UnknownWorker),
        (lambda: q.start("x", by="ann"), UnknownWorker),
        (lambda: q.start("w"), WorkerBusy),
        (lambda: q.enqueue("a", {"n": 1}, after=["b", "c"], key="k"), OtherContent),
        (lambda: q.enqueue_all([Enqueue("x", 1, ["y"]), Enqueue("y", None, ["x"])]), CycleError),
        (lambda: q.complete(99, {"rows": [None, "\u2028", 1e300]}), StaleLease),
        (lambda: q.fail(97, "boom \ud800", retry_after=1.5), StaleLease),
        (lambda: q.renew(96, 60), StaleLease),
        (lambda: q.release(95), StaleLease),
        (lambda: q.redrive("a", why="no \ud800 reason", by="ann"), WrongStatus),
        (lambda: q.cancel("x", error="old"), UnknownTask),
        (lambda: q.cancel("a", lease=lease.id + 1), StaleLease),
        (lambda: q.restore("a"), WrongStatus),
        (lambda: q.resolve("x"), UnknownTask),
    ]
    seq = q.state.seq
    for ask, refusal in refused:
        with pytest.raises(refusal):
            ask()
    found = list(q.entries(seq + 1))
    assert [entry.ask["refused"] for entry in found] == [kind.name for _, kind in refused]
    assert all(entry.events == () for entry in found)
    state = State()
    for entry in q.entries():
        if "refused" in entry.ask:
            with pytest.raises(Refusal) as caught:
                decide(state, command(entry), entry.at)
            assert caught.value.name == entry.ask["refused"]
        else:
            assert decide(state, command(entry), entry.at)[0] == entry.events
        state = evolve(state, entry)
    assert (found[1].by, found[9].by, found[9].why) == ("ann", "ann", "no \\ud800 reason")


def test_a_start_that_got_nothing_is_kept_where_that_was_agreed(make: Queues) -> None:
    """It may be asked one day why nothing was handed out then."""
    q = make(record=True)
    assert q.start("w") is None
    assert q.start() is None
    assert [(x.do, x.by, x.events) for x in q.entries(2)] == [
        ("start", "w", ()),
        ("start", None, ()),
    ]
    quiet = make()
    quiet.start("w")
    with pytest.raises(UnknownTask):
        quiet.cancel("x")
    assert quiet.state.seq == 1


# Threads.


def test_threads_may_share_a_handle(q: WorkQueue) -> None:
    """Every command is carried out once, one after the other; nobody holds two tasks."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    everyone = threading.Barrier(6)

    def work(worker: str) -> int:
        done = 0
        everyone.wait()
        for i in range(12):
            q.enqueue(f"{worker}.{i}", {"n": i})
            lease = q.start(worker)
            assert lease is not None
            assert lease.worker == worker
            assert q.task(lease.task) is not None
            if i % 3:
                assert q.complete(lease).status is S.SUCCEEDED
                done += 1
            else:
                q.release(lease)
            assert len(q.dead_letters()) == 0
        return done

    try:
        with ThreadPoolExecutor(6) as pool:
            done = sum(pool.map(work, "uvwxyz"))
    finally:
        sys.setswitchinterval(before)
    assert q.state.count(S.SUCCEEDED) == done == 48
    assert q.state.count(S.READY) == 24
    assert [entry.seq for entry in q.entries()] == list(range(1, q.state.seq + 1))
    if q.path is not None:
        check_chain(q.path)


def test_a_state_that_was_handed_out_never_changes(q: WorkQueue) -> None:
    """However much the queue goes on: it can be kept, and asked from any thread."""
    kept = [q.state]
    for i in range(40):
        q.enqueue(f"t{i}")
        if i % 2:
            q.fail(out(q), "x", kind="permanent" if i % 4 else "retryable")
        kept.append(q.state)
    for state in kept:
        state.check()
        assert state == q.at(state.seq)


# What a handle keeps.


def test_without_history_nothing_grows(tmp_path: Path) -> None:
    """What is finished and let go of leaves nothing behind; the past has no answer."""
    q = WorkQueue.in_memory(history=False)
    q.enqueue("a")
    q.complete(out(q))
    assert q.state.seq == 4
    with pytest.raises(ValueError, match="history=False"):
        list(q.entries())
    with pytest.raises(ValueError, match="history=False"):
        q.at(1)
    assert q.at(4) == q.state


def test_a_queue_in_memory_has_no_path_and_no_hash() -> None:
    """But all else that a queue has; once it is shut, it is gone."""
    with WorkQueue.in_memory() as q:
        q.enqueue("a")
        assert (q.path, q.head) == (None, (2, "0" * 64))
        assert "in memory at entry 2" in repr(q)
        assert len(list(q.entries())) == 2
    for ask in (lambda: q.state, lambda: q.enqueue("b"), q.entries, lambda: q.head):
        with pytest.raises(HandleFinished, match="in memory answers nothing more"):
            ask()


ERRORS: list[EventqError] = [
    BadValue("x"),
    UnknownWorker("w", ["v"]),
    OtherContent("a", "READY", "another payload"),
    QueueClosed("a"),
    CycleError(["a", "b", "a"]),
    QueueFull(2, 3, 4, "waiting"),
    UnknownTask("a", "cancel"),
    WrongStatus("a", "cancel", "READY", ["DEAD"]),
    StaleLease(7, "complete"),
    WorkerBusy("w", "a", 7),
    NotAQueue(Path("q"), "it is empty"),
    LogDamaged(Path("q"), 1, 2, 3, "what"),
    LinesLost(Path("q"), 3, 5),
    HandleFinished("it was shut"),
    ReadOnly(Path("q")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_crosses_from_one_process_to_another(error: EventqError) -> None:
    """As pools of processes send them: with its words and all that it knows."""
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_a_lock_that_was_emptied_hides_no_segment(tmp_path: Path) -> None:
    """Its size says when to look for the next one; a name that came says so as well."""
    with (
        WorkQueue.open(tmp_path, segment_bytes=1) as q,
        WorkQueue.open(tmp_path, segment_bytes=1) as other,
    ):
        q.enqueue("a")
        other.enqueue("b")
        known = (tmp_path / "lock").stat().st_size
        os.truncate(tmp_path / "lock", 0)
        while (tmp_path / "lock").stat().st_size < known:
            q.enqueue(f"c{q.head[0]}")
        before = lines(tmp_path)
        other.enqueue("last")
        assert lines(tmp_path)[:-1] == before
    check_chain(tmp_path)


def test_a_segment_that_was_not_read_is_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were nothing else to tell of it, it is in the way of who begins the next one."""
    with (
        WorkQueue.open(tmp_path, segment_bytes=1) as q,
        WorkQueue.open(tmp_path, segment_bytes=1) as other,
    ):
        q.enqueue("a")
        assert other.state.seq == 2
        q.enqueue("b")
        before = lines(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(Followed, "_followed", lambda *_, **__: False)
            with pytest.raises(QueueReplaced, match="is there already"):
                other.enqueue("last")
        assert lines(tmp_path) == before
        other.enqueue("last")
    check_chain(tmp_path)
