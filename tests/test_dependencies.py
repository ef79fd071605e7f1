"""The dependency contract: its rules one by one, and against a plain model in long random runs."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eventq.contracts import dependencies
from eventq.contracts.dependencies import CycleError, WorkQueue

Make = Callable[[int], WorkQueue]


@pytest.fixture(params=["in memory", "on a path"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Makes a queue of either kind, and lets go of it at the end."""
    made: list[WorkQueue] = []

    def of(max_attempts: int) -> WorkQueue:
        path = tmp_path / f"q{len(made)}" if request.param == "on a path" else None
        made.append(WorkQueue(max_attempts, path))
        return made[-1]

    yield of
    for queue in made:
        queue.shut()


def kill(queue: WorkQueue, task: str, error: str = "boom") -> None:
    """Hand out and fail until this task is DEAD; those handed out on the way stay RUNNING."""
    while queue.status(task) != "DEAD":
        while queue.status(task) == "READY":
            queue.next_ready()
        assert queue.fail(task, error) in ("READY", "DEAD")


def stands(queue: Any, tasks: str) -> str:
    """Where each of these tasks stands, in words."""
    return " ".join(str(queue.status(task)) for task in tasks)


def test_a_task_without_dependencies_is_ready(make: Make) -> None:
    """And is handed out in the order of submission."""
    queue = make(1)
    assert queue.submit("a") is True
    assert queue.submit("b", []) is True
    assert stands(queue, "ab") == "READY READY"
    assert [queue.next_ready() for _ in range(3)] == ["a", "b", None]
    assert stands(queue, "ab") == "RUNNING RUNNING"
    assert queue.complete("b") is True
    assert stands(queue, "ab") == "RUNNING SUCCEEDED"


def test_a_task_waits_for_all_that_it_needs(make: Make) -> None:
    """Also for what is not known yet."""
    queue = make(1)
    queue.submit("c", ["a", "b"])
    assert queue.status("c") == "PENDING"
    assert queue.status("a") is None
    assert queue.next_ready() is None
    queue.submit("a")
    queue.submit("b")
    for task in "ab":
        assert queue.status("c") == "PENDING"
        assert queue.next_ready() == task
        assert queue.complete(task)
    assert queue.status("c") == "READY"
    assert queue.submit("d", ["a", "b"])
    assert queue.status("d") == "READY"


def test_any_number_of_tasks_may_run(make: Make) -> None:
    """There are no workers to be busy."""
    queue = make(1)
    for i in range(20):
        queue.submit(f"t{i}")
    assert [queue.next_ready() for _ in range(21)] == [*(f"t{i}" for i in range(20)), None]


def test_a_known_id_is_answered_before_anything_else(make: Make) -> None:
    """Whatever it is given to depend on, a cycle or worse; nothing is changed."""
    queue = make(1)
    queue.submit("a", ["x", "y"])
    others: list[Any] = [[], ["x", "y"], ["y", "x"], ["a"], ["z"], None, 5, [[]], ["#"], ["", 1]]
    for deps in others:
        assert queue.submit("a", deps) is False
    for task in "xy":
        queue.submit(task)
    while (task := queue.next_ready()) is not None:  # type: ignore[assignment]
        queue.complete(task)
        assert queue.submit(task, ["a"]) is False
    assert stands(queue, "axyz") == "SUCCEEDED SUCCEEDED SUCCEEDED None"


def test_repeated_dependencies_count_once(make: Make) -> None:
    """Their order is kept: it decides which root is shown."""
    queue = make(1)
    for task in "ab":
        queue.submit(task)
    queue.submit("c", ["b", "a", "b", "b"])
    kill(queue, "a")
    assert queue.dead_letters()[-1] == ("c", "blocked by a")
    kill(queue, "b")
    assert ("c", "blocked by b") in queue.dead_letters()
    for task in "ab":
        queue.redrive(task)
        assert queue.next_ready() == task
        assert queue.complete(task)
    assert queue.status("c") == "READY"


def test_dependencies_may_come_from_any_iterable(make: Make) -> None:
    """It is read once."""
    queue = make(1)
    assert queue.submit("c", (name for name in "ab"))
    assert queue.submit("d", {"c": 1})
    assert queue.submit("a", ())
    assert stands(queue, "acd") == "READY PENDING PENDING"


def test_a_cycle_is_refused_and_changes_nothing(make: Make) -> None:
    """Also one that closes through tasks submitted earlier; its id stays free."""
    queue = make(1)
    queue.submit("a", ["b"])
    queue.submit("b", ["c"])
    with pytest.raises(CycleError) as raised:
        queue.submit("c", ["d", "a"])
    assert raised.value.cycle == ["c", "a", "b", "c"]
    with pytest.raises(ValueError, match="d needs d"):
        queue.submit("d", ["d"])
    assert stands(queue, "abcd") == "PENDING PENDING None None"
    assert queue.submit("c") is True
    assert dependencies.CycleError is CycleError
    assert issubclass(CycleError, ValueError)


def test_what_has_succeeded_closes_no_cycle(make: Make) -> None:
    """It waits for nothing any more."""
    queue = make(1)
    queue.submit("a")
    queue.next_ready()
    queue.complete("a")
    assert queue.submit("b", ["a", "c"])
    assert queue.submit("c", ["a"])


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_task_is_tried_so_many_times(make: Make, limit: int) -> None:
    """Each failure but the last sends it to the back; the last makes it DEAD."""
    queue = make(limit)
    queue.submit("a")
    for attempt in range(1, limit + 1):
        queue.submit(f"other {attempt}")
        assert queue.next_ready() == "a"
        ends = queue.fail("a", f"error {attempt}")
        assert ends == ("DEAD" if attempt == limit else "READY")
        assert type(ends) is str
        assert queue.next_ready() == f"other {attempt}"
    assert queue.dead_letters() == [("a", f"failed after {limit} attempts: error {limit}")]


@pytest.mark.parametrize("error", ["", " ", "two\nlines", "é: {braces} %s", "x" * 1000])
def test_the_reason_holds_the_last_error(make: Make, error: str) -> None:
    """In its exact form, for one attempt and for an empty error too."""
    queue = make(1)
    queue.submit("a")
    queue.next_ready()
    assert queue.fail("a", error) == "DEAD"
    assert queue.dead_letters() == [("a", f"failed after 1 attempts: {error}")]


def test_an_error_need_not_be_told(make: Make) -> None:
    """It is empty then."""
    queue = make(1)
    queue.submit("a")
    queue.next_ready()
    queue.fail("a")
    assert queue.dead_letters() == [("a", "failed after 1 attempts: ")]


def test_only_a_running_task_can_end(make: Make) -> None:
    """Whoever ends another is told so, and nothing is changed."""
    queue = make(1)
    for task, deps in (("r", ""), ("b", "r"), ("p", "x"), ("s", ""), ("q", "")):
        queue.submit(task, list(deps))
    queue.next_ready()
    queue.fail("r")
    queue.next_ready()
    queue.complete("s")
    before = stands(queue, "rbpsqx")
    assert before == "DEAD BLOCKED PENDING SUCCEEDED READY None"
    for task in "rbpsqx":
        assert queue.complete(task) is False
        assert queue.fail(task, "again") is None
    assert stands(queue, "rbpsqx") == before
    assert queue.dead_letters()[0] == ("r", "failed after 1 attempts: ")


def test_a_death_blocks_whatever_waits_for_it(make: Make) -> None:
    """Directly or not; dead letters come in the order of arrival, with the root."""
    queue = make(1)
    for task, deps in (("a", ""), ("d", "bc"), ("c", "a"), ("b", "a"), ("e", "d"), ("f", "")):
        queue.submit(task, list(deps))
    queue.next_ready()
    assert queue.fail("a", "no") == "DEAD"
    assert queue.dead_letters() == [
        ("a", "failed after 1 attempts: no"),
        ("c", "blocked by a"),
        ("b", "blocked by a"),
        ("d", "blocked by a"),
        ("e", "blocked by a"),
    ]
    assert stands(queue, "abcdef") == "DEAD BLOCKED BLOCKED BLOCKED BLOCKED READY"


def test_a_redrive_gives_fresh_attempts_and_unblocks(make: Make) -> None:
    """The redriven task goes to the back of the line, and what waits for it waits again."""
    queue = make(2)
    for task, deps in (("a", ""), ("b", "a"), ("c", "b")):
        queue.submit(task, list(deps))
    kill(queue, "a")
    queue.submit("z")
    assert queue.redrive("a") is True
    assert stands(queue, "abc") == "READY PENDING PENDING"
    assert queue.dead_letters() == []
    assert queue.redrive("a") is False
    assert [queue.next_ready(), queue.next_ready()] == ["z", "a"]
    assert queue.redrive("a") is False
    assert queue.fail("a") == "READY"
    queue.next_ready()
    assert queue.complete("a")
    assert queue.redrive("a") is False
    assert stands(queue, "abc") == "SUCCEEDED READY PENDING"


def test_only_a_dead_task_can_be_redriven(make: Make) -> None:
    """Not a BLOCKED one, and not an unknown one, whatever its id looks like."""
    queue = make(1)
    queue.submit("a")
    queue.submit("b", ["a"])
    kill(queue, "a")
    for task in ("b", "x", "", "#1", "x" * 1000, "\n"):
        assert queue.redrive(task) is False
    assert stands(queue, "ab") == "DEAD BLOCKED"


def test_a_task_may_be_redriven_any_number_of_times(make: Make) -> None:
    """It is never parked: its place in the list is that of its last death."""
    queue = make(1)
    queue.submit("a")
    queue.submit("b")
    kill(queue, "b")
    for turn in range(12):
        assert queue.redrive("b")
        while queue.next_ready() != "b":
            pass
        assert queue.fail("b", str(turn)) == "DEAD"
        assert queue.dead_letters()[-1] == ("b", f"failed after 1 attempts: {turn}")


def test_a_letter_keeps_its_place_while_its_root_changes(make: Make) -> None:
    """The root shown is found through the first dependency, as written, that is dead or blocked."""
    queue = make(1)
    for task, deps in (("r", ""), ("s", ""), ("x", "rs"), ("y", "x"), ("t", "")):
        queue.submit(task, list(deps))
    for task in "str":
        kill(queue, task)
    boom = "failed after 1 attempts: boom"
    by_r, by_s = "blocked by r", "blocked by s"
    before = [("s", boom), ("x", by_r), ("y", by_r), ("t", boom), ("r", boom)]
    assert queue.dead_letters() == before
    queue.redrive("r")
    assert queue.dead_letters() == [("s", boom), ("x", by_s), ("y", by_s), ("t", boom)]
    kill(queue, "r")
    assert queue.dead_letters() == before
    queue.redrive("s")
    assert queue.dead_letters() == before[1:]
    queue.redrive("r")
    assert queue.dead_letters() == [("t", boom)]
    assert stands(queue, "xy") == "PENDING PENDING"


def test_a_late_arrival_in_the_middle_ties_old_tasks_to_a_dead_one(make: Make) -> None:
    """They were submitted long before it, and named it all along."""
    queue = make(1)
    for task, deps in (("y", "x"), ("x", "m"), ("r", "")):
        queue.submit(task, list(deps))
    kill(queue, "r")
    assert stands(queue, "xy") == "PENDING PENDING"
    assert queue.submit("m", ["r"])
    assert queue.dead_letters()[1:] == [
        ("m", "blocked by r"),
        ("x", "blocked by r"),
        ("y", "blocked by r"),
    ]
    queue.redrive("r")
    queue.next_ready()
    queue.complete("r")
    assert stands(queue, "mxy") == "READY PENDING PENDING"


@pytest.mark.parametrize("order", list(itertools.permutations("rst")))
def test_several_roots_may_be_redriven_in_any_order(order: tuple[str, ...]) -> None:
    """What they all block is free when the last has gone, and not before."""
    queue = WorkQueue(1)
    for task, deps in (("r", ""), ("s", ""), ("t", ""), ("d", "rs"), ("e", "st"), ("f", "de")):
        queue.submit(task, list(deps))
    for task in order[::-1]:
        kill(queue, task)
    left = set("rst")
    for task in order:
        assert queue.redrive(task)
        left.discard(task)
        assert (queue.status("d") == "BLOCKED") is bool(left & set("rs"))
        assert (queue.status("e") == "BLOCKED") is bool(left & set("st"))
        assert (queue.status("f") == "BLOCKED") is bool(left)


@pytest.mark.parametrize("limit", [0, -1, True, False, 1.0, "1", None])
def test_a_limit_is_a_whole_number_of_at_least_one(limit: Any, tmp_path: Path) -> None:
    """Never a bool; nothing is made for a bad one."""
    for path in (None, tmp_path / "q"):
        with pytest.raises(ValueError, match="max_attempts must be a whole number of at least 1"):
            WorkQueue(limit, path)
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize("task", ["", "#1", "x" * 513, "a\n", "\ud800", 1, None, b"a"])
def test_an_id_that_no_queue_could_take_is_refused(make: Make, task: Any) -> None:
    """As the id of a task (None would make the queue choose one) and among its dependencies."""
    queue = make(1)
    if task is not None:
        with pytest.raises(ValueError, match="id"):
            queue.submit(task)
    if task != "#1":
        with pytest.raises(ValueError, match="id"):
            queue.submit("a", ["b", task])
    assert queue.status("a") is None
    assert queue.status(task) is None


def test_an_id_must_be_given(make: Make) -> None:
    """The queue makes none of its own here."""
    queue = make(1)
    with pytest.raises(ValueError, match="id"):
        queue.submit(None)  # type: ignore[arg-type]
    assert queue.next_ready() is None


@pytest.mark.parametrize("deps", ["ab", None, 5, [["a"]], b"ab"])
def test_dependencies_are_a_collection_of_ids(make: Make, deps: Any) -> None:
    """A text is no collection of its letters; nothing is changed."""
    queue = make(1)
    with pytest.raises(ValueError, match="after"):
        queue.submit("c", deps)
    assert queue.status("c") is None


def test_a_long_chain_dies_and_comes_back(make: Make) -> None:
    """Without meeting the recursion limit."""
    queue = make(1)
    n = 3000 if queue._path is None else 300
    for i in reversed(range(n)):
        queue.submit(f"t{i}", [f"t{i - 1}"] if i else [])
    kill(queue, "t0")
    assert queue.status(f"t{n - 1}") == "BLOCKED"
    assert queue.dead_letters()[-1] == (f"t{n - 1}", "blocked by t0")
    queue.redrive("t0")
    assert queue.status(f"t{n - 1}") == "PENDING"
    with pytest.raises(CycleError):
        queue.submit("end", [f"t{n - 1}", "end"])


def test_threads_that_submit_one_id_submit_it_once() -> None:
    """One of them is told that it is new."""
    queue = WorkQueue(1)
    for turn in range(50):
        answers: list[bool] = []
        threads = [
            threading.Thread(target=lambda: answers.append(queue.submit(f"t{turn}")))  # noqa: B023
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [False, False, False, True]


def test_a_path_keeps_everything(tmp_path: Path) -> None:
    """Who opens it again finds each task where it stood, running ones too."""
    with WorkQueue(2, tmp_path / "q") as queue:
        for task, deps in (("a", ""), ("b", "a"), ("c", ""), ("d", "x")):
            queue.submit(task, list(deps))
        queue.next_ready()
        queue.fail("a", "first")
        queue.next_ready()
        queue.next_ready()
        assert stands(queue, "abcd") == "RUNNING PENDING RUNNING PENDING"
    with WorkQueue(2, str(tmp_path / "q")) as queue:
        assert stands(queue, "abcd") == "RUNNING PENDING RUNNING PENDING"
        assert queue.fail("a", "second") == "DEAD"
        assert queue.complete("c")
    with WorkQueue(2, tmp_path / "q") as queue:
        assert queue.dead_letters() == [
            ("a", "failed after 2 attempts: second"),
            ("b", "blocked by a"),
        ]
        assert queue.submit("a") is False
        with pytest.raises(CycleError):
            queue.submit("x", ["d"])


def test_a_path_keeps_its_limit(tmp_path: Path) -> None:
    """Opening it with another one is refused."""
    WorkQueue(2, tmp_path / "q").shut()
    with pytest.raises(ValueError, match="retry"):
        WorkQueue(3, tmp_path / "q")


# Against a model.


class Model:
    """The contract in plain Python: everything is found by going through every task."""

    def __init__(self, max_attempts: int) -> None:
        self.max_attempts = max_attempts
        self.deps: dict[str, list[str]] = {}
        self.phase: dict[str, str] = {}
        self.tries: dict[str, int] = {}
        self.error: dict[str, str] = {}
        self.line: list[str] = []
        self.letters: list[str] = []

    def below(self, task: str) -> list[str]:
        return [name for name, deps in self.deps.items() if task in deps]

    def doomed(self, task: str) -> bool:
        """Whether a dead task is among all that this one waits for."""
        seen: set[str] = set()
        left = list(self.deps[task])
        while left:
            at = left.pop()
            if at in seen or self.phase.get(at) in (None, "SUCCEEDED"):
                continue
            if self.phase[at] == "DEAD":
                return True
            seen.add(at)
            left += self.deps[at]
        return False

    def spread(self, start: str) -> None:
        """Note who is blocked now and was not: nearest first, then by order of submission."""
        wave, seen = [start], {start}
        while wave:
            following = []
            for at in wave:
                for name in self.below(at):
                    if name not in seen and self.phase[name] == "WAITING":
                        seen.add(name)
                        following.append(name)
                        if name not in self.letters:
                            self.letters.append(name)
            wave = following

    def lift(self) -> None:
        """Take out of the letters who is not blocked any more."""
        self.letters = [
            name
            for name in self.letters
            if self.phase[name] == "DEAD" or (self.phase[name] == "WAITING" and self.doomed(name))
        ]

    def submit(self, task: str, deps: list[str]) -> Any:
        if task in self.deps:
            return False
        if self.circular(task, deps):
            return "cycle"
        self.deps[task] = list(dict.fromkeys(deps))
        self.tries[task] = 0
        self.phase[task] = "WAITING"
        if all(self.phase.get(dep) == "SUCCEEDED" for dep in deps):
            self.phase[task] = "READY"
            self.line.append(task)
        elif self.doomed(task):
            self.letters.append(task)
            self.spread(task)
        return True

    def circular(self, task: str, deps: list[str]) -> bool:
        seen: set[str] = set()
        left = list(deps)
        while left:
            at = left.pop()
            if at == task:
                return True
            if at not in seen and self.phase.get(at) not in (None, "SUCCEEDED"):
                seen.add(at)
                left += self.deps[at]
        return False

    def next_ready(self) -> str | None:
        if not self.line:
            return None
        task = self.line.pop(0)
        self.phase[task] = "RUNNING"
        self.tries[task] += 1
        return task

    def complete(self, task: str) -> bool:
        if self.phase.get(task) != "RUNNING":
            return False
        self.phase[task] = "SUCCEEDED"
        for name in self.below(task):
            met = all(self.phase.get(dep) == "SUCCEEDED" for dep in self.deps[name])
            if self.phase[name] == "WAITING" and met:
                self.phase[name] = "READY"
                self.line.append(name)
        return True

    def fail(self, task: str, error: str) -> str | None:
        if self.phase.get(task) != "RUNNING":
            return None
        if self.tries[task] < self.max_attempts:
            self.phase[task] = "READY"
            self.line.append(task)
        else:
            self.phase[task] = "DEAD"
            self.error[task] = error
            self.letters.append(task)
            self.spread(task)
        return self.phase[task]

    def redrive(self, task: str) -> bool:
        if self.phase.get(task) != "DEAD":
            return False
        self.phase[task] = "READY"
        self.tries[task] = 0
        self.line.append(task)
        self.lift()
        return True

    def status(self, task: str) -> str | None:
        phase = self.phase.get(task)
        if phase != "WAITING":
            return phase
        return "BLOCKED" if self.doomed(task) else "PENDING"

    def root(self, task: str) -> str:
        while self.phase[task] != "DEAD":
            task = next(dep for dep in self.deps[task] if self.status(dep) in ("DEAD", "BLOCKED"))
        return task

    def dead_letters(self) -> list[tuple[str, str]]:
        return [
            (
                name,
                f"failed after {self.max_attempts} attempts: {self.error[name]}"
                if self.phase[name] == "DEAD"
                else f"blocked by {self.root(name)}",
            )
            for name in self.letters
        ]


class Run:
    """A random run of a queue beside a model, that counts what it met."""

    def __init__(self, seed: int, ids: int, limit: int) -> None:
        self.rng = random.Random(seed)
        self.ids = [f"t{i}" for i in range(ids)]
        self.limit = limit
        self.weights = self.rng.choice([[10, 5, 2, 5, 2], [3, 8, 1, 8, 1], [3, 8, 3, 5, 2]])
        self.model = Model(limit)
        self.met: Counter[str] = Counter()

    def again(self) -> None:
        """Start over, before all has been done."""
        self.model = Model(self.limit)

    def pick(self, phase: str | None) -> str:
        there = [task for task in self.ids if self.model.phase.get(task) == phase]
        return self.rng.choice(there) if there and self.rng.random() < 0.85 else self.any()

    def any(self) -> str:
        return self.rng.choice(self.ids)

    def step(self, queue: WorkQueue) -> None:
        rng, model, met = self.rng, self.model, self.met
        kinds = ["submit", "next_ready", "complete", "fail", "redrive"]
        phases = set(model.phase.values())
        likely = [len(model.phase) < len(self.ids), model.line, *["RUNNING" in phases] * 2]
        likely.append("DEAD" in phases)
        fits = [bool(fit) or rng.random() < 0.1 for fit in likely]
        weights = [weight * fit for weight, fit in zip(self.weights, fits, strict=True)]
        kind = rng.choices(kinds, weights)[0] if any(weights) else "submit"
        if kind == "submit":
            task = self.pick(None)
            deps = [self.any() for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
            named = bool(model.below(task))
            expected = model.submit(task, deps)
            if expected == "cycle":
                with pytest.raises(CycleError) as raised:
                    queue.submit(task, deps)
                assert raised.value.cycle[0] == raised.value.cycle[-1] == task
                met["cycle"] += 1
            else:
                assert queue.submit(task, deps) is expected
                met["late arrival"] += named and expected
                late = named and expected and model.status(task) == "BLOCKED"
                met["late arrival among the dead"] += late
                met["known id"] += not expected
        elif kind == "next_ready":
            assert queue.next_ready() == model.next_ready()
        elif kind == "complete":
            task = self.pick("RUNNING")
            before = len(model.line)
            answer = model.complete(task)
            assert queue.complete(task) is answer
            met["complete"] += answer
            met["several became ready"] += len(model.line) > before + 1
        elif kind == "fail":
            task, error = self.pick("RUNNING"), rng.choice(["", "boom", "x"])
            before = len(model.letters)
            expected = model.fail(task, error)
            assert queue.fail(task, error) == expected
            met[f"fail {expected}"] += 1
            met["a death blocked several"] += len(model.letters) > before + 2
        else:
            task = self.pick("DEAD")
            roots = sum(phase == "DEAD" for phase in model.phase.values())
            before = len(model.letters)
            answer = model.redrive(task)
            assert queue.redrive(task) is answer
            met["redrive"] += answer
            met["redrive among several roots"] += answer and roots > 1
            met["a redrive freed several"] += answer and len(model.letters) < before - 2

    def same(self, queue: WorkQueue) -> None:
        assert queue.dead_letters() == self.model.dead_letters()
        for task in self.ids:
            assert queue.status(task) == self.model.status(task), task


@pytest.mark.parametrize("block", range(6))
def test_long_random_runs_agree_with_a_model(block: int) -> None:
    """In memory: 60,000 commands in all, over graphs of many shapes in every stage of decay."""
    met: Counter[str] = Counter()
    for seed in range(block * 20, block * 20 + 20):
        run = Run(seed, [6, 9, 13, 18][seed % 4], seed % 3 + 1)
        queue = WorkQueue(run.limit)
        for step in range(500):
            if step % 100 == 99:
                queue._queue.state.check()
                run.again()
                queue = WorkQueue(run.limit)
            run.step(queue)
            run.same(queue)
        met += run.met
    rare = {
        "cycle": 50,
        "late arrival": 100,
        "late arrival among the dead": 20,
        "known id": 100,
        "complete": 100,
        "several became ready": 5,
        "fail READY": 100,
        "fail DEAD": 100,
        "fail None": 100,
        "a death blocked several": 30,
        "redrive": 100,
        "redrive among several roots": 50,
        "a redrive freed several": 20,
    }
    assert {kind: met[kind] for kind in rare if met[kind] < rare[kind]} == {}


@pytest.mark.parametrize("seed", range(3))
def test_random_runs_on_a_path_agree_with_a_model(seed: int, tmp_path: Path) -> None:
    """Opened again and again on the way."""
    run = Run(seed, 10, seed + 1)
    for graph in range(4):
        path = tmp_path / f"q{graph}"
        run.again()
        queue = WorkQueue(run.limit, path)
        try:
            for step in range(90):
                if step % 20 == 19:
                    queue.shut()
                    queue = WorkQueue(run.limit, path)
                run.step(queue)
                run.same(queue)
        finally:
            queue.shut()
    assert run.met["redrive"] > 5
    assert run.met["late arrival"] > 5
