"""`ask` on the wire: the arguments that the log keeps of a command, and all of a refused one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import msgspec
from attrs import fields

from eventq.core.commands import COMMANDS, Cancel, Command, Enqueue, EnqueueAll
from eventq.core.events import Json
from eventq.core.select import Select
from eventq.storage.convert import in_seconds, structure, unstructure
from eventq.storage.payload import Text

__all__ = ["NewerVersion", "NotALine", "command_of", "read_ask", "written_ask"]

_COMMANDS = {command.do: command for command in COMMANDS}
_to_bytes = msgspec.json.Encoder().encode


class NotALine(ValueError):
    """These bytes are not a line that eventq writes."""


class NewerVersion(NotALine):
    """The line was written by a newer eventq: this one does not know what it means."""


def _written_command(command: Command) -> dict[str, Any]:
    """All fields of a command that was refused."""
    return {
        field.name: _written_value(getattr(command, field.name)) for field in fields(type(command))
    }


def _written_value(value: Any) -> Any:
    if isinstance(value, Json):
        return msgspec.Raw(value)
    if isinstance(value, Command):
        return _written_command(value)
    if isinstance(value, tuple):
        return [_written_value(item) for item in value]
    return unstructure(value)


_ASK_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "lease_for": in_seconds,
    "retry_after": in_seconds,
    "select": unstructure,
    "command": _written_command,
}


def written_ask(ask: dict[str, Any]) -> dict[str, Any]:
    """What an entry asked, as the log spells it."""
    written = ask
    for name, value in ask.items():
        if value is not None and name in _ASK_WRITTEN:
            written = {**written, name: _ASK_WRITTEN[name](value)}
    return written


_ASK_TYPES: dict[str, Any] = {
    "lease": int,
    "lease_for": timedelta | None,
    "retry_after": timedelta | None,
    "worker": str | None,
    "select": Select,
}


def command_of(do: str) -> type[Command]:
    """The command of this name. Raises NewerVersion."""
    kind = _COMMANDS.get(do)
    if kind is None:
        raise NewerVersion(
            f"it was written for a command {do!r}, which this eventq does not know: "
            "a newer one may have written it"
        )
    return kind


def read_ask(do: str, ask: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command, as `Command.ask` gives them. Raises NotALine."""
    kind = command_of(do)
    try:
        if "refused" in ask:
            refused, rest = ask["refused"], dict(ask["command"])
            return {"refused": structure(refused, str), "command": _read_command(kind, rest)}
        if tuple(ask) != kind.asks:
            raise TypeError(f"{do} asks {list(kind.asks)}, not {list(ask)}")
        types = {**_ASK_TYPES, "lease": int | None} if kind is Cancel else _ASK_TYPES
        return {name: structure(value, types[name]) for name, value in ask.items()}
    except Exception as error:
        raise NotALine(f"what {do!r} asked does not read: {error}") from error


def _read_command(kind: type[Command], rest: dict[str, Any]) -> Command:
    """A command that was refused, from all its fields."""
    if kind is EnqueueAll:
        return EnqueueAll([cast(Enqueue, _read_command(Enqueue, task)) for task in rest["tasks"]])
    for name in ("payload", "result"):
        if rest.get(name) is not None:
            rest[name] = Text(_to_bytes(rest[name]))
    return structure(rest, kind)
