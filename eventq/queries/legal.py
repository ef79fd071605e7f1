"""Whether a history is legal: every event possible, every decision the same, every invariant kept.

The law: `decide(state before, command(entry), entry.at)` gives `entry.events`. What `decide` gives
is folded on the way, event by event, through the table of the lifecycle, so one pass checks both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

from attrs import frozen

from eventq.core.commands import Start, command
from eventq.core.decide import decide
from eventq.core.errors import EventqError, ImpossibleEvent, Refusal
from eventq.core.events import Completed, Enqueued, Entry, Event, Json, TaskEvent
from eventq.core.evolve import evolve
from eventq.core.graph import blocks
from eventq.core.invariants import broken
from eventq.core.lifecycle import FINISHED, Status
from eventq.core.ordered import Sorted
from eventq.core.record import Record
from eventq.core.state import State

__all__ = ["TOUCHED", "Breach", "Judge", "Rule"]

S = Status

MOST = 100
"""How many breaches are kept; the rest is counted."""

SHOWN = 300
"""How much of an event or a message is told."""


class Rule(StrEnum):
    """What can be wrong with an entry that is well written."""

    IMPOSSIBLE = "impossible"
    """An event that the lifecycle does not allow: what follows cannot be judged any more."""
    DECIDED_OTHERWISE = "decided otherwise"
    """The rules give other events for what was asked, or refuse it."""
    INVARIANT = "invariant"
    """What must always hold does not."""


@frozen
class Breach:
    """One thing that is not legal, and the entry after which it showed."""

    seq: int
    rule: Rule
    what: str


# The invariants of one task, as far as they can be seen from it: each says what always holds.


def _rests(state: State, record: Record) -> bool:
    """No task rests in FAILED."""
    return record.status is not S.FAILED


def _queued(state: State, record: Record) -> bool:
    """A READY task stands in the line; of those of one key, only the one that can go next does."""
    if record.status is not S.READY:
        return True
    place = record.mark, record.task.task
    if (key := record.task.key) is None:
        return _stands_in(state.in_line, place)
    holder = state.holder(key)
    dead = holder is not None and holder.status in (S.DEAD, S.PARKED)
    first = next(state.by_key.since((key,)), None)
    goes = first == (key, *place) if holder is None or dead else holder is record
    return (
        _stands_in(state.by_key, (key, *place))
        and _stands_in(state.in_line, place) == (goes and not dead)
        and _stands_in(state.behind_dead, place) == (goes and dead)
    )


def _listed(state: State, record: Record) -> bool:
    """A DEAD, BLOCKED or PARKED task stands in its list, once."""
    lists = {
        S.DEAD: state.in_letters,
        S.BLOCKED: state.in_letters,
        S.PARKED: state.in_parking,
    }
    marks = lists.get(record.status)
    return marks is None or _stands_in(marks, (record.mark, record.task.task))


def _stands_in(marks: Sorted[Any], mark: tuple[Any, ...]) -> bool:
    return next(marks.since(mark), None) == mark


def _leased(state: State, record: Record) -> bool:
    """A RUNNING task has the lease that names it, and no other task has one."""
    if record.status is not S.RUNNING:
        return record.lease is record.worker is record.expires is None
    found = None if record.lease is None else state.leased(record.lease)
    return found is record and (record.worker is None or state.busy[record.worker] == record.lease)


def _tried(state: State, record: Record) -> bool:
    """No task was handed out more often than it may be."""
    return 0 <= record.attempt <= (record.task.max_attempts or record.attempt)


def _needs(state: State, record: Record) -> bool:
    """A task past PENDING and BLOCKED has all that it needs; one that has it is past them."""
    if record.status in FINISHED:
        return True
    above = map(state.record, record.task.after)
    needs = sum(found is None or found.status is not S.SUCCEEDED for found in above)
    return record.needs == needs and (needs > 0) == (record.status in (S.PENDING, S.BLOCKED))


def _blocked(state: State, record: Record) -> bool:
    """A PENDING or BLOCKED task is BLOCKED if and only if something that it needs blocks it."""
    return record.status not in (S.PENDING, S.BLOCKED) or (record.status is S.BLOCKED) == any(
        blocks(state.record(above)) for above in record.task.after
    )


def _blocks(state: State, record: Record) -> bool:
    """Nothing below a root or a BLOCKED task waits as if it could run."""
    return not blocks(record) or all(
        below.status is S.BLOCKED for below in state.dependents(record.task.task)
    )


def _ended(state: State, record: Record) -> bool:
    """A finished task, and no other, says when it ended."""
    return (record.ended is not None) == (record.status in FINISHED)


TOUCHED: tuple[Callable[[State, Record], bool], ...] = (
    _rests,
    _queued,
    _listed,
    _leased,
    _tried,
    _needs,
    _blocked,
    _blocks,
    _ended,
)
"""What is looked at after each entry, of the tasks that it touched."""

_VALUES: dict[type[Event], str] = {Enqueued: "payload", Completed: "result"}
"""The events that hold a value of a caller, and where."""

# What a fold may raise once a history is not legal: after that nothing can be relied on.
_BREAKS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EventqError,
    LookupError,
    StopIteration,
    TypeError,
    ValueError,
)


class Judge:
    """Takes the entries of a log, from the first on, and keeps the state and what is not legal.

    The whole state is checked at the end, and in between whenever as many events have passed as
    make that cheap: `state.check()` costs time linear in the tasks.
    """

    def __init__(self, *, every: int = 1000) -> None:
        self.state = State()
        self.breaches: list[Breach] = []
        self.more = 0
        """How many breaches there are beyond those that were kept."""
        self.judged = 0
        """How many entries were judged."""
        self.began = 0
        """How many events there were before."""
        self.otherwise = 0
        """How many entries the rules decide otherwise: a rule was mended since, or it is forged."""
        self.stopped = False
        """Whether an impossible event has made an end of it."""
        self._every = every
        self._checked_at = 0

    def begin(self, state: State) -> None:
        """Take this for the state after the entries that cannot be judged."""
        self.state = state
        self.began = state.position

    def judge(self, entry: Entry, *, decide: bool = True) -> None:
        """Judge the next entry. After an impossible event nothing is judged any more.

        Without `decide` the rules of today are not asked: they need not be those of an entry of
        another version.
        """
        if self.stopped:
            return
        after = self._decided(entry) if decide else None
        if after is None:
            try:
                after = evolve(self.state, entry)
            except _BREAKS as error:
                self._breach(entry.seq, Rule.IMPOSSIBLE, _told(error))
                self.stopped = True
                return
        before, self.state = self.state, after
        self.judged += 1
        for what in self._touched(before, entry):
            self._breach(entry.seq, Rule.INVARIANT, what)
        if after.position - self._checked_at >= max(self._every, 8 * len(after)):
            self._check()

    def end(self) -> None:
        """The log is at its end: check the whole state."""
        if not self.stopped and self.state.position != self._checked_at:
            self._check()

    @property
    def legal(self) -> bool:
        """Whether each event was possible, and what must always hold did."""
        return len(self.breaches) + self.more == self.otherwise

    def _breach(self, seq: int, rule: Rule, what: str) -> None:
        self.otherwise += rule is Rule.DECIDED_OTHERWISE
        if len(self.breaches) < MOST:
            self.breaches.append(Breach(seq, rule, what))
        else:
            self.more += 1

    def _check(self) -> None:
        self._checked_at = self.state.position
        for what in broken(self.state):
            self._breach(self.state.seq, Rule.INVARIANT, what)

    def _decided(self, entry: Entry) -> State | None:
        """The state after the entry if the rules decide what it says, else None and a breach."""
        try:
            _read_values(entry)
            asked = command(entry)
            refused = entry.ask.get("refused")
            told = asked.ask() if refused is None else asked.refused(refused)
            if list(told.items()) != list(entry.ask.items()):
                raise ValueError(f"`ask` says {entry.ask}")
        except _BREAKS as error:
            what = f"no command reads as {entry.do!r} here: {_told(error)}"
            self._breach(entry.seq, Rule.DECIDED_OTHERWISE, what)
            return None
        try:
            events, after = decide(self.state, asked, entry.at)
        except _BREAKS as error:
            if isinstance(error, Refusal) and error.name == refused and not entry.events:
                return evolve(self.state, entry)  # a refusal that was recorded
            no = "refuse it" if isinstance(error, Refusal) else "cannot carry it out"
            what = f"the log accepts {entry.do!r}, the rules {no}: {_told(error)}"
            self._breach(entry.seq, Rule.DECIDED_OTHERWISE, what)
            return None
        if events != entry.events:
            self._breach(entry.seq, Rule.DECIDED_OTHERWISE, _difference(events, entry.events))
            return None
        if refused is not None:
            what = f"the log refuses {entry.do!r}, the rules carry it out"
            self._breach(entry.seq, Rule.DECIDED_OTHERWISE, what)
            return None
        if not events and self.state.policy.record and isinstance(asked, Start):
            return evolve(self.state, entry)  # a start that got nothing, and was recorded
        if not events:
            what = f"{entry.do!r} changes nothing, and such an entry is never written"
            self._breach(entry.seq, Rule.DECIDED_OTHERWISE, what)
            return None
        return after

    def _touched(self, before: State, entry: Entry) -> Iterator[str]:
        """What does not hold of the tasks of this entry, and of their direct dependents: of those
        for whom the entry changed something, so that judging costs no more than folding."""
        names = {event.task: None for event in entry.events if isinstance(event, TaskEvent)}
        for name in list(names):
            if _for_others(before.record(name)) != _for_others(self.state.record(name)):
                names.update((below.task.task, None) for below in self.state.dependents(name))
        for name in names:
            record = self.state.record(name)
            if record is None:
                continue
            for holds in TOUCHED:
                if not holds(self.state, record):
                    yield f"{name!r}, which is {record.status}: {holds.__doc__}"


def _read_values(entry: Entry) -> None:
    """Raise what those payloads and results raise that no queue would have taken."""
    for event in entry.events:
        held = getattr(event, _VALUES.get(type(event), ""), None)
        if isinstance(held, Json):
            held.value()


def _for_others(record: Record | None) -> tuple[bool, bool]:
    """What a task is for those that need it: done, or in their way."""
    return record is not None and record.status is S.SUCCEEDED, blocks(record)


def _difference(decided: tuple[Event, ...], logged: tuple[Event, ...]) -> str:
    """Where the events of the log and those that the rules give part."""
    same = 0
    while same < min(len(decided), len(logged)) and decided[same] == logged[same]:
        same += 1

    def told(events: tuple[Event, ...]) -> str:
        return _short(repr(events[same])) if same < len(events) else "nothing more"

    return f"event {same + 1}: the log has {told(logged)}, the rules give {told(decided)}"


def _told(error: BaseException) -> str:
    if isinstance(error, ImpossibleEvent | Refusal):
        return _short(str(error))
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."
