"""Folding a log that is on disk: the state after any of its entries, and the entries themselves."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from pathlib import Path

from eventq.core.errors import ImpossibleEvent
from eventq.core.events import Entry
from eventq.core.evolve import Folded, replay
from eventq.core.state import State
from eventq.storage.archived import needed
from eventq.storage.beginning import where_to_begin
from eventq.storage.codec import decode
from eventq.storage.errors import LogDamaged, repair_words
from eventq.storage.segments import Cursor, find_segments

__all__ = ["entries_since", "fold", "lost", "state_after"]


def state_after(queue: Path, seq: int) -> State:
    """The state after this entry, from the nearest snapshot before it; after the last one where the
    log does not reach so far."""
    begin, cursor = where_to_begin(queue, seq)
    return fold(queue, begin, itertools.islice(cursor.forward(), seq - begin.seq))


def lost(queue: Path, seq: int) -> LogDamaged:
    """The error for a log that ends before this entry, which was read before."""
    _, cursor = where_to_begin(queue, seq)
    for _ in cursor.forward():
        pass
    return cursor.damaged(f"the log ends there, and entry {seq} was read before")


def fold(queue: Path, begin: State, entries: Iterator[Folded]) -> State:
    """Replay with the collector of cycles off: a fold makes none, and much that is kept.

    Raises ImpossibleEvent, with all that the log says of the task.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return replay(begin, entries)
    except ImpossibleEvent as error:
        told = error.told(_story(queue, error.task, error.seq))
        told.add_note(f"to go on with what stands before it: `{repair_words(queue)}`")
        raise told from None
    finally:
        if collecting:
            gc.enable()


def _story(queue: Path, task: str | None, seq: int) -> list[str]:
    """All that the log says of a task before this entry, oldest first."""
    return [
        f"entry {entry.seq}: {event}"
        for entry in itertools.takewhile(lambda entry: entry.seq < seq, entries_since(queue, 1))
        for event in entry.events
        if getattr(event, "task", None) == task
    ]


def entries_since(queue: Path, since: int) -> Iterator[Entry]:
    """The entries from this seq on, checked from the segment that holds it."""
    folder = queue / "log"
    segments = [first for first in find_segments(folder) if first <= since]
    if not segments and (archived := needed(folder, since)) is not None:
        raise archived
    cursor = Cursor(folder, segments[-1] if segments else 1)
    for entry in cursor.forward(decode):
        if entry.seq >= since:
            yield entry
