"""`eventq redrive`: dead letters get fresh attempts, one by one or in bulk, planned beforehand.

What would happen is found by `queries.plan`; here it is told, saved, read again and carried out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import cattrs
import click

from eventq import Refusal, Select, State, Status, UnknownTask, WorkQueue, WrongStatus
from eventq.cli.exits import Drifted, complain
from eventq.cli.given import read_given
from eventq.cli.operate import open_queue, reject
from eventq.cli.options import (
    AGE,
    by_option,
    examples,
    json_option,
    log_of,
    queue_option,
    said,
    task_argument,
    unknown,
)
from eventq.cli.show import Screen, emit, when
from eventq.cli.wording import counted
from eventq.core.errors import BadValue
from eventq.core.select import How
from eventq.queries.plan import Plan, drift, plan, plan_alone, refusals, roots_of
from eventq.storage.convert import moment, structure, unstructure

__all__ = ["redrive"]

S = Status

VERSION = 1
"""The version of a saved plan."""

ALONE = "look at it, then redrive it by naming it alone"
"""What a person does with a PARKED task."""

MOST = 20
"""How many tasks of each kind a terminal is told of; the rest is counted."""


def _now(state: State) -> datetime:
    """The time, never before that of the last entry."""
    now = datetime.now(UTC)
    return now if state.at is None else max(now, state.at)


# A plan in a file.


def _save(made: Plan, path: Path) -> None:
    facts = {"plan": "redrive", "v": VERSION, **unstructure(made)}
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        error.filename = str(path)  # which a failed write does not say
        raise


def _check_free(path: Path, queue: Path) -> None:
    """What is saved there may take the place of nothing but an earlier plan, and is no file of the
    queue."""
    if path.resolve().is_relative_to(queue.resolve()):
        raise click.UsageError(f"{path} lies in the queue itself: name a file elsewhere")
    if not path.exists() or not path.stat().st_size:
        return
    try:
        _load(path)
    except click.UsageError:
        raise click.UsageError(
            f"{path} is there already, and is no plan that would be replaced: name a new file"
        ) from None


def _load(path: Path) -> Plan:
    try:
        facts = json.loads(read_given(path))
        if facts.pop("plan") != "redrive" or facts.pop("v") != VERSION:
            raise ValueError("of another kind or version")
        return structure(facts, Plan)
    except (
        cattrs.BaseValidationError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        raise click.UsageError(f"{path} is no plan that `eventq redrive --save` has made") from None


# Telling.


def _told(made: Plan, state: State) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Of each task of the plan: its id, what becomes of it, in words, and its facts."""

    def facts(name: str, outcome: str, root: str | None = None) -> dict[str, Any]:
        record = state.record(name)
        status = None if record is None else record.status
        return {"task": name, "status": status, "outcome": outcome, "root": root}

    for one in made.redriven:
        fact = facts(one.task, "redriven")
        yield "redriven", one.task, f"is {fact['status']} now", fact
    for name in made.unblocked:
        fact = facts(name, "unblocked")
        yield "unblocked", name, f"is unblocked: {fact['status']} now", fact
    for held in made.blocked:
        fact = facts(held.task, "blocked", held.root)
        yield "blocked", held.task, f"stays blocked by {held.root}", fact
    for name in made.parked:
        yield "parked", name, f"is parked and left alone: {ALONE}", facts(name, "parked")


def _sum(made: Plan) -> str:
    return (
        f"{counted(made.selected, 'task')}: {len(made.redriven):,} redriven, "
        f"{len(made.unblocked):,} unblocked, {len(made.blocked):,} blocked still, "
        f"{len(made.parked):,} parked"
    )


def _lines(screen: Screen, lines: Iterable[tuple[str, str]]) -> None:
    """A line for each task; a terminal is told of the first of each kind, and how many more."""
    number: dict[str, int] = {}
    for kind, line in lines:
        number[kind] = number.get(kind, 0) + 1
        if not screen.terminal or number[kind] <= MOST:
            screen.row(line)
    for kind, many in number.items():
        if screen.terminal and many > MOST:
            screen.line(f"and {many - MOST:,} more {kind}")


WOULD = {
    "redriven": "would run",
    "unblocked": "would be unblocked",
    "blocked": "would stay blocked by {root}",
    "parked": f"is parked and would be left alone: {ALONE}",
}


def _show_plan(made: Plan, state: State, saved: Path | None, as_json: bool) -> None:
    """What would happen."""
    if as_json:
        emit(
            {
                "seq": made.seq,
                "selected": made.selected,
                "redriven": [
                    {"task": one.task, "error": one.error, "since": moment(one.since)}
                    for one in made.redriven
                ],
                "unblocked": list(made.unblocked),
                "blocked": [{"task": one.task, "root": one.root} for one in made.blocked],
                "parked": list(made.parked),
                "saved": None if saved is None else str(saved),
            }
        )
        return
    screen = Screen()
    errors = {one.task: f": {one.error} ({when(one.since)})" for one in made.redriven}

    def line(kind: str, name: str, fact: dict[str, Any]) -> tuple[str, str]:
        would = WOULD[kind].format(root=fact["root"])
        return kind, f"{name} {would}{errors.get(name, '')}"

    _lines(screen, (line(kind, name, fact) for kind, name, _, fact in _told(made, state)))
    screen.line(f"nothing is done yet; {_sum(made)}")
    if saved is not None:
        screen.line(f"the plan is in {saved}")


def _nothing(state: State, error: str | None, how: How | None) -> str:
    """Why nothing was selected."""
    dead = counted(state.count(S.DEAD), "dead task")
    if not state.count(S.DEAD):
        return "no task is dead"
    exactly = error is not None and how in (None, "exact")
    if exactly and all(record.error != error for record in state.dead()):
        return f"of {dead}, none has exactly this error: try --how glob, with * for what differs"
    return f"of {dead}, none is meant"


def _show_done(made: Plan, state: State, as_json: bool) -> None:
    """What has become of each."""
    if as_json:
        for *_, fact in _told(made, state):
            emit(fact)
        return
    screen = Screen()
    _lines(screen, ((kind, f"{name} {said}") for kind, name, said, _ in _told(made, state)))
    if not made.alone:
        screen.line(_sum(made))


def _complain(found: Iterable[Refusal], state: State, as_json: bool) -> None:
    sys.stdout.flush()
    for error in found:
        if isinstance(error, UnknownTask):
            error = unknown(state, error.task, "redrive")
        complain(error, as_json=as_json)


# Carrying out.


def _record(q: WorkQueue, refused: Iterable[Refusal], why: str) -> None:
    """Ask for what is refused, so that the log has it too."""
    for error in refused:
        if isinstance(error, UnknownTask | WrongStatus):
            with suppress(Refusal):
                q.redrive(error.task, why=why)


def _carry_out(q: WorkQueue, made: Plan, why: str) -> None:
    """Redrive what the plan says, in one entry."""
    if made.alone:
        q.redrive(made.redriven[0].task, why=why)
    elif made.redriven:
        q.redrive_all(made.select, why=why)


def _choose(
    state: State,
    tasks: tuple[str, ...],
    roots: tuple[str, ...],
    options: dict[str, Any],
) -> tuple[Plan, list[Refusal]]:
    """The plan for what was asked, and why what was named besides is not in it."""
    at = _now(state)
    if len(tasks) == 1 and not roots and not options:
        try:
            return plan_alone(state, tasks[0], at), []
        except Refusal as error:
            return plan(state, Select(tasks=()), at), [error]
    named: list[str] | None = list(tasks) if tasks else None
    for root in roots:
        if root not in state:
            raise unknown(state, root, "redrive the roots of")
        named = [*(named or []), *roots_of(state, root)]
    asked = Select(tasks=named, **_times(options, at))
    made = plan(state, asked, at)
    return made, [] if options else refusals(state, made, named or [], at)


def _times(options: dict[str, Any], at: datetime) -> dict[str, Any]:
    """The options of a selection, with ages as times."""

    def before(age: timedelta) -> datetime:
        try:
            return at - age
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)

    return {
        name: before(value) if isinstance(value, timedelta) else value
        for name, value in options.items()
    }


@click.command(
    epilog=examples(
        "eventq redrive --all --queue nightly --dry-run",
        "eventq redrive --error 'HTTP 5*' --how glob --queue nightly --save plan.json",
        'eventq redrive --apply plan.json --queue nightly --why "the server is back"',
        "eventq redrive --all --older-than 1h --limit 100 --queue nightly --dry-run",
        "eventq redrive --root report --queue nightly --dry-run --json",
    )
)
@task_argument("tasks", many=True, required=False, among=(S.DEAD, S.PARKED))
@click.option("--all", "every", is_flag=True, help="Every task that is DEAD.")
@click.option("--error", metavar="TEXT", help="Those whose last error is this.")
@click.option(
    "--how",
    type=click.Choice(["exact", "prefix", "glob", "regex"]),
    help="How --error is compared.  [default: exact]",
)
@click.option("--older-than", type=AGE, metavar="AGE", help="Dead for longer: 30s, 5m, 2h, 1d.")
@click.option("--newer-than", type=AGE, metavar="AGE", help="Dead for at most this long.")
@click.option(
    "--root", "roots", multiple=True, metavar="TASK", help="Whatever DEAD task blocks TASK."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The N oldest of these.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and do nothing.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the plan, and do nothing. Only a plan is written over.",
)
@click.option(
    "--apply",
    "saved",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Carry out a saved plan, if it still fits.",
)
@click.option("--why", metavar="TEXT", callback=said, help="Why, for the log.")
@by_option
@queue_option
@json_option
def redrive(
    tasks: tuple[str, ...],
    every: bool,
    error: str | None,
    how: How | None,
    older_than: timedelta | None,
    newer_than: timedelta | None,
    roots: tuple[str, ...],
    limit: int | None,
    dry_run: bool,
    save: Path | None,
    saved: Path | None,
    why: str | None,
    by: str | None,
    queue: Path,
    as_json: bool,
) -> None:
    """Give DEAD tasks fresh attempts.

    Name them, or select them: what is told must all hold. What they blocked waits for them again,
    unless something else blocks it. PARKED tasks are left alone and told, but for one that is
    named alone. All that is selected is one entry of the log, of the very tasks that were found.
    Exits 3 if any task that was named was refused; the others are redriven all the same.

    A saved plan is refused (3) when one of its tasks is not dead any more or died anew, or when
    other tasks than then would become unblocked. --dry-run and --save need no --why.

    --json: for each task a line with task, status (after it), outcome (redriven, unblocked,
    blocked, parked) and root, which keeps it blocked; for each one refused an error on stderr.
    With --dry-run or --save: one object with seq, selected (how many), redriven (task, error,
    since), unblocked, blocked (task, root), parked and saved (the file).
    """
    given = {
        "error": error,
        "how": how,
        "died_before": older_than,
        "died_since": newer_than,
        "limit": limit,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if saved is not None and (tasks or every or roots or options or save):
        raise click.UsageError("--apply does what the plan says: nothing can be selected with it")
    if every and (tasks or roots):
        raise click.UsageError("--all means every task: name none with it")
    if saved is None and not (tasks or every or roots or options.keys() - {"how", "limit"}):
        raise click.UsageError(
            "name the tasks to redrive, or say --all or what they have in common"
        )
    if how is not None and error is None:
        raise click.UsageError("--how says how --error is compared: it goes with it")
    if save is not None:
        _check_free(save, queue)
    planned = dry_run or save is not None
    if why is None and not planned:
        raise click.UsageError("Missing option '--why'.")
    log_of(queue)
    loaded = None if saved is None else _load(saved)
    with WorkQueue.open(queue, read_only=True) if planned else open_queue(queue, by) as q:
        refused: list[Refusal] = []
        # What a plan is held against stays so until it is carried out.
        with nullcontext() if planned else q.alone():
            state = q.state
            if loaded is not None:
                made = loaded
                if changes := drift(made, state, _now(state)):
                    raise Drifted(changes)
            else:
                try:
                    made, refused = _choose(state, tasks, roots, options)
                except BadValue as wrong:
                    raise click.UsageError(str(wrong)) from None
            if why is not None and not planned:
                if q.policy.record:
                    _record(q, refused, why)
                _carry_out(q, made, why)
            after = q.state
        if save is not None:
            _save(made, save)
        if not made.selected and not refused and not as_json:
            Screen().line(_nothing(state, error, how))
        if planned and (made.selected or as_json or save):
            _show_plan(made, state, save, as_json)
        elif made.selected:
            _show_done(made, after, as_json)
        if refused:
            _complain(refused, state, as_json)
            reject()
