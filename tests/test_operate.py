"""The operators' commands on the whole queue, and what status and at tell of time and keys."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from disk import Ticks, untouched
from terminal import Ran, eventq, nightly, on_terminal, process, started

from eventq import Backoff, Capacity, Enqueue, Keys, Policy, Retention, Retry, Status, WorkQueue
from eventq.cli.reconfigure import OPTIONS
from eventq.cli.wording import policy_words

S = Status


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    return nightly(tmp_path / "queue")


def ask(queue: Path, line: str, *more: str) -> Ran:
    return eventq(*shlex.split(line), *more, "--queue", queue)


def entries(queue: Path) -> list[Any]:
    return eventq("log", "--queue", queue, "--json").values


def policy(queue: Path) -> Policy:
    with WorkQueue.open(queue, read_only=True) as q:
        return q.policy


# resolve, pause, resume, close, reopen


def test_a_task_that_a_person_did_has_succeeded(queue: Path) -> None:
    """What it blocked goes on; one that runs by itself cannot be resolved."""
    ran = ask(queue, "resolve fetch parse --why 'copied by hand' --by ann")
    assert (ran.code, ran.out) == (3, "fetch is SUCCEEDED now\n")
    assert "cannot resolve 'parse': it is READY" in ran.err
    entry = entries(queue)[-1]
    assert (entry["do"], entry["by"], entry["why"]) == ("resolve", "ann", "copied by hand")
    assert "resolved by hand" in eventq("history", "fetch", "--queue", queue).out
    assert eventq("verify", "--queue", queue).code == 0


SWITCHES = {
    "pause": ("dispatch", "paused", "the queue is paused{}: it hands nothing out"),
    "resume": ("dispatch", "running", "the queue is running{}: it hands out"),
    "close": ("admission", "closed", "the queue is closed{} to new tasks"),
    "reopen": ("admission", "open", "the queue is open{} to new tasks"),
}


@pytest.mark.parametrize("do", SWITCHES)
def test_a_switch_is_one_entry_and_asking_twice_is_harmless(queue: Path, do: str) -> None:
    """With who and why; the second time nothing is written."""
    part, value, words = SWITCHES[do]
    back = {"resume": "pause", "reopen": "close"}.get(do)
    if back is not None:
        ask(queue, f"{back} --why x")
    ran = ask(queue, f"{do} --why 'for a reason' --by ann")
    assert (ran.code, ran.out) == (0, words.format("") + "\n")
    entry = entries(queue)[-1]
    assert (entry["do"], entry["by"], entry["why"]) == (do, "ann", "for a reason")
    with untouched(queue):
        assert ask(queue, f"{do} --why x").out == words.format(" already") + "\n"
        assert ask(queue, f"{do} --why x --json").value == {part: value, "changed": False}
    assert eventq("status", "--queue", queue, "--json").value[part] == value


OPERATORS = [
    *(f"{do} --why x" for do in SWITCHES),
    *(f"{do} fetch --why x" for do in ("redrive", "resolve", "cancel", "restore")),
    *("redrive --all --why x", "reconfigure --capacity 4 --why x", "tick"),
    *("snapshot", "archive --to {}/old", "work --drain"),
]


@pytest.mark.parametrize("rest", [b"", b'{"v":1,"seq":1,"at"', bytes(100)], ids=["0", "half", "0s"])
@pytest.mark.parametrize("words", [*OPERATORS, "status", "verify", "log", "history fetch"])
def test_in_a_log_without_a_line_no_operator_begins_a_queue(
    queue: Path, words: str, rest: bytes
) -> None:
    """It says as `status` does that this is none; `verify` finds nothing there to be intact."""
    (file,) = (queue / "log").iterdir()
    file.write_bytes(rest)
    with untouched(queue):
        ran = ask(queue, words.format(queue))
    assert (ran.code, ran.out) == (2, "")
    assert f"{queue} is not a queue: its log is empty" in ran.err


def test_where_a_snapshot_knows_of_lost_lines_every_operator_is_told(queue: Path) -> None:
    """An emptied log is then no queue that was never begun."""
    eventq("snapshot", "--queue", queue)
    (file,) = (queue / "log").iterdir()
    file.write_bytes(b"")
    for words in ("pause --why x", "tick", "log", "verify"):
        assert ask(queue, words).code == 8
    assert ask(queue, "repair --to", f"{queue}-copy").code == 9  # nothing stands before the damage
    assert file.read_bytes() == b""


def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(tmp_path: Path) -> None:
    """As real processes ask, and `status` says so."""
    path = tmp_path / "queue"
    with WorkQueue.open(path) as q:
        q.enqueue("a")
        assert process("pause", "--queue", path, "--why", "x").code == 0
        assert q.start("w") is None
        assert "hands out  nothing: the queue is paused" in eventq("status", "--queue", path).out
        assert process("resume", "--queue", path, "--why", "x").code == 0
        assert started(q, "w").task == "a"


# reconfigure

FULL = Policy(
    Capacity(1000, "unresolved"),
    ["w1", "w2"],
    Retry(5, 2, 9, Backoff(30, 3, timedelta(hours=2), "full")),
    Retention(100, timedelta(days=2)),
    timedelta(minutes=15),
    Keys("halt"),
    True,
)

ALL = (
    "--capacity 1000 --counts unresolved --pool w1 --pool w2 --max-attempts 5 --max-redrives 2 "
    "--max-releases 9 --backoff 30s --backoff-factor 3 --backoff-cap 2h --backoff-jitter full "
    "--lease-for 15m --on-death halt --retention-count 100 --retention-age 2d --record on"
)

NONE = (
    "--capacity none --pool none --max-attempts none --max-redrives none --max-releases none "
    "--backoff none --lease-for none --on-death none --retention-count none --retention-age none "
    "--record none"
)


def test_every_part_of_a_policy_can_be_told_and_set_to_none(queue: Path) -> None:
    """In one entry, with who and why; then the other way round."""
    ran = ask(queue, f"reconfigure {ALL} --why 'a new house' --by ann")
    assert ran.code == 0
    assert policy(queue) == FULL
    assert ran.out == (
        "this is agreed: 5 attempts, parks after 2 redrives, at most 9 releases in a row, "
        "backs off 30 s x 3 ^ attempt with full jitter, at most 2 h, leases for 15 min, "
        "room for 1,000 unresolved, pool w1, w2, a death shuts its key, "
        "keeps 100 finished for 2 d, records refusals\n"
    )
    entry = entries(queue)[-1]
    assert (entry["do"], entry["by"], entry["why"]) == ("reconfigure", "ann", "a new house")
    with untouched(queue):
        assert ask(queue, f"reconfigure {ALL} --why x").out.startswith("this holds already: 5 ")
    value = ask(queue, f"reconfigure {NONE} --why x --json").value
    assert policy(queue) == Policy(retry=Retry(None, None, None, None))
    assert (value["changed"], value["policy"]["retention"]) == (True, None)
    told = {name for option in OPTIONS for name in re.findall(r"--[\w-]+", f"{ALL} {NONE}")}
    assert told == {param for option in OPTIONS for param in opts(option)}
    assert eventq("verify", "--queue", queue).code == 0


def opts(option: Any) -> list[str]:
    """The names of the option that this decorator adds."""

    def command() -> None:
        pass

    option(command)
    return [name for one in command.__click_params__ for name in one.opts]  # type: ignore[attr-defined]


CHANGES: dict[str, tuple[Policy, Policy]] = {
    "--counts unresolved": (Policy(Capacity(9)), Policy(Capacity(9, "unresolved"))),
    "--counts none": (Policy(Capacity(9, "unresolved")), Policy(Capacity(9))),
    "--capacity 8": (Policy(Capacity(9, "unresolved")), Policy(Capacity(8, "unresolved"))),
    "--capacity 0": (Policy(), Policy(Capacity(0))),
    "--max-attempts 7": (Policy(retry=Retry(1, 2, 3)), Policy(retry=Retry(7, 2, 3))),
    "--max-redrives 0": (Policy(retry=Retry(1, 2, 3)), Policy(retry=Retry(1, 0, 3))),
    "--backoff 5s": (
        Policy(retry=Retry(backoff=Backoff(1, 3, 60, "full"))),
        Policy(retry=Retry(backoff=Backoff(5, 3, 60, "full"))),
    ),
    "--backoff-jitter none": (
        Policy(retry=Retry(backoff=Backoff(1, 3, 60, "full"))),
        Policy(retry=Retry(backoff=Backoff(1, 3, 60))),
    ),
    "--backoff-factor 1.5": (
        Policy(retry=Retry(backoff=Backoff(1))),
        Policy(retry=Retry(backoff=Backoff(1, 1.5))),
    ),
    "--retention-count none": (
        Policy(retention=Retention(3, timedelta(1))),
        Policy(retention=Retention(None, timedelta(1))),
    ),
    "--retention-age none": (Policy(retention=Retention(None, timedelta(1))), Policy()),
    "--retention-count 0": (Policy(), Policy(retention=Retention(0))),
    "--lease-for 0.5s": (Policy(), Policy(lease_for=0.5)),
    "--lease-for 5": (Policy(), Policy(lease_for=5)),
    "--on-death open": (Policy(keys=Keys("halt")), Policy()),
    "--record off": (Policy(record=True), Policy()),
    "--pool w3": (Policy(pool=["w1", "w2"]), Policy(pool=["w3"])),
}


@pytest.mark.parametrize("words", CHANGES)
def test_what_is_not_told_stays_as_it_is(tmp_path: Path, words: str) -> None:
    """Each option by itself."""
    before, after = CHANGES[words]
    parts = {name: getattr(before, name) for name in ("capacity", "pool", "retry", "retention")}
    path = tmp_path / "queue"
    WorkQueue.open(
        path, lease_for=before.lease_for, keys=before.keys, record=before.record, **parts
    ).shut()
    assert ask(path, f"reconfigure {words} --why x").code == 0
    assert policy(path) == after


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--counts unresolved",
        "--backoff-cap 1h",
        "--backoff-jitter full",
        "--capacity none --counts waiting",
        "--max-attempts 0",
        "--max-attempts few",
        "--lease-for 15x",
        "--backoff soon",
        "--on-death shut",
        "--pool none --pool w1",
        "--record maybe",
    ],
)
def test_a_policy_that_makes_no_sense_is_a_usage_error(queue: Path, words: str) -> None:
    """Exit 2, and nothing is changed."""
    with untouched(queue):
        assert ask(queue, f"reconfigure {words} --why x").code == 2


@pytest.mark.parametrize(
    "words", ["--backoff-factor 0.5 --backoff 1s", "--lease-for 0s", "--pool $'a\\nb'", "--pool ''"]
)
def test_a_policy_that_no_queue_takes_is_refused(queue: Path, words: str) -> None:
    """Exit 3, and nothing is changed."""
    line = words.replace("$'a\\nb'", "'a\nb'")
    with untouched(queue):
        assert ask(queue, f"reconfigure {line} --why x").code == 3


# tick


def test_a_tick_carries_out_all_that_is_due(tmp_path: Path) -> None:
    """However many entries that takes; then nothing is due, and nothing is written."""
    path = tmp_path / "queue"
    past = datetime.now(UTC) - timedelta(hours=1)
    with WorkQueue.open(
        path, retry=Retry(1), retention=Retention(0), lease_for=60, clock=Ticks(past)
    ) as q:
        q.enqueue_all(
            Enqueue(f"t{i}", None, not_before=past + timedelta(minutes=1)) for i in range(1500)
        )
        q.enqueue("runs")
        q.enqueue("done")
        q.enqueue("below", after=["runs"])
        started(q, "w")
        q.complete(started(q))
    seq = len(entries(path))
    ran = process("tick", "--queue", path, "--by", "cron")
    assert (ran.code, ran.out) == (0, "1 expired, 1,500 readied, 1 dead, 1 forgotten\n")
    assert [(one["do"], one["by"]) for one in entries(path)[seq:]] == [("tick", "cron")] * 2
    with untouched(path):
        assert ask(path, "tick").out == "nothing is due\n"
    value = ask(path, "tick --json").value
    assert value == {
        "entries": 0,
        "expired": 0,
        "readied": 0,
        "dead": 0,
        "parked": 0,
        "forgotten": 0,
    }


def test_a_lease_that_ran_out_and_is_tried_again_is_no_delay_that_ended(tmp_path: Path) -> None:
    """It is told as expired alone."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, lease_for=1, clock=Ticks()) as q:
        q.enqueue("a")
        started(q)
    assert ask(path, "tick").out == "1 expired\n"


# status and at


def busy(path: Path) -> Path:
    """A queue with a lease that ends, two delays, a key that is held and one that is shut."""
    with WorkQueue.open(
        path, retry=Retry(1), keys=Keys("halt"), lease_for=timedelta(days=9999), clock=Ticks()
    ) as q:
        for name, key in {"a": "k", "b": "k", "c": "s", "d": "s", "e": "s"}.items():
            q.enqueue(name, key=key)
        for name, year in {"late": 2998, "later": 2999}.items():
            q.enqueue(name, not_before=datetime(year, 1, 1, tzinfo=UTC))
        started(q, "w1")
        q.fail(started(q, "w2"), "no")
    return path


def test_status_tells_of_leases_delays_and_keys(tmp_path: Path) -> None:
    """When a lease ends and the next task is due; who holds each key, and which are shut."""
    path = busy(tmp_path / "queue")
    out = eventq("status", "--queue", path).out
    assert re.search(
        r"^delayed +2 tasks, the next due 2998-01-01 00:00:00Z \(in \d+ d( \d+ h)?\): late$",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^policy +1 .*leases for 9999 d, a death shuts its key$", out, re.MULTILINE)
    assert re.search(r"^RUNNING .* EXPIRES\na .* in \d+ d( \d+ h)?$", out, re.MULTILINE)
    keys = out[out.index("KEY") :].splitlines()[:3]
    assert [line.split() for line in keys] == [
        ["KEY", "HELD", "BY", "STATUS", "WAITING"],
        ["s", "c", "DEAD", "2", "shut"],
        ["k", "a", "RUNNING", "1"],
    ]


@pytest.mark.parametrize("words", ["status", "at 11"])
def test_status_and_at_have_it_as_json(tmp_path: Path, words: str) -> None:
    """With the same fields."""
    path = busy(tmp_path / "queue")
    value = ask(path, words, "--json").value
    assert value["delayed"] == {
        "count": 2,
        "next": "2998-01-01T00:00:00.000000Z",
        "task": "late",
    }
    assert value["keys"] == [
        {"key": "s", "task": "c", "status": "DEAD", "shut": True, "waiting": 2},
        {"key": "k", "task": "a", "status": "RUNNING", "shut": False, "waiting": 1},
    ]
    (running,) = value["running"]
    assert running["expires"].startswith("2054-")
    assert value["policy"]["keys"] == {"on_death": "halt"}


def test_at_tells_how_it_was_then(tmp_path: Path) -> None:
    """Leases with their end, delays, keys that were held."""
    path = busy(tmp_path / "queue")
    out = eventq("at", 10, "--queue", path).out
    assert re.search(r"^c +RUNNING +1/1 +lease 10, w2, until 2054-", out, re.MULTILINE)
    assert re.search(r"^late +DELAYED +0/1 +until 2998-01-01 00:00:00Z$", out, re.MULTILINE)
    assert re.search(r"^s +c +RUNNING +2$", out, re.MULTILINE)
    assert "KEY" not in eventq("at", 8, "--queue", path).out


def test_of_many_keys_a_few_are_shown_and_the_rest_is_counted(tmp_path: Path) -> None:
    """The shut ones first; on a terminal no line is too long."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, retry=Retry(1), keys=Keys("halt")) as q:
        for i in range(14):
            q.enqueue(f"t{i}", key=f"key-{i:02}")
        for i in range(14):
            lease = started(q)
            if i > 11:
                q.fail(lease, "no")
    out = eventq("status", "--queue", path).out
    assert "and 4 keys more, 0 of them shut\n" in out
    assert out.index("key-13") < out.index("key-00")
    out = on_terminal("status", "--queue", path).out
    assert "shut" in out


def test_a_policy_is_told_to_the_last_of_its_seconds() -> None:
    """Whatever was agreed; what is off is not told."""
    told = {
        90: "1 min 30 s",
        0.25: "0.25 s",
        86461: "1 d 1 min 1 s",
        3600: "1 h",
        59: "59 s",
        61.5: "61.5 s",
    }
    for seconds, words in told.items():
        assert policy_words(Policy(lease_for=seconds)).endswith(f", leases for {words}")
    assert policy_words(Policy(retention=Retention(None, 60))).endswith("keeps finished for 1 min")
    assert policy_words(Policy(retention=Retention())) == "3 attempts, parks after 3 redrives"
