"""What would be left of a tree of files if the power went now: an account of what was synced.

It knows what POSIX promises and no more. The bytes and the size of a file last when the file was
synced, its permissions only by a full sync, and its name when its folder was. What was not synced
may be there or not: of a folder's changes of names any first few, of a file's writes any first
few, the next one torn, or filled with zeros where its bytes did not get there; of those that made
the file no longer also one alone, or all but one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from attrs import define, field

__all__ = ["Account", "Choose", "File", "every_choice", "lose_all"]

Choose = Callable[[int], int]
"""Picks one of n possibilities: a number from 0 (all that is unsynced is lost) to n - 1 (all is
there). `random.Random(1).randrange` is one."""


@define(eq=False)
class File:
    """A file, whatever its names are, and what of it lasts."""

    lasting: bytes = b""
    mode: int = 0o600
    writes: list[tuple[int, bytes | None]] = field(factory=list)
    """What was done since its last sync: (offset, data) written, or (size, None) cut to."""

    def synced(self) -> None:
        """All of it is on disk."""
        for write in self.writes:
            self.lasting = _after(self.lasting, write)
        self.writes.clear()

    def images(self, tears: Callable[[int], Iterable[int]]) -> list[bytes]:
        """What it may hold after a power cut; `tears` says where a write of n bytes may break."""
        found = [image := self.lasting]
        for offset, data in self.writes:
            if data is not None:
                zeros = bytes(len(data))
                found.append(_after(image, (offset, zeros)))
                for at in tears(len(data)):
                    found.append(_after(image, (offset, data[:at])))
                    found.append(_after(image, (offset, data[:at] + zeros[at:])))
            image = _after(image, (offset, data))
            found.append(image)
        return list(dict.fromkeys([*found[:-1], *self._out_of_order(), image]))

    def _out_of_order(self) -> Iterator[bytes]:
        """What else it may hold if all was written over in place: nothing keeps the order then."""
        if any(data is None or at + len(data) > len(self.lasting) for at, data in self.writes):
            return
        for n, write in enumerate(self.writes):
            yield _after(self.lasting, write)
            image = self.lasting
            for other in (*self.writes[:n], *self.writes[n + 1 :]):
                image = _after(image, other)
            yield image


def _after(image: bytes, write: tuple[int, bytes | None]) -> bytes:
    offset, data = write
    before = image[:offset].ljust(offset, b"\0")
    return before if data is None else before + data + image[offset + len(data) :]


class _Folder:
    """Stands for a folder where a file may stand too."""


_FOLDER = _Folder()
_Names = dict[Path, File | _Folder]
_Change = tuple[Path | None, Path | None, File | _Folder]
"""A name that goes, a name that comes, and what bears it."""


def _change(names: _Names, change: _Change) -> None:
    old, new, bearer = change
    if old is not None:
        names.pop(old, None)
    if new is not None:
        names[new] = bearer


class Account:
    """Which names and which bytes last. What was there before anybody asked counts as synced."""

    def __init__(self) -> None:
        self._known: set[Path] = set()
        self._shown: _Names = {}
        self._lasting: _Names = {}
        self._pending: dict[Path, list[_Change]] = {}

    def file(self, path: Path) -> File | None:
        """The file that has this name now; None where there is none."""
        found = self._look(path)
        return found if isinstance(found, File) else None

    def _look(self, path: Path) -> File | _Folder | None:
        if path not in self._known:
            self._known.add(path)
            if path.is_dir():
                self._shown[path] = self._lasting[path] = _FOLDER
            elif path.exists():
                mode = path.stat().st_mode & 0o777
                self._shown[path] = self._lasting[path] = File(path.read_bytes(), mode)
        return self._shown.get(path)

    def _changed(self, folder: Path, *change: _Change) -> None:
        for one in change:
            _change(self._shown, one)
            self._pending.setdefault(folder, []).append(one)

    def made(self, path: Path, mode: int) -> File:
        """A new file; what had its name before was asked for with `file`, and was not there."""
        file = File(b"", mode)
        self._changed(path.parent, (None, path, file))
        return file

    def made_folder(self, path: Path) -> None:
        """A new folder."""
        self._known.add(path)
        self._changed(path.parent, (None, path, _FOLDER))

    def renamed(self, path: Path, target: Path) -> None:
        """To be told when it was done; both names are in one folder."""
        bearer = self._look(path)
        assert bearer is not None
        self._look(target)
        self._changed(path.parent, (path, target, bearer))

    def removed(self, path: Path) -> None:
        """A name was taken away; `file` was asked for it before."""
        self._changed(path.parent, (path, None, _FOLDER))

    def synced_folder(self, folder: Path) -> None:
        """The names in it last."""
        for change in self._pending.pop(folder, []):
            _change(self._lasting, change)

    def leave(
        self,
        tree: Path,
        into: Path,
        choose: Choose,
        tears: Callable[[int], Iterable[int]],
    ) -> None:
        """Write to `into` what is left of this folder after a power cut."""
        names = dict(self._lasting)
        for folder in sorted(self._pending):
            changes = self._pending[folder]
            for change in changes[: choose(len(changes) + 1)]:
                _change(names, change)
        for path in sorted({tree, *tree.rglob("*"), *names}):
            if not path.is_relative_to(tree):
                continue
            if any(up in self._known and up not in names for up in (path, *path.parents)):
                continue
            target = into / path.relative_to(tree)
            bearer = names.get(path)
            if isinstance(bearer, File):
                images = bearer.images(tears)
                target.write_bytes(images[choose(len(images))])
                target.chmod(bearer.mode)
            elif bearer is _FOLDER or path.is_dir():
                target.mkdir(mode=0o700, parents=path == tree)
            elif path.exists():
                shutil.copy(path, target)


def lose_all(count: int) -> int:
    """The hardest power cut: nothing that was not synced is there."""
    return 0


def every_choice() -> Iterator[Choose]:
    """One `Choose` for each way to choose: use each in one whole run, then take the next.

    They are found by going through the possibilities in order, so a run that always asks the same
    questions after the same answers sees every combination once.
    """
    first: list[int] = []
    while True:
        asked: list[tuple[int, int]] = []

        def choose(
            count: int, first: list[int] = first, asked: list[tuple[int, int]] = asked
        ) -> int:
            picked = first[len(asked)] if len(asked) < len(first) else 0
            asked.append((picked, count))
            return picked

        yield choose
        while asked and asked[-1][0] + 1 == asked[-1][1]:
            asked.pop()
        if not asked:
            return
        first = [picked for picked, _ in asked]
        first[-1] += 1
