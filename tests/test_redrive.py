"""A bulk redrive by error adds up: against a count that shares nothing with the plan."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from terminal import eventq, process

from eventq import Enqueue, Retry, Status, Task, WorkQueue

S = Status
CHOSEN = ["--error", "HTTP 503*", "--how", "glob"]
ERRORS = ["HTTP 503 at 10.0.0.1", "HTTP 503", "HTTP 404", "disk full"]
OUTCOMES = ("redriven", "unblocked", "blocked", "parked")

Outcomes = dict[str, str]


def troubled(path: Path, dead: int, seed: int) -> WorkQueue:
    """A queue with so many dead tasks, of several errors, some parked and some cancelled; and
    twice as many below: below one root, below several, below one another."""
    rng = random.Random(seed)
    queue = WorkQueue.open(path, retry=Retry(1, max_redrives=1))
    tops = [f"t{i}" for i in range(dead + dead // 5)]
    queue.enqueue_all([Enqueue(name) for name in tops])
    kept = set(rng.sample(tops, dead // 10))  # these succeed
    parks = set(rng.sample(sorted(set(tops) - kept), dead // 10))
    while (lease := queue.start()) is not None:
        if lease.task in kept:
            queue.complete(lease)
            continue
        task = queue.fail(lease, rng.choice(ERRORS))
        if lease.task in parks and task.status is S.DEAD:
            queue.redrive(lease.task)
    for name in rng.sample(sorted(set(tops) - kept), dead // 10):
        queue.cancel(name)
    names = list(tops)
    below = []
    for i in range(2 * dead):
        near = names[-50:] if rng.random() < 0.3 else tops
        below.append(Enqueue(f"b{i}", None, rng.sample(near, rng.choice([1, 1, 1, 2, 3]))))
        names.append(f"b{i}")
    queue.enqueue_all(below)
    return queue


def counted(tasks: dict[str, Task]) -> Outcomes:
    """What has to become of what: by looking upwards from each task, where the plan looks down."""
    fits = {name for name, task in tasks.items() if (task.error or "").startswith("HTTP 503")}
    redriven = {name for name in fits if tasks[name].status is S.DEAD}
    parked = {name for name in fits if tasks[name].status is S.PARKED}
    roots: dict[str, set[str]] = {}
    for name, task in tasks.items():  # what a task needs was enqueued before it
        stops = task.status in (S.DEAD, S.PARKED, S.CANCELLED)
        roots[name] = {name} if stops else set().union(*(roots[above] for above in task.after))
    found = dict.fromkeys(redriven, "redriven") | dict.fromkeys(parked, "parked")
    for name, task in tasks.items():
        if task.status is S.BLOCKED and roots[name] & (redriven | parked):
            found[name] = "blocked" if roots[name] - redriven else "unblocked"
    return found


@pytest.mark.parametrize("seed", range(3))
def test_what_was_selected_is_the_sum_of_what_became_of_it(tmp_path: Path, seed: int) -> None:
    """Planned, dry and applied say the same, it is true of each task, and nothing else moves."""
    path, file = tmp_path / "queue", tmp_path / "plan.json"
    with troubled(path, 60 if seed else 300, seed) as queue:
        before = {task.id: task for task in queue.state.tasks()}
        expected = counted(before)
        numbers = Counter(expected.values())
        assert min(numbers[kind] for kind in OUTCOMES) > 0
        there = ["--queue", path]
        typed = eventq if seed else process

        dry = typed("redrive", *CHOSEN, "--dry-run", "--json", *there).value
        assert dry["selected"] == len(expected) == sum(len(dry[kind]) for kind in OUTCOMES)
        said = {one["task"]: kind for kind in ("redriven", "blocked") for one in dry[kind]}
        said |= {name: kind for kind in ("unblocked", "parked") for name in dry[kind]}
        assert said == expected
        assert typed("redrive", *CHOSEN, "--save", file, "--json", *there).value == {
            **dry,
            "saved": str(file),
        }

        ran = typed("redrive", "--apply", file, "--why", "it is back", "--json", *there)
        assert ran.code == 0
        answers = ran.values
        assert {one["task"]: one["outcome"] for one in answers} == expected
        assert len(answers) == len(expected)

        after = {task.id: task for task in queue.state.tasks()}
        lead = {"redriven": S.READY, "unblocked": S.PENDING, "blocked": S.BLOCKED}
        for name, task in before.items():
            outcome = expected.get(name, "")
            assert after[name].status is lead.get(outcome, task.status), (name, outcome)
            assert after[name].redrives == task.redrives + (outcome == "redriven")
        for one in answers:
            assert one["status"] == after[one["task"]].status
            if one["outcome"] == "blocked":
                assert after[one["root"]].status in (S.DEAD, S.PARKED, S.CANCELLED)
        queue.state.check()


def test_a_redrive_says_the_sum_in_its_last_line(tmp_path: Path) -> None:
    """For whoever reads it in a pipe: it adds up to the first number."""
    path = tmp_path / "queue"
    with troubled(path, 30, 7) as queue:
        numbers = Counter(counted({task.id: task for task in queue.state.tasks()}).values())
    ran = eventq("redrive", *CHOSEN, "--why", "it is back", "--queue", path)
    assert ran.out.splitlines()[-1] == (
        f"{numbers.total()} tasks: {numbers['redriven']} redriven, {numbers['unblocked']} "
        f"unblocked, {numbers['blocked']} blocked still, {numbers['parked']} parked"
    )
    assert len(ran.out.splitlines()) == numbers.total() + 1
    entry = json.loads(eventq("log", "--queue", path, "--json").out.splitlines()[-1])
    assert Counter(event["type"] for event in entry["events"]) == {
        "redriven": numbers["redriven"],
        "readied": numbers["redriven"],
        "unblocked": numbers["unblocked"],
    }


def test_what_is_refused_by_name_is_recorded_where_refusals_are(tmp_path: Path) -> None:
    """As for every other command; the others that are named are redriven all the same."""
    with WorkQueue.open(tmp_path / "q", record=True) as q:
        q.enqueue_all([Enqueue("done"), Enqueue("dead")])
        q.complete(q.start())
        q.fail(q.start(), "boom", kind="permanent")
        before = q.head[0]
        asked = ["redrive", "done", "ghost", "dead", "--queue", tmp_path / "q", "--why", "again"]
        assert eventq(*asked, "--dry-run").code == 3
        assert q.head[0] == before
        assert eventq(*asked).code == 3
        found = [(e.do, e.ask.get("refused"), e.why) for e in q.entries(before + 1)]
        assert found == [
            ("redrive", "wrong_status", "again"),
            ("redrive", "unknown_task", "again"),
            ("redrive_all", None, "again"),
        ]
        q.reconfigure(record=False)
        before = q.head[0]
        assert eventq(*asked[:-5], "--queue", tmp_path / "q", "--why", "again").code == 3
        assert q.head[0] == before
