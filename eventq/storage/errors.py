"""What can be wrong with a queue on disk: one exception for each thing that a person must know."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from eventq.core.errors import EventqError

__all__ = [
    "ArchiveRefused",
    "Archived",
    "HandleBusy",
    "HandleFinished",
    "LinesLost",
    "LockTimeout",
    "LockUnsupported",
    "LogDamaged",
    "LogNewer",
    "NotAQueue",
    "QueueReplaced",
    "ReadOnly",
    "RecordDamaged",
    "repair_words",
]


def repair_words(queue: Path) -> str:
    """The command that makes a good queue of a damaged one, up to the damage."""
    return f"eventq repair --queue {shlex.quote(str(queue))} --to NEWDIR"


class NotAQueue(EventqError, FileNotFoundError):
    """There is no queue at this path."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a queue: {why}")
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class _AtALine(EventqError, ValueError):
    """A line of the log cannot be gone past.

    `file`, `line` (from 1), `byte` (from 0) say where; `seq` is the entry expected there. All
    that stands before can still be read.
    """

    _advice: ClassVar[str]
    _or: ClassVar[str] = ""
    """What else can be done where something stands before it."""

    def __init__(self, file: Path, line: int, byte: int, seq: int, what: str) -> None:
        before = "No entry stands before it"
        other = ""
        if seq > 1:
            before = (
                f"The {seq - 1} entries before it can be read with `eventq log` and "
                f"`eventq at {seq - 1}`"
            )
            other = self._or.format(repair_words(file.parent.parent))
        super().__init__(
            f"{file}, line {line} (byte {byte}), where entry {seq} should stand: {what}. "
            f"Nothing was changed. {before}; {self._advice}{other}"
        )
        self.file = file
        self.line = line
        self.byte = byte
        self.seq = seq
        self.what = what


class LogDamaged(_AtALine):
    """The log was changed, or lost something, after it was written.

    `file`, `line` (from 1), `byte` (from 0) say where; `seq` is the entry expected there. All
    that stands before can still be read.
    """

    _advice = "bring back a good copy of this file to go on"
    _or = ", or make a queue of what stands before: `{}`"


class RecordDamaged(LogDamaged):
    """The record of what was archived does not read. `file`, `line` and `byte` say where."""

    def __init__(self, file: Path, line: int, byte: int, seq: int, what: str) -> None:
        super().__init__(file, line, byte, seq, what)
        told = (
            f"{file}, line {line} (byte {byte}): this record of what was archived does not read: "
            f"{what}. Nothing was changed. Bring back a good copy of it, to be told what is "
            "archived, and where"
        )
        self.args = (told,)


class LogNewer(_AtALine):
    """A newer eventq wrote this log; this one cannot know what its events mean.

    It says where as `LogDamaged` does, and all that stands before can be read.
    """

    _advice = "open it with a newer eventq to go on"


class Archived(EventqError, LookupError):
    """What was asked for needs entries that are archived: bring them back first.

    `first` and `last` are the seqs of the entries, `files` the segments that hold them.
    """

    def __init__(self, queue: Path, first: int, last: int, files: Sequence[str]) -> None:
        shown = [*files[:3], "...", files[-1]] if len(files) > 4 else files
        super().__init__(
            f"entries {first} to {last} of {queue} are archived, and are needed for this: bring "
            f"back {len(files)} {'segment' if len(files) == 1 else 'segments'} "
            f"({', '.join(shown)}) with `eventq unarchive --queue {shlex.quote(str(queue))}"
            f"{f' --since {first}' if first > 1 else ''}`"
        )
        self.first = first
        self.last = last
        self.files = list(files)


class ArchiveRefused(EventqError, ValueError):
    """A segment cannot be moved there, or is not the one that was archived. Nothing was lost."""


class LinesLost(EventqError, ValueError):
    """A snapshot is ahead of its log: the last `lost` entries of the log are gone."""

    def __init__(self, path: Path, last: int, snapshot: int) -> None:
        go_on = (
            ""
            if not last
            else (f", or go on without what the snapshot knows in a copy: `{repair_words(path)}`")
        )
        super().__init__(
            f"{path}: the log ends with entry {last}, but a snapshot was taken after entry "
            f"{snapshot}: {snapshot - last} entries are lost. Bring back the missing end of the "
            f"log{go_on}"
        )
        self.lost = snapshot - last


class LockTimeout(EventqError, TimeoutError):
    """Another process has the lock of the queue, and has not let go of it in time.

    `holders` are the numbers of the processes that have it, where the kernel tells.
    """

    def __init__(self, queue: Path, seconds: float, holders: Sequence[int]) -> None:
        who = " and ".join(f"process {pid}" for pid in holders) or "somebody"
        super().__init__(
            f"{queue} is locked: {who} has had its lock for the {seconds:g} seconds that were "
            "waited. Nothing was changed. Writers hold it for far less than a second: see whether "
            "that process is stopped or hangs, go on or end it, and ask again; reading needs no "
            "lock"
        )
        self.holders = list(holders)


class LockUnsupported(EventqError, OSError):
    """The file system has no locks, so that nothing would keep two writers apart."""

    def __init__(self, queue: Path, error: OSError) -> None:
        super().__init__(
            f"{queue} cannot be locked: its file system has no locks ({error.strerror}). Nothing "
            "was changed. Keep the queue on a local disk; here it can be read only"
        )


class QueueReplaced(EventqError, OSError):
    """Something else stands where this handle has a file open: the queue was moved or restored."""

    def __init__(self, file: Path, what: str) -> None:
        super().__init__(
            f"{file} {what}. Nothing was written. Put the queue back where it was, or open it "
            "again to go on with what stands there now"
        )
        self.file = file


class HandleFinished(EventqError, RuntimeError):
    """This handle answers nothing more: it was shut, a sync failed, or the process was forked."""


class HandleBusy(EventqError, RuntimeError):
    """A handler of a signal broke into a command, or a look, of its own thread, and asked the same
    handle: nothing of what it asked was done."""

    def __init__(self) -> None:
        super().__init__(
            "a signal handler asked in the midst of what its own thread asks of this handle: "
            "nothing of it was done. Let the handler note what is to be done, and do it after"
        )


class ReadOnly(EventqError, PermissionError):
    """The queue was opened to be read only."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was opened to be read only: open it again to change it")

    def __str__(self) -> str:
        return str(self.args[0])
