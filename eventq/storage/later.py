"""Syncing behind the answer, as `durability="process"` has it: soon, and once for many entries."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress

from eventq.storage.errors import HandleFinished

__all__ = ["BYTES", "SECONDS", "Later"]

SECONDS = 1.0
"""How long what was answered waits for its sync at most."""

BYTES = 16 * 1024 * 1024
"""How much of the log waits for its sync at most."""


class Later:
    """Calls `sync` a while after it was asked to, from a thread that lives no longer than that.

    A sync that fails is told by the handle, which is finished then.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._timer: threading.Timer | None = None

    def ask(self) -> None:
        """See to it that there is a sync before long; at once, where no thread can be had."""
        if self._timer is None:
            self._timer = threading.Timer(SECONDS, self._now)
            self._timer.daemon = True
            atexit.register(self._now)  # the program may end before
            try:
                self._timer.start()
            except RuntimeError:  # no more threads, or no more after the end of the program
                self._timer = None
                atexit.unregister(self._now)
                self._sync()

    def _now(self) -> None:
        self._timer = None
        atexit.unregister(self._now)
        with suppress(OSError, HandleFinished):
            self._sync()

    def forked(self) -> None:
        """In a child that was forked: its end is not that of the program which asked."""
        atexit.unregister(self._now)

    def stop(self) -> None:
        """Leave it to others."""
        atexit.unregister(self._now)
        if self._timer is not None:
            self._timer.cancel()
