"""Random schedules of eight workers in simulated time: crashes, stalls, restarts, clock steps.

Nothing here knows how the queue decides. What must hold is read from its log alone, the way an
auditor would: who had what, when, how often, and how each task ended.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from audit import ENDS, FINAL, Audit, may_wait
from hypothesis import settings

from eventq import WorkQueue
from eventq.core.errors import StaleLease, WorkerBusy
from eventq.core.events import TaskEvent
from eventq.core.policy import Backoff, Keys, Policy, Retry
from eventq.core.record import Lease

SCHEDULES = 1000 if settings().max_examples >= 1000 else 150
ON_DISK = 10
"""Every so many a schedule runs on disk, where the queue itself is restarted, too."""

STEPS = 4000
"""After so many a schedule that has not come to its end never will."""

WORKERS = [f"w{n}" for n in range(8)]


@define
class Worker:
    """A worker: what it holds, until when it works, and what it will do then."""

    name: str
    lease: Lease | None = None
    until: float = 0
    then: str = ""


@define
class World:
    """Simulated time, the queue, and the workers."""

    draw: Random
    path: Path | None
    policy: Policy
    passed: float = 0
    step: float = 0
    """How far the clock on the wall is off."""
    queue: WorkQueue = field(init=False)
    workers: list[Worker] = field(factory=lambda: [Worker(name) for name in WORKERS])
    did: Counter[str] = field(factory=Counter)

    def __attrs_post_init__(self) -> None:
        self.queue = self.open()

    def clock(self) -> datetime:
        return datetime(2026, 11, 30, 12, tzinfo=UTC) + timedelta(seconds=self.passed + self.step)

    def open(self) -> WorkQueue:
        told: dict[str, Any] = {
            "retry": self.policy.retry,
            "keys": self.policy.keys,
            "lease_for": self.policy.lease_for,
            "clock": self.clock,
        }
        if self.path is None:
            return WorkQueue.in_memory(**told)
        return WorkQueue.open(self.path, segment_bytes=20_000, **told)

    def restart(self) -> None:
        """The process is gone, and with it whatever its workers were at."""
        if self.path is not None:
            self.queue.shut()
            self.queue = self.open()
            self.did["restart"] += 1
            for worker in self.workers:
                worker.lease = None

    # What workers do.

    def act(self, worker: Worker) -> None:
        if worker.lease is None:
            try:
                lease = self.queue.start(worker.name)
            except WorkerBusy:  # it crashed, and its lease still runs
                self.did["busy"] += 1
            else:
                self.take(worker, lease)
        elif worker.until <= self.passed:
            lease, worker.lease = worker.lease, None
            try:
                self.end(worker, lease)
            except StaleLease:
                self.did["stale"] += 1

    def take(self, worker: Worker, lease: Lease | None) -> None:
        worker.lease = lease
        if lease is not None:
            stalls = self.draw.random() < 0.15
            worker.until = self.passed + self.draw.uniform(*((8, 40) if stalls else (0.1, 7)))
            worker.then = self.draw.choices(
                ("complete", "go on", "fail", "die", "crash", "release", "renew", "cancel"),
                (40, 15, 20, 3, 10, 5, 10, 2),
            )[0]

    def end(self, worker: Worker, lease: Lease) -> None:
        self.did[worker.then] += 1
        match worker.then:
            case "complete":
                self.queue.complete(lease, worker.name)
            case "go on":
                self.take(worker, self.queue.complete_and_start(lease))
            case "fail":
                wait = self.draw.choice((None, None, 0, 3))
                self.queue.fail(lease, "no luck", retry_after=wait)
            case "die":
                self.queue.fail(lease, "no way", kind="permanent")
            case "release":
                self.queue.release(lease)
            case "cancel":
                self.queue.cancel(lease.task, lease=lease)
            case "renew":
                worker.lease = self.queue.renew(lease)
                worker.until, worker.then = self.passed + 4, "complete"

    # The whole schedule.

    def enqueue(self, number: int) -> None:
        earlier = [f"t{n}" for n in range(number)]
        chance = self.draw.random
        self.queue.enqueue(
            f"t{number}",
            after=self.draw.sample(earlier, min(len(earlier), 2)) if chance() < 0.3 else (),
            key=self.draw.choice("kl") if chance() < 0.5 else None,
            not_before=self.clock() + timedelta(seconds=20) if chance() < 0.2 else None,
        )

    def run(self) -> None:
        for number in range(8):
            self.enqueue(number)
        for step in range(STEPS):
            self.passed += self.draw.choice((0, 0.1, 0.3, 1))
            if 0 < step < 300 and step % 40 == 0:
                self.enqueue(7 + step // 40)
            if step < 300 and self.draw.random() < 0.02:
                self.step += self.draw.choice((-3600, -5, -0.5, 5, 60))
                self.did["clock step"] += 1
            if self.draw.random() < 0.01:
                self.restart()
            if step < 300 and self.draw.random() < 0.02:
                self.queue.pause()
            elif self.draw.random() < 0.1:
                self.queue.resume()
            self.act(self.draw.choice(self.workers))
            if step > 300 and self.at_rest():
                return
        raise AssertionError(f"it never comes to rest: {self.queue.state.counts()}")

    def at_rest(self) -> bool:
        state = self.queue.state
        return state.next_due() is None and state.first() is None and not state.running()


def a_world(number: int, path: Path) -> World:
    draw = Random(number)
    backoff = Backoff(draw.choice((0.5, 2)), cap=20, jitter=draw.choice(("none", "full", "equal")))
    retry = Retry(
        max_attempts=draw.choice((1, 2, 3, 5, None)),
        max_redrives=draw.choice((3, 0)),
        max_releases=draw.choice((None, 1)),
        backoff=draw.choice((None, backoff)),
    )
    keys = Keys(draw.choice(("open", "halt")))
    on_disk = number % ON_DISK == 0
    return World(
        draw, path / str(number) if on_disk else None, Policy(None, None, retry, None, 10, keys)
    )


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[World]]:
    """All schedules, run to their end."""
    path = tmp_path_factory.mktemp("schedules")
    ran: list[World] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "eventq.view.time", SimpleNamespace(monotonic=lambda: ran[-1].passed if ran else 0)
        )
        for number in range(SCHEDULES):
            world = a_world(number, path)
            ran.append(world)
            try:
                world.run()
            except AssertionError as error:
                raise AssertionError(f"schedule {number}: {error}") from error
        yield ran
    for world in ran:
        world.queue.shut()


def test_no_two_leases_no_two_of_a_key_no_attempt_too_many(worlds: list[World]) -> None:
    """In no schedule was a task out twice, two of one key out at once, or the limit passed; no
    ended lease counted, nothing followed an end, and time never fell."""
    for number, world in enumerate(worlds):
        audit = Audit()
        try:
            for entry in world.queue.entries():
                audit.read(entry)
        except AssertionError as error:
            raise AssertionError(f"schedule {number}: {error}") from error
        assert not audit.out


def test_every_task_ends_once_and_nothing_waits_that_could_run(worlds: list[World]) -> None:
    """Each has one final status, told by one event; what still waits is behind a shut key."""
    for number, world in enumerate(worlds):
        state = world.queue.state
        state.check()
        ends = Counter(
            event.task
            for entry in world.queue.entries()
            for event in entry.events
            if isinstance(event, TaskEvent) and type(event).__name__ in ENDS
        )
        for task in state.tasks():
            final = task.status in FINAL
            assert ends[task.id] == final, f"schedule {number}: {task}"
            assert final or may_wait(state, task.id), f"schedule {number}: {task} could run"


def test_the_schedules_are_as_rough_as_they_should_be(worlds: list[World]) -> None:
    """Each kind of trouble came up often, and each way for a task to end."""
    did: Counter[str] = sum((world.did for world in worlds), Counter())
    seen = Counter(
        type(event).__name__
        for world in worlds
        for entry in world.queue.entries()
        for event in entry.events
    )
    often = SCHEDULES // 3
    for what in ("complete", "go on", "fail", "crash", "release", "renew", "busy", "stale"):
        assert did[what] > often, what
    assert did["clock step"] > often
    assert did["restart"] > SCHEDULES // ON_DISK
    for event in (*ENDS, "Expired", "Delayed", "Renewed", "Released", "Paused"):
        assert seen[event] > SCHEDULES // 10, event
    shut = [w for w in worlds if any(t.status not in FINAL for t in w.queue.state.tasks())]
    assert len(shut) > SCHEDULES // 50


def test_the_same_seed_gives_the_same_schedule(worlds: list[World], tmp_path: Path) -> None:
    """So that a failure comes back: but for the id of the queue, both logs say the same."""
    number = next(
        n for n, w in enumerate(worlds) if w.path is None and w.policy.retry.backoff is None
    )
    again = a_world(number, tmp_path)
    clock = SimpleNamespace(monotonic=lambda: again.passed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventq.view.time", clock)
        again.run()
    pairs = itertools.zip_longest(again.queue.entries(2), worlds[number].queue.entries(2))
    assert all(one == other for one, other in pairs)
