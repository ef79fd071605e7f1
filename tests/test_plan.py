"""A redrive as a plan: what it says comes true, adds up, and is refused when it fits no more."""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from disk import Ticks, untouched
from forked import Child, children, hear
from ledger import Ledger, Walk
from terminal import Ran, eventq, on_terminal, process, started

from eventq import Enqueue, Retry, Select, Status, WorkQueue
from eventq.cli import redrive as commands
from eventq.core.commands import Fail, Redrive, RedriveAll
from eventq.core.errors import UnknownTask, WrongStatus
from eventq.queries.plan import Chosen, Plan, drift, plan, plan_alone, refusals, roots_of

S = Status


def sick(**policy: Any) -> Ledger:
    """a and b are dead, p is parked, and something hangs below each of them and below two."""
    ledger = Ledger(retry=Retry(1, max_redrives=1), **policy)
    ledger.tasks(a="", b="", p="", ok="", la="a", lb="b", lp="p", lab="a b", lap="a p", far="la")
    ledger.kill("p").do(Redrive("p")).kill("a", "p")
    return ledger.do(Fail(ledger.run("b"), "HTTP 503", "permanent"))


def told(made: Plan) -> tuple[list[str], list[str], list[tuple[str, str]], list[str]]:
    return (
        [one.task for one in made.redriven],
        list(made.unblocked),
        [(one.task, one.root) for one in made.blocked],
        list(made.parked),
    )


# The plan.


def test_a_plan_says_what_runs_what_is_freed_what_stays_and_what_is_left_alone() -> None:
    """Of all that is dead; a task below two roots stays if one of them does."""
    ledger = sick()
    with ledger.unchanged():
        made = plan(ledger.state, Select(), ledger.at)
    assert told(made) == (
        ["a", "b"],
        ["la", "lab", "lb", "far"],
        [("lap", "p"), ("lp", "p")],
        ["p"],
    )
    assert made.selected == 9
    record = ledger.state.record("b")
    assert record is not None
    assert made.redriven[1] == Chosen("b", "HTTP 503", record.since, record.mark)
    assert made.select == Select(tasks=("a", "b"))


def test_a_plan_for_some_says_by_whom_the_others_are_kept() -> None:
    """By their error here; the limit takes the oldest; PARKED ones that fit are told."""
    ledger = sick()
    made = plan(ledger.state, Select(error="HTTP*", how="glob"), ledger.at)
    assert told(made) == (["b"], ["lb"], [("lab", "a")], [])
    made = plan(ledger.state, Select(limit=1), ledger.at)
    assert told(made) == (["a"], ["la", "far"], [("lab", "b"), ("lap", "p"), ("lp", "p")], ["p"])
    assert plan(ledger.state, Select(error="none"), ledger.at).selected == 0


def test_what_was_named_and_is_blocked_is_told_and_what_is_no_dead_letter_is_refused() -> None:
    """By the rules themselves, in the order in which they were named."""
    ledger = sick()
    names = ["b", "lb", "lp", "ok", "ghost", "p"]
    made = plan(ledger.state, Select(tasks=names), ledger.at)
    assert told(made) == (["b"], ["lb"], [("lp", "p"), ("lab", "a"), ("lap", "a")], ["p"])
    first, second = refusals(ledger.state, made, names, ledger.at)
    assert isinstance(first, WrongStatus)
    assert (first.task, first.status) == ("ok", "RUNNING")
    assert isinstance(second, UnknownTask)


def test_a_task_that_is_named_alone_may_be_parked() -> None:
    """And is refused as the rules refuse it."""
    ledger = sick()
    made = plan_alone(ledger.state, "p", ledger.at)
    assert told(made) == (["p"], ["lp"], [("lap", "a")], [])
    assert made.alone
    with pytest.raises(WrongStatus):
        plan_alone(ledger.state, "la", ledger.at)


def test_the_roots_of_a_task_are_all_that_keep_it() -> None:
    """The nearest first; its own is itself."""
    ledger = sick().tasks(low="ok lap b", lower="low")
    assert roots_of(ledger.state, "lower") == ["b", "a", "p"]
    assert roots_of(ledger.state, "a") == ["a"]
    assert roots_of(ledger.state, "ok") == roots_of(ledger.state, "ghost") == []


def test_what_a_plan_says_comes_true() -> None:
    """Wherever the queue stands, for any selection; nothing else changes, and it adds up."""
    walks = [Walk(seed, ids=12, retry=Retry(1, max_redrives=1)) for seed in range(6)]
    rng = random.Random(1)
    redriven = freed = kept = 0
    for walk in walks * 150:
        walk.step()
        ledger, before = walk.ledger, walk.ledger.state
        tasks = rng.choice([None, rng.sample(walk.ids, 4)])
        made = plan(before, Select(tasks=tasks, limit=rng.choice([None, 2])), ledger.at)
        runs, unblocked, stay, parked = told(made)
        names = [*runs, *unblocked, *(name for name, _ in stay), *parked]
        assert len(names) == len(set(names)) == made.selected
        if tasks is None and len(runs) == before.count(S.DEAD) and not before.count(S.CANCELLED):
            assert made.selected == before.count(S.DEAD, S.PARKED, S.BLOCKED)
        assert drift(made, before, ledger.at) == []
        if runs and rng.random() < 0.7:
            ledger(RedriveAll(made.select))
            after = ledger.state
            for name in after.records:
                then, now = before.records[name], after.records[name]
                assert then is not None
                assert now is not None
                if name in runs:
                    assert now.status is S.READY
                elif name in unblocked:
                    assert (then.status, now.status) == (S.BLOCKED, S.PENDING)
                else:
                    assert then.status is now.status
            assert all(after.root(name) == root for name, root in stay)
            assert len(drift(made, after, ledger.at)) == len(runs)
            redriven, freed, kept = redriven + len(runs), freed + len(unblocked), kept + len(stay)
    assert min(redriven, freed, kept) > 3


# Drift.

CHANGES: dict[str, tuple[Callable[[Ledger], object], list[str]]] = {
    "nothing": (lambda _: None, []),
    "another task died": (lambda ledger: ledger.kill("ok"), []),
    "something else was enqueued": (lambda ledger: ledger.tasks(z="ok"), []),
    "one runs again": (lambda ledger: ledger.do(Redrive("a")), ["a is READY now"]),
    "one died anew": (
        lambda ledger: ledger.do(Redrive("b")).kill("ok", "b"),
        ["b is PARKED now"],
    ),
    "one more hangs below": (
        lambda ledger: ledger.tasks(z="a"),
        ["z would become unblocked too"],
    ),
    "the parked one was redriven": (
        lambda ledger: ledger.do(Redrive("p")),
        ["lap would become unblocked too"],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_drifts_when_what_it_does_would_be_another_thing(change: str) -> None:
    """And by nothing else that happens."""
    ledger = sick()
    made = plan(ledger.state, Select(), ledger.at)
    do, expected = CHANGES[change]
    do(ledger)
    assert drift(made, ledger.state, ledger.at) == expected


def test_a_death_anew_is_told_from_the_one_that_was_planned() -> None:
    """Though the task is DEAD both times, and at the same time."""
    ledger = Ledger(retry=Retry(1)).tasks(a="").kill("a")
    made = plan(ledger.state, Select(), ledger.at)
    ledger.do(Redrive("a")).kill("a")
    assert drift(made, ledger.state, ledger.at) == ["a has died anew since"]
    other = Ledger(retry=Retry(1)).state
    assert drift(made, other, ledger.at)[0].startswith("it was made after entry")


# eventq redrive


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """The queue of `sick`, on disk."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, retry=Retry(1, max_redrives=1), clock=Ticks()) as q:
        q.enqueue_all(
            Enqueue(name, None, after.split())
            for name, after in {"p": "", "a": "", "b": "", "la": "a", "lap": "a p"}.items()
        )
        q.fail(started(q), "bad input")
        q.redrive("p")
        for error in ("HTTP 503", "HTTP 404", "bad input"):
            q.fail(started(q), error)
    return path


def redrive(queue: Path, *words: object) -> Ran:
    return eventq("redrive", *words, "--queue", queue)


def entries(queue: Path) -> list[Any]:
    return eventq("log", "--queue", queue, "--json").values


def test_a_dry_run_says_it_and_does_nothing(queue: Path) -> None:
    """Without a reason and without the lock; as JSON in lists that add up."""
    with untouched(queue):
        ran = redrive(queue, "--all", "--dry-run")
        value = redrive(queue, "--all", "--dry-run", "--json").value
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "a would run: HTTP 503 (2026-11-30 12:00:07Z)",
        "b would run: HTTP 404 (2026-11-30 12:00:09Z)",
        "la would be unblocked",
        "lap would stay blocked by p",
        "p is parked and would be left alone: look at it, then redrive it by naming it alone",
        "nothing is done yet; 5 tasks: 2 redriven, 1 unblocked, 1 blocked still, 1 parked",
    ]
    assert [one["task"] for one in value["redriven"]] == ["a", "b"]
    assert (value["unblocked"], value["parked"]) == (["la"], ["p"])
    assert value["blocked"] == [{"task": "lap", "root": "p"}]
    lists = ("redriven", "unblocked", "blocked", "parked")
    assert value["selected"] == sum(len(value[name]) for name in lists) == 5


def test_a_selection_that_finds_nothing_says_why(queue: Path, tmp_path: Path) -> None:
    """An error is compared exactly, unless it is said how else."""
    ran = redrive(queue, "--error", "HTTP", "--dry-run")
    exactly = "of 2 dead tasks, none has exactly this error: try --how glob"
    assert ran.out.startswith(exactly)
    for words in (["x", "--how", "glob"], ["HTTP 503", "--older-than", "30000d"]):
        ran = redrive(queue, "--dry-run", "--error", *words)
        assert ran.out == "of 2 dead tasks, none is meant\n"
    WorkQueue.open(tmp_path / "empty").shut()
    assert redrive(tmp_path / "empty", "--all", "--dry-run").out == "no task is dead\n"


def test_a_bulk_is_one_entry_with_the_very_tasks(queue: Path) -> None:
    """With who and why, in the order of their death; of each task its outcome is told."""
    seq = len(entries(queue))
    ran = redrive(queue, "--error", "HTTP", "--how", "prefix", "--why", "back", "--by", "ann")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "a is READY now",
        "b is READY now",
        "la is unblocked: PENDING now",
        "lap stays blocked by p",
        "4 tasks: 2 redriven, 1 unblocked, 1 blocked still, 0 parked",
    ]
    (entry,) = entries(queue)[seq:]
    assert (entry["do"], entry["by"], entry["why"]) == ("redrive_all", "ann", "back")
    assert entry["ask"]["select"]["tasks"] == ["a", "b"]
    assert eventq("verify", "--queue", queue).code == 0


SELECTED: dict[str, list[str]] = {
    "--error 'HTTP 404'": ["b"],
    "--error HTTP": [],
    "--error 'HTTP 4*' --how glob": ["b"],
    "--error '5.3$' --how regex": ["a"],
    "--all --limit 1": ["a"],
    "--root lap": ["a"],
    "--root b --root la": ["a", "b"],
    "--all --newer-than 1s": [],
    "--all --older-than 1s": ["a", "b"],
    "--older-than 999999999d": [],
    "a b --error 'HTTP 503'": ["a"],
    "a p": ["a"],
    "p": ["p"],
    "b": ["b"],
}


@pytest.mark.parametrize("words", SELECTED)
def test_what_is_told_must_all_hold(queue: Path, words: str) -> None:
    """Ids, errors, ages, roots and a limit; a PARKED task goes only when it is named alone."""
    ran = redrive(queue, *shlex.split(words), "--dry-run", "--json")
    assert ran.code == 0
    assert [one["task"] for one in ran.value["redriven"]] == SELECTED[words]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--limit 3",
        "--how glob",
        "--all a",
        "--all --root a",
        "--all --how glob",
        "--error ( --how regex",
        "--all --older-than 5",
        "--all --limit 0",
        "--apply nowhere.json",
        "--all",
        "a",
    ],
)
def test_a_wrong_selection_is_a_usage_error(queue: Path, words: str) -> None:
    """And one without a reason that is to be done; nothing is changed."""
    more = [] if words in ("--all", "a") else ["--why", "x"]
    with untouched(queue):
        assert redrive(queue, *words.split(), *more).code == 2


def test_of_tasks_that_were_named_each_is_answered(queue: Path) -> None:
    """Some redriven, one unblocked with them, one parked, one unknown: exit 3."""
    ran = redrive(queue, "a", "la", "p", "bb", "a", "--why", "x", "--json")
    assert ran.code == 3
    assert ran.values == [
        {"task": "a", "status": "READY", "outcome": "redriven", "root": None},
        {"task": "la", "status": "PENDING", "outcome": "unblocked", "root": None},
        {"task": "lap", "status": "BLOCKED", "outcome": "blocked", "root": "p"},
        {"task": "p", "status": "PARKED", "outcome": "parked", "root": None},
    ]
    assert (ran.error["error"], ran.error["task"]) == ("unknown_task", "bb")
    ran = redrive(queue, "la", "--why", "x")
    assert (ran.code, ran.out) == (3, "")
    assert "it is PENDING, and only a task that is DEAD or PARKED can be" in ran.err
    assert redrive(queue, "--root", "ghost", "--why", "x").code == 3


def test_a_parked_task_that_is_named_alone_is_redriven(queue: Path) -> None:
    """A person has looked."""
    ran = redrive(queue, "p", "--why", "mended")
    assert ran.out.splitlines() == ["p is READY now", "lap stays blocked by a"]
    assert entries(queue)[-1]["do"] == "redrive"


def test_a_saved_plan_is_applied_once(queue: Path, tmp_path: Path) -> None:
    """By other processes, as written; then it fits no more: exit 3, and nothing is done."""
    file = tmp_path / "plan.json"
    with untouched(queue):
        ran = process("redrive", "--all", "--save", file, "--queue", queue)
        assert ran.code == 0
        assert ran.out.endswith(f"the plan is in {file}\n")
        assert redrive(queue, "--apply", file, "--dry-run").code == 0
        assert redrive(queue, "--apply", file, "--all", "--why", "x").code == 2
    with WorkQueue.open(queue) as q:
        q.enqueue("more")
    ran = process("redrive", "--apply", file, "--why", "x", "--queue", queue)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("5 tasks: 2 redriven, 1 unblocked")
    with untouched(queue):
        ran = redrive(queue, "--apply", file, "--why", "x")
        error = redrive(queue, "--apply", file, "--why", "x", "--json").error
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines() == [
        "eventq: the plan does not fit any more, and nothing was done: make a new one",
        "eventq: a is READY now",
        "eventq: b is READY now",
    ]
    assert (error["error"], error["changes"]) == ("drifted", ["a is READY now", "b is READY now"])


def test_a_plan_of_one_parked_task_is_applied(queue: Path, tmp_path: Path) -> None:
    """As if it were named alone then."""
    file = tmp_path / "plan.json"
    redrive(queue, "p", "--save", file)
    assert redrive(queue, "--apply", file, "--why", "x").code == 0
    assert entries(queue)[-1]["do"] == "redrive"


def test_a_file_that_is_no_plan_is_a_usage_error(queue: Path, tmp_path: Path) -> None:
    """Whatever is wrong with it."""
    file = tmp_path / "plan.json"
    redrive(queue, "--all", "--save", file)
    good = json.loads(file.read_text())
    bad: list[Any] = [
        [],
        None,
        {},
        {**good, "v": 2},
        {**good, "plan": "x"},
        {**good, "more": 1},
        {**good, "unblocked": "la"},
        {**good, "redriven": [{"task": "a"}]},
        {name: value for name, value in good.items() if name != "seq"},
    ]
    for text in ["", "{", "\x00", "[" * 100_000, *map(json.dumps, bad)]:
        file.write_text(text)
        ran = redrive(queue, "--apply", file, "--why", "x")
        assert ran.code == 2, text
        assert "is no plan that" in ran.err
    ran = redrive(queue, "--apply", "/dev/zero", "--why", "x")
    assert (ran.code, "is no plan that" in ran.err) == (2, True)
    for inside in (queue / "plan.json", queue / "log" / f"{99:020}.jsonl"):
        ran = redrive(queue, "--all", "--save", inside)
        assert (ran.code, "lies in the queue itself" in ran.err) == (2, True)
        assert not inside.exists()
    ran = redrive(queue, "--all", "--save", "/dev/full")
    assert (ran.code, "/dev/full: No space left" in ran.err) == (6, True)


def test_nothing_but_a_plan_is_written_over(queue: Path, tmp_path: Path) -> None:
    """Exit 2, and the file is as it was; an empty one holds nothing that could be lost."""
    file = tmp_path / "notes.json"
    file.write_text('{"notes": 1}')
    ran = redrive(queue, "--all", "--save", file)
    assert (ran.code, ran.out) == (2, "")
    assert f"{file} is there already, and is no plan that would be replaced" in ran.err
    assert file.read_text() == '{"notes": 1}'
    file.write_text("")
    assert redrive(queue, "b", "--save", file).code == 0
    before = file.read_text()
    assert redrive(queue, "--all", "--save", file).code == 0
    assert file.read_text() != before


def test_a_plan_is_for_its_own_queue(queue: Path, tmp_path: Path) -> None:
    """Though the other has tasks of the same names."""
    file = tmp_path / "plan.json"
    redrive(queue, "--all", "--save", file)
    WorkQueue.open(tmp_path / "other").shut()
    ran = redrive(tmp_path / "other", "--apply", file, "--why", "x")
    assert ran.code == 3
    assert "it was made for the queue" in ran.err


@pytest.mark.parametrize("how", ["--apply", "--all", "b"])
def test_nobody_comes_between_the_plan_and_the_redrive(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Another process that cancels what was just found to be dead has to wait."""
    file = tmp_path / "plan.json"
    redrive(queue, "--all", "--save", file)

    def work(tell: Callable[[str], None]) -> None:
        tell("asks")
        with WorkQueue.open(queue) as q:
            q.cancel("b")
            tell("cancelled")

    with children() as others:
        name = {"--apply": "drift", "--all": "plan", "b": "plan_alone"}[how]
        found = getattr(commands, name)

        def slow(*args: Any) -> Any:
            others.append(Child(work))
            answer = found(*args)
            told = hear(others)[0][1]
            while told == ["asks"]:
                more = hear(others, 0.2)
                told += more[0][1] if more else ["waits"]
            assert told == ["asks", "waits"]
            return answer

        monkeypatch.setattr(commands, name, slow)
        ran = redrive(queue, *([how, file] if how == "--apply" else [how]), "--why", "x", "--json")
        assert ran.code == 0
        assert "b" in {one["task"] for one in ran.values if one["outcome"] == "redriven"}
        assert others[0].end() == (0, ["cancelled"])
    with WorkQueue.open(queue) as q:
        assert [entry.do[:7] for entry in q.entries()][-2:] == ["redrive", "cancel"]


def test_a_terminal_is_told_of_the_first_of_many(tmp_path: Path) -> None:
    """And how many more there are."""
    path = many(tmp_path / "queue", 30)
    out = on_terminal("redrive", "--all", "--dry-run", "--queue", path).out
    assert "t19 would run" in out
    assert "t20 would run" not in out
    assert "and 10 more redriven" in out
    assert len(redrive(path, "--all", "--dry-run").out.splitlines()) == 61


def many(path: Path, number: int) -> Path:
    """A queue with so many dead tasks, and one below each."""
    names = [f"t{i}" for i in range(number)]
    with WorkQueue.open(path, retry=Retry(1), clock=Ticks()) as q:
        q.enqueue_all([Enqueue(name) for name in names])
        q.enqueue_all([Enqueue(f"{name}-below", None, [name]) for name in names])
        for i in range(number):
            q.fail(started(q), f"HTTP {i}")
    return path


def test_thousands_of_dead_letters_are_planned_and_redriven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one that hangs below each; as real processes run it."""
    path = tmp_path / "queue"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: None)
        dead_by_thousands(path, 2_000)
    file = tmp_path / "plan.json"
    for words in (
        ["dlq", "--json"],
        ["redrive", "--all", "--dry-run"],
        ["redrive", "--all", "--save", file],
        ["redrive", "--apply", file, "--why", "x"],
    ):
        ran = process(*words, "--queue", path)
        assert ran.code == 0
    assert ran.out.endswith(
        "4,000 tasks: 2,000 redriven, 2,000 unblocked, 0 blocked still, 0 parked\n"
    )


def dead_by_thousands(path: Path, number: int) -> None:
    """The same, by leases that run out: a thousand in one entry."""
    clock = Ticks()
    with WorkQueue.open(path, retry=Retry(1), lease_for=timedelta(days=1), clock=clock) as q:
        q.enqueue_all(
            Enqueue(f"t{i}{below}", None, [f"t{i}"] if below else [])
            for i in range(number)
            for below in ("", "-below")
        )
        for _ in range(number):
            started(q)
        clock.at += timedelta(days=2)
        while q.state.count(S.RUNNING):
            q.tick()
