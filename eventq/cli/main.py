"""`eventq`: the command line, and the one place where errors end.

Each command is a click command in a file of its subject, which is imported when it is asked for;
whatever they raise on purpose becomes one message on stderr and an exit code.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from eventq.cli.exits import EXITS, FAILURES, Exit, code_of, complain
from eventq.cli.inert import inert
from eventq.cli.show import emit

__all__ = ["eventq", "main"]

INTERRUPTED = 130
NOBODY_READS = 141


COMMANDS = {
    "run": "run.run",
    "work": "work.work",
    "status": "status.status",
    "dlq": "letters.dlq",
    "why": "explain.explain",
    "history": "past.history",
    "log": "past.log",
    "at": "status.at",
    "redrive": "redrive.redrive",
    "resolve": "operate.resolve",
    "cancel": "operate.cancel",
    "restore": "operate.restore",
    "pause": "operate.pause",
    "resume": "operate.resume",
    "close": "operate.close",
    "reopen": "operate.reopen",
    "reconfigure": "reconfigure.reconfigure",
    "tick": "operate.tick",
    "verify": "audit.verify",
    "head": "audit.head",
    "repair": "repair.repair_command",
    "snapshot": "audit.snapshot",
    "archive": "archive.archive",
    "unarchive": "archive.unarchive",
    "completion": "completion.completion",
}
"""The commands in the order in which they are of use, and where each is: who asks for one does not
wait for the others to be imported."""


class _Group(click.Group):
    """The commands, each imported when it is asked for."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(importlib.import_module(f"eventq.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # before click, which would end with a code of its own
            _drop_output()
            ctx.exit(NOBODY_READS)


def _tell_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    import importlib.metadata  # here, since it takes a tenth of the start of every command

    try:
        version = importlib.metadata.version("eventq")
    except importlib.metadata.PackageNotFoundError:
        version = "(not installed)"
    click.echo(f"eventq, version {version}")
    context.exit()


def _drop_output() -> None:
    """Nobody reads any more: what is still in the buffer goes nowhere, without a word."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@click.group(
    "eventq",
    cls=_Group,
    epilog=EXITS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and exit.",
)
def eventq() -> None:
    """A work queue whose whole state is one log: run it, watch it, mend it, prove it.

    Every command on a queue takes --queue DIR (or EVENTQ_QUEUE) and --json. Those that only read
    change nothing and need no lock. `eventq COMMAND --help` has examples.
    """


def _show_usage(error: click.ClickException, *, as_json: bool) -> None:
    """A command line that is wrong, as click tells it."""
    told = io.StringIO()
    error.show(told)
    if as_json:
        what = f"\n{told.getvalue()}".partition("\nError: ")[2].strip()
        emit({"error": "usage", "exit": Exit.USAGE, "message": what}, to_stderr=True)
        return
    for line in told.getvalue().splitlines():
        sys.stderr.write(inert(line) + "\n")


class _OutputFailed(OSError):
    """Standard output could not be written; its reader is not gone, which is a BrokenPipeError."""


class _Output(io.FileIO):
    """Where standard output goes, with errors that say so: they look like those of any file."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            what = f"the standard output could not be written: {error.strerror}"
            raise _OutputFailed(what) from error


def _watch_output() -> None:
    """Let errors of the real standard output be told apart."""
    out = sys.stdout
    buffer = getattr(out, "buffer", None)
    buffered = isinstance(getattr(buffer, "raw", None), io.FileIO)
    if isinstance(out, io.TextIOWrapper) and (buffered or isinstance(buffer, io.FileIO)):
        out.flush()
        raw = _Output(out.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw) if buffered else raw,  # python -u has no buffer
            encoding=out.encoding,
            errors=out.errors,
            line_buffering=out.line_buffering,
            write_through=out.write_through,
        )


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if args is None else args)
    as_json = "--json" in words
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115, for as long as the process lives
    if sys.stdout is None:
        complain(OSError("the standard output is closed; nothing was done"), as_json=as_json)
        return Exit.NOT_CHECKED
    _watch_output()
    code = _run(words, as_json)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        code = code or NOBODY_READS
    except _OutputFailed as error:
        _drop_output()
        complain(error, as_json=as_json)
        code = max(code, code_of(error))
    return code


def _run(args: list[str], as_json: bool) -> int:
    try:
        code = eventq.main(args, prog_name="eventq", standalone_mode=False)
    except click.Abort:
        _drop_output()
        return INTERRUPTED
    except click.ClickException as error:
        _show_usage(error, as_json=as_json)
        return Exit.USAGE
    except FAILURES as error:
        if isinstance(error, _OutputFailed):
            _drop_output()
        complain(error, as_json=as_json)
        return code_of(error)
    return code if isinstance(code, int) else Exit.FINE


if __name__ == "__main__":
    sys.exit(main())
