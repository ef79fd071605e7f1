"""Repair: a copy of a damaged queue up to its damage, and the tale of what is lost behind it.

The original is only read. The copy is made aside, synced and renamed, so that it is there whole
or not at all; its lines are those of the original, byte for byte, and so its head is one of the
original's as well.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from attrs import evolve as with_changes
from attrs import frozen

from eventq.core.errors import ImpossibleEvent
from eventq.core.evolve import evolve
from eventq.core.state import State
from eventq.storage.archived import needed
from eventq.storage.beginning import where_to_begin
from eventq.storage.chain import GENESIS
from eventq.storage.disk import DISK, open_to_read
from eventq.storage.errors import LinesLost, LogDamaged
from eventq.storage.segments import segment_path
from eventq.storage.snapshot import load, snapshots
from eventq.storage.verify import Fault, Problem, Verification

__all__ = ["Lost", "Repair", "repair"]


@frozen
class Lost:
    """What stands behind the damage, or is known to have stood there, as far as it can be told."""

    lines: int = 0
    """How many lines are not in the copy, half a line at the end included."""
    bytes: int = 0
    unreadable: int = 0
    """How many of those lines do not read as an entry at all."""
    entries: int = 0
    """How many entries are known to be lost: at least so many are."""
    last: int | None = None
    """The highest seq known to be lost."""
    tasks: tuple[str, ...] = ()
    """The tasks that they touched, each once, as they were met."""


@frozen
class Repair:
    """What was found and done."""

    problem: Problem | None
    """The first thing that is wrong; None: nothing is, and no copy was made."""
    head: tuple[int, str]
    """The seq and the hash of the last entry before it."""
    lost: Lost = Lost()


def repair(queue: Path, to: Path) -> Repair:
    """Copy the queue in this directory, up to the damage in its log, to a new directory.

    Damage is what keeps a log from being opened, and what `verify` calls so; where a snapshot is
    ahead of a log that lacks its end, the copy goes on without the snapshot. Raises
    FileExistsError where something stands at `to`, ValueError where `to` lies in the queue,
    Archived where the beginning of the log is, LogDamaged where not one entry stands before the
    damage, and LogNewer or OSError where the log could not be read to its damage.
    """
    if to.exists() or to.is_symlink():
        raise FileExistsError(f"{to} is there already: name a new directory for the copy")
    if to.resolve().is_relative_to(queue.resolve()):
        raise ValueError(f"{to} lies in the queue itself, which is not to be changed")
    if (archived := needed(queue / "log", 1)) is not None:
        raise archived
    read = Verification(queue)
    problem, head, state, ends = _up_to_the_damage(read)
    lost = _lost(queue, read, head[0], state, ends)
    if problem is None:
        try:
            where_to_begin(queue, None)
        except LinesLost:
            what = f"a snapshot was taken after entry {lost.last}: the log does not reach so far"
            problem = Problem(Fault.NOT_COMPLETE, head[0] + 1, what)
        else:
            return Repair(None, head)
    if not ends:
        where = problem.file or segment_path(read.log, 1)
        what = f"{problem.what} (no entry stands before it, so there is nothing to copy)"
        raise LogDamaged(where, problem.line or 1, problem.byte or 0, 1, what)
    _copy(ends, read, to)
    return Repair(problem, head, lost)


def _up_to_the_damage(
    read: Verification,
) -> tuple[Problem | None, tuple[int, str], State, dict[Path, int]]:
    """The first problem; the head and the state before it; and how far each file is good."""
    state = State()
    head = 0, GENESIS
    ends: dict[Path, int] = {}
    problem: Problem | None = None
    for entry in read.entries():
        if read.problems:
            break
        try:
            state = evolve(state, entry)
        except ImpossibleEvent as error:
            file, line, byte = read.place
            problem = Problem(Fault.DAMAGED, entry.seq, str(error), file, line, byte)
            break
        head = read.head
        ends[read.place[0]] = read.end
    if read.error is not None:
        raise read.error
    if problem is None and read.problems:
        problem = read.problems[0]
    return problem, head, state, ends


class _Line(msgspec.Struct):
    """As much of a line as tells what was lost with it."""

    seq: int
    events: list[dict[str, object]]


_read_line = msgspec.json.Decoder(_Line).decode


def _lost(queue: Path, read: Verification, kept: int, state: State, ends: dict[Path, int]) -> Lost:
    """What stands behind the last good line, and what snapshots know beyond it."""
    lost = Lost()
    seqs: set[int] = set()
    tasks: dict[str, None] = {}
    for line in _lines_behind(read, ends):
        lost = with_changes(lost, lines=lost.lines + 1, bytes=lost.bytes + len(line))
        try:
            entry = _read_line(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            lost = with_changes(lost, unreadable=lost.unreadable + 1)
            continue
        if entry.seq > kept:  # else a line that stands there twice
            seqs.add(entry.seq)
            names = (event.get("task") for event in entry.events)
            tasks |= {name: None for name in names if isinstance(name, str)}
    last = max(seqs, default=kept)
    entries = len(seqs)
    ahead = next(_snapshots_ahead(queue, kept), None)
    if ahead is not None:
        last, entries = max(last, ahead.seq), max(entries, ahead.seq - kept)
        ids = [*ahead.records, *(name for name in state.records if name not in ahead)]
        tasks |= {name: None for name in ids if ahead.record(name) != state.record(name)}
    return with_changes(lost, entries=entries, last=last if entries else None, tasks=tuple(tasks))


def _lines_behind(read: Verification, ends: dict[Path, int]) -> Iterator[bytes]:
    files = [segment_path(read.log, first) for first in read.segments]
    last = max(ends, default=None)
    for file in files:
        if last is None or file >= last:
            with open_to_read(file) as lines:
                lines.seek(ends.get(file, 0))
                yield from lines


def _snapshots_ahead(queue: Path, kept: int) -> Iterator[State]:
    """The states that snapshots hold from behind this entry, the newest first."""
    for seq in snapshots(queue / "snapshots"):
        if seq > kept and (loaded := load(queue / "snapshots", seq, queue / "log")) is not None:
            yield loaded[0]


def _copy(ends: dict[Path, int], read: Verification, to: Path) -> None:
    aside = to.with_name(f"{to.name}.{os.urandom(4).hex()}.tmp")
    log = aside / "log"
    try:
        for folder in (aside, log, aside / "snapshots"):
            folder.mkdir(mode=0o700)
        for file, end in ends.items():
            target = DISK.open(log / file.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(target, "wb") as copy, open_to_read(file) as original:
                at, redone = end, b""
                if read.redo is not None and read.redo.file == file:
                    at, redone = read.redo.byte, read.redo.lines[: end - read.redo.byte]
                _copy_bytes(original, copy, at)
                _copy_bytes(io.BytesIO(redone), copy, len(redone))
                original.seek(at + len(redone))
                _copy_bytes(original, copy, end - at - len(redone))
        for folder in (log, aside):
            DISK.sync_folder(folder)
        aside.rename(to)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    DISK.sync_folder(to.parent)


def _copy_bytes(original: BinaryIO, copy: BinaryIO, size: int) -> None:
    """The next bytes of one file to another, which is synced."""
    while size:
        part = original.read(min(size, 1 << 20))
        if not part:
            raise OSError(errno.EIO, "it has become shorter while it was copied", original.name)
        copy.write(part)
        size -= len(part)
    copy.flush()
    os.fsync(copy.fileno())
