"""Concurrent histories: what several callers were answered, explained by one order of the log.

Calls are recorded from outside (`recording`): who asked what, from when to when, and the answer.
`explain` finds for each call a moment, which is an entry of the log, such that

1. every entry but the first was asked by one call, of its caller, while that call went on, and
   every call has no more entries than it can have;
2. deciding what was called on the state before its entry gives that entry, and its answer is how
   things stood after it;
3. an answer without an entry (a refusal, a repeat, nothing to start, a look at a task) follows
   from the state at some moment while the call went on;
4. what ended before another began comes before it: real time is kept.

A call that was never answered, since its caller was killed, may have an entry or none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from eventq.core.commands import (
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Reconfigure,
    RedriveAll,
    Release,
    Renew,
    Start,
)
from eventq.core.decide import decide
from eventq.core.errors import Refusal
from eventq.core.events import Enqueued, Entry, Event, Redriven, Started, TaskEvent
from eventq.core.evolve import evolve
from eventq.core.state import State

__all__ = ["Call", "Read", "explain"]


@frozen
class Read:
    """A look at one task, which changes nothing: `WorkQueue.task`."""

    task: str


@frozen(eq=False)
class Call:
    """One thing that was asked, as its caller saw it.

    `by` names the caller, who asks one thing after the other; the entry has the same name.
    `begin` and `end` are read from the clock of the queue, just before the call and just after;
    `end` None: no answer came. Payloads and results are as the log keeps them: JSON texts for a
    queue on disk. `answer` is what was answered, or the refusal that was raised.
    """

    by: str
    begin: datetime
    command: Command | Read
    end: datetime | None = None
    answer: Any = None

    def __str__(self) -> str:
        if self.end is None:
            answered = "never answered"
        else:
            answered = f"answered {_short(self.answer)} at {self.end:%H:%M:%S.%f}"
        return f"{self.by} asked {_short(self.command)} at {self.begin:%H:%M:%S.%f}, {answered}"


def explain(calls: Iterable[Call], entries: Iterable[Entry]) -> dict[Call, int]:
    """The moment of each call: the seq of the last entry that it knew of, its own included.

    Raises AssertionError, naming the call or the entry, where no order explains them. A call that
    was neither answered nor carried out has no moment.
    """
    history = _History(entries)
    asked = sorted(calls, key=lambda call: call.begin)
    written = _written(asked, history.entries)
    for call, own in written.items():
        history.check_entries(call, own)
    moments: dict[Call, int] = {}
    by_end = sorted((call for call in asked if call.end is not None), key=_end)
    ended = 0
    past = 1
    """The latest moment of all calls that ended before the next one begins."""
    for call in asked:
        while ended < len(by_end) and _end(by_end[ended]) < call.begin:
            past = max(past, moments[by_end[ended]])
            ended += 1
        if call in written:
            own = written[call]
            if own[0].seq <= past:
                raise AssertionError(
                    f"{call}: its entry is {own[0].seq}, but entry {past} was known to a call that "
                    "had ended before this one began"
                )
            moments[call] = own[-1].seq
        if call.end is not None and not history.answered(call, written.get(call, [])):
            moments[call] = history.moment(call, max(past, moments.get(call, 0)))
    return moments


def _end(call: Call) -> datetime:
    assert call.end is not None
    return call.end


def _written(asked: Sequence[Call], entries: Sequence[Entry]) -> dict[Call, list[Entry]]:
    """The entries of each call that has some: those of its caller while it went on."""
    of_caller: dict[str, list[Call]] = defaultdict(list)
    for call in asked:
        if call.end is not None and call.end < call.begin:
            raise ValueError(f"the clock has fallen: {call}")
        before = of_caller[call.by][-1:]
        if before and (before[0].end is None or before[0].end > call.begin):
            raise ValueError(f"{call.by} asked two things at once: {before[0]}; {call}")
        of_caller[call.by].append(call)
    written: dict[Call, list[Entry]] = defaultdict(list)
    for entry in entries[1:]:
        calls = of_caller.get(str(entry.by), [])
        at = bisect_right(calls, entry.at, key=lambda call: call.begin) - 1
        if at < 0 or (calls[at].end is not None and entry.at > _end(calls[at])):
            raise AssertionError(
                f"entry {entry.seq} ({entry.do} by {entry.by} at {entry.at:%H:%M:%S.%f}) was asked "
                "by no call that went on at that time"
            )
        written[calls[at]].append(entry)
    return dict(written)


class _History:
    """The entries of a log, and the state after each of them."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = list(entries)
        self._states = [State()]
        for entry in self.entries:
            self._states.append(evolve(self._states[-1], entry))

    def check_entries(self, call: Call, own: Sequence[Entry]) -> None:
        """Check that this call gives these entries, and its answer is that of the last."""
        last = own[-1]
        # A start that waits may carry out due work on its way, and hand nothing out.
        waits = isinstance(call.command, Start) and not any(
            _handed_out(entry.events) for entry in own[:-1]
        )
        if len(own) > 1 and not waits:
            raise AssertionError(f"{call}: it has entries {[entry.seq for entry in own]}")
        for entry in own:
            if why := self._not_decided(call, entry):
                raise AssertionError(f"{call}: its entry {entry.seq} ({entry.do}) {why}")
        if call.end is None or "refused" in last.ask or not self.answered(call, own):
            return
        should = _answer(call.command, self._states[last.seq], last.events)
        if call.answer != should:
            raise AssertionError(f"{call}: by its entry {last.seq} it should be {_short(should)}")

    def answered(self, call: Call, own: Sequence[Entry]) -> bool:
        """Whether the answer of a call is that of its last entry. A start that waits may have
        carried out due work on its way, and then be refused."""
        if not own or "refused" in own[-1].ask:
            return bool(own)
        waited = isinstance(call.command, Start) and not _handed_out(own[-1].events)
        return not (waited and isinstance(call.answer, Refusal))

    def _not_decided(self, call: Call, entry: Entry) -> str:
        """Why this entry is not what follows from what was called, if so."""
        command = call.command
        if isinstance(command, CompleteAndStart) and entry.do == Complete.do:
            command = Complete(command.lease)  # as WorkQueue asks where the lease is not current
        if isinstance(command, Read) or entry.do != command.do:
            return "is not what was asked"
        try:
            events, _ = decide(self._states[entry.seq - 1], command, entry.at)
        except Refusal as refusal:
            recorded = entry.ask.get("refused") == refusal.name
            if recorded and (call.end is None or _same(refusal, call.answer)):
                return ""
            return f"says {_short(entry.ask)}, but it is refused: {_short(refusal)}"
        if events != entry.events:
            return f"says {_short(entry.events)}, but what was asked gives {_short(events)}"
        if entry.ask != command.ask():
            return f"says that {_short(entry.ask)} was asked"
        return ""

    def moment(self, call: Call, first: int) -> int:
        """The first moment from this one on from which the answer of a call follows that is not
        that of an entry."""
        why, last = "it was over before that", first
        for state in self._states[first:]:
            if state.at is not None and state.at > _end(call):
                break
            last = state.seq
            why = self._differs(call, state)
            if not why:
                return last
        raise AssertionError(
            f"{call}: this is not in the log, and follows from how things stood after none of the "
            f"entries {first} to {last}; after the last of them, {why}"
        )

    def _differs(self, call: Call, state: State) -> str:
        """Why the answer of a call without an entry does not follow from this state, if so."""
        command = call.command
        if isinstance(command, Read):
            shown = state.task(command.task)
            return "" if shown == call.answer else f"the task is {_short(shown)}"
        assert state.at is not None
        # The earliest time that it can have been: later, more is due, and more would be done.
        at = max(state.at, call.begin)
        try:
            events, _ = decide(state, command, at)
        except Refusal as refusal:
            return "" if _same(refusal, call.answer) else f"it is refused: {refusal}"
        if events:
            return f"it does {_short(events)}"
        should = _answer(command, state, ())
        return "" if should == call.answer else f"it is answered {_short(should)}"


def _handed_out(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[-1], Started)


def _answer(command: Any, state: State, events: Sequence[Event]) -> Any:
    """What WorkQueue answers to a command that gave these events, and this state."""
    match command:
        case Start() | CompleteAndStart():
            return state.lease(state.seq) if _handed_out(events) else None
        case Renew():
            return state.lease(command.lease)
        case Enqueue():
            return state.task(command.id or f"#{state.seq}")
        case EnqueueAll():
            ids = (event.task for event in events if isinstance(event, Enqueued))
            made = iter([name for name in ids if name.startswith("#")])
            return [state.task(task.id or next(made)) for task in command.tasks]
        case RedriveAll():
            return [state.task(event.task) for event in events if isinstance(event, Redriven)]
        case Complete() | Fail() | Release():
            assert isinstance(events[0], TaskEvent)
            return state.task(events[0].task)
        case Reconfigure():
            return state.policy
    return state.task(command.task) if hasattr(command, "task") else None


def _same(refusal: Refusal, answer: object) -> bool:
    return type(refusal) is type(answer) and str(refusal) == str(answer)


def _short(value: object) -> str:
    text = f"{type(value).__name__}: {value}" if isinstance(value, Refusal) else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."
