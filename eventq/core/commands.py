"""What may be asked of a queue: one immutable class for each command, checked as it is made.

Those of an operator stand in `operators`, what all have in common in `asking`. `command(entry)`
is the way back: the command that an entry answered, so that it can be decided again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from typing import Any, final

from attrs import define, field, frozen

from eventq.core.asking import Command, find
from eventq.core.errors import BadValue
from eventq.core.events import (
    Completed,
    Enqueued,
    Entry,
    Failed,
    Kind,
    Opened,
)
from eventq.core.operators import (
    Cancel,
    Close,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Reopen,
    Resolve,
    Restore,
    Resume,
)
from eventq.core.policy import A_MOMENT, Policy, at_least, length, seconds
from eventq.core.values import (
    a_kind,
    a_worker,
    check_moment,
    check_name,
    check_whole,
    dependencies,
    named,
    storable,
    text,
)

__all__ = [
    "COMMANDS",
    "OF_THE_QUEUE",
    "Cancel",
    "Close",
    "Command",
    "Complete",
    "CompleteAndStart",
    "Enqueue",
    "EnqueueAll",
    "Fail",
    "Open",
    "Pause",
    "Reconfigure",
    "Redrive",
    "RedriveAll",
    "Release",
    "Renew",
    "Reopen",
    "Resolve",
    "Restore",
    "Resume",
    "Start",
    "Tick",
    "command",
]

a_lease = at_least(1)


a_term = length(A_MOMENT, optional=True)


@frozen
class Open(Command):
    """Begin a log: always the first command."""

    do = "open"
    queue: str = field(validator=named("the id of a queue"))
    policy: Policy = field(factory=Policy)

    @classmethod
    def again(cls, entry: Entry) -> Open:
        opened = entry.events[0]
        assert isinstance(opened, Opened)
        return cls(opened.queue, opened.policy)


class _Given:
    """Says that a task takes the `max_attempts` of the queue."""

    def __repr__(self) -> str:
        return "the queue's own"

    def __reduce__(self) -> str:
        return "OF_THE_QUEUE"  # there is but one, in every process


OF_THE_QUEUE: Any = _Given()


@define
class _Enqueue(Command):
    """A command in the making: attrs takes twice as long to make one of a frozen class."""

    id: str | None
    payload: Any
    after: tuple[str, ...]
    key: str | None
    max_attempts: int | None
    not_before: datetime | None


@final
@frozen(init=False)
class Enqueue(_Enqueue):
    """A new task. Without an id the queue makes one; `after` are the ids that it needs.

    With a `key`, one of its tasks is out at a time. `max_attempts`: the queue's own unless given;
    None is unlimited. Before `not_before` it is not handed out.
    """

    do = "enqueue"
    id: str | None = None
    payload: Any = None
    after: tuple[str, ...] = ()
    key: str | None = field(default=None, kw_only=True)
    max_attempts: int | None = field(default=OF_THE_QUEUE, kw_only=True)
    not_before: datetime | None = field(default=None, kw_only=True)

    def __init__(
        self,
        id: str | None = None,
        payload: Any = None,
        after: Iterable[str] = (),
        *,
        key: str | None = None,
        max_attempts: int | None = OF_THE_QUEUE,
        not_before: datetime | None = None,
    ) -> None:
        """Raises BadValue for a value that no queue takes."""
        # What was left out is not checked, and all is set in one go: a batch makes thousands.
        if id is not None:
            check_name("a task's id", id)
            if id[0] == "#":
                raise BadValue(
                    f"a task's id must not start with '#', as {id!r} does: the queue makes such ids"
                )
        after = dependencies(after)
        for dependency in after:
            check_name("an id in after", dependency)
        if key is not None:
            check_name("a key", key)
        if max_attempts is not OF_THE_QUEUE:
            check_whole("max_attempts", max_attempts, 1, optional=True)
        moment = None if not_before is None else check_moment("not_before", not_before)
        made: Any = self
        object.__setattr__(made, "__class__", _Enqueue)
        made.id = id
        made.payload = payload
        made.after = after
        made.key = key
        made.max_attempts = max_attempts
        made.not_before = moment
        made.__class__ = Enqueue

    def __init_subclass__(cls) -> None:
        raise TypeError("Enqueue has no subclasses: what is yours goes into its payload")

    def holding(self, payload: Any) -> Enqueue:
        """The same with another payload, and not checked again."""
        other: Any = _Enqueue(
            self.id, payload, self.after, self.key, self.max_attempts, self.not_before
        )
        other.__class__ = Enqueue
        held: Enqueue = other
        return held

    @classmethod
    def of(cls, event: Enqueued) -> Enqueue:
        """The command that gives this event."""
        made = event.task.startswith("#")
        return cls(
            None if made else event.task,
            event.payload,
            event.after,
            key=event.key,
            max_attempts=event.max_attempts,
            not_before=event.not_before,
        )

    @classmethod
    def again(cls, entry: Entry) -> Enqueue:
        return cls.of(find(entry, Enqueued))


def _tasks(instance: object, attribute: Any, value: tuple[object, ...]) -> None:
    for item in value:
        if not isinstance(item, Enqueue):
            raise BadValue(f"a batch is made of Enqueue commands, not of {item!r}")


def _batch(value: Iterable[Enqueue]) -> tuple[Enqueue, ...]:
    try:
        return tuple(value)
    except TypeError as error:
        raise BadValue(f"a batch must be a collection of Enqueue commands: {error}") from None


@frozen
class EnqueueAll(Command):
    """A batch: admitted whole or not at all. Its tasks may name each other in any order."""

    do = "enqueue_all"
    tasks: tuple[Enqueue, ...] = field(converter=_batch, validator=_tasks)

    @classmethod
    def again(cls, entry: Entry) -> EnqueueAll:
        return cls([Enqueue.of(event) for event in entry.events if isinstance(event, Enqueued)])


@frozen
class Start(Command):
    """Hand out the first task in the line, to this worker or to nobody named.

    The lease runs for `lease_for`; None: for as long as the queue has it.
    """

    do = "start"
    asks = ("worker", "lease_for")
    worker: Hashable = field(default=None, validator=a_worker)
    lease_for: timedelta | None = field(default=None, converter=seconds, validator=a_term)

    @classmethod
    def again(cls, entry: Entry) -> Start:
        return cls(entry.ask["worker"], entry.ask["lease_for"])


@frozen
class Complete(Command):
    """The work of this lease is done."""

    do = "complete"
    asks = ("lease",)
    lease: int = field(validator=a_lease)
    result: Any = None

    @classmethod
    def again(cls, entry: Entry) -> Complete:
        return cls(entry.ask["lease"], find(entry, Completed).result)


@frozen
class CompleteAndStart(Command):
    """Complete, then Start, in one entry; refused whole."""

    do = "complete_and_start"
    asks = ("lease", "worker", "lease_for")
    lease: int = field(validator=a_lease)
    result: Any = None
    worker: Hashable = field(default=None, validator=a_worker)
    lease_for: timedelta | None = field(default=None, converter=seconds, validator=a_term)

    @classmethod
    def again(cls, entry: Entry) -> CompleteAndStart:
        result = find(entry, Completed).result
        return cls(entry.ask["lease"], result, entry.ask["worker"], entry.ask["lease_for"])


@frozen
class Fail(Command):
    """The work of this lease failed; `permanent` goes straight to the dead letters.

    Before `retry_after` has passed it is not tried again; None: as the queue backs off.
    """

    do = "fail"
    asks = ("lease", "retry_after")
    lease: int = field(validator=a_lease)
    error: str = field(default="", converter=storable, validator=text)
    kind: Kind = field(default="retryable", validator=a_kind)
    retry_after: timedelta | None = field(
        default=None, converter=seconds, validator=length(timedelta(0), optional=True)
    )

    @classmethod
    def again(cls, entry: Entry) -> Fail:
        failed = find(entry, Failed)
        return cls(entry.ask["lease"], failed.error, failed.kind, entry.ask["retry_after"])


@frozen
class Renew(Command):
    """Let this lease run on for `lease_for` from now (None: for as long as the queue has it).

    The later of both expiries holds; it is written only where it moves the expiry by more than
    half of that length, so that a heartbeat does not cost a sync each time.
    """

    do = "renew"
    asks = ("lease", "lease_for")
    lease: int = field(validator=a_lease)
    lease_for: timedelta | None = field(default=None, converter=seconds, validator=a_term)

    @classmethod
    def again(cls, entry: Entry) -> Renew:
        return cls(entry.ask["lease"], entry.ask["lease_for"])


@frozen
class Release(Command):
    """Hand the task of this lease back; the attempt is not counted."""

    do = "release"
    asks = ("lease",)
    lease: int = field(validator=a_lease)

    @classmethod
    def again(cls, entry: Entry) -> Release:
        return cls(entry.ask["lease"])


@frozen
class Tick(Command):
    """Carry out what is due, and nothing else."""

    do = "tick"


COMMANDS: tuple[type[Command], ...] = (
    Open,
    Enqueue,
    EnqueueAll,
    Start,
    Complete,
    CompleteAndStart,
    Fail,
    Renew,
    Release,
    Redrive,
    RedriveAll,
    Cancel,
    Restore,
    Resolve,
    Close,
    Reopen,
    Pause,
    Resume,
    Reconfigure,
    Tick,
)

_BY_NAME = {kind.do: kind for kind in COMMANDS}


def command(entry: Entry) -> Command:
    """The command that this entry answered: `decide(state before it, command(entry))` gives its
    events again, or the refusal that it records."""
    refused = entry.ask.get("command")
    return refused if isinstance(refused, Command) else _BY_NAME[entry.do].again(entry)
