"""`eventq run`: what it refuses, how it says a queue stands, and how that is shown."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO

import pytest
from running import (
    FALSE,
    FLOWS,
    THOROUGH,
    TRUE,
    entries_of,
    kill_all,
    left_of,
    run,
    running,
    sh,
    start,
    state_of,
    status,
    toml,
    until,
    write,
)
from terminal import COMMAND, environment, on_terminal

from eventq import Enqueue, Status, WorkQueue


@pytest.fixture(autouse=True)
def _no_runner_is_left():
    yield
    kill_all()


@pytest.fixture
def queue(tmp_path):
    return tmp_path / "q"


# Refusing.


def test_a_second_runner_is_refused_at_once(tmp_path, queue):
    """It says who holds the lock, exits 3, and changes nothing."""
    flow = write(tmp_path, a=sh(f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"))
    runner = start(flow, queue)
    until(lambda: running(queue))
    before = len(entries_of(queue))
    began = time.monotonic()
    code, out, err = run(flow, queue)
    assert time.monotonic() - began < 3
    assert (code, out) == (3, "")
    assert f"{queue} is being run by process {runner.pid} since 20" in err
    assert len(entries_of(queue)) == before
    (tmp_path / "go").touch()
    runner.communicate(timeout=20)
    assert runner.returncode == 0


def test_a_need_that_nobody_will_meet_is_refused(tmp_path, queue):
    """A name that is neither in the flow nor in the queue: exit 3, nothing enqueued."""
    flow = write(tmp_path, a={**TRUE, "after": ["ghost"]}, b={**TRUE, "after": ["spectre"]})
    code, _, err = run(flow, queue)
    assert code == 3
    assert f"eventq: {flow}: task 'a' is after 'ghost', which is neither in the flow nor in" in err
    assert "'spectre'" in err
    assert not queue.exists()
    with WorkQueue.open(queue) as q:
        q.enqueue_all([Enqueue(name, {"argv": ["true"]}) for name in ("ghost", "spectre")])
    assert run(flow, queue)[0] == 0


def test_a_task_with_other_content_is_refused(tmp_path, queue):
    """Exit 3; what differs is said, and what to do; how often it is tried is no content."""
    assert run(write(tmp_path, a={**TRUE, "timeout": 5}), queue)[0] == 0
    assert run(write(tmp_path, a={**TRUE, "timeout": 5, "attempts": 7}), queue)[0] == 0
    code, _, err = run(write(tmp_path, a={"argv": ["true", "x"], "timeout": 5}, b=TRUE), queue)
    assert code == 3
    assert "task 'a' is in the queue already (SUCCEEDED) with other content: " in err
    assert "argv was ['true'] and is ['true', 'x']. A task keeps what it was enqueued with" in err
    assert "b" not in status(queue)


def test_a_cycle_is_refused(tmp_path, queue):
    """With the whole cycle, and nothing enqueued; nor is a queue made for it."""
    flow = write(tmp_path, a={**TRUE, "after": ["b"]}, b={**TRUE, "after": ["a"]})
    code, _, err = run(flow, queue)
    assert code == 3
    assert "cycle of 2" in err
    assert not queue.exists()
    WorkQueue.open(queue).shut()
    assert run(flow, queue)[0] == 3
    assert status(queue) == {}


def test_a_queue_of_other_work_is_refused(tmp_path, queue):
    """Its tasks are no commands: none of them is taken out."""
    with WorkQueue.open(queue) as q:
        q.enqueue("letter", {"to": "somebody"})
    code, _, err = run(write(tmp_path, a=TRUE), queue)
    assert code == 3
    assert "task 'letter' of this queue is no command" in err
    assert status(queue) == {"letter": "READY"}


def test_what_is_no_command_dies_when_it_comes_later(tmp_path, queue):
    """It cannot be run, however often: no attempts are spent on it."""
    wait = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    runner = start(write(tmp_path, a=sh(wait)), queue, "-j", "2")
    until(lambda: running(queue))
    with WorkQueue.open(queue) as q:
        q.enqueue("letter", {"to": "somebody"})
        until(lambda: q.task("letter").status is Status.DEAD)
        assert q.task("letter").attempt == 1
    (tmp_path / "go").touch()
    runner.communicate(timeout=20)
    assert runner.returncode == 4


@pytest.mark.parametrize("text", ["", "[tasks.a]\nargv = 3\n", "tasks"])
def test_a_wrong_flow_is_a_usage_error_and_changes_nothing(tmp_path, queue, text):
    """Exit 2, and not even the queue is made."""
    (tmp_path / "flow.toml").write_text(text)
    code, out, err = run(tmp_path / "flow.toml", queue)
    assert (code, out) == (2, "")
    assert err.startswith(f"eventq: {tmp_path / 'flow.toml'}: ")
    assert not queue.exists()


def test_a_directory_of_something_else_is_no_queue(tmp_path):
    """Exit 2, and nothing is put there."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter.txt").write_text("dear")
    code, _, err = run(write(tmp_path, a=TRUE), other)
    assert code == 2
    assert "is not a queue" in err
    assert [file.name for file in other.iterdir()] == ["letter.txt"]


def test_a_damaged_log_is_told_apart(tmp_path, queue):
    """Exit 9; nothing runs."""
    flow = write(tmp_path, a=TRUE, b=TRUE)
    assert run(flow, queue)[0] == 0
    (log,) = (queue / "log").iterdir()
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    code, _, err = run(flow, queue)
    assert code == 9
    assert "line" in err


# How it stands at the end.


def test_dead_letters_are_told_with_reason_output_and_what_to_type(tmp_path, queue):
    """Exit 4: why it died, what it blocks, where its output is, and the commands to go on."""
    flow = write(
        tmp_path,
        ok=TRUE,
        bad=sh("echo oh no; exit 3", attempts=2),
        below={**TRUE, "after": ["bad"]},
        deep={**TRUE, "after": ["below"]},
    )
    code, out, _ = run(flow, queue, "-j", "1")
    assert code == 4
    summary = out[out.index("\n4 tasks: ") + 1 :]
    assert summary == (
        "4 tasks: 1 succeeded, 1 dead, 2 blocked\n"
        f"{re.search('this run: .*', out)[0]}\n"
        "dead: bad\n"
        "    failed after 2 attempts: exit status 3: oh no\n"
        f"    output: {queue}/output/6.log\n"
        "blocked by bad (2): below, deep\n"
        "\n"
        "next:\n"
        f"  eventq why below --queue {queue}\n"
        f'  eventq redrive bad --queue {queue} --why "..."\n'
        f"  eventq run {flow} --queue {queue}\n"
        "\n"
        f"output of ok: {queue}/output/3.log\n"
    )
    assert (queue / "output" / "6.log").read_text() == "oh no\n"
    again = run(flow, queue)
    assert again[0] == 4
    assert f"    output: {queue}/output/6.log\n" in again[1]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("parked", "parked, a person must look: a"),
        ("cancelled", "cancelled, though others need it: a"),
        ("missing", "needs nobody, which nobody has enqueued: waits"),
        ("elsewhere", "running under others: other (lease "),
    ],
)
def test_what_only_a_person_can_move_has_a_code_of_its_own(tmp_path, queue, what, said):
    """Exit 5, which is more than 4: parked, cancelled with others below, never enqueued."""
    flow = write(tmp_path, a=sh("exit 1", attempts=1), b={**TRUE, "after": ["a"]}, d=FALSE)
    assert run(flow, queue)[0] == 4
    with WorkQueue.open(queue) as q:
        if what == "parked":
            for _ in range(4):
                if q.task("a").status is Status.DEAD:
                    q.redrive("a", why="again")
                    lease = q.start()
                    q.fail(lease, "no")
        elif what == "cancelled":
            q.cancel("a", why="never mind")
        elif what == "missing":
            q.enqueue("waits", {"argv": ["true"]}, after=["nobody"])
        else:
            q.enqueue("other", {"argv": ["true"]})
            q.start("somebody")
    code, out, _ = run(flow, queue)
    assert code == 5
    assert said in out
    if what == "elsewhere":
        assert "  if its worker is gone (somebody), have other handed out anew:\n" in out
        assert f'  eventq cancel other --queue {queue} --why "..."\n' in out
        assert f'  eventq restore other --queue {queue} --why "..."\n' in out


def test_a_cancelled_task_that_nothing_needs_is_no_trouble(tmp_path, queue):
    """The exit code is about what could not be done."""
    flow = write(tmp_path, a=FALSE, b=TRUE)
    assert run(flow, queue)[0] == 4
    with WorkQueue.open(queue) as q:
        q.cancel("a", why="not needed")
    code, out, _ = run(flow, queue)
    assert code == 0
    assert "2 tasks: 1 succeeded, 1 cancelled" in out


def test_after_the_repair_a_redrive_finishes_the_tour(tmp_path, queue):
    """The tour of the README: dead, mended, redriven, done, with its result at the end."""
    shutil.copytree(FLOWS / "tour", tmp_path / "tour")
    flow = tmp_path / "tour" / "tour.toml"
    code, out, _ = run(flow, queue)
    assert code == 4
    assert "blocked by period (4): installed, upgraded, days, letter" in out
    assert "period.conf, line 3: until = 2026-09-31: there is no such day" in out
    subprocess.run(["sed", "-i", "s/09-31/09-30/", tmp_path / "tour" / "period.conf"], check=True)
    with WorkQueue.open(queue) as q:
        q.redrive("period", why="the last day of September is the 30th")
    code, out, _ = run(flow, queue)
    assert code == 0
    assert "7 tasks: 7 succeeded" in out
    assert "installed 115 packages and\nupgraded 9. The busiest day was 2026-09-22" in out


@pytest.mark.parametrize("workers", ["1", "8"] if THOROUGH else ["8"])
def test_the_main_flow_fails_once_and_ends_with_its_report(tmp_path, queue, workers):
    """`order` fails on its first attempt for its own reason, with any number of workers."""
    code, out, _ = run(FLOWS / "packages.toml", queue, "-j", workers)
    assert code == 0
    assert out.count("failed    ") == 1
    assert "failed    order, attempt 1 of 3: exit status 1: no order yet: 49,557 packages" in out
    assert "23 tasks: 23 succeeded" in out
    assert "60 groups of packages need each other, 159 in all:" in out
    assert "npm's 408 packages and 828 dependencies are those listed on another machine." in out


# How it is shown.

HOSTILE = "printf '\\033]0;title\\007\\033[31m[red]boom[/red]\\033[0m \\302\\233 \\377\\n'; exit 1"


def test_hostile_text_is_inert(tmp_path, queue):
    """Control sequences, markup, direction marks: in names, errors and results, only read."""
    name = "[red]a\u202eb[/red]"
    flow = write(tmp_path, **{name: sh(HOSTILE, attempts=1), "last": {**TRUE, "after": [name]}})
    code, out, _ = run(flow, queue)
    assert code == 4
    assert all(line.isprintable() for line in out.splitlines())
    assert "[red]a\\u202eb[/red]: failed after 1 attempts: exit status 1: " in out
    assert "[red]boom[/red]" in out
    error = state_of(queue).task(name).error
    assert error.isprintable()
    flow = toml(tmp_path / "two.toml", end=sh(HOSTILE.replace("exit 1", "exit 0")))
    code, out, _ = run(flow, tmp_path / "q2")
    assert code == 0
    assert "\\x1b]0;title\\x07\\x1b[31m[red]boom[/red]\\x1b[0m \\x9b \ufffd" in out


def test_json_has_one_object_a_line(tmp_path, queue):
    """Each thing that happens, and the summary last; hostile text comes back as it is."""
    flow = write(tmp_path, a=TRUE, bad=sh(HOSTILE, attempts=2), c={**TRUE, "after": ["bad"]})
    code, out, _ = run(flow, queue, "-j", "1", "--json")
    assert code == 4
    assert out.isascii()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["event"], line.get("task")) for line in lines] == [
        ("started", "a"),
        ("succeeded", "a"),
        ("started", "bad"),
        ("failed", "bad"),
        ("started", "bad"),
        ("dead", "bad"),
        ("summary", None),
    ]
    summary = lines[-1]
    assert summary["counts"] == {"SUCCEEDED": 1, "DEAD": 1, "BLOCKED": 1}
    assert summary["blocked"] == {"bad": ["c"]}
    assert summary["results"] == {"a": "output/3.log"}
    assert summary["dead"][0]["output"] == "output/6.log"


MOVES = re.compile(r"\x1b\[(?:\?25[lh]|[0-9]*[AK])")
"""What a live view without colour may send: hide or show the cursor, go up, clear a line."""


def test_the_live_view_is_right_at_80_columns_without_colour(tmp_path, queue):
    """What runs with its time, how far it is, what died and why; no line longer than 80."""
    long = "a-long-name-" * 12
    flow = write(
        tmp_path,
        **{
            long: sh("sleep 1"),
            "[red]x": sh(HOSTILE, attempts=2),
            "after": {**TRUE, "after": ["[red]x"]},
        },
    )
    ran = on_terminal("run", flow, "--queue", queue, "-j", 3, NO_COLOR="1")
    plain = MOVES.sub("", ran.out)
    assert "\x1b" not in plain
    lines = [line for line in re.split(r"[\r\n]+", plain) if f"{tmp_path}" not in line]
    assert max(map(len, lines)) <= 80  # a path or a command to copy is never broken
    assert re.search(r"0 of 3 succeeded, 1 running, 1 dead, 1 blocked", plain)
    assert re.search(r" 0\.[0-9] s  a-long-name-a-long[-a-z]*…", plain)
    assert "dead      [red]x: failed after 2 attempts: exit status 1: " in plain
    assert "blocked by [red]x (1): after" in plain
    assert f"  eventq redrive '[red]x' --queue {queue} --why " in plain
    assert ran.code == 4


TAKE = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Takes its terminal for its own, so that Ctrl-C on it is a signal to this session."""


def test_ctrl_c_on_a_terminal_stops_the_live_view(tmp_path, queue):
    """The commands are out of its reach, being in sessions of their own: the runner stops them."""
    flow = write(tmp_path, a=sh("sleep 300 & sleep 300"))
    ours, theirs = pty.openpty()
    runner = subprocess.Popen(
        [sys.executable, "-c", TAKE, *COMMAND, "run", str(flow), "--queue", str(queue)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", NO_COLOR="1"),
        start_new_session=True,
    )
    os.close(theirs)
    until(lambda: len(left_of(queue)) == 3)
    os.write(ours, b"\x03")
    with os.fdopen(ours, "rb", buffering=0) as screen:
        shown = b"".join(iter(lambda: _read(screen), b"")).decode()
    assert runner.wait(timeout=20) == 130
    assert "stopped by SIGINT" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert left_of(queue) == []


def _read(screen: BinaryIO) -> bytes:
    try:
        return screen.read(1 << 16)
    except OSError:  # nobody holds the other end any more
        return b""


def test_a_paused_queue_is_resumed_first(tmp_path: Path) -> None:
    """That is what the report says to type next; until then nothing runs."""
    flow, queue = write(tmp_path, only=sh("true")), tmp_path / "queue"
    with WorkQueue.open(queue) as q:
        q.pause(why="the disk is changed")
    code, out, _ = run(flow, queue)
    assert code == 5
    assert "nothing is handed out until it is resumed" in out
    told = out.partition("next:\n")[2].splitlines()
    assert [line.split()[1] for line in told if line][:2] == ["resume", "run"]
