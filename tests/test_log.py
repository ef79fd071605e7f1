"""The log on disk: what was appended is there again, in segments, for writers and readers alike."""

from __future__ import annotations

from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
from disk import (
    FIXTURES,
    NOON,
    Ticks,
    check_chain,
    copied,
    cut_lines,
    digest_of,
    segments,
    tour,
    untouched,
)

from eventq import ReadOnly, State, WorkQueue
from eventq.core.evolve import evolve, replay
from eventq.storage.disk import Disk
from eventq.storage.following import AT_ONCE
from eventq.storage.segments import Cursor, segment_path

GOOD = FIXTURES / "good"


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    """The state is the same after opening the queue again, as is every entry."""
    clock = Ticks()
    state = None
    for i in range(5):
        with WorkQueue.open(tmp_path / "q", clock=clock) as q:
            assert state in (None, q.state)
            q.enqueue(f"t{i}", {"n": i}, after=[f"t{i - 1}"] if i % 2 else ())
            q.start(f"w{i}")
            state = q.state
            entries = list(q.entries())
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert replay(State(), entries) == q.state
            q.state.check()
    check_chain(tmp_path / "q")


def test_a_log_of_an_earlier_day_is_read(tmp_path: Path) -> None:
    """Every event that there was is folded, and the log can be gone on with."""
    path = copied(GOOD, tmp_path / "q")
    with WorkQueue.open(path) as q:
        state = q.state
        assert (state.seq, state.at) == (
            57,
            datetime(2026, 11, 30, 13, 2, 55, 123456, tzinfo=NOON.tzinfo),
        )
        assert [task.id for task in state.tasks()] == ["slow"]
        task = q.at(23).task("fetch")
        assert task is not None
        assert task.payload == {"url": "https://example.org/", "n": [1, 1.0, -0.0, None, True]}
        assert task.result == {"rows": 10**30}
        assert q.at(12).reason("fetch") == "failed after 2 attempts: HTTP 404\n[red]\x1b[0m"
        assert q.at(20).reason("late") == "blocked by fetch"
        q.state.check()
        q.enqueue("more")
    assert len(check_chain(path)) == 58


@pytest.mark.parametrize("path", [GOOD, FIXTURES / "short"], ids=lambda path: path.name)
def test_every_moment_can_be_asked_for(path: Path, tmp_path: Path) -> None:
    """The state after each entry is what folding that many entries gives, also from a snapshot."""
    queue = copied(path, tmp_path / "q")
    with WorkQueue.open(queue) as q:
        entries = list(q.entries())
        for _ in range(2):
            state = State()
            assert q.at(0) == state
            for entry in entries:
                state = evolve(state, entry)
                assert q.at(entry.seq) == state
                state.check()
            assert state == q.state == reduce(evolve, entries, State())
            q.snapshot()
        for seq in (-1, len(entries) + 1, 10**9):
            with pytest.raises(IndexError, match=f"there is no entry {seq}: the log has"):
                q.at(seq)


def test_the_entries_since_any_moment(tmp_path: Path) -> None:
    """From each seq on, across segments; none beyond the end."""
    path = copied(GOOD, tmp_path / "q")
    with WorkQueue.open(path) as q:
        entries = list(q.entries())
        assert len(entries) == 57
        for since in range(-2, 60):
            assert list(q.entries(since)) == entries[max(since - 1, 0) :]


def test_entries_are_there_as_long_as_they_are_asked_for(tmp_path: Path) -> None:
    """What is appended while somebody reads may be read, too, and what was read stays right."""
    with WorkQueue.open(tmp_path / "q", segment_bytes=1, clock=Ticks()) as q:
        reading = q.entries()
        assert next(reading).seq == 1
        q.enqueue("a")
        q.enqueue("b")
        assert [entry.seq for entry in reading] == [2, 3]


@pytest.mark.parametrize("size", [1, 700, 3000, 10**9])
def test_segments_roll(size: int, tmp_path: Path) -> None:
    """Named by their first seq, none larger than told unless one line alone is; only the first
    line of each says what the hash before was."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=size, clock=Ticks()) as q:
        for i in range(20):
            q.enqueue(f"t{i}", "x" * 100 * (i % 5))
        state = q.state
    all_lines = check_chain(path)
    assert len(all_lines) == 21
    files = [file.read_bytes() for file in segments(path)]
    for text in files:
        assert len(text) <= size or len(cut_lines(text)) == 1
    for text, following in pairwise(files):
        assert len(text) + len(cut_lines(following)[0]) > size
    assert len(files) == {1: 21, 10**9: 1}.get(size, len(files))
    with WorkQueue.open(path, read_only=True) as q:
        assert q.state == state
        assert q.head == (21, digest_of(all_lines[-1]).decode())


def test_the_size_of_segments_may_change(tmp_path: Path) -> None:
    """It is no part of the log: each handle has its own."""
    path = tmp_path / "q"
    for i, size in enumerate((10**6, 1, 900, 1, 10**6)):
        with WorkQueue.open(path, segment_bytes=size, clock=Ticks()) as q:
            for j in range(3):
                q.enqueue(f"t{i}.{j}")
    assert len(check_chain(path)) == 16


def test_two_handles_follow_each_other(tmp_path: Path) -> None:
    """Each sees what the other wrote before it answers, through segments of either size."""
    path = tmp_path / "q"
    clock = Ticks()
    with (
        WorkQueue.open(path, segment_bytes=600, clock=clock) as one,
        WorkQueue.open(path, segment_bytes=10**6, clock=clock) as other,
        WorkQueue.open(path, read_only=True) as reader,
    ):
        for i in range(20):
            writer, seer = (one, other) if i % 3 else (other, one)
            writer.enqueue(f"t{i}")
            assert seer.task(f"t{i}") == writer.task(f"t{i}")
            assert reader.state == one.state == other.state
            assert reader.head == one.head == other.head
    assert len(check_chain(path)) == 21
    assert len(segments(path)) > 3


class Reading(Disk):
    """Notes how much is read at once."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        self.read.append(size)
        return super().pread(descriptor, size, offset)


def test_a_long_backlog_is_read_in_parts(tmp_path: Path) -> None:
    """Through several segments, by a writer and by a reader; only a line that is longer than a
    part is read whole."""
    path = tmp_path / "q"
    read_by = [Reading(), Reading()]
    with (
        WorkQueue.open(path, segment_bytes=9_000_000) as writer,
        WorkQueue.open(path, disk=read_by[0]) as q,
        WorkQueue.open(path, disk=read_by[1], read_only=True) as reader,
    ):
        for size in (300_000, 300_000, 900_000, 10, 2_500_000, 400_000, 1_100_000, 10):
            for _ in range(3):
                writer.enqueue(payload="x" * size)
        for disk, one in zip(read_by, (q, reader), strict=True):
            disk.read.clear()
            assert one.state == writer.state
            assert max(disk.read) <= 4 * AT_ONCE
            assert sum(size > AT_ONCE for size in disk.read) <= 3 * 3
        q.enqueue("a")
        assert writer.state == reader.state == q.state


def test_a_handle_that_slept_does_not_write_behind_a_full_segment(tmp_path: Path) -> None:
    """Not even where somebody gave the files other permissions meanwhile, as a backup may."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, clock=Ticks()) as sleeper,
        WorkQueue.open(path, segment_bytes=1, clock=Ticks()) as other,
    ):
        sleeper.enqueue("a")
        other.enqueue("b")
        for file in segments(path):
            file.chmod(0o600)
        sleeper.enqueue("c")
        assert [task.id for task in other.state.tasks()] == ["a", "b", "c"]
    assert len(check_chain(path)) == 4


# Reading only.


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """No byte, no time, no lock, whatever is asked; and every command is refused."""
    path = copied(GOOD, tmp_path / "q")
    with untouched(tmp_path), WorkQueue.open(path, read_only=True) as q:
        assert len(list(q.entries())) == 57
        assert q.at(7).seq == 7
        assert q.head[0] == q.state.seq == 57
        assert q.task("slow") is not None
        assert (len(q.dead_letters()), q.parked(), q.path) == (1, [], path)
        assert q.clock_behind is not None
        asks = (q.enqueue, q.start, q.close, q.reopen, q.tick, q.snapshot)
        for ask in asks:
            with pytest.raises(ReadOnly, match="was opened to be read only"):
                ask()
        with pytest.raises(PermissionError):
            q.complete(1)
    assert isinstance(ReadOnly(path), PermissionError)


def test_a_reader_needs_no_lock(tmp_path: Path) -> None:
    """It reads while a writer holds the lock, and from a directory that it may only read."""
    path = tmp_path / "q"
    tour(path)
    with WorkQueue.open(path) as writer:
        state = writer.state
        with writer._log.alone(), WorkQueue.open(path, read_only=True) as q:
            assert q.state == state
    (path / "lock").unlink()
    with untouched(path), WorkQueue.open(path, read_only=True) as q:
        assert q.state.seq == 57


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    """Entry by entry, from one segment to the next."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, segment_bytes=600, clock=Ticks()) as writer,
        WorkQueue.open(path, read_only=True) as reader,
    ):
        for i in range(20):
            writer.enqueue(f"t{i}")
            if i % 3:
                assert reader.state == writer.state
                assert list(reader.entries(i)) == list(writer.entries(i))
        assert reader.at(5) == writer.at(5)
    assert len(segments(path)) > 5


def test_half_a_line_at_the_end_is_not_there_yet(tmp_path: Path) -> None:
    """A reader waits for the rest of it, however it comes."""
    path = copied(FIXTURES / "short", tmp_path / "q")
    file = segments(path)[-1]
    text = file.read_bytes()
    first, second = cut_lines(text)
    file.write_bytes(first)
    with WorkQueue.open(path, read_only=True) as old:
        for size in range(len(second)):
            file.write_bytes(first + second[:size])
            if size % 40 == 0:
                with WorkQueue.open(path, read_only=True) as new:
                    assert (new.state.seq, len(list(new.entries()))) == (9, 9)
            assert old.state.seq == 9
            assert old.head == (9, digest_of(first).decode())
        file.write_bytes(text)
        assert (old.state.seq, len(list(old.entries()))) == (10, 10)


def test_a_segment_that_is_made_while_another_is_read_is_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer may go on in the one that a reader has just read to its end, and then roll."""
    path = tmp_path / "q"
    real = Cursor.next_segment
    with WorkQueue.open(path, segment_bytes=1500, clock=Ticks()) as writer:
        writer.enqueue()

        def next_segment(self: Cursor, rest: int) -> bool:
            if not segment_path(path / "log", self.seq + 1).exists():  # so this is the last one
                monkeypatch.setattr(Cursor, "next_segment", real)
                for _ in range(8):
                    writer.enqueue()
            return real(self, rest)

        for read in (
            lambda: WorkQueue.open(path, read_only=True),
            lambda: list(writer.entries()),
            lambda: writer.at(writer.state.seq - 1),
            lambda: WorkQueue.open(path),
        ):
            monkeypatch.setattr(Cursor, "next_segment", next_segment)
            found = read()
            if isinstance(found, WorkQueue):
                assert found.state == writer.state
                found.shut()
        assert len(segments(path)) > 4
    check_chain(path)
