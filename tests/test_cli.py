"""The commands: what each prints and ends with, in pipes, on terminals, and with hostile text."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import unicodedata
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
from disk import FIXTURES, Ticks, copied, segments, untouched
from rich.cells import cell_len
from terminal import (
    BAD_ERROR,
    COMMAND,
    HOSTILE,
    Ran,
    environment,
    eventq,
    everything,
    hostile,
    nightly,
    on_terminal,
    process,
    started,
)

from eventq import Capacity, Retention, Retry, Status, WorkQueue
from eventq.cli.exits import complain
from eventq.cli.main import eventq as group
from eventq.cli.show import span
from eventq.cli.wording import policy_words

S = Status

READING: dict[str, list[str]] = {
    "status": [],
    "dlq": [],
    "why": ["fetch"],
    "history": ["fetch"],
    "log": [],
    "at": ["3"],
    "verify": [],
    "head": [],
    "repair": ["--to", "mended"],
}
"""The commands that only read, each with an argument that fits `nightly`."""

WRITING: dict[str, list[str]] = {
    "redrive": ["fetch", "--why", "x"],
    "cancel": ["fetch", "--why", "x"],
    "restore": ["fetch", "--why", "x"],
    "resolve": ["fetch", "--why", "x"],
    "pause": ["--why", "x"],
    "resume": ["--why", "x"],
    "reconfigure": ["--max-attempts", "5", "--why", "x"],
    "tick": [],
    "close": ["--why", "x"],
    "reopen": ["--why", "x"],
    "snapshot": [],
    "archive": ["--to", "attic"],
    "unarchive": [],
}

FOR_THE_FILES = ("snapshot", "tick", "archive", "unarchive")
"""Commands that change nothing that anybody decides, and so need no reason."""

EVERY = {**READING, **WRITING}


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    return nightly(tmp_path / "nightly")


def run(queue: Path, do: str, *more: object) -> Ran:
    return eventq(do, *EVERY[do], "--queue", queue, *more)


# Every command.


def named(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


ALL = {name: named(name) for name in group.list_commands(click.Context(group))}


def commands() -> dict[str, click.Command]:
    return {name: one for name, one in ALL.items() if name not in ("run", "work")}


def test_every_command_is_tested_here() -> None:
    """Those that only read and those that write; `run` and `work` have tests of their own."""
    assert {*EVERY, "completion"} == set(commands())


@pytest.mark.parametrize("do", READING)
def test_reading_changes_nothing_and_needs_no_lock(queue: Path, do: str) -> None:
    """Though somebody else holds it."""
    with (queue / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with untouched(queue):
            assert run(queue, do).code == 0
            assert run(queue, do, "--json").code == 0


@pytest.mark.parametrize("do", EVERY)
def test_json_has_the_fields_that_the_help_names(tmp_path: Path, do: str) -> None:
    """All of them, and each is one value a line."""
    queue = everything(tmp_path / "queue")
    words = {
        "redrive": ["parked", "--why", "x"],
        "cancel": ["ready", "--why", "x"],
        "restore": ["cancelled", "--why", "x"],
        "resolve": ["parked", "--why", "x"],
        "why": ["far"],
        "history": ["parked"],
        "at": ["16", "running"],
        "log": ["--task", "parked", "--since", "20"],
    }
    ran = eventq(do, *words.get(do, EVERY[do]), "--queue", queue, "--json")
    assert ran.code == 0
    assert ran.err == ""
    documented = set(re.findall(r"\w+", ALL[do].help or ""))
    for value in ran.values:
        assert set(keys(do, value)) <= documented


def keys(do: str, value: Any) -> list[str]:
    """The names of all fields, also within lists; those of maps from ids are not ours."""
    if isinstance(value, list):
        return [key for one in value for key in keys(do, one)]
    if not isinstance(value, dict):
        return []
    inner = [] if do == "history" else [v for k, v in value.items() if k in NESTED]
    return [*value, *(key for one in inner for key in keys(do, one))]


NESTED = {
    *("running", "dead", "dead_letters", "parked", "steps", "problems"),
    *("groups", "roots", "keys", "delayed"),
}


@pytest.mark.parametrize("do", EVERY)
def test_without_a_queue_it_is_a_usage_error(tmp_path: Path, do: str) -> None:
    """Not there, no queue, a file: exit 2, and nothing is made."""
    file = tmp_path / "file"
    file.touch()
    words = EVERY[do]
    with untouched(tmp_path):
        for path in (tmp_path / "nowhere", tmp_path, file):
            ran = eventq(do, *words, "--queue", path)
            assert ran.code == 2
            assert ran.out == ""
            assert eventq(do, *words, "--queue", path, "--json").error["exit"] == 2


@pytest.mark.parametrize("do", ["status", "why", "redrive", "snapshot", "head"])
def test_a_damaged_log_is_told_with_its_place_and_what_to_do(queue: Path, do: str) -> None:
    """Exit 9, one message, no traceback."""
    file = segments(queue)[0]
    file.write_bytes(file.read_bytes().replace(b"fetch", b"fetsh", 1))
    ran = run(queue, do)
    assert ran.code == 9
    assert ran.err.startswith(f"eventq: {file}, line 2 (byte ")
    assert "bring back a good copy" in ran.err
    assert ran.err.count("\n") == 1
    error = run(queue, do, "--json").error
    assert (error["error"], error["exit"], error["line"], error["seq"]) == ("log_damaged", 9, 2, 2)


@pytest.mark.parametrize("do", [["log"], ["log", "--task", "a"], ["history", "a"], ["at", "2"]])
def test_a_line_that_does_not_read_is_told_with_its_place(tmp_path: Path, do: list[str]) -> None:
    """Though its hash fits."""
    path = copied(FIXTURES / "field-unknown", tmp_path / "q")
    ran = eventq(*do, "--queue", path)
    assert ran.code == 9
    assert "0001.jsonl, line 2 (byte " in ran.err
    assert "unknown field `mood`" in ran.err


def test_a_log_behind_its_snapshot_is_not_complete(queue: Path) -> None:
    """Exit 8, and how many entries are lost."""
    run(queue, "snapshot")
    file = segments(queue)[0]
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert run(queue, "status").code == 8
    error = run(queue, "status", "--json").error
    assert (error["error"], error["lost"]) == ("lines_lost", 1)


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.EACCES, "ask as the user"), (errno.ENOSPC, "make room"), (errno.EIO, "copy what can")],
)
def test_an_error_of_the_system_is_told_with_what_to_do(
    code: int, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file first, whatever its name; no number of an error."""
    for name, shown in (("a/log", "a/log: "), (b"a/log", "a/log: "), (3, "3: "), (None, "")):
        complain(OSError(code, os.strerror(code), name), as_json=False)
        told = capsys.readouterr().err
        assert told.startswith(f"eventq: {shown}{os.strerror(code)}. ")
        assert advice in told


def test_a_newer_log_and_a_failing_disk_could_not_be_read(queue: Path) -> None:
    """Exit 6."""
    file = segments(queue)[0]
    file.unlink()
    file.mkdir()
    ran = run(queue, "status", "--json")
    assert (ran.code, ran.error["error"]) == (6, "os_error")
    assert ran.error["message"] == f"{file}: Is a directory."
    for name, before in (("newer", 9), ("event-unknown", 1)):
        path = copied(FIXTURES / name, queue.parent / name)
        for do in ("status", "dlq", "head", "redrive", "snapshot", "verify"):
            assert run(path, do).code == 6
        error = run(path, "status", "--json").error
        assert (error["error"], error["seq"]) == ("log_newer", before + 1)
        assert f"eventq at {before}`; open it with a newer eventq" in error["message"]
        assert eventq("at", before, "--queue", path).code == 0
        ran = eventq("log", "--queue", path)
        shown = eventq("log", "--queue", path, "--since", 1, "-n", before)
        assert (ran.code, shown.code, ran.out) == (6, 0, shown.out)


# The help.


def test_the_help_names_every_command_and_every_exit_code() -> None:
    """In the order in which they are of use."""
    ran = eventq("--help")
    assert ran.code == 0
    commands, _, exits = ran.out.partition("Commands:")[2].partition("Exit codes")
    assert re.findall(r"^  (\w+)  ", commands, re.MULTILINE) == list(ALL)
    for code in range(10):
        assert re.search(rf"^    {code}  ", exits, re.MULTILINE)
    assert {"129", "130", "141", "143"} <= set(re.findall(r"\d+", exits))
    assert eventq("-h").out == ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())


@pytest.mark.parametrize("do", commands())
def test_every_command_has_help_at_80_columns(do: str) -> None:
    """With options that say what they do, what --json prints, and examples."""
    ran = eventq(do, "--help")
    assert ran.code == 0
    assert "Examples:" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    options = [p for p in ALL[do].params if isinstance(p, click.Option)]
    assert all(option.help for option in options)
    assert ("--json:" in ran.out) == any("--json" in option.opts for option in options)


def examples_of(do: str) -> list[str]:
    """The command lines in the help of a command."""
    lines = (ALL[do].epilog or "").splitlines()
    return [line.strip() for line in lines if line.startswith("  ")]


@pytest.mark.parametrize("do", commands())
def test_every_example_works(queue: Path, do: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed one after the other, with a queue called nightly."""
    monkeypatch.chdir(queue.parent)
    shell = queue.parent / "eventq"
    shell.write_text(f'#!/bin/sh\nexec {sys.executable} -m eventq.cli.main "$@"\n')
    shell.chmod(0o700)
    path = f"{queue.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    examples = examples_of(do)
    assert examples
    assert any(line.startswith(f"eventq {do}") for line in examples)
    for line in examples:
        if re.fullmatch(r"eventq [^|>$]*", line) and do != "completion":
            ran = eventq(*shlex.split(line)[1:])
            assert (ran.code, ran.err) == (0, ""), line
        else:
            done = subprocess.run(
                ["bash", "-c", line],
                capture_output=True,
                env=environment(PATH=path, HOME=str(queue.parent), SHELL="/bin/bash"),
            )
            assert (done.returncode, done.stderr) == (0, b""), line


# status and dlq


def test_status_tells_how_the_queue_stands(tmp_path: Path) -> None:
    """As JSON: counts, leases with their age, and what only a person can move."""
    path = everything(tmp_path / "queue")
    value = eventq("status", "--queue", path, "--json").value
    with WorkQueue.open(path, read_only=True) as q:
        assert value["queue"] == q.state.queue
        assert value["counts"] == q.state.counts()
        assert value["head"] == "{}:{}".format(*q.head)
        assert value["seq"] == q.state.seq
    (running,) = value["running"]
    assert running["since"] == "2026-11-30T12:00:14.000000Z"
    assert (running["lease"], running["worker"], running["attempt"]) == (14, "w2", 1)
    assert value["parked"] == [
        {"task": "parked", "reason": "failed after 1 attempts: bad input"},
    ]
    assert value["blocked"] == {"parked": ["under-parked"], "cancelled": ["under-cancelled"]}
    assert value["cancelled"] == ["cancelled"]
    assert value["missing"] == {
        "gone": ["after-gone"],
        "ghost": ["after-ghost"],
        "ghost2": ["after-running"],
    }
    assert value["policy"]["retry"]["max_attempts"] == 1


def test_status_in_a_pipe_is_plain_aligned_text(tmp_path: Path) -> None:
    """A line for each thing to know, and a command to go on with."""
    path = everything(tmp_path / "queue")
    out = eventq("status", "--queue", path).out.splitlines()
    counts = "11: 4 PENDING, 2 READY, 1 RUNNING, 1 PARKED, 2 BLOCKED, 1 CANCELLED"
    assert out[0] == f"tasks      {counts}"
    assert out[1] == "new tasks  admitted"
    assert out[2] == "policy     1 attempt, parks after 0 redrives, keeps 0 finished"
    assert out[-9:] == [
        "only a person can move:",
        "TASK       HOLDS UP         WHY",
        "parked     under-parked     parked: failed after 1 attempts: bad input",
        "cancelled  under-cancelled  cancelled, though others need it",
        "gone       after-gone       nobody has enqueued it",
        "ghost      after-ghost      nobody has enqueued it",
        "ghost2     after-running    nobody has enqueued it",
        "",
        f"next: eventq why parked --queue {path}",
    ]


def test_status_says_that_the_clock_is_off(tmp_path: Path) -> None:
    """Behind the last entry, by how much; and exits 0."""
    path = nightly(tmp_path / "queue", by="x")
    with WorkQueue.open(path, clock=Ticks(Ticks().at.replace(year=2999))) as q:
        q.close()
    ran = eventq("status", "--queue", path)
    assert ran.code == 0
    assert re.search(r"clock off  \d+ d( \d+ h)? behind the last entry", ran.out)
    assert "not admitted: the queue is closed" in ran.out
    assert eventq("status", "--queue", path, "--json").value["clock_behind"] > 1e9


def test_dlq_lists_dead_letters_in_order_of_death_and_parked_ones_apart(tmp_path: Path) -> None:
    """With reason, attempts, and when each died."""
    path = nightly(tmp_path / "queue", retention=None)
    with WorkQueue.open(path) as q:
        q.redrive("fetch")
    with WorkQueue.open(path, clock=Ticks(Ticks().at.replace(hour=23))) as q:
        q.fail(started(q), "HTTP 404")
    ran = eventq("dlq", "--list", "--queue", path, "--json")
    assert ran.code == 0
    first, second, third = ran.value["dead_letters"]
    assert first == {
        "task": "fetch",
        "status": "DEAD",
        "reason": "failed after 1 attempts: HTTP 404",
        "root": "fetch",
        "error": "HTTP 404",
        "attempts": 1,
        "redrives": 1,
        "since": first["since"],
        "seq": 7,
    }
    assert (second["task"], second["root"], second["seq"]) == ("parse", "fetch", 7)
    assert third["reason"] == "blocked by fetch"
    out = eventq("dlq", "--list", "--queue", everything(tmp_path / "other")).out
    assert out.startswith("0 tasks dead, 2 blocked, 1 parked\n")
    assert "parked  PARKED  2026-11-30 12:00:04Z      1  failed after 1 attempts: bad input" in out


def test_an_empty_dlq_is_fine(tmp_path: Path) -> None:
    """Nothing listed, nothing to type."""
    WorkQueue.open(tmp_path / "queue").shut()
    ran = eventq("dlq", "--queue", tmp_path / "queue")
    assert (ran.code, ran.out) == (0, "0 tasks dead, 0 blocked, 0 parked\n")


# The operators' commands.


@pytest.mark.parametrize("do", [name for name in WRITING if name not in FOR_THE_FILES])
def test_an_operators_command_must_say_why(queue: Path, do: str) -> None:
    """And not with nothing."""
    words = [word for word in WRITING[do] if word not in ("--why", "x")]
    with untouched(queue):
        assert eventq(do, *words, "--queue", queue).code == 2
        ran = eventq(do, *words, "--queue", queue, "--why", " ")
    assert ran.code == 2
    assert "say why" in ran.err


def last(queue: Path) -> dict[str, Any]:
    value = eventq("log", "--queue", queue, "-n", 1, "--json").value
    assert isinstance(value, dict)
    return value


def test_who_asked_and_why_are_kept_in_the_log(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the process, or whom --by names; one whom no log can hold by number."""
    monkeypatch.setenv("LOGNAME", "ann")
    assert eventq("redrive", "fetch", "--queue", queue, "--why", "it is back").code == 0
    entry = last(queue)
    assert (entry["do"], entry["by"], entry["why"]) == ("redrive", "ann", "it is back")
    eventq("close", "--queue", queue, "--why", "we move", "--by", "bob")
    assert (last(queue)["by"], last(queue)["why"]) == ("bob", "we move")
    monkeypatch.setenv("LOGNAME", "x\x1b")
    eventq("reopen", "--queue", queue, "--why", "moved")
    assert last(queue)["by"] == f"uid {os.getuid()}"
    assert eventq("close", "--queue", queue, "--why", "x", "--by", "a\nb").code == 3


def test_of_several_tasks_each_is_told_and_one_refusal_is_enough_for_exit_3(queue: Path) -> None:
    """The others are resolved all the same; a task named twice is resolved once."""
    words = ["resolve", "fetsh", "fetch", "parse", "fetch", "--queue", queue, "--why", "x"]
    ran = eventq(*words)
    only = "and only a task that is DEAD, PARKED or CANCELLED"
    assert ran.code == 3
    assert ran.out == "fetch is SUCCEEDED now\n"
    assert ran.err.splitlines() == [
        "eventq: cannot resolve 'fetsh': no task has this id",
        "eventq: did you mean 'fetch'?",
        f"eventq: cannot resolve 'parse': it is READY, {only} can be",
    ]
    ran = eventq(*words, "--json")
    assert [json.loads(line)["error"] for line in ran.err.splitlines()] == [
        "unknown_task",
        "wrong_status",
        "wrong_status",
    ]
    assert json.loads(ran.err.splitlines()[1])["status"] == "SUCCEEDED"


def test_redrive_all_takes_every_dead_task_in_one_entry(tmp_path: Path) -> None:
    """In the order of their deaths; parked ones are for a person to look at one by one."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, retry=Retry(max_attempts=1, max_redrives=1)) as q:
        for name in "abc":
            q.enqueue(name)
        for lease in [started(q), started(q), started(q)]:
            q.fail(lease, "no")
        q.redrive("a")
        q.fail(started(q), "no")
        assert [one.id for one in q.parked()] == ["a"]
    ran = eventq("redrive", "--all", "--queue", path, "--why", "x", "--json")
    assert [(one["task"], one["status"], one["outcome"]) for one in ran.values] == [
        ("b", "READY", "redriven"),
        ("c", "READY", "redriven"),
        ("a", "PARKED", "parked"),
    ]
    assert last(path)["ask"]["select"]["tasks"] == ["b", "c"]
    assert eventq("redrive", "--queue", path, "--why", "x").code == 2
    assert eventq("redrive", "--all", "a", "--queue", path, "--why", "x").code == 2
    assert eventq("redrive", "a", "--queue", path, "--why", "x").out == "a is READY now\n"


def test_cancel_and_restore_move_a_task_there_and_back(queue: Path) -> None:
    """What is under a cancelled task stays blocked."""
    ran = eventq("cancel", "parse", "fetch", "--queue", queue, "--why", "x")
    assert ran.out == "parse is CANCELLED now\nfetch is CANCELLED now\n"
    ran = eventq("restore", "fetch", "parse", "--queue", queue, "--why", "x", "--json")
    assert ran.values == [
        {"task": "fetch", "status": "READY"},
        {"task": "parse", "status": "PENDING"},
    ]
    assert eventq("restore", "fetch", "--queue", queue, "--why", "x").code == 3


def test_every_command_is_told_in_one_line() -> None:
    """The list of commands cuts none short at 80 columns."""
    out = on_terminal("--help").out.partition("Commands:")[2].partition("Exit codes")[0]
    lines = [line.rstrip() for line in out.splitlines() if line.strip()]
    assert len(lines) == len(ALL)
    assert not [line for line in lines if line.endswith("...")]


def test_close_and_reopen_say_whether_it_was_so_already(queue: Path) -> None:
    """Asking twice is harmless, and writes nothing."""
    words = ["--queue", queue, "--why", "x"]
    assert eventq("close", *words).out == "the queue is closed to new tasks\n"
    with untouched(queue):
        assert eventq("close", *words).out == "the queue is closed already to new tasks\n"
    assert eventq("reopen", *words, "--json").value == {"admission": "open", "changed": True}
    assert eventq("reopen", *words, "--json").value == {"admission": "open", "changed": False}


def test_head_and_snapshot_tell_what_they_are_called_for(queue: Path) -> None:
    """SEQ:HASH of the last line; the path of the file, which opens the queue from then on."""
    line = json.loads(segments(queue)[0].read_text().splitlines()[-1])
    assert run(queue, "head").out == f"4:{line['hash']}\n"
    assert run(queue, "head", "--json").value == {"seq": 4, "hash": line["hash"]}
    path = queue / "snapshots" / f"{4:020}.jsonl"
    assert run(queue, "snapshot").out == f"{path}\n"
    assert path.exists()
    assert run(queue, "snapshot", "--json").value == {"path": str(path), "seq": 4}


# Hostile text.

ACTING = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
SGR = re.compile(r"\x1b\[[0-9;]*m")


def shown(text: str) -> list[str]:
    """The lines of a terminal without colours, but for those that are there to be copied."""
    return [line for line in SGR.sub("", text).splitlines() if "eventq " not in line]


TRIED: list[list[str]] = [
    ["status"],
    ["dlq"],
    ["log"],
    ["at", "6"],
    ["at", "6", HOSTILE],
    ["history", HOSTILE],
    ["why", HOSTILE],
    ["why", "日本語"],
    ["verify"],
    ["history", HOSTILE[:-1]],
    ["redrive", "--why", "x", "--", "-rf"],
    ["cancel", "--why", "x", f"{HOSTILE}x"],
    ["why", "--", "-rf"],
]


@pytest.mark.parametrize("words", TRIED, ids=" ".join)
def test_no_text_acts_in_a_pipe(tmp_path: Path, words: list[str]) -> None:
    """Controls, direction marks, line ends and markup are spelled out; JSON gives them back."""
    path = hostile(tmp_path / "queue")
    ran = eventq(words[0], "--queue", path, *words[1:])
    for text in (ran.out, ran.err):
        assert not {c for c in text if unicodedata.category(c) in ACTING} - {"\n"}
    as_json = eventq(words[0], "--queue", path, "--json", *words[1:])
    if words[0] != "log":
        assert as_json.out.isascii()
    assert as_json.err.isascii()


@pytest.mark.parametrize("words", [["status"], ["dlq"], ["log"], ["at", "6"], ["why", "日本語"]])
def test_no_text_acts_on_a_terminal(tmp_path: Path, words: list[str]) -> None:
    """Nothing reaches it but our own colours; markup is text; no line is wider than it is."""
    path = hostile(tmp_path / "queue")
    ran = on_terminal(words[0], "--queue", path, *words[1:])
    assert ran.code == 0
    text = SGR.sub("", ran.out)
    assert all(cell_len(line) <= 80 for line in shown(ran.out)) or words[0] == "why"
    assert not {c for c in text if unicodedata.category(c) in ACTING} - {"\n"}
    assert "a\\u202eb" in text


def test_hostile_text_is_whole_in_json(tmp_path: Path) -> None:
    """Byte for byte what was given."""
    path = hostile(tmp_path / "queue")
    (dead, _) = eventq("dlq", "--list", "--queue", path, "--json").value["dead_letters"]
    assert (dead["task"], dead["error"]) == (HOSTILE, BAD_ERROR)
    value = eventq("at", 6, HOSTILE, "--queue", path, "--json").value
    assert value["payload"] == {"a": "\x1b[31m\u202e", "b": ["\n", "\x9b", "[red]"]}
    whys = [entry.get("why") for entry in eventq("log", "--queue", path, "--json").values]
    assert "two\nlines \x1b[31m [green]" in whys


def test_columns_stand_under_each_other_whatever_their_letters(tmp_path: Path) -> None:
    """A wide letter takes two columns."""
    path = hostile(tmp_path / "queue")
    lines = eventq("dlq", "--list", "--queue", path).out.splitlines()[2:5]
    places = {cell_len(re.split("STATUS|DEAD|BLOCKED", line)[0]) for line in lines}
    assert len(places) == 1
    assert lines[2].startswith("日本語")


NAMES = [
    HOSTILE,
    "-rf",
    "$(touch pwned)",
    "it's",
    'a "b" \\n',
    "日本語 x",
    "é\u00ad\\'\u202e",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_command_to_type_next_names_the_very_task(tmp_path: Path, name: str) -> None:
    """Whatever its id would mean to a shell."""
    path = tmp_path / "a queue"
    with WorkQueue.open(path, retry=Retry(max_attempts=1)) as q:
        q.enqueue(name)
        q.fail(started(q))
    ran = eventq("why", "--queue", path, "--", name)
    line = next(line for line in ran.out.splitlines() if " redrive " in line)
    done = subprocess.run(
        ["bash", "-c", f"eventq() {{ printf '%s\\0' \"$@\"; }}; {line}"], capture_output=True
    )
    words = done.stdout.decode().split("\0")
    assert name in words
    assert str(path) in words
    assert not (tmp_path / "pwned").exists()


# Terminals and pipes.


def test_a_terminal_has_colours_unless_it_is_told_not_to(queue: Path) -> None:
    """NO_COLOR is respected; a pipe has none anyway."""
    assert "\x1b[31mDEAD" in on_terminal("dlq", "--list", "--queue", queue).out
    plain = on_terminal("dlq", "--list", "--queue", queue, NO_COLOR="1").out
    assert "\x1b[31m" not in plain
    assert "\x1b" not in process("dlq", "--queue", queue, FORCE_COLOR="1").out


@pytest.mark.parametrize("columns", [80, 40])
@pytest.mark.parametrize("words", [["history", "fetch"], ["status"], ["dlq", "--list"], ["log"]])
def test_a_terminal_wraps_the_last_column(queue: Path, words: list[str], columns: int) -> None:
    """An error can be read whole at any width, and so can the head of the log."""
    error = " ".join(f"word-{number:02}" for number in range(20))
    with WorkQueue.open(queue) as q:
        q.redrive("fetch")
        q.fail(started(q), error)
        head = f"{q.head[0]}:{q.head[1]}"
    out = on_terminal(*words, "--queue", queue, columns=columns).out
    found = re.findall(r"word-\d\d", "".join(line.strip() for line in shown(out)))
    assert found[:20] == error.split()
    assert words != ["status"] or head in out


def test_a_terminal_is_told_less_and_a_pipe_all(queue: Path) -> None:
    """A very long error is cut with an ellipsis; in a pipe and in JSON it is whole."""
    long = "word " * 200 + "end"
    with WorkQueue.open(queue) as q:
        q.redrive("fetch")
        q.fail(started(q), long)
    out = on_terminal("dlq", "--list", "--queue", queue).out
    assert "…" in out
    assert not any(line.rstrip().endswith("end") for line in shown(out))
    assert all(cell_len(line) <= 80 for line in shown(out))
    assert long in eventq("dlq", "--list", "--queue", queue).out
    (first, *_) = eventq("dlq", "--list", "--queue", queue, "--json").value["dead_letters"]
    assert first["error"] == long


def test_a_terminal_wraps_counts_and_policies_and_cuts_none_of_them(tmp_path: Path) -> None:
    """A status that is cut off would be taken for the whole. Commands to copy are never wrapped."""
    path = everything(tmp_path / "queue")
    out = on_terminal("status", "--queue", path, columns=40).out
    assert "CANCELLED" in out
    wide = [line for line in shown(out) if cell_len(line) > 40 and "--queue" not in line]
    assert [line.split()[0] for line in wide] == ["head", "queue"]


def test_where_nobody_reads_on_it_ends_without_a_word(queue: Path) -> None:
    """As with `| head`: exit 141, and nothing on stderr."""
    with WorkQueue.open(queue) as q:
        for number in range(40):
            q.enqueue(f"t{number}", "x" * 10_000)
    for words in (["log"], ["log", "--json"], ["at", "9", "--json"], ["history", "t1"]):
        with subprocess.Popen(
            [*COMMAND, *words, "--queue", str(queue)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        ) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            child.stdout.close()
            assert child.stderr.read() == b""
        assert child.returncode == 141


def test_an_output_that_cannot_be_written_is_named(queue: Path) -> None:
    """Exit 6: closed, before anything is done; or on a full disk, however much there is to say."""
    with WorkQueue.open(queue) as q:
        for number in range(40):
            q.enqueue(f"t{number}", "x" * 10_000)
    shell = ["sh", "-c", '"$@" >&-', "sh", *COMMAND]
    words = ["redrive", "--all", "--why", "x", "--queue", str(queue)]
    with untouched(queue):
        ran = subprocess.run([*shell, *words], capture_output=True, env=environment(), timeout=60)
    assert ran.returncode == 6
    assert ran.stderr == b"eventq: the standard output is closed; nothing was done\n"
    for words in (["status"], ["log"], ["log", "--json"], ["at", "9", "--json"]):
        with Path("/dev/full").open("wb") as full:
            ran = subprocess.run(
                [*COMMAND, *words, "--queue", str(queue)],
                stdout=full,
                stderr=subprocess.PIPE,
                env=environment(PYTHONUNBUFFERED="1" if words == ["log"] else ""),
                timeout=60,
            )
        assert ran.returncode == 6
        said = ran.stderr.decode()
        assert "the standard output could not be written: No space left on device" in said
        assert said.count("\n") == 1


def test_ctrl_c_ends_it_without_a_traceback(queue: Path) -> None:
    """Exit 130."""
    with WorkQueue.open(queue) as q:
        q.enqueue("big", "x" * 1_000_000)
    with subprocess.Popen(
        [*COMMAND, "log", "--queue", str(queue)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(1)
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 130
        assert child.stderr.read().strip() == b""


def test_an_output_that_knows_few_letters_gets_them_spelled_out(tmp_path: Path) -> None:
    """Rather than an error."""
    path = hostile(tmp_path / "queue")
    ran = process("dlq", "--list", "--queue", path, PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert "\\u65e5\\u672c\\u8a9e" in ran.out


def test_the_queue_may_come_from_the_environment(queue: Path) -> None:
    """Then the commands to type next leave it out; told nowhere, it is missed."""
    assert "EVENTQ_QUEUE" in process("head").err
    ran = process("why", "parse", EVENTQ_QUEUE=str(queue))
    assert ran.code == 0
    assert '  eventq redrive fetch --why "..."' in ran.out


def test_who_asks_for_one_command_does_not_wait_for_the_others(queue: Path) -> None:
    """What runs tasks, draws tables or looks for versions takes longer to import than to tell how
    a queue stands."""
    script = (
        "import sys\n"
        "from eventq.cli.main import main\n"
        f"assert main(['status', '--queue', {str(queue)!r}]) == 0\n"
        "slow = {'asyncio', 'importlib.metadata', 'rich', 'tomllib', 'eventq.cli.runner'}\n"
        "print(sorted(slow & sys.modules.keys()), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "[]\n")


def test_a_usage_error_is_told_whole_as_json(queue: Path) -> None:
    """Also where the user's own words look like one."""
    ran = eventq("at", "Error: x", "--queue", queue, "--json")
    assert (ran.code, ran.error["error"]) == (2, "usage")
    assert ran.error["message"].startswith("Invalid value for 'WHEN': 'Error: x' is neither")


def test_it_tells_its_version() -> None:
    """Whether it is installed or not."""
    ran = process("--version")
    assert ran.code == 0
    assert re.match(r"eventq, version \S+", ran.out)


# Usage.


@pytest.mark.parametrize(
    "words",
    [["frobnicate"], ["status", "--bogus"], ["at", "x"], ["why"], ["at", "1.5"], ["verify", "now"]],
)
def test_a_wrong_command_line_is_exit_2(queue: Path, words: list[str]) -> None:
    """In words, or as one JSON object."""
    env = ["--queue", str(queue)] if words != ["frobnicate"] else []
    ran = eventq(*words, *env)
    assert ran.code == 2
    assert "Error: " in ran.err
    error = eventq(*words, *env, "--json").error
    assert set(error) == {"error", "exit", "message"}
    assert (error["error"], error["exit"]) == ("usage", 2)


# Completion.


def completed(*words: str, shell: str = "bash", **env: str) -> list[str]:
    """What Tab offers behind these words."""
    done = process(
        _EVENTQ_COMPLETE=f"{shell}_complete",
        COMP_WORDS=" ".join(["eventq", *words]),
        COMP_CWORD=str(len(words)),
        **env,
    )
    assert done.code == 0
    assert done.err == ""
    return [line.split(",", 1)[1] for line in done.out.splitlines() if line]


def test_tab_completes_ids_that_fit_the_command(tmp_path: Path) -> None:
    """Of the queue on the line, or of EVENTQ_QUEUE; only those that no shell takes for more."""
    path = nightly(tmp_path / "queue")
    with WorkQueue.open(path) as q:
        q.enqueue("fresh")
        q.enqueue("f$(touch pwned)")
    assert completed("why", "--queue", str(path), "f") == ["fetch", "fresh"]
    assert completed("redrive", "f", EVENTQ_QUEUE=str(path)) == ["fetch"]
    assert completed("redrive", "f") == []
    assert completed("sta") == ["status"]
    assert completed("status", "--queue", "x") == ["x"]


def test_completion_prints_what_a_shell_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the shell that is told, or the one in use; the line works."""
    assert "_EVENTQ_COMPLETE=fish_source" in eventq("completion", "fish").out
    monkeypatch.setenv("SHELL", "/usr/bin/zsh")
    assert "_EVENTQ_COMPLETE=zsh_source" in eventq("completion").out
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert eventq("completion").code == 2
    assert eventq("completion", "tcsh").code == 2
    for shell in ("zsh", "fish"):
        assert "complet" in process(_EVENTQ_COMPLETE=f"{shell}_source").out


# Words.


def test_a_policy_is_told_in_words() -> None:
    """Each part of it, where it says something."""
    with WorkQueue.in_memory(
        capacity=Capacity(1000, counts="unresolved"),
        pool=["a", "b"],
        retry=Retry(max_attempts=None, max_redrives=None, max_releases=1),
        retention=Retention(3),
    ) as q:
        assert policy_words(q.policy) == (
            "unlimited attempts, never parks, at most 1 release in a row, "
            "room for 1,000 unresolved, pool a, b, keeps 3 finished"
        )


def test_a_span_is_told_in_its_largest_unit_and_the_next() -> None:
    """Never below zero, and never in days and minutes."""
    told = {0: "0 s", -5: "0 s", 59: "59 s", 61: "1 min 1 s", 3600: "1 h", 3659: "1 h"}
    told |= {3661: "1 h 1 min", 86400: "1 d", 86400 + 3599: "1 d", 90061: "1 d 1 h"}
    assert {seconds: span(timedelta(seconds=seconds)) for seconds in told} == told
