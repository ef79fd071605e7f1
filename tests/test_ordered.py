"""The persistent sorted set against a sorted list, with every copy kept."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import pytest

from eventq.core.ordered import WIDTH, Sorted


def same_sorted(found: Sorted[Any], model: list[Any], rng: random.Random) -> None:
    assert len(found) == len(model)
    assert list(found) == model
    assert found.first() == (model[0] if model else None)
    for _ in range(3):
        start = (rng.randrange(-5, 1500),)
        assert list(found.since(start)) == model[bisect_left(model, start) :]


ADDING: dict[str, Callable[[random.Random, int], int]] = {
    "anywhere": lambda rng, step: rng.randrange(1400),
    "at the end": lambda rng, step: step,
    "at the front": lambda rng, step: 100_000 - step,
    "in two runs": lambda rng, step: step + (step % 2) * 50_000,
    "after one place": lambda rng, step: 700 * 4000 - step if step > 700 else step,
}

TAKING: dict[str, Callable[[random.Random, list[Any]], int]] = {
    "anywhere": lambda rng, model: rng.randrange(len(model)),
    "from the front": lambda rng, model: 0,
    "from the end": lambda rng, model: len(model) - 1,
    "all but a few": lambda rng, model: min(len(model) - 1, 3),
}


@pytest.mark.parametrize("adding", ADDING)
@pytest.mark.parametrize("taking", TAKING)
def test_a_sorted_set_does_what_a_sorted_list_does_and_copies_stay(
    adding: str, taking: str
) -> None:
    """Random changes agree with a sorted list; no later change reaches what another owner had."""
    rng = random.Random(adding + taking)
    owner = object()
    found: Sorted[tuple[int]] = Sorted(owner)
    model: list[tuple[int]] = []
    kept: list[tuple[Sorted[tuple[int]], list[tuple[int]]]] = []
    for step in range(5000):
        growing = step // 1000 % 2 == 0
        if rng.random() < (0.85 if growing else 0.15):
            item = (ADDING[adding](rng, step),)
            at = bisect_left(model, item)
            if at == len(model) or model[at] != item:
                model.insert(at, item)
                found = found.add(item, owner)
        elif model:
            item = model.pop(TAKING[taking](rng, model))
            found = found.remove(item, owner)
        if rng.random() < 0.02:
            item = (rng.randrange(-5, 1500),)
            if item not in model:
                with pytest.raises(KeyError):
                    found.remove(item, owner)
        assert len(found) == len(model)
        assert found.first() == (model[0] if model else None)
        if rng.random() < 0.012:
            kept.append((found, model.copy()))
            owner = object()
            same_sorted(found, model, rng)
    assert len(kept) > 30
    same_sorted(found, model, rng)
    for old, then in kept:
        same_sorted(old, then, rng)


def test_a_sorted_set_empties_and_fills_again() -> None:
    """Nothing is left of a full set when its last item has gone, and it can start afresh."""
    found: Sorted[tuple[int]] = Sorted()
    for owner in (None, object(), object()):
        for i in range(WIDTH * WIDTH + 500):
            found = found.add((i,), owner)
        full, owner = found, object()
        for i in range(WIDTH * WIDTH + 500):
            assert found.first() == (i,)
            found = found.remove((i,), owner)
        assert len(found) == 0
        assert found.first() is None
        assert list(found) == []
        assert list(found.since((5,))) == []
        assert list(full) == [(i,) for i in range(WIDTH * WIDTH + 500)]


def test_since_finds_the_edges_of_one_name() -> None:
    """A shorter tuple stands before all that begin with it, as `dependents` asks."""
    found: Sorted[tuple[str, int, str]] = Sorted()
    edges = [(f"n{a}", b, f"d{b}") for a in range(40) for b in range(30)]
    for edge in random.Random(1).sample(edges, len(edges)):
        found = found.add(edge, None)
    for a in range(40):
        name = f"n{a}"
        ours = []
        for edge in found.since((name,)):
            if edge[0] != name:
                break
            ours.append(edge)
        assert ours == [(name, b, f"d{b}") for b in range(30)]
    assert list(found.since(("z",))) == []
