"""What is shown while a run goes on: a live view on a terminal, plain lines or JSON in a pipe.

Nothing that comes from a task or a command is taken for markup or for a control sequence.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from eventq.cli.inert import inert
from eventq.cli.runner import FRAME, Child
from eventq.core.lifecycle import Status
from eventq.core.state import State

__all__ = ["JsonView", "LiveView", "Out", "PlainView", "console_of", "view_for"]

S = Status

BAR = 50
"""How long the bar is."""

STYLES = {"succeeded": "green", "failed": "yellow", "dead": "red", "parked": "red"}
"""Colour repeats what the word says, and is dropped where there is none."""


class Out:
    """A stream that may go away: a run goes on when nobody reads what it says any more."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.gone = False

    def line(self, text: str) -> None:
        """Write one line, at once."""
        self.write(text + "\n")
        self.flush()

    def write(self, text: str) -> int:
        if not self.gone:
            try:
                self.stream.write(text)
            except UnicodeEncodeError:
                code = self.stream.encoding or "ascii"
                self.stream.write(text.encode(code, "backslashreplace").decode(code))
            except BrokenPipeError:
                self._lost()
        return len(text)

    def flush(self) -> None:
        if not self.gone:
            try:
                self.stream.flush()
            except BrokenPipeError:
                self._lost()

    def _lost(self) -> None:
        """Nobody reads: let what is still in the buffer go nowhere."""
        self.gone = True
        try:
            fd = self.stream.fileno()
        except (OSError, ValueError):
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, fd)
        os.close(nowhere)

    def isatty(self) -> bool:
        return self.stream.isatty()

    def fileno(self) -> int:
        return self.stream.fileno()

    @property
    def encoding(self) -> str:
        return self.stream.encoding or "ascii"


def console_of(out: Out) -> Console:
    """A console on which nothing is markup, and nothing is guessed to be worth a colour."""
    return Console(file=out, markup=False, highlight=False, emoji=False)  # type: ignore[arg-type]


def told(what: str, task: str, facts: dict[str, Any]) -> str:
    """One happening as one line."""
    name = inert(task)
    match what:
        case "started":
            rest = name + (f", attempt {facts['attempt']}" if facts["attempt"] > 1 else "")
        case "succeeded":
            rest = f"{name} in {facts['seconds']:.1f} s"
        case "failed":
            of = "" if facts["of"] is None else f" of {facts['of']}"
            rest = f"{name}, attempt {facts['attempt']}{of}: {inert(facts['error'])}"
        case "dead":
            rest = f"{name}: failed after {facts['attempt']} attempts: {inert(facts['error'])}"
        case "parked":
            rest = f"{name}, a person must look: {inert(facts['error'])}"
        case "dropped":
            rest = f"{name}: {_taken(facts)} while it ran"
            rest += f": {inert(facts['why'])}" if facts.get("why") else ""
        case "released":
            rest = f"{name}, to be run again"
        case _:
            rest = name
    return f"{what:<9} {rest}"


def _taken(facts: dict[str, Any]) -> str:
    """What became of a lease that its worker has no more."""
    if "cancelled_by" not in facts:
        return "its lease was taken away"
    by = facts["cancelled_by"]
    return f"cancelled by {inert(by)}" if by else "cancelled"


class PlainView:
    """One line for each thing that happens."""

    live = False

    def __init__(self, out: Out) -> None:
        self.out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Nothing to put away."""

    def tell(self, what: str, task: str, **facts: Any) -> None:
        self.out.line(told(what, task, facts))

    def frame(self, children: list[Child], state: State) -> None:
        """Nothing moves in a pipe."""


class JsonView(PlainView):
    """One JSON object for each thing that happens."""

    def tell(self, what: str, task: str, **facts: Any) -> None:
        self.out.line(json.dumps({"event": what, "task": task, **facts}))


class LiveView(PlainView):
    """What runs, how far it is, and what died, drawn anew a few times a second. What failed stays
    above it as lines."""

    live = True

    def __init__(self, out: Out) -> None:
        super().__init__(out)
        self.console = console_of(out)
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def tell(self, what: str, task: str, **facts: Any) -> None:
        if what not in ("started", "succeeded"):
            line = Text(told(what, task, facts))
            line.stylize(STYLES.get(what, ""), 0, len(what))
            self.console.print(line)

    def frame(self, children: list[Child], state: State) -> None:
        now = time.monotonic()
        if now < self._drawn + FRAME / 2:
            return
        self._drawn = now
        room = max(1, self.console.height - 6)
        self._live.update(Group(*_frame(children, state.counts(), now, room)), refresh=True)


def _frame(
    children: list[Child], counts: dict[Status, int], now: float, room: int
) -> Iterable[Any]:
    done = counts.get(S.SUCCEEDED, 0)
    total = sum(counts.values()) - counts.get(S.CANCELLED, 0)
    words = [f"{done} of {total} succeeded"]
    for status, word in (
        (S.RUNNING, "running"),
        (S.READY, "ready"),
        (S.PENDING, "waiting"),
        (S.DELAYED, "delayed"),
        (S.DEAD, "dead"),
        (S.PARKED, "parked"),
        (S.BLOCKED, "blocked"),
    ):
        if counts.get(status):
            words.append(f"{counts[status]} {word}")
    yield Text(", ".join(words), no_wrap=True, overflow="ellipsis")
    filled = BAR * done // max(total, 1)
    yield Text(f"[{'#' * filled}{'.' * (BAR - filled)}]", no_wrap=True, overflow="crop")
    shown = sorted(children, key=lambda child: child.began)
    for child in shown[:room]:
        attempt = child.lease.attempt
        more = f", attempt {attempt}" if attempt > 1 else ""
        if child.stopped:
            more = f", stopping: {child.stopped}"
        line = f"{now - child.began:8.1f} s  {inert(child.lease.task)}{more}"
        yield Text(line, no_wrap=True, overflow="ellipsis")
    if len(shown) > room:
        yield Text(f"  and {len(shown) - room} more")


def view_for(stream: TextIO | None = None, *, as_json: bool) -> PlainView:
    """The view that fits where this goes."""
    out = Out(sys.stdout if stream is None else stream)
    if as_json:
        return JsonView(out)
    if out.isatty() and not console_of(out).is_dumb_terminal:
        return LiveView(out)
    return PlainView(out)
