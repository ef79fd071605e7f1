"""Any moment: how a queue stood at a time, which entries a time names, and how times are told."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from disk import NOON, Ticks, copied, lines, segments, small_redo, untouched
from hypothesis import example, given
from hypothesis import strategies as st
from terminal import eventq, nightly

from eventq import Archived, BadValue, LogDamaged, WorkQueue
from eventq.storage.lines import seq_at
from eventq.testing.faults import FaultyDisk, lose_all

SHORT = timedelta(microseconds=1)


class Given:
    """A clock that gives these times, and then the last one again."""

    def __init__(self, steps: list[int]) -> None:
        self.at = NOON
        self.steps = list(steps)

    def __call__(self) -> datetime:
        if self.steps:
            self.at += SHORT * self.steps.pop(0)
        return self.at


@given(
    st.lists(st.sampled_from([0, 0, 0, 1, 2, 10**6]), min_size=1, max_size=15),
    st.sampled_from([1, 700, 3_000, 10**6]),
)
@example([0] * 30, 700)
@example([1] * 30, 700)
def test_a_queue_stood_as_its_last_entry_by_then_left_it(steps: list[int], size: int) -> None:
    """Whatever the moment, the files of the log, and the handle that is asked."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "q"
        with (
            WorkQueue.open(path, clock=Given(steps), segment_bytes=size) as q,
            WorkQueue.in_memory(clock=Given(steps)) as memory,
            WorkQueue.open(path, read_only=True) as reader,
        ):
            for n in range(len(steps)):
                q.enqueue(f"t{n}")
                memory.enqueue(f"t{n}")
            for asked in (q, memory, reader):
                entries = list(asked.entries())
                for at in {entry.at for entry in entries}:
                    for then in (at - SHORT, at):
                        last = max((one.seq for one in entries if one.at <= then), default=0)
                        if asked is reader:
                            assert seq_at(path / "log", then) == last
                        else:
                            assert asked.at(then).seq == last
                assert asked.at(entries[-1].at + timedelta(1)).seq == q.state.seq


def test_a_moment_says_its_zone() -> None:
    """Any zone; one without is refused."""
    with WorkQueue.in_memory(clock=Ticks()) as q:
        q.enqueue("a")
        first, last = q.entries()
        assert q.at(first.at.astimezone(timezone(timedelta(hours=9)))).seq == 1 < last.seq
        naive: Any = first.at.replace(tzinfo=None)
        with pytest.raises(BadValue, match="must be a datetime with its time zone"):
            q.at(naive)
        with pytest.raises(BadValue, match="a time that UTC has not"):
            q.at(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))))


@pytest.mark.parametrize("damage", [(b'"t', b'"T'), (b'{"v":1,', b'{"v":0,'), (b'Z",', b'Y",')])
def test_moments_before_damage_are_answered(tmp_path: Path, damage: tuple[bytes, bytes]) -> None:
    """Those behind it, and those of which it cannot be known, are not; nor is it mended."""
    path = tmp_path / "q"
    with WorkQueue.open(path, clock=Ticks(), segment_bytes=1_500, snapshots=False) as q:
        for n in range(30):
            q.enqueue(f"t{n}")
        entries, states = list(q.entries()), [q.at(seq) for seq in range(32)]
    assert len(segments(path)) > 3
    for bad in range(2, 32):
        left = copied(path, tmp_path / f"{bad}")
        line = lines(left)[bad - 1]
        for file in segments(left):
            file.write_bytes(file.read_bytes().replace(line, line.replace(*damage, 1)))
        with untouched(left), WorkQueue.open(left, read_only=True) as q:
            for entry in entries[: bad - 2]:
                assert q.at(entry.at) == states[entry.seq]
            for entry in entries[bad - 1 :]:
                with pytest.raises(LogDamaged):
                    q.at(entry.at)


def test_what_the_redo_file_has_is_part_of_every_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until somebody has put it back."""
    small_redo(monkeypatch, 2_000)
    disk, left = FaultyDisk(), tmp_path / "left"
    with WorkQueue.open(tmp_path / "q", disk=disk, clock=Ticks(), snapshots=False) as q:
        for n in range(30):
            q.enqueue(f"t{n}")
        entries = list(q.entries())
        disk.leave(tmp_path / "q", left, lose_all)
    assert len(lines(left)) < len(entries)
    for entry in entries:
        assert seq_at(left / "log", entry.at) == entry.seq


def test_archived_moments_are_said_to_be(tmp_path: Path) -> None:
    """With what to bring back; later ones are answered."""
    path = tmp_path / "q"
    with WorkQueue.open(path, clock=Ticks(), segment_bytes=1_500) as q:
        for n in range(30):
            q.enqueue(f"t{n}")
        entries, states = list(q.entries()), [q.at(seq) for seq in range(32)]
        q.archive(tmp_path / "away")
        first = int(segments(path)[0].stem)
        for entry in entries:
            if entry.seq < first:
                with pytest.raises(Archived):
                    q.at(entry.at)
        assert q.at(entries[-1].at) == states[31]
    told = ("--until", f"{entries[0].at:%Y-%m-%dT%H:%M:%S}Z", "--queue", path)
    assert (eventq("log", *told).code, eventq("at", told[1], *told[2:]).code) == (6, 6)


# On the command line.

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with an entry at each of these times."""
    path = tmp_path_factory.mktemp("times") / "queue"
    at = BEGAN
    with WorkQueue.open(path, clock=lambda: at) as q:
        for seconds in (0.5, 1, 59.999999, 60, 3600, 43199.999999, 43200):
            at = BEGAN + timedelta(seconds=seconds)
            q.enqueue(f"at {seconds}")
    return path


@pytest.mark.parametrize(
    ("told", "first", "last"),
    [
        ("3", 3, 3),
        ("2026-11-30", 1, 7),
        ("2026-12-01", 8, 8),
        ("2026-11-30 12:00", 1, 4),
        ("2026-11-30T12:00Z", 1, 4),
        ("2026-11-30 12:00:00Z", 1, 2),
        ("2026-11-30 12:00:00.5", 2, 2),
        ("2026-11-30 12:00:00.500000Z", 2, 2),
        ("2026-11-30 12:00:00.500001Z", 3, 2),
        ("2026-11-30 12:00:59Z", 4, 4),
        ("2026-11-30 13:01+01:00", 5, 5),
        ("2026-11-30 21:00 +09:00", 1, 4),
        ("2026-11-30 12:30", 6, 5),
    ],
)
def test_a_time_is_all_that_it_names(days: Path, told: str, first: int, last: int) -> None:
    """The log since then begins with its first entry, or the next one; until then it ends with its
    last one, or the one before; and that is how the queue stood."""
    for words, shown in [
        (["--since", told], range(first, 9)),
        (["--until", told], range(1, last + 1)),
        (["--until", told, "-n", 2], range(max(1, last - 1), last + 1)),
    ]:
        found = eventq("log", *words, "--queue", days, "--json").values
        assert [entry["seq"] for entry in found] == list(shown)
    assert eventq("at", told, "--queue", days, "--json").value["seq"] == last
    assert eventq("why", "at 0.5", "--at", told, "--queue", days, "--json").value["seq"] == last
    both = eventq("log", "--since", told, "--until", told, "--queue", days, "--json")
    assert [entry["seq"] for entry in both.values] == list(range(first, last + 1))
    assert both.code == (0 if first <= last else 3)


def test_an_age_is_told_from_now(tmp_path: Path) -> None:
    """As for a redrive."""
    path = tmp_path / "queue"
    now = datetime.now(UTC)
    at = now - timedelta(hours=3)
    with WorkQueue.open(path, clock=lambda: at) as q:
        at = now - timedelta(hours=1)
        q.enqueue("a")
    assert eventq("at", "2h", "--queue", path, "--json").value["seq"] == 1
    assert eventq("at", "59m", "--queue", path, "--json").value["seq"] == 2
    (entry,) = eventq("log", "--since", "2h", "--queue", path, "--json").values
    assert entry["seq"] == 2


def test_times_without_entries_are_refused(days: Path) -> None:
    """What was asked for, and what there is."""
    for asked, told in [
        (["--since", "2026-12-02"], "since 2026-12-02"),
        (["--until", "2026-11-29"], "until 2026-11-29"),
        (["--since", "2026-11-30 12:30", "--until", "40"], None),
        (["--since", "7", "--until", "2026-11-30"], None),
        (["--since", "8", "--until", "2026-11-30"], "since 8 until 2026-11-30"),
        (["--since", "5", "--until", "3"], "since 5 until 3"),
        (["--since", "9"], "9"),
    ]:
        ran = eventq("log", *asked, "--queue", days)
        error = f"eventq: there is no entry {told}: the log has entries 1 to 8\n"
        assert (ran.code, ran.err) == ((0, "") if told is None else (3, error))
    ran = eventq("log", "--since", "2026-12-02", "--queue", days, "--json")
    assert (ran.error["error"], ran.error["seq"]) == ("no_such_entry", 9)
    assert eventq("at", "2026-11-29", "--queue", days, "--json").value["seq"] == 0
    assert "before the first entry" in eventq("at", "2026-11-29", "--queue", days).out


NO_MOMENTS = ["", "x", "-1", "1.5", "1e3", "12:00", "1d 2h", "9" * 20, "9" * 5_000, "\u0663", " 3"]
NO_MOMENTS += ["2026-13-01", "2026-11-31", "0001-01-01", "2026-11-30\n", "999999999d"]
NO_MOMENTS += ["2026-11-30 12", "2026-11-30T24:00", "2026-11-30 12:00.5", "2026-11-30 12:00 CET"]
NO_MOMENTS += ["2026-11-30 12:00:00.1234567", "2026-11-30 12:00:00+99:00"]


@pytest.mark.parametrize("told", NO_MOMENTS, ids=lambda told: told[:30])
def test_what_names_no_moment_is_refused(days: Path, told: str) -> None:
    """With what would."""
    for ask in (("at", told), ("log", "--since", told), ("why", "at 1", "--at", told)):
        ran = eventq(*ask, "--queue", days)
        assert ran.code == 2
        assert "No such option" in ran.err or "nor a time like '2026-11-30 15:31:49Z'" in " ".join(
            ran.err.split()
        )


def test_why_then_is_asked_of_a_time(tmp_path: Path) -> None:
    """Why did it not run at noon? It says so of that moment."""
    path = nightly(tmp_path / "queue")
    with WorkQueue.open(path) as q:
        failed = list(q.entries())[-1]
    assert failed.do == "fail"
    for then, kind in ((failed.at - SHORT, "needs"), (failed.at, "blocked")):
        told = then.isoformat().replace("+00:00", "Z")
        answer = eventq("why", "report", "--at", told, "--queue", path, "--json").value
        assert answer["kind"] == kind
