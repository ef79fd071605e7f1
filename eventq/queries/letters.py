"""The dead letters as a whole: grouped by what their errors have in common, and how they grow.

The shape of an error is what is left of it when all that tells one case from the next is folded:
numbers and hex ids to `<n>`, uuids to `<uuid>`, addresses to `<addr>`, quoted texts to `<text>`.
Pure: all of it follows from a state and a time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache

from attrs import frozen

from eventq.core.lifecycle import Status
from eventq.core.record import Record
from eventq.core.state import State

__all__ = ["HOUR", "Group", "Letters", "globbed", "letters", "shape"]

S = Status

HOUR = timedelta(hours=1)

FOLDED = 2000
"""How much of an error is looked at: behind that, two of one shape may differ."""

_HEX4 = "[0-9a-f]{1,4}"
_PARTS = {
    "text": r"""(?<!\w)(?:"[^"\n]*"|'[^'\n]*'|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»)(?!\w)""",
    "uuid": r"(?<![0-9a-z])[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}(?![0-9a-z])",
    "addr": "|".join(
        (
            r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)*+",
            r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.]*\d)",
            rf"(?<![\w:])(?:{_HEX4}:){{3,7}}{_HEX4}(?![\w:])",
            rf"(?<![\w:])(?:{_HEX4}(?::{_HEX4}){{0,6}})?::(?:{_HEX4}(?::{_HEX4}){{0,6}})?(?![\w:])",
        )
    ),
    "n": r"0x[0-9a-f]+|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{7,}(?![0-9a-z])|\d+(?:[.,]\d+)*",
}
"""What is folded, the first that fits: each name with its pattern."""

_FOLD = re.compile(
    "|".join(f"(?P<{name}>{pattern})" for name, pattern in _PARTS.items()), re.IGNORECASE
)


@lru_cache(maxsize=4096)
def shape(error: str) -> str:
    """The error without what tells one case from the next, on one line."""
    folded = _FOLD.sub(lambda found: f"<{found.lastgroup}>", error[:FOLDED])
    return " ".join(folded.split())


def globbed(error: str) -> str:
    """A pattern that this error and others of its shape fit, blanks aside: `--how glob` of a
    redrive takes it."""
    folded = _FOLD.sub("\0", error[:FOLDED])
    plain = re.sub(r"([*?[])", r"[\1]", folded)
    return re.sub(r"[\0\s]*\0[\0\s]*", lambda gap: _gap(gap[0]), plain) + (
        "*" if len(error) > FOLDED else ""
    )


def _gap(gap: str) -> str:
    """What stands for a run of folded parts: the blanks at its ends stay."""
    return gap[: len(gap) - len(gap.lstrip())] + "*" + gap[len(gap.rstrip()) :]


@frozen
class Group:
    """All DEAD and PARKED tasks whose last errors are of one shape, and what they block."""

    shape: str
    example: str
    """The last error of the newest."""
    dead: tuple[str, ...]
    parked: tuple[str, ...]
    oldest: datetime
    newest: datetime
    below: dict[str, int]
    """How many BLOCKED tasks have each of these as their root; roots that block none left out."""
    growth: int
    """How many of its letters, those blocked included, are no older than the window."""

    @property
    def count(self) -> int:
        """How many died of it."""
        return len(self.dead) + len(self.parked)

    @property
    def blocked(self) -> int:
        """How many tasks wait for one of these."""
        return sum(self.below.values())


@frozen
class Letters:
    """All dead letters, and the parked tasks, as they stand at one moment."""

    groups: tuple[Group, ...]
    """The one of which most died first; of two with as many, that of the older death."""
    dead: int
    blocked: int
    parked: int
    under_cancelled: dict[str, int]
    """How many BLOCKED tasks have each CANCELLED task as their root: they are in no group."""
    now: datetime
    times: tuple[datetime, ...]
    """When each of them came here, in order."""

    @property
    def total(self) -> int:
        """How many there are of all three kinds."""
        return self.dead + self.blocked + self.parked

    @property
    def oldest(self) -> timedelta:
        """The age of the oldest; zero where there is none."""
        return max(self.now - self.times[0], timedelta()) if self.times else timedelta()

    def growth(self, window: timedelta = HOUR) -> int:
        """How many of those that are here came within this time."""
        return len(self.times) - bisect_right(self.times, _before(self.now, window))


def _before(now: datetime, window: timedelta) -> datetime:
    try:
        return now - window
    except OverflowError:
        return datetime.min.replace(tzinfo=now.tzinfo)


def _since(record: Record) -> datetime:
    assert record.since is not None
    return record.since


def letters(state: State, now: datetime, window: timedelta = HOUR) -> Letters:
    """The dead letters of this state, grouped; `growth` looks back from `now` by `window`."""
    roots: dict[str, list[Record]] = {}
    grouped: dict[str, str] = {}
    for record in _roots(state):
        folded = shape(record.error or "")
        roots.setdefault(folded, []).append(record)
        grouped[record.task.task] = folded
    times = [_since(record) for records in roots.values() for record in records]
    below: dict[str, Counter[str]] = {}
    cancelled: Counter[str] = Counter()
    young: Counter[str] = Counter()
    known: dict[str, str] = {}
    start = _before(now, window)
    for _, name in state.in_letters:
        record_ = state.record(name)
        if record_ is None or record_.status is not S.BLOCKED:
            continue
        root = state.root(name, known)
        assert root is not None
        since = _since(record_)
        times.append(since)
        if root not in grouped:
            cancelled[root] += 1
            continue
        below.setdefault(grouped[root], Counter())[root] += 1
        young[grouped[root]] += since > start
    groups = [
        _group(folded, records, below.get(folded, Counter()), young[folded], start)
        for folded, records in roots.items()
    ]
    return Letters(
        tuple(sorted(groups, key=lambda group: (-group.count, group.oldest, group.shape))),
        state.count(S.DEAD),
        state.count(S.BLOCKED),
        state.count(S.PARKED),
        dict(cancelled),
        now,
        tuple(sorted(times)),
    )


def _roots(state: State) -> Iterator[Record]:
    """Those that died themselves: the DEAD in order of death, then the PARKED."""
    yield from state.dead()
    for _, name in state.in_parking:
        record = state.record(name)
        assert record is not None
        yield record


def _group(
    folded: str, records: list[Record], below: Counter[str], young: int, start: datetime
) -> Group:
    newest = max(records, key=_since)
    return Group(
        folded,
        newest.error or "",
        tuple(record.task.task for record in records if record.status is S.DEAD),
        tuple(record.task.task for record in records if record.status is S.PARKED),
        min(map(_since, records)),
        _since(newest),
        dict(below),
        young + sum(_since(record) > start for record in records),
    )
