"""`eventq dlq`: the dead letters, grouped by error or one by one, and a check for a monitor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from eventq import DeadLetter, State, WorkQueue
from eventq.cli.exits import Exit
from eventq.cli.options import examples, json_option, log_of, queue_option, typed
from eventq.cli.past import entries_with
from eventq.cli.show import Column, Screen, emit, span, when
from eventq.cli.wording import counted
from eventq.core.events import Blocked, Died, Parked
from eventq.core.lifecycle import Status
from eventq.core.record import Record
from eventq.queries.condition import BadCondition, Condition, condition
from eventq.queries.history import latest
from eventq.queries.letters import Group, Letters, globbed, letters
from eventq.storage.codec import EVENTS
from eventq.storage.convert import moment
from eventq.storage.segments import find_segments

__all__ = ["dlq"]

S = Status

ENDS = Died, Blocked, Parked
COLUMNS = (
    Column("TASK", gives=True),
    Column("STATUS"),
    Column("SINCE"),
    Column("TRIES", right=True),
    Column("REASON"),
)
GROUPS = (
    Column("DEAD", right=True),
    Column("PARKED", right=True),
    Column("BLOCKED", right=True),
    Column("+1H", right=True),
    Column("OLDEST"),
    Column("NEWEST"),
    Column("ROOT", gives=True),
    Column("ERROR"),
)

NAMED = 80
"""How long an error may be that is told as a pattern to type."""


# One by one.


def _seqs(path: Path, names: Iterable[str]) -> dict[str, int]:
    """The entry in which each of these became a dead letter, from the log."""
    marks = [b'"type":"%b"' % EVENTS[kind].encode() for kind in ENDS]
    log = log_of(path)
    there = find_segments(log)[0]  # what was archived before is not looked for
    found = latest(entries_with(log, *marks, since=there), names, ENDS)
    return {name: died.seq for name, died in found.items()}


def _record(state: State, letter: DeadLetter) -> Record:
    record = state.record(letter.id)
    assert record is not None
    return record


def _facts(state: State, letter: DeadLetter, seq: int | None) -> dict[str, Any]:
    record = _record(state, letter)
    return {
        "task": letter.id,
        "status": letter.status,
        "reason": letter.reason,
        "root": letter.root,
        "error": record.error,
        "attempts": record.attempt,
        "redrives": record.redrives,
        "since": None if record.since is None else moment(record.since),
        "seq": seq,
    }


def _list(screen: Screen, state: State, queue: Path, as_json: bool) -> None:
    """The dead letters, and the parked ones apart, each in the order of death."""
    dead, parked = list(state.dead_letters()), list(state.parked())
    if as_json:
        names = [letter.id for letter in (*dead, *parked)]
        seqs = _seqs(queue, names) if names else {}
        emit(
            {
                "dead_letters": [_facts(state, one, seqs.get(one.id)) for one in dead],
                "parked": [_facts(state, one, seqs.get(one.id)) for one in parked],
            }
        )
        return
    _counts(screen, state)
    for listed in (dead, parked):
        if listed:
            screen.line()
            screen.table(COLUMNS, (_row(state, one) for one in listed))
    if first := next((one for one in (*dead, *parked) if one.root == one.id), None):
        screen.line()
        screen.line("next:")
        screen.line("  " + typed("history", first.id))
        screen.line("  " + typed("redrive", first.id, why=True))


def _counts(screen: Screen, state: State) -> None:
    screen.line(
        f"{counted(state.count(S.DEAD), 'task')} dead, {state.count(S.BLOCKED):,} blocked, "
        f"{state.count(S.PARKED):,} parked"
    )


def _row(state: State, letter: DeadLetter) -> tuple[str, ...]:
    record = _record(state, letter)
    return letter.id, letter.status, when(record.since), str(record.attempt), letter.reason


# Grouped.


def _first_root(group: Group) -> str:
    """The root of the group that blocks most; of those with as many, the oldest."""
    return max((*group.dead, *group.parked), key=lambda name: group.below.get(name, 0))


def _group_facts(group: Group) -> dict[str, Any]:
    roots = [*((name, S.DEAD) for name in group.dead), *((name, S.PARKED) for name in group.parked)]
    return {
        "shape": group.shape,
        "example": group.example,
        "count": group.count,
        "dead": len(group.dead),
        "parked": len(group.parked),
        "blocked": group.blocked,
        "growth": group.growth,
        "oldest": moment(group.oldest),
        "newest": moment(group.newest),
        "roots": [
            {"task": name, "status": status, "blocked": group.below.get(name, 0)}
            for name, status in roots
        ],
    }


def _numbers(found: Letters) -> dict[str, Any]:
    return {
        "total": found.total,
        "dead": found.dead,
        "blocked": found.blocked,
        "parked": found.parked,
        "growth": found.growth(),
        "oldest": found.oldest.total_seconds(),
    }


def _group_row(screen: Screen, now: datetime, group: Group) -> tuple[str, ...]:
    def told(at: datetime) -> str:
        """A terminal has room for the age alone."""
        return span(now - at) if screen.terminal else when(at)

    return (
        f"{len(group.dead):,}",
        f"{len(group.parked):,}",
        f"{group.blocked:,}",
        f"{group.growth:,}",
        told(group.oldest),
        told(group.newest),
        _first_root(group),
        group.shape,
    )


def _next(found: Letters) -> Iterator[str]:
    """What to type for the first group."""
    group = found.groups[0]
    yield typed("history", _first_root(group))
    if not group.dead or len(group.example) > NAMED:
        yield typed("dlq", more=["--list"])
    elif group.count == 1:
        yield typed("redrive", *group.dead, why=True)
    else:
        pattern = globbed(group.example)
        how = ["--how", "glob"] if pattern != group.example else []
        yield typed("redrive", more=[*how, f"--error={pattern}", "--dry-run"])


def _groups(screen: Screen, state: State, found: Letters, as_json: bool) -> None:
    if as_json:
        groups = [_group_facts(group) for group in found.groups]
        emit({**_numbers(found), "groups": groups, "under_cancelled": found.under_cancelled})
        return
    _counts(screen, state)
    if found.groups:
        screen.line()
        screen.table(GROUPS, (_group_row(screen, found.now, group) for group in found.groups))
    if found.under_cancelled:
        screen.line()
        many = counted(sum(found.under_cancelled.values()), "task")
        screen.line(f"{many} blocked by {counted(len(found.under_cancelled), 'cancelled task')}")
    if found.groups:
        screen.line()
        screen.line("next:")
        for line in _next(found):
            screen.line(f"  {line}")


# For a monitor.


def _condition(
    context: click.Context, option: click.Parameter, text: str | None
) -> Condition | None:
    if text is None:
        return None
    try:
        return condition(text)
    except BadCondition as error:
        raise click.BadParameter(str(error)) from None


def _check(screen: Screen, asked: Condition, found: Letters, as_json: bool) -> None:
    holds = asked.holds(found)
    if as_json:
        emit({"holds": holds, **_numbers(found)})
    else:
        screen.line(
            f"{'holds' if holds else 'does not hold'}: total {found.total:,}, dead {found.dead:,}, "
            f"blocked {found.blocked:,}, parked {found.parked:,}, growth {found.growth():,}/1h, "
            f"oldest {span(found.oldest)}"
        )
    if holds:
        click.get_current_context().exit(Exit.DEAD_LETTERS)


@click.command(
    epilog=examples(
        "eventq dlq --queue nightly",
        "eventq dlq --list --queue nightly",
        "eventq dlq --queue nightly --json | python3 -m json.tool",
        "eventq dlq --check 'growth > 20/1h or total > 500' --queue nightly",
        "eventq dlq --check 'dead > 9 and oldest > 2h' --queue nightly --json",
    )
)
@click.option("--list", "listed", is_flag=True, help="Each by itself, in the order of death.")
@click.option(
    "--check",
    "asked",
    metavar="CONDITION",
    callback=_condition,
    help="Exit 4 when this holds, 0 when not, 2 when it is none.",
)
@queue_option
@json_option
def dlq(listed: bool, asked: Condition | None, queue: Path, as_json: bool) -> None:
    """Group dead letters and parked tasks by what they died of.

    Errors that differ only in numbers, hex ids, uuids, addresses and quoted texts are one group.
    BLOCKED counts what waits below its roots, +1H what came to it within the last hour, and ROOT
    is the one that most wait for. Exits 0 whether there are any or not.

    CONDITION compares total, dead, blocked, parked, growth (what came and is still there: 20/1h,
    20/30m) and oldest (an age: 90s, 5m, 2h, 1d) by > >= < <= == != and joins with and, or and
    parentheses.

    --json: one object with total, dead, blocked, parked, growth (of the last hour), oldest
    (seconds), groups and under_cancelled (cancelled tasks, and how many each blocks); a group has
    shape, example (its newest error), count (dead and parked), dead, parked, blocked, growth,
    oldest, newest and roots (task, status, blocked). With --check: holds and the same numbers.
    With --list: the lists "dead_letters" and "parked"; each item has task, status (DEAD, BLOCKED,
    PARKED), reason, root, error, attempts, redrives, since and seq, the time and the entry of its
    death.
    """
    if listed and asked:
        raise click.UsageError("--list shows and --check judges: say one of them")
    with WorkQueue.open(queue, read_only=True) as q:
        state = q.state
    screen = Screen()
    if listed:
        _list(screen, state, queue, as_json)
        return
    now = datetime.now(UTC)
    found = letters(state, now if state.at is None else max(now, state.at))
    if asked is not None:
        _check(screen, asked, found, as_json)
    else:
        _groups(screen, state, found, as_json)
