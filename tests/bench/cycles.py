"""The cycle check: whole enqueues of chains in several orders, and of tasks that arrive late.

A chain costs at most three times as much as tasks that have nothing to do with each other. The
second table has the worst shapes known: tasks whose id is named already arrive one by one, with
long waiting chains above them, below them, or on both sides.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from eventq import WorkQueue
from eventq.core.commands import Enqueue, Open
from eventq.core.decide import decide
from eventq.core.state import State

from .measure import Scale, busy, turns
from .table import Table

__all__ = ["tables"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 3.0
LATE = 10
"""How many tasks arrive late."""

Asks = list[tuple[str, tuple[str, ...]]]


def tables(scale: Scale) -> Iterator[Table]:
    """Chains, then late tasks."""
    yield _chains(scale)
    yield _late(scale)


# Chains.


def _order(n: int, order: str) -> Iterable[int]:
    if order == "in reverse":
        return reversed(range(n))
    if order == "in random order":
        return random.Random(n).sample(range(n), n)
    if order == "by halves":  # each late task joins two chains of the same length
        return sorted(range(n), key=lambda i: (i + 1) & -(i + 1))
    return range(n)


def _asks(n: int, order: str) -> Asks:
    """The same ids in every order; unrelated tasks alone have no dependencies."""
    unrelated = order == "unrelated"
    return [
        (f"task-{i}", () if unrelated or not i else (f"task-{i - 1}",)) for i in _order(n, order)
    ]


def _enqueued(asks: Asks) -> float:
    """Microseconds a task, through a WorkQueue in memory."""
    queue = WorkQueue.in_memory(history=False)
    begin = busy()
    for name, after in asks:
        queue.enqueue(name, after=after)
    return (busy() - begin) / len(asks) * 1e6


def _decided(asks: Asks) -> float:
    """Microseconds a task, through `decide` alone, from commands that were made before."""
    commands = [Enqueue(name, None, after) for name, after in asks]
    state = _empty()
    begin = busy()
    for command in commands:
        _, state = decide(state, command, NOW)
    return (busy() - begin) / len(asks) * 1e6


def _empty() -> State:
    return decide(State(), Open("bench"), NOW)[1]


ORDERS = ("unrelated", "in order", "in reverse", "in random order", "by halves")
WAYS: dict[str, Callable[[Asks], float]] = {"WorkQueue": _enqueued, "decide": _decided}


def _chains(scale: Scale) -> Table:
    table = Table(
        "A chain of tasks, whole enqueue",
        ["through", "tasks", *ORDERS, *(f"{order} /" for order in ORDERS[1:])],
        "microseconds a task, then times the unrelated; the collector "
        + ("on" if scale.collector else "off"),
    )
    for n in scale.sizes(1_000, 10_000, 100_000):
        repeat = max(1, scale.few(10_000, 1_000) // n)  # short cases several times

        def cost(
            way: Callable[[Asks], float], asks: Asks, repeat: int = repeat
        ) -> Callable[[], float]:
            return lambda: sum(way(asks) for _ in range(repeat)) / repeat

        cases = {
            (way, order): cost(run, _asks(n, order))
            for way, run in WAYS.items()
            for order in ORDERS
        }
        found = turns(cases, scale)
        for way in WAYS:
            ratios = {o: found.ratio((way, o), (way, "unrelated")) for o in ORDERS[1:]}
            table.row(way, n, *(found.median((way, order)) for order in ORDERS), *ratios.values())
            if way == "WorkQueue":
                for order, ratio in ratios.items():
                    table.ask(f"a chain of {n:,} {order}", ratio, at_most=LIMIT)
    return table


# Late tasks.


def _chain(name: str, length: int, first: tuple[str, ...], *, also: str | None = None) -> Asks:
    """A chain of tasks; `also` gives each a dependency of its own that nobody has enqueued."""
    asks: Asks = []
    after = first
    for i in range(length):
        asks.append((f"{name}-{i}", after if also is None else (*after, f"{also}-{i}")))
        after = (f"{name}-{i}",)
    return asks


ALL_LATE = tuple(f"late-{i}" for i in range(LATE))
WATCHERS: Asks = [(f"watcher-{i}", (name,)) for i, name in enumerate(ALL_LATE)]
SHORT: Asks = [("above-0", ("missing",))]


def _shape(shape: str, length: int) -> tuple[Asks, Asks]:
    """What stands there before, and the late tasks in the order of their arrival."""
    last = (f"above-{length - 1}",)
    late: Asks = [(name, last) for name in ALL_LATE]
    waiting = _chain("above", length, ("missing",))
    grounded = _chain("above", length, ())
    below = _chain("below", length, ALL_LATE)
    if shape == "nothing around":
        return [], [(name, ()) for name in ALL_LATE]
    if shape == "waiting above":
        return waiting + WATCHERS, late
    if shape == "grounded above":
        return grounded + WATCHERS, late
    if shape == "waiting below":
        return SHORT + below, [(name, ("above-0",)) for name in ALL_LATE]
    if shape == "waiting above, waiting below":
        return waiting + below, late
    if shape == "grounded above, waiting below":
        return grounded + below, late
    # Above stand tasks that each rest on an id of their own; between two late tasks one arrives.
    scattered = _chain("above", length, (), also="missing")
    step = max(1, length // LATE)
    between: Asks = [(f"missing-{i * step % length}", ("elsewhere",)) for i in range(LATE)]
    mixed = [ask for pair in zip(late, between, strict=True) for ask in pair]
    if length < LATE:
        mixed = list(dict(mixed).items())
    return [("elsewhere", ("nowhere",)), *scattered, *below], mixed


SHAPES = (
    "nothing around",
    "waiting above",
    "grounded above",
    "waiting below",
    "grounded above, waiting below",
    "waiting above, waiting below",
    "many missing above, waiting below",
)


def _built(asks: Asks) -> State:
    state = _empty()
    for name, after in asks:
        _, state = decide(state, Enqueue(name, None, after), NOW)
    return state


def _late(scale: Scale) -> Table:
    lengths = scale.sizes(1_000, 10_000, 100_000)
    table = Table(
        f"{LATE} tasks that are named before they come, one by one",
        ["what stands around", *(f"{n:,}" for n in lengths), *(f"{n:,} /" for n in lengths)],
        "microseconds a late task (decide), by the length of the chains around it, then times a "
        "late task with nothing around\n"
        "(grounded: all that they rest on is there; waiting: they rest on an id that nobody has "
        "enqueued;\nmany missing: each rests on one of its own, and one arrives after each late "
        "task)",
    )
    found = {}
    for length in lengths:
        cases = {}
        for shape in SHAPES:
            before, late = _shape(shape, length)
            commands = [Enqueue(name, None, after) for name, after in late]
            cases[shape] = _arrival(_built(before), commands)
        found[length] = turns(cases, scale, 2)
    base = SHAPES[0]
    for shape in SHAPES:
        costs = [found[length].median(shape) for length in lengths]
        table.row(shape, *costs, *(found[length].ratio(shape, base) for length in lengths))
    return table


def _arrival(before: State, late: list[Enqueue]) -> Callable[[], float]:
    def cost() -> float:
        state = before
        begin = busy()
        for command in late:
            _, state = decide(state, command, NOW)
        return (busy() - begin) / len(late) * 1e6

    return cost
