"""WorkQueue held against the model, in memory and on disk, by hypothesis and by seeded draws."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from eventq.core import admission, backoff, decide, downstream, state
from eventq.core.commands import Open
from eventq.core.errors import Refusal, StaleLease
from eventq.core.events import Event, Readied
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy, Retention
from eventq.queries import why
from eventq.queries.why import Kind
from eventq.testing.adapter import Adapter, Clock, DurableAdapter, Maker
from eventq.testing.asks import Ask
from eventq.testing.facts import Look
from eventq.testing.machine import DurableQueueMachine, QueueMachine
from eventq.testing.model import Model
from eventq.testing.pair import Fired, Pair, Ticking, drive
from eventq.testing.shortest import shortest
from eventq.testing.workqueue import DurableWorkQueueAdapter, WorkQueueAdapter

evolve_module = sys.modules["eventq.core.evolve"]

SEED = 20261130
COMMANDS = 6_000
COMMANDS_ON_DISK = 2_000


@pytest.fixture(scope="module", autouse=True)
def _a_monotonic_clock_that_can_be_foretold() -> Iterator[None]:
    """What runs while a clock is behind the log: a millisecond at each look."""
    looks = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventq.view.time", SimpleNamespace(monotonic=lambda: next(looks) / 1000))
        yield


REFUSED = {
    "bad_value": {
        "enqueue",
        "enqueue_all",
        "start",
        "complete",
        "complete_and_start",
        "fail",
        "renew",
        "release",
        "redrive",
        "redrive_all",
        "cancel",
        "restore",
        "resolve",
        "reconfigure",
    },
    "unknown_worker": {"start", "complete_and_start"},
    "other_content": {"enqueue", "enqueue_all"},
    "closed": {"enqueue", "enqueue_all"},
    "cycle": {"enqueue", "enqueue_all"},
    "full": {"enqueue", "enqueue_all"},
    "unknown_task": {"redrive", "cancel", "restore", "resolve"},
    "wrong_status": {"redrive", "cancel", "restore", "resolve"},
    "stale_lease": {"complete", "complete_and_start", "fail", "renew", "release", "cancel"},
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


@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "on disk"])
def test_time_in_the_log_neither_falls_nor_stands_still(durable: bool, tmp_path: Path) -> None:
    """While the clock is behind the log, through however many handles, time goes on from there."""
    clock = Ticking()
    make: Maker = below(tmp_path) if durable else WorkQueueAdapter.open
    queue = make(Policy(record=True), clock)
    assert isinstance(queue, WorkQueueAdapter)
    for number in range(40):
        clock.tick(timedelta(seconds=(0, 1, -3600, -86400, 7200)[number % 5]))
        queue.ask("start", {})
    times = [entry.at for entry in queue.queue.entries()]
    assert times == sorted(times)
    assert len(times) == 41
    behind = [b for a, b in itertools.pairwise(times) if b - a < timedelta(seconds=1)]
    assert len(behind) > 30
    assert all(a < b for a, b in itertools.pairwise(times[1:]))
    queue.shut()


# That the queue in memory does what it foretells, and that everything fires.


@pytest.fixture(scope="module")
def fired() -> Fired:
    """What fired while a queue in memory was driven from a seeded source."""
    return drive(SEED, COMMANDS, WorkQueueAdapter.open)


def test_every_cell_of_the_lifecycle_fires(fired: Fired) -> None:
    """Each cell of both tables was reached, none is left for later."""
    assert {cell for cell in Fired.all_cells() if not fired.cells[cell]} == set()


def test_every_refusal_fires(fired: Fired) -> None:
    """Each refusal turned down each command that it can turn down, and no other."""
    seen: dict[str, set[str]] = {}
    for name, do in fired.refusals:
        seen.setdefault(name, set()).add(do)
    assert seen == REFUSED


def test_every_reason_not_to_run_is_compared(fired: Fired) -> None:
    """Each answer to `why` came up often; a task that SUCCEEDED keeps none, and is not asked."""
    assert {kind for kind in Kind if fired.whys[kind] < 20} == {Kind.SUCCEEDED}


# That the harness can object.


class ModelAdapter:
    """A queue made of a model: what the harness says of a queue that has only one thing wrong."""

    durable = False
    id = "q"
    kind: type[Model] = Model

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.model = self.kind()
        self.clock = clock
        self.model.do(Open("q", policy), clock())
        self.told: tuple[Event, ...] = ()

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        self.told = ()
        at = max(self.clock(), self.model.at or self.clock())  # time never falls
        outcome = self.model.do(Ask(do, arguments).command(durable=False), at)
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


class KeyIsPassedOnByAFailure(Model):
    def holds(self, key: str) -> str | None:
        holder = super().holds(key)
        return holder if holder and self.status(holder) is Status.RUNNING else None


class TheDeadKeepTheirKey(Model):
    def may_go(self, task: str) -> bool:
        holder = self.holders().get(self.content(task).key or "")
        return holder in (None, task)


class DueByTimeAlone(Model):
    def due(self) -> list[tuple[datetime, int, str]]:
        return sorted(super().due(), key=lambda one: (one[0], -one[1]))


class DelaysEndTooLate(Model):
    def _line_up(self, task: str, until: datetime | None) -> None:
        super()._line_up(task, until and until + timedelta(seconds=1))


class SelectsTheLastOnes(Model):
    def meant(self, select: Any) -> list[str]:
        names = super().meant(evolve(select, limit=None))
        return names if select.limit is None else names[len(names) - select.limit :]


class RenewsWheneverAsked(Model):
    def _renew(self, command: Any) -> Any:
        longer = evolve(command, lease_for=(command.lease_for or timedelta()) + timedelta(hours=2))
        return super()._renew(longer)


class PausedHandsOut(Model):
    def _hand_out(self, worker: Any, lease_for: Any) -> Any:
        stands, self.dispatch = self.dispatch, "running"
        try:
            return super()._hand_out(worker, lease_for)
        finally:
            self.dispatch = stands


class SiblingsAreTurnedRound(Model):
    def dependents(self, task: str) -> list[str]:
        return super().dependents(task)[::-1]


PLANTED = [
    LineIsReordered,
    LateArrivalIsNotBlocked,
    StaleLeaseIsAccepted,
    RefusalLeavesTraces,
    RetentionKeepsOneMore,
    KeyIsPassedOnByAFailure,
    TheDeadKeepTheirKey,
    DueByTimeAlone,
    DelaysEndTooLate,
    SelectsTheLastOnes,
    RenewsWheneverAsked,
    PausedHandsOut,
    SiblingsAreTurnedRound,
]


def test_a_queue_without_a_mistake_passes() -> None:
    """A queue behind an adapter of a few lines, as a user may write it, is held to the model."""
    adapter: type[Adapter] = ModelAdapter
    drive(SEED, 300, adapter)


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_mistake_is_caught(planted: type[Model]) -> None:
    """A queue that differs in one thing is caught within a few thousand commands."""
    maker = type("Planted", (ModelAdapter,), {"kind": planted})
    with pytest.raises(AssertionError, match="asked so far"):
        drive(SEED, 6000, maker, tries=0)


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
    (downstream, "root_above", lambda *_: None),
    (decide, "_leased", _any_lease),
    (admission, "find_cycle", lambda *_: None),
    (admission, "wanted", lambda *_: False),
    (decide, "block_below", lambda *_: None),
    (admission, "_differs", lambda *_: None),
    (decide, "_due", lambda *_: None),
    (decide, "DUE_LIMIT", 1),
    (decide, "_known_worker", lambda *_: None),
    (state.Reading, "held_by", lambda *_: None),
    (state.State, "root", lambda *_: None),
    (state.Reading, "holder", lambda *_: None),
    (state.Reading, "surplus", lambda *_: iter(())),
    (evolve_module, "place_front", lambda *_: None),
    (backoff, "fraction", lambda *_: 0.5),
    (decide, "delay", lambda *_: timedelta()),
    (decide, "selected", lambda state, _: [record.task.task for record in state.dead()]),
    (admission, "settle", lambda t, name: t.tell(Readied(name))),
    (downstream, "ready", lambda t, record: t.tell(Readied(record.task.task))),
    (why, "_ahead", lambda state, record: max(0, record.mark - 3)),
    (why, "_unmet", lambda state, record: record.task.after),
    (why, "_way_to_missing", lambda *_: {}),
    (why, "_in_the_way", lambda *_: (Kind.UNASKED, None)),
    (why, "_RESTING", {**why._RESTING, Status.PARKED: Kind.DEAD}),
]


@pytest.mark.parametrize(("where", "name", "mutant"), MUTANTS, ids=[name for _, name, _ in MUTANTS])
def test_a_mistake_in_the_core_is_caught(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Any
) -> None:
    """The line turned round, no block for a late arrival, any lease taken for a current one, no
    jitter, and so on: each is caught within a few thousand commands."""
    monkeypatch.setattr(where, name, mutant)
    with pytest.raises(AssertionError, match="asked so far"):
        # With SEED itself, a cycle that was let in is first met by what walks up to its root.
        drive(SEED + 1, 3000, WorkQueueAdapter.open, tries=0)


@pytest.mark.parametrize(
    ("where", "name", "mutant", "steps"),
    [
        (downstream, "root_above", lambda *_: None, 6),
        (decide, "_leased", _any_lease, 4),
        (decide, "block_below", lambda *_: None, 5),
    ],
)
def test_the_shortest_way_to_a_difference_is_told(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, mutant: Any, steps: int
) -> None:
    """Not all that was asked on the way on which it was found; and the same each time."""
    monkeypatch.setattr(where, name, mutant)
    told = []
    for tries in (0, 500, 500):
        with pytest.raises(AssertionError, match="asked so far") as caught:
            drive(SEED, 3000, WorkQueueAdapter.open, tries=tries)
        told.append(str(caught.value).partition("asked so far:\n")[2].splitlines())
    assert told[1] == told[2]
    assert len(told[1]) <= steps < len(told[0])


@given(st.lists(st.integers(0, 9), max_size=40), st.sets(st.integers(0, 9), min_size=1, max_size=3))
def test_no_step_of_the_shortest_way_can_be_left_out(way: list[int], needed: set[int]) -> None:
    """Where it leads there once all of these were taken."""

    def leads(steps: Sequence[int]) -> int | None:
        for taken in range(len(steps) + 1):
            if needed <= set(steps[:taken]):
                return taken
        return None

    if leads(way) is not None:
        found = shortest(way, leads, 10_000)
        assert sorted(found) == sorted(needed)
        assert leads(shortest(way, leads, 3)) is not None
        assert shortest(way, leads, 0) == way


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
