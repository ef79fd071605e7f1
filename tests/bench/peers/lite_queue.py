"""litequeue, synced (not its default) and as it comes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from litequeue import LiteQueue

from .peer import Peer

__all__ = ["PEERS"]


class _Handle:
    def __init__(self, path: Path, synchronous: str) -> None:
        path.mkdir(exist_ok=True)
        self._queue = LiteQueue(path / "queue.db")
        self._queue.conn.execute(f"pragma synchronous = {synchronous}")

    def put(self, payload: Any) -> None:
        self._queue.put(json.dumps(payload))

    def work(self) -> None:
        taken = self._queue.pop()
        json.loads(taken.data)
        self._queue.done(taken.message_id)

    def close(self) -> None:
        self._queue.conn.close()


PEERS = [
    Peer("litequeue, FULL", True, partial(_Handle, synchronous="full")),
    Peer("litequeue, NORMAL", False, partial(_Handle, synchronous="normal")),
]
