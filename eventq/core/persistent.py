"""Two persistent collections, a map and a sorted set: a change never touches what others hold.

Who changes one shows a token, its `owner`. A collection with another owner is copied first, in
constant time: the copy shares all nodes, and a node of at most a few dozen items is copied when it
is first changed, and changed in place from then on. So a change gives the collection to go on with,
and what has another owner stays as it is for ever, once nobody holds that owner's token any more.

So a state is kept for the price of a few pointers, a single change to a collection of n items
copies O(log n) nodes, and a long run of changes costs little more than it would on a plain dict.
The idea is that of the "transients" of Clojure's persistent vectors and maps (Hickey, after
Bagwell's hash tries, 2001).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar, overload

__all__ = ["Map", "Sorted", "own"]

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

    __slots__ = ("_bits", "_limit", "_mask", "_mine", "_owner", "_rows", "_size")

    def __init__(
        self, items: Mapping[K, V] | Map[K, V] | None = None, owner: object = None
    ) -> None:
        self._owner = owner
        pairs = [] if items is None else list(items.items())
        bits = 0
        while LEAF << (2 * bits) < len(pairs):
            bits += 1
        self._spread(bits, pairs)

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

    def owned(self, owner: object) -> Map[K, V]:
        """This map where the owner is the same, else a copy that it owns, to be changed."""
        if self._owner is owner:
            return self
        copy: Map[K, V] = Map.__new__(Map)
        copy._owner = owner
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
    """Of a leaf, `keys` are the items. Of any other, `keys[i]` parts `kids[i]`, whose items are at
    most that, from `kids[i + 1]`, whose items are larger."""

    __slots__ = ("keys", "kids", "owner")

    def __init__(self, owner: object, keys: list[T], kids: list[_Node[T]] | None) -> None:
        self.owner = owner
        self.keys = keys
        self.kids = kids

    def copy(self, owner: object) -> _Node[T]:
        return _Node(owner, self.keys.copy(), None if self.kids is None else self.kids.copy())


class Sorted(Generic[T]):
    """A sorted set of tuples: a B+ tree (Bayer and McCreight, 1972) whose nodes are lists.

    It is made for lines: adding at the end fills nodes to the brim, taking from the front empties
    them whole, and both ends are at hand. A node is let go when it is empty and never merged.
    """

    __slots__ = ("_head", "_owner", "_root", "_tail", "size")

    def __init__(self, owner: object = None) -> None:
        self._owner = owner
        self._root: _Node[T] = _Node(owner, [], None)
        self.size = 0
        # The leaves at both ends, once they are known to be our own and for as long as they are.
        self._head: _Node[T] | None = None
        self._tail: _Node[T] | None = None

    def _owned(self, owner: object) -> Sorted[T]:
        copy: Sorted[T] = Sorted.__new__(Sorted)
        copy._owner = owner
        copy._root = self._root
        copy.size = self.size
        copy._head = copy._tail = None
        return copy

    def __len__(self) -> int:
        return self.size

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
        path: list[tuple[list[_Node[T]], int]] = []
        node = self._root
        while node.kids is not None:
            i = bisect_left(node.keys, start)
            path.append((node.kids, i + 1))
            node = node.kids[i]
        yield from node.keys[bisect_left(node.keys, start) :]
        while path:
            kids, i = path.pop()
            if i < len(kids):
                path.append((kids, i + 1))
                node = kids[i]
                while node.kids is not None:
                    path.append((node.kids, 1))
                    node = node.kids[0]
                yield from node.keys

    def _leaf(self, item: T) -> tuple[_Node[T], list[tuple[_Node[T], int]]]:
        """Our own leaf for this item, and the way to it."""
        owner = self._owner
        node = self._root
        if node.owner is not owner:
            node = self._root = node.copy(owner)
        path: list[tuple[_Node[T], int]] = []
        while node.kids is not None:
            i = bisect_left(node.keys, item)
            path.append((node, i))
            kid = node.kids[i]
            if kid.owner is not owner:
                kid = node.kids[i] = kid.copy(owner)
            node = kid
        return node, path

    def add(self, item: T, owner: object) -> Sorted[T]:
        """The set with this item, which must not be there yet."""
        if self._owner is not owner:
            return self._owned(owner).add(item, owner)
        self.size += 1
        tail = self._tail
        if tail is not None and tail.keys[-1] < item and len(tail.keys) < WIDTH:
            tail.keys.append(item)
            return self
        root = self._root
        if root.kids is None and root.owner is owner and len(root.keys) < WIDTH:
            insort(root.keys, item)
            return self
        node, path = self._leaf(item)
        keys = node.keys
        insort(keys, item)
        if len(keys) > WIDTH:
            self._split(node, path, at_end=keys[-1] is item)
        elif all(i == len(above.keys) for above, i in path):
            self._tail = node
        return self

    def _split(self, node: _Node[T], path: list[tuple[_Node[T], int]], *, at_end: bool) -> None:
        """Split an overfull node, and those above it that become so."""
        self._head = self._tail = None
        while len(node.keys) > WIDTH:
            cut = WIDTH if at_end else WIDTH // 2
            kids = node.kids
            if kids is None:
                bound = node.keys[cut - 1]
                right = _Node(self._owner, node.keys[cut:], None)
            else:  # the key between both halves moves up
                cut -= 1
                bound = node.keys[cut]
                right = _Node(self._owner, node.keys[cut + 1 :], kids[cut + 1 :])
                del kids[cut + 1 :]
            del node.keys[cut:]
            if not path:
                self._root = _Node(self._owner, [bound], [node, right])
                return
            parent, i = path.pop()
            assert parent.kids is not None
            parent.keys.insert(i, bound)
            parent.kids.insert(i + 1, right)
            node = parent

    def remove(self, item: T, owner: object) -> Sorted[T]:
        """The set without this item. Raises KeyError where it is not there."""
        if self._owner is not owner:
            return self._owned(owner).remove(item, owner)
        head = self._head
        if head is not None and len(head.keys) > 1 and head.keys[0] == item:
            del head.keys[0]
            self.size -= 1
            return self
        root = self._root
        if root.kids is None and root.owner is owner:
            i = bisect_left(root.keys, item)
            if i == len(root.keys) or root.keys[i] != item:
                raise KeyError(item)
            del root.keys[i]
            self.size -= 1
            if not root.keys:
                self._head = self._tail = None
            return self
        node, path = self._leaf(item)
        i = bisect_left(node.keys, item)
        if i == len(node.keys) or node.keys[i] != item:
            raise KeyError(item)
        del node.keys[i]
        self.size -= 1
        if node.keys:
            if not any(i for _, i in path):
                self._head = node
            return self
        self._head = self._tail = None
        while path:
            node, i = path.pop()
            assert node.kids is not None
            del node.kids[i]
            if node.keys:
                del node.keys[min(i, len(node.keys) - 1)]
            if node.kids:
                break
        root = self._root
        while root.kids is not None and len(root.kids) <= 1:
            root = root.kids[0] if root.kids else _Node(self._owner, [], None)
        self._root = root
        return self


def own(of: Map[K, V], owner: object) -> Map[K, V]:
    """The map, to be changed by this owner; a plain dict in its place is anybody's to change."""
    return of.owned(owner) if isinstance(of, Map) else of
