"""`eventq.worker`: what becomes of what a handler does, in real threads and real processes."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import errands
import pytest

from eventq import BadValue, HandleFinished, Retry, Status, UnknownWorker, WorkQueue
from eventq.cli.processes import process
from eventq.core.events import Renewed, Started
from eventq.worker import (
    Context,
    Failure,
    Permanent,
    ProcessNotStarted,
    TaskFailed,
    Witness,
    Worker,
)
from eventq.worker.outcome import ERROR_LIMIT

KINDS = pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
ONCE = Retry(max_attempts=1)
S = Status


@pytest.fixture(autouse=True)
def _look_often(monkeypatch) -> None:
    """Wait less long between two looks at leases and processes."""
    monkeypatch.setattr("eventq.worker.keeper.LOOK", 0.05)
    monkeypatch.setattr("eventq.worker.places.LOOK", 0.05)


@pytest.fixture
def q(tmp_path) -> Iterator[WorkQueue]:
    with WorkQueue.open(tmp_path / "q") as queue:
        yield queue


def until(what: Callable[[], Any], *, seconds: float = 20.0) -> Any:
    """Wait until this is true, and give it."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return found


def drain(q: WorkQueue, handler: Callable[[Context], Any], **more: Any) -> None:
    """Work until nothing is left."""
    Worker(q, handler, drain=True, **more).run()


@contextmanager
def at_work(*args: Any, stop: bool = True, **more: Any) -> Iterator[Worker]:
    """A worker that runs in a thread of its own meanwhile, and is stopped in the end."""
    worker = Worker(*args, **more)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001  # raised again below
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield worker
    finally:
        if stop:
            worker.stop()
        thread.join(30)
        assert not thread.is_alive()
    if raised:
        raise raised[0]


def task(q: WorkQueue, name: str = "a") -> Any:
    found = q.task(name)
    assert found is not None
    return found


def events(q: WorkQueue, kind: type) -> list[Any]:
    return [event for entry in q.entries() for event in entry.events if isinstance(event, kind)]


# What a handler returns and raises.


@KINDS
def test_what_the_handler_returns_is_the_result(q, processes):
    """It is given the task, its payload and its attempt, and its own process if so asked."""
    q.enqueue("a", {"row": 1})
    q.enqueue("b", after=["a"])
    drain(q, errands.where, processes=processes)
    results = [task(q, name).result for name in ("a", "b")]
    assert {task(q, name).status for name in ("a", "b")} == {Status.SUCCEEDED}
    assert [result["attempt"] for result in results] == [1, 1]
    assert len({result["pid"] for result in results}) == 1
    assert (results[0]["pid"] != os.getpid()) is processes
    assert (results[0]["session"] == results[0]["pid"]) is processes


def test_a_handler_knows_its_lease(q):
    """Id, task, payload, attempt, worker and expiry."""
    q.enqueue("a", {"row": 1}, max_attempts=2)
    seen = []

    def handler(context: Context) -> None:
        seen.append((context.task, context.payload, context.attempt, context.lost))
        assert context.lease == q.state.lease(context.lease.id)
        assert context.lease.expires is not None
        raise ValueError

    drain(q, handler)
    assert seen == [("a", {"row": 1}, 1, False), ("a", {"row": 1}, 2, False)]


def test_a_queue_in_memory_takes_any_result():
    """The very object."""
    with WorkQueue.in_memory() as q:
        q.enqueue("a", object())
        drain(q, lambda context: (context.payload, {1}))
        assert task(q).result == (task(q).payload, {1})


@KINDS
def test_whatever_is_raised_is_a_failure_of_the_task(tmp_path, processes):
    """Its type and its text, however hostile; the worker goes on with the next task."""
    with WorkQueue.open(tmp_path / "q", retry=ONCE) as q:
        for name in errands.HOSTILE:
            q.enqueue(name, name)
        drain(q, errands.raise_hostile, processes=processes)
        for name, (_, begins) in errands.HOSTILE.items():
            found = task(q, name)
            assert found.status is Status.DEAD
            assert found.error.startswith(begins)
            if name not in errands.LENGTHS:
                assert found.error == begins
        for name, length in errands.LENGTHS.items():
            error = task(q, name).error
            assert ERROR_LIMIT - 10 < len(error.encode()) <= ERROR_LIMIT
            assert error.endswith(f"... (cut, {length} characters in all)")


@KINDS
def test_a_result_that_cannot_be_stored_is_a_permanent_failure(q, processes):
    """It says what is wrong with it, and is not tried again."""
    for name in errands.UNSTORABLE:
        q.enqueue(name, name)
    drain(q, errands.return_unstorable, processes=processes)
    for name in errands.UNSTORABLE:
        found = task(q, name)
        assert (found.status, found.attempt) == (Status.DEAD, 1)
        assert found.error.startswith("the result cannot be stored: ")
    assert "is of the type set, which JSON would not give back" in task(q, "set").error
    assert "lone surrogate" in task(q, "surrogate").error


@KINDS
def test_some_exceptions_are_of_no_use_to_try_again(q, processes):
    """`Permanent`, and the types that the worker is given, subclasses too."""
    for name in ("permanent", "lookup", "other"):
        q.enqueue(name, name)
    drain(q, errands.fail_in, processes=processes, permanent=[LookupError])
    found = {name: (task(q, name).attempt, task(q, name).error) for name in q.state.records}
    assert found == {
        "permanent": (1, "never"),
        "lookup": (1, "KeyError: 'row'"),
        "other": (3, "ValueError: other"),
    }


def test_a_failure_may_say_when_to_try_again(q):
    """Draining waits for that; what makes no sense is not heeded."""
    q.enqueue("later", "later", max_attempts=2)
    q.enqueue("never", "never", max_attempts=2)
    drain(q, errands.fail_in)
    assert task(q, "later").error == "HTTP 429"
    assert (task(q, "later").attempt, task(q, "never").attempt) == (2, 2)
    delays = [event for entry in q.entries() for event in entry.events if hasattr(event, "until")]
    assert [event.task for event in delays] == ["later"]


def test_failures_are_logged_with_their_traceback(q, caplog):
    """Nothing in it acts on a terminal."""
    q.enqueue("a", "controls", max_attempts=1)
    drain(q, errands.raise_hostile)
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    text = record.getMessage()
    assert "task 'a': attempt 1 failed, and it is DEAD now: ValueError: \\x1b[31m\\x00" in text
    assert 'errands.py", line' in text
    assert text.replace("\n", "").isprintable()


# Leases.


@pytest.mark.parametrize("busy", [False, True], ids=["blocking", "computing"])
def test_a_lease_is_renewed_while_the_handler_runs(q, busy):
    """For longer than the lease, whatever the handler does; nobody else is given the task."""
    q.enqueue("a")

    def handler(_: Context) -> str:
        until_renewed = lambda: len(events(q, Renewed)) >= 3  # noqa: E731
        while busy and not until_renewed():
            sum(range(100_000))
        until(until_renewed)
        assert q.start("other") is None
        return "done"

    drain(q, handler, lease_for=0.3)
    assert (task(q).result, task(q).attempt) == ("done", 1)


def test_a_lease_runs_as_the_worker_or_the_queue_says(tmp_path):
    """And where nobody says so, for a minute: it always ends."""
    lengths = {}

    def lengths_with(told: float | None, **policy: Any) -> float:
        with WorkQueue.open(tmp_path / str(len(lengths)), **policy) as q:
            q.enqueue("a")
            drain(q, lambda _: None, lease_for=told)
            (entry,) = [e for e in q.entries() if any(isinstance(x, Started) for x in e.events)]
            (started,) = entry.events
            lengths[len(lengths)] = None
            return (started.expires - entry.at).total_seconds()

    assert lengths_with(None) == 60
    assert lengths_with(None, lease_for=7) == 7
    assert lengths_with(9, lease_for=7) == 9


@KINDS
def test_a_handler_is_told_when_its_task_is_cancelled(q, tmp_path, processes, caplog):
    """What it returns then is dropped and logged, and the worker goes on."""
    q.enqueue("a", str(tmp_path))
    with at_work(q, errands.wait_in, processes=processes):
        until((tmp_path / "a.began").exists)
        q.cancel("a")
        until((tmp_path / "a.lost").exists)
        (tmp_path / "go").touch()
        q.enqueue("b", str(tmp_path))
        until(lambda: task(q, "b").status is Status.SUCCEEDED)
    assert task(q).status is Status.CANCELLED
    assert "task 'a': lease 3 was lost, its work is dropped" in caplog.messages


def test_a_process_is_told_of_a_lease_lost_before_it_began(q, tmp_path):
    """The cancellation was faster than the call."""

    class Cancelling(Witness):
        def began(self, lease: Any) -> None:
            if lease.task == "a":
                q.cancel("a")
                until(lambda: not worker._keeper._kept)

    q.enqueue("a", str(tmp_path))
    with at_work(q, errands.wait_in, processes=True, witness=Cancelling()) as worker:
        until((tmp_path / "a.lost").exists)


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_work_under_a_lost_lease_counts_for_nothing(q, ends):
    """The task was given to another meanwhile, who keeps it."""
    q.enqueue("a")
    other = []

    def handler(_: Context) -> str:
        if not other:
            q.cancel("a")
            q.restore("a")
            other.append(q.start("other"))
            if ends == "raises":
                raise Permanent("too late")
        return "mine"

    with at_work(q, handler):
        until(lambda: other and q.state.lease(other[0].id))
        q.enqueue("b")
        until(lambda: task(q, "b").status is Status.SUCCEEDED)
    assert task(q).status is Status.RUNNING
    assert q.complete(other[0], "theirs").result == "theirs"


def test_a_name_that_is_taken_is_waited_for(q):
    """An earlier worker of the same name was killed: its lease has to run out first."""
    q.enqueue("a")
    q.start("w/1", lease_for=0.3)
    told = []

    class Told(Witness):
        def busy(self, worker: str, task: str, lease: int) -> None:
            told.append((worker, task, lease))

    drain(q, lambda _: "done", name="w", witness=Told())
    assert (task(q).result, task(q).attempt) == ("done", 2)
    assert set(told) == {("w/1", "a", 3)}


# Stopping.


@KINDS
def test_what_runs_may_finish_when_the_worker_is_stopped(q, tmp_path, processes):
    """Nothing new is begun meanwhile."""
    q.enqueue("a", str(tmp_path))
    q.enqueue("b", str(tmp_path))
    with at_work(q, errands.wait_in, processes=processes, stop=False) as worker:
        until((tmp_path / "a.began").exists)
        worker.stop()
        (tmp_path / "go").touch()
    assert (task(q).status, task(q).result) == (Status.SUCCEEDED, "gone")
    assert (task(q, "b").status, task(q, "b").attempt) == (Status.READY, 0)


@KINDS
def test_what_has_not_finished_when_the_grace_is_over_is_handed_back(q, tmp_path, processes):
    """At no attempt. A process is killed; a thread cannot be, but knows that its lease is lost."""
    q.enqueue("a", str(tmp_path))
    with at_work(q, errands.wait_in, processes=processes, grace=0.05, stop=False) as worker:
        until((tmp_path / "a.began").exists)
        worker.stop()
    assert (task(q).status, task(q).attempt, task(q).releases) == (Status.READY, 0, 1)
    if processes:
        assert process((tmp_path / "a.began").read_text()) is None
    else:
        until((tmp_path / "a.lost").exists)


def test_a_process_on_its_way_does_not_hold_up_the_end(q, tmp_path):
    """A handler that takes long to import is ended with the grace, without an error."""
    q.enqueue("a")
    with at_work(q, errands.Slow(tmp_path), processes=True, grace=0.05, stop=False) as worker:
        until((tmp_path / "making").exists)
        worker.stop()
    assert (task(q).status, task(q).attempt) == (Status.READY, 0)


def test_asking_twice_takes_the_grace_away(q, tmp_path):
    """Whoever asks twice wants it now."""
    q.enqueue("a", str(tmp_path))
    with at_work(q, errands.wait_in, grace=3600, stop=False) as worker:
        until((tmp_path / "a.began").exists)
        worker.stop()
        worker.stop()
    assert (task(q).status, task(q).attempt) == (Status.READY, 0)


def test_a_worker_stopped_before_it_runs_begins_nothing(q):
    """And a worker runs once."""
    q.enqueue("a")
    worker = Worker(q, lambda _: None)
    worker.stop()
    worker.run()
    assert task(q).status is Status.READY
    with pytest.raises(RuntimeError, match="has run already"):
        worker.run()


def test_a_lease_granted_while_stopping_is_handed_back(q, monkeypatch):
    """Stopped between the grant and the call of the handler: no attempt is lost."""
    q.enqueue("a")
    worker = Worker(q, lambda _: None)
    start = WorkQueue.start

    def stopped_meanwhile(*args: Any, **more: Any) -> Any:
        lease = start(*args, **more)
        worker.stop()
        until(worker._stopping.is_set)
        return lease

    monkeypatch.setattr(WorkQueue, "start", stopped_meanwhile)
    worker.run()
    assert (task(q).status, task(q).attempt, task(q).releases) == (Status.READY, 0, 1)


def test_the_signals_are_as_before_after_a_run(q):
    """A worker in the main thread takes them over only while it runs."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    q.enqueue("a")

    def handler(_: Context) -> None:
        assert signal.getsignal(signal.SIGTERM) not in before
        os.kill(os.getpid(), signal.SIGTERM)

    Worker(q, handler).run()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert task(q).status is Status.SUCCEEDED


def program(
    queue: Path, kind: str, *, slots: int = 1, grace: float = 30, lease: float = 60
) -> subprocess.Popen[str]:
    """A worker that is a program of its own, in a process group of its own."""
    root = Path(__file__).parent.parent
    return subprocess.Popen(
        [sys.executable, errands.__file__, *map(str, (queue, kind, slots, grace, lease))],
        env={**os.environ, "PYTHONPATH": str(root)},
        process_group=0,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_signal_that_comes_to_another_thread_stops_it_too(q, tmp_path):
    """As the kernel may choose: the thread that handles it sleeps meanwhile."""
    q.enqueue("a")
    program = (
        "import signal, sys, threading\n"
        "from eventq.worker import Worker\n"
        "def handler(context): signal.pthread_kill(threading.get_ident(), signal.SIGTERM)\n"
        "Worker(sys.argv[1], handler).run()\n"
    )
    root = Path(__file__).parent.parent
    ended = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "q"],
        env={**os.environ, "PYTHONPATH": str(root)},
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0
    assert task(q).status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("kind", "number"), [("threads", signal.SIGTERM), ("processes", signal.SIGINT)]
)
def test_a_signal_lets_running_work_finish(q, tmp_path, kind, number):
    """Sent to the whole group, as Ctrl-C is; the exit code is 0."""
    for name in "abc":
        q.enqueue(name, str(tmp_path))
    with program(tmp_path / "q", kind, slots=2) as worker:
        until(lambda: all((tmp_path / f"{name}.began").exists() for name in "ab"))
        os.killpg(worker.pid, number)
        if kind == "processes":  # which have a session of their own: systemd asks them all
            os.kill(int((tmp_path / "a.began").read_text()), signal.SIGTERM)
        until((tmp_path / "stopping").exists)
        (tmp_path / "go").touch()
        assert worker.wait(20) == 0
    assert [task(q, name).status for name in "abc"] == [S.SUCCEEDED, S.SUCCEEDED, S.READY]
    assert task(q, "c").attempt == 0


def test_after_the_grace_a_signal_hands_back(q, tmp_path):
    """The task is READY again with no attempt counted, and no process is left."""
    q.enqueue("a", str(tmp_path))
    with program(tmp_path / "q", "processes", grace=0.1) as worker:
        until((tmp_path / "a.began").exists)
        worker.terminate()
        assert worker.wait(20) == 0
    assert (task(q).status, task(q).attempt) == (S.READY, 0)
    assert process((tmp_path / "a.began").read_text()) is None


def test_a_killed_worker_takes_its_processes_along_and_the_task_comes_back(q, tmp_path):
    """kill -9: its lease runs out, which costs an attempt, and another worker does the work."""
    q.enqueue("a", str(tmp_path))
    with program(tmp_path / "q", "processes", lease=0.5) as worker:
        until((tmp_path / "a.began").exists)
        pid = (tmp_path / "a.began").read_text()
        worker.kill()
        worker.wait(20)
    until(lambda: process(pid) is None or not process(pid).runs)
    assert task(q).status is Status.RUNNING
    (tmp_path / "go").touch()
    drain(q, errands.wait_in)
    assert (task(q).status, task(q).attempt) == (S.SUCCEEDED, 2)


# Processes.


def test_a_process_that_dies_fails_its_task_and_the_worker_goes_on(tmp_path, monkeypatch):
    """It says how: by itself or by a signal. What it leaves behind is ended."""
    monkeypatch.setenv("ERRANDS", str(tmp_path))
    ways = {
        "kill": "its process is gone: killed by SIGKILL",
        "segfault": "its process is gone: killed by SIGSEGV",
        "child": "its process is gone: exit status 3",
    }
    with WorkQueue.open(tmp_path / "q", retry=ONCE) as q:
        for name in ways:
            q.enqueue(name, name)
        q.enqueue("after", "")
        drain(q, errands.die, processes=True)
        assert {name: task(q, name).error for name in ways} == ways
        assert task(q, "after").status is Status.SUCCEEDED
    left = process((tmp_path / "child").read_text())
    assert left is None or not left.runs


def test_a_handler_that_forks_is_heard_once(q):
    """The copy ends where the handler does."""
    for name in ("a", "b"):
        q.enqueue(name, "fork")
    drain(q, errands.die, processes=True)
    assert [task(q, name).status for name in ("a", "b")] == [Status.SUCCEEDED] * 2
    assert task(q).result["pid"] == task(q, "b").result["pid"]


def test_a_handler_for_processes_must_be_importable(q):
    """Else that is said at once, and not by each task."""
    with pytest.raises(BadValue, match="must be importable"):
        Worker(q, lambda _: None, processes=True)


def test_a_process_that_cannot_start_ends_the_worker(q, tmp_path, monkeypatch):
    """A script without a guard would start itself for ever. No attempt is lost by that."""
    q.enqueue("a")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from errands import where\n"
        "from eventq.worker import Worker\n"
        "Worker(sys.argv[1], where, processes=True).run()\n"
    )
    root = Path(__file__).parent.parent
    ended = subprocess.run(
        [sys.executable, script, str(tmp_path / "q")],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 1
    assert f"{ProcessNotStarted.__name__}: a process for the handler could not" in ended.stderr
    assert 'if __name__ == "__main__":' in ended.stderr
    assert (task(q).status, task(q).attempt) == (Status.READY, 0)


def test_a_payload_that_no_process_can_be_given_is_a_permanent_failure():
    """In memory it may be any object."""
    with WorkQueue.in_memory() as q:
        q.enqueue("a", threading.Lock())
        q.enqueue("b", {"any": {1}})
        drain(q, errands.where, processes=True)
        assert task(q).status is Status.DEAD
        assert task(q).error.startswith("the payload cannot be sent to a process: ")
        assert task(q, "b").status is Status.SUCCEEDED


# What it costs, and when it ends.


def test_a_busy_worker_costs_one_sync_a_task(q, monkeypatch):
    """Completing one and starting the next is one entry."""
    for number in range(50):
        q.enqueue(f"t{number}")
    syncs = []
    sync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (syncs.append(fd), sync(fd)))
    before = q.state.seq
    drain(q, lambda _: None)
    done = [entry.do for entry in q.entries(before + 1)]
    assert done == ["start"] + ["complete_and_start"] * 50
    assert len(syncs) <= 51


def test_slots_work_at_the_same_time_under_their_own_names(q):
    """Four handlers meet, and the log says who did what."""
    for number in range(8):
        q.enqueue(f"t{number}")
    meet = threading.Barrier(4, timeout=20)
    drain(q, lambda _: meet.wait() and None, concurrency=4, name="me")
    workers = Counter(event.worker for event in events(q, Started))
    assert set(workers) == {"me/1", "me/2", "me/3", "me/4"}
    assert sum(workers.values()) == 8


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_an_idle_worker_neither_spins_nor_misses_work(q, monkeypatch, closed):
    """Each slot asks once, then one for all; what comes is taken. Recorded, nothing is written."""
    asked = []
    start = WorkQueue.start
    monkeypatch.setattr(
        WorkQueue, "start", lambda *args, **more: asked.append(1) or start(*args, **more)
    )
    if closed:
        q.enqueue("a", max_attempts=1)
        drain(q, lambda _: 1 / 0)
        q.close()
    q.reconfigure(record=True)
    before = q.state.seq
    asked.clear()
    done = threading.Event()
    with at_work(q, lambda _: done.set(), concurrency=4) as worker:
        assert not worker._stopping.wait(0.3)
        assert len(asked) <= 4 + 1
        assert q.state.seq == before + closed  # a closed queue has ended the wait
        if closed:
            q.redrive("a")
        else:
            q.enqueue("a")
        assert done.wait(10)


@pytest.mark.parametrize("why", ["nothing to do", "closed", "a taken name"])
def test_a_worker_that_waits_is_stopped_at_once(q, why):
    """Though nothing happens in the queue that would wake it."""
    if why == "a taken name":
        q.enqueue("a")
        q.start("w/1")
    if why == "closed":
        q.close()
    with at_work(q, errands.where, name="w"):
        until(lambda: q._watches)


def test_draining_waits_for_what_comes_by_itself(q):
    """Delays, and leases of others that will run out; not for those that never do."""
    q.enqueue("theirs")
    q.enqueue("never")
    q.enqueue("waits", after=["nobody"])
    q.start("other", lease_for=0.2)
    q.start("another")
    drain(q, lambda _: None, concurrency=2)
    assert {t.id: t.status for t in q.state.tasks()} == {
        "theirs": Status.SUCCEEDED,
        "never": Status.RUNNING,
        "waits": Status.PENDING,
    }


def test_draining_ends_when_the_queue_is_paused(q):
    """Nothing is handed out until a person resumes it."""
    q.enqueue("a")
    q.pause()
    drain(q, lambda _: None)
    assert task(q).status is Status.READY


# When the queue says no.


def test_a_pool_without_these_workers_ends_the_run(tmp_path):
    """Names are name/1, name/2; a pool has to know them."""
    with WorkQueue.open(tmp_path / "q", pool=["w/1"]) as q:
        q.enqueue("a")
        with pytest.raises(UnknownWorker, match="w/2"):
            Worker(q, lambda _: None, name="w", concurrency=2).run()
        q.enqueue("b")
        drain(q, lambda _: None, name="w")
        assert task(q, "b").status is Status.SUCCEEDED


def test_what_is_done_counts_though_the_pool_was_changed(tmp_path):
    """The worker gets no more after that."""
    with WorkQueue.open(tmp_path / "q", pool=["w/1"]) as q:
        q.enqueue("a")
        q.enqueue("b")
        with pytest.raises(UnknownWorker):
            Worker(q, lambda _: q.reconfigure(pool=["x"]) and 1, name="w").run()
        assert (task(q).status, task(q).result) == (Status.SUCCEEDED, 1)
        assert (task(q, "b").status, task(q, "b").attempt) == (Status.READY, 0)


def test_a_queue_that_answers_nothing_more_ends_the_run(q, monkeypatch):
    """A sync failed: `run` raises that; what ran meanwhile is told that its lease is lost."""
    q.enqueue("a")
    q.enqueue("b")
    meet = threading.Barrier(2, timeout=20)
    lost = []

    def handler(context: Context) -> None:
        meet.wait()
        if context.task == "a":
            monkeypatch.setattr(os, "fdatasync", fail)
        else:
            lost.append(context.wait_lost(20))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        Worker(q, handler, concurrency=2, lease_for=0.3).run()
    assert lost == [True]
    with pytest.raises(HandleFinished):
        q.enqueue("c")


def test_a_worker_opens_and_shuts_what_it_is_given_as_a_path(tmp_path):
    """A queue that was open stays open."""
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("a")
        worker = Worker(tmp_path / "q", lambda _: None, drain=True)
        worker.run()
        assert task(q).status is Status.SUCCEEDED
    with pytest.raises(HandleFinished):
        worker._q.enqueue("b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"name": ""},
        {"name": 7},
        {"name": "x" * 511},
        {"lease_for": 0},
        {"grace": -1},
        {"permanent": ["ValueError"]},
        {"permanent": int},
    ],
    ids=str,
)
def test_wrong_arguments_are_told_at_once(q, wrong):
    """Before anything runs."""
    with pytest.raises(BadValue):
        Worker(q, lambda _: None, **wrong)


def test_a_coroutine_function_is_for_the_other_worker(q):
    """It would never run."""

    async def handler(_: Context) -> None: ...

    with pytest.raises(BadValue, match=r"eventq\.aio\.AsyncWorker"):
        Worker(q, handler)
    assert inspect.iscoroutinefunction(handler)


def test_a_witness_is_told_what_happens(q, tmp_path):
    """Each thing once, with what the queue made of it."""
    told = []

    class Told(Witness):
        def began(self, lease: Any) -> None:
            told.append(("began", lease.task))

        def succeeded(self, lease: Any) -> None:
            told.append(("succeeded", lease.task))

        def failed(self, lease: Any, failure: Failure, task: Any) -> None:
            told.append(("failed", lease.task, failure.error, failure.kind, task.status))

        def dropped(self, lease: Any) -> None:
            told.append(("dropped", lease.task))

    def handler(context: Context) -> None:
        match context.task:
            case "b":
                raise TaskFailed("no")
            case "c":
                q.cancel("c")

    for name in "abc":
        q.enqueue(name, max_attempts=1)
    drain(q, handler, witness=Told())
    assert told == [
        ("began", "a"),
        ("succeeded", "a"),
        ("began", "b"),
        ("failed", "b", "no", "retryable", Status.DEAD),
        ("began", "c"),
        ("dropped", "c"),
    ]
