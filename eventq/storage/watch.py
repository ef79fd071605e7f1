"""Waiting until a log grows, without spinning: the kernel says so (inotify), where it can.

Elsewhere, and where the kernel has no watch to give, the size of the log is looked at twenty times
a second.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Watch"]

IN_MODIFY = 0x002
IN_CREATE = 0x100
IN_NONBLOCK = os.O_NONBLOCK
LOOK_EVERY = 0.05
"""Seconds between two looks where the kernel does not tell."""


class Watch:
    """Sees every change in a folder from the moment that it was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = _inotify(folder)
        self._open = True
        self._lock = threading.Lock()
        """Held to wake and to close: the number of a closed file may be another's by then."""
        self._woken = threading.Event()
        if self._descriptor is not None:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._poll = select.poll()
            self._poll.register(self._descriptor, select.POLLIN)
            self._poll.register(self._bell, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._open = False
            if self._descriptor is not None:
                os.close(self._descriptor)
                os.close(self._bell)

    def wait(self, seconds: float) -> None:
        """Return when something has changed since the last wait, when woken, or after so long."""
        if self._descriptor is None:
            self._woken.wait(min(seconds, LOOK_EVERY))
            self._woken.clear()
            return
        for descriptor, _ in self._poll.poll(min(seconds, 3600.0) * 1000):
            os.read(descriptor, 65536)

    def wake(self) -> None:
        """End the wait that goes on, or the next one, at once. Called from any thread."""
        with self._lock:
            if not self._open:
                return
            self._woken.set()
            if self._descriptor is not None:
                os.eventfd_write(self._bell, 1)


def _inotify(folder: Path) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor: int = libc.inotify_init1(os.O_CLOEXEC | IN_NONBLOCK)
    except (OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), IN_MODIFY | IN_CREATE) < 0:
        os.close(descriptor)
        return None
    return descriptor
