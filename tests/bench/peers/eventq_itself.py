"""eventq in the place of a peer: on disk, synced before the answer or soon after; in memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from eventq import Lease, WorkQueue
from eventq.storage.syncing import Durability

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


def _on_disk(path: Path, durability: Durability) -> _Handle:
    return _Handle(WorkQueue.open(path, durability=durability))


def _in_one_entry(path: Path, durability: Durability) -> _Handle:
    return _InOneEntry(WorkQueue.open(path, durability=durability))


def _in_memory(path: Path) -> _Handle:
    return _Handle(WorkQueue.in_memory())


PEERS = [
    Peer("eventq", True, partial(_on_disk, durability="power")),
    Peer("eventq, complete_and_start", True, partial(_in_one_entry, durability="power")),
    Peer("eventq, process", False, partial(_on_disk, durability="process")),
    Peer(
        "eventq, process, complete_and_start",
        False,
        partial(_in_one_entry, durability="process"),
    ),
    Peer("eventq, in memory", False, _in_memory),
]
