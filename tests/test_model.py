"""The reference model: what it shares with the core, and what it foretells by itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventq.core.commands import (
    Cancel,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Redrive,
    Restore,
    Start,
    Tick,
)
from eventq.core.errors import CycleError, QueueFull, StaleLease, WorkerBusy
from eventq.core.events import (
    Blocked,
    Cancelled,
    Completed,
    Died,
    Enqueued,
    Event,
    Failed,
    Forgotten,
    Readied,
    Redriven,
    Restored,
    Started,
    Unblocked,
)
from eventq.core.lifecycle import Status
from eventq.core.policy import Capacity, Policy, Retention, Retry
from eventq.testing.facts import DUE_AT_MOST
from eventq.testing.model import Model
from eventq.workqueue import WorkQueue

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
TESTING = Path(__file__).parent.parent / "eventq" / "testing"
MODEL = ("facts", "noted", "reasons", "telling", "admission", "model")
"""The files that the model is made of."""


def opened(policy: Policy | None = None, *, admit: str = "") -> Model:
    """A model with these one-letter tasks in its line."""
    model = Model()
    model.do(Open("q", policy or Policy()), AT)
    for name in admit:
        model.do(Enqueue(name), AT)
    return model


def new(name: str, after: str = "") -> Enqueue:
    """A task that needs these one-letter tasks."""
    return Enqueue(name, after=list(after))


def told(model: Model, *commands: Any) -> tuple[Event, ...]:
    """The events of the last of these commands."""
    events: tuple[Event, ...] = ()
    for command in commands:
        events = model.do(command, AT).events
    return events


# What it shares with the core.


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("module", MODEL)
def test_the_model_shares_only_nouns_with_the_core(module: str) -> None:
    """The model imports commands, events, refusals, the policy and the statuses, and no rule."""
    nouns = {f"eventq.core.{name}" for name in ("commands", "errors", "events", "policy")}
    from_eventq = {name for name in imported(TESTING / f"{module}.py") if "eventq" in name}
    own = {f"eventq.testing.{name}" for name in MODEL}
    assert from_eventq <= nouns | own | {"eventq.core.lifecycle", "eventq.core.select"}


@pytest.mark.parametrize("module", MODEL)
def test_the_model_takes_names_alone_from_the_modules_of_rules(module: str) -> None:
    """Of the tables the model knows Status alone, never where an event leads; of selections what
    they hold, never what they choose."""
    noun = {"eventq.core.lifecycle": "Status", "eventq.core.select": "Select"}
    for node in ast.walk(ast.parse((TESTING / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module in noun:
            assert [alias.name for alias in node.names] == [noun[node.module]]


def test_only_the_machine_imports_hypothesis() -> None:
    """The model and the seeded driver run where hypothesis is not installed."""
    for file in TESTING.glob("*.py"):
        assert ("hypothesis" in imported(file)) == (file.stem == "machine"), file
    code = "import eventq.testing.pair, sys; sys.exit('hypothesis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# What it foretells.


def test_a_retry_goes_to_the_back_of_the_line() -> None:
    """A failed attempt is told by Failed and Readied, and the task stands last."""
    model = opened(admit="ab")
    lease = model.seq + 1
    assert told(model, Start("w"), Fail(lease, "no")) == (
        Failed("a", 1, "no", "retryable"),
        Readied("a"),
    )
    assert model.line() == ["b", "a"]


def test_a_death_blocks_what_lies_below_breadth_first() -> None:
    """Nearest first, and dependents in the order in which they were enqueued."""
    model = opened(admit="r")
    told(model, new("d", "c"), new("b", "r"), new("a", "r"))
    told(model, new("c", "a"))
    lease = model.seq + 1
    assert told(model, Start(), Fail(lease, "no", "permanent"))[1:] == (
        Died("r"),
        *(Blocked(name, "r") for name in "bacd"),
    )


def test_a_late_arrival_ties_a_waiting_task_to_a_dead_one() -> None:
    """A task enqueued long before the one in the middle is blocked when that one arrives."""
    model = opened(admit="r")
    lease = model.seq + 2
    told(model, new("z", "m"), Start(), Fail(lease, "no", "permanent"))
    middle = Enqueued("m", None, ("r",), None, 3, None)
    assert told(model, new("m", "r")) == (middle, Blocked("m", "r"), Blocked("z", "r"))
    assert model.look().dead_letters == [
        ("r", Status.DEAD, "failed after 1 attempts: no", "r"),
        ("m", Status.BLOCKED, "blocked by r", "r"),
        ("z", Status.BLOCKED, "blocked by r", "r"),
    ]


def test_unblocked_tasks_are_told_nearest_first() -> None:
    """Two that both name the root are told in the order of their arrival, also where the first
    needs the second."""
    model = opened(admit="r")
    told(model, Cancel("r"), new("b", "ra"), new("a", "r"))
    assert told(model, Restore("r")) == (
        Restored("r"),
        Readied("r"),
        Unblocked("b"),
        Unblocked("a"),
    )


def test_the_root_that_is_shown_follows_the_first_dependency_as_written() -> None:
    """With several roots above, the one shown is found through what stands first in `after`."""
    model = opened(admit="rs")
    told(model, Cancel("s"), Cancel("r"), new("a", "r"), new("b", "as"))
    assert model.root("b") == "r"
    told(model, Restore("r"))
    assert model.root("b") == "s"
    assert [letter[0] for letter in model.look().dead_letters] == ["b"]


def test_a_cancel_by_a_worker_names_the_current_lease() -> None:
    """An ended lease, and that of another task, is refused once the task could be cancelled."""
    model = opened(admit="ab")
    lease = model.seq + 1
    told(model, Start(), Fail(lease, "no"), Start())
    for stale in (lease, lease + 2):
        with pytest.raises(StaleLease):
            model.do(Cancel("a", stale), AT)
    assert told(model, Cancel("b", lease + 2, "no such page")) == (Cancelled("b", "no such page"),)


def test_a_refused_complete_and_start_completes_nothing() -> None:
    """Complete-and-start is refused whole when the worker holds another task."""
    model = opened(admit="ab")
    first = model.seq + 1
    told(model, Start("w"), Start("v"))
    before = model.look()
    with pytest.raises(WorkerBusy) as caught:
        model.do(CompleteAndStart(first, None, "v"), AT)
    assert caught.value.lease == first + 1
    assert model.look() == before


def test_retention_is_carried_out_by_a_start() -> None:
    """What is finished and named by nothing unfinished goes, oldest first, before the hand-out."""
    model = opened(Policy(retention=Retention(1)), admit="abc")
    told(model, Cancel("b"), Cancel("a"))
    assert told(model, Start()) == (Forgotten("b"), Started("c", 1))


def test_one_entry_carries_out_a_thousand_due_things_at_most() -> None:
    """The queue and the model let go of a thousand tasks in one entry, the rest in the next."""
    model, queue = (
        opened(Policy(retention=Retention(0))),
        WorkQueue.in_memory(retention=Retention(0)),
    )
    batch = [Enqueue()] * (DUE_AT_MOST + 5)
    told(model, EnqueueAll(batch))
    for task in queue.enqueue_all(batch):
        told(model, Cancel(task.id))
        queue.cancel(task.id)
    for left in (5, 0):
        queue.tick()
        assert told(model, Tick()) == list(queue.entries())[-1].events
        assert len(model.ids()) == left


def test_room_is_judged_once_and_wanted_ids_need_none() -> None:
    """An id that a PENDING task names is admitted to a full queue; any other is not."""
    model = opened(Policy(Capacity(2)))
    told(model, new("b", "a"), Enqueue("c"))
    with pytest.raises(QueueFull):
        model.do(EnqueueAll([Enqueue("a"), Enqueue("d")]), AT)
    assert told(model, Enqueue("a")) == (Enqueued("a", None, (), None, 3, None), Readied("a"))


def test_a_cycle_is_named_whole() -> None:
    """A cycle that closes through earlier tasks is found, also through one that is CANCELLED."""
    model = opened()
    told(model, new("a", "b"), new("b", "c"), Cancel("b"))
    with pytest.raises(CycleError) as caught:
        model.do(new("c", "a"), AT)
    assert sorted(caught.value.cycle[1:]) == ["a", "b", "c"]
    assert caught.value.cycle[0] == caught.value.cycle[-1]


def test_a_redrive_gives_fresh_attempts() -> None:
    """A redriven task stands in the line with no attempt, and what it blocked is unblocked."""
    model = opened(Policy(retry=Retry(max_attempts=1)), admit="a")
    lease = model.seq + 2
    told(model, new("b", "a"), Start(), Fail(lease, "no"))
    assert told(model, Redrive("a")) == (Redriven("a"), Readied("a"), Unblocked("b"))
    task = model.task("a")
    assert task is not None
    assert (task["attempt"], task["redrives"]) == (0, 1)


def test_a_result_is_kept() -> None:
    """A completed task shows its result, and what needed it enters the line."""
    model = opened(admit="a")
    lease, result = model.seq + 2, object()
    told(model, new("b", "a"), Start())
    assert told(model, Complete(lease, result)) == (Completed("a", result), Readied("b"))
    task = model.task("a")
    assert task is not None
    assert task["result"] is result
