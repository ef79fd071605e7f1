"""The runner: hands the tasks of a queue to processes until nothing can run any more.

One thread, which sleeps until a command ends, a signal comes, or something is due. The launcher
starts the commands (processes.py); run.lock keeps other runners away and ends what a dead one has
left (runlock.py). What a dead runner held is released, which costs no attempt.

A command whose end was not recorded before a crash runs again: at least once, never "exactly".
What was recorded as Completed never runs again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from attrs import define

from eventq import StaleLease, WorkQueue
from eventq.cli.flow import Spec, spec_of
from eventq.cli.holders import NAME
from eventq.cli.launcher import Ended, Launcher
from eventq.cli.orders import GRACE, order, result_of, went_wrong
from eventq.cli.past import taken_by
from eventq.cli.runlock import leases_of
from eventq.core.lifecycle import Status
from eventq.core.record import Lease, Task
from eventq.core.state import State

__all__ = ["Child", "Runner", "Signals", "View", "release_left"]

S = Status

POLL = 0.5
"""Seconds after which what others have done to the queue is noticed."""

FRAME = 0.2
"""Seconds between two frames of a live view."""


@define
class Child:
    """A command that was ordered: its lease, and what was told to it meanwhile."""

    lease: Lease
    slot: int
    spec: Spec
    began: float
    waits_for: int | None = None
    """An older lease of the same task, whose process has to be gone first."""
    stopped: str | None = None
    """Why it was told to stop."""
    kill_at: float | None = None
    """When it must be gone, once it was told to stop."""

    @property
    def may_time_out(self) -> bool:
        """Whether it runs, and nobody has told it to stop."""
        return self.stopped is None and self.waits_for is None


class View(Protocol):
    """Shows a run while it goes on."""

    @property
    def live(self) -> bool:
        """Whether it wants frames."""

    def tell(self, what: str, task: str, **facts: Any) -> None:
        """One thing has happened to a task."""

    def frame(self, children: list[Child], state: State) -> None:
        """This is how it stands."""


class Signals:
    """The signals that ask a runner to stop, turned into something to poll and to look at."""

    ASKING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

    def __init__(self) -> None:
        self.asked: list[int] = []

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """While in here, these signals do nothing but be noted."""
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        before: dict[signal.Signals, Any] = {}
        for number in self.ASKING:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                before[number] = signal.signal(number, self._note)
        woken_before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken_before)
            for caught, handler in before.items():
                signal.signal(caught, handler)
            os.close(self._woken)
            os.close(wake)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.asked.append(number)

    def fileno(self) -> int:
        return self._woken

    def drain(self) -> None:
        """Forget that there was something to read."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    @property
    def code(self) -> int:
        """The exit code for the first of them; 0 when there was none."""
        return 128 + self.asked[0] if self.asked else 0


def release_left(q: WorkQueue, pid: int) -> list[tuple[int, str]]:
    """Hand back what the runner of this pid has left RUNNING. Called under the run lock, when its
    processes are gone."""
    left = leases_of(q.state, pid)
    for lease in left:
        q.release(lease, by=f"{NAME}/{os.getpid()}")
    return [(lease.id, lease.task) for lease in left]


class Runner:
    """One run: what it has ordered, and what it waits for."""

    def __init__(
        self,
        q: WorkQueue,
        folder: Path,
        launcher: Launcher,
        signals: Signals,
        view: View,
        *,
        workers: int,
    ) -> None:
        self.q = q
        self.folder = folder
        self.launcher = launcher
        self.signals = signals
        self.view = view
        self.free = list(range(workers, 0, -1))
        self.children: dict[int, Child] = {}
        self.died: dict[str, int] = {}
        """The lease under which each task failed last in this run."""
        self.succeeded = 0
        self.attempts = 0
        self._looked = 0.0
        self._poll = select.poll()
        self._poll.register(launcher, select.POLLIN)
        self._poll.register(signals, select.POLLIN)

    def run(self) -> None:
        """Until nothing can run any more, or a signal asks to stop."""
        while not self.signals.asked:
            self._fill()
            if not self.children and not self._later():
                return
            self._wait(self._timeout())
            self._look_after()
        self._stop()

    # Starting.

    def _fill(self) -> None:
        while self.free and not self.signals.asked:
            lease = self.q.start(self._worker(self.free[-1]))
            if lease is None:
                return
            self._start(lease, self.free.pop())

    def _worker(self, slot: int) -> str:
        return f"{NAME}/{os.getpid()}/{slot}"

    def _start(self, lease: Lease | None, slot: int) -> None:
        """Start the command of a lease. No lease: the slot is free."""
        while lease is not None:
            self.attempts += 1
            try:
                spec = spec_of(lease.payload)
            except ValueError as error:
                self._failed(lease, f"cannot start: {error}", kind="permanent")
                lease = self.q.start(self._worker(slot))
                continue
            child = Child(lease, slot, spec, time.monotonic())
            older = [c for c in self.children.values() if c.lease.task == lease.task]
            self.children[lease.id] = child
            if older:
                child.waits_for = older[-1].lease.id
                self.launcher.signal(child.waits_for, signal.SIGKILL)
            else:
                self._launch(child)
            return
        self.free.append(slot)

    def _launch(self, child: Child) -> None:
        lease = child.lease
        child.waits_for = None
        child.began = time.monotonic()
        order(self.launcher, lease, child.spec, self.folder)
        self.view.tell(
            "started", lease.task, lease=lease.id, attempt=lease.attempt, worker=lease.worker
        )

    # Waiting.

    def _later(self) -> bool:
        """Whether something will be ready by and by, though nothing is and nothing runs."""
        state = self.q.state
        return state.dispatch == "running" and state.count(S.DELAYED) > 0

    def _timeout(self) -> float:
        """How long nothing is due."""
        now = time.monotonic()
        due = [self._looked + POLL]
        if self.view.live:
            due.append(now + FRAME)
        for child in self.children.values():
            if child.kill_at is not None:
                due.append(child.kill_at)
            elif child.may_time_out and child.spec.timeout is not None:
                due.append(child.began + child.spec.timeout)
        return max(0.0, min(due) - now)

    def _wait(self, seconds: float) -> None:
        """Sleep until a command ends, a signal comes, or for this long."""
        for fd, _ in self._poll.poll(seconds * 1000):
            if fd == self.signals.fileno():
                self.signals.drain()
            else:
                for ended in self.launcher.ended():
                    self._ended(ended)

    def _look_after(self) -> None:
        """Stop what has run too long, and what the queue has taken away."""
        now = time.monotonic()
        for child in self.children.values():
            timeout = child.spec.timeout
            if child.kill_at is not None and now >= child.kill_at:
                child.kill_at = None
                self.launcher.signal(child.lease.id, signal.SIGKILL)
            elif child.may_time_out and timeout is not None and now >= child.began + timeout:
                self._tell_to_stop(child, f"timed out after {timeout:g} s")
        if now >= self._looked + POLL:
            self._looked = now
            state = self.q.state
            for child in self.children.values():
                if child.stopped is None and state.leased(child.lease.id) is None:
                    self._tell_to_stop(child, "taken away")
        if self.view.live:
            self.view.frame(list(self.children.values()), self.q.state)

    def _tell_to_stop(self, child: Child, why: str) -> None:
        child.stopped = why
        child.kill_at = time.monotonic() + GRACE
        self.launcher.signal(child.lease.id, signal.SIGTERM)

    # Ending.

    def _ended(self, ended: Ended) -> None:
        """A command has ended: tell the queue, and start what comes next in its slot."""
        child = self.children.pop(ended.lease)
        next_lease: Lease | None = None
        try:
            if self.signals.asked and child.stopped == "interrupted":
                self._released(child.lease)
            elif child.stopped is not None and child.stopped.startswith("timed out"):
                self._failed(child.lease, child.stopped)
            elif (error := went_wrong(ended, self.folder)) is not None:
                self._failed(child.lease, error)
            else:
                next_lease = self._completed(child)
        except StaleLease:
            self._dropped(child.lease)
        if next_lease is None and not self.signals.asked:
            next_lease = self.q.start(self._worker(child.slot))
        for other in self.children.values():
            if other.waits_for == ended.lease:
                self._launch(other)
        self._start(next_lease, child.slot)

    def _completed(self, child: Child) -> Lease | None:
        result = result_of(child.lease.id)
        seconds = time.monotonic() - child.began
        if self.signals.asked:
            lease = None
            self.q.complete(child.lease, result)
        else:
            lease = self.q.complete_and_start(child.lease, result)
        self.succeeded += 1
        self.view.tell("succeeded", child.lease.task, seconds=round(seconds, 3), **result)
        return lease

    def _failed(self, lease: Lease, error: str, kind: Any = "retryable") -> None:
        task: Task = self.q.fail(lease, error, kind=kind)
        self.died[lease.task] = lease.id
        facts = {
            "attempt": lease.attempt,
            "of": task.max_attempts,
            "error": error,
            **result_of(lease.id),
        }
        if task.status in (S.DEAD, S.PARKED):
            self.view.tell(task.status.lower(), lease.task, **facts)
        else:
            self.view.tell("failed", lease.task, **facts)

    def _released(self, lease: Lease) -> None:
        try:
            self.q.release(lease)
        except StaleLease:
            self._dropped(lease)
        else:
            self.view.tell("released", lease.task, lease=lease.id)

    def _dropped(self, lease: Lease) -> None:
        self.view.tell("dropped", lease.task, lease=lease.id, **taken_by(self.folder, lease))

    def _stop(self) -> None:
        """Stop everything that runs and hand it back. A second signal takes the grace away."""
        asked = len(self.signals.asked)
        for child in list(self.children.values()):
            if child.waits_for is not None:
                del self.children[child.lease.id]
                self._released(child.lease)
            elif child.stopped is None:
                self._tell_to_stop(child, "interrupted")
        while self.children:
            if len(self.signals.asked) > asked:
                asked = len(self.signals.asked)
                for child in self.children.values():
                    child.kill_at = time.monotonic()
            self._wait(self._timeout())
            self._look_after()
