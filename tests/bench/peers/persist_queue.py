"""persist-queue's SQLiteAckQueue, with and without clearing what was acknowledged."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from persistqueue import SQLiteAckQueue

from .peer import Peer

__all__ = ["PEERS"]

CLEAR_EVERY = 100


class _Handle:
    def __init__(self, path: Path, *, synced: bool, clear: bool) -> None:
        self._queue = SQLiteAckQueue(str(path), auto_commit=True)
        if not synced:
            self._queue._conn.execute("pragma synchronous = normal")
        self._clear = clear
        self._done = 0

    def put(self, payload: Any) -> None:
        self._queue.put(payload)

    def work(self) -> None:
        self._queue.ack(self._queue.get(block=False))
        self._done += 1
        if self._clear and not self._done % CLEAR_EVERY:
            self._queue.clear_acked_data(max_delete=CLEAR_EVERY, keep_latest=0)

    def close(self) -> None:
        self._queue.close()


PEERS = [
    Peer(
        f"persist-queue{', clearing' if clear else ''}{'' if synced else ', NORMAL'}",
        synced,
        partial(_Handle, synced=synced, clear=clear),
    )
    for synced in (True, False)
    for clear in (False, True)
]
