"""The log of a release: `python tests/release.py` writes `fixtures/releases/<version>`, once.

A log that was published is never written anew: the folder must not be there. What it holds: a
`log` in several segments that uses every event, command and refusal, each field that may be null
both ways; `state.json`, what `eventq at` tells of its last entry; and `head`, its seq and hash.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from disk import NOON, Ticks, tour
from terminal import eventq

from eventq import Capacity, Enqueue, Keys, Refusal, Retention, Retry, Select, WorkQueue

TOP = Path(__file__).parent.parent
RELEASES = TOP / "fixtures" / "releases"
VERSION = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]


def write(path: Path) -> None:
    """The tour, and then what it leaves out; in the end there is a task of every status."""
    tour(path)
    with WorkQueue.open(path, read_only=True) as q:
        last = q.state.at
    assert last is not None
    clock = Ticks(last)
    with WorkQueue.open(path, clock=clock, segment_bytes=3000, by="Jürgen \N{SNOWMAN}") as q:
        q.redrive_all(
            Select(tasks=["slow", "nobody"]), why="\u65e5\u672c\u8a9e, \U0001f600 and \\u2028\u2028"
        )
        q.cancel("slow", error=None, why=None)
        q.resolve("slow")
        q.close()
        with pytest.raises(Refusal):
            q.enqueue("too late", {"\u00e9": "\u0301"})
        q.reopen()
        q.pause()
        q.resume(why="day")
        q.reconfigure(
            capacity=Capacity(9, counts="unresolved"),
            pool=None,
            retry=Retry(max_attempts=2, max_redrives=0),
            retention=Retention(2),
            lease_for=None,
            keys=Keys("open"),
        )
        _refusals(q)
        _statuses(q, clock)


def _lease(q: WorkQueue, worker: str | None = None, lease_for: float | None = None) -> int:
    lease = q.start(worker, lease_for=lease_for)
    assert lease is not None
    return lease.id


def _refusals(q: WorkQueue) -> None:
    """Those that the tour does not have, recorded: busy, full, stale, and more arguments."""
    q.enqueue("a", after=[], key="k \u00e4", not_before=NOON)
    lease = _lease(q, "w \u00e4", 3600.5)
    for refused in (
        lambda: q.start("w \u00e4"),
        lambda: q.complete(lease + 1000, {"r": None}),
        lambda: q.fail(lease + 1000, "", kind="permanent", retry_after=timedelta(seconds=1.5)),
        lambda: q.renew(lease + 1000, 9),
        lambda: q.fail(lease + 1000, "x"),
        lambda: q.renew(lease + 1000),
        lambda: q.release(lease + 1000),
        lambda: q.enqueue("a", after=["b"], max_attempts=3, not_before=NOON),
        lambda: q.complete_and_start(lease + 1000, None, lease_for=60),
        lambda: q.cancel("a", lease=lease + 1000),
        lambda: q.redrive("a", why="?"),
        lambda: q.resolve("a"),
        lambda: q.enqueue_all([Enqueue(f"f{i}") for i in range(10)]),
    ):
        with pytest.raises(Refusal):
            refused()
    q.complete_and_start(lease, None, lease_for=60)
    q.enqueue("b")
    ended = q.start()
    assert ended is not None
    q.complete_and_start(ended)
    with pytest.raises(Refusal):
        q.complete_and_start(ended, "again")
    q.tick()


def _statuses(q: WorkQueue, clock: Ticks) -> None:
    """A task of every status, a held key, and what waits for what."""
    q.reconfigure(capacity=None, retry=Retry(max_attempts=2, max_redrives=1), why="room for all")
    q.enqueue("parked", [0, -1, 1e300, "\x7f"])
    q.fail(_lease(q), "\N{PILE OF POO}" * 3, kind="permanent")
    q.redrive("parked", why="again")
    q.fail(_lease(q), "again", kind="permanent")
    q.enqueue("dead", max_attempts=1)
    q.fail(_lease(q, "w3"), "")
    q.enqueue("blocked", after=["dead", "pending"])
    q.enqueue("running", key="k")
    q.enqueue("held", key="k")
    _lease(q, "w4", 86400)
    q.enqueue("done", {})
    q.complete(_lease(q), ["\N{GRINNING FACE}", {"\u65e5": None}])
    q.enqueue("pending", after=["nobody has it"])
    q.enqueue("gone", payload=None)
    q.cancel("gone", error="not needed", why="x" * 300)
    q.enqueue("delayed", not_before=clock.at + timedelta(days=9))
    q.enqueue("ready", {"nested": [[[{}]]]}, max_attempts=None)
    q.enqueue(None, None)


def main() -> None:
    """Write the log of this version."""
    target = RELEASES / VERSION
    if target.exists():
        sys.exit(f"{target} is there already, and is never edited")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queue"
        write(path)
        head = eventq("head", "--queue", path).out
        state = eventq("at", head.partition(":")[0], "--queue", path, "--json").out
        target.mkdir(parents=True)
        shutil.copytree(path / "log", target / "log")
        (target / "state.json").write_text(state)
        (target / "head").write_text(head)


if __name__ == "__main__":
    main()
