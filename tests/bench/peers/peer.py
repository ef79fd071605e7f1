"""What is measured of another queue: a handle that puts, and that takes and acknowledges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

__all__ = ["PAYLOAD", "Handle", "Peer"]

PAYLOAD = {"url": "https://example.org/page", "number": 1}


class Handle(Protocol):
    """An open queue."""

    def put(self, payload: Any) -> None:
        """Add one task."""

    def work(self) -> None:
        """Take the next one and say that it is done."""

    def close(self) -> None:
        """Let go of the files."""


@frozen
class Peer:
    """One way of running a queue; `synced` says that each step is on disk before it returns."""

    name: str
    synced: bool
    open: Callable[[Path], Handle]
