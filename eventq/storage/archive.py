"""Archiving: closed segments are moved out of the log, the oldest first, and brought back.

A segment is always in at least one place: it is copied, the copy is synced and read again, the
record says where it is, and only then is it taken out of the log. Whoever is killed on the way, the
next one goes on from there. Nothing is archived that is needed to open the queue: what goes is
older than the segment that the newest fit snapshot was taken in.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

from eventq.storage.archived import Moved, away, recorded, write_record
from eventq.storage.beginning import stands_there
from eventq.storage.disk import read_file
from eventq.storage.errors import ArchiveRefused, LogDamaged
from eventq.storage.log import Log
from eventq.storage.segments import CUT_SHORT, Cursor, find_segments, segment_path
from eventq.storage.snapshot import load, snapshots

__all__ = ["archive", "bring_back"]


def archive(log: Log, to: Path, *, before: int | None = None, keep: int = 1) -> list[Moved]:
    """Move the oldest segments of this log to the folder `to`, which is made if it is not there.

    Only those whose entries all come `before` that seq; the newest `keep` segments stay, and all
    that opening needs. Answers what was moved. Raises ArchiveRefused where `to` is in the queue,
    has a name that cannot be recorded or holds something else by such a name, LogDamaged for a
    segment that does not fit, OSError.
    """
    to = to.absolute()
    try:
        str(to).encode()
    except UnicodeEncodeError:
        raise ArchiveRefused(f"{str(to)!r} is not UTF-8, which the queue's record is") from None
    if to.resolve().is_relative_to(log.path.resolve()):
        raise ArchiveRefused(f"{to} lies in the queue itself: name a folder elsewhere")
    if to.name in ("log", "snapshots") and (to.parent / "lock").exists():
        raise ArchiveRefused(f"{to} is a folder of another queue: name one that is of none")
    with suppress(FileExistsError):
        log.disk.mkdir(to)
    log.disk.sync_folder(to.parent)  # whoever made it may have got no further
    folder = log.path / "log"
    segments = find_segments(folder)
    covered = _covered(log.path)
    moved: list[Moved] = []
    followers = segments[1 : len(segments) + 1 - max(keep, 1)]
    for first, following in zip(segments, followers, strict=False):
        if first >= covered or (before is not None and following > before):
            break
        moved.append(_move(log, first, to))
    return moved


def _covered(queue: Path) -> int:
    """The first entry of the segment in which the newest fit snapshot was taken."""
    for seq in snapshots(queue / "snapshots"):
        loaded = load(queue / "snapshots", seq, queue / "log")
        if loaded is not None and stands_there(loaded[1]):
            return loaded[1].first
    return 0


def _move(log: Log, first: int, to: Path) -> Moved:
    folder = log.path / "log"
    file = segment_path(folder, first)
    text = read_file(file)
    moved = _told(folder, first, text, str(to))
    _put(log, text, to / moved.name)
    with log.alone():
        log.look(locked=True)
        if file.exists():  # else another has archived it meanwhile
            others = [one for one in recorded(folder) if one.first != first]
            write_record(log.disk, folder, [*others, moved])
            log.disk.unlink(file)
            log.disk.sync_folder(folder)
    return moved


def _told(folder: Path, first: int, text: bytes, to: str) -> Moved:
    """What the record says of a segment with this text. Raises LogDamaged where it does not fit."""
    cursor = Cursor(folder, first)
    for _ in cursor.follow(io.BytesIO(text)):
        pass
    if cursor.offset != len(text) or not text:
        raise cursor.damaged(CUT_SHORT)
    assert cursor.hash is not None
    return Moved(first, cursor.seq, cursor.hash.decode(), to)


def _put(log: Log, text: bytes, target: Path) -> None:
    """Make a file with this text that lasts; one that is there must have the same."""
    if target.exists():
        if read_file(target) != text:
            raise ArchiveRefused(f"{target} is there already, and is not the segment of this queue")
        descriptor = log.disk.open(target, os.O_RDONLY)
        try:
            log.disk.fsync(descriptor)  # whoever wrote it may have got no further
        finally:
            os.close(descriptor)
        log.disk.sync_folder(target.parent)
        return
    aside = target.with_suffix(f".{os.urandom(4).hex()}.tmp")
    try:
        log.disk.write_file(aside, text)
        if read_file(aside) != text:
            raise ArchiveRefused(f"{aside} does not read back as it was written")
        log.disk.rename(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    log.disk.sync_folder(target.parent)


def bring_back(log: Log, source: Path | None = None, *, since: int = 1) -> list[Moved]:
    """Copy archived segments back into the log, the newest first: those with entries from `since`
    on. They are looked for where the record says, or in the folder `source`, and stay there too.

    Answers what is in the log again. Raises ArchiveRefused for a segment that is not there, or is
    not the one that was archived, OSError where it cannot be read.
    """
    folder = log.path / "log"
    back: list[Moved] = []
    for one in reversed(away(folder)):
        if one.last < since:
            break
        file = (Path(one.to) if source is None else source) / one.name
        try:
            text = read_file(file)
            told = _told(file.parent, one.first, text, one.to)
        except FileNotFoundError:
            raise ArchiveRefused(
                f"{file} is not there: name the folder where entries {one.first} to {one.last} "
                "are now (`eventq unarchive --from DIR`)"
            ) from None
        except LogDamaged as error:
            raise ArchiveRefused(
                f"{file}, line {error.line} (byte {error.byte}): {error.what}. Nothing of it was "
                "brought back: name a folder with a good copy (`eventq unarchive --from DIR`)"
            ) from None
        if told != one:
            raise ArchiveRefused(
                f"{file} ends with entry {told.last} and the hash {told.hash}, but what was "
                f"archived ended with entry {one.last} and the hash {one.hash}"
            )
        with log.alone():  # else who archives it anew meanwhile would find it in its old place
            _put(log, text, folder / one.name)
            write_record(log.disk, folder, [m for m in recorded(folder) if m.first != one.first])
        back.append(one)
    return back
