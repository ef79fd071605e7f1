"""What has happened to a task is told whole, life after life; and `log`, `history` and `at`."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from disk import Ticks, copied, lines, segments, tour, untouched
from ledger import Ledger, Walk
from terminal import COMMAND, environment, eventq, everything, nightly

from eventq import (
    Capacity,
    Enqueue,
    LogDamaged,
    QueueFull,
    Retention,
    StaleLease,
    UnknownTask,
    WorkQueue,
)
from eventq.cli.past import taken_by
from eventq.cli.wording import EVENTS
from eventq.core.commands import Cancel, Redrive, Start
from eventq.core.events import (
    QUEUE_EVENTS,
    TASK_EVENTS,
    Cancelled,
    Completed,
    Died,
    Enqueued,
    Forgotten,
    TaskEvent,
)
from eventq.core.evolve import evolve
from eventq.core.state import State
from eventq.queries.history import latest, lives, moments
from eventq.storage.lines import last_seq
from eventq.storage.lines import lines as lines_since


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several files with every event in it."""
    path = tmp_path_factory.mktemp("toured") / "queue"
    tour(path)
    return path


# The lives of a task.


def test_each_event_of_a_task_is_told_once_with_its_entry() -> None:
    """In the order of the log, with who asked, what and why."""
    ledger = Ledger().tasks(a="", b="a").kill("a").do(Redrive("a")).succeed("a").succeed("b")
    (life,) = lives(ledger.entries, "b")
    told = [(one.seq, one.do, type(one.event).__name__) for one in life.moments]
    assert told == [
        (3, "enqueue", "Enqueued"),
        (5, "fail", "Blocked"),
        (6, "redrive", "Unblocked"),
        (8, "complete", "Readied"),
        (9, "start", "Started"),
        (10, "complete", "Completed"),
    ]
    assert all(one.at == ledger.entries[one.seq - 1].at for one in life.moments)
    assert isinstance(life.last.event, Completed)
    assert not life.forgotten


def test_an_id_that_was_forgotten_and_enqueued_again_has_two_lives() -> None:
    """The first ends with `Forgotten`, and tells how it ended before that."""
    ledger = Ledger(retention=Retention(0)).tasks(a="").succeed("a")
    ledger(Start())
    ledger.tasks(a="").do(Cancel("a"))
    first, second = lives(ledger.entries, "a")
    assert first.forgotten
    assert isinstance(first.moments[-1].event, Forgotten)
    assert isinstance(first.last.event, Completed)
    assert not second.forgotten
    assert isinstance(second.moments[0].event, Enqueued)
    assert isinstance(second.last.event, Cancelled)


def test_an_id_that_was_never_enqueued_has_no_life() -> None:
    """Not even when others name it."""
    assert lives(Ledger().tasks(a="ghost").entries, "ghost") == []


@pytest.mark.parametrize("seed", range(4))
def test_the_lives_of_all_tasks_are_all_their_events(seed: int) -> None:
    """Nothing is lost, and the last life stands where the state says."""
    ledger = Walk(seed, retention=Retention(1)).walk(200)
    told = [one for entry in ledger.entries for one in moments(entry)]
    names = {one.event.task for one in told if isinstance(one.event, TaskEvent)}
    found = {name: lives(ledger.entries, name) for name in names}
    for name, lived in found.items():
        assert [one for one in told if getattr(one.event, "task", None) == name] == [
            one for life in lived for one in life.moments
        ]
        assert all(isinstance(life.moments[0].event, Enqueued) for life in lived)
        assert all(life.forgotten for life in lived[:-1])
        assert lived[-1].forgotten == (name not in ledger.state)


def test_the_latest_event_of_a_kind_is_found_for_many_tasks_at_once() -> None:
    """The second death of a task, and not the first."""
    ledger = Ledger().tasks(a="", b="").kill("a", "b").do(Redrive("a")).kill("a")
    found = latest(ledger.entries, ["a", "b", "c"], (Died,))
    assert {task: one.seq for task, one in found.items()} == {
        "a": ledger.entries[-1].seq,
        "b": ledger.entries[-4].seq,
    }


# Lines, from anywhere.


def test_lines_are_read_from_any_entry_on(queue: Path) -> None:
    """The same as if all were read, and those before passed over."""
    every = lines(queue)
    for since in range(1, len(every) + 3):
        assert [line.bytes for line in lines_since(queue / "log", since)] == every[since - 1 :]
    assert last_seq(queue / "log") == len(every)


def test_a_log_of_one_file_is_read_from_any_entry_on(tmp_path: Path) -> None:
    """Also where lines are long and short, and the last is cut short."""
    with WorkQueue.open(tmp_path / "queue") as q:
        for number in range(40):
            q.enqueue(payload="x" * (number % 7) ** 5)
    every = lines(tmp_path / "queue")
    with segments(tmp_path / "queue")[0].open("ab") as file:
        file.write(every[-1][:-9] * 3)
    for since in range(1, 43):
        found = [line.bytes for line in lines_since(tmp_path / "queue" / "log", since)]
        assert found == every[since - 1 :]
    assert last_seq(tmp_path / "queue" / "log") == 41


# eventq history


def test_history_tells_every_event_with_the_fields_of_the_log(queue: Path) -> None:
    """As JSON: the time, who, what, why, and what the event itself says."""
    with untouched(queue):
        ran = eventq("history", "fetch", "--queue", queue, "--json")
    assert ran.code == 0
    assert ran.value["task"] == "fetch"
    told = list(itertools.chain(*ran.value["lives"]))
    for one in told:
        assert list(one)[:6] == ["seq", "at", "by", "do", "why", "type"]
        assert "task" not in one
    kinds = {one["type"]: one for one in told}
    assert kinds["failed"]["error"]
    assert kinds["enqueued"]["payload"] == {
        "url": "https://example.org/",
        "n": [1, 1.0, -0.0, None, True],
    }
    assert kinds["started"]["lease"] == kinds["started"]["seq"]
    redriven = next(one for one in told if one["type"] == "redriven")
    assert (redriven["by"], redriven["why"]) == ("ann", "they say it is back")


def test_history_tells_who_failed_a_task_and_how(tmp_path: Path) -> None:
    """In words: attempt, worker, lease, error."""
    path = nightly(tmp_path / "queue")
    out = eventq("history", "fetch", "--queue", path).out
    assert out.splitlines()[0] == "fetch: 5 events"
    assert "handed out to w1, attempt 1, lease 3" in out
    assert "  4  2026-11-30 12:00:04Z  w1  fail         failed attempt 1: HTTP 503" in out
    assert "blocked by fetch" in eventq("history", "parse", "--queue", path).out


def test_history_finds_a_forgotten_task_and_its_later_lives(tmp_path: Path) -> None:
    """Each life under a title of its own."""
    path = everything(tmp_path / "queue")
    one = eventq("history", "gone", "--queue", path)
    assert one.code == 0
    assert "gone: 5 events, forgotten since" in one.out
    with WorkQueue.open(path) as q:
        q.enqueue("gone", "again")
    two = eventq("history", "gone", "--queue", path)
    assert "gone, life 1 of 2: 5 events, forgotten since" in two.out
    assert "gone, life 2 of 2: 2 events" in two.out
    value = eventq("history", "gone", "--queue", path, "--json").value
    assert [len(life) for life in value["lives"]] == [5, 2]
    assert value["forgotten"] is False


def test_history_of_an_unknown_id_says_what_may_have_been_meant(tmp_path: Path) -> None:
    """Exit 3."""
    path = nightly(tmp_path / "queue")
    ran = eventq("history", "fetsh", "--queue", path)
    assert ran.code == 3
    assert "no task has this id" in ran.err
    assert "did you mean 'fetch'?" in ran.err
    assert eventq("history", "zzz", "--queue", path).err.count("\n") == 1
    assert eventq("history", "\udcff", "--queue", path).code == 3


# eventq log


def test_log_as_json_is_the_bytes_on_disk(queue: Path) -> None:
    """Line for line, hash and all, whatever is chosen of them."""
    every = b"".join(lines(queue)).decode()
    with untouched(queue):
        assert eventq("log", "--queue", queue, "--json").out == every
    chosen = eventq("log", "--queue", queue, "--json", "--since", 7, "-n", 3).out
    assert chosen == b"".join(lines(queue)[6:9]).decode()
    assert (
        eventq("log", "--queue", queue, "--json", "-n", 2).out
        == b"".join(lines(queue)[-2:]).decode()
    )


def test_log_tells_each_event_in_a_line(tmp_path: Path) -> None:
    """Its entry, when, who, what was asked and what happened to which task."""
    path = nightly(tmp_path / "queue")
    out = eventq("log", "--queue", path).out.splitlines()
    assert len(out) == 10
    started = "fetch: handed out to w1, attempt 1"
    assert out[5] == f"     3  2026-11-30 12:00:03Z  w1        start     {started}"
    assert out[-1] == "     4  2026-11-30 12:00:04Z  w1        fail      report: blocked by fetch"


def test_log_of_a_task_leaves_the_others_out(queue: Path) -> None:
    """In JSON the lines are whole."""
    out = eventq("log", "--queue", queue, "--task", "parse").out.splitlines()
    assert out
    assert all("  parse: " in line for line in out)
    found = eventq("log", "--queue", queue, "--task", "parse", "--json").values
    assert [entry["seq"] for entry in found] == sorted({int(line[:6]) for line in out})
    assert all(any(e.get("task") == "parse" for e in entry["events"]) for entry in found)
    last = eventq("log", "--queue", queue, "--task", "parse", "--json", "-n", 1).values
    assert last == found[-1:]


def test_log_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    """Exit 3, as of `history` and `at`: a task that the log never names, an entry beyond its end.
    A task of which nothing is told since then is none of these."""
    path = nightly(tmp_path / "queue")
    with WorkQueue.open(path) as q:
        q.enqueue("more")
    for more in ([], ["--json"], ["--since", 3]):
        ran = eventq("log", "--task", "fetsh", "--queue", path, *more)
        assert (ran.code, ran.out) == (3, "")
        assert "did you mean 'fetch'?" in ran.err
    for more in ([], ["--task", "fetch"]):
        ran = eventq("log", "--since", 6, "--queue", path, *more)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == "eventq: there is no entry 6: the log has entries 1 to 5\n"
    ran = eventq("log", "--task", "fetch", "--since", 5, "--queue", path)
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_a_lease_was_taken_by_whoever_ended_it(tmp_path: Path) -> None:
    """Not by who has cancelled the task later, when others had it."""
    now = Ticks()
    with WorkQueue.open(tmp_path / "queue", clock=now) as q:
        q.enqueue("a")
        lost = q.start(lease_for=1)
        now.at += timedelta(seconds=9)
        kept = q.start()
        assert lost is not None
        assert kept is not None
        q.renew(kept, lease_for=60)
        q.cancel("a", why="stuck", by="alice")
    assert taken_by(tmp_path / "queue", lost) == {}
    assert taken_by(tmp_path / "queue", kept) == {"cancelled_by": "alice", "why": "stuck"}
    assert taken_by(tmp_path / "nothing", kept) == {}


def test_log_reads_up_to_the_damage(queue: Path, tmp_path: Path) -> None:
    """What stands before it is told, then the damage; `history` and `at` answer as well."""
    path = copied(queue, tmp_path / "queue")
    file = segments(path)[1]
    file.write_bytes(file.read_bytes().replace(b'"type"', b'"tyqe"', 1))
    seq = int(file.stem)
    ran = eventq("log", "--queue", path, "--json")
    assert ran.code == 9
    assert len(ran.values) == seq - 1
    assert ran.error["error"] == "log_damaged"
    assert (ran.error["seq"], ran.error["line"], ran.error["byte"]) == (seq, 1, 0)
    assert ran.error["file"] == str(file)
    assert eventq("at", seq - 2, "--queue", path).code == 0
    assert eventq("at", seq, "--queue", path).code == 9
    assert eventq("status", "--queue", path).code == 9


@pytest.mark.parametrize("words", [["--since", "0"], ["-n", "0"], ["--since", "x"]])
def test_a_number_that_makes_no_sense_is_a_usage_error(queue: Path, words: list[str]) -> None:
    """Entries are counted from 1."""
    assert eventq("log", "--queue", queue, *words).code == 2


# eventq at


def test_at_is_the_state_after_that_entry(queue: Path) -> None:
    """For every entry of the log: the tasks and the counts."""
    state = State()
    with WorkQueue.open(queue, read_only=True) as q:
        entries = list(q.entries())
    with untouched(queue):
        for entry in entries:
            state = evolve(state, entry)
            value = eventq("at", entry.seq, "--queue", queue, "--json").value
            assert (value["seq"], value["admission"]) == (state.seq, state.admission)
            assert [(task["id"], task["status"]) for task in value["tasks"]] == [
                (task.id, task.status) for task in state.tasks()
            ]
            assert value["counts"] == state.counts()


def test_at_of_one_task_tells_it_as_it_stood(tmp_path: Path) -> None:
    """Its fields are those of a Task."""
    path = nightly(tmp_path / "queue")
    value = eventq("at", 3, "fetch", "--queue", path, "--json").value
    assert (value["status"], value["attempt"], value["lease"]) == ("RUNNING", 1, 3)
    assert value["payload"] == {"url": "https://example.org/"}
    out = eventq("at", 4, "fetch", "--queue", path).out
    assert "status   DEAD" in out
    assert "reason   failed after 1 attempts: HTTP 503" in out
    assert eventq("at", 1, "fetch", "--queue", path).code == 3


def test_at_knows_no_entry_beyond_the_log(tmp_path: Path) -> None:
    """Exit 3, and what there is; 0 is before the first."""
    path = nightly(tmp_path / "queue")
    assert eventq("at", 0, "--queue", path, "--json").value["tasks"] == []
    ran = eventq("at", 5, "--queue", path)
    assert ran.code == 3
    assert ran.err == "eventq: there is no entry 5: the log has entries 1 to 4\n"
    error = eventq("at", 5, "--queue", path, "--json").error
    assert (error["error"], error["seq"]) == ("no_such_entry", 5)
    assert eventq("at", "--queue", path, "--", -1).code == 2


def test_every_event_has_its_words() -> None:
    """None is told by the name of its class."""
    assert set(EVENTS) == {*TASK_EVENTS, *QUEUE_EVENTS}


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"seq":', b'"sqe":'), (b'"hash":', b'"hush":')],
    ids=["without a seq", "without a hash"],
)
def test_where_the_line_before_is_none_reading_begins_earlier(
    old: bytes, new: bytes, tmp_path: Path
) -> None:
    """Found by halving, it is not taken at its word: what is damaged is that line."""
    path = tmp_path / "q"
    with WorkQueue.open(path) as q:
        for _ in range(8):
            q.enqueue()
    (file,) = segments(path)
    texts = file.read_bytes().splitlines(keepends=True)
    texts[4] = texts[4].replace(old, new, 1)
    file.write_bytes(b"".join(texts))
    with pytest.raises(LogDamaged) as caught:
        list(lines_since(path / "log", 6))
    assert (caught.value.seq, caught.value.line) == (5, 5)


def following(path: Path, *more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "log", "--follow", *more, "--queue", path],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_log_is_followed_as_it_grows(tmp_path: Path) -> None:
    """Whoever writes, across segments, each line once and whole; until Ctrl-C."""
    path = nightly(tmp_path / "queue", segment_bytes=1)
    with following(path, "--json", "-n", "2") as shown, WorkQueue.open(path, segment_bytes=1) as q:
        assert shown.stdout is not None
        out = shown.stdout
        assert [out.readline() for _ in range(2)] == lines(path)[-2:]
        for n in range(5):
            q.enqueue(f"more-{n}")
            assert out.readline() == lines(path)[-1]
        q.enqueue_all([Enqueue(f"batch-{n}") for n in range(3)])
        assert out.readline() == lines(path)[-1]
        shown.send_signal(signal.SIGINT)
        assert (out.read(), shown.wait(60)) == (b"", 130)


def test_a_log_whose_beginning_is_archived_is_followed_from_what_is_there(tmp_path: Path) -> None:
    """And says what is not."""
    path = nightly(tmp_path / "queue", segment_bytes=1)
    with WorkQueue.open(path, segment_bytes=1) as q:
        q.archive(tmp_path / "attic", keep=2)
        left = lines(path)
        with following(path, "--json") as shown:
            assert shown.stdout is not None
            assert shown.stderr is not None
            assert json.loads(shown.stderr.readline())["error"] == "archived"
            q.enqueue("more")
            out = [shown.stdout.readline() for _ in range(len(left) + 1)]
            assert out == lines(path) == [*left, out[-1]]
            shown.send_signal(signal.SIGINT)
            assert (shown.stdout.read(), shown.wait(60)) == (b"", 130)


def test_half_a_line_is_not_followed(tmp_path: Path) -> None:
    """Before the rest of it is there."""
    path = nightly(tmp_path / "queue")
    (file,) = segments(path)
    text = file.read_bytes()
    *_, last = lines(path)
    file.write_bytes(text[:-9])
    with following(path, "--json", "--since", "4") as shown:
        assert shown.stdout is not None
        os.set_blocking(shown.stdout.fileno(), False)
        assert not select.select([shown.stdout], [], [], 1.5)[0]
        with file.open("ab") as log:
            log.write(text[-9:])
        assert select.select([shown.stdout], [], [], 60)[0]
        assert shown.stdout.read() == last
        shown.kill()


def test_a_task_is_followed_that_is_not_there_yet(tmp_path: Path) -> None:
    """And nothing of the others is shown; who reads no more ends it."""
    path = nightly(tmp_path / "queue")
    with following(path, "--task", "late") as shown, WorkQueue.open(path) as q:
        q.enqueue("early")
        q.enqueue("late")
        assert shown.stdout is not None
        assert b"late: enqueued" in shown.stdout.readline()
        shown.stdout.close()
        assert shown.wait(60) == 141


def test_what_is_followed_has_no_end(tmp_path: Path) -> None:
    """To ask for one is a mistake."""
    path = nightly(tmp_path / "queue")
    for more in (["--until", "3"], ["--since", "1", "-n", "2"]):
        ran = eventq("log", "-f", *more, "--queue", path)
        assert (ran.code, ran.out) == (2, "")
        assert "--follow has no end: leave out --until, and -n where --since is" in ran.err


def test_the_log_shows_what_was_refused_where_that_is_recorded(tmp_path: Path) -> None:
    """With the tasks that were named, or the lease; and starts that got nothing."""
    path = tmp_path / "queue"
    with WorkQueue.open(path, capacity=Capacity(2), record=True, clock=Ticks()) as q:
        q.enqueue_all([Enqueue("a"), Enqueue("b")])
        for more in (["c"], [f"batch-{n}" for n in range(5)]):
            with pytest.raises(QueueFull):
                q.enqueue_all([Enqueue(name) for name in more])
        with pytest.raises(UnknownTask):
            q.cancel("ghost")
        lease = q.start("w")
        assert lease is not None
        q.complete(lease)
        with pytest.raises(StaleLease):
            q.complete(lease)
        q.pause()
        assert q.start("w") is None
    out = eventq("log", "--queue", path).out.splitlines()
    told = [line.split(maxsplit=5)[4:] for line in out]  # what was asked, and what happened
    assert [one for one in told if "refused" in one[1] or "nothing" in one[1]] == [
        ["enqueue_all", "c: refused: full"],
        ["enqueue_all", "batch-0, batch-1, batch-2 and 2 more: refused: full"],
        ["cancel", "ghost: refused: unknown task"],
        ["complete", "lease 6: refused: stale lease"],
        ["pause", "paused: nothing is handed out"],
        ["start", "there was nothing to hand out"],
    ]
    (line,) = eventq("log", "--queue", path, "--task", "batch-4").out.splitlines()
    assert line.endswith("and 2 more: refused: full")
    assert eventq("log", "--queue", path, "--task", "batch-5").code == 3


def test_history_tells_what_stands_before_damage(tmp_path: Path) -> None:
    """And then that there is damage: exit 9, as `log` does."""
    path = nightly(tmp_path / "queue")
    (file,) = segments(path)
    file.write_bytes(file.read_bytes().replace(b'"HTTP 503"', b'"HTTP 504"'))
    for more in ([], ["--json"]):
        ran = eventq("history", "fetch", "--queue", path, *more)
        assert ran.code == 9
        assert ("started" if more else "handed out") in ran.out
        assert "HTTP" not in ran.out
    assert eventq("history", "ghost", "--queue", path).code == 9


def test_a_log_without_its_beginning_is_not_shown_as_if_it_were_whole(tmp_path: Path) -> None:
    """It is damage, but where the beginning was archived; what is asked for behind it is shown."""
    path = nightly(tmp_path / "queue", segment_bytes=1)
    first, *_ = segments(path)
    first.unlink()
    for words in (["log"], ["log", "--since", 1], ["log", "--task", "fetch"], ["history", "fetch"]):
        ran = eventq(*words, "--queue", path)
        assert (ran.code, ran.out) == (9, "")
        assert "the log begins only with entry 2" in ran.err
    assert eventq("log", "--since", 2, "--queue", path).code == 0
