"""Forked processes for the tests: what they tell, how they end, and that none is left."""

from __future__ import annotations

import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from disk import check_chain

from eventq import State, WorkQueue
from eventq.core.evolve import replay

Work = Callable[[Callable[[str], None]], None]


class Child:
    """A forked process that runs `work` with a function that tells us lines of text."""

    def __init__(self, work: Work, seconds: int = 60) -> None:
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            self._rest = b""
            return
        code = 1
        try:
            signal.alarm(seconds)  # nobody waits longer for a child that hangs
            work(lambda text: _write(writing, text))
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)

    def told(self) -> list[str]:
        """The whole lines that it has told since we last asked; waits for one."""
        text = self._rest + os.read(self.reading, 1 << 16)
        *whole, self._rest = text.split(b"\n")
        return [line.decode() for line in whole]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def over(self) -> None:
        """Whatever has become of it, it is no longer there."""
        with suppress(ChildProcessError):  # it has been waited for
            if os.waitpid(self.pid, os.WNOHANG) == (0, 0):
                self.kill()
                self.end()

    def end(self) -> tuple[int, list[str]]:
        """Wait for it; how it ended (as in `os.WEXITSTATUS`, or minus the signal), and the rest."""
        while part := os.read(self.reading, 1 << 16):
            self._rest += part
        rest = self._rest.decode().split("\n")[:-1]
        os.close(self.reading)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), rest


def _write(descriptor: int, text: str) -> None:
    os.write(descriptor, f"{text}\n".encode())


def hear(children: Sequence[Child], seconds: float | None = None) -> list[tuple[Child, list[str]]]:
    """What these have told, of who has; waits for one of them, or so long."""
    by_pipe = {child.reading: child for child in children}
    ready, _, _ = select.select(by_pipe, [], [], seconds)
    return [(by_pipe[pipe], by_pipe[pipe].told()) for pipe in ready]


@contextmanager
def children(*work: Work) -> Iterator[list[Child]]:
    """Processes that are ended when the block is left."""
    running = [Child(one) for one in work]
    try:
        yield running
    finally:
        for child in running:
            child.over()


def check(path: Path) -> State:
    """The log is one whole chain; opened for writing, it folds to a state without a fault."""
    with WorkQueue.open(path) as q:
        check_chain(path)
        q.state.check()
        assert replay(State(), q.entries()) == q.state
        return q.state
