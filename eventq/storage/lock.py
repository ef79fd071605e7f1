"""The lock of a queue: what makes one writer of many, how it is waited for, and who has it.

It is the kernel's lock (`flock`) on a file that is never removed: it ends with the process that
holds it, however that ends, so that no file of a dead process keeps anybody out, and no number of
a process is ever taken for its owner.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from eventq.core.errors import BadValue
from eventq.storage.errors import LockTimeout, LockUnsupported

__all__ = ["NOW", "TIMEOUT", "check_timeout", "holders_of", "tell_of_forks", "wait_for_lock"]

NOW = fcntl.LOCK_EX | fcntl.LOCK_NB

TIMEOUT = 60.0
"""How many seconds a command waits for the lock, unless told otherwise. It is held for some tens
of microseconds: who has it for so long was stopped, or hangs."""

_FIRST, _GROWS, _LONGEST = 0.00001, 1.03, 0.01
"""How many seconds lie between two tries at first, how that grows, and at most. The kernel has no
deadline for this lock. Waiting so is as fast as in the kernel where eight writers take turns, and
who waits for long takes less than one percent of a processor."""

_NONE_HERE = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
"""How a file system says that it has no such locks."""


def check_timeout(timeout: object) -> None:
    """Raise BadValue unless this is a number of seconds that a lock can be waited for, or None."""
    known = timeout is None or (type(timeout) in (int, float) and timeout >= 0)  # type: ignore[operator]
    if not known:
        raise BadValue(
            "lock_timeout must be a number of seconds of at least 0, or None to wait for as long "
            f"as it takes, not {timeout!r}"
        )


def wait_for_lock(
    flock: Callable[[int, int], None],
    descriptor: int,
    queue: Path,
    timeout: float | None,
    error: OSError,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return with the lock that could not be had at once, for the reason in `error`.

    None: wait for as long as it takes. `sleep` is how a pause of so many seconds is made. Raises
    LockTimeout after so many seconds, LockUnsupported where there are no locks.
    """
    if error.errno in _NONE_HERE:
        raise LockUnsupported(queue, error) from error
    if error.errno != errno.EWOULDBLOCK:
        raise error
    end = math.inf if timeout is None else time.monotonic() + timeout
    pause = _FIRST
    while (left := end - time.monotonic()) > 0:
        sleep(min(pause, left))
        pause = min(pause * _GROWS, _LONGEST)
        try:
            flock(descriptor, NOW)
        except BlockingIOError:
            continue
        return
    assert timeout is not None
    raise LockTimeout(queue, timeout, holders_of(descriptor))


def holders_of(descriptor: int) -> list[int]:
    """The processes that have taken a lock on this file, as far as the kernel tells.

    One that has ended is told as long as a child of it has the file open.
    """
    inode = os.fstat(descriptor).st_ino
    try:
        told = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    for line in told:
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 fd:01:131 0 EOF
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            found.append(int(fields[4]))
    return [pid for pid in found if pid > 0]


class _Forked(Protocol):
    def forked(self) -> None: ...


_open: weakref.WeakSet[_Forked] = weakref.WeakSet()


def tell_of_forks(log: _Forked) -> None:
    """Call its `forked` in every child that is forked from now on. The child shares the lock with
    its parent: it would keep it when the parent dies, or let go of it while the parent writes."""
    _open.add(log)


def _in_child() -> None:
    for log in list(_open):
        log.forked()


os.register_at_fork(after_in_child=_in_child)
