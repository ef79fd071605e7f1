"""Files that a command line names: read to their end, if they have one."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LIMIT", "read_given"]

LIMIT = 256 * 1024 * 1024
"""How many bytes are read at most."""


def read_given(file: Path) -> bytes:
    """All of this file, which may be a pipe. Raises OSError, ValueError for one that has more than
    LIMIT bytes, or no end."""
    with file.open("rb") as opened:
        data = opened.read(LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError(f"it has more than {LIMIT:,} bytes, and no more are read")
    return data
