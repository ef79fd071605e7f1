"""The chain that lines make: each ends in a hash over the one before and its own bytes.

The hash is SHA-256, in hexadecimal, over the digits of the line before (64 zeros before the first)
and the bytes of this line up to its last `,"hash":"`. The first line of a segment also carries
`prev`, the digits of the line before, so that reading can begin there.
"""

from __future__ import annotations

import hashlib
import re

__all__ = ["GENESIS", "TAIL", "fits", "hash_of", "next_hash", "prev_of"]

GENESIS = "0" * 64
"""The hash before the first line."""

TAIL = len(',"hash":""}\n') + 64
"""How many bytes at the end of a line are not covered by its hash."""


def fits(line: bytes, last: bytes) -> bool:
    """Whether the hash that a line ends in is over the one before and its own body."""
    return line.endswith(b',"hash":"%b"}\n' % next_hash(last, line[:-TAIL]))


def hash_of(line: bytes) -> bytes | None:
    """The 64 digits that a line claims, or None where it does not end as a line does."""
    if len(line) > TAIL and line[-TAIL : -TAIL + 9] == b',"hash":"' and line[-3:] == b'"}\n':
        return line[-67:-3]
    return None


_PREV = re.compile(rb',"prev":"([0-9a-f]{64})"\Z')


def prev_of(line: bytes) -> bytes | None:
    """The hash that a line gives for the one before: only the first of a segment does."""
    found = _PREV.search(line[:-TAIL], max(0, len(line) - TAIL - 75))
    return None if found is None else found[1]


def next_hash(last: bytes, body: bytes) -> bytes:
    """The 64 digits over those of the line before and the body of this line."""
    return hashlib.sha256(last + body).hexdigest().encode()
