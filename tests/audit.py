"""What a log says of each task, read as an auditor would: nothing here knows how eventq decides."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from attrs import define, field

from eventq.core.events import (
    Cancelled,
    Completed,
    Delayed,
    Enqueued,
    Entry,
    Expired,
    Failed,
    Readied,
    Released,
    Started,
    TaskEvent,
)
from eventq.core.lifecycle import Status
from eventq.core.state import State

ENDS = ("Completed", "Died", "Parked", "Blocked", "Cancelled")
FINAL = {Status.SUCCEEDED, Status.DEAD, Status.PARKED, Status.BLOCKED, Status.CANCELLED}


@define
class Audit:
    """What the log says of each task, read one event after the other."""

    tasks: dict[str, Enqueued] = field(factory=dict)
    out: dict[str, tuple[int, Any]] = field(factory=dict)
    """The current lease of each task that is out, and its worker."""
    attempts: Counter[str] = field(factory=Counter)
    ends: Counter[str] = field(factory=Counter)
    last: datetime | None = None

    def read(self, entry: Entry) -> None:
        assert self.last is None or self.last <= entry.at, "time in the log falls"
        self.last = entry.at
        lease = entry.ask.get("lease")
        current = {lease for lease, _ in self.out.values()}
        assert lease is None or lease in current, f"{entry} rests on a lease that had ended"
        for event in entry.events:
            if isinstance(event, TaskEvent):
                self.hear(event, entry)

    def hear(self, event: TaskEvent, entry: Entry) -> None:
        name = event.task
        if isinstance(event, Enqueued):
            self.tasks[name] = event
            return
        assert not self.ends[name], f"{event} after the end of {name}"
        if isinstance(event, Started):
            self.started(event, entry)
        elif isinstance(event, Completed | Failed | Expired | Released | Cancelled):
            assert self.out.pop(name, None) or isinstance(event, Cancelled), f"{event}: not out"
            self.attempts[name] -= isinstance(event, Released)
        elif isinstance(event, Readied | Delayed):
            assert name not in self.out
        self.ends[name] += type(event).__name__ in ENDS

    def started(self, event: Started, entry: Entry) -> None:
        task = self.tasks[event.task]
        assert event.task not in self.out, f"{event.task} is out twice"
        assert event.worker not in {worker for _, worker in self.out.values()}
        keys = {self.tasks[name].key for name in self.out} - {None}
        assert task.key not in keys, f"two tasks of key {task.key} are out"
        assert task.not_before is None or task.not_before <= entry.at
        self.attempts[task.task] += 1
        assert task.max_attempts is None or self.attempts[task.task] <= task.max_attempts
        self.out[task.task] = entry.seq, event.worker


def may_wait(state: State, task: str) -> bool:
    """Whether only a person can move this task: its key, or that of what it needs, is shut."""
    shown = state.task(task)
    assert shown is not None
    if shown.status is Status.READY and shown.key is not None:
        holder = state.holder(shown.key)
        assert state.policy.keys.on_death == "halt"
        return holder is not None and holder.status in (Status.DEAD, Status.PARKED)
    return shown.status is Status.PENDING and any(
        above.status is not Status.SUCCEEDED and may_wait(state, above.id)
        for above in map(state.task, shown.after)
        if above is not None
    )
