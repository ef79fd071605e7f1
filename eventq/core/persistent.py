"""A persistent map: a change never touches what others hold.

What a draft changes of a `Map` it notes in a dict of its own, its `Changes`, and when it is done
these go into the map: of the small dicts that it is made of, those that they touch are copied, and
all others are shared. Where nobody holds the map of before any more, only those are copied that
older maps have a part in.

So a state is kept for the price of what was changed since the last, and a long run of changes
costs little more than it would on a plain dict. The idea is that of the "transients" of Clojure's
persistent maps (Hickey, after Bagwell's hash tries, 2001).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Generic, Protocol, TypeVar

__all__ = ["Changes", "Lookup", "Map"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)

LEAF = 64
"""How many items a leaf of a map may hold on average before the map gets four times the leaves."""


class Lookup(Protocol[K_contra, V_co]):
    """A map, or one in the making."""

    def __getitem__(self, key: K_contra, /) -> V_co | None:
        """The value of the key, or None."""

    def none_of(self, keys: Collection[K_contra], /) -> bool:
        """Whether no key of these is there: looked up in one go."""


class Map(Generic[K, V]):
    """A hash map that never changes under who holds it: a square of 4**bits small dicts, chosen by
    the low bits of the hash. None is no value.

    Its order of iteration means nothing; sort what comes out.
    """

    __slots__ = ("_bits", "_mask", "_own", "_rows", "_size", "held")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        pairs = {} if items is None else items
        bits = 0
        while LEAF << (2 * bits) < len(pairs):
            bits += 1
        width = 1 << bits
        mask = width - 1
        rows: list[list[dict[K, V]]] = [[{} for _ in range(width)] for _ in range(width)]
        for key, value in pairs.items():
            place = hash(key)
            rows[place >> bits & mask][place & mask][key] = value
        self._bits = bits
        self._mask = mask
        self._rows = rows
        self._size = len(pairs)
        self._own: set[int] | None = None
        """The leaves that no other map has, and with its sign turned, less one, each such row;
        None: all of them."""
        self.held = False
        """Whether somebody may hold it, or a part of it, who relies on that."""

    def changed(self, changes: Mapping[K, V | None]) -> Map[K, V]:
        """The map with these values in the place of its own; None takes a key away.

        In time linear in the changes: each copies at most a leaf, and n of them less than n leaves.
        """
        bits, mask, size, rows = self._bits, self._mask, self._size, self._rows
        if len(changes) > size + LEAF:
            return self._anew(changes)
        leaves: dict[int, dict[K, V]] = {}
        all_bits = (1 << (2 * bits)) - 1
        for key, value in changes.items():
            number = hash(key) & all_bits
            leaf = leaves.get(number)
            if leaf is None:
                leaf = leaves[number] = rows[number >> bits][number & mask].copy()
            if value is None:
                leaf.pop(key, None)
            else:
                leaf[key] = value
        rows = rows.copy()
        copied: set[int] = set()
        for number, leaf in leaves.items():
            across, down = number >> bits, number & mask
            if across not in copied:
                copied.add(across)
                rows[across] = rows[across].copy()
            size += len(leaf) - len(rows[across][down])
            rows[across][down] = leaf
        if size > LEAF << (2 * bits):
            return self._anew(changes)
        after: Map[K, V] = Map.__new__(Map)
        after._bits, after._mask, after._rows, after._size = bits, mask, rows, size
        after._own = set()
        after.held = False
        self.held = True  # by the other, in part
        return after

    def taken_in(self, changes: Mapping[K, V | None]) -> Map[K, V]:
        """The same as `changed` from a map that nobody holds: it is no more what it was. A break
        midway leaves it with some of the changes.

        In time linear in the changes, without a copy of what no other map has; now and then all
        of it gets more leaves.
        """
        bits, mask, rows, own = self._bits, self._mask, self._rows, self._own
        if len(changes) > self._size + LEAF:
            return self._anew(changes)
        for key, value in changes.items():
            place = hash(key)
            across, down = place >> bits & mask, place & mask
            leaf = rows[across][down]
            if own is not None and across << bits | down not in own:
                if ~across not in own:
                    rows[across] = rows[across].copy()
                    own.add(~across)
                leaf = rows[across][down] = leaf.copy()
                own.add(across << bits | down)
            before = len(leaf)
            if value is None:
                leaf.pop(key, None)
            else:
                leaf[key] = value
            self._size += len(leaf) - before
        return self if self._size <= LEAF << (2 * bits) else self._anew({})

    def _anew(self, changes: Mapping[K, V | None]) -> Map[K, V]:
        items: dict[K, V | None] = {}
        for row in self._rows:
            for leaf in row:
                items.update(leaf)
        items.update(changes)
        return Map({key: value for key, value in items.items() if value is not None})

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: K) -> V | None:
        """The value of the key, or None."""
        place = hash(key)
        return self._rows[place >> self._bits & self._mask][place & self._mask].get(key)

    def __contains__(self, key: K) -> bool:
        return self[key] is not None

    def none_of(self, keys: Collection[K], /) -> bool:
        """Whether no key of these is there."""
        bits, mask, rows = self._bits, self._mask, self._rows
        for key in keys:
            place = hash(key)
            if key in rows[place >> bits & mask][place & mask]:
                return False
        return True

    def __iter__(self) -> Iterator[K]:
        return (key for row in self._rows for leaf in row for key in leaf)

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs, in no order that means anything."""
        return (item for row in self._rows for leaf in row for item in leaf.items())

    def values(self) -> Iterator[V]:
        """All values, in no order that means anything."""
        return (value for row in self._rows for leaf in row for value in leaf.values())


class Changes(dict[K, V | None], Generic[K, V]):
    """A map in the making: what was changed of one that stays as it is until it is done.

    `changes[key]` is the value or None, as with a map, and at the price of a dict for what was set
    here. All else that a dict can do tells of the changes alone.
    """

    __slots__ = ("_before",)

    def __init__(self, before: Map[K, V]) -> None:
        self._before = before

    def again(self) -> Changes[K, V]:
        """The same changes, to be gone on with apart."""
        again = Changes(self._before)
        again.update(self)
        return again

    def __missing__(self, key: K) -> V | None:
        before = self._before  # what `before[key]` does, without the call
        place = hash(key)
        mask = before._mask
        return before._rows[place >> before._bits & mask][place & mask].get(key)

    def none_of(self, keys: Collection[K], /) -> bool:
        """Whether no key of these is there."""
        if self.keys().isdisjoint(keys):
            return self._before.none_of(keys)
        return all(self[key] is None for key in keys)

    def drop(self, key: K) -> None:
        """Take a key away. Raises KeyError where it is not there."""
        before = self.__missing__(key)
        if self.get(key, before) is None:
            raise KeyError(key)
        if before is None:
            del self[key]  # so that nothing is left of what comes and goes
        else:
            self[key] = None

    def done(self, *, alone: bool = False) -> Map[K, V]:
        """The map that was made; `alone` says that who asks needs the one before no more."""
        before = self._before
        if not self:
            return before
        return before.taken_in(self) if alone and not before.held else before.changed(self)
