"""Payloads and results come back as they went in, or are refused before anything changes."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from disk import Ticks, lines, untouched
from hypothesis import given
from hypothesis import strategies as st

from eventq import BadValue, Enqueue, OtherContent, Select, WorkQueue
from eventq.core.events import Json
from eventq.storage import payload
from eventq.storage.payload import DEPTH_LIMIT, to_json

TEXT = st.text() | st.sampled_from(
    ["\u2028\u2029", "\x00", "\x1b[0m", "\ufeff", "\U0010ffff", "\x7f\x85", '"\\/', "</script>", ""]
)
NUMBER = (
    st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([-0.0, 5e-324, sys.float_info.max, 2**63, 2**64, -(2**64), 1e16, 10**3000])
)
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=25,
)


def same(one: Any, other: Any) -> bool:
    """Equal with all types, the sign of zero, and the order of keys: 1, 1.0 and True differ."""
    return type(one) is type(other) and repr(one) == repr(other)


def nested(depth: int, innermost: Any = None) -> Any:
    value = innermost
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


@given(VALUE)
def test_json_comes_back_the_same(value: Any) -> None:
    """Value for value and type for type, through text that any reader of JSON takes."""
    text = to_json("it", value)
    if value is None:
        assert text is None
        return
    assert text is not None
    assert same(text.value(), value)
    assert same(json.loads(bytes(text)), value)
    assert b"\n" not in bytes(text)
    assert text.same(Json(json.dumps(value, indent=1, sort_keys=True).encode()))


CURIOUS: list[Any] = [
    None,
    False,
    True,
    0,
    -0.0,
    "",
    [],
    {},
    [None],
    {"": None},
    {"b": 1, "a": [1, 1.0, True]},
    2**64,
    -(10**3800),
    -(10**4300) + 1,
    5e-324,
    1e22,
    "\u2028\u2029\x00\x1b\x7f\x85\ufeff\U0010ffff",
    ',"hash":"' + "0" * 64 + '"}\n',
    {"hash": "0" * 64},
    "x" * 1_000_000,
    nested(DEPTH_LIMIT, "deep"),
    [[]] * 1000,
    {str(i): i for i in range(1000)},
]


def test_payloads_and_results_outlive_the_process(tmp_path: Path) -> None:
    """In the answers, in the lease, in the state, and after opening the queue again."""
    with WorkQueue.open(tmp_path / "q", clock=Ticks()) as q:
        for i, value in enumerate(CURIOUS):
            assert same(q.enqueue(f"t{i}", value).payload, value)
            lease = q.start()
            assert lease is not None
            assert same(lease.payload, value)
            assert same(q.complete(lease, value).result, value)
        q.snapshot()
    with WorkQueue.open(tmp_path / "q") as q:
        for state in (q.state, q.at(q.state.seq - 1), *(q.at(3 * i + 3) for i in range(5))):
            for i, value in enumerate(CURIOUS):
                task = state.task(f"t{i}")
                assert task is None or same(task.payload, value)
        for i, value in enumerate(CURIOUS):
            task = q.task(f"t{i}")
            assert task is not None
            assert same(task.payload, value)
            assert same(task.result, value)
            assert q.enqueue(f"t{i}", value) == task


def test_what_comes_back_is_made_afresh(tmp_path: Path) -> None:
    """Changing what was given, or what was answered, changes nothing in the queue."""
    with WorkQueue.open(tmp_path / "q") as q:
        given_ = {"urls": ["a"]}
        task = q.enqueue("t", given_)
        given_["urls"].append("b")
        task.payload["urls"].append("c")
        lease = q.start()
        assert lease is not None
        assert lease.payload == {"urls": ["a"]}
        lease.payload.clear()
        assert q.state.task("t").payload == {"urls": ["a"]}  # type: ignore[union-attr]


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 1


class Point(NamedTuple):
    x: int


class Text(str):
    __slots__ = ()


def holds_itself() -> Iterator[Any]:
    loop: list[Any] = []
    loop.append(loop)
    yield loop
    wide: list[Any] = []
    wide.extend([wide, wide, wide])
    yield wide
    ring: dict[str, Any] = {}
    ring["a"] = [ring]
    yield ring


REFUSED: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    (),
    (1,),
    Point(1),
    set(),
    frozenset([1]),
    b"bytes",
    bytearray(),
    memoryview(b""),
    1j,
    Decimal(1),
    datetime(2026, 11, 30, tzinfo=UTC),
    Path("x"),
    object(),
    object,
    len,
    range(3),
    iter([]),
    Colour.RED,
    Level.HIGH,
    Text("t"),
    OrderedDict(a=1),
    UserDict(a=1),
    Json(b"1"),
    Enqueue("t"),
    NotImplemented,
    ...,
    {1: "a"},
    {None: 1},
    {True: 1},
    {1.5: 1},
    {("a",): 1},
    {Text("t"): 1},
    {Colour.RED: 1},
    "\ud800",
    "a\udfff",
    {"\ud800": 1},
    10**4400,
    -(10**4400),
    nested(DEPTH_LIMIT + 1),
    nested(100_000),
    *holds_itself(),
]


@pytest.mark.parametrize("depth", [0, 1, 3, 5, 40])
@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_would_not_come_back_the_same_is_refused(number: int, depth: int) -> None:
    """However deep it is hidden; the error tells what it is about."""
    with pytest.raises(BadValue, match="the payload of 'x'"):
        to_json("the payload of 'x'", nested(depth, REFUSED[number]))


def test_the_error_says_where_it_is() -> None:
    """By the way to it through the value."""
    for value, words in [
        ({"a": [1, {"b": {2}}]}, r"it\['a'\]\[1\]\['b'\] is .*\bset\b"),
        ([math.nan], r"it\[0\] is nan"),
        ({"a": {3: 4}}, r"it\['a'\] has a key of the type int"),
        ({"\ud800": 1}, "a key of it holds a lone surrogate"),
        ([[["\ud800"]]], r"it\[0\]\[0\]\[0\] holds a lone surrogate"),
        (object(), "it is .*object, which JSON would not give back the same"),
        (nested(201), "it is nested deeper than 200 levels"),
    ]:
        with pytest.raises(BadValue, match=words):
            to_json("it", value)


def test_a_bad_value_changes_nothing(tmp_path: Path) -> None:
    """It is refused before the log is touched, wherever it is handed in."""
    with WorkQueue.open(tmp_path / "q", clock=Ticks()) as q:
        q.enqueue("t")
        lease = q.start("w")
        assert lease is not None
        state = q.state
        asks: list[Callable[[Any], Any]] = [
            lambda bad: q.enqueue("x", bad),
            lambda bad: q.enqueue("t", bad),
            lambda bad: q.enqueue(None, bad),
            lambda bad: q.enqueue_all([Enqueue("x"), Enqueue("y", bad)]),
            lambda bad: q.complete(lease, bad),
            lambda bad: q.complete_and_start(lease, bad),
        ]
        with untouched(tmp_path):
            for ask in asks:
                for bad in REFUSED:
                    with pytest.raises(BadValue):
                        ask(bad)
        assert q.state is state


def test_the_limit_on_size(tmp_path: Path) -> None:
    """It is on the bytes of the JSON text of what a caller sends."""
    with WorkQueue.open(tmp_path / "q", size_limit=1000) as q:
        for fits in ("x" * 998, "\N{SNOWMAN}" * 332, [1] * 499):
            q.enqueue(None, fits)
        with untouched(tmp_path):
            for much in ("x" * 999, "\N{SNOWMAN}" * 333, "\x00" * 167, [1] * 500):
                with pytest.raises(BadValue, match="bytes as JSON; at most 1000 fit"):
                    q.enqueue(None, much)


def test_the_limit_is_on_all_that_a_caller_sends(tmp_path: Path) -> None:
    """On a whole batch, on many dependencies, on a reason: refused before anything changes."""
    path = tmp_path / "q"
    with WorkQueue.open(path, size_limit=1000) as q:
        q.enqueue_all([Enqueue(f"t{i}", "x" * 87, ["a"]) for i in range(10)])
        q.close(why="x" * 1000)
        q.reopen(why="\N{SNOWMAN}" * 333)
        q.enqueue("z", after=["y" * 500, "z" * 498])
        with untouched(tmp_path):
            for ask in (
                lambda: q.enqueue_all([Enqueue(f"u{i}", "x" * 96) for i in range(10)] * 2),
                lambda: q.enqueue_all([Enqueue("u", None, ["y" * 500, "z" * 500])]),
                lambda: q.enqueue("u", after=["y" * 500, "z" * 500]),
                lambda: q.enqueue("u", "x" * 500, after=["\N{SNOWMAN}" * 170]),
                lambda: q.close(why="x" * 1001),
                lambda: q.close(why="\N{SNOWMAN}" * 334),
                lambda: q.complete(1, "x" * 999),
                lambda: q.redrive_all(Select(["y" * 500, "z" * 501])),
                lambda: q.redrive_all(Select(error="x" * 1001)),
            ):
                with pytest.raises(BadValue, match="at most 1000 fit"):
                    ask()


def test_a_batch_says_whose_payload_is_refused(tmp_path: Path) -> None:
    """By its id, or that it has none."""
    with WorkQueue.open(tmp_path / "q") as q, untouched(tmp_path):
        for id, words in (("x", "the payload of x"), (None, "the payload of the task")):
            with pytest.raises(BadValue, match=words + r"\['a'\] is nan"):
                q.enqueue_all([Enqueue("w", 1), Enqueue(id, {"a": math.nan})])


def test_the_limit_is_on_what_the_payloads_of_a_batch_add_up_to(tmp_path: Path) -> None:
    """Each of them would fit by itself, and the names are a small part of it."""
    with WorkQueue.open(tmp_path / "q", size_limit=100_000) as q:
        tasks = [Enqueue(f"t{i}", "x" * 9_996) for i in range(10)]
        with untouched(tmp_path), pytest.raises(BadValue, match="the batch has 100002 bytes"):
            q.enqueue_all([*tasks, Enqueue("y" * 2)])
        assert len(q.enqueue_all(tasks)) == 10


def test_the_limit_is_on_a_pool_too(tmp_path: Path) -> None:
    """It is refused before anything is made or changed."""
    path, pool = tmp_path / "q", [f"worker-{number:03}" for number in range(100)]
    with pytest.raises(BadValue, match="the pool has 1000 bytes; at most 999 fit"):
        WorkQueue.open(path, pool=pool, size_limit=999)
    assert not path.exists()
    with WorkQueue.open(path, pool=pool[:9], size_limit=999) as q:
        with untouched(path / "log"), pytest.raises(BadValue, match="the pool has 1000 bytes"):
            q.reconfigure(pool=pool)
        assert q.reconfigure(pool=pool[:99]).pool == tuple(pool[:99])


def test_a_longer_error_is_cut_and_says_so(tmp_path: Path) -> None:
    """So that a failure can always be recorded, and at a character; memory keeps it whole."""
    path = tmp_path / "q"
    with WorkQueue.open(path, size_limit=1000) as q, WorkQueue.in_memory() as memory:
        for text in ("x" * 1001, "\N{SNOWMAN}" * 334, "\ud800" * 200, "x" * 998 + "\ud800"):
            for where in (q, memory):
                where.enqueue()
                lease = where.start()
                assert lease is not None
                failed = where.fail(lease, text, kind="permanent")
                kept = (failed.error, where.cancel(where.enqueue().id, error=text).error)
                whole = text.encode(errors="backslashreplace").decode()
                if where is memory:
                    assert kept == (whole, whole)
                    continue
                mark = f"... (cut, {len(text):,} characters in all)"
                for error in kept:
                    assert error.endswith(mark)
                    assert 996 <= len(error.encode()) <= 1000
                    assert whole.startswith(error.removesuffix(mark))
        q.enqueue()
        lease = q.start()
        assert lease is not None
        assert q.fail(lease, "\N{SNOWMAN}" * 333).error == "\N{SNOWMAN}" * 333
    with WorkQueue.open(path, read_only=True, size_limit=1) as q:
        assert q.state.seq > 1


def test_reading_takes_a_line_of_any_size(tmp_path: Path) -> None:
    """The limit is that of who writes, not of the log."""
    path = tmp_path / "q"
    with WorkQueue.open(path, size_limit=10**6) as q:
        q.enqueue("a", "x" * 10**5)
    with WorkQueue.open(path, size_limit=10) as q:
        task = q.task("a")
        assert task is not None
        assert task.payload == "x" * 10**5
        q.enqueue("b")
        with pytest.raises(BadValue, match="at most 10 fit"):
            q.enqueue("c", "x" * 9)


def test_a_value_that_repeats_itself_is_refused_in_good_time() -> None:
    """Its text would have 2**100 brackets: nobody waits for that."""
    value: Any = []
    for _ in range(100):
        value = [value, value]

    def late(*_: object) -> None:
        raise TimeoutError("the value is still being looked at")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        with pytest.raises(BadValue):
            to_json("it", value, 100_000)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_equal_content_is_equal_as_sorted_json(tmp_path: Path) -> None:
    """The order of keys does not matter; 1, 1.0 and true differ, and null is no payload at all."""
    with WorkQueue.open(tmp_path / "q") as q:
        task = q.enqueue("t", {"a": {"c": 1, "d": "\u00e9"}, "b": [1, 2]})
        assert q.enqueue("t", {"b": [1, 2], "a": {"d": "\u00e9", "c": 1}}) == task
        q.enqueue("one", 1)
        q.enqueue("none")
        with untouched(tmp_path):
            others: dict[str, tuple[Any, ...]] = {
                "t": ({"b": [2, 1], "a": {"c": 1, "d": "\u00e9"}}, {}, None, "e\u0301"),
                "one": (1.0, True, "1", [1], None),
                "none": (0, False, "", [], {}),
            }
            for task_id, payloads in others.items():
                for other in payloads:
                    with pytest.raises(OtherContent):
                        q.enqueue(task_id, other)


class Untouchable:
    """Whoever compares it, hashes it, copies it, shows it or asks its truth fails."""

    def _no(self, *_: Any) -> Any:
        raise AssertionError("a payload was looked into")

    __eq__ = __ne__ = __lt__ = __gt__ = __hash__ = __bool__ = __len__ = __iter__ = _no
    __repr__ = __str__ = __format__ = __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = _no


def test_in_memory_the_very_same_object_comes_back() -> None:
    """It is never compared, copied, hashed or shown, only looked at with `is`."""
    q = WorkQueue.in_memory()
    here, result, other = Untouchable(), Untouchable(), Untouchable()
    assert q.enqueue("a", here).payload is here
    assert q.enqueue("a", here).payload is here
    tasks = q.enqueue_all([Enqueue("a", here), Enqueue("b", other), Enqueue(None, here)])
    assert tasks[1].payload is other
    assert tasks[2].payload is here
    with pytest.raises(OtherContent, match="another payload"):
        q.enqueue("a", other)
    lease = q.start("w")
    assert lease is not None
    assert lease.payload is here
    assert q.complete(lease, result).result is result
    lease = q.start("w")
    assert lease is not None
    assert lease.payload is other
    q.release(lease)
    task = q.at(3).task("a")
    assert task is not None
    assert task.payload is here
    assert q.state.task("a").result is result  # type: ignore[union-attr]
    q.state.check()
    assert all(entry.seq for entry in q.entries())


@pytest.mark.parametrize("value", [math.nan, object(), {1: 2}, (), lambda: None, nested(5000)])
def test_in_memory_anything_is_a_payload(value: Any) -> None:
    """JSON is for logs."""
    q = WorkQueue.in_memory()
    assert q.enqueue("a", value).payload is value
    lease = q.start()
    assert lease is not None
    assert q.complete(lease, value).result is value


def test_a_payload_is_written_as_it_was_given(tmp_path: Path) -> None:
    """The order of its keys, too: the log shows what the caller sent."""
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("t", {"b": 1, "a": -0.0})
    assert b'"payload":{"b":1,"a":-0.0},"after"' in lines(tmp_path / "q")[1]


@pytest.mark.parametrize(
    "text",
    [
        b"0",
        b"-0",
        b"-0.0",
        b"5e-324",
        b"123456789.123456789e-5",
        b"18446744073709551616",
        b"-9223372036854775809",
        b"1" + b"0" * 400,
        b'"\\ud800"',
        b'"\\ud83d\\ude00 \xc3\xa9 \\u0000"',
        b'{"a":1,"a":[true,false,null,{}]}',
        b" [1 , 2]\n",
    ],
)
def test_a_text_is_read_as_python_reads_it(text: bytes) -> None:
    """The fast way gives the same, of the same types, also for what another program wrote."""
    assert repr(payload.Text(text).value()) == repr(Json(text).value()) == repr(json.loads(text))


@pytest.mark.parametrize("text", [b"1e400", b"[-1e999]", b"9" * 5000, b"[" * 5000 + b"]" * 5000])
def test_a_text_that_stands_for_no_value_is_told_as_such(text: bytes) -> None:
    """Infinity is none: JSON has not got it, and would not give it back."""
    with pytest.raises(BadValue, match=f"{len(text):,} bytes in the log is none that a queue"):
        payload.Text(text).value()
