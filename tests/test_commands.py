"""What may be asked: bad values are refused as a command is made, and a log tells it back."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from ledger import NOON, Ledger, Walk

from eventq.core.commands import (
    COMMANDS,
    OF_THE_QUEUE,
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
    command,
)
from eventq.core.decide import decide
from eventq.core.errors import BadValue
from eventq.core.events import Closed, Entry, Forgotten
from eventq.core.evolve import evolve
from eventq.core.policy import Backoff, Capacity, Policy, Retention, Retry
from eventq.core.select import Select
from eventq.core.state import State
from eventq.core.values import NAME_LIMIT, check_name


class Text(str):
    __slots__ = ()


GOOD_NAMES = [
    "a",
    " ",
    "a b",
    "x" * NAME_LIMIT,
    "é" * (NAME_LIMIT // 2),
    "\U0001f40d" * (NAME_LIMIT // 4),
    "\u2028",
    "\u200f",
    "\ufeff",
    "日本語",
    "a#b",
    "-",
    '"',
    "\\",
    "\ue000",
    "\uffff",
]

BAD_NAMES: list[tuple[Any, str]] = [
    ("", "must not be empty"),
    ("x" * (NAME_LIMIT + 1), "513 bytes; at most 512"),
    ("é" * (NAME_LIMIT // 2) + "x", "513 bytes"),
    ("a\n", "control character"),
    ("\x00", "control character"),
    ("\t", "control character"),
    ("\x7f", "control character"),
    ("\x85", "control character"),
    ("\x9f", "control character"),
    ("\x1b[31m", "control character"),
    ("\ud800", "lone surrogate"),
    ("a\udfffb", "lone surrogate"),
    (None, "must be a text"),
    (1, "must be a text"),
    (b"a", "must be a text"),
    (["a"], "must be a text"),
    (True, "must be a text"),
    (Text("a"), "must be a text"),
]

NO_LEASE: list[Any] = [0, -1, None, True, 1.0, "1", [], object()]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_what_can_be_a_name(name: str) -> None:
    """Non-empty, at most 512 bytes of UTF-8, no control characters; all else is allowed."""
    check_name("it", name)
    assert Enqueue(name, None, [name]).id == name
    assert Start(name).worker == name
    assert Redrive(name).task == Cancel(name).task == Restore(name).task == name
    assert Open(name).queue == name


@pytest.mark.parametrize(("name", "words"), BAD_NAMES)
def test_what_cannot_be_a_name(name: Any, words: str) -> None:
    """Refused as an id, as a key, in `after`, as a task to act on and as the id of a queue."""
    with pytest.raises(BadValue, match=f"it .*{words}"):
        check_name("it", name)
    for make in (Redrive, Cancel, Restore, Open):
        with pytest.raises(BadValue, match=words):
            make(name)
    if name is not None:
        with pytest.raises(BadValue, match=words):
            Enqueue(name)
        with pytest.raises(BadValue, match=f"a key .*{words}"):
            Enqueue(key=name)
    if not isinstance(name, list):
        with pytest.raises(BadValue, match=words):
            Enqueue("ok", None, ["fine", name])


@pytest.mark.parametrize("when", [NOON.replace(tzinfo=None), 5, "2026-11-30T12:00:00Z"])
def test_what_cannot_be_a_time_to_wait_for(when: Any) -> None:
    """A time says its zone; nothing else is one."""
    with pytest.raises(BadValue, match="not_before must be a datetime with its time zone, not"):
        Enqueue(not_before=when)


@pytest.mark.parametrize("name", [name for name, _ in BAD_NAMES if isinstance(name, str)])
def test_a_text_that_cannot_be_a_name_cannot_name_a_worker(name: str) -> None:
    """A worker may be any hashable in memory, but a text must be one that a log can hold."""
    with pytest.raises(BadValue):
        Start(name)
    with pytest.raises(BadValue):
        CompleteAndStart(1, None, name)


@pytest.mark.parametrize("worker", [None, 0, 1.5, (), ("a\n",), frozenset(), Start, b"", True])
def test_a_worker_may_be_any_hashable(worker: Any) -> None:
    """Which it is, is the caller's affair; with a path the queue asks for names."""
    assert Start(worker).worker is worker


@pytest.mark.parametrize("worker", [[], {}, set(), ([],), bytearray()])
def test_a_worker_must_be_hashable(worker: Any) -> None:
    """Else nobody could find what it holds."""
    with pytest.raises(BadValue, match="hashable"):
        Start(worker)
    with pytest.raises(BadValue, match="hashable"):
        CompleteAndStart(1, None, worker)


@pytest.mark.parametrize("name", ["#", "#1", "#2.1", "##"])
def test_ids_that_the_queue_makes_are_its_own(name: str) -> None:
    """No caller may enqueue one; but anyone may name one."""
    with pytest.raises(BadValue, match="must not start with '#'"):
        Enqueue(name)
    assert Enqueue("a", None, [name]).after == (name,)
    assert Redrive(name).task == name


@pytest.mark.parametrize("after", ["abc", "", b"abc", None, 5, [[]], [{}], True, object()])
def test_after_is_a_collection_of_ids(after: Any) -> None:
    """A text is no collection of its letters."""
    with pytest.raises(BadValue, match=r"after must be a collection of ids|an id in after"):
        Enqueue("a", None, after)


def test_an_enqueue_is_a_frozen_class_as_any_other() -> None:
    """It is made in a way of its own."""
    task = Enqueue("a", {"b": 1}, ["c"], key="k", max_attempts=None, not_before=NOON)
    same = [copy.copy(task), copy.deepcopy(task), pickle.loads(pickle.dumps(task))]
    same += [attrs.evolve(task), attrs.evolve(attrs.evolve(task, key=None), key="k")]
    for other in same:
        assert other == task
        assert type(other) is Enqueue
        assert repr(other) == repr(task)
    assert attrs.evolve(task, id="x").id == "x"
    with pytest.raises(BadValue, match="must not be empty"):
        attrs.evolve(task, id="")
    for change in (lambda: setattr(task, "id", "b"), lambda: delattr(task, "id")):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            change()
    with pytest.raises(TypeError, match="Enqueue has no subclasses"):
        type("Mine", (Enqueue,), {})


def test_after_drops_repeats_and_keeps_the_order() -> None:
    """The first mention of each counts; a generator is read once."""
    assert Enqueue("a", None, ["c", "b", "c"]).after == ("c", "b")
    assert Enqueue("a", None, (name for name in "cbc")).after == ("c", "b")
    assert Enqueue("a").after == ()


def test_no_order_depends_on_that_of_a_set() -> None:
    """A set as `after` is refused, or put in an order that is the same in every process."""
    ids = {f"t{i}" for i in range(50)}
    try:
        after = Enqueue("a", None, ids).after
    except BadValue:
        return
    assert after == tuple(sorted(ids))


@pytest.mark.parametrize("value", [0, -1, True, False, 1.0, "3", []])
def test_the_limit_of_a_task_is_a_whole_number(value: Any) -> None:
    """Of at least one, or None for no limit; the queue's own unless given."""
    with pytest.raises(BadValue, match="max_attempts must be a whole number of at least 1 or None"):
        Enqueue("a", max_attempts=value)
    assert Enqueue("a").max_attempts is OF_THE_QUEUE
    assert Enqueue("a", max_attempts=None).max_attempts is None
    assert "the queue's own" in repr(Enqueue("a"))


@pytest.mark.parametrize("lease", NO_LEASE)
def test_a_lease_is_a_whole_number(lease: Any) -> None:
    """A bool is none, and there is none before the first."""
    for make in (Complete, CompleteAndStart, Fail, Release):
        with pytest.raises(BadValue, match="lease must be a whole number of at least 1"):
            make(lease)
    if lease is not None:
        with pytest.raises(BadValue, match="lease must be a whole number of at least 1 or None"):
            Cancel("a", lease)


@pytest.mark.parametrize("error", [None, 1, b"x", ["x"], ValueError("x")])
def test_an_error_is_a_text(error: Any) -> None:
    """Any text: what a failure says must never keep it from being told."""
    with pytest.raises(BadValue, match="error must be a text"):
        Fail(1, error)
    if error is not None:
        with pytest.raises(BadValue, match="error must be a text or None"):
            Cancel("a", None, error)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        ("", ""),
        ("\x00\x1b[2J", "\x00\x1b[2J"),
        ("x" * 100_000, "x" * 100_000),
        ("é \u2028", "é \u2028"),
        ("\ud800 and é", "\\ud800 and é"),
    ],
)
def test_any_text_can_be_an_error(error: str, kept: str) -> None:
    """However strange, so that a failure can always be told: what UTF-8 has not is spelled out."""
    assert Fail(1, error).error == Cancel("a", None, error).error == kept
    assert kept.encode().decode() == kept


@pytest.mark.parametrize("kind", ["", "RETRYABLE", None, 1, True, [], "fatal"])
def test_a_failure_is_of_one_of_two_kinds(kind: Any) -> None:
    """Retryable or permanent."""
    with pytest.raises(BadValue, match="kind must be 'retryable' or 'permanent'"):
        Fail(1, "", kind)


@pytest.mark.parametrize("batch", [5, None, ["a"], [Enqueue("a"), None], [Start()], "ab", True])
def test_a_batch_is_made_of_enqueues(batch: Any) -> None:
    """And of nothing else; a bad value in it refuses all of it."""
    with pytest.raises(BadValue, match="batch"):
        EnqueueAll(batch)
    with pytest.raises(BadValue):
        EnqueueAll([Enqueue("a"), Enqueue("")])


def test_a_batch_may_be_empty_and_may_come_one_by_one() -> None:
    """It is read once."""
    assert EnqueueAll([]).tasks == ()
    assert EnqueueAll(Enqueue(name) for name in "ab").tasks == (Enqueue("a"), Enqueue("b"))


def test_commands_are_values() -> None:
    """Never changed once they are made, and equal by content."""
    assert Enqueue("a", 1, ["b"]) == Enqueue("a", 1, ("b",))
    assert Complete(1) != Release(1)
    with pytest.raises(AttributeError):
        Redrive("a").task = "b"  # type: ignore[misc]


def leaves(kind: type[Command]) -> Iterator[type[Command]]:
    """The classes below this one that have none below."""
    for below in kind.__subclasses__():
        yield from leaves(below) if below.__subclasses__() else [below]


def test_every_command_has_a_name_of_its_own() -> None:
    """The names are those of the log, for ever."""
    assert {kind.do: kind for kind in COMMANDS} == {
        "open": Open,
        "enqueue": Enqueue,
        "enqueue_all": EnqueueAll,
        "start": Start,
        "complete": Complete,
        "complete_and_start": CompleteAndStart,
        "fail": Fail,
        "renew": Renew,
        "release": Release,
        "redrive": Redrive,
        "redrive_all": RedriveAll,
        "cancel": Cancel,
        "restore": Restore,
        "resolve": Resolve,
        "close": Close,
        "reopen": Reopen,
        "pause": Pause,
        "resume": Resume,
        "reconfigure": Reconfigure,
        "tick": Tick,
    }
    gc.collect()  # attrs makes a slotted class from one without slots, which is still there
    assert set(leaves(Command)) == set(COMMANDS)


def test_what_the_log_keeps_of_a_command() -> None:
    """Each argument that its events do not hold, in fixed fields and order, nulls included."""
    asks = {kind: kind.asks for kind in COMMANDS if kind.asks}
    assert asks == {
        Start: ("worker", "lease_for"),
        Complete: ("lease",),
        CompleteAndStart: ("lease", "worker", "lease_for"),
        Fail: ("lease", "retry_after"),
        Renew: ("lease", "lease_for"),
        Release: ("lease",),
        RedriveAll: ("select",),
        Cancel: ("lease",),
    }
    assert Start("w").ask() == {"worker": "w", "lease_for": None}
    assert list(CompleteAndStart(7, "result", "w").ask().items()) == [
        ("lease", 7),
        ("worker", "w"),
        ("lease_for", None),
    ]
    assert Fail(7, "error").ask() == {"lease": 7, "retry_after": None}
    assert Cancel("a").ask() == {"lease": None}
    assert Enqueue("a").ask() == EnqueueAll([]).ask() == Close().ask() == {}


def test_an_operator_may_say_why() -> None:
    """What a person asks, and not a worker."""
    operators = {kind for kind in COMMANDS if kind.operator}
    assert operators == {
        *(Redrive, RedriveAll, Cancel, Restore, Resolve, Close, Reopen),
        *(Pause, Resume, Reconfigure),
    }


# The way back.


def asked(*commands: Command, **policy: Any) -> Entry:
    """The entry of the last of these."""
    return Ledger(**policy).do(*commands).entries[-1]


LATER = NOON + timedelta(days=1)
A, B = Enqueue("a"), Enqueue("b", "payload", ["a"], max_attempts=None)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (lambda: asked(A), Enqueue("a", max_attempts=3)),
        (lambda: asked(A, B), B),
        (lambda: asked(Enqueue(None, 1)), Enqueue(None, 1, max_attempts=3)),
        (
            lambda: asked(A, EnqueueAll([B, A, Enqueue(None), B, Enqueue(None, 2)])),
            EnqueueAll([B, Enqueue(max_attempts=3), Enqueue(None, 2, max_attempts=3)]),
        ),
        (lambda: asked(A, Start("w")), Start("w")),
        (lambda: asked(A, Start()), Start()),
        (lambda: asked(A, Start("w"), Complete(3, "r")), Complete(3, "r")),
        (
            lambda: asked(A, Start("w"), CompleteAndStart(3, "r", "v")),
            CompleteAndStart(3, "r", "v"),
        ),
        (lambda: asked(A, Start(), Fail(3, "e", "permanent")), Fail(3, "e", "permanent")),
        (lambda: asked(A, Start(), Fail(3)), Fail(3)),
        (lambda: asked(A, Start(), Release(3)), Release(3)),
        (lambda: asked(A, Start(), Release(3), retry=Retry(max_releases=0)), Release(3)),
        (lambda: asked(A, B, Start(), Fail(4, "", "permanent"), Redrive("a")), Redrive("a")),
        (lambda: asked(A, B, Cancel("a", error="no")), Cancel("a", None, "no")),
        (lambda: asked(A, Start("w"), Cancel("a", 3)), Cancel("a", 3)),
        (lambda: asked(A, B, Cancel("a"), Restore("a")), Restore("a")),
        (lambda: asked(A, B, Cancel("a"), Resolve("a")), Resolve("a")),
        (
            lambda: asked(A, Start(), Fail(3, "e", "permanent"), RedriveAll(Select(error="e"))),
            RedriveAll(Select(error="e")),
        ),
        (lambda: asked(A, Start(None, 60), Renew(3, 600)), Renew(3, timedelta(minutes=10))),
        (lambda: asked(A, Start("w", 60)), Start("w", timedelta(minutes=1))),
        (lambda: asked(A, Start(), Fail(3, "e", "retryable", 5)), Fail(3, "e", "retryable", 5)),
        (
            lambda: asked(Enqueue("k", key="key", not_before=LATER)),
            Enqueue("k", key="key", not_before=LATER, max_attempts=3),
        ),
        (lambda: asked(Pause()), Pause()),
        (lambda: asked(Pause(), Resume()), Resume()),
        (lambda: asked(Reconfigure(Policy(pool=["w"]))), Reconfigure(Policy(pool=["w"]))),
        (lambda: asked(Close()), Close()),
        (lambda: asked(Close(), Reopen()), Reopen()),
        (lambda: asked(A, Cancel("a"), Tick(), retention=Retention(0)), Tick()),
        (lambda: Ledger(pool=["w"], capacity=Capacity(2)).entries[0], None),
    ],
)
def test_each_command_is_told_back_by_its_entry(
    entry: Callable[[], Entry], expected: Command | None
) -> None:
    """What the events and the `ask` do not hold is what no decision rests on."""
    if expected is None:
        expected = Open("q", Policy(pool=["w"], capacity=Capacity(2)))
    assert command(entry()) == expected


@pytest.mark.parametrize("seed", range(15))
def test_the_law_of_the_log(seed: int) -> None:
    """`decide(state before, command(entry))` gives `entry.events`, for every entry of a log."""
    policy: dict[str, Any] = {
        "rich": seed % 4 > 0,
        "lease_for": 9 if seed % 2 else None,
        "retry": Retry(2, 1, 1, Backoff(2, jitter="full") if seed % 2 else None),
        "retention": Retention(seed % 3) if seed % 2 else None,
        "capacity": Capacity(4, "unresolved") if seed % 3 == 0 else None,
        "pool": ["w0", "w1"] if seed % 5 == 0 else None,
    }
    state = State()
    for entry in Walk(seed, **policy).walk(300).entries:
        assert decide(state, command(entry), entry.at)[0] == entry.events
        state = evolve(state, entry)


def test_the_law_holds_for_what_another_policy_left_behind() -> None:
    """The time of an entry is that of its decision, and what is due is in its events."""
    entry = asked(A, Cancel("a"), Enqueue("c"), Start("w"), retention=Retention(0))
    assert isinstance(entry.events[0], Forgotten)
    assert command(entry) == Start("w")


def test_an_unknown_name_is_an_error() -> None:
    """An entry that asks for what no rule knows is never passed over."""
    with pytest.raises(KeyError):
        command(Entry(2, NOON, "explode", (Closed(),)))


def test_the_time_comes_in_with_the_command() -> None:
    """The core reads no clock: what ends is dated by what it was told."""
    then = datetime(1999, 1, 1, tzinfo=UTC)
    state = decide(State(), Open("q"), then)[1]
    state = decide(state, A, then)[1]
    state = decide(state, Cancel("a"), then)[1]
    task = state.task("a")
    assert task is not None
    assert task.ended == state.at == then
