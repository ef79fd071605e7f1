"""What an answer survives: a power cut, or, where a queue is opened so, the end of the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest
from disk import EIO, Disk, check_chain, lines

from eventq import BadValue, HandleFinished, WorkQueue
from eventq.storage import later
from eventq.testing.faults import FaultyDisk, lose_all


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Timer]:
    """The timers that were set, which go off when the test calls their function."""
    found: list[threading.Timer] = []

    def start(timer: threading.Timer) -> None:
        found.append(timer)

    monkeypatch.setattr(threading.Timer, "start", start)
    return found


def go_off(timer: threading.Timer) -> None:
    timer.function()


def syncs(disk: Disk) -> int:
    return sum(what == "fdatasync" for what, _ in disk.did)


def test_many_answers_share_a_sync_that_comes_a_second_later(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """One timer for all of them, and the next only for what is written after that."""
    with WorkQueue.open(tmp_path / "q", durability="process", snapshots=False) as q:
        go_off(timers.pop())  # that of the first entry, which opens the log
        disk.did.clear()
        for _ in range(3):
            q.enqueue()
        assert [what for what, _ in disk.did] == ["pwrite"] * 3
        (timer,) = timers
        assert timer.daemon
        assert timer.interval == later.SECONDS
        go_off(timer)
        assert [what for what, _ in disk.did] == ["pwrite"] * 3 + ["fdatasync"]
        q.enqueue()
        assert len(timers) == 2


def test_so_many_bytes_do_not_wait_a_second(
    tmp_path: Path,
    disk: Disk,
    timers: list[threading.Timer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who writes more than so much waits for the disk."""
    monkeypatch.setattr("eventq.storage.syncing.BYTES", 10_000)
    with WorkQueue.open(tmp_path / "q", durability="process") as q:
        disk.did.clear()
        for _ in range(100):
            q.enqueue(None, "x" * 1000)
        assert 5 <= syncs(disk) <= 20


def test_without_a_thread_each_answer_syncs(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was carried out is answered, and what is answered is synced before long."""

    def start(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Timer, "start", start)
    with WorkQueue.open(tmp_path / "q", durability="process") as q:
        disk.did.clear()
        for name in "ab":
            q.enqueue(name)
        assert syncs(disk) == 2


def test_who_leaves_syncs(tmp_path: Path, disk: Disk) -> None:
    """Shut, a queue has lost nothing to a power cut."""
    with WorkQueue.open(tmp_path / "q", durability="process") as q:
        q.enqueue("a")
        disk.did.clear()
    assert syncs(disk) == 1
    with WorkQueue.open(tmp_path / "q") as q:
        assert q.task("a") is not None


def test_the_head_and_a_snapshot_rest_on_what_is_synced(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """They are kept by others, however the queue was opened."""
    with WorkQueue.open(tmp_path / "q", durability="process") as q:
        for proof in (lambda: q.head, q.snapshot):
            q.enqueue()
            disk.did.clear()
            proof()
            assert disk.did[0][0] == "fdatasync"
    assert timers


def test_another_handle_does_not_rest_its_yes_on_what_is_unsynced(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """Durability is a handle's own: what one leaves for later, the other syncs before its yes."""
    with (
        WorkQueue.open(tmp_path / "q", durability="process") as quick,
        WorkQueue.open(tmp_path / "q") as safe,
    ):
        quick.enqueue("a")
        disk.did.clear()
        safe.enqueue("a")  # a repeat, which writes nothing
        assert disk.did == [("fdatasync", "00000000000000000001.jsonl")]
    assert timers


def test_a_sync_that_fails_later_is_told_to_who_asks_next(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """Nobody waits for it, so nobody can be told at once; the log is marked."""
    path = tmp_path / "q"
    q = WorkQueue.open(path, durability="process")
    q.enqueue("a")
    disk.fails["fdatasync"] = EIO
    go_off(timers[-1])
    with pytest.raises(HandleFinished, match="a sync failed"):
        q.enqueue("b")
    assert (path / "unsynced").exists()
    with pytest.raises(HandleFinished, match="a sync failed"):
        q.shut()
    q.shut()


def test_a_sync_that_failed_later_is_told_to_who_only_leaves(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """Else nobody would be told that what was answered may be lost."""
    q = WorkQueue.open(tmp_path / "q", durability="process")
    q.enqueue("a")
    disk.fails["fdatasync"] = EIO
    go_off(timers[-1])
    with pytest.raises(HandleFinished, match="a sync failed"):
        q.shut()
    assert q._log._lock == -1


def test_a_last_sync_that_fails_is_told(
    tmp_path: Path, disk: Disk, timers: list[threading.Timer]
) -> None:
    """By whoever leaves; the files are let go of all the same."""
    path = tmp_path / "q"
    q = WorkQueue.open(path, durability="process")
    q.enqueue("a")
    disk.fails["fdatasync"] = EIO
    with pytest.raises(OSError, match="Input/output error"):
        q.shut()
    del disk.fails["fdatasync"]
    with WorkQueue.open(path) as again:
        assert again.task("a") is not None
    assert timers


def test_a_power_cut_takes_the_end_alone(tmp_path: Path, timers: list[threading.Timer]) -> None:
    """Whatever of the unsynced is left, what stands there is whole and in order."""
    disk = FaultyDisk()
    path, left = tmp_path / "q", tmp_path / "left"
    q = WorkQueue.open(path, durability="process", disk=disk)
    for number in range(20):
        q.enqueue(str(number))
        if number == 9:
            go_off(timers[-1])
    draws = [Random(seed).randrange for seed in range(20)]
    for n, choose in enumerate([lose_all, *draws]):
        disk.leave(path, left / str(n), choose)
        with WorkQueue.open(left / str(n)) as found:
            there = [task.id for task in found.state.tasks()]
            assert len(there) >= 10
            assert there == [str(number) for number in range(len(there))]
            found.enqueue("more")
        check_chain(left / str(n))
    q.shut()


def test_a_kill_takes_nothing(tmp_path: Path) -> None:
    """What was answered is in the hands of the kernel."""
    path = tmp_path / "q"
    program = (
        "import sys; from eventq import WorkQueue\n"
        "q = WorkQueue.open(sys.argv[1], durability='process')\n"
        "while True: print(q.enqueue().id, flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    told = [child.stdout.readline().strip() for _ in range(500)]
    os.kill(child.pid, signal.SIGKILL)
    told += child.stdout.read().split("\n")[:-1]
    child.wait()
    child.stdout.close()
    with WorkQueue.open(path) as q:
        assert all(q.task(task) is not None for task in told)
    assert len(lines(path)) in (len(told) + 1, len(told) + 2)
    check_chain(path)


def test_the_end_of_the_program_syncs_what_is_left(tmp_path: Path) -> None:
    """Though nobody has let go of the handle, and the timer would come too late."""
    program = (
        "import sys; from eventq import WorkQueue; from eventq.storage.disk import Disk\n"
        "class Told(Disk):\n"
        "    def fdatasync(self, descriptor):\n"
        "        print('synced', flush=True)\n"
        "        super().fdatasync(descriptor)\n"
        "q = WorkQueue.open(sys.argv[1], durability='process', disk=Told())\n"
        "q.enqueue(); print('end', flush=True)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.splitlines()[-2:] == ["end", "synced"]


def test_a_forked_child_ends_without_a_sync_of_its_parent(tmp_path: Path) -> None:
    """It would wait for a lock that a thread of the parent had, and nobody has in the child."""
    program = (
        "import os, sys, threading; from eventq import WorkQueue\n"
        "q = WorkQueue.open(sys.argv[1], durability='process'); q.enqueue()\n"
        "held, done = threading.Event(), threading.Event()\n"
        "def hold():\n"
        "    with q._log._syncing:\n"
        "        held.set(); done.wait()\n"
        "threading.Thread(target=hold).start(); held.wait()\n"
        "child = os.fork()\n"
        "if not child: sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])); done.set()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "7\n"


def test_a_durability_that_nobody_knows(tmp_path: Path) -> None:
    """It is refused before anything is made."""
    with pytest.raises(BadValue, match="'power' or 'process', not 'none'"):
        WorkQueue.open(tmp_path / "q", durability="none")  # type: ignore[arg-type]
    assert not (tmp_path / "q").exists()
