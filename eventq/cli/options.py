"""The options that commands share, what they complete to, and how commands are told to be typed."""

from __future__ import annotations

import difflib
import getpass
import itertools
import os
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from eventq import State, WorkQueue
from eventq.core.errors import EventqError, Refusal, UnknownTask
from eventq.core.lifecycle import FINISHED, Status
from eventq.core.values import check_name
from eventq.queries.condition import age
from eventq.storage.disk import open_to_read
from eventq.storage.errors import NotAQueue
from eventq.storage.segments import find_segments, segment_path

__all__ = [
    "AGE",
    "LENGTH",
    "NOTHING",
    "OrNothing",
    "by_option",
    "examples",
    "json_option",
    "log_of",
    "near",
    "operator",
    "queue_option",
    "quoted",
    "said",
    "task_argument",
    "typed",
    "unknown",
    "why_option",
]

F = TypeVar("F", bound=Callable[..., Any])

queue_option = click.option(
    "--queue",
    required=True,
    envvar="EVENTQ_QUEUE",
    show_envvar=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the queue.",
)

json_option = click.option(
    "--json", "as_json", is_flag=True, help="JSON, one value a line; errors too, on stderr."
)

by_option = click.option(
    "--by", metavar="NAME", help="Who asks, for the log.  [default: the user of this process]"
)


def said(context: click.Context, option: click.Parameter, why: str | None) -> str | None:
    """A callback: a reason that says something."""
    if why is not None and not why.strip():
        raise click.BadParameter("say why: the log keeps it for whoever asks later")
    return why


why_option = click.option(
    "--why", required=True, metavar="TEXT", callback=said, help="Why, for the log."
)


def examples(*lines: str) -> str:
    """The epilog of a command: commands that work as they are written."""
    return "\n".join(("Examples:", "", "\b", *(f"  {line}" for line in lines)))


# Values.


class _Age(click.ParamType[Any]):
    """A length of time: a number with its unit; one alone may count as seconds."""

    name = "age"

    def __init__(self, *, seconds: bool = False) -> None:
        self._seconds = seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, timedelta):
            return value
        try:
            return age(f"{value}s" if self._seconds and re.fullmatch(r"[0-9.]+", value) else value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


AGE = _Age()

LENGTH = _Age(seconds=True)
"""As AGE, or a number alone, which is seconds, as it is in Python and for `eventq work`."""

NOTHING: Any = type("Nothing", (), {"__repr__": lambda _: "none"})()
"""What the word `none` stands for: an option that was not given is None."""


class OrNothing(click.ParamType[Any]):
    """A value of another kind, or the word `none`."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self._kind = kind
        self.name = f"{kind.name} or none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value is NOTHING or value == "none":
            return NOTHING
        return self._kind.convert(value, param, ctx)


# Tasks.

_PLAIN = re.compile(r"[\w@%+,./:=-]+", re.ASCII)
_OFFERED = 200


def _completions(*statuses: Status) -> Callable[..., list[CompletionItem]]:
    def complete(
        context: click.Context, argument: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        """The ids of the queue that begin so. Only those that no shell would take for more."""
        path = context.params.get("queue") or os.environ.get("EVENTQ_QUEUE")
        if not path:
            return []
        with suppress(EventqError, OSError), WorkQueue.open(path, read_only=True) as queue:
            found = (
                CompletionItem(record.task.task, help=record.status)
                for record in queue.state.in_order()
                if record.task.task.startswith(begun)
                and _PLAIN.fullmatch(record.task.task)
                and (not statuses or record.status in statuses)
            )
            return list(itertools.islice(found, _OFFERED))
        return []

    return complete


def task_argument(
    name: str = "task", *, many: bool = False, required: bool = True, among: Iterable[Status] = ()
) -> Callable[[F], F]:
    """The argument TASK, or TASK...; `among` are the statuses that completion offers."""
    return click.argument(
        name,
        nargs=-1 if many else 1,
        required=required,
        metavar=("{}" if required else "[{}]").format("TASK..." if many else "TASK"),
        shell_complete=_completions(*among),
    )


UNFINISHED = frozenset(Status) - FINISHED

_COMPARED = 20_000
"""How many ids are compared with one that is unknown: it costs about 10 microseconds each."""


def near(state: State, task: str) -> list[str]:
    """The ids of the queue that are most like this one."""
    ids: Iterable[str] = state.records
    if len(state) > _COMPARED:
        ids = itertools.islice((name for name in ids if name[:2] == task[:2]), _COMPARED)
    return difflib.get_close_matches(task, sorted(ids), 3)


def unknown(state: State, task: str, asked: str) -> UnknownTask:
    """The error for an id that the queue does not know: who waits for it, what may be meant."""
    error = UnknownTask(task, asked)
    if waiting := state.needed_by(task):
        more = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
        error.add_note(f"nobody has enqueued it, and {waiting[0]!r}{more} waits for it")
    if names := near(state, task):
        error.add_note(f"did you mean {' or '.join(map(repr, names))}?")
    return error


# Who and where.


def operator() -> str:
    """Who runs this process, as the log will have it."""
    try:
        name = getpass.getuser()
        check_name("by", name)
    except (OSError, KeyError, Refusal):
        return f"uid {os.getuid()}"
    return name


def log_of(path: Path, *, begun: bool = True) -> Path:
    """The folder of segments of the queue at this path. Raises NotAQueue; where it has to be
    `begun`, also when its first line is not there, since opening it for writing would begin it."""
    log = path / "log"
    if not log.is_dir():
        raise NotAQueue(path, "it has no folder `log`")
    segments = find_segments(log)
    if not segments:
        raise NotAQueue(path, "its log is empty")
    if begun and segments == [1] and not _has_a_line(segment_path(log, 1)):
        WorkQueue.open(path, read_only=True).shut()  # which says what is wrong, as for `status`
    return log


def _has_a_line(segment: Path) -> bool:
    with open_to_read(segment) as file:
        return file.readline().endswith(b"\n")


def typed(verb: str, *rest: str, more: Iterable[str] = (), why: bool = False) -> str:
    """The command line to type next, for the queue of this one; `more` are options."""
    context = click.get_current_context()
    words = list(map(quoted, rest))
    options = list(map(quoted, more))
    if context.get_parameter_source("queue") is not ParameterSource.ENVIRONMENT:
        options += ["--queue", quoted(str(context.params["queue"]))]
    if why:
        options += ["--why", '"..."']
    if any(word.startswith("-") for word in rest):
        return " ".join(["eventq", verb, *options, "--", *words])
    return " ".join(["eventq", verb, *words, *options])


def quoted(word: str) -> str:
    """The word for a shell; one with anything that does not print is spelled out for bash."""
    if word.isprintable():
        return shlex.quote(word)
    spelled = "".join(
        f"\\{c}"
        if c in "\\'"
        else c
        if c.isprintable() and unicodedata.category(c) != "Cf"
        else f"\\U{ord(c):08x}"
        for c in word
    )
    return f"$'{spelled}'"
