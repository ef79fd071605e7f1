"""Interrupts and signals: whatever breaks into a command, memory and log stay as one."""

from __future__ import annotations

import errno
import fcntl
import linecache
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from disk import check_chain, lines

from eventq import Enqueue, HandleBusy, HandleFinished, StaleLease, State, WorkQueue
from eventq.core.events import Entry
from eventq.core.evolve import replay
from eventq.storage.disk import DISK, Disk
from eventq.storage.memory import MemoryLog


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Whatever hangs is broken into, and tells where it hung."""

    def late(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is waited for: these tests are not about syncing."""
    monkeypatch.setattr(os, "fdatasync", int)
    monkeypatch.setattr(os, "fsync", int)


def test_a_line_that_was_read_is_never_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt may come when all of it was written, and a reader may have seen it."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path, read_only=True) as reader:
        q.enqueue("a")
        real = os.pwrite

        def interrupted(fd: int, data: Any, at: int) -> int:
            real(fd, data, at)
            assert reader.task("b") is not None
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", interrupted)
            with pytest.raises(KeyboardInterrupt):
                q.enqueue("b")
        assert q.enqueue("c").id == "c"
        assert reader.state == q.state
    assert len(lines(path)) == len(check_chain(path)) == 4


PASSED_OVER = ("with ", "try:", "let_go", "user = ")


class AtLine:
    """Calls something before the n-th line that is carried out inside eventq, or (`what` is
    "call") as the n-th function begins.

    Not where a block is entered or left: there a real interrupt never comes before the lock is
    let go of, and it is noted that the thread is done, but the tracer does.
    """

    def __init__(self, after: int, call: Callable[[], None], what: str = "line") -> None:
        self.left = after
        self.call = call
        self.what = what

    def __call__(self, frame: FrameType, what: str, _: Any) -> Any:
        code = frame.f_code
        if "/eventq/" not in code.co_filename:
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno)
        if what == self.what and not any(word in line for word in PASSED_OVER):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.call()
        return self


def interrupt() -> None:
    raise KeyboardInterrupt


def interrupted(ask: Callable[[], Any], after: int, what: str = "line") -> bool:
    """Ask, and interrupt it there; whether it came to that."""
    before = sys.gettrace()
    sys.settrace(AtLine(after, interrupt, what))
    try:
        ask()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def goes_on(q: WorkQueue, other: WorkQueue, number: int) -> None:
    """What was interrupted has happened or has not; and whatever is done next goes well."""
    for i in range(2):
        q.enqueue(f"{number}.{i}")
        other.enqueue(f"{number}.{i}'")
    assert q.state == other.state
    q.state.check()


STEP = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("size", [1, 10**6])
def test_an_interrupt_leaves_the_handle_and_the_log_as_one(size: int, tmp_path: Path) -> None:
    """Wherever it comes while a command is carried out: what is in the log is in the memory."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, segment_bytes=size, snapshots=False) as q,
        WorkQueue.open(path, segment_bytes=size, snapshots=False) as other,
    ):
        number = 1
        while interrupted(lambda n=number: q.enqueue(f"t{n}"), number):  # type: ignore[misc]
            goes_on(q, other, number)
            number += STEP
        assert number > 200
        with WorkQueue.open(path, read_only=True) as reader:
            assert reader.state == q.state
    check_chain(path)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("where", ["disk", "memory", "no history"])
def test_an_interrupt_as_the_state_is_kept_leaves_it_as_it_was(where: str, tmp_path: Path) -> None:
    """Though it is kept in the place of the one before, where all can be read again."""
    no_history = where == "no history"
    with (
        WorkQueue.open(tmp_path / "q")
        if where == "disk"
        else WorkQueue.in_memory(history=not no_history)
    ) as q:
        number = 1
        while True:
            q._current._undo = 0 if no_history else 1  # the state is kept behind each command
            q.enqueue(f"{number}")
            lease = q.start("w")
            assert lease is not None
            if not interrupted(lambda held=lease: q.complete(held), number):  # type: ignore[misc]
                break
            if not no_history:
                assert q.state == replay(State(), q.entries())
            q.enqueue()
            if not no_history:
                assert q.state == replay(State(), q.entries())
            q.state.check()
            if (held := q.state.lease(lease.id)) is not None:
                q.complete(held)
            number += STEP
        assert number > 200


@pytest.mark.usefixtures("quick")
def test_what_an_interrupt_kept_from_being_written_does_not_come_with_a_refusal(
    tmp_path: Path,
) -> None:
    """Where refusals are recorded, each is an entry of its own."""
    with WorkQueue.open(tmp_path / "q", record=True) as q:
        number = 1
        while interrupted(lambda n=number: q.enqueue(f"t{n}"), number):  # type: ignore[misc]
            with pytest.raises(StaleLease):
                q.complete(1)
            assert q.state == replay(State(), q.entries())
            number += STEP
        assert number > 200


class Interrupted(Disk):
    """A disk on which an interrupt comes when the lock was had, or had just been given away."""

    __slots__ = ("armed",)

    def __init__(self) -> None:
        self.armed = 0

    def flock(self, descriptor: int, flags: int) -> None:  # type: ignore[override]
        """As the real one, then an interrupt, when it is this call's turn."""
        DISK.flock(descriptor, flags)
        self.armed -= 1
        if self.armed == 0:
            raise KeyboardInterrupt


def nobody_waits(q: WorkQueue, other: WorkQueue) -> None:
    """Neither another thread nor another process, though this handle asks nothing more."""
    had: list[bool] = []

    def look() -> None:
        had.append(q._log.mutex.acquire(blocking=False))
        if had[0]:
            q._log.mutex.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert had == [True]
    other.enqueue()  # a LockTimeout, if it has to wait


@pytest.mark.usefixtures("quick")
def test_an_interrupt_leaves_nobody_waiting(tmp_path: Path) -> None:
    """Wherever it comes, also as the lock is taken or let go of."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q, WorkQueue.open(path, lock_timeout=0) as other:
        number = 1
        while interrupted(q.enqueue, number, "call"):
            nobody_waits(q, other)
            q.enqueue()  # each time it begins with a whole state, and so comes one call further
            number += 1
        assert number > 40


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("turn", [1, 2])
def test_an_interrupt_as_the_lock_comes_lets_go_of_it(turn: int, tmp_path: Path) -> None:
    """So that an idle process never has it."""
    path = tmp_path / "q"
    disk = Interrupted()
    with WorkQueue.open(path, disk=disk) as q, WorkQueue.open(path, lock_timeout=0) as other:
        disk.armed = turn
        with pytest.raises(KeyboardInterrupt):
            q.enqueue("a")
        nobody_waits(q, other)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("asks", [False, True])
def test_an_interrupt_while_catching_up_loses_nothing(asks: bool, tmp_path: Path) -> None:
    """Wherever it comes: what others wrote is read when it is asked for next, or decided on."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, segment_bytes=500, snapshots=False) as q,
        WorkQueue.open(path, segment_bytes=500, snapshots=False) as other,
    ):
        number = 1
        other.enqueue_all([Enqueue(None), Enqueue(None)])
        while interrupted(lambda: q.state, number):
            if asks:
                q.enqueue(None)
            assert q.state == other.state
            other.enqueue_all([Enqueue(None), Enqueue(None)])
            number += 2
        assert number > 200
        q.enqueue("last")
    check_chain(path)


def test_a_signal_in_the_midst_of_a_sync_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most come then, for that is where most of the time goes: its handler may ask the queue."""
    real = os.fdatasync
    signals: list[int] = []

    def fdatasync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fdatasync", real)
        real(descriptor)
        signal.raise_signal(signal.SIGUSR1)  # its handler is called before this returns

    def handler(number: int, _: object) -> None:
        signals.append(number)
        q.enqueue("within")

    with WorkQueue.open(tmp_path / "q") as q:
        before = signal.signal(signal.SIGUSR1, handler)
        signal.alarm(5)
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        try:
            q.enqueue("around")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert signals == [signal.SIGUSR1]
        assert [task.id for task in q.state.tasks()] == ["around", "within"]
    check_chain(tmp_path / "q")


def refused(*asks: Callable[[], object]) -> None:
    """Ask what cannot be answered in the midst of something else."""
    for ask in asks:
        with pytest.raises(HandleBusy, match="in the midst of"):
            ask()


class Signalled(Disk):
    """A signal comes behind a call of this name, once; no line is written without the lock."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.handler: Callable[[], object] = int
        self.held = False

    def _signal(self, call: str) -> None:
        if call == self.call:
            handler, self.handler = self.handler, int
            handler()

    def flock(self, descriptor: int, operation: int) -> None:  # type: ignore[override]
        DISK.flock(descriptor, operation)
        self.held = operation != fcntl.LOCK_UN

    def pread(self, descriptor: int, size: int, offset: int) -> bytes:
        text = DISK.pread(descriptor, size, offset)
        self._signal("pread")
        return text

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        assert self.held or type(data) is memoryview  # of a snapshot
        return DISK.pwrite(descriptor, data, offset)

    def write_soon(self, descriptor: int, offset: int, size: int) -> None:
        self._signal("write_soon")


def test_a_signal_behind_the_write_spoils_no_answer(tmp_path: Path) -> None:
    """What its handler asks of the same handle is refused, whatever others do meanwhile; the
    command that it broke into is answered."""
    disk = Signalled("write_soon")
    with WorkQueue.open(tmp_path / "q") as other, WorkQueue.open(tmp_path / "q", disk=disk) as q:

        def handler() -> None:
            refused(lambda: q.enqueue("b"), lambda: q.state, lambda: q.head, q.snapshot)
            refused(lambda: q.at(1), q.alone().__enter__)
            other.enqueue()

        for name in "ac":
            disk.handler = handler
            assert q.enqueue(name).id == name
        disk.handler = handler
        assert q.enqueue().id == "#6"
        disk.handler = handler
        lease = q.start()
        assert lease is not None
        assert lease.task == "a"
        assert q.state == other.state


def test_a_signal_while_reading_spoils_no_look(tmp_path: Path) -> None:
    """Its handler could read the same, or more, and have it carried out twice."""
    disk = Signalled("pread")
    with WorkQueue.open(tmp_path / "q") as other, WorkQueue.open(tmp_path / "q", disk=disk) as q:

        def handler() -> None:
            other.enqueue()
            refused(lambda: q.state, q.enqueue)

        for look in (lambda: q.state, lambda: q.head, q.snapshot, lambda: q.at(other.state.seq)):
            other.enqueue()
            disk.handler = handler
            look()
            assert q.state == other.state
        with q.alone() as state:
            assert q.enqueue().id == f"#{state.seq + 1}"


@pytest.mark.parametrize("size", [1, 10**6])
@pytest.mark.parametrize("name", ["known", "new"])
def test_a_command_that_is_broken_into_keeps_the_lock(name: str, size: int, tmp_path: Path) -> None:
    """A handler of a signal asks something, and gets no answer: it would let go of the lock."""
    handler: list[Callable[[], object]] = []

    def clock() -> datetime:  # asked when the lock was taken
        while handler:
            handler.pop()()
        return datetime.now(UTC)

    with WorkQueue.open(
        tmp_path / "q", disk=Signalled("none"), clock=clock, segment_bytes=size
    ) as q:
        q.enqueue("known")
        handler.append(lambda: refused(lambda: q.enqueue(name), q.alone().__enter__))
        q.enqueue("goes on")
        q.enqueue("last")
        assert [task.id for task in q.state.tasks()] == ["known", "goes on", "last"]
    check_chain(tmp_path / "q")


class Late(Disk):
    """The lock comes only when others may look at the handle meanwhile, and have done so."""

    def __init__(self) -> None:
        self.looked = threading.Event()
        self.looked.set()

    def flock(self, descriptor: int, operation: int) -> None:  # type: ignore[override]
        if operation != fcntl.LOCK_UN and not self.looked.is_set():
            raise BlockingIOError(errno.EWOULDBLOCK, "another has it")
        DISK.flock(descriptor, operation)


def test_a_command_that_waited_for_the_lock_can_be_broken_into_as_any_other(tmp_path: Path) -> None:
    """Other threads looked at the handle in its wait, and were done with it."""
    disk = Late()
    handler: list[Callable[[], object]] = []

    def clock() -> datetime:
        while handler:
            handler.pop()()
        return datetime.now(UTC)

    def look() -> None:
        assert len(q.state) == 0
        disk.looked.set()

    with WorkQueue.open(tmp_path / "q", disk=disk, clock=clock) as q:
        disk.looked.clear()
        handler.append(lambda: refused(lambda: q.enqueue("asked")))
        thread = threading.Timer(0.05, look)  # who waits has the mutex at first
        thread.start()
        q.enqueue("goes on")
        thread.join()
        assert [task.id for task in q.state.tasks()] == ["goes on"]


@pytest.mark.parametrize("history", [False, True])
def test_a_command_that_is_broken_into_goes_on_in_memory(
    history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of what the handler asked was done, and it is not in the way."""
    with WorkQueue.in_memory(history=history) as q:
        append = MemoryLog.append

        def late(log: MemoryLog, entry: Entry) -> int:
            refused(lambda: q.enqueue("asked"), lambda: q.state, q.alone().__enter__)
            return append(log, entry)

        with monkeypatch.context() as patch:
            patch.setattr(MemoryLog, "append", late)
            assert q.enqueue("goes on").id == "goes on"
        q.enqueue("last")
        assert [task.id for task in q.state.tasks()] == ["goes on", "last"]


def test_a_handler_shuts_no_handle_in_the_midst_of_its_command(tmp_path: Path) -> None:
    """It would let go of the lock, and what others are answered then be written over."""
    tried = []

    def clock() -> datetime:  # where a handler may break in: the lock is held
        if tried == [False]:
            tried.append(True)
            refused(q.shut)
        return datetime.now(UTC)

    with WorkQueue.open(tmp_path, clock=clock) as q:
        tried.append(False)
        assert q.enqueue("goes on").id == "goes on"
        assert tried == [False, True]
    check_chain(tmp_path)


class Forking(Disk):
    """Forks in the midst of a command, once; the child goes on when it is told to. Where it comes
    `late`, as the line is about to be written, the parent does not write it."""

    def __init__(self, *, late: bool) -> None:
        self.armed = False
        self.child = 0
        self.written = not late
        self.go = os.pipe()

    def fork(self) -> None:
        if self.armed:
            self.armed = False
            self.child = os.fork()
            if not self.child:
                os.read(self.go[0], 1)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        self.fork()
        if self.child and not self.written:
            self.written = True
            raise InterruptedError("the parent's handler ended its command")
        return DISK.pwrite(descriptor, data, offset)


@pytest.mark.parametrize("late", [False, True])
def test_a_child_that_was_forked_in_the_midst_of_a_command_does_not_carry_it_out(
    tmp_path: Path, late: bool
) -> None:
    """That is for the parent. The child comes back to it when others wrote there: before the line
    is made, or as it is about to be written."""
    parent, disk = os.getpid(), Forking(late=late)

    def clock() -> datetime:
        if not late:
            disk.fork()
        return datetime.now(UTC)

    with WorkQueue.open(tmp_path, clock=clock, disk=disk) as q:
        disk.armed = True
        try:
            q.enqueue("once")
        except (HandleFinished, OSError):
            if os.getpid() != parent:
                os._exit(7)
        finally:
            if os.getpid() != parent:
                os._exit(8)
        q.enqueue("behind it")
        before = lines(tmp_path)
        os.write(disk.go[1], b"!")
        assert os.waitstatus_to_exitcode(os.waitpid(disk.child, 0)[1]) == 7
        assert lines(tmp_path) == before
        q.enqueue("last")
    check_chain(tmp_path)
