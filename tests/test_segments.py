"""Damage: whatever was changed in a log, or lost from it, is found, named, and never mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from disk import FIXTURES, copied, cut_lines, log_bytes, seal, segments, untouched

from eventq import Entry, ImpossibleEvent, LinesLost, LogDamaged, LogNewer, WorkQueue
from eventq.storage.codec import encode
from eventq.storage.segments import Cursor

SHORT = FIXTURES / "short"


def read_all(path: Path) -> int:
    """How many entries a reader finds, if it finds nothing wrong."""
    with WorkQueue.open(path, read_only=True) as q:
        seq = q.state.seq
        assert seq == len(list(q.entries()))
        return seq


def found(path: Path) -> LogDamaged:
    """The damage that keeps a writer and a reader from this log, which both leave as it is."""
    with untouched(path), pytest.raises(LogDamaged):
        read_all(path)
    (path / "lock").touch()
    with untouched(path), pytest.raises(LogDamaged) as caught:
        WorkQueue.open(path)
    return caught.value


def test_the_list_of_damages_is_whole() -> None:
    """Every fixture is used below, and each is told in their README."""
    folders = {path.name for path in FIXTURES.iterdir() if path.is_dir()}
    told = (FIXTURES / "README.md").read_text()
    assert folders == {*DAMAGED, *FINISHED, *OTHERWISE, "good", "short"}
    assert all(f"`{name}`" in told for name in folders)


DAMAGED: dict[str, tuple[int, int, int, str]] = {
    # the first seq of the file, the line in it, the entry expected there, and what is said
    "bit-flipped": (3, 2, 4, "its hash does not fit it and the line before"),
    "line-lost": (3, 2, 4, "its hash does not fit"),
    "line-doubled": (3, 3, 5, "its hash does not fit"),
    "lines-swapped": (3, 2, 4, "its hash does not fit"),
    "line-foreign": (3, 2, 4, "it does not end as a line does, in a hash"),
    "garbage-at-end": (9, 3, 11, "it does not end as a line does"),
    "segment-lost": (1, 3, 3, "the segment 0*3.jsonl is missing, and entry 6 is there"),
    "first-segment-lost": (1, 1, 1, "the log begins only with entry 3"),
    "segments-swapped": (3, 1, 3, "its hash does not fit"),
    "segment-cut": (3, 3, 5, "."),
    "segment-short": (3, 3, 5, "."),
    "crlf": (1, 1, 1, "it does not end as a line does"),
    "bom": (1, 1, 1, "its hash does not fit"),
    "prev-wrong": (3, 1, 3, "its `prev` is not the hash of the line before"),
    "seq-skipped": (9, 2, 10, "entry 11 stands there"),
    "version-zero": (9, 2, 10, "no eventq ever wrote version 0 of the format"),
    "field-unknown": (1, 2, 2, "it does not read as an entry: .*mood"),
    "field-missing": (1, 2, 2, "it does not read as an entry: .*not_before"),
    "not-utf8": (1, 2, 2, "."),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_and_nothing_is_changed(name: str, tmp_path: Path) -> None:
    """By its file, line, byte and entry; neither a reader nor a writer goes on."""
    path = copied(FIXTURES / name, tmp_path / "q")
    first, line, seq, words = DAMAGED[name]
    error = found(path)
    assert (error.line, error.seq) == (line, seq)
    if name not in ("segment-lost", "first-segment-lost"):
        file = path / "log" / f"{first:020}.jsonl"
        assert error.file == file
        assert error.byte == sum(map(len, cut_lines(file.read_bytes())[: line - 1]))
    with pytest.raises(ValueError, match=words):
        raise error
    assert f"line {error.line} (byte {error.byte}), where entry {error.seq} should" in str(error)
    assert str(error.file) in str(error)
    assert "Nothing was changed" in str(error)


FINISHED = {"torn": 9, "zeros": 9, "newline-missing": 10, "newline-damaged": 10}
"""What a crash may leave at the end, and how many entries are there once it is mended."""


@pytest.mark.parametrize("name", FINISHED)
def test_what_a_crash_leaves_is_mended_by_a_writer(name: str, tmp_path: Path) -> None:
    """And by nobody else; what was whole stays, and the log goes on."""
    path = copied(FIXTURES / name, tmp_path / "q")
    with untouched(path):
        assert read_all(path) == 9
    with WorkQueue.open(path) as q:
        assert q.state.seq == len(list(q.entries())) == FINISHED[name]
        q.enqueue("more")
    assert read_all(path) == FINISHED[name] + 1


def newer(path: Path) -> None:
    not_opened_for_writing(path, r"0009\.jsonl, line 2 \(byte .* version 2 .* knows 1", 9)


def unknown(path: Path) -> None:
    not_opened_for_writing(path, "an event of the type 'exploded', which this eventq does not", 1)


def not_opened_for_writing(path: Path, words: str, before: int) -> None:
    """A newer eventq wrote it: what stands before the line can be read, and nothing is written,
    also by a handle that was there before it."""
    with pytest.raises(LogNewer, match=words) as caught:
        WorkQueue.open(path)
    assert caught.value.seq == before + 1
    with untouched(path), WorkQueue.open(path, read_only=True) as q:
        assert q.at(before).seq == before
        entries = q.entries()
        assert [next(entries).seq for _ in range(before)] == [*range(1, before + 1)]
        for ask in (lambda: next(entries), lambda: q.state, lambda: q.head):
            with pytest.raises(LogNewer, match=words):
                ask()


def test_a_command_that_nobody_knows_is_of_a_newer_eventq(tmp_path: Path) -> None:
    """Though its events are known: what else it asked for is not."""
    path = copied(SHORT, tmp_path / "q")
    with WorkQueue.open(path, read_only=True) as q:
        last = q.head[1].encode()
    body = (
        b'{"v":1,"seq":11,"at":"2036-11-30T18:48:31.226860Z","by":null,"do":"hibernate","ask":{},'
        b'"events":[{"type":"closed"}]'
    )
    with segments(path)[-1].open("ab") as file:
        file.write(seal(body, last))
    not_opened_for_writing(path, "a command 'hibernate', which this eventq does not know", 10)


def impossible(path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(ImpossibleEvent, match="entry 2: Parked cannot happen to task 'a'"):
            WorkQueue.open(path, read_only=read_only)


def lost(path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(LinesLost, match=r"ends with entry 9, .* entry 10: 1 entr") as caught:
            WorkQueue.open(path, read_only=read_only)
        assert caught.value.lost == 1


def respelled(path: Path) -> None:
    """Its hash fits and its meaning is clear, so it is read; who checks encodes it again."""
    assert read_all(path) == 10
    with WorkQueue.open(path, read_only=True) as q:
        again = [encode(entry, b"0" * 64, first=False)[0] for entry in q.entries()]
    first = segments(path)[0]
    assert cut_lines(first.read_bytes())[1][:-80] != again[1][:-80]


OTHERWISE: dict[str, Callable[[Path], None]] = {
    "newer": newer,
    "event-unknown": unknown,
    "event-impossible": impossible,
    "end-lost": lost,
    "other-spelling": respelled,
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_no_damage_has_an_error_of_its_own(name: str, tmp_path: Path) -> None:
    """Or none, where only a check of every byte tells; and nothing is changed."""
    path = copied(FIXTURES / name, tmp_path / "q")
    (path / "lock").touch()
    with untouched(path):
        OTHERWISE[name](path)


def test_every_segment_lost_emptied_doubled_or_swapped_is_found(tmp_path: Path) -> None:
    """Only the last one can go unseen, for its log looks whole."""
    files = log_bytes(SHORT)
    names = list(files)
    changes: list[tuple[str, dict[str, bytes]]] = []
    for name in names[:-1]:
        changes.append((f"{name} lost", {k: v for k, v in files.items() if k != name}))
        changes.append((f"{name} emptied", files | {name: b""}))
        changes.append((f"{name} cut", files | {name: files[name][:-1]}))
        tails = (b'{"v":1,', b"\0", b"\n")
        changes.extend(
            (f"{tail!r} behind {name}", files | {name: files[name] + tail}) for tail in tails
        )
        shifted = f"{int(name[:20]) + 1:020}.jsonl"
        changes.append((f"{name} renamed", {shifted if k == name else k: files[k] for k in files}))
        for other in names:
            if other != name:
                swapped = {name: files[other], other: files[name]}
                changes.append((f"{name} and {other} swapped", files | swapped))
                changes.append((f"{other} overwritten by {name}", files | {other: files[name]}))
    for i, (what, damaged) in enumerate(changes):
        log = tmp_path / str(i) / "log"
        log.mkdir(parents=True)
        (log.parent / "snapshots").mkdir()
        for name, text in damaged.items():
            (log / name).write_bytes(text)
        try:
            found(log.parent)
        except BaseException as error:
            raise AssertionError(f"{what}: not found") from error


def test_a_gap_in_the_middle_is_found_by_all_who_read_across_it(tmp_path: Path) -> None:
    """Also where a snapshot lets the queue be opened: no answer is quietly short."""
    path = copied(SHORT, tmp_path / "q")
    with WorkQueue.open(path) as q:
        q.snapshot()
    segments(path)[1].unlink()
    with WorkQueue.open(path, read_only=True) as q:
        assert q.state.seq == 10
        assert q.at(10).seq == 10
        for since in (1, 2, 3, 4, 5):
            with pytest.raises(LogDamaged):
                list(q.entries(since))
        assert [entry.seq for entry in q.entries(6)] == [6, 7, 8, 9, 10]
        for seq in range(3, 10):
            with pytest.raises(LogDamaged):
                q.at(seq)
        assert q.at(2).seq == 2


def test_a_beginning_that_was_moved_away_is_never_passed_over(tmp_path: Path) -> None:
    """Asked for entries from before it, the log says so instead of giving none."""
    path = copied(SHORT, tmp_path / "q")
    with WorkQueue.open(path) as q:
        q.snapshot()
    for file in segments(path)[:2]:
        file.unlink()
    with WorkQueue.open(path, read_only=True) as q:
        assert [entry.seq for entry in q.entries(6)] == [6, 7, 8, 9, 10]
        for since in (1, 5):
            with pytest.raises(LogDamaged, match="begins only with entry 6"):
                list(q.entries(since))


def test_what_stands_before_the_damage_can_be_read(tmp_path: Path) -> None:
    """As the error says: entry by entry up to the damage, which is then told again."""
    path = copied(FIXTURES / "bit-flipped", tmp_path / "q")
    read: list[Entry] = []
    with WorkQueue.open(path, read_only=True) as q:
        with pytest.raises(LogDamaged):
            read.extend(q.entries())
        entries = q.entries()
        assert [next(entries).seq for _ in range(3)] == [1, 2, 3]
        with pytest.raises(LogDamaged):
            next(entries)
        assert q.at(3).seq == 3


def test_a_state_of_the_past_is_never_silently_an_older_one(tmp_path: Path) -> None:
    """The log lost its end while the handle was open: it has read more than is there now."""
    path = copied(SHORT, tmp_path / "q")
    with WorkQueue.open(path) as q:
        assert q.state.seq == 10
        segments(path)[-1].write_bytes(b"")
        assert q.at(8).seq == 8
        with pytest.raises(LogDamaged, match="ends there, and entry 9 was read before") as caught:
            q.at(9)
        assert caught.value.seq == 9


def test_a_segment_that_goes_as_it_is_about_to_be_read_is_missed(tmp_path: Path) -> None:
    """As one that is archived at that moment does: later ones are there."""
    path = copied(SHORT, tmp_path / "q")
    (file, *_) = segments(path)[1:-1]
    file.unlink()
    with pytest.raises(LogDamaged, match=f"the segment {file.name} is missing"):
        list(Cursor(path / "log", int(file.stem)).forward())


def test_a_first_line_that_does_not_say_what_it_follows_is_damage(tmp_path: Path) -> None:
    """Where reading begins with it, there is nothing else to check it by."""
    path = copied(SHORT, tmp_path / "q")
    file = segments(path)[2]
    file.write_bytes(b"{}\n" + file.read_bytes())
    with (
        WorkQueue.open(path, read_only=True) as q,
        pytest.raises(LogDamaged, match="it does not say `prev`") as caught,
    ):
        list(q.entries(6))
    assert (caught.value.file, caught.value.line, caught.value.seq) == (file, 1, 6)


def test_other_files_are_none_of_the_log(tmp_path: Path) -> None:
    """Whatever digits their names are made of."""
    path = copied(SHORT, tmp_path / "q")
    for name in ("7", "0" * 21 + "7", "\N{ARABIC-INDIC DIGIT THREE}" * 20, "x" * 20):
        (path / "log" / f"{name}.jsonl").write_bytes(b"no line")
    assert read_all(path) == 10
