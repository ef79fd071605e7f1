"""Many processes at one queue, killed at any moment: what was acknowledged is there, once."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from disk import lines, segments
from forked import Child, Work, check, children, hear
from running import check_history

from eventq import Enqueue, HandleFinished, Retention, Status, WorkerBusy, WorkQueue
from eventq.core.events import TaskEvent

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
KILLS = 200 if THOROUGH else 20


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


@frozen
class Load:
    """What a writer writes: payloads of these sizes, so many tasks at a time, and snapshots."""

    sizes: tuple[int, ...]
    batch: int = 1
    snapshots: bool = False
    segment_bytes: int = 1_000_000

    def open(self, path: Path) -> WorkQueue:
        return WorkQueue.open(path, segment_bytes=self.segment_bytes)

    def writer(self, path: Path, name: str) -> Work:
        """It tells of each event that it has an answer for."""

        def work(tell: Callable[[str], None]) -> None:
            draw = random.Random(name)
            with self.open(path) as q:
                for i in range(1_000_000):
                    ids = [f"{name}.{i}.{n}" for n in range(self.batch)]
                    asked = [Enqueue(id, "x" * draw.choice(self.sizes)) for id in ids]
                    if self.batch == 1:
                        q.enqueue(ids[0], asked[0].payload)
                    else:
                        q.enqueue_all(asked)
                    tell("\n".join(f"Enqueued {id}" for id in ids))
                    if lease := q.start(f"{name}"):
                        tell(f"Started {lease.task}")
                        q.complete(lease, "x" * draw.choice(self.sizes))
                        tell(f"Completed {lease.task}")
                    if self.snapshots:
                        q.snapshot()

        return work


LOADS = {
    "plain": Load((1,)),
    "big lines": Load((1, 20_000, 150_000)),
    "batches": Load((1, 1000), batch=20),
    "snapshots": Load((1, 3000), snapshots=True),
    "small files": Load((1, 3000), segment_bytes=10_000),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_what_was_acknowledged_outlives_whoever_is_killed(load: Load, tmp_path: Path) -> None:
    """Of eight who write, one after the other is killed at any moment, and another comes in its
    place: one unforked chain, with all that was answered, and the others go on."""
    path = tmp_path / "q"
    rng = random.Random(7)
    names = map(str, itertools.count())
    acknowledged: list[str] = []
    with WorkQueue.open(path, retention=Retention(20)) as q:
        queue = q.state.queue

    def another() -> Work:
        return load.writer(path, next(names))

    with children(*(another() for _ in range(8))) as running:
        killed = 0
        at_work: set[Child] = set()
        while killed < KILLS:
            until = time.monotonic() + rng.uniform(0, 0.03)
            while (left := until - time.monotonic()) > 0:
                for child, lines in hear(running, left):
                    acknowledged += lines
                    at_work.add(child)
            if not at_work:
                continue
            one = rng.choice(sorted(at_work, key=running.index))
            one.kill()
            code, rest = one.end()
            assert code == -signal.SIGKILL, "it has ended before"
            acknowledged += rest
            at_work.remove(one)
            running[running.index(one)] = Child(another())
            killed += 1
        for child in running:
            os.kill(child.pid, 0)
            child.kill()
            acknowledged += child.end()[1]
    state = check(path)
    check_history(path)
    assert state.queue == queue
    with WorkQueue.open(path, read_only=True) as q:
        told = Counter(
            f"{type(event).__name__} {event.task}"
            for entry in q.entries()
            for event in entry.events
            if isinstance(event, TaskEvent)
        )
    assert [line for line in acknowledged if told[line] != 1] == []
    assert len(acknowledged) > killed
    torn = len(list((path / "torn").glob("*")))
    print(f"\n{killed} kills, {len(acknowledged)} acknowledged, {state.seq} entries, {torn} torn")
    assert len(segments(path)) > 1 or load.segment_bytes > 10_000


def half_a_line(path: Path) -> bool:
    """Whether the log ends in the midst of a line, as it does while one is being written."""
    with segments(path)[-1].open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")


@pytest.mark.parametrize("number", range(20 if THOROUGH else 3))
def test_a_line_that_was_being_written_by_who_was_killed_is_cut_off(
    tmp_path: Path, number: int
) -> None:
    """Killed as soon as half of it is seen; what was answered before is there, and one goes on."""
    path = tmp_path / "q"
    WorkQueue.open(path, retention=Retention(0)).shut()

    def work(tell: Callable[[str], None]) -> None:
        with WorkQueue.open(path) as q:
            while True:
                name = q.enqueue(None, "x" * 3_000_000).id
                tell(name)
                q.cancel(name)

    acknowledged: list[str] = []
    until = time.monotonic() + 10
    while not half_a_line(path):
        if time.monotonic() > until:
            pytest.skip("no half of a line is ever seen: this file system writes it in one go")
        with children(work) as (child,):
            acknowledged += child.told()
            soon = time.monotonic() + 0.2
            while not half_a_line(path) and time.monotonic() < soon:
                pass
            child.kill()
            acknowledged += child.end()[1]
    check(path)
    check_history(path)
    with WorkQueue.open(path, read_only=True) as q:
        told = Counter(x.task for e in q.entries() for x in e.events if isinstance(x, TaskEvent))
    assert set(acknowledged) <= set(told)
    assert len(list((path / "torn").iterdir())) == 1


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


def test_who_is_alone_with_a_queue_is_not_disturbed(tmp_path: Path) -> None:
    """Another process waits until the last of several commands, or until one has failed."""
    path = tmp_path / "q"

    def work(tell: Callable[[str], None]) -> None:
        tell("asks")
        with WorkQueue.open(path) as mine:
            mine.enqueue("theirs")
        tell("done")

    with WorkQueue.open(path) as q, children() as others:
        with q.alone() as state:
            assert len(state) == 0
            others.append(Child(work))
            assert others[0].told() == ["asks"]
            q.enqueue("a")
            with q.alone() as state:
                assert "a" in state
            q.reconfigure(capacity=None)
            assert hear(others, 0.2) == []
            q.enqueue("b")
        assert others[0].end() == (0, ["done"])
        assert [task.id for task in q.state.tasks()] == ["a", "b", "theirs"]
        with pytest.raises(ZeroDivisionError), q.alone():
            raise ZeroDivisionError
        others.append(Child(work))
        assert others[1].end() == (0, ["asks", "done"])
    check(path)


def test_a_thread_that_is_alone_with_a_queue_is_not_disturbed() -> None:
    """In memory, too: other threads wait."""
    asked = threading.Event()
    with WorkQueue.in_memory() as q:
        other = threading.Thread(target=lambda: asked.set() or q.enqueue("theirs"))
        with q.alone():
            other.start()
            asked.wait()
            q.enqueue("a")
            q.enqueue("b")
        other.join()
        assert [task.id for task in q.state.tasks()] == ["a", "b", "theirs"]


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
