"""The redo file: what a power cut takes from the log is there, and nothing else is taken for it."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from disk import (
    NEVER,
    Ticks,
    body_of,
    check_chain,
    digest_of,
    lines,
    seal,
    segments,
    small_redo,
    untouched,
)
from forked import check, children
from terminal import eventq

from eventq import Enqueue, HandleFinished, LinesLost, LogDamaged, NotAQueue, State, WorkQueue
from eventq.storage.disk import Disk as RealDisk
from eventq.storage.lines import last_seq
from eventq.storage.log import Log
from eventq.storage.redo import Redo, missing
from eventq.storage.repair import repair
from eventq.storage.segments import Cursor
from eventq.storage.verify import Fault, Verification
from eventq.testing.faults import (
    FaultyDisk,
    cut_log,
    damaged,
    every_choice,
    log_size,
    lose_all,
    lose_line,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a file that it goes round within a few lines, and in use from the second on."""
    small_redo(monkeypatch, 2000)


def at_work(path: Path, disk: RealDisk, commands: int = 30, **how: Any) -> WorkQueue:
    """A handle that has carried out so many commands, and is open still."""
    q = WorkQueue.open(path, disk=disk, clock=Ticks(), snapshots=False, **how)
    for n in range(commands):
        q.enqueue(f"t{n}", {"n": n})
    return q


def after_a_power_cut(
    q: WorkQueue, disk: FaultyDisk, left: Path
) -> tuple[list[bytes], list[bytes]]:
    """The lines of the log before the power went, and those that its segments have after it."""
    assert q.path is not None
    before = lines(q.path)
    disk.leave(q.path, left, lose_all)
    after = lines(left)
    assert len(after) < len(before), "nothing is lost: then nothing is shown here"
    assert after == before[: len(after)]
    return before, after


def verified(path: Path, head: tuple[int, str] | None = None) -> Verification:
    verification = Verification(path, head)
    for _ in verification.entries():
        pass
    verification.finish()
    return verification


def flipped(file: Path, byte: int) -> None:
    """One bit of this byte of a file is another."""
    data = bytearray(file.read_bytes())
    data[byte] ^= 1 << byte % 8
    file.write_bytes(data)


def synced(disk: FaultyDisk) -> list[str]:
    """The files that were synced, in order."""
    return [call.file for call in disk.calls if call.name == "fdatasync"]


def test_the_redo_file_is_what_is_synced(tmp_path: Path) -> None:
    """And the segment once in a while, so that what stands there may be written over."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, 100) as q:
        files = synced(disk)
        written = len(b"".join(lines(tmp_path / "q")))
        assert files.count("redo") > 75
        assert written / 2000 - 1 < len(files) - files.count("redo") < written / 1000 + 3
        assert (tmp_path / "q" / "redo").stat().st_size == 2000
        assert not [call for call in disk.calls if (call.name, call.file) == ("pread", "redo")]
        assert q.head[0] == 101
    check(tmp_path / "q")


def test_who_asks_for_little_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is worth its making from some commands on; and never where nothing is synced at once."""
    small_redo(monkeypatch, 2000, after=16)
    with at_work(tmp_path / "a", FaultyDisk(), 15):
        assert not (tmp_path / "a" / "redo").exists()
    with at_work(tmp_path / "b", FaultyDisk(), 17):
        assert (tmp_path / "b" / "redo").exists()
    small_redo(monkeypatch, 2000)
    monkeypatch.setattr("eventq.storage.later.SECONDS", 0.001)
    with at_work(tmp_path / "c", RealDisk(), durability="process") as q:
        for n in range(5):
            time.sleep(0.02)
            q.enqueue(f"synced since {n}")
        assert not (tmp_path / "c" / "redo").exists()


def test_what_a_power_cut_takes_is_put_back(tmp_path: Path) -> None:
    """By who opens the queue to write; the log is then what it was, byte for byte."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        head, state = q.head, q.state
        before, _ = after_a_power_cut(q, disk, tmp_path / "left")
    with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
        assert left.head == head
        assert left.state == state
        assert lines(tmp_path / "left") == before
        left.enqueue("goes on")
    check(tmp_path / "left")


def test_what_is_put_back_is_synced_in_its_place(tmp_path: Path) -> None:
    """So that the next power cut does not take it: what comes then may be written over it."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        before, _ = after_a_power_cut(q, disk, tmp_path / "left")
    again = FaultyDisk()
    again.shorten(to=70)
    with WorkQueue.open(tmp_path / "left", disk=again, clock=Ticks()):
        again.leave(tmp_path / "left", tmp_path / "left again", lose_all)
    (tmp_path / "left again" / "redo").unlink()
    assert lines(tmp_path / "left again") == before


def test_a_sync_of_what_is_put_back_that_fails_marks_the_log(tmp_path: Path) -> None:
    """As any does; and nothing is lost when that is asked once more."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        before, _ = after_a_power_cut(q, disk, tmp_path / "left")
    again = FaultyDisk()
    again.fail("fdatasync")
    with pytest.raises(OSError, match="Input/output error"):
        WorkQueue.open(tmp_path / "left", disk=again)
    assert (tmp_path / "left" / "unsynced").exists()
    with WorkQueue.open(tmp_path / "left", disk=again, clock=Ticks()) as left:
        left.enqueue("goes on")
        again.leave(tmp_path / "left", tmp_path / "left again", lose_all)
    with WorkQueue.open(tmp_path / "left again", clock=Ticks()) as left:
        assert lines(tmp_path / "left again")[:-1] == before
    check(tmp_path / "left again")


def test_who_only_reads_finds_it_too(tmp_path: Path) -> None:
    """Nobody may write there; and goes on when somebody did."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        state, head = q.state, q.head
        entries = list(q.entries())
        before, _ = after_a_power_cut(q, disk, tmp_path / "left")
    left = tmp_path / "left"
    with WorkQueue.open(left, read_only=True) as reader:
        with untouched(left):
            assert reader.state == state
            assert list(reader.entries()) == entries
            assert reader.at(head[0] - 1).seq == head[0] - 1
            assert reader.head == head
            told = eventq("log", "--queue", left, "--limit", "2", "--json").out
            assert [line.encode() for line in told.splitlines(keepends=True)] == before[-2:]
        with WorkQueue.open(left, clock=Ticks()) as writer:
            assert reader.state == state
            writer.enqueue("goes on")
            assert reader.state == writer.state


def test_verify_takes_a_line_that_is_just_written_for_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the redo file, and by now in the segment, that was read before."""
    with at_work(tmp_path / "q", RealDisk()) as q:

        def meanwhile(cursor: Cursor) -> bytes:
            q.enqueue("just written")
            return missing(cursor)

        monkeypatch.setattr("eventq.storage.verify.missing", meanwhile)
        head = q.head
        found = verified(tmp_path / "q")
        assert (found.head, found.problems, found.notes) == (head, [], [])


def test_verify_finds_it_and_says_so(tmp_path: Path) -> None:
    """Nothing is lost, so the log is complete; a live writer is no power cut."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        head = q.head
        live = verified(tmp_path / "q", head)
        assert (live.problems, live.notes, live.complete) == ([], [], True)
        after_a_power_cut(q, disk, tmp_path / "left")
    left = tmp_path / "left"
    with untouched(left):
        found = verified(left, head)
        told = eventq("verify", "--queue", left, "--head", f"{head[0]}:{head[1]}")
    assert (found.problems, found.head, found.complete) == ([], head, True)
    assert len(found.notes) == 1
    assert "lacks its end since a power cut: the redo file has it" in found.notes[0]
    assert told.code == 0
    for byte in range(0, 2000, 50):
        flipped(left / "redo", byte)
    assert verified(left, head).complete is False


@pytest.mark.parametrize("segment_bytes", [4000, 10**6])
def test_repair_copies_it(segment_bytes: int, tmp_path: Path) -> None:
    """What a snapshot knows beyond the log is lost, and yet all that can be had is had."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, segment_bytes=segment_bytes) as q:
        while synced(disk)[-1] != "redo":
            q.enqueue()
        head = q.head
        before, after = after_a_power_cut(q, disk, tmp_path / "left")
        q.enqueue("known to a snapshot alone")
        snapshot = q.snapshot()
    left = tmp_path / "left"
    (left / "snapshots").mkdir(exist_ok=True)
    shutil.copy(snapshot, left / "snapshots" / snapshot.name)
    with pytest.raises(LinesLost):
        WorkQueue.open(left)
    assert lines(left) == after
    found = repair(left, tmp_path / "copy")
    assert found.head == head
    assert lines(tmp_path / "copy") == before
    check(tmp_path / "copy")


def test_a_snapshot_is_never_ahead_of_the_segments(tmp_path: Path) -> None:
    """It is opened with, before anything is put back."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        q.snapshot()
        disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
        (tmp_path / "left" / "redo").unlink()
        with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
            assert left.state == q.state


def test_what_is_cut_off_under_a_handle_is_damage(tmp_path: Path) -> None:
    """To who would write behind it, whatever stands in the redo file; and to a reader without."""
    with (
        at_work(tmp_path / "q", RealDisk()) as q,
        WorkQueue.open(tmp_path / "q", read_only=True) as reader,
    ):
        (file,) = segments(tmp_path / "q")
        cut = b"".join(lines(tmp_path / "q")[:-1])
        os.truncate(file, len(cut))
        state = reader.state
        with pytest.raises(LogDamaged, match="has lost"):
            q.enqueue("behind a hole")
        assert file.read_bytes() == cut
        assert reader.state == state
        os.truncate(tmp_path / "q" / "redo", 0)
        with pytest.raises(LogDamaged, match="has lost"):
            reader.state  # noqa: B018


def test_without_segments_there_is_no_log(tmp_path: Path) -> None:
    """Whatever stands in the redo file."""
    with at_work(tmp_path / "q", RealDisk(), 3) as q:
        shutil.copytree(q.path or "", tmp_path / "left")
    for file in segments(tmp_path / "left"):
        (tmp_path / "left" / "redo").write_bytes(file.read_bytes()[:2000].ljust(2000))
        file.unlink()
    with pytest.raises(NotAQueue):
        WorkQueue.open(tmp_path / "left", read_only=True)
    assert verified(tmp_path / "left").head[0] == last_seq(tmp_path / "left" / "log") == 0
    with WorkQueue.open(tmp_path / "left") as left:
        assert left.state.seq == 1


def test_a_segment_that_lacks_lines_before_the_next_is_damaged(tmp_path: Path) -> None:
    """Whatever stands in the redo file, which is about the last one."""
    path = tmp_path / "q"
    with at_work(path, RealDisk(), 20):
        redo = (path / "redo").read_bytes()
    before = lines(path)
    with WorkQueue.open(path, segment_bytes=3000) as q:
        q.enqueue("in the next")
    (path / "redo").write_bytes(redo)
    segments(path)[0].write_bytes(b"".join(before[:-2]))
    with pytest.raises(LogDamaged) as told:
        WorkQueue.open(path)
    assert told.value.seq == len(before) - 1


def test_a_damaged_log_is_left_as_it_is(tmp_path: Path) -> None:
    """Whatever stands in the redo file: damage is never mended."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        after_a_power_cut(q, disk, tmp_path / "left")
    (file,) = segments(tmp_path / "left")
    flipped(file, 700)
    before = file.read_bytes()
    with pytest.raises(LogDamaged):
        WorkQueue.open(tmp_path / "left")
    assert file.read_bytes() == before


def test_half_a_line_in_the_segment_is_made_whole(tmp_path: Path) -> None:
    """What was answered stands in the redo file: then no line of it is cut off."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        before, after = after_a_power_cut(q, disk, tmp_path / "left")
    (file,) = segments(tmp_path / "left")
    for half in (before[len(after)][:100], b"\0" * 5000, before[len(after)][:-1]):
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.copytree(tmp_path / "left", tmp_path / "again")
        with (tmp_path / "again" / "log" / file.name).open("ab") as torn:
            torn.write(half)
        with WorkQueue.open(tmp_path / "again", clock=Ticks()):
            assert lines(tmp_path / "again") == before
        kept = [file.read_bytes() for file in (tmp_path / "again").glob("torn/*")]
        assert [text for text in kept if text.strip(b"\0")] == []


def test_zeros_before_later_lines_are_written_over(tmp_path: Path) -> None:
    """A file system may have put later bytes of the segment on disk, and these not: all lines stand
    in the redo file. Where they do not, it is damage."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        head, state = q.head, q.state
        after_a_power_cut(q, disk, tmp_path / "left")
        whole = segments(tmp_path / "q")[0].read_bytes()
    left = tmp_path / "left"
    (file,) = segments(left)
    short = file.stat().st_size
    holes = [(at, min(at + 300, len(whole) - 1)) for at in range(short, len(whole) - 2, 41)]
    assert len(holes) > 5
    redo = (left / "redo").read_bytes()
    for begin, end in holes:
        file.write_bytes(whole[:begin] + bytes(end - begin) + whole[end:])
        (left / "redo").write_bytes(redo)
        with untouched(left):
            with WorkQueue.open(left, read_only=True) as reader:
                assert reader.state == state
                assert len(list(reader.entries())) == head[0]
            found = verified(left, head)
            assert (found.head, found.problems, len(found.notes)) == (head, [], 1)
            told = eventq("log", "--queue", left, "--since", str(head[0] - 1), "--json")
            assert told.out.encode() == b"".join(lines(tmp_path / "q")[-2:])
        with WorkQueue.open(left, clock=Ticks()) as writer:
            assert writer.state == state
        assert file.read_bytes() == whole
        file.write_bytes(whole[:begin] + bytes(end - begin) + whole[end:])
        (left / "redo").write_bytes(b"")
        for read_only in (False, True):
            with pytest.raises(LogDamaged):
                WorkQueue.open(left, read_only=read_only).state  # noqa: B018
        assert verified(left, head).whole is False


def test_one_bit_that_is_flipped_is_damage(tmp_path: Path) -> None:
    """Also one that makes a zero, of what stands in the redo file as it was."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, 25) as q:
        for n in range(5):
            q.enqueue(f"mail-{n}@example.org")
        after_a_power_cut(q, disk, tmp_path / "left")
        whole = segments(tmp_path / "q")[0].read_bytes()
    left = tmp_path / "left"
    (file,) = segments(left)
    at = whole.index(b"@", file.stat().st_size)  # one bit from a zero
    file.write_bytes(whole[:at] + b"\0" + whole[at + 1 :])
    for read_only in (False, True):
        with pytest.raises(LogDamaged):
            WorkQueue.open(left, read_only=read_only).state  # noqa: B018
    assert verified(left).whole is False


def test_others_may_put_back_and_archive_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens reads what is lacking, and has the lock only after that."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        after_a_power_cut(q, disk, tmp_path / "left")
    left = tmp_path / "left"

    read = Log.state

    def others_first(log: Log) -> State:
        state = read(log)
        monkeypatch.setattr(Log, "state", read)
        with WorkQueue.open(left, clock=Ticks(), segment_bytes=1000) as other:
            other.enqueue("in the next")
            other.archive(tmp_path / "archive")
        return state

    monkeypatch.setattr(Log, "state", others_first)
    WorkQueue.open(left, clock=Ticks()).shut()
    with WorkQueue.open(left, clock=Ticks()) as found:
        assert found.task("in the next")
        assert len(segments(left)) == 1


def test_the_first_lines_of_a_new_segment_are_there(tmp_path: Path) -> None:
    """Its name lasts before its first line is written, and that may stand in the redo file only."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, 0, segment_bytes=3000) as q:
        for n in range(60):
            q.enqueue(f"t{n}")
            disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
            with WorkQueue.open(tmp_path / "left", read_only=True) as left:
                assert left.state == q.state
            with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
                assert left.state == q.state
            assert check_chain(tmp_path / "left")
            shutil.rmtree(tmp_path / "left")
        assert len(segments(tmp_path / "q")) > 4


@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_a_handle_that_slept_takes_nothing_for_safe(first: str, tmp_path: Path) -> None:
    """Its segment was archived meanwhile: what it knew of that says nothing of the next."""
    disk = FaultyDisk()
    path = tmp_path / "q"
    with (
        at_work(path, disk, 15, segment_bytes=6000) as q,
        WorkQueue.open(
            path, disk=disk, clock=Ticks(), durability="process", segment_bytes=6000
        ) as other,
    ):
        q._log.sync()  # type: ignore[union-attr]
        while len(segments(path)) < 2:
            other.enqueue()
        other.archive(tmp_path / "archive")
        other.enqueue("theirs")
        q.enqueue(first)  # a repeat, for which nothing is written, or a line of its own
        disk.leave(path, tmp_path / "left", lose_all)
        assert digest_of(lines(tmp_path / "left")[-1]).decode() == q.head[1]
        for n in range(4):
            q.enqueue(f"ours {n}")
            disk.leave(path, tmp_path / str(n), lose_all)
            with WorkQueue.open(tmp_path / str(n), clock=Ticks()) as left:
                assert left.state.seq == q.state.seq


class Mixed:
    """A queue with a handle that makes use of the redo file, and one that does not."""

    def __init__(self, path: Path) -> None:
        self.path, self.left = path / "q", path / "left"
        self.disk = FaultyDisk()
        self.q = at_work(self.path, self.disk)
        self.other = WorkQueue.open(
            self.path, disk=self.disk, clock=Ticks(), durability="process", snapshots=False
        )

    def lose(self) -> None:
        """All that was answered with "power", and what that rests on, is there after a cut."""
        state = self.q.state
        self.disk.leave(self.path, self.left, lose_all)
        with WorkQueue.open(self.left, clock=Ticks()) as left:
            assert left.state == state
        shutil.rmtree(self.left)

    def shut(self) -> None:
        self.q.shut()
        self.other.shut()


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[Mixed]:
    mixed = Mixed(tmp_path)
    yield mixed
    mixed.shut()


def test_what_others_have_not_written_there_is_synced_in_the_segment(mixed: Mixed) -> None:
    """Before a yes that comes behind it, and before one that says that it is so."""
    for n in range(8):
        mixed.other.enqueue(f"theirs {n}")
        mixed.q.enqueue(f"ours {n}")
        mixed.lose()
        mixed.other.enqueue(f"repeated {n}")
        mixed.q.enqueue(f"repeated {n}")
        mixed.lose()


def test_a_line_that_is_too_long_for_it_is_synced_in_the_segment(mixed: Mixed) -> None:
    """Ours as well as another's, just so long or longer than the whole file."""
    with WorkQueue.open(mixed.path, disk=mixed.disk, clock=Ticks(), snapshots=False) as third:
        for size in (1000, 1400, 1900, 2100, 7000):
            for handle in (mixed.q, third):
                handle.enqueue(None, "x" * size)
                mixed.lose()
                handle.enqueue(None)
                mixed.lose()
            mixed.q.enqueue(None)
            mixed.lose()


def test_the_first_line_of_a_segment_may_be_too_long_for_it(tmp_path: Path) -> None:
    """What was known of the segment before says nothing of it."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, segment_bytes=4000) as q:
        for n in range(8):
            for m in range(n):
                q.enqueue(f"short {n}, {m}")
            q.enqueue(f"long {n}", "x" * 2100)
            disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
            with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
                assert left.state.seq == q.state.seq
            shutil.rmtree(tmp_path / "left")


def test_what_another_failed_to_sync_there_is_not_trusted(tmp_path: Path) -> None:
    """It can be read, and who has opened the file since is not told."""
    disk = FaultyDisk()
    path = tmp_path / "q"
    with at_work(path, disk, 12) as one, WorkQueue.open(path, disk=disk, clock=Ticks()) as other:
        other.enqueue("synced in the segment")
        while synced(disk)[-1] != "redo":
            one.enqueue()
        assert other.head == one.head
        disk.fail("fdatasync")
        disk.fail("open")  # not even the mark can be made
        with pytest.raises(OSError, match="Input/output"):
            one.enqueue("no answer")
        assert [call.file for call in disk.failed] == ["redo", "unsynced"]
        for n in range(8):
            other.enqueue(f"yes {n}")
            disk.leave(path, tmp_path / str(n), lose_all)
            with WorkQueue.open(tmp_path / str(n), read_only=True) as left:
                assert left.state == other.state


@pytest.mark.parametrize("look", ["head", "snapshot"])
def test_a_look_rests_on_nothing_whose_sync_has_failed(
    look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock, in a segment that was opened since, whose kernel does not tell."""
    small_redo(monkeypatch, after=NEVER)
    disk = FaultyDisk()
    path = tmp_path / "q"
    other = at_work(path, disk, 4, segment_bytes=3000)
    with WorkQueue.open(path, disk=disk, clock=Ticks(), segment_bytes=3000) as q:
        while len(segments(path)) < 2:
            q.enqueue()
        disk.fail("fdatasync")
        with pytest.raises(OSError, match="Input/output"):
            q.enqueue("no answer")
    with WorkQueue.open(path, read_only=True) as reader, untouched(path):
        assert reader.task("no answer")
    seq, _ = other.head if look == "head" else (int(other.snapshot().stem), "")
    disk.leave(path, tmp_path / "left", lose_all)
    with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
        assert left.state.seq >= seq == other.state.seq
    other.shut()


@pytest.mark.parametrize("after", [1, NEVER])
def test_who_has_the_lock_next_renews_a_segment_whose_sync_has_failed(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that he opens only then, whose kernel does not tell him; or one that he has open, and
    that holds lines which were answered long before."""
    small_redo(monkeypatch, 20_000, after=after)
    for segment_bytes in (3000, 10**6):
        disk = FaultyDisk()
        path = tmp_path / f"{segment_bytes}"
        other = at_work(path, disk, 4, segment_bytes=segment_bytes)
        with WorkQueue.open(path, disk=disk, clock=Ticks(), segment_bytes=segment_bytes) as q:
            while segment_bytes == 3000 and len(segments(path)) < 2:
                q.enqueue()
            for n in range(3):
                q.enqueue(f"answered {n}")
            if segment_bytes > 3000:
                time.sleep(0.02)  # as long as a name is new, each command looks at all
                other.enqueue("looks, and would not for a while")
            disk.fail("fdatasync")
            with pytest.raises(OSError, match="Input/output"):
                q.snapshot()
        assert disk.failed[-1].file == segments(path)[-1].name
        for n in range(3):
            other.enqueue(f"others' {n}")
            assert not (path / "unsynced").exists()
            for m, choose in enumerate((lose_all, lambda count: count - 1)):
                left = tmp_path / f"{segment_bytes} {n} {m}"
                disk.leave(path, left, choose)
                with WorkQueue.open(left, clock=Ticks()) as found:
                    assert found.state == other.state
        other.shut()
        disk.leave(path, tmp_path / f"{segment_bytes} at last", lose_all)
        check(tmp_path / f"{segment_bytes} at last")


def test_a_segment_is_renewed_with_what_the_redo_file_has(tmp_path: Path) -> None:
    """After a power cut that left the mark as well, and zeros."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        state = q.state
        after_a_power_cut(q, disk, tmp_path / "left")
        whole = segments(tmp_path / "q")[0].read_bytes()
    left = tmp_path / "left"
    (file,) = segments(left)
    short, redo = file.stat().st_size, (left / "redo").read_bytes()
    for text in (whole[:short], whole[:short] + bytes(150) + whole[short + 150 :]):
        file.write_bytes(text)
        (left / "redo").write_bytes(redo)
        (left / "unsynced").touch()
        again = FaultyDisk()
        with WorkQueue.open(left, disk=again, clock=Ticks()) as found:
            assert found.state == state
            assert file.read_bytes() == whole
            found.enqueue("goes on")
            again.leave(left, tmp_path / "again", lose_all)
            with WorkQueue.open(tmp_path / "again", read_only=True) as reader:
                assert reader.state == found.state
        shutil.rmtree(tmp_path / "again")


def test_a_live_handle_renews_a_segment_with_what_the_redo_file_has(tmp_path: Path) -> None:
    """What a failed sync has dropped shows as zeros, once the kernel lets go of its pages: before
    the redo file goes round, the segment has those lines again."""
    path, disk = tmp_path / "q", FaultyDisk()
    with at_work(path, disk) as q:
        while synced(disk)[-4:] != ["redo"] * 4:
            q.enqueue()
        (file,) = segments(path)
        whole = file.read_bytes()
        hole = whole[:-700] + bytes(300) + whole[-400:]
        file.write_bytes(hole)
        (path / "unsynced").touch()
        q._log.look()  # type: ignore[union-attr]
        time.sleep(0.15)
        q.enqueue("behind it")
        assert not (path / "unsynced").exists()
        assert file.read_bytes().startswith(whole)
    check(path)


class Signalled(FaultyDisk):
    """A signal comes while it syncs, and is handled as that returns."""

    armed = False

    def fdatasync(self, descriptor: int) -> None:
        super().fdatasync(descriptor)
        if self.armed and self.calls[-1].file != "redo":
            self.armed = False
            signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("rolls", [1, 2])
def test_a_handler_of_a_signal_may_go_on_to_the_next_segment(rolls: int, tmp_path: Path) -> None:
    """What was synced meanwhile was the one before."""
    disk = Signalled()
    path = tmp_path / "q"
    with at_work(path, disk, 0, segment_bytes=6000) as q:
        while log_size(path) < 5400:
            q.enqueue()

        def handler(*_: Any) -> None:
            while len(segments(path)) <= rolls:
                q.enqueue()

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            q._log._leave_redo(-1)  # type: ignore[union-attr]
            disk.armed = True
            q.enqueue("its segment is synced")
            assert len(segments(path)) == rolls + 1
        finally:
            signal.signal(signal.SIGUSR1, before)
        for _ in range(25):
            q.enqueue()
            disk.leave(path, tmp_path / "left", lose_all)
            with WorkQueue.open(tmp_path / "left", read_only=True) as left:
                assert left.state == q.state
            shutil.rmtree(tmp_path / "left")


def test_handles_that_share_it_sync_no_more_than_it(tmp_path: Path) -> None:
    """What another has written stands there as well, and is found there."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as one, at_work(tmp_path / "q", disk, 5) as two:
        before = len(disk.calls)
        for n in range(60):
            (one, two)[n % 2].enqueue(f"shared {n}")
            disk.leave(tmp_path / "q", tmp_path / str(n), lose_all)
            with WorkQueue.open(tmp_path / str(n), read_only=True) as left:
                assert left.state.seq == one.state.seq
        files = [call.file for call in disk.calls[before:] if call.name == "fdatasync"]
        assert files.count("redo") > 35


def remade(disk: FaultyDisk, file: Path) -> None:
    disk.unlink(file)
    disk.write_file(file, bytes(2000))


def emptied(disk: FaultyDisk, file: Path, size: int = 0) -> None:
    descriptor = disk.open(file, os.O_WRONLY)
    disk.ftruncate(descriptor, size)
    os.close(descriptor)


@pytest.mark.parametrize("change", [FaultyDisk.unlink, remade, emptied, partial(emptied, size=50)])
def test_a_file_that_is_gone_is_made_again(change: Any, tmp_path: Path) -> None:
    """Or is another, or was emptied: from the next look on no answer rests on what it was."""
    disk = FaultyDisk()
    path = tmp_path / "q"
    with at_work(path, disk) as q:
        for n in range(8):
            change(disk, path / "redo")
            q._log.look()  # type: ignore[union-attr]
            for m in range(n + 1):
                before = len(disk.calls)
                q.enqueue(f"behind {n}, {m}")
                opened = [call.file for call in disk.calls[before:] if call.name == "open"]
                assert opened == ([] if m else ["redo"])
                assert (path / "redo").stat().st_size == 2000
                disk.leave(path, tmp_path / "left", lose_all)
                with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
                    assert left.state.seq == q.state.seq
                shutil.rmtree(tmp_path / "left")


def test_it_takes_no_room_that_the_log_needs(tmp_path: Path) -> None:
    """Where there is not enough for all of it, there is none of it."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, 0) as q:
        disk.room = 1500
        q.enqueue("the first with a redo file")
        assert disk.failed[-1].file == "redo"
        assert (tmp_path / "q" / "redo").stat().st_size == 0


@pytest.mark.parametrize("call", ["open", "pwrite", "fsync", "sync_folder"])
def test_who_cannot_make_it_does_without(call: str, tmp_path: Path) -> None:
    """For long: nobody is told no for it, and no time is lost over it again and again."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk, 0) as q:
        before = len(disk.calls)
        disk.fail(call, 2 if call == "pwrite" else 1, error=errno.ENOSPC)
        for n in range(20):
            q.enqueue(f"more {n}")
        asked = [each for each in disk.calls[before:] if each.file in ("redo", "q")]
        assert call in [each.name for each in asked[-2:]]
        assert len(disk.failed) == 1
        disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
        assert len(lines(tmp_path / "left")) == 21


def test_a_write_to_it_that_fails_costs_no_answer(tmp_path: Path) -> None:
    """The line is in its segment, and is synced there."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        disk.fail("pwrite", 2, written=40)
        q.enqueue("here")
        assert [call.file for call in disk.failed] == ["redo"]
        assert synced(disk)[-1].endswith(".jsonl")
        q.enqueue("and on")
        disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
        assert lines(tmp_path / "left") == lines(tmp_path / "q")


def test_a_short_write_to_it_is_gone_on_with(tmp_path: Path) -> None:
    """What the kernel did not take at once it is given again."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        for n in range(12):
            disk.shorten(2, to=70)
            q.enqueue(f"here {n}")
            disk.leave(tmp_path / "q", tmp_path / str(n), lose_all)
            with WorkQueue.open(tmp_path / str(n), read_only=True) as left:
                assert left.state == q.state


def test_a_sync_of_it_that_fails_ends_the_handle(tmp_path: Path) -> None:
    """Nobody is told yes on the word of a disk that failed; all others go on, and lose nothing."""
    disk = FaultyDisk()
    q = at_work(tmp_path / "q", disk)
    while synced(disk)[-1] == "redo":  # until there is room in it
        q.enqueue()
    yes = len(lines(tmp_path / "q"))
    disk.fail("fdatasync")
    with pytest.raises(OSError, match="Input/output error"):
        q.enqueue("not answered")
    assert disk.failed[-1].file == "redo"
    with pytest.raises(HandleFinished):
        q.enqueue("never")
    q.shut()
    assert (tmp_path / "q" / "unsynced").exists()
    with at_work(tmp_path / "q", disk, 5) as other:
        disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
        with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
            assert left.state.seq == other.state.seq >= yes + 1


def test_a_queue_that_is_shut_is_its_segments_alone(tmp_path: Path) -> None:
    """Who then cuts a line off by hand has cut it off."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk):
        pass
    assert (tmp_path / "q" / "redo").stat().st_size == 0
    disk.leave(tmp_path / "q", tmp_path / "left", lose_all)
    assert lines(tmp_path / "left") == lines(tmp_path / "q")
    (file,) = segments(tmp_path / "q")
    whole = lines(tmp_path / "q")
    file.write_bytes(b"".join(whole[:-1]))
    with WorkQueue.open(tmp_path / "q") as q:
        assert q.state.seq == len(whole) - 1


def test_one_who_shuts_takes_nothing_from_others(tmp_path: Path) -> None:
    """Not what is not synced, nor what stands in a later segment that he has not seen."""
    disk = FaultyDisk()
    path = tmp_path / "q"
    with at_work(path, disk, 3, segment_bytes=3000) as q:
        for n in range(40):
            with WorkQueue.open(path, disk=disk, clock=Ticks(), snapshots=False) as other:
                other.enqueue(f"theirs {n}, 1")
                other.enqueue(f"theirs {n}, 2")
                for m in range(n % 12):
                    q.enqueue(f"ours {n}, {m}")
            disk.leave(path, tmp_path / "left", lose_all)
            with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
                assert left.state.seq == q.state.seq
            shutil.rmtree(tmp_path / "left")
    assert len(segments(path)) > 5


@pytest.mark.parametrize("renewed", [False, True])
def test_one_who_slept_and_shuts_takes_nothing_from_others(renewed: bool, tmp_path: Path) -> None:
    """Another segment follows the one that he knows, or another file has its name by now."""
    disk = FaultyDisk()
    path = tmp_path / "q"
    with at_work(path, disk, 12, segment_bytes=6000) as q:
        if renewed:
            (path / "unsynced").touch()
        with WorkQueue.open(path, disk=disk, clock=Ticks(), segment_bytes=6000) as other:
            while not renewed and len(segments(path)) < 2:
                other.enqueue()
            other.enqueue()
            other.enqueue()
            state = other.state
            assert synced(disk)[-1] == "redo"
            q.shut()
            for n, choose in enumerate(every_choice()):
                disk.leave(path, tmp_path / str(n), choose)
                with WorkQueue.open(tmp_path / str(n), clock=Ticks()) as left:
                    assert left.state == state


def test_a_log_that_is_damaged_keeps_nobody_from_shutting(tmp_path: Path) -> None:
    """What it has left in the redo file stays there."""
    q = at_work(tmp_path / "q", RealDisk())
    (file,) = segments(tmp_path / "q")
    file.rename(file.with_suffix(".moved"))
    (tmp_path / "q" / "archived.jsonl").write_text("{garbage\n")
    with pytest.raises(LogDamaged):
        q._log.look()  # type: ignore[union-attr]
    q.shut()
    with pytest.raises(HandleFinished):
        q.enqueue()


def test_a_log_that_is_archived_keeps_nobody_from_shutting(tmp_path: Path) -> None:
    """Another has gone on from there."""
    path = tmp_path / "q"
    q = at_work(path, RealDisk(), 12, segment_bytes=6000)
    with WorkQueue.open(path, segment_bytes=3000) as other:
        other.enqueue("in the next")
        other.archive(tmp_path / "archive")
    q.shut()
    with WorkQueue.open(path) as other:
        assert other.task("in the next")


def test_who_may_not_read_it_is_told_which_file_that_is(tmp_path: Path) -> None:
    """Lines that were answered may stand there. A folder of that name is none of ours."""
    with at_work(tmp_path / "q", RealDisk()) as q:
        state = q.state
        shutil.copytree(q.path or "", tmp_path / "left")
    redo = tmp_path / "left" / "redo"
    redo.unlink()
    redo.symlink_to(redo.name)
    with pytest.raises(OSError, match="symbolic links") as told:
        WorkQueue.open(tmp_path / "left", read_only=True)
    assert told.value.filename == str(redo)
    found = verified(tmp_path / "left")
    assert [(problem.file, problem.fault) for problem in found.problems] == [
        (redo, Fault.NOT_CHECKED)
    ]
    with at_work(tmp_path / "q", RealDisk(), 31) as q:
        (tmp_path / "q" / "redo").unlink()
        (tmp_path / "q" / "redo").symlink_to("redo")
        q._log.look()  # type: ignore[union-attr]
        assert q.enqueue("does without")
    redo.unlink()
    redo.symlink_to("/proc/self/mem")  # which opens, and does not read
    with pytest.raises(OSError, match="Input/output") as told:
        WorkQueue.open(tmp_path / "left", read_only=True)
    assert told.value.filename == str(redo)
    redo.unlink()
    redo.mkdir()
    for read_only in (True, False):
        with WorkQueue.open(tmp_path / "left", read_only=read_only, clock=Ticks()) as left:
            assert left.state == state
            if not read_only:
                assert [left.enqueue(f"on and on {n}") for n in range(5)]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """By who shut, nor by who cannot make the file, or not even the lock."""
    before = os.listdir("/dev/fd")  # noqa: PTH208
    with at_work(tmp_path / "q", RealDisk()):
        pass
    disk = FaultyDisk()
    disk.fail("fsync", error=errno.ENOSPC, times=None)
    with at_work(tmp_path / "other", disk):
        pass
    disk.fail("open", error=errno.EMFILE)
    with pytest.raises(OSError, match="Too many"):
        WorkQueue.open(tmp_path / "third", disk=disk)
    assert os.listdir("/dev/fd") == before  # noqa: PTH208


def test_a_lock_that_another_has_keeps_nobody_from_shutting(tmp_path: Path) -> None:
    """The file stays full then, which harms nobody."""
    q = at_work(tmp_path / "q", RealDisk())
    with WorkQueue.open(tmp_path / "q") as other, other.alone():
        q.shut()
        assert (tmp_path / "q" / "redo").stat().st_size == 2000
    check(tmp_path / "q")


def test_what_stands_there_of_old_is_never_taken_for_new(tmp_path: Path) -> None:
    """After a kill all that was written is in the log, and nothing is put back; nor where another
    log has the name."""
    path = tmp_path / "q"

    def work(tell: Any) -> None:
        q = at_work(path, RealDisk())
        tell(str(q.state.seq))
        os.kill(os.getpid(), 9)

    with children(work) as (child,):
        code, (seq,) = child.end()
    assert code == -9
    before = lines(path)
    assert (path / "redo").stat().st_size == 2000
    with WorkQueue.open(path, read_only=True) as reader:
        assert reader.state.seq == int(seq)
    with WorkQueue.open(path, clock=Ticks()):
        assert lines(path) == before
    with at_work(tmp_path / "other", RealDisk(), 5):
        shutil.copy(path / "redo", tmp_path / "other" / "redo")
        with WorkQueue.open(tmp_path / "other", read_only=True) as reader:
            assert reader.state.seq == 6


def test_the_first_line_of_a_segment_follows_in_no_other(tmp_path: Path) -> None:
    """Where the segment before ends just where the file goes round, and its own is not there."""
    with at_work(tmp_path / "q", RealDisk(), 0, segment_bytes=2000) as q:
        (file,) = segments(tmp_path / "q")
        q.enqueue("x", "")
        size = file.stat().st_size
        q.enqueue("y", "")
        line = file.stat().st_size - size
        q.enqueue("z", "z" * (2000 - file.stat().st_size - line))
        assert file.stat().st_size == 2000
        q.enqueue("next")
        shutil.copytree(tmp_path / "q", tmp_path / "left")
    segments(tmp_path / "left")[1].unlink()
    with WorkQueue.open(tmp_path / "left", clock=Ticks()) as left:
        assert left.state.seq == 4
    assert verified(tmp_path / "left").problems == []


def test_every_line_of_it_that_is_lost_or_flipped_ends_what_is_put_back(tmp_path: Path) -> None:
    """Up to there it is what was written; never anything else."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        before, after = after_a_power_cut(q, disk, tmp_path / "left")
    whole = (tmp_path / "left" / "redo").read_bytes()
    told = set()
    for byte in range(0, 2000, 7):
        (tmp_path / "left" / "redo").write_bytes(whole)
        flipped(tmp_path / "left" / "redo", byte)
        with WorkQueue.open(tmp_path / "left", read_only=True) as left:
            found = [digest_of(line).decode() for line in before]
            assert left.head[1] == found[left.head[0] - 1]
            told.add(left.head[0])
    assert told == set(range(len(after), len(before) + 1))


def test_threads_share_it(tmp_path: Path) -> None:
    """Whoever syncs, syncs for all; while the segment is synced and the file goes round."""
    path = tmp_path / "q"
    with at_work(path, RealDisk()) as q:

        def work(name: int) -> None:
            for n in range(50):
                q.enqueue(f"{name}-{n}", "x" * (7 * n))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert q.state.seq == 231
    check(path)


@pytest.mark.parametrize("step", [333, 3])
def test_the_ring_is_read_as_it_is_written(step: int, tmp_path: Path) -> None:
    """At every offset, whatever goes round in it; and what stands there already stays."""
    (tmp_path / "redo").write_bytes(b"of others")
    redo = Redo(RealDisk(), tmp_path)
    assert (tmp_path / "redo").read_bytes() == b"of others".ljust(2000, b"\0")
    segment = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    text = random.Random(7).randbytes(8000)
    os.pwrite(segment, text, 0)
    for begin, end in pairwise(range(0, 8000, step)):
        redo.write(text[begin:end], begin)
        assert redo.holds(segment, max(0, end - 2000), end)
        if begin > 2000:
            assert not redo.holds(segment, end - 2001, end)
            assert not redo.holds(segment, begin - 2000, begin - 2000 + step)
    assert os.lseek(redo.descriptor, 0, os.SEEK_END) == 2000
    redo.close()
    os.close(segment)


def test_a_batch_is_whole_or_not_there(tmp_path: Path) -> None:
    """One line, in the redo file too."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        seq = q.enqueue_all(Enqueue(f"b{n}") for n in range(5))
        assert len(seq) == 5
        for n in range(3):
            q.complete(q.start("w") or 0)
            disk.leave(tmp_path / "q", tmp_path / str(n), lose_all)
            with WorkQueue.open(tmp_path / str(n), read_only=True) as left:
                assert left.state == q.state


def test_damage_that_is_done_for_a_test_is_done_to_it_as_well(tmp_path: Path) -> None:
    """`eventq.testing.faults`: what a log has lost is lost, also that of a handle at work."""
    disk = FaultyDisk()
    with at_work(tmp_path / "q", disk) as q:
        after_a_power_cut(q, disk, tmp_path / "cut")
        for n, lose in enumerate(
            (lambda p: cut_log(p, log_size(p) - 1000), lambda p: lose_line(p, 31))
        ):
            left = tmp_path / str(n)
            shutil.copytree(tmp_path / "q", left)
            with damaged(left):
                lose(left)
                with WorkQueue.open(left, read_only=True) as reader:
                    assert reader.state.seq < q.state.seq
        with damaged(tmp_path / "cut"):
            lose_line(tmp_path / "cut", 3)
        with WorkQueue.open(tmp_path / "cut", read_only=True) as reader:
            assert reader.state == q.state


def test_a_pipe_in_its_place_is_no_redo_file(tmp_path: Path) -> None:
    # To open one for reading waits for whoever writes to it, and that is nobody.
    at_work(tmp_path / "q", RealDisk()).shut()
    (tmp_path / "q" / "redo").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "q" / "redo")
    verify = [sys.executable, "-m", "eventq", "verify", "--queue", tmp_path / "q"]
    assert subprocess.run(verify, capture_output=True, timeout=60, check=False).returncode == 0
    with WorkQueue.open(tmp_path / "q") as q:
        q.enqueue("one more")
        assert q.task("one more") is not None


def test_what_stands_behind_its_lines_has_to_fit_as_well(tmp_path: Path) -> None:
    """It has the lines that became zeros, but not what was put behind them: that is damage, for
    who verifies and for who opens, and nothing is put back."""
    before, _ = after_a_power_cut(
        at_work(tmp_path / "q", disk := FaultyDisk()), disk, tmp_path / "c"
    )
    file = segments(tmp_path / "c")[-1]
    lacks = file.stat().st_size
    whole = b"".join(before)
    file.write_bytes(whole[:lacks] + bytes(len(whole) - lacks))
    assert verified(tmp_path / "c").head[0] == len(before), "the zeros alone are no damage"
    assert len(verified(tmp_path / "c").notes) == 1, "nor half a line"
    damaged_log = file.read_bytes() + b"x\n"
    file.write_bytes(damaged_log)
    found = verified(tmp_path / "c")
    assert [problem.fault for problem in found.problems] == [Fault.DAMAGED]
    with pytest.raises(LogDamaged) as told:
        WorkQueue.open(tmp_path / "c")
    assert (told.value.seq, told.value.byte) == (len(before) + 1, len(whole))
    assert file.read_bytes() == damaged_log
    with WorkQueue.open(tmp_path / "c", read_only=True) as left:
        assert left.at(len(before)).seq == len(before)
    repair(tmp_path / "c", tmp_path / "copy")
    assert lines(tmp_path / "copy") == before


def test_the_log_goes_on_behind_its_lines(tmp_path: Path) -> None:
    """Whoever asked little has written to the segment alone, behind lines that become zeros: all
    who read find both, and so does who copies."""
    path = tmp_path / "q"
    busy = at_work(path, RealDisk())
    with WorkQueue.open(path, clock=Ticks(), snapshots=False) as q:
        q.enqueue("more")
        head = q.head
    whole, held = lines(path), (path / "redo").read_bytes()
    busy.shut()  # which leaves nothing there
    (path / "redo").write_bytes(held)
    file = segments(path)[-1]
    begin = sum(map(len, whole[:-2]))
    text = file.read_bytes()
    file.write_bytes(text[: begin + 20] + bytes(2) + text[begin + 22 :])
    assert verified(path, head).problems == []
    assert verified(path).head == head
    assert len(verified(path).notes) == 1, "that the segment lacks something, not that it is cut"
    assert [entry.seq for entry in Log(path, read_only=True).entries(1)][-1] == head[0]
    with WorkQueue.open(path, read_only=True) as left:
        assert left.state.seq == head[0]
    hurt = shutil.copytree(path, tmp_path / "hurt")
    with segments(hurt)[-1].open("ab") as end:
        end.write(b"x\n")
    repair(hurt, tmp_path / "copy")
    assert lines(tmp_path / "copy") == whole
    with WorkQueue.open(path) as left:
        assert left.head == head
    assert lines(path) == whole


def test_a_copy_ends_before_a_line_of_it_that_nothing_can_follow_from(tmp_path: Path) -> None:
    before, after = after_a_power_cut(
        at_work(tmp_path / "q", disk := FaultyDisk()), disk, tmp_path / "c"
    )
    assert len(after) < len(before) - 1
    again = body_of(before[1]).replace(b'"seq":2,', b'"seq":%d,' % len(before))
    begin = sum(map(len, before[:-1]))
    ring = bytearray((tmp_path / "c" / "redo").read_bytes())
    for place, byte in enumerate(seal(again, digest_of(before[-2])), begin):
        ring[place % Redo.SIZE] = byte
    (tmp_path / "c" / "redo").write_bytes(ring)
    done = repair(tmp_path / "c", tmp_path / "copy")
    assert done.problem is not None
    assert done.problem.seq == len(before)
    assert lines(tmp_path / "copy") == before[:-1]
