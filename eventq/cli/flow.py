"""The flow file: reading it, checking it, and what of it a task carries as its payload.

A flow is a TOML file, or JSONL (one task a line) for graphs that a program writes:

    [defaults]                          # optional: attempts, cwd, env, timeout for every task
    attempts = 2

    [tasks.parse]
    argv = ["python3", "parse.py"]      # the command; no shell stands between
    after = ["fetch"]                   # what must have succeeded before
    attempts = 3                        # without it: the queue's own
    cwd = ".."                          # relative to the flow file; without it: where that is
    env = { LANG = "C" }                # on top of the runner's own
    timeout = 30                        # seconds; without it: none

    {"id": "parse", "argv": ["python3", "parse.py"], "after": ["fetch"]}

Nothing is converted: what is not of the right type is an error that names file, task and field,
and all errors are told at once.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NewType

from attrs import field, fields_dict, frozen
from cattrs import Converter
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError

from eventq.cli.exits import FlowError
from eventq.cli.given import read_given
from eventq.core.commands import OF_THE_QUEUE, Enqueue
from eventq.core.errors import BadValue

__all__ = ["Flow", "FlowTask", "Spec", "read_flow", "spec_of"]

LONGEST = 1_000_000_000
"""The longest timeout, in seconds: some thirty years."""

Argv = NewType("Argv", tuple[str, ...])
Ids = NewType("Ids", tuple[str, ...])
Attempts = NewType("Attempts", int)
Directory = NewType("Directory", str)
Environment = NewType("Environment", dict[str, str])
Seconds = NewType("Seconds", float)


@frozen
class Spec:
    """What a task runs: its payload is this as a JSON object. `cwd` None is the work directory of
    the queue, `timeout` None is none."""

    argv: Argv
    cwd: Directory | None = None
    env: Environment = field(factory=lambda: Environment({}))
    timeout: Seconds | None = None

    def payload(self) -> dict[str, Any]:
        """The JSON object that stands for it."""
        return {
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": self.env,
            "timeout": self.timeout,
        }


@frozen
class FlowTask:
    """One task of a flow, checked."""

    id: str
    spec: Spec
    after: tuple[str, ...]
    attempts: int | None
    """How often it is tried; None leaves that to the queue."""

    def command(self) -> Enqueue:
        """What admits it. How often it is tried is no part of its content."""
        attempts = OF_THE_QUEUE if self.attempts is None else self.attempts
        return Enqueue(self.id, self.spec.payload(), self.after, max_attempts=attempts)


@frozen
class Flow:
    """A flow file, read and checked; its tasks in the order of the file."""

    path: Path
    tasks: tuple[FlowTask, ...]


# What each field may hold. These raise ValueError saying what was found and what would be right.


def _shown(value: object) -> str:
    """A value as found, short enough for a message."""
    kinds = {str: "the text", bool: "the truth value", int: "the number", float: "the number"}
    text = json.dumps(value) if isinstance(value, str | bool) else repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{kinds.get(type(value), 'the ' + type(value).__name__)} {text}"


def _text(value: object, what: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{what} must be a text in quotes, not {_shown(value)}")
    if "\0" in value:
        raise ValueError(f"{what} holds a NUL character, which no process can be given")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds a lone surrogate, which is no character") from None
    return value


def _argv(value: object, _: object = None) -> Argv:
    if type(value) is not list:
        raise ValueError(
            f'must be a list of texts, such as ["python3", "step.py"], not {_shown(value)}'
        )
    if not value:
        raise ValueError('is empty: name the command to run, such as ["python3", "step.py"]')
    if value[0] == "":
        raise ValueError("begins with an empty text, which names no command")
    return Argv(tuple(_text(part, f"part {number}") for number, part in enumerate(value, 1)))


def _ids(value: object, _: object = None) -> Ids:
    if type(value) is not list:
        raise ValueError(f'must be a list of task ids, such as ["fetch"], not {_shown(value)}')
    return Ids(tuple(_text(part, f"id {number}") for number, part in enumerate(value, 1)))


def _attempts(value: object, _: object = None) -> Attempts:
    if type(value) is not int or value < 1:
        raise ValueError(f"must be a whole number of at least 1, not {_shown(value)}")
    return Attempts(value)


def _directory(value: object, _: object = None) -> Directory:
    if value == "":
        raise ValueError('is empty: write "." for the directory of the flow file')
    return Directory(_text(value, "it"))


def _environment(value: object, _: object = None) -> Environment:
    if type(value) is not dict:
        raise ValueError(f'must be a table of texts, such as {{ LANG = "C" }}, not {_shown(value)}')
    for name, text in value.items():
        if not name or "=" in _text(name, "a name"):
            raise ValueError(f"{name!r} is no name for a variable: empty, or with an equals sign")
        if name.startswith("EVENTQ_"):
            raise ValueError(f"{name} is set by the runner: choose a name without EVENTQ_")
        _text(text, name)
    return Environment(value)


def _seconds(value: object, _: object = None) -> Seconds:
    if type(value) not in (int, float) or not 0 < value <= LONGEST:  # type: ignore[operator]
        raise ValueError(
            f"must be a number of seconds above 0 and at most {LONGEST:,}, not {_shown(value)}"
        )
    return Seconds(float(value))  # type: ignore[arg-type]


def _or_none(check: Callable[[object, object], Any]) -> Callable[[object, object], Any]:
    return lambda value, kind: None if value is None else check(value, kind)


@frozen
class _Defaults:
    """The table of defaults, as written."""

    attempts: Attempts | None = None
    cwd: Directory | None = None
    env: Environment = field(factory=lambda: Environment({}))
    timeout: Seconds | None = None


@frozen
class _Task(_Defaults):
    """One table of a task, as written."""

    argv: Argv = field(kw_only=True)
    after: Ids = Ids(())


def _converter(*, null: bool) -> Converter:
    """What turns tables into the classes above. A payload writes null for what is not there; a
    flow leaves it out."""
    converter = Converter(forbid_extra_keys=True)
    for kind, check in (
        (Argv, _argv),
        (Ids, _ids),
        (Environment, _environment),
        (Attempts | None, _attempts),
        (Directory | None, _or_none(_directory) if null else _directory),
        (Seconds | None, _or_none(_seconds) if null else _seconds),
    ):
        converter.register_structure_hook(kind, check)
    return converter


_FLOW = _converter(null=False)
_PAYLOAD = _converter(null=True)


def _problems(error: BaseException, names: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one table, a line for each field."""
    assert isinstance(error, ClassValidationError)
    for inner in error.exceptions:
        if isinstance(inner, ForbiddenExtraKeysError):
            for key in sorted(map(str, inner.extra_fields)):
                yield _unknown(key, names)
        elif isinstance(inner, KeyError):
            yield f"{inner.args[0]} is missing"
        else:
            name = error.group_exceptions()[0]
            found = next((note.name for raised, note in name if raised is inner), "?")
            yield f"{found}: {inner}"


def _unknown(key: str, names: dict[str, Any] | list[str]) -> str:
    """That this key is none of these, and which was meant."""
    near = difflib.get_close_matches(key, list(names), 1)
    meant = f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}"
    return f"unknown key {json.dumps(key)}: {meant}"


def spec_of(payload: object) -> Spec:
    """The spec that a payload holds. Raises ValueError, saying why, when it is none."""
    if type(payload) is not dict:
        raise ValueError(f"its payload must be an object with argv, not {_shown(payload)}")
    try:
        return _PAYLOAD.structure(payload, Spec)
    except ClassValidationError as error:
        raise ValueError("its payload: " + "; ".join(_problems(error, fields_dict(Spec)))) from None


# Reading.


class _Reader:
    """One flow file on its way to a Flow: collects every problem before it gives up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self.base = os.path.realpath(path.parent)
        self.tasks: dict[str, FlowTask] = {}

    def problem(self, *where_and_what: str) -> None:
        self.problems.append(": ".join((str(self.path), *where_and_what)))

    def table(self, value: object, kind: type[Any], *where: str) -> Any:
        """A table as an object of this class, or None with its problems noted."""
        if type(value) is not dict:
            self.problem(*where, f"must be a table, not {_shown(value)}")
            return None
        try:
            return _FLOW.structure(value, kind)
        except ClassValidationError as error:
            for problem in _problems(error, fields_dict(kind)):
                self.problem(*where, problem)
            return None

    def task(self, name: str, value: object, defaults: _Defaults, *where: str) -> None:
        """Check one task and keep it."""
        written = self.table(value, _Task, *where)
        if written is None:
            return
        cwd = written.cwd or defaults.cwd or "."
        timeout = defaults.timeout if written.timeout is None else written.timeout
        task = FlowTask(
            name,
            Spec(
                written.argv,
                Directory(os.path.normpath(os.path.join(self.base, cwd))),  # noqa: PTH118
                Environment({**defaults.env, **written.env}),
                timeout,
            ),
            written.after,
            defaults.attempts if written.attempts is None else written.attempts,
        )
        try:
            task.command()
        except BadValue as error:
            self.problem(*where, str(error))
        self.tasks[name] = task

    def toml(self, text: str) -> None:
        try:
            whole = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            self.problem(f"not TOML: {error}")
            return
        for key in whole.keys() - {"defaults", "tasks"}:
            self.problem(_unknown(key, ["defaults", "tasks"]))
        defaults = self.table(whole.get("defaults", {}), _Defaults, "defaults") or _Defaults()
        tasks = whole.get("tasks", {})
        if type(tasks) is not dict:
            self.problem(f"tasks must be tables such as [tasks.fetch], not {_shown(tasks)}")
            return
        for name, value in tasks.items():
            self.task(name, value, defaults, f"task {json.dumps(name)}")

    def jsonl(self, text: str) -> None:
        lines: dict[str, int] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            at = f"line {number}"
            try:
                value = json.loads(line, object_pairs_hook=_once, parse_constant=_no_constant)
            except (ValueError, RecursionError) as error:
                self.problem(at, f"not JSON: {error}")
                continue
            if type(value) is not dict:
                self.problem(at, f"must be an object with id and argv, not {_shown(value)}")
                continue
            name = value.pop("id", None)
            if type(name) is not str:
                what = "is missing" if name is None else f"must be a text, not {_shown(name)}"
                self.problem(at, f"id {what}")
            elif name in lines:
                self.problem(at, f"task {json.dumps(name)} stands on line {lines[name]} already")
            else:
                lines[name] = number
                self.task(name, value, _Defaults(), at, f"task {json.dumps(name)}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {json.dumps(twice)} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def read_flow(path: Path) -> Flow:
    """Read and check a flow file; raises FlowError with all that is wrong with it."""
    reader = _Reader(path)
    text = _text_of(reader)
    if not reader.problems:
        if _is_jsonl(path, text):
            reader.jsonl(text)
        else:
            reader.toml(text)
    if not reader.problems and not reader.tasks:
        reader.problem("no task stands in it: write one as [tasks.NAME] with an argv")
    if reader.problems:
        raise FlowError(reader.problems)
    return Flow(path, tuple(reader.tasks.values()))


def _is_jsonl(path: Path, text: str) -> bool:
    """By its name; where that says nothing, by its first character, which no TOML begins with."""
    if path.suffix in (".toml", ".jsonl"):
        return path.suffix == ".jsonl"
    return text.lstrip().startswith("{")


def _text_of(reader: _Reader) -> str:
    """The text of the file, or an empty one with the problem noted."""
    try:
        data = read_given(reader.path)
    except IsADirectoryError:
        reader.problem("is a directory, not a flow file")
        return ""
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        reader.problem(f"cannot be read: {what}")
        return ""
    if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        reader.problem("begins with a byte order mark: save it as UTF-8 without one")
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        reader.problem(f"line {line}", f"byte 0x{data[error.start]:02x} is not UTF-8")
        return ""
