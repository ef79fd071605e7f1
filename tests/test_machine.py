"""WorkQueue held against the model, in memory and on disk, by hypothesis and by seeded draws."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from eventq.core import decide, state
from eventq.core.commands import Open
from eventq.core.errors import Refusal, StaleLease
from eventq.core.events import Event
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy, Retention
from eventq.testing.adapter import Adapter, Clock, DurableAdapter, Maker
from eventq.testing.asks import Ask
from eventq.testing.facts import Look
from eventq.testing.machine import DurableQueueMachine, QueueMachine
from eventq.testing.model import Model
from eventq.testing.pair import Fired, Pair, drive
from eventq.testing.workqueue import DurableWorkQueueAdapter, WorkQueueAdapter

SEED = 20261130
COMMANDS = 12_000
COMMANDS_ON_DISK = 2_000

LATER = {
    ("Cancelled", "DELAYED"),
    ("Delayed", "FAILED"),
    ("Delayed", "PENDING"),
    ("Expired", "RUNNING"),
    ("Paused", "running"),
    ("Readied", "DELAYED"),
    ("Reconfigured", "closed"),
    ("Reconfigured", "open"),
    ("Renewed", "RUNNING"),
    ("Resolved", "CANCELLED"),
    ("Resolved", "DEAD"),
    ("Resolved", "PARKED"),
    ("Resumed", "paused"),
}
"""The cells of the lifecycle whose commands are still to come. This list only ever shrinks."""

REFUSED = {
    "bad_value": {
        "enqueue",
        "enqueue_all",
        "start",
        "complete",
        "complete_and_start",
        "fail",
        "release",
        "redrive",
        "cancel",
        "restore",
    },
    "unknown_worker": {"start", "complete_and_start"},
    "other_content": {"enqueue", "enqueue_all"},
    "closed": {"enqueue", "enqueue_all"},
    "cycle": {"enqueue", "enqueue_all"},
    "full": {"enqueue", "enqueue_all"},
    "unknown_task": {"redrive", "cancel", "restore"},
    "wrong_status": {"redrive", "cancel", "restore"},
    "stale_lease": {"complete", "complete_and_start", "fail", "release", "cancel"},
    "busy": {"start", "complete_and_start"},
}
"""Which commands are turned down by which refusal."""

TestQueueInMemory = QueueMachine.TestCase
TestQueueInMemory.__doc__ = "A queue in memory does what the model foretells."

TestQueueOnDisk = DurableQueueMachine.TestCase
TestQueueOnDisk.__doc__ = "So does one on disk, closed, opened, crashed and kept in snapshots."
TestQueueOnDisk.settings = settings(max_examples=max(5, settings().max_examples // 4))


def below(path: Path) -> Maker:
    """Opens each queue in a new directory below this one."""
    number = itertools.count()

    def make(policy: Policy, clock: Clock) -> Adapter:
        return DurableWorkQueueAdapter(path / str(next(number)), policy, clock)

    return make


def test_a_queue_on_disk_does_what_the_model_foretells(tmp_path: Path) -> None:
    """Also when it is opened again, crashes and loses its last entry, or begins at a snapshot."""
    fired = drive(SEED, COMMANDS_ON_DISK, below(tmp_path))
    assert fired.cells["Completed", "RUNNING"] > 10
    assert any((tmp_path / str(n) / "torn").exists() for n in range(len(list(tmp_path.iterdir()))))


def test_a_crash_at_any_byte_loses_the_last_entry_or_nothing(tmp_path: Path) -> None:
    """Cut anywhere, the last line is lost; without its newline alone, it is kept."""
    make = below(tmp_path)
    pair = Pair(Policy(), make)
    pair.ask(Ask("enqueue", {"id": "a"}))
    size = pair.can_lose()
    assert size > 100
    for cut in range(size + 1):
        pair.crash(cut, zeros=cut > 1 and cut % 5 == 0)
        assert pair.model.ids() == ([] if cut > 1 else ["a"])
        pair.ask(Ask("enqueue", {"id": "a"}))
        if cut < 2:  # the entry is there, and asking again wrote nothing: begin anew
            pair.queue.shut()
            pair = Pair(Policy(), make)
            pair.ask(Ask("enqueue", {"id": "a"}))
    pair.queue.shut()


def test_a_walk_along_dependencies_ends_at_a_succeeded_task() -> None:
    """No cycle closes through one, also when what it needed was forgotten and comes again."""
    pair = Pair(Policy(retention=Retention(1)), WorkQueueAdapter.open)
    pair.ask(Ask("enqueue", {"id": "a"}))
    pair.ask(Ask("enqueue", {"id": "x", "after": ["a"]}))
    for _ in "ax":
        pair.ask(Ask("start"))
        pair.ask(Ask("complete", {"lease": pair.model.seq}))
    pair.ask(Ask("tick"))
    assert pair.model.ids() == ["x"]
    pair.ask(Ask("enqueue", {"id": "p", "after": ["a"]}))
    pair.ask(Ask("enqueue", {"id": "a", "after": ["x"]}))
    assert pair.model.status("a") is Status.READY


# That the queue in memory does what it foretells, and that everything fires.


@pytest.fixture(scope="module")
def fired() -> Fired:
    """What fired while a queue in memory was driven from a seeded source."""
    return drive(SEED, COMMANDS, WorkQueueAdapter.open)


def test_every_cell_of_the_lifecycle_fires(fired: Fired) -> None:
    """Each cell of both tables that a command can reach was reached."""
    assert {cell for cell in Fired.all_cells() if not fired.cells[cell]} - LATER == set()


def test_the_list_of_cells_to_come_holds_nothing_that_fires(fired: Fired) -> None:
    """A cell leaves the list as soon as a command reaches it, and only real cells are listed."""
    assert {cell for cell in LATER if fired.cells[cell]} == set()
    assert Fired.all_cells() >= LATER


def test_every_refusal_fires(fired: Fired) -> None:
    """Each refusal turned down each command that it can turn down, and no other."""
    seen: dict[str, set[str]] = {}
    for name, do in fired.refusals:
        seen.setdefault(name, set()).add(do)
    assert seen == REFUSED


# That the harness can object.


class ModelAdapter:
    """A queue made of a model: what the harness says of a queue that has only one thing wrong."""

    durable = False
    kind: type[Model] = Model

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.model = self.kind()
        self.clock = clock
        self.model.do(Open("q", policy), clock())
        self.told: tuple[Event, ...] = ()

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        self.told = ()
        outcome = self.model.do(Ask(do, arguments).command(durable=False), self.clock())
        self.told = outcome.events
        return outcome.answer

    def events(self) -> Sequence[Event]:
        return self.told

    def look(self) -> Look:
        return self.model.look()

    def check(self) -> None:
        pass

    def shut(self) -> None:
        pass


class LineIsReordered(Model):
    def line(self) -> list[str]:
        return sorted(super().line())


class LateArrivalIsNotBlocked(Model):
    def roots_above(self, task: str) -> set[str]:
        # Roots are looked for only where all that it needs was there when it came.
        after = self.content(task).after
        older = self.ids()[: self.ids().index(task)]
        return super().roots_above(task) if set(after) <= set(older) else set()


class StaleLeaseIsAccepted(Model):
    def holder(self, lease: int) -> str | None:
        running = [self.holder_now(lease) for lease in self.leases()]
        return super().holder(lease) or (running[0] if running else None)

    def holder_now(self, lease: int) -> str | None:
        return super().holder(lease)


class RefusalLeavesTraces(Model):
    def do(self, command: Any, at: datetime) -> Any:
        try:
            return super().do(command, at)
        except Refusal:
            self._tasks.pop(next(reversed(self._tasks), ""), None)
            raise


class RetentionKeepsOneMore(Model):
    def letting_go(self) -> list[str]:
        return super().letting_go()[:-1]


class SiblingsAreTurnedRound(Model):
    def dependents(self, task: str) -> list[str]:
        return super().dependents(task)[::-1]


PLANTED = [
    LineIsReordered,
    LateArrivalIsNotBlocked,
    StaleLeaseIsAccepted,
    RefusalLeavesTraces,
    RetentionKeepsOneMore,
    SiblingsAreTurnedRound,
]


def test_a_queue_without_a_mistake_passes() -> None:
    """A queue behind an adapter of a few lines, as a user may write it, is held to the model."""
    adapter: type[Adapter] = ModelAdapter
    drive(SEED, 300, adapter)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_caught(planted: type[Model]) -> None:
    """A queue that differs in one thing is caught within a few hundred commands."""
    maker = type("Planted", (ModelAdapter,), {"kind": planted})
    with pytest.raises(AssertionError, match="asked so far"):
        drive(SEED, 2000, maker)


def _last(reading: Any) -> Any:
    line = list(reading._listed(reading.in_line))
    return line[-1] if line else None


def _any_lease(state: Any, lease: int, asked: str) -> Any:
    leased = state.leased(lease) or next(iter(map(state.leased, state.leases)), None)
    if leased is None:
        raise StaleLease(lease, asked)
    return leased


MUTANTS: list[tuple[Any, str, Any]] = [
    (state.Reading, "first", _last),
    (decide, "root_above", lambda *_: None),
    (decide, "_leased", _any_lease),
    (decide, "find_cycle", lambda *_: None),
    (decide, "wanted", lambda *_: False),
    (decide, "_block_below", lambda *_: None),
    (decide, "_differs", lambda *_: None),
    (decide, "_due", lambda *_: None),
    (decide, "DUE_LIMIT", 1),
    (decide, "_known_worker", lambda *_: None),
    (state.Reading, "held_by", lambda *_: None),
    (state.Reading, "root", lambda *_: None),
]


@pytest.mark.parametrize(("where", "name", "mutant"), MUTANTS, ids=lambda value: str(value)[-20:])
def test_a_mistake_in_the_core_is_caught(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Any
) -> None:
    """The line turned round, no block for a late arrival, any lease taken for a current one, and
    so on: each is caught within a few thousand commands."""
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises(AssertionError, match="asked so far"):
        drive(SEED, 3000, WorkQueueAdapter.open)


# That hypothesis can object.


class Wrong(WorkQueueAdapter):
    """A queue with a mistake in what it shows."""

    def look(self) -> Look:
        look = super().look()
        look.line.reverse()
        return look


class Silent(WorkQueueAdapter):
    """A queue that forgets to tell of what it blocked."""

    def events(self) -> Sequence[Event]:
        return [event for event in super().events() if type(event).__name__ != "Blocked"]


class Lenient(WorkQueueAdapter):
    """A queue that takes a lease that has ended for a repeat."""

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        try:
            return super().ask(do, arguments)
        except LookupError:
            raise
        except RuntimeError:
            return None


@pytest.mark.parametrize("wrong", [Wrong, Silent, Lenient])
def test_the_machine_catches_a_wrong_queue(wrong: type[WorkQueueAdapter]) -> None:
    """A line turned round, an event not told, a stale lease accepted: each is found."""

    class Machine(QueueMachine):
        def make(self, policy: Policy, clock: Clock) -> Adapter:
            return wrong.open(policy, clock)

    once = settings(max_examples=200, phases=[Phase.generate])
    with pytest.raises(AssertionError, match="asked so far"):
        run_state_machine_as_test(Machine, settings=once)


def test_only_a_queue_that_can_be_crashed_is_crashed(tmp_path: Path) -> None:
    """The harness tells a queue that outlives its process from one that does not by its methods."""
    for maker, durable in ((WorkQueueAdapter.open, False), (below(tmp_path), True)):
        queue = Pair(Policy(), maker).queue
        assert isinstance(queue, DurableAdapter) is durable
        assert queue.durable is durable
        queue.shut()
