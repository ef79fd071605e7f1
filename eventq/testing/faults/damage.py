"""Damage to the files of a log: bits flipped, ends cut, lines and segments lost, doubled, swapped.

Each function changes one log in one way. Bits and bytes are counted from 0 through all segments,
as if they were one file; a line is named by its entry, and a segment by its place among them, from
0. One that is not there is an IndexError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eventq.storage.segments import find_segments, segment_path

__all__ = [
    "cut_log",
    "damaged",
    "double_line",
    "double_segment",
    "flip_bit",
    "log_size",
    "lose_line",
    "lose_segment",
    "swap_lines",
    "swap_segments",
]


def _files(queue: Path) -> list[Path]:
    log = queue / "log"
    return [segment_path(log, first) for first in find_segments(log)]


@contextmanager
def damaged(queue: Path) -> Iterator[None]:
    """Whatever was done to the log in this block is undone at its end: its files, and the redo
    file, hold what they held, and the log has no others. All else beside it is left alone."""
    files = [*_files(queue), *queue.glob("redo")]
    before = {file: (file.read_bytes(), file.stat().st_mode) for file in files}
    try:
        yield
    finally:
        for file in _files(queue):
            if file not in before:
                file.unlink()
        for file, (data, mode) in before.items():
            if not file.exists() or file.read_bytes() != data:
                _write(file, data)
            file.chmod(mode)


def _write(file: Path, data: bytes) -> None:
    """Also where the file is a full segment, which nobody may write."""
    file.unlink(missing_ok=True)
    file.write_bytes(data)


def log_size(queue: Path) -> int:
    """How many bytes the log has, in all its segments."""
    return sum(file.stat().st_size for file in _files(queue))


def _at(queue: Path, byte: int) -> tuple[Path, int]:
    """The segment that holds this byte, and where in it."""
    for file in _files(queue) if byte >= 0 else []:
        size = file.stat().st_size
        if byte < size:
            return file, byte
        byte -= size
    raise IndexError(f"the log of {queue} has {log_size(queue)} bytes")


def flip_bit(queue: Path, bit: int) -> Path:
    """Flip this bit of the log; the file that has it. Raises IndexError."""
    file, byte = _at(queue, bit // 8)
    data = bytearray(file.read_bytes())
    data[byte] ^= 1 << bit % 8
    _write(file, bytes(data))
    return file


def _no_redo(queue: Path) -> None:
    """What the log has lost is not to be had from the redo file either."""
    redo = queue / "redo"
    if redo.exists():
        os.truncate(redo, 0)


def cut_log(queue: Path, size: int) -> None:
    """Let the log end after so many bytes: a segment that would begin there or later goes. Raises
    IndexError where it has not so many."""
    if not 0 <= size <= log_size(queue):
        raise IndexError(f"the log of {queue} has {log_size(queue)} bytes")
    _no_redo(queue)
    for file in _files(queue):
        there = file.stat().st_size
        if size < there:
            data = file.read_bytes()[:size]
            file.unlink()
            if data:
                file.write_bytes(data)
        size = max(0, size - there)


def _changed(queue: Path, change: Callable[[list[tuple[Path, bytes]]], object]) -> None:
    """Change the list of all lines, each with its file, and write what is then in each file."""
    files = _files(queue)
    lines = [(file, line + b"\n") for file in files for line in file.read_bytes().split(b"\n")[:-1]]
    change(lines)
    _no_redo(queue)
    for file in files:
        data = b"".join(line for where, line in lines if where == file)
        if data != file.read_bytes():
            _write(file, data)


def _line(queue: Path, lines: Sequence[object], seq: int) -> int:
    """Where the line of this entry stands among these, which are all of the log."""
    first = next(iter(find_segments(queue / "log")), 1)
    return _there(lines, seq - first, f"line of entry {seq}")


def _there(found: Sequence[object], index: int, what: str) -> int:
    if not 0 <= index < len(found):
        raise IndexError(f"the log has no {what}")
    return index


def lose_line(queue: Path, seq: int) -> None:
    """Let the line of this entry be missing."""
    _changed(queue, lambda lines: lines.pop(_line(queue, lines, seq)))


def double_line(queue: Path, seq: int) -> None:
    """Let the line of this entry stand there twice."""

    def double(lines: list[tuple[Path, bytes]]) -> None:
        at = _line(queue, lines, seq)
        lines.insert(at, lines[at])

    _changed(queue, double)


def swap_lines(queue: Path, one: int, other: int) -> None:
    """Let the lines of these entries stand in each other's place."""

    def swap(lines: list[tuple[Path, bytes]]) -> None:
        here, there = _line(queue, lines, one), _line(queue, lines, other)
        (file, line), (other_file, other_line) = lines[here], lines[there]
        lines[here], lines[there] = (file, other_line), (other_file, line)

    _changed(queue, swap)


def lose_segment(queue: Path, number: int) -> Path:
    """Let this file of the log be missing; the file."""
    files = _files(queue)
    file = files[_there(files, number, f"segment {number}")]
    _no_redo(queue)
    file.unlink()
    return file


def double_segment(queue: Path, number: int) -> Path:
    """Let a copy of this file follow the last one of the log; the copy."""
    files = _files(queue)
    seq = int(files[-1].stem) + files[-1].read_bytes().count(b"\n")
    copy = segment_path(queue / "log", seq)
    copy.write_bytes(files[_there(files, number, f"segment {number}")].read_bytes())
    return copy


def swap_segments(queue: Path, one: int, other: int) -> None:
    """Let these two files of the log bear each other's name."""
    files = _files(queue)
    for number in (one, other):
        _there(files, number, f"segment {number}")
    data, other_data = files[one].read_bytes(), files[other].read_bytes()
    _write(files[one], other_data)
    _write(files[other], data)
