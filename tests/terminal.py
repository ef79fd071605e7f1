"""Typing eventq's commands, for the tests: in this process, in a real one, on a pseudo terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from attrs import frozen
from disk import Ticks

from eventq import Enqueue, Lease, Retention, Retry, WorkQueue
from eventq.cli.main import main

COMMAND = [sys.executable, "-m", "eventq"]
ROOT = Path(__file__).parent.parent

HOSTILE = "a\u202eb\u2066[red]\u200bc[/red]"
"""An id that would turn text around, draw itself red, and hide a character."""

BAD_ERROR = "\x1b]0;title\x07\x1b[2Jboom\nsecond line\r\x9b31m [bold]x[/bold] {e.root} %s"
"""An error that would clear the screen, and more."""


@frozen
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The one JSON value that it printed."""
        return json.loads(self.out)

    @property
    def values(self) -> list[Any]:
        """The JSON values that it printed, one a line: U+2028 ends none."""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]

    @property
    def error(self) -> Any:
        """The one JSON value that it printed on stderr."""
        return json.loads(self.err)


def eventq(*words: object) -> Ran:
    """Run a command line in this process, its output in a pipe."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    out.flush()
    err.flush()
    return Ran(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


def environment(**more: str) -> dict[str, str]:
    """The environment of a real process: this checkout, whatever is installed, and no colour.

    The width of a terminal is asked of the terminal, not of who runs the tests.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("EVENTQ") and name not in ("COLUMNS", "LINES")
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def process(*words: object, **env: str) -> Ran:
    """Run a command line in a process of its own, its output in a pipe."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, env=environment(**env), timeout=60
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def on_terminal(*words: object, columns: int = 80, **env: str) -> Ran:
    """Run a command line on a terminal of this width; `out` is all that reached it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [*COMMAND, *map(str, words)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", **env),
        start_new_session=True,
    ) as child:
        os.close(theirs)
        said = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
        code = child.wait(60)
    return Ran(code, said.decode().replace("\r\n", "\n"), "")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # how Linux says that nobody holds the other end any more
        return b""


def nightly(path: Path, **more: Any) -> Path:
    """A queue of three tasks in a row, the first of them dead: 4 entries."""
    with WorkQueue.open(path, retry=Retry(max_attempts=1), clock=Ticks(), **more) as q:
        q.enqueue_all(
            [
                Enqueue("fetch", {"url": "https://example.org/"}),
                Enqueue("parse", None, ["fetch"]),
                Enqueue("report", None, ["parse"]),
            ]
        )
        q.fail(started(q, "w1"), "HTTP 503")
    return path


def everything(path: Path) -> Path:
    """A queue in which every kind of answer stands: dead, parked, missing, forgotten, running."""
    with WorkQueue.open(
        path, retry=Retry(max_attempts=1, max_redrives=0), retention=Retention(0), clock=Ticks()
    ) as q:
        q.enqueue("parked")
        q.fail(started(q, "w1"), "bad input")
        q.enqueue("gone")
        q.complete(started(q, "w1"), {"rows": 7})
        q.tick()
        q.enqueue("after-gone", after=["gone"])
        q.enqueue("after-ghost", after=["ghost"])
        q.enqueue("far", after=["after-ghost"])
        q.enqueue("under-parked", after=["parked"])
        q.enqueue("running")
        started(q, "w2")
        q.enqueue("after-running", after=["running", "ghost2"])
        q.enqueue("cancelled")
        q.cancel("cancelled", why="not needed", by="alice")
        q.enqueue("under-cancelled", after=["cancelled"])
        q.enqueue("ready")
        q.enqueue("ready-too")
    return path


def hostile(path: Path) -> Path:
    """A queue whose every text would do something to a terminal, a shell or a table."""
    with WorkQueue.open(path, retry=Retry(max_attempts=1), clock=Ticks()) as q:
        q.enqueue(HOSTILE, {"a": "\x1b[31m\u202e", "b": ["\n", "\x9b", "[red]"]})
        q.enqueue("日本語", after=[HOSTILE])
        q.enqueue("-rf", after=["$(touch pwned)"])
        q.fail(started(q, "[link=x]w\u200b"), BAD_ERROR)
        q.enqueue("ok")
        q.complete(started(q, "w"), {"r": "\x1b[0m"})
        q.cancel("-rf", why="two\nlines \x1b[31m [green]", by="by\u202e[blink]")
    return path


def started(q: WorkQueue, worker: str | None = None) -> Lease:
    """The lease of the first task in the line."""
    lease = q.start(worker)
    assert lease is not None
    return lease
