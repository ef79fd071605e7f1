"""The worker of asyncio: calls coroutine functions for the tasks of a queue, all in one loop.

Each slot is an asyncio task that takes a task of the queue, has its handler called in an asyncio
task of its own, tells the queue what came of it, and takes the next. What an outcome leads to, and
how leases are kept, is the same as for every worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from attrs import define

from eventq.aio.workqueue import AsyncWorkQueue
from eventq.core.errors import BadValue, WorkerBusy
from eventq.core.record import Lease
from eventq.worker.context import Context
from eventq.worker.keeper import Keeper
from eventq.worker.outcome import Done, HandedBack, Outcome, failure, settle
from eventq.worker.terms import YEAR, Terms, drained, lively, over_with
from eventq.worker.witness import Witness
from eventq.workqueue import WorkQueue

__all__ = ["AsyncHandler", "AsyncWorker"]

AsyncHandler = Callable[[Context], Awaitable[Any]]

PATIENCE = 10.0
"""How long, in seconds, a handler that was cancelled at the end may take to clean up."""


@define(eq=False)
class _Work:
    """A call of the handler that goes on."""

    call: asyncio.Task[Outcome]
    told: bool = False
    """Whether it was told to end."""

    def end(self) -> None:
        """Cancel it."""
        self.told = True
        self.call.cancel()


class AsyncWorker:
    """Awaits `handler(context)` for the tasks of a queue, `concurrency` at the same time.

    It is told what `eventq.worker.Worker` is told, and does the same, in one loop. The queue is an
    AsyncWorkQueue or a WorkQueue, which are open, or the directory of one. A handler whose lease
    is lost is cancelled. Signals are left to the caller's loop:
    `loop.add_signal_handler(SIGTERM, worker.stop)`.
    """

    def __init__(
        self,
        queue: AsyncWorkQueue | WorkQueue | str | os.PathLike[str],
        handler: AsyncHandler,
        *,
        concurrency: int = 1,
        name: str | None = None,
        lease_for: timedelta | float | None = None,
        permanent: Iterable[type[BaseException]] = (),
        grace: timedelta | float = 30.0,
        drain: bool = False,
        witness: Witness | None = None,
    ) -> None:
        self.terms = Terms(
            concurrency=concurrency,
            name=name,
            lease_for=lease_for,
            permanent=permanent,
            grace=grace,
            drain=drain,
            witness=witness or Witness(),
        )
        if not any(map(inspect.iscoroutinefunction, (handler, type(handler).__call__))):
            raise BadValue(
                f"a handler must be a coroutine function, not {handler!r}; "
                "eventq.worker.Worker takes plain functions"
            )
        self._given = queue
        self._handler = handler
        self._asked = 0
        """How often it was asked to stop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False
        """Whether nothing more is begun."""
        self._idle: set[asyncio.Task[None]] = set()
        """The slots that wait for a task."""
        self._turn = asyncio.Lock()
        """Held to wait for a closed queue: one slot waits for all."""
        self._working: set[_Work] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._error: BaseException | None = None

    def stop(self) -> None:
        """Begin nothing more; let what runs finish within the grace, then cancel it and hand it
        back. Asked again, there is no grace. To be called in the loop of `run`, or before it."""
        self._asked += 1
        if self._loop is None or self._loop.is_closed():
            return
        self._begin_nothing()
        if self._asked == 1:
            self._timers.append(self._loop.call_later(self.terms.grace_seconds, self._end_all))
        else:
            self._end_all()

    async def run(self) -> None:
        """Work until stopped or drained. A worker runs once.

        Raises what the queue says when it cannot go on (OSError, HandleFinished, UnknownWorker);
        what runs then is let finish as on `stop`. If this call is cancelled, so are the handlers,
        and their tasks are handed back.
        """
        if self._loop is not None:
            raise RuntimeError("this worker has run already: make another one")
        self._loop = asyncio.get_running_loop()
        if self._asked:
            return
        async with self._opened() as self._q:
            self._lease_for = self.terms.lease_under(await self._q.policy())
            self._keeper = Keeper(self._q.queue, self._lease_for, self._broken_elsewhere)
            self._left_alone = self._loop.create_future()
            slots = [asyncio.create_task(self._slot(slot)) for slot in self.terms.slots]
            draining = asyncio.create_task(self._drain()) if self.terms.drain else None
            self._keeper.start()
            try:
                await self._until_over(slots)
            finally:
                if draining is not None:
                    draining.cancel()
                    await asyncio.wait({draining})
                if any(not slot.done() for slot in slots):
                    self._asked += 1
                    self.stop()
                    await asyncio.wait(slots)
                    self._look_at(slots)
                for timer in self._timers:
                    timer.cancel()
                await asyncio.to_thread(self._keeper.stop)
        if self._error is not None:
            raise self._error

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[AsyncWorkQueue]:
        given = self._given
        if isinstance(given, AsyncWorkQueue):
            yield given
            return
        q = AsyncWorkQueue(given) if isinstance(given, WorkQueue) else AsyncWorkQueue.open(given)
        async with q:
            yield q

    async def _until_over(self, slots: list[asyncio.Task[None]]) -> None:
        left = set(slots)
        while left:
            ended, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            self._look_at(ended)

    def _look_at(self, ended: Iterable[asyncio.Task[None]]) -> None:
        """Whether these slots have ended for a reason."""
        for slot in ended:
            if not slot.cancelled() and (error := slot.exception()) is not None:
                self._broken(error)

    async def _drain(self) -> None:
        """Begin nothing more once nothing is left; what the queue says instead, the slots say."""
        with contextlib.suppress(Exception):
            await self._q.wait(lambda state, _: drained(state))
            self._begin_nothing()

    def _broken(self, error: BaseException) -> None:
        """The worker cannot go on: what runs may still finish."""
        if self._error is None:
            self._error = error
            self.stop()

    def _broken_elsewhere(self, error: BaseException) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._broken, error)

    def _begin_nothing(self) -> None:
        self._closing = True
        for slot in self._idle:
            slot.cancel()

    def _end_all(self) -> None:
        """The grace is over: cancel what runs. What does not listen is left alone after a while."""
        assert self._loop is not None
        for work in self._working:
            work.end()
        self._timers.append(self._loop.call_later(PATIENCE, self._leave_alone))

    def _leave_alone(self) -> None:
        if not self._left_alone.done():
            self._left_alone.set_result(None)

    # The slots.

    async def _slot(self, slot: int) -> None:
        lease: Lease | None = None
        while lease is not None or not self._closing:
            if lease is None:
                lease = await self._next(self.terms.worker(slot))
                continue
            try:
                outcome = await self._carry_out(lease)
            except BaseException:
                with contextlib.suppress(Exception):
                    await self._q.release(lease)
                raise
            tell = functools.partial(
                settle,
                self._q.queue,
                lease,
                outcome,
                self.terms.witness,
                lease_for=self._lease_for,
                go_on=not self._closing,
            )
            lease = await self._q.call(tell, self._q.release_unused)

    async def _next(self, worker: str) -> Lease | None:
        """The next task for this worker; None when it has to ask again."""
        here = asyncio.current_task()
        assert here is not None
        self._idle.add(here)
        try:
            lease = await self._q.start(worker, lease_for=self._lease_for, wait=YEAR)
            if lease is None:  # a closed queue says so at once: ask it no more often for that
                async with self._turn:
                    await self._q.wait(lively)
        except WorkerBusy as busy:
            self.terms.witness.busy(worker, busy.task, busy.lease)
            await self._q.wait(over_with(busy.lease))
            return None
        finally:
            self._idle.discard(here)
        return lease

    async def _carry_out(self, lease: Lease) -> Outcome:
        if self._closing:
            return HandedBack()
        self.terms.witness.began(lease)
        context = Context(lease)
        work = _Work(asyncio.create_task(self._perform(context)))
        self._working.add(work)

        def lost() -> None:
            context.lose()
            assert self._loop is not None
            self._loop.call_soon_threadsafe(work.end)

        ends = {work.call, self._left_alone}
        try:
            with self._keeper.keeping(lease, lost):
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._working.discard(work)
        if not work.call.done() or work.call.cancelled():
            return HandedBack()
        outcome = work.call.result()
        return HandedBack() if work.told and not isinstance(outcome, Done) else outcome

    async def _perform(self, context: Context) -> Outcome:
        try:
            return Done(await self._handler(context))
        except BaseException as error:  # noqa: BLE001  # SystemExit too is but a failure of this task
            return failure(error, self.terms.permanent)
