"""What every command has: its name, what the log keeps of it, and the way back from there."""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import define

from eventq.core.events import (
    Entry,
    Event,
    TaskEvent,
)

__all__ = ["Command", "find", "first_task"]


@define
class Command:
    """What a caller asks of the queue. Each command has a class of its own, which is frozen."""

    do: ClassVar[str]
    """What the log calls it."""
    asks: ClassVar[tuple[str, ...]] = ()
    """The arguments that the log keeps because no event holds them, in the order of the line."""
    operator: ClassVar[bool] = False
    """Whether it is asked by a person, who may say why."""

    def ask(self) -> dict[str, Any]:
        """The arguments that the log keeps because no event holds them."""
        ask = {}
        for name in self.asks:
            ask[name] = getattr(self, name)
        return ask

    def refused(self, refusal: str) -> dict[str, Any]:
        """What the log keeps of a command that was refused: the refusal and every argument."""
        return {"refused": refusal, "command": self}

    @classmethod
    def again(cls, entry: Entry) -> Command:
        """The command that this entry answered."""
        return cls()


def find(entry: Entry, *kinds: type[Event]) -> Any:
    """The event that holds what the caller gave: the first of these kinds."""
    return next(event for event in entry.events if isinstance(event, kinds))


def first_task(entry: Entry) -> str:
    """The task that a command about one task named: its own event comes first."""
    first = entry.events[0]
    assert isinstance(first, TaskEvent)
    return first.task
