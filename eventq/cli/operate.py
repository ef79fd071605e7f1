"""The operators' commands on tasks and on the whole queue. Each but `tick` says why, in the log."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
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


def reject() -> NoReturn:
    """End the command: something was refused, and told."""
    click.get_current_context().exit(Exit.REFUSED)


# On tasks.


def _on_tasks(
    verb: str, done: str, among: Iterable[Status], tells: str, more: str, *lines: str
) -> click.Command:
    """The command that asks this of each task that is named; `done` is its participle."""

    @click.command(
        verb,
        help=f"{tells}\n\n{more} Exits 3 if any was refused; the others are {done} all the same."
        f"\n\n--json: for each task {done} a line with task and its new status; for each one "
        "refused an error on stderr.",
        epilog=examples(*lines),
    )
    @task_argument("tasks", many=True, among=among)
    @why_option
    @by_option
    @queue_option
    @json_option
    def command(
        tasks: tuple[str, ...], why: str, by: str | None, queue: Path, as_json: bool
    ) -> None:
        with open_queue(queue, by) as q:
            ask: Callable[..., Task] = getattr(q, verb)
            _each(q, verb, partial(ask, why=why), tasks, as_json)

    return command


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


resolve = _on_tasks(
    "resolve",
    "resolved",
    (S.DEAD, S.PARKED, S.CANCELLED),
    "Say that a person did tasks by hand: they have succeeded.",
    "For DEAD, PARKED or CANCELLED tasks. They have no result; what needs them goes on.",
    'eventq resolve fetch --queue nightly --why "copied by hand"',
)

cancel = _on_tasks(
    "cancel",
    "cancelled",
    UNFINISHED,
    "Take unfinished tasks out of the work.",
    "What needs them is blocked. A running one is taken too: `run` and `work` stop its command, "
    "and what its worker says of it is refused.",
    'eventq cancel parse --queue nightly --why "not needed any more"',
    'eventq cancel report fetch --queue nightly --why "not needed" --by alice',
)

restore = _on_tasks(
    "restore",
    "restored",
    (S.CANCELLED,),
    "Bring CANCELLED tasks back, with fresh attempts.",
    "They wait for what they need, as if they were new.",
    'eventq cancel parse --queue nightly --why "not needed any more"',
    'eventq restore parse --queue nightly --why "needed after all"',
)


# On the whole queue.


def _switch(verb: str, part: str, value: str, words: str, tells: str, *lines: str) -> click.Command:
    """The command that lets this part of the state be so; its words have room for `already`."""

    @click.command(
        verb,
        help=f'{tells}\n\n--json: one object with {part} ("{value}") and changed.',
        epilog=examples(*lines),
    )
    @why_option
    @by_option
    @queue_option
    @json_option
    def command(why: str, by: str | None, queue: Path, as_json: bool) -> None:
        with open_queue(queue, by) as q:
            before = getattr(q.state, part)
            getattr(q, verb)(why=why)
            after = getattr(q.state, part)
        changed = before != after
        if as_json:
            emit({part: after, "changed": changed})
        else:
            Screen().line(f"the queue is {words.format('' if changed else ' already')}")

    return command


close = _switch(
    "close",
    "admission",
    "closed",
    "closed{} to new tasks",
    "Admit no new tasks; what was admitted drains. Closing twice is harmless.",
    'eventq close --queue nightly --why "we move to another machine"',
)

reopen = _switch(
    "reopen",
    "admission",
    "open",
    "open{} to new tasks",
    "Admit new tasks again. Reopening twice is harmless.",
    'eventq close --queue nightly --why "we move to another machine"',
    'eventq reopen --queue nightly --why "we have moved"',
)

pause = _switch(
    "pause",
    "dispatch",
    "paused",
    "paused{}: it hands nothing out",
    "Hand nothing out; what is due goes on, and what runs may end. Pausing twice is harmless.",
    'eventq pause --queue nightly --why "the server is down"',
)

resume = _switch(
    "resume",
    "dispatch",
    "running",
    "running{}: it hands out",
    "Hand out again. Resuming twice is harmless.",
    'eventq pause --queue nightly --why "the server is down"',
    'eventq resume --queue nightly --why "the server is back"',
)


@click.command(
    epilog=examples("eventq tick --queue nightly", "eventq tick --queue nightly --by cron")
)
@by_option
@queue_option
@json_option
def tick(by: str | None, queue: Path, as_json: bool) -> None:
    """Carry out what is due: leases, delays and retention.

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
