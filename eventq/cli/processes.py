"""Processes: what /proc says of them, how a whole session is ended, and the launcher of a run.

The launcher is this file run as a script: a small interpreter that starts the commands of a run,
so that a fork costs the same however large the queue has become. Therefore this file imports the
standard library alone, and little of it.

Each command gets a session of its own. Before it becomes the command, the new process writes its
lease, pid and start time into the file of the run lock. It holds that lock, as every process that
inherits the open file does, until the moment it becomes the command: so whoever gets the lock next
finds each process either recorded or gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

__all__ = ["Process", "end_sessions", "process", "processes", "signal_session"]

PATIENCE = 10.0
"""How long, in seconds, to wait for killed processes to be gone."""


class Process(NamedTuple):
    """One process as /proc shows it. `start` is its start time in ticks since the boot: together
    with the pid it names one process, however often pids are used again."""

    pid: int
    state: str
    group: int
    session: int
    start: int

    @property
    def runs(self) -> bool:
        """Whether it can still do anything: not a zombie."""
        return self.state not in ("Z", "X")


def process(pid: int | str) -> Process | None:
    """This process, or None when there is none."""
    try:
        stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        fields = os.read(stat, 4096).rpartition(b")")[2].split()
    except OSError:  # it ended just now
        return None
    finally:
        os.close(stat)
    return Process(int(pid), fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))


def processes() -> Iterator[Process]:
    """All processes there are."""
    with contextlib.suppress(FileNotFoundError):  # no /proc: nothing can be seen
        for name in os.listdir("/proc"):  # noqa: PTH208  # no pathlib in the launcher
            if name.isdigit() and (found := process(name)) is not None:
                yield found


def signal_session(leader: int, number: int) -> None:
    """Send a signal to every process group of the session of this child of ours, not yet reaped."""
    groups = {found.group for found in processes() if found.session == leader}
    if not groups:  # it has not come so far as to open its session
        os.kill(leader, number)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def end_sessions(leaders: Collection[int]) -> bool:
    """Kill all there is in these sessions, also what left the first process group; wait until it
    is gone. False when something would not go."""
    until = time.monotonic() + PATIENCE
    while left := {found.group for found in processes() if found.session in leaders and found.runs}:
        if time.monotonic() > until:
            return False
        for group in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        time.sleep(0.005)
    return True


# The launcher.


class _Child:
    """A command that runs: its pid, the pipe that tells why it could not start, and whether it
    was told to stop."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.told = False


def _become(
    order: dict[str, Any], env: dict[bytes, bytes], launcher: int, records: int, pipe: int
) -> None:
    """In the new process: become the command. Returns, or raises, only if that failed."""
    os.setsid()
    pid = os.getpid()
    me = process(pid)
    record = (order["lease"], pid, me.start if me else 0)
    os.write(records, b'{"lease":%d,"pid":%d,"start":%d}\n' % record)
    if os.getppid() != launcher:
        return  # the run is over already
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    where = f"in {_short(order['cwd'])}"
    try:
        os.chdir(order["cwd"])
        where = _short(order["argv"][0])
        os.execvpe(order["argv"][0], order["argv"], env)  # noqa: S606  # no shell, as it should be
    except OSError as error:
        os.write(pipe, f"{where}: {error.strerror}".encode(errors="replace"))


def _short(text: str) -> str:
    """A text in quotes, which fits into a pipe that nobody reads yet."""
    return repr(text) if len(text) <= 200 else repr(text[:200] + "...")


class _Launcher:
    """Starts commands as the runner orders, and tells it how they ended."""

    def __init__(self, control: socket.socket, records: int) -> None:
        self.control = control
        self.records = records
        self.env = dict(os.environb)
        self.children: dict[int, _Child] = {}
        self.unread = b""

    def serve(self) -> None:
        """Until the runner is gone; then end everything."""
        woken, wake = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores; commands should not
            signal.signal(number, signal.SIG_DFL)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        with contextlib.suppress(ConnectionError):
            while True:
                for fd, _ in poll.poll():
                    if fd == woken:
                        with contextlib.suppress(BlockingIOError):
                            os.read(woken, 4096)
                    elif not self.obey():
                        return
                self.reap()

    def obey(self) -> bool:
        """Carry out what the runner has ordered; False when it is gone."""
        data = self.control.recv(1 << 16)
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "argv" in order:
                self.start(order)
            elif (child := self.children.get(order["lease"])) is not None:
                child.told = True
                signal_session(child.pid, order["signal"])
        return bool(data)

    def start(self, order: dict[str, Any]) -> None:
        launcher = os.getpid()
        env = {os.fsencode(name): os.fsencode(text) for name, text in order["env"].items()}
        env = {**self.env, **env}
        told, tell = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(told)
            os.close(tell)
            self.tell(order["lease"], 127, f"no new process: {error.strerror}")
            return
        if pid == 0:
            try:
                _become(order, env, launcher, self.records, tell)
            except BaseException as error:  # noqa: BLE001  # whatever it is, it must be told
                os.write(tell, str(error)[:200].encode(errors="replace"))
            finally:
                os._exit(127)
        os.close(tell)
        self.children[order["lease"]] = _Child(pid, told)

    def reap(self) -> None:
        """Find who has ended; stop what it left behind; tell the runner.

        The rest of its group is stopped while its zombie still keeps the number of the group.
        """
        for lease, child in list(self.children.items()):
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            if child.told:
                end_sessions({child.pid})
            _, status = os.waitpid(child.pid, 0)
            cannot = os.read(child.pipe, 4096).decode()
            os.close(child.pipe)
            del self.children[lease]
            self.tell(lease, os.waitstatus_to_exitcode(status), cannot or None)

    def tell(self, lease: int, code: int, cannot: str | None) -> None:
        ended = {"lease": lease, "code": code, "cannot": cannot}
        self.control.sendall(json.dumps(ended).encode() + b"\n", socket.MSG_NOSIGNAL)

    def end(self) -> None:
        """End all that still runs."""
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)  # also one that has not opened its session yet
        end_sessions({child.pid for child in self.children.values()})


def _launch() -> None:
    control, records = (int(number) for number in sys.argv[1:])
    os.set_inheritable(control, False)
    os.set_inheritable(records, False)
    launcher = _Launcher(socket.socket(fileno=control), records)
    try:
        launcher.serve()
    finally:
        launcher.end()


if __name__ == "__main__":
    _launch()
