"""What can go wrong only in one moment, or on one kind of system: each is brought about by hand."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, Ticks, check_chain, copied, cut_lines, log_bytes, segments, untouched

from eventq import BadValue, HandleBusy, HandleFinished, LogDamaged, ReadOnly, WorkQueue
from eventq.storage.disk import DISK, Disk
from eventq.storage.mending import pread
from eventq.testing.faults import FaultyDisk


class Doing(Disk):
    """A disk that does something of the test's own at one call."""

    def __init__(self, **does: Callable[..., Any]) -> None:
        for name, do in does.items():
            setattr(self, name, do)


# Between one step of a command and the next.


def test_a_handle_that_is_shut_while_one_waits_for_it_is_shut_for_him(tmp_path: Path) -> None:
    """He is told so, and not that a descriptor is wrong."""
    q = WorkQueue.open(tmp_path / "q")
    real = q._log.mutex

    class Shutting:
        def __enter__(self) -> None:
            q._log.mutex = real
            q.shut()
            real.acquire()

        def __exit__(self, *exc: object) -> None:
            real.release()

    q._log.mutex = Shutting()  # type: ignore[assignment]
    with pytest.raises(HandleFinished, match="it was shut"):
        q.enqueue("a")


def test_a_refusal_of_a_reader_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Other threads can go on to read."""
    path = tmp_path / "q"
    WorkQueue.open(path).shut()

    def free() -> bool:
        got = q._log.mutex.acquire(timeout=5)
        if got:
            q._log.mutex.release()
        return got

    with WorkQueue.open(path, read_only=True) as q, ThreadPoolExecutor(1) as pool:
        with pytest.raises(ReadOnly):
            q.enqueue("a")
        assert pool.submit(free).result()


def test_who_asks_in_the_midst_of_a_command_is_refused(tmp_path: Path) -> None:
    """A handler of a signal may: what it broke into goes on as if nobody had asked."""
    path = tmp_path / "q"
    asked: list[Path] = []

    def sync_folder(folder: Path) -> None:
        DISK.sync_folder(folder)
        if not asked and len(segments(path)) > 1:
            asked.append(folder)
            for ask in (lambda: q.enqueue("from the handler"), lambda: q.alone().__enter__()):
                with pytest.raises(HandleBusy, match="in the midst of"):
                    ask()

    with WorkQueue.open(path, segment_bytes=1, disk=Doing(sync_folder=sync_folder)) as q:
        q.enqueue("a")
        assert asked
        assert [task.id for task in q.state.tasks()] == ["a"]
        q.enqueue("b")
    assert len(check_chain(path)) == 3


def test_an_interrupt_between_two_pieces_of_a_line_takes_them_back(tmp_path: Path) -> None:
    """Nothing of it is left for others to cut."""
    path = tmp_path / "q"
    pieces: list[int] = []

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if len(pieces) == 2:
            raise KeyboardInterrupt
        pieces.append(DISK.pwrite(descriptor, data[:10], offset))
        return pieces[-1]

    with WorkQueue.open(path) as q:
        text = log_bytes(path)
        q._log._pwrite = pwrite  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            q.enqueue("a")
        assert pieces == [10, 10]
        assert log_bytes(path) == text


def test_a_line_that_is_finished_while_it_is_looked_at_is_no_damage(tmp_path: Path) -> None:
    """Half of it was there, and then more files than one: its end came in between."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=900) as q:
        for _ in range(5):
            q.enqueue()
    first, *later = segments(path)
    text = first.read_bytes()
    first.chmod(0o600)
    for file in later:
        file.rename(file.with_suffix(".later"))
    os.truncate(first, len(cut_lines(text)[0]))

    def read(descriptor: int, size: int, offset: int) -> bytes:
        found = DISK.pread(descriptor, size, offset)
        with first.open("ab") as file:
            file.write(text[first.stat().st_size :])
        for file_ in later:
            if file_.with_suffix(".later").exists():
                file_.with_suffix(".later").rename(file_)
        return found

    with WorkQueue.open(path, read_only=True, disk=Doing(pread=read)) as reader:
        with first.open("ab") as file:
            file.write(text[first.stat().st_size : -50])
        assert [reader.state.seq, reader.state.seq] == [1, 6]


# Other files in the place of the open one.


@pytest.mark.parametrize("how", ["catches up", "is renewed"])
def test_a_file_is_not_changed_for_another_while_it_is_synced(how: str, tmp_path: Path) -> None:
    """Else the sync would be that of the other, or of none."""
    path = tmp_path / "q"
    synced: list[Path] = []

    def fdatasync(descriptor: int) -> None:
        if ready and not synced:
            thread.start()
            thread.join(0.2)  # it should wait for us, so this is waited for in vain
            synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        DISK.fdatasync(descriptor)

    def away() -> None:
        if how == "is renewed":
            (path / "unsynced").touch()
            WorkQueue.open(path).shut()
        else:
            with WorkQueue.open(path, segment_bytes=1) as other:
                other.enqueue("b")
        _ = q.state

    ready: list[bool] = []
    thread = threading.Thread(target=away)
    with WorkQueue.open(path, disk=Doing(fdatasync=fdatasync)) as q:
        ready.append(True)
        q.enqueue("a")
        thread.join()
        assert [str(file).removesuffix(" (deleted)") for file in synced] == [str(segments(path)[0])]
        assert q.state.task("a")


def test_one_that_may_be_written_but_not_by_us_is_not_taken_for_full(tmp_path: Path) -> None:
    """The queue of somebody else cannot be written to, and says so."""
    path = tmp_path / "q"
    WorkQueue.open(path).shut()

    def open_(file: Path, flags: int, mode: int = 0o600) -> int:
        if flags & os.O_RDWR and file.suffix == ".jsonl":
            raise PermissionError(13, "Permission denied", str(file))
        return DISK.open(file, flags, mode)

    with pytest.raises(PermissionError):
        WorkQueue.open(path, disk=Doing(open=open_))


# What a failed sync has marked.


def test_a_marked_log_that_is_damaged_is_left_as_it_is(tmp_path: Path) -> None:
    """Nothing is renewed, wherever the damage is: also before a snapshot that one could begin
    from, in the file that would be copied."""
    damaged = copied(FIXTURES / "bit-flipped", tmp_path / "damaged")
    behind = copied(FIXTURES / "short", tmp_path / "behind")
    with WorkQueue.open(behind) as q:
        q.snapshot()
    file = segments(behind)[-1]
    file.write_bytes(file.read_bytes().replace(b'"do"', b'"dO"', 1))
    for path in (damaged, behind):
        (path / "unsynced").touch()
        (path / "lock").touch()
        with untouched(path), pytest.raises(LogDamaged):
            WorkQueue.open(path)


def test_a_mark_without_a_log_is_taken_away(tmp_path: Path) -> None:
    """There is nothing to renew."""
    path = tmp_path / "q"
    path.mkdir()
    (path / "unsynced").touch()
    WorkQueue.open(path).shut()
    assert not (path / "unsynced").exists()


def test_a_mark_is_left_once(tmp_path: Path) -> None:
    """When another has renewed the log, who is finished does not mark it anew."""
    path = tmp_path / "q"
    disk = FaultyDisk()
    with WorkQueue.open(path, disk=disk) as q:
        disk.fail("fdatasync")
        with pytest.raises(OSError, match="Input/output"):
            q.enqueue("a")
        WorkQueue.open(path, disk=disk).shut()
        with pytest.raises(HandleFinished):
            q.enqueue("a")
        assert not (path / "unsynced").exists()


def test_a_torn_tail_is_cut_for_good_before_another_file_begins(tmp_path: Path) -> None:
    """Else the power might bring it back, in front of what was answered yes."""
    path, disk = tmp_path / "q", FaultyDisk()
    with WorkQueue.open(path, segment_bytes=1, clock=Ticks(), disk=disk) as q:
        q.enqueue("a")
        file = segments(path)[-1]
        descriptor = disk.open(file, os.O_WRONLY)
        disk.pwrite(descriptor, b"torn", file.stat().st_size)
        disk.fdatasync(descriptor)
        os.close(descriptor)
        q.enqueue("b")
    disk.leave(path, tmp_path / "left")
    with WorkQueue.open(tmp_path / "left") as q:
        assert q.task("b")


# The kernel and others.


def test_a_read_may_come_in_many_pieces_and_end_early(tmp_path: Path) -> None:
    """Fewer bytes than asked for are no end; none are."""
    file = tmp_path / "a"
    file.write_bytes(b"0123456789")
    few = Doing(pread=lambda descriptor, size, offset: os.pread(descriptor, min(size, 3), offset))
    descriptor = os.open(file, os.O_RDONLY)
    try:
        assert pread(few, descriptor, 8, 1) == b"12345678"
        assert pread(few, descriptor, 20, 1) == b"123456789"
    finally:
        os.close(descriptor)


def damaged(folder: Path) -> WorkQueue:
    return WorkQueue.open(copied(FIXTURES / "bit-flipped", folder / "damaged"))


def test_no_file_stays_open(tmp_path: Path) -> None:
    """Whatever was written beside the log, when the handle is shut, or was never there."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for damage in (b"", b"torn"):
        with WorkQueue.open(tmp_path / "q", segment_bytes=1) as q:
            q.enqueue()
            with segments(tmp_path / "q")[-1].open("ab") as file:
                file.write(damage)
            q.enqueue()
            q.snapshot()
    for refused in (lambda: WorkQueue.open(tmp_path / "q", record=True), lambda: damaged(tmp_path)):
        with pytest.raises((BadValue, LogDamaged)):
            refused()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_our_own_may_stand_there_before_the_log(tmp_path: Path) -> None:
    """A runner may have come before the first writer, or a log have been taken away."""
    for name in ("lock", "run.lock", "redo", "unsynced", "torn", "output", "work"):
        (tmp_path / "q" / name).mkdir(parents=True)
    (tmp_path / "q" / "lock").rmdir()
    (tmp_path / "q" / "unsynced").rmdir()
    WorkQueue.open(tmp_path / "q").shut()


def test_a_folder_above_may_be_made_by_another_meanwhile(tmp_path: Path) -> None:
    """Two who begin queues side by side do not get into each other's way."""

    def mkdir(folder: Path, mode: int = 0o700) -> None:
        if folder.name == "above":
            folder.mkdir()
        DISK.mkdir(folder, mode)

    WorkQueue.open(tmp_path / "above" / "q", disk=Doing(mkdir=mkdir)).shut()
