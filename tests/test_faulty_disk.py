"""The disk that fails in other tests: it fails when it is told to, and knows what would last."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from disk import cut_lines, log_bytes, segments

from eventq import LogDamaged, WorkQueue
from eventq.storage.disk import Disk
from eventq.testing.faults import (
    Call,
    FaultyDisk,
    PowerCut,
    anywhere,
    cut_log,
    damaged,
    double_line,
    double_segment,
    every_choice,
    flip_bit,
    log_size,
    lose_line,
    lose_segment,
    swap_lines,
    swap_segments,
)


def test_the_example_in_its_documentation(tmp_path: Path) -> None:
    """Of `eventq.testing.faults`, as it stands there."""
    disk = FaultyDisk()
    with WorkQueue.open(tmp_path / "q", disk=disk) as q:
        disk.fail("pwrite", error=errno.ENOSPC, written=7)
        with pytest.raises(OSError, match="No space left"):
            q.enqueue("a")
        q.enqueue("b")
        disk.cut_power(2)
        with pytest.raises(PowerCut):
            q.enqueue("c")
    there = set()
    for n, choose in enumerate(every_choice()):
        disk.leave(tmp_path / "q", tmp_path / f"left {n}", choose)
        with WorkQueue.open(tmp_path / f"left {n}") as q:
            assert q.task("b")
            there.add(q.task("c") is None)
    assert there == {True, False}
    with damaged(tmp_path / "q"):
        flip_bit(tmp_path / "q", log_size(tmp_path / "q") * 8 - 9)
        with pytest.raises(LogDamaged):
            WorkQueue.open(tmp_path / "q")
    assert WorkQueue.open(tmp_path / "q").task("c")


def left(disk: FaultyDisk, tree: Path, into: Path) -> set[tuple[tuple[str, bytes], ...]]:
    """All that may be left of these files: their names and what they hold."""
    found = set()
    for n, choose in enumerate(every_choice()):
        disk.leave(tree, into / str(n), choose, tears=lambda size: [2])
        files = (into / str(n)).rglob("*")
        found.add(tuple(sorted((f.name, f.read_bytes()) for f in files if f.is_file())))
    return found


def test_bytes_last_when_the_file_is_synced_and_names_when_the_folder_is(tmp_path: Path) -> None:
    """Before that they may be there or not, in order, and the last write torn or zeros."""
    disk, tree = FaultyDisk(), tmp_path / "tree"
    tree.mkdir()
    file = tree / "a"
    descriptor = disk.open(file, os.O_RDWR | os.O_CREAT)
    disk.pwrite(descriptor, b"one", 0)
    torn = [b"", b"\0\0\0", b"on", b"on\0", b"one"]
    assert left(disk, tree, tmp_path / "1") == {(), *((("a", data),) for data in torn)}
    disk.fdatasync(descriptor)
    assert left(disk, tree, tmp_path / "2") == {(), (("a", b"one"),)}
    disk.sync_folder(tree)
    assert left(disk, tree, tmp_path / "3") == {(("a", b"one"),)}
    disk.rename(file, tree / "b")
    assert left(disk, tree, tmp_path / "4") == {(("a", b"one"),), (("b", b"one"),)}
    disk.unlink(tree / "b")
    assert left(disk, tree, tmp_path / "5") == {(), (("a", b"one"),), (("b", b"one"),)}
    disk.ftruncate(descriptor, 1)
    disk.sync_folder(tree)
    assert left(disk, tree, tmp_path / "6") == {()}
    os.close(descriptor)


def test_what_is_written_over_in_place_gets_there_in_any_order(tmp_path: Path) -> None:
    """What makes a file longer comes in order, as far as is modelled."""
    disk, tree = FaultyDisk(), tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"......")
    descriptor = disk.open(tree / "a", os.O_RDWR)
    for offset, data in ((0, b"11"), (2, b"22"), (4, b"33")):
        disk.pwrite(descriptor, data, offset)
    found = {file[0][1] for file in left(disk, tree, tmp_path / "1")}
    assert {b"......", b"..22..", b"....33", b"11..33", b"..2233", b"112233"} < found
    disk.fdatasync(descriptor)
    for offset, data in ((4, b"55"), (6, b"66")):
        disk.pwrite(descriptor, data, offset)
    found = {file[0][1] for file in left(disk, tree, tmp_path / "2")}
    assert b"112255" in found
    assert not [data for data in found if data.startswith(b"112233") and len(data) > 6]
    os.close(descriptor)


def test_a_failed_sync_loses_for_good_and_tells_each_once(tmp_path: Path) -> None:
    """What it was to sync can still be read, and a later sync that does not fail is no proof."""
    disk, file = FaultyDisk(), tmp_path / "tree" / "a"
    file.parent.mkdir()
    file.write_bytes(b"...")
    one, other = disk.open(file, os.O_RDWR), disk.open(file, os.O_RDWR)
    disk.pwrite(one, b"new", 0)
    disk.fail("fdatasync")
    for descriptor in (one, other):
        with pytest.raises(OSError, match="Input/output"):
            disk.fdatasync(descriptor)
    disk.fdatasync(one)
    disk.fdatasync(other)
    assert disk.failed == [Call("fdatasync", "a")] * 2
    assert disk.pread(one, 9, 0) == b"new"
    assert left(disk, file.parent, tmp_path / "left") == {(("a", b"..."),)}
    for descriptor in (one, other):
        os.close(descriptor)


def test_it_fails_at_the_call_that_it_was_told(tmp_path: Path) -> None:
    """Counted from then on, by name or by all; so often, or until it is healed."""
    disk, tree = FaultyDisk(), tmp_path

    def failing(count: int) -> str:
        text = ""
        for _ in range(count):
            failed = len(disk.failed)
            with suppress(OSError):
                disk.sync_folder(tree)
            text += ".x"[len(disk.failed) - failed]
        return text

    disk.fail("sync_folder", 2)
    assert failing(4) == ".x.."
    disk.fail(nth=3, times=2)
    assert failing(6) == "..xx.."
    disk.fail("fdatasync", 1)
    assert failing(2) == ".."
    disk.fail(times=None)
    assert failing(3) == "xxx"
    disk.heal()
    assert failing(2) == ".."
    disk.cut_power(3)
    assert failing(2) == ".."
    for _ in range(2):
        with pytest.raises(PowerCut):
            disk.sync_folder(tree)


def test_a_write_is_short_or_there_is_no_room(tmp_path: Path) -> None:
    """As a kernel has it: what was taken is said, and an error comes only where nothing was."""
    disk = FaultyDisk()
    descriptor = disk.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    disk.shorten(to=2)
    assert disk.pwrite(descriptor, b"12345", 0) == 2
    disk.room = 4
    assert disk.pwrite(descriptor, b"34567", 2) == 4
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(descriptor, b"7", 6)
    disk.heal()
    assert disk.pwrite(descriptor, b"7", 6) == 1
    disk.fail("pwrite", written=-1)
    with pytest.raises(OSError, match="Input/output"):
        disk.pwrite(descriptor, b"89!", 7)
    assert disk.pread(descriptor, 20, 0) == b"123456789"
    os.close(descriptor)


def test_every_choice_is_made_once() -> None:
    """Whatever is asked, also where one question depends on the answer to another."""
    seen = []
    for choose in every_choice():
        first = choose(3)
        seen.append((first, *(choose(2) for _ in range(first))))
    assert len(seen) == len(set(seen)) == 1 + 2 + 4
    assert seen[0] == (0,)
    assert seen[-1] == (2, 1, 1)
    assert len(list(anywhere(4))) == 3


def test_it_can_be_asked_all_that_a_disk_can() -> None:
    """A call that is new to `Disk` is one that can fail, too, unless it is of the lock."""
    asked = {name for name in vars(Disk) if not name.startswith("_")}
    assert asked - {"write_all", "write_file", "flock"} <= set(vars(FaultyDisk))


def test_damage_is_what_it_says_and_is_undone(tmp_path: Path) -> None:
    """Counted through all segments; whatever was done, the log is as it was afterwards."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=900) as q:
        for _ in range(4):
            q.enqueue()
    files = segments(path)
    good = log_bytes(path)
    modes = [file.stat().st_mode for file in files]
    texts = {file.name: cut_lines(file.read_bytes()) for file in files}
    first, second, third = (name for name in texts)
    a, b = texts[first]
    c, d = texts[second]
    (e,) = texts[third]

    def after(change: object, *arguments: int) -> dict[str, bytes]:
        with damaged(path):
            change(path, *arguments)  # type: ignore[operator]
            found = log_bytes(path)
        assert log_bytes(path) == good
        assert [file.stat().st_mode for file in files] == modes
        return found

    flipped = bytes([c[0] ^ 4]) + c[1:]
    assert after(flip_bit, len(a + b) * 8 + 2) == good | {second: flipped + d}
    assert after(cut_log, len(a) + 3) == {first: a + b[:3]}
    assert after(cut_log, 0) == {}
    assert after(lose_line, 3) == good | {second: d}
    assert after(double_line, 4) == good | {second: c + d + d}
    assert after(swap_lines, 1, 4) == good | {first: d + b, second: c + a}
    assert after(lose_segment, 1) == {first: a + b, third: e}
    assert after(double_segment, 0) == good | {f"{6:020}.jsonl": a + b}
    assert after(swap_segments, 0, 2) == {first: e, second: c + d, third: a + b}
    size = log_size(path)
    wrong: list[tuple[Callable[..., object], tuple[int, ...]]] = [
        *((flip_bit, (bit,)) for bit in (size * 8, -1)),
        *((cut_log, (end,)) for end in (size + 1, -1)),
        *((of_line, (seq,)) for of_line in (lose_line, double_line) for seq in (0, -1, 6)),
        *((swap_lines, pair) for pair in ((0, 1), (1, 6))),
        *((of_segment, (n,)) for of_segment in (lose_segment, double_segment) for n in (-1, 3)),
        *((swap_segments, pair) for pair in ((-1, 0), (0, 3))),
    ]
    for change, arguments in wrong:
        with pytest.raises(IndexError):
            change(path, *arguments)
        assert log_bytes(path) == good
    files[0].unlink()  # as where it was archived: lines are still named by their entries
    lose_line(path, 4)
    assert log_bytes(path) == {second: c, third: e}


def test_what_can_never_come_is_no_plan() -> None:
    """A test that waits for it could not fail."""
    disk = FaultyDisk()
    for plan in (
        lambda: disk.fail("nosuchcall"),
        lambda: disk.fail(nth=0),
        lambda: disk.shorten(0),
        lambda: disk.cut_power(0),
    ):
        with pytest.raises(ValueError, match=r"a disk is never asked|the first call from now is 1"):
            plan()
