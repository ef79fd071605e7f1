"""What a line says of its version, and whether a newer eventq wrote it: read leniently."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress

import msgspec

from eventq.storage.asked import NewerVersion, command_of
from eventq.storage.upcast import VERSION

__all__ = ["refuse_newer", "version_of"]


class _Version(msgspec.Struct):
    v: int


class _Do(msgspec.Struct):
    do: str


class _Type(msgspec.Struct):
    type: str = ""


class _Types(msgspec.Struct):
    events: list[_Type]


def version_of(line: bytes) -> int:
    """The version that a line says it has; the present one where it says none."""
    try:
        return msgspec.json.decode(line, type=_Version).v
    except (msgspec.DecodeError, ValueError, RecursionError):
        return VERSION


def refuse_newer(line: bytes, version: int, events: Container[str]) -> None:
    """Raise NewerVersion for a line of a newer version, or of the present one with a command or an
    event that is not among these."""
    if version > VERSION:
        raise NewerVersion(
            f"it was written by version {version} of the format, and this eventq knows {VERSION}"
        )
    if version < VERSION:
        return
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        command_of(msgspec.json.decode(line, type=_Do).do)
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        for event in msgspec.json.decode(line, type=_Types).events:
            if event.type and event.type not in events:
                raise NewerVersion(
                    f"it has an event of the type {event.type!r}, which this eventq does not "
                    "know: a newer one may have written it"
                )
