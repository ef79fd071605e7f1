"""A queue on disk, for tests: a clock that ticks, a tour through every event, and the bytes.

The chain of hashes is worked out here anew, with hashlib alone, so that a line can be forged and
a log checked without asking the code that is tested.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eventq import (
    Backoff,
    Capacity,
    Enqueue,
    Keys,
    Lease,
    Refusal,
    Retention,
    Retry,
    Select,
    State,
    WorkQueue,
)
from eventq.core.evolve import replay
from eventq.storage.redo import Redo

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
ZEROS = b"0" * 64
CHAIN = len(b',"hash":""}\n') + 64
"""What stands at the end of a line behind the bytes that its hash covers."""

FIXTURES = Path(__file__).parent.parent / "fixtures" / "logs"


class Ticks:
    """A clock that moves one second at each look; `at` may be set."""

    def __init__(self, at: datetime = NOON) -> None:
        self.at = at

    def __call__(self) -> datetime:
        self.at += timedelta(seconds=1)
        return self.at


def tour(path: Path, **more: Any) -> None:
    """Write a log with every event and every command, each second one of them."""
    clock = Ticks()
    with WorkQueue.open(
        path,
        retry=Retry(max_attempts=2, max_redrives=1, max_releases=1),
        retention=Retention(2),
        clock=clock,
        segment_bytes=3000,
        **more,
    ) as q:
        q.enqueue("fetch", {"url": "https://example.org/", "n": [1, 1.0, -0.0, None, True]})
        q.enqueue("parse", "\u2028 \x00 \N{SNOWMAN}", after=["fetch"], max_attempts=None, by="ann")
        q.enqueue_all([Enqueue("report", after=["parse"]), Enqueue(None, {"hash": ',"hash":"x'})])
        q.release(_started(q, "w1"))
        q.fail(_started(q, "w1"), "HTTP 503", by="cron")
        q.complete(_started(q), [])
        q.fail(_started(q, "w2"), "HTTP 404\n[red]\x1b[0m", kind="permanent")
        q.enqueue("late", after=["report"])
        q.redrive("fetch", why="they say it is back", by="ann")
        for _ in range(2):
            q.release(_started(q))
        q.fail(_started(q), "gone", kind="permanent")
        q.redrive("fetch", by="ann")
        next_ = q.complete_and_start(_started(q, "w1"), {"rows": 10**30})
        q.cancel("parse", lease=next_, error="too old", why="asked by support", by="ann")
        q.restore("parse", why="needed after all")
        q.cancel("late")
        q.close(why="moving house")
        q.complete(_started(q))
        q.complete(_started(q))
        q.reopen()
        q.enqueue("last", after=["late"])
        q.cancel("last")
        q.resolve("late", why="done by hand", by="ann")
        q.tick()
        _tour_of_times(q, clock)


def _tour_of_times(q: WorkQueue, clock: Ticks) -> None:
    """Delays, leases that run out, a pause, another policy, and what is recorded under it."""
    later = clock.at + timedelta(hours=1, microseconds=123456)
    q.enqueue("slow", key="account-7", not_before=later)
    q.pause(why="night")
    clock.at = later
    q.tick()
    q.resume()
    q.renew(_started(q, "w1", lease_for=2.5), timedelta(minutes=1))
    clock.at += timedelta(minutes=2)
    q.tick()
    q.fail(_started(q), "HTTP 503", retry_after=30)
    q.redrive_all(Select(how="glob", error="HTTP 5*", died_since=NOON), why="they say it is back")
    q.fail(_started(q), "HTTP 503", retry_after=0.5)
    q.reconfigure(
        capacity=Capacity(9),
        pool=["w1", "w2"],
        retry=Retry(max_attempts=None, backoff=Backoff(1.5, cap=60, jitter="equal")),
        retention=Retention(0, age=timedelta(days=1)),
        lease_for=3600,
        keys=Keys("halt"),
        record=True,
        why="for the night",
        by="ann",
    )
    q.fail(_started(q, "w2"), "HTTP 503")
    q.start("w1")
    for refused in (
        lambda: q.start("w3"),
        lambda: q.cancel("nobody", error="old", why="a mistake", by="ann"),
        lambda: q.enqueue("slow", [1.0], key="account-7"),
        lambda: q.enqueue_all([Enqueue("x", {}, after=["y"]), Enqueue("y", after=["x"])]),
        lambda: q.restore("slow"),
    ):
        with pytest.raises(Refusal):
            refused()


def _started(q: WorkQueue, worker: str | None = None, lease_for: float | None = None) -> int:
    lease = q.start(worker, lease_for=lease_for)
    assert lease is not None
    return lease.id


NEVER = 10**9
"""After how many commands a handle makes a redo file that is to do without."""


def small_redo(monkeypatch: pytest.MonkeyPatch, size: int = 700, after: int = 1) -> None:
    """Let handles make use of a redo file early, and of so small a one that it goes round."""
    monkeypatch.setattr(Redo, "SIZE", size)
    monkeypatch.setattr(Redo, "AFTER", after)


def segments(path: Path) -> list[Path]:
    """The files of the log, in order."""
    return sorted((path / "log").glob("*.jsonl"))


def lines(path: Path) -> list[bytes]:
    """All lines of the log, each with its newline."""
    return [line for file in segments(path) for line in cut_lines(file.read_bytes())]


def cut_lines(text: bytes) -> list[bytes]:
    """Lines as the log has them: ended by byte 0x0A alone."""
    return [line + b"\n" for line in text.split(b"\n")[:-1]]


def seal(body: bytes, last: bytes) -> bytes:
    """The line with this body (all up to the hash), behind the line with that hash."""
    return b'%b,"hash":"%b"}\n' % (body, hashlib.sha256(last + body).hexdigest().encode())


def body_of(line: bytes) -> bytes:
    """What the hash of a line covers of it."""
    return line[:-CHAIN]


def digest_of(line: bytes) -> bytes:
    """The hash that a line ends in."""
    return line[-67:-3]


def check_chain(path: Path) -> list[bytes]:
    """All lines of the log, after seeing that each follows from the one before."""
    last, seq = ZEROS, 0
    for file in segments(path):
        text = file.read_bytes()
        assert text.endswith(b"\n") or not text, f"{file} does not end with a newline"
        if text:
            assert int(file.stem) == seq + 1
        for number, line in enumerate(cut_lines(text)):
            seq += 1
            body = body_of(line)
            assert line == seal(body, last), f"line {number + 1} of {file} breaks the chain"
            assert line.startswith(b'{"v":1,"seq":%d,"at":"' % seq)
            assert body.endswith(b',"prev":"%b"' % last) == (number == 0)
            last = digest_of(line)
    return lines(path)


def rewrite(path: Path, change: Callable[[bytes], bytes], number: int) -> None:
    """Change the body of one line, and seal it and all that follow anew: the chain stays whole."""
    last, seq = ZEROS, 0
    for file in segments(path):
        text = b""
        for i, line in enumerate(cut_lines(file.read_bytes())):
            seq += 1
            body = body_of(line)
            if i == 0:
                body = body[: body.rindex(b',"prev":"')] + b',"prev":"%b"' % last
            if seq == number:
                body = change(body)
            text += seal(body, last)
            last = digest_of(text)
        file.write_bytes(text)


def tree(path: Path) -> dict[str, tuple[int, int, bytes | None]]:
    """Everything in a directory: names, permissions, times of change and bytes."""
    found: dict[str, tuple[int, int, bytes | None]] = {}
    for file in sorted([path, *path.rglob("*")]):
        stat = file.stat()
        text = None if file.is_dir() else file.read_bytes()
        found[str(file.relative_to(path))] = (stat.st_mode, stat.st_mtime_ns, text)
    return found


@contextmanager
def untouched(path: Path) -> Iterator[None]:
    """Whatever happens in this block leaves every byte, name and time in the directory alone."""
    before = tree(path)
    yield
    assert tree(path) == before


def log_bytes(path: Path) -> dict[str, bytes]:
    """The bytes of the log by file, without the folders and times around them."""
    return {file.name: file.read_bytes() for file in segments(path)}


def copied(source: Path, target: Path) -> Path:
    """A copy of a queue, to be damaged."""
    shutil.copytree(source, target)
    (target / "snapshots").mkdir(exist_ok=True)
    return target


class Queues:
    """Opens queues, in memory or on disk. At the end the log of each must fold to its state."""

    def __init__(self, where: str, folder: Path) -> None:
        self._where = where
        self._folder = folder
        self._made: list[WorkQueue] = []

    def __call__(self, **more: Any) -> WorkQueue:
        more = {"clock": Ticks()} | more
        if self._where == "memory":
            q = WorkQueue.in_memory(**more)
        else:
            q = WorkQueue.open(self._folder / f"q{len(self._made)}", **more)
        self._made.append(q)
        return q

    def __enter__(self) -> Queues:
        return self

    def __exit__(self, *_: object) -> None:
        for q in self._made:
            q.state.check()
            assert replay(State(), q.entries()) == q.state
            q.shut()


class Disk:
    """Stands between the queue and the disk: counts syncs, and fails what it is told to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[tuple[str, str]] = []
        """What was asked of the disk: (call, the file's name)."""
        self.room: int | None = None
        """How many more bytes can be written; then the disk is full."""
        self.fails: dict[str, OSError] = {}
        """What fails from now on: the name of a call of `os`, and the error."""
        self._real = {name: getattr(os, name) for name in _CALLS}
        for name in _CALLS:
            monkeypatch.setattr(os, name, getattr(self, name))

    def _call(self, name: str, descriptor: int, *rest: Any) -> Any:
        self.did.append((name, Path(f"/proc/self/fd/{descriptor}").readlink().name))
        if name in self.fails:
            raise self.fails[name]
        return self._real[name](descriptor, *rest)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        part = data if self.room is None else memoryview(data)[: self.room]
        if not len(part):
            raise OSError(errno.ENOSPC, "No space left on device")
        written: int = self._call("pwrite", descriptor, part, offset)
        if self.room is not None:
            self.room -= written
        return written

    def fdatasync(self, descriptor: int) -> None:
        self._call("fdatasync", descriptor)

    def fsync(self, descriptor: int) -> None:
        self._call("fsync", descriptor)

    def ftruncate(self, descriptor: int, size: int) -> None:
        self._call("ftruncate", descriptor, size)

    def count(self, name: str) -> int:
        return sum(call == name for call, _ in self.did)


_CALLS = ("pwrite", "fdatasync", "fsync", "ftruncate")
EIO = OSError(errno.EIO, "Input/output error")


def out(q: WorkQueue, worker: Any = None, **more: Any) -> Lease:
    """The lease of a start that gets something."""
    lease = q.start(worker, **more)
    assert lease is not None
    return lease
