"""The runner's side of the launcher: ordering commands, and hearing how they ended."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from eventq.cli import processes
from eventq.core.errors import EventqError

__all__ = ["Ended", "Launcher", "LauncherGone"]


class LauncherGone(EventqError, ChildProcessError):
    """The launcher has died, so nobody knows how the commands end."""


@frozen
class Ended:
    """How a command ended: its exit status (minus the signal that killed it), and why it could
    not start, if it could not."""

    lease: int
    code: int
    cannot: str | None


class Launcher:
    """A small process of its own that starts commands. When the runner dies, it ends them all."""

    def __init__(self, records: int) -> None:
        """`records` is the open file of the run lock, where each command is recorded."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-X", "utf8", str(Path(processes.__file__))),
                    *(str(theirs.fileno()), str(records)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), records),
                start_new_session=True,
            )
        self._control = ours
        self._unread = b""

    def fileno(self) -> int:
        """What becomes readable when a command has ended."""
        return self._control.fileno()

    def start(
        self, lease: int, argv: tuple[str, ...], cwd: str, env: dict[str, str], output: Path
    ) -> None:
        """Start a command, its environment on top of the runner's own."""
        order = {"lease": lease, "argv": argv, "cwd": cwd, "env": env, "output": str(output)}
        self._order(order)

    def signal(self, lease: int, number: int) -> None:
        """Send a signal to all of a command's session. When the command itself ends after that,
        what is left of its session is killed."""
        self._order({"lease": lease, "signal": int(number)})

    def _order(self, order: dict[str, Any]) -> None:
        try:
            self._control.sendall(json.dumps(order).encode() + b"\n")
        except ConnectionError:
            raise LauncherGone("the process that starts the commands has died") from None

    def ended(self) -> list[Ended]:
        """The commands that have ended; waits for one if there is none to tell of."""
        try:
            data = self._control.recv(1 << 16)
        except ConnectionError:
            data = b""
        if not data:
            raise LauncherGone("the process that starts the commands has died")
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [Ended(**json.loads(line)) for line in lines]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Whatever still runs is ended."""
        self._control.close()
        self._process.wait()
