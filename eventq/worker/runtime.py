"""The worker: calls a handler for the tasks of a queue, in threads or in processes.

Each slot is a thread that takes a task, has its handler called, tells the queue what came of it,
and takes the next. The thread that called `run` only waits: for the slots to end, and for a signal
or `stop`. One more thread renews the leases.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue

from eventq.core.errors import BadValue, WorkerBusy
from eventq.core.record import Lease
from eventq.core.state import State
from eventq.worker.context import Context
from eventq.worker.keeper import Keeper
from eventq.worker.outcome import HandedBack, Handler, Outcome, settle
from eventq.worker.places import (
    STOPPING,
    InProcess,
    InThread,
    Place,
    ProcessNotStarted,
    check_importable,
)
from eventq.worker.terms import YEAR, Terms, drained, lively, over_with
from eventq.worker.witness import Witness
from eventq.workqueue import WorkQueue

__all__ = ["Worker"]

SIGNALS = 1.0
"""How many seconds the thread that waits may sleep: a signal that came to another thread, as it
does where this one has not gone on yet after SIGCONT, is handled when this one wakes."""


class Worker:
    """Calls `handler(context)` for the tasks of a queue, `concurrency` at the same time.

    What the handler returns is the result. What it raises is a failure: `ValueError: bad row`, to
    be tried again; `Permanent` and the types in `permanent` go straight to the dead letters.
    `TaskFailed` says it in its own words. Nothing that a handler does ends the worker.

    The queue is an open one, or the directory of one. Its workers are called `name/1`, `name/2`
    and so on; the default is a name that nobody else has. A lease runs for `lease_for` (else as
    the queue has it, else a minute) and is renewed while the handler runs. With `processes`, each
    slot has a process of its own, and the handler must be importable. With `drain` the worker ends
    when nothing is left to do. SIGTERM and SIGINT stop it, if `run` is called in the main thread.
    """

    def __init__(
        self,
        queue: WorkQueue | str | os.PathLike[str],
        handler: Handler,
        *,
        concurrency: int = 1,
        processes: bool = False,
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
        if not callable(handler) or inspect.iscoroutinefunction(handler):
            raise BadValue(
                f"a handler must be a plain function, not {handler!r}; "
                "eventq.aio.AsyncWorker takes coroutine functions"
            )
        if processes:
            check_importable(handler, self.terms.permanent)
        self._queue = queue
        self._handler = handler
        self._kind: Callable[..., Place] = InProcess if processes else InThread
        self._said: SimpleQueue[int | None] = SimpleQueue()
        """What wakes `run`: the number of a slot that has ended, or None for a wish to stop."""
        self._asked = False
        """Whether it was asked to stop, so that nothing more is begun."""
        self._stopping = threading.Event()
        """Set soon after that, when those who wait are woken."""
        self._lock = threading.Lock()
        """Held to begin with a task, and to see what has begun."""
        self._places: dict[int, Place] = {}
        self._running: dict[int, Context] = {}
        self._turn = threading.Lock()
        """Held to wait for a task: one slot waits for all, and passes the turn on."""
        self._error: BaseException | None = None
        self._began = False

    def stop(self) -> None:
        """Begin nothing more; let what runs finish within the grace, then hand the rest back.

        Asked again, there is no grace. It may be called from any thread, before `run` too, and
        from a signal handler; `run` returns when all is done.
        """
        self._asked = True  # a signal handler may do no more than this
        self._said.put(None)

    def run(self) -> None:
        """Work until stopped or drained. A worker runs once.

        Raises what the queue says when it cannot go on (OSError, HandleFinished, UnknownWorker),
        and ProcessNotStarted; what runs then is let finish as on `stop`.
        """
        if self._began:
            raise RuntimeError("this worker has run already: make another one")
        self._began = True
        with self._opened(), self._signals():
            self._keeper = Keeper(self._q, self._lease_for, self._broken)
            self._keeper.start()
            try:
                self._run()
            finally:
                self._keeper.stop()
        if self._error is not None:
            raise self._error

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            q = self._queue
            self._q = q if isinstance(q, WorkQueue) else stack.enter_context(WorkQueue.open(q))
            self._lease_for = self.terms.lease_under(self._q.policy)
            yield

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """In here, signals that ask to stop do so; only the main thread can see to that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, lambda *_: self.stop()) for number in STOPPING}
        try:
            yield
        finally:
            for number, caught in before.items():
                signal.signal(number, signal.SIG_DFL if caught is None else caught)

    def _broken(self, error: BaseException) -> None:
        """The worker cannot go on: what runs may still finish."""
        if self._error is None:
            self._error = error
            self.stop()

    # The thread that waits.

    def _run(self) -> None:
        left = set(self.terms.slots)
        for slot in self.terms.slots:
            name = f"eventq {self.terms.worker(slot)}"
            try:
                threading.Thread(target=self._slot, args=(slot,), name=name, daemon=True).start()
            except RuntimeError as error:  # no more threads
                self._broken(error)
                self._said.put(slot)
        end: float | None = None
        while left:
            try:
                said = self._said.get(
                    timeout=SIGNALS if end is None else max(0.0, end - time.monotonic())
                )
            except Empty:
                if end is None:
                    continue
                self._hand_back(left)
                return
            if said is not None:
                left.discard(said)
                continue
            grace = self.terms.grace_seconds if end is None else 0.0
            end = time.monotonic() + grace
            self._stopping.set()
            self._q.wake()

    def _hand_back(self, left: set[int]) -> None:
        """The grace is over: end what can be ended, and hand back what cannot. Then wait for the
        slots that still have something to say to the queue."""
        with self._lock:
            places, running = dict(self._places), dict(self._running)
        for slot in left & places.keys():
            if places[slot].end() or slot not in running:
                continue
            context = running[slot]
            context.lose()
            left.discard(slot)
            try:
                settle(self._q, context.lease, HandedBack(), self.terms.witness)
            except Exception as error:  # noqa: BLE001  # `run` raises it, when all is done
                self._broken(error)
        while left:
            said = self._said.get()
            if said is not None:
                left.discard(said)

    # The threads that work.

    def _slot(self, slot: int) -> None:
        try:
            with contextlib.closing(self._kind(self._handler, self.terms.permanent)) as place:
                with self._lock:
                    self._places[slot] = place
                self._serve(slot, place)
        except ProcessNotStarted as error:
            if not self._asked:  # else it was ended on its way
                self._broken(error)
        except BaseException as error:  # noqa: BLE001  # `run` raises it
            self._broken(error)
        finally:
            self._said.put(slot)

    def _serve(self, slot: int, place: Place) -> None:
        lease: Lease | None = None
        while lease is not None or not self._over():
            if lease is None:
                place.ready()
                lease = self._next(self.terms.worker(slot))
                continue
            outcome = self._carry_out(slot, place, lease)
            lease = settle(
                self._q,
                lease,
                outcome,
                self.terms.witness,
                lease_for=self._lease_for,
                go_on=not self._asked,
            )

    def _over(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._asked or (self.terms.drain and drained(self._q.state))

    def _next(self, worker: str) -> Lease | None:
        """The next task for this worker; None when it has to look again."""
        ask = functools.partial(self._q.start, worker, lease_for=self._lease_for)
        try:
            # Without waiting: who is to be refused is told so, though another waits for all.
            lease = None if self._over() else ask(wait=0, unless=lambda: True)
            if lease is not None:
                return lease
            with self._turn:
                if self._over():
                    return None
                lease = ask(wait=YEAR, unless=self._over)
                if lease is None:  # a closed queue says so at once: ask it no more often for that
                    self._wait(lively)
                return lease
        except WorkerBusy as busy:
            self.terms.witness.busy(worker, busy.task, busy.lease)
            self._wait(over_with(busy.lease))
        return None

    def _wait(self, wanted: Callable[[State, datetime], bool]) -> None:
        """Wait for this, or until nothing more is to be begun."""
        self._q.wait(lambda state, now: self._over() or wanted(state, now))

    def _carry_out(self, slot: int, place: Place, lease: Lease) -> Outcome:
        context = Context(lease)
        with self._lock:
            if self._asked:
                return HandedBack()
            self._running[slot] = context
        try:
            with self._keeper.keeping(lease, lambda: place.lose(context)):
                self.terms.witness.began(lease)
                return place.perform(context)
        except BaseException:
            with contextlib.suppress(Exception):
                settle(self._q, lease, HandedBack(), self.terms.witness)
            raise
        finally:
            with self._lock:
                del self._running[slot]
