"""`eventq log` and `eventq history`: what has happened, read from the lines of the log.

Neither folds anything, so both read a damaged log up to its damage. A line is decoded only if it
holds the bytes that are asked for: an id is spelled in one way alone.
"""

from __future__ import annotations

import select
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, NoReturn

import click

from eventq import Archived, Entry, EventqError, Lease, LogDamaged, LogNewer, WorkQueue
from eventq.cli.exits import NoSuchEntry, complain
from eventq.cli.options import (
    examples,
    json_option,
    log_of,
    queue_option,
    task_argument,
    unknown,
)
from eventq.cli.show import Column, Screen, emit, when
from eventq.cli.times import When, WhenType
from eventq.cli.wording import asked_about, counted, tell, tell_nothing
from eventq.core.events import Cancelled, Renewed, Started, TaskEvent
from eventq.queries.history import Life, Moment, lives, moments
from eventq.storage.archived import needed
from eventq.storage.codec import plain_event
from eventq.storage.convert import moment
from eventq.storage.lines import Line, last_seq, lines, spelled
from eventq.storage.segments import find_segments
from eventq.storage.watch import Watch

__all__ = ["entries_with", "history", "lives_there", "log", "moment_facts", "taken_by"]


LOOK_EVERY = 1.0
"""Seconds until a log that is followed is looked at though the kernel does not say that it grew: it
says nothing of what others write to a file system that is shared."""


def entries_with(log: Path, *marks: bytes, since: int = 1) -> Iterator[Entry]:
    """The entries whose lines hold one of these texts, and maybe a few more."""

    def wanted(line: bytes) -> bool:
        return any(mark in line for mark in marks)

    return (line.entry for line in lines(log, since, wanted) if wanted(line.bytes))


def _there(log: Path) -> tuple[int, Archived | None]:
    """The first entry to read, and what is to be told of those before it, if they are archived."""
    first = find_segments(log)[0]
    archived = needed(log, 1, first - 1) if first > 1 else None
    return (1 if archived is None else first), archived


def lives_there(
    path: Path, task: str, until: int | None = None
) -> tuple[list[Life], EventqError | None]:
    """The lives of this task up to this entry, as far as the log can be read; what is to be told of
    the rest."""
    log = log_of(path)
    since, rest = _there(log)
    entries: list[Entry] = []
    found = entries_with(log, spelled(task), since=since)
    try:
        entries.extend(takewhile(lambda entry: until is None or entry.seq <= until, found))
    except (LogDamaged, LogNewer) as damage:
        return lives(entries, task), damage
    return lives(entries, task), rest


def taken_by(path: Path, lease: Lease) -> dict[str, Any]:
    """Who has cancelled the task of this lease while it ran, and why; empty where nobody has, or
    the log does not tell."""
    with suppress(EventqError, OSError):
        for entry in entries_with(log_of(path), spelled(lease.task), since=lease.id + 1):
            mine = (one for one in entry.events if getattr(one, "task", None) == lease.task)
            end = next((one for one in mine if not isinstance(one, Renewed)), None)
            if isinstance(end, Cancelled):
                return {"cancelled_by": entry.by, "why": entry.why}
            if end is not None:
                break
    return {}


def moment_facts(moment_: Moment) -> dict[str, Any]:
    """One event with what its entry says of it, as plain values."""
    event = plain_event(moment_.event)
    event.pop("task", None)
    if isinstance(moment_.event, Started):
        event["lease"] = moment_.seq
    return {
        "seq": moment_.seq,
        "at": moment(moment_.at),
        "by": moment_.by,
        "do": moment_.do,
        "why": moment_.why,
        **event,
    }


# log


def _chosen(
    log: Path,
    since: int | None,
    until: int | None,
    task: str | None,
    limit: int | None,
    *,
    decoded: bool,
    first: int = 1,
) -> Iterable[Line]:
    """The lines that were asked for: the first `limit`, or where no `since` is told the last ones,
    of those from `first` on; whether they are `decoded`, too."""
    if since is None and limit is not None and task is None:
        last = last_seq(log)
        since = max(first, (last if until is None else min(until, last)) - limit + 1)
    begin = since or first
    if task is None:
        found: Iterable[Line] = lines(log, begin, lambda _: decoded)
    else:
        mark = spelled(task)
        every = lines(log, begin, lambda line: mark in line)
        found = (line for line in every if mark in line.bytes and _names(line.entry, task))
    if until is not None:
        found = takewhile(lambda line: line.seq <= until, found)
    if limit is None or limit > sys.maxsize:
        return found
    return islice(found, limit) if since is not None else deque(found, limit)


def _check_named(queue: Path, task: str) -> None:
    """Raise UnknownTask for an id that is nowhere in the log, as far as that is there."""
    folder = log_of(queue)
    if any(_chosen(folder, find_segments(folder)[0], None, task, 1, decoded=False)):
        return
    with WorkQueue.open(queue, read_only=True) as q:
        if task not in q.state:
            raise unknown(q.state, task, "show the log of")


def _names(entry: Entry, task: str) -> bool:
    named = any(isinstance(event, TaskEvent) and event.task == task for event in entry.events)
    return named or task in asked_about(entry)


@click.command(
    epilog=examples(
        "eventq log --queue nightly",
        "eventq log --queue nightly -n 20",
        "eventq log --queue nightly --since 3 -n 2",
        "eventq log --queue nightly --since '2026-11-30 11:59Z' --until 2026-11-30",
        "eventq log --queue nightly --task fetch --json | head -1",
        "eventq log --queue nightly --follow -n 3 --json | head -3",
    )
)
@click.option("--since", type=WhenType(), metavar="WHEN", help="From this entry or time on.")
@click.option("--until", type=WhenType(), metavar="WHEN", help="Up to this entry or time.")
@click.option("--task", metavar="TASK", help="Only entries with an event of this task.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help="At most N entries: the last ones, or the first ones with --since.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on.")
@queue_option
@json_option
def log(
    queue: Path,
    since: When | None,
    until: When | None,
    task: str | None,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the entries of the log, a line for each event.

    The columns are the entry's seq, its time (UTC), who asked, what was asked, the task and what
    happened to it; where refusals are recorded, what was refused and why, and starts that got
    nothing. With --task, the other tasks of an entry are left out. WHEN is the seq of an
    entry, a time (UTC, unless it names its zone; all of the day, minute or second that it says) or
    an age like 10m. Exits 3 for entries that are not there, or not yet, and for a task that the log
    never names; with --follow these are waited for, until Ctrl-C. Exits 6 where the first entries
    are archived, when the rest was shown.

    --json: the lines as they are on disk, byte for byte, hash and all.
    """
    if follow and (until is not None or (since is not None and limit is not None)):
        raise click.UsageError("--follow has no end: leave out --until, and -n where --since is")
    folder = log_of(queue)
    begin = None if since is None else since.since(folder)
    end = None if until is None else until.until(folder)
    there, rest = (1, None) if since is not None else _there(folder)
    if follow:
        if rest is not None and limit is None:
            complain(rest, as_json=as_json)
        _follow(folder, begin, there, task, limit, as_json)
    chosen = iter(_chosen(folder, begin, end, task, limit, decoded=not as_json, first=there))
    first = next(chosen, None)
    if first is None and rest is not None:
        raise rest
    if first is None:
        last = last_seq(folder)
        if (begin or 1) > (last if end is None else min(last, end)):
            raise NoSuchEntry(begin or 1, last, _told(since, until))
        if task is not None:
            _check_named(queue, task)
        return
    shown = _show(chain((first,), chosen), task, as_json)
    if rest is not None and (limit is None or shown < limit):
        raise rest


def _follow(
    folder: Path,
    since: int | None,
    first: int,
    task: str | None,
    limit: int | None,
    as_json: bool,
) -> NoReturn:
    """Show these entries, and then what is written, until nobody reads it any more."""
    decoded = not as_json
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    with Watch(folder) as watch:
        while True:
            last = last_seq(folder)
            chosen = _chosen(folder, since, last, task, limit, decoded=decoded, first=first)
            _show(chosen, task, as_json)
            sys.stdout.flush()
            since, limit = max(last + 1, since or 1), None
            watch.wait(LOOK_EVERY)
            if any(event & select.POLLERR for _, event in output.poll(0)):
                raise BrokenPipeError


def _show(chosen: Iterable[Line], task: str | None, as_json: bool) -> int:
    """Show these lines; how many they were."""
    screen = Screen()
    shown = 0
    for line in chosen:
        shown += 1
        if as_json:
            sys.stdout.buffer.write(line.bytes)
            continue
        for one in moments(line.entry):
            name = getattr(one.event, "task", "")
            if task is None or name == task:
                about = f"{screen.cut(name, 24)}: " if name else ""
                screen.row(_row(screen, one, f"{about}{tell(one.event)}"))
        if not line.entry.events:
            screen.row(_row(screen, line.entry, tell_nothing(line.entry)))
    return shown


def _told(since: When | None, until: When | None) -> str:
    """The entries that were asked for, in words."""
    if since is not None and until is None and isinstance(since.before, int):
        return since.told
    words = (("since", since), ("until", until))
    return " ".join(f"{word} {one.told}" for word, one in words if one is not None)


def _row(screen: Screen, one: Moment | Entry, happened: str) -> str:
    """The line of one event. A terminal is told no year, and long names in short."""
    at = when(one.at)[5:-1] if screen.terminal else when(one.at)
    by = screen.cut(one.by or "-", 14)
    said = f" ({one.why})" if one.why else ""
    return f"{one.seq:>6}  {at}  {by:<8}  {one.do:<8}  {happened}{said}"


# history

COLUMNS = (
    Column("SEQ", right=True),
    Column("TIME"),
    Column("BY", gives=True),
    Column("DO"),
    Column("EVENT"),
)


@click.command(
    epilog=examples(
        "eventq history fetch --queue nightly",
        "eventq history fetch --queue nightly --json",
    )
)
@task_argument()
@queue_option
@json_option
def history(task: str, queue: Path, as_json: bool) -> None:
    """Tell all that has happened to TASK.

    Also when the queue has forgotten it. An id that was forgotten and enqueued again has had more
    than one life; they are told one after the other. Exits 3 for an id that was never enqueued; 6
    and 9 where a part of the log is archived or damaged, when what there is of it was told.

    --json: one object with task, forgotten, and lives: a list of lists of events, each with seq,
    at, by, do, why and the fields of the event as in the log; "started" has its lease too.
    """
    told, rest = lives_there(queue, task)
    if not told:
        if rest is not None:
            raise rest
        with WorkQueue.open(queue, read_only=True) as q:
            raise unknown(q.state, task, "tell the history of")
    if as_json:
        emit(
            {
                "task": task,
                "forgotten": told[-1].forgotten,
                "lives": [[moment_facts(one) for one in life.moments] for life in told],
            }
        )
    else:
        _show_lives(task, told)
    if rest is not None:
        raise rest


def _show_lives(task: str, told: list[Life]) -> None:
    screen = Screen()
    for number, life in enumerate(told, 1):
        if number > 1:
            screen.line()
        which = f", life {number} of {len(told)}" if len(told) > 1 else ""
        over = ", forgotten since" if life.forgotten else ""
        screen.line(f"{task}{which}: {counted(len(life.moments), 'event')}{over}", style="bold")
        screen.table(COLUMNS, map(_line, life.moments))


def _line(one: Moment) -> tuple[str, ...]:
    happened = tell(one.event)
    if isinstance(one.event, Started):
        happened += f", lease {one.seq}"
    if one.why:
        happened += f" ({one.why})"
    return str(one.seq), when(one.at), one.by or "-", one.do, happened
