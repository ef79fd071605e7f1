"""Waiting until a log grows, without spinning: the kernel says so (inotify), where it can.

Elsewhere, and where the kernel has no watch to give, the size of the log is looked at twenty times
a second.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> None:
        """Return when something has changed since the last wait, or after so many seconds."""
        if self._descriptor is None:
            time.sleep(min(seconds, LOOK_EVERY))
            return
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        if poll.poll(min(seconds, 3600.0) * 1000):
            os.read(self._descriptor, 65536)


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
