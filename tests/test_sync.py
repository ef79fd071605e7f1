"""No yes rests on what is not on disk: what is synced when, by whom, and what if it fails."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from disk import EIO, Disk, check_chain, digest_of, lines, segments

from eventq import HandleFinished, WorkQueue
from eventq import handle as handle_module
from eventq.storage import disk as disks
from eventq.testing.faults import FaultyDisk


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def segment(first: int) -> str:
    return f"{first:020}.jsonl"


def test_every_yes_comes_after_its_sync(tmp_path: Path, disk: Disk) -> None:
    """One write, then one sync, of the same file; a refusal and a look need neither."""
    with WorkQueue.open(tmp_path / "q", snapshots=False) as q:
        asks: list[Callable[[], Any]] = [
            lambda: q.enqueue("a"),
            lambda: q.start("w"),
            lambda: q.fail(3, "x", kind="permanent"),
            lambda: q.redrive("a"),
            lambda: q.cancel("a"),
            lambda: q.restore("a"),
            lambda: q.close(),
        ]
        for ask in asks:
            disk.did.clear()
            ask()
            assert disk.did == [("pwrite", segment(1)), ("fdatasync", segment(1))]
        disk.did.clear()
        for quiet in (q.close, q.tick, lambda: q.state, lambda: q.head, lambda: q.enqueue("a")):
            quiet()
        assert disk.did == []


class Advised(disks.Disk):
    """Notes what it is advised to write soon, and whether others could have the lock then."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        self.told: list[tuple[int, int]] = []
        self.free: list[bool] = []

    def write_soon(self, descriptor: int, offset: int, size: int) -> None:
        self.told.append((offset, size))
        with self.lock.open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.free.append(False)
            else:
                self.free.append(True)
        super().write_soon(descriptor, offset, size)


def test_the_disk_may_begin_while_the_answer_is_made(tmp_path: Path) -> None:
    """It is told of each line that is to be synced before the answer, and of no other; by then
    others may write, unless a thread holds the lock over several commands."""
    path = tmp_path / "q"
    disk = Advised(path / "lock")
    with WorkQueue.open(path, disk=disk) as q:
        for name in "ab":
            q.enqueue(name)
        assert disk.free == [False, True, True]  # the queue is opened under the lock
        with q.alone():
            q.enqueue("c")
        assert disk.free[3:] == [False]
        ends = [0]
        for line in lines(path):
            ends.append(ends[-1] + len(line))
        assert disk.told == [(ends[i], ends[i + 1] - ends[i]) for i in range(4)]
    with WorkQueue.open(path, disk=disk, durability="process") as q:
        q.enqueue("d")
    assert len(disk.told) == 4


def test_advice_that_is_not_taken_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may know nothing of it."""

    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    with WorkQueue.open(tmp_path / "q") as q:
        assert q.enqueue("a").id == "a"
    assert len(check_chain(tmp_path / "q")) == 2


def test_a_yes_to_what_another_wrote_syncs_first(tmp_path: Path, disk: Disk) -> None:
    """A repeat, a command that finds all done, and the head, once each; then no more."""
    asks: list[Callable[[WorkQueue], Any]] = [
        lambda q: q.enqueue("a"),
        lambda q: q.head,
        lambda q: q.reopen(),
        lambda q: q.start(),
    ]
    for i, ask in enumerate(asks):
        path = tmp_path / str(i)
        with WorkQueue.open(path) as writer, WorkQueue.open(path) as other:
            writer.enqueue("a")
            other._log.sync(other.state.seq)
            writer._log.sync = lambda seq: None  # type: ignore[method-assign]  # killed before it
            writer.start("w")
            disk.did.clear()
            ask(other)
            assert disk.did == [("fdatasync", segment(1))]
            ask(other)
            assert disk.did == [("fdatasync", segment(1))]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EROFS])
def test_where_nothing_can_be_written_nothing_needs_a_sync(
    code: int, tmp_path: Path, disk: Disk
) -> None:
    """A reader of an archive on such a medium has its head all the same; a writer has not."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        disk.fails["fdatasync"] = OSError(code, os.strerror(code))
        assert reader.head == (1, digest_of(lines(path)[0]).decode())
        assert reader.state.seq == 1
        with pytest.raises(OSError, match=os.strerror(code)):
            q.enqueue("a")
        disk.fails["fdatasync"] = EIO
        with pytest.raises(OSError, match="Input/output error"):
            _ = reader.head


def test_a_new_queue_is_on_disk_with_its_name(tmp_path: Path, disk: Disk) -> None:
    """Its folders are synced, and the folder that it stands in, before the first yes."""
    with WorkQueue.open(tmp_path / "above" / "q"):
        assert {("fsync", "log"), ("fsync", "q"), ("fsync", "above")} <= set(disk.did)
        assert disk.did[-1] == ("fdatasync", segment(1))


def test_a_new_queue_lasts_with_all_the_folders_above_it(tmp_path: Path) -> None:
    """Whoever made one of them may have been killed before he synced it. One that we may not look
    into is not ours, but for the one that the queue stands in."""
    path = tmp_path / "one" / "two" / "q"
    disk = FaultyDisk()
    WorkQueue.open(path, disk=disk).shut()
    disk.leave(tmp_path, tmp_path / "left")
    assert segments(tmp_path / "left" / "one" / "two" / "q")
    last = [call.file for call in disk.calls if call.name == "sync_folder"].index("two") + 1
    for i, nth in enumerate((last, last + 1)):
        disk = FaultyDisk()
        disk.fail("sync_folder", nth, error=errno.EACCES)
        with pytest.raises(PermissionError) if nth == last else nullcontext():
            WorkQueue.open(tmp_path / str(i) / "two" / "q", disk=disk).shut()


def test_a_full_segment_is_synced_before_the_next(tmp_path: Path, disk: Disk) -> None:
    """Then the name of the new one, then its first line."""
    with WorkQueue.open(tmp_path / "q", segment_bytes=1) as q:
        q._log.secure = lambda seq: None  # type: ignore[method-assign]
        q.enqueue("a")
        disk.did.clear()
        q.enqueue("b")
        assert disk.did == [
            ("fdatasync", segment(2)),
            ("ftruncate", "lock"),  # so that whoever has the second open looks for a third
            ("fsync", "log"),
            ("pwrite", segment(3)),
        ]


def test_who_writes_the_first_line_of_a_segment_syncs_its_name(tmp_path: Path, disk: Disk) -> None:
    """Whoever made the file may have been killed before that."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.enqueue("a")
        os.truncate(path / "lock", (path / "lock").stat().st_size + 1)
        (path / "log" / segment(3)).touch(0o600)
        disk.did.clear()
        q.enqueue("b")
        assert ("fsync", "log") in disk.did
        assert disk.did[-1] == ("fdatasync", segment(3))
    check_chain(path)


def test_a_failed_sync_finishes_the_handle(tmp_path: Path, disk: Disk) -> None:
    """It says no, and answers nothing more, not even what it knows; it never tries again."""
    path = tmp_path / "q"
    q = WorkQueue.open(path)
    q.enqueue("a")
    disk.fails["fdatasync"] = EIO
    with pytest.raises(OSError, match="Input/output error"):
        q.enqueue("b")
    del disk.fails["fdatasync"]
    disk.did.clear()
    asks: list[Callable[[], Any]] = [
        lambda: q.enqueue("b"),
        lambda: q.enqueue("a"),
        lambda: q.enqueue("c"),
        lambda: q.close(),
        lambda: q.tick(),
        lambda: q.state,
        lambda: q.task("b"),
        lambda: q.head,
        lambda: q.at(1),
        lambda: q.at(3),
        lambda: list(q.entries()),
        lambda: q.snapshot(),
    ]
    for ask in asks:
        with pytest.raises(HandleFinished, match="a sync failed"):
            ask()
    assert disk.did == []
    q.shut()
    with pytest.raises(HandleFinished, match="a sync failed"):
        q.enqueue("c")
    with WorkQueue.open(path) as q:
        q.enqueue("c")
    check_chain(path)


def test_who_opens_a_log_after_a_failed_sync_does_not_trust_what_it_reads(
    tmp_path: Path, disk: Disk
) -> None:
    """The kernel may show what is not on disk, and will not say so again: the open segment is
    copied, the copy synced and put in its place, before anything is appended."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as alive:
        q = WorkQueue.open(path)
        q.enqueue("a")
        disk.fails["fdatasync"] = EIO
        with pytest.raises(OSError, match="Input/output error"):
            q.enqueue("b")
        del disk.fails["fdatasync"]
        q.shut()
        (file,) = segments(path)
        inode, text = file.stat().st_ino, file.read_bytes()
        with WorkQueue.open(path) as q:
            assert file.stat().st_ino != inode
            assert file.read_bytes() == text
            q.enqueue("c")
            alive.enqueue("d")  # a handle that has the old file open
            q.enqueue("e")
            assert q.state == alive.state
            inode = file.stat().st_ino
        with WorkQueue.open(path) as q:
            assert [task.id for task in q.state.tasks()] == [*"abcde"]
        assert file.stat().st_ino == inode
    assert segments(path) == [file]
    check_chain(path)


@pytest.mark.parametrize("tail", [b"torn", b""])
def test_a_sync_that_fails_in_mending_finishes_the_handle(tail: bytes, tmp_path: Path) -> None:
    """What was cut, or the newline that was added, may not be on disk, and nobody says so again."""
    path = tmp_path / "q"
    disk = FaultyDisk()
    with WorkQueue.open(path, disk=disk) as q:
        q.enqueue("a")
        with WorkQueue.open(path, disk=disk) as other:
            other.enqueue("b")
        (file,) = segments(path)
        text = file.read_bytes()
        file.write_bytes(text + tail if tail else text[:-1])
        disk.fail("fdatasync")
        with pytest.raises(OSError, match="Input/output error"):
            q.enqueue("c")
        with pytest.raises(HandleFinished, match="a sync failed"):
            q.enqueue("c")
    assert (path / "unsynced").exists()
    with WorkQueue.open(path, disk=disk) as q:
        q.enqueue("c")
    check_chain(path)


def test_a_mark_that_cannot_be_left_is_left_later(tmp_path: Path) -> None:
    """A disk that fails may fail at that, too: at the latest it is left when the handle is shut."""
    for ask in (lambda q: q.shut(), lambda q: q.enqueue("b")):
        path = tmp_path / str(ask)
        disk = FaultyDisk()
        q = WorkQueue.open(path, disk=disk)
        disk.fail("fdatasync", times=None)
        disk.fail("open", times=None)
        with pytest.raises(OSError, match="Input/output error"):
            q.enqueue("a")
        disk.heal()
        assert not (path / "unsynced").exists()
        with suppress(HandleFinished):
            ask(q)
        assert (path / "unsynced").exists()
        q.shut()


def test_nobody_who_waits_for_a_sync_that_fails_hears_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads that share it are refused."""
    everyone = threading.Barrier(8)
    asked = threading.Semaphore(0)

    def clock() -> datetime:
        asked.release()
        return datetime.now(UTC)

    q = WorkQueue.open(tmp_path / "q", clock=clock)
    asked.acquire()

    def fdatasync(descriptor: int) -> None:
        for _ in range(8 if not failed else 0):
            asked.acquire()  # until all have come as far as to be written
        failed.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    def enqueue(name: str) -> str:
        everyone.wait()
        try:
            q.enqueue(name)
        except HandleFinished:
            return "finished"
        except OSError:
            return "failed"
        return "yes"

    failed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(enqueue, "abcdefgh"))
    assert sorted(answers) == ["failed"] + ["finished"] * 7
    assert len(failed) == 1
    q.shut()


def test_threads_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one syncs the others write, and the next sync is for all of them."""
    asked = threading.Semaphore(0)
    count = 0

    def clock() -> datetime:
        asked.release()
        return datetime.now(UTC)

    def fdatasync(descriptor: int) -> None:
        nonlocal count
        count += 1
        for _ in range(8 if count == 1 else 0):
            asked.acquire()
        real(descriptor)

    with WorkQueue.open(tmp_path / "q", clock=clock) as q:
        asked.acquire()
        real = os.fdatasync
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        with ThreadPoolExecutor(8) as pool:
            tasks = list(pool.map(q.enqueue, "abcdefgh"))
        assert [task.id for task in tasks] == [*"abcdefgh"]
        # The last of the eight may still have been writing when the first sync was let go.
        assert count in (2, 3)
    assert len(check_chain(tmp_path / "q")) == 9


def test_a_file_is_not_let_go_of_while_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the sync would be that of another file, which has its number by then."""
    path = tmp_path / "q"
    q = WorkQueue.open(path)
    shutting = threading.Thread(target=q.shut)

    def fdatasync(descriptor: int) -> None:
        shutting.start()
        shutting.join(0.2)  # it should wait for us, so this is waited for in vain
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        real(descriptor)

    synced: list[Path] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    assert q.enqueue("a").id == "a"
    shutting.join()
    assert synced == segments(path)


def test_a_snapshot_that_fails_fails_no_command(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked was carried out; the snapshot is the queue's own affair. Asked for, it
    raises. Nothing half written stays."""
    monkeypatch.setattr(handle_module, "SNAPSHOT_BYTES", 1)
    monkeypatch.setattr(handle_module, "TASK_BYTES", 0)
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        disk.fails["fsync"] = EIO
        disk.did.clear()
        assert q.enqueue("a").id == "a"
        assert "fsync" in [call for call, _ in disk.did], "no snapshot was due"
        with pytest.raises(OSError, match="Input/output error"):
            q.snapshot()
        disk.fails.clear()
        assert q.enqueue("b").id == "b"
        names = {file.name for file in (path / "snapshots").iterdir()}
        assert all(name.endswith(".jsonl") for name in names)
