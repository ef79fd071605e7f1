"""The folders of a queue: what may name one, how they are made, and that their names last."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from eventq.core.errors import BadValue
from eventq.storage.disk import Disk
from eventq.storage.errors import NotAQueue

__all__ = ["folder_at", "make_folders", "sync_names"]

OWN = {
    "archived.jsonl",
    "log",
    "snapshots",
    "lock",
    "redo",
    "torn",
    "unsynced",
    "run.lock",
    "run",
    "output",
    "work",
}
"""What may stand in the directory of a queue before its log does."""


def make_folders(disk: Disk, queue: Path) -> None:
    """Make what is missing of the folders that a writer needs. Raises NotAQueue."""
    log = queue / "log"
    if queue.is_dir() and not log.is_dir():
        strange = sorted({file.name for file in queue.iterdir()} - OWN)
        if strange:
            raise NotAQueue(
                queue,
                f"it has no folder `log`, but holds {strange[0]!r}; "
                "name a new or empty directory to begin a queue there",
            )
    for folder in reversed([folder for folder in queue.parents if not folder.exists()]):
        with suppress(FileExistsError):
            disk.mkdir(folder, 0o777)
    for folder in (queue, log, queue / "snapshots"):
        try:
            disk.mkdir(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise NotAQueue(queue, f"{folder} is not a directory") from None


def sync_names(disk: Disk, queue: Path, *, new: bool) -> None:
    """Make the names of the segments last; those of a `new` queue with all folders above it,
    since whoever made one of them may have got no further."""
    disk.sync_folder(queue / "log")
    if new:
        disk.sync_folder(queue)
        disk.sync_folder(queue.parent)
        for folder in queue.parents[1:]:
            with suppress(PermissionError):  # who may not look into it did not make it
                disk.sync_folder(folder)


def folder_at(what: str, path: object) -> Path:
    """The folder at this path, named from the root. Raises BadValue for what can be no path."""
    if not isinstance(path, str | os.PathLike):
        raise BadValue(f"{what} must be a text or a path, not {path!r}")
    try:
        if b"\0" in os.fsencode(path):
            raise BadValue(f"{what} must not hold the character '\\0', as {path!r} does")
        return Path(path).absolute()
    except (UnicodeEncodeError, TypeError) as error:
        raise BadValue(f"{what} cannot be {path!r}: {error}") from None
