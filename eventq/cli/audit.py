"""`eventq verify`, `head` and `snapshot`: is this history whole and lawful, and how to prove it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from eventq import WorkQueue
from eventq.cli.exits import Exit
from eventq.cli.options import examples, json_option, log_of, queue_option
from eventq.cli.show import Screen, emit
from eventq.cli.wording import counted
from eventq.queries.legal import Judge, Rule
from eventq.storage.errors import NotAQueue
from eventq.storage.verify import Fault, Verification

__all__ = ["head", "snapshot", "verify"]

SHOWN = 20
"""How many problems of each kind are told, but in JSON."""

LONG = 4 * 1024 * 1024
"""How many bytes of log make it worth showing how far it was read."""

CODES = {
    Fault.NOT_CHECKED: Exit.NOT_CHECKED,
    Fault.NOT_COMPLETE: Exit.NOT_COMPLETE,
    Fault.DAMAGED: Exit.DAMAGED,
}

_HEAD = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})")


def _head(
    context: click.Context, option: click.Parameter, value: str | None
) -> tuple[int, str] | None:
    if value is None:
        return None
    found = _HEAD.fullmatch(value)
    if found is None:
        raise click.BadParameter("a head is SEQ:HASH with 64 hex digits, as `eventq head` tells it")
    return int(found[1]), found[2]


@contextmanager
def _progress(read: Verification) -> Iterator[Any]:
    """Something to call now and then. It shows how far a long log was read, on a terminal alone."""
    if read.size < LONG or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("reading"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=read.size)
        yield lambda: progress.update(bar, completed=read.bytes_read)


def _read(read: Verification) -> Judge:
    """Read the log to its end, and judge what it tells."""
    judge = Judge()
    with _progress(read) as show:
        for entry in read.entries():
            blind = judge.state.seq < read.archived
            if not blind:
                judge.judge(entry, decide=read.present)
            if entry.seq in read.snapshots:
                read.check_snapshot(entry.seq, None if judge.stopped or blind else judge.state)
                if blind and (state := read.state_of_snapshot(entry.seq)) is not None:
                    judge.begin(state)
            if not entry.seq % 500:
                show()
        judge.end()
        read.finish()
    return judge


@click.command(
    epilog=examples(
        "eventq verify --queue nightly",
        "eventq head --queue nightly > kept-elsewhere",
        'eventq verify --queue nightly --head "$(cat kept-elsewhere)"',
    )
)
@click.option(
    "--head",
    "given",
    metavar="SEQ:HASH",
    callback=_head,
    help="What `eventq head` told once: is that entry still there, the same?",
)
@queue_option
@json_option
def verify(given: tuple[int, str] | None, queue: Path, as_json: bool) -> None:
    """Check that the log is intact, complete and lawful.

    It is read whole from its first line, and nothing else is trusted. Intact: the hashes chain each
    line to the first, each entry encoded again gives the same bytes, times never fall. Complete:
    the entry of --head and those of all snapshots are there; without --head a log cut short between
    two lines looks whole, and this says so. Legal: each event could happen, and what must always
    hold does. Decided: the command of each entry of this version, decided again, gives the same
    events; that is told apart, since a rule that was mended is no tampering.

    Entries that are archived could not be checked, and it says which segments to bring back; what
    follows is intact if it follows from the hash that was recorded of them, and judged from the
    oldest snapshot on.

    Half a line at the end, as a crash leaves it, is not yet an entry, and no damage. The exit code
    is 0, or the highest of 6 could not be checked, 7 not legal, 8 not complete, 9 damaged. It
    changes nothing and needs no lock.

    --json: one object with queue (its id), entries, archived (how many of them are, and so were not
    read), judged (how many were), segments, head, intact, complete, legal and decided (null: not
    checked), problems (fault, seq, what, file, line, byte), more (how many problems were left out),
    notes and exit.
    """
    if not (queue / "log").is_dir():
        raise NotAQueue(queue, "it has no folder `log`")
    read = Verification(queue, given)
    if not read.snapshots and given is None:
        log_of(queue)
    judge = _read(read)
    code = max(
        [Exit.FINE, *(CODES[fault] for fault in read.faults)]
        + [Exit.NOT_LEGAL] * bool(judge.breaches)
    )
    if as_json:
        emit(_facts(read, judge, code))
    else:
        _show(Screen(), read, judge, given)
    click.get_current_context().exit(code)


def _judged(judge: Judge) -> bool:
    """Whether anything was judged; behind an archive that takes a snapshot to begin from."""
    return judge.judged > 0


def _complete(read: Verification) -> bool | None:
    """Whether the log is complete, as far as anybody knows."""
    if Fault.NOT_COMPLETE in read.faults:
        return False
    return True if read.complete else None


def _facts(read: Verification, judge: Judge, code: Exit) -> dict[str, Any]:
    problems = [
        {
            "fault": one.fault,
            "seq": one.seq,
            "what": one.what,
            "file": None if one.file is None else str(one.file),
            "line": one.line,
            "byte": one.byte,
        }
        for one in read.problems
    ]
    problems += [
        {
            "fault": one.rule,
            "seq": one.seq,
            "what": one.what,
            "file": None,
            "line": None,
            "byte": None,
        }
        for one in judge.breaches
    ]
    return {
        "queue": judge.state.queue,
        "entries": read.head[0],
        "archived": read.archived,
        "judged": judge.judged,
        "segments": len(read.segments),
        "head": f"{read.head[0]}:{read.head[1]}",
        "intact": Fault.DAMAGED not in read.faults and read.whole,
        "complete": _complete(read),
        "legal": judge.legal if _judged(judge) else None,
        "decided": not judge.otherwise if _judged(judge) else None,
        "problems": problems,
        "more": read.more + judge.more,
        "notes": read.notes,
        "exit": code,
    }


_COMPLETE = {
    False: "NO",
    True: "yes: the entry of the head given is there",
    None: "not checked: give --head SEQ:HASH, as `eventq head` told it once",
}


def _show(screen: Screen, read: Verification, judge: Judge, given: tuple[int, str] | None) -> None:
    entries = counted(read.head[0] - read.archived, "entry", "entries")
    if read.archived:
        entries = f"{entries} from entry {read.archived + 1} on"
    files = counted(len(read.segments), "file")
    until = "" if read.whole else f" as far as it was read, to entry {read.head[0]}"
    complete = _complete(read)
    unread = (
        f"not checked: entry {given[0]}, which the head given knows, was not read" if given else ""
    )
    events = counted(judge.state.position - judge.began, "event")
    since = f" from entry {judge.state.seq - judge.judged + 1} on" if read.archived else ""
    nothing = "no snapshot says how the queue stood" if read.archived else "no entry was read"
    unjudged = "" if _judged(judge) else f"not checked: {nothing}"
    answers = {
        "intact": "NO" if Fault.DAMAGED in read.faults else f"yes{until}: {entries} in {files}",
        "complete": unread if complete is None and given else _COMPLETE[complete],
        "legal": unjudged or (f"yes{until}{since}: {events}" if judge.legal else "NO"),
        "decided": unjudged or ("NO" if judge.otherwise else f"yes{until}{since}: the same again"),
        "head": f"{read.head[0]}:{read.head[1]}",
    }
    for name, text in answers.items():
        screen.line(f"{name:<10}{text}", style="red" if text == "NO" else "")
    _show_problems(screen, read, judge)
    for note in read.notes:
        screen.line(f"note: {note}")


def _show_problems(screen: Screen, read: Verification, judge: Judge) -> None:
    for one in read.problems[:SHOWN]:
        where = "" if one.file is None else f"{one.file}: "
        if one.line is not None:
            where = f"{one.file}, line {one.line} (byte {one.byte}): "
        screen.line()
        screen.line(f"{one.fault}, entry {one.seq}: {where}{one.what}")
    for breach in judge.breaches[:SHOWN]:
        screen.line()
        kind = "" if breach.rule is Rule.DECIDED_OTHERWISE else "not legal, "
        screen.line(f"{kind}entry {breach.seq}, {breach.rule}: {breach.what}")
    more = max(0, len(read.problems) - SHOWN) + max(0, len(judge.breaches) - SHOWN)
    if more := more + read.more + judge.more:
        screen.line()
        screen.line(f"and {more:,} more")
    for advice in _advice(read):
        screen.line()
        screen.line(advice)


def _advice(read: Verification) -> Iterator[str]:
    """What to do about what was found."""
    if Fault.DAMAGED in read.faults and not read.head[0]:
        yield (
            "No entry stands before the damage. Nothing was changed; bring back a good copy of "
            "the file to go on."
        )
    elif Fault.DAMAGED in read.faults:
        yield (
            "What stands before the damage can be read: eventq log, history, at. Nothing was "
            "changed; bring back a good copy of the file to go on, or make a queue of what stands "
            "before it with eventq repair."
        )
    incomplete = [one.seq for one in read.problems if one.fault is Fault.NOT_COMPLETE]
    if any(seq > read.head[0] for seq in incomplete):
        yield (
            "Bring back the missing end of the log from a copy. If there is none, say so to "
            "whoever relies on it: what was answered after the last entry is lost."
        )
    if any(seq <= read.head[0] for seq in incomplete):
        yield (
            "Nothing is missing at the end: it is another history than the one that was known. "
            "This is another queue, or its log was written anew or put in the place of the other; "
            "bring back the log that belongs to it from a copy."
        )
    if read.archived:
        yield "Bring back what is archived with eventq unarchive, and verify again."
    if read.error is not None:
        yield "Read it with a newer eventq, or as a user who may."


@click.command(
    epilog=examples(
        "eventq head --queue nightly",
        'eventq verify --queue nightly --head "$(eventq head --queue nightly)"',
    )
)
@queue_option
@json_option
def head(queue: Path, as_json: bool) -> None:
    """Print SEQ:HASH of the last entry.

    Kept somewhere else, it proves one day that the log is complete and untouched up to there.

    --json: one object with seq and hash.
    """
    with WorkQueue.open(queue, read_only=True) as q:
        seq, digest = q.head
    if as_json:
        emit({"seq": seq, "hash": digest})
    else:
        Screen().line(f"{seq}:{digest}")


@click.command(
    epilog=examples(
        "eventq snapshot --queue nightly",
        "eventq snapshot --queue nightly --json",
    )
)
@queue_option
@json_option
def snapshot(queue: Path, as_json: bool) -> None:
    """Write a snapshot of the state and print where.

    The next opening takes less time. A snapshot may be removed at any time: the log alone counts.

    --json: one object with path and seq.
    """
    log_of(queue)
    with WorkQueue.open(queue) as q:
        path = q.snapshot()
    if as_json:
        emit({"path": str(path), "seq": int(path.stem)})
    else:
        Screen().line(str(path))
