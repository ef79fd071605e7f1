"""The real graph of Debian 12, enqueued package by package: what is refused, and what is left."""

from __future__ import annotations

import pytest
from bench.debian import (
    Outcome,
    acyclic,
    enqueue_each,
    graph,
    is_cycle,
    knots,
    shuffled,
)

from eventq import WorkQueue
from eventq.core.lifecycle import Status
from eventq.core.state import State

PACKAGES = graph()
ORDER = shuffled(PACKAGES, 2026)


@pytest.fixture(scope="module")
def enqueued() -> tuple[Outcome, State]:
    """All packages, in one random order."""
    queue = WorkQueue.in_memory(history=False)
    return enqueue_each(queue, PACKAGES, ORDER), queue.state


def test_the_graph_is_the_real_one() -> None:
    """Its size, and the size of its knots, are those that Debian has."""
    tied = knots(PACKAGES)
    assert len(PACKAGES) == 63_436
    assert sum(map(len, PACKAGES.values())) == 264_193
    assert (len(tied), sum(map(len, tied)), max(map(len, tied))) == (60, 159, 11)


def test_every_refusal_shows_a_true_cycle(enqueued: tuple[Outcome, State]) -> None:
    """It runs through the package that was refused, and else only through admitted ones."""
    outcome, state = enqueued
    assert outcome.refused
    for package, cycle in outcome.refused.items():
        assert cycle[0] == package
        assert is_cycle(PACKAGES, cycle)
        assert all(there in state for there in cycle[1:-1])


def test_no_package_is_refused_too_few_or_too_many(enqueued: tuple[Outcome, State]) -> None:
    """What is left has no cycle, and every knot lost a package, and nothing else did."""
    outcome, _ = enqueued
    tied = knots(PACKAGES)
    kept = {name: needs for name, needs in PACKAGES.items() if name not in outcome.refused}
    assert not acyclic(PACKAGES)
    assert acyclic(kept)
    assert all(knot & outcome.refused.keys() for knot in tied)
    assert outcome.refused.keys() <= set().union(*tied)
    assert all(len(knot & outcome.refused.keys()) < len(knot) for knot in tied)


def test_the_rest_is_admitted_and_waits_for_what_it_needs(enqueued: tuple[Outcome, State]) -> None:
    """Packages without dependencies are READY, in the order of arrival; all others are PENDING."""
    outcome, state = enqueued
    admitted = [name for name in ORDER if name not in outcome.refused]
    assert outcome.admitted == len(state) == len(admitted)
    ready = [name for name in admitted if not PACKAGES[name]]
    assert [task.id for task in state.line()] == ready
    assert state.counts()[Status.PENDING] == len(admitted) - len(ready)
    state.check()
