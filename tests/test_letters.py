"""The dead letters as a whole: folded errors, groups that add up, and conditions for a monitor."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from disk import Ticks, untouched
from ledger import Ledger, Walk
from terminal import eventq, everything, nightly, process, started

from eventq import Enqueue, Retry, Status, WorkQueue
from eventq.core.commands import Cancel, Fail, Redrive
from eventq.queries.condition import BadCondition, age, condition
from eventq.queries.letters import Letters, globbed, letters, shape

S = Status

# The shape of an error.

FOLDS = {
    "HTTP <n>": ["HTTP 503", "HTTP 404"],
    "retry in <n>s after <n> of <n>": [
        "retry in 1.5s after 3 of 10",
        "retry in 20s after 1,000 of 7",
    ],
    "commit <n> is gone": ["commit 9f2c1ab7 is gone", "commit 0x7FFE is gone"],
    "order <uuid> lost": [
        "order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 lost",
        "order 3F2504E0-4F89-11D3-9A0C-0305E82C33FF lost",
    ],
    "no route to <addr>": [
        "no route to 10.0.0.7",
        "no route to 10.0.0.7:8080",
        "no route to fe80::1",
        "no route to 2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "no route to 00:1b:44:11:3a:b7",
        "no route to ann@example.org",
    ],
    "cannot open <text>": ["cannot open 'a b'", 'cannot open "x"', "cannot open `y`"],
    "task<n> at <n>:<n>:<n>": ["task12 at 12:00:17", "task3 at 01:02:03"],
    "one two": ["one two", " one\n\ttwo "],
    "can't, won't: don't": ["can't, won't: don't"],
    "std::bad_alloc in dead beef": ["std::bad_alloc in dead beef"],
    "": ["", "  "],
}


@pytest.mark.parametrize("folded", FOLDS)
def test_what_tells_one_case_from_the_next_is_folded(folded: str) -> None:
    """Numbers, hex ids, uuids, addresses and quoted texts; words stay as they are."""
    assert {shape(error) for error in FOLDS[folded]} == {folded}


@pytest.mark.parametrize("error", [error for errors in FOLDS.values() for error in errors])
def test_a_shape_is_a_pattern_to_type(error: str) -> None:
    """Which the error fits that it was made of."""
    assert fnmatchcase(error, globbed(error))


def test_a_pattern_fits_the_others_of_its_shape_and_nothing_in_it_is_special() -> None:
    """Stars, brackets and question marks of the error itself mean themselves."""
    pattern = globbed("HTTP 503 from 10.0.0.7: [a*] why?")
    assert pattern == "HTTP * from *: [[]a[*]] why[?]"
    assert fnmatchcase("HTTP 404 from 10.9.9.9:80: [a*] why?", pattern)
    assert not fnmatchcase("HTTP 404 from 10.9.9.9:80: a why?", pattern)


@pytest.mark.parametrize(
    "error",
    ["a" * 100_000, "'" * 100_000, '"a' * 50_000, "a.b+" * 50_000, "1:" * 50_000, "a1" * 50_000],
)
def test_no_error_takes_long_to_fold(error: str) -> None:
    """However it is built."""
    begun = time.process_time()
    shape(error)
    globbed(error)
    assert time.process_time() - begun < 0.5


# Groups.


def sick() -> Ledger:
    """Six tasks that died of two things, one parked, and what hangs below them."""
    ledger = Ledger(retry=Retry(1, max_redrives=1))
    ledger.tasks(a="", b="", c="", x="", p="a", q="p", r="b a", s="x", u="c")
    for name, error in {"a": "HTTP 503", "b": "HTTP 404", "c": "no 'x'"}.items():
        ledger.do(Fail(ledger.run(name), error, "permanent"))
    ledger.do(Cancel("x"), Redrive("b"))
    return ledger.do(Fail(ledger.run("b"), "HTTP 1", "permanent"))


def test_letters_of_one_shape_are_one_group() -> None:
    """With counts, the oldest and newest death, and what waits below each root."""
    ledger = sick()
    found = letters(ledger.state, ledger.at)
    first, second = found.groups
    assert (first.shape, first.example) == ("HTTP <n>", "HTTP 1")
    assert (first.dead, first.parked, first.count) == (("a",), ("b",), 2)
    assert first.below == {"a": 2, "b": 1}
    assert (first.blocked, first.growth) == (3, 5)
    assert (second.shape, second.dead, second.below) == ("no <text>", ("c",), {"c": 1})
    a, b = ledger.state.record("a"), ledger.state.record("b")
    assert a is not None
    assert b is not None
    assert (first.oldest, first.newest) == (a.since, b.since)
    assert found.under_cancelled == {"x": 1}
    assert (found.dead, found.blocked, found.parked, found.total) == (2, 5, 1, 8)


def test_growth_is_what_came_within_the_time_and_is_still_here() -> None:
    """What was redriven since is not; an hour unless another time is told."""
    ledger = Ledger(retry=Retry(1)).tasks(a="", b="", c="", below="a").kill("a", "b")
    ledger.at += timedelta(minutes=50)
    ledger.kill("c")
    found = letters(ledger.state, ledger.at + timedelta(minutes=20))
    assert (found.growth(), found.growth(timedelta(hours=2)), found.growth(timedelta(0))) == (
        1,
        4,
        0,
    )
    assert found.growth(timedelta.max) == 4
    assert [group.growth for group in found.groups] == [1]
    assert timedelta(minutes=70) < found.oldest < timedelta(minutes=71)
    ledger.do(Redrive("a"))
    assert letters(ledger.state, ledger.at).growth(timedelta(hours=2)) == 2


def test_a_queue_without_dead_letters_has_no_group() -> None:
    """And its oldest has no age."""
    found = letters(Ledger().tasks(a="").state, datetime.max.replace(tzinfo=Ledger().at.tzinfo))
    assert (found.groups, found.total, found.oldest, found.growth()) == ((), 0, timedelta(), 0)


def test_the_groups_add_up_to_what_there_is() -> None:
    """Wherever the queue stands: every letter is in one group, or below a cancelled task."""
    walks = [Walk(seed, ids=12, retry=Retry(1, max_redrives=1)) for seed in range(5)]
    most = 0
    for walk in walks * 150:
        walk.step()
        state = walk.ledger.state
        found = letters(state, walk.ledger.at)
        assert sorted(name for group in found.groups for name in group.dead) == sorted(
            record.task.task for record in state.dead()
        )
        assert sum(len(group.parked) for group in found.groups) == found.parked
        beside = sum(found.under_cancelled.values())
        assert sum(group.blocked for group in found.groups) + beside == found.blocked
        assert found.total == len(found.times) == found.growth()
        most = max(most, found.total)
    assert most > 3


# Conditions.


def some(**numbers: int) -> Letters:
    now = Ticks()()
    count = sum(numbers.get(name, 0) for name in ("dead", "blocked", "parked"))
    times = tuple(now - timedelta(minutes=minutes) for minutes in range(count)[::-1])
    return Letters(
        (),
        numbers.get("dead", 0),
        numbers.get("blocked", 0),
        numbers.get("parked", 0),
        {},
        now,
        times,
    )


HOLDS = {
    "total > 500": False,
    "total>=100": True,
    "total == 100": True,
    "total != 100": False,
    "dead < 61 and blocked <= 30 and parked > 9": True,
    "growth > 20/1h or total > 500": True,
    "growth > 20/5m": False,
    "growth > 4/5m": True,
    "growth == 60": True,
    "growth == 100/1d": True,
    "oldest > 1h": True,
    "oldest > 1.5h and oldest < 1d": True,
    "oldest > 100m or oldest < 10s": False,
    "dead > 99 and dead > 99 or dead > 1": True,
    "dead > 99 and (dead > 99 or dead > 1)": False,
    " ( ( dead>1 ) )and(blocked>1) ": True,
}


@pytest.mark.parametrize("text", HOLDS)
def test_a_condition_is_judged(text: str) -> None:
    """`and` before `or`; of 60 dead, 30 blocked and 10 parked, one a minute."""
    assert condition(text).holds(some(dead=60, blocked=30, parked=10)) is HOLDS[text]


WRONG = {
    "": "it ends too early: expected one of total, dead,",
    "total": "it ends too early: expected one of > >=",
    "total >": "it ends too early: expected a number like 20",
    "totl > 5": "'totl' at character 1: expected one of total,",
    "total > many": "'many' at character 9: expected a number",
    "total > 5s": "'5s' at character 9: expected a number",
    "total > 5/1h": "'5/1h' at character 9: expected a number",
    "growth > 5/1": "'5/1' at character 10: expected a number and a time like 20/1h",
    "growth > 5/1y": "'5/1y' at character 10: expected a number and a time",
    "oldest > 5": "'5' at character 10: expected an age",
    "oldest > 5w": "'5w' at character 10: expected an age",
    "total = 5": "'=' at character 7: expected one of > >=",
    "total > 5 dead > 5": "'dead' at character 11: expected `and` or `or`",
    "(total > 5": "it ends too early: expected `)`",
    "total > 5)": "')' at character 10: expected `and` or `or`",
    "not total > 5": "'not' at character 1: expected one of",
    "total > 5; import os": "';' at character 10 means nothing",
    "__import__('os')": "'_' at character 1 means nothing",
    "total > -5": "'-' at character 9 means nothing",
    "oldest > 99999999999999999999d": "expected an age",
    "(" * 60 + "total > 5" + ")" * 60: "more than 50 parentheses",
    "total > 5 or " * 100 + "dead > 1": "longer than 1,000 characters",
}


@pytest.mark.parametrize("text", WRONG, ids=[text[:20] for text in WRONG])
def test_what_is_no_condition_is_told_with_its_place(text: str) -> None:
    """And what was expected there; nothing of it is ever run."""
    with pytest.raises(BadCondition, match=re.escape(WRONG[text])):
        condition(text)


def test_an_age_has_a_unit() -> None:
    """Seconds, minutes, hours or days."""
    told = {"30s": 30, "5m": 300, "2h": 7200, "1d": 86400, "1.5m": 90}
    assert {text: age(text).total_seconds() for text in told} == told
    for text in ("5", "s", "-5s", "5 s", "5ms", "", "1e3s", "٣s", "9" * 30 + "d"):
        with pytest.raises(ValueError, match="time"):
            age(text)


# eventq dlq


def test_dlq_shows_the_groups_and_what_to_type_next(tmp_path: Path) -> None:
    """The one of which most died first; a pattern for a bulk redrive, tried without doing it."""
    path = tmp_path / "a queue"
    with WorkQueue.open(path, retry=Retry(1), clock=Ticks()) as q:
        q.enqueue_all([*map(Enqueue, "abc"), Enqueue("d", None, ["b"])])
        for error in ("disk 'x' full", "HTTP 503", "HTTP 404"):
            q.fail(started(q), error)
    with untouched(path):
        ran = eventq("dlq", "--queue", path)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "3 tasks dead, 1 blocked, 0 parked",
        "",
        "DEAD  PARKED  BLOCKED  +1H  OLDEST                NEWEST                ROOT  ERROR",
        ran.out.splitlines()[3],
        ran.out.splitlines()[4],
        "",
        "next:",
        f"  eventq history b --queue '{path}'",
        f"  eventq redrive --how glob '--error=HTTP *' --dry-run --queue '{path}'",
    ]
    assert re.match(r"   2       0        1    \d  2026-.* b +HTTP <n>$", ran.out.splitlines()[3])
    assert ran.out.splitlines()[4].endswith("  a     disk <text> full")


def test_dlq_as_json_has_every_root(tmp_path: Path) -> None:
    """Each with what waits below it."""
    value = eventq("dlq", "--queue", everything(tmp_path / "queue"), "--json").value
    assert [value[name] for name in ("total", "dead", "blocked", "parked")] == [3, 0, 2, 1]
    assert value["under_cancelled"] == {"cancelled": 1}
    (group,) = value["groups"]
    assert group["roots"] == [{"task": "parked", "status": "PARKED", "blocked": 1}]
    assert (group["shape"], group["count"], group["oldest"]) == (
        "bad input",
        1,
        "2026-11-30T12:00:04.000000Z",
    )
    out = eventq("dlq", "--queue", tmp_path / "queue").out
    assert "1 task blocked by 1 cancelled task\n" in out
    assert out.endswith(f"  eventq dlq --list --queue {tmp_path / 'queue'}\n")


def test_a_check_is_told_by_its_exit_code(tmp_path: Path) -> None:
    """4 when it holds, 0 when not, 2 when it is none: as a monitor runs it, in a process."""
    path = nightly(tmp_path / "queue")
    with untouched(path):
        ran = process("dlq", "--check", "dead > 0 and blocked == 2", "--queue", path)
        assert (ran.code, ran.err) == (4, "")
        assert ran.out.startswith("holds: total 3, dead 1, blocked 2, parked 0, growth ")
        ran = eventq("dlq", "--check", "total > 3 or parked > 0", "--queue", path)
        assert (ran.code, ran.out[:14]) == (0, "does not hold:")
        ran = eventq("dlq", "--check", "growth > 20/", "--queue", path)
    assert (ran.code, ran.out) == (2, "")
    assert "'/' at character 12 means nothing" in ran.err
    wanted: dict[str, Any] = {"holds": True, "total": 3, "dead": 1, "blocked": 2, "parked": 0}
    value = eventq("dlq", "--check", "total > 2", "--queue", path, "--json").value
    assert {name: value[name] for name in wanted} == wanted
    assert set(value) - set(wanted) == {"growth", "oldest"}
    assert eventq("dlq", "--check", "total > 2", "--list", "--queue", path).code == 2
    assert eventq("dlq", "--check", "x", "--queue", path, "--json").error["error"] == "usage"
