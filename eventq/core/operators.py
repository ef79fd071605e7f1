"""What a person asks of a queue in trouble, and may say why."""

from __future__ import annotations

from typing import Any, Self

from attrs import field, frozen

from eventq.core.asking import Command, find, first_task
from eventq.core.errors import BadValue
from eventq.core.events import (
    Cancelled,
    Entry,
    Reconfigured,
)
from eventq.core.policy import Policy, at_least
from eventq.core.select import Select
from eventq.core.values import (
    named,
    optional_text,
    shown,
    storable,
)

__all__ = [
    "Cancel",
    "Close",
    "Pause",
    "Reconfigure",
    "Redrive",
    "RedriveAll",
    "Reopen",
    "Resolve",
    "Restore",
    "Resume",
]


def _of(kind: type) -> Any:
    """A validator: a value of this class."""

    def check(instance: object, attribute: Any, value: object) -> None:
        if not isinstance(value, kind):
            raise BadValue(f"{attribute.name} must be a {kind.__name__}, not {shown(value)}")

    return check


@frozen
class _OnTask(Command):
    """What is asked of one task, whose own event comes first."""

    operator = True
    task: str = field(validator=named("a task's id"))

    @classmethod
    def again(cls, entry: Entry) -> Self:
        return cls(first_task(entry))


@frozen
class Redrive(_OnTask):
    """Give a DEAD or PARKED task fresh attempts."""

    do = "redrive"


@frozen
class RedriveAll(Command):
    """Give fresh attempts to all DEAD tasks that are selected, in the order of their death."""

    do = "redrive_all"
    asks = ("select",)
    operator = True
    select: Select = field(validator=_of(Select))

    @classmethod
    def again(cls, entry: Entry) -> RedriveAll:
        return cls(entry.ask["select"])


@frozen
class Cancel(Command):
    """Take an unfinished task out of the work, by an operator or by the worker that holds it."""

    do = "cancel"
    asks = ("lease",)
    operator = True
    task: str = field(validator=named("a task's id"))
    lease: int | None = field(default=None, validator=at_least(1, optional=True))
    error: str | None = field(default=None, converter=storable, validator=optional_text)

    @classmethod
    def again(cls, entry: Entry) -> Cancel:
        cancelled = find(entry, Cancelled)
        return cls(cancelled.task, entry.ask["lease"], cancelled.error)


@frozen
class Restore(_OnTask):
    """Bring a CANCELLED task back, with fresh attempts."""

    do = "restore"


@frozen
class Resolve(_OnTask):
    """A person did a DEAD, PARKED or CANCELLED task by hand."""

    do = "resolve"


@frozen
class Close(Command):
    """Admit no new tasks; what was admitted drains."""

    do = "close"
    operator = True


@frozen
class Reopen(Command):
    """Admit new tasks again."""

    do = "reopen"
    operator = True


@frozen
class Pause(Command):
    """Hand nothing out; what is due goes on."""

    do = "pause"
    operator = True


@frozen
class Resume(Command):
    """Hand out again."""

    do = "resume"
    operator = True


@frozen
class Reconfigure(Command):
    """Agree on another policy, from now on."""

    do = "reconfigure"
    operator = True
    policy: Policy = field(validator=_of(Policy))

    @classmethod
    def again(cls, entry: Entry) -> Reconfigure:
        return cls(find(entry, Reconfigured).policy)
