"""What lies up- and downstream: cycles against brute force, roots, and chains of any length."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from ledger import Ledger, names

from eventq.core.commands import Cancel, Enqueue, EnqueueAll, Restore, Tick
from eventq.core.errors import CycleError
from eventq.core.graph import blocks, find_cycle, named_at_all, root_above, wanted
from eventq.core.lifecycle import Status
from eventq.core.policy import Retention

S = Status

LONG = 30_000
MANY = 10_000


class Graph:
    """The same graph as plain sets: who names whom, and who has succeeded."""

    def __init__(self) -> None:
        self.after: dict[str, tuple[str, ...]] = {}
        self.succeeded: set[str] = set()

    def closes(self, task: str, after: Iterable[str]) -> bool:
        """Whether `task` is above itself, by following every path."""
        seen: set[str] = set()
        left = list(after)
        while left:
            at = left.pop()
            if at == task:
                return True
            if at not in seen and at not in self.succeeded:
                seen.add(at)
                left += self.after.get(at, ())
        return False

    def holds(self, cycle: list[str], task: str, after: Iterable[str]) -> bool:
        """Whether this is a true cycle through the new task, its first id repeated last."""
        needs = {**self.after, task: tuple(after)}
        return (
            cycle[0] == cycle[-1] == task
            and len(set(cycle)) == len(cycle) - 1 >= 1
            and not self.succeeded & set(cycle)
            and all(there in needs[at] for at, there in pairwise(cycle))
        )


def one_history(seed: int) -> tuple[int, int]:
    """A random history; how many new tasks closed a cycle in it, and how many did not."""
    rng = random.Random(seed)
    ids = names(rng.randint(2, 12))
    most = rng.choice([1, 2, 4])
    retention = rng.choice([None, None, Retention(0)])
    ledger = Ledger(check=False, retention=retention)
    graph = Graph()
    found = [0, 0]
    for _ in range(rng.randint(5, 40)):
        draw = rng.random()
        name = rng.choice(ids)
        status = ledger.status(name)
        if status is S.ABSENT and draw < 0.8:
            after = tuple(rng.sample(ids, rng.randint(0, min(most, len(ids)))))
            expected = graph.closes(name, after)
            cycle = find_cycle(ledger.state, name, after)
            assert (cycle is not None) is expected
            found[expected] += 1
            if cycle is None:
                ledger(Enqueue(name, None, after))
                graph.after[name] = after
            else:
                assert graph.holds(cycle, name, after)
                with ledger.unchanged(), pytest.raises(CycleError) as raised:
                    ledger(Enqueue(name, None, after))
                assert raised.value.cycle == cycle
        elif draw < 0.4 and ledger.line():
            done = ledger.line()[0]
            ledger.succeed(done)
            graph.succeeded.add(done)
        elif draw < 0.7 and status not in (S.ABSENT, S.SUCCEEDED, S.CANCELLED):
            ledger(Cancel(name))
        elif status is S.CANCELLED:
            ledger(Restore(name))
        for gone in [n for n in graph.after if ledger.status(n) is S.ABSENT]:
            del graph.after[gone]
            graph.succeeded.discard(gone)
    ledger.state.check()
    return found[0], found[1]


@pytest.mark.parametrize("block", range(6))
def test_cycles_are_found_as_brute_force_finds_them(block: int) -> None:
    """In 3,000 random histories, each new task closes a cycle exactly where one is to be found.

    They have late arrivals, tasks cancelled, restored, completed and forgotten.
    """
    none = some = 0
    for seed in range(block * 500, block * 500 + 500):
        counted = one_history(seed)
        none, some = none + counted[0], some + counted[1]
    assert none > 1000
    assert some > 500


def test_a_task_that_names_itself_is_a_cycle_of_one() -> None:
    """The shortest cycle has one step."""
    ledger = Ledger()
    assert find_cycle(ledger.state, "a", ("b", "a")) == ["a", "a"]


def test_a_cycle_is_told_in_the_order_of_needing() -> None:
    """Each id in it needs the next, and the first is repeated last."""
    ledger = Ledger().tasks(a="b", b="c x", c="d")
    assert find_cycle(ledger.state, "d", ("y", "a")) == ["d", "a", "b", "c", "d"]
    assert find_cycle(ledger.state, "d", ("b", "a")) == ["d", "b", "c", "d"]
    assert find_cycle(ledger.state, "d", ("x", "y")) is None


def test_a_cycle_through_a_cancelled_task_is_a_cycle() -> None:
    """It may be restored, and then it would be one."""
    ledger = Ledger().tasks(a="b", b="c").do(Cancel("a"), Cancel("b"))
    assert find_cycle(ledger.state, "c", ("a",)) == ["c", "a", "b", "c"]


def test_a_walk_ends_at_a_succeeded_task() -> None:
    """What has succeeded waits for nothing any more, whatever it once named."""
    ledger = Ledger(retention=Retention(0)).tasks(old="").succeed("old")
    ledger.tasks(a="old").succeed("a").tasks(b="a x").do(Tick())
    assert ledger.status("a") is S.SUCCEEDED
    assert ledger.status("old") is S.ABSENT
    assert find_cycle(ledger.state, "old", ("b",)) is None
    assert find_cycle(ledger.state, "x", ("b",)) == ["x", "b", "x"]
    ledger(Enqueue("old", None, ("b",)))
    ledger.state.check()


def orders(n: int) -> dict[str, list[int]]:
    shuffled = list(range(n))
    random.Random(3).shuffle(shuffled)
    return {"in order": list(range(n)), "reverse": list(range(n))[::-1], "random": shuffled}


@pytest.fixture
def undisturbed() -> Iterator[None]:
    """Without the collector, whose passes over so many tasks would take a third of the time."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("order", ["in order", "reverse", "random"])
def test_a_chain_of_any_length_meets_no_recursion_limit(order: str) -> None:
    """30,000 tasks in a row, each after another: the last link is refused, and one death blocks
    them all, each told once, with one root."""
    ledger = Ledger(check=False)
    chain = [Enqueue(f"t{i}", None, [f"t{i - 1}"] if i else ["end"]) for i in orders(LONG)[order]]
    ledger(EnqueueAll(chain))
    with ledger.unchanged(), pytest.raises(CycleError) as raised:
        ledger(Enqueue("end", None, [f"t{LONG - 1}"]))
    assert raised.value.cycle == ["end", *(f"t{i}" for i in range(LONG - 1, -1, -1)), "end"]
    assert len(str(raised.value)) < 500
    assert f"a cycle of {LONG + 1}" in str(raised.value)
    if order == "random":
        return
    ledger.tasks(end="").kill("end")
    assert ledger.state.counts()[S.BLOCKED] == LONG
    assert root_above(ledger.state, (f"t{LONG - 1}",)) == "end"
    letters = list(ledger.state.dead_letters())
    assert [letter.id for letter in letters] == ["end", *(f"t{i}" for i in range(LONG))]
    assert {letter.root for letter in letters} == {"end"}


def test_the_cost_of_a_search_is_that_of_its_cheaper_side() -> None:
    """With much below a new task and little above it, or the other way, the search is short."""
    ledger = Ledger(check=False)
    ledger(EnqueueAll([Enqueue(f"t{i}", None, ["end"]) for i in range(MANY)]))
    ledger(EnqueueAll([Enqueue(f"u{i}", None, [f"u{i - 1}"]) for i in range(MANY)]))
    ledger(EnqueueAll([Enqueue("waits", None, ["gap"])]))

    class Counting:
        asked = 0

        def __getattr__(self, name: str) -> object:
            type(self).asked += 1
            return getattr(ledger.state, name)

    counting = Counting()
    assert find_cycle(counting, "end", ("new", "newer")) is None  # type: ignore[arg-type]
    assert find_cycle(counting, "gap", (f"u{MANY - 1}",)) is None  # type: ignore[arg-type]
    assert Counting.asked < 50


# Roots.


@pytest.mark.parametrize("status", Status)
def test_what_blocks(status: Status) -> None:
    """A root blocks what names it, and so does a BLOCKED task; nothing else does."""
    from test_lifecycle import standing

    record = standing(status).record("t")
    assert blocks(record) is (status in (S.DEAD, S.PARKED, S.CANCELLED, S.BLOCKED))


def test_the_root_shown_is_found_through_the_first_dependency_as_written() -> None:
    """Not the nearest nor the oldest: the first, as written, that is a root or BLOCKED."""
    ledger = Ledger().tasks(r="", s="", ok="", b="s", c="nobody b r", d="ok c")
    ledger.kill("r", "s").succeed("ok")
    assert root_above(ledger.state, ("ok", "nobody", "b", "r")) == "s"
    assert root_above(ledger.state, ("ok", "r", "b")) == "r"
    assert root_above(ledger.state, ("d",)) == "s"
    assert root_above(ledger.state, ("ok", "nobody")) is None
    assert root_above(ledger.state, ()) is None
    assert ledger.state.root("d") == "s"
    assert ledger.state.root("c") == "s"
    assert ledger.state.root("r") is None
    assert ledger.state.root("nobody") is None


def test_wanted_is_named_by_a_pending_task() -> None:
    """A BLOCKED, cancelled or finished task that names an id does not wait for it."""
    ledger = Ledger().tasks(r="", b="r x", c="x").kill("r")
    assert wanted(ledger.state, "x")
    assert not wanted(ledger.state, "r")
    ledger(Cancel("c"))
    assert not wanted(ledger.state, "x")
    assert named_at_all(ledger.state, "x")
    ledger(Cancel("b"))
    assert named_at_all(ledger.state, "x")
    assert not named_at_all(ledger.state, "y")
