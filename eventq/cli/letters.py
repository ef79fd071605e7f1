"""`eventq dlq`: the dead letters, and the parked ones apart, with reasons and when they died."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from eventq import DeadLetter, State, WorkQueue
from eventq.cli.options import examples, json_option, log_of, queue_option, typed
from eventq.cli.past import entries_with
from eventq.cli.show import Column, Screen, emit, when
from eventq.cli.wording import counted
from eventq.core.events import Blocked, Died, Parked
from eventq.core.lifecycle import Status
from eventq.queries.history import Moment, latest
from eventq.storage.codec import EVENTS
from eventq.storage.convert import moment

__all__ = ["dlq"]

ENDS = Died, Blocked, Parked
COLUMNS = (
    Column("TASK", gives=True),
    Column("STATUS"),
    Column("SINCE"),
    Column("TRIES", right=True),
    Column("REASON", gives=True),
)


def _died(path: Path, names: Iterable[str]) -> dict[str, Moment]:
    """The moment at which each of these became a dead letter, from the log."""
    marks = [b'"type":"%b"' % EVENTS[kind].encode() for kind in ENDS]
    return latest(entries_with(log_of(path), *marks), names, ENDS)


def _facts(state: State, letter: DeadLetter, died: Moment | None) -> dict[str, Any]:
    record = state.record(letter.id)
    assert record is not None
    return {
        "task": letter.id,
        "status": letter.status,
        "reason": letter.reason,
        "root": letter.root,
        "error": record.error,
        "attempts": record.attempt,
        "redrives": record.redrives,
        "since": None if died is None else moment(died.at),
        "seq": None if died is None else died.seq,
    }


@click.command(
    epilog=examples(
        "eventq dlq --queue nightly",
        "eventq dlq --queue nightly --json | python3 -m json.tool",
    )
)
@queue_option
@json_option
def dlq(queue: Path, as_json: bool) -> None:
    """List the dead letters and the parked tasks, with reasons.

    Each list is in the order of death. Exits 0 whether there are any or not.

    --json: one object with the lists "dead_letters" and "parked"; each item has task, status
    (DEAD, BLOCKED, PARKED), reason, root, error, attempts, redrives, since and seq, the time and
    the entry of its death.
    """
    with WorkQueue.open(queue, read_only=True) as q:
        state = q.state
    letters, parked = list(state.dead_letters()), list(state.parked())
    names = [letter.id for letter in (*letters, *parked)]
    died = _died(queue, names) if names else {}
    if as_json:
        emit(
            {
                "dead_letters": [_facts(state, one, died.get(one.id)) for one in letters],
                "parked": [_facts(state, one, died.get(one.id)) for one in parked],
            }
        )
        return
    screen = Screen()
    dead = state.count(Status.DEAD)
    screen.line(
        f"{counted(dead, 'task')} dead, {state.count(Status.BLOCKED):,} blocked, "
        f"{len(parked):,} parked"
    )
    for listed in (letters, parked):
        if listed:
            screen.line()
            screen.table(COLUMNS, (_row(state, one, died.get(one.id)) for one in listed))
    if first := next((one for one in (*letters, *parked) if one.root == one.id), None):
        screen.line()
        screen.line("next:")
        screen.line("  " + typed("history", first.id))
        screen.line("  " + typed("redrive", first.id, why=True))


def _row(state: State, letter: DeadLetter, died: Moment | None) -> tuple[str, ...]:
    record = state.record(letter.id)
    assert record is not None
    since = "" if died is None else when(died.at)
    return letter.id, letter.status, since, str(record.attempt), letter.reason
