"""A disk that fails when it is told to, and knows what a power cut would leave of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import define, frozen

from eventq.storage.disk import Disk
from eventq.testing.faults.lasting import Account, Choose, File, lose_all

__all__ = ["Call", "FaultyDisk", "PowerCut", "anywhere", "in_three_places"]


class PowerCut(BaseException):
    """The power is gone, and nothing asked of the disk is done any more.

    Not an Exception: a program that has lost its power catches nothing.
    """


@frozen
class Call:
    """Something asked of the disk: the name of the method of `Disk`, and of the file."""

    name: str
    file: str


@define
class _Plan:
    """What is to go wrong: at the call after which `wait` is 0, and so many `times` in a row."""

    call: str | None
    wait: int
    times: float
    error: int | None
    """The errno; None: a write is short, and nothing fails."""
    written: int
    """How many bytes a write gets done."""

    def due(self, call: str) -> bool:
        if self.call not in (None, call):
            return False
        self.wait -= 1
        return -self.times < self.wait <= 0


def in_three_places(size: int) -> Iterable[int]:
    """A write breaks near its ends and in its middle."""
    return sorted({1, size // 2, size - 1} - {0, size})


def anywhere(size: int) -> Iterable[int]:
    """A write breaks at any byte."""
    return range(1, size)


def _check_nth(nth: int) -> None:
    if nth < 1:
        raise ValueError(f"the first call from now is 1, and none is {nth}")


class FaultyDisk(Disk):
    """A disk for tests, handed to `WorkQueue.open(..., disk=...)`.

    The files are real, and so is all that is done to them, but nothing is really synced: what
    would last is kept account of. A sync that fails loses what it was to sync for good, though it
    can still be read, and fails once for each who has the file open, as Linux has it. All that
    open a queue in a test must be handed the same disk; not by several threads at once.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        """What was asked of it, in order, also what failed."""
        self.failed: list[Call] = []
        """What failed of that."""
        self.room: int | None = None
        """How many more bytes can be written; then it is full. None: it never is."""
        self._plans: list[_Plan] = []
        self._power: float = float("inf")
        self._account = Account()
        self._open: dict[int, tuple[Path, File]] = {}
        self._untold: set[int] = set()
        """Descriptors that are still to be told of a failed sync of their file."""

    # What is to go wrong.

    def fail(
        self,
        call: str | None = None,
        nth: int = 1,
        *,
        error: int = errno.EIO,
        written: int = 0,
        times: int | None = 1,
    ) -> None:
        """Let the nth call from now fail: of this name (`"pwrite"`, `"fdatasync"` ...), or any.

        `error` is its errno; a write gets `written` bytes done before. So do as many `times` in a
        row; None: all from there on, until `heal`. Raises ValueError for what can never come.
        """
        if call is not None and not hasattr(Disk, call):
            raise ValueError(f"a disk is never asked for {call!r}")
        _check_nth(nth)
        times_ = float("inf") if times is None else times
        self._plans.append(_Plan(call, nth, times_, error, written))

    def shorten(self, nth: int = 1, *, to: int = 1) -> None:
        """Let the nth write from now take only so many bytes, and say so, as a kernel may. Raises
        ValueError for what can never come."""
        _check_nth(nth)
        self._plans.append(_Plan("pwrite", nth, 1, None, to))

    def cut_power(self, nth: int = 1) -> None:
        """Let the power go just before the nth call from now, of whatever name: see `PowerCut`.
        Raises ValueError for what can never come."""
        _check_nth(nth)
        self._power = len(self.calls) + nth

    def heal(self) -> None:
        """Nothing more goes wrong, and there is room. What is lost stays lost."""
        self._plans.clear()
        self.room = None

    def leave(
        self,
        queue: str | os.PathLike[str],
        into: str | os.PathLike[str],
        choose: Choose = lose_all,
        *,
        tears: Callable[[int], Iterable[int]] = in_three_places,
    ) -> None:
        """Write to the new directory `into` what a power cut now would leave of this queue: may
        be nothing. `choose` decides what of the unsynced is there, see `every_choice`; `tears`,
        at which bytes a write of so many may have been torn."""
        self._account.leave(Path(queue).absolute(), Path(into), choose, tears)

    def _asked(self, name: str, file: Path) -> _Plan | None:
        """Note a call, and let it fail where that is planned. A write is told the plan."""
        if len(self.calls) + 1 >= self._power:
            raise PowerCut(f"before call {len(self.calls) + 1}: {name} of {file.name}")
        self.calls.append(Call(name, file.name))
        due = [plan for plan in self._plans if plan.due(name)]
        if name == "pwrite":
            return due[0] if due else None
        for plan in due:
            if plan.error is not None:
                raise self._failure(plan.error)
        return None

    def _failure(self, error: int) -> OSError:
        """The error of the call that was last noted."""
        call = self.calls[-1]
        self.failed.append(call)
        return OSError(error, os.strerror(error), call.file)

    # What can be asked.

    def open(self, file: Path, flags: int, mode: int = 0o600) -> int:
        self._asked("open", file)
        there = self._account.file(file)
        descriptor = super().open(file, flags, mode)
        if there is None:
            there = self._account.made(file, mode)
        elif flags & os.O_TRUNC:
            there.writes.append((0, None))
        self._open[descriptor] = file, there
        self._untold.discard(descriptor)
        return descriptor

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self._asked("pread", self._open[descriptor][0])
        return super().pread(descriptor, size, offset)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        path, file = self._open[descriptor]
        plan = self._asked("pwrite", path)
        error = None
        if plan is not None:
            data, error = data[: plan.written], plan.error
        elif self.room is not None:
            data = data[: self.room]
            error = None if data else errno.ENOSPC
        written = super().pwrite(descriptor, data, offset) if data else 0
        if written:
            file.writes.append((offset, bytes(data[:written])))
        if self.room is not None:
            self.room -= written
        if error is not None:
            raise self._failure(error)
        return written

    def write_soon(self, descriptor: int, offset: int, size: int) -> None:
        """Nothing: whatever was written may be on the disk before it is synced, or not."""

    def ftruncate(self, descriptor: int, size: int) -> None:
        path, file = self._open[descriptor]
        self._asked("ftruncate", path)
        super().ftruncate(descriptor, size)
        file.writes.append((size, None))

    def fdatasync(self, descriptor: int) -> None:
        self._sync("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        self._sync("fsync", descriptor)

    def _sync(self, name: str, descriptor: int) -> None:
        path, file = self._open[descriptor]
        try:
            self._asked(name, path)
        except OSError:
            file.writes.clear()
            self._untold |= {other for other, (_, its) in self._open.items() if its is file}
            self._untold.discard(descriptor)
            raise
        if descriptor in self._untold:
            self._untold.discard(descriptor)
            raise self._failure(errno.EIO)
        file.synced()

    def mkdir(self, folder: Path, mode: int = 0o700) -> None:
        self._asked("mkdir", folder)
        super().mkdir(folder, mode)
        self._account.made_folder(folder)

    def rename(self, file: Path, target: Path) -> None:
        self._asked("rename", file)
        self._account.file(file)
        self._account.file(target)
        super().rename(file, target)
        self._account.renamed(file, target)

    def unlink(self, file: Path) -> None:
        self._asked("unlink", file)
        self._account.file(file)
        super().unlink(file)
        self._account.removed(file)

    def sync_folder(self, folder: Path) -> None:
        self._asked("sync_folder", folder)
        self._account.synced_folder(folder)
