"""What has happened to a task, told from the entries of a log: every event, life after life.

A forgotten id is unknown again and may be enqueued as a new task: each time is a life of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from attrs import frozen

from eventq.core.events import Enqueued, Entry, Event, Forgotten, TaskEvent

__all__ = ["Life", "Moment", "latest", "lives", "moments"]


@frozen
class Moment:
    """One event, and the entry that it stands in."""

    seq: int
    at: datetime
    by: str | None
    do: str
    why: str | None
    event: Event


@frozen
class Life:
    """All events of a task from `Enqueued` on; `Forgotten` is the last where the queue let go."""

    moments: tuple[Moment, ...]

    @property
    def forgotten(self) -> bool:
        """Whether it is over: the queue knows the task no more."""
        return isinstance(self.moments[-1].event, Forgotten)

    @property
    def last(self) -> Moment:
        """The last event that says something of the task itself: how it stands, or ended."""
        return self.moments[-2] if self.forgotten and len(self.moments) > 1 else self.moments[-1]


def moments(entry: Entry) -> Iterator[Moment]:
    """The events of one entry, each with what the entry says of it."""
    for event in entry.events:
        yield Moment(entry.seq, entry.at, entry.by, entry.do, entry.why, event)


def _of(entries: Iterable[Entry], tasks: frozenset[str]) -> Iterator[tuple[str, Moment]]:
    for entry in entries:
        for moment in moments(entry):
            if isinstance(moment.event, TaskEvent) and moment.event.task in tasks:
                yield moment.event.task, moment


def lives(entries: Iterable[Entry], task: str) -> list[Life]:
    """The lives of this task, the oldest first. None where it was never enqueued."""
    told: list[list[Moment]] = []
    for _, moment in _of(entries, frozenset({task})):
        if isinstance(moment.event, Enqueued) or not told:
            told.append([])
        told[-1].append(moment)
    return [Life(tuple(life)) for life in told]


def latest(
    entries: Iterable[Entry], tasks: Iterable[str], kinds: tuple[type[TaskEvent], ...]
) -> dict[str, Moment]:
    """For each of these tasks, the last event of one of these kinds, where there is one."""
    return {
        task: moment
        for task, moment in _of(entries, frozenset(tasks))
        if isinstance(moment.event, kinds)
    }
