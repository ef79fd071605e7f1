"""Upcasting: what a line of an older version of the format would be in the present one.

The one place that knows how versions differ. A step takes the plain line of one version (a dict
in the order of the line, payloads and results as the bytes that were written) to that of the
next; a line goes through all steps from its own version on, and what comes out is read as any
line is. The hash is that of the line as it stands on disk, and was checked before.

To raise the version: write its step here, add the log of the last release to `fixtures/releases`,
and leave all older steps alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["STEPS", "VERSION", "Step", "Steps", "checked", "upcast"]

VERSION = 1
"""The version of format and rules that this code writes."""

Step = Callable[[dict[str, Any]], dict[str, Any]]
Steps = Mapping[int, Step]


def checked(steps: dict[int, Step], *, first: int = 1, last: int = VERSION) -> Steps:
    """These steps, which must lead from each version to the next. Raises ValueError for a gap."""
    if sorted(steps) != list(range(first, last)):
        raise ValueError(
            f"versions {first} to {last - 1} of the format need a step to the next each, "
            f"and there are steps from {sorted(steps)}"
        )
    return steps


STEPS: Steps = checked({})
"""From each older version to the next; version 1 is the first that there was."""


class _Events(msgspec.Struct):
    events: list[dict[str, msgspec.Raw]]


def upcast(line: bytes, version: int, steps: Steps) -> bytes:
    """The line of an older version as one of the present version. Its hash does not fit it.

    Raises KeyError where no step leads on from that version, and what `msgspec` raises where the
    line is no JSON of that shape.
    """
    plain: dict[str, Any] = msgspec.json.decode(line)
    written = msgspec.json.decode(line, type=_Events).events
    for event, kept in zip(plain["events"], written, strict=True):
        event.update((name, kept[name]) for name in ("payload", "result") if name in kept)
    while version < VERSION:
        plain = steps[version](plain)
        version += 1
        plain["v"] = version
    return msgspec.json.encode(plain)
