"""AsyncWorkQueue: a WorkQueue whose methods are awaited.

What may wait for a disk or a lock runs in a thread, so that the loop never does. Who is cancelled
while waiting leaves nothing behind: a lease that was granted all the same is released again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from eventq.core.events import Entry
from eventq.core.policy import Policy, seconds
from eventq.core.record import Lease
from eventq.core.state import State
from eventq.worker.terms import YEAR
from eventq.workqueue import WorkQueue

__all__ = ["AsyncWorkQueue"]

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 32
"""How many calls of one queue go on at the same time; they share their syncs."""

WAITS = 10_000
"""How many waits may go on at the same time. Those of `start` take turns: one waits for all."""

BATCH = 1000
"""How many entries are read at a time."""


def _awaited(
    method: Callable[Concatenate[WorkQueue, P], T],
) -> Callable[Concatenate[AsyncWorkQueue, P], Coroutine[Any, Any, T]]:
    """The method of a queue, to be awaited."""

    @functools.wraps(method)
    async def call(self: AsyncWorkQueue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(functools.partial(method, self.queue, *args, **kwargs))

    return call


class AsyncWorkQueue:
    """A WorkQueue whose methods are awaited. Open it with `async with`.

    `AsyncWorkQueue.open(...)` and `.in_memory(...)` take what those of WorkQueue take. When a
    caller is cancelled, what it asked for may be done or not, as with any call whose answer is
    lost; but no lease is lost with it.
    """

    def __init__(self, queue: WorkQueue | Callable[[], WorkQueue]) -> None:
        """An open queue, which stays open; or what opens one, which is shut at the end."""
        self._given = queue
        self._queue: WorkQueue | None = None
        self._turn = asyncio.Lock()
        """Held to wait for a task: one thread waits for all, and passes the turn on."""

    @classmethod
    def open(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """The queue in this directory. What opening may raise, `async with` raises."""
        return cls(functools.partial(WorkQueue.open, path, **options))

    @classmethod
    def in_memory(cls, **options: Any) -> Self:
        """A queue without a path."""
        return cls(functools.partial(WorkQueue.in_memory, **options))

    async def __aenter__(self) -> Self:
        given = self._given
        self._threads = ThreadPoolExecutor(THREADS, "eventq")
        self._waits = ThreadPoolExecutor(WAITS, "eventq waits")
        self._leaving = threading.Event()
        try:
            self._queue = (
                given if isinstance(given, WorkQueue) else await self.call(given, WorkQueue.shut)
            )
        except BaseException:
            self._threads.shutdown(wait=False)
            self._waits.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Wait for what is still being asked, then let go of the files. Who waits for something
        to happen gets a RuntimeError."""
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._leaving.set()
        self.queue.wake()
        self._waits.shutdown()
        self._threads.shutdown()
        if self.queue is not self._given:
            self.queue.shut()

    @property
    def queue(self) -> WorkQueue:
        """The queue itself, whose methods may block."""
        if self._queue is None:
            raise RuntimeError("this queue is not open: use it in an `async with`")
        return self._queue

    @property
    def path(self) -> Path | None:
        """The directory of the queue; None in memory."""
        return self.queue.path

    async def call(
        self,
        call: Callable[[], T],
        undo: Callable[[T], object] | None = None,
        threads: ThreadPoolExecutor | None = None,
    ) -> T:
        """Call this in a thread. If the caller is cancelled meanwhile, its answer is undone."""
        future = (threads or self._threads).submit(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel() and undo is not None:
                future.add_done_callback(functools.partial(_undone, undo))
            raise

    def release_unused(self, lease: Lease | None) -> None:
        """Hand back a lease that nobody is there to take."""
        if lease is not None:
            self.queue.release(lease)

    async def start(
        self,
        worker: Hashable = None,
        *,
        lease_for: timedelta | float | None = None,
        wait: timedelta | float | None = None,
        by: str | None = None,
    ) -> Lease | None:
        """Hand out the first task in the line, as `WorkQueue.start` does."""
        ask = functools.partial(self.queue.start, worker, lease_for=lease_for, by=by)
        if wait is None:
            return await self.call(ask, self.release_unused)
        most = seconds(wait).total_seconds()
        until = time.monotonic() + most
        once = functools.partial(ask, wait=0, unless=lambda: True)
        if (lease := await self.call(once, self.release_unused)) is not None:
            return lease
        try:
            async with asyncio.timeout(most):
                await self._turn.acquire()
        except TimeoutError:
            return await self.call(ask, self.release_unused)
        try:
            left = max(0.0, until - time.monotonic())
            return await self._wait(
                lambda unless: ask(wait=left, unless=unless), self.release_unused
            )
        finally:
            self._turn.release()

    async def wait(
        self, wanted: Callable[[State, datetime], object], seconds: float = math.inf
    ) -> bool:
        """Wait until this is true, as `WorkQueue.wait` does. It is called in a thread."""

        def call(unless: Callable[[], bool]) -> bool:
            came = self.queue.wait(lambda state, now: unless() or wanted(state, now), seconds)
            return came and not unless()

        return await self._wait(call)

    async def _wait(
        self,
        call: Callable[[Callable[[], bool]], T],
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Call this, which waits unless it is told to end, as it is when nobody wants it any more.
        It has a thread to itself, so that it holds up no other call."""
        over = threading.Event()

        def unless() -> bool:
            return over.is_set() or self._leaving.is_set()

        try:
            answer = await self.call(functools.partial(call, unless), undo, self._waits)
        except asyncio.CancelledError:
            over.set()
            self.queue.wake()
            raise
        if not answer and self._leaving.is_set():
            raise RuntimeError("this queue is open no more: its `async with` was left meanwhile")
        return answer

    def wake(self) -> None:
        """Let whoever waits look again, as `WorkQueue.wake` does."""
        self.queue.wake()

    async def complete_and_start(
        self,
        lease: Lease | int,
        result: Any = None,
        *,
        lease_for: timedelta | float | None = None,
        by: str | None = None,
    ) -> Lease | None:
        """Complete, then start for the same worker, as `WorkQueue.complete_and_start` does."""
        complete = self.queue.complete_and_start
        ask = functools.partial(complete, lease, result, lease_for=lease_for, by=by)
        return await self.call(ask, self.release_unused)

    async def leases(
        self, worker: Hashable = None, *, lease_for: timedelta | float | None = None
    ) -> AsyncIterator[Lease]:
        """One lease after the other, each to be ended before the next, until the queue is closed
        and nothing can come any more."""
        while (lease := await self.start(worker, lease_for=lease_for, wait=YEAR)) is not None:
            yield lease

    async def entries(self, since: int = 1) -> AsyncIterator[Entry]:
        """The entries from this seq on, as they were written, checked on the way."""
        entries = self.queue.entries(since)
        while batch := await self.call(lambda: list(itertools.islice(entries, BATCH))):
            for entry in batch:
                yield entry

    enqueue = _awaited(WorkQueue.enqueue)
    enqueue_all = _awaited(WorkQueue.enqueue_all)
    complete = _awaited(WorkQueue.complete)
    fail = _awaited(WorkQueue.fail)
    renew = _awaited(WorkQueue.renew)
    release = _awaited(WorkQueue.release)
    redrive = _awaited(WorkQueue.redrive)
    redrive_all = _awaited(WorkQueue.redrive_all)
    resolve = _awaited(WorkQueue.resolve)
    cancel = _awaited(WorkQueue.cancel)
    restore = _awaited(WorkQueue.restore)
    close = _awaited(WorkQueue.close)
    reopen = _awaited(WorkQueue.reopen)
    pause = _awaited(WorkQueue.pause)
    resume = _awaited(WorkQueue.resume)
    tick = _awaited(WorkQueue.tick)
    task = _awaited(WorkQueue.task)
    dead_letters = _awaited(WorkQueue.dead_letters)
    parked = _awaited(WorkQueue.parked)
    at = _awaited(WorkQueue.at)
    snapshot = _awaited(WorkQueue.snapshot)
    archive = _awaited(WorkQueue.archive)

    async def reconfigure(
        self, *, why: str | None = None, by: str | None = None, **parts: Any
    ) -> Policy:
        """Agree on another policy: the `parts` that are given change, as `open` takes them."""
        ask = functools.partial(self.queue.reconfigure, why=why, by=by, **parts)
        return await self.call(ask)

    # What is a property there has to be awaited here.

    async def state(self) -> State:
        """The state after the last entry, whoever wrote it. It never changes."""
        return await self.call(lambda: self.queue.state)

    async def policy(self) -> Policy:
        """What was agreed for this queue."""
        return await self.call(lambda: self.queue.policy)

    async def head(self) -> tuple[int, str]:
        """The seq and the hash of the last entry, which is on disk."""
        return await self.call(lambda: self.queue.head)

    async def clock_behind(self) -> timedelta:
        """How far the clock is behind the last entry: zero where all is well."""
        return await self.call(lambda: self.queue.clock_behind)


def _undone(undo: Callable[[T], object], future: Future[T]) -> None:
    """Undo what was answered when nobody waited any more. What cannot be undone runs out."""
    with contextlib.suppress(Exception):
        undo(future.result())
