"""The lifecycle tables: every cell leads where the table says, or is loud and changes nothing."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from ledger import NOON, told

from eventq.core import events as e
from eventq.core.errors import ImpossibleEvent
from eventq.core.events import QUEUE_EVENTS, TASK_EVENTS, Entry, Event, Json, TaskEvent
from eventq.core.evolve import evolve
from eventq.core.lifecycle import FINISHED, LEADS, QUEUE, ROOTS, TASK, Status, picture, sources
from eventq.core.policy import Policy, Retry
from eventq.core.state import State

S = Status

DESIGN = """
Enqueued  | ABSENT | PENDING
Readied   | PENDING DELAYED FAILED | READY
Delayed   | PENDING FAILED | DELAYED
Started   | READY | RUNNING
Renewed   | RUNNING | RUNNING
Released  | RUNNING | READY
Completed | RUNNING | SUCCEEDED
Failed    | RUNNING | FAILED
Expired   | RUNNING | FAILED
Died      | FAILED | DEAD
Parked    | FAILED | PARKED
Blocked   | PENDING | BLOCKED
Unblocked | BLOCKED | PENDING
Redriven  | DEAD PARKED | PENDING
Restored  | CANCELLED | PENDING
Resolved  | DEAD PARKED CANCELLED | SUCCEEDED
Cancelled | PENDING READY DELAYED RUNNING BLOCKED DEAD PARKED | CANCELLED
Forgotten | SUCCEEDED CANCELLED | ABSENT
"""
"""The table as the design has it, copied by hand so that a slip in the module shows."""

LATER = NOON + timedelta(hours=1)
OTHER_POLICY = Policy(retry=Retry(max_attempts=9))

EVENTS: dict[type[TaskEvent], TaskEvent] = {
    e.Enqueued: e.Enqueued("t", "payload", ("up",), None, 3, None),
    e.Readied: e.Readied("t"),
    e.Delayed: e.Delayed("t", LATER),
    e.Started: e.Started("t", 1, "w", LATER),
    e.Renewed: e.Renewed("t", LATER + timedelta(hours=1)),
    e.Released: e.Released("t"),
    e.Completed: e.Completed("t", "result"),
    e.Failed: e.Failed("t", 1, "boom", "retryable"),
    e.Expired: e.Expired("t", 1),
    e.Died: e.Died("t"),
    e.Parked: e.Parked("t"),
    e.Blocked: e.Blocked("t", "up"),
    e.Unblocked: e.Unblocked("t"),
    e.Redriven: e.Redriven("t"),
    e.Restored: e.Restored("t"),
    e.Resolved: e.Resolved("t"),
    e.Cancelled: e.Cancelled("t", "no longer wanted"),
    e.Forgotten: e.Forgotten("t"),
}

WAY: dict[Status, tuple[type[TaskEvent], ...]] = {
    S.ABSENT: (),
    S.PENDING: (e.Enqueued,),
    S.READY: (e.Enqueued, e.Readied),
    S.DELAYED: (e.Enqueued, e.Delayed),
    S.RUNNING: (e.Enqueued, e.Readied, e.Started),
    S.FAILED: (e.Enqueued, e.Readied, e.Started, e.Failed),
    S.SUCCEEDED: (e.Enqueued, e.Readied, e.Started, e.Completed),
    S.DEAD: (e.Enqueued, e.Readied, e.Started, e.Failed, e.Died),
    S.PARKED: (e.Enqueued, e.Readied, e.Started, e.Failed, e.Parked),
    S.BLOCKED: (e.Enqueued, e.Blocked),
    S.CANCELLED: (e.Enqueued, e.Cancelled),
}
"""How a task gets to each standing."""

CELLS = list(itertools.product(TASK_EVENTS, Status))


def fold(state: State, *events: Event) -> State:
    return evolve(state, Entry(state.seq + 1, NOON, "tick", events))


def standing(status: Status) -> State:
    """A queue in which the task `t` stands there; other tasks stand around it."""
    state = fold(State(), e.Opened("q", Policy()))
    state = fold(state, e.Enqueued("other"), e.Readied("other"))
    state = fold(state, e.Enqueued("up"), e.Cancelled("up"))
    for kind in WAY[status]:
        state = fold(state, EVENTS[kind])
    return state


def where(state: State, task: str = "t") -> Status:
    record = state.record(task)
    return S.ABSENT if record is None else record.status


def test_the_tables_hold_what_the_design_says() -> None:
    """The table of task events is that of the design, row by row and in its order."""
    rows = [line.split("|") for line in DESIGN.strip().splitlines()]
    assert [
        (name.strip(), tuple(S(s) for s in before.split()), S(after.strip()))
        for name, before, after in rows
    ] == [(kind.__name__, row.sources, row.target) for kind, row in TASK.items()]


def test_the_tables_name_every_event_once() -> None:
    """Every event class is in exactly one of the two tables, and has a sample in this file."""
    assert tuple(TASK) == TASK_EVENTS
    assert tuple(QUEUE) == QUEUE_EVENTS
    assert set(EVENTS) == set(TASK_EVENTS)
    assert set(WAY) == set(Status)
    below = TaskEvent.__subclasses__()
    assert {(kind.__subclasses__() or [kind])[0] for kind in below} == set(TASK_EVENTS)


@pytest.mark.parametrize("status", Status)
def test_every_standing_can_be_reached(status: Status) -> None:
    """Folding the way to a standing leads there."""
    assert where(standing(status)) is status


@pytest.mark.parametrize(
    ("kind", "status"), CELLS, ids=[f"{kind.__name__}-{status}" for kind, status in CELLS]
)
def test_every_cell(kind: type[TaskEvent], status: Status) -> None:
    """A legal cell leads to the row's target and nothing else moves; any other is loud."""
    before = standing(status)
    facts = told(before)
    if status in TASK[kind].sources:
        after = fold(before, EVENTS[kind])
        assert where(after) is TASK[kind].target
        assert where(after, "other") is S.READY
        assert after.position == before.position + 1
        moved = {status: -1, TASK[kind].target: 1} if TASK[kind].target is not status else {}
        for each, count in after.counts().items():
            assert count == before.counts()[each] + moved.get(each, 0)
    else:
        with pytest.raises(ImpossibleEvent) as raised:
            fold(before, EVENTS[kind])
        assert (raised.value.task, raised.value.status) == ("t", status)
        assert raised.value.seq == before.seq + 1
        assert raised.value.event == EVENTS[kind]
        assert kind.__name__ in str(raised.value)
    assert told(before) == facts


@pytest.mark.parametrize(
    ("kind", "status"), CELLS, ids=[f"{kind.__name__}-{status}" for kind, status in CELLS]
)
def test_look_up_and_sources_agree_with_the_table(kind: type[TaskEvent], status: Status) -> None:
    """`LEADS` and `sources` say what the rows say."""
    legal = status in TASK[kind].sources
    assert LEADS[kind].get(status) == (TASK[kind].target if legal else None)
    assert (status in sources(kind)) == legal


def test_an_impossible_event_late_in_an_entry_undoes_the_whole_entry() -> None:
    """Nothing of an entry remains when one of its events cannot be."""
    before = standing(S.READY)
    facts = told(before)
    with pytest.raises(ImpossibleEvent):
        fold(before, EVENTS[e.Started], EVENTS[e.Failed], e.Died("other"))
    assert told(before) == facts


def test_the_error_tells_the_story_of_the_task() -> None:
    """The error of a task that is known says more than its status."""
    with pytest.raises(ImpossibleEvent) as raised:
        fold(standing(S.DEAD), EVENTS[e.Completed])
    assert raised.value.story
    assert "boom" in str(raised.value)


def test_sources_of_a_queue_event_is_a_mistake() -> None:
    """Only task events have a row to ask for."""
    with pytest.raises(KeyError):
        sources(e.Closed)


def test_finished_and_roots() -> None:
    """A finished task asks for nothing more; a root keeps others from running."""
    assert {S.SUCCEEDED, S.CANCELLED} == FINISHED
    assert {S.DEAD, S.PARKED, S.CANCELLED} == ROOTS


# The queue.

QUEUE_EVENT: dict[type, Event] = {
    e.Opened: e.Opened("q2", OTHER_POLICY),
    e.Closed: e.Closed(),
    e.Reopened: e.Reopened(),
    e.Paused: e.Paused(),
    e.Resumed: e.Resumed(),
    e.Reconfigured: e.Reconfigured(OTHER_POLICY),
}

QUEUE_DESIGN: dict[type, dict[tuple[str, str], tuple[str, str]]] = {
    e.Opened: {("absent", "running"): ("open", "running")},
    e.Closed: {("open", d): ("closed", d) for d in ("running", "paused")},
    e.Reopened: {("closed", d): ("open", d) for d in ("running", "paused")},
    e.Paused: {(a, "running"): (a, "paused") for a in ("open", "closed")},
    e.Resumed: {(a, "paused"): (a, "running") for a in ("open", "closed")},
    e.Reconfigured: {(a, d): (a, d) for a in ("open", "closed") for d in ("running", "paused")},
}
"""Where each queue event leads from (admission, dispatch); all others are impossible."""

QUEUE_CELLS = [
    (kind, standing)
    for kind in QUEUE_EVENTS
    for standing in [
        ("absent", "running"),
        *itertools.product(("open", "closed"), ("running", "paused")),
    ]
]


def queue_standing(admission: str, dispatch: str) -> State:
    state = State()
    if admission != "absent":
        state = fold(state, e.Opened("q", Policy()))
    if dispatch == "paused":
        state = fold(state, e.Paused())
    if admission == "closed":
        state = fold(state, e.Closed())
    assert (state.admission, state.dispatch) == (admission, dispatch)
    return state


@pytest.mark.parametrize(
    ("kind", "standing"),
    [
        pytest.param(
            kind,
            standing,
            id=f"{kind.__name__}-{'-'.join(standing)}",
        )
        for kind, standing in QUEUE_CELLS
    ],
)
def test_every_cell_of_the_queue(kind: type, standing: tuple[str, str]) -> None:
    """A queue event moves what its row says, or is loud; `Opened` alone can be first."""
    before = queue_standing(*standing)
    facts = told(before)
    target = QUEUE_DESIGN[kind].get(standing)
    if target is None:
        with pytest.raises(ImpossibleEvent) as raised:
            fold(before, QUEUE_EVENT[kind])
        assert raised.value.task is None
        assert "the queue" in str(raised.value)
    else:
        after = fold(before, QUEUE_EVENT[kind])
        assert (after.admission, after.dispatch) == target
        policy_told = kind in (e.Opened, e.Reconfigured)
        assert after.policy == (OTHER_POLICY if policy_told else before.policy)
        assert after.queue == ("q2" if kind is e.Opened else before.queue)
        assert after.position == before.position + 1
    assert told(before) == facts


@pytest.mark.parametrize("kind", TASK_EVENTS)
def test_nothing_happens_to_a_task_before_the_queue_is_open(kind: type[TaskEvent]) -> None:
    """A log whose first event is that of a task is no log."""
    with pytest.raises(ImpossibleEvent):
        fold(State(), EVENTS[kind])


# The picture.


def test_the_picture_draws_exactly_the_table() -> None:
    """Each arrow of the Mermaid diagram is a row of the table, and each row is drawn once."""
    first, *lines = picture().splitlines()
    assert first == "stateDiagram-v2"
    drawn: list[tuple[str, str, str]] = []
    for line in lines:
        assert line.startswith("    ")
        arrow, _, labels = line.strip().partition(": ")
        source, _, target = arrow.partition(" --> ")
        drawn += [(label, source, target) for label in labels.split(", ")]
    assert len(drawn) == len(set(drawn))

    def name(status: Status) -> str:
        return "[*]" if status is S.ABSENT else status.value

    assert set(drawn) == {
        (kind.__name__, name(source), name(row.target))
        for kind, row in TASK.items()
        for source in row.sources
    }
    pairs = [line.partition(": ")[0] for line in lines]
    assert len(pairs) == len(set(pairs)), "one arrow for each pair of standings"


# What an event does besides.


def test_an_event_holds_what_it_was_given() -> None:
    """Events are values: equal by content, and of their own class."""
    assert EVENTS[e.Readied] == e.Readied("t")
    assert e.Readied("t") != e.Died("t")
    assert len({e.Readied("t"), e.Readied("t"), e.Unblocked("t")}) == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'{"a":1,"b":2}', b'{"b":2,"a":1}', True),
        (b"1", b"1", True),
        (b"1", b"1.0", False),
        (b"1", b"true", False),
        (b"null", b"false", False),
        (b'["a"]', b'[ "a" ]', True),
        (b"[1,2]", b"[2,1]", False),
        ('"é"'.encode(), b'"\\u00e9"', True),
    ],
)
def test_payloads_are_the_same_as_json_with_sorted_keys(
    one: bytes, other: bytes, same: bool
) -> None:
    """The order of keys and the spelling are no content; 1, 1.0 and true differ."""
    assert Json(one).same(Json(other)) is same
    assert Json(other).same(Json(one)) is same
