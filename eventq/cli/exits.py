"""The exit codes, and how an error is told: one message on stderr, never a traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from eventq.cli.inert import inert
from eventq.cli.show import emit
from eventq.core.errors import EventqError, ImpossibleEvent, Refusal
from eventq.storage.errors import (
    Archived,
    ArchiveRefused,
    HandleBusy,
    HandleFinished,
    LinesLost,
    LockTimeout,
    LockUnsupported,
    LogDamaged,
    LogNewer,
    NotAQueue,
    QueueReplaced,
)

__all__ = [
    "EXITS",
    "FAILURES",
    "Drifted",
    "Exit",
    "FlowError",
    "NoSuchEntry",
    "code_of",
    "complain",
]


class Exit(IntEnum):
    """What a command ends with; where several would do, the highest."""

    FINE = 0
    USAGE = 2
    REFUSED = 3
    DEAD_LETTERS = 4
    STUCK = 5
    NOT_CHECKED = 6
    NOT_LEGAL = 7
    NOT_COMPLETE = 8
    DAMAGED = 9


EXITS = """
Exit codes; where several would do, the highest:

\b
  0  fine
  1  an error of eventq itself, with a traceback: please report it
  2  usage: a wrong option, or no queue at this place
  3  refused: the queue says no, or has no such task or entry; nothing changed
     (where several tasks were named, those that were not refused are done)
  4  run, work --drain: dead letters; dlq --check: the condition holds
  5  run, work --drain: only a person can move the rest
  6  could not be read, written or checked: permissions, disk, a newer format
  7  verify: not legal, or the rules decide otherwise than the log says
  8  not complete: the end of the log is lost, or it is another log
  9  damaged: the log was changed after it was written

129 (HUP), 130 (Ctrl-C), 143 (TERM) and 141 (nobody reads the output any more) end a command early.
"""


class FlowError(EventqError):
    """A flow file that says nothing that could be run. `problems` has one line for each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class NoSuchEntry(EventqError, LookupError):
    """The log has no such entry, or not yet."""

    def __init__(self, seq: int, last: int, asked: str = "") -> None:
        super().__init__(f"there is no entry {asked or seq}: the log has entries 1 to {last}")
        self.seq = seq


_TOLD = 20
"""How many changes since a plan are told; the rest is counted."""


class Drifted(EventqError, RuntimeError):
    """The queue does not stand any more as a plan takes it to stand. Nothing was done."""

    def __init__(self, changes: Sequence[str]) -> None:
        super().__init__("the plan does not fit any more, and nothing was done: make a new one")
        self.changes = list(changes)
        for change in changes[:_TOLD]:
            self.add_note(change)
        if len(changes) > _TOLD:
            self.add_note(f"and {len(changes) - _TOLD:,} more")


_CODES: tuple[tuple[type[Exception], Exit, str], ...] = (
    (LogDamaged, Exit.DAMAGED, "log_damaged"),
    (LinesLost, Exit.NOT_COMPLETE, "lines_lost"),
    (ImpossibleEvent, Exit.NOT_LEGAL, "impossible_event"),
    (LogNewer, Exit.NOT_CHECKED, "log_newer"),
    (NotAQueue, Exit.USAGE, "not_a_queue"),
    (FlowError, Exit.USAGE, "bad_flow"),
    (Drifted, Exit.REFUSED, "drifted"),
    (NoSuchEntry, Exit.REFUSED, "no_such_entry"),
    (Archived, Exit.NOT_CHECKED, "archived"),
    (ArchiveRefused, Exit.REFUSED, "archive_refused"),
    (HandleFinished, Exit.NOT_CHECKED, "handle_finished"),
    (HandleBusy, Exit.NOT_CHECKED, "handle_busy"),
    (LockTimeout, Exit.NOT_CHECKED, "lock_timeout"),
    (LockUnsupported, Exit.NOT_CHECKED, "lock_unsupported"),
    (QueueReplaced, Exit.NOT_CHECKED, "queue_replaced"),
    (Refusal, Exit.REFUSED, "refused"),
    (OSError, Exit.NOT_CHECKED, "os_error"),
    (EventqError, Exit.REFUSED, "refused"),
)
"""The first that fits counts. The names are those of `--json`; a refusal has its own."""

_FACTS = (
    "task",
    "status",
    "lease",
    "seq",
    "file",
    "line",
    "byte",
    "lost",
    "cycle",
    "changes",
    "holders",
    "files",
)
"""What an error may know, and `--json` tells, by the names of its attributes."""


def code_of(error: Exception) -> Exit:
    """The exit code of this error."""
    return next(code for kind, code, _ in _CODES if isinstance(error, kind))


FAILURES = (EventqError, OSError)
"""What may reach the top of a command; anything else is a bug."""


_ADVICE: dict[int | None, str] = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "A queue is for its owner alone: ask as the user whom its files belong to.",
    ),
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "What was answered before is on disk, and this was not: make room, and ask again.",
    ),
    **dict.fromkeys(
        (errno.EMFILE, errno.ENFILE), "Too many files are open at once: see `ulimit -n`."
    ),
    errno.EROFS: "Where nothing can be written a queue can still be read, as by `eventq status`.",
    errno.EIO: "The disk fails: copy what can be read, and let `eventq verify` look at the copy.",
}
"""What to do about the errors of the system that a person can do something about."""


def _words(error: Exception) -> list[str]:
    """The error, line by line; one of the system with the file first, and with what to do."""
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, EventqError) and error.strerror:
        name = error.filename
        file = "" if name is None else f"{os.fsdecode(name) if isinstance(name, bytes) else name}: "
        text = f"{file}{error.strerror}. {_ADVICE.get(error.errno, '')}".rstrip()
    return [*text.split("\n"), *getattr(error, "__notes__", ())]


def complain(error: Exception, *, as_json: bool) -> None:
    """Tell of an error on stderr: in words, or as one JSON object with its name and its facts."""
    lines = _words(error)
    if not as_json:
        for line in lines:
            sys.stderr.write(f"eventq: {inert(line)}\n")
        return
    name = next(name for kind, _, name in _CODES if isinstance(error, kind))
    facts: dict[str, Any] = {
        "error": error.name if isinstance(error, Refusal) else name,
        "exit": code_of(error),
        "message": "\n".join(lines),
    }
    for fact in _FACTS:
        if (value := getattr(error, fact, None)) is not None:
            facts[fact] = value if isinstance(value, int | list) else str(value)
    emit(facts, to_stderr=True)
