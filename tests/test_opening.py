"""Opening a queue: where one is begun and where none is, what may be told, and letting go of it."""

from __future__ import annotations

import contextlib
import os
import stat
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, check_chain, copied, lines, segments, untouched

from eventq import (
    BadValue,
    Capacity,
    HandleFinished,
    NotAQueue,
    Retention,
    Retry,
    WorkQueue,
)


@pytest.mark.parametrize("size", [600, 10**6])
def test_only_the_owner_may_look(size: int, tmp_path: Path) -> None:
    """Folders 0700 and files 0600, but for full segments, which nobody writes any more."""
    path = tmp_path / "q"
    before = os.umask(0)
    try:
        with WorkQueue.open(path, segment_bytes=size) as q:
            for _ in range(4):
                q.enqueue()
            q.snapshot()
        with segments(path)[-1].open("ab") as file:
            file.write(b"half a line")
        WorkQueue.open(path).shut()
    finally:
        os.umask(before)
    found = {file: stat.S_IMODE(file.stat().st_mode) for file in [path, *path.rglob("*")]}
    assert {file.name for file in path.iterdir()} == {"lock", "log", "snapshots", "torn"}
    assert all(mode == 0o700 for file, mode in found.items() if file.is_dir())
    files = {file: mode for file, mode in found.items() if file.is_file()}
    assert set(files.values()) == {0o600}, files


def test_a_directory_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    """It is no queue, and none is begun in it."""
    (tmp_path / "thesis.tex").write_text("chapter 1")
    with untouched(tmp_path):
        for read_only in (False, True):
            with pytest.raises(NotAQueue, match=r"is not a queue: it has no folder"):
                WorkQueue.open(tmp_path, read_only=read_only)
    with pytest.raises(NotAQueue, match=r"thesis\.tex"):
        WorkQueue.open(tmp_path)
    with pytest.raises(FileNotFoundError):
        WorkQueue.open(tmp_path, read_only=True)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"path": "a\0b"}, r"must not hold the character '\\0', as 'a\\x00b' does"),
        ({"path": "a\ud800"}, r"cannot be 'a\\ud800': .* surrogates not allowed"),
        ({"path": 5}, "the path of a queue must be a text or a path, not 5"),
        ({"path": b"q"}, "must be a text or a path"),
        ({"clock": 5}, "clock must be a function that gives the time, not 5"),
        ({"clock": lambda: 5.0}, "the clock gives must be a datetime with its time zone, not 5.0"),
        *(({"lock_timeout": bad}, "lock_timeout must be") for bad in (-5, "x", float("nan"), True)),
        *(({"size_limit": bad}, "size_limit must be") for bad in (0, "1", 1.5, None, True)),
        *(({"segment_bytes": bad}, "segment_bytes must be") for bad in (0, "1", 1.5, None, True)),
    ],
)
def test_what_no_queue_can_be_opened_with_is_a_bad_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: Any, why: str
) -> None:
    """It says what is wanted, and begins no queue."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadValue, match=why):
        WorkQueue.open(**{"path": "q", **bad})
    assert not list(tmp_path.rglob("*.jsonl"))
    assert callable(bad.get("clock")) or not list(tmp_path.iterdir())


def test_a_folder_for_the_archive_is_looked_at_first(tmp_path: Path) -> None:
    """What can be no path is told so, and nothing is moved."""
    with WorkQueue.open(tmp_path / "q") as q, pytest.raises(BadValue, match=r"^to must be a text"):
        q.archive(5)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match=r"^source must not hold"):
        WorkQueue.unarchive(tmp_path / "q", "\0")


def test_a_clock_that_goes_wrong_later_is_told_so(tmp_path: Path) -> None:
    """As when the queue is opened; also to who asks how far it is behind."""
    times: list[Any] = [datetime.now(UTC)]
    with WorkQueue.open(tmp_path, clock=lambda: times[-1]) as q:
        for wrong in (5, datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))):
            times.append(wrong)
            for ask in (q.enqueue, lambda: q.clock_behind):
                with pytest.raises(BadValue, match="clock gives"):
                    ask()


def test_a_file_is_no_queue(tmp_path: Path) -> None:
    """Nor is a place below one."""
    file = tmp_path / "file"
    file.write_text("text")
    with untouched(tmp_path):
        for read_only in (False, True):
            with pytest.raises(NotAQueue):
                WorkQueue.open(file, read_only=read_only)
            with pytest.raises(OSError, match="file"):
                WorkQueue.open(file / "q", read_only=read_only)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "log").write_text("not a folder")
    for read_only in (False, True):
        with pytest.raises(NotAQueue):
            WorkQueue.open(tmp_path / "q", read_only=read_only)


def test_reading_does_not_begin_a_queue(tmp_path: Path) -> None:
    """What is not there, or was never opened, is no queue."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "log").mkdir(parents=True)
    with untouched(tmp_path):
        for name in ("missing", "empty", "bare", "missing/below"):
            with pytest.raises(NotAQueue):
                WorkQueue.open(tmp_path / name, read_only=True)


def test_a_queue_is_begun_where_there_is_none(tmp_path: Path) -> None:
    """In a new directory, however deep, in an empty one, and where only the first steps were made
    before a crash."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "log").mkdir(parents=True)
    (tmp_path / "touched" / "log").mkdir(parents=True)
    (tmp_path / "touched" / "log" / f"{1:020}.jsonl").touch()
    for name in ("new", "a/b/c", "empty", "bare", "touched"):
        with WorkQueue.open(tmp_path / name) as q:
            q.enqueue("t")
            assert q.path == tmp_path / name
            assert q.snapshot().exists()
        with WorkQueue.open(str(tmp_path / name)) as q:
            assert q.task("t") is not None


def test_a_queue_without_a_folder_for_snapshots_is_whole(tmp_path: Path) -> None:
    """A copy that carries no empty folders is one, and what it lacks is made again."""
    path = copied(FIXTURES / "short", tmp_path / "q")
    (path / "snapshots").rmdir()
    with WorkQueue.open(path) as q:
        assert q.snapshot().exists()


def test_a_handle_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the process goes to work in another directory, where a queue has the same name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    WorkQueue.open("q").shut()
    monkeypatch.chdir(tmp_path / "here")
    with WorkQueue.open("q", segment_bytes=1) as q:
        monkeypatch.chdir(tmp_path / "there")
        for name in "abc":
            q.enqueue(name)
        assert [entry.seq for entry in q.entries()] == [1, 2, 3, 4]
        q.snapshot()
    assert len(check_chain(tmp_path / "here" / "q")) == 4
    assert len(lines(tmp_path / "there" / "q")) == 1


def test_other_files_beside_the_segments_are_none_of_ours(tmp_path: Path) -> None:
    """Only names of twenty digits count."""
    path = copied(FIXTURES / "good", tmp_path / "q")
    for name in ("README", "1.jsonl", f"{2:020}.jsonl~", f"{2:020}.json", f"x{2:019}.jsonl"):
        (path / "log" / name).write_text("not a line")
    with WorkQueue.open(path) as q:
        assert q.state.seq == 57


# What is told at opening.


def test_what_is_not_told_is_taken_from_the_log(tmp_path: Path) -> None:
    """And what is told again may be told as it is."""
    given = {
        "capacity": Capacity(5, "unresolved"),
        "pool": ["w1", "w2"],
        "retry": Retry(2, None, 1),
        "retention": Retention(7),
    }
    with WorkQueue.open(tmp_path / "q", **given) as q:  # type: ignore[arg-type]
        policy = q.policy
    for told in ({}, given, *({name: value} for name, value in given.items())):
        with WorkQueue.open(tmp_path / "q", **told) as q:  # type: ignore[arg-type]
            assert q.policy == policy
            assert q.state.seq == 1


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"capacity": Capacity(6)}, r"capacity of this queue is Capacity\(limit=5.*, not Cap"),
        ({"capacity": None}, r"capacity of this queue is Capacity\(limit=5.*, not None"),
        ({"pool": ["w2", "w1"]}, r"pool of this queue is \('w1', 'w2'\), not \('w2', 'w1'\)"),
        ({"pool": None}, "pool of this queue is .*, not None"),
        ({"retry": Retry(4)}, "retry of this queue is .*max_attempts=3.*, not .*max_attempts=4"),
        ({"retention": Retention(0)}, "retention of this queue is None, not .*count=0"),
        ({"retry": Retry(4)}, "leave it out to open the queue as it is, or .* with `reconfigure`"),
    ],
)
def test_what_differs_from_the_log_is_refused(
    told: dict[str, object], words: str, read_only: bool, tmp_path: Path
) -> None:
    """Naming the difference; and nothing is changed."""
    WorkQueue.open(tmp_path / "q", capacity=Capacity(5), pool=["w1", "w2"]).shut()
    with untouched(tmp_path), pytest.raises(BadValue, match=words):
        WorkQueue.open(tmp_path / "q", read_only=read_only, **told)  # type: ignore[arg-type]


# Letting go.


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_handle_that_was_shut_answers_nothing_more(tmp_path: Path) -> None:
    """Shutting it twice is harmless; the queue goes on without it, and no file stays open."""
    path = tmp_path / "q"
    before = open_files()
    for read_only in (False, True):
        WorkQueue.open(path).shut()
        q = WorkQueue.open(path, read_only=read_only)
        q.shut()
        q.shut()
        with q:
            pass
        with untouched(path):
            for ask in (
                lambda q: q.enqueue("a"),
                lambda q: q.enqueue_all([]),
                lambda q: q.start(),
                lambda q: q.complete(1),
                lambda q: q.complete_and_start(1),
                lambda q: q.close(),
                lambda q: q.tick(),
                lambda q: q.state,
                lambda q: q.policy,
                lambda q: q.task("a"),
                lambda q: q.head,
                lambda q: q.dead_letters(),
                lambda q: list(q.entries()),
                lambda q: q.at(1),
                lambda q: q.clock_behind,
                *([] if read_only else [WorkQueue.snapshot]),
            ):
                with pytest.raises(HandleFinished, match="answers nothing more: it was shut"):
                    ask(q)
        assert str(path) in repr(q)
    assert open_files() == before


def test_a_block_that_fails_lets_go_of_the_files(tmp_path: Path) -> None:
    """And of nothing else: what was done stays done."""
    q = WorkQueue.open(tmp_path / "q")
    with contextlib.suppress(ZeroDivisionError), q:
        q.enqueue("a")
        _ = 1 // 0
    with pytest.raises(HandleFinished):
        q.enqueue("b")
    with WorkQueue.open(tmp_path / "q") as q:
        assert [task.id for task in q.state.tasks()] == ["a"]
