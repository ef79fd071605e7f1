"""Many processes at one queue, killed at any moment: what was acknowledged is there, once."""

from __future__ import annotations

import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from disk import lines, segments
from forked import check, children

from eventq import HandleFinished, Status, WorkerBusy, WorkQueue

ROUNDS = 300 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 30


def test_eight_processes_work_at_one_queue(tmp_path: Path) -> None:
    """Opening it at once, they make one log; each task is done once; every yes is in the log."""
    path = tmp_path / "q"

    def worker(name: str) -> Callable[[Callable[[str], None]], None]:
        def work(tell: Callable[[str], None]) -> None:
            with WorkQueue.open(path, segment_bytes=20_000) as q:
                for i in range(12):
                    tell(f"enqueued {q.enqueue(f'{name}.{i}', [name, i]).id}")
                    if (lease := q.start(name)) is not None:
                        tell(f"leased {lease.id} {lease.task}")
                        q.complete(lease, name)
                        tell(f"done {lease.id} {lease.task}")

        return work

    with children(*(worker(f"w{n}") for n in range(8))) as running:
        ended = [child.end() for child in running]
    assert [code for code, _ in ended] == [0] * 8
    told = [line.split() for _, rest in ended for line in rest]
    state = check(path)
    enqueued = [words[1] for words in told if words[0] == "enqueued"]
    leases = [int(words[1]) for words in told if words[0] == "leased"]
    done = [words[2] for words in told if words[0] == "done"]
    assert len(enqueued) == len(set(enqueued)) == len(state) == 96
    assert len(leases) == len(set(leases))
    assert len(done) == len(set(done)) == state.count(Status.SUCCEEDED)
    with WorkQueue.open(path, read_only=True) as q:
        entries = {entry.seq: entry for entry in q.entries()}
    for lease in leases:
        assert entries[lease].do == "start"
    assert len({entry.events for entry in entries.values() if entry.do == "open"}) == 1


@pytest.mark.parametrize("big", [False, True], ids=["small lines", "big lines"])
def test_what_was_acknowledged_outlives_whoever_is_killed(big: bool, tmp_path: Path) -> None:
    """At any moment, under load, again and again: the log is whole, and the others go on."""
    path = tmp_path / "q"
    rng = random.Random(7)
    WorkQueue.open(path, segment_bytes=200_000).shut()
    acknowledged: set[str] = set()

    def writer(prefix: str) -> Callable[[Callable[[str], None]], None]:
        def work(tell: Callable[[str], None]) -> None:
            with WorkQueue.open(path, segment_bytes=200_000) as q:
                for i in range(100_000):
                    payload = "x" * 90_000 if big and i % 3 == 0 else i
                    tell(q.enqueue(f"{prefix}.{i}", payload).id)

        return work

    rounds = ROUNDS // 3 if big else ROUNDS
    with children(writer("stays")) as (stays,):
        for number in range(rounds):
            with children(*(writer(f"{number}{letter}") for letter in "ab")) as killed:
                wanted = rng.randint(1, 8)
                heard = 0
                while heard < wanted:
                    ready, _, _ = select.select([c.reading for c in (*killed, stays)], [], [])
                    for child in (*killed, stays):
                        if child.reading in ready:
                            names = child.told()
                            acknowledged.update(names)
                            heard += len(names) if child is not stays else 0
                for child in killed:
                    child.kill()
                for child in killed:
                    code, rest = child.end()
                    assert code == -signal.SIGKILL
                    acknowledged.update(name for line in rest for name in line.split())
            if number % 10 == 9:
                with WorkQueue.open(path, read_only=True) as q:
                    assert all(name in q.state for name in acknowledged)
        os.kill(stays.pid, 0)
        stays.kill()
        code, rest = stays.end()
        assert code == -signal.SIGKILL, "the one that was not killed has ended before"
        acknowledged.update(rest)
    state = check(path)
    assert [name for name in acknowledged if name not in state] == []
    assert len(acknowledged) > rounds
    assert len(segments(path)) > 1 or not big


def test_whoever_is_killed_while_it_works_gives_nothing_twice(tmp_path: Path) -> None:
    """A lease is handed out once; its task is started again only by who says so."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        for i in range(200):
            q.enqueue(f"t{i}")

        def work(tell: Callable[[str], None]) -> None:
            with WorkQueue.open(path) as mine:
                while lease := mine.start():
                    tell(f"{lease.id}:{lease.task}:{lease.attempt}")

        leased: list[str] = []
        for _ in range(8):
            with children(work, work) as running:
                for child in running:
                    leased += child.told()
                for child in running:
                    child.kill()
                    leased += child.end()[1]
        parts = [one.split(":") for one in leased]
        assert len({lease for lease, _, _ in parts}) == len({task for _, task, _ in parts})
        assert {attempt for _, _, attempt in parts} == {"1"}
        assert q.state.count(Status.RUNNING) >= len(leased)
        q.state.check()
    check(path)


# Forks.


def test_a_forked_child_has_no_handle(tmp_path: Path) -> None:
    """Whatever it asks of the one it was born with; it may open its own, and the parent goes on."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("a")

        def work(tell: Callable[[str], None]) -> None:
            for handle in (q, reader):
                for ask in (
                    lambda q: q.enqueue("b"),
                    lambda q: q.start(),
                    lambda q: q.state,
                    lambda q: q.head,
                    lambda q: list(q.entries()),
                    lambda q: q.at(1),
                ):
                    with pytest.raises(HandleFinished, match="forked"):
                        ask(handle)
            with q:
                pass
            q.shut()
            with WorkQueue.open(path) as own:
                own.enqueue("c")
            tell("well")

        with children(work) as (child,):
            assert child.end() == (0, ["well"])
        q.enqueue("d")
        assert [task.id for task in q.state.tasks()] == ["a", "c", "d"]
        assert reader.state == q.state
    check(path)


def test_a_child_forked_while_a_thread_holds_the_handle_does_not_hang(tmp_path: Path) -> None:
    """It is told that the handle is not its own; the lock of the thread means nothing to it."""
    path = tmp_path / "q"
    inside, go_on = threading.Event(), threading.Event()

    def clock() -> datetime:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait()
        return datetime.now(UTC)

    def work(tell: Callable[[str], None]) -> None:
        signal.alarm(5)
        for ask in (lambda: q.enqueue("b"), lambda: q.state, lambda: q.head, q.snapshot):
            with pytest.raises(HandleFinished):
                ask()
        q.shut()
        tell("well")

    with WorkQueue.open(path, clock=clock) as q:
        thread = threading.Thread(target=q.enqueue, args=("a",))
        thread.start()
        inside.wait()
        try:
            with children(work) as (child,):
                ended = child.end()
        finally:
            go_on.set()
            thread.join()
        assert ended == (0, ["well"])
        assert [task.id for task in q.state.tasks()] == ["a"]
    check(path)


def test_a_child_that_lives_on_holds_no_lock_of_its_parent(tmp_path: Path) -> None:
    """Neither one that was forked nor one that runs another program."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        q.enqueue("a")

        def work(tell: Callable[[str], None]) -> None:
            tell("born")
            signal.pause()

        sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        with children(work) as (child,):
            assert child.told() == ["born"]
            q.enqueue("b")
            with WorkQueue.open(path) as other:
                other.enqueue("c")
            q.shut()
            with WorkQueue.open(path) as other:
                other.enqueue("d")
        sleeper.communicate(b"\n")
    assert len(check(path)) == 4


# Waiting for each other.


def test_who_waits_is_woken_by_another_process(tmp_path: Path) -> None:
    """As soon as there is something to hand out, or nothing can come any more."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:

        def work(tell: Callable[[str], None]) -> None:
            with WorkQueue.open(path) as mine:
                tell("here")
                while lease := mine.start("w", wait=50):
                    with pytest.raises(WorkerBusy):
                        mine.start("w", wait=50)
                    mine.complete(lease)
                    tell(lease.task)

        with children(work) as (child,):
            assert child.told() == ["here"]
            for name in "abc":
                q.enqueue(name)
                assert child.told() == [name]
            q.close()
            assert child.end() == (0, [])
        assert q.state.count(Status.SUCCEEDED) == 3


def test_a_pool_of_processes_may_open_one_queue_each(tmp_path: Path) -> None:
    """As programs do that start afresh, and share nothing but the directory."""
    path = tmp_path / "q"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        made = pool.starmap(_enqueue, [(str(path), f"t{i}") for i in range(6)])
    assert sorted(made) == [f"t{i}" for i in range(6)]
    assert len(check(path)) == 6
    assert len(lines(path)) == 7


def _enqueue(path: str, name: str) -> Any:
    with WorkQueue.open(path) as q:
        return q.enqueue(name).id
