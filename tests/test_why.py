"""Why a task does not run: one answer of a fixed list, and the chain that leads to its root."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from disk import Ticks, untouched
from ledger import Ledger, Walk
from terminal import eventq, everything, nightly, started

from eventq import Keys, Retention, Retry, Status, WorkQueue
from eventq.core.commands import (
    Cancel,
    Enqueue,
    Fail,
    Pause,
    Reconfigure,
    Redrive,
    Release,
    Resume,
    Start,
)
from eventq.core.decide import decide
from eventq.core.events import Enqueued, Started
from eventq.core.lifecycle import FINISHED, ROOTS
from eventq.core.policy import Policy
from eventq.queries.why import Kind, Step, Why, why

S = Status

ENDS = {
    S.ABSENT: {Kind.UNKNOWN},
    S.PENDING: {Kind.NEEDS, Kind.MISSING},
    S.READY: {Kind.UNASKED, Kind.PAUSED, Kind.BEHIND, Kind.SHUT},
    S.DELAYED: {Kind.UNTIL},
    S.RUNNING: {Kind.RUNNING},
    S.SUCCEEDED: {Kind.SUCCEEDED},
    S.DEAD: {Kind.DEAD},
    S.PARKED: {Kind.PARKED},
    S.BLOCKED: {Kind.BLOCKED},
    S.CANCELLED: {Kind.CANCELLED},
}


def kinds(answer: Why) -> list[Kind]:
    return [step.kind for step in answer.steps]


def way(answer: Why) -> list[str]:
    return [step.task for step in answer.steps]


# The fixed list.


def test_a_pending_task_needs_what_has_not_succeeded() -> None:
    """The chain goes through the first, as written; all are told."""
    ledger = Ledger().tasks(a="", b="", c="a b")
    answer = why(ledger.state, "c")
    assert kinds(answer) == [Kind.NEEDS, Kind.UNASKED]
    assert way(answer) == ["c", "a"]
    assert answer.steps[0].needs == ("a", "b")
    ledger.succeed("a")
    assert way(why(ledger.state, "c")) == ["c", "b"]
    assert why(ledger.state, "c").steps[0].needs == ("b",)


def test_a_pending_task_needs_what_nobody_has_enqueued() -> None:
    """The nearest such id counts, whatever stands before it: nothing else needs a person."""
    ledger = Ledger().tasks(a="", near="a ghost", far="a near")
    answer = why(ledger.state, "near")
    assert kinds(answer) == [Kind.MISSING, Kind.UNKNOWN]
    assert way(answer) == ["near", "ghost"]
    answer = why(ledger.state, "far")
    assert kinds(answer) == [Kind.NEEDS, Kind.MISSING, Kind.UNKNOWN]
    assert way(answer) == ["far", "near", "ghost"]
    assert answer.root == Step("ghost", S.ABSENT, Kind.UNKNOWN)


def test_a_cycle_that_no_queue_admits_has_an_end() -> None:
    """A log that was not written by these rules may hold one."""
    ledger = Ledger(check=False)
    ledger.fold(Enqueued("a", None, ("b",)), Enqueued("b", None, ("a",)))
    assert {step.task for step in why(ledger.state, "a").steps} == {"a", "b"}


def test_a_forgotten_dependency_is_like_one_that_nobody_has_enqueued() -> None:
    """The state knows it no more; the log does."""
    ledger = Ledger(retention=Retention(0)).tasks(a="").succeed("a").tasks(b="")
    ledger.start()
    ledger.tasks(c="a")
    assert kinds(why(ledger.state, "c")) == [Kind.MISSING, Kind.UNKNOWN]


def test_a_ready_task_waits_for_a_worker_to_ask() -> None:
    """And says how many stand before it in the line."""
    ledger = Ledger().tasks(a="", b="", c="")
    assert [why(ledger.state, name).root.ahead for name in "abc"] == [0, 1, 2]
    assert why(ledger.state, "b").kind is Kind.UNASKED
    ledger.do(Release(ledger.start()))
    assert [why(ledger.state, name).root.ahead for name in "abc"] == [0, 1, 2]


def test_a_running_task_names_its_lease() -> None:
    """With worker and attempt."""
    ledger = Ledger().tasks(a="", b="a")
    lease = ledger.start("w1")
    answer = why(ledger.state, "b")
    assert kinds(answer) == [Kind.NEEDS, Kind.RUNNING]
    assert answer.root.lease is not None
    assert (answer.root.lease.id, answer.root.lease.worker) == (lease, "w1")
    assert answer.root.lease.attempt == 1


def test_a_blocked_task_names_the_root_and_the_way_to_it() -> None:
    """Through the first dependency, as written, that is a root or BLOCKED."""
    ledger = Ledger().tasks(ok="", one="", two="", mid="ok two one", low="mid", lower="ok low")
    ledger.kill("one", "two")
    answer = why(ledger.state, "lower")
    assert kinds(answer) == [Kind.BLOCKED, Kind.BLOCKED, Kind.BLOCKED, Kind.DEAD]
    assert way(answer) == ["lower", "low", "mid", "two"]
    assert answer.root.task == ledger.state.root("lower")
    assert answer.root.reason == "failed after 1 attempts: boom"


def test_dead_and_parked_tasks_say_why() -> None:
    """Each is its own root."""
    ledger = Ledger().tasks(a="").kill("a")
    (step,) = why(ledger.state, "a").steps
    assert (step.kind, step.reason, step.error) == (
        Kind.DEAD,
        "failed after 1 attempts: boom",
        "boom",
    )


def test_finished_tasks_say_so() -> None:
    """With the error of the one that was cancelled."""
    ledger = Ledger().tasks(a="", b="").succeed("a").do(Cancel("b", None, "too old"))
    assert kinds(why(ledger.state, "a")) == [Kind.SUCCEEDED]
    assert why(ledger.state, "b").root.error == "too old"


def test_a_delayed_task_says_until_when_and_a_paused_queue_that_it_is() -> None:
    """What needs a delayed one says so too."""
    ledger = Ledger().tasks(b="")
    until = ledger.at.replace(hour=20)
    ledger.do(Enqueue("a", not_before=until), Pause()).tasks(c="a")
    answer = why(ledger.state, "c")
    assert (kinds(answer), answer.root.until) == ([Kind.NEEDS, Kind.UNTIL], until)
    assert why(ledger.state, "b").kind is Kind.PAUSED
    ledger.do(Resume())
    assert why(ledger.state, "b").kind is Kind.UNASKED


def keyed(**policy: Any) -> Ledger:
    """A queue in which a, b and c share a key, and d is of another."""
    ledger = Ledger(retry=Retry(max_attempts=1, max_redrives=1), **policy)
    keys = {"a": "k", "b": "k", "c": "k", "d": "other"}
    return ledger.do(*(Enqueue(name, key=key) for name, key in keys.items()))


def test_a_task_is_behind_the_one_that_goes_first_and_behind_the_one_that_is_out() -> None:
    """Also where the queue is paused: that comes after; other keys pass."""
    ledger = keyed()
    answer = why(ledger.state, "c")
    assert (kinds(answer), way(answer)) == ([Kind.BEHIND, Kind.UNASKED], ["c", "a"])
    assert answer.steps[0].key == "k"
    assert answer.root.key is None
    lease = ledger.start()
    ledger.do(Pause()).tasks(after="c")
    answer = why(ledger.state, "after")
    assert kinds(answer) == [Kind.NEEDS, Kind.BEHIND, Kind.RUNNING]
    assert way(answer) == ["after", "c", "a"]
    assert why(ledger.state, "d").kind is Kind.PAUSED
    ledger.do(Release(lease))
    assert kinds(why(ledger.state, "b")) == [Kind.BEHIND, Kind.PAUSED]
    assert kinds(why(ledger.state, "a")) == [Kind.PAUSED]


def test_a_task_is_behind_a_holder_that_waits_for_its_next_try() -> None:
    """It keeps its key for as long as it is delayed, and the line passes."""
    ledger = keyed()
    ledger.do(Enqueue("e", key="slow", max_attempts=2), Enqueue("f", key="slow"))
    ledger.do(Fail(ledger.run("e"), "x", "retryable", timedelta(hours=1)))
    assert kinds(why(ledger.state, "f")) == [Kind.BEHIND, Kind.UNTIL]


def test_a_key_is_shut_by_a_dead_or_parked_holder_under_halt_alone() -> None:
    """Under open the next one goes, and the others are behind it."""
    ledger = keyed(keys=Keys("halt")).kill("a")
    answer = why(ledger.state, "c")
    assert (kinds(answer), way(answer)) == ([Kind.SHUT, Kind.DEAD], ["c", "a"])
    assert answer.steps[0].key == "k"
    ledger.do(Redrive("a"))
    assert kinds(why(ledger.state, "c")) == [Kind.BEHIND, Kind.UNASKED]
    ledger.kill("a")
    assert kinds(why(ledger.state, "c")) == [Kind.SHUT, Kind.PARKED]
    ledger.do(Reconfigure(Policy(retry=ledger.state.policy.retry)))
    assert kinds(why(ledger.state, "b")) == [Kind.UNASKED]
    assert (kinds(why(ledger.state, "c")), way(why(ledger.state, "c"))) == (
        [Kind.BEHIND, Kind.UNASKED],
        ["c", "b"],
    )
    assert why(ledger.tasks(z="").state, "z").root.ahead == 1


class KeyedWalk(Walk):
    """A walk over tasks of which most have one of two keys."""

    def _enqueue(self) -> Enqueue:
        return evolve(super()._enqueue(), key=self.rng.choice([None, "k", "l", "l"]))


@pytest.mark.parametrize("on_death", ["open", "halt"])
def test_the_next_to_go_is_the_one_that_waits_for_nobody(on_death: Any) -> None:
    """A READY task with none before it in the line, and no other, is what a worker gets."""
    policy: dict[str, Any] = {"retry": Retry(1, max_redrives=1), "keys": Keys(on_death)}
    walks = [KeyedWalk(seed, ids=12, **policy) for seed in range(8)]
    seen: set[Kind] = set()
    for walk in walks * 150:
        walk.step()
        state = walk.ledger.state
        answers = [why(state, record.task.task) for record in state.in_order()]
        seen.update(answer.kind for answer in answers)
        free = {one.task for one in answers if one.kind is Kind.UNASKED and not one.root.ahead}
        events, _ = decide(state, Start(), walk.ledger.at)
        assert free == {event.task for event in events if isinstance(event, Started)}
        for answer in answers:
            for step, after in zip(answer.steps, answer.steps[1:], strict=False):
                if step.kind in (Kind.BEHIND, Kind.SHUT):
                    assert state.task(after.task).key == step.key  # type: ignore[union-attr]
                    assert (step.kind is Kind.SHUT) == (after.kind in (Kind.DEAD, Kind.PARKED))
    assert Kind.BEHIND in seen
    assert (on_death == "halt") == (Kind.SHUT in seen)


def test_an_id_that_nobody_has_enqueued_is_unknown() -> None:
    """The log may know more."""
    assert kinds(why(Ledger().state, "a")) == [Kind.UNKNOWN]


@pytest.mark.parametrize("seed", range(8))
def test_every_task_has_an_answer_wherever_it_stands(seed: int) -> None:
    """A chain of tasks that need each other, from the task to what would set it all in motion."""
    walk = Walk(seed, retention=Retention(1))
    for _ in range(150):
        walk.step()
        state = walk.ledger.state
        for name in [*walk.ids, "ghost"]:
            answer = why(state, name)
            assert answer.task == name
            for step, after in zip(answer.steps, [*answer.steps[1:], None], strict=True):
                record = state.record(step.task)
                assert step.status is (S.ABSENT if record is None else record.status)
                assert step.kind in ENDS[step.status]
                assert step.on == (None if after is None else after.task)
                assert after is None or (record is not None and after.task in record.task.after)
            first, root = answer.steps[0], answer.root
            if first.status is S.BLOCKED:
                assert root.task == state.root(name)
                assert root.status in ROOTS
            if first.status in FINISHED | ROOTS | {S.READY, S.RUNNING}:
                assert answer.steps == (root,)
            if first.status is S.PENDING:
                assert root.status in {S.ABSENT, S.READY, S.RUNNING}


def test_a_chain_of_any_length_is_walked_in_one_go() -> None:
    """No recursion, and each task is looked at once or twice."""
    ledger = Ledger(check=False)
    for number in range(20_000):
        ledger(Enqueue(f"t{number}", None, [f"t{number + 1}"]))
    answer = why(ledger.state, "t0")
    assert len(answer.steps) == 20_001
    assert answer.root == Step("t20000", S.ABSENT, Kind.UNKNOWN)


# eventq why


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue in which every kind of answer stands."""
    return everything(tmp_path_factory.mktemp("why") / "queue")


SAID = {
    "parked": "parked is parked, a person must look: failed after 1 attempts: bad input",
    "under-parked": "under-parked is blocked by parked, which is parked, a person must look: "
    "failed after 1 attempts: bad input",
    "running": "running is running under lease 14, attempt 1, by w2",
    "after-running": "after-running needs ghost2, which nobody has enqueued",
    "after-ghost": "after-ghost needs ghost, which nobody has enqueued",
    "far": "far needs after-ghost, which waits for ghost, which nobody has enqueued",
    "ready": "ready is ready, but no worker has asked yet: one is busy",
    "ready-too": "ready-too is ready (1 task before it in the line), but no worker has asked yet: "
    "one is busy",
    "cancelled": "cancelled was cancelled (entry 17, 2026-11-30 12:00:17Z by alice): not needed",
    "under-cancelled": "under-cancelled is blocked by cancelled, which was cancelled "
    "(entry 17, 2026-11-30 12:00:17Z by alice): not needed",
    "gone": "gone is unknown to the queue since it was forgotten (entry 8); "
    "before that it had succeeded (entry 7, 2026-11-30 12:00:07Z by w1)",
    "after-gone": "after-gone needs gone, which nobody has enqueued since it was forgotten "
    "(entry 8); before that it had succeeded (entry 7, 2026-11-30 12:00:07Z by w1)",
}


@pytest.mark.parametrize("task", SAID)
def test_why_says_it_in_one_sentence(queue: Path, task: str) -> None:
    """The first line; as JSON it is the field `message`."""
    with untouched(queue):
        ran = eventq("why", task, "--queue", queue)
        value = eventq("why", task, "--queue", queue, "--json").value
    assert ran.code == 0
    assert ran.out.splitlines()[0] == SAID[task]
    assert value["message"] == SAID[task]
    assert list(value) == ["seq", "task", "kind", "root", "message", "steps", "ended"]
    assert value["steps"][0]["task"] == task
    assert value["steps"][-1]["task"] == value["root"]
    assert value["kind"] == value["steps"][0]["kind"]
    assert list(value["steps"][0]) == [
        *("task", "status", "kind", "on", "needs", "key", "ahead"),
        *("reason", "error", "until", "lease", "worker", "expires"),
    ]


def test_a_fixed_pool_that_is_all_out_is_said_to_be(tmp_path: Path) -> None:
    """What is typed next lets more workers in; while one is free it can ask, and no other."""
    path = tmp_path / "q"
    with WorkQueue.open(path, pool=["w1", "w2"]) as q:
        for name in "abc":
            q.enqueue(name)
        q.start("w1")
        ran = eventq("why", "c", "--queue", path)
        assert "no worker has asked yet: one is busy" in ran.out
        assert 'a worker of the pool ask: q.start("NAME")' in ran.out
        assert "eventq work" not in ran.out
        q.start("w2")
        ran = eventq("why", "c", "--queue", path)
        assert "no worker has asked, and none of the pool is free" in ran.out
        assert f'eventq reconfigure --pool NAME --pool NAME --queue {path} --why "..."' in ran.out


NEXT = {
    "parked": ["history parked", "redrive parked"],
    "under-parked": ["history parked", "redrive parked"],
    "under-cancelled": ["restore cancelled"],
    "cancelled": ["restore cancelled"],
    "running": ["history running", "cancel running", "restore running"],
    "far": ["cancel after-ghost"],
    "ready": ["work", "run FLOW"],
    "gone": ["history gone"],
}


@pytest.mark.parametrize("task", NEXT)
def test_why_says_what_to_type_next(queue: Path, task: str) -> None:
    """Each with the queue, ready to be copied; operators' commands with a place for the reason."""
    out = eventq("why", task, "--queue", queue).out
    typed = [line.strip() for line in out.splitlines() if line.startswith("  eventq ")]
    why_text = {"history": "", "work": "", "run": "", "redrive": ' --why "..."'}
    assert typed == [
        f"eventq {words} --queue {queue}{why_text.get(words.split()[0], why_text['redrive'])}"
        for words in NEXT[task]
    ]


def test_why_tells_the_links_of_a_chain_and_what_else_is_needed(tmp_path: Path) -> None:
    """From the task upwards."""
    path = nightly(tmp_path / "queue")
    out = eventq("why", "report", "--queue", path).out.splitlines()
    assert out[:3] == [
        "report is blocked by fetch, which is dead: failed after 1 attempts: HTTP 503",
        "  report (BLOCKED) needs parse",
        "  parse (BLOCKED) needs fetch",
    ]
    with WorkQueue.open(path) as q:
        q.enqueue("mail", after=["ghost", "fetch", *(f"g{i}" for i in range(9))])
    out = eventq("why", "mail", "--queue", path).out.splitlines()
    assert out[1] == "  mail also needs ghost, g0, g1, g2, g3 and 5 more"
    with WorkQueue.open(path, retry=Retry(1)) as q:
        q.enqueue("p")
        q.fail(started(q), "no")
        q.enqueue("all", after=["fetch", "ghost", "p", "parse"])
    out = eventq("why", "all", "--queue", path).out.splitlines()
    assert out[1] == "  all also needs p (DEAD), parse (BLOCKED), ghost"


def test_why_answers_for_any_moment_of_the_past(queue: Path) -> None:
    """As the queue stood then, and with what the log knew then."""
    ran = eventq("why", "after-gone", "--queue", queue, "--at", 9)
    assert ran.out.splitlines()[0] == SAID["after-gone"]
    ran = eventq("why", "gone", "--queue", queue, "--at", 5)
    assert ran.out.splitlines()[0] == "gone is ready, but no worker has asked"
    ran = eventq("why", "gone", "--queue", queue, "--at", 6, "--json")
    assert (ran.value["kind"], ran.value["seq"]) == ("running", 6)
    assert eventq("why", "gone", "--queue", queue, "--at", 4).code == 3
    assert eventq("why", "gone", "--queue", queue, "--at", 99).code == 3


def test_why_of_an_unknown_id_says_what_may_have_been_meant(queue: Path) -> None:
    """Exit 3, in words and as JSON."""
    ran = eventq("why", "parkd", "--queue", queue)
    assert ran.code == 3
    assert ran.err.splitlines() == [
        "eventq: cannot say why 'parkd': no task has this id",
        "eventq: did you mean 'parked'?",
    ]
    error = eventq("why", "parkd", "--queue", queue, "--json").error
    assert (error["error"], error["task"], error["exit"]) == ("unknown_task", "parkd", 3)


def test_why_of_an_id_that_nobody_has_enqueued_says_who_waits_for_it(queue: Path) -> None:
    """Exit 3: it is no task; `status` leads to the one that waits."""
    ran = eventq("why", "ghost", "--queue", queue)
    assert ran.code == 3
    assert "eventq: nobody has enqueued it, and 'after-ghost' waits for it" in ran.err


KEYED = {
    "b": "b is behind a of key k, which is running under lease 7, attempt 1, by w, "
    "until 2100-01-01 12:00:07Z",
    "after-b": "after-b needs b, which is behind a of key k, which is running under lease 7, "
    "attempt 1, by w, until 2100-01-01 12:00:07Z",
    "far": "far needs after-b, which waits for b, which is behind a of key k, which is running "
    "under lease 7, attempt 1, by w, until 2100-01-01 12:00:07Z",
    "d": "d waits for its key s, which is shut by c, which is dead: failed after 1 attempts: no",
    "later": "later is delayed until 2999-01-01 00:00:00Z",
    "free": "free is ready, but the queue is paused",
}


def test_why_says_what_a_key_a_delay_and_a_pause_do(tmp_path: Path) -> None:
    """And what to type next: the way back from a pause, the holder of a key that is shut."""
    path = tmp_path / "queue"
    far = datetime(2100, 1, 1, tzinfo=UTC) - datetime(2026, 11, 30, tzinfo=UTC)
    with WorkQueue.open(path, retry=Retry(1), keys=Keys("halt"), lease_for=far, clock=Ticks()) as q:
        for name in "ab":
            q.enqueue(name, key="k")
        q.enqueue("after-b", after=["b"])
        q.enqueue("far", after=["after-b"])
        q.enqueue("c", key="s")
        started(q, "w")
        q.fail(started(q), "no")
        q.enqueue("d", key="s")
        q.enqueue("later", not_before=datetime(2999, 1, 1, tzinfo=UTC))
        q.enqueue("free")
        q.pause()
    for task, sentence in KEYED.items():
        assert eventq("why", task, "--queue", path).out.splitlines()[0] == sentence
    out = eventq("why", "far", "--queue", path).out.splitlines()
    assert "  b (READY) is behind a of key k" in out
    assert f"  eventq redrive c --queue {path} --why" in eventq("why", "d", "--queue", path).out
    assert (
        f'  eventq resume --queue {path} --why "..."'
        in eventq("why", "free", "--queue", path).out.splitlines()
    )
    step = eventq("why", "b", "--queue", path, "--json").value["steps"]
    assert (step[0]["kind"], step[0]["key"]) == ("behind", "k")
    assert step[1]["expires"] == "2100-01-01T12:00:07.000000Z"


OVERDUE = {
    "late": "late is delayed, but its delay is over since 2026-11-30 12:00:10Z: "
    "the next start or tick readies it",
    "out": "out is running under lease 4, attempt 1, by nobody named, which ran out .* ago: "
    "the next start or tick takes it back",
}


def test_why_says_how_to_move_what_is_due(tmp_path: Path) -> None:
    """A lease that ran out, or a delay that ended, where no worker asks; of the past it tells what
    was so then."""
    path = tmp_path / "queue"
    now = Ticks()
    with WorkQueue.open(path, lease_for=2, clock=now) as q:
        q.enqueue("late", not_before=now.at + timedelta(seconds=9))
        q.enqueue("out")
        started(q)
    for task in ("late", "out"):
        ran = eventq("why", task, "--queue", path)
        assert ran.out.splitlines()[-1] == f"  eventq tick --queue {path}"
        first = ran.out.splitlines()[0]
        assert re.fullmatch(OVERDUE[task], first)
        assert "until" in eventq("why", task, "--queue", path, "--at", 4).out.splitlines()[0]


def test_why_says_what_frees_a_task_whose_holder_is_gone(tmp_path: Path) -> None:
    """A lease that never expires is taken back by nobody; of a runner, by the next one."""
    path = tmp_path / "queue"
    with WorkQueue.open(path) as q:
        q.enqueue("a")
        started(q, "runner/4711/1")
        q.enqueue("b")
        started(q, "w1")
    runner = "if the runner is gone (runner/4711/1), the next one takes a up again:"
    assert eventq("why", "a", "--queue", path).out.splitlines()[-2:] == [
        f"  {runner}",
        f"  eventq run FLOW --queue {path}",
    ]
    out = eventq("status", "--queue", path).out
    assert f"if whoever holds what never expires is gone: eventq why a --queue {path}\n" in out
    for words in ("cancel", "restore"):
        assert eventq(words, "b", "--why", "gone", "--queue", path).code == 0
    with WorkQueue.open(path) as q:
        assert started(q, "w2").task == "b"


def test_status_says_of_every_root_what_it_holds_up(tmp_path: Path) -> None:
    """Also of the second of two roots of a task, and of a dead task that shuts its key."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, retry=Retry(1), keys=Keys("halt")) as q:
        for name in ("p0", "p1", "p2"):
            q.enqueue(name, key="k" if name == "p2" else None)
        q.enqueue("all", after=["p0", "p1"])
        q.enqueue("far", after=["all"])
        for _ in range(3):
            q.fail(started(q), "no")
        q.enqueue("keyed", key="k")
    out = eventq("status", "--queue", path).out.splitlines()
    assert [line.partition("  dead: ")[0].rstrip() for line in out if line[0:1] == "p"][-3:] == [
        "p0    all, far",
        "p1    all",
        "p2    its key k (1 waiting)",
    ]
    out = eventq("why", "all", "--queue", path).out.splitlines()
    assert out[1] == "  all also needs p1 (DEAD)"


def test_status_leads_to_a_task_that_why_can_answer_for(tmp_path: Path) -> None:
    """Also where all that is stuck waits for an id that nobody has enqueued."""
    path = tmp_path / "queue"
    with WorkQueue.open(path) as q:
        q.enqueue("b", after=["a"])
    out = eventq("status", "--queue", path).out
    assert out.endswith(f"next: eventq why b --queue {path}\n")
