"""Two persistent collections, a map and a sorted set: a change never touches what others hold.

A `Map` never changes under who holds it. What a draft changes of one it notes in a dict of its
own, its `Changes`, and when it is done these go into the map: of the small dicts that it is made
of, those that they touch are copied, and all others are shared. Where nobody holds the map of
before any more, only those are copied that older maps have a part in.

Who changes a `Sorted` shows a token, its `owner`. A set with another owner is copied first, in
constant time: the copy shares all nodes, and a node of at most a few dozen items is copied when it
is first changed, and changed in place from then on. So a change gives the set to go on with, and
what has another owner stays as it is for ever, once nobody holds that owner's token any more.

So a state is kept for the price of what was changed since the last, and a long run of changes
costs little more than it would on a plain dict. The idea is that of the "transients" of Clojure's
persistent vectors and maps (Hickey, after Bagwell's hash tries, 2001).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Changes", "Lookup", "Map", "Sorted"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T", bound=tuple[Any, ...])

LEAF = 64
"""How many items a leaf of a map may hold on average before the map gets four times the leaves."""

WIDTH = 96
"""How many items a node of a sorted set may hold before it is split."""


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
        node = self._head or self._root
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
