"""The end of a run in words: what succeeded, what did not and why, and what to type next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen
from rich.text import Text

from eventq import WorkQueue
from eventq.cli.flow import Flow
from eventq.cli.holders import endless, if_gone
from eventq.cli.inert import inert
from eventq.cli.live import JsonView, Out, PlainView, console_of
from eventq.cli.options import typed
from eventq.cli.orders import result_of
from eventq.cli.standing import Standing
from eventq.core.events import Started
from eventq.core.lifecycle import Status
from eventq.core.record import DeadLetter

__all__ = ["Report", "outputs_of", "results_of", "show"]

S = Status

MOST = 10
"""How many of each kind are named; the rest is counted."""

PAGE = 100
"""How many lines of the result are shown."""


@frozen
class Report:
    """All that the summary tells."""

    flow: Flow
    queue: Path
    """As the caller named it."""
    standing: Standing
    seconds: float
    attempts: int
    succeeded: int
    """Attempts and successes of this run alone."""
    interrupted: str | None
    outputs: dict[str, str]
    """Where the output of the last attempt of each dead or parked task is."""
    results: dict[str, str]
    """The output of each task of the flow that no other needs, if it has succeeded."""


def outputs_of(
    q: WorkQueue, letters: Iterable[DeadLetter], known: dict[str, int]
) -> dict[str, str]:
    """Where the output of the attempt is that these died of; read from the log, where this run
    does not know it itself."""
    leases = dict(known)
    names = {letter.id for letter in letters}
    if names - leases.keys():
        for entry in q.entries():
            for event in entry.events:
                if isinstance(event, Started) and event.task in names:
                    leases[event.task] = entry.seq
    found = {name: result_of(leases[name])["output"] for name in names if name in leases}
    return {name: output for name, output in found.items() if _says_something(q, output)}


def _says_something(q: WorkQueue, output: str) -> bool:
    assert q.path is not None
    file = q.path / output
    return file.exists() and file.stat().st_size > 0


def results_of(q: WorkQueue, flow: Flow) -> dict[str, str]:
    """The output of each task at the end of the flow that has succeeded."""
    needed = {name for task in flow.tasks for name in task.after}
    found = {}
    for end in flow.tasks:
        if end.id in needed:
            continue
        task = q.task(end.id)
        if task is not None and task.status is S.SUCCEEDED and isinstance(task.result, dict):
            output = task.result.get("output")
            if isinstance(output, str):
                found[end.id] = output
    return found


def show(view: PlainView, report: Report) -> None:
    """Print the summary, as the view prints."""
    if isinstance(view, JsonView):
        view.out.line(json.dumps(_as_json(report)))
        return
    _print(view.out, _lines(report))


def _as_json(report: Report) -> dict[str, Any]:
    standing = report.standing

    def letter(one: DeadLetter) -> dict[str, Any]:
        return {"task": one.id, "reason": one.reason, "output": report.outputs.get(one.id)}

    return {
        "event": "summary",
        "counts": {status.value: number for status, number in standing.counts.items() if number},
        "seconds": round(report.seconds, 3),
        "attempts": report.attempts,
        "succeeded": report.succeeded,
        "interrupted": report.interrupted,
        "dead": [letter(one) for one in standing.dead],
        "parked": [letter(one) for one in standing.parked],
        "blocked": standing.blocked,
        "missing": standing.missing,
        "cancelled": list(standing.cancelled),
        "paused": standing.paused,
        "running": {lease.task: lease.id for lease in standing.elsewhere},
        "results": report.results,
    }


@frozen
class Line:
    """One line of the summary. It is wrapped on a terminal, unless it is there to be copied."""

    text: str
    hang: int = 2
    copied: bool = False


def _print(out: Out, lines: Iterable[Line]) -> None:
    if not out.isatty():
        for line in lines:
            out.line(line.text)
        return
    console = console_of(out)
    for line in lines:
        if line.copied or not line.text:
            out.line(line.text)
            continue
        first, *rest = Text(line.text).wrap(console, console.width)
        out.line(first.plain.rstrip())
        if rest:
            left = " ".join(part.plain.strip() for part in rest)
            for part in Text(left).wrap(console, max(10, console.width - line.hang)):
                out.line(" " * line.hang + part.plain.rstrip())


def _names(names: Iterable[str]) -> str:
    """Some names, and how many more."""
    every = [inert(name) for name in names]
    more = f" and {len(every) - MOST:,} more" if len(every) > MOST else ""
    return ", ".join(every[:MOST]) + more


def _lines(report: Report) -> Iterator[Line]:
    standing = report.standing
    counts = standing.counts
    words = [
        f"{number:,} {word}"
        for status, word in (
            (S.SUCCEEDED, "succeeded"),
            (S.DEAD, "dead"),
            (S.PARKED, "parked"),
            (S.BLOCKED, "blocked"),
            (S.PENDING, "waiting"),
            (S.READY, "ready"),
            (S.DELAYED, "delayed"),
            (S.RUNNING, "running"),
            (S.CANCELLED, "cancelled"),
        )
        if (number := counts.get(status, 0))
    ]
    total = sum(counts.values())
    yield Line("")
    yield Line(f"{total:,} tasks: {', '.join(words)}")
    yield Line(
        f"this run: {report.attempts:,} attempts, {report.succeeded:,} succeeded, "
        f"{report.seconds:.1f} s"
    )
    if report.interrupted:
        yield Line(f"stopped by {report.interrupted}: what ran was handed back, at no attempt")
    yield from _letters("dead", standing.dead, report)
    yield from _letters("parked, a person must look", standing.parked, report)
    for number, (root, names) in enumerate(standing.blocked.items()):
        if number == MOST:
            yield Line(f"and {len(standing.blocked) - MOST:,} more that block others")
            break
        yield Line(f"blocked by {inert(root)} ({len(names):,}): {_names(names)}")
    for number, (name, names) in enumerate(standing.missing.items()):
        if number == MOST:
            yield Line(f"and {len(standing.missing) - MOST:,} more ids that nobody has enqueued")
            break
        yield Line(f"needs {inert(name)}, which nobody has enqueued: {_names(names)}")
    if standing.cancelled:
        yield Line(f"cancelled, though others need it: {_names(standing.cancelled)}")
    if standing.elsewhere:
        listed = (f"{lease.task} (lease {lease.id})" for lease in standing.elsewhere)
        yield Line(f"running under others: {_names(listed)}")
    if standing.paused:
        yield Line("the queue is paused: nothing is handed out until it is resumed")
    yield from _next(report)
    yield from _results(report)


def _letters(what: str, letters: tuple[DeadLetter, ...], report: Report) -> Iterator[Line]:
    for letter in letters[:MOST]:
        yield Line(f"{what}: {inert(letter.id)}")
        yield Line(f"    {inert(letter.reason)}", hang=4)
        if letter.id in report.outputs:
            yield Line(f"    output: {_path(report, report.outputs[letter.id])}", copied=True)
    if len(letters) > MOST:
        yield Line(f"and {len(letters) - MOST:,} more {what}")


def _path(report: Report, output: str) -> str:
    return inert(shlex.quote(str(report.queue / output)))


def _next(report: Report) -> Iterator[Line]:
    """What to type next."""
    standing = report.standing
    if standing.code == 0 and not report.interrupted:
        return

    def line(verb: str, name: str, *, why: bool = False) -> Line:
        return Line(inert(f"  {typed(verb, name, why=why)}"), copied=True)

    yield Line("")
    yield Line("next:")
    if report.interrupted:
        yield line("run", str(report.flow.path))
        return
    blocked = next((names[0] for names in standing.blocked.values()), None)
    waiting = next((names[0] for names in standing.missing.values()), None)
    letters = [letter.id for letter in (*standing.dead, *standing.parked)]
    for name in filter(None, (blocked or next(iter(letters), None), waiting)):
        yield line("why", name)
    for name in letters[:3]:
        yield line("redrive", name, why=True)
    for name in standing.cancelled[:3]:
        yield line("restore", name, why=True)
    for lease in endless(standing.elsewhere)[:3]:
        for told in if_gone(lease):
            yield Line(f"  {told}", copied=True)
    if standing.paused:
        yield Line(f"  {typed('resume', why=True)}", copied=True)
    yield line("run", str(report.flow.path))


def _results(report: Report) -> Iterator[Line]:
    """Where the results are; when the flow has one end, its output itself."""
    if report.results:
        yield Line("")
    for name, output in list(report.results.items())[:MOST]:
        yield Line(f"output of {inert(name)}: {_path(report, output)}", copied=True)
    if len(report.results) > MOST:
        yield Line(f"and {len(report.results) - MOST:,} more")
    if len(report.results) == 1:
        (output,) = report.results.values()
        try:
            with (report.queue / output).open("rb") as file:
                text = file.read(1 << 16).decode(errors="replace")
        except OSError:
            return
        lines = text.splitlines()
        if lines:
            yield Line("")
        for line in lines[:PAGE]:
            yield Line(inert(line), copied=True)
        if len(lines) > PAGE:
            yield Line(f"... and {len(lines) - PAGE:,} more lines")
