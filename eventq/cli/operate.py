"""The operators' commands on tasks and on the whole queue. Each but `tick` says why, in the log."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from eventq import Refusal, Status, Task, UnknownTask, WorkQueue
from eventq.cli.exits import Exit, complain
from eventq.cli.options import (
    UNFINISHED,
    by_option,
    examples,
    json_option,
    log_of,
    operator,
    queue_option,
    task_argument,
    unknown,
    why_option,
)
from eventq.cli.show import Screen, emit
from eventq.core.events import Died, Event, Expired, Forgotten, Parked, Readied

__all__ = [
    "cancel",
    "close",
    "open_queue",
    "pause",
    "reject",
    "reopen",
    "resolve",
    "restore",
    "resume",
    "tick",
]

S = Status


def open_queue(queue: Path, by: str | None) -> WorkQueue:
    """The queue for writing; one that is not there is not made."""
    log_of(queue)
    return WorkQueue.open(queue, by=operator() if by is None else by)


def _each(
    q: WorkQueue, asked: str, do: Callable[[str], Task], tasks: tuple[str, ...], as_json: bool
) -> None:
    """Do it to each of these tasks, and say of each what became of it."""
    screen = Screen()
    refused = False
    for name in dict.fromkeys(tasks):
        try:
            task = do(name)
        except Refusal as error:
            refused = True
            sys.stdout.flush()
            if isinstance(error, UnknownTask):
                complain(unknown(q.state, name, asked), as_json=as_json)
            else:
                complain(error, as_json=as_json)
        else:
            if as_json:
                emit({"task": task.id, "status": task.status})
            else:
                screen.line(f"{task.id} is {task.status} now")
    if refused:
        reject()


def reject() -> NoReturn:
    """End the command: something was refused, and told."""
    click.get_current_context().exit(Exit.REFUSED)


@click.command(
    epilog=examples(
        'eventq resolve fetch --queue nightly --why "copied by hand"',
    )
)
@task_argument("tasks", many=True, among=(S.DEAD, S.PARKED, S.CANCELLED))
@why_option
@by_option
@queue_option
@json_option
def resolve(tasks: tuple[str, ...], why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Say that a person did DEAD, PARKED or CANCELLED tasks by hand.

    They have succeeded then, without a result, and what needs them goes on. Exits 3 if any was
    refused; the others are resolved all the same.

    --json: for each task resolved a line with task and its new status; for each one refused an
    error on stderr.
    """
    with open_queue(queue, by) as q:
        _each(q, "resolve", lambda name: q.resolve(name, why=why), tasks, as_json)


@click.command(
    epilog=examples(
        'eventq cancel parse --queue nightly --why "not needed any more"',
        'eventq cancel report fetch --queue nightly --why "not needed" --by alice',
    )
)
@task_argument("tasks", many=True, among=UNFINISHED)
@why_option
@by_option
@queue_option
@json_option
def cancel(tasks: tuple[str, ...], why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Take unfinished tasks out of the work.

    What needs them is blocked. A running one is taken too: its worker is told when it comes back,
    and its work is not recorded. Exits 3 if any was refused; the others are cancelled all the same.

    --json: for each task cancelled a line with task and its new status; for each one refused an
    error on stderr.
    """
    with open_queue(queue, by) as q:
        _each(q, "cancel", lambda name: q.cancel(name, why=why), tasks, as_json)


@click.command(
    epilog=examples(
        'eventq cancel parse --queue nightly --why "not needed any more"',
        'eventq restore parse --queue nightly --why "needed after all"',
    )
)
@task_argument("tasks", many=True, among=(S.CANCELLED,))
@why_option
@by_option
@queue_option
@json_option
def restore(tasks: tuple[str, ...], why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Bring CANCELLED tasks back, with fresh attempts.

    Exits 3 if any was refused; the others are restored all the same.

    --json: for each task restored a line with task and its new status; for each one refused an
    error on stderr.
    """
    with open_queue(queue, by) as q:
        _each(q, "restore", lambda name: q.restore(name, why=why), tasks, as_json)


def _switch(q: WorkQueue, part: str, do: Callable[[], None], word: str, as_json: bool) -> None:
    """Close or pause, or the way back, and say whether it was so already."""
    before = getattr(q.state, part)
    do()
    after = getattr(q.state, part)
    changed = before != after
    if as_json:
        emit({part: after, "changed": changed})
    else:
        already = "" if changed else " already"
        Screen().line(f"the queue {'is' if changed else 'was'} {word}{already}")


@click.command(epilog=examples('eventq close --queue nightly --why "we move to another machine"'))
@why_option
@by_option
@queue_option
@json_option
def close(why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Admit no new tasks; what was admitted drains. Closing twice is harmless.

    --json: one object with admission ("closed") and changed.
    """
    with open_queue(queue, by) as q:
        _switch(q, "admission", lambda: q.close(why=why), "closed to new tasks", as_json)


@click.command(
    epilog=examples(
        'eventq close --queue nightly --why "we move to another machine"',
        'eventq reopen --queue nightly --why "we have moved"',
    )
)
@why_option
@by_option
@queue_option
@json_option
def reopen(why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Admit new tasks again. Reopening twice is harmless.

    --json: one object with admission ("open") and changed.
    """
    with open_queue(queue, by) as q:
        _switch(q, "admission", lambda: q.reopen(why=why), "open to new tasks", as_json)


@click.command(epilog=examples('eventq pause --queue nightly --why "the server is down"'))
@why_option
@by_option
@queue_option
@json_option
def pause(why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Hand nothing out; what is due goes on, and what runs may end. Pausing twice is harmless.

    --json: one object with dispatch ("paused") and changed.
    """
    with open_queue(queue, by) as q:
        _switch(q, "dispatch", lambda: q.pause(why=why), "paused: it hands nothing out", as_json)


@click.command(
    epilog=examples(
        'eventq pause --queue nightly --why "the server is down"',
        'eventq resume --queue nightly --why "the server is back"',
    )
)
@why_option
@by_option
@queue_option
@json_option
def resume(why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Hand out again. Resuming twice is harmless.

    --json: one object with dispatch ("running") and changed.
    """
    with open_queue(queue, by) as q:
        _switch(q, "dispatch", lambda: q.resume(why=why), "running: it hands out", as_json)


@click.command(
    epilog=examples("eventq tick --queue nightly", "eventq tick --queue nightly --by cron")
)
@by_option
@queue_option
@json_option
def tick(by: str | None, queue: Path, as_json: bool) -> None:
    """Carry out all that is due: leases that ran out, delays that ended, retention.

    A worker that asks for a task does so too; this is for a queue that nobody asks. Where nothing
    is due nothing is written.

    --json: one object with entries (how many were written), expired, readied (delays that ended),
    dead, parked and forgotten: how many tasks.
    """
    told: Counter[type[Event]] = Counter()
    entries = 0
    with open_queue(queue, by) as q:
        while True:
            before = q.state.seq
            q.tick()
            found = [entry for entry in q.entries(before + 1) if entry.do == "tick"]
            if not found:
                break
            entries += len(found)
            for entry in found:
                expired = {e.task for e in entry.events if isinstance(e, Expired)}
                told.update(
                    type(event)
                    for event in entry.events
                    if not (isinstance(event, Readied) and event.task in expired)
                )
    number = {name: told[kind] for name, kind in TICKED.items()}
    if as_json:
        emit({"entries": entries, **number})
        return
    said = [f"{many:,} {name}" for name, many in number.items() if many]
    Screen().line(", ".join(said) or "nothing is due")


TICKED: dict[str, type[Event]] = {
    "expired": Expired,
    "readied": Readied,
    "dead": Died,
    "parked": Parked,
    "forgotten": Forgotten,
}
"""What a tick tells of, by the word for it."""
