"""`eventq status` and `eventq at`: how a queue stands now, and how it stood after any entry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

from eventq import Lease, State, Status, Task, WorkQueue
from eventq.cli.exits import NoSuchEntry
from eventq.cli.holders import endless
from eventq.cli.options import (
    examples,
    json_option,
    log_of,
    queue_option,
    task_argument,
    typed,
    unknown,
)
from eventq.cli.show import Column, Screen, ago, emit, span, when
from eventq.cli.standing import Standing, standing
from eventq.cli.times import When, WhenType
from eventq.cli.waiting import delayed_facts, delayed_words, key_facts, show_keys, shut_keys
from eventq.cli.wording import counted, policy_words
from eventq.core.record import DeadLetter, Record
from eventq.storage.archived import away
from eventq.storage.convert import moment, unstructure
from eventq.storage.lines import last_seq, lines
from eventq.storage.replaying import state_after
from eventq.storage.segments import find_segments

__all__ = ["at", "state_at", "status"]

S = Status

MOST = 10
"""How many of each kind are named; the rest is counted."""


def state_at(path: Path, then: When) -> State:
    """The state of the queue at this path, as it stood then. Raises NoSuchEntry.

    Nothing behind the entry is read, so a damaged log answers up to its damage.
    """
    folder = log_of(path)
    seq = then.until(folder)
    state = state_after(path, seq)
    if state.seq != seq:
        raise NoSuchEntry(seq, last_seq(folder))
    return state


def _begun(path: Path, leases: Iterable[Lease]) -> dict[int, datetime]:
    """When each of these leases was given: the time of the entry with its number."""
    folder = log_of(path)
    there = find_segments(folder)[0]
    return {
        lease.id: line.entry.at
        for lease in leases
        if lease.id >= there  # else it is archived
        for line in islice(lines(folder, lease.id, lambda _: True), 1)
    }


# As JSON.


def _queue_facts(state: State, now: Standing) -> dict[str, Any]:
    def ids(letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
        return [{"task": one.id, "reason": one.reason} for one in letters]

    return {
        "queue": state.queue,
        "seq": state.seq,
        "at": None if state.at is None else moment(state.at),
        "admission": state.admission,
        "dispatch": state.dispatch,
        "delayed": delayed_facts(state),
        "keys": key_facts(state),
        "policy": unstructure(state.policy),
        "counts": {status.value: number for status, number in now.counts.items()},
        "dead": ids(now.dead),
        "parked": ids(now.parked),
        "blocked": now.blocked,
        "cancelled": list(now.cancelled),
        "missing": now.missing,
    }


def _running_facts(lease: Lease, begun: datetime | None, clock: datetime | None) -> dict[str, Any]:
    return {
        "lease": lease.id,
        "task": lease.task,
        "worker": lease.worker,
        "attempt": lease.attempt,
        "expires": None if lease.expires is None else moment(lease.expires),
        "since": None if begun is None else moment(begun),
        "age": None if begun is None or clock is None else (clock - begun).total_seconds(),
    }


# As text.


def _show_queue(
    screen: Screen,
    state: State,
    now: Standing,
    more: list[tuple[str, str]],
    clock: datetime | None = None,
) -> None:
    total = sum(now.counts.values())
    each = ", ".join(f"{number:,} {status}" for status, number in now.counts.items() if number)
    admits = "admitted" if state.admission == "open" else "not admitted: the queue is closed"
    paused = "nothing: the queue is paused" if state.dispatch == "paused" else ""
    screen.fields(
        [
            ("tasks", f"{total:,}: {each}" if each else "none"),
            ("new tasks", admits),
            ("hands out", paused),
            ("delayed", delayed_words(state, clock)),
            ("policy", policy_words(state.policy)),
            *more,
            ("queue", state.queue),
        ]
    )


def _by_hand(state: State, now: Standing) -> Iterator[tuple[str, str, str]]:
    """What nothing but a person can move: the task, what hangs on it, and why it does not move."""
    shut = shut_keys(state)

    def held_up(root: str) -> str:
        """A task with several roots counts below the first alone, but hangs on each of them."""
        below = now.blocked.get(root) or [
            one.task.task for one in state.dependents(root) if one.status is S.BLOCKED
        ]
        return "; ".join(filter(None, (_some(below), shut.get(root))))

    for one in (*now.dead, *now.parked):
        what = "dead" if one.status is S.DEAD else "parked"
        yield one.id, held_up(one.id), f"{what}: {one.reason}"
    for name in now.cancelled:
        yield name, held_up(name), "cancelled, though others need it"
    for name, waiting in now.missing.items():
        yield name, _some(waiting), "nobody has enqueued it"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 2:,} more" if len(names) > 3 else ""
    return ", ".join(names[: 2 if more else 3]) + more


def _show_by_hand(screen: Screen, state: State, now: Standing) -> None:
    rows = list(_by_hand(state, now))
    if not rows:
        return
    waiting = now.missing.values()
    screen.line()
    screen.line("only a person can move:", style="bold")
    columns = Column("TASK", gives=True), Column("HOLDS UP", gives=True), Column("WHY")
    screen.table(columns, rows[:MOST])
    if len(rows) > MOST:
        screen.line(f"and {len(rows) - MOST:,} more: {typed('dlq')}")
    screen.line()
    stuck = rows[0][0] if now.dead or now.parked or now.cancelled else next(iter(waiting))[0]
    screen.line("next: " + typed("why", stuck))


@click.command(
    epilog=examples(
        "eventq status --queue nightly",
        "EVENTQ_QUEUE=nightly eventq status",
        "eventq status --queue nightly --json | python3 -m json.tool",
    )
)
@queue_option
@json_option
def status(queue: Path, as_json: bool) -> None:
    """Show how the queue stands, and what only a person can move.

    Exits 0 whatever it shows.

    --json: one object with queue (its id), seq, head (SEQ:HASH), at (the time of the last entry),
    archived (how many entries at the beginning of the log are), clock_behind (seconds), admission,
    dispatch, delayed (count; next, the time when the first of them, task, is due), keys (those
    held: key, task, status, shut, waiting), policy, counts, running (lease, task, worker, attempt,
    expires, since, age in seconds), dead and parked (task, reason), blocked (by root), cancelled
    (those that others need) and missing (ids that nobody has enqueued, and what needs them).
    """
    with WorkQueue.open(queue, read_only=True) as q:
        state, head = q.state, q.head
        while head[0] != state.seq:  # somebody wrote in between
            state, head = q.state, q.head
        behind = q.clock_behind
    now = standing(state)
    begun = _begun(queue, now.elsewhere)
    gone = max((one.last for one in away(queue / "log")), default=0)
    clock = datetime.now(UTC)
    if as_json:
        facts = _queue_facts(state, now)
        facts["head"] = f"{head[0]}:{head[1]}"
        facts["archived"] = gone
        facts["clock_behind"] = behind.total_seconds()
        facts["running"] = [_running_facts(one, begun.get(one.id), clock) for one in now.elsewhere]
        emit(facts)
        return
    screen = Screen()
    assert state.at is not None
    last = f"{counted(state.seq, 'entry', 'entries')}, the last {ago(state.at, clock)}"
    off = f"{span(behind)} behind the last entry" if behind else ""
    _show_queue(
        screen,
        state,
        now,
        [
            ("log", f"{last} ({when(state.at)})"),
            ("head", f"{head[0]}:{head[1]}"),
            ("archived", f"entries 1 to {gone:,}: eventq unarchive brings them back" * bool(gone)),
            ("clock off", off),
        ],
        clock,
    )
    if now.elsewhere:
        screen.line()
        screen.table(
            [
                Column("RUNNING", gives=True),
                Column("LEASE", right=True),
                Column("TRY", right=True),
                Column("WORKER", gives=True),
                Column("FOR"),
                Column("EXPIRES"),
            ],
            [_running_row(one, begun.get(one.id), clock) for one in now.elsewhere],
        )
        for lease in endless(now.elsewhere)[:1]:
            why = typed("why", lease.task)
            screen.line(f"if whoever holds what never expires is gone: {why}")
    show_keys(screen, state)
    _show_by_hand(screen, state, now)


def _running_row(lease: Lease, begun: datetime | None, clock: datetime) -> tuple[str, ...]:
    worker = "-" if lease.worker is None else str(lease.worker)
    expires = "never" if lease.expires is None else ago(lease.expires, clock)
    number, attempt = str(lease.id), str(lease.attempt)
    return (
        lease.task,
        number,
        attempt,
        worker,
        "-" if begun is None else span(clock - begun),
        expires,
    )


TASKS = (
    Column("TASK", gives=True),
    Column("STATUS"),
    Column("TRIES", right=True),
    Column("AFTER", gives=True),
    Column("MORE"),
)


def _task_row(state: State, record: Record) -> tuple[str, ...]:
    task = record.task
    limit = "" if task.max_attempts is None else f"/{task.max_attempts}"
    more = state.reason(task.task) or record.error or ""
    if record.lease is not None:
        worker = "" if record.worker is None else f", {record.worker}"
        ends = "" if record.expires is None else f", until {when(record.expires)}"
        more = f"lease {record.lease}{worker}{ends}"
    elif record.until is not None:
        more = f"until {when(record.until)}{f': {more}' if more else ''}"
    tries = f"{record.attempt}{limit}"
    return task.task, record.status, tries, ", ".join(task.after), more


@click.command(
    epilog=examples(
        "eventq at 3 --queue nightly",
        "eventq at 3 fetch --queue nightly",
        "eventq at '2026-11-30 15:31:49Z' --queue nightly",
        "eventq at 10m --queue nightly",
        "eventq at 3 --queue nightly --json | python3 -m json.tool",
    )
)
@click.argument("then", type=WhenType(0), metavar="WHEN")
@task_argument(required=False)
@queue_option
@json_option
def at(then: When, task: str | None, queue: Path, as_json: bool) -> None:
    """Show the queue, or one TASK, as it stood at any moment.

    WHEN is the seq of an entry (0 is before the first), or a time (UTC, unless it names its zone),
    or how long ago: 90s, 10m, 2h, 1d. Exits 3 when the log has no such entry, or the queue then
    had no such task.

    --json: one object with the fields of `status --json`, less head, clock_behind, since and age,
    and tasks: a list of all tasks, each with id, payload, after, key, status, attempt,
    max_attempts, not_before, redrives, releases, place, until, lease, error, result and ended.
    With TASK: that one alone.
    """
    state = state_at(queue, then)
    if task is not None:
        _show_task(state, task, as_json)
        return
    now = standing(state)
    if as_json:
        facts = _queue_facts(state, now)
        facts["running"] = [_running_facts(one, None, None) for one in now.elsewhere]
        facts["tasks"] = [unstructure(one) for one in state.tasks()]
        emit(facts)
        return
    screen = Screen()
    place = f"entry {state.seq:,} ({when(state.at)})" if state.seq else "before the first entry"
    _show_queue(screen, state, now, [("log", place)])
    if len(state):
        screen.line()
        screen.table(TASKS, (_task_row(state, record) for record in state.in_order()))
    show_keys(screen, state)


def _show_task(state: State, name: str, as_json: bool) -> None:
    task = state.task(name)
    if task is None:
        raise unknown(state, name, f"show, after entry {state.seq},")
    if as_json:
        emit(unstructure(task))
        return
    Screen().fields(_task_fields(state, task))


def _task_fields(state: State, task: Task) -> Iterator[tuple[str, str]]:
    limit = "" if task.max_attempts is None else f" of {task.max_attempts}"
    yield "task", task.id
    yield "status", task.status
    yield "reason", state.reason(task.id) or ""
    yield "after", ", ".join(task.after)
    yield "key", task.key or ""
    yield "attempt", f"{task.attempt}{limit}"
    yield "redrives", str(task.redrives or "")
    yield "releases", str(task.releases or "")
    yield "place", str(task.place or "")
    yield "until", when(task.until)
    yield "lease", str(task.lease or "")
    yield "error", task.error or ""
    yield "ended", when(task.ended)
    for name, value in (("payload", task.payload), ("result", task.result)):
        yield name, "" if value is None else json.dumps(value, ensure_ascii=False)
