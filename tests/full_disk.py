"""A queue on a disk that is really full, again and again: `python full_disk.py DIR`.

The directory is to be a file system of its own, of a megabyte or less. What was tried is printed.
"""

from __future__ import annotations

import errno
import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from disk import Ticks, check_chain, lines

from eventq import State, WorkQueue
from eventq.core.evolve import replay

ROUNDS = 12


def fill(ballast: Path, room: int) -> None:
    """Take all the room on the disk but for so many bytes."""
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        file.truncate(max(0, file.tell() - room))


def refused(ask: Callable[[], Any]) -> bool:
    """Whether there was no room for it."""
    try:
        ask()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


def main(folder: Path) -> None:
    """Two writers and a reader; none of them is ever opened again."""
    path, ballast = folder / "q", folder / "ballast"
    draw, clock = Random(1), Ticks()
    did: Counter[str] = Counter()
    more: dict[str, Any] = {"clock": clock, "segment_bytes": 20_000, "snapshots": False}
    with (
        WorkQueue.open(path, **more) as q,
        WorkQueue.open(path, **more) as other,
        WorkQueue.open(path, read_only=True) as reader,
    ):
        for _ in range(ROUNDS):
            fill(ballast, draw.randrange(4) * 8192)
            while True:
                before, text = q.state, lines(path)
                if refused(lambda: q.enqueue(None, "x" * draw.randrange(6000))):
                    break
                did["done"] += 1
            assert q.state is before
            assert lines(path) == text
            did["refused"] += 1
            did["refused, by the other too"] += refused(lambda: other.enqueue(None, "y" * 6000))
            did["snapshots refused"] += refused(q.snapshot)
            assert not list(path.glob("snapshots/*.tmp"))
            assert q.state == other.state == reader.state
            ballast.unlink()
            other.enqueue(None, "z" * 6000)
            q.enqueue(None, "z" * 6000)
            did["done"] += 2
        state = q.state
        assert replay(State(), reader.entries()) == state
    did["entries"] = len(check_chain(path))
    with WorkQueue.open(path) as q:
        assert q.state == state
    print(json.dumps(did))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
