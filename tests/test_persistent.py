"""The persistent map against a dict, with every copy kept, and beside the sorted set."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from eventq.core.ordered import Sorted
from eventq.core.persistent import LEAF, Changes, Map


class Clash:
    """A key whose hash says nothing about it."""

    def __init__(self, value: int, place: int) -> None:
        self.value = value
        self.place = place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Clash) and self.value == other.value

    def __hash__(self) -> int:
        return self.place


KEYS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda i: i,
    "numbers below zero": lambda i: -i,
    "texts": lambda i: f"task-{i}",
    "tuples": lambda i: (i % 7, str(i)),
    "one hash for all": lambda i: Clash(i, 5),
    "few hashes": lambda i: Clash(i, i % 3 * 2**40),
}


def same_map(found: Map[Any, Any], model: dict[Any, Any]) -> None:
    assert len(found) == len(model)
    assert dict(found.items()) == model
    assert set(found) == set(model)
    assert sorted(found.values()) == sorted(model.values())


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("seed", range(3))
def test_a_map_does_what_a_dict_does_and_copies_stay(keys: str, seed: int) -> None:
    """Random changes agree with a dict; no later change reaches a map that somebody holds."""
    rng = random.Random(f"{keys}{seed}")
    key = KEYS[keys]
    span = 60 if "hash" in keys else 900
    found: Map[Any, int] = Map()
    changes = Changes(found)
    model: dict[Any, int] = {}
    kept: list[tuple[Map[Any, int], dict[Any, int]]] = []
    for step in range(4000):
        growing = step // 800 % 2 == 0
        at = key(rng.randrange(span))
        assert changes[at] == model.get(at)
        if rng.random() < (0.8 if growing else 0.2):
            changes[at] = model[at] = step
        elif at in model:
            changes.drop(at)
            del model[at]
        else:
            with pytest.raises(KeyError):
                changes.drop(at)
        assert changes[at] == model.get(at)
        if rng.random() < 0.04:
            found = changes.done(alone=True)
            if rng.random() < 0.5:
                found.held = True
                kept.append((found, model.copy()))
            changes = Changes(found)
            assert len(found) == len(model)
            assert all((key(i) in found) == (key(i) in model) for i in range(span))
            assert all(found[key(i)] == model.get(key(i)) for i in range(span))
    same_map(changes.done(), model)
    assert len(kept) > 40
    for old, then in kept:
        same_map(old, then)


@pytest.mark.parametrize("alone", [False, True])
def test_a_map_grows_through_many_sizes(alone: bool) -> None:
    """Keys stay where they can be found while the map gets more leaves, and when it empties."""
    found: Map[int, int] = Map()
    number = LEAF * 4**4 + 10
    for begin in range(0, number, 50):
        further = {i: -i for i in range(begin, min(begin + 50, number))}
        found = found.taken_in(further) if alone else found.changed(further)
    assert len(found) == number
    assert all(found[i] == -i for i in range(number))
    assert max(len(leaf) for row in found._rows for leaf in row) < 4 * LEAF  # or it would be slow
    for begin in range(0, number, 50):
        gone = dict.fromkeys(range(begin, begin + 50))
        found = found.taken_in(gone) if alone else found.changed(gone)
    assert len(found) == 0
    assert list(found) == []


def test_a_map_finds_keys_as_a_dict_does() -> None:
    """1, 1.0 and True are one key, and None is a key."""
    changes: Changes[Any, str] = Changes(Map())
    changes[1] = "one"
    changes[True] = "yes"
    changes[None] = "nobody"
    found = changes.done()
    assert list(found.items()) in ([(1, "yes"), (None, "nobody")], [(None, "nobody"), (1, "yes")])
    assert found[1.0] == "yes"
    assert found[None] == "nobody"


def test_changes_of_one_original_do_not_see_each_other() -> None:
    """One map, or one sorted set, is changed apart by two; changes can be made of changes."""
    original: Map[int, str] = Map(dict.fromkeys(range(5000), "old"))
    row: Sorted[tuple[int]] = Sorted()
    for i in range(5000):
        row = row.add((i,), None)
    one, other = object(), object()
    left, right = Changes(original), Changes(original)
    low = high = row
    for i in range(0, 5000, 7):
        left[i] = "left"
        right.drop(i)
        low = low.remove((i,), one)
        high = high.add((i + 10_000,), other)
    further = left.again()
    for i in range(0, 5000, 14):
        further.drop(i)
    for changes in (left, left.done()):
        assert all(changes[i] == ("left" if i % 7 == 0 else "old") for i in range(5000))
    for changes in (right, right.done()):
        assert all(changes[i] == (None if i % 7 == 0 else "old") for i in range(5000))
    for changes in (further, further.done()):
        assert sum(changes[i] is None for i in range(5000)) == len(range(0, 5000, 14))
        assert changes[7] == "left"
    assert all(original[i] == "old" for i in range(5000))
    assert list(row) == [(i,) for i in range(5000)]
    assert list(low) == [(i,) for i in range(5000) if i % 7]
    assert list(high) == [*row, *((i + 10_000,) for i in range(0, 5000, 7))]


def test_what_was_changed_from_another_shares_with_it() -> None:
    """Neither is taken for one that nobody else has a part of."""
    one: Map[int, str] = Map(dict.fromkeys(range(1000), "old"))
    other = one.changed({0: "new"})
    for begin in (one, other):
        changes = Changes(begin)
        for i in range(1000):
            changes[i] = "newer"
        assert set(changes.done(alone=True).values()) == {"newer"}
    assert set(one.values()) == {"old"}


def test_whether_none_of_many_is_there() -> None:
    """As one by one: what was dropped is not there, whether or not it was in the map before."""
    changes: Changes[int, str] = Changes(Map(dict.fromkeys(range(1000), "old")))
    assert changes.none_of([1000, 1001])
    assert not changes.none_of([1001, 5])
    changes[1001] = "new"
    assert not changes.none_of([1000, 1001])
    changes.drop(5)
    assert changes.none_of([1000, 5])
    assert not changes.none_of([1000, 5, 6])
    assert changes.done().none_of([5])
    assert not changes.done().none_of([1001])


def test_what_comes_and_goes_leaves_nothing_in_the_changes() -> None:
    """A key that was not there before is gone when it is dropped; another is noted as gone."""
    changes: Changes[str, int] = Changes(Map({"there": 1}))
    changes["new"] = 2
    changes.drop("new")
    assert dict(changes) == {}
    changes.drop("there")
    assert dict(changes) == {"there": None}
    for key in ("new", "there", "never"):
        with pytest.raises(KeyError):
            changes.drop(key)


def grown(changes: Callable[[], Any]) -> int:
    """How many bytes are held once this is done that were not before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = changes()
        assert kept
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def test_a_kept_copy_costs_the_change_and_not_the_whole() -> None:
    """Keeping 100 states of a collection of 60,000 costs some kilobytes each, not megabytes."""
    original: Map[int, int] = Map({i: i for i in range(60_000)})
    row: Sorted[tuple[int]] = Sorted()
    for i in range(60_000):
        row = row.add((i,), None)

    def maps() -> list[Map[int, int]]:
        kept = [original]
        for i in range(100):
            kept.append(kept[-1].changed({i * 577: -1}))
        return kept

    def rows() -> list[Sorted[tuple[int]]]:
        kept = [row]
        for i in range(100):
            kept.append(kept[-1].remove((i * 577,), object()))
        return kept

    assert grown(maps) < 100 * 20_000
    assert grown(rows) < 100 * 20_000
