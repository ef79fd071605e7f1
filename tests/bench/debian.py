"""The real graph of Debian 12: enqueued package by package, and judged by other means.

63,436 packages with 264,193 dependencies, among them 60 knots of packages that need each other.
Each package that would close a cycle is refused, the rest is admitted.
"""

from __future__ import annotations

import graphlib
import lzma
import random
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from eventq import CycleError, WorkQueue

from .measure import Scale, busy, turns
from .table import Table

__all__ = ["Outcome", "acyclic", "enqueue_each", "graph", "is_cycle", "knots", "shuffled", "tables"]

FILE = Path(__file__).parents[2] / "fixtures" / "data" / "debian_depends.tsv.xz"

Graph = Mapping[str, tuple[str, ...]]


def graph() -> dict[str, tuple[str, ...]]:
    """Each package and what it depends on, as in the file; some of that is no package."""
    with lzma.open(FILE, "rt", encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").partition("\t") for line in lines)
        return {package: tuple(needs.split(",")) if needs else () for package, _, needs in pairs}


def shuffled(packages: Graph, seed: int) -> list[str]:
    """The packages in a random order, the same for the same seed."""
    order = sorted(packages)
    random.Random(seed).shuffle(order)
    return order


class Outcome(NamedTuple):
    """What became of a graph that was enqueued."""

    admitted: int
    refused: dict[str, list[str]]
    """Each package that was refused, and the cycle that the refusal showed."""
    longest: float
    """The seconds of the enqueue that took longest."""


def enqueue_each(queue: WorkQueue, packages: Graph, order: list[str]) -> Outcome:
    """Enqueue the packages one by one, and note which are refused."""
    refused: dict[str, list[str]] = {}
    longest = 0.0
    clock = time.perf_counter
    for package in order:
        begin = clock()
        try:
            queue.enqueue(package, after=packages[package])
        except CycleError as error:
            refused[package] = list(error.cycle)
        longest = max(longest, clock() - begin)
    return Outcome(len(order) - len(refused), refused, longest)


# The same graph, judged without eventq.


def is_cycle(packages: Graph, cycle: list[str]) -> bool:
    """Whether each id in it needs the next, the first is repeated last, and no other is."""
    return (
        len(cycle) >= 2
        and cycle[0] == cycle[-1]
        and len(set(cycle)) == len(cycle) - 1
        and all(there in packages.get(at, ()) for at, there in pairwise(cycle))
    )


def acyclic(packages: Graph) -> bool:
    """Whether the packages can be put in an order in which each follows what it needs."""
    try:
        graphlib.TopologicalSorter(packages).prepare()
    except graphlib.CycleError:
        return False
    return True


def knots(packages: Graph) -> list[set[str]]:
    """The strongly connected components that hold a cycle (Kosaraju and Sharir, 1981)."""
    seen: set[str] = set()
    finished: list[str] = []
    for start in packages:
        path = [(start, iter(packages[start]))] if start not in seen else []
        seen.add(start)
        while path:
            at, rest = path[-1]
            for there in rest:
                if there in packages and there not in seen:
                    seen.add(there)
                    path.append((there, iter(packages[there])))
                    break
            else:
                finished.append(at)
                path.pop()
    needed_by: dict[str, list[str]] = {package: [] for package in packages}
    for package, needs in packages.items():
        for there in needs:
            if there in needed_by:
                needed_by[there].append(package)
    found = []
    left = set(packages)
    for start in reversed(finished):
        if start not in left:
            continue
        knot = {start}
        left.discard(start)
        frontier = [start]
        while frontier:
            for there in needed_by[frontier.pop()]:
                if there in left:
                    left.discard(there)
                    knot.add(there)
                    frontier.append(there)
        if len(knot) > 1 or start in packages[start]:
            found.append(knot)
    return found


# Measured.


def tables(scale: Scale) -> Iterator[Table]:
    """All packages in random orders and in that of the file, against the same without edges."""
    whole = graph()
    names = shuffled(whole, 0)[: scale.of(len(whole))]
    packages = {package: whole[package] for package in sorted(names)}
    bare: Graph = dict.fromkeys(packages, ())
    edges = sum(map(len, packages.values()))
    orders = {f"random order, seed {seed}": shuffled(packages, seed) for seed in (1, 2, 3)}
    orders["order of the file"] = list(packages)
    outcomes: dict[str, Outcome] = {}

    def case(name: str, of: Graph, order: list[str]) -> Callable[[], float]:
        def cost() -> float:
            queue = WorkQueue.in_memory(history=False)
            begin = busy()
            outcomes[name] = enqueue_each(queue, of, order)
            return busy() - begin

        return cost

    cases = {name: case(name, packages, order) for name, order in orders.items()}
    cases["no dependencies"] = case("no dependencies", bare, shuffled(packages, 1))
    found = turns(cases, scale, 3)
    table = Table(
        f"{len(packages):,} packages of Debian, {edges:,} dependencies, one by one",
        ["", "seconds", "us a package", "times none", "slowest, ms", "admitted", "refused", "true"],
        "through a WorkQueue in memory; `true`: each refusal shows a cycle of the graph, what is "
        "left has none, and each knot lost one",
    )
    tied = knots(packages)
    for name in cases:
        outcome = outcomes[name]
        total = found.median(name)
        kept = {package: needs for package, needs in packages.items() if package not in outcome[1]}
        true = all(is_cycle(packages, cycle) for cycle in outcome.refused.values())
        true = true and acyclic(kept) and all(knot & outcome.refused.keys() for knot in tied)
        table.row(
            name,
            total,
            total / len(packages) * 1e6,
            found.ratio(name, "no dependencies"),
            outcome.longest * 1e3,
            outcome.admitted,
            len(outcome.refused),
            None if name == "no dependencies" else "yes" if true else "NO",
        )
    yield table
