"""The little that the harness needs of a queue that it holds against the model, and of WorkQueue.

Write an `Adapter` for a queue of your own: what it is asked, what it tells of the events that
followed, and how it stands. Everything else is optional: a queue that outlives its process may be
a `DurableAdapter`, which is also crashed and opened again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from eventq.core.events import Event
from eventq.core.policy import Policy
from eventq.testing.facts import Look

__all__ = ["Adapter", "Clock", "DurableAdapter", "Maker"]

Clock = Callable[[], datetime]


class Adapter(Protocol):
    """A queue as the harness sees it: opened, with nothing enqueued yet."""

    @property
    def durable(self) -> bool:
        """Whether payloads and results are JSON values, as a log keeps them. If not, they are
        opaque: any object, handed back as it is."""

    @property
    def id(self) -> str:
        """The id of the queue, from which the jitter of its waits follows."""

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        """Carry a command out and answer as `plain` gives it; raise the refusal if it is refused.

        `do` is the name of a method of WorkQueue, and `arguments` are its own by name; only
        `complete_and_start` is told the worker, too, and `reconfigure` a whole `policy`.
        """

    def events(self) -> Sequence[Event]:
        """The events that followed from the last command, none if it was refused."""

    def look(self) -> Look:
        """Everything that can be asked of the queue."""

    def check(self) -> None:
        """Raise AssertionError if anything else does not hold that should: called after each
        command."""

    def shut(self) -> None:
        """Let go of the queue: nothing is asked of it any more."""


@runtime_checkable
class DurableAdapter(Adapter, Protocol):
    """A queue that outlives its process, by a log whose last line may be cut by a crash."""

    def reopen(self) -> None:
        """Let go of the queue and open it again."""

    def snapshot(self) -> None:
        """Keep the state as it is now, so that the next one to open the queue begins there."""

    def last_line(self) -> int:
        """How many bytes of the log a crash can cut, its last newline included: those of the last
        entry, or 0 where it cannot be lost any more."""

    def crash(self, cut: int, *, zeros: bool) -> None:
        """Lose the process, and so many bytes at the end of the log (`zeros`: they are still
        there, but empty, as some file systems leave them); then open the queue again."""


Maker = Callable[[Policy, Clock], Adapter]
"""Opens a queue under this policy, whose time is that of this clock."""
