"""`eventq repair`: a copy of a damaged queue up to its damage, and the truth about the rest."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, copied, cut_lines, digest_of, lines, segments, untouched
from terminal import eventq, nightly

from eventq import EventqError, LogDamaged, WorkQueue
from eventq.storage import repair as repair_module
from eventq.storage.repair import repair

SHORT = FIXTURES / "short"

WELL = ("good", "short", "torn", "zeros", "newline-missing", "newline-damaged")

NOTHING_BEFORE = ("first-segment-lost", "crlf", "bom")

MENDED: dict[str, tuple[int, int, int | None, int, int]] = {
    # entries copied, lost as far as known, the last of them, lines behind, those that say nothing
    "bit-flipped": (3, 6, 10, 7, 1),
    "line-lost": (3, 6, 10, 6, 0),
    "line-doubled": (4, 6, 10, 7, 0),
    "lines-swapped": (3, 7, 10, 7, 0),
    "line-foreign": (3, 7, 10, 8, 1),
    "garbage-at-end": (10, 0, None, 1, 1),
    "segment-lost": (2, 5, 10, 5, 0),
    "segments-swapped": (2, 8, 10, 8, 0),
    "segment-cut": (4, 5, 10, 6, 1),
    "segment-short": (4, 5, 10, 5, 0),
    "prev-wrong": (2, 8, 10, 8, 0),
    "seq-skipped": (9, 1, 11, 1, 0),
    "version-zero": (9, 1, 10, 1, 0),
    "field-unknown": (1, 9, 10, 9, 0),
    "field-missing": (1, 9, 10, 9, 0),
    "not-utf8": (1, 8, 10, 9, 1),
    "event-impossible": (1, 9, 10, 9, 0),
    "other-spelling": (1, 9, 10, 9, 0),
    "end-lost": (9, 1, 10, 0, 0),
}


def repaired(path: Path, to: Path, code: int = 0) -> Any:
    """What the command tells; the original is not changed."""
    with untouched(path):
        ran = eventq("repair", "--queue", path, "--to", to, "--json")
    assert ran.code == code, ran.err
    return ran.error if code else ran.value


def test_every_log_of_the_fixtures_is_tried() -> None:
    """Each in one of the lists here."""
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()}
    assert folders == {*WELL, *NOTHING_BEFORE, *MENDED, "newer", "event-unknown"}


@pytest.mark.parametrize("name", MENDED)
def test_the_copy_holds_what_stands_before_the_damage(name: str, tmp_path: Path) -> None:
    """Line by line the same; it opens, verifies and goes on, and what is lost is counted."""
    path = copied(FIXTURES / name, tmp_path / "q")
    to = tmp_path / "copy"
    kept, lost, last, behind, unreadable = MENDED[name]
    value = repaired(path, to)
    assert value["damaged"]
    assert (value["copy"], value["entries"], value["seq"]) == (str(to), kept, kept + 1)
    counts = ("lost_entries", "lost_last", "lost_lines", "lost_unreadable")
    assert tuple(value[count] for count in counts) == (lost, last, behind, unreadable)
    mine = lines(to)
    assert mine == lines(path)[:kept]
    assert value["lost_bytes"] == sum(f.stat().st_size for f in segments(path)) - sum(
        map(len, mine)
    )
    assert value["head"] == f"{kept}:{digest_of(mine[-1]).decode()}"
    assert eventq("verify", "--queue", to, "--head", value["head"]).code == 0
    with WorkQueue.open(to) as q:
        assert q.state.seq == kept
        q.enqueue("more")
    assert eventq("verify", "--queue", to).code == 0


def test_the_tasks_that_were_touched_behind_the_damage_are_named(tmp_path: Path) -> None:
    """From the lines that can be read, or from a snapshot that knows more than the log."""
    for name, tasks in (("bit-flipped", ["a", "b", "c"]), ("seq-skipped", ["b"])):
        path = copied(FIXTURES / name, tmp_path / name)
        assert sorted(repaired(path, tmp_path / f"{name}.copy")["lost_tasks"]) == tasks
    path = copied(FIXTURES / "end-lost", tmp_path / "q")
    value = repaired(path, tmp_path / "copy")
    assert (value["fault"], value["lost_tasks"]) == ("not complete", ["b"])


@pytest.mark.parametrize("name", WELL)
def test_a_log_that_is_not_damaged_is_not_copied(name: str, tmp_path: Path) -> None:
    """And it is said; half a line at the end is for the next writer to mend."""
    path = copied(FIXTURES / name, tmp_path / "q")
    value = repaired(path, tmp_path / "copy")
    assert (value["damaged"], value["copy"], value["what"]) == (False, None, None)
    ran = eventq("repair", "--queue", path, "--to", tmp_path / "copy")
    assert ran.out.startswith(f"not damaged: {value['entries']} entries, head {value['head']}")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("name", NOTHING_BEFORE)
def test_where_nothing_stands_before_the_damage_there_is_nothing_to_copy(
    name: str, tmp_path: Path
) -> None:
    """Exit 9: an empty queue would pass for a mended one."""
    path = copied(FIXTURES / name, tmp_path / "q")
    error = repaired(path, tmp_path / "copy", 9)
    assert "nothing to copy" in error["message"]
    assert "No entry stands before it; bring back a good copy" in error["message"]
    assert "eventq repair" not in error["message"] + eventq("verify", "--queue", path).out
    assert not (tmp_path / "copy").exists()


def test_the_log_of_a_newer_eventq_is_not_damaged(tmp_path: Path) -> None:
    """Exit 6: only a newer one can tell. So with a file that cannot be read."""
    for name in ("newer", "event-unknown"):
        path = copied(FIXTURES / name, tmp_path / name)
        assert repaired(path, tmp_path / "copy", 6)["error"] == "log_newer"
    path = copied(SHORT, tmp_path / "other")
    segments(path)[1].unlink()
    (path / "log" / f"{3:020}.jsonl").mkdir()
    assert repaired(path, tmp_path / "copy", 6)["error"] == "os_error"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["event-unknown", "newer", "other"]


def test_nothing_is_overwritten_and_the_original_is_no_place_for_a_copy(tmp_path: Path) -> None:
    """Exit 2, in whatever order the options stand; nor from Python."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")
    there, dangling = tmp_path / "there", tmp_path / "dangling"
    there.mkdir()
    dangling.symlink_to(tmp_path / "nowhere")
    for to, words in ((there, "is there already"), (dangling, "is there already")):
        with untouched(path):
            ran = eventq("repair", "--to", to, "--queue", path)
            with pytest.raises(FileExistsError, match=words):
                repair(path, to)
        assert ran.code == 2
        assert words in ran.err
    dangling.unlink()
    for inside in (path / "copy", path / "log" / ".." / "copy"):
        with untouched(tmp_path):
            assert eventq("repair", "--to", inside, "--queue", path).code == 2
            with pytest.raises(ValueError, match="lies in the queue itself"):
                repair(path, inside)


def test_the_error_of_a_damaged_log_names_the_command_that_mends_it(tmp_path: Path) -> None:
    """Typed as it stands, but for the new directory, it works."""
    for name in ("bit-flipped", "event-impossible", "end-lost"):
        path = copied(FIXTURES / name, tmp_path / "a queue" / name)
        with pytest.raises(EventqError) as caught:
            WorkQueue.open(path)
        said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        command = said.split("`")[-2]
        to = tmp_path / f"{name}.copy"
        words = [str(to) if word == "NEWDIR" else word for word in shlex.split(command)]
        assert eventq(*words[1:]).code == 0
        WorkQueue.open(to).shut()
    ran = eventq("verify", "--queue", copied(FIXTURES / "other-spelling", tmp_path / "q"))
    assert "eventq repair" in ran.out


def test_it_is_told_in_words(tmp_path: Path) -> None:
    """Where, how much, which tasks, and what to type next."""
    path = nightly(tmp_path / "nightly")
    file = segments(path)[0]
    first, second, third, _ = cut_lines(file.read_bytes())
    bad = third.replace(b"w1", b"w2", 1)
    file.write_bytes(b"".join([first, second, bad, third, b"# mine\n"]))
    ran = eventq("repair", "--queue", path, "--to", tmp_path / "copy")
    assert ran.code == 0
    head = f"2:{json.loads(second)['hash']}"
    misfit = "its hash does not fit it and the line before"
    size = len(bad) + len(third) + len(b"# mine\n")
    behind = f"3 lines, {size:,} bytes, of them 1 that say nothing"
    assert ran.out.splitlines() == [
        f"damaged  {file}, line 3: where entry 3 should stand: {misfit}",
        f"copied   2 entries to {tmp_path / 'copy'}, head {head}",
        f"lost     at least 1 entry, the last of them 3; {behind}",
        "touched  fetch",
        f"{path} was not changed",
        "",
        f"next: eventq verify --queue {tmp_path / 'copy'}",
    ]


def test_a_copy_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made aside: a disk that fails on the way leaves nothing that opens as a queue."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")

    def fsync(descriptor: int) -> None:
        assert not (tmp_path / "copy").exists()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        repair(path, tmp_path / "copy")
    assert [file.name for file in tmp_path.iterdir()] == ["q"]


def test_an_original_that_shrinks_meanwhile_gives_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was checked must be what is copied."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")
    real = repair_module._copy

    def shrinking(*args: Any) -> None:
        segments(path)[0].write_bytes(b"")
        real(*args)

    monkeypatch.setattr(repair_module, "_copy", shrinking)
    with pytest.raises(OSError, match="has become shorter"):
        repair(path, tmp_path / "copy")
    assert [file.name for file in tmp_path.iterdir()] == ["q"]


def test_the_copy_is_its_owners_alone(tmp_path: Path) -> None:
    """As every queue is."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")
    before = os.umask(0)
    try:
        repair(path, tmp_path / "copy")
    finally:
        os.umask(before)
    copy = tmp_path / "copy"
    assert {p.stat().st_mode & 0o777 for p in (copy, copy / "log", copy / "snapshots")} == {0o700}
    assert [p.stat().st_mode & 0o777 for p in segments(copy)] == [0o600, 0o600]


def test_damage_of_python_is_told_with_its_place(tmp_path: Path) -> None:
    """The value has what the command tells."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")
    done = repair(path, tmp_path / "copy")
    assert done.problem is not None
    with pytest.raises(LogDamaged) as caught:
        WorkQueue.open(path)
    error = caught.value
    found = done.problem
    assert (found.file, found.line, found.byte, found.seq) == (
        error.file,
        error.line,
        error.byte,
        error.seq,
    )
