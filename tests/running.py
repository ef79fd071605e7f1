"""Running `eventq run` for the tests: real processes, real signals, and a look at what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from terminal import COMMAND, environment, eventq

from eventq import Entry, State, Status, WorkQueue
from eventq.cli.processes import process, processes

FLOWS = Path(__file__).parent.parent / "fixtures" / "flows"
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"

STARTED: list[subprocess.Popen[str]] = []
"""Every runner of the test that goes on."""


def kill_all() -> None:
    """After a test: no runner outlives it, whatever became of it."""
    while STARTED:
        runner = STARTED.pop()
        if runner.poll() is None:
            runner.kill()
        runner.wait()
        for stream in (runner.stdout, runner.stderr):
            if stream is not None:
                stream.close()


def start(flow: Path, queue: Path, *more: str, **env: str) -> subprocess.Popen[str]:
    """A runner, its output to be read from a pipe."""
    runner = subprocess.Popen(
        [*COMMAND, "run", str(flow), "--queue", str(queue), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**env),
    )
    STARTED.append(runner)
    return runner


def run(flow: Path, queue: Path, *more: str, **env: str) -> tuple[int, str, str]:
    """Run it to its end: exit code, output, errors."""
    runner = start(flow, queue, *more, **env)
    out, err = runner.communicate(timeout=120)
    return runner.returncode, out, err


def toml(path: Path, **tasks: dict[str, Any]) -> Path:
    """Write a flow of these tasks."""
    lines = []
    for name, fields in tasks.items():
        lines.append(f"[tasks.{json.dumps(name)}]")
        lines += [f"{field} = {_toml(value)}" for field, value in fields.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def sh(script: str, **fields: Any) -> dict[str, Any]:
    """A task that is a little shell script."""
    return {"argv": ["sh", "-c", script], **fields}


def state_of(queue: Path) -> State:
    """How this queue stands."""
    with WorkQueue.open(queue, read_only=True) as q:
        return q.state


def entries_of(queue: Path) -> list[Entry]:
    """All its history."""
    with WorkQueue.open(queue, read_only=True) as q:
        return list(q.entries())


def status(queue: Path) -> dict[str, str]:
    """Where each task stands."""
    return {task.id: task.status.value for task in state_of(queue).tasks()}


def until(what: Any, *, seconds: float = 20.0) -> Any:
    """Wait until this is true, and give it."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return found


def running(queue: Path) -> dict[str, int]:
    """The pid of each task that runs, once it has become its command."""
    if not (queue / "log").is_dir():
        return {}
    try:
        leases = {lease.id: lease.task for lease in state_of(queue).running()}
    except FileNotFoundError:  # its log is still empty
        return {}
    return {
        leases[record["lease"]]: record["pid"]
        for record in records(queue)
        if record["lease"] in leases and process(record["pid"]) is not None
    }


def records(queue: Path) -> list[dict[str, int]]:
    """The processes that run.lock tells of."""
    if not (queue / "run.lock").exists():
        return []
    lines = map(json.loads, (queue / "run.lock").read_text().splitlines())
    return [line for line in lines if "pid" in line]


def left_of(queue: Path) -> list[int]:
    """The processes that belong to a command of this queue, by their environment."""
    mark = b"EVENTQ_QUEUE=" + os.fsencode(os.path.realpath(queue))
    found = []
    for one in processes():
        try:
            marked = mark in Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marked and one.runs:
            found.append(one.pid)
    return found


def launcher_of(runner: subprocess.Popen[str]) -> int | None:
    """The pid of the runner's launcher."""
    for one in processes():
        try:
            stat = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            line = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[1]) == runner.pid and b"processes.py" in line:
            return one.pid
    return None


def kill(runner: subprocess.Popen[str], *, launcher: bool) -> None:
    """kill -9, the runner alone or its launcher with it."""
    if launcher and (pid := launcher_of(runner)) is not None:
        os.kill(runner.pid, signal.SIGSTOP)  # so that neither sees the other die
        os.kill(pid, signal.SIGKILL)
    runner.kill()
    runner.wait()


def check_history(queue: Path) -> None:
    """The log is whole, untouched and legal, and the state is sound."""
    checked = eventq("verify", "--queue", queue)
    assert (checked.code, checked.err) == (0, "")
    state_of(queue).check()


def standing(queue: Path) -> dict[str, tuple[Any, ...]]:
    """What must be the same after every history: status, attempts, releases apart, and error."""
    return {
        task.id: (task.status, task.attempt, task.redrives, task.error)
        for task in state_of(queue).tasks()
    }


def made(folder: Path) -> dict[str, bytes]:
    """The results of a flow: each file it made, but for the notes and what was cut short."""
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if file.name != "runs.log" and file.suffix != ".aside"
    }


def check_runs(queue: Path, folder: Path) -> None:
    """No command began after its task was reported to have succeeded, and none began twice under
    one lease."""
    completed: dict[str, int] = {}
    for entry in entries_of(queue):
        for event in entry.events:
            if type(event).__name__ == "Completed":
                assert event.task not in completed
                completed[event.task] = entry.ask["lease"]
    began = [
        (line.split("\t")[1], int(line.split("\t")[3]))
        for line in (folder / "runs.log").read_text().splitlines()
        if line.startswith("began")
    ]
    assert len(began) == len(set(began))
    for task, lease in began:
        assert lease <= completed.get(task, lease)
    succeeded = {t.id for t in state_of(queue).tasks() if t.status is Status.SUCCEEDED}
    assert set(completed) == succeeded
    assert set(completed.items()) <= set(began)


def delays(seed: int, most: float) -> Any:
    """Moments to kill at, in seconds after the start."""
    draw = random.Random(seed)
    while True:
        yield draw.uniform(0.0, most)
