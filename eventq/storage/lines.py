"""Lines of a log as they stand on disk: one by one, checked on the way, from any entry on.

For who wants the bytes, or a few entries of many: nothing is folded, and a line is decoded only
by who asks for it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from eventq.core.events import Entry
from eventq.core.values import storable
from eventq.storage.archived import needed
from eventq.storage.chain import hash_of
from eventq.storage.codec import decode
from eventq.storage.convert import moment
from eventq.storage.disk import open_to_read
from eventq.storage.redo import missing
from eventq.storage.segments import Cursor, find_segments, segment_path
from eventq.storage.upcast import VERSION

__all__ = ["Line", "last_seq", "lines", "seq_at", "spelled"]

K = TypeVar("K", int, bytes)

_BEGIN = re.compile(rb'\{"v":%d,"seq":([1-9][0-9]*),' % VERSION)
"""How every line of this version begins."""

_AT = re.compile(_BEGIN.pattern + rb'"at":"([^"]*)"')

_BLOCK = 1 << 16


class Line:
    """One line: its seq and its bytes, with the newline; its entry, where that was wanted."""

    __slots__ = ("_entry", "bytes", "seq")

    def __init__(self, line: bytes, *, wanted: bool = False) -> None:
        """Raises NotALine, or NewerVersion, for one that does not begin as a line does, or whose
        entry is wanted and does not read."""
        begin = _BEGIN.match(line)
        self._entry = decode(line) if wanted or begin is None else None
        self.seq = self.entry.seq if begin is None else int(begin[1])
        self.bytes = line

    @property
    def entry(self) -> Entry:
        """What the line says, if it was wanted."""
        assert self._entry is not None
        return self._entry


def lines(
    log: Path, since: int = 1, wanted: Callable[[bytes], bool] = lambda _: False
) -> Iterator[Line]:
    """The lines from the entry `since` on, in this folder of segments.

    Those that are `wanted` are decoded as they are checked: one that does not read is told with
    its place, as any damage is. The chain is checked from the line before on, which is found by
    halving and taken at its word. Raises LogDamaged and LogNewer, when it gets there.
    """
    cursor = _before(log, since)
    if not cursor.file.exists():
        return
    for line in cursor.forward(lambda text: Line(text, wanted=wanted(text))):
        if line.seq >= since:
            yield line


def last_seq(log: Path) -> int:
    """The seq of the last whole line, found from the end of the log; 0 where there is none."""
    segments = find_segments(log)
    end = Cursor(log, segments[-1] if segments else 1)
    for first in reversed(segments):
        offset, line = _last_line(segment_path(log, first))
        if (seq := _seq(line)) is not None:
            end.seq, end.hash = seq, hash_of(line)
            end.offset = offset if first == end.first else 0
            break
    return end.seq + missing(end).count(b"\n")


def seq_at(log: Path, then: datetime) -> int:
    """The seq of the last entry that is not later than this moment; 0 where the first one is.

    Found by halving, since time in a log never falls. The lines on the way are taken at their word;
    the last one before the moment and the first one behind it are checked as `lines` does. Raises
    Archived, and LogDamaged and LogNewer where they stand before an entry that is known to be
    later.
    """
    most = moment(then).encode()
    segments = find_segments(log)

    def begins(first: int) -> bytes:
        with open_to_read(segment_path(log, first)) as file:
            return _at(file.readline()) or b"later"  # than all digits: nothing is known of it

    seq = 0
    if early := segments[: bisect_right(segments, most, key=begins)]:
        with open_to_read(segment_path(log, early[-1])) as file:
            seq = _seq(_last_early(file, _at, most)[1]) or early[-1] - 1
    for line in lines(log, seq + 1, lambda _: True):
        if line.entry.at > then:
            break
        seq = line.seq
    return seq


def _last_line(file: Path) -> tuple[int, bytes]:
    """Where the last whole line of a segment ends, and the line; none: at 0, and empty."""
    with open_to_read(file) as segment:
        size = segment.seek(0, 2)
        begin, step = size, _BLOCK
        while begin:
            begin = max(0, size - step)
            segment.seek(begin)
            text = segment.read(size - begin)
            end = text.rfind(b"\n") + 1
            start = text.rfind(b"\n", 0, max(0, end - 1)) + 1
            if (start or not begin) and _seq(line := text[start:end]) is not None:
                return begin + end, line
            step *= 4
    return 0, b""


def spelled(text: str) -> bytes:
    """How this text stands in a line, with its quotes: in this way alone."""
    return msgspec.json.encode(storable(text))


def _seq(line: bytes) -> int | None:
    begin = _BEGIN.match(line)
    return None if begin is None else int(begin[1])


def _at(line: bytes) -> bytes | None:
    begin = _AT.match(line)
    return None if begin is None else begin[2]


def _before(log: Path, seq: int) -> Cursor:
    """A place in the log before this entry: just before it, as long as the log is in order."""
    segments = find_segments(log)
    first = max((first for first in segments if first <= seq), default=0)
    if not first:
        if (archived := needed(log, seq)) is not None:
            raise archived
        if segments:
            raise Cursor(log).damaged(f"the log begins only with entry {segments[0]}")
        first = 1
    cursor = Cursor(log, first)
    if seq <= first or not segments:
        return cursor
    with open_to_read(cursor.file) as file:
        offset, line = _last_early(file, _seq, seq - 1)
    if _seq(line) != seq - 1 or hash_of(line) is None:
        return cursor
    cursor.hash = hash_of(line)
    cursor.offset = offset + len(line)
    cursor.seq = seq - 1
    cursor.lines = seq - first
    return cursor


def _last_early(file: BinaryIO, of: Callable[[bytes], K | None], most: K) -> tuple[int, bytes]:
    """Where the last line of a segment begins of which this is at most so much, and the line;
    found by halving, since it never falls. At 0, and empty, where there is none, or where the lines
    on the way do not look like it."""
    low, high = 0, file.seek(0, 2)
    begin, early = 0, b""
    while low < high:
        middle = (low + high) // 2
        file.seek(max(0, middle - 1))
        if middle:
            file.readline()
        offset = file.tell()
        line = file.readline()
        if offset >= high or not line.endswith(b"\n"):
            high = middle
            continue
        found = of(line)
        if found is None:
            return 0, b""
        if found <= most:
            low = offset + len(line)
            begin, early = offset, line
        else:
            high = middle
    return begin, early
