"""One task: the record that the state keeps of it, and what people are shown."""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import Any

from attrs import define, field, frozen

from eventq.core.events import Enqueued, Json
from eventq.core.lifecycle import Status

__all__ = ["DeadLetter", "Lease", "Record", "Task", "plain"]

_PLACED = frozenset({Status.READY, Status.RUNNING})


def plain(payload: Any) -> Any:
    """A payload or result as the caller knows it: the value of a JSON text, or the object."""
    return payload.value() if isinstance(payload, Json) else payload


@define
class Record:
    """One task as the state keeps it. Changed by the draft that made it alone, so that it is
    immutable to whoever finds it in a state.

    Not frozen by attrs, whose frozen classes take four times as long to make.
    """

    task: Enqueued
    born: int
    """The position of the event that enqueued it: the order among dependents."""
    status: Status
    needs: int = 0
    """How many of its dependencies have not succeeded."""
    attempt: int = 0
    releases: int = 0
    redrives: int = 0
    mark: int = 0
    """The position of the event that put it into the list where it stands (line, dead letters,
    parked, finished). A RUNNING task keeps that of the line: its place."""
    until: datetime | None = None
    lease: int | None = None
    worker: Hashable = None
    expires: datetime | None = None
    error: str | None = None
    result: Any = None
    ended: datetime | None = None
    timer: int = 0
    """The position of the event that set `until` or `expires`: the order of what is due at once."""
    since: datetime | None = None
    """When it became a dead letter, or was parked."""
    owner: object = field(default=None, eq=False, repr=False)
    """The token of the draft that made it and may change it, as in `ordered`."""

    def copy(self, owner: object) -> Record:
        """A copy that this owner may change."""
        return Record(
            self.task,
            self.born,
            self.status,
            self.needs,
            self.attempt,
            self.releases,
            self.redrives,
            self.mark,
            self.until,
            self.lease,
            self.worker,
            self.expires,
            self.error,
            self.result,
            self.ended,
            self.timer,
            self.since,
            owner,
        )


@define(eq=False, repr=False)
class _Task:
    """A task in the making: the fields of `Task`, which it becomes, see `Record`."""

    id: str
    payload: Any
    after: tuple[str, ...]
    key: str | None
    status: Status
    attempt: int
    max_attempts: int | None
    not_before: datetime | None
    redrives: int
    releases: int
    place: int | None
    until: datetime | None
    lease: int | None
    error: str | None
    result: Any
    ended: datetime | None


@frozen
class Task(_Task):
    """One task as it stood when it was asked for.

    `after` are the ids it needs, `attempt` counts hand-outs since it was enqueued, redriven or
    restored; `max_attempts` None is unlimited. `place` is its place in the line (READY and
    RUNNING), `until` when its delay ends, `lease` the id of its current lease, `error` that of
    its last failure, `ended` when it was completed, resolved or cancelled.
    """

    @classmethod
    def of(cls, record: Record) -> Task:
        """The task of this record, as it stands now."""
        task = record.task
        payload, result = task.payload, record.result  # `plain` written out: batches make many
        made: Any = _Task(
            task.task,
            payload.value() if isinstance(payload, Json) else payload,
            task.after,
            task.key,
            record.status,
            record.attempt,
            task.max_attempts,
            task.not_before,
            record.redrives,
            record.releases,
            record.mark if record.status in _PLACED else None,
            record.until,
            record.lease,
            record.error,
            result.value() if isinstance(result, Json) else result,
            record.ended,
        )
        made.__class__ = cls
        done: Task = made
        return done


@define(eq=False, repr=False)
class _Lease:
    """A lease in the making: the fields of `Lease`, which it becomes, see `Record`."""

    id: int
    task: str
    payload: Any
    attempt: int
    worker: Hashable
    expires: datetime | None


@frozen
class Lease(_Lease):
    """One handing-out of a task. A later lease always has a larger `id` (a fencing token)."""

    @classmethod
    def of(cls, lease: int, record: Record) -> Lease:
        """The lease under which this record's task is out."""
        task = record.task
        made: Any = _Lease(
            lease, task.task, plain(task.payload), record.attempt, record.worker, record.expires
        )
        made.__class__ = cls
        done: Lease = made
        return done


@frozen
class DeadLetter:
    """A DEAD or BLOCKED task (or a PARKED one) and why: `root` is what blocks it, else itself."""

    id: str
    status: Status
    reason: str
    root: str
