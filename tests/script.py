"""A scripted run of one queue on a disk that may fail, for the tests of faults.

It uses all that writes: opening, single commands and a batch, files of the log that fill up,
snapshots, opening again, a torn tail and an unfinished line that another left, and a log that a
failed sync of another has marked. What fails is asked again, as a caller would, until all is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

from attrs import frozen
from disk import Ticks, check_chain, digest_of, lines, segments

from eventq import Enqueue, HandleFinished, State, WorkQueue
from eventq.core.evolve import replay
from eventq.core.lifecycle import Status
from eventq.queries.legal import Judge
from eventq.storage.verify import Verification
from eventq.testing.faults import Call, FaultyDisk

TORN = b'{"v":1,"seq":torn, and kept'
"""What one who died has left of a line."""

SEGMENT_BYTES = 900
CALLS = {
    *("open", "pread", "pwrite", "ftruncate", "fdatasync", "fsync"),
    *("mkdir", "rename", "unlink", "sync_folder"),
}
"""Everything that can be asked of a disk: the run asks all of it."""


class Run:
    """One run of the script: what was answered yes, and what was not."""

    def __init__(self, path: Path, disk: FaultyDisk) -> None:
        self.path = path
        self.disk = disk
        self.clock = Ticks()
        self.q: WorkQueue | None = None
        self.other: WorkQueue | None = None
        self.yes: list[bytes] = []
        """The lines of the log when the last yes was given."""
        self.torn = False
        """Whether a torn tail was left there, and lasts."""
        self.unmarked = False
        """Whether opening failed at a sync, and then at the mark that tells of it: nobody knows."""
        self.since = 0
        """How much of what failed did not fail for our handle."""
        self.failures = 0
        self.finished = 0

    def open(self) -> WorkQueue:
        if self.q is None:
            self.q = WorkQueue.open(
                self.path,
                segment_bytes=SEGMENT_BYTES,
                clock=self.clock,
                snapshots=False,
                disk=self.disk,
            )
        return self.q

    def shut(self) -> None:
        for handle in (self.q, self.other):
            if handle is not None:
                handle.shut()
        self.q = self.other = None

    def go(self) -> None:
        for goal in GOALS:
            self.reach(goal)

    def reach(self, goal: Goal) -> None:
        """Ask until it is answered yes; each time it is not, see how the queue stands."""
        for _ in range(4):
            self.since = len(self.disk.failed)
            try:
                q = self.open()
                if not goal.reached(q.state):
                    goal.ask(self)
                else:
                    _ = q.head  # a yes that rests on what another try has written
            except OSError:
                self.failures += 1
                self.disk.heal()
                self.see(self.disk.failed[self.since :])
            else:
                self.yes = lines(self.path)
                return
        raise AssertionError(f"{goal} is out of reach, though nothing fails any more")

    def see(self, failed: list[Call]) -> None:
        """After something failed: the log holds what it held, and the handle goes on, or ends."""
        assert self.disk.failed, "something else failed than what was told to"
        now = lines(self.path)
        assert now[: len(self.yes)] == self.yes
        unsynced = end_a_handle(failed)
        if not unsynced:
            assert len(now) - len(self.yes) <= 1  # of what is done in two steps, the first
        if self.q is None:
            self.unmarked = "unsynced" in [call.file for call in failed]
            return
        try:
            state = self.q.state
        except HandleFinished:
            assert unsynced, f"{failed} is no reason to answer nothing more"
            self.finished += 1
            self.q.shut()
            self.q = None
        else:
            assert not unsynced, f"the handle goes on, in spite of {failed}"
            assert state.seq == len(now)
            assert state == replay(State(), self.q.entries())

    def others_go_on(self) -> None:
        """A handle that was open all the while needs no restart, but where its file has lost what
        was to be synced: then it is told so by its own next sync."""
        assert self.other is not None
        for _ in range(3):
            try:
                self.other.enqueue("from the other")
            except HandleFinished:
                assert end_a_handle(self.disk.failed)
                self.finished += 1
                self.other.shut()
                self.other = WorkQueue.open(self.path, clock=self.clock, disk=self.disk)
            except OSError:
                self.failures += 1
                self.disk.heal()
        assert self.other.state.task("from the other") is not None
        self.yes = lines(self.path)


def end_a_handle(failed: list[Call]) -> bool:
    """Whether a handle that has these fail answers nothing more: the log or its names may not be
    on disk, or what was written cannot be taken back."""
    for before, call in pairwise([Call("", ""), *failed]):
        log = call.file.endswith(".jsonl")
        if call.name == "fdatasync" and (log or call.file == "redo"):
            return True
        if call == Call("sync_folder", "log"):
            return True
        if (before.name, call.name) == ("pwrite", "ftruncate") and log:
            return True
    return False


@frozen
class Goal:
    """A step of the script: how to see that it is done, and how to ask for it."""

    name: str
    reached: Callable[[State], object]
    ask: Callable[[Run], object]


def _held(run: Run) -> int:
    """The lease that is out."""
    (lease,) = [task.lease for task in run.open().state.tasks() if task.lease is not None]
    return lease


def _is(task: str, *status: Status) -> Callable[[State], bool]:
    def reached(state: State) -> bool:
        found = state.task(task)
        return found is not None and (not status or found.status in status)

    return reached


def _never(state: State) -> bool:
    return False


def _open_other(run: Run) -> None:
    """A second handle, which from here on asks nothing until the end."""
    if run.other is None:
        run.other = WorkQueue.open(run.path, clock=run.clock, snapshots=False, disk=run.disk)


def _reopen(run: Run) -> None:
    assert run.q is not None
    run.q.shut()
    run.q = None
    run.open()


def _leave_torn(run: Run) -> None:
    """As one does whose power goes while he writes: some of his line has reached the disk."""
    disk, file = run.disk, segments(run.path)[-1]
    with suppress(OSError), closing(disk.open(file, os.O_WRONLY)) as descriptor:
        left = disk.pwrite(descriptor, TORN, file.stat().st_size)
        disk.fdatasync(descriptor)
        run.torn = left == len(TORN)
    run.since = len(disk.failed)
    run.open().enqueue("behind the torn")


def _leave_unended(run: Run) -> None:
    """As one does whose line got there but for its newline."""
    disk = run.disk
    if run.open().task("unended") is not None:
        return
    with suppress(OSError):
        with WorkQueue.open(run.path, clock=run.clock, snapshots=False, disk=disk) as third:
            third.enqueue("unended")
        file = segments(run.path)[-1]
        with closing(disk.open(file, os.O_WRONLY)) as descriptor:
            disk.ftruncate(descriptor, file.stat().st_size - 1)
    run.since = len(disk.failed)


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _leave_marked(run: Run) -> None:
    """As one does whose sync fails."""
    os.close(run.disk.open(run.path / "unsynced", os.O_WRONLY | os.O_CREAT))
    _reopen(run)
    run.open().enqueue("behind the marked")


GOALS = [
    Goal("open", _is("nothing yet"), lambda run: run.open().head),
    Goal("enqueue", _is("a"), lambda run: run.open().enqueue("a", {"n": 1})),
    Goal("another opens", _never, _open_other),
    Goal(
        "batch",
        _is("c"),
        lambda run: run.open().enqueue_all(
            [Enqueue("b", key="k"), Enqueue("c", "x" * 300, after=["b"]), Enqueue("d")]
        ),
    ),
    Goal("start", _is("a", Status.RUNNING), lambda run: run.open().start("w1")),
    Goal("complete", _is("a", Status.SUCCEEDED), lambda run: run.open().complete(_held(run), 1)),
    Goal("snapshot", _never, lambda run: run.open().snapshot()),
    Goal("start b", _is("b", Status.RUNNING), lambda run: run.open().start("w1")),
    Goal(
        "fail",
        _is("b", Status.DEAD),
        lambda run: run.open().fail(_held(run), "HTTP 404", kind="permanent"),
    ),
    Goal("start d", _is("d", Status.RUNNING), lambda run: run.open().start("w1")),
    Goal("torn", _is("behind the torn"), _leave_torn),
    Goal("redrive", _is("b", Status.READY), lambda run: run.open().redrive("b", why="again")),
    Goal(
        "complete and start",
        _is("d", Status.SUCCEEDED),
        lambda run: run.open().complete_and_start(_held(run)),
    ),
    Goal("unended", _is("unended"), _leave_unended),
    Goal("behind", _is("behind"), lambda run: run.open().enqueue("behind")),
    Goal("reopen", _never, _reopen),
    Goal("marked", _is("behind the marked"), _leave_marked),
    Goal("second snapshot", _never, lambda run: run.open().snapshot()),
    Goal("last", _is("last"), lambda run: run.open().enqueue("last")),
]


def whole(path: Path, yes: list[bytes], most: int) -> None:
    """What the disk has kept is a good log: all that was answered yes is in it, at most `most`
    entries more, and it can be written to."""
    with WorkQueue.open(path, clock=Ticks(), disk=FaultyDisk()) as q:
        found = lines(path)
        q.enqueue("after all")
        state = q.state
        q.snapshot()
    assert found[: len(yes)] == yes, "what was answered yes is lost"
    assert len(found) <= most, "more is there than was ever written"
    check_chain(path)
    head = (len(yes), digest_of(yes[-1]).decode()) if yes else None
    verification = Verification(path, head)
    judge = Judge()
    for entry in verification.entries():
        judge.judge(entry)
    verification.finish()
    judge.end()
    assert (verification.problems, judge.breaches) == ([], [])
    with WorkQueue.open(path, read_only=True) as q:
        assert q.state == state
        state.check()


def kept(path: Path, run: Run) -> None:
    """What was cut off the log is kept beside it."""
    if run.torn:
        assert any(TORN in file.read_bytes() for file in (path / "torn").iterdir())
