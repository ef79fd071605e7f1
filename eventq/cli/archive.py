"""`eventq archive` and `unarchive`: the oldest files of a log, moved elsewhere and brought back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from eventq import WorkQueue
from eventq.cli.options import examples, json_option, log_of, queue_option
from eventq.cli.show import Screen, emit
from eventq.cli.wording import counted
from eventq.storage.archived import Moved

__all__ = ["archive", "unarchive"]


@click.command(
    epilog=examples(
        "eventq archive --queue nightly --to attic",
        "eventq archive --queue nightly --to attic --before 1000 --keep 2 --json",
    )
)
@queue_option
@click.option(
    "--to",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder to move them to.",
)
@click.option(
    "--before", type=click.IntRange(1), metavar="SEQ", help="Only what comes before this entry."
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="How many of the newest files of the log stay.",
)
@json_option
def archive(queue: Path, to: Path, before: int | None, keep: int, as_json: bool) -> None:
    """Move the oldest files of the log elsewhere.

    A snapshot is written first, so that the queue opens without them; the file that is written to
    always stays. Each is copied, synced and checked before it is taken out of the log, and can be
    brought back with `eventq unarchive`. What needs an entry that was archived (at, log, history,
    verify) says so and which files to bring back.

    --json: one object for each file that was moved: first and last (the seqs of its entries), hash
    (that of its last line) and to (the folder).
    """
    log_of(queue)
    with WorkQueue.open(queue) as q:
        moved = q.archive(to, before=before, keep=keep)
    _show(moved, as_json, f"moved to {to}")


@click.command(
    epilog=examples(
        "eventq unarchive --queue nightly",
        "eventq unarchive --queue nightly --since 1000 --json",
    )
)
@queue_option
@click.option(
    "--since",
    type=click.IntRange(1),
    default=1,
    metavar="SEQ",
    help="Only the files with entries from this one on.",
)
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="The folder where they are now.  [default: where they were moved to]",
)
@json_option
def unarchive(queue: Path, since: int, source: Path | None, as_json: bool) -> None:
    """Bring archived files of the log back.

    Each is checked against the hash that was recorded when it was moved; the archive keeps its
    copy. Works although the queue cannot be opened without them.

    --json: one object for each file that is there again: first and last (the seqs of its entries),
    hash (that of its last line) and to (the folder of the archive).
    """
    log_of(queue)
    try:
        moved = WorkQueue.unarchive(queue, source, since=since)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error.filename} is not there: if the archive is in another folder now, say in "
            "which with --from DIR"
        ) from error
    _show(moved, as_json, "back in the log")


def _show(moved: Sequence[Moved], as_json: bool, what: str) -> None:
    if as_json:
        for one in moved:
            emit({"first": one.first, "last": one.last, "hash": one.hash, "to": one.to})
        return
    screen = Screen()
    for one in moved:
        screen.line(f"entries {one.first} to {one.last}: {one.name}")
    screen.line(f"{counted(len(moved), 'file')} {what}")
