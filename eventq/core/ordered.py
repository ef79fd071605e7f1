"""A persistent sorted set: a change never touches what others hold.

Who changes a `Sorted` shows a token, its `owner`. A set with another owner is copied first, in
constant time: the copy shares all nodes, and a node of at most a few dozen items is copied when it
is first changed, and changed in place from then on. So a change gives the set to go on with, and
what has another owner stays as it is for ever, once nobody holds that owner's token any more.

As with the map of `persistent`, the idea is that of the "transients" of Clojure's persistent
vectors and maps (Hickey, 2001).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

__all__ = ["Sorted"]

T = TypeVar("T", bound=tuple[Any, ...])

WIDTH = 96
"""How many items a node of a sorted set may hold before it is split."""


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
