"""A queue and the model of it, asked the same things side by side; and what fired meanwhile.

`Pair.ask` is one step: what the model foretells has to happen. The same steps are taken from a
seeded source (`drive`) and by the state machine of `eventq.testing.machine`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any, NoReturn

from attrs import asdict, define, field

from eventq.core.commands import Command, Enqueue, EnqueueAll, Open
from eventq.core.errors import BadValue, CycleError, Refusal
from eventq.core.events import Event, Opened, TaskEvent
from eventq.core.lifecycle import LEADS, QUEUE, Status
from eventq.core.policy import Policy
from eventq.testing.adapter import Adapter, DurableAdapter, Maker
from eventq.testing.asks import Ask, draw_ask
from eventq.testing.drawing import Draw, Seeded, draw_policy, draw_time
from eventq.testing.facts import Look, canonical
from eventq.testing.model import Model, Outcome
from eventq.testing.shortest import shortest

__all__ = ["Fired", "Pair", "Ticking", "crash", "drive", "step"]


class Ticking:
    """A clock that goes on by a second, or by any other time, each time it is told to."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def tick(self, by: timedelta = timedelta(seconds=1)) -> None:
        self.now += by


@define
class Fired:
    """How often each cell of the lifecycle tables fired, and each refusal of each command."""

    cells: Counter[tuple[str, str]] = field(factory=Counter)
    """By the name of the event and where the task (or the queue) stood before it."""

    refusals: Counter[tuple[str, str]] = field(factory=Counter)
    """By the name of the refusal and that of the command."""

    whys: Counter[str] = field(factory=Counter)
    """By the kind of each step of an answer to `why`."""

    @staticmethod
    def all_cells() -> set[tuple[str, str]]:
        """Every cell of both tables that leads anywhere."""
        of_tasks = {(event.__name__, str(s)) for event, row in LEADS.items() for s in row}
        return of_tasks | {(event.__name__, s) for event, row in QUEUE.items() for s in row.sources}


class Pair:
    """One queue and its model.

    `ask` raises AssertionError, with all that was asked so far, when the queue does anything but
    what the model foretells.
    """

    def __init__(self, policy: Policy, maker: Maker, fired: Fired | None = None) -> None:
        self.fired = fired or Fired()
        self.clock = Ticking()
        self.asked: list[str] = [f"open under {policy}"]
        self.model = Model()
        self.queue: Adapter = maker(policy, self.clock)
        self.model.do(Open(self.queue.id, policy), self.clock())
        self.fired.cells["Opened", "absent"] += 1
        self._told: dict[str, Status] = {}
        self._before = self.model.copy(), self._told
        self._compare_looks()

    def ask(self, ask: Ask) -> None:
        """Ask the queue and the model the same, and compare everything."""
        self.asked.append(str(ask))
        if len(self.asked) % 4:
            self.clock.tick()
        self._before = self.model.copy(), dict(self._told)
        command = None if ask.bad else ask.command(durable=self.queue.durable)
        answer, seen = self._seen(ask)
        look = self.queue.look()
        outcome, foretold = self._foretold(command, self._time(look))
        if seen is not None:
            self.fired.refusals[seen.name, ask.do] += 1
            self._compare_refusals(foretold, seen, command)
        elif outcome is None:
            self._fail(f"answers {answer!r} where the model foretells {foretold!r}")
        else:
            self._compare("answers", outcome.answer, answer)
        self._compare_events(outcome.events if outcome else (), self.queue.events())
        self._compare_looks(look)
        self._check()

    def pass_time(self, by: timedelta) -> None:
        """Let the clock jump, forward or back."""
        self.asked.append(f"the clock jumps by {by.total_seconds()} s")
        self.clock.tick(by)

    def reopen(self) -> None:
        """Let go of the queue and open it again: nothing may differ."""
        assert isinstance(self.queue, DurableAdapter)
        self.asked.append("reopen")
        self.queue.reopen()
        self._compare_looks()
        self._check()

    def snapshot(self) -> None:
        """Keep the state as it is, for the next to open the queue."""
        assert isinstance(self.queue, DurableAdapter)
        self.asked.append("snapshot")
        self.queue.snapshot()
        self._check()

    def crash(self, cut: int, *, zeros: bool = False) -> None:
        """Lose the process and the last bytes of the log: with more than the last newline of its
        line, the last entry is lost, and the model goes back to before it."""
        assert isinstance(self.queue, DurableAdapter)
        self.asked.append(f"crash, with {cut} bytes {'empty' if zeros else 'cut'}")
        self.queue.crash(cut, zeros=zeros)
        if cut > 1:
            self.model, self._told = self._before
        self._before = self.model, self._told
        self._compare_looks()
        self._check()

    def can_lose(self) -> int:
        """How many bytes a crash can cut so that the model knows the state before."""
        if not isinstance(self.queue, DurableAdapter) or self._before[0].seq == self.model.seq:
            return 0
        return self.queue.last_line()

    def _seen(self, ask: Ask) -> tuple[Any, Refusal | None]:
        """What the queue answers, or how it refuses."""
        try:
            return self.queue.ask(ask.do, ask.arguments), None
        except Refusal as refusal:
            return None, refusal
        except Exception as error:
            raise AssertionError(self._story(f"falls over: {error!r}")) from error

    def _time(self, look: Look) -> datetime:
        """The time of what was asked: that of the clock, unless it is behind the last entry.

        Then the queue goes on from there by a clock of its own, and is believed. Where it has
        written nothing nobody can know its time, and nothing was due by it.
        """
        now, last = self.clock(), self.model.at
        assert last is not None
        if now >= last or look.at is None:
            return now
        if look.at < last:
            self._fail(f"lets time fall from {last} to {look.at}")
        return look.at

    def _foretold(
        self, command: Command | None, at: datetime
    ) -> tuple[Outcome, None] | tuple[None, Refusal]:
        if command is None:
            return None, BadValue("no queue can take these values")
        try:
            return self.model.do(command, at), None
        except Refusal as refusal:
            return None, refusal

    # Comparing.

    def _story(self, what: str) -> str:
        return "\n  ".join([f"the queue {what}\nasked so far:", *self.asked])

    def _fail(self, what: str) -> NoReturn:
        raise AssertionError(self._story(what))

    def _compare(self, what: str, foretold: object, seen: object) -> None:
        if foretold != seen:
            self._fail(f"{what}\n  {seen!r}\nwhere the model foretells\n  {foretold!r}")

    def _compare_refusals(
        self, foretold: Refusal | None, seen: Refusal, command: Command | None
    ) -> None:
        if type(foretold) is not type(seen):
            self._fail(f"refuses with {seen!r} where the model foretells {foretold!r}")
        if isinstance(seen, CycleError):
            if not self._is_cycle(seen.cycle, command):
                self._fail(f"names a cycle that is none: {seen.cycle}")
        else:
            self._compare("says of the refusal", vars(foretold), vars(seen))

    def _is_cycle(self, cycle: list[str], command: Command | None) -> bool:
        """Whether each of these would need the next, and the first is also the last."""
        assert isinstance(command, Enqueue | EnqueueAll)
        needs = self._before[0].needs_with(command)
        return (
            len(cycle) > 1
            and cycle[0] == cycle[-1]
            and len(set(cycle)) == len(cycle) - 1
            and all(above in needs.get(below, ()) for below, above in pairwise(cycle))
        )

    def _compare_events(self, foretold: tuple[Event, ...], seen: Any) -> None:
        self._compare("tells", _plainly(foretold), _plainly(seen))
        for event in seen:
            if isinstance(event, TaskEvent):
                status = self._told.get(event.task, Status.ABSENT)
                self.fired.cells[type(event).__name__, str(status)] += 1
                self._told[event.task] = LEADS[type(event)][status]
            elif not isinstance(event, Opened):
                row = QUEUE[type(event)]
                before = getattr(self._before[0], row.moves)
                self.fired.cells[type(event).__name__, before] += 1

    def _compare_looks(self, look: Look | None = None) -> None:
        mine = self.model.look()
        for steps in (mine.why or {}).values():
            self.fired.whys.update(step["kind"] for step in steps)
        differences = mine.differences(look or self.queue.look())
        if differences:
            self._fail(
                "shows otherwise than the model (first what the model foretells):\n  "
                + "\n  ".join(differences)
            )

    def _check(self) -> None:
        try:
            self.queue.check()
        except AssertionError as error:
            self._fail(f"breaks a law of its own: {error}")


def _plainly(events: Any) -> list[tuple[str, dict[str, Any]]]:
    return [
        (
            type(event).__name__,
            {name: canonical(value) for name, value in asdict(event, recurse=False).items()},
        )
        for event in events
    ]


def crash(pair: Pair, draw: Draw) -> None:
    """Crash the queue, with some of its last line lost if it can be."""
    size = pair.can_lose()
    ends = [cut for cut in (0, 1, 2, size - 1, size) if 0 <= cut <= size]
    cut = draw.pick(ends) if draw.chance(50) else draw.pick(range(size + 1))
    pair.crash(cut, zeros=cut > 1 and draw.chance(20))


def step(pair: Pair, draw: Draw) -> None:
    """Do anything that may be done with a queue."""
    if pair.queue.durable and draw.chance(12):
        what = draw.pick(("crash", "reopen", "crash", "snapshot"))
        if what == "crash":
            crash(pair, draw)
        elif what == "reopen":
            pair.reopen()
        else:
            pair.snapshot()
    else:
        if draw.chance(25):
            pair.pass_time(draw_time(draw))
        pair.ask(draw_ask(pair.model, draw, durable=pair.queue.durable))


def drive(
    seed: int, commands: int, maker: Maker, fired: Fired | None = None, *, tries: int = 500
) -> Fired:
    """Ask one queue after the other so many commands in all, from a seeded source.

    The same seed asks the same, so that a failure comes back. Raises AssertionError where a queue
    differs from the model, with all that was asked of it: the shortest way there that is found in
    so many `tries` of shorter ones.
    """
    fired = fired or Fired()
    source = Random(seed)  # noqa: S311  # that it can be foretold is the point
    while commands > 0:
        policy = draw_policy(Seeded(source))
        seeds = [source.getrandbits(32) for _ in range(min(commands, source.choice((20, 60, 100))))]
        commands -= len(seeds)
        difference, taken = _walk(policy, seeds, maker, fired)
        if difference is not None:
            raise _shortest(policy, seeds[:taken], maker, tries) or difference
    return fired


def _walk(
    policy: Policy, seeds: Sequence[int], maker: Maker, fired: Fired | None = None
) -> tuple[AssertionError | None, int]:
    """The difference that so many steps lead to, each drawn from a source of its own, if they do;
    and how many were taken."""
    pair, taken = None, 0
    try:
        pair = Pair(policy, maker, fired)
        for seed in seeds:
            taken += 1
            step(pair, Seeded(Random(seed)))  # noqa: S311  # as above
    except AssertionError as difference:
        if pair is not None:
            with suppress(Exception):  # the difference is what is to be told
                pair.queue.shut()
        return difference, taken
    pair.queue.shut()
    return None, taken


def _shortest(
    policy: Policy, seeds: Sequence[int], maker: Maker, tries: int
) -> AssertionError | None:
    """The difference at the end of the shortest way that is found to one, if it comes back; under
    the plainest policy, if that does."""

    def leads(way: Sequence[int]) -> int | None:
        difference, taken = _walk(policy, way, maker)
        return None if difference is None else taken

    if tries > 0 and _walk(Policy(), seeds, maker)[0] is not None:
        policy = Policy()
    return _walk(policy, shortest(seeds, leads, tries), maker)[0]
