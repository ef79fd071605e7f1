"""Whether a log on disk is intact and complete: read from its first line, checked byte by byte.

Intact: the hashes, the seqs, the names of the segments and `prev` chain every line to the first;
each entry, encoded again, gives the very bytes that stand there; times never fall. Complete: the
line that a head or a snapshot names stands there, with that hash. Nothing is changed, no snapshot
is trusted, and half a line at the end is not yet an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from eventq.core.events import Entry
from eventq.core.state import State
from eventq.storage.codec import decode, encode, fits
from eventq.storage.errors import LogDamaged, LogNewer
from eventq.storage.segments import Cursor, find_segments, segment_path
from eventq.storage.snapshot import load, snapshot_path, snapshots

__all__ = ["MOST", "Fault", "Problem", "Verification"]

MOST = 100
"""How many problems are kept; the rest is counted."""


class Fault(StrEnum):
    """What can be wrong with a log as it stands on disk."""

    DAMAGED = "damaged"
    NOT_COMPLETE = "not complete"
    NOT_CHECKED = "could not be checked"


@frozen
class Problem:
    """One thing that is wrong, at this entry; where a single line is meant, where it stands."""

    fault: Fault
    seq: int
    what: str
    file: Path | None = None
    line: int | None = None
    byte: int | None = None


class _Read:
    """A line and its entry."""

    __slots__ = ("entry", "line", "seq")

    def __init__(self, line: bytes) -> None:
        self.entry = decode(line)
        self.line = line
        self.seq = self.entry.seq


class Verification:
    """One reading of a whole log: iterate `entries()`, then `finish()`; the rest is what was found.

    What others append meanwhile is read as far as it is there when its turn comes.
    """

    def __init__(self, path: Path, head: tuple[int, str] | None = None) -> None:
        """`head` is a seq and a hash that are known from elsewhere to have been in the log."""
        self.log = path / "log"
        self.segments = find_segments(self.log)
        self.snapshots = set(snapshots(path / "snapshots"))
        self.intact = True
        """Whether the chain holds to the end; when it does not, reading stopped there."""
        self.faults: set[Fault] = set()
        self.problems: list[Problem] = []
        self.more = 0
        """How many problems there are beyond those that were kept."""
        self.notes: list[str] = []
        self.bytes_read = 0
        self._folder = path / "snapshots"
        self._head = head
        self._cursor = Cursor(self.log)
        self._last = self._cursor.hash or b""

    @property
    def size(self) -> int:
        """How many bytes there are to be read."""
        return sum(segment_path(self.log, first).stat().st_size for first in self.segments)

    @property
    def head(self) -> tuple[int, str]:
        """The seq and the hash of the last line that was read."""
        return self._cursor.seq, (self._cursor.hash or b"").decode()

    def entries(self) -> Iterator[Entry]:
        """All entries, as far as the chain holds."""
        try:
            yield from self._entries()
        except LogDamaged as error:
            self.intact = False
            self._wrong(
                Fault.DAMAGED, error.seq, error.what, error.file, error.line, error.byte
            )
        except LogNewer as error:
            self.intact = False
            self._wrong(Fault.NOT_CHECKED, self._cursor.seq + 1, str(error))
        except OSError as error:
            self.intact = False
            what = f"it cannot be read: {error.strerror}"
            self._wrong(Fault.NOT_CHECKED, self._cursor.seq + 1, what, self._cursor.file)

    def _wrong(
        self,
        fault: Fault,
        seq: int,
        what: str,
        file: Path | None = None,
        line: int | None = None,
        byte: int | None = None,
    ) -> None:
        self.faults.add(fault)
        if len(self.problems) < MOST:
            self.problems.append(Problem(fault, seq, what, file, line, byte))
        else:
            self.more += 1

    def _entries(self) -> Iterator[Entry]:
        cursor = self._cursor
        if self.segments and self.segments[0] != 1:
            raise cursor.damaged(f"the log begins only with entry {self.segments[0]}")
        more = bool(self.segments)
        rest = 0
        while more:
            yield from self._segment()
            rest = cursor.file.stat().st_size - cursor.offset
            more = cursor.next_segment(rest)
        if later := [first for first in self.segments if first > max(cursor.seq, cursor.first)]:
            raise cursor.damaged(f"the next file of the log begins only with entry {later[0]}")
        if rest:
            self._note_tail(rest)

    def _segment(self) -> Iterator[Entry]:
        """The entries of one segment, each encoded again."""
        cursor = self._cursor
        assert cursor.hash is not None
        last, byte, at = cursor.hash.decode(), 0, None
        with cursor.file.open("rb", buffering=1 << 20) as file:
            for number, read in enumerate(cursor.follow(file, _Read), 1):
                entry: Entry = read.entry
                again, last = encode(entry, last, first=number == 1)
                if again != read.line:
                    what = "it is no spelling of eventq's: its entry, encoded again, is other bytes"
                    self._wrong(Fault.DAMAGED, entry.seq, what, cursor.file, number, byte)
                byte += len(read.line)
                self.bytes_read += len(read.line)
                self._witness(self._head, entry.seq, last)
                yield entry

    def _note_tail(self, rest: int) -> None:
        """What stands behind the last line of the log."""
        cursor = self._cursor
        with cursor.file.open("rb") as file:
            file.seek(cursor.offset)
            tail = file.read(rest)
        assert cursor.hash is not None
        if b"\n" in tail:
            return  # written while we were reading
        what = f"half a line ({rest} bytes)"
        if fits(tail + b"\n", cursor.hash):
            what = "a line that lacks only its newline"
        self.notes.append(f"{cursor.file} ends in {what}: not yet an entry, and no damage")

    def snapshot(self, seq: int, hash: str, state: State | None) -> None:
        """Compare the snapshot taken after this entry with the line and the state of the log."""

    def finish(self) -> None:
        """The log was read: is something missing at its end?"""


_ = (load, snapshot_path)
