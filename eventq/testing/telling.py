"""How the reference model tells what follows from a command, one event after the other.

An event is told of a task whose standing, worked out from the facts, is not what was last told of
it; in what order is all that is decided here. The due work, the waits after a failure and what a
failure leads to are told by several commands alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from attrs import evolve, frozen

from eventq.core.commands import Command, Start
from eventq.core.errors import Refusal
from eventq.core.events import (
    Blocked,
    Delayed,
    Died,
    Event,
    Expired,
    Failed,
    Forgotten,
    Parked,
    Readied,
    Unblocked,
)
from eventq.core.lifecycle import Status
from eventq.core.policy import Backoff
from eventq.testing.facts import DUE_AT_MOST, FINISHED, Moment
from eventq.testing.noted import Noted

__all__ = ["Outcome", "Telling", "wait_after"]

S = Status


@frozen
class Outcome:
    """What follows from a command: its events and its answer, plain values or None."""

    events: tuple[Event, ...]
    answer: Any


class Telling(Noted):
    """A queue that tells what follows; its commands are in the classes that build on it."""

    def __init__(self, moment: Moment | None = None) -> None:
        super().__init__(moment)
        self._events: list[Event] = []

    def do(self, command: Command, at: datetime) -> Outcome:
        """Carry a command out. Raises the refusal, and then nothing has changed, unless refusals
        are recorded: then an entry has passed in which nothing happened."""
        trial = self.copy()
        trial.seq += 1
        trial.at = at
        try:
            answer = getattr(trial, f"_{command.do}")(command)
        except Refusal:
            if self.policy.record:
                self.seq, self.at = trial.seq, trial.at
            raise
        events = tuple(trial._events)
        if events or (self.policy.record and isinstance(command, Start)):
            trial._events = []
            vars(self).update(vars(trial))
        return Outcome(events, answer)

    def now(self) -> datetime:
        """The time of the entry in the making."""
        assert self.at is not None
        return self.at

    def after(self, wait: timedelta) -> datetime:
        """The time when so much has passed, or the last there is."""
        end = datetime.max.replace(tzinfo=UTC)
        return end if wait > end - self.now() else self.now() + wait

    def _tell(self, event: Event, task: str | None = None, **facts: Any) -> None:
        """Tell an event, and note these facts of its task."""
        self.position += 1
        self._events.append(event)
        if task is not None:
            self._tasks[task] = evolve(self._tasks[task], **facts)

    def _follow(self, *tasks: str) -> None:
        """Tell what follows from the last events of these tasks.

        Breadth-first from them along those that need them, and for each whose status is not what
        was told of it last, the event that tells it.
        """
        reached = [*tasks]
        for name in reached:
            reached += [below for below in self.dependents(name) if below not in reached]
        for name in reached:
            facts, status = self._tasks[name], self.status(name)
            if status is facts.told:
                continue
            if facts.told is S.BLOCKED:
                self._tell(Unblocked(name), name, told=S.PENDING, listed=None)
            if status is S.BLOCKED:
                root = self.root(name)
                assert root is not None
                self._tell(Blocked(name, root), name, told=S.BLOCKED, listed=self.position + 1)
            elif status is S.READY:
                self._line_up(name, facts.task.not_before)

    def _line_up(self, task: str, until: datetime | None) -> None:
        """Tell that the task, which has all that it needs, enters the line, or waits till then."""
        here = self.position + 1
        if until is None or until <= self.now():
            self._tell(Readied(task), task, told=S.READY, place=here, until=None)
        else:
            self._tell(Delayed(task, until), task, told=S.DELAYED, until=until, timer=here)

    def _end(self, event: Event, task: str, status: Status, **facts: Any) -> None:
        """Tell an event that makes a task a root or finishes it, and what follows."""
        if status in FINISHED:
            facts |= {"ended": self.at, "died": None, "out": None}
        else:
            facts |= {"died": self.at}
        self._tell(
            event,
            task,
            own=status,
            told=status,
            listed=self.position + 1,
            place=None,
            lease=None,
            worker=None,
            until=None,
            expires=None,
            **facts,
        )
        self._follow(task)

    def _wait_afresh(self, event: Event, task: str, **facts: Any) -> None:
        """Tell an event that brings a task back with fresh attempts."""
        self._tell(
            event,
            task,
            own=S.PENDING,
            told=S.PENDING,
            attempt=0,
            releases=0,
            error=None,
            ended=None,
            died=None,
            listed=None,
            **facts,
        )

    # What comes with time, and with failure.

    def _carry_out_due(self) -> None:
        """Tell what is due: leases and delays, the earliest first, then what retention lets go."""
        left = DUE_AT_MOST
        while left and (due := self.due()) and due[0][0] <= self.now():
            task = due[0][2]
            if self.status(task) is S.RUNNING:
                event = Expired(task, self._tasks[task].attempt)
                self._fails(event, "lease expired", final=False)
            else:
                self._line_up(task, None)
            left -= 1
        for name in self.letting_go()[:left]:
            self._tell(Forgotten(name))
            del self._tasks[name]

    def _fails(
        self,
        event: Failed | Expired,
        error: str,
        *,
        final: bool,
        retry_after: timedelta | None = None,
    ) -> None:
        """Tell that a hand-out has failed, and what becomes of the task."""
        name, facts = event.task, self._tasks[event.task]
        self._tell(
            event,
            name,
            own=S.PENDING,
            told=S.FAILED,
            error=error,
            releases=0,
            place=None,
            lease=None,
            worker=None,
            expires=None,
        )
        limit, retry = facts.task.max_attempts, self.policy.retry
        if not final and (limit is None or facts.attempt < limit):
            wait = retry_after
            if wait is None and retry.backoff is not None:
                of = (self.queue, name, str(facts.redrives), str(facts.attempt))
                wait = wait_after(retry.backoff, facts.attempt, of)
            self._line_up(name, None if wait is None else self.after(wait))
        elif retry.max_redrives is not None and facts.redrives >= retry.max_redrives:
            self._end(Parked(name), name, S.PARKED)
        else:
            self._end(Died(name), name, S.DEAD)


def wait_after(backoff: Backoff, attempt: int, of: Sequence[str]) -> timedelta:
    """How long the queue backs off after this attempt; `of` is what the jitter follows from: the
    queue, the task, its redrives and the attempt."""
    try:
        longest = min(backoff.cap, backoff.base * backoff.factor**attempt)
    except OverflowError:
        longest = backoff.cap
    bits = f"{int(sha256(chr(10).join(of).encode()).hexdigest(), 16):0256b}"
    fraction = int(bits[:53], 2) / 2**53
    if backoff.jitter == "full":
        return longest * fraction
    if backoff.jitter == "equal":
        return longest / 2 + longest / 2 * fraction
    return longest
