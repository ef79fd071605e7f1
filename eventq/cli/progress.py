"""What `eventq work` says while it works: a line, or a JSON object, for each thing that happens."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eventq.cli.exits import Exit
from eventq.cli.holders import endless, if_gone
from eventq.cli.live import JsonView, Out, PlainView
from eventq.cli.options import typed
from eventq.cli.orders import result_of
from eventq.cli.past import taken_by
from eventq.cli.show import ago
from eventq.cli.standing import standing
from eventq.core.lifecycle import Status
from eventq.core.record import Lease, Task
from eventq.core.state import State
from eventq.worker import Failure, Witness

__all__ = ["Progress", "progress_for"]


class Progress(Witness):
    """Tells a view, and counts for the line at the end."""

    def __init__(self, view: PlainView, grace: float, queue: Path) -> None:
        self.asked: list[int] = []
        """The signals that asked the worker to stop."""
        self._view = view
        self._grace = grace
        self._queue = queue
        self._counts: Counter[str] = Counter()
        self._since: dict[int, float] = {}
        self._waits = False
        """Whether it was said what is waited for, since something last began."""
        self._lock = threading.Lock()

    def began(self, lease: Lease) -> None:
        self._waits = False
        self._since[lease.id] = time.monotonic()
        facts = {"lease": lease.id, "attempt": lease.attempt, "worker": lease.worker}
        self._tell("started", lease, **facts)

    def succeeded(self, lease: Lease) -> None:
        seconds = time.monotonic() - self._since[lease.id]
        self._tell("succeeded", lease, seconds=round(seconds, 3), **result_of(lease.id))

    def failed(self, lease: Lease, failure: Failure, task: Task) -> None:
        dead = task.status in (Status.DEAD, Status.PARKED)
        self._tell(
            task.status.lower() if dead else "failed",
            lease,
            attempt=lease.attempt,
            of=task.max_attempts,
            error=failure.error,
            **result_of(lease.id),
        )

    def handed_back(self, lease: Lease) -> None:
        self._tell("released", lease, lease=lease.id)

    def dropped(self, lease: Lease) -> None:
        self._tell("dropped", lease, lease=lease.id, **taken_by(self._queue, lease))

    def busy(self, worker: str, task: str, lease: int) -> None:
        with self._lock:
            self._view.tell("waiting", task, worker=worker, lease=lease)

    def _tell(self, what: str, told: Lease, /, **facts: Any) -> None:
        """Called from several threads, whose lines must not mix."""
        with self._lock:
            if what != "started":
                self._since.pop(told.id, None)
            self._counts[what] += 1
            self._view.tell(what, told.task, **facts)

    def idle(self, state: State) -> None:
        """Nothing may be running here, though the queue is not drained: say once what is waited
        for."""
        with self._lock:
            if self._since or self._waits or isinstance(self._view, JsonView):
                return
            self._waits = True
            elsewhere, delayed = state.count(Status.RUNNING), state.count(Status.DELAYED)
            found = [f"{elsewhere:,} running elsewhere"] if elsewhere else []
            found += [f"{delayed:,} delayed"] if delayed else []
            due = state.next_due()
            next_due = "" if due is None else f"; the next is due {ago(due, datetime.now(UTC))}"
            if found:
                self._view.out.line(f"waiting   for {', '.join(found)}{next_due}")
                for lease in endless(state.running())[:1]:
                    for line in if_gone(lease):
                        self._view.out.line(f"  {line}")

    def stopping(self, number: int) -> None:
        """A signal has asked the worker to stop."""
        self.asked.append(number)
        running = len(self._since)
        if running and len(self.asked) == 1 and not isinstance(self._view, JsonView):
            self._view.out.line(
                f"stopping: {running} may run on for {self._grace:g} s; ask again to stop them now"
            )

    def over(self, state: State) -> None:
        """The worker has ended, and this is how the queue stands."""
        interrupted = signal.Signals(self.asked[0]).name if self.asked else None
        counts = {status.value: number for status, number in state.counts().items() if number}
        told = dict(self._counts)
        if isinstance(self._view, JsonView):
            summary = {"event": "summary", "interrupted": interrupted, "told": told}
            self._view.out.line(json.dumps({**summary, "counts": counts}))
            return
        ended, hint = "drained", ""
        if interrupted:
            ended = f"stopped by {interrupted}"
        elif state.dispatch == "paused":
            ended = "paused"
        elif standing(state).code is Exit.STUCK:
            ended = "only a person can move the rest"
            hint = f"see what keeps it: {typed('status')}"
        self._view.out.line(f"{ended}; this worker: {_listed(told)}; queue: {_listed(counts)}")
        if hint:
            self._view.out.line(hint)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {what.lower()}" for what, number in counts.items()) or "nothing"


def progress_for(queue: Path, grace: float, *, as_json: bool) -> Progress:
    """What tells standard output."""
    out = Out(sys.stdout)
    return Progress(JsonView(out) if as_json else PlainView(out), grace, queue)
