"""What is asked of the disk where a queue writes or syncs: one object, a method for each call.

All writing of a log, of what mends it and of snapshots goes through it, so that a test can hand in
a disk that fails, see `eventq.testing.faults`. Reading does so only where it reads what others
have just appended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["DISK", "Disk", "check_file", "open_to_read", "read_file"]


class Disk:
    """The real disk: each call is that of the system. Files are paths, open ones descriptors."""

    __slots__ = ()

    def open(self, file: Path, flags: int, mode: int = 0o600) -> int:
        """A descriptor of this file, which no program that is started inherits."""
        return os.open(file, flags | os.O_CLOEXEC, mode)

    flock = staticmethod(fcntl.flock)
    """Take or let go of the lock on an open file, as in `fcntl`."""

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """At most `size` bytes from there; none past the end."""
        return os.pread(descriptor, size, offset)

    def pwrite(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write there; how many bytes were taken, which may be fewer than were given."""
        return os.pwrite(descriptor, data, offset)

    def write_soon(self, descriptor: int, offset: int, size: int) -> None:
        """Begin to write these bytes, which are to be synced, while there is other work to do.

        That is what Linux does at this advice; elsewhere it may do nothing.
        """
        try:  # noqa: SIM105 - on the way of every command, and `suppress` takes its time
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)
        except OSError:
            pass

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Let a file end there."""
        os.ftruncate(descriptor, size)

    def fdatasync(self, descriptor: int) -> None:
        """Return when the bytes and the size of a file are on disk."""
        os.fdatasync(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Return when all of a file is on disk."""
        os.fsync(descriptor)

    def mkdir(self, folder: Path, mode: int = 0o700) -> None:
        """Make a folder."""
        os.mkdir(folder, mode)  # noqa: PTH102 - each method is one call

    def rename(self, file: Path, target: Path) -> None:
        """Give a file another name in its folder, in the place of what has that name."""
        os.rename(file, target)  # noqa: PTH104

    def unlink(self, file: Path) -> None:
        """Take a file's name away."""
        os.unlink(file)  # noqa: PTH108

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder last."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    # What is made of these.

    def write_all(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of it there, however little is taken at a time."""
        rest = memoryview(data)
        while rest:
            written = self.pwrite(descriptor, rest, offset)
            rest, offset = rest[written:], offset + written

    def write_file(self, file: Path, data: bytes, taken: int = os.O_EXCL) -> None:
        """Write a file that lasts, but for its name. `taken` is the flag of `open` that says what
        to do where there is one of that name."""
        descriptor = self.open(file, os.O_WRONLY | os.O_CREAT | taken)
        try:
            self.write_all(descriptor, data, 0)
            self.fsync(descriptor)
        finally:
            os.close(descriptor)


DISK = Disk()
"""The real one."""


def open_to_read(file: Path, buffering: int = -1) -> BinaryIO:
    """A file of a queue, to be read.

    Raises OSError; also where there is something else than a file, such as a pipe, to open which
    would wait for ever, or a device that has no end.
    """
    return open(file, "rb", buffering, opener=_open_a_file)


def read_file(file: Path) -> bytes:
    """All of a file of a queue. Raises OSError, as `open_to_read`."""
    with open_to_read(file) as opened:
        return opened.read()


def check_file(descriptor: int, file: str | Path) -> int:
    """The descriptor, if it is of a file, or of a folder, which is refused by whoever asked; any
    other is closed. Raises OSError."""
    if stat.S_ISREG(mode := os.fstat(descriptor).st_mode) or stat.S_ISDIR(mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "neither a pipe nor a device can be a file of a queue", str(file))


def _open_a_file(file: str, flags: int) -> int:
    return check_file(os.open(file, flags | os.O_NONBLOCK), file)
