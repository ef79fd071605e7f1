"""All the rules: what follows from each command, exactly, and why each refusal is what it is."""

from __future__ import annotations

import itertools
import queue
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from ledger import NOON, Ledger, Walk, names, told

from eventq.core import errors
from eventq.core.commands import (
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Start,
    Tick,
)
from eventq.core.decide import DUE_LIMIT, decide
from eventq.core.errors import REFUSALS, Refusal
from eventq.core.events import (
    QUEUE_EVENTS,
    TASK_EVENTS,
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Died,
    Enqueued,
    Event,
    Failed,
    Forgotten,
    Json,
    Opened,
    Parked,
    Readied,
    Reconfigured,
    Redriven,
    Released,
    Reopened,
    Resolved,
    Restored,
    Started,
    TaskEvent,
    Unblocked,
)
from eventq.core.lifecycle import ROOTS, Status
from eventq.core.policy import Capacity, Policy, Retention, Retry
from eventq.core.reading import Reading
from eventq.core.select import Select, selected
from eventq.core.state import State

S = Status
PRECEDENCE = [refusal.name for refusal in REFUSALS]


def enqueued(name: str, *after: str, limit: int | None = 3) -> Enqueued:
    return Enqueued(name, None, after, None, limit, None)


# What follows: one task.


def test_a_log_begins_by_opening() -> None:
    """The first command gives the first event, and it cannot be given again."""
    events, state = decide(State(), Open("q", Policy()), NOON)
    assert events == (Opened("q", Policy()),)
    assert (state.queue, state.seq, state.position, state.at) == ("q", 1, 1, NOON)
    with pytest.raises(errors.BadValue):
        decide(state, Open("q", Policy()), NOON)


def test_a_task_that_needs_nothing_is_ready_at_once() -> None:
    """It enters the line at the back, at the place of the event that readied it."""
    q = Ledger()
    assert q(Enqueue("a", "payload")) == [
        Enqueued("a", "payload", (), None, 3, None),
        Readied("a"),
    ]
    assert q.task("a").place == 3
    assert q.task("a").payload == "payload"
    q(Enqueue("b"))
    assert q.line() == ["a", "b"]


def test_a_task_that_needs_something_waits() -> None:
    """It is PENDING until all that it needs has succeeded; the unknown has not."""
    q = Ledger()
    assert q(Enqueue("c", None, ["a", "b"])) == [enqueued("c", "a", "b")]
    q.tasks(a="", b="")
    assert q(Complete(q.run("a"))) == [Completed("a")]
    assert q.status("c") is S.PENDING
    assert q(Complete(q.run("b"), "result")) == [Completed("b", "result"), Readied("c")]


def test_a_task_whose_dependencies_have_succeeded_is_ready_at_once() -> None:
    """What has succeeded before does not keep anyone waiting."""
    q = Ledger().tasks(a="").succeed("a")
    assert q(Enqueue("b", None, ["a"])) == [enqueued("b", "a"), Readied("b")]


def test_repeated_dependencies_are_dropped_and_their_order_kept() -> None:
    """The order is as written, the first mention of each."""
    q = Ledger()
    assert q(Enqueue("x", None, ["c", "a", "c", "b", "a"])) == [enqueued("x", "c", "a", "b")]


def test_handing_out_takes_the_first_in_line() -> None:
    """The lease is the seq of the entry; the attempt counts at the hand-out."""
    q = Ledger().tasks(a="", b="")
    assert q(Start("w")) == [Started("a", 1, "w")]
    assert q.lease("a") == q.state.seq
    assert q(Start()) == [Started("b", 1, None)]
    assert q(Start("other")) == []
    lease = q.state.lease(q.lease("a"))
    assert lease is not None
    assert (lease.task, lease.attempt, lease.worker) == ("a", 1, "w")


def test_any_number_of_tasks_may_be_out_to_nobody_named() -> None:
    """Only a named worker can be busy."""
    q = Ledger().tasks(a="", b="", c="")
    for name in "abc":
        assert q(Start()) == [Started(name, 1, None)]


def test_a_retry_goes_to_the_back_of_the_line() -> None:
    """Behind tasks that were enqueued after it."""
    q = Ledger().tasks(a="", b="")
    assert q(Fail(q.run("a"), "boom")) == [Failed("a", 1, "boom", "retryable"), Readied("a")]
    assert q.line() == ["b", "a"]
    assert q.task("a").error == "boom"


def test_a_task_dies_after_its_last_attempt() -> None:
    """`max_attempts` hand-outs, each of which failed."""
    q = Ledger(retry=Retry(max_attempts=2)).tasks(a="")
    assert q(Fail(q.run("a"), "x")) == [Failed("a", 1, "x", "retryable"), Readied("a")]
    assert q(Fail(q.run("a"), "y")) == [Failed("a", 2, "y", "retryable"), Died("a")]
    assert q.letters() == [("a", "failed after 2 attempts: y")]


def test_a_permanent_failure_dies_at_once() -> None:
    """Whatever attempts are left; the reason keeps its exact form for one attempt."""
    q = Ledger().tasks(a="")
    assert q(Fail(q.run("a"), "", "permanent")) == [Failed("a", 1, "", "permanent"), Died("a")]
    assert q.letters() == [("a", "failed after 1 attempts: ")]


def test_a_task_may_have_its_own_limit() -> None:
    """`max_attempts` of the task stands above that of the queue; None is no limit."""
    q = Ledger(retry=Retry(max_attempts=2))
    assert q(Enqueue("a"))[0] == enqueued("a", limit=2)
    assert q(Enqueue("b", max_attempts=1))[0] == enqueued("b", limit=1)
    assert q(Enqueue("c", max_attempts=None))[0] == enqueued("c", limit=None)
    q.do(Cancel("a"))
    assert q(Fail(q.run("b")))[1] == Died("b")
    for attempt in range(1, 50):
        assert q(Fail(q.run("c"))) == [Failed("c", attempt, "", "retryable"), Readied("c")]


def test_the_limit_that_applied_at_enqueueing_stays() -> None:
    """Another policy touches new tasks only."""
    q = Ledger(retry=Retry(max_attempts=2)).tasks(a="")
    q.fold(Reconfigured(Policy(retry=Retry(max_attempts=1)))).tasks(b="")
    assert q(Fail(q.run("a")))[1] == Readied("a")
    assert q(Fail(q.run("b")))[1] == Died("b")
    assert q(Fail(q.run("a")))[1] == Died("a")


def test_a_release_costs_no_attempt_and_no_place() -> None:
    """The task is handed back to where it stood in the line."""
    q = Ledger().tasks(a="", b="")
    lease = q.run("a")
    assert q(Release(lease)) == [Released("a")]
    assert q.line() == ["a", "b"]
    assert (q.task("a").attempt, q.task("a").releases) == (0, 1)
    assert q(Start()) == [Started("a", 1, None)]


def test_releases_beyond_the_limit_are_a_failure() -> None:
    """Those since the last attempt that counted; the failure is a retryable one."""
    q = Ledger(retry=Retry(max_attempts=2, max_releases=2)).tasks(a="", b="")
    for attempt in (1, 2):
        assert q(Release(q.run("a"))) == [Released("a")]
        assert q(Release(q.run("a"))) == [Released("a")]
        then: list[Event] = [Readied("a") if attempt == 1 else Died("a")]
        failed = Failed("a", attempt, "released 3 times", "retryable")
        assert q(Release(q.run("a"))) == [failed, *then]
        assert q.task("a").releases == 0
    assert q.letters() == [("a", "failed after 2 attempts: released 3 times")]


def test_no_release_is_allowed_where_the_limit_is_zero() -> None:
    """The first one counts as a failure already."""
    q = Ledger(retry=Retry(max_releases=0)).tasks(a="")
    failed = Failed("a", 1, "released 1 times", "retryable")
    assert q(Release(q.run("a"))) == [failed, Readied("a")]


def test_a_failure_between_releases_starts_their_count_afresh() -> None:
    """Only releases in a row are bounded."""
    q = Ledger(retry=Retry(max_attempts=None, max_releases=1)).tasks(a="")
    for _ in range(3):
        assert q(Release(q.run("a"))) == [Released("a")]
        assert q(Fail(q.run("a")))[1] == Readied("a")


def test_a_redrive_gives_fresh_attempts() -> None:
    """And counts itself; the releases are forgotten with the attempts."""
    q = Ledger(retry=Retry(max_attempts=2)).tasks(a="", b="").kill("a")
    assert q(Redrive("a")) == [Redriven("a"), Readied("a")]
    task = q.task("a")
    assert (task.attempt, task.redrives, task.error, task.status) == (0, 1, None, S.READY)
    assert q.line() == ["b", "a"]
    assert q(Fail(q.run("a"))) == [Failed("a", 1, "", "retryable"), Readied("a")]
    assert q(Fail(q.run("a"))) == [Failed("a", 2, "", "retryable"), Died("a")]


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_a_task_is_parked_when_it_dies_after_its_last_redrive(limit: int) -> None:
    """`max_redrives` of them; a parked task can still be redriven, and parks again."""
    q = Ledger(retry=Retry(max_attempts=1, max_redrives=limit)).tasks(a="", b="a")
    for _ in range(limit):
        assert q(Fail(q.run("a"), "x"))[1:] == [Died("a"), Blocked("b", "a")]
        assert q(Redrive("a")) == [Redriven("a"), Readied("a"), Unblocked("b")]
    for _ in range(2):
        assert q(Fail(q.run("a"), "x"))[1:] == [Parked("a"), Blocked("b", "a")]
        assert [letter.id for letter in q.state.parked()] == ["a"]
        assert q.letters() == [("b", "blocked by a")]
        assert q.state.reason("a") == "failed after 1 attempts: x"
        assert q(Redrive("a")) == [Redriven("a"), Readied("a"), Unblocked("b")]


def test_without_a_limit_no_task_is_ever_parked() -> None:
    """`max_redrives=None`."""
    q = Ledger(retry=Retry(max_attempts=1, max_redrives=None)).tasks(a="")
    for _ in range(20):
        assert q(Fail(q.run("a")))[1] == Died("a")
        q(Redrive("a"))


def test_cancelling_what_is_cancelled_is_answered_yes() -> None:
    """What was asked for holds already; but a worker that names its lease is told that it ended."""
    q = Ledger().tasks(a="")
    lease = q.start()
    q(Cancel("a", lease))
    assert q(Cancel("a", error="again")) == []
    with q.unchanged(), pytest.raises(errors.StaleLease):
        q(Cancel("a", lease))


@pytest.mark.parametrize("status", ["PENDING", "READY", "RUNNING", "BLOCKED", "DEAD", "PARKED"])
def test_whatever_is_unfinished_can_be_cancelled(status: str) -> None:
    """It leaves the list where it stood, lets go of its worker, and may say why."""
    q = Ledger(retry=Retry(max_redrives=0 if status == "PARKED" else None)).tasks(r="", p="x")
    q.tasks(a={"PENDING": "x", "BLOCKED": "r"}.get(status, ""))
    if status == "RUNNING":
        q.do(Cancel("r"), Start("w"))
    elif status in ("DEAD", "PARKED"):
        q.kill("a")
    elif status == "BLOCKED":
        q.kill("r")
    assert q.status("a") == status
    assert q(Cancel("a", error="not wanted")) == [Cancelled("a", "not wanted")]
    task = q.task("a")
    assert (task.status, task.error, task.ended) == (S.CANCELLED, "not wanted", q.at)
    assert "a" not in q.line() + [name for name, _ in q.letters()]
    assert list(q.state.parked()) == []
    assert q.state.held_by("w") is None
    assert list(q.state.in_finished)[-1:] == [(q.state.position, "a")]


def test_a_worker_can_cancel_what_it_holds() -> None:
    """By naming its lease, as for the other ends of a hand-out."""
    q = Ledger().tasks(a="")
    lease = q.start("w")
    assert q(Cancel("a", lease, "no such page")) == [Cancelled("a", "no such page")]
    assert q.state.held_by("w") is None


def test_a_restored_task_starts_afresh() -> None:
    """With fresh attempts, at the back of the line; its redrives are remembered."""
    q = Ledger().tasks(a="", b="").kill("a").do(Redrive("a")).do(Cancel("a"))
    assert q(Restore("a")) == [Restored("a"), Readied("a")]
    task = q.task("a")
    assert (task.attempt, task.redrives, task.error, task.ended) == (0, 1, None, None)
    assert q.line() == ["b", "a"]


def test_a_restored_task_stands_where_its_dependencies_let_it() -> None:
    """READY, PENDING or BLOCKED, as if it were enqueued now."""
    q = Ledger().tasks(ok="", r="", a="ok", b="x", c="r").do(Cancel("a"), Cancel("b"), Cancel("c"))
    q.succeed("ok").kill("r")
    assert q(Restore("a")) == [Restored("a"), Readied("a")]
    assert q(Restore("b")) == [Restored("b")]
    assert q(Restore("c")) == [Restored("c"), Blocked("c", "r")]


def test_complete_and_start_is_one_then_the_other() -> None:
    """What the first makes ready can be handed out by the second, in one entry."""
    q = Ledger().tasks(a="", b="a")
    lease = q.start("w")
    assert q(CompleteAndStart(lease, "result", "w")) == [
        Completed("a", "result"),
        Readied("b"),
        Started("b", 1, "w"),
    ]
    assert q.lease("b") == q.state.seq
    assert q(CompleteAndStart(q.state.seq, None, "w")) == [Completed("b")]


def test_closing_refuses_new_tasks_and_nothing_else() -> None:
    """What was admitted drains; reopening admits again; twice is answered yes."""
    q = Ledger(retry=Retry(max_attempts=2)).tasks(a="", b="", c="")
    q.do(Cancel("c"))
    assert q(Close()) == [Closed()]
    assert q(Close()) == []
    with q.unchanged(), pytest.raises(errors.QueueClosed):
        q(Enqueue("d"))
    assert q(Fail(q.run("a")))[1] == Readied("a")
    assert q(Restore("c")) == [Restored("c"), Readied("c")]
    q.succeed("b", "a", "c")
    assert q(Reopen()) == [Reopened()]
    assert q(Reopen()) == []
    q.tasks(d="")


# What follows downstream.


def test_a_diamond_is_told_once_each() -> None:
    """Nearest first, dependents in the order in which they were enqueued."""
    q = Ledger().tasks(a="", c="a", b="a", d="b c")
    assert q(Fail(q.run("a"), "x", "permanent")) == [
        Failed("a", 1, "x", "permanent"),
        Died("a"),
        Blocked("c", "a"),
        Blocked("b", "a"),
        Blocked("d", "a"),
    ]
    assert q.letters() == [
        ("a", "failed after 1 attempts: x"),
        ("c", "blocked by a"),
        ("b", "blocked by a"),
        ("d", "blocked by a"),
    ]
    assert q(Redrive("a")) == [
        Redriven("a"),
        Readied("a"),
        Unblocked("c"),
        Unblocked("b"),
        Unblocked("d"),
    ]
    assert q(Complete(q.run("a"))) == [Completed("a"), Readied("c"), Readied("b")]
    q.succeed("c")
    assert q(Complete(q.run("b"))) == [Completed("b"), Readied("d")]


def test_what_follows_is_told_breadth_first() -> None:
    """All that is one step away before anything two steps away."""
    q = Ledger().tasks(a="", near1="a", far1="near1", near2="a", far2="near2", farther="far1")
    order = ["near1", "near2", "far1", "far2", "farther"]
    assert q(Cancel("a")) == [Cancelled("a", None), *(Blocked(name, "a") for name in order)]
    assert q(Restore("a"))[2:] == [Unblocked(name) for name in order]


def test_a_lopsided_diamond_is_told_nearest_first_both_ways() -> None:
    """What has a near and a far way to the root comes before what is only far from it."""
    q = Ledger().tasks(a="", near="a", far="a", farther="far", x="near farther")
    order = ("near", "far", "x", "farther")
    assert q(Cancel("a"))[1:] == [Blocked(name, "a") for name in order]
    assert q(Restore("a"))[2:] == [Unblocked(name) for name in order]


def test_a_task_with_several_roots_is_blocked_until_none_is_left() -> None:
    """It is told once when the first comes and once when the last goes; its place is kept."""
    q = Ledger().tasks(r="", s="", t="", other="", x="r s t", y="x")
    assert q(Fail(q.run("s"), "", "permanent"))[2:] == [Blocked("x", "s"), Blocked("y", "s")]
    assert q(Fail(q.run("other"), "", "permanent"))[1:] == [Died("other")]
    assert q(Cancel("r")) == [Cancelled("r", None)]
    assert q(Cancel("t")) == [Cancelled("t", None)]
    assert q.letters()[1:3] == [("x", "blocked by r"), ("y", "blocked by r")]
    assert q(Redrive("s")) == [Redriven("s"), Readied("s")]
    assert q(Restore("r")) == [Restored("r"), Readied("r")]
    assert [name for name, _ in q.letters()] == ["x", "y", "other"]
    assert q.letters()[:2] == [("x", "blocked by t"), ("y", "blocked by t")]
    assert q(Restore("t")) == [Restored("t"), Readied("t"), Unblocked("x"), Unblocked("y")]
    assert q.letters() == [("other", "failed after 1 attempts: ")]


def test_a_late_arrival_ties_old_tasks_to_a_dead_one() -> None:
    """Tasks enqueued long before the one in the middle are blocked when it arrives."""
    q = Ledger().tasks(x="m", y="x", z="x y other").tasks(r="").kill("r")
    assert q(Enqueue("m", None, ["ok", "r"])) == [
        enqueued("m", "ok", "r"),
        Blocked("m", "r"),
        Blocked("x", "r"),
        Blocked("y", "r"),
        Blocked("z", "r"),
    ]
    assert q(Redrive("r")) == [
        Redriven("r"),
        Readied("r"),
        Unblocked("m"),
        Unblocked("x"),
        Unblocked("y"),
        Unblocked("z"),
    ]


def test_a_late_arrival_below_a_blocked_one_is_born_blocked() -> None:
    """The root named is the one that is shown, not the BLOCKED task between."""
    q = Ledger().tasks(r="", b="r").kill("r")
    assert q(Enqueue("c", None, ["b"])) == [enqueued("c", "b"), Blocked("c", "r")]


def test_a_late_arrival_among_the_blocked_does_not_unblock_them() -> None:
    """Nor does it tell them anything again."""
    q = Ledger().tasks(r="", x="r late", y="late").kill("r")
    assert q(Enqueue("late")) == [enqueued("late"), Readied("late")]
    assert q(Complete(q.run("late"))) == [Completed("late"), Readied("y")]
    assert q(Redrive("r")) == [Redriven("r"), Readied("r"), Unblocked("x")]
    assert q(Complete(q.run("r"))) == [Completed("r"), Readied("x")]


def test_a_cancelled_task_in_the_middle_keeps_its_own_block() -> None:
    """Redriving the root above it frees nothing below it; restoring it finds the root again."""
    q = Ledger().tasks(r="", m="r", x="m").kill("r").do(Cancel("m"))
    assert q.letters()[1:] == [("x", "blocked by m")]
    assert q(Restore("m")) == [Restored("m"), Blocked("m", "r")]
    assert q.letters()[1:] == [("x", "blocked by r"), ("m", "blocked by r")]
    q(Cancel("m"))
    assert q(Redrive("r")) == [Redriven("r"), Readied("r")]
    assert q(Restore("m")) == [Restored("m"), Unblocked("x")]


def test_a_cancelled_dead_task_still_blocks() -> None:
    """Nothing below it is told: it is under a root before and after."""
    q = Ledger().tasks(r="", x="r").kill("r")
    assert q(Cancel("r")) == [Cancelled("r", None)]
    assert q.letters() == [("x", "blocked by r")]
    assert q(Restore("r")) == [Restored("r"), Readied("r"), Unblocked("x")]


class Below:
    """What must be told about others after a command on one task, by going through every task
    again and again in a graph of plain values."""

    def __init__(self, state: State) -> None:
        self.after = {task.id: task.after for task in state.tasks()}
        self.status: dict[str, Status] = {task.id: task.status for task in state.tasks()}

    def names(self, task: str) -> list[str]:
        return [name for name, after in self.after.items() if task in after]

    def under_root(self, task: str) -> bool:
        seen, left = {task}, list(self.after[task])
        while left:
            at = left.pop()
            status = self.status.get(at, S.ABSENT)
            if status in ROOTS:
                return True
            if at not in seen and status not in (S.SUCCEEDED, S.ABSENT):
                seen.add(at)
                left += self.after[at]
        return False

    def met(self, task: str) -> bool:
        return all(self.status.get(above) is S.SUCCEEDED for above in self.after[task])

    def blocks(self, start: str) -> list[str]:
        told = []
        wave = [start]
        while wave:
            following: list[str] = []
            for at in wave:
                for name in self.names(at):
                    if self.status[name] is S.PENDING:
                        self.status[name] = S.BLOCKED
                        told.append(f"Blocked {name}")
                        following.append(name)
            wave = following
        return told

    def frees(self, *start: str) -> list[str]:
        free = {
            name
            for name, status in self.status.items()
            if status is S.BLOCKED and not self.under_root(name)
        }
        told = []
        wave = list(start)
        while wave:
            following: list[str] = []
            for at in wave:
                for name in self.names(at):
                    if self.status[name] is S.BLOCKED and name in free:
                        self.status[name] = S.PENDING
                        told.append(f"Unblocked {name}")
                        following.append(name)
                    if self.status[name] is S.PENDING and self.met(name):
                        self.status[name] = S.READY
                        told.append(f"Readied {name}")
            wave = following
        assert not any(self.status[name] is S.BLOCKED for name in free)
        return told

    def settles(self, name: str) -> list[str]:
        self.status[name] = S.PENDING
        if self.met(name):
            self.status[name] = S.READY
            return [f"Readied {name}"]
        if self.under_root(name):
            self.status[name] = S.BLOCKED
            return [f"Blocked {name}", *self.blocks(name)]
        return []


def as_told(events: list[Event]) -> list[str]:
    return [
        f"{type(event).__name__} {event.task}"
        for event in events
        if isinstance(event, TaskEvent) and not isinstance(event, Forgotten | Started)
    ]


def expected(before: State, asked: Command) -> list[str]:
    """The events that must follow, as `Kind task`."""
    below = Below(before)
    match asked:
        case Enqueue(id=name) if name is not None:
            if before.task(name) is not None:
                return []
            below.after[name] = asked.after
            return [f"Enqueued {name}", *below.settles(name)]
        case Complete(lease=lease) | CompleteAndStart(lease=lease):
            name = before.leased(lease).task.task  # type: ignore[union-attr]
            below.status[name] = S.SUCCEEDED
            return [f"Completed {name}", *below.frees(name)]
        case Fail(lease=lease):
            record = before.leased(lease)
            assert record is not None
            name, limit = record.task.task, record.task.max_attempts
            if asked.kind == "retryable" and (limit is None or record.attempt < limit):
                return [f"Failed {name}", f"Readied {name}"]
            below.status[name] = S.DEAD
            ends = "Parked" if record.redrives >= 2 else "Died"
            return [f"Failed {name}", f"{ends} {name}", *below.blocks(name)]
        case Cancel(task=name):
            if below.status[name] is S.CANCELLED:
                return []
            below.status[name] = S.CANCELLED
            return [f"Cancelled {name}", *below.blocks(name)]
        case Redrive(task=name):
            below.status[name] = S.READY
            return [f"Redriven {name}", f"Readied {name}", *below.frees(name)]
        case RedriveAll(select=select):
            chosen = selected(before, select)
            below.status |= dict.fromkeys(chosen, S.READY)
            own = [f"{kind} {name}" for name in chosen for kind in ("Redriven", "Readied")]
            return [*own, *below.frees(*chosen)]
        case Resolve(task=name):
            below.status[name] = S.SUCCEEDED
            return [f"Resolved {name}", *below.frees(name)]
        case Restore(task=name):
            settled = below.settles(name)
            freed = [] if below.status[name] is S.BLOCKED else below.frees(name)
            return [f"Restored {name}", *settled, *freed]
        case _:
            return []


@pytest.mark.parametrize("seed", range(16))
def test_what_follows_is_what_going_through_every_task_finds(seed: int) -> None:
    """In random histories, each command tells exactly the events of the slow and obvious way.

    With several roots, diamonds and late arrivals; the invariants hold after each.
    """
    walk = Walk(
        seed,
        ids=[6, 9, 14][seed % 3],
        retry=Retry(max_redrives=2),
        retention=Retention(seed % 2),
    )
    counted = 0
    for _ in range(1200):
        before = walk.ledger.state
        asked = walk.step()
        if asked is None:
            continue
        after = walk.ledger.state
        if isinstance(asked, Enqueue) and asked.id is None:
            continue
        events = list(walk.ledger.entries[-1].events) if after is not before else []
        if not isinstance(asked, Release | Start | EnqueueAll | Tick | Open | Close | Reopen):
            assert as_told(events) == expected(before, asked), asked
            counted += 1
        after.check()
        kinds: dict[str, list[str]] = {}
        for event in events:
            if isinstance(event, TaskEvent):
                kinds.setdefault(event.task, []).append(type(event).__name__)
        for each in kinds.values():
            assert not {"Blocked", "Unblocked"} <= set(each)
            assert len(each) == len(set(each))
    assert counted > 400


def test_a_bulk_redrive_tells_all_redriven_first() -> None:
    """In the order of their death, judged on the state after all of it."""
    q = Ledger().tasks(r="", s="", t="", x="r s", y="x t").kill("s", "t", "r")
    assert q(RedriveAll(Select(tasks=["r", "s"]))) == [
        Redriven("s"),
        Readied("s"),
        Redriven("r"),
        Readied("r"),
        Unblocked("x"),
    ]
    assert q(RedriveAll(Select(tasks=["r", "x", "y", "nobody"]))) == []
    assert q(RedriveAll(Select())) == [Redriven("t"), Readied("t"), Unblocked("y")]


def test_a_task_resolved_by_a_person_readies_what_waits() -> None:
    """As if it had been completed, and what it blocked is unblocked first."""
    q = Ledger().tasks(r="", a="r", b="r x").kill("r")
    assert q(Resolve("r")) == [Resolved("r"), Unblocked("a"), Readied("a"), Unblocked("b")]
    assert q.task("r").ended == q.at


def test_redrive_restore_and_cancel_in_every_order() -> None:
    """Every legal order of them on a graph with two roots and a middle leaves it in order."""
    asked: list[Command] = [
        *(Cancel(name) for name in "rmx"),
        *(Restore(name) for name in "rmx"),
        Redrive("s"),
    ]
    tried = 0
    for order in itertools.permutations(asked, 5):
        q = Ledger(check=False).tasks(r="", s="", m="r s", x="m", y="x late").kill("s")
        for one in order:
            below = expected(q.state, one)
            try:
                events = q(one)
            except errors.WrongStatus:
                break
            assert as_told(events) == below
            q.state.check()
        else:
            tried += 1
    assert tried > 200


# Batches.


def test_a_batch_gives_the_events_of_its_tasks_one_after_the_other() -> None:
    """In one entry; its tasks may name each other in any order, and repeats are passed over."""
    q = Ledger().tasks(r="").kill("r")
    assert q(
        EnqueueAll(
            [
                Enqueue("c", None, ["b"]),
                Enqueue("b", None, ["r"]),
                Enqueue("c", None, ["b"]),
                Enqueue("r"),
                Enqueue("a"),
            ]
        )
    ) == [
        enqueued("c", "b"),
        enqueued("b", "r"),
        Blocked("b", "r"),
        Blocked("c", "r"),
        enqueued("a"),
        Readied("a"),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_is_the_same_as_one_by_one(seed: int) -> None:
    """The events of a random batch are those of its tasks enqueued one after the other."""
    walk = Walk(seed)
    ledger = walk.walk(60)
    ids = [*walk.ids, *(f"new{i}" for i in range(6))]
    batch = [
        Enqueue(name, None, walk.rng.sample(ids, walk.rng.randint(0, 3)))
        for name in walk.rng.sample(ids, 8)
        if ledger.status(name) is S.ABSENT
    ]
    ledger.do(Reopen())
    single: list[Event] = []
    state, cycle = ledger.state, None
    for one in batch:
        try:
            events, state = decide(state, one, NOON)
        except errors.CycleError as refused:
            cycle = refused.cycle
            break
        single += events
    if cycle is None:
        assert ledger(EnqueueAll(batch)) == single
    else:
        with ledger.unchanged(), pytest.raises(errors.CycleError) as raised:
            ledger(EnqueueAll(batch))
        assert raised.value.cycle == cycle


def test_an_empty_batch_and_one_of_repeats_write_nothing() -> None:
    """What is there already is answered yes."""
    q = Ledger().tasks(a="", b="a")
    assert q(EnqueueAll([])) == []
    assert q(EnqueueAll([Enqueue("b", None, ["a"]), Enqueue("a")])) == []


@pytest.mark.parametrize(
    ("batch", "refusal"),
    [
        ([Enqueue("new"), Enqueue("a", "other")], errors.OtherContent),
        ([Enqueue("new"), Enqueue("new", "other")], errors.OtherContent),
        ([Enqueue("new"), Enqueue("x", None, ["y"]), Enqueue("y", None, ["x"])], errors.CycleError),
        ([Enqueue("new"), Enqueue("x"), Enqueue("y"), Enqueue("z")], errors.QueueFull),
    ],
)
def test_a_batch_is_refused_whole(batch: list[Enqueue], refusal: type[Refusal]) -> None:
    """For every kind of refusal: nothing of it is there, and its ids stay free."""
    q = Ledger(capacity=Capacity(4)).tasks(a="")
    with q.unchanged(), pytest.raises(refusal):
        q(EnqueueAll(batch))
    assert q(Enqueue("new")) == [enqueued("new"), Readied("new")]


def test_ids_are_made_from_the_seq() -> None:
    """`#seq`, and in a batch `#seq.n` with n counting the ids so made."""
    q = Ledger()
    assert q(Enqueue())[0] == enqueued("#2")
    batch = [Enqueue(), Enqueue("a"), Enqueue(), Enqueue(None, None, ["#2", "#3.1"])]
    made = [event.task for event in q(EnqueueAll(batch)) if isinstance(event, Enqueued)]
    assert made == ["#3.1", "a", "#3.2", "#3.3"]
    assert q(EnqueueAll([Enqueue()]))[0] == enqueued("#4.1")
    assert q.task("#3.3").after == ("#2", "#3.1")


# Repeats.


def test_the_same_content_again_changes_nothing() -> None:
    """Whatever has become of the task: the payload, the set of dependencies, any order."""
    payload = object()
    for end in (Complete, Fail, Release, None):
        q = Ledger(retry=Retry(max_attempts=1)).tasks(u="", v="").succeed("u", "v")
        q(Enqueue("a", payload, ["u", "v"]))
        if end is None:
            q(Cancel("a"))
        else:
            q(end(q.run("a")))
        assert q(Enqueue("a", payload, ["v", "u", "v"])) == []
        assert q(Enqueue("a", payload, ["v", "u"], max_attempts=9)) == []


@pytest.mark.parametrize(
    ("again", "differs"),
    [
        (Enqueue("a", Json(b'{"x":1,"y":3}'), ["u", "v"]), "another payload"),
        (Enqueue("a", Json(b'{"x":1.0,"y":2}'), ["u", "v"]), "another payload"),
        (Enqueue("a", Json(b'{"x":true,"y":2}'), ["u", "v"]), "another payload"),
        (Enqueue("a", None, ["u", "v"]), "another payload"),
        (Enqueue("a", {"x": 1, "y": 2}, ["u", "v"]), "another payload"),
        (Enqueue("a", Json(b'{"x":1,"y":2}'), ["u"]), "other dependencies"),
        (Enqueue("a", Json(b'{"x":1,"y":2}'), ["u", "v", "w"]), "other dependencies"),
        (Enqueue("a", Json(b'{"x":1,"y":2}'), ["u", "w"]), "other dependencies"),
        (Enqueue("a", Json(b'{"x":1,"y":2}')), "other dependencies"),
    ],
)
def test_other_content_is_refused(again: Enqueue, differs: str) -> None:
    """And the refusal says what differs and where the task stands."""
    q = Ledger()
    q(Enqueue("a", Json(b'{"x":1,"y":2}'), ["u", "v"]))
    assert q(Enqueue("a", Json(b'{"y":2,"x":1}'), ["v", "u"])) == []
    with q.unchanged(), pytest.raises(errors.OtherContent, match=differs) as raised:
        q(again)
    assert raised.value.task == "a"
    assert "PENDING" in str(raised.value)


def test_an_opaque_payload_is_the_same_object_or_another() -> None:
    """It is never compared."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("a payload was compared")

        __hash__ = None  # type: ignore[assignment]

    payload = Odd()
    q = Ledger(check=False)
    q(Enqueue("a", payload))
    assert q(Enqueue("a", payload)) == []
    with pytest.raises(errors.OtherContent):
        q(Enqueue("a", Odd()))
    assert q.task("a").payload is payload


def test_a_repeat_is_answered_whatever_would_refuse_a_new_task() -> None:
    """Closed, full or in a cycle: it is there already."""
    q = Ledger(capacity=Capacity(1)).tasks(a="").do(Close())
    assert q(Enqueue("a")) == []
    assert q(EnqueueAll([Enqueue("a"), Enqueue("a")])) == []


# Room.


@pytest.mark.parametrize("counts", ["waiting", "unresolved"])
def test_what_a_capacity_counts(counts: str) -> None:
    """PENDING and READY tasks, and RUNNING ones where it counts the unresolved; no others."""
    q = Ledger(capacity=Capacity(2, counts)).tasks(a="", p="x")  # type: ignore[arg-type]
    full = errors.QueueFull
    with q.unchanged(), pytest.raises(full) as raised:
        q(Enqueue("b"))
    assert (raised.value.limit, "2 " + counts in str(raised.value)) == (2, True)
    lease = q.run("a")
    if counts == "unresolved":
        with q.unchanged(), pytest.raises(full):
            q(Enqueue("b"))
        q(Complete(lease))
    q(Enqueue("b", None, ["p"]))
    q(Cancel("p"))
    assert q.status("b") is S.BLOCKED
    q.tasks(c="", d="")
    with q.unchanged(), pytest.raises(full):
        q(Enqueue("e"))


def test_a_capacity_of_zero_admits_nothing() -> None:
    """But an id that a PENDING task names, of which there can be none here."""
    q = Ledger(capacity=Capacity(0))
    with q.unchanged(), pytest.raises(errors.QueueFull):
        q(Enqueue("a"))
    assert q(EnqueueAll([])) == []


def test_nothing_but_enqueueing_meets_the_capacity() -> None:
    """A retry, a release, a redrive and a restore are never refused for lack of room."""
    q = Ledger(capacity=Capacity(1)).tasks(a="")
    q.start("w1")
    q.tasks(b="").start("w2")
    q.tasks(c="").start("w3")
    q.tasks(d="").start("w4")
    q.tasks(e="")
    assert q(Fail(q.lease("a")))[1] == Readied("a")
    assert q(Release(q.lease("b"))) == [Released("b")]
    q(Fail(q.lease("c"), "", "permanent"))
    assert q(Redrive("c"))[1] == Readied("c")
    q(Cancel("d"))
    assert q(Restore("d"))[1] == Readied("d")
    assert len(q.line()) == 5


def test_an_id_that_a_pending_task_names_is_admitted_whatever_the_room() -> None:
    """Refusing it would keep that task waiting for ever; for a BLOCKED one it is no help."""
    q = Ledger(capacity=Capacity(2)).tasks(p="x", r="").kill("r").tasks(b="")
    q(EnqueueAll([Enqueue("x", None, ["y"])]))
    assert q(Enqueue("y", None, ["z"])) == [enqueued("y", "z")]
    assert q.state.count(S.PENDING, S.READY) == 4
    q(Cancel("x"))
    assert q.status("p") is S.BLOCKED
    with q.unchanged(), pytest.raises(errors.QueueFull):
        q(Enqueue("more"))
    assert q(Enqueue("z")) == [enqueued("z"), Readied("z")]


def test_a_blocked_task_does_not_make_room_for_what_it_names() -> None:
    """Only a PENDING task waits for an id."""
    q = Ledger(capacity=Capacity(1)).tasks(r="").kill("r").tasks(b="r x", c="")
    assert q.status("b") is S.BLOCKED
    with q.unchanged(), pytest.raises(errors.QueueFull):
        q(Enqueue("x"))


def test_a_task_born_blocked_needs_room_too() -> None:
    """Though it takes none once it is there."""
    q = Ledger(capacity=Capacity(1)).tasks(r="").kill("r").tasks(a="")
    with q.unchanged(), pytest.raises(errors.QueueFull):
        q(Enqueue("b", None, ["r"]))
    q(Cancel("a"))
    with q.unchanged(), pytest.raises(errors.QueueFull):
        q(EnqueueAll([Enqueue("b", None, ["r"]), Enqueue("c", None, ["r"])]))
    q.tasks(b="r").tasks(c="r").tasks(d="r")


def test_the_room_for_a_batch_is_judged_once_on_the_state_before() -> None:
    """For the new ids that no PENDING task there names; what names what within it is no matter."""
    q = Ledger(capacity=Capacity(3)).tasks(p="x y")
    with q.unchanged(), pytest.raises(errors.QueueFull, match="3 new tasks"):
        q(EnqueueAll([Enqueue("n", None, ["o"]), Enqueue("o", None, ["m"]), Enqueue("m")]))
    q(EnqueueAll([Enqueue("x"), Enqueue("a"), Enqueue("y"), Enqueue("b")]))
    assert q.state.count(S.PENDING, S.READY) == 5


# Retention.


def test_a_finished_task_is_forgotten_by_the_next_start_or_tick() -> None:
    """The oldest first, those beyond the number that is kept; completing alone moves none."""
    q = Ledger(retention=Retention(1)).tasks(a="", b="", c="", d="")
    q.succeed("b", "a")
    assert q.status("b") is S.SUCCEEDED
    assert q(Tick()) == [Forgotten("b")]
    assert q(Tick()) == []
    q(Cancel("c"))
    assert q(Start("w")) == [Forgotten("a"), Started("d", 1, "w")]
    assert q(CompleteAndStart(q.lease("d"), None, "w")) == [Completed("d"), Forgotten("c")]
    assert [task.id for task in q.state.tasks()] == ["d"]


def test_without_a_retention_all_is_kept() -> None:
    """Off is off."""
    q = Ledger().tasks(a="").succeed("a")
    assert q(Tick()) == []
    assert q.state.count(S.SUCCEEDED) == 1


def test_a_refused_start_forgets_nothing() -> None:
    """And one that finds nothing but something to forget is an entry of its own."""
    q = Ledger(retention=Retention(0)).tasks(a="", b="")
    q.start("w")
    q.succeed("b")
    with q.unchanged(), pytest.raises(errors.WorkerBusy):
        q(Start("w"))
    assert q(Start("v")) == [Forgotten("b")]
    assert q(Start("v")) == []


def test_what_something_unfinished_names_is_kept() -> None:
    """Until that is finished, and then the older goes first although it was kept longer."""
    q = Ledger(retention=Retention(0)).tasks(a="", b="", r="", x="a r")
    q.kill("r").succeed("a", "b")
    assert q(Tick()) == [Forgotten("b")]
    q(Cancel("x"))
    q(Cancel("r"))
    assert q(Tick()) == [Forgotten("a"), Forgotten("x"), Forgotten("r")]
    assert len(q.state) == 0


def test_a_cancelled_root_is_kept_while_it_blocks() -> None:
    """A BLOCKED task is unfinished, so what it names cannot be forgotten."""
    q = Ledger(retention=Retention(0)).tasks(r="", x="r").do(Cancel("r"))
    assert q(Tick()) == []
    assert q.letters() == [("x", "blocked by r")]


def test_a_forgotten_id_is_unknown_again() -> None:
    """It may be enqueued as a new task with other content, and what names it waits until it is."""
    q = Ledger(retention=Retention(0)).tasks(a="").succeed("a").do(Tick())
    with q.unchanged(), pytest.raises(errors.UnknownTask):
        q(Restore("a"))
    assert q(Enqueue("b", None, ["a"])) == [enqueued("b", "a")]
    assert q(Enqueue("a", "other")) == [
        Enqueued("a", "other", (), None, 3, None),
        Readied("a"),
    ]
    assert q(Complete(q.run("a"))) == [Completed("a"), Readied("b")]


def test_a_restored_task_waits_for_what_was_forgotten_meanwhile() -> None:
    """A CANCELLED task keeps nothing that it names."""
    q = Ledger(retention=Retention(1)).tasks(a="", b="a").succeed("a").do(Cancel("b"), Tick())
    assert q.status("a") is S.ABSENT
    assert q(Restore("b")) == [Restored("b")]
    assert q.status("b") is S.PENDING


def test_an_entry_forgets_at_most_a_thousand() -> None:
    """The rest waits for the next."""
    q = Ledger(check=False)
    q(EnqueueAll([Enqueue(f"t{i}") for i in range(DUE_LIMIT + 500)]))
    for i in range(DUE_LIMIT + 500):
        q(Cancel(f"t{i}"))
    q.fold(Reconfigured(Policy(retention=Retention(10)))).tasks(last="")
    assert DUE_LIMIT == 1000
    first = [Forgotten(f"t{i}") for i in range(1000)]
    assert q(Start()) == [*first, Started("last", 1, None)]
    assert q(Tick()) == [Forgotten(f"t{i}") for i in range(1000, 1490)]
    assert q(Tick()) == []


# The pool.


def test_a_fixed_pool_refuses_an_unknown_worker_and_nobody() -> None:
    """Before anything is read or changed."""
    q = Ledger(pool=["w1", "w2"], retention=Retention(0)).tasks(a="", b="")
    q(Cancel("b"))
    for stranger in ("w3", None, 1):
        with q.unchanged(), pytest.raises(errors.UnknownWorker) as raised:
            q(Start(stranger))
        assert raised.value.worker == stranger
    assert q(Start("w2"))[-1] == Started("a", 1, "w2")


def test_whoever_has_the_lease_may_end_it_after_the_pool_has_changed() -> None:
    """The pool limits who may start, and nothing else."""
    q = Ledger(pool=["w1"]).tasks(a="", b="")
    lease = q.start("w1")
    q.fold(Reconfigured(Policy(pool=["w2"])))
    with q.unchanged(), pytest.raises(errors.UnknownWorker):
        q(CompleteAndStart(lease, None, "w1"))
    assert q(CompleteAndStart(lease, None, "w2")) == [Completed("a"), Started("b", 1, "w2")]


def test_workers_can_be_any_hashables() -> None:
    """Equal ones are one worker, as the keys of a dict are."""
    q = Ledger(check=False).tasks(a="", b="", c="")
    lease = q.start(1)
    with pytest.raises(errors.WorkerBusy) as raised:
        q(Start(True))
    assert (raised.value.lease, raised.value.task) == (lease, "a")
    assert q(Start((None,))) == [Started("b", 1, (None,))]
    assert q(Start(frozenset())) == [Started("c", 1, frozenset())]


# Refusals.


def busy() -> Ledger:
    """A pool of two: `w1` holds `a` and `w2` holds `b`; `p` waits, `r` is ready; room for one."""
    q = Ledger(capacity=Capacity(3), pool=["w1", "w2"], retention=Retention(9))
    q.tasks(a="", b="")
    q.start("w1")
    q.start("w2")
    return q.tasks(p="x", r="")


def full() -> Ledger:
    return busy().tasks(s="")


def done() -> Ledger:
    """As `busy`, but `a` is done."""
    return busy().do(Complete(4))


STALE: list[tuple[str, Callable[[int], Command]]] = [
    ("complete", Complete),
    ("complete", lambda lease: CompleteAndStart(lease, None, "w1")),
    ("fail", Fail),
    ("release", Release),
    ("renew", Renew),
    ("cancel 'a'", lambda lease: Cancel("a", lease)),
]

Row = tuple[Callable[[], Ledger], Callable[[], Command], type[Refusal], str]

ROWS: list[Row] = [
    (busy, lambda: Open("q"), errors.BadValue, "open already"),
    (busy, lambda: Enqueue(""), errors.BadValue, "empty"),
    (busy, lambda: Start("w3"), errors.UnknownWorker, "'w3'"),
    (busy, lambda: Start(), errors.UnknownWorker, "None"),
    (busy, lambda: CompleteAndStart(4, None, "w3"), errors.UnknownWorker, "'w3'"),
    (busy, lambda: Enqueue("r", 1), errors.OtherContent, "another payload"),
    (busy, lambda: Enqueue("p"), errors.OtherContent, "other dependencies"),
    (lambda: busy().do(Close()), lambda: Enqueue("new"), errors.QueueClosed, "'new'"),
    (busy, lambda: Enqueue("x", None, ["p"]), errors.CycleError, "x needs p needs x"),
    (busy, lambda: Enqueue("new", None, ["new"]), errors.CycleError, "new needs new"),
    (full, lambda: Enqueue("new"), errors.QueueFull, "1 new task"),
    (full, lambda: EnqueueAll([Enqueue(), Enqueue()]), errors.QueueFull, "2 new tasks"),
    (busy, lambda: Redrive("nobody"), errors.UnknownTask, "redrive 'nobody'"),
    (busy, lambda: Cancel("nobody"), errors.UnknownTask, "cancel 'nobody'"),
    (busy, lambda: Restore("nobody"), errors.UnknownTask, "restore 'nobody'"),
    (busy, lambda: Redrive("r"), errors.WrongStatus, "READY.*DEAD or PARKED"),
    (busy, lambda: Restore("a"), errors.WrongStatus, "RUNNING.*CANCELLED"),
    (done, lambda: Cancel("a"), errors.WrongStatus, "SUCCEEDED.*DEAD or PARKED can"),
    (busy, lambda: Cancel("r", 4), errors.StaleLease, "4"),
    (busy, lambda: Cancel("nobody", 4), errors.StaleLease, "4"),
    (busy, lambda: Start("w1"), errors.WorkerBusy, "'a' under lease 4"),
    (busy, lambda: CompleteAndStart(5, None, "w1"), errors.WorkerBusy, "'a' under lease 4"),
    *(
        (busy, lambda make=make, lease=lease: make(lease), errors.StaleLease, f"cannot {asked}")
        for asked, make in STALE
        for lease in (1, 3, 6, 99)
    ),
]


@pytest.mark.parametrize(("queue", "asked", "refusal", "words"), ROWS)
def test_each_refusal(
    queue: Callable[[], Ledger],
    asked: Callable[[], Command],
    refusal: type[Refusal],
    words: str,
) -> None:
    """A refused command changes nothing, and its error says what is the matter."""
    q = queue()
    with q.unchanged(), pytest.raises(refusal, match=words) as raised:
        q(asked())
    assert type(raised.value) is refusal


def test_every_refusal_has_a_row() -> None:
    """None of the fixed list is without a test."""
    assert {row[2] for row in ROWS} == set(REFUSALS)


@pytest.mark.parametrize(("asked", "make"), STALE)
def test_a_lease_that_has_ended_is_refused_in_one_way(
    asked: str, make: Callable[[int], Command]
) -> None:
    """With the same words whatever became of the task: it is never taken for a repeat."""
    said = set()
    for end in ("complete", "fail", "release", "cancel", "again", "forgotten"):
        q = Ledger(retention=Retention(0)).tasks(a="")
        lease = q.start("w1")
        if end in ("complete", "forgotten"):
            q(Complete(lease))
        elif end == "cancel":
            q(Cancel("a"))
        else:
            q(Release(lease) if end == "release" else Fail(lease))
        if end == "again":
            assert q.start("w1") > lease
        if end == "forgotten":
            q(Tick())
        with q.unchanged(), pytest.raises(errors.StaleLease) as raised:
            q(make(lease))
        said.add(str(raised.value))
    assert len(said) == 1


def closed(make: Callable[[], Ledger]) -> Callable[[], Ledger]:
    return lambda: make().do(Close())


def other_pool() -> Ledger:
    """As `busy`, but the pool has changed: `w1` holds a task and is unknown."""
    return busy().fold(Reconfigured(Policy(pool=["w2"])))


PAIRS: list[tuple[str, str, Callable[[], Ledger], Callable[[], Command]]] = [
    ("other_content", "closed", closed(busy), lambda: Enqueue("r", 1)),
    (
        "other_content",
        "closed",
        closed(busy),
        lambda: EnqueueAll([Enqueue("new"), Enqueue("r", 1)]),
    ),
    ("other_content", "cycle", busy, lambda: Enqueue("p", None, ["p"])),
    (
        "other_content",
        "cycle",
        busy,
        lambda: EnqueueAll([Enqueue("x", None, ["p"]), Enqueue("r", 1)]),
    ),
    ("other_content", "full", full, lambda: Enqueue("r", 1)),
    ("other_content", "full", full, lambda: EnqueueAll([Enqueue("new"), Enqueue("r", 1)])),
    ("closed", "cycle", closed(busy), lambda: Enqueue("x", None, ["p"])),
    ("closed", "full", closed(full), lambda: Enqueue("new")),
    ("cycle", "full", full, lambda: Enqueue("new", None, ["new"])),
    (
        "cycle",
        "full",
        full,
        lambda: EnqueueAll([Enqueue("n1"), Enqueue("n2"), Enqueue("x", None, ["p"])]),
    ),
    ("unknown_worker", "stale_lease", busy, lambda: CompleteAndStart(99, None, "w3")),
    ("unknown_worker", "busy", other_pool, lambda: Start("w1")),
    ("unknown_worker", "busy", other_pool, lambda: CompleteAndStart(5, None, "w1")),
    ("stale_lease", "busy", busy, lambda: CompleteAndStart(99, None, "w1")),
]


@pytest.mark.parametrize(("first", "second", "queue", "asked"), PAIRS)
def test_of_two_refusals_the_earlier_one_is_raised(
    first: str, second: str, queue: Callable[[], Ledger], asked: Callable[[], Command]
) -> None:
    """For every pair that can apply at once, the one that stands first in the list wins."""
    assert PRECEDENCE.index(first) < PRECEDENCE.index(second)
    q = queue()
    with q.unchanged(), pytest.raises(Refusal) as raised:
        q(asked())
    assert raised.value.name == first


def test_the_list_of_refusals_is_fixed() -> None:
    """Their names are permanent, for a log may hold them; their order is the precedence."""
    assert PRECEDENCE == [
        "bad_value",
        "unknown_worker",
        "other_content",
        "closed",
        "cycle",
        "full",
        "unknown_task",
        "wrong_status",
        "stale_lease",
        "busy",
    ]
    assert set(Refusal.__subclasses__()) == set(REFUSALS)


def test_refusals_fit_the_standard_library() -> None:
    """Who knows nothing of eventq can still catch them."""
    assert issubclass(errors.QueueFull, queue.Full)
    assert issubclass(errors.CycleError, ValueError)
    assert issubclass(errors.UnknownTask, LookupError)
    for refusal in (errors.BadValue, errors.UnknownWorker, errors.OtherContent):
        assert issubclass(refusal, ValueError)


# Purity.


@pytest.mark.parametrize("seed", range(4))
def test_decide_is_pure(seed: int) -> None:
    """The same state, command and time give the same answer, and no state is ever touched."""
    retry = Retry(max_redrives=1, max_releases=1)
    walk = Walk(seed, rich=True, retry=retry, retention=Retention(3))
    kept: list[tuple[State, Any]] = []
    for _ in range(500):
        ledger = walk.ledger
        before, at = ledger.state, ledger.at + timedelta(seconds=1)
        asked = walk.command()
        answers: list[Any] = []
        for _ in range(2):
            try:
                events, state = decide(before, asked, at)
                answers.append((events, told(state)))
            except Refusal as refusal:
                answers.append((type(refusal), str(refusal)))
        assert answers[0] == answers[1]
        if random.Random(seed).random() < 0.5:
            kept.append((before, told(before)))
        if not isinstance(answers[0][0], type):
            ledger(asked)
    for state, facts in kept:
        assert told(state) == facts


def test_random_histories_meet_every_refusal_and_standing() -> None:
    """The random walks of these tests reach what they are meant to reach."""
    refused: set[str] = set()
    stood: set[Status] = set()
    told_of: set[str] = set()
    for seed in range(25):
        walk = Walk(
            seed,
            rich=seed % 2 == 0,
            pool=["w0", "w1"] if seed % 5 == 0 else None,
            capacity=Capacity(4) if seed % 4 == 1 else None,
            retry=Retry(max_redrives=1, max_releases=1),
            retention=Retention(1) if seed % 3 == 2 else None,
        )
        for _ in range(300):
            walk.step()
            walk.ledger.state.check()
            stood |= {task.status for task in walk.ledger.state.tasks()}
        refused |= set(walk.refused)
        told_of |= {type(event).__name__ for e in walk.ledger.entries for event in e.events}
    assert refused == set(PRECEDENCE) - {"bad_value"}
    assert stood == set(Status) - {S.ABSENT, S.FAILED}
    assert told_of == {kind.__name__ for kind in (*TASK_EVENTS, *QUEUE_EVENTS)}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that were looked at, one for each time."""
    found: list[str] = []
    record = Reading.record

    def counted(self: Reading, task: str) -> Any:
        found.append(task)
        return record(self, task)

    monkeypatch.setattr(Reading, "record", counted)
    return found


def test_deciding_costs_nothing_that_grows_with_the_number_of_tasks(looked: list[str]) -> None:
    """A command about one of 20,000 tasks looks at a few of them, and walks no list."""
    q = Ledger(check=False, capacity=Capacity(10**6), retry=Retry(max_attempts=None))
    q(EnqueueAll([Enqueue(name) for name in names(20_000)]))
    looked.clear()
    q.do(Start("w"), Enqueue("more"), Cancel("t500"), Tick(), Close())
    assert 0 < len(looked) < 20


def test_completing_costs_nothing_that_grows_with_what_a_dependent_names(looked: list[str]) -> None:
    """What a BLOCKED task waits for besides is no matter: a task that ran never blocked it."""
    q = Ledger(check=False).tasks(r="").kill("r")
    above = names(1000)
    q(EnqueueAll([*map(Enqueue, above), Enqueue("x", None, [*above, "r"])]))
    q.start()
    q.start()
    q(Complete(q.lease("t1")))
    looked.clear()
    q(Complete(q.lease("t0")))
    assert 0 < len(looked) < 20


def test_finding_a_worker_costs_nothing_that_grows_with_the_pool() -> None:
    """One of 1,000 workers is compared with a few others at most."""

    class Worker:
        compared = 0

        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            return self.number

        def __eq__(self, other: object) -> bool:
            Worker.compared += 1
            return isinstance(other, Worker) and self.number == other.number

    q = Ledger(check=False, pool=[Worker(i) for i in range(1000)]).tasks(a="")
    Worker.compared = 0
    q(Start(Worker(999)))
    assert Worker.compared < 20
