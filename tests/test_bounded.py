"""The bounded contract: its rules one by one, and against a plain model in long random runs."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventq.contracts.bounded import WorkQueue

Make = Callable[[int], WorkQueue]


@pytest.fixture(params=["in memory", "on a path"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a queue of either kind, and lets go of it at the end."""
    made: list[WorkQueue] = []

    def of(max_pending: int) -> WorkQueue:
        path = tmp_path / f"q{len(made)}" if request.param == "on a path" else None
        made.append(WorkQueue(max_pending, path))
        return made[-1]

    yield of
    for queue in made:
        queue.shut()


class Odd:
    """An item that nobody may look into: whoever compares, hashes or copies it fails."""

    def _no(self, *_: object) -> Any:
        raise AssertionError("an item was looked into")

    __eq__ = __lt__ = __bool__ = __len__ = __iter__ = __hash__ = _no  # type: ignore[assignment]
    __copy__ = __deepcopy__ = __reduce_ex__ = __repr__ = _no  # type: ignore[assignment]


def test_items_are_handed_out_in_the_order_in_which_they_came(make: Make) -> None:
    """First in, first out, to whoever asks."""
    queue = make(3)
    assert [queue.enqueue(item) for item in ("a", "b", "c")] == [True, True, True]
    assert [queue.start(worker) for worker in ("w1", "w2", "w3", "w4")] == ["a", "b", "c", None]


def test_a_full_queue_refuses_and_changes_nothing(make: Make) -> None:
    """What is in progress takes no room; what is pending does."""
    queue = make(2)
    assert queue.enqueue("a")
    assert queue.enqueue("b")
    before = queue.snapshot()
    assert queue.enqueue("c") is False
    assert queue.snapshot() == before
    assert queue.start("w") == "a"
    assert queue.enqueue("d") is True
    assert queue.enqueue("e") is False
    assert queue.snapshot() == {"pending": ["b", "d"], "in_progress": {"w": "a"}}


def test_room_for_none_refuses_all(make: Make) -> None:
    """Zero is a limit like any other."""
    queue = make(0)
    assert queue.enqueue("a") is False
    assert queue.start("w") is None
    assert queue.snapshot() == {"pending": [], "in_progress": {}}


def test_a_worker_holds_one_item_at_a_time(make: Make) -> None:
    """A busy worker is given nothing, and nothing moves."""
    queue = make(5)
    queue.enqueue("a")
    queue.enqueue("b")
    assert queue.start("w") == "a"
    assert queue.start("w") is None
    assert queue.snapshot() == {"pending": ["b"], "in_progress": {"w": "a"}}
    assert queue.complete("w") == "a"
    assert queue.start("w") == "b"


def test_ending_gives_back_the_item_and_frees_the_worker(make: Make) -> None:
    """Once: the second time the worker is idle."""
    queue = make(5)
    for end in (
        queue.complete,
        queue.fail,
        lambda worker: queue.fail(worker, retry=False),
        lambda worker: queue.fail(worker, False),
    ):
        queue.enqueue("a")
        assert queue.start("w") == "a"
        assert end("w") == "a"
        assert end("w") is None
        assert queue.snapshot()["in_progress"] == {}
        if queue.start("other") is not None:
            queue.complete("other")


def test_an_unknown_worker_has_nothing_to_end(make: Make) -> None:
    """None for whoever never started, as for whoever is idle."""
    queue = make(5)
    queue.enqueue("a")
    assert queue.complete("w") is None
    assert queue.fail("w") is None
    assert queue.fail("w", retry=False) is None
    assert queue.snapshot() == {"pending": ["a"], "in_progress": {}}


def test_a_retried_item_goes_to_the_back(make: Make) -> None:
    """Behind those that came while it was in progress."""
    queue = make(5)
    queue.enqueue("a")
    queue.enqueue("b")
    queue.start("w")
    queue.enqueue("c")
    assert queue.fail("w") == "a"
    assert queue.snapshot()["pending"] == ["b", "c", "a"]


def test_a_retry_is_never_refused_for_lack_of_room(make: Make) -> None:
    """However often, and however far beyond the limit; new items wait until there is room again."""
    queue = make(2)
    for worker in range(5):
        assert queue.enqueue(f"item {worker}")
        assert queue.start(worker) == f"item {worker}"
    queue.enqueue("x")
    queue.enqueue("y")
    for worker in range(5):
        assert queue.fail(worker) == f"item {worker}"
    assert queue.snapshot()["pending"] == ["x", "y", *(f"item {i}" for i in range(5))]
    assert queue.enqueue("no") is False
    for _ in range(40):
        item = queue.start("w")
        assert queue.fail("w") == item
    assert len(queue.snapshot()["pending"]) == 7
    for _ in range(6):
        queue.start("w")
        queue.complete("w")
    assert queue.enqueue("yes") is True


def test_an_item_without_a_retry_is_dropped(make: Make) -> None:
    """It is given back and gone."""
    queue = make(1)
    queue.enqueue("a")
    queue.start("w")
    assert queue.fail("w", retry=False) == "a"
    assert queue.snapshot() == {"pending": [], "in_progress": {}}
    assert queue.start("w") is None


@pytest.mark.parametrize("item", [0, False, "", [], {}, 0.0])
def test_an_item_may_be_of_any_truth(make: Make, item: Any) -> None:
    """A worker with an empty item is busy all the same, and ends it."""
    queue = make(5)
    for end in (queue.complete, queue.fail, queue.complete):
        if end is not queue.complete or not queue.snapshot()["pending"]:
            queue.enqueue(item)
        got = queue.start("w")
        assert (type(got), got) == (type(item), item)
        queue.enqueue("next")
        assert queue.start("w") is None
        assert queue.snapshot()["in_progress"] == {"w": item}
        back = end("w")
        assert (type(back), back) == (type(item), item)
        while queue.start("sweeper") is not None:
            queue.complete("sweeper")


def test_none_is_an_item_too(make: Make) -> None:
    """It makes its worker busy, although it looks like nothing."""
    queue = make(5)
    assert queue.enqueue(None)
    assert queue.enqueue("next")
    assert queue.start("w") is None
    assert queue.snapshot() == {"pending": ["next"], "in_progress": {"w": None}}
    assert queue.start("w") is None
    assert queue.complete("w") is None
    assert queue.start("w") == "next"


def test_equal_items_are_separate(make: Make) -> None:
    """Each is handed out and ended for itself."""
    queue = make(5)
    for _ in range(3):
        assert queue.enqueue(["same"])
    assert queue.start("w1") == queue.start("w2") == ["same"]
    queue.complete("w1")
    assert queue.snapshot() == {"pending": [["same"]], "in_progress": {"w2": ["same"]}}


def test_the_same_object_comes_back() -> None:
    """In memory an item is never compared, copied or looked into."""
    queue = WorkQueue(9)
    items = [Odd(), Odd(), [], {}, object(), Odd]
    items.append(items[0])
    for item in items:
        assert queue.enqueue(item)
    for item in items:
        assert queue.start("w") is item
        assert queue.snapshot()["in_progress"]["w"] is item
        assert queue.fail("w") is item
        assert queue.snapshot()["pending"][-1] is item
    for item in items:
        assert queue.start("w") is item
        assert queue.complete("w") is item


def test_any_hashable_is_a_worker() -> None:
    """None among them; equal ones are one worker, as the keys of a dict are."""
    queue = WorkQueue(20)
    workers = [None, 0, "", (), frozenset(), "w", ("w",), b"w", 1.5, Odd, "\x00", "#1"]
    for worker in workers:
        queue.enqueue(("for", worker))
        assert queue.start(worker) == ("for", worker)
    assert queue.snapshot()["in_progress"] == {worker: ("for", worker) for worker in workers}
    queue.enqueue("more")
    assert queue.start(False) is None
    assert queue.complete(0.0) == ("for", 0)
    assert queue.start(False) == "more"
    assert list(map(type, queue.snapshot()["in_progress"]))[-1] is bool
    assert queue.complete(None) == ("for", None)
    assert queue.complete(None) is None


def test_a_worker_must_be_hashable() -> None:
    """As the key of a dict must be, whatever is asked."""
    queue = WorkQueue(2)
    queue.enqueue("a")
    for ask in (queue.start, queue.complete, queue.fail):
        with pytest.raises(TypeError, match="unhashable"):
            ask([])
    assert queue.snapshot() == {"pending": ["a"], "in_progress": {}}


def test_a_snapshot_is_independent(make: Make) -> None:
    """Changing it changes nothing, and it does not change."""
    queue = make(5)
    queue.enqueue("a")
    queue.enqueue("b")
    queue.start("w")
    first = queue.snapshot()
    first["pending"].clear()
    first["in_progress"]["other"] = "b"
    second = queue.snapshot()
    assert second == {"pending": ["b"], "in_progress": {"w": "a"}}
    queue.complete("w")
    queue.start("w")
    assert second == {"pending": ["b"], "in_progress": {"w": "a"}}


@pytest.mark.parametrize("limit", [-1, True, False, 1.0, "1", None])
def test_a_limit_is_a_whole_number(limit: Any, tmp_path: Path) -> None:
    """Never a bool and never below zero; nothing is made for a bad one."""
    with pytest.raises(ValueError, match="max_pending must be a whole number of at least 0"):
        WorkQueue(limit)
    with pytest.raises(ValueError, match="max_pending"):
        WorkQueue(limit, tmp_path / "q")
    assert not (tmp_path / "q").exists()


def test_what_has_ended_is_let_go() -> None:
    """A completed or dropped item is gone when the next one is asked for."""

    class Item:
        pass

    queue = WorkQueue(5)
    for end in (queue.complete, lambda worker: queue.fail(worker, retry=False)):
        item = Item()
        gone = weakref.ref(item)
        queue.enqueue(item)
        queue.start("w")
        end("w")
        del item
        queue.start("w")
        gc.collect()
        assert gone() is None


def test_memory_stays_flat_however_many_items_go_through() -> None:
    """Completed, dropped and retried ones: 10,000 items on, no more objects are alive."""
    queue = WorkQueue(50)

    def through(items: int) -> int:
        for i in range(items):
            queue.enqueue({"number": i})
            queue.start(i % 3)
            if i % 5 == 0:
                queue.fail(i % 3)
            elif i % 3 == 0:
                queue.fail(i % 3, retry=False)
            else:
                queue.complete(i % 3)
        gc.collect()
        return len(gc.get_objects())

    before = through(2000)
    assert through(10_000) - before < 500


def test_threads_share_a_queue() -> None:
    """Every item is handed out once, and every end counts once."""
    queue = WorkQueue(10_000)
    for i in range(600):
        queue.enqueue(i)
    done: list[int] = []

    def work(worker: int) -> None:
        while (item := queue.start(worker)) is not None:
            assert queue.complete(worker) == item
            done.append(item)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(600))


def test_threads_that_end_for_one_worker_end_once() -> None:
    """Whoever comes second is told that the worker is idle."""
    queue = WorkQueue(10)
    for turn in range(60):
        queue.enqueue(turn)
        queue.start("w")
        ends: list[Any] = []
        ways = [queue.complete, lambda w: queue.fail(w, retry=False), queue.complete]
        threads = [
            threading.Thread(target=lambda way=way, ends=ends: ends.append(way("w")))
            for way in ways
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(repr, ends)) == sorted(["None", "None", repr(turn)])


@pytest.mark.parametrize("by", ["complete", "drop", "retry", "retry and start", "forget"])
@pytest.mark.parametrize("late", ["complete", "retry", "drop"])
def test_who_comes_second_is_told_that_the_worker_is_idle(
    by: str, late: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When another ends the hand-out between the look and the word: nothing is ended twice."""
    queue = make(5)
    queue.enqueue("a")
    queue.enqueue("b")
    queue.start("w")
    look = queue._held

    def overtaken(name: Any) -> Any:
        lease = look(name)
        monkeypatch.undo()
        if by.startswith("retry"):
            queue.fail("w")
        elif by == "drop":
            queue.fail("w", retry=False)
        else:
            queue.complete("w")
        if by == "forget":
            queue.start("other")
        if by == "retry and start":
            for other in ("other", "another"):
                queue.start(other)
        then.append(queue.snapshot())
        return lease

    then: list[Any] = []
    monkeypatch.setattr(queue, "_held", overtaken)
    ends = {
        "complete": queue.complete,
        "retry": queue.fail,
        "drop": lambda worker: queue.fail(worker, retry=False),
    }
    assert ends[late]("w") is None
    assert [queue.snapshot()] == then


# On a path.


def test_a_path_keeps_everything(tmp_path: Path) -> None:
    """Who opens it again finds the items in order, and who holds what."""
    with WorkQueue(5, tmp_path / "q") as queue:
        for item in ("a", {"b": [1, 1.0, None]}, ""):
            queue.enqueue(item)
        queue.start(1)
        queue.start("1")
    with WorkQueue(5, str(tmp_path / "q")) as queue:
        assert queue.snapshot() == {
            "pending": [""],
            "in_progress": {1: "a", "1": {"b": [1, 1.0, None]}},
        }
        assert queue.start(1) is None
        assert queue.fail("1") == {"b": [1, 1.0, None]}
    with WorkQueue(5, tmp_path / "q") as queue:
        assert queue.complete(1) == "a"
        assert queue.snapshot()["pending"] == ["", {"b": [1, 1.0, None]}]


def test_a_queue_lets_go_of_its_path(tmp_path: Path) -> None:
    """Leaving the block, or `shut`, ends the handle and not the queue; twice is harmless."""
    with WorkQueue(5, tmp_path / "q") as queue:
        queue.enqueue("a")
    again = WorkQueue(5, tmp_path / "q")
    for _ in range(2):
        again.shut()
    for gone in (queue, again):
        for ask in (lambda gone=gone: gone.enqueue("b"), gone.snapshot):
            with pytest.raises(RuntimeError, match="shut"):
                ask()
    with WorkQueue(5, tmp_path / "q") as queue:
        assert queue.snapshot()["pending"] == ["a"]


def test_a_path_keeps_its_limit(tmp_path: Path) -> None:
    """Opening it with another one is refused."""
    WorkQueue(5, tmp_path / "q").shut()
    with pytest.raises(ValueError, match="capacity"):
        WorkQueue(6, tmp_path / "q")


@pytest.mark.parametrize(
    "worker", ["", "w", "a\nb", "\x00", "\ud800", "é", '"', "1", 1, -1, 10**40]
)
def test_workers_on_a_path_are_texts_and_whole_numbers(worker: Any, tmp_path: Path) -> None:
    """Any of them, told apart, and the same when the path is opened again."""
    with WorkQueue(5, tmp_path / "q") as queue:
        queue.enqueue("a")
        assert queue.start(worker) == "a"
    with WorkQueue(5, tmp_path / "q") as queue:
        (held,) = queue.snapshot()["in_progress"]
        assert (type(held), held) == (type(worker), worker)
        other = str(worker) if isinstance(worker, int) else None
        if other is not None:
            assert queue.complete(other) is None
        assert queue.complete(worker) == "a"


@pytest.mark.parametrize("worker", [None, True, 1.0, ("w",), b"w", frozenset()])
def test_other_workers_on_a_path_are_refused(worker: Any, tmp_path: Path) -> None:
    """Clearly, and nothing is changed."""
    with WorkQueue(5, tmp_path / "q") as queue:
        queue.enqueue("a")
        for ask in (queue.start, queue.complete, queue.fail):
            with pytest.raises(ValueError, match="must be a text or a whole number"):
                ask(worker)
        assert queue.snapshot() == {"pending": ["a"], "in_progress": {}}


@pytest.mark.parametrize("item", [(1,), {1}, object(), {1: 2}, float("nan"), b"x"])
def test_items_on_a_path_are_json_values(item: Any, tmp_path: Path) -> None:
    """Whatever would not come back the same is refused, and nothing is changed."""
    with WorkQueue(5, tmp_path / "q") as queue:
        with pytest.raises(ValueError, match="payload"):
            queue.enqueue(item)
        assert queue.snapshot() == {"pending": [], "in_progress": {}}


# Against a model.


class Model:
    """The contract in plain Python: a deque of items and a dict of who holds what."""

    def __init__(self, max_pending: int) -> None:
        self.max_pending = max_pending
        self.pending: deque[Any] = deque()
        self.held: dict[Any, Any] = {}

    def enqueue(self, item: Any) -> bool:
        if len(self.pending) >= self.max_pending:
            return False
        self.pending.append(item)
        return True

    def start(self, worker: Any) -> Any:
        if worker in self.held or not self.pending:
            return None
        self.held[worker] = self.pending.popleft()
        return self.held[worker]

    def complete(self, worker: Any) -> Any:
        return self.held.pop(worker, None)

    def fail(self, worker: Any, retry: bool = True) -> Any:
        if worker not in self.held:
            return None
        item = self.held.pop(worker)
        if retry:
            self.pending.append(item)
        return item


def one_step(rng: random.Random, workers: list[Any], items: Callable[[], Any]) -> tuple[str, Any]:
    kind = rng.choices(["enqueue", "start", "complete", "fail", "drop"], [8, 8, 3, 4, 1])[0]
    return kind, items() if kind == "enqueue" else rng.choice(workers)


def ask(queue: Any, step: tuple[str, Any]) -> Any:
    kind, given = step
    if kind == "drop":
        return queue.fail(given, retry=False)
    return getattr(queue, kind)(given)


def same(queue: WorkQueue, model: Model) -> None:
    snapshot = queue.snapshot()
    assert list(map(id, snapshot["pending"])) == list(map(id, model.pending))
    assert {k: id(v) for k, v in snapshot["in_progress"].items()} == {
        k: id(v) for k, v in model.held.items()
    }


@pytest.mark.parametrize("seed", range(10))
def test_long_random_runs_agree_with_a_model(seed: int) -> None:
    """In memory: 30,000 commands in all, with the oddest of items and workers."""
    rng = random.Random(seed)
    limit = [0, 1, 2, 3, 5, 8, 13, 21, 2, 4][seed]
    queue, model = WorkQueue(limit), Model(limit)
    workers = [None, 0, 1, True, 1.0, "", "1", (), ("w",), frozenset()]
    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: 0,
        lambda: False,
        str,
        list,
        dict,
        Odd,
        object,
        lambda: rng.choice(workers),
    ]
    for step in range(3000):
        asked = one_step(rng, workers, lambda: rng.choice(makers)())
        assert ask(queue, asked) is ask(model, asked)
        if step % 10 == 0:
            same(queue, model)
    same(queue, model)


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_on_a_path_agree_with_a_model(seed: int, tmp_path: Path) -> None:
    """Opened again and again on the way."""
    rng = random.Random(seed)
    limit = [1, 3, 6][seed]
    path = tmp_path / "q"
    queue, model = WorkQueue(limit, path), Model(limit)
    workers = [0, 1, "", "1", "w"]

    def items() -> Any:
        return rng.choice([None, 0, False, "", [], {"n": rng.random()}])

    reopened = 0
    try:
        for step in range(400):
            if rng.random() < 0.03:
                queue.shut()
                queue = WorkQueue(limit, path)
                reopened += 1
            asked = one_step(rng, workers, items)
            found, expected = ask(queue, asked), ask(model, asked)
            assert (type(found), found) == (type(expected), expected)
            if step % 5 == 0:
                assert queue.snapshot() == {
                    "pending": list(model.pending),
                    "in_progress": model.held,
                }
    finally:
        queue.shut()
    assert reopened > 3
