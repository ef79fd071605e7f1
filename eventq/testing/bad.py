"""Values that no queue can take: what is to be refused as BadValue, whatever the queue holds."""

from __future__ import annotations

from typing import Any

from eventq.core.commands import Enqueue

__all__ = ["BAD", "BAD_ON_DISK"]

Bad = tuple[str, dict[str, Any]]

_LOOP: list[Any] = []
_LOOP.append(_LOOP)

BAD: tuple[Bad, ...] = (
    ("enqueue", {"id": ""}),
    ("enqueue", {"id": "#1"}),
    ("enqueue", {"id": "a\n"}),
    ("enqueue", {"id": "\x85"}),
    ("enqueue", {"id": "\ud800"}),
    ("enqueue", {"id": "\N{SNOWMAN}" * 171}),
    ("enqueue", {"id": 7}),
    ("enqueue", {"id": "a", "after": "abc"}),
    ("enqueue", {"id": "a", "after": [""]}),
    ("enqueue", {"id": "a", "after": [7]}),
    ("enqueue", {"id": "a", "after": 7}),
    ("enqueue", {"id": "a", "max_attempts": 0}),
    ("enqueue", {"id": "a", "max_attempts": True}),
    ("enqueue_all", {"tasks": ["a"]}),
    ("enqueue_all", {"tasks": 7}),
    ("start", {"worker": ""}),
    ("start", {"worker": []}),
    ("complete", {"lease": 0}),
    ("complete", {"lease": "1"}),
    ("complete_and_start", {"lease": True}),
    ("fail", {"lease": 1, "error": None}),
    ("fail", {"lease": 1, "kind": "sometimes"}),
    ("fail", {"lease": None}),
    ("release", {"lease": -1}),
    ("redrive", {"task": ""}),
    ("redrive", {"task": 7}),
    ("cancel", {"task": None}),
    ("cancel", {"task": "a", "lease": 0}),
    ("cancel", {"task": "a", "error": 7}),
    ("restore", {"task": "a\x00"}),
)

BAD_ON_DISK: tuple[Bad, ...] = (
    ("enqueue", {"id": "a", "payload": object()}),
    ("enqueue", {"id": "a", "payload": float("nan")}),
    ("enqueue", {"id": "a", "payload": [float("inf")]}),
    ("enqueue", {"id": "a", "payload": "\ud800"}),
    ("enqueue", {"id": "a", "payload": {1: 2}}),
    ("enqueue", {"id": "a", "payload": b"a"}),
    ("enqueue", {"id": "a", "payload": _LOOP}),
    ("enqueue_all", {"tasks": [Enqueue("a"), Enqueue("b", {"set"})]}),
    ("start", {"worker": 7}),
    ("complete", {"lease": 1, "result": object()}),
    ("complete_and_start", {"lease": 1, "result": float("nan")}),
)
"""The same for a queue that keeps payloads as JSON, and names as texts."""
