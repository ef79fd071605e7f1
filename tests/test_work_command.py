"""`eventq work`: the commands of a queue, run by workers that share it, with real processes."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from running import check_history, environment, left_of, until

from eventq import Retry, Status, WorkQueue
from eventq.aio import AsyncWorker
from eventq.cli import attempts
from eventq.cli.live import JsonView, Out, PlainView
from eventq.cli.orders import GRACE
from eventq.cli.processes import process, processes
from eventq.cli.progress import Progress
from eventq.cli.work import work
from eventq.core.events import Started

MAIN = """
import sys
from eventq.cli.exits import FAILURES, code_of, complain
from eventq.cli.progress import Progress
from eventq.cli.work import work
try:
    sys.exit(work.main(prog_name="eventq work", standalone_mode=False))
except FAILURES as error:
    complain(error, as_json="--json" in sys.argv)
    sys.exit(code_of(error))
"""
S = Status
TRUE = {"argv": ["true"]}
STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    yield
    while STARTED:
        worker = STARTED.pop()
        if worker.poll() is None:
            worker.kill()
        worker.communicate()


@pytest.fixture
def q(tmp_path) -> Iterator[WorkQueue]:
    with WorkQueue.open(tmp_path / "q") as queue:
        yield queue


def start(queue: WorkQueue | Path, *more: str) -> subprocess.Popen[str]:
    """A worker, its output to be read from a pipe."""
    path = queue.path if isinstance(queue, WorkQueue) else queue
    worker = subprocess.Popen(
        [sys.executable, "-c", MAIN, "--queue", str(path), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        process_group=0,
    )
    STARTED.append(worker)
    return worker


def ended(worker: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for its end: exit code, output, errors."""
    out, err = worker.communicate(timeout=30)
    return worker.returncode, out, err


def drain(queue: WorkQueue | Path, *more: str) -> tuple[int, str, str]:
    """Run a worker until nothing is left."""
    return ended(start(queue, "--drain", *more))


def sh(script: str, **fields: Any) -> dict[str, Any]:
    """A payload that is a little shell script."""
    return {"argv": ["sh", "-c", script], **fields}


def statuses(q: WorkQueue) -> dict[str, Status]:
    return {task.id: task.status for task in q.state.tasks()}


def test_who_waits_for_a_queue_to_drain_is_told_why(q):
    """While nothing runs here."""
    q.enqueue("late", TRUE, not_before=datetime.now(UTC) + timedelta(hours=2))
    worker = start(q, "--drain")
    assert worker.stdout.readline() == WAITS
    worker.send_signal(signal.SIGTERM)
    assert ended(worker)[0] == 128 + signal.SIGTERM


WAITS = "waiting   for 1 delayed; the next is due in 1 h 59 min\n"


def test_what_is_waited_for_is_said_once_until_something_begins(q):
    """By whom it runs, if it runs elsewhere; and never while something runs here."""
    q.enqueue("late", TRUE, not_before=datetime.now(UTC) + timedelta(hours=2))
    out = io.StringIO()
    progress = Progress(PlainView(Out(out)), 30, q.path)
    progress.idle(q.state)
    progress.idle(q.state)
    assert out.getvalue() == WAITS
    q.enqueue("now", TRUE)
    lease = q.start("w")
    progress.began(lease)
    progress.idle(q.state)
    progress.succeeded(lease)
    with click.Context(work) as context:
        context.params["queue"] = q.path
        progress.idle(q.state)
    assert out.getvalue().splitlines()[1:] == [
        "started   now",
        "succeeded now in 0.0 s",
        "waiting   for 1 running elsewhere, 1 delayed; the next is due in 1 h 59 min",
        "  if its worker is gone (w), have now handed out anew:",
        f'  eventq cancel now --queue {q.path} --why "..."',
        f'  eventq restore now --queue {q.path} --why "..."',
    ]
    told = Progress(JsonView(Out(out)), 30, q.path)
    told.idle(q.state)
    assert len(out.getvalue().splitlines()) == 7


def test_lengths_of_time_have_a_unit_or_are_seconds(q):
    """As for `reconfigure`; what is neither is told so."""
    for task, given in {"a": "90", "b": "2m", "c": "1.5h"}.items():
        q.enqueue(task, TRUE)
        assert drain(q, "--lease-for", given, "--grace", given)[0] == 0
    asked = [entry.ask["lease_for"] for entry in q.entries() if entry.do == "start"]
    assert sorted({length.total_seconds() for length in asked}) == [90, 120, 5400]
    for wrong, told in (("1 week", "seconds, like 10 or 5m"), ("nan", "nan is no number of")):
        with pytest.raises(click.BadParameter, match=told):
            work.main(["--queue", str(q.path), "--lease-for", wrong], standalone_mode=False)


def test_commands_are_run_as_eventq_run_would(q, tmp_path):
    """In order, with their directory and environment; the result says where the output is."""
    script = 'echo "$EVENTQ_TASK $EVENTQ_ATTEMPT $EVENTQ_LEASE $EVENTQ_QUEUE $MINE $(pwd)"'
    q.enqueue("a", sh(script, env={"MINE": "é"}, cwd=str(tmp_path)))
    q.enqueue("b", sh("cat $EVENTQ_QUEUE/output/4.log > $EVENTQ_WORK/copy"), after=["a"])
    code, out, err = drain(q, "-j", "2", "--name", "me")
    assert (code, err) == (0, "")
    assert q.task("a").result == {"output": "output/4.log"}
    assert (q.path / "work" / "copy").read_text() == f"a 1 4 {q.path} é {tmp_path}\n"
    assert [line.split(" in ")[0] for line in out.splitlines()[:-1]] == [
        "started   a",
        "succeeded a",
        "started   b",
        "succeeded b",
    ]
    assert out.splitlines()[-1] == (
        "drained; this worker: 2 started, 2 succeeded; queue: 2 succeeded"
    )
    assert {lease.worker for lease in started(q)} <= {"me/1", "me/2"}
    assert list((q.path / "run").iterdir()) == []
    check_history(q.path)


def started(q: WorkQueue) -> list[Started]:
    return [x for e in q.entries() for x in e.events if isinstance(x, Started)]


def test_why_an_attempt_failed_is_told(tmp_path):
    """In the words of `eventq run`; what is no command is not tried again. The exit code is 4."""
    with WorkQueue.open(tmp_path / "q", retry=Retry(max_attempts=2)) as q:
        for name, payload, error in (
            ("none", sh("echo one; echo two >&2; exit 7"), "exit status 7: two"),
            ("signal", sh("kill -SEGV $$"), "killed by SIGSEGV"),
            ("long", sh("sleep 300", timeout=0.2), "timed out after 0.2 s"),
            ("no-such", {"argv": ["no-such-command"]}, "cannot start 'no-such-command': No such"),
            ("other", {"to": "somebody"}, "cannot start: its payload: argv is missing"),
        ):
            q.enqueue(name, {**payload, "env": {"ERROR": error}} if "argv" in payload else payload)
        code, out, _ = drain(q, "-j", "4")
        assert code == 4
        for task in q.state.tasks():
            assert task.status is S.DEAD
            if task.id == "other":
                assert (task.attempt, task.error.startswith("cannot start: its pay")) == (1, True)
            else:
                assert task.attempt == 2
                assert task.error.startswith(task.payload["env"]["ERROR"])
        assert "failed    none, attempt 1 of 2: exit status 7: two" in out
        assert "dead      none: failed after 2 attempts: exit status 7: two" in out
    assert left_of(tmp_path / "q") == []


@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_command_may_say_more_than_anybody_keeps(q, lines):
    """Ten megabytes on both streams: the end is its error, all of it is in its output, and the
    worker goes on."""
    line = 10_000_000 // lines
    script = (
        f"import os, sys\nfor n in range({lines}):\n"
        f" os.write(2 - n % 2, b'x' * {line - 1} + bytes([10]))\nsys.exit(3)"
    )
    q.enqueue("loud", {"argv": [sys.executable, "-c", script]}, max_attempts=1)
    q.enqueue("next", TRUE)
    code, out, err = drain(q, "-j", "1", "--json")
    assert (code, err) == (4, "")
    assert statuses(q) == {"loud": S.DEAD, "next": S.SUCCEEDED}
    error = q.task("loud").error
    assert error.startswith("exit status 3: ")
    assert "x" * 99 in error
    assert len(error) < 10_000
    assert len(out) < 20_000
    sizes = {file.stat().st_size for file in (q.path / "output").iterdir()}
    assert sizes == {0, 10_000_000}


def test_workers_share_a_queue(q):
    """Two of them, each with one task at a time: two tasks that wait for each other meet."""
    meet = "touch $EVENTQ_WORK/$EVENTQ_TASK; until [ -e $EVENTQ_WORK/%s ]; do sleep 0.01; done"
    q.enqueue("a", sh(meet % "b"))
    q.enqueue("b", sh(meet % "a"))
    for number in range(10):
        q.enqueue(f"t{number}", TRUE)
    both = [start(q, "--drain", "-j", "1") for _ in range(2)]
    assert [ended(worker)[0] for worker in both] == [0, 0]
    assert set(statuses(q).values()) == {S.SUCCEEDED}
    assert len(started(q)) == 12
    assert len({lease.worker for lease in started(q)}) == 2
    check_history(q.path)


def test_a_cancelled_task_has_its_command_stopped(q):
    """With all of its session; the worker takes the next."""
    q.enqueue("a", sh("sleep 300 & touch $EVENTQ_WORK/here; sleep 300"))
    worker = start(q, "-j", "1")
    until((q.path / "work" / "here").exists)
    q.cancel("a", why="stuck", by="alice")
    q.enqueue("b", TRUE)
    until(lambda: statuses(q)["b"] is S.SUCCEEDED)
    assert left_of(q.path) == []
    worker.terminate()
    code, out, _ = ended(worker)
    assert code == 0
    assert "dropped   a: cancelled by alice while it ran: stuck\n" in out
    assert statuses(q) == {"a": S.CANCELLED, "b": S.SUCCEEDED}


def test_a_task_never_runs_twice_at_once_in_a_worker(q):
    """Cancelled and restored: the new attempt begins when the process of the old one is gone."""
    script = (
        "trap '' TERM; cd $EVENTQ_WORK\n"
        "if [ ! -e first ]; then echo $$ > first.new; mv first.new first; sleep 300; exit 1; fi\n"
        "! kill -0 $(cat first)"
    )
    q.enqueue("a", sh(script), max_attempts=1)
    worker = start(q, "-j", "2")
    until((q.path / "work" / "first").exists)
    q.cancel("a")
    q.restore("a")
    until(lambda: statuses(q)["a"] is S.SUCCEEDED)
    worker.terminate()
    assert ended(worker)[0] == 0


@pytest.mark.parametrize("options", [[], ["--drain"]], ids=["", "drain"])
def test_a_signal_lets_commands_finish(q, options):
    """Ctrl-C reaches the whole group of the worker, and no command. The exit code says whether
    what was asked for was done."""
    script = "touch $EVENTQ_WORK/here; until [ -e $EVENTQ_WORK/go ]; do sleep 0.01; done"
    q.enqueue("a", sh(script))
    q.enqueue("b", sh(script))
    worker = start(q, "-j", "1", *options)
    until((q.path / "work" / "here").exists)
    os.killpg(worker.pid, signal.SIGINT)
    assert worker.stdout is not None
    lines = iter(worker.stdout.readline, "")
    assert "stopping: 1 may run on for 30 s" in next(line for line in lines if "stopping" in line)
    (q.path / "work" / "go").touch()
    code, out, _ = ended(worker)
    assert code == (130 if options else 0)
    assert "stopped by SIGINT; this worker: 1 started, 1 succeeded; queue: 1 ready, 1 succ" in out
    assert (statuses(q), q.task("b").attempt) == ({"a": S.SUCCEEDED, "b": S.READY}, 0)


def test_after_the_grace_commands_are_stopped_and_handed_back(q):
    """Politely, and at no attempt."""
    script = "trap 'echo asked; exit 1' TERM; touch $EVENTQ_WORK/here; sleep 300 & wait"
    q.enqueue("a", sh(script))
    worker = start(q, "--grace", "0.1")
    until((q.path / "work" / "here").exists)
    worker.terminate()
    code, out, _ = ended(worker)
    assert code == 0
    assert "released  a, to be run again" in out
    assert (q.path / "output" / "3.log").read_text() == "asked\n"
    assert (q.task("a").status, q.task("a").attempt) == (S.READY, 0)
    assert left_of(q.path) == []


def test_who_asks_three_times_does_not_wait(q):
    """The first ends the taking of tasks, the second the grace, the third what does not listen."""
    script = (
        "trap 'touch $EVENTQ_WORK/asked' TERM; touch $EVENTQ_WORK/here; while :; do sleep 1; done"
    )
    q.enqueue("a", sh(script))
    worker = start(q, "--grace", "3600")
    assert worker.stdout is not None
    until((q.path / "work" / "here").exists)
    worker.terminate()
    while "stopping: " not in worker.stdout.readline():
        pass
    worker.terminate()
    until((q.path / "work" / "asked").exists)
    worker.terminate()
    began = time.monotonic()
    assert ended(worker)[0] == 0
    assert time.monotonic() - began < GRACE
    assert (q.task("a").status, q.task("a").attempt) == (S.READY, 0)
    assert left_of(q.path) == []


def test_the_tasks_of_a_killed_worker_come_back(q):
    """kill -9: its commands are ended at once, and when the lease has run out another goes on."""
    q.enqueue("a", sh("[ $EVENTQ_ATTEMPT = 2 ] || { touch $EVENTQ_WORK/here; exec sleep 300; }"))
    worker = start(q, "--lease-for", "0.6")
    until((q.path / "work" / "here").exists)
    other = start(q, "--drain")
    worker.kill()
    worker.wait()
    until(lambda: left_of(q.path) == [] or q.task("a").attempt == 2)
    assert ended(other)[0] == 0
    assert (q.task("a").status, q.task("a").attempt) == (S.SUCCEEDED, 2)
    assert list((q.path / "run").iterdir()) == []
    check_history(q.path)


def launcher_of(worker: subprocess.Popen[str]) -> int:
    """The pid of the worker's launcher."""
    for one in processes():
        stat = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
        line = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        if int(stat[1]) == worker.pid and b"processes.py" in line:
            return one.pid
    raise AssertionError("it has none")


def test_what_a_worker_left_running_is_ended_before_the_next_attempt(q):
    """Killed together with its launcher, so that nobody was there to end its command."""
    script = (
        "cd $EVENTQ_WORK\n"
        "if [ $EVENTQ_ATTEMPT = 1 ]; then echo $$ > pid.new; mv pid.new first; exec sleep 300; fi\n"
        "! grep '^State:.[RSDT]' /proc/$(cat first)/status"
    )
    q.enqueue("a", sh(script), max_attempts=2)
    worker = start(q, "--lease-for", "0.6")
    until((q.path / "work" / "first").exists)
    os.kill(worker.pid, signal.SIGSTOP)  # so that neither sees the other die
    os.kill(launcher_of(worker), signal.SIGKILL)
    worker.kill()
    worker.wait()
    assert process((q.path / "work" / "first").read_text().strip()) is not None
    assert drain(q)[0] == 0
    assert (q.task("a").status, q.task("a").attempt) == (S.SUCCEEDED, 2)
    assert left_of(q.path) == []


def test_a_launcher_that_dies_fails_what_it_had_started(q):
    """Which is ended, and tried again with another launcher."""
    script = "[ $EVENTQ_ATTEMPT = 2 ] || { touch $EVENTQ_WORK/here; exec sleep 300; }"
    q.enqueue("a", sh(script))
    q.enqueue("b", TRUE, after=["a"])
    worker = start(q, "--drain")
    until((q.path / "work" / "here").exists)
    os.kill(launcher_of(worker), signal.SIGKILL)
    code, out, err = ended(worker)
    assert (code, err) == (0, "")
    assert "failed    a, attempt 1 of 3: ended, since the process that had started it" in out
    assert statuses(q) == {"a": S.SUCCEEDED, "b": S.SUCCEEDED}
    assert left_of(q.path) == []
    assert list((q.path / "run").iterdir()) == []


def test_a_launcher_serves_for_a_while(q, monkeypatch):
    """Then another takes its place, and its file of records goes with it."""
    monkeypatch.setattr(attempts, "MOST", 2)
    for number in range(9):
        q.enqueue(f"t{number}", TRUE)
    most = []

    async def main() -> None:
        handler = attempts.Attempts(Path(os.path.realpath(q.path)))
        try:
            worker = AsyncWorker(q, handler, concurrency=2, drain=True)
            await worker.run()
            most.append(len(list((q.path / "run").iterdir())))
        finally:
            await handler.close()

    asyncio.run(main())
    assert most[0] <= 3
    assert set(statuses(q).values()) == {S.SUCCEEDED}
    assert list((q.path / "run").iterdir()) == []


def test_draining_ends_as_the_queue_stands(tmp_path):
    """It waits for delays; what only a person can move has an exit code of its own."""
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("a", TRUE)
        q.fail(q.start(), "later", retry_after=0.2)
        q.enqueue("waits", TRUE, after=["nobody"])
    code, out, _ = drain(tmp_path / "q")
    assert code == 5
    assert out.splitlines()[-2:] == [
        (
            "only a person can move the rest; this worker: 1 started, 1 succeeded; "
            "queue: 1 pending, 1 succeeded"
        ),
        f"see what keeps it: eventq status --queue {tmp_path / 'q'}",
    ]
    with WorkQueue.open(tmp_path / "q") as q:
        assert statuses(q) == {"a": S.SUCCEEDED, "waits": S.PENDING}
        q.enqueue("nobody", TRUE)
        q.pause()
    code, out, _ = drain(tmp_path / "q")
    assert (code, out) == (
        5,
        "paused; this worker: nothing; queue: 1 pending, 1 ready, 1 succeeded\n",
    )


def test_it_says_what_happens_as_json_too(q):
    """One object a line, and a summary."""
    q.enqueue("a", TRUE)
    q.enqueue("b", sh("exit 1"), max_attempts=1)
    code, out, _ = drain(q, "-j", "1", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 4
    assert [(line["event"], line.get("task")) for line in lines] == [
        ("started", "a"),
        ("succeeded", "a"),
        ("started", "b"),
        ("dead", "b"),
        ("summary", None),
    ]
    assert lines[3]["error"] == "exit status 1"
    assert lines[4]["counts"] == {"SUCCEEDED": 1, "DEAD": 1}


@pytest.mark.parametrize(
    ("options", "code", "error"),
    [
        (["--name", "a\nb"], 3, "control character"),
        (["--queue", "{}/none"], 2, "is not a queue"),
    ],
)
def test_what_cannot_be_is_told_at_once(q, options, code, error):
    """And nothing is made."""
    found, out, err = drain(q, *(option.format(q.path) for option in options))
    assert (found, out) == (code, "")
    assert error in err
    assert not (q.path / "none").exists()
    assert left_of(q.path) == []


@pytest.mark.parametrize("name", ["runner", "runner/4711"])
def test_the_names_of_runners_are_taken(q, name):
    """Whose name begins so, a reader of the log would take for a runner's worker."""
    with pytest.raises(click.BadParameter, match=r"how `eventq run` calls .* another name"):
        work.main(["--queue", str(q.path), "--drain", "--name", name], standalone_mode=False)


def test_its_help_says_where_a_command_runs():
    """All that have no cwd run in one place, and may meet there."""
    with click.Context(work) as context:
        told = " ".join(work.get_help(context).split())
    assert (
        "without a cwd runs in DIR/work (EVENTQ_WORK), which all tasks of the queue share" in told
    )


def test_its_help_has_examples():
    """They name the queue."""
    worker = subprocess.run(
        [sys.executable, "-c", MAIN, "--help"], capture_output=True, text=True, env=environment()
    )
    assert "eventq work --queue nightly -j 4" in worker.stdout
