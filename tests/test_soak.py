"""Random schedules of real processes: workers killed, stalled past their leases and restarted.

Nothing here knows how the queue decides. What must hold is read from the log alone (`audit`),
checked whole by `verify`, and held against what the workers told of before they were killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field
from audit import ENDS, FINAL, Audit
from forked import Child, Work, check, hear
from running import check_history, left_of
from terminal import COMMAND, environment

from eventq import Backoff, Enqueue, Lease, Retry, StaleLease, State, WorkerBusy, WorkQueue
from eventq.core.events import Completed, TaskEvent

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
TASKS = 2000 if THOROUGH else 200
COMMANDS = 300 if THOROUGH else 40
SEED = time.time_ns() if THOROUGH else 11
WORKERS = 8
LEASE = 0.3
"""Seconds that a lease runs."""

SEGMENT_BYTES = 100_000
LONGEST = 600
"""After so many seconds a schedule that has not come to its end never will."""


# A worker: a forked process that takes tasks until the queue is closed and drained.


def a_worker(path: Path, name: str, seed: int) -> Work:
    """It tells what it has an answer for: `took LEASE`, `did HOW TASK LEASE`, `stale LEASE`."""
    draw = Random(seed)

    def work(tell: Callable[[str], None]) -> None:
        with WorkQueue.open(path, segment_bytes=SEGMENT_BYTES) as q:
            while True:
                try:
                    lease = q.start(name, wait=LONGEST)
                except WorkerBusy:  # one of this name was killed, and its lease still runs
                    time.sleep(LEASE / 10)
                    continue
                if lease is None:
                    return
                while lease is not None:
                    lease = carry_out(q, lease, draw, tell)

    return work


def carry_out(
    q: WorkQueue, lease: Lease, draw: Random, tell: Callable[[str], None]
) -> Lease | None:
    """Work on this for a while, and end it in some way; the next lease, if there is one already."""
    then = draw.choices(
        ("complete", "go on", "fail", "die", "release", "renew", "cancel", "stall"),
        (40, 20, 15, 2, 6, 10, 1, 3),
    )[0]
    tell(f"took {lease.id}")
    time.sleep(draw.uniform(0, LEASE / 20))
    if then == "stall":
        tell(f"stall {lease.id}")
        os.kill(os.getpid(), signal.SIGSTOP)  # until that lease is another's
        then = draw.choice(("complete", "go on", "fail", "release", "renew", "cancel"))
    following: Lease | None = None
    try:
        match then:
            case "complete":
                q.complete(lease, then)
            case "go on":
                following = q.complete_and_start(lease, then)
            case "fail":
                q.fail(lease, "no luck", retry_after=draw.choice((None, None, 0)))
            case "die":
                q.fail(lease, "no way", kind="permanent")
            case "release":
                q.release(lease)
            case "cancel":
                q.cancel(lease.task, lease=lease)
            case "renew":
                q.renew(lease, LEASE * 2)
                q.complete(lease, then)
    except StaleLease:
        tell(f"stale {lease.id}")
    else:
        tell(f"did {then.replace(' ', '_')} {lease.task} {lease.id}")
    return following


# The world that they live in.


@define
class World:
    """The parent of the workers: it enqueues, kills, stops and restarts, and hears them."""

    draw: Random
    path: Path
    q: WorkQueue
    living: dict[str, Child] = field(factory=dict)
    stalled: dict[str, int] = field(factory=dict)
    """The workers that have stopped themselves, and the leases that they held."""
    until: dict[str, float] = field(factory=dict)
    """The workers that were stopped, and until when."""
    did: Counter[str] = field(factory=Counter)
    done: dict[str, int] = field(factory=dict)
    """The tasks that a worker was told to be done, and under which lease."""

    def hear(self) -> None:
        for child, lines in hear(list(self.living.values()), 0.005):
            name = next(name for name, one in self.living.items() if one is child)
            for line in lines:
                self.note(name, line.split())

    def note(self, name: str, words: list[str]) -> None:
        self.did[words[0]] += 1
        if words[0] == "stall":
            self.stalled[name] = int(words[1])
        elif words[0] == "did":
            self.did[words[1]] += 1
            if words[1] in ("complete", "go_on", "renew"):
                assert words[2] not in self.done, f"{words[2]} was done twice"
                self.done[words[2]] = int(words[3])

    def restart(self, name: str) -> None:
        self.living[name] = Child(a_worker(self.path, name, self.draw.getrandbits(32)), LONGEST)

    def kill(self, name: str) -> None:
        child = self.living.pop(name)
        child.kill()
        code, rest = child.end()
        assert code == -signal.SIGKILL, f"{name} has ended by itself: {code}"
        for line in rest:
            self.note(name, line.split())
        self.stalled.pop(name, None)
        self.until.pop(name, None)

    def wake(self, state: State) -> None:
        """Let go on who was stopped for long enough, and who stalled until its lease was lost."""
        now = time.monotonic()
        for name, lease in list(self.stalled.items()):
            if state.leased(lease) is None:
                del self.stalled[name]
                self.until.setdefault(name, now)
        for name in [name for name, until in self.until.items() if until <= now]:
            del self.until[name]
            if name not in self.stalled:
                os.kill(self.living[name].pid, signal.SIGCONT)

    def trouble(self) -> None:
        """Once in a while: kill one and start another in its place, or stop one for a while."""
        name = self.draw.choice(list(self.living))
        if self.draw.random() < 0.5:
            self.did["killed"] += 1
            self.kill(name)
            self.restart(name)
        elif name not in self.stalled and name not in self.until:
            self.did["stopped"] += 1
            os.kill(self.living[name].pid, signal.SIGSTOP)
            self.until[name] = time.monotonic() + self.draw.uniform(0, 2 * LEASE)

    def run(self, batches: list[list[Enqueue]]) -> None:
        """Until all has come to rest; then the queue is closed, and the workers go home."""
        begun = time.monotonic()
        trouble_at = 0
        for number in range(WORKERS):
            self.restart(f"w{number}")
        while True:
            assert time.monotonic() < begun + LONGEST, (
                f"it never comes to rest: {self.q.state.counts()}"
            )
            self.hear()
            state = self.q.state
            self.wake(state)
            if batches and len(list(state.line())) < 4 * WORKERS:
                self.q.enqueue_all(batches.pop())
            elif not batches and at_rest(state):
                break
            elif state.seq >= trouble_at:
                self.trouble()
                trouble_at = state.seq + self.draw.randint(1, 25)
        self.q.close()
        for name, child in self.living.items():
            os.kill(child.pid, signal.SIGCONT)
            code, rest = child.end()
            assert code == 0, f"{name} has ended with {code}"
            for line in rest:
                self.note(name, line.split())
        self.living.clear()


def at_rest(state: State) -> bool:
    return state.next_due() is None and state.first() is None and not state.running()


def tasks(draw: Random, number: int) -> list[Enqueue]:
    """Tasks in the order in which they are enqueued; each needs none or some of those before."""
    return [
        Enqueue(
            f"t{n}",
            n,
            after=[f"t{draw.randrange(n)}" for _ in range(2)] if n and draw.random() < 0.3 else (),
            key=f"k{draw.randrange(12)}" if draw.random() < 0.5 else None,
            max_attempts=draw.choice((1, 2, 3, 5, None)),
        )
        for n in range(number)
    ]


@contextmanager
def a_world(path: Path, seed: int) -> Iterator[World]:
    """A queue where all is recorded, and its workers, none of whom outlives the block."""
    retry = Retry(backoff=Backoff(0.01, cap=LEASE, jitter="full"))
    with WorkQueue.open(
        path, retry=retry, lease_for=LEASE, record=True, segment_bytes=SEGMENT_BYTES
    ) as q:
        world = World(Random(seed), path, q)
        try:
            yield world
        finally:
            for child in world.living.values():
                child.kill()
                child.end()


def refused(q: WorkQueue) -> Counter[str]:
    """How often what was refused, as the log tells it."""
    return Counter(entry.ask["refused"] for entry in q.entries() if "refused" in entry.ask)


def check_ends(q: WorkQueue) -> Counter[str]:
    """Read the log as an auditor would: each task ended once, in a final status, and no rule was
    broken on the way. Answers what happened how often."""
    audit = Audit()
    for entry in q.entries():
        audit.read(entry)
    assert not audit.out
    state = q.state
    for task in state.tasks():
        assert audit.ends[task.id] == 1, f"{task.id} has {audit.ends[task.id]} ends"
        assert task.status in FINAL, f"{task} could run"
    assert set(audit.tasks) == {task.id for task in state.tasks()}
    return Counter(
        type(event).__name__
        for entry in q.entries()
        for event in entry.events
        if isinstance(event, TaskEvent)
    )


def test_eight_workers_killed_stalled_and_restarted(tmp_path: Path) -> None:
    """Each task ends once; no two leases of a task, no two tasks of a key, no attempt too many;
    who comes back late is refused; the log is whole, and is decided again to the same."""
    path = tmp_path / "q"
    begun = time.monotonic()
    with a_world(path, SEED) as world:
        asked = tasks(world.draw, TASKS)
        world.run([asked[n : n + 50] for n in range(0, TASKS, 50)][::-1])
        seen = check_ends(world.q)
        assert [task.id for task in world.q.state.tasks()] == [task.id for task in asked]
        ended = {
            event.task: entry.ask["lease"]
            for entry in world.q.entries()
            for event in entry.events
            if isinstance(event, Completed)
        }
        assert world.done.items() <= ended.items(), "what was answered is not what the log says"
        stale = refused(world.q)["stale_lease"]
        entries = world.q.state.seq
    check(path)
    check_history(path)
    took = time.monotonic() - begun
    print(f"\nseed {SEED}: {TASKS} tasks, {entries} entries, {took:.0f} s, {stale} stale")
    print(dict(world.did), dict(seen))
    assert stale >= world.did["stale"] > 0
    assert min(world.did[what] for what in ("killed", "stopped", "stall")) > TASKS // 200
    assert min(seen[event] for event in ("Completed", "Died", "Blocked", "Expired")) > 0
    assert set(seen) >= set(ENDS) - {"Parked", "Cancelled"}


# The worker runtime and `eventq work`, as programs.

RUNTIME = """
import sys, errands
from eventq.worker import Worker
Worker(sys.argv[1], errands.run_command, concurrency=2, lease_for=0.4, grace=0).run()
"""
PROGRAMS: tuple[tuple[str, ...], ...] = (
    (*COMMAND, "work", "-j", "2", "--lease-for", "0.4", "--grace", "0", "--queue"),
    (sys.executable, "-c", RUNTIME),
    (*COMMAND, "work", "-j", "2", "--lease-for", "0.4", "--grace", "0", "--queue"),
    (sys.executable, "-c", RUNTIME.replace("grace=0", "grace=0, processes=True")),
)


@contextmanager
def programs(path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """These programs, each at work on the queue; none outlives the block."""
    running = [start(program, path) for program in PROGRAMS]
    try:
        yield running
    finally:
        for program in running:
            program.kill()
            program.wait()


def start(program: tuple[str, ...], path: Path) -> subprocess.Popen[bytes]:
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [*program, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(PYTHONPATH=f"{here}:{environment()['PYTHONPATH']}"),
    )


def test_programs_killed_stalled_and_restarted(tmp_path: Path) -> None:
    """`eventq work` and the worker runtime, in threads and in processes, share a queue: each task
    ends once, its command is never left behind, and the log is whole."""
    path = tmp_path / "q"
    draw = Random(SEED)
    did: Counter[str] = Counter()
    begun = time.monotonic()
    with WorkQueue.open(path, retry=Retry(max_attempts=None), record=True) as q:
        scripts = ("true", "sleep 0.05", "sleep 0.3", "sleep 0.6", "exit 3")
        for task in tasks(draw, COMMANDS):
            script = draw.choices(scripts, (30, 30, 20, 10, 10))[0]
            limit = 2 if script == "exit 3" else None
            payload: Any = {"argv": ["sh", "-c", script]}
            q.enqueue(task.id, payload, after=task.after, key=task.key, max_attempts=limit)
        with programs(path) as running:
            while not at_rest(q.state):
                assert time.monotonic() < begun + LONGEST, q.state.counts()
                number = draw.randrange(len(running))
                program = running[number]
                program.send_signal(signal.SIGSTOP)
                time.sleep(draw.uniform(0, 0.8))
                program.send_signal(signal.SIGCONT)
                did["stopped"] += 1
                if did["stopped"] % 3 == 2:
                    program.kill()
                    assert program.wait() == -signal.SIGKILL
                    running[number] = start(PROGRAMS[number], path)
                    did["killed"] += 1
            for program in running:
                program.terminate()
            ends = {program.wait() for program in running}
            assert ends <= {0, -signal.SIGTERM}, "which ends one that does not listen yet"
        seen = check_ends(q)
        stale = refused(q)["stale_lease"]
    check(path)
    check_history(path)
    assert left_of(path) == []
    print(f"\nseed {SEED}: {COMMANDS} commands, {time.monotonic() - begun:.0f} s, {stale} stale")
    print(dict(did), dict(seen))
    assert did["killed"] > 0
    assert seen["Expired"] > 0 or not THOROUGH
