"""One entry, one line: the only place that knows the names on the wire.

A line is one JSON object, UTF-8, ended by a newline alone, whose fields stand in a fixed order:
`v`, `seq`, `at`, `by`, `do`, `why` (of operators' commands), `ask`, `events`, `prev` (of the first
line of a segment), `hash`, which makes the `chain`.

msgspec reads and writes the lines; `structure` gives the same events from plain values, with
cattrs, where speed does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, Union, cast, get_type_hints

import msgspec
from attrs import fields

from eventq.core.commands import COMMANDS
from eventq.core.events import (
    QUEUE_EVENTS,
    TASK_EVENTS,
    Blocked,
    Cancelled,
    Closed,
    Completed,
    Delayed,
    Died,
    Enqueued,
    Entry,
    Event,
    Expired,
    Failed,
    Forgotten,
    Json,
    Opened,
    Parked,
    Paused,
    Readied,
    Reconfigured,
    Redriven,
    Released,
    Renewed,
    Reopened,
    Resolved,
    Restored,
    Resumed,
    Started,
    Unblocked,
)
from eventq.core.evolve import Folded, take_for
from eventq.storage.asked import NewerVersion, NotALine, read_ask, written_ask
from eventq.storage.chain import next_hash
from eventq.storage.convert import moment, structure, unstructure
from eventq.storage.newer import refuse_newer, version_of
from eventq.storage.payload import Text
from eventq.storage.upcast import STEPS, VERSION, Steps, upcast

__all__ = [
    "EVENTS",
    "VERSION",
    "NewerVersion",
    "NotALine",
    "decode",
    "encode",
    "from_plain",
    "kept",
    "plain_event",
    "raw",
    "read",
]


EVENTS: dict[type[Event], str] = {
    Enqueued: "enqueued",
    Readied: "readied",
    Delayed: "delayed",
    Started: "started",
    Renewed: "renewed",
    Released: "released",
    Completed: "completed",
    Failed: "failed",
    Expired: "expired",
    Died: "died",
    Parked: "parked",
    Blocked: "blocked",
    Unblocked: "unblocked",
    Redriven: "redriven",
    Restored: "restored",
    Resolved: "resolved",
    Cancelled: "cancelled",
    Forgotten: "forgotten",
    Opened: "opened",
    Closed: "closed",
    Reopened: "reopened",
    Paused: "paused",
    Resumed: "resumed",
    Reconfigured: "reconfigured",
}

_CLASSES = {name: kind for kind, name in EVENTS.items()}
_FIELDS = {kind: {field.name for field in fields(cast(Any, kind))} for kind in EVENTS}


# Events as msgspec reads and writes them.

_FIELD_TYPES: dict[str, Any] = {
    "payload": msgspec.Raw,
    "result": msgspec.Raw,
    "policy": msgspec.Raw,
    "worker": str | None,
}
"""What msgspec is to look for where the core says nothing narrower."""


def _wire_class(kind: type[Event], name: str) -> type[msgspec.Struct]:
    """A class with the fields of this event, which msgspec tells from the others by its `type`.

    msgspec takes no union of attrs classes, and cannot be strict with one; it reads a union of
    these in one call, four times as fast as event by event.
    """
    hints = get_type_hints(kind)
    return msgspec.defstruct(
        kind.__name__,
        [(f.name, _FIELD_TYPES.get(f.name, hints[f.name])) for f in fields(cast(Any, kind))],
        tag=name,
        tag_field="type",
        forbid_unknown_fields=True,
        gc=False,
    )


_WIRE = {kind: _wire_class(kind, name) for kind, name in EVENTS.items()}
for _kind in TASK_EVENTS:
    take_for(_WIRE[_kind], _kind)
_ATTRS = {wire: kind for kind, wire in _WIRE.items()}


# Writing.


_NULL = msgspec.Raw(b"null")


def raw(value: Json | None) -> msgspec.Raw:
    """A payload or result, to be written as the bytes that it has."""
    return _NULL if value is None else msgspec.Raw(value)


def kept(text: msgspec.Raw) -> Json | None:
    """A payload or result that was read."""
    return None if text == _NULL else Text(text)


_spell = msgspec.json.Encoder().encode
"""How a text, a number, a list or None stands in a line."""


def _moment(at: datetime) -> bytes:
    """As `moment` does; msgspec leaves out the decimals of a whole second."""
    return _spell(at if at.microsecond and at.tzinfo is UTC else moment(at))


def _of_task_alone(name: str) -> Callable[[Any], bytes]:
    text = b'{"type":"%b","task":%%b}' % name.encode()
    return lambda event: text % _spell(event.task)


def _of_nothing(name: str) -> Callable[[Any], bytes]:
    text = b'{"type":"%b"}' % name.encode()
    return lambda _: text


_SPELLED: dict[type[Event], Callable[[Any], bytes]] = {
    Enqueued: lambda e: (
        b'{"type":"enqueued","task":%b,"payload":%b,"after":%b,"key":%b,"max_attempts":%b,'
        b'"not_before":%b}'
        % (
            _spell(e.task),
            b"null" if e.payload is None else e.payload,
            _spell(e.after) if e.after else b"[]",
            b"null" if e.key is None else _spell(e.key),
            _spell(e.max_attempts),
            b"null" if e.not_before is None else _moment(e.not_before),
        )
    ),
    Delayed: lambda e: (
        b'{"type":"delayed","task":%b,"until":%b}' % (_spell(e.task), _moment(e.until))
    ),
    Started: lambda e: (
        b'{"type":"started","task":%b,"attempt":%d,"worker":%b,"expires":%b}'
        % (
            _spell(e.task),
            e.attempt,
            _spell(e.worker),
            b"null" if e.expires is None else _moment(e.expires),
        )
    ),
    Renewed: lambda e: (
        b'{"type":"renewed","task":%b,"expires":%b}' % (_spell(e.task), _moment(e.expires))
    ),
    Completed: lambda e: (
        b'{"type":"completed","task":%b,"result":%b}'
        % (_spell(e.task), b"null" if e.result is None else e.result)
    ),
    Failed: lambda e: (
        b'{"type":"failed","task":%b,"attempt":%d,"error":%b,"kind":%b}'
        % (_spell(e.task), e.attempt, _spell(e.error), _spell(e.kind))
    ),
    Expired: lambda e: b'{"type":"expired","task":%b,"attempt":%d}' % (_spell(e.task), e.attempt),
    Blocked: lambda e: b'{"type":"blocked","task":%b,"root":%b}' % (_spell(e.task), _spell(e.root)),
    Cancelled: lambda e: (
        b'{"type":"cancelled","task":%b,"error":%b}' % (_spell(e.task), _spell(e.error))
    ),
    Opened: lambda e: (
        b'{"type":"opened","queue":%b,"policy":%b}'
        % (_spell(e.queue), _spell(unstructure(e.policy)))
    ),
    Reconfigured: lambda e: b'{"type":"reconfigured","policy":%b}' % _spell(unstructure(e.policy)),
}
"""How each event stands in a line: those with nothing but a task, or nothing at all, come below."""

for _short, _name in EVENTS.items():
    if _short not in _SPELLED:
        _SPELLED[_short] = (_of_task_alone if _FIELDS[_short] else _of_nothing)(_name)

_DO = {command.do: _spell(command.do) for command in COMMANDS}
_OPERATORS = frozenset(command.do for command in COMMANDS if command.operator)
_LINE = b'{"v":%d,"seq":%d,"at":%b,"by":%b,"do":%b%b,"ask":%b,"events":[%b]%b'


def encode(entry: Entry, last: bytes, *, first: bool) -> tuple[bytes, bytes]:
    """The line of this entry, with its newline, and its hash.

    `last` is the hash of the line before; `first` says that this line begins a segment.
    """
    do, ask = entry.do, entry.ask
    body = _LINE % (
        VERSION,
        entry.seq,
        _moment(entry.at),
        _spell(entry.by),
        _DO[do],
        b',"why":' + _spell(entry.why) if do in _OPERATORS else b"",
        _spell(written_ask(ask)) if ask else b"{}",
        b",".join([_SPELLED[type(event)](event) for event in entry.events]),
        b',"prev":"%b"' % last if first else b"",
    )
    digest = next_hash(last, body)
    return b'%b,"hash":"%b"}\n' % (body, digest), digest


# Reading.


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    seq: int
    at: datetime
    by: str | None
    do: Literal[tuple(command.do for command in COMMANDS)]  # type: ignore[valid-type]
    ask: dict[str, Any]
    events: list[Union[tuple(_WIRE.values())]]  # type: ignore[valid-type]  # noqa: UP007
    hash: str
    why: str | None = None
    prev: str | None = None


def _event(wire: Any) -> Event:
    """The event that was read."""
    kind = _ATTRS[type(wire)]
    if kind in (Opened, Reconfigured):
        return from_plain(msgspec.json.decode(msgspec.json.encode(wire)))
    values = {name: getattr(wire, name) for name in wire.__struct_fields__}
    for name in ("payload", "result"):
        if name in values:
            values[name] = kept(values[name])
    return kind(**values)


def _enqueued(wire: Any) -> Enqueued:
    payload = kept(wire.payload)
    return Enqueued.of(wire.task, payload, wire.after, wire.key, wire.max_attempts, wire.not_before)


def _completed(wire: Any) -> Any:
    wire.result = kept(wire.result)
    return wire


_FOR_THE_FOLD: dict[type, Callable[[Any], Any]] = {
    **{_WIRE[kind]: _event for kind in QUEUE_EVENTS},
    _WIRE[Enqueued]: _enqueued,
    _WIRE[Completed]: _completed,
}
"""What the fold keeps, or has no step for, is made whole."""

_read_line = msgspec.json.Decoder(_Line).decode


def _parsed(line: bytes, steps: Steps = STEPS) -> _Line:
    try:
        entry = _read_line(line)
        if not line.isascii():
            line.decode()  # msgspec passes over the bytes of a payload
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return _of_another_version(line, str(error), steps)
    return entry if entry.v == VERSION else _of_another_version(line, "", steps)


def read(line: bytes, steps: Steps = STEPS) -> Folded:
    """What `replay` needs of a line whose hash was checked. Raises NotALine, or NewerVersion.

    Other spellings of a value are found by who encodes again.
    """
    try:
        entry = _read_line(line)
        if entry.v != VERSION or not line.isascii():
            entry = _parsed(line, steps)
    except (msgspec.DecodeError, ValueError, RecursionError):
        entry = _parsed(line, steps)
    events = entry.events
    for i, event in enumerate(events):
        if (whole := _FOR_THE_FOLD.get(type(event))) is not None:
            events[i] = whole(event)
    return entry


def decode(line: bytes, steps: Steps = STEPS) -> Entry:
    """The whole entry of a line whose hash was checked. Raises as `read` does."""
    e = _parsed(line, steps)
    return Entry(
        e.seq, e.at, e.do, tuple(map(_event, e.events)), read_ask(e.do, e.ask), e.by, e.why
    )


def _of_another_version(line: bytes, error: str, steps: Steps) -> _Line:
    """An older line in the form of the present one; else what is wrong with a line that does not
    read, which may be that it is newer."""
    version = version_of(line)
    refuse_newer(line, version, _CLASSES)
    if version == VERSION:
        raise NotALine(f"it does not read as an entry: {error}")
    if version not in steps:
        raise NotALine(f"no eventq ever wrote version {version} of the format")
    try:
        return _read_line(upcast(line, version, steps))
    except (LookupError, TypeError, ValueError, msgspec.DecodeError) as wrong:
        raise NotALine(f"it does not read as an entry of version {version}: {wrong}") from None


# As plain values, with cattrs.


def plain_event(event: Event) -> dict[str, Any]:
    """The event as on the wire, payloads as values. Raises BadValue, as `Text` does."""
    return cast(dict[str, Any], Text(_SPELLED[type(event)](event)).value())


def from_plain(wire: dict[str, Any]) -> Event:
    """The event of a plain dict as `json.loads` gives it. Raises NotALine.

    The slow way: `decode` does the same from bytes, and keeps the bytes of a payload.
    """
    rest = dict(wire)
    name = rest.pop("type", None)
    kind = _CLASSES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise NotALine(f"no event is of the type {name!r}")
    if rest.keys() != _FIELDS[kind]:
        raise NotALine(f"it has not the fields of {name!r}: {sorted(rest)}")
    if not isinstance(rest.get("worker"), str | None):
        raise NotALine(f"its worker is {rest['worker']!r}, which is no name")
    for field in ("payload", "result"):
        if rest.get(field) is not None:
            rest[field] = Text(_spell(rest[field]))
    try:
        return structure(rest, kind)
    except Exception as error:
        raise NotALine(f"it does not read as {wire['type']!r}: {error}") from error
