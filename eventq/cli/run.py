"""`eventq run`: admits a flow and runs it, and says how it stands at the end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from eventq import WorkQueue
from eventq.cli.flow import Flow, read_flow
from eventq.cli.options import examples, json_option, queue_option
from eventq.cli.standing import standing

__all__ = ["run", "run_flow"]


def run_flow(flow: Path, queue: Path, *, workers: int, as_json: bool = False) -> int:
    """Run a flow in this queue until nothing can run any more; the exit code.

    0: all succeeded; 4: dead letters; 5: only a person can move the rest; 128 + n: stopped by
    signal n. Raises FlowError, NotAQueue, RunLocked, NotAdmitted, Refusal, LogDamaged and what
    else opening a queue may raise.
    """
    return _run(read_flow(flow), queue, workers, as_json)


def _run(flow: Flow, queue: Path, workers: int, as_json: bool) -> int:
    # Imported here, since the other commands start faster without them.
    from eventq.cli.admission import admit
    from eventq.cli.launcher import Launcher, LauncherGone
    from eventq.cli.leftovers import end_leftovers
    from eventq.cli.live import view_for
    from eventq.cli.runlock import begin_run, last_runner, run_lock
    from eventq.cli.runner import Runner, Signals, release_left
    from eventq.cli.summary import Report, outputs_of, results_of, show

    began = time.monotonic()
    folder = Path(os.path.realpath(queue))
    signals = Signals()
    view = view_for(as_json=as_json)
    if not (folder / "log").exists():  # no queue is made for a flow that no queue takes
        with WorkQueue.in_memory() as trial:
            admit(trial, flow)
    with WorkQueue.open(folder) as q, run_lock(folder) as lock:
        if (dead := last_runner(lock)) is not None:
            for lease, task in release_left(q, dead):
                view.tell("released", task, lease=lease)
        begin_run(folder, lock)
        admit(q, flow)
        for name in ("output", "work"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        with signals.caught(), Launcher(lock) as launcher, view:
            runner = Runner(q, folder, launcher, signals, view, workers=workers)
            try:
                runner.run()
            except LauncherGone:
                end_leftovers(lock, folder)
                release_left(q, os.getpid())
                raise
        now = standing(q.state)
        report = Report(
            flow,
            queue,
            now,
            time.monotonic() - began,
            runner.attempts,
            runner.succeeded,
            signal.Signals(signals.asked[0]).name if signals.asked else None,
            outputs_of(q, (*now.dead, *now.parked), runner.died),
            results_of(q, flow),
        )
        show(view, report)
    return signals.code or now.code


@click.command(
    epilog=examples(
        "eventq run nightly.toml --queue nightly",
        "eventq run graph.jsonl --queue graph -j 8 --json",
        "eventq run nightly.toml --queue nightly | tee run.txt",
    )
)
@click.argument("flow", type=click.Path(path_type=Path), metavar="FLOW")
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
@json_option
@click.pass_context
def run(context: click.Context, flow: Path, queue: Path, workers: int, as_json: bool) -> None:
    """Run the tasks of FLOW, as processes, until none can run.

    FLOW is a TOML file of tasks, each with an argv and, as needed, after, attempts, cwd, env and
    timeout; or JSONL, one task a line. It is enqueued whole into the queue, which is made if it is
    not there; what is in the queue already is passed over. Run it again to go on: what a stopped
    or killed run left over is taken up, and what has succeeded never runs again. A command whose
    end was not recorded does run again, so make it harmless.

    \b
      [tasks.parse]
      argv = ["python3", "parse.py"]
      after = ["fetch"]
      attempts = 3
      timeout = 60

    Each command gets EVENTQ_TASK, EVENTQ_ATTEMPT, EVENTQ_LEASE, EVENTQ_QUEUE and EVENTQ_WORK, a
    directory of the queue to work in: DIR/work, which all tasks share. What it prints goes to
    DIR/output/LEASE.log. One runner works on a queue at a time.

    --json: one object for each thing that happens, with event and task; the last is the summary.
    """
    context.exit(run_flow(flow, queue, workers=workers, as_json=as_json))
