"""The record of what was archived: which segments are not in the log any more, and where they went.

`archived.jsonl`, beside the log, has a line for each, the oldest first: its first and last seq, the
hash of its last line, which ties it to what follows, and the folder that it was moved to. A segment
that is in the log as well counts as not archived.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from eventq.storage.disk import Disk, read_file
from eventq.storage.errors import Archived, RecordDamaged

__all__ = ["Moved", "away", "needed", "recorded", "write_record"]


class Moved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A segment that was archived."""

    first: int
    last: int
    hash: str
    """That of its last line."""
    to: str

    @property
    def name(self) -> str:
        """Its file, there as in the log."""
        return f"{self.first:020}.jsonl"


def _record(log: Path) -> Path:
    return log.parent / "archived.jsonl"


def recorded(log: Path) -> list[Moved]:
    """All that the record says, the oldest first. Raises RecordDamaged."""
    try:
        lines = read_file(_record(log)).splitlines(keepends=True)
    except FileNotFoundError:
        return []
    found: list[Moved] = []
    for number, line in enumerate(lines, 1):
        try:
            one = msgspec.json.decode(line, type=Moved)
            if "\0" in one.to:
                raise ValueError("no folder has a name with the character '\\0'")
            found.append(one)
        except (msgspec.DecodeError, ValueError) as error:
            seq = found[-1].last + 1 if found else 1
            byte = sum(map(len, lines[: number - 1]))
            raise RecordDamaged(_record(log), number, byte, seq, str(error)) from None
    return found


def write_record(disk: Disk, log: Path, moved: Iterable[Moved]) -> None:
    """Let this be the record: aside, then renamed, so that there is always a whole one."""
    text = b"".join(msgspec.json.encode(one) + b"\n" for one in sorted(moved, key=_first))
    aside = log.parent / f"archived.{os.urandom(4).hex()}.tmp"
    try:
        disk.write_file(aside, text)
        disk.rename(aside, _record(log))
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    disk.sync_folder(log.parent)


def _first(moved: Moved) -> int:
    return moved.first


def away(log: Path) -> list[Moved]:
    """The segments that were archived and were not brought back."""
    return [one for one in recorded(log) if not (log / one.name).exists()]


def needed(log: Path, since: int, until: int | None = None) -> Archived | None:
    """The error for who needs the entries from `since` to `until` (None: all), if some of them are
    archived."""
    missing = [
        one for one in away(log) if one.last >= since and (until is None or one.first <= until)
    ]
    if not missing:
        return None
    files = [str(Path(one.to) / one.name) for one in missing]
    return Archived(log.parent, missing[0].first, missing[-1].last, files)
