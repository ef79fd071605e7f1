"""`eventq repair`: a copy of a damaged queue up to its damage, and what is lost behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eventq.cli.options import examples, json_option, log_of, queue_option, quoted
from eventq.cli.show import Screen, emit
from eventq.cli.wording import counted
from eventq.storage.repair import Lost, Repair, repair

__all__ = ["repair_command"]

SHOWN = 20
"""How many tasks are named, but in JSON."""


def _check_new(to: Path, queue: Path) -> None:
    """Nothing may stand there, and it must be outside of the queue."""
    if to.exists() or to.is_symlink():
        raise click.UsageError(f"{to} is there already: name a new directory for the copy")
    if to.resolve().is_relative_to(queue.resolve()):
        raise click.UsageError(f"{to} lies in the queue itself, which is not to be changed")


@click.command(
    "repair",
    epilog=examples(
        "eventq repair --queue nightly --to mended",
        "eventq repair --queue nightly --to mended --json",
    ),
)
@queue_option
@click.option(
    "--to",
    required=True,
    metavar="NEWDIR",
    type=click.Path(path_type=Path),
    help="The directory of the copy, which must not be there yet.",
)
@json_option
def repair_command(queue: Path, to: Path, as_json: bool) -> None:
    """Copy a damaged queue up to the damage, and say what is lost.

    The original is never changed. The copy holds all entries before the first thing that `verify`
    would call damaged, or that no rule allows: the same lines, so that a head kept from before the
    damage still proves them. It can be opened and written to at once. What is lost is told as far
    as it can be read: it is still there in the original.

    Where a snapshot is ahead of a log that lacks its end, the copy goes on without the snapshot.
    A queue that is not damaged is not copied. The exit code is 0 in both cases, 9 where nothing
    stands before the damage, 6 where the log could not be read or is that of a newer eventq.

    --json: one object with damaged, copy (its path or null), entries (how many were copied), head,
    fault, seq, what, file, line and byte (of the damage, or null), and of what is lost:
    lost_entries (at least so many), lost_last (the highest seq known), lost_lines, lost_bytes,
    lost_unreadable (lines that say nothing), lost_tasks (the tasks that it touched).
    """
    log_of(queue, begun=False)
    _check_new(to, queue)
    done = repair(queue, to)
    if as_json:
        emit(_facts(done, to))
    else:
        _show(Screen(), queue, to, done)


def _facts(done: Repair, to: Path) -> dict[str, Any]:
    problem, lost = done.problem, done.lost
    places = ("fault", "seq", "what", "file", "line", "byte")
    found = {name: getattr(problem, name, None) for name in places}
    return {
        "damaged": problem is not None,
        "copy": None if problem is None else str(to),
        "entries": done.head[0],
        "head": f"{done.head[0]}:{done.head[1]}",
        **found,
        "file": None if found["file"] is None else str(found["file"]),
        "lost_entries": lost.entries,
        "lost_last": lost.last,
        "lost_lines": lost.lines,
        "lost_bytes": lost.bytes,
        "lost_unreadable": lost.unreadable,
        "lost_tasks": list(lost.tasks),
    }


def _show(screen: Screen, queue: Path, to: Path, done: Repair) -> None:
    seq, digest = done.head
    if (problem := done.problem) is None:
        screen.line(f"not damaged: {counted(seq, 'entry', 'entries')}, head {seq}:{digest}")
        screen.line("nothing was copied")
        return
    where = "" if problem.file is None else f"{problem.file}, line {problem.line}: "
    what = problem.what.partition("\n")[0]
    screen.line(f"{problem.fault}  {where}where entry {problem.seq} should stand: {what}")
    screen.line(f"copied   {counted(seq, 'entry', 'entries')} to {to}, head {seq}:{digest}")
    screen.line(f"lost     {_told(done.lost)}")
    if tasks := done.lost.tasks:
        more = f" and {len(tasks) - SHOWN:,} more" if len(tasks) > SHOWN else ""
        screen.line(f"touched  {', '.join(tasks[:SHOWN])}{more}")
    screen.line(f"{queue} was not changed")
    screen.line()
    screen.line(f"next: eventq verify --queue {quoted(str(to))}")


def _told(lost: Lost) -> str:
    """How much is lost."""
    lines = f"{counted(lost.lines, 'line')}, {counted(lost.bytes, 'byte')}"
    unread = f", of them {lost.unreadable:,} that say nothing" if lost.unreadable else ""
    if not lost.entries:
        return f"no entry that can be told; {lines}{unread}"
    entries = counted(lost.entries, "entry", "entries")
    return f"at least {entries}, the last of them {lost.last}; {lines}{unread}"
