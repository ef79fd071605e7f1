"""Runs that are killed at any moment: they go on where they stopped, and leave no process behind.

By default a handful of kills for each flow; with HYPOTHESIS_PROFILE=thorough twenty.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running import (
    FLOWS,
    THOROUGH,
    check_history,
    check_runs,
    delays,
    kill,
    kill_all,
    launcher_of,
    left_of,
    made,
    records,
    run,
    running,
    sh,
    standing,
    start,
    state_of,
    status,
    toml,
    until,
)

from eventq import WorkQueue
from eventq.cli.processes import process, processes
from eventq.cli.runlock import begin_run, last_runner, run_lock


@pytest.fixture(autouse=True)
def _no_runner_is_left():
    yield
    kill_all()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Each flow, run to its end without a kill: its path, its queue, its exit code."""
    folder = tmp_path_factory.mktemp("undisturbed")
    tour = folder / "tour"
    shutil.copytree(FLOWS / "tour", tour)
    found = {}
    for name, flow in (("packages", FLOWS / "packages.toml"), ("tour", tour / "tour.toml")):
        queue = folder / f"{name}-queue"
        code, _, _ = run(flow, queue, "-j", "2")
        found[name] = (flow, queue, code)
    return found


def check_same(flow: str, queue: Path, undisturbed: Path) -> None:
    """This queue stands as the undisturbed one, and its results are the same."""
    assert standing(queue) == standing(undisturbed)
    assert made(queue / "work" / flow) == made(undisturbed / "work" / flow)
    check_runs(queue, queue / "work" / flow)
    check_history(queue)
    assert left_of(queue) == []
    assert (queue / "run.lock").read_text() == ""


@pytest.mark.parametrize(
    ("flow", "kills", "most"),
    [("packages", 20 if THOROUGH else 6, 3.0), ("tour", 20 if THOROUGH else 10, 0.9)],
)
def test_a_killed_run_ends_as_an_undisturbed_one(tmp_path, undisturbed, flow, kills, most):
    """Whatever the moment: the same standing and results, no success runs again, nothing left.

    Every second time the launcher is killed with its runner.
    """
    path, calm, code = undisturbed[flow]
    queue = tmp_path / "queue-0"
    moments = delays(kills, most)
    done = finished = 0
    while done < kills:
        runner = start(path, queue, "-j", str(1 + done % 4))
        try:
            runner.communicate(timeout=next(moments))
        except subprocess.TimeoutExpired:
            kill(runner, launcher=done % 2 == 1)
            done += 1
            continue
        assert runner.returncode == code
        check_same(flow, queue, calm)
        finished += 1
        queue = tmp_path / f"queue-{finished}"
    assert run(path, queue)[0] == code
    check_same(flow, queue, calm)


STUBBORN = "trap '' TERM; (trap '' TERM; sleep 300; true) & sleep 300; true"
"""A command that will not be asked, with a child that will not either."""


def test_a_killed_runner_takes_its_commands_with_it(tmp_path):
    """The launcher sees its runner die and ends what it has started, before anybody comes."""
    flow = toml(tmp_path / "flow.toml", a=sh(STUBBORN), b=sh("sleep 300"))
    runner = start(flow, tmp_path / "q", "-j", "2")
    until(lambda: len(running(tmp_path / "q")) == 2)
    until(lambda: len(left_of(tmp_path / "q")) >= 4)
    kill(runner, launcher=False)
    until(lambda: left_of(tmp_path / "q") == [], seconds=5)


def test_the_next_runner_ends_what_a_dead_one_has_left(tmp_path):
    """Runner and launcher killed: whoever comes next kills the whole sessions, then hands back
    each task at no attempt."""
    queue = tmp_path / "q"
    script = f"if [ -e again ]; then exit 0; fi; touch again; {STUBBORN}"
    flow = toml(tmp_path / "flow.toml", a=sh(script), b={"argv": ["true"], "after": ["a"]})
    runner = start(flow, queue)
    until(lambda: len(left_of(queue)) >= 3)
    kill(runner, launcher=True)
    left = left_of(queue)
    assert len(left) >= 3
    assert status(queue)["a"] == "RUNNING"
    code, out, _ = run(flow, queue)
    assert code == 0
    assert "released  a, to be run again" in out
    assert not any((found := process(pid)) and found.runs for pid in left)
    task = state_of(queue).task("a")
    assert task is not None
    assert (task.attempt, task.releases) == (1, 1)


def test_only_what_the_dead_runner_held_is_handed_back(tmp_path):
    """A worker that is called as a runner calls its own keeps its task: the lock tells who died."""
    queue = tmp_path / "q"
    script = "if [ -e again ]; then exit 0; fi; touch again; sleep 300"
    flow = toml(tmp_path / "flow.toml", a=sh(script))
    runner = start(flow, queue)
    until(lambda: running(queue))
    kill(runner, launcher=True)
    others = ("runner/1", "runner/1/1", f"runner/{runner.pid + 1}/1", f"runner/{runner.pid}/1/1")
    with WorkQueue.open(queue) as q:
        for name in others:
            q.enqueue(name, {"argv": ["touch", "stolen"]})
            assert q.start(name)
    code, out, _ = run(flow, queue)
    assert code == 5  # what others hold, they may never end
    assert "released  a, to be run again" in out
    assert status(queue) == {"a": "SUCCEEDED", **dict.fromkeys(others, "RUNNING")}


def test_who_died_is_known_until_a_runner_begins(tmp_path):
    """One that ends between taking the lock and handing back what is left takes nothing with it."""
    (tmp_path / "run.lock").write_text('{"runner": 4711, "start": 1, "boot": "before"}\n')
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError), run_lock(tmp_path) as lock:
            assert last_runner(lock) == 4711
            raise ZeroDivisionError
    with run_lock(tmp_path) as lock:
        begin_run(tmp_path, lock)
        assert last_runner(lock) == os.getpid()
    with run_lock(tmp_path) as lock:
        assert last_runner(lock) is None


def test_what_outlives_its_leader_is_found_by_its_lease(tmp_path):
    """When the leader of a session is gone, its number says nothing: the rest is known by its
    environment or by the output that it writes to."""
    queue = tmp_path / "q"
    flow = toml(tmp_path / "flow.toml", a=sh("sleep 300 & env -i sleep 300 & wait; true"))
    runner = start(flow, queue)
    (record,) = until(lambda: records(queue))

    def session() -> list[int]:
        return [one.pid for one in processes() if one.session == record["pid"] and one.runs]

    until(lambda: len(session()) == 3)
    until(lambda: len(left_of(queue)) == 2)
    kill(runner, launcher=True)
    lock = queue / "run.lock"  # as if the leader were gone, and another had its pid
    lock.write_text(lock.read_text().replace(f'"start":{record["start"]}', '"start":1'))
    (tmp_path / "flow.toml").write_text('[tasks.z]\nargv = ["true"]\n')
    with WorkQueue.open(queue) as q:
        q.cancel("a", why="it is enough")
    assert run(flow, queue)[0] == 0
    assert session() == []


def test_a_process_that_took_over_a_pid_is_left_alone(tmp_path):
    """A pid alone proves nothing: the start time must fit, or the lease be in the environment."""
    queue = tmp_path / "q"
    flow = toml(tmp_path / "flow.toml", a=sh("sleep 300"))
    runner = start(flow, queue)
    (record,) = until(lambda: records(queue) if running(queue) else [])
    kill(runner, launcher=True)
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    lock = queue / "run.lock"
    lines = lock.read_text().splitlines()
    lines.append(f'{{"lease": {record["lease"]}, "pid": {stranger.pid}, "start": 1}}')
    lock.write_text("\n".join(lines) + "\n")
    with WorkQueue.open(queue) as q:
        q.cancel("a", why="it is enough")
    try:
        assert run(flow, queue)[0] == 0
        assert stranger.poll() is None
        assert left_of(queue) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_records_of_another_boot_are_no_longer_looked_at(tmp_path):
    """After a restart of the machine every pid means somebody else."""
    queue = tmp_path / "q"
    flow = toml(tmp_path / "flow.toml", a={"argv": ["true"]})
    assert run(flow, queue)[0] == 0
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    found = process(stranger.pid)
    assert found is not None
    (queue / "run.lock").write_text(
        '{"runner": 1, "start": 1, "boot": "before"}\n'
        f'{{"lease": 3, "pid": {found.pid}, "start": {found.start}}}\n'
    )
    try:
        assert run(flow, queue)[0] == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_when_the_launcher_dies_the_run_ends_and_leaves_nothing(tmp_path):
    """The runner says so, ends what was started, and hands it back."""
    queue = tmp_path / "q"
    flow = toml(tmp_path / "flow.toml", a=sh(STUBBORN))
    runner = start(flow, queue)
    until(lambda: len(left_of(queue)) >= 3)
    launcher = launcher_of(runner)
    assert launcher is not None
    os.kill(launcher, signal.SIGKILL)
    _, err = runner.communicate(timeout=20)
    assert runner.returncode == 6
    assert "the process that starts the commands has died" in err
    assert left_of(queue) == []
    task = state_of(queue).task("a")
    assert task is not None
    assert (task.status, task.attempt) == ("READY", 0)


def test_a_command_is_recorded_before_it_begins(tmp_path):
    """Each command finds its own pid and start time in run.lock as the first thing it does."""
    look = (
        "import json, os, sys\n"
        "me = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19])\n"
        "lines = open(os.environ['EVENTQ_QUEUE'] + '/run.lock').read().splitlines()\n"
        "found = [json.loads(line) for line in lines]\n"
        "mine = {'lease': int(os.environ['EVENTQ_LEASE']), 'pid': os.getpid(), 'start': me}\n"
        "sys.exit(mine not in found or os.getsid(0) != os.getpid())\n"
    )
    tasks = {f"t{n}": {"argv": ["python3", "-c", look], "attempts": 1} for n in range(10)}
    assert run(toml(tmp_path / "flow.toml", **tasks), tmp_path / "q", "-j", "4")[0] == 0


def test_a_process_holds_the_lock_until_it_is_its_command(tmp_path):
    """So nobody can get the lock while one is on its way and not yet to be found.

    Its output is a pipe that nobody reads: so it stops short of becoming the command.
    """
    queue = tmp_path / "q"
    (queue / "output").mkdir(parents=True)
    os.mkfifo(queue / "output" / "3.log")
    flow = toml(tmp_path / "flow.toml", a=sh("if [ $EVENTQ_LEASE = 3 ]; then sleep 300; fi"))
    runner = start(flow, queue)
    (record,) = until(lambda: records(queue) if (queue / "run.lock").exists() else [])
    kill(runner, launcher=True)
    with (queue / "run.lock").open("rb") as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    second = start(flow, queue)
    pipe = os.open(queue / "output" / "3.log", os.O_RDONLY)  # now it goes on
    assert second.wait(timeout=20) == 0
    os.close(pipe)
    found = process(record["pid"])
    assert found is None or not found.runs


def test_the_lock_is_free_again_soon_after_a_kill(tmp_path):
    """A dead runner's launcher holds the lock only until it has ended what it started."""
    queue = tmp_path / "q"
    flow = toml(tmp_path / "flow.toml", a=sh(f"if [ -e x ]; then exit 0; fi; touch x; {STUBBORN}"))
    runner = start(flow, queue)
    until(lambda: len(left_of(queue)) >= 3)
    runner.kill()
    began = time.monotonic()
    assert run(flow, queue)[0] == 0
    assert time.monotonic() - began < 5
    runner.communicate()
