"""`eventq work`: runs the commands of a queue's tasks until it is stopped, or the queue drained."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eventq import WorkQueue
from eventq.cli.holders import NAME
from eventq.cli.options import examples, json_option, log_of, queue_option
from eventq.queries.condition import age

if TYPE_CHECKING:
    from eventq.cli.progress import Progress

__all__ = ["work"]

LONGEST = 10 * 365 * 86400.0
"""The longest span that can be given, in seconds: some ten years."""


class _Seconds(click.FloatRange):
    """A number of seconds, or a length of time with its unit."""

    name = "number of seconds, like 10 or 5m"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(TypeError, ValueError):
            value = age(value).total_seconds()
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):  # which is in every range
            self.fail("nan is no number of seconds", param, ctx)
        return seconds


def _of_no_runner(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """A callback: a name that `eventq run` does not use for itself."""
    if name is not None and name.split("/")[0] == NAME:
        raise click.BadParameter(
            f"{name!r} is how `eventq run` calls its own workers ({NAME}/PID/SLOT): the log would "
            "not tell one from the other; choose another name"
        )
    return name


IDLE = 1.0
"""Seconds after which a worker that is to drain the queue says what it waits for."""

ASKING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


@click.command(
    epilog=examples(
        "eventq work --queue nightly -j 4",
        "eventq work --queue nightly --drain --json",
        "eventq work --queue nightly --lease-for 10 --grace 5m",
    )
)
@queue_option
@click.option(
    "-j",
    "--workers",
    type=click.IntRange(1, 1024),
    default=lambda: len(os.sched_getaffinity(0)),
    show_default="number of cores",
    metavar="N",
    help="How many commands run at the same time.",
)
@click.option("--drain", is_flag=True, help="End when nothing is left to do.")
@click.option(
    "--name",
    metavar="NAME",
    callback=_of_no_runner,
    help="Its workers are called NAME/1, NAME/2 ...  [default: a name that nobody else has]",
)
@click.option(
    "--lease-for",
    type=_Seconds(0.1, LONGEST),
    show_default="as the queue has it, else 60",
    metavar="SECONDS",
    help="How long a lease runs; it is renewed while its command runs.",
)
@click.option(
    "--grace",
    type=_Seconds(0, LONGEST),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long what runs may go on when the worker is asked to stop.",
)
@json_option
@click.pass_context
def work(
    context: click.Context,
    queue: Path,
    workers: int,
    drain: bool,
    name: str | None,
    lease_for: float | None,
    grace: float,
    as_json: bool,
) -> None:
    """Run the commands of a queue's tasks until stopped or drained.

    A task says what to run in its payload, as `eventq run` writes it: an object with argv and, as
    needed, cwd, env and timeout. A task that says no such thing goes to the dead letters. Others
    enqueue; any number of `eventq work` share a queue, also with one `eventq run`.

    \b
      with WorkQueue.open("nightly") as q:
          q.enqueue("fetch", {"argv": ["python3", "fetch.py"], "timeout": 60})

    A command without a cwd runs in DIR/work (EVENTQ_WORK), which all tasks of the queue share: give
    each a cwd, or let it make a folder of its own there. What it prints goes to
    DIR/output/LEASE.log.

    Each command has a lease that ends by itself: if its worker is killed, the task comes back to
    the others. A task that is cancelled has its command stopped. Asked to stop (Ctrl-C or TERM),
    the worker begins nothing more, lets what runs finish within the grace, and then stops it and
    hands it back at no attempt; asked once more, it does so at once.

    It exits with 0, also when it was stopped; with --drain as `eventq run` does.
    """
    context.exit(_work(queue, workers, drain, name, lease_for, grace, as_json))


def _work(
    queue: Path,
    workers: int,
    drain: bool,
    name: str | None,
    lease_for: float | None,
    grace: float,
    as_json: bool,
) -> int:
    # Imported here, since the other commands start faster without them.
    from eventq.aio import AsyncWorker
    from eventq.cli.attempts import Attempts
    from eventq.cli.progress import progress_for
    from eventq.cli.standing import standing

    log_of(queue)
    folder = Path(os.path.realpath(queue))
    progress = progress_for(folder, grace, as_json=as_json)

    async def serve() -> None:
        attempts = Attempts(folder)
        try:
            worker = AsyncWorker(
                q,
                attempts,
                concurrency=workers,
                name=name,
                lease_for=lease_for,
                grace=grace,
                drain=drain,
                witness=progress,
            )
            _listen(worker.stop, progress)
            waiting = asyncio.create_task(_say_what_is_awaited(q, progress)) if drain else None
            await worker.run()
            if waiting is not None:
                waiting.cancel()
        finally:
            await attempts.close()

    with WorkQueue.open(folder) as q:
        asyncio.run(serve())
        state = q.state
    progress.over(state)
    if not drain:
        return 0
    return 128 + progress.asked[0] if progress.asked else standing(state).code


async def _say_what_is_awaited(q: WorkQueue, progress: Progress) -> None:
    """Whoever waits for a queue to drain is told why it takes so long."""
    while True:
        await asyncio.sleep(IDLE)
        progress.idle(await asyncio.to_thread(lambda: q.state))


def _listen(stop: Callable[[], None], progress: Progress) -> None:
    """Let the signals that ask a worker to stop do so."""

    def asked(number: int) -> None:
        progress.stopping(number)
        stop()

    loop = asyncio.get_running_loop()
    for number in ASKING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, asked, number)
