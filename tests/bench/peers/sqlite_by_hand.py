"""A queue as one writes it by hand on SQLite: one table, write-ahead log, synced or not."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

from .peer import Peer

__all__ = ["PEERS", "SQLite"]

TABLE = """
create table if not exists task (
    id integer primary key,
    payload text not null,
    status text not null default 'ready',
    attempt integer not null default 0,
    worker text
)
"""
INDEX = "create index if not exists ready on task (id) where status = 'ready'"
TAKE = """
update task set status = 'running', attempt = attempt + 1, worker = ?
where id = (select id from task where status = 'ready' order by id limit 1)
returning id, payload
"""
DONE = "update task set status = 'succeeded' where id = ? and status = 'running'"


class SQLite:
    """Each step is one transaction."""

    def __init__(self, path: Path, synchronous: str) -> None:
        path.mkdir(exist_ok=True)
        self._at = sqlite3.connect(path / "tasks.db", isolation_level=None, timeout=60)
        self._at.execute("pragma journal_mode = wal")
        self._at.execute(f"pragma synchronous = {synchronous}")
        self._at.execute(TABLE)
        self._at.execute(INDEX)

    def put(self, payload: Any) -> None:
        """One insert."""
        self._at.execute("insert into task (payload) values (?)", (json.dumps(payload),))

    def work(self) -> None:
        """One update to take, one to say that it is done."""
        ((task, payload),) = self._at.execute(TAKE, ("worker",)).fetchall()
        json.loads(payload)
        self._at.execute(DONE, (task,))

    def close(self) -> None:
        """Let go of the file."""
        self._at.close()


class InOneStep(SQLite):
    """Says that one task is done and takes the next in the same transaction."""

    _task: int | None = None

    def work(self) -> None:
        """One transaction: an update to say that the last is done, one to take the next."""
        if self._task is None:
            self._take()
        self._at.execute("begin immediate")
        self._at.execute(DONE, (self._task,))
        self._take()
        self._at.execute("commit")

    def _take(self) -> None:
        ((self._task, payload),) = self._at.execute(TAKE, ("worker",)).fetchall()
        json.loads(payload)


PEERS = [
    Peer(f"SQLite by hand, {synchronous.upper()}{also}", synchronous == "full", opened)
    for synchronous in ("full", "normal")
    for also, opened in (
        ("", partial(SQLite, synchronous=synchronous)),
        (", done + take", partial(InOneStep, synchronous=synchronous)),
    )
]
