"""`eventq verify`: what is changed, missing or against the rules is found, and nothing else is."""

from __future__ import annotations

import json
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk import copied, cut_lines, lines, rewrite, segments, tour, untouched
from ledger import Ledger, Walk
from terminal import Ran, eventq, nightly, on_terminal, process

from eventq import Keys, Retention, Retry, WorkQueue
from eventq.core.commands import Complete, Enqueue, Start
from eventq.core.events import (
    Blocked,
    Cancelled,
    Completed,
    Died,
    Enqueued,
    Entry,
    Event,
    Failed,
    Opened,
    Readied,
    Started,
)
from eventq.core.policy import Policy
from eventq.queries.legal import MOST, Judge, Rule
from eventq.storage.snapshot import load, save
from eventq.storage.upcast import VERSION


@pytest.fixture(scope="session")
def toured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several files with every event in it, not to be changed."""
    path = tmp_path_factory.mktemp("toured") / "queue"
    tour(path)
    assert len(segments(path)) > 2
    return path


@pytest.fixture
def queue(toured: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copied(toured, tmp_path / "queue")


def verify(path: Path, *more: str) -> Ran:
    return eventq("verify", "--queue", path, "--json", *more)


def faults(ran: Ran) -> set[str]:
    return {problem["fault"] for problem in ran.value["problems"]}


def head_of(path: Path) -> str:
    return eventq("head", "--queue", path).out.strip()


# What is well.


def test_a_log_that_eventq_wrote_is_found_in_order(toured: Path) -> None:
    """Intact and legal; nothing is changed, and nobody asked for completeness."""
    with untouched(toured):
        ran = verify(toured)
    assert (ran.code, ran.err) == (0, "")
    assert ran.value == {
        "queue": ran.value["queue"],
        "entries": len(lines(toured)),
        "archived": 0,
        "judged": len(lines(toured)),
        "segments": len(segments(toured)),
        "head": head_of(toured),
        "intact": True,
        "complete": None,
        "legal": True,
        "decided": True,
        "problems": [],
        "more": 0,
        "notes": [],
        "exit": 0,
    }


def test_without_a_head_it_says_that_completeness_was_not_checked(toured: Path) -> None:
    """Which is no failure."""
    ran = eventq("verify", "--queue", toured)
    assert ran.code == 0
    assert "complete  not checked: give --head" in ran.out


def test_with_its_head_a_log_is_complete(toured: Path) -> None:
    """The last entry, or any before it."""
    assert verify(toured, "--head", head_of(toured)).value["complete"] is True
    line = json.loads(lines(toured)[4])
    assert verify(toured, "--head", f"5:{line['hash']}").value["complete"] is True


def test_a_log_is_verified_while_others_write_and_begin_new_files(tmp_path: Path) -> None:
    """What they are about to write is no damage."""
    stop = threading.Event()
    path = tmp_path / "queue"

    def write() -> None:
        with WorkQueue.open(path, segment_bytes=2000, retention=Retention(3)) as q:
            while not stop.is_set():
                q.enqueue()
                lease = q.start()
                assert lease is not None
                q.complete(lease)
                q.snapshot()

    nightly(path, retention=Retention(3))
    thread = threading.Thread(target=write)
    thread.start()
    try:
        found = [verify(path) for _ in range(20)]
        while thread.is_alive() and found[-1].value["entries"] == found[0].value["entries"]:
            found.append(verify(path))
    finally:
        stop.set()
        thread.join()
    assert [ran.value["problems"] for ran in found] == [[]] * len(found)
    assert found[-1].value["entries"] > found[0].value["entries"]


# Half a line at the end.


def test_a_line_cut_anywhere_is_not_yet_an_entry(queue: Path) -> None:
    """A note, and no damage: so a crash leaves it."""
    file = segments(queue)[-1]
    whole = file.read_bytes()
    last = cut_lines(whole)[-1]
    for cut in [1, 2, 3, *range(7, len(last), 7), len(last) - 1]:
        file.write_bytes(whole[:-cut])
        ran = verify(queue)
        assert ran.code == 0
        assert ran.value["intact"] is True
        assert ran.value["entries"] == len(lines(queue))
        assert ("lacks only its newline" if cut == 1 else "half a line") in ran.value["notes"][0]


def test_zeros_at_the_end_are_not_yet_an_entry(queue: Path) -> None:
    """So a power cut may leave it."""
    with segments(queue)[-1].open("ab") as file:
        file.write(bytes(4096))
    ran = eventq("verify", "--queue", queue)
    assert ran.code == 0
    assert "half a line (4096 bytes): not yet an entry, and no damage" in ran.out


def test_a_log_of_which_nothing_was_read_is_not_called_legal(queue: Path) -> None:
    """Nobody knows."""
    for file in segments(queue):
        file.write_bytes(b"not a line\n")
    ran = verify(queue)
    assert (ran.code, ran.value["legal"], ran.value["decided"]) == (9, None, None)
    assert "legal     not checked: no entry was read" in eventq("verify", "--queue", queue).out


def test_a_cut_that_the_head_knows_of_is_a_loss(queue: Path) -> None:
    """In the middle of a line or between two."""
    head = head_of(queue)
    file = segments(queue)[-1]
    whole = file.read_bytes()
    for cut in (1, len(cut_lines(whole)[-1])):
        file.write_bytes(whole[:-cut])
        ran = verify(queue, "--head", head)
        assert ran.code == 8
        assert ran.value["complete"] is False
        assert "1 entry is lost" in ran.value["problems"][0]["what"]


# Changed after it was written.


def test_any_byte_that_is_changed_is_found(queue: Path) -> None:
    """Wherever it stands but in the last newline, which a crash may have kept from the disk."""
    draw = random.Random(1)
    files = segments(queue)
    for file in files:
        whole = file.read_bytes()
        places = draw.sample(range(len(whole) - 1), 40)
        for place in places:
            changed = bytearray(whole)
            changed[place] ^= draw.choice([1, 2, 4, 8, 16, 32, 64, 128])
            file.write_bytes(changed)
            ran = verify(queue)
            assert ran.code == 9, f"byte {place} of {file.name}"
            assert ran.value["intact"] is False
        file.write_bytes(whole)
    assert verify(queue).code == 0


def _without(found: list[bytes]) -> list[bytes]:
    return found[:1] + found[2:]


def _swapped(found: list[bytes]) -> list[bytes]:
    return [found[0], found[2], found[1], *found[3:]]


def _twice(found: list[bytes]) -> list[bytes]:
    return [*found[:2], *found[1:]]


def _of_windows(found: list[bytes]) -> list[bytes]:
    return [line[:-1] + b"\r\n" for line in found]


def _empty(found: list[bytes]) -> list[bytes]:
    return [found[0], b"\n", *found[1:]]


@pytest.mark.parametrize("change", [_without, _swapped, _twice, _of_windows, _empty])
def test_lines_that_do_not_follow_each_other_are_damage(
    queue: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Removed, swapped, repeated, ended as elsewhere."""
    file = segments(queue)[1]
    file.write_bytes(b"".join(change(cut_lines(file.read_bytes()))))
    assert verify(queue).code == 9


def test_damage_says_where_it_is_and_what_to_do(queue: Path) -> None:
    """The file, the line, the byte; everything before it still counts."""
    file = segments(queue)[1]
    first, second, *rest = cut_lines(file.read_bytes())
    file.write_bytes(b"".join([first, second.replace(b'"type"', b'"tyqe"', 1), *rest]))
    ran = eventq("verify", "--queue", queue)
    seq = int(file.stem) + 1
    assert ran.code == 9
    assert f"{file}, line 2 (byte {len(first)}): its hash does not fit" in ran.out
    assert "bring back a good copy" in ran.out
    assert f"legal     yes as far as it was read, to entry {seq - 1}" in ran.out
    problem = verify(queue).value["problems"][0]
    assert (problem["line"], problem["byte"], problem["seq"]) == (2, len(first), seq)
    assert problem["file"] == str(file)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_file_that_is_missing_is_found(queue: Path, number: int) -> None:
    """The first or one between is damage; without the last the log looks whole, but to a head."""
    head = head_of(queue)
    segments(queue)[number].unlink()
    ran = verify(queue, "--head", head)
    assert ran.code == (8 if number == -1 else 9)
    assert verify(queue).code == (0 if number == -1 else 9)


def test_a_file_under_another_name_is_damage(queue: Path) -> None:
    """The name of a segment is the seq of its first entry."""
    file = segments(queue)[1]
    file.rename(file.with_name(f"{int(file.stem) + 1:020}.jsonl"))
    assert verify(queue).code == 9


# Sealed anew: the chain is whole, and yet eventq never wrote that.


def change(old: str, new: str) -> Callable[[bytes], bytes]:
    """A change to the body of a line, which must hold the old text."""

    def apply(body: bytes) -> bytes:
        assert old.encode() in body, body
        return body.replace(old.encode(), new.encode(), 1)

    return apply


def number_of(path: Path, text: str) -> int:
    """The first entry whose line holds this text."""
    return next(n for n, line in enumerate(lines(path), 1) if text.encode() in line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seq":', '"seq": '),
        ('"v":1,"seq":6', '"seq":6,"v":1'),
        (".000000Z", "Z"),
        ("Z", "+00:00"),
        ('"by":"w1"', '"by":"\\u00771"'),
    ],
)
def test_another_spelling_of_the_same_entry_is_damage(queue: Path, old: str, new: str) -> None:
    """An entry has one spelling, so that its hash has one meaning."""
    seq = number_of(queue, '"by":"w1"')
    rewrite(queue, change(old.replace("6", str(seq)), new.replace("6", str(seq))), seq)
    ran = verify(queue)
    assert ran.code == 9
    assert ran.value["problems"][0]["seq"] == seq
    assert "encoded again" in ran.value["problems"][0]["what"]


def test_a_time_that_falls_is_damage(queue: Path) -> None:
    """Time in the log never falls."""
    rewrite(queue, change("2026-11-30T12", "2026-11-30T11"), 9)
    ran = verify(queue)
    assert ran.code == 9
    assert [problem["seq"] for problem in ran.value["problems"]] == [9]
    assert "its time is before that of entry 8" in ran.value["problems"][0]["what"]


def test_a_history_written_anew_is_found_by_its_head(queue: Path) -> None:
    """A lawful lie with every hash put right: only a head that was kept elsewhere tells."""
    head = head_of(queue)
    rewrite(queue, change("HTTP 503", "HTTP 404"), number_of(queue, "HTTP 503"))
    assert verify(queue).code == 0
    ran = verify(queue, "--head", head)
    assert ran.code == 8
    assert "this log tells another history" in ran.value["problems"][0]["what"]
    told = eventq("verify", "--head", head, "--queue", queue).out
    assert "Nothing is missing at the end" in told
    assert "Bring back the missing end" not in told


def test_a_line_of_a_newer_eventq_could_not_be_checked(queue: Path) -> None:
    """It is not damage: only somebody newer can tell."""
    rewrite(queue, change(f'"v":{VERSION}', f'"v":{VERSION + 1}'), 9)
    ran = verify(queue)
    assert ran.code == 6
    assert faults(ran) == {"could not be checked"}
    assert ran.value["intact"] is False
    assert ran.value["entries"] == 8


def test_a_file_that_cannot_be_read_could_not_be_checked(queue: Path) -> None:
    """The disk says no: that proves nothing about the log."""
    file = segments(queue)[1]
    file.unlink()
    file.mkdir()
    ran = verify(queue)
    assert ran.code == 6
    assert ran.value["problems"][0]["what"] == "Is a directory"


# Against the rules.

ILLEGAL: list[tuple[str, str, str]] = [
    ('"do":"start"', '"worker":"w1","lease_for"', '"worker":"w2","lease_for"'),
    ('"do":"release"', '"lease":', '"lease":9'),
    ('"type":"died"', ',{"type":"died","task":"fetch"}', ""),
    ('"type":"died"', '"type":"died"', '"type":"parked"'),
    ('"type":"blocked"', '"root":"fetch"', '"root":"ghost"'),
    ('"type":"failed"', '"attempt":1', '"attempt":2'),
    ('"do":"enqueue_all"', '"do":"enqueue_all"', '"do":"enqueue"'),
    ('"type":"forgotten"', '"type":"forgotten"', '"type":"unblocked"'),
    ('"type":"reopened"', '"type":"reopened"', '"type":"paused"'),
    ('"type":"restored"', '{"type":"restored","task":"parse"},', ""),
    ('"type":"released"', '"events":[', '"events":[{"type":"closed"},'),
]


@pytest.mark.parametrize(("where", "old", "new"), ILLEGAL)
def test_what_the_rules_would_not_do_is_not_legal(
    queue: Path, where: str, old: str, new: str
) -> None:
    """Each of these is well written and well chained."""
    seq = number_of(queue, where)
    rewrite(queue, change(old, new), seq)
    ran = verify(queue)
    assert ran.code == 7
    rules = {problem["fault"] for problem in ran.value["problems"]}
    assert ran.value["decided"] is ("decided otherwise" not in rules)
    assert ran.value["legal"] is (rules == {"decided otherwise"})
    assert ran.value["intact"] is True
    assert ran.value["problems"][0]["seq"] == seq


def test_an_illegal_entry_is_told_with_what_the_rules_give(tmp_path: Path) -> None:
    """Both sides of the difference are named."""
    path = nightly(tmp_path / "queue")
    rewrite(path, change('"task":"report","root":"fetch"', '"task":"parse","root":"fetch"'), 4)
    ran = eventq("verify", "--queue", path)
    assert ran.code == 7
    assert "\nentry 4, decided otherwise: event 4: the log has Blocked(task='parse'" in (ran.out)
    assert "the rules give Blocked(task='report', root='fetch')" in ran.out
    assert "not legal, entry 4, impossible: entry 4: Blocked cannot happen to task 'parse'" in (
        ran.out
    )


def test_the_highest_code_wins(queue: Path) -> None:
    """Not legal, not complete and damaged at once is damaged."""
    head = head_of(queue)
    rewrite(queue, change('"seq":', '"seq": '), 5)
    rewrite(queue, change('"lease":', '"lease":9'), number_of(queue, '"do":"release"'))
    ran = verify(queue, "--head", head)
    assert ran.code == ran.value["exit"] == 9
    assert faults(ran) >= {"damaged", "not complete", "decided otherwise"}


def test_only_the_first_problems_are_told(queue: Path) -> None:
    """The others are counted."""
    for seq in range(1, len(lines(queue)) + 1):
        rewrite(queue, change('"seq":', '"seq": '), seq)
    ran = eventq("verify", "--queue", queue)
    assert ran.code == 9
    assert f"and {len(lines(queue)) - 20} more" in ran.out


# Snapshots.


@pytest.mark.parametrize("fit", [True, False])
def test_a_snapshot_ahead_of_its_log_tells_of_a_loss(fit: bool, queue: Path) -> None:
    """Though nobody gave a head, and though it has nothing but its name."""
    made = Path(eventq("snapshot", "--queue", queue).out.strip())
    if not fit:
        made.write_bytes(b"")
    file = segments(queue)[-1]
    file.write_bytes(b"".join(cut_lines(file.read_bytes())[:-2]))
    ran = verify(queue)
    assert ran.code == 8
    assert ran.value["complete"] is False
    assert "2 entries are lost" in ran.value["problems"][0]["what"]


def test_a_snapshot_without_any_log_tells_of_a_loss(queue: Path) -> None:
    """Every file of the log is gone."""
    eventq("snapshot", "--queue", queue)
    for file in segments(queue):
        file.unlink()
    assert verify(queue).code == 8


def test_a_snapshot_of_another_history_is_found(queue: Path) -> None:
    """It remembers the hash of the line that it was taken after."""
    eventq("snapshot", "--queue", queue)
    rewrite(queue, change("HTTP 503", "HTTP 404"), number_of(queue, "HTTP 503"))
    assert verify(queue).code == 8


def test_a_snapshot_that_tells_another_state_is_damage(queue: Path) -> None:
    """With its checksum put right it would deceive every command that opens the queue."""
    path = Path(eventq("snapshot", "--queue", queue).out.strip())
    loaded = load(queue / "snapshots", int(path.stem), queue / "log")
    assert loaded is not None
    state, cursor = loaded
    next(iter(state.records.values())).redrives += 1
    save(queue / "snapshots", state, cursor)
    ran = verify(queue)
    assert ran.code == 9
    assert ran.value["problems"][0]["file"] == str(path)
    assert "its state is not the one that the log gives" in ran.value["problems"][0]["what"]


def test_a_snapshot_that_does_not_fit_its_checksum_is_noted(queue: Path) -> None:
    """Nobody uses it, so it does no harm."""
    path = Path(eventq("snapshot", "--queue", queue).out.strip())
    path.write_bytes(path.read_bytes()[:-3])
    ran = verify(queue)
    assert ran.code == 0
    assert "it is not used" in ran.value["notes"][0]


def test_a_snapshot_that_cannot_be_read_is_not_passed(queue: Path) -> None:
    """Nobody knows what it says of the log, which is the fourth answer."""
    path = Path(eventq("snapshot", "--queue", queue).out.strip())
    path.unlink()
    path.symlink_to(path.name)
    ran = verify(queue)
    assert ran.code == 6
    (problem,) = ran.value["problems"]
    assert (problem["fault"], problem["file"]) == ("could not be checked", str(path))


# How it is told.


@pytest.mark.parametrize("head", ["", "5", "5:beef", f"0:{'0' * 64}", f"5:{'A' * 64}", "x:y"])
def test_a_head_that_is_none_is_a_usage_error(toured: Path, head: str) -> None:
    """SEQ:HASH, as `eventq head` tells it."""
    assert verify(toured, "--head", head).code == 2


def test_where_there_is_no_queue_nothing_is_verified(tmp_path: Path) -> None:
    """It is no damage to name the wrong directory."""
    (tmp_path / "log").mkdir()
    for path in (tmp_path, tmp_path / "nowhere"):
        ran = verify(path)
        assert (ran.code, ran.error["error"]) == (2, "not_a_queue")


def test_a_long_log_shows_how_far_it_was_read_on_a_terminal_alone(tmp_path: Path) -> None:
    """In a pipe nothing but the answer is printed, and nothing at all on stderr."""
    path = nightly(tmp_path / "queue")
    with WorkQueue.open(path) as q:
        q.enqueue("big", "x" * 5_000_000)
    assert "reading" in on_terminal("verify", "--queue", path).out
    ran = process("verify", "--queue", path)
    assert "reading" not in ran.out
    assert ran.err == ""


# The judge, by itself.


def judged(entries: Any, **more: int) -> Judge:
    judge = Judge(**more)
    for entry in entries:
        judge.judge(entry)
    judge.end()
    return judge


WALKS: list[dict[str, Any]] = [
    {"retention": Retention(2)},
    {"rich": True, "retention": Retention(2)},
    {"rich": True, "keys": Keys("halt")},
]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", WALKS)
def test_whatever_the_rules_allow_is_legal(seed: int, policy: dict[str, Any]) -> None:
    """Also with keys and times; and the judge ends up in the very state."""
    ledger = Walk(seed, **policy).walk(300)
    judge = judged(ledger.entries, every=1)
    assert judge.breaches == []
    assert judge.state == ledger.state
    assert judge.judged == len(ledger.entries)


FORBIDDEN: list[tuple[str, tuple[Event, ...]]] = [
    ("No task rests in FAILED", (Started("a", 1), Failed("a", 1, "e", "retryable"))),
    (
        "handed out more often",
        (Started("a", 1), Failed("a", 1, "e", "retryable"), Readied("a"), Started("a", 2)),
    ),
    ("has all that it needs", (Readied("b"),)),
    ("if and only if something that it needs blocks it", (Blocked("b", "a"),)),
    (
        "Nothing below a root",
        (Started("a", 1), Failed("a", 1, "e", "permanent"), Died("a")),
    ),
]


@pytest.mark.parametrize(("holds", "events"), FORBIDDEN)
def test_an_invariant_that_is_broken_is_told(holds: str, events: tuple[Event, ...]) -> None:
    """Though each event could happen where its task stood."""
    ledger = Ledger(check=False)
    ledger.do(
        Enqueue("a", None, (), max_attempts=1),
        Enqueue("b", None, ("a",)),
        Enqueue("c"),
    ).fold(*events)
    breaches = judged(ledger.entries).breaches
    assert Rule.DECIDED_OTHERWISE in {breach.rule for breach in breaches}
    told = [breach.what for breach in breaches if breach.rule is Rule.INVARIANT]
    assert any(holds in what for what in told), told


def test_a_dependent_that_was_left_behind_is_told_at_once() -> None:
    """Though the entry that should have moved it did not touch it, and long before the end."""
    for events, what in (
        ((Started("a", 1), Completed("a")), "has all that it needs"),
        ((Cancelled("a"),), "Nothing below a root"),
    ):
        ledger = Ledger(check=False)
        ledger.do(Enqueue("a"), Enqueue("b", None, ("a",)), Enqueue("c", None, ("b",)))
        ledger.fold(*events)
        ledger.do(Enqueue("d"))
        judge = Judge()
        for entry in ledger.entries[:5]:
            judge.judge(entry)
        told = [(one.seq, one.what) for one in judge.breaches if one.rule is Rule.INVARIANT]
        assert any(seq == 5 and "'b'" in text for seq, text in told), told
        assert any(what in text for _, text in told)
        assert not judge.legal


def test_what_the_rules_of_today_decide_otherwise_is_told_apart() -> None:
    """A rule may have been mended since: what happened was possible, and that is what counts. Of
    an entry of another version the rules of today are not even asked."""
    ledger = Ledger(check=False).do(Enqueue("a"))
    ledger.fold(Started("a", 1), Failed("a", 1, "e", "permanent"), Readied("a"))
    judge = judged(ledger.entries)
    assert (judge.legal, judge.otherwise) == (True, 1)
    judge = Judge()
    for entry in ledger.entries:
        judge.judge(entry, decide=False)
    judge.end()
    assert (judge.legal, judge.otherwise, judge.breaches) == (True, 0, [])
    assert judge.state == ledger.state
    ledger.fold(Started("a", 2), Failed("a", 2, "e", "permanent"))
    judge = judged(ledger.entries)
    assert (judge.legal, judge.otherwise) == (False, 2)


def test_after_an_impossible_event_nothing_is_judged() -> None:
    """Whatever comes after it rests on nothing."""
    ledger = Ledger().do(Enqueue("a"))
    bad = Entry(3, ledger.at, "tick", (Completed("a"),))
    judge = judged([*ledger.entries, bad, bad])
    assert judge.stopped
    assert [breach.rule for breach in judge.breaches] == [
        Rule.DECIDED_OTHERWISE,
        Rule.IMPOSSIBLE,
    ]
    assert judge.judged == 2


def test_an_entry_that_changes_nothing_is_not_legal() -> None:
    """None such is ever written."""
    ledger = Ledger().do(Enqueue("a"))
    entry = Entry(3, ledger.at, "tick", ())
    (breach,) = judged([*ledger.entries, entry]).breaches
    assert "changes nothing" in breach.what


def test_an_argument_of_the_command_that_does_not_belong_there_is_not_legal() -> None:
    """`ask` holds the fields of the command, and no others."""
    ledger = Ledger().do(Enqueue("a"), Start("w"), Complete(3))
    entry = ledger.entries[3]
    for ask in ({}, {"lease": 3, "more": 1}, {"lease": "3"}, {"lease": None}):
        forged = Entry(entry.seq, entry.at, entry.do, entry.events, ask)
        (breach,) = judged([*ledger.entries[:3], forged]).breaches
        assert breach.rule is Rule.DECIDED_OTHERWISE


def test_a_log_that_was_never_opened_is_not_legal() -> None:
    """The first entry alone opens it."""
    ledger = Ledger()
    assert judged([Entry(1, ledger.at, "enqueue", (Enqueued("a"), Readied("a")))]).stopped
    twice = Entry(2, ledger.at, "open", (Opened("q", Policy()),))
    assert judged([*ledger.entries, twice]).stopped


def test_no_more_breaches_are_kept_than_anybody_reads() -> None:
    """The rest is counted."""
    ledger = Ledger(check=False)
    for number in range(MOST + 5):
        ledger.fold(Enqueued(f"t{number}"), Readied(f"t{number}"))
    judge = judged(ledger.entries)
    assert len(judge.breaches) == MOST
    assert judge.more == 5


@pytest.mark.parametrize("keyed", [False, True])
def test_a_deep_chain_and_many_keys_are_judged_in_linear_time(keyed: bool) -> None:
    """By a walk that looks at each edge once, not once for each task above it."""
    many = 20_000
    q = WorkQueue.in_memory(retry=Retry(max_attempts=1))
    if keyed:
        q.enqueue_all(Enqueue(f"t{i}", key=f"k{i}") for i in range(many))
    else:
        q.enqueue_all(Enqueue(f"t{i}", after=[f"t{i - 1}"] if i else ()) for i in range(many))
    lease = q.start()
    assert lease is not None
    q.fail(lease, "no")
    judge = Judge()
    for entry in q.entries():
        judge.judge(entry)
    judge.end()
    assert judge.legal
    assert judge.judged == 4


@pytest.mark.parametrize("text", [b"", b"tampered\n"])
def test_a_file_that_is_none_of_the_log_is_damage(queue: Path, text: bytes) -> None:
    """It has the name of a segment, and another one holds that entry: readers refuse it as well."""
    *_, last = segments(queue)
    seq = len(lines(queue))
    assert int(last.stem) < seq
    stray = last.with_name(f"{seq:020}.jsonl")
    stray.write_bytes(text)
    ran = verify(queue)
    assert ran.code == 9
    assert ran.value["problems"][0]["file"] == str(stray)


def test_a_line_that_is_nested_without_end_is_damage(queue: Path, tmp_path: Path) -> None:
    """For who verifies, who opens and who repairs."""
    file = segments(queue)[-1]
    deep = b"[" * 100_000 + b"]" * 100_000
    file.write_bytes(file.read_bytes() + b'{"seq":99,"events":[{"task":%b}]}\n' % deep)
    assert verify(queue).code == 9
    assert eventq("status", "--queue", queue).code == 9
    whole = copied(queue, tmp_path / "whole")  # with a chain that fits
    file = segments(whole)[-1]
    file.write_bytes(file.read_bytes()[: -len(deep) - 33])
    ask = b'"ask":{"deep":%b,' % deep
    rewrite(whole, lambda body: body.replace(b'"ask":{', ask), len(lines(whole)))
    assert (verify(whole).code, eventq("status", "--queue", whole).code) == (9, 9)
    assert eventq("repair", "--queue", queue, "--to", tmp_path / "copy").code == 0
    assert eventq("verify", "--queue", tmp_path / "copy").code == 0


@pytest.mark.parametrize("value", [b"1e999", b"9" * 5000])
def test_a_value_that_no_queue_takes_is_not_legal(value: bytes, tmp_path: Path) -> None:
    """However whole the chain is; who wants to look at it is told so, not shown another value."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        q.enqueue("a", 5)
        q.enqueue("b", 5)
    rewrite(path, lambda body: body.replace(b'"payload":5', b'"payload":%b' % value), 3)
    ran = verify(path)
    assert ran.code == 7
    assert [(one["seq"], one["fault"]) for one in ran.value["problems"]] == [
        (3, "decided otherwise")
    ]
    for asked in (("at", "3", "b"), ("history", "b")):
        told = eventq(*asked, "--queue", path, "--json")
        assert (told.code, told.error["error"], told.out) == (3, "bad_value", "")
    assert eventq("at", "3", "a", "--queue", path).code == 0


@pytest.mark.parametrize("at", [b"0001-01-01T00:00:00.000000+10:00", b"9999-12-31T23:59:59-10:00"])
def test_a_time_that_utc_has_not_is_damage(queue: Path, at: bytes) -> None:
    """However whole the chain is."""
    rewrite(
        queue, lambda body: re.sub(rb'"at":"[^"]*"', b'"at":"%b"' % at, body), len(lines(queue))
    )
    ran = verify(queue)
    assert ran.code == 9
    assert "eventq did not write it" in ran.value["problems"][0]["what"]
