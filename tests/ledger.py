"""A queue made of the core alone, for tests: it decides, folds again, and keeps every entry.

Each command that a `Ledger` accepts is put through the laws of the core at once: folding its
events with `evolve` gives the state that `decide` gave, and the command read back from the entry,
decided again on the state before, gives the same events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve as with_changes

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
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
    command,
)
from eventq.core.decide import decide
from eventq.core.errors import Refusal
from eventq.core.events import Cancelled, Entry, Event, Resolved
from eventq.core.evolve import evolve
from eventq.core.lifecycle import LEADS, Status
from eventq.core.policy import Keys, Policy
from eventq.core.record import Task
from eventq.core.select import Select
from eventq.core.state import State

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def told(state: State) -> tuple[Any, ...]:
    """Everything that can be asked of a state, as plain values that no later fold can reach."""
    return (
        state.queue,
        state.policy,
        state.seq,
        state.at,
        state.position,
        state.admission,
        state.dispatch,
        state.counts(),
        tuple(state.tasks()),
        tuple(task.id for task in state.line()),
        tuple(state.running()),
        tuple(state.dead_letters()),
        tuple(state.parked()),
        tuple(state.in_finished),
        tuple(state.edges),
        tuple(state.sleeping),
        tuple(state.due),
        tuple(sorted(state.holders.items())),
        tuple(sorted(state.fronts.items())),
        tuple(state.by_key),
        tuple(state.behind_dead),
        tuple(sorted((repr(worker), lease) for worker, lease in state.busy.items())),
        tuple(sorted(state.leases.items())),
        state.next_due(),
    )


class Ledger:
    """Opens a queue under the given policy; call it with a command to get the events."""

    def __init__(self, *, check: bool = True, **policy: Any) -> None:
        self.state = State()
        self.entries: list[Entry] = []
        self.check = check
        self.at = NOON
        self(Open("q", Policy(**policy)))

    def __call__(self, asked: Command) -> list[Event]:
        self.at += timedelta(seconds=1)
        before = self.state
        events, after = decide(before, asked, self.at)
        if not events:
            assert after is before
            return []
        entry = Entry(before.seq + 1, self.at, asked.do, events, asked.ask())
        if self.check:
            assert decide(before, command(entry), self.at)[0] == events
            assert evolve(before, entry) == after
            after.check()
        self.entries.append(entry)
        self.state = after
        return list(events)

    def do(self, *asked: Command) -> Ledger:
        """Carry out all of these, each of which must be accepted."""
        for one in asked:
            self(one)
        return self

    def fold(self, *events: Event) -> Ledger:
        """Put these events into the log as one entry, whatever the rules would say."""
        self.at += timedelta(seconds=1)
        entry = Entry(self.state.seq + 1, self.at, "tick", events)
        self.state = evolve(self.state, entry)
        self.entries.append(entry)
        return self

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What happens in this block leaves the state exactly as it is."""
        state, before = self.state, told(self.state)
        yield
        assert self.state is state
        assert told(state) == before

    # Shorter ways to ask.

    def tasks(self, **after: str) -> Ledger:
        """Enqueue one task for each name, after those that its text lists."""
        return self.do(*(Enqueue(name, None, names.split()) for name, names in after.items()))

    def start(self, worker: Any = None) -> int:
        """Hand out the first in the line; the id of its lease."""
        self(Start(worker))
        return self.state.seq

    def lease(self, task: str) -> int:
        record = self.state.record(task)
        assert record is not None
        assert record.lease is not None, f"{task} is {record.status}"
        return record.lease

    def run(self, task: str) -> int:
        """Hand out until this task is out; its lease."""
        while self.status(task) is not Status.RUNNING:
            assert self(Start()), f"{task} is {self.status(task)} and the line is empty"
        return self.lease(task)

    def succeed(self, *tasks: str) -> Ledger:
        return self.do(*(Complete(self.run(task)) for task in tasks))

    def kill(self, *tasks: str) -> Ledger:
        """Let these die at once."""
        return self.do(*(Fail(self.run(task), "boom", "permanent") for task in tasks))

    def task(self, name: str) -> Task:
        task = self.state.task(name)
        assert task is not None
        return task

    def status(self, name: str) -> Status:
        record = self.state.record(name)
        return Status.ABSENT if record is None else record.status

    def line(self) -> list[str]:
        return [task.id for task in self.state.line()]

    def letters(self) -> list[tuple[str, str]]:
        return [(letter.id, letter.reason) for letter in self.state.dead_letters()]


def names(n: int) -> list[str]:
    return [f"t{i}" for i in range(n)]


class Walk:
    """Random commands over a few ids and workers, weighted so that rare standings are reached.

    A `rich` walk asks for keys, delays and leases that run out as well, pauses, and changes the
    policy on the way.
    """

    def __init__(
        self, seed: int, *, ids: int = 9, workers: int = 3, rich: bool = False, **policy: Any
    ) -> None:
        self.rng = random.Random(seed)
        self.rich = rich
        self.ids = names(ids)
        self.workers = [None, *(f"w{i}" for i in range(workers))]
        self.ledger = Ledger(check=False, **policy)
        self.refused: dict[str, int] = {}

    def _lease(self) -> int:
        rng, leases = self.rng, sorted(self.ledger.state.leases)
        if leases and rng.random() < 0.9:
            return rng.choice(leases)
        return rng.randint(1, self.ledger.state.seq + 1)

    def _where(self, *statuses: Status) -> str:
        """A task that stands in one of these, most of the time; else any id."""
        rng = self.rng
        known = [*self.ids, *(task.id for task in self.ledger.state.tasks())]
        there = [name for name in known if self.ledger.status(name) in statuses]
        return rng.choice(there) if there and rng.random() < 0.8 else rng.choice(self.ids)

    def _enqueue(self) -> Enqueue:
        rng = self.rng
        name = self._where(Status.ABSENT) if rng.random() < 0.9 else None
        after = rng.sample(self.ids, rng.choice([0, 1, 1, 2, 2, 3]))
        limit = rng.choice([1, 2, 3, None])
        more: dict[str, Any] = {}
        if self.rich:
            more["key"] = rng.choice([None, "k1", "k2"])
            more["not_before"] = rng.choice([None, self._soon()])
        return Enqueue(name, rng.choice([None, "x"]), after, max_attempts=limit, **more)

    def _soon(self) -> datetime:
        return self.ledger.at + timedelta(seconds=self.rng.randint(1, 12))

    def _length(self) -> int | None:
        return self.rng.choice([None, 3, 20]) if self.rich else None

    def _select(self) -> Select:
        rng = self.rng
        return rng.choice(
            [
                Select(),
                Select(limit=rng.randint(0, 2)),
                Select(error="e"),
                Select(error="lease*", how="glob"),
                Select(tasks=rng.sample(self.ids, 3)),
                Select(died_since=self.ledger.at - timedelta(seconds=20)),
            ]
        )

    def _policy(self) -> Policy:
        policy = self.ledger.state.policy
        keys = Keys(self.rng.choice(["open", "halt"]))
        lease_for = self.rng.choice([None, timedelta(seconds=9)])
        return with_changes(policy, keys=keys, lease_for=lease_for)

    def command(self) -> Command:
        """One that applies where the queue stands, most of the time; else any."""
        rng, count = self.rng, self.ledger.state.count
        out = count(Status.RUNNING)
        free = len(self.ids) - len(self.ledger.state)
        dead = count(Status.DEAD, Status.PARKED)
        left = count(Status.PENDING, Status.READY, Status.BLOCKED) + out + dead
        is_open = self.ledger.state.admission == "open"
        ways: list[tuple[float, int, Callable[[], Command]]] = [
            (12, free > 0 and is_open, self._enqueue),
            (2, free > 0 and is_open, self._batch),
            (6, count(Status.READY), lambda: Start(rng.choice(self.workers), self._length())),
            (3, out, lambda: Complete(self._lease(), rng.choice([None, 1]))),
            (1, out, lambda: CompleteAndStart(self._lease(), None, rng.choice(self.workers))),
            (4, out, self._fail),
            (1, out, lambda: Release(self._lease())),
            (3, dead, lambda: Redrive(self._where(Status.DEAD, Status.PARKED))),
            (1, dead, lambda: RedriveAll(self._select())),
            (1, dead, lambda: Resolve(self._where(*LEADS[Resolved]))),
            (2, left, lambda: Cancel(self._where(*LEADS[Cancelled]))),
            (1, out, lambda: Cancel(self._where(Status.RUNNING), self._lease(), "no")),
            (4, count(Status.CANCELLED), lambda: Restore(self._where(Status.CANCELLED))),
            (0.3, is_open, Close),
            (6, not is_open, Reopen),
            (0.5, True, Tick),
        ]
        if self.rich:
            paused = self.ledger.state.dispatch == "paused"
            ways += [
                (2, out, lambda: Renew(self._lease(), self._length())),
                (0.5, not paused, Pause),
                (3, paused, Resume),
                (0.5, True, lambda: Reconfigure(self._policy())),
                (2, count(Status.DELAYED), Tick),
            ]
        if rng.random() < 0.9:
            ways = [way for way in ways if way[1]]
        return rng.choices([way for _, _, way in ways], [weight for weight, _, _ in ways])[0]()

    def _fail(self) -> Fail:
        kind = self.rng.choice(["retryable", "permanent"])
        return Fail(self._lease(), self.rng.choice(["e", "f"]), kind, self._length())

    def _batch(self) -> EnqueueAll:
        return EnqueueAll([self._enqueue() for _ in range(self.rng.randint(1, 4))])

    def step(self) -> Command | None:
        """Ask one random command; None when it was refused."""
        asked = self.command()
        try:
            self.ledger(asked)
        except Refusal as refusal:
            self.refused[refusal.name] = self.refused.get(refusal.name, 0) + 1
            return None
        return asked

    def walk(self, steps: int) -> Ledger:
        for _ in range(steps):
            self.step()
        return self.ledger
