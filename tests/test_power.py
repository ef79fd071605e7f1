"""A power cut before every call that a run makes of the disk, and all that it may leave."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from disk import NEVER, Ticks, check_chain, lines, segments, small_redo
from script import CALLS, Run, kept, whole

from eventq import Enqueue, HandleFinished, WorkQueue
from eventq.queries.legal import Judge
from eventq.storage.verify import Verification
from eventq.testing.faults import Choose, FaultyDisk, PowerCut, every_choice, lose_all

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def choices(seed: int) -> Iterable[Choose]:
    """All that may be left after a power cut; by default nothing unsynced, all, and three draws."""
    if THOROUGH:
        return every_choice()
    draw = Random(seed)
    return (lose_all, lambda count: count - 1, *[draw.randrange] * 3)


@pytest.mark.parametrize("redo", [False, True])
def test_a_power_cut_at_every_call(redo: bool, ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of the unsynced is there or not: all that was answered yes is, nothing half is."""
    small_redo(monkeypatch, after=1 if redo else NEVER)
    cuts = states = 0
    for nth in range(1, 1000):
        path, left = ram / str(nth) / "above" / "q", ram / str(nth) / "left"
        disk = FaultyDisk()
        disk.cut_power(nth)
        run = Run(path, disk)
        try:
            run.go()
            run.others_go_on()
        except PowerCut:
            cuts += 1
        else:
            break
        finally:
            with suppress(PowerCut):
                run.shut()
        for choose in choices(nth):
            disk.leave(path, left, choose)
            states += 1
            whole(left, run.yes, len(lines(path)) + 1)
            kept(left, run)
            shutil.rmtree(left)
    print(f"{cuts} power cuts, {states} states of the disk after them")
    assert cuts > 130
    assert states >= 5 * cuts


def test_what_a_failed_write_left_does_not_come_back_in_a_full_segment(ram: Path) -> None:
    """It was cut off again: that has to last before a later segment says that this one is whole."""
    path, disk = ram / "q", FaultyDisk()
    with WorkQueue.open(path, segment_bytes=1500, snapshots=False, disk=disk) as q:
        q.enqueue("a")
        disk.fail("pwrite", written=40)
        with pytest.raises(OSError, match="Input/output error"):
            q.enqueue("b")
        q.enqueue("c", "x" * 900)
        assert len(segments(path)) == 2
        for n, choose in enumerate(every_choice()):
            disk.leave(path, ram / str(n), choose)
            with WorkQueue.open(ram / str(n)) as left:
                assert [task.id for task in left.state.tasks()] == ["a", "c"]
    assert n > 0


ROUNDS, LIVES = (25, 8) if THOROUGH else (8, 2)


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_long_life_on_a_bad_disk(seed: int, ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue, many power cuts, and more faults between them, at random: no head that was ever
    told is missing from the log in the end, which is legal."""
    draw = Random(seed)
    if seed % 2:
        small_redo(monkeypatch)
    path, clock = ram / "0", Ticks()
    head = 0, ""
    cuts = failures = 0
    for n in range(ROUNDS):
        disk = a_bad_disk(draw)
        head, failed = a_life(path, disk, clock, draw, head)
        failures += failed
        cuts += 1
        left = ram / str(n + 1)
        disk.leave(path, left, draw.randrange)
        shutil.rmtree(path)
        path = left
    WorkQueue.open(path, clock=clock, disk=FaultyDisk()).shut()
    verification, judge = Verification(path, head), Judge()
    for entry in verification.entries():
        judge.judge(entry)
    verification.finish()
    judge.end()
    assert (verification.problems, judge.breaches) == ([], [])
    entries = len(check_chain(path))
    print(f"{entries} entries, {cuts} power cuts, {failures} failed commands")
    assert entries > 20 * ROUNDS
    assert failures > ROUNDS // 4


def a_bad_disk(draw: Random) -> FaultyDisk:
    """Its power goes some time, and before that some calls fail or are short."""
    disk = FaultyDisk()
    disk.cut_power(draw.randrange(1, 500))
    for _ in range(draw.randrange(6)):
        call = draw.choice(
            sorted(CALLS - {"open"})
        )  # else the mark of a failed sync may be missing
        nth = draw.randrange(1, 150 if call in ("pwrite", "fdatasync") else 15)
        disk.fail(call, nth, written=draw.choice([0, 40, -1]))
    for _ in range(draw.randrange(4)):
        disk.shorten(draw.randrange(1, 150), to=draw.randrange(1, 60))
    return disk


def a_life(
    path: Path, disk: FaultyDisk, clock: Ticks, draw: Random, head: tuple[int, str]
) -> tuple[tuple[int, str], int]:
    """Ask at random until the power goes: the last head that was told, and how much failed."""
    q: WorkQueue | None = None
    failed = 0
    try:
        while True:
            try:
                if q is None:
                    q = WorkQueue.open(path, segment_bytes=4000, clock=clock, disk=disk)
                    assert q.head[0] >= head[0], "what was told is lost"
                a_command(q, draw)
                head = q.head
            except HandleFinished:
                assert q is not None
                q.shut()
                q = None
            except OSError:
                failed += 1
            if q is not None and draw.random() < 0.02:
                q.shut()
                q = None
    except PowerCut:
        if q is not None:
            with suppress(PowerCut):
                q.shut()
        return head, failed


def a_command(q: WorkQueue, draw: Random) -> None:
    """Something or other."""
    leases = [task.lease for task in q.state.tasks() if task.lease is not None]
    match draw.randrange(7):
        case 0 | 1:
            q.enqueue(None, "x" * draw.randrange(300))
        case 2:
            q.enqueue_all(Enqueue(None, n) for n in range(draw.randrange(20)))
        case 3:
            q.start()
        case 4 if leases:
            q.complete(draw.choice(leases))
        case 5 if leases:
            q.fail(draw.choice(leases), "HTTP 503")
        case 6:
            q.snapshot()
        case _:
            q.start()
