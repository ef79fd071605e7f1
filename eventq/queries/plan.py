"""What a redrive would do, before it is done: what runs, what it frees, and what stays.

The rules are asked, not told again: `decide` is given the command, on the state as it stands, and
the plan is what it answers. What was selected counts with all that hangs below it, and every task
of that is in one of four lists: redriven, unblocked, blocked still, parked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime

from attrs import evolve as with_changes
from attrs import frozen

from eventq.core.commands import Redrive, RedriveAll
from eventq.core.decide import decide
from eventq.core.errors import Refusal
from eventq.core.events import Redriven, Unblocked
from eventq.core.lifecycle import ROOTS, Status
from eventq.core.record import Record
from eventq.core.select import Select, selected
from eventq.core.state import State

__all__ = ["Chosen", "Held", "Plan", "drift", "plan", "plan_alone", "refusals", "roots_of"]

S = Status


@frozen
class Chosen:
    """A task that is to be redriven; `death` is the position of the event of its death."""

    task: str
    error: str
    since: datetime
    death: int


@frozen
class Held:
    """A task that stays BLOCKED, and the root that keeps it."""

    task: str
    root: str


@frozen
class Plan:
    """What a redrive of these tasks does to a queue that stands as it stood after `seq`."""

    queue: str
    seq: int
    redriven: tuple[Chosen, ...]
    """In the order of their death."""
    unblocked: tuple[str, ...]
    """Nearest first, as the log will tell them."""
    blocked: tuple[Held, ...]
    parked: tuple[str, ...]
    """Left alone: a person must look at each."""
    alone: bool = False
    """Whether it is for one task that was named alone: then a PARKED one is redriven too."""

    @property
    def selected(self) -> int:
        """How many tasks it speaks of: the four lists together."""
        return len(self.redriven) + len(self.unblocked) + len(self.blocked) + len(self.parked)

    @property
    def select(self) -> Select:
        """The very tasks, for the command: fixed, whatever dies in the meantime."""
        return Select(tasks=tuple(one.task for one in self.redriven))


class _Parked:
    """The PARKED tasks of a state, for `selected` to choose among as if they were DEAD."""

    def __init__(self, state: State) -> None:
        self._state = state

    def dead(self) -> list[Record]:
        found = (self._state.record(name) for _, name in self._state.in_parking)
        return [record for record in found if record is not None]

    def record(self, task: str) -> Record | None:
        return self._state.record(task)


def plan(state: State, select: Select, at: datetime) -> Plan:
    """What redriving what is meant would do now. PARKED tasks that fit are told, whatever the
    limit, and left alone; a BLOCKED one that was named is told with what hangs below the others."""
    names = selected(state, select)
    parked = selected(_Parked(state), with_changes(select, limit=None))
    named = () if select.tasks is None else select.tasks
    also = [name for name in named if _status(state, name) is S.BLOCKED]
    return _made(state, RedriveAll(Select(tasks=names)), at, also=also, parked=parked)


def plan_alone(state: State, task: str, at: datetime) -> Plan:
    """What redriving this one task would do, which may be PARKED. Raises what the rules raise."""
    return _made(state, Redrive(task), at, alone=True)


def _made(
    state: State,
    command: Redrive | RedriveAll,
    at: datetime,
    *,
    also: Iterable[str] = (),
    parked: Iterable[str] = (),
    alone: bool = False,
) -> Plan:
    """The plan that `decide` makes of this command."""
    events, after = decide(state, command, at)
    chosen = [_chosen(state, event.task) for event in events if isinstance(event, Redriven)]
    freed = [event.task for event in events if isinstance(event, Unblocked)]
    held = _held(after, [*(one.task for one in chosen), *parked], also)
    return Plan(state.queue, state.seq, tuple(chosen), tuple(freed), held, tuple(parked), alone)


def refusals(state: State, made: Plan, tasks: Iterable[str], at: datetime) -> list[Refusal]:
    """Why each of these tasks, that were named and are nothing of this plan, cannot be redriven."""
    told = {*made.unblocked, *made.parked}
    told.update(one.task for one in made.redriven)
    told.update(one.task for one in made.blocked)
    found = []
    for name in dict.fromkeys(tasks):
        if name not in told:
            try:
                decide(state, Redrive(name), at)
            except Refusal as refusal:
                found.append(refusal)
    return found


def _status(state: State, name: str) -> Status:
    record = state.record(name)
    return S.ABSENT if record is None else record.status


def _chosen(state: State, name: str) -> Chosen:
    record = state.record(name)
    assert record is not None
    assert record.since is not None
    return Chosen(name, record.error or "", record.since, record.mark)


def _held(after: State, start: list[str], also: Iterable[str]) -> tuple[Held, ...]:
    """What is BLOCKED below these, and of those named besides, in the state afterwards."""
    known: dict[str, str] = {}
    seen: dict[str, None] = {}
    for name in also:
        if _status(after, name) is S.BLOCKED:
            seen[name] = None
    frontier = deque(start)
    looked = set(start)
    while frontier:
        for below in after.dependents(frontier.popleft()):
            name = below.task.task
            if name in looked:
                continue
            looked.add(name)
            frontier.append(name)
            if below.status is S.BLOCKED:
                seen[name] = None
    return tuple(Held(name, after.root(name, known) or name) for name in seen)


def roots_of(state: State, task: str) -> list[str]:
    """All roots that keep this task from running, the nearest first; itself if it is one."""
    found: list[str] = []
    frontier = deque([task])
    looked = {task}
    while frontier:
        name = frontier.popleft()
        record = state.record(name)
        if record is None:
            continue
        if record.status in ROOTS:
            found.append(name)
        elif record.status is S.BLOCKED:
            fresh = [above for above in record.task.after if above not in looked]
            looked.update(fresh)
            frontier.extend(fresh)
    return found


def drift(made: Plan, state: State, at: datetime) -> list[str]:
    """What of a plan does not fit the state any more, in words: what it would redrive, or what
    that would unblock. Nothing else that has happened since matters."""
    if made.queue != state.queue:
        return [f"it was made for the queue {made.queue}, and this one is {state.queue}"]
    if made.seq > state.seq:
        return [f"it was made after entry {made.seq}, and the log has {state.seq}"]
    found = [said for one in made.redriven if (said := _became(state, one, made.alone)) is not None]
    if found or not made.redriven:
        return found
    now = (
        plan_alone(state, made.redriven[0].task, at) if made.alone else plan(state, made.select, at)
    )
    then, here = dict.fromkeys(made.unblocked), dict.fromkeys(now.unblocked)
    return [
        *(f"{name} would not become unblocked any more" for name in then if name not in here),
        *(f"{name} would become unblocked too" for name in here if name not in then),
    ]


def _became(state: State, one: Chosen, alone: bool) -> str | None:
    """What has become of a task that was DEAD (or PARKED, named alone), if anything has."""
    record = state.record(one.task)
    if record is None:
        return f"{one.task} is unknown now"
    if record.status not in ((S.DEAD, S.PARKED) if alone else (S.DEAD,)):
        return f"{one.task} is {record.status} now"
    return None if record.mark == one.death else f"{one.task} has died anew since"
