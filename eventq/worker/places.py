"""Where a handler is called: in a thread of the worker, or in a process of its own.

A process is started anew (spawn), once for each slot, and then serves one task after the other; so
the handler must be importable. The parent alone speaks with the queue. Over the pipe go leases and
the ids of those that are lost, and back come outcomes. Whatever ends the process, the pipe says so
to the other side: a dead process fails its task, and a dead parent ends the process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Protocol

from eventq.core.errors import BadValue, EventqError
from eventq.core.record import Lease
from eventq.worker.context import Context
from eventq.worker.outcome import (
    Failure,
    HandedBack,
    Handler,
    Outcome,
    not_storable,
    perform,
)

__all__ = ["InProcess", "InThread", "Place", "ProcessNotStarted", "check_importable"]

PATIENCE = 5.0
"""Seconds that a process which has nothing more to do may take to end."""

LOOK = 0.5
"""Seconds between two looks whether a process is still there: children that it has left behind
may keep its end of the pipe open."""

STOPPING = signal.SIGINT, signal.SIGTERM

_spawn = multiprocessing.get_context("spawn")


class ProcessNotStarted(EventqError, ChildProcessError):
    """A process for a handler ended before it could take a task."""


class Place(Protocol):
    """Where the handler of one slot is called."""

    def ready(self) -> None:
        """Make sure that a task could be taken now."""

    def perform(self, context: Context) -> Outcome:
        """Call the handler and wait for its end."""

    def lose(self, context: Context) -> None:
        """Tell the handler that its lease is lost. Called from another thread."""

    def end(self) -> bool:
        """End the handler now, if that can be done, so that `perform` answers HandedBack, and
        `ready` raises ProcessNotStarted. Called from another thread."""

    def close(self) -> None:
        """No task will come any more."""


class InThread:
    """The handler is called in the thread of its slot, where nothing can end it."""

    def __init__(self, handler: Handler, permanent: tuple[type[BaseException], ...]) -> None:
        self._handler = handler
        self._permanent = permanent

    def ready(self) -> None:
        """Nothing is needed."""

    def perform(self, context: Context) -> Outcome:
        return perform(self._handler, context, self._permanent)

    def lose(self, context: Context) -> None:
        context.lose()

    def end(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is kept."""


def check_importable(handler: object, permanent: object) -> None:
    """Raise BadValue unless a new process could import these."""
    try:
        ForkingPickler.dumps((handler, permanent))
    except Exception as error:  # noqa: BLE001  # whatever stands in the way
        raise BadValue(
            f"a process cannot be given {handler!r} ({error}): a handler for processes must be "
            "importable, such as a function at the top of a module"
        ) from None


class InProcess:
    """The handler is called in a process, which is replaced when it dies."""

    def __init__(self, handler: Handler, permanent: tuple[type[BaseException], ...]) -> None:
        self._given = handler, permanent
        self._process: SpawnProcess | None = None
        self._pipe: Connection
        self._sending = threading.Lock()
        self._life = threading.Lock()
        """Held to kill the process and to forget its number."""
        self._ended = False

    def ready(self) -> None:
        if self._process is not None and not self._gone():
            return
        self._bury()
        self._pipe, theirs = _spawn.Pipe()
        process = _spawn.Process(target=_serve, args=(theirs, *self._given), daemon=False)
        with theirs, _held_back():
            process.start()
        self._process = process
        try:
            self._comes()
            self._pipe.recv()
        except (EOFError, OSError):
            raise ProcessNotStarted(
                f"a process for the handler could not start: {self._bury()}. If this was a script, "
                'begin its work under `if __name__ == "__main__":`, since each process imports it'
            ) from None

    def perform(self, context: Context) -> Outcome:
        try:
            self.ready()
        except ProcessNotStarted:
            if not self._ended:
                raise
        if self._ended:
            return HandedBack()
        try:
            order = ForkingPickler.dumps(context.lease)
        except Exception as error:  # noqa: BLE001  # a payload in memory may be any object
            return Failure(f"the payload cannot be sent to a process: {error}", "permanent")
        try:
            with self._sending:
                self._pipe.send_bytes(order)
            if context.lost:  # already, when the process had not heard of it yet
                self.lose(context)
            self._comes()
            answer = self._pipe.recv_bytes()
        except (EOFError, OSError):
            how = self._bury()
            return HandedBack() if self._ended else Failure(f"its process is gone: {how}")
        try:
            outcome: Outcome = ForkingPickler.loads(answer)
        except Exception as error:  # noqa: BLE001  # a result may be of any class
            return not_storable(error)
        return outcome

    def lose(self, context: Context) -> None:
        context.lose()
        with contextlib.suppress(OSError), self._sending:
            self._pipe.send(context.lease.id)

    def end(self) -> bool:
        self._ended = True
        with self._life:
            self._kill()
        return True

    def close(self) -> None:
        self._bury(PATIENCE)

    def _comes(self) -> None:
        """Wait until the process has sent something. Raises EOFError if it is gone."""
        while not wait([self._pipe], LOOK):
            if self._gone() and not self._pipe.poll():
                raise EOFError

    def _gone(self) -> bool:
        """Whether the process is dead. It is not buried by that, so that its number stays its."""
        assert self._process is not None
        pid = self._process.pid
        assert pid is not None
        try:
            return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _kill(self) -> None:
        """Kill the process and what it has started itself, all that is left of it."""
        pid = None if self._process is None else self._process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # also one that has no group of its own yet

    def _bury(self, patience: float = 1.0) -> str:
        """Make an end of the process and of all that it has started; how it came to its end."""
        process = self._process
        if process is None:
            return "it was never there"
        self._pipe.close()
        until = time.monotonic() + patience
        while not self._gone() and time.monotonic() < until:
            time.sleep(0.005)
        with self._life:
            self._kill()
            self._process = None
            process.join()
        code = process.exitcode
        if code is None:
            return "nobody saw how"
        process.close()
        return _how(code)


def _how(code: int) -> str:
    """How a process ended, from its exit code as Python has it."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """In here, what asks this thread to stop waits; a process started in here inherits that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The other side of the pipe.


def _serve(pipe: Connection, handler: Handler, permanent: tuple[type[BaseException], ...]) -> None:
    """In the new process: call the handler for each lease that comes, until the parent is gone.

    Who asks the parent to stop, with Ctrl-C or through its group, does not ask this process: it
    has a session of its own, and work goes on until the parent says otherwise. Programs that the
    handler starts get the signals as usual.
    """
    os.setsid()
    for number in STOPPING:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    me = os.getpid()
    orders = _Orders(pipe)
    threading.Thread(target=orders.read, name="eventq orders", daemon=True).start()
    pipe.send(None)
    while (context := orders.next()) is not None:
        outcome = perform(handler, context, permanent)
        if os.getpid() != me:
            os._exit(0)  # the handler has forked, and this is the copy
        try:
            answer = ForkingPickler.dumps(outcome)
        except BaseException as error:  # noqa: BLE001  # a result may be of any class
            answer = ForkingPickler.dumps(not_storable(error))
        orders.current = None
        pipe.send_bytes(answer)


class _Orders:
    """What the parent says, read by a thread, so that it is heard while the handler runs."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._leases: queue.SimpleQueue[Context | None] = queue.SimpleQueue()
        self.current: Context | None = None

    def read(self) -> None:
        """Until the parent is gone, or closes the pipe. Work that goes on then is ended at once,
        with all that it has started: the task will be given to another."""
        try:
            while True:
                said: Lease | int = self._pipe.recv()
                if isinstance(said, Lease):
                    self.current = Context(said)
                    self._leases.put(self.current)
                elif self.current is not None and self.current.lease.id == said:
                    self.current.lose()
        except (EOFError, OSError):
            if self.current is not None:
                os.killpg(0, signal.SIGKILL)
            self._leases.put(None)

    def next(self) -> Context | None:
        """The next task to work on; None when there will be none."""
        return self._leases.get()
