"""Two persistent collections, a map and a sorted set: a change never touches what others hold.

Every collection starts out writable. `fork()` gives a writable copy in constant time that shares
all nodes with the original, and copies a node of at most a few dozen items when it first changes
it; from then on it changes that node in place. Whoever forks a collection must not change the
original again: `State` keeps that rule, by handing out only collections that nobody writes to.

So a state is kept for the price of a few pointers, a single change to a collection of n items
copies O(log n) nodes, and a long run of changes costs little more than it would on a plain dict.
The idea is that of the "transients" of Clojure's persistent vectors and maps (Hickey, after
Bagwell's hash tries, 2001).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar, overload

__all__ = ["Map", "Sorted"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T", bound=tuple[Any, ...])

LEAF = 64
"""How many items a leaf of a map may hold on average before the map gets four times the leaves."""

WIDTH = 96
"""How many items a node of a sorted set may hold before it is split."""


class Map(Generic[K, V]):
    """A hash map: a square of 4**bits small dicts, chosen by the low bits of the hash.

    Its order of iteration means nothing; sort what comes out.
    """

    __slots__ = ("_bits", "_limit", "_mask", "_mine", "_rows", "_size")

    def __init__(self) -> None:
        self._spread(0, [])

    def _spread(self, bits: int, items: list[tuple[K, V]]) -> None:
        width = 1 << bits
        rows: list[list[dict[K, V]]] = [[{} for _ in range(width)] for _ in range(width)]
        self._bits = bits
        self._mask = mask = width - 1
        self._limit = LEAF << (2 * bits)
        self._rows = rows
        self._size = len(items)
        # The leaves that nobody else holds, by number; a row is noted as -1 - its number, and
        # the list of rows as -1 - width.
        self._mine = set(range(-1 - width, width * width))
        for key, value in items:
            place = hash(key)
            rows[place >> bits & mask][place & mask][key] = value

    def fork(self) -> Map[K, V]:
        """A copy to be changed; the original must not be changed any more."""
        copy: Map[K, V] = Map.__new__(Map)
        copy._bits = self._bits
        copy._mask = self._mask
        copy._limit = self._limit
        copy._rows = self._rows
        copy._size = self._size
        copy._mine = set()
        return copy

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        place = hash(key)
        return key in self._rows[place >> self._bits & self._mask][place & self._mask]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The value of the key, or the default."""
        place = hash(key)
        return self._rows[place >> self._bits & self._mask][place & self._mask].get(key, default)

    def __iter__(self) -> Iterator[K]:
        return (key for row in self._rows for leaf in row for key in leaf)

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs, in no order that means anything."""
        return (item for row in self._rows for leaf in row for item in leaf.items())

    def values(self) -> Iterator[V]:
        """All values, in no order that means anything."""
        return (value for row in self._rows for leaf in row for value in leaf.values())

    def _leaf(self, key: K) -> dict[K, V]:
        """The leaf of this key, copied first if it is shared."""
        place = hash(key)
        bits, mask = self._bits, self._mask
        across, down = place >> bits & mask, place & mask
        number = across << bits | down
        mine = self._mine
        if number not in mine:
            if -2 - mask not in mine:
                self._rows = self._rows.copy()
                mine.add(-2 - mask)
            if -1 - across not in mine:
                self._rows[across] = self._rows[across].copy()
                mine.add(-1 - across)
            self._rows[across][down] = self._rows[across][down].copy()
            mine.add(number)
        return self._rows[across][down]

    def __setitem__(self, key: K, value: V) -> None:
        leaf = self._leaf(key)
        before = len(leaf)
        leaf[key] = value
        if len(leaf) != before:
            self._size += 1
            if self._size > self._limit:
                self._spread(self._bits + 1, list(self.items()))

    def __delitem__(self, key: K) -> None:
        del self._leaf(key)[key]
        self._size -= 1


class _Node(Generic[T]):
    """Of a leaf, `keys` are the items; else each is at least the largest item of its kid."""

    __slots__ = ("keys", "kids", "owner")

    def __init__(self, owner: object, keys: list[T], kids: list[_Node[T]] | None) -> None:
        self.owner = owner
        self.keys = keys
        self.kids = kids

    def copy(self, owner: object) -> _Node[T]:
        return _Node(owner, self.keys.copy(), None if self.kids is None else self.kids.copy())


class Sorted(Generic[T]):
    """A sorted set of tuples: a B+ tree (Bayer and McCreight, 1972) whose nodes are lists.

    Adding at the end fills nodes to the brim, and taking from the front empties them whole, as
    lines do; a node is let go when it is empty and never merged before.
    """

    __slots__ = ("_owner", "_root", "_size")

    def __init__(self) -> None:
        self._owner = object()
        self._root: _Node[T] = _Node(self._owner, [], None)
        self._size = 0

    def fork(self) -> Sorted[T]:
        """A copy to be changed; the original must not be changed any more."""
        copy: Sorted[T] = Sorted.__new__(Sorted)
        copy._owner = object()
        copy._root = self._root
        copy._size = self._size
        return copy

    def __len__(self) -> int:
        return self._size

    def first(self) -> T | None:
        """The smallest item, or None."""
        node = self._root
        while node.kids is not None:
            node = node.kids[0]
        return node.keys[0] if node.keys else None

    def __iter__(self) -> Iterator[T]:
        return self.since(())  # the empty tuple is smaller than any other

    def since(self, start: tuple[Any, ...]) -> Iterator[T]:
        """The items from `start` on, in order."""
        return self._walk(self._root, start)

    def _walk(self, root: _Node[T], start: tuple[Any, ...]) -> Iterator[T]:
        path: list[tuple[list[_Node[T]], int]] = []
        node = root
        while node.kids is not None:
            i = bisect_left(node.keys, start)
            if i == len(node.keys):
                break
            path.append((node.kids, i + 1))
            node = node.kids[i]
        if node.kids is None:
            yield from node.keys[bisect_left(node.keys, start) :]
        while path:
            kids, i = path.pop()
            if i == len(kids):
                continue
            path.append((kids, i + 1))
            node = kids[i]
            while node.kids is not None:
                path.append((node.kids, 1))
                node = node.kids[0]
            yield from node.keys

    def _own_root(self) -> _Node[T]:
        if self._root.owner is not self._owner:
            self._root = self._root.copy(self._owner)
        return self._root

    def add(self, item: T) -> None:
        """Put the item in. It must not be there yet."""
        owner = self._owner
        node = self._own_root()
        path: list[tuple[_Node[T], int]] = []
        while node.kids is not None:
            keys = node.keys
            if keys[-1] < item:
                i = len(keys) - 1
                keys[i] = item
            else:
                i = bisect_left(keys, item)
            path.append((node, i))
            kid = node.kids[i]
            if kid.owner is not owner:
                kid = node.kids[i] = kid.copy(owner)
            node = kid
        keys = node.keys
        if not keys or keys[-1] < item:
            keys.append(item)
        else:
            insort(keys, item)
        self._size += 1
        if len(keys) > WIDTH:
            self._split(node, path, at_end=keys[-1] is item)

    def _split(self, node: _Node[T], path: list[tuple[_Node[T], int]], *, at_end: bool) -> None:
        while len(node.keys) > WIDTH:
            cut = WIDTH if at_end else WIDTH // 2
            kids = node.kids
            right = _Node(self._owner, node.keys[cut:], None if kids is None else kids[cut:])
            del node.keys[cut:]
            if kids is not None:
                del kids[cut:]
            if not path:
                self._root = _Node(self._owner, [node.keys[-1], right.keys[-1]], [node, right])
                return
            parent, i = path.pop()
            assert parent.kids is not None
            parent.keys.insert(i, node.keys[-1])
            parent.kids.insert(i + 1, right)
            node = parent

    def remove(self, item: T) -> None:
        """Take the item out. Raises KeyError where it is not."""
        owner = self._owner
        node = self._own_root()
        path: list[tuple[_Node[T], int]] = []
        while node.kids is not None:
            i = bisect_left(node.keys, item)
            if i == len(node.keys):
                raise KeyError(item)
            path.append((node, i))
            kid = node.kids[i]
            if kid.owner is not owner:
                kid = node.kids[i] = kid.copy(owner)
            node = kid
        i = bisect_left(node.keys, item)
        if i == len(node.keys) or node.keys[i] != item:
            raise KeyError(item)
        del node.keys[i]
        self._size -= 1
        while not node.keys and path:
            node, i = path.pop()
            assert node.kids is not None
            del node.keys[i]
            del node.kids[i]
        root = self._root
        while root.kids is not None and len(root.kids) <= 1:
            root = root.kids[0] if root.kids else _Node(owner, [], None)
        self._root = root
