"""What a worker was told, checked: how many tasks at a time, under which names and leases."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from attrs import field, frozen

from eventq.core.commands import Start
from eventq.core.errors import BadValue
from eventq.core.policy import A_MOMENT, Policy, at_least, length, seconds
from eventq.core.state import State
from eventq.worker.witness import Witness

__all__ = ["LEASE", "YEAR", "Terms", "drained", "lively", "over_with"]

LEASE = timedelta(seconds=60)
"""How long a lease runs where neither the worker nor the queue says so."""

YEAR = 365 * 86400.0
"""The longest that anything is waited for at one go, in seconds."""


def _name(value: str | None) -> str:
    """The name, or one that nobody else has."""
    return (
        f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}" if value is None else value
    )


def _permanent(value: Iterable[type[BaseException]]) -> tuple[type[BaseException], ...]:
    try:
        kinds = tuple(value)
    except TypeError:
        kinds = (value,)  # type: ignore[assignment]
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise BadValue(f"permanent must be types of exceptions, not {kind!r}")
    return kinds


def _check_name(instance: Any, attribute: Any, value: object) -> None:
    """The name has to do for every slot; how it may look is known to the command."""
    if type(value) is not str:
        raise BadValue(f"name must be a text, not {value!r}")
    Start(value)
    Start(f"{value}/{instance.concurrency}")


@frozen(kw_only=True)
class Terms:
    """The part of a worker's arguments that does not depend on how it calls its handler."""

    concurrency: int = field(default=1, validator=at_least(1))
    name: str = field(default=None, converter=_name, validator=_check_name)
    lease_for: timedelta | None = field(
        default=None, converter=seconds, validator=length(A_MOMENT, optional=True)
    )
    permanent: tuple[type[BaseException], ...] = field(default=(), converter=_permanent)
    grace: timedelta = field(
        default=timedelta(seconds=30), converter=seconds, validator=length(timedelta())
    )
    drain: bool = False
    witness: Witness = field(factory=Witness)

    @property
    def grace_seconds(self) -> float:
        """The grace, as long as a timer can be set for."""
        return min(self.grace.total_seconds(), YEAR)

    @property
    def slots(self) -> range:
        """The numbers of what it does at the same time."""
        return range(1, self.concurrency + 1)

    def worker(self, slot: int) -> str:
        """The name under which a slot asks for tasks."""
        return f"{self.name}/{slot}"

    def lease_under(self, policy: Policy) -> timedelta:
        """How long its leases run. They always end, so that a killed worker's tasks come back."""
        return self.lease_for or policy.lease_for or LEASE


def drained(state: State) -> bool:
    """Whether nothing is left to hand out, and nothing will be without somebody doing something.

    Delays and leases that run out still bring something; a paused queue hands out nothing.
    """
    return state.dispatch == "paused" or (state.first() is None and state.next_due() is None)


def lively(state: State, now: datetime) -> bool:
    """Whether a start that got nothing, since the queue was closed, is worth asking again."""
    return state.admission == "open" or not drained(state)


def over_with(lease: int) -> Callable[[State, datetime], bool]:
    """Whether this lease has ended, or can be ended now: its worker may then start again."""
    return lambda state, now: state.leased(lease) is None or state.first_due(now) is not None
