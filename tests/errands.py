"""Handlers for the tests of workers, and workers run as programs: `python errands.py DIR ...`."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from eventq.worker import Context, Permanent, TaskFailed, Worker


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no")


class Exiting(Exception):
    """Asking for its text would end the program."""

    def __str__(self) -> str:
        raise SystemExit(1)


class Endless(Exception):
    """Asking for its text never comes to an end."""

    def __str__(self) -> str:
        return str(self)


class Text(str):
    """A text that says other things about itself."""

    def __len__(self) -> int:
        return 0

    def __format__(self, spec: str) -> str:
        raise ValueError("no")


class Shy(type):
    """A class whose name cannot be asked for."""

    @property
    def __name__(cls) -> str:
        raise ValueError("no")


class Nameless(Exception, metaclass=Shy):
    """See above."""


class Liar(TaskFailed):
    """It does not even say of which class it is."""

    @property
    def __class__(self) -> type:
        raise ValueError("no")

    @property
    def retry_after(self) -> None:
        raise ValueError("no")

    @retry_after.setter
    def retry_after(self, value: object) -> None:
        pass


class Own(BaseException):
    """An exception that is not even an Exception."""


HOSTILE: dict[str, tuple[BaseException, str]] = {
    "plain": (ValueError("bad row"), "ValueError: bad row"),
    "empty": (KeyError(), "KeyError"),
    "mute": (Mute(), "Mute (why cannot be told: ValueError)"),
    "exiting": (Exiting(), "Exiting (why cannot be told: SystemExit)"),
    "endless": (Endless(), "Endless (why cannot be told: RecursionError)"),
    "text": (TaskFailed(Text("odd\ud800")), "odd\\ud800"),
    "nameless": (Nameless("x"), "an exception (why cannot be told: ValueError)"),
    "liar": (Liar("x"), "Liar: x"),
    "surrogates": (ValueError("a\ud800b"), "ValueError: a\\ud800b"),
    "controls": (ValueError("\x1b[31m\x00"), "ValueError: \x1b[31m\x00"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "interrupt": (KeyboardInterrupt(), "KeyboardInterrupt"),
    "generator": (GeneratorExit("g"), "GeneratorExit: g"),
    "stop": (StopIteration(1), "StopIteration: 1"),
    "own": (Own("mine"), "Own: mine"),
    "group": (ExceptionGroup("two", [ValueError(1)]), "ExceptionGroup: two (1 sub-exception)"),
    "long": (ValueError("x" * 10_000_000), "ValueError: xxx"),
    "wide": (ValueError("\ud800" * 60_000), "ValueError: \\ud800\\ud800"),
    "long exit": (SystemExit("x" * 10_000_000), "SystemExit: xxx"),
    "long words": (Permanent("x" * 10_000_000), "xxx"),
}
"""What a handler may raise, and how its error begins."""

LENGTHS = {
    "long": "10,000,012",
    "wide": "60,012",
    "long exit": "10,000,012",
    "long words": "10,000,000",
}
"""Those whose error is cut, and how many characters it has."""

UNSTORABLE: dict[str, Any] = {
    "set": {1, 2},
    "tuple": (1, 2),
    "nan": [float("nan")],
    "key": {1: 2},
    "surrogate": "\ud800",
    "object": object(),
    "class": Mute,
    "lambda": lambda: 1,
    "deep": None,
}
"""Results that no log could give back."""

_deep: list[Any] = []
for _ in range(100_000):
    _deep = [_deep]
UNSTORABLE["deep"] = _deep


def raise_hostile(context: Context) -> None:
    """Raise what the payload names."""
    raise HOSTILE[context.payload][0]


def return_unstorable(context: Context) -> Any:
    """Return what the payload names."""
    return UNSTORABLE[context.payload]


def where(context: Context) -> dict[str, Any]:
    """Tell in which process this is."""
    return {"pid": os.getpid(), "attempt": context.attempt, "session": os.getsid(0)}


def die(context: Context) -> Any:
    """End the process as the payload says; otherwise as `where`."""
    match context.payload:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "child":
            child = subprocess.Popen(["sleep", "300"])
            Path(os.environ["ERRANDS"], "child").write_text(str(child.pid))
            os._exit(3)
        case "fork":
            os.fork()  # both go on and return
    return where(context)


def wait_in(context: Context) -> str:
    """Say that it has begun, then wait in the directory of the payload until it may go."""
    folder = Path(context.payload)
    (folder / f"{context.task}.pid").write_text(str(os.getpid()))
    (folder / f"{context.task}.pid").rename(folder / f"{context.task}.began")
    while not (folder / "go").exists():
        if context.wait_lost(0.01):
            (folder / f"{context.task}.lost").touch()
            return "lost"
    return "gone"


def made_slowly(folder: str) -> Any:
    """A handler whose making waits in this directory until it may go."""
    Path(folder, "making").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    return where


class Slow:
    """A handler that takes its time to be imported."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, context: Context) -> None: ...

    def __reduce__(self) -> Any:
        return made_slowly, (self._folder,)


def fail_in(context: Context) -> None:
    """Fail in ways that depend on the payload."""
    match context.payload:
        case "permanent":
            raise Permanent("never")
        case "lookup":
            raise KeyError("row")
        case "later":
            raise TaskFailed("HTTP 429", retry_after=0.05 if context.attempt == 1 else 3600)
        case "never":
            raise TaskFailed("odd", retry_after="soon")  # type: ignore[arg-type]
    raise ValueError(context.payload)


def run_command(context: Context) -> None:
    """Run the command that the payload names."""
    subprocess.run(context.payload["argv"], check=True, stdin=subprocess.DEVNULL)


class Heard(Worker):
    """Leaves a file when it begins to stop."""

    def stop(self) -> None:
        super().stop()
        threading.Thread(target=self._tell, daemon=True).start()

    def _tell(self) -> None:
        self._stopping.wait()
        Path(self._queue).with_name("stopping").touch()


def main() -> None:
    """Run a worker for the tests that send signals."""
    queue, kind, slots, grace, lease = sys.argv[1:]
    Heard(
        queue,
        wait_in,
        concurrency=int(slots),
        processes=kind == "processes",
        grace=float(grace),
        lease_for=float(lease),
        name="w",
    ).run()


if __name__ == "__main__":
    main()
