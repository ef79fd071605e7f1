"""The lock, and the files under an open handle: a clear error or no harm, and never a fork."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from disk import check_chain, copied, cut_lines, lines, rewrite, segments, untouched
from forked import check, children

from eventq import (
    CycleError,
    Enqueue,
    HandleFinished,
    LockTimeout,
    LockUnsupported,
    QueueReplaced,
    WorkQueue,
)
from eventq.cli.exits import Exit, code_of, complain
from eventq.storage.disk import Disk
from eventq.storage.place import last_named
from eventq.storage.redo import Redo

Tell = Callable[[str], None]


def holding(path: Path) -> Callable[[Tell], None]:
    """A process that has the lock of this queue until it is killed."""

    def work(tell: Tell) -> None:
        with WorkQueue.open(path) as q, q._log.alone():
            tell("locked")
            signal.pause()

    return work


def look(*handles: WorkQueue) -> None:
    """Let the time pass that a look at the paths is good for."""
    for q in handles:
        q._log._look_at = 0.0  # type: ignore[union-attr]


# Waiting for the lock.


def test_a_lock_that_does_not_come_is_told_with_who_has_it(tmp_path: Path) -> None:
    """Nothing has changed, and the handle goes on when the lock is free."""
    path = tmp_path / "q"
    with WorkQueue.open(path, lock_timeout=0.2) as q:
        q.enqueue("a")
        with children(holding(path)) as (child,):
            assert child.told() == ["locked"]
            os.kill(child.pid, signal.SIGSTOP)
            with untouched(path), pytest.raises(TimeoutError) as caught:
                q.enqueue("b")
            with pytest.raises(LockTimeout, match=rf"is locked: process {child.pid} has had its"):
                WorkQueue.open(path, lock_timeout=0)
            assert isinstance(caught.value, LockTimeout)
            if sys.platform == "linux":
                assert caught.value.holders == [child.pid]
            assert q.task("a") is not None
            with WorkQueue.open(path, read_only=True) as reader:
                assert reader.state == q.state
        q.enqueue("c")
    assert [task.id for task in check(path).tasks()] == ["a", "c"]


def test_the_command_line_tells_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 6: it could not be written."""
    error = LockTimeout(Path("q"), 60.0, [4711])
    assert code_of(error) is Exit.NOT_CHECKED
    complain(error, as_json=True)
    told = json.loads(capsys.readouterr().err)
    assert (told["error"], told["holders"]) == ("lock_timeout", [4711])
    assert "for the 60 seconds that were waited" in told["message"]
    assert "somebody has had" in str(LockTimeout(Path("q"), 1.5, []))


class Counting(Disk):
    """Counts how often the lock was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def flock(self, descriptor: int, how: int) -> None:  # type: ignore[override]
        self.asked += how != fcntl.LOCK_UN
        fcntl.flock(descriptor, how)


def test_who_waits_does_not_spin(tmp_path: Path) -> None:
    """The pauses grow; and without anybody else the lock is asked for once."""
    path = tmp_path / "q"
    disk = Counting()
    with WorkQueue.open(path, lock_timeout=0.5, disk=disk) as q:
        disk.asked = 0
        q.enqueue("a")
        assert disk.asked == 1
        with children(holding(path)) as (child,):
            assert child.told() == ["locked"]
            with pytest.raises(LockTimeout):
                q.enqueue("b")
        assert 10 < disk.asked < 400


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_who_waits_gets_the_lock_when_it_is_free(timeout: float | None, tmp_path: Path) -> None:
    """Be it for long, or with no end in sight."""
    path = tmp_path / "q"
    disk = Counting()
    with WorkQueue.open(path, lock_timeout=timeout, disk=disk) as q, WorkQueue.open(path) as other:
        disk.asked = 0
        with other._log.alone():
            thread = threading.Thread(target=q.enqueue, args=("a",))
            thread.start()
            while disk.asked < 2:
                pass
        thread.join()
        assert other.task("a") is not None


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_a_file_system_without_locks_keeps_no_queue(code: int, tmp_path: Path) -> None:
    """It is said so; any other error is told as it is."""

    class Without(Disk):
        def flock(self, descriptor: int, how: int) -> None:  # type: ignore[override]
            if how != fcntl.LOCK_UN:
                raise OSError(code, os.strerror(code))

    path = tmp_path / "q"
    WorkQueue.open(path).shut()
    with untouched(path):
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            WorkQueue.open(path, disk=Without(), lock_timeout=0)
        assert isinstance(caught.value, LockUnsupported) == (code != errno.EIO)
        with WorkQueue.open(path, read_only=True, disk=Without()) as q:
            assert q.state.seq == 1


def test_a_stale_lock_file_keeps_nobody_out(tmp_path: Path) -> None:
    """Whatever it says, and whoever was killed with the lock: it ends with its process."""
    path = tmp_path / "q"
    path.mkdir()
    (path / "lock").write_text("4711\n")
    with WorkQueue.open(path, segment_bytes=1, lock_timeout=5) as q:
        with children(holding(path)) as (child,):
            assert child.told() == ["locked"]
            child.kill()
            child.end()
        q.enqueue("a")
        q.enqueue("b")
    assert len(segments(path)) == 3
    check(path)


# Forked children.


def test_a_child_that_outlives_its_parent_does_not_keep_its_lock(tmp_path: Path) -> None:
    """The parent is killed in the midst of a command; its child goes on with other things."""
    path = tmp_path / "q"
    WorkQueue.open(path).shut()

    def parent(tell: Tell) -> None:
        with WorkQueue.open(path) as q, q._log.alone():
            pid = os.fork()
            if pid == 0:
                signal.pause()
            tell(str(pid))
            signal.pause()

    with children(parent) as (child,):
        (grandchild,) = map(int, child.told())
        try:
            child.kill()
            os.waitpid(child.pid, 0)
            with WorkQueue.open(path, lock_timeout=5) as q:
                q.enqueue("a")
        finally:
            os.kill(grandchild, signal.SIGKILL)
    check(path)


def test_a_child_lets_go_of_no_lock_of_its_parent(tmp_path: Path) -> None:
    """Though it leaves the block in which the parent holds it."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        reading, writing = os.pipe()
        with q._log.alone():
            pid = os.fork()
            if pid == 0:
                try:
                    q._log.let_go()
                finally:
                    os.write(writing, b"x")
                    os._exit(0)
            assert os.read(reading, 1) == b"x"
            os.waitpid(pid, 0)
            with pytest.raises(LockTimeout):
                WorkQueue.open(path, lock_timeout=0)
        os.close(reading)
        os.close(writing)


def test_a_number_that_is_given_to_another_process_is_no_owner(tmp_path: Path) -> None:
    """A child knows that it was forked, whatever number it has."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("a")

        def work(tell: Tell) -> None:
            for handle in (q, reader):
                handle._log._pid = os.getpid()  # type: ignore[union-attr]
                for ask in (lambda q: q.enqueue("b"), lambda q: q.state, lambda q: q.at(1)):
                    with pytest.raises(HandleFinished, match="was forked: open the queue again"):
                        ask(handle)
            tell("well")

        with children(work) as (child,):
            assert child.end() == (0, ["well"])
        q.enqueue("c")
    assert [task.id for task in check(path).tasks()] == ["a", "c"]


# Files that are replaced under an open handle.


@pytest.mark.parametrize("remade", [False, True])
def test_a_lock_that_is_removed_ends_who_has_it_open(remade: bool, tmp_path: Path) -> None:
    """At the very next command: another has locked the file that was made in its place."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        time.sleep(0.02)  # as long as a name is new, each command looks at all
        q.enqueue("a")
        (path / "lock").unlink()
        if remade:
            (path / "lock").touch()
        before = lines(path)
        for _ in range(2):
            with pytest.raises(QueueReplaced, match="lock is not the file that this handle has"):
                q.enqueue("b")
        assert lines(path) == before
        with WorkQueue.open(path) as other:
            other.enqueue("c")
            with pytest.raises(QueueReplaced):
                q.enqueue("d")
        with WorkQueue.open(path, read_only=True) as reader:
            assert reader.state.seq == 3
    check(path)


def refused_midway(q: WorkQueue) -> None:
    """A batch that is refused when its first task was looked at."""
    with pytest.raises(CycleError):
        q.enqueue_all([Enqueue("x"), Enqueue("y", after=["z"]), Enqueue("z", after=["y"])])


def test_a_refusal_hides_nothing_of_the_files(tmp_path: Path) -> None:
    """The command behind it sees as well as any other that its queue is gone."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        refused_midway(q)
        shutil.rmtree(path)
        with pytest.raises(QueueReplaced):
            q.enqueue("a")


def test_a_lock_that_is_renamed_is_missed_before_long(tmp_path: Path) -> None:
    """Or another that was put over it."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        (path / "lock").rename(path / "lock.old")
        look(q)
        with pytest.raises(QueueReplaced):
            q.enqueue("a")
        (path / "lock.old").rename(path / "lock")
        q.enqueue("b")
    check(path)


def restored(path: Path, backup: Path) -> None:
    """Move the queue away, and put a backup in its place."""
    path.rename(path.with_name("moved"))
    shutil.copytree(backup, path)


@pytest.mark.parametrize("older", [False, True])
def test_a_directory_that_is_replaced_is_not_written_to(older: bool, tmp_path: Path) -> None:
    """Neither the one that was put there nor, before long, the one that was moved; and when the
    old one is back, the handle goes on."""
    path, backup, moved = tmp_path / "q", tmp_path / "backup", tmp_path / "moved"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        if older:
            shutil.copytree(path, backup)
        q.enqueue("a")
        if not older:
            shutil.copytree(path, backup)
        assert reader.state == q.state
        restored(path, backup)
        look(q, reader)
        with untouched(tmp_path):
            for _ in range(2):
                with pytest.raises(QueueReplaced, match=r"Put the queue back where it was, or op"):
                    q.enqueue("b")
            if older:
                for ask in (lambda: reader.state, reader.entries, lambda: reader.at(1)):
                    with pytest.raises(QueueReplaced, match="does not hold entry 2 any more"):
                        ask()
                for ask in (q.entries, lambda: q.at(1), lambda: q.at(datetime.now(UTC))):
                    with pytest.raises(QueueReplaced):
                        ask()
            else:
                assert reader.task("a") is not None
        with WorkQueue.open(path) as other:
            other.enqueue("c")
        check(path)
        shutil.rmtree(path)
        with pytest.raises(QueueReplaced):
            q.enqueue("d")
        moved.rename(path)
        q.enqueue("e")
        assert [task.id for task in q.state.tasks()] == ["a", "e"]
    check(path)


def test_a_directory_that_was_just_moved_away_is_told_as_such(tmp_path: Path) -> None:
    """However short a while ago the handle has looked: not by the first file that is missed."""
    with WorkQueue.open(tmp_path / "q") as q:
        time.sleep(0.15)  # as long as a look is good for
        assert q.task("a") is None  # this looks, without the lock
        (tmp_path / "q").rename(tmp_path / "moved")
        with pytest.raises(QueueReplaced):
            q.enqueue("b")


def test_no_name_is_made_in_a_directory_that_was_put_there(tmp_path: Path) -> None:
    """No segment and no snapshot, however short a while ago the handle has looked."""
    path, backup = tmp_path / "q", tmp_path / "backup"
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.enqueue("a")
        shutil.copytree(path, backup)
        q.enqueue("b")
        restored(path, backup)
        for ask in (lambda: q.enqueue("c"), q.snapshot):
            q._log._look_at = float("inf")  # type: ignore[union-attr]
            with untouched(tmp_path), pytest.raises(QueueReplaced):
                ask()
    check(path)
    check(tmp_path / "moved")


def test_an_open_segment_that_is_replaced_by_a_copy_is_gone_on_with(tmp_path: Path) -> None:
    """Renamed over it, or put there after it was renamed: all go on in the one that is there."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path) as other:
        q.enqueue("a")
        assert other.state == q.state
        (file,) = segments(path)
        copy = file.with_suffix(".copy")
        shutil.copy(file, copy)
        copy.rename(file)
        other.enqueue("b")
        q.enqueue("c")
        file.rename(copy)
        shutil.copy(copy, file)
        look(q, other)
        q.enqueue("d")
        other.enqueue("e")
        assert [task.id for task in q.state.tasks()] == [*"abcde"]
    check(path)


def test_an_open_segment_that_is_replaced_by_another_history_is_not(tmp_path: Path) -> None:
    """Shorter, or other, or none at all: nothing is appended to it, and nothing read from it."""
    path, other = tmp_path / "q", tmp_path / "other"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("a", "x" * 100)
        q.enqueue("b")
        assert reader.state == q.state
        (file,) = segments(path)
        whole = file.read_bytes()
        copied(path, other)
        rewrite(other, lambda body: body.replace(b"xxx", b"yyy", 1), 2)
        forged = segments(other)[0].read_bytes()
        assert len(forged) == len(whole)
        for text in (b"".join(cut_lines(whole)[:2]), forged, b"", None):
            for renamed in (False, True):
                file.rename(file.with_suffix(".old"))
                if text is not None:
                    file.write_bytes(text)
                if not renamed:
                    file.with_suffix(".old").unlink()
                look(q, reader)
                for ask in (lambda: q.enqueue("c"), lambda: q.state, lambda: reader.state):
                    with pytest.raises(QueueReplaced, match="does not hold entry 3 any more"):
                        ask()
                file.with_suffix(".new").write_bytes(whole)
                file.with_suffix(".new").rename(file)
                assert q.state == reader.state
        q.enqueue("c")
        assert reader.state == q.state
    assert len(check_chain(path)) == 4


def linked(path: Path, copy: Path) -> None:
    """A copy made of hard links, as `cp -al` makes it."""
    shutil.copytree(path, copy, copy_function=os.link)


@pytest.mark.parametrize("kept_open", [False, True])
def test_a_copy_made_of_hard_links_is_no_part_of_the_queue(kept_open: bool, tmp_path: Path) -> None:
    """A backup stays as it was made; and two that are both written are two queues from then on."""
    path, copy, backup = tmp_path / "q", tmp_path / "copy", tmp_path / "backup"
    with contextlib.ExitStack() as stack:
        q = stack.enter_context(WorkQueue.open(path))
        for n in range(Redo.AFTER + 2):
            q.enqueue(f"t{n}")
        assert (path / "redo").stat().st_size == Redo.SIZE
        if not kept_open:
            q.shut()
        linked(path, copy)
        linked(path, backup)
        before, redo = lines(path), (path / "redo").read_bytes()
        if kept_open:
            look(q)
        else:
            q = stack.enter_context(WorkQueue.open(path))
        other = stack.enter_context(WorkQueue.open(copy, segment_bytes=1000))
        for n in range(Redo.AFTER + 2):
            q.enqueue(f"q{n}")
            other.enqueue(f"other{n}")
        assert lines(backup) == before
        assert (backup / "redo").read_bytes() == redo, "or a power cut takes what only stands there"
        for file in (segments(path)[-1], segments(copy)[-1]):
            assert file.stat().st_nlink == 1
    for one, name in ((path, "q"), (copy, "other")):
        names = [task.id for task in check(one).tasks()][-Redo.AFTER - 2 :]
        assert names == [f"{name}{n}" for n in range(Redo.AFTER + 2)]


@pytest.mark.parametrize("more", [0, 2], ids=["as long", "longer"])
def test_a_backup_that_is_copied_over_the_files_is_not_written_to(
    more: int, tmp_path: Path
) -> None:
    """In place, so that they are the files that were open, and as long as they were."""
    path, backup = tmp_path / "q", tmp_path / "backup"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("a")
        shutil.copytree(path, backup)
        q.enqueue("b")
        assert reader.state == q.state
        q.enqueue("c")
        shutil.copytree(backup, path, dirs_exist_ok=True)
        with WorkQueue.open(path) as other:
            for name in "xyz1"[: 2 + more]:
                other.enqueue(name)
        with untouched(path):
            for ask in (lambda: q.enqueue("d"), lambda: q.state, lambda: reader.state):
                for _ in range(2):
                    with pytest.raises(QueueReplaced, match=r"entry [34] any more, as this handle"):
                        ask()
    assert [task.id for task in check(path).tasks()] == ["a", *"xyz1"[: 2 + more]]


def test_the_time_of_a_folder_counts_when_it_has_passed(tmp_path: Path) -> None:
    """What bears the time of this very moment may have changed once more, and bear it still."""
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        (tmp_path / "name").touch()
        assert last_named(descriptor) is None
        now = time.time_ns()
        for apart in (-60_000_000_000, 60_000_000_000):  # the clock may have been set back since
            os.utime(tmp_path, ns=(now + apart, now + apart))
            assert last_named(descriptor) == now + apart
    finally:
        os.close(descriptor)


@contextmanager
def waiting_for_the_lock(q: WorkQueue, told: list[str]) -> Iterator[None]:
    """A thread that enqueues, while somebody else holds the lock in here."""

    def ask() -> None:
        try:
            told.append(q.enqueue("b").id)
        except HandleFinished:
            told.append("shut")

    assert q.path is not None
    thread = threading.Thread(target=ask)
    with (q.path / "lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread.start()
        for _ in range(100):  # for longer than others have to wait, while it waits
            assert q.task("a") is not None
            time.sleep(0.001)
        assert told == []
        yield
        fcntl.flock(held, fcntl.LOCK_UN)
        thread.join()


@pytest.mark.parametrize("timeout", [60.0, None])
def test_who_only_looks_does_not_wait_for_the_lock(timeout: float | None, tmp_path: Path) -> None:
    """Though another thread of the same handle does."""
    told: list[str] = []
    with WorkQueue.open(tmp_path / "q", lock_timeout=timeout) as q:
        q.enqueue("a")
        with waiting_for_the_lock(q, told):
            assert q.task("b") is None
        assert told == ["b"]


class OneWaits(Disk):
    """One thread gets the lock only when another had a command refused meanwhile."""

    def __init__(self) -> None:
        self.waiting: threading.Thread | None = None
        self.refused = False

    def flock(self, descriptor: int, operation: int) -> None:  # type: ignore[override]
        mine = threading.current_thread() is self.waiting
        if mine and not self.refused and operation != fcntl.LOCK_UN:
            raise BlockingIOError(errno.EWOULDBLOCK, "another has it")
        fcntl.flock(descriptor, operation)


def test_who_waits_for_the_lock_sees_nothing_of_what_was_refused_meanwhile(tmp_path: Path) -> None:
    """Threads share a handle: no task of a batch that was refused is taken for a known one."""
    disk = OneWaits()
    with WorkQueue.open(tmp_path / "q", disk=disk) as q:
        thread = disk.waiting = threading.Thread(target=q.enqueue, args=("x",))
        thread.start()
        time.sleep(0.05)  # what it waits for at once, the mutex stays with it
        refused_midway(q)
        disk.refused = True
        thread.join()
        assert "x" in q.state
    check(tmp_path / "q")


def test_who_waits_for_the_lock_is_told_when_the_handle_is_shut(tmp_path: Path) -> None:
    """Its descriptor may be another file's by then, and that is not asked for its lock."""
    told: list[str] = []
    q = WorkQueue.open(tmp_path / "q")
    q.enqueue("a")
    with waiting_for_the_lock(q, told):
        q.shut()
    assert told == ["shut"]
