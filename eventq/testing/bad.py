"""Values that no queue can take: what is to be refused as BadValue, whatever the queue holds."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from eventq.core.commands import Enqueue

__all__ = ["BAD", "BAD_ON_DISK"]

Bad = tuple[str, dict[str, Any]]

THE_END_ELSEWHERE = datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))

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
    ("enqueue", {"id": "a", "key": ""}),
    ("enqueue", {"id": "a", "key": 7}),
    ("enqueue", {"id": "a", "not_before": "noon"}),
    ("enqueue", {"id": "a", "not_before": datetime(2026, 1, 1)}),  # noqa: DTZ001  # no zone
    ("enqueue", {"id": "a", "not_before": THE_END_ELSEWHERE}),
    ("enqueue_all", {"tasks": ["a"]}),
    ("enqueue_all", {"tasks": 7}),
    ("start", {"worker": ""}),
    ("start", {"worker": []}),
    ("start", {"lease_for": 0}),
    ("start", {"lease_for": float("nan")}),
    ("start", {"lease_for": timedelta.max}),
    ("complete", {"lease": 0}),
    ("complete", {"lease": "1"}),
    ("complete_and_start", {"lease": True}),
    ("complete_and_start", {"lease": 1, "lease_for": -1}),
    ("fail", {"lease": 1, "error": None}),
    ("fail", {"lease": 1, "kind": "sometimes"}),
    ("fail", {"lease": None}),
    ("fail", {"lease": 1, "retry_after": -1}),
    ("fail", {"lease": 1, "retry_after": "soon"}),
    ("fail", {"lease": 1, "retry_after": 1e12}),
    ("renew", {"lease": 0}),
    ("renew", {"lease": 1, "lease_for": 0}),
    ("release", {"lease": -1}),
    ("redrive", {"task": ""}),
    ("redrive", {"task": 7}),
    ("cancel", {"task": None}),
    ("cancel", {"task": "a", "lease": 0}),
    ("cancel", {"task": "a", "error": 7}),
    ("restore", {"task": "a\x00"}),
    ("resolve", {"task": ""}),
    ("redrive_all", {"select": "all"}),
    ("reconfigure", {"capacity": 7}),
    ("reconfigure", {"retry": None}),
    ("reconfigure", {"lease_for": 0}),
    ("reconfigure", {"colour": "red"}),
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
    ("reconfigure", {"pool": [7]}),
    ("reconfigure", {"pool": ["a\n"]}),
    ("cancel", {"task": "a", "why": 7}),
    ("pause", {"why": b"a"}),
    ("start", {"worker": 7}),
    ("complete", {"lease": 1, "result": object()}),
    ("complete_and_start", {"lease": 1, "result": float("nan")}),
)
"""The same for a queue that keeps payloads as JSON, and names as texts."""
