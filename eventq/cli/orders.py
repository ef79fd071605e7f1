"""The command of a lease: how it is ordered from a launcher, and what its end comes to."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from eventq.cli.inert import inert, storable
from eventq.core.record import Lease

if TYPE_CHECKING:
    from eventq.cli.flow import Spec
    from eventq.cli.launcher import Ended, Launcher

__all__ = ["GRACE", "order", "output_of", "result_of", "went_wrong"]

GRACE = 2.0
"""Seconds between the polite signal (TERM) and the other one (KILL)."""

TAIL = 4096
"""How much of the output of a failed command is looked at."""


def result_of(lease: int) -> dict[str, str]:
    """The result of a command that has succeeded: where its output is, in the queue's folder."""
    return {"output": f"output/{lease}.log"}


def output_of(queue: Path, lease: int) -> Path:
    """Where the output of this lease goes."""
    return queue / result_of(lease)["output"]


def order(launcher: Launcher, lease: Lease, spec: Spec, folder: Path) -> None:
    """Start the command of this lease, for the queue in this folder. Raises LauncherGone."""
    work = str(folder / "work")
    env = {
        **spec.env,
        "EVENTQ_TASK": lease.task,
        "EVENTQ_ATTEMPT": str(lease.attempt),
        "EVENTQ_LEASE": str(lease.id),
        "EVENTQ_QUEUE": str(folder),
        "EVENTQ_WORK": work,
    }
    launcher.start(lease.id, spec.argv, spec.cwd or work, env, output_of(folder, lease.id))


def went_wrong(ended: Ended, folder: Path) -> str | None:
    """What a command that has not succeeded said, in one line; None for one that has."""
    if ended.cannot is not None:
        return f"cannot start {inert(ended.cannot)}"
    if ended.code == 0:
        return None
    if ended.code > 0:
        what = f"exit status {ended.code}"
    else:
        try:
            what = f"killed by {signal.Signals(-ended.code).name}"
        except ValueError:
            what = f"killed by signal {-ended.code}"
    try:
        with output_of(folder, ended.lease).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            last = storable(file.read())
    except OSError:
        last = ""
    return f"{what}: {last}" if last else what
