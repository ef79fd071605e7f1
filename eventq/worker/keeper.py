"""Keeping leases alive while the work on them goes on, and telling who has lost theirs.

One thread, apart from all that works, looks at the queue twice a second: so a handler that blocks
for hours keeps its lease, and one whose task was cancelled is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from attrs import define

from eventq.core.errors import StaleLease
from eventq.core.record import Lease
from eventq.workqueue import WorkQueue

__all__ = ["LOOK", "Keeper"]

LOOK = 0.5
"""Seconds between two looks at the queue, at most."""

PART = 3
"""A lease is renewed each time that this part of it has passed. The queue writes that down every
other time, and one renewal may come late without harm."""


@define(eq=False)
class _Kept:
    lease: Lease
    lost: Callable[[], object]
    renew_at: float


class Keeper:
    """Renews leases from a thread of its own, between `start` and `stop`."""

    def __init__(
        self, q: WorkQueue, lease_for: timedelta, broken: Callable[[Exception], object]
    ) -> None:
        """`broken` is called, once, with what the queue says when it answers nothing more."""
        self._q = q
        self._lease_for = lease_for
        self._every = lease_for.total_seconds() / PART
        self._broken = broken
        self._kept: set[_Kept] = set()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventq keeper", daemon=True)

    def start(self) -> None:
        """Begin to look after what is kept."""
        self._thread.start()

    def stop(self) -> None:
        """Renew nothing more."""
        self._over.set()
        self._thread.join()

    @contextmanager
    def keeping(self, lease: Lease, lost: Callable[[], object]) -> Iterator[None]:
        """In here the lease runs on. `lost` is called, from the keeper's thread, if it is lost."""
        kept = _Kept(lease, lost, time.monotonic() + self._every)
        with self._lock:
            self._kept.add(kept)
        try:
            yield
        finally:
            self._let_go(kept)

    def _let_go(self, kept: _Kept) -> bool:
        """Whether it was still kept."""
        with self._lock:
            there = kept in self._kept
            self._kept.discard(kept)
        return there

    def _run(self) -> None:
        while not self._over.wait(min(LOOK, self._every)):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # whatever it is, no lease is kept any more
                self._broken(error)
                for kept in list(self._kept):
                    self._lose(kept)
                return

    def _look(self) -> None:
        with self._lock:
            kept = list(self._kept)
        if not kept:
            return
        state = self._q.state  # read after the list was taken: it knows all of these leases
        for one in kept:
            if state.leased(one.lease.id) is None:
                self._lose(one)
            elif time.monotonic() >= one.renew_at:
                one.renew_at = time.monotonic() + self._every
                try:
                    self._q.renew(one.lease, self._lease_for)
                except StaleLease:
                    self._lose(one)

    def _lose(self, kept: _Kept) -> None:
        if self._let_go(kept):
            kept.lost()
