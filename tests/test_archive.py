"""Archiving: what is moved away is said to be, comes back the same, and is never in no place."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk import Ticks, check_chain, cut_lines, lines, log_bytes, segments, tour, untouched
from forked import check, children
from terminal import eventq

from eventq import (
    Archived,
    ArchiveRefused,
    CycleError,
    Enqueue,
    LockTimeout,
    LogDamaged,
    NotAQueue,
    QueueReplaced,
    Retention,
    State,
    WorkQueue,
)
from eventq.core.evolve import evolve
from eventq.storage import archive as archive_module
from eventq.storage.disk import Disk
from eventq.storage.verify import Verification
from eventq.testing.faults import FaultyDisk, lose_all


@pytest.fixture(scope="session")
def toured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("toured") / "q"
    tour(path)
    return path


@pytest.fixture
def queue(toured: Path, tmp_path: Path) -> Path:
    """A queue of several segments, each full but the last."""
    path = tmp_path / "q"
    shutil.copytree(toured, path)
    assert len(segments(path)) > 4
    return path


@pytest.fixture
def attic(tmp_path: Path) -> Path:
    return tmp_path / "attic"


def firsts(path: Path) -> list[int]:
    return [int(file.stem) for file in segments(path)]


def archived(path: Path, attic: Path, **more: Any) -> list[int]:
    """Archive, and say the first seqs of what was moved."""
    with WorkQueue.open(path) as q:
        return [one.first for one in q.archive(attic, **more)]


# Moving away and back.


def test_what_is_archived_comes_back_the_same(queue: Path, attic: Path) -> None:
    """Byte for byte; the queue opens, and goes on, all the while."""
    before, known = log_bytes(queue), firsts(queue)
    with WorkQueue.open(queue) as q:
        state = q.state
        moved = q.archive(attic)
        assert [one.first for one in moved] == known[:-1] == [int(f.stem) for f in files(attic)]
        assert firsts(queue) == known[-1:]
        assert {file.name: file.read_bytes() for file in files(attic)} == {
            name: text for name, text in before.items() if int(name[:20]) != known[-1]
        }
        assert q.state == state
    with WorkQueue.open(queue, by="x") as q:
        assert q.state == state
        q.tick()
        q.pause()
        back = WorkQueue.unarchive(queue)
        assert back == moved[::-1]
    after = log_bytes(queue)
    last = f"{known[-1]:020}.jsonl"
    assert after.pop(last).startswith(before.pop(last))
    assert after == before
    assert eventq("verify", "--queue", queue).code == 0
    check(queue)


def test_another_may_archive_the_same_meanwhile(
    queue: Path, attic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both did what was asked; it is where the first of them has put it."""
    put, known = archive_module._put, firsts(queue)

    def others_first(*asked: Any) -> None:
        put(*asked)
        monkeypatch.setattr(archive_module, "_put", put)
        assert archived(queue, attic) == known[:-1]

    monkeypatch.setattr(archive_module, "_put", others_first)
    with WorkQueue.open(queue) as q:
        q.archive(attic, before=known[1])
    assert firsts(queue) == known[-1:]
    WorkQueue.unarchive(queue)
    assert firsts(queue) == known
    check(queue)


def files(attic: Path) -> list[Path]:
    return sorted(attic.glob("*.jsonl"))


def test_it_can_be_said_how_much_is_archived(queue: Path, attic: Path) -> None:
    """Whole segments alone, the oldest first; what is there stays readable."""
    known = firsts(queue)
    assert archived(queue, attic, keep=len(known)) == []
    assert archived(queue, attic, keep=99) == []
    assert archived(queue, attic, before=known[1] - 1) == []
    assert archived(queue, attic, before=known[1]) == known[:1]
    assert archived(queue, attic, before=known[3] - 1) == known[1:2]
    assert archived(queue, attic, keep=3) == known[2:-3]
    assert archived(queue, attic, keep=0) == known[-3:-1]
    assert firsts(queue) == known[-1:]
    assert [one.first for one in WorkQueue.unarchive(queue, since=known[-3])] == [
        known[-2],
        known[-3],
    ]
    assert firsts(queue) == known[-3:]
    WorkQueue.unarchive(queue)
    assert firsts(queue) == known
    assert WorkQueue.unarchive(queue) == []


def test_only_what_opening_does_not_need_is_archived(
    queue: Path, attic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a fit snapshot nothing is; with an older one, what comes before its segment."""
    known = firsts(queue)
    monkeypatch.setattr(WorkQueue, "snapshot", lambda self: None)
    assert archived(queue, attic) == []
    with WorkQueue.open(queue, segment_bytes=1) as q:
        monkeypatch.undo()
        older = q.snapshot()
        monkeypatch.setattr(WorkQueue, "snapshot", lambda self: None)
        for _ in range(3):
            q.pause()
            q.resume()
        assert [one.first for one in q.archive(attic)] == known[:-1]
        older.write_bytes(older.read_bytes()[:-1])
        assert q.archive(attic) == []
        monkeypatch.undo()
        assert len(q.archive(attic)) > 3


def test_the_archive_is_its_owners_alone(queue: Path, attic: Path) -> None:
    """As the queue is, whatever the umask says."""
    before = os.umask(0)
    try:
        archived(queue, attic)
    finally:
        os.umask(before)
    assert attic.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in attic.iterdir()} == {0o600}
    assert (queue / "archived.jsonl").stat().st_mode & 0o777 == 0o600


# What cannot be answered without it.


def test_history_that_is_archived_is_said_to_be(queue: Path, attic: Path) -> None:
    """Whoever needs it is told which segments to bring back; the rest is answered."""
    with WorkQueue.open(queue) as q:
        entries, states = list(q.entries()), [State()]
        for entry in entries:
            states.append(evolve(states[-1], entry))
    known = firsts(queue)
    moved = archived(queue, attic, keep=2)
    there = known[-2]
    with WorkQueue.open(queue, read_only=True) as q:
        assert list(q.entries(there)) == entries[there - 1 :]
        assert list(q.entries(there + 1)) == entries[there:]
        assert q.at(len(entries)) == states[-1]
        for since in (1, known[2], known[2] + 1, there - 1):
            with pytest.raises(Archived) as caught:
                list(q.entries(since))
            needs = max(first for first in known if first <= since)
            found = [int(Path(file).stem) for file in caught.value.files]
            assert found == [first for first in moved if first >= needs]
            assert (caught.value.first, caught.value.last) == (needs, there - 1)
        for seq in (1, known[1], there - 1, there):
            with pytest.raises(Archived) as caught:
                q.at(seq)
            found = [int(Path(file).stem) for file in caught.value.files]
            assert found == [first for first in moved if first <= seq]
            assert q.at(0) == State()
    assert str(attic / f"{known[0]:020}.jsonl") in str(caught.value)
    command = str(caught.value).split("`")[1]
    assert eventq(*command.split()[1:]).code == 0
    with WorkQueue.open(queue) as q:
        assert [q.at(seq) for seq in range(len(states))] == states


def test_a_snapshot_that_stands_in_what_is_there_answers_for_what_follows(
    queue: Path, attic: Path
) -> None:
    """Not all of the past needs the archive."""
    with WorkQueue.open(queue, segment_bytes=10**6) as q:
        q.snapshot()
        seq = q.state.seq
        q.pause()
        q.resume()
        state = q.state
        assert q.archive(attic)
        assert q.at(seq).seq == seq
        assert q.at(seq + 1).dispatch == "paused"
        assert q.state == state


def test_when_the_snapshots_are_lost_opening_names_the_segments(queue: Path, attic: Path) -> None:
    """As it does when a later eventq knows none of them; and bringing them back helps."""
    with WorkQueue.open(queue) as q:
        state = q.state
    moved = archived(queue, attic)
    shutil.rmtree(queue / "snapshots")
    for read_only in (True, False):
        with pytest.raises(Archived) as caught:
            WorkQueue.open(queue, read_only=read_only)
        assert [int(Path(file).stem) for file in caught.value.files] == moved
    ran = eventq("status", "--queue", queue, "--json")
    assert (ran.code, ran.error["error"]) == (6, "archived")
    assert len(ran.error["files"]) == len(moved)
    assert eventq("unarchive", "--queue", queue).code == 0
    with WorkQueue.open(queue) as q:
        assert q.state == state


def test_the_commands_say_what_is_archived(queue: Path, attic: Path) -> None:
    """Those that need it exit 6, when what there is was shown; `status` and `dlq` answer without,
    and say so."""
    whole = eventq("log", "--queue", queue, "--json").out
    ran = eventq("archive", "--queue", queue, "--to", attic, "--keep", 2, "--json")
    moved = ran.values
    assert (ran.code, moved[0]["first"], moved[0]["to"]) == (0, 1, str(attic))
    gone = moved[-1]["last"]
    there = "\n".join(whole.split("\n")[gone:])
    for words, out in [
        (["log"], there),
        (["log", "-n", len(lines(queue)) + 1], there),
        (["history", "fetch"], ""),
        (["at", gone], ""),
    ]:
        ran = eventq(*words, "--queue", queue, "--json")
        assert (ran.code, ran.error["error"]) == (6, "archived")
        assert ran.out == out
    with WorkQueue.open(queue) as q:
        q.enqueue("late")
        q.cancel("late")
    for words in (["-n", 2], ["--task", "late", "-n", 2]):
        ran = eventq("log", *words, "--queue", queue, "--json")
        assert (ran.code, ran.out.encode()) == (0, b"".join(lines(queue)[-2:]))
    for words in (
        ["log", "--task", "late"],
        ["log", "--task", "late", "-n", 99],
        ["history", "late"],
    ):
        ran = eventq(*words, "--queue", queue)
        assert ran.code == 6
        assert "are archived" in ran.err
        assert ("enqueued" in ran.out, "cancelled" in ran.out) == (True, True)
    whole = whole + "".join(line.decode() for line in lines(queue)[-2:])
    ran = eventq("log", "--queue", queue, "--since", gone + 1, "--json")
    assert (ran.code, ran.out) == (0, "\n".join(whole.split("\n")[gone:]))
    assert eventq("status", "--queue", queue, "--json").value["archived"] == gone
    assert f"entries 1 to {gone}: eventq unarchive" in eventq("status", "--queue", queue).out
    for words in (["dlq"], ["dlq", "--list", "--json"], ["head"], ["at", whole.count("\n")]):
        assert eventq(*words, "--queue", queue).code == 0
    out = eventq("unarchive", "--queue", queue).out.splitlines()
    assert out[-1] == f"{len(moved)} files back in the log"
    assert eventq("log", "--queue", queue, "--json").out == whole


def test_why_answers_without_what_is_archived(tmp_path: Path, attic: Path) -> None:
    """How the root ended is told where it stands in what is there; else the rest is, and exit 6.
    Of an id that the queue does not know, nobody can say that it was never there."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1, retention=Retention(0)) as q:
        for name in ("gone", "early", "late", "below", "off", "under"):
            q.enqueue(name, after={"below": ["late", "early"], "under": ["off"]}.get(name, ()))
        for _ in range(2):
            q.complete(q.start())
        q.cancel("off", why="not needed")
        q.archive(attic, keep=1)
        q.complete(q.start())
    there = len(lines(path))
    found = {}
    for task in ("gone", "early", "late", "under", "never"):
        ran = eventq("why", task, "--queue", path, "--json")
        found[task] = (ran.code, ran.value["message"] if ran.out else ran.error["error"])
    assert there == 3
    assert found == {
        "gone": (6, "archived"),
        "early": (6, "early has succeeded"),
        "late": (0, found["late"][1]),
        "under": (0, found["under"][1]),
        "never": (6, "archived"),
    }
    assert "late has succeeded (entry 1" in found["late"][1]
    assert "under is blocked by off, which was cancelled (entry 1" in found["under"][1]
    assert "not needed" in found["under"][1]


def test_a_lease_that_was_given_in_an_archived_entry_is_shown(tmp_path: Path, attic: Path) -> None:
    """Without its age, which the log knows."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.enqueue("a")
        q.start("w")
        q.pause()
        q.archive(attic)
    (running,) = eventq("status", "--queue", path, "--json").value["running"]
    assert (running["lease"], running["since"], running["age"]) == (3, None, None)
    assert "a" in eventq("status", "--queue", path).out


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("looks", [True, False])
def test_a_handle_that_slept_while_its_segment_was_archived_goes_on(
    looks: bool, read_only: bool, tmp_path: Path
) -> None:
    """As one that is opened then; without a snapshot it is told which segments to bring back."""
    path, attic = tmp_path / "q", tmp_path / "attic"
    with WorkQueue.open(path, segment_bytes=800) as q:
        q.enqueue("a")
        with WorkQueue.open(path, read_only=read_only, segment_bytes=800) as idle:
            for archived_again in (True, False):
                assert idle.state == q.state
                for _ in range(6):
                    q.enqueue()
                assert q.archive(attic)
                if looks:
                    idle._log._look_at = 0  # type: ignore[union-attr]
                if archived_again:
                    assert idle.state == q.state
                    if not read_only:
                        idle.enqueue()
                    continue
                shutil.rmtree(path / "snapshots")
                (path / "snapshots").mkdir()
                for _ in range(2):
                    with pytest.raises(Archived, match="bring back"):
                        _ = idle.state
                WorkQueue.unarchive(path)
                assert idle.state == q.state
    check(path)


@pytest.mark.parametrize("refused", [True, False])
def test_a_handle_that_slept_may_write_at_once(refused: bool, tmp_path: Path, attic: Path) -> None:
    """Its first command finds its segment archived, whatever came of the last one."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=400) as q, WorkQueue.open(path) as idle:
        idle.enqueue("a")
        if refused:
            with pytest.raises(CycleError):
                idle.enqueue_all(
                    [Enqueue("b"), Enqueue("c", after=["d"]), Enqueue("d", after=["c"])]
                )
        for _ in range(6):
            q.enqueue()
        assert q.archive(attic)
        idle.enqueue("e")
        assert idle.state == q.state
    WorkQueue.unarchive(path)
    check(path)


def test_bringing_back_begins_no_queue(tmp_path: Path) -> None:
    """Where there is none, it says so and leaves the place as it is."""
    with pytest.raises(NotAQueue, match="it has no folder `log`"):
        WorkQueue.unarchive(tmp_path / "q")
    assert not (tmp_path / "q").exists()


# Verifying, repairing.


def test_verify_says_what_it_could_not_check_and_checks_the_rest(queue: Path, attic: Path) -> None:
    """Exit 6; what is there must follow from the hash that was recorded."""
    head = eventq("head", "--queue", queue).out.strip()
    with WorkQueue.open(queue, segment_bytes=10**6) as q:
        q.archive(attic, keep=2)
        q.pause()
    ran = eventq("verify", "--queue", queue, "--head", head, "--json")
    assert ran.code == 6
    assert [problem["fault"] for problem in ran.value["problems"]] == ["could not be checked"]
    assert "bring back" in ran.value["problems"][0]["what"]
    told = eventq("verify", "--queue", queue).out
    assert "with eventq unarchive, and verify again" in told
    assert "newer eventq" not in told
    assert (ran.value["intact"], ran.value["complete"], ran.value["legal"]) == (True, True, True)
    out = eventq("verify", "--queue", queue, "--head", f"1:{'0' * 64}").out
    assert "not checked: entry 1, which the head given knows, was not read" in out
    assert "newer eventq" not in out  # that would not help
    record = queue / "archived.jsonl"
    whole = record.read_bytes()
    *others, last = cut_lines(whole)
    wrong = json.loads(last)["hash"].encode()
    record.write_bytes(b"".join(others) + last.replace(wrong, b"0" * 64))
    assert eventq("verify", "--queue", queue).code == 9
    for text in (b"".join(others), b"".join(others[1:]) + last, b""):
        record.write_bytes(text)
        ran = eventq("verify", "--queue", queue, "--json")
        assert ran.code == 9
        assert "begins only with entry" in ran.value["problems"][0]["what"]
    for text in (whole[:-9], whole.replace(b'"to":"', b'"to":"\\u0000')):
        record.write_bytes(text)
        ran = eventq("verify", "--queue", queue, "--json")
        assert ran.code == 9
        assert ran.value["problems"][0]["file"] == str(record)
        ran = eventq("unarchive", "--queue", queue)
        assert ran.code == 9
        assert "Bring back a good copy of it" in ran.err
        assert "eventq repair" not in ran.err
    record.write_bytes(whole)
    WorkQueue.unarchive(queue)
    assert eventq("verify", "--queue", queue, "--head", head).code == 0


def test_damage_behind_the_archive_is_still_damage(queue: Path, attic: Path) -> None:
    """And a head of an archived entry can be given, if it is the last one."""
    known = firsts(queue)
    hashes = [json.loads(line)["hash"] for line in lines(queue)]
    archived(queue, attic, keep=2)
    seq = known[-2] - 1
    ran = eventq("verify", "--queue", queue, "--head", f"{seq}:{hashes[seq - 1]}", "--json")
    assert (ran.code, ran.value["complete"]) == (6, True)
    assert eventq("verify", "--queue", queue, "--head", f"{seq}:{'0' * 64}").code == 8
    ran = eventq("verify", "--queue", queue, "--head", f"{seq - 1}:{hashes[seq - 2]}", "--json")
    assert (ran.code, ran.value["complete"]) == (6, None)
    file = segments(queue)[0]
    file.write_bytes(file.read_bytes().replace(b'"at"', b'"ta"', 1))
    assert eventq("verify", "--queue", queue).code == 9
    ran = eventq("repair", "--queue", queue, "--to", attic / "copy", "--json")
    assert (ran.code, ran.error["error"]) == (6, "archived")


def test_a_segment_that_is_missing_and_was_not_archived_is_damage(queue: Path, attic: Path) -> None:
    """The record excuses what it names, and nothing else."""
    archived(queue, attic, keep=3)
    segments(queue)[0].unlink()
    with WorkQueue.open(queue, read_only=True) as q, pytest.raises((Archived, LogDamaged)):
        list(q.entries())
    WorkQueue.unarchive(queue)
    with WorkQueue.open(queue, read_only=True) as q, pytest.raises(LogDamaged):
        list(q.entries())


# What is not done.


@pytest.mark.parametrize("name", ["log", "snapshots"])
def test_another_queue_is_no_archive(name: str, queue: Path, tmp_path: Path) -> None:
    """It would be damaged by it."""
    WorkQueue.open(tmp_path / "other").shut()
    before = log_bytes(queue)
    with WorkQueue.open(queue) as q, pytest.raises(ArchiveRefused, match="of another queue"):
        q.archive(tmp_path / "other" / name)
    assert log_bytes(queue) == before
    assert eventq("verify", "--queue", tmp_path / "other").code == 0


def test_what_is_brought_back_while_a_log_is_verified_is_no_damage(
    queue: Path, attic: Path
) -> None:
    """Its files were looked for before."""
    archived(queue, attic, keep=2)
    read = Verification(queue)
    WorkQueue.unarchive(queue)
    assert len(list(read.entries())) == len(lines(queue))
    assert read.faults == set()


def test_a_folder_that_cannot_be_recorded_is_no_archive(queue: Path, tmp_path: Path) -> None:
    """The record is UTF-8, and names of files need not be. Nothing is copied there."""
    to = tmp_path / os.fsdecode(b"\xff")
    before = log_bytes(queue)
    ran = eventq("archive", "--queue", queue, "--to", to)
    assert (ran.code, "which the queue's record is" in ran.err) == (3, True)
    assert (log_bytes(queue), to.exists()) == (before, False)


def test_an_archive_is_no_place_in_the_queue_nor_over_something_else(
    queue: Path, attic: Path
) -> None:
    """Nothing is moved then."""
    before = log_bytes(queue)
    attic.mkdir()
    with WorkQueue.open(queue) as q:
        for inside in (queue, queue / "log", queue / "attic", attic / ".." / "q" / "x"):
            with pytest.raises(ArchiveRefused, match="lies in the queue itself"):
                q.archive(inside)
        (attic / f"{1:020}.jsonl").write_bytes(b"mine")
        with pytest.raises(ArchiveRefused, match="is there already, and is not the segment"):
            q.archive(attic)
    assert log_bytes(queue) == before
    ran = eventq("archive", "--queue", queue, "--to", attic, "--json")
    assert (ran.code, ran.error["error"]) == (3, "archive_refused")
    with pytest.raises(ValueError, match="in memory"):
        WorkQueue.in_memory().archive(attic)


def test_a_segment_that_is_damaged_is_not_archived(queue: Path, attic: Path) -> None:
    """It stays where it is, for a person to see."""
    file = segments(queue)[1]
    whole = file.read_bytes()
    with WorkQueue.open(queue) as q:
        for text in (whole.replace(b'"at"', b'"ta"', 1), whole[:-1], b""):
            file.write_bytes(text)
            with pytest.raises(LogDamaged):
                q.archive(attic)
            assert file.read_bytes() == text


def test_what_is_brought_back_must_be_what_was_archived(queue: Path, attic: Path) -> None:
    """Another one, a damaged one or none: nothing is put into the log."""
    moved = archived(queue, attic)
    file = attic / f"{moved[-1]:020}.jsonl"
    whole = file.read_bytes()
    first, *rest = cut_lines(whole)
    log = log_bytes(queue)
    for text in (first, whole[:-1], whole.replace(b'"at"', b'"ta"', 1), b"".join(rest), b""):
        file.write_bytes(text)
        with pytest.raises(ArchiveRefused, match=file.name):
            WorkQueue.unarchive(queue)
        assert log_bytes(queue) == log
    file.unlink()
    with pytest.raises(ArchiveRefused, match="is not there: name the folder where entries"):
        WorkQueue.unarchive(queue)
    ran = eventq("unarchive", "--queue", queue)
    assert ran.code == 3
    assert f"eventq: {file} is not there: " in ran.err
    assert "--from DIR" in ran.err
    elsewhere = attic.rename(attic.with_name("elsewhere"))
    (elsewhere / file.name).write_bytes(whole)
    assert len(WorkQueue.unarchive(queue, elsewhere)) == len(moved)
    check(queue)


def test_a_copy_that_does_not_read_back_is_not_kept(queue: Path, attic: Path) -> None:
    """The segment stays in the log."""

    class Lying(Disk):
        lies = False

        def write_file(self, file: Path, data: bytes, taken: int = os.O_EXCL) -> None:
            super().write_file(file, data.replace(b"a", b"b") if self.lies else data, taken)

    before = log_bytes(queue)
    disk = Lying()
    with WorkQueue.open(queue, disk=disk) as q:
        q.snapshot()
        disk.lies = True
        with pytest.raises(ArchiveRefused, match="does not read back"):
            archive_module.archive(q._log, attic)  # type: ignore[arg-type]
    assert log_bytes(queue) == before
    assert list(attic.iterdir()) == []


def test_nothing_is_taken_from_a_queue_that_was_put_there_meanwhile(
    queue: Path, attic: Path
) -> None:
    """It was moved away and another restored while a segment was copied."""

    class Moving(Disk):
        def rename(self, file: Path, target: Path) -> None:
            super().rename(file, target)
            if target.parent == attic:
                queue.rename(queue.with_name("moved"))
                shutil.copytree(queue.with_name("moved"), queue)

    before = log_bytes(queue)
    with WorkQueue.open(queue, disk=Moving()) as q, pytest.raises(QueueReplaced):
        q.archive(attic)
    assert log_bytes(queue) == log_bytes(queue.with_name("moved")) == before


# Killed on the way.


class Killed(Disk):
    """Kills its process at the nth thing that it is asked to do."""

    def __init__(self, left: int) -> None:
        self.left = left

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _counted(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Killed, *args: Any) -> Any:
        self.count()
        return real(self, *args)

    return call


for _name in ("pwrite", "fsync", "rename", "unlink", "sync_folder", "open", "mkdir"):
    setattr(Killed, _name, _counted(getattr(Disk, _name)))


def test_killed_at_any_step_every_segment_is_in_one_place_at_least(
    queue: Path, attic: Path, tmp_path: Path
) -> None:
    """And the next one goes on from there, to the same end, in either direction."""
    whole, known = log_bytes(queue), firsts(queue)
    with WorkQueue.open(queue) as q:
        state = q.state
        q.snapshot()

    def safe() -> None:
        places = [log_bytes(queue)]
        places += [{f.name: f.read_bytes() for f in files(attic)}] if attic.exists() else []
        for name, text in whole.items():
            assert any(place.get(name) == text for place in places), name
        with WorkQueue.open(queue, read_only=True) as q:
            assert q.state == state
        code = eventq("verify", "--queue", queue).code
        assert code == (0 if firsts(queue)[0] == 1 else 6)

    def go(disk: Killed) -> None:
        left, disk.left = disk.left, 10**9
        with WorkQueue.open(queue, disk=disk) as q:
            disk.left = left
            archive_module.archive(q._log, attic)  # type: ignore[arg-type]

    def back(disk: Killed) -> None:
        log = archive_module.Log(queue, disk=Disk())
        log.disk = disk
        try:
            archive_module.bring_back(log)
        finally:
            log.disk = Disk()
            log.shut()

    for work in (go, back):
        ends: list[int] = []
        while not ends or ends[-1] != 0:
            with children(lambda _: work(Killed(len(ends)))) as (child,):  # noqa: B023
                ends.append(child.end()[0])
            safe()
        assert len(ends) > 10
        assert set(ends[:-1]) == {-signal.SIGKILL}
        assert firsts(queue) == (known[-1:] if work is go else known)
    assert log_bytes(queue) == whole
    check_chain(queue)


def test_archiving_goes_on_while_others_write(tmp_path: Path, attic: Path) -> None:
    """It moves what is closed, and keeps the lock for no copy."""
    path = tmp_path / "q"
    with (
        WorkQueue.open(path, segment_bytes=400, clock=Ticks()) as q,
        WorkQueue.open(path, segment_bytes=400, clock=Ticks()) as other,
    ):
        for i in range(6):
            q.enqueue(f"a{i}")
            other.enqueue(f"b{i}")
            assert q.archive(attic)
            other.enqueue(f"c{i}")
        assert q.state == other.state
    with untouched(path), WorkQueue.open(path, read_only=True) as q:
        assert q.state.seq == 19
    WorkQueue.unarchive(path)
    check(path)


def test_verify_counts_what_it_has_read_and_judged(tmp_path: Path, attic: Path) -> None:
    """Not what is archived, nor what stands before the snapshot that it judged from."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1, snapshots=False) as q:
        for n in range(4):
            q.enqueue(f"before-{n}")
        q.archive(attic, keep=2)  # with a snapshot after entry 5
        q.enqueue("behind")
    value = eventq("verify", "--queue", path, "--json").value
    assert (value["entries"], value["archived"], value["judged"]) == (6, 3, 1)
    out = eventq("verify", "--queue", path).out
    assert "intact    yes: 3 entries from entry 4 on in 3 files\n" in out
    assert "legal     yes from entry 6 on: 2 events\n" in out


@pytest.mark.parametrize("broken", [2, 3])
def test_an_archive_that_broke_off_lasts_when_it_is_made_again(tmp_path: Path, broken: int) -> None:
    """Whatever the first one had made and not synced: its folder, a segment in it."""
    top, left, disk = tmp_path / "top", tmp_path / "left", FaultyDisk()
    top.mkdir()
    with WorkQueue.open(top / "q", segment_bytes=1, disk=disk) as q:
        for n in range(5):
            q.enqueue(f"t{n}")
        disk.fail("sync_folder", broken)
        with pytest.raises(OSError, match="Input"):
            q.archive(top / "attic", keep=5)
        moved = q.archive(top / "attic", keep=5)
        head = q.head
        disk.leave(top, left, lose_all)
    assert len(moved) == 1
    WorkQueue.unarchive(left / "q", left / "attic")
    assert len(lines(left / "q")) == head[0]
    check_chain(left / "q")


def test_who_brings_back_has_the_lock_from_the_copy_on(
    tmp_path: Path, attic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who archives the segment anew, between its copy and its record, would take the file
    away, and its record would be taken away then."""
    path = tmp_path / "q"
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.enqueue("a")
        q.archive(attic)
    put, refused = archive_module._put, []

    def late(log: Any, text: bytes, target: Path) -> None:
        with pytest.raises(LockTimeout) as told:
            WorkQueue.open(path, lock_timeout=0.01)
        refused.append(told)
        put(log, text, target)

    monkeypatch.setattr(archive_module, "_put", late)
    assert len(WorkQueue.unarchive(path)) == len(refused) > 0
    check_chain(path)


def test_a_copy_that_somebody_made_is_synced_before_it_counts(tmp_path: Path, attic: Path) -> None:
    """It may never have reached the disk, and the segment itself is about to go."""
    path, disk = tmp_path / "q", FaultyDisk()
    with WorkQueue.open(path, segment_bytes=1, disk=disk) as q:
        q.enqueue("a")
        first = segments(path)[0]
        attic.mkdir()
        shutil.copy(first, attic)
        (moved,) = q.archive(attic)
    calls = [(call.name, call.file) for call in disk.calls]
    assert moved.name == first.name
    assert calls.index(("fsync", first.name)) < calls.index(("unlink", first.name))
