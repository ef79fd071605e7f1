"""`eventq completion`: what to add to the start-up file of a shell for completion with Tab."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eventq.cli.options import examples
from eventq.cli.show import Screen

__all__ = ["completion"]

LINES = {
    "bash": ("~/.bashrc", 'eval "$(_EVENTQ_COMPLETE=bash_source eventq)"'),
    "zsh": ("~/.zshrc", 'eval "$(_EVENTQ_COMPLETE=zsh_source eventq)"'),
    "fish": (
        "~/.config/fish/completions/eventq.fish",
        "_EVENTQ_COMPLETE=fish_source eventq | source",
    ),
}


@click.command(epilog=examples("eventq completion", "eventq completion bash >> ~/.bashrc"))
@click.argument("shell", type=click.Choice(list(LINES)), required=False)
def completion(shell: str | None) -> None:
    """Print what makes Tab complete, for SHELL.

    It belongs into the start-up file of the shell; without SHELL it is for that in $SHELL. Then Tab
    completes commands, options, the ids of tasks (once --queue was typed, or from EVENTQ_QUEUE) and
    directories.
    """
    if shell is None:
        shell = Path(os.environ.get("SHELL", "")).name
        if shell not in LINES:
            raise click.UsageError(f"say which shell: {', '.join(LINES)}")
    file, line = LINES[shell]
    screen = Screen()
    screen.line(f"# completion of eventq's commands, for {file}")
    screen.line(line)
