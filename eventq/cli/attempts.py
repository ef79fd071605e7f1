"""What `eventq work` does with a task: its command is run, as `eventq run` would, and waited for.

A handler for the worker of asyncio. Its commands are started by launchers (launcher.py), each with
a file of records (records.py). Whoever cancels the handler, since the lease is lost or the worker
stops, stops the command: TERM, and after a while KILL, for all of its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

from attrs import define

from eventq.cli.flow import Spec, spec_of
from eventq.cli.launcher import Ended, Launcher, LauncherGone
from eventq.cli.leftovers import end_leftovers
from eventq.cli.orders import GRACE, order, result_of, went_wrong
from eventq.cli.records import end_left_behind, record_file
from eventq.core.record import Lease
from eventq.worker import Context, Permanent, TaskFailed

__all__ = ["Attempts"]

MOST = 10_000
"""How many commands one launcher starts before another takes its place, so that its file of
records does not grow for ever."""


class _Crew:
    """A launcher with its file of records, and those who wait for its commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._records = self._stack.enter_context(record_file(folder))
        self._launcher = self._stack.enter_context(Launcher(self._records))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._launcher, self._read)
        self._ending: asyncio.Task[None] | None = None
        self.started = 0
        self.waiting: dict[int, asyncio.Future[Ended | None]] = {}
        """By lease, what becomes of its command; None if the launcher has died meanwhile."""

    @property
    def gone(self) -> bool:
        """Whether the launcher has died."""
        return self._ending is not None

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything that it has started."""
        return not self.waiting and (self._ending is None or self._ending.done())

    def start(self, lease: Lease, spec: Spec) -> asyncio.Future[Ended | None]:
        """Start a command; its end is to be waited for."""
        self.started += 1
        ended = self.waiting[lease.id] = self._loop.create_future()
        with contextlib.suppress(LauncherGone):  # which _read sees as well, and says so
            order(self._launcher, lease, spec, self._folder)
        return ended

    def signal(self, lease: int, number: int) -> None:
        """Send a signal to all of a command's session."""
        with contextlib.suppress(LauncherGone):
            self._launcher.signal(lease, number)

    def _read(self) -> None:
        try:
            for ended in self._launcher.ended():
                self._tell(ended.lease, ended)
        except LauncherGone:
            self._loop.remove_reader(self._launcher)
            self._ending = asyncio.create_task(self._end())

    def _tell(self, lease: int, ended: Ended | None) -> None:
        waiting = self.waiting.pop(lease, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(ended)

    async def _end(self) -> None:
        """The launcher has died: end what it had started, before anybody hears of it."""
        await asyncio.to_thread(end_leftovers, self._records, self._folder)
        for lease in list(self.waiting):
            self._tell(lease, None)

    async def close(self) -> None:
        """Whatever still runs is ended."""
        if self._ending is not None:
            await self._ending
        self._loop.remove_reader(self._launcher)
        await asyncio.to_thread(self._stack.close)


@define
class _Attempt:
    """A command that runs."""

    lease: int
    crew: _Crew
    ended: asyncio.Future[Ended | None]


class Attempts:
    """Runs the command of each task that it is given. To be closed at the end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("output", "work"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        self._crews = [_Crew(folder)]
        self._running: dict[str, _Attempt] = {}
        """By task, its last attempt that has not ended yet."""

    async def close(self) -> None:
        """Whatever still runs is ended."""
        for crew in self._crews:
            await crew.close()

    async def __call__(self, context: Context) -> dict[str, str]:
        """The handler: the result says where the output is."""
        lease = context.lease
        try:
            spec = spec_of(lease.payload)
        except ValueError as error:
            raise Permanent(f"cannot start: {error}") from None
        await self._end_earlier(lease.task)
        crew = await self._relieved()
        attempt = _Attempt(lease.id, crew, crew.start(lease, spec))
        self._running[lease.task] = attempt
        try:
            await asyncio.wait({attempt.ended}, timeout=spec.timeout)
            in_time = attempt.ended.done()
        finally:
            await _stop(attempt)
            if self._running.get(lease.task) is attempt:
                del self._running[lease.task]
        if not in_time:
            raise TaskFailed(f"timed out after {spec.timeout:g} s")
        self._judge(attempt.ended.result())
        return result_of(lease.id)

    async def _end_earlier(self, task: str) -> None:
        """An earlier attempt at the same task may still run: here, if its lease was lost just now,
        or left behind by a worker that was killed. The new one begins when it is gone."""
        while (earlier := self._running.get(task)) is not None and not earlier.ended.done():
            earlier.crew.signal(earlier.lease, signal.SIGKILL)
            await asyncio.wait({earlier.ended})
        await asyncio.to_thread(end_left_behind, self._folder)

    async def _relieved(self) -> _Crew:
        """The launcher for the next command: another than before, once that has served its time
        or has died. Those that have nothing more to wait for go."""
        for crew in self._crews[:-1]:
            if crew.idle and crew in self._crews:
                self._crews.remove(crew)
                await crew.close()
        if self._crews[-1].gone or self._crews[-1].started >= MOST:
            self._crews.append(_Crew(self._folder))
        return self._crews[-1]

    def _judge(self, ended: Ended | None) -> None:
        """Raise TaskFailed unless the command has succeeded."""
        if ended is None:
            raise TaskFailed("ended, since the process that had started it has died")
        if (error := went_wrong(ended, self._folder)) is not None:
            raise TaskFailed(error)


async def _stop(attempt: _Attempt) -> None:
    """Stop a command, politely first, and wait until it is gone. Cancelled once more, less so."""
    with contextlib.suppress(asyncio.CancelledError):
        if not attempt.ended.done():
            attempt.crew.signal(attempt.lease, signal.SIGTERM)
            await asyncio.wait({attempt.ended}, timeout=GRACE)
    while not attempt.ended.done():
        attempt.crew.signal(attempt.lease, signal.SIGKILL)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({attempt.ended})
