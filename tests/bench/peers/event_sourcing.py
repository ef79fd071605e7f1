"""The library `eventsourcing` on SQLite: a task is an aggregate, and its log is read back."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any
from uuid import UUID

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from .peer import Peer

__all__ = ["PEERS", "ids", "load", "read", "write"]


class Task(Aggregate):
    """Enqueued, started, completed."""

    @event("Enqueued")
    def __init__(self, payload: Any) -> None:
        self.payload = payload
        self.status = "ready"
        self.worker: str | None = None

    @event("Started")
    def start(self, worker: str) -> None:
        """Hand it out."""
        self.status = "running"
        self.worker = worker

    @event("Completed")
    def complete(self) -> None:
        """It is done."""
        self.status = "succeeded"


class Tasks(Application[UUID]):
    """All tasks."""


def _application(path: Path) -> Tasks:
    path.mkdir(exist_ok=True)
    return Tasks(
        env={
            "PERSISTENCE_MODULE": "eventsourcing.sqlite",
            "SQLITE_DBNAME": str(path / "events.db"),
        }
    )


class _Handle:
    """The line is kept beside it, in memory: the library has no queue."""

    def __init__(self, path: Path) -> None:
        self._tasks = _application(path)
        self._line: deque[UUID] = deque()

    def put(self, payload: Any) -> None:
        task = Task(payload)
        self._tasks.save(task)
        self._line.append(task.id)

    def work(self) -> None:
        task: Any = self._tasks.repository.get(self._line.popleft())
        task.start("worker")
        self._tasks.save(task)
        task.complete()
        self._tasks.save(task)

    def close(self) -> None:
        self._tasks.close()


PEERS = [Peer("eventsourcing", True, _Handle)]


# Replay.


def write(path: Path, tasks: int) -> int:
    """A log of so many finished tasks; how many events that is."""
    application = _application(path)
    batch: list[Task] = []
    for i in range(tasks):
        task = Task({"url": f"https://example.org/page/{i}"})
        task.start("worker-1")
        task.complete()
        batch.append(task)
        if len(batch) == 500 or i + 1 == tasks:
            application.save(*batch)
            batch.clear()
    application.close()
    return 3 * tasks


def ids(path: Path) -> list[UUID]:
    """The ids of all tasks, oldest first."""
    application = _application(path)
    found: dict[UUID, None] = {}
    start = 1
    while notifications := application.recorder.select_notifications(start=start, limit=1_000):
        found |= dict.fromkeys(each.originator_id for each in notifications)
        start = notifications[-1].id + 1
    application.close()
    return list(found)


def load(path: Path, tasks: list[UUID]) -> None:
    """Let the library replay: each task from its events, as its repository does."""
    application = _application(path)
    for task in tasks:
        application.repository.get(task)
    application.close()


def read(path: Path) -> int:
    """Read all events in the order of the log and fold them by hand, faster than the library does
    by itself; how many tasks that gives."""
    application = _application(path)
    tasks: dict[UUID, Any] = {}
    start = 1
    while True:
        notifications = application.recorder.select_notifications(start=start, limit=1_000)
        if not notifications:
            break
        for notification in notifications:
            happened = application.mapper.to_domain_event(notification)
            task = tasks.get(happened.originator_id)
            tasks[happened.originator_id] = happened.mutate(task)
        start = notifications[-1].id + 1
    application.close()
    return len(tasks)
