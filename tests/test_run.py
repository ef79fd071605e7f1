"""`eventq run`: what it starts and stops, with real processes and real signals."""

from __future__ import annotations

import json
import signal
import sys
import time

import pytest
from running import (
    TRUE,
    check_history,
    entries_of,
    kill_all,
    left_of,
    run,
    running,
    sh,
    start,
    state_of,
    status,
    until,
    write,
)

from eventq import WorkQueue
from eventq.cli.orders import GRACE


@pytest.fixture(autouse=True)
def _no_runner_is_left():
    yield
    kill_all()


@pytest.fixture
def queue(tmp_path):
    return tmp_path / "q"


# What runs, and in which circumstances.


def test_a_flow_is_run_in_the_order_of_its_dependencies(tmp_path, queue):
    """A diamond: each task begins after all that it needs, and the exit code is 0."""
    note = 'echo "$EVENTQ_TASK" >> "$EVENTQ_WORK/order"'
    flow = write(
        tmp_path,
        d=sh(note, after=["b", "c"]),
        b=sh(note, after=["a"]),
        c=sh(note, after=["a"]),
        a=sh(note),
    )
    code, out, err = run(flow, queue, "-j", "4")
    assert (code, err) == (0, "")
    order = (queue / "work" / "order").read_text().split()
    assert (order[0], sorted(order[1:3]), order[3]) == ("a", ["b", "c"], "d")
    assert "4 tasks: 4 succeeded" in out
    check_history(queue)


def test_a_command_gets_what_it_needs_and_nothing_to_read(tmp_path, queue):
    """Its environment and directory, a session of its own, /dev/null to read, no other files."""
    tell = (
        "import json, os, sys\n"
        "names = ('EVENTQ_TASK', 'EVENTQ_ATTEMPT', 'EVENTQ_LEASE', 'EVENTQ_QUEUE', 'EVENTQ_WORK',"
        " 'MINE', 'THEIRS')\n"
        "print(json.dumps([*(os.environ.get(name) for name in names), os.getcwd(),"
        " os.getsid(0) == os.getpid(), sys.stdin.read(), sorted(os.listdir('/proc/self/fd'))[:4]]))"
    )
    (tmp_path / "sub").mkdir()
    flow = write(
        tmp_path,
        it={"argv": [sys.executable, "-c", tell], "cwd": "sub", "env": {"MINE": "é$x", "A": ""}},
    )
    assert run(flow, queue, THEIRS="kept")[0] == 0
    told = json.loads((queue / "output" / "3.log").read_text())
    q = str(queue)
    assert told == [
        *("it", "1", "3", q, f"{q}/work", "é$x", "kept", f"{tmp_path}/sub", True, ""),
        ["0", "1", "2", "3"],  # the last is that of listdir itself
    ]


def test_a_failed_task_is_tried_again_as_often_as_the_flow_says(tmp_path, queue):
    """Fails twice, succeeds on its third and last attempt; each attempt has its own output."""
    script = 'echo "try $EVENTQ_ATTEMPT"; [ "$EVENTQ_ATTEMPT" = 3 ]'
    code, out, _ = run(write(tmp_path, it=sh(script, attempts=3)), queue)
    assert code == 0
    assert "failed    it, attempt 1 of 3: exit status 1: try 1" in out
    assert "started   it, attempt 3" in out
    texts = [(queue / "output" / f"{n}.log").read_text() for n in (3, 5, 7)]
    assert texts == ["try 1\n", "try 2\n", "try 3\n"]


def test_what_succeeded_never_runs_again(tmp_path, queue):
    """The same flow again writes nothing to the log, and shows the result again."""
    flow = write(tmp_path, a=sh("echo ran >> $EVENTQ_WORK/ran"), b=sh("echo done", after=["a"]))
    assert run(flow, queue)[0] == 0
    with WorkQueue.open(queue, read_only=True) as q:
        head = q.head
    code, out, _ = run(flow, queue)
    assert code == 0
    with WorkQueue.open(queue, read_only=True) as q:
        assert q.head == head
    assert (queue / "work" / "ran").read_text() == "ran\n"
    assert out.endswith(f"output of b: {queue}/output/4.log\n\ndone\n")


def test_n_workers_run_at_the_same_time_and_no_more(tmp_path, queue):
    """Three of six that wait for each other in threes: with -j 3 they meet, and are never four."""
    meet = (
        "import os, pathlib, time\n"
        "work = pathlib.Path(os.environ['EVENTQ_WORK']); me = os.environ['EVENTQ_TASK']\n"
        "(work / me).touch()\n"
        "until = time.time() + 10\n"
        "while len(list(work.glob(f'{me[0]}?'))) < 3: assert time.time() < until\n"
    )
    tasks = {
        name: {"argv": ["python3", "-c", meet]} for name in ("a1", "a2", "a3", "b1", "b2", "b3")
    }
    assert run(write(tmp_path, **tasks), queue, "-j", "3")[0] == 0
    most = now = 0
    for entry in entries_of(queue):
        for event in entry.events:
            now += {"Started": 1, "Completed": -1}.get(type(event).__name__, 0)
            most = max(most, now)
    assert most == 3


def test_workers_are_named_after_the_runner(tmp_path, queue):
    """The log says who ran what: runner/<pid>/<slot>."""
    runner = start(write(tmp_path, a=TRUE), queue)
    runner.communicate()
    workers = {
        e.worker for entry in entries_of(queue) for e in entry.events if hasattr(e, "worker")
    }
    assert workers == {f"runner/{runner.pid}/1"}


def test_what_others_enqueue_meanwhile_is_run(tmp_path, queue):
    """Within half a second or so, as long as anything runs."""
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    runner = start(write(tmp_path, a=sh(wait)), queue, "-j", "2")
    until(lambda: running(queue))
    with WorkQueue.open(queue) as q:
        q.enqueue("late", {"argv": ["sh", "-c", f"touch {tmp_path}/go"]})
    began = time.monotonic()
    until((tmp_path / "go").exists)
    assert time.monotonic() - began < 2
    runner.communicate(timeout=20)
    assert runner.returncode == 0
    assert status(queue) == {"a": "SUCCEEDED", "late": "SUCCEEDED"}


# What cannot start, takes too long, or is taken away.


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (
            {"argv": ["no-such-command"]},
            "cannot start 'no-such-command': No such file or directory",
        ),
        ({"argv": ["./plain"]}, "cannot start './plain': Permission denied"),
        ({"argv": ["true"], "cwd": "gone"}, "cannot start in '{}/gone': No such file or directory"),
        ({"argv": ["x" * 200_000]}, "cannot start 'xxxx"),
        (sh("exit 7"), "exit status 7"),
        (sh("echo one; echo two >&2; exit 7"), "exit status 7: two"),
        (sh("printf 'one\\n\\n  \\n'; exit 1"), "exit status 1: one"),
        (sh("kill -SEGV $$"), "killed by SIGSEGV"),
        (sh("echo bye; kill -KILL $$"), "killed by SIGKILL: bye"),
    ],
)
def test_why_an_attempt_failed_is_told(tmp_path, queue, task, error):
    """The status or the signal, and the last line that the command said."""
    (tmp_path / "plain").write_text("no program")
    assert run(write(tmp_path, it={**task, "attempts": 1}), queue)[0] == 4
    found = state_of(queue).task("it")
    assert found is not None
    assert found.error is not None
    assert found.error.startswith(error.format(tmp_path))
    assert len(found.error) < 1000


DEAF = (
    "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "time.sleep(300)"
)
"""Goes to a process group of its own and does not listen."""


def test_a_timeout_ends_the_whole_session(tmp_path, queue):
    """The command, its children, and what went to a process group of its own; politely first."""
    script = (
        "trap 'echo asked; exit 0' TERM\n"
        "sleep 300 &\n"
        f"python3 -c '{DEAF}' &\n"
        "sleep 300 & wait; wait"
    )
    code, out, _ = run(write(tmp_path, it=sh(script, attempts=1, timeout=1.5)), queue)
    assert code == 4
    assert "dead      it: failed after 1 attempts: timed out after 1.5 s" in out
    assert (queue / "output" / "3.log").read_text() == "asked\n"
    assert left_of(queue) == []


def test_who_does_not_listen_is_killed_after_a_grace(tmp_path, queue):
    """TERM is ignored by the command and its child: KILL is not."""
    flow = write(
        tmp_path, it=sh("trap '' TERM; sleep 300 & sleep 300; true", attempts=1, timeout=0.3)
    )
    began = time.monotonic()
    assert run(flow, queue)[0] == 4
    assert 0.3 + GRACE <= time.monotonic() - began < 0.3 + GRACE + 5
    assert left_of(queue) == []


def test_what_a_command_leaves_behind_is_ended_with_it(tmp_path, queue):
    """A child in the background does not outlive its attempt."""
    assert run(write(tmp_path, it=sh("sleep 300 & sleep 300 & true")), queue)[0] == 0
    until(lambda: left_of(queue) == [])


def test_a_task_cancelled_while_it_runs_is_stopped(tmp_path, queue):
    """Its lease is no longer current: the process is ended, and the rest goes on."""
    flow = write(tmp_path, a=sh("sleep 300 & sleep 300; true"), b=sh("sleep 1"))
    runner = start(flow, queue, "-j", "2")
    until(lambda: len(running(queue)) == 2)
    with WorkQueue.open(queue) as q:
        q.cancel("a", why="not wanted any more")
    out, _ = runner.communicate(timeout=20)
    assert runner.returncode == 0
    assert "dropped   a: cancelled while it ran: not wanted any more\n" in out
    assert left_of(queue) == []
    assert status(queue) == {"a": "CANCELLED", "b": "SUCCEEDED"}


def test_a_task_cancelled_and_restored_never_runs_twice_at_once(tmp_path, queue):
    """The new attempt begins when the process of the old one is gone."""
    script = (
        "if [ $EVENTQ_ATTEMPT = 1 ] && [ ! -e first ]; then\n"
        "  trap '' TERM; echo $$ > first; exec sleep 300\n"
        "fi\n"
        "! kill -0 $(cat first)"
    )
    runner = start(write(tmp_path, a=sh(script, attempts=1)), queue, "-j", "2")
    until((tmp_path / "first").exists)
    until(lambda: "a" in running(queue))
    with WorkQueue.open(queue) as q:
        q.cancel("a", why="a mistake")
        q.restore("a", why="it was one")
    runner.communicate(timeout=20)
    assert runner.returncode == 0
    assert status(queue)["a"] == "SUCCEEDED"
    check_history(queue)


# Stopping.


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_stops_cleanly(tmp_path, queue, number, code):
    """Children stopped, leases released at no attempt, a summary; the same command goes on."""
    again = "if [ -e again ]; then exit 0; fi; touch again-$EVENTQ_TASK; sleep 300 & sleep 300"
    flow = write(tmp_path, a=sh(again), b=sh(again), c={**TRUE, "after": ["a"]})
    runner = start(flow, queue, "-j", "2")
    until(lambda: len(running(queue)) == 2)
    until(lambda: len(left_of(queue)) >= 6)
    runner.send_signal(number)
    out, err = runner.communicate(timeout=20)
    assert (runner.returncode, err) == (code, "")
    assert left_of(queue) == []
    assert f"stopped by {number.name}: what ran was handed back, at no attempt" in out
    assert "released  a, to be run again" in out
    assert f"  eventq run {flow} --queue {queue}\n" in out
    assert status(queue) == {"a": "READY", "b": "READY", "c": "PENDING"}
    assert {task.attempt for task in state_of(queue).tasks()} == {0}
    (tmp_path / "again").touch()
    assert run(flow, queue)[0] == 0
    check_history(queue)


def test_a_second_ctrl_c_does_not_wait(tmp_path, queue):
    """Whoever asks twice wants it now."""
    flow = write(tmp_path, a=sh("trap '' TERM; touch here; sleep 300 & sleep 300; true"))
    runner = start(flow, queue)
    until((tmp_path / "here").exists)
    runner.send_signal(signal.SIGINT)
    time.sleep(0.3)
    runner.send_signal(signal.SIGINT)
    began = time.monotonic()
    runner.communicate(timeout=20)
    assert time.monotonic() - began < GRACE - 0.5
    assert runner.returncode == 130
    assert left_of(queue) == []


def test_a_run_goes_on_when_nobody_reads_it(tmp_path, queue):
    """`eventq run ... | head -1` runs all the same."""
    tasks = {f"t{number}": TRUE for number in range(20)}
    flow = write(tmp_path, **tasks, last=sh("sleep 0.3"))
    runner = start(flow, queue, "-j", "1")
    assert runner.stdout is not None
    assert runner.stdout.readline().startswith("started")
    runner.stdout.close()
    assert runner.wait(timeout=20) == 0
    assert runner.stderr is not None
    assert runner.stderr.read() == ""
    runner.stderr.close()
    assert set(status(queue).values()) == {"SUCCEEDED"}
