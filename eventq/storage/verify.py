"""Whether a log on disk is intact and complete: read from its first line, checked byte by byte.

Intact: the hashes, the seqs, the names of the segments and `prev` chain every line to the first;
each entry, encoded again, gives the very bytes that stand there; times never fall. Complete: the
line that a head or a snapshot names stands there, with that hash. Nothing is changed, no snapshot
is trusted, and half a line at the end is not yet an entry.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from eventq.core.events import Entry
from eventq.core.state import State
from eventq.storage.archived import Moved, away, needed
from eventq.storage.chain import GENESIS, fits, hash_of
from eventq.storage.codec import decode, encode
from eventq.storage.disk import open_to_read, read_file
from eventq.storage.errors import LogDamaged, LogNewer
from eventq.storage.newer import version_of
from eventq.storage.redo import missing
from eventq.storage.segments import Cursor, find_segments, segment_path, twice
from eventq.storage.snapshot import load, snapshot_path, snapshots
from eventq.storage.upcast import VERSION

__all__ = ["MOST", "Fault", "Problem", "Verification"]

MOST = 100
"""How many problems are kept; the rest is counted."""


_PRESENT = b'{"v":%d,' % VERSION


class Fault(StrEnum):
    """What can be wrong with a log as it stands on disk."""

    DAMAGED = "damaged"
    NOT_COMPLETE = "not complete"
    NOT_CHECKED = "could not be checked"


@frozen
class Problem:
    """One thing that is wrong, at this entry; and where it stands, as far as that is known."""

    fault: Fault
    seq: int
    what: str
    file: Path | None = None
    line: int | None = None
    byte: int | None = None


@frozen
class Redone:
    """Lines that stand in the redo file alone: where they belong in which segment."""

    file: Path
    byte: int
    lines: bytes


class _Read:
    """A line, its entry, and whether it is of the present version, which can be encoded again."""

    __slots__ = ("bytes", "entry", "present", "seq")

    def __init__(self, line: bytes) -> None:
        self.entry = decode(line)
        self.present = line.startswith(_PRESENT) or version_of(line) == VERSION
        self.bytes = line
        self.seq = self.entry.seq


class Verification:
    """One reading of a whole log: iterate `entries()`, then call `finish()`.

    What others append meanwhile is read as far as it is there when its turn comes.
    """

    def __init__(self, path: Path, head: tuple[int, str] | None = None) -> None:
        """`head`: a seq and its hash, known from elsewhere to have been in the log."""
        self.log = path / "log"
        self.segments = find_segments(self.log)
        self.snapshots = frozenset(snapshots(path / "snapshots"))
        self.size = sum(segment_path(self.log, first).stat().st_size for first in self.segments)
        self.bytes_read = 0
        self.head = 0, GENESIS
        """The seq and the hash of the last line that was read."""
        self.complete = False
        """Whether the entry of the head given is there."""
        self.whole = True
        """Whether the log was read to its end; where it is damaged, reading stops."""
        self.archived = 0
        """How many entries at the beginning are archived, and so not read."""
        self.problems: list[Problem] = []
        self.faults: set[Fault] = set()
        self.more = 0
        """How many problems there are beyond those that were kept."""
        self.notes: list[str] = []
        self.place: tuple[Path, int, int] = segment_path(self.log, 1), 1, 0
        """Where the last line that was read begins: the file, the line, the byte."""
        self.end = 0
        """Where it ends, as a byte of its file."""
        self.redo: Redone | None = None
        """What the redo file alone has."""
        self.present = True
        """Whether the last line that was read is of the present version of the format."""
        self.error: LogNewer | OSError | None = None
        """What kept the log from being read to its end, or to its damage."""
        self._folder = path / "snapshots"
        self._given = head
        self._cursor = Cursor(self.log)
        self._at: datetime | None = None

    def _wrong(self, fault: Fault, seq: int, what: str, *where: Path | int) -> None:
        self.faults.add(fault)
        if len(self.problems) < MOST:
            self.problems.append(Problem(fault, seq, what, *where))  # type: ignore[arg-type]
        else:
            self.more += 1

    def entries(self) -> Iterator[Entry]:
        """All entries, as far as the chain holds."""
        try:
            yield from self._entries()
        except LogDamaged as error:
            self.whole = False
            self._wrong(Fault.DAMAGED, error.seq, error.what, error.file, error.line, error.byte)
        except LogNewer as error:
            self.whole, self.error = False, error
            where = error.file, error.line, error.byte
            self._wrong(Fault.NOT_CHECKED, error.seq, error.what, *where)
        except OSError as error:
            self.whole, self.error = False, error
            file = Path(error.filename) if error.filename else self._cursor.file
            self._wrong(Fault.NOT_CHECKED, self.head[0] + 1, str(error.strerror), file)

    def _entries(self) -> Iterator[Entry]:
        if not self.segments:
            return
        if self.segments[0] != 1:
            before = away(self.log)
            self.segments = find_segments(self.log)  # others may have brought some back meanwhile
            if self.segments[0] != 1:
                self._begin_behind(before)
        cursor = self._cursor
        strays = set(self.segments)
        damage: LogDamaged | None = None
        rest = 0
        try:
            while True:
                strays.discard(cursor.first)
                yield from twice(cursor, self._in_segment)
                rest = cursor.file.stat().st_size - cursor.offset
                if not cursor.next_segment(rest):
                    break
        except LogDamaged as error:
            damage = error
        redo = missing(cursor)
        if damage is not None and not redo:
            raise damage
        for first in self.segments:
            if first > max(cursor.seq, cursor.first):
                raise cursor.damaged(f"the next file of the log begins only with entry {first}")
        if redo:
            self.redo = Redone(cursor.file, cursor.offset, redo)
            self.notes.append(
                f"{cursor.file} lacks its end since a power cut: the redo file has it "
                f"({len(redo)} bytes), and who next opens the queue to write puts it back"
            )
            yield from self._checked(io.BytesIO(redo))
            yield from twice(cursor, self._in_segment)
            rest = max(0, cursor.file.stat().st_size - cursor.offset)
        if rest:
            self._note_tail(rest)
        if strays:
            first = min(strays)
            what = "no file of the log begins with this entry, which stands in another one"
            raise LogDamaged(segment_path(self.log, first), 1, 0, first, what)

    def _begin_behind(self, archived: list[Moved]) -> None:
        """Take the hash that the record has of the last archived segment for that of the line
        before. Raises LogDamaged where what is missing was not archived."""
        first = self.segments[0]
        before = [one for one in archived if one.first < first]
        begins = [1, *(one.last + 1 for one in before)]
        if not before or begins != [*(one.first for one in before), first]:
            raise self._cursor.damaged(f"the log begins only with entry {first}")
        self.archived = before[-1].last
        what = str(needed(self.log, 1))
        self._wrong(Fault.NOT_CHECKED, 1, what)
        self.head = before[-1].last, before[-1].hash
        self._cursor = Cursor(self.log, first)
        self._cursor.hash = before[-1].hash.encode()
        if self._given is not None and self._given[0] == self.head[0]:
            self._bears_out("the head given", self._given)

    def _in_segment(self) -> Iterator[Entry]:
        with open_to_read(self._cursor.file, 1 << 20) as file:
            file.seek(self._cursor.offset)
            yield from self._checked(file)

    def _checked(self, file: BinaryIO) -> Iterator[Entry]:
        """The entries that follow in this file, from the cursor on, each encoded again."""
        cursor = self._cursor
        self.end = cursor.offset
        for number, read in enumerate(cursor.follow(file, _Read), cursor.lines + 1):
            entry, line = read.entry, read.bytes
            self.place = where = cursor.file, number, self.end
            self.present = read.present
            if read.present and self._spelled(entry, first=number == 1) != line:
                what = "encoded again, its entry gives other bytes: eventq did not write it"
                self._wrong(Fault.DAMAGED, entry.seq, what, *where)
            if self._at is not None and entry.at < self._at:
                what = f"its time is before that of entry {entry.seq - 1}"
                self._wrong(Fault.DAMAGED, entry.seq, what, *where)
            self._at = entry.at
            self.head = entry.seq, (hash_of(line) or b"").decode()
            self.bytes_read += len(line)
            self.end += len(line)
            if self._given is not None and self._given[0] == entry.seq:
                self._bears_out("the head given", self._given)
            yield entry

    def _note_tail(self, rest: int) -> None:
        """What stands behind the last line of the log."""
        cursor = self._cursor
        with open_to_read(cursor.file) as file:
            file.seek(cursor.offset)
            tail = file.read(rest)
        if b"\n" in tail:
            return  # others wrote while we were reading
        what = f"in half a line ({rest} bytes)"
        if fits(tail + b"\n", self.head[1].encode()):
            what = "in a line that lacks only its newline"
        self.notes.append(f"{cursor.file} ends {what}: not yet an entry, and no damage")

    def _spelled(self, entry: Entry, *, first: bool) -> bytes:
        """The line that eventq writes for this entry; empty where it can write none."""
        try:
            return encode(entry, self.head[1].encode(), first=first)[0]
        except OverflowError:  # UTC has no such time
            return b""

    def _bears_out(self, who: str, witness: tuple[int, str]) -> bool:
        """Whether the line that somebody knows is the one that stands at the head now."""
        seq, hash = witness
        if self.head[0] < seq:
            lost = seq - self.head[0]
            self._wrong(
                Fault.NOT_COMPLETE,
                seq,
                f"{who} knows entry {seq}, but the log ends with entry {self.head[0]}: "
                + ("1 entry is lost" if lost == 1 else f"{lost} entries are lost"),
            )
        elif self.head[1] != hash:
            what = f"{who} knows another entry {seq}: this log tells another history"
            self._wrong(Fault.NOT_COMPLETE, seq, what)
        borne_out = self.head == witness
        self.complete = self.complete or (borne_out and witness is self._given)
        return borne_out

    def state_of_snapshot(self, seq: int) -> State | None:
        """What the snapshot taken after this entry holds, if it is fit."""
        loaded = load(self._folder, seq, self.log)
        return None if loaded is None else loaded[0]

    def check_snapshot(self, seq: int, state: State | None) -> None:
        """Does the snapshot taken after this entry agree with the log read so far, and with the
        state that folding it gives (None where that is not known)?"""
        loaded = load(self._folder, seq, self.log)
        file = snapshot_path(self._folder, seq)
        if loaded is None:
            if seq > self.head[0]:  # so much its name says
                self._bears_out(f"the snapshot {file.name}", (seq, ""))
            try:
                read_file(file)
                what = f"{file} does not fit its checksum or this eventq: it is not used"
                self.notes.append(what)
            except FileNotFoundError:  # a newer one has taken its place
                pass
            except OSError as error:
                self._wrong(Fault.NOT_CHECKED, seq, str(error.strerror), file)
            return
        snapshot, cursor = loaded
        agrees = self._bears_out(f"the snapshot {file.name}", (seq, (cursor.hash or b"").decode()))
        if agrees and state is not None and snapshot != state:
            what = "its state is not the one that the log gives: move it away"
            self._wrong(Fault.DAMAGED, seq, what, file)

    def finish(self) -> None:
        """The log was read: is something missing behind its end?"""
        if not self.whole:
            return
        if self._given is not None and self._given[0] > self.head[0]:
            self._bears_out("the head given", self._given)
        for seq in sorted(self.snapshots):
            if seq > self.head[0]:
                self.check_snapshot(seq, None)
