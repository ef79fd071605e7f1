"""One entry, one line: the only place that knows the names on the wire.

A line is one JSON object, UTF-8, ended by a newline alone, whose fields stand in a fixed order:
`v`, `seq`, `at`, `by`, `do`, `why` (of operators' commands), `ask`, `events`, `prev` (of the first
line of a segment), `hash`. The hash is SHA-256, in hexadecimal, over the digits of the line before
(64 zeros before the first) and the bytes of this line up to its last `,"hash":"`.

msgspec reads and writes the lines; `structure` gives the same events from plain values, with
cattrs, where speed does not count.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Union, cast, get_type_hints

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
from eventq.storage.asked import NotALine, read_ask, written_ask
from eventq.storage.convert import moment, structure, unstructure

__all__ = [
    "EVENTS",
    "GENESIS",
    "TAIL",
    "VERSION",
    "NewerVersion",
    "NotALine",
    "decode",
    "encode",
    "fits",
    "from_plain",
    "hash_of",
    "next_hash",
    "plain_entry",
    "plain_event",
    "prev_of",
    "read",
]

VERSION = 1
"""The version of format and rules that this code writes."""

GENESIS = "0" * 64
"""The hash before the first line."""

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


class NewerVersion(NotALine):
    """The line was written by a newer eventq, whose events this one may not know."""


# Writing.


def _raw(value: Json | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(value)


def _maybe_moment(at: datetime | None) -> str | None:
    return None if at is None else moment(at)


_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "payload": _raw,
    "result": _raw,
    "not_before": _maybe_moment,
    "until": moment,
    "expires": _maybe_moment,
    "policy": unstructure,
}
"""Fields whose spelling on the wire is not that of msgspec."""


def _writer(kind: type[Event], name: str) -> Callable[[Any], dict[str, Any]]:
    names = [field.name for field in fields(cast(Any, kind))]
    written = [(field, _WRITTEN[field]) for field in names if field in _WRITTEN]

    def write(event: Event) -> dict[str, Any]:
        wire: dict[str, Any] = {"type": name}
        for field in names:
            wire[field] = getattr(event, field)
        for field, spell in written:
            wire[field] = spell(wire[field])
        return wire

    return write


_WRITERS = {kind: _writer(kind, name) for kind, name in EVENTS.items()}
_OPERATORS = frozenset(command.do for command in COMMANDS if command.operator)
_to_bytes = msgspec.json.Encoder().encode


def plain_entry(entry: Entry) -> dict[str, Any]:
    """The fields of a line, in their order, without those that make the chain."""
    line: dict[str, Any] = {
        "v": VERSION,
        "seq": entry.seq,
        "at": moment(entry.at),
        "by": entry.by,
        "do": entry.do,
    }
    if entry.do in _OPERATORS:
        line["why"] = entry.why
    line["ask"] = written_ask(entry.ask)
    line["events"] = [_WRITERS[type(event)](event) for event in entry.events]
    return line


def encode(entry: Entry, last: str, *, first: bool) -> tuple[bytes, str]:
    """The line of this entry, with its newline, and its hash.

    `last` is the hash of the line before; `first` says that this line begins a segment.
    """
    line = plain_entry(entry)
    if first:
        line["prev"] = last
    body = _to_bytes(line)[:-1]
    digest = next_hash(last.encode(), body)
    return b'%b,"hash":"%b"}\n' % (body, digest), digest.decode()


def next_hash(last: bytes, body: bytes) -> bytes:
    """The 64 digits over those of the line before and the body of this line."""
    return hashlib.sha256(last + body).hexdigest().encode()


# Reading.

TAIL = len(',"hash":""}\n') + 64
"""How many bytes at the end of a line are not covered by its hash."""


def fits(line: bytes, last: bytes) -> bool:
    """Whether the hash that a line ends in is over the one before and its own body."""
    return line.endswith(b',"hash":"%b"}\n' % next_hash(last, line[:-TAIL]))


def hash_of(line: bytes) -> bytes | None:
    """The 64 digits that a line claims, or None where it does not end as a line does."""
    if line[-TAIL : -TAIL + 9] == b',"hash":"' and line[-3:] == b'"}\n':
        return line[-67:-3]
    return None


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


_PREV = re.compile(rb',"prev":"([0-9a-f]{64})"\Z')


def prev_of(line: bytes) -> bytes | None:
    """The hash that a line gives for the one before: only the first of a segment does."""
    found = _PREV.search(line[:-TAIL], max(0, len(line) - TAIL - 75))
    return None if found is None else found[1]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    seq: int
    at: datetime
    by: str | None
    do: str
    ask: dict[str, Any]
    events: list[Union[tuple(_WIRE.values())]]  # type: ignore[valid-type]  # noqa: UP007
    hash: str
    why: str | None = None
    prev: str | None = None


_NULL = msgspec.Raw(b"null")


def _kept(raw: msgspec.Raw) -> Json | None:
    return None if raw == _NULL else Json(raw)


def _event(wire: Any) -> Event:
    """The event that was read."""
    kind = _ATTRS[type(wire)]
    if kind in (Opened, Reconfigured):
        return from_plain(msgspec.json.decode(msgspec.json.encode(wire)))
    values = {name: getattr(wire, name) for name in wire.__struct_fields__}
    for name in ("payload", "result"):
        if name in values:
            values[name] = _kept(values[name])
    return kind(**values)


# The slots of an event, set at once: the `__init__` of a frozen class takes three times as long.
_new: Any = object.__new__
_task, _payload, _after = Enqueued.task.__set__, Enqueued.payload.__set__, Enqueued.after.__set__  # type: ignore[attr-defined]
_key, _limit = Enqueued.key.__set__, Enqueued.max_attempts.__set__  # type: ignore[union-attr]
_not_before = Enqueued.not_before.__set__  # type: ignore[union-attr]


def _enqueued(wire: Any) -> Enqueued:
    event: Enqueued = _new(Enqueued)
    _task(event, wire.task)
    _payload(event, _kept(wire.payload))
    _after(event, wire.after)
    _key(event, wire.key)
    _limit(event, wire.max_attempts)
    _not_before(event, wire.not_before)
    return event


def _completed(wire: Any) -> Any:
    wire.result = _kept(wire.result)
    return wire


_FOR_THE_FOLD: dict[type, Callable[[Any], Any]] = {
    **{_WIRE[kind]: _event for kind in QUEUE_EVENTS},
    _WIRE[Enqueued]: _enqueued,
    _WIRE[Completed]: _completed,
}
"""What the fold keeps, or has no step for, is made whole."""

_read_line = msgspec.json.Decoder(_Line).decode


def _parsed(line: bytes) -> _Line:
    try:
        entry = _read_line(line)
        if not line.isascii():
            line.decode()  # msgspec passes over the bytes of a payload
    except (msgspec.DecodeError, ValueError) as error:
        raise _why_not(line, error) from None
    if entry.v != VERSION:
        raise _other_version(entry.v)
    return entry


def read(line: bytes) -> Folded:
    """What `replay` needs of a line whose hash was checked. Raises NotALine, or NewerVersion.

    Other spellings of a value are found by who encodes again.
    """
    try:
        entry = _read_line(line)
        if entry.v != VERSION or not line.isascii():
            entry = _parsed(line)
    except (msgspec.DecodeError, ValueError):
        entry = _parsed(line)
    events = entry.events
    for i, event in enumerate(events):
        if (whole := _FOR_THE_FOLD.get(type(event))) is not None:
            events[i] = whole(event)
    return entry


def decode(line: bytes) -> Entry:
    """The whole entry of a line whose hash was checked. Raises as `read` does."""
    e = _parsed(line)
    return Entry(
        e.seq, e.at, e.do, tuple(map(_event, e.events)), read_ask(e.do, e.ask), e.by, e.why
    )


def _why_not(line: bytes, error: Exception) -> NotALine:
    """The error for a line that does not read: a newer version may be why."""
    try:
        version = msgspec.json.decode(line, type=_Version).v
    except (msgspec.DecodeError, ValueError):
        version = VERSION
    if version != VERSION:
        return _other_version(version)
    return NotALine(f"it does not read as an entry: {error}")


class _Version(msgspec.Struct):
    v: int


def _other_version(version: int) -> NotALine:
    if version > VERSION:
        return NewerVersion(
            f"it was written by version {version} of the format, and this eventq knows {VERSION}"
        )
    return NotALine(f"no eventq ever wrote version {version} of the format")


# As plain values, with cattrs.


def plain_event(event: Event) -> dict[str, Any]:
    """The event as on the wire, payloads as values."""
    wire = _WRITERS[type(event)](event)
    for field, value in wire.items():
        if isinstance(value, msgspec.Raw):
            wire[field] = msgspec.json.decode(value)
        elif isinstance(value, tuple):
            wire[field] = list(value)
    return wire


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
            rest[field] = Json(_to_bytes(rest[field]))
    try:
        return structure(rest, kind)
    except Exception as error:
        raise NotALine(f"it does not read as {wire['type']!r}: {error}") from error
