"""What a crash, a full disk or a failing one does to a log: nothing half done, nothing lost.

`Disk` in `disk.py` stands in for the disk that fails; the bytes that reach the file are real.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from disk import (
    EIO,
    FIXTURES,
    Disk,
    Ticks,
    check_chain,
    copied,
    cut_lines,
    lines,
    log_bytes,
    segments,
    untouched,
)

from eventq import EventqError, HandleFinished, LogDamaged, State, WorkQueue
from eventq.core.evolve import replay
from eventq.storage.disk import Disk as RealDisk
from eventq.storage.verify import Verification
from eventq.testing.faults import FaultyDisk

SHORT = FIXTURES / "short"
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for: these tests are not about syncing."""
    monkeypatch.setattr(os, "fdatasync", int)
    monkeypatch.setattr(os, "fsync", int)


def check(path: Path, *tasks: str) -> None:
    """The log is whole, and folds to a state with just these tasks."""
    check_chain(path)
    with WorkQueue.open(path, read_only=True) as q:
        assert [task.id for task in q.state.tasks()] == list(tasks)
        assert replay(State(), q.entries()) == q.state
        q.state.check()


def kept(path: Path) -> list[bytes]:
    """What was cut off and kept."""
    return [file.read_bytes() for file in sorted((path / "torn").glob("*"))]


# A torn tail.


def torn_tails(line: bytes) -> Iterator[tuple[bytes, int]]:
    """What can be left of a line, and how many entries that makes."""
    for size in range(1, len(line)):
        yield line[:size], int(size == len(line) - 1)
    for size in range(0, len(line), 7):
        rest = len(line) - size
        yield line[:size] + b"\0" * rest, int(rest == 1)
        yield line[:size] + b"\0" * (4096 - size), 0
    yield line[:-1] + b"\0" * 100, 1


@pytest.mark.usefixtures("quick")
def test_a_torn_tail_is_cut_at_whatever_byte(tmp_path: Path) -> None:
    """By the next writer, and kept beside the log; a line that lacks only its newline is
    finished. Readers wait for the rest of it."""
    path = copied(SHORT, tmp_path / "q")
    file = segments(path)[-1]
    first, second = cut_lines(file.read_bytes())
    for tail, more in torn_tails(second):
        file.write_bytes(first + tail)
        shutil.rmtree(path / "torn", ignore_errors=True)
        with untouched(path), WorkQueue.open(path, read_only=True) as reader:
            assert reader.state.seq == 9
        with WorkQueue.open(path, clock=Ticks()) as q:
            assert q.state.seq == 9 + more
            if more:
                assert file.read_bytes() == first + second
                assert kept(path) == []
            else:
                assert file.read_bytes() == first
                assert kept(path) == [tail]
    with WorkQueue.open(path) as q:
        q.enqueue("more")
    check(path, "a", "b", "c", "more")


def test_zeros_behind_the_last_line_are_cut(tmp_path: Path) -> None:
    """A power cut may leave the file longer than what was written to it."""
    for count in (1, 79, 4096, 100_000):
        path = copied(SHORT, tmp_path / str(count))
        file = segments(path)[-1]
        text = file.read_bytes()
        file.write_bytes(text + b"\0" * count)
        with WorkQueue.open(path) as q:
            assert q.state.seq == 10
        assert file.read_bytes() == text
        assert kept(path) == [b"\0" * count]


def test_a_new_segment_that_was_torn_is_begun_again(tmp_path: Path) -> None:
    """Whatever is left of its first line, and also where nothing is."""
    for size in (0, 1, 100, 250):
        path = copied(SHORT, tmp_path / str(size))
        file = segments(path)[-1]
        line = cut_lines(file.read_bytes())[0]
        file.write_bytes(line[:size])
        with WorkQueue.open(path, clock=Ticks()) as q:
            assert q.state.seq == 8
            q.enqueue("more")
        assert cut_lines(file.read_bytes())[0].startswith(b'{"v":1,"seq":9,')
        check(path, "a", "b", "c", "more")


@pytest.mark.parametrize("size", [1, 500, 10**6])
def test_the_torn_tail_of_another_is_cut_by_a_handle_that_is_open(
    size: int, tmp_path: Path
) -> None:
    """Before it writes, whether its line is shorter or longer, or begins a new segment."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=size) as q:
        for tail in (b'{"v":1,"seq":', b"x" * 5000, b"\0" * 4096):
            q.enqueue()
            with segments(path)[-1].open("ab") as file:
                file.write(tail)  # as one does who is killed while writing
            q.enqueue()
            check_chain(path)
            assert tail in kept(path)
    assert len(check_chain(path)) == 7


class Meanwhile(RealDisk):
    """A disk on which something happens just after something was read."""

    __slots__ = ("then",)

    def __init__(self) -> None:
        self.then: list[Callable[[], object]] = []

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """As the real one."""
        data = super().pread(descriptor, size, offset)
        while self.then:
            self.then.pop()()
        return data


def test_a_torn_tail_that_is_cut_off_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    """The next writer cut it off and began a new segment, since it was read."""
    path, disk = tmp_path / "q", Meanwhile()
    with WorkQueue.open(path, segment_bytes=900, snapshots=False) as q:
        q.enqueue("a", "x" * 300)
        with WorkQueue.open(path, read_only=True, disk=disk) as reader:
            with segments(path)[-1].open("ab") as file:
                file.write(b'{"v":1,"seq":3,')
            disk.then.append(lambda: q.enqueue("b", "x" * 300))
            assert reader.task("b") is not None
            assert not disk.then
            assert len(segments(path)) == 3


def test_a_last_line_that_another_did_not_end_is_finished_by_an_open_handle(tmp_path: Path) -> None:
    """Its hash is whole, so what it says has happened."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path) as other:
        q.enqueue("a")
        other.enqueue("b")
        file = segments(path)[-1]
        os.truncate(file, file.stat().st_size - 1)
        q.enqueue("c")
        assert [task.id for task in other.state.tasks()] == ["a", "b", "c"]
    check(path, "a", "b", "c")


# Writes that fail.


def test_a_write_that_fails_changes_nothing(tmp_path: Path, disk: Disk) -> None:
    """However many bytes got there: memory and log are as before, and the handle goes on."""
    path = tmp_path / "q"
    with WorkQueue.open(path, clock=Ticks()) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("t000")
        size = len(lines(path)[-1])
        names = [f"t{room:03}" for room in (*range(1, size, 13), size - 1)]
        for name in names:
            state, text, head = q.state, log_bytes(path), q.head
            disk.room = int(name[1:])
            with pytest.raises(OSError, match="No space left"):
                q.enqueue(name)
            disk.room = None
            assert q.state is state
            assert q.head == head
            assert reader.state == state
            assert log_bytes(path) == text
            assert q.enqueue(name).id == name
            assert reader.state == q.state
    check(path, "t000", *names)


def test_a_write_may_come_in_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may take a part of what it is given; the rest is given again."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, memoryview(data)[:7], at))
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("a", "x" * 1000)
    check(tmp_path / "q", "a")


def test_a_write_that_cannot_be_taken_back_finishes_the_handle(tmp_path: Path, disk: Disk) -> None:
    """The next one to open the queue cuts what is left of it."""
    path = tmp_path / "q"
    q = WorkQueue.open(path)
    q.enqueue("a")
    disk.room, disk.fails["ftruncate"] = 50, EIO
    with pytest.raises(OSError, match="No space left"):
        q.enqueue("b")
    disk.room = None
    disk.fails.clear()
    for ask in (lambda: q.enqueue("c"), lambda: q.state, lambda: q.head, lambda: q.enqueue("a")):
        with pytest.raises(HandleFinished, match="could not be rolled back"):
            ask()
    q.shut()
    with WorkQueue.open(path) as q:
        q.enqueue("c")
    check(path, "a", "c")


def test_the_first_write_may_fail_too(tmp_path: Path, disk: Disk) -> None:
    """Then no queue was opened, and it can be tried again."""
    for room in (0, 100):
        disk.room = room
        with pytest.raises(OSError, match="No space left"):
            WorkQueue.open(tmp_path / "q")
        disk.room = None
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("a")
    check(tmp_path / "q", "a")


@pytest.mark.parametrize("fails", ["open", "fsync", "fdatasync", "pwrite", "ftruncate"])
def test_a_roll_that_fails_changes_nothing(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in it: the entry is not there, and the log goes on, be it through a new handle."""
    path = tmp_path / "q"
    q = WorkQueue.open(path, segment_bytes=1, clock=Ticks())
    q.enqueue("a")
    failed: list[Any] = []
    real = getattr(os, fails)

    def fail(*args: Any, **more: Any) -> Any:
        if fails == "open" and not str(args[0]).endswith(".jsonl"):
            return real(*args, **more)
        failed.append(args)
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fail)
        with pytest.raises(OSError, match="No space left"):
            q.enqueue("b")
        assert failed
    try:
        q.enqueue("b")
    except HandleFinished:
        q = WorkQueue.open(path, segment_bytes=1, clock=Ticks())
        q.enqueue("b")
    q.enqueue("c")
    q.shut()
    check(path, "a", "b", "c")


# Damage.


def test_damage_met_on_the_way_leaves_the_handle_where_it_is(tmp_path: Path) -> None:
    """And when a good copy of the file is back, it goes on as if nothing had been."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path) as other:
        q.enqueue("a")
        for name in "bcd":
            other.enqueue(name)
        file = segments(path)[0]
        good = file.read_bytes()
        for damage in (good.replace(b'"c"', b'"x"'), good[:-80] + b"\n"):
            file.write_bytes(damage)
            for _ in range(2):
                with pytest.raises(LogDamaged):
                    _ = q.state
                with pytest.raises(LogDamaged):
                    q.enqueue("e")
            assert file.read_bytes() == damage
            file.write_bytes(good)
            assert q.state == other.state
        file.write_bytes(b"".join(cut_lines(good)[:-1]))  # as if `d` had never been
        with pytest.raises(EventqError):
            q.enqueue("f")
        file.write_bytes(good)
        q.enqueue("f")
    check(path, *"abcdf")


@pytest.mark.parametrize("cut", [-100, 1])
def test_lines_lost_that_a_handle_has_not_read_never_fork_the_chain(
    cut: int, tmp_path: Path
) -> None:
    """Half a line, or all of it: later files say that there was more, so nothing is written; and
    who only reads does not wait for the rest of half a line."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, segment_bytes=900) as q,
        WorkQueue.open(path, read_only=True) as reader,
    ):
        with WorkQueue.open(path, segment_bytes=900) as other:
            for _ in range(6):
                other.enqueue()
        file = segments(path)[0]
        first, second = cut_lines(file.read_bytes())
        file.chmod(0o600)
        file.write_bytes(first + second[:-100] if cut < 0 else first)
        file.chmod(0o400)
        with untouched(path / "log"), pytest.raises(LogDamaged, match="cut short") as caught:
            q.enqueue("a")
        assert (caught.value.seq, caught.value.byte) == (2, len(first))
        if cut < 0:
            with pytest.raises(LogDamaged, match="cut short"):
                _ = reader.state
        file.unlink()
        file.write_bytes(first + second)
        q.enqueue("a")
    assert len(check_chain(path)) == 8


@pytest.mark.parametrize("name", ["segment-lost", "segment-short", "segment-cut", "bit-flipped"])
def test_a_reader_of_a_damaged_log_is_never_given_a_short_state(name: str, tmp_path: Path) -> None:
    """Each time that it asks how things stand now it is told; what stands before, it can read."""
    path = copied(FIXTURES / name, tmp_path / "q")
    with WorkQueue.open(path, read_only=True) as q:
        for _ in range(2):
            with pytest.raises(LogDamaged) as caught:
                _ = q.state
            with pytest.raises(LogDamaged):
                _ = q.head
        last = caught.value.seq - 1
        assert q.at(last).seq == last


def test_what_was_cut_off_lasts_before_the_log_ends_without_it(tmp_path: Path) -> None:
    """Bytes, name and folder."""
    path = tmp_path / "q"
    disk = FaultyDisk()
    with WorkQueue.open(path, disk=disk) as q:
        with segments(path)[-1].open("ab") as file:
            file.write(b"torn")
        disk.calls.clear()
        q.enqueue("a")
    disk.leave(path, tmp_path / "left")
    assert kept(tmp_path / "left") == [b"torn"]
    names = [call.name for call in disk.calls]
    assert names.index("ftruncate") > len(names) - 1 - names[::-1].index("sync_folder")


def test_a_torn_tail_that_is_written_over_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read never stood on the disk: it is read again before damage is believed, by who
    opens, by who looks at entries and by who verifies."""
    path = tmp_path / "q"
    with WorkQueue.open(path, snapshots=False) as q:
        q.enqueue("a")
        q.enqueue("b")
    (file,) = segments(path)
    whole = file.read_bytes()
    last = len(b"".join(whole.splitlines(keepends=True)[:-1]))
    torn = b'{"v":1,"seq":3,"at":"2020-'  # was read, then cut off; behind it stands what is there
    read = whole[:last] + torn + whole[last + len(torn) :]
    real = open
    spoilt = 0

    def open_(opened: Path, *args: Any, **more: Any) -> Any:
        nonlocal spoilt
        if opened == file and spoilt:
            spoilt -= 1
            return io.BytesIO(read)
        return real(opened, *args, **more)

    monkeypatch.setattr("eventq.storage.disk.open", open_, raising=False)
    with WorkQueue.open(path, read_only=True) as reader:
        looks: list[Callable[[], int]] = [
            lambda: max(entry.seq for entry in reader.entries()),
            lambda: max(entry.seq for entry in Verification(path).entries()),
            lambda: reader.at(2).seq + 1,
            lambda: WorkQueue.open(path, read_only=True).state.seq,
        ]
        for look in looks:
            spoilt = 1
            assert look() == 3
            assert spoilt == 0
        spoilt = 2
        with pytest.raises(LogDamaged):
            list(reader.entries())


def test_the_same_is_no_damage_to_a_handle_that_reads_on(tmp_path: Path) -> None:
    """It reads what others wrote since, in pieces; under the lock nobody writes meanwhile."""
    path, disk = tmp_path / "q", FaultyDisk()
    with (
        WorkQueue.open(path, snapshots=False) as q,
        WorkQueue.open(path, read_only=True, disk=disk) as reader,
    ):
        assert reader.state.seq == 1
        q.enqueue("a")
        real, spoilt = disk.pread, [True]

        def pread(descriptor: int, size: int, offset: int) -> bytes:
            text = real(descriptor, size, offset)
            return b'{"v":2' + text[6:] if spoilt and spoilt.pop() else text

        disk.pread = pread  # type: ignore[method-assign]
        assert reader.task("a") is not None
