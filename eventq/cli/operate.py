"""The operators' commands: redrive, cancel, restore, close, reopen. Each says why, in the log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

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

__all__ = ["cancel", "close", "redrive", "reopen", "restore"]

S = Status


def _open(queue: Path, by: str | None) -> WorkQueue:
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
        click.get_current_context().exit(Exit.REFUSED)


@click.command(
    epilog=examples(
        'eventq redrive fetch --queue nightly --why "the server is back"',
        'eventq redrive --all --queue nightly --why "the server is back"',
    )
)
@task_argument("tasks", many=True, required=False, among=(S.DEAD, S.PARKED))
@click.option("--all", "every", is_flag=True, help="Every task that is DEAD now; no parked one.")
@why_option
@by_option
@queue_option
@json_option
def redrive(
    tasks: tuple[str, ...], every: bool, why: str, by: str | None, queue: Path, as_json: bool
) -> None:
    """Give DEAD or PARKED tasks fresh attempts.

    What they blocked waits for them again. Each task is an entry of its own: the order is that of
    TASK..., or that of their deaths with --all. Exits 3 if any of them was refused; the others are
    redriven all the same.

    --json: for each task redriven a line with task and its new status; for each one refused an
    error on stderr.
    """
    if every == bool(tasks):
        raise click.UsageError("name the tasks to redrive, or say --all")
    with _open(queue, by) as q:
        if every:
            tasks = tuple(one.id for one in q.dead_letters() if one.status is S.DEAD)
            if not tasks and not as_json:
                Screen().line("no task is dead")
        _each(q, "redrive", lambda name: q.redrive(name, why=why), tasks, as_json)


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
    with _open(queue, by) as q:
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
    with _open(queue, by) as q:
        _each(q, "restore", lambda name: q.restore(name, why=why), tasks, as_json)


def _admission(q: WorkQueue, do: Callable[[], None], word: str, as_json: bool) -> None:
    """Close or reopen, and say whether it was so already."""
    before = q.state.admission
    do()
    after = q.state.admission
    if as_json:
        emit({"admission": after, "changed": before != after})
    else:
        already = "" if before != after else " already"
        Screen().line(
            f"the queue {'is' if before != after else 'was'} {word} to new tasks{already}"
        )


@click.command(epilog=examples('eventq close --queue nightly --why "we move to another machine"'))
@why_option
@by_option
@queue_option
@json_option
def close(why: str, by: str | None, queue: Path, as_json: bool) -> None:
    """Admit no new tasks; what was admitted drains. Closing twice is harmless.

    --json: one object with admission ("closed") and changed.
    """
    with _open(queue, by) as q:
        _admission(q, lambda: q.close(why=why), "closed", as_json)


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
    with _open(queue, by) as q:
        _admission(q, lambda: q.reopen(why=why), "open", as_json)
