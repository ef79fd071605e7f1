"""huey's SqliteStorage: it deletes what it hands out, so nothing is acknowledged."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from huey.storage import SqliteStorage

from .peer import Peer

__all__ = ["PEERS"]


class _Handle:
    def __init__(self, path: Path, *, fsync: bool) -> None:
        path.mkdir(exist_ok=True)
        self._storage = SqliteStorage("bench", str(path / "huey.db"), fsync=fsync, strict_fifo=True)

    def put(self, payload: Any) -> None:
        self._storage.enqueue(json.dumps(payload).encode())

    def work(self) -> None:
        json.loads(bytes(self._storage.dequeue()))

    def close(self) -> None:
        self._storage.close()


PEERS = [
    Peer("huey, fsync (no ack)", True, partial(_Handle, fsync=True)),
    Peer("huey, no fsync (no ack)", False, partial(_Handle, fsync=False)),
]
