"""eventq in the place of a peer: on disk, synced, and in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from eventq import Lease, WorkQueue

from .peer import Peer

__all__ = ["PEERS"]


class _Handle:
    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._worker = f"worker-{os.getpid()}"

    def put(self, payload: Any) -> None:
        self._queue.enqueue(payload=payload)

    def work(self) -> None:
        lease = self._queue.start(self._worker)
        assert lease is not None
        self._queue.complete(lease)

    def close(self) -> None:
        self._queue.shut()


class _InOneEntry(_Handle):
    """Says that one task is done and takes the next in the same entry."""

    _lease: Lease | None = None

    def work(self) -> None:
        if self._lease is None:
            self._lease = self._queue.start(self._worker)
        assert self._lease is not None
        self._lease = self._queue.complete_and_start(self._lease)


def _on_disk(path: Path) -> _Handle:
    return _Handle(WorkQueue.open(path))


def _in_one_entry(path: Path) -> _Handle:
    return _InOneEntry(WorkQueue.open(path))


def _in_memory(path: Path) -> _Handle:
    return _Handle(WorkQueue.in_memory())


PEERS = [
    Peer("eventq", True, _on_disk),
    Peer("eventq, complete_and_start", True, _in_one_entry),
    Peer("eventq, in memory", False, _in_memory),
]
