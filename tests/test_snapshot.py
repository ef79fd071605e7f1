"""Snapshots: the same state from fewer lines, or none at all; never another state."""

from __future__ import annotations

import hashlib
import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest
from disk import FIXTURES, Disk, Ticks, check_chain, copied, cut_lines, segments, tour, untouched
from ledger import Walk, told
from terminal import eventq

from eventq import (
    BadValue,
    Capacity,
    LinesLost,
    LogDamaged,
    ReadOnly,
    Retention,
    Retry,
    State,
    WorkQueue,
)
from eventq.core import events as e
from eventq.core.commands import Command, EnqueueAll
from eventq.core.evolve import replay
from eventq.storage import snapshot as module
from eventq.storage.payload import to_json
from eventq.storage.segments import Cursor
from eventq.storage.snapshot import load, save, snapshot_path, snapshots
from eventq.storage.verify import Fault, Verification

VALUES: list[Any] = [None, 0, 1.5, "\u2028\n\x00", [], {"b": 1, "a": [None, True]}, "null"]


class JsonWalk(Walk):
    """A random queue whose payloads and results are JSON texts, as on disk."""

    def command(self) -> Command:
        command = super().command()
        if isinstance(command, EnqueueAll):
            return EnqueueAll(map(self._as_json, command.tasks))
        asked: Command = self._as_json(command)
        return asked

    def _as_json(self, command: Any) -> Any:
        for field in ("payload", "result"):
            if hasattr(command, field):
                value = to_json("it", self.rng.choice(VALUES))
                command = attrs.evolve(command, **{field: value})
        return command


def cursor_at(folder: Path, seq: int) -> Cursor:
    cursor = Cursor(folder, 1)
    cursor.offset, cursor.seq, cursor.lines = 12_345, seq, seq
    cursor.hash = hashlib.sha256(str(seq).encode()).hexdigest().encode()
    return cursor


@pytest.mark.parametrize("seed", range(12))
def test_a_state_comes_back_from_its_snapshot(seed: int, tmp_path: Path) -> None:
    """Whatever the queue has been through: equal in all that can be asked, and in what follows."""
    policy: dict[str, Any] = {
        "retry": Retry(max_attempts=2, max_redrives=1, max_releases=1),
        "retention": Retention(seed % 4) if seed % 2 else None,
        "capacity": Capacity(6, "unresolved") if seed % 3 == 0 else None,
        "pool": ["w0", "w1", "w2"] if seed % 5 == 0 else None,
    }
    walk = JsonWalk(seed, **policy)
    for _ in range(12):
        state = walk.walk(20).state
        cursor = cursor_at(tmp_path / "log", state.seq)
        path = save(tmp_path, state, cursor)
        assert path == snapshot_path(tmp_path, state.seq)
        loaded = load(tmp_path, state.seq, tmp_path / "log")
        assert loaded is not None
        again, place = loaded
        assert again == state
        assert told(again) == told(state)
        again.check()
        for field in Cursor.__slots__:
            assert getattr(place, field) == getattr(cursor, field)
    before, seq = again, again.seq
    entries = walk.walk(60).entries[seq:]
    assert told(replay(before, entries)) == told(walk.ledger.state)


def test_every_status_and_field_is_kept(tmp_path: Path) -> None:
    """Those that nothing can reach yet, too: a delay, an expiry, a key, a pause."""
    at = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)
    walk = JsonWalk(0)
    ledger = walk.ledger
    for events in (
        [e.Enqueued("delayed", None, (), "k", 5, at), e.Delayed("delayed", at + timedelta(1))],
        [e.Enqueued("out", to_json("it", [1])), e.Readied("out")],
        [e.Started("out", 1, "w", at), e.Renewed("out", at + timedelta(seconds=9))],
        [e.Enqueued("done"), e.Readied("done"), e.Started("done", 1)],
        [e.Completed("done", to_json("it", {}))],
        [e.Enqueued("by hand"), e.Cancelled("by hand", "x"), e.Resolved("by hand")],
        [e.Enqueued("late", None, ("out",)), e.Paused(), e.Closed()],
        [e.Reconfigured(attrs.evolve(ledger.state.policy, pool=["v", "w"]))],
    ):
        ledger.fold(*events)
    state = ledger.state
    save(tmp_path, state, cursor_at(tmp_path, state.seq))
    loaded = load(tmp_path, state.seq, tmp_path)
    assert loaded is not None
    assert told(loaded[0]) == told(state)
    assert loaded[0].running() == state.running()


def small(folder: Path) -> tuple[State, bytes]:
    """A state with two tasks, and the bytes of its snapshot."""
    ledger = JsonWalk(0).ledger
    ledger.tasks(a="", b="a")
    ledger.start("w")
    state = ledger.state
    return state, save(folder, state, cursor_at(folder, state.seq)).read_bytes()


def test_no_flipped_bit_gives_another_state(tmp_path: Path) -> None:
    """A snapshot that was changed is passed over."""
    state, text = small(tmp_path)
    path = snapshot_path(tmp_path, state.seq)
    with path.open("r+b", buffering=0) as file:
        for byte in range(len(text)):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([text[byte] ^ 1 << bit]), byte)
                assert load(tmp_path, state.seq, tmp_path) is None
            os.pwrite(file.fileno(), text[byte : byte + 1], byte)
    assert load(tmp_path, state.seq, tmp_path) is not None


def test_no_part_of_a_snapshot_is_taken_for_it(tmp_path: Path) -> None:
    """Cut anywhere, with lines lost, doubled or exchanged, or with more behind it."""
    state, text = small(tmp_path)
    path = snapshot_path(tmp_path, state.seq)
    head, one, two = cut_lines(text)
    others = [text[:size] for size in range(len(text))]
    others += [head + one, head + two, head + two + one, head + one + one + two, one + two]
    others += [text + b"\n", text + two, text + b"\0", b"\n" + text, text.replace(b"\n", b"\r\n")]
    for other in others:
        path.write_bytes(other)
        assert load(tmp_path, state.seq, tmp_path) is None
    path.unlink()
    assert load(tmp_path, state.seq, tmp_path) is None


def resealed(text: bytes, **changes: Any) -> bytes:
    """The snapshot with other values in its head, and a checksum that fits."""
    first, rows = text.split(b"\n", 1)
    head = json.loads(first) | changes | {"checksum": ""}
    bare = json.dumps(head, separators=(",", ":")).encode()
    head["checksum"] = hashlib.sha256(bare + b"\n" + rows).hexdigest()
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + rows


@pytest.mark.parametrize(
    "changes",
    [
        {"reducer": 2},
        {"reducer": 0},
        {"reducer": "1"},
        {"seq": 5},
        {"policy": {"mood": "good"}},
        {"policy": {"capacity": {"limit": -1}}},
        {"policy": {"retry": None}},
        {"policy": {"pool": "abc"}},
        {"at": "noon"},
        {"offset": "12"},
        {"mood": "good"},
    ],
)
def test_a_snapshot_of_another_eventq_is_passed_over(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """One with another reducer, or with what this one does not know; its checksum fits."""
    state, text = small(tmp_path)
    path = snapshot_path(tmp_path, state.seq)
    path.write_bytes(resealed(text))
    assert load(tmp_path, state.seq, tmp_path) is not None
    path.write_bytes(resealed(text, **changes))
    assert load(tmp_path, state.seq, tmp_path) is None
    path.write_bytes(text.replace(b"{", b'{"mood":"good",', 1))  # nor one that it does not cover
    assert load(tmp_path, state.seq, tmp_path) is None


def test_snapshots_are_found_by_name(tmp_path: Path) -> None:
    """The newest first; other files are none of ours."""
    for name in (f"{7:020}.jsonl", f"{30:020}.jsonl", "8.jsonl", f"{9:020}.tmp", "README"):
        (tmp_path / name).touch()
    assert snapshots(tmp_path) == [30, 7]
    assert snapshots(tmp_path / "missing") == []


# Opening from one.


@pytest.fixture
def toured(tmp_path: Path) -> tuple[Path, State]:
    """A queue of many segments with a snapshot in its midst, and its state."""
    path = tmp_path / "q"
    tour(path)
    with WorkQueue.open(path, clock=Ticks(datetime(2026, 12, 1, tzinfo=UTC))) as q:
        made = q.snapshot()
        assert made == snapshot_path(path / "snapshots", 57)
        q.enqueue("new", {"n": 1})
        q.close()
        state = q.state
    return path, state


def test_a_queue_opens_from_its_snapshot_and_the_tail(toured: tuple[Path, State]) -> None:
    """What stands before is not read: not even when it is damaged, or has been moved away."""
    path, state = toured
    assert len(segments(path)) == 7
    for file in segments(path)[:-1]:
        file.chmod(0o600)
        file.write_bytes(b"not a line\n")
    for step in ("damaged", "gone"):
        for read_only in (True, False):
            with WorkQueue.open(path, read_only=read_only) as q:
                assert q.state == state, step
                assert told(q.state) == told(state)
                assert q.at(57).seq == 57
                assert q.at(58).seq == 58
                q.state.check()
        for file in segments(path)[:-1]:
            file.unlink()
    with WorkQueue.open(path) as q:
        q.reopen()
        assert q.state.seq == 60


def test_a_state_from_a_snapshot_is_that_of_the_whole_log(toured: tuple[Path, State]) -> None:
    """At its seq and at all later ones, and with what is appended then."""
    path, state = toured
    with WorkQueue.open(path) as q:
        entries = list(q.entries())
        for seq in range(50, 60):
            assert told(q.at(seq)) == told(replay(State(), entries[:seq]))
        assert told(q.state) == told(state) == told(replay(State(), entries))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "foreign", "folder"])
def test_a_damaged_snapshot_is_passed_over_for_an_older_one_or_the_log(
    damage: str, toured: tuple[Path, State]
) -> None:
    """And nothing is lost by it, nor is anything said."""
    path, state = toured
    newest = snapshot_path(path / "snapshots", 57)
    text = newest.read_bytes()
    other = copied(FIXTURES / "good", path.parent / "other")
    with WorkQueue.open(other) as q:
        foreign = q.snapshot().read_bytes()
    newest.unlink()
    if damage == "folder":
        newest.mkdir()
    else:
        wrong = {"cut": text[:-5], "flipped": text.replace(b"slow", b"slew"), "empty": b""}
        newest.write_bytes(wrong.get(damage, foreign))
        assert newest.read_bytes() != text
    with WorkQueue.open(path, read_only=True) as q:
        assert q.state == state
        assert q.at(58).seq == 58


@pytest.mark.parametrize("fit", [True, False])
def test_a_snapshot_ahead_of_its_log_means_lost_lines(
    fit: bool, toured: tuple[Path, State]
) -> None:
    """A log cut between two lines looks whole; the snapshot knows better, and how many. So much
    its name says, though what it holds is of another eventq, or damaged."""
    path, _ = toured
    with WorkQueue.open(path) as q:
        newest = q.snapshot()
    if not fit:
        newest.write_bytes(b"")
    file = segments(path)[-1]
    all_lines = cut_lines(file.read_bytes())
    for count in range(1, len(all_lines)):
        file.write_bytes(b"".join(all_lines[:-count]))
        with untouched(path):
            for read_only in (True, False):
                with pytest.raises(LinesLost, match=f": {count} entr") as caught:
                    WorkQueue.open(path, read_only=read_only)
                assert caught.value.lost == count
                assert f"ends with entry {59 - count}," in str(caught.value)
    file.unlink()
    with pytest.raises(LinesLost):
        WorkQueue.open(path, read_only=True)
    for file in segments(path):
        file.unlink()
    with pytest.raises(LinesLost) as caught:
        WorkQueue.open(path)
    assert caught.value.lost == 59
    assert "eventq repair" not in str(caught.value), "of nothing no copy can be made"
    for kept in (path / "snapshots").glob("*.jsonl"):
        kept.unlink()
    with WorkQueue.open(path) as q:
        assert q.state.seq == 1


def test_half_a_line_less_is_a_lost_line_too(toured: tuple[Path, State]) -> None:
    """A torn tail is mended only where no snapshot rests on it; only a newline is put back."""
    path, state = toured
    with WorkQueue.open(path) as q:
        q.snapshot()
    file = segments(path)[-1]
    text = file.read_bytes()
    file.write_bytes(text[:-2])
    with untouched(path), pytest.raises(LinesLost, match="1 entr"):
        WorkQueue.open(path)
    file.write_bytes(text[:-1])
    with WorkQueue.open(path) as q:
        assert q.state == state
    assert file.read_bytes() == text


def test_a_first_line_that_lacks_only_its_newline_is_not_counted_as_lost(
    toured: tuple[Path, State],
) -> None:
    """Nor where it is the first of a file, which alone does not say what it follows from."""
    path, _ = toured
    with WorkQueue.open(path) as q:
        q.snapshot()
    file = segments(path)[-1]
    first, *rest = cut_lines(file.read_bytes())
    file.write_bytes(first[:-1])
    with pytest.raises(LinesLost) as caught:
        WorkQueue.open(path)
    assert caught.value.lost == len(rest) > 0


def test_damage_where_a_snapshot_was_taken_leaves_what_stands_before(tmp_path: Path) -> None:
    """Whether the log reaches so far cannot be seen, and is not asked: who opens it reads on from
    an older snapshot, or from the first line, and is told of the damage."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        for name in "abc":
            q.enqueue(name)
        q.snapshot()
    file = segments(path)[0]
    text = file.read_bytes()
    file.write_bytes(text[:-5] + bytes([text[-5] ^ 1]) + text[-4:])
    with pytest.raises(LogDamaged) as told:
        WorkQueue.open(path)
    assert told.value.seq == 4
    with WorkQueue.open(path, read_only=True) as reader:
        assert [task.id for task in reader.at(3).tasks()] == ["a", "b"]
        with pytest.raises(LogDamaged):
            _ = reader.state


def test_snapshots_that_cannot_be_looked_for_are_not_taken_for_none(tmp_path: Path) -> None:
    """A log that was cut would be taken for a whole one: as where their folder may not be read."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        q.enqueue("a")
    (path / "snapshots").rmdir()
    (path / "snapshots").touch()
    with pytest.raises(NotADirectoryError, match="snapshots"):
        WorkQueue.open(path, read_only=True)
    assert eventq("verify", "--queue", path).code == 6


# Taking one.


def test_the_log_is_synced_before_a_snapshot_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the entry that it was taken after; then the snapshot, then its name."""
    path = tmp_path / "q"
    disk = Disk(monkeypatch)
    with WorkQueue.open(path) as q, WorkQueue.open(path) as other:
        other._log.sync = lambda seq: None  # type: ignore[method-assign]  # killed before it
        other.enqueue("a")
        real = os.rename

        def rename(file: Path, target: Path) -> None:
            disk.did.append(("rename", target.name))
            real(file, target)

        monkeypatch.setattr(os, "rename", rename)
        disk.did.clear()
        q.snapshot()
        assert [call for call, _ in disk.did] == ["fdatasync", "pwrite", "fsync", "rename", "fsync"]
        assert [name for _, name in disk.did][3:] == [f"{2:020}.jsonl", "snapshots"]


def test_snapshots_are_taken_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When enough was written since the last; unless the handle was told not to."""
    monkeypatch.setattr("eventq.handle.SNAPSHOT_BYTES", 2000)
    monkeypatch.setattr("eventq.handle.TASK_BYTES", 10)
    for name, wanted in (("with", True), ("without", False)):
        path = tmp_path / name
        with WorkQueue.open(path, snapshots=wanted, segment_bytes=3000) as q:
            for _ in range(60):
                q.enqueue()
            state = q.state
        taken = snapshots(path / "snapshots")
        assert bool(taken) == wanted
        assert len(taken) < 20
        for seq in taken:
            loaded = load(path / "snapshots", seq, path / "log")
            assert loaded is not None
            with WorkQueue.open(path, read_only=True) as q:
                assert told(loaded[0]) == told(replay(State(), list(q.entries())[:seq]))
                assert q.state == state


def test_threads_may_take_the_same_snapshot(tmp_path: Path) -> None:
    """Each writes aside, under a name of its own."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        for _ in range(3):
            q.enqueue()
        with ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda _: q.snapshot(), range(64)))
        assert set(made) == {snapshot_path(path / "snapshots", 4)}
        assert [file.name for file in (path / "snapshots").iterdir()] == [f"{4:020}.jsonl"]
        assert load(path / "snapshots", 4, path / "log") is not None


def test_who_may_take_no_snapshot(tmp_path: Path) -> None:
    """A reader, and a queue in memory."""
    tour(tmp_path / "q")
    with (
        untouched(tmp_path),
        WorkQueue.open(tmp_path / "q", read_only=True) as q,
        pytest.raises(ReadOnly),
    ):
        q.snapshot()
    with pytest.raises(BadValue, match="in memory"):
        WorkQueue.in_memory().snapshot()


def test_a_snapshot_goes_on_in_the_right_segment(tmp_path: Path) -> None:
    """Also when it was taken just before, or just behind, the roll to the next."""
    path = tmp_path / "q"
    rng = random.Random(1)
    state = State()
    for i in range(12):
        with WorkQueue.open(path, segment_bytes=700) as q:
            assert state in (State(), q.state)
            for j in range(rng.randint(0, 3)):
                q.enqueue(f"t{i}.{j}")
            q.snapshot()
            state = q.state
    assert len(check_chain(path)) == state.seq
    assert module.REDUCER == 1


def test_a_snapshot_with_other_holders_of_keys_is_damage(tmp_path: Path) -> None:
    """They follow from no task alone, so that a state is not the same without them."""
    with WorkQueue.open(tmp_path) as q:
        for name in ("first", "second"):
            q.enqueue(name, key="k")
        q.start()
        snapshot = q.snapshot()
    for holders, faults in ({"k": "first"}, set()), ({"k": "second"}, {Fault.DAMAGED}):
        snapshot.write_bytes(resealed(snapshot.read_bytes(), holders=holders))
        found = Verification(tmp_path)
        for entry in found.entries():
            if entry.seq in found.snapshots:
                found.check_snapshot(entry.seq, folded(tmp_path, entry.seq))
        assert found.faults == faults


def folded(path: Path, seq: int) -> State:
    """What the lines of the log give, whatever snapshots say."""
    return replay(State(), islice(Cursor(path / "log").forward(), seq))


def test_a_snapshot_that_is_nested_without_end_is_passed_over(tmp_path: Path) -> None:
    """As any that cannot be read."""
    with WorkQueue.open(tmp_path) as q:
        q.enqueue("a", "payload")
        snapshot = q.snapshot()
    deep = b"[" * 100_000 + b"]" * 100_000
    snapshot.write_bytes(resealed(snapshot.read_bytes().replace(b'"payload"', deep)))
    assert load(tmp_path / "snapshots", 2, tmp_path / "log") is None
