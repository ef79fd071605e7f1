"""Segments: the files of a log, found by name and read line by line.

`<first seq, 20 digits>.jsonl` holds the entries from that seq on. Reading changes nothing, needs
no lock and takes half a line at the end for "not there yet".
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from eventq.storage.archived import needed
from eventq.storage.chain import GENESIS, TAIL, hash_of, prev_of
from eventq.storage.codec import NewerVersion, NotALine, read
from eventq.storage.disk import open_to_read
from eventq.storage.errors import Archived, LogDamaged, LogNewer
from eventq.storage.redo import missing

__all__ = ["CUT_SHORT", "Cursor", "find_segments", "segment_path", "twice"]

E = TypeVar("E")

CUT_SHORT = "it is cut short, and yet a later segment follows"
"""What is wrong with a segment that lacks some of its end."""


def segment_path(log: Path, first: int) -> Path:
    """The file that begins with this entry."""
    return log / f"{first:020}.jsonl"


_NAMES = re.compile(r"(?<![^/])([0-9]{20})\.jsonl(?![^/])")


def find_segments(log: Path) -> list[int]:
    """The first seqs of all segments, in order. Other files are none of ours."""
    # A path for each of thousands would take most of the time of whoever asks.
    names = os.listdir(log)  # noqa: PTH208
    return sorted(map(int, _NAMES.findall("/".join(names))))


class Cursor:
    """A place in a log just behind a line that was checked: what comes next can be checked too.

    `first` names the segment, `offset` is the byte in it, `lines` how many lines of it were read
    (None: began in its middle), `seq` and `hash` are those of the last line. `redone` is the byte
    from which on the segment lacks lines that were read from the redo file, and these lines.
    """

    __slots__ = ("first", "hash", "lines", "log", "offset", "redone", "seq")

    def __init__(self, log: Path, first: int = 1) -> None:
        self.log = log
        self.first = first
        self.offset = 0
        self.lines = 0
        self.seq = first - 1
        self.hash: bytes | None = GENESIS.encode() if first == 1 else None
        self.redone = 0, b""

    def copy(self) -> Cursor:
        """The same place, to go on from there separately."""
        copy = Cursor.__new__(Cursor)
        copy.log, copy.first, copy.offset = self.log, self.first, self.offset
        copy.lines, copy.seq, copy.hash, copy.redone = self.lines, self.seq, self.hash, self.redone
        return copy

    def behind(self, size: int, seq: int, digest: bytes) -> Cursor:
        """The place behind the next line, which has so many bytes."""
        behind = Cursor.__new__(Cursor)
        behind.log, behind.first, behind.offset = self.log, self.first, self.offset + size
        behind.lines, behind.seq, behind.hash, behind.redone = self.lines + 1, seq, digest, (0, b"")
        return behind

    @property
    def file(self) -> Path:
        """The segment."""
        return segment_path(self.log, self.first)

    def damaged(self, what: str) -> LogDamaged:
        """The error for something wrong with the next line."""
        return LogDamaged(self.file, self.lines + 1, self.offset, self.seq + 1, what)

    def follow(self, lines: BinaryIO, parse: Callable[[bytes], Any] = read) -> Iterator[Any]:
        """The entries that follow in this segment, from a file positioned at `offset`.

        Stops before half a line. Raises LogDamaged and LogNewer.
        """
        sha256 = hashlib.sha256
        seq, last, offset, count = self.seq, self.hash, self.offset, self.lines
        wrong: str | NewerVersion | None = None
        if last is None:  # where reading begins behind the first segment, the line itself says
            line = lines.readline()
            if not line.endswith(b"\n"):
                return
            last = prev_of(line)
            if last is None:
                raise self.damaged("it does not say `prev`, as the first line of a segment does")
            lines.seek(offset)
        try:
            for line in lines:
                digest = sha256(last + line[:-TAIL]).hexdigest().encode()
                if not line.endswith(b',"hash":"%b"}\n' % digest):
                    wrong = _what_is_wrong(line) if line.endswith(b"\n") else None
                    break
                try:
                    entry = parse(line)
                except NotALine as error:
                    wrong = error if isinstance(error, NewerVersion) else str(error)
                    break
                if entry.seq != seq + 1:
                    wrong = f"entry {entry.seq} stands there"
                    break
                if not offset and prev_of(line) != last:
                    wrong = "its `prev` is not the hash of the line before"
                    break
                # In one step: an interrupt finds the cursor before this line or behind it.
                seq, last, offset, count = seq + 1, digest, offset + len(line), count + 1
                yield entry
        finally:
            # The seq last: another thread takes what it sees of that for read, see `sync`.
            self.offset, self.hash, self.lines, self.seq = offset, last, count, seq
        if isinstance(wrong, NewerVersion):
            raise LogNewer(self.file, count + 1, offset, seq + 1, str(wrong))
        if wrong is not None:
            raise self.damaged(wrong)

    def forward(self, parse: Callable[[bytes], Any] = read) -> Iterator[Any]:
        """The entries that follow, through all segments.

        And those that a power cut took from the last one, as far as they stand in the redo file.
        Raises Archived or LogDamaged where a segment is missing: what came before one was whole
        when it was made, so all segments that are there now will be reached.
        """
        known = find_segments(self.log)
        if known and known[0] > self.first:
            raise self._missing(f"the log begins only with entry {known[0]}")
        damage: LogDamaged | None = None
        rest = 0  # the file may have been archived since it was found
        try:
            while self.file.exists():
                yield from twice(self, lambda: self._read_on(parse))
                rest = self.file.stat().st_size - self.offset
                if not self.next_segment(rest):
                    break
        except LogDamaged as error:
            damage = error
        later = [first for first in known if first > self.first]
        redone = b"" if later else missing(self)
        self.redone = self.offset, redone
        if damage is not None and not redone:
            raise damage
        if redone:
            yield from self.follow(io.BytesIO(redone), parse)
            yield from twice(self, lambda: self._read_on(parse))  # it may go on behind them
        if later and not rest:
            name = segment_path(self.log, self.seq + 1).name
            raise self._missing(f"the segment {name} is missing, and entry {later[0]} is there")
        if later:
            raise self.damaged(CUT_SHORT)

    def _read_on(self, parse: Callable[[bytes], Any]) -> Iterator[Any]:
        with open_to_read(self.file, 1 << 20) as lines:
            lines.seek(self.offset)
            yield from self.follow(lines, parse)

    def _missing(self, what: str) -> Archived | LogDamaged:
        """The error for a segment that is not there: it is archived, or this is damage."""
        return needed(self.log, self.seq + 1) or self.damaged(what)

    def next_segment(self, rest: int) -> bool:
        """Move on to the next segment, if it is there. `rest` is how many bytes were not read.

        Those may have been a torn tail, which was cut off before the next segment was made: how
        long this one is in the end can only be seen now.
        """
        if not self.seq or self.seq < self.first:
            return False
        if not segment_path(self.log, self.seq + 1).exists():
            return False
        if rest and self.file.stat().st_size > self.offset:
            raise self.damaged(CUT_SHORT)
        self.first, self.offset, self.lines = self.seq + 1, 0, 0
        return True

    def overtaken(self) -> bool:
        """Whether a segment is there that lines which are missing here must have preceded."""
        return find_segments(self.log)[-1:] > [self.seq + 1]


def twice(cursor: Cursor, read_on: Callable[[], Iterator[E]]) -> Iterator[E]:
    """What `read_on` gives from where the cursor stands, without the lock.

    Damage is believed when it is found twice in the same place: half a line may have been read
    that a writer then cut off, and new lines behind it.
    """
    found = -1
    while True:
        try:
            yield from read_on()
        except LogDamaged:
            if found == cursor.offset:
                raise
            found = cursor.offset
        else:
            return


def _what_is_wrong(line: bytes) -> str:
    if hash_of(line) is None:
        return "it does not end as a line does, in a hash"
    return "its hash does not fit it and the line before"
