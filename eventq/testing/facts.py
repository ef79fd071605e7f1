"""What the reference model notes of each task, and the plain values that are compared.

`Facts` are things that have happened to one task itself, `Moment` is a whole queue as such facts,
and `Look` is everything that can be asked of a queue.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from datetime import datetime
from typing import Any

from attrs import asdict, field, frozen

from eventq.core.events import Enqueued, Json
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy

__all__ = [
    "DUE_AT_MOST",
    "FINISHED",
    "ROOTS",
    "UNFINISHED",
    "WAITING",
    "Facts",
    "Look",
    "Moment",
    "canonical",
    "dumped",
    "plain",
]

S = Status

DUE_AT_MOST = 1000
"""How much due work one entry carries out at most."""

FINISHED = (S.SUCCEEDED, S.CANCELLED)
ROOTS = (S.DEAD, S.PARKED, S.CANCELLED)
WAITING = (S.PENDING, S.READY, S.DELAYED)
UNFINISHED = (*WAITING, S.RUNNING, S.BLOCKED, S.DEAD, S.PARKED)


def dumped(value: Any) -> Any:
    """A JSON value as a text that is the same for equal content, and for no other; None is None."""
    return None if value is None else json.dumps(value, sort_keys=True)


def canonical(value: Any) -> Any:
    """A payload or result so that equal content compares equal: a JSON text as `dumped` gives its
    value, anything else as the object that it is."""
    return dumped(value.value()) if isinstance(value, Json) else value


def plain(shown: Any, *, durable: bool) -> Any:
    """A task, a lease, a list of them or None, as plain values that compare as content does."""
    if shown is None:
        return None
    if isinstance(shown, list):
        return [plain(one, durable=durable) for one in shown]
    fields = asdict(shown, recurse=False)
    if durable:
        fields |= {name: dumped(fields[name]) for name in ("payload", "result") if name in fields}
    return fields


@frozen
class Look:
    """Everything that can be asked of a queue, as plain values: what a queue shows, or should.

    `seq` and `at` are the number and the time of the last entry. Each task is a dict of its public
    fields by name, each lease one of its own. `line` are the READY tasks by place, those that wait
    for their key included, and `first` is the one that goes next while nothing is paused. `due`
    are the leases that run out and the delays that end, as (time, task), the earliest first.
    `holders` gives for each key that is held the task that holds it. A dead letter (or a parked
    one) is (id, status, reason, root). `needed_by` gives for each task, and for each id that a
    task names, the unfinished tasks that name it. `why` gives for each unfinished task why it does
    not run: the steps of `eventq.queries.why`, each a dict of its fields by name, the lease one of
    its own; None where a queue cannot tell.
    """

    seq: int
    at: datetime | None
    policy: Policy
    admission: str
    dispatch: str
    tasks: list[dict[str, Any]]
    line: list[str]
    first: str | None
    leases: list[dict[str, Any]]
    due: list[tuple[datetime, str]]
    holders: dict[str, str]
    dead_letters: list[tuple[str, Status, str, str]]
    parked: list[tuple[str, Status, str, str]]
    counts: dict[Status, int]
    needed_by: dict[str, list[str]]
    why: dict[str, list[dict[str, Any]]] | None = None

    def differences(self, other: Look) -> list[str]:
        """What differs between both, in words."""
        return [
            f"{name}: {mine!r} is not {its!r}"
            for name, mine in asdict(self, recurse=False).items()
            if mine != (its := getattr(other, name)) and not (name == "why" and None in (mine, its))
        ]


@frozen
class Facts:
    """What has happened to one task itself.

    `own` is PENDING for a task that waits, whatever it waits for: a dependency, a root that is
    still to be redriven, the end of its delay, or its turn in the line. `told` is the status that
    its last event told.
    """

    task: Enqueued
    own: Status = S.PENDING
    told: Status = S.PENDING
    attempt: int = 0
    releases: int = 0
    redrives: int = 0
    place: int | None = None
    listed: int | None = None
    """The position of the event that made it a dead letter, parked it or finished it."""
    died: datetime | None = None
    """When it became DEAD or was parked."""
    until: datetime | None = None
    expires: datetime | None = None
    timer: int = 0
    """The position of the event that set `until` or `expires`."""
    out: int | None = None
    """The position of its last hand-out, if it has neither SUCCEEDED nor been CANCELLED since."""
    lease: int | None = None
    worker: Hashable = None
    error: str | None = None
    result: Any = None
    ended: datetime | None = None


@frozen(eq=False)
class Moment:
    """All that the model knows at one moment.

    `tasks` are in the order of their arrival; `handed` tells of each hand-out of a task with a
    key the key, the task and the position of the event.
    """

    queue: str = ""
    policy: Policy = field(factory=Policy)
    seq: int = 0
    at: datetime | None = None
    position: int = 0
    admission: str = "absent"
    dispatch: str = "running"
    handed: tuple[tuple[str, str, int], ...] = ()
    tasks: dict[str, Facts] = field(factory=dict)
