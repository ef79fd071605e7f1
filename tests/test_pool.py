"""The pool contract: its rules one by one, and against a plain model in long random runs."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventq.contracts.pool import WorkerPool

Make = Callable[[Any, int], WorkerPool]


@pytest.fixture(params=["in memory", "on a path"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a pool of either kind, and lets go of it at the end."""
    made: list[WorkerPool] = []

    def of(workers: Any, capacity: int) -> WorkerPool:
        path = tmp_path / f"q{len(made)}" if request.param == "on a path" else None
        made.append(WorkerPool(workers, capacity, path))
        return made[-1]

    yield of
    for pool in made:
        pool.shut()


def facts(pool: WorkerPool) -> tuple[list[Any], dict[Any, Any], list[Any], bool]:
    return pool.ready, pool.busy, pool.done, pool.closed


def test_jobs_are_claimed_in_the_order_in_which_they_came(make: Make) -> None:
    """By whichever worker asks."""
    pool = make(3, 9)
    assert [pool.submit(job) for job in "abcd"] == [True] * 4
    assert [pool.claim(worker) for worker in (2, 0, 1)] == ["a", "b", "c"]
    assert facts(pool) == (["d"], {2: "a", 0: "b", 1: "c"}, [], False)


def test_a_busy_worker_claims_nothing(make: Make) -> None:
    """And there may be nothing to claim; nothing moves either way."""
    pool = make(2, 9)
    assert pool.claim(0) is None
    pool.submit("a")
    pool.submit("b")
    assert pool.claim(0) == "a"
    before = facts(pool)
    assert pool.claim(0) is None
    assert facts(pool) == before


def test_a_completed_job_is_recorded_in_the_order_of_completion(make: Make) -> None:
    """And given back, and its worker is free."""
    pool = make(3, 9)
    for job in "abc":
        pool.submit(job)
    for worker in range(3):
        pool.claim(worker)
    assert [pool.complete(worker) for worker in (1, 2, 0)] == ["b", "c", "a"]
    assert facts(pool) == ([], {}, ["b", "c", "a"], False)


def test_all_that_is_done_is_kept(make: Make) -> None:
    """However much it is."""
    pool = make(1, 1)
    for job in range(120):
        assert pool.submit(job)
        pool.claim(0)
        pool.complete(0)
    assert pool.done == list(range(120))


def test_the_capacity_counts_ready_and_busy_jobs(make: Make) -> None:
    """A claim makes no room; a completion does."""
    pool = make(2, 3)
    assert [pool.submit(job) for job in "abcd"] == [True, True, True, False]
    pool.claim(0)
    pool.claim(1)
    assert pool.submit("e") is False
    pool.complete(0)
    assert pool.submit("f") is True
    assert pool.submit("g") is False
    assert facts(pool) == (["c", "f"], {1: "b"}, ["a"], False)


def test_room_for_none_refuses_all(make: Make) -> None:
    """Zero is a limit like any other, and a pool may be empty."""
    pool = make(1, 0)
    assert pool.submit("a") is False
    assert pool.claim(0) is None
    empty = make(0, 1)
    assert empty.submit("a") is True
    with pytest.raises(ValueError, match="nobody"):
        empty.claim(0)


def test_an_idle_worker_has_nothing_to_complete(make: Make) -> None:
    """A ValueError, and nothing is changed."""
    pool = make(2, 9)
    pool.submit("a")
    pool.submit("b")
    pool.claim(0)
    before = facts(pool)
    with pytest.raises(ValueError, match="worker 1 is idle"):
        pool.complete(1)
    assert facts(pool) == before
    pool.complete(0)
    with pytest.raises(ValueError, match="worker 0 is idle"):
        pool.complete(0)


@pytest.mark.parametrize("stranger", [-1, 3, "0", "w", None, 0.5, (), (0,), [], {}, b"0"])
def test_a_worker_that_is_not_of_the_pool_is_refused(make: Make, stranger: Any) -> None:
    """Before anything is read or changed: full or empty, closed or not."""
    pool = make(3, 1)
    for step in (lambda: None, lambda: pool.submit("a"), lambda: pool.claim(0), pool.close):
        step()
        before = facts(pool)
        for ask in (pool.claim, pool.complete):
            with pytest.raises(ValueError, match="not in the pool"):
                ask(stranger)
        assert facts(pool) == before


def test_workers_may_have_ids(make: Make) -> None:
    """Any collection of them, and then a number is a stranger; repeats are one worker."""
    pool = make(["b", "a", "b", 7], 9)
    for job in range(4):
        pool.submit(job)
    assert [pool.claim(worker) for worker in ("a", 7, "b")] == [0, 1, 2]
    for stranger in (0, "7", "c"):
        with pytest.raises(ValueError, match="not in the pool"):
            pool.claim(stranger)
    assert pool.busy == {"a": 0, 7: 1, "b": 2}
    assert make({"x", "y"}, 1).claim("x") is None
    assert make((name for name in "xy"), 1).claim("y") is None


def test_any_hashable_is_a_worker() -> None:
    """In memory, None among them; equal ones are one worker, as the keys of a dict are."""
    workers = [None, 0, "", (), frozenset(), ("w",), b"w", 1.5, WorkerPool, "\x00"]
    pool = WorkerPool([*workers, False, 0.0], 20)
    for worker in workers:
        pool.submit(("for", worker))
    for worker in workers:
        assert pool.claim(worker) == ("for", worker)
    assert pool.busy == {worker: ("for", worker) for worker in workers}
    assert pool.complete(False) == ("for", 0)
    assert pool.complete(None) == ("for", None)


def test_numbered_workers_are_found_as_in_a_dict(make: Make) -> None:
    """True is worker 1."""
    pool = make(2, 9)
    pool.submit("a")
    assert pool.claim(True) == "a"
    assert pool.busy == {1: "a"}
    assert pool.complete(1.0) == "a"


def test_closing_stops_admission_alone(make: Make) -> None:
    """What was admitted drains; twice is harmless, and there is no way back."""
    pool = make(2, 9)
    pool.submit("a")
    pool.submit("b")
    pool.claim(0)
    assert pool.closed is False
    for _ in range(2):
        assert pool.close() is None  # type: ignore[func-returns-value]
        assert pool.closed is True
        assert pool.submit("c") is False
    assert facts(pool) == (["b"], {0: "a"}, [], True)
    assert pool.claim(1) == "b"
    assert [pool.complete(worker) for worker in (1, 0)] == ["b", "a"]
    assert facts(pool) == ([], {}, ["b", "a"], True)
    assert pool.submit("d") is False


def test_views_are_copies(make: Make) -> None:
    """Changing one changes nothing, and it does not change."""
    pool = make(2, 9)
    for job in "abc":
        pool.submit(job)
    pool.claim(0)
    pool.complete(0)
    pool.claim(1)
    ready, busy, done = pool.ready, pool.busy, pool.done
    assert (ready, busy, done) == (["c"], {1: "b"}, ["a"])
    pool.ready.clear()
    pool.busy.clear()
    pool.done.clear()
    pool.busy[0] = "x"
    assert facts(pool) == (["c"], {1: "b"}, ["a"], False)
    pool.complete(1)
    pool.claim(0)
    assert (ready, busy, done) == (["c"], {1: "b"}, ["a"])
    with pytest.raises(AttributeError):
        pool.done = []  # type: ignore[misc]


@pytest.mark.parametrize("job", [None, 0, False, "", [], {}])
def test_a_job_may_be_anything(make: Make, job: Any) -> None:
    """A worker with an empty job is busy all the same, and completes it."""
    pool = make(1, 2)
    pool.submit(job)
    got = pool.claim(0)
    assert (type(got), got) == (type(job), job)
    pool.submit("next")
    assert pool.claim(0) is None
    assert facts(pool) == (["next"], {0: job}, [], False)
    back = pool.complete(0)
    assert (type(back), back) == (type(job), job)
    assert pool.done == [job]


def test_the_same_object_comes_back() -> None:
    """In memory a job is never compared, copied or looked into, and equal jobs are separate."""

    class Odd:
        def _no(self, *_: object) -> Any:
            raise AssertionError("a job was looked into")

        __eq__ = __lt__ = __bool__ = __len__ = __hash__ = __repr__ = _no  # type: ignore[assignment]
        __copy__ = __deepcopy__ = __reduce_ex__ = _no  # type: ignore[assignment]

    pool = WorkerPool(1, 20)
    jobs: list[Any] = [Odd(), Odd(), [], [], object()]
    jobs.append(jobs[0])
    for job in jobs:
        assert pool.submit(job)
    assert all(one is other for one, other in zip(pool.ready, jobs, strict=True))
    for job in jobs:
        assert pool.claim(0) is job
        assert pool.busy[0] is job
        assert pool.complete(0) is job
    assert all(one is other for one, other in zip(pool.done, jobs, strict=True))


@pytest.mark.parametrize("workers", [-1, True, False, 1.5, None, "ab", b"ab", [[]], object()])
def test_what_is_no_pool(workers: Any, tmp_path: Path) -> None:
    """A number below zero, a bool, a text, ids that are not hashable; nothing is made."""
    for path in (None, tmp_path / "q"):
        with pytest.raises(ValueError, match="workers must be"):
            WorkerPool(workers, 1, path)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("capacity", [-1, True, False, 1.0, "1", None])
def test_a_capacity_is_a_whole_number(capacity: Any, tmp_path: Path) -> None:
    """Never a bool and never below zero; nothing is made for a bad one."""
    for path in (None, tmp_path / "q"):
        with pytest.raises(ValueError, match="capacity must be a whole number of at least 0"):
            WorkerPool(1, capacity, path)
    assert not (tmp_path / "q").exists()


def test_threads_share_a_pool() -> None:
    """Every job is claimed once and done once."""
    pool = WorkerPool(4, 10_000)
    for job in range(600):
        pool.submit(job)

    def work(worker: int) -> None:
        while (job := pool.claim(worker)) is not None:
            assert pool.complete(worker) == job

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(pool.done) == list(range(600))


def test_threads_that_complete_for_one_worker_complete_once() -> None:
    """Whoever comes second is told that the worker is idle."""
    pool = WorkerPool(1, 10)
    for job in range(60):
        pool.submit(job)
        pool.claim(0)
        answers: list[Any] = []

        def complete() -> None:
            try:
                answers.append(pool.complete(0))  # noqa: B023
            except ValueError:
                answers.append("idle")  # noqa: B023

        threads = [threading.Thread(target=complete) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(str, answers)) == sorted([str(job), "idle", "idle"])
    assert pool.done == list(range(60))


# On a path.


def test_a_path_keeps_everything(tmp_path: Path) -> None:
    """Who opens it again finds who holds what, what is done, and that it is closed."""
    with WorkerPool([1, "1", "é\n"], 9, tmp_path / "q") as pool:
        for job in ("a", {"b": [1, None]}, "c", "d"):
            pool.submit(job)
        for worker in (1, "1", "é\n"):
            pool.claim(worker)
        pool.complete(1)
        pool.close()
        before = facts(pool)
    with WorkerPool({"é\n", "1", 1}, 9, str(tmp_path / "q")) as pool:
        assert facts(pool) == before
        assert pool.busy == {"1": {"b": [1, None]}, "é\n": "c"}
        assert list(map(type, pool.busy)) == [str, str]
        assert pool.claim("1") is None
        assert pool.complete("é\n") == "c"
    with WorkerPool(["1", 1, "é\n"], 9, tmp_path / "q") as pool:
        assert facts(pool) == (["d"], {"1": {"b": [1, None]}}, ["a", "c"], True)


def test_a_path_keeps_its_agreement(tmp_path: Path) -> None:
    """Opening it with other workers or another capacity is refused."""
    WorkerPool(3, 5, tmp_path / "q").shut()
    WorkerPool([2, 1, 0], 5, tmp_path / "q").shut()
    for workers, capacity, words in ((4, 5, "pool"), (["0", "1", "2"], 5, "pool"), (3, 6, "capac")):
        with pytest.raises(ValueError, match=words):
            WorkerPool(workers, capacity, tmp_path / "q")


@pytest.mark.parametrize("worker", [None, True, 1.0, ("w",), b"w", frozenset()])
def test_other_workers_on_a_path_are_refused(worker: Any, tmp_path: Path) -> None:
    """Clearly, and nothing is made."""
    with pytest.raises(ValueError, match="must be a text or a whole number"):
        WorkerPool(["w", worker], 5, tmp_path / "q")
    assert not (tmp_path / "q").exists()


# Against a model.


class Model:
    """The contract in plain Python: a deque, a dict and a list."""

    def __init__(self, workers: list[Any], capacity: int) -> None:
        self.workers = workers
        self.capacity = capacity
        self.waiting: deque[Any] = deque()
        self.held: dict[Any, Any] = {}
        self.finished: list[Any] = []
        self.shut = False

    def submit(self, job: Any) -> bool:
        if self.shut or len(self.waiting) + len(self.held) >= self.capacity:
            return False
        self.waiting.append(job)
        return True

    def claim(self, worker: Any) -> Any:
        if worker not in self.workers:
            raise ValueError
        if worker in self.held or not self.waiting:
            return None
        self.held[worker] = self.waiting.popleft()
        return self.held[worker]

    def complete(self, worker: Any) -> Any:
        if worker not in self.workers or worker not in self.held:
            raise ValueError
        self.finished.append(self.held.pop(worker))
        return self.finished[-1]

    def close(self, _: object) -> None:
        self.shut = True


def answer(ask: Callable[..., Any], given: Any) -> Any:
    try:
        return ask(given)
    except ValueError:
        return ValueError


def one_step(rng: random.Random, pool: Any, model: Model, ids: list[Any], job: Any) -> None:
    kind = rng.choices(["submit", "claim", "complete", "close"], [9, 8, 6, 0.01])[0]
    given = job if kind == "submit" else rng.choice(ids)
    ask = (lambda _: pool.close()) if kind == "close" else getattr(pool, kind)
    found, expected = answer(ask, given), answer(getattr(model, kind), given)
    assert found is expected or (found == expected and type(found) is type(expected))


def same(pool: WorkerPool, model: Model) -> None:
    assert pool.ready == list(model.waiting)
    assert pool.busy == model.held
    assert pool.done == model.finished
    assert pool.closed is model.shut


@pytest.mark.parametrize("seed", range(10))
def test_long_random_runs_agree_with_a_model(seed: int) -> None:
    """In memory: 30,000 commands in all, workers by number or by the oddest of ids."""
    rng = random.Random(seed)
    ids: list[Any] = [None, 0, 1, True, "1", "", (), 2.5, -1, 4]
    capacity = [0, 1, 2, 3, 5, 8, 2, 4, 6, 50][seed]
    for turn in range(3):
        count = rng.randint(1, 4)
        workers: Any = rng.sample(ids, 6) if turn % 2 else count
        pool = WorkerPool(workers, capacity)
        model = Model(workers if turn % 2 else list(range(count)), capacity)
        for step in range(1000):
            one_step(rng, pool, model, ids, rng.choice([None, 0, False, "", object()]))
            if step % 10 == 0:
                same(pool, model)
        assert list(map(id, pool.done)) == list(map(id, model.finished))
        same(pool, model)


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_on_a_path_agree_with_a_model(seed: int, tmp_path: Path) -> None:
    """Opened again and again on the way."""
    rng = random.Random(seed)
    workers: Any = [3, ["a", "b", 1], [0, "0"]][seed]
    ids = [[0, 1, 2, "0"], ["a", "b", 1, 0], [0, "0", -1]][seed]
    capacity = [2, 4, 3][seed]
    path = tmp_path / "q"
    pool = WorkerPool(workers, capacity, path)
    model = Model(list(range(3)) if workers == 3 else workers, capacity)
    try:
        for step in range(400):
            if step % 40 == 39:
                pool.shut()
                pool = WorkerPool(workers, capacity, path)
            one_step(rng, pool, model, ids, rng.choice([None, 0, False, "", [], {"n": step}]))
            if step % 5 == 0:
                same(pool, model)
    finally:
        pool.shut()
    assert len(model.finished) > 20
