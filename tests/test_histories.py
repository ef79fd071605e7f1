"""Concurrent histories: those of real processes are explained, and each kind of lie is found."""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from disk import Ticks
from forked import Child, Work, check, children, hear

from eventq import (
    Backoff,
    Capacity,
    Entry,
    QueueFull,
    Refusal,
    Retention,
    Retry,
    Select,
    StaleLease,
    Status,
    WorkerBusy,
    WorkQueue,
)
from eventq.core.commands import (
    Cancel,
    Close,
    Command,
    Complete,
    CompleteAndStart,
    Enqueue,
    EnqueueAll,
    Fail,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
)
from eventq.testing import Call, Recorder, Recording, explain
from eventq.testing.histories import Read

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
KILLS = 150 if THOROUGH else 12
CALLERS = 5
DAY = timedelta(days=1)

POLICY: dict[str, Any] = {
    "capacity": Capacity(6),
    "retry": Retry(max_attempts=2, max_redrives=1, backoff=Backoff(0.001, cap=0.01)),
    "retention": Retention(4),
    "lease_for": 0.02,
}


# Several processes, and several threads.


def ask_on(recorder: Recorder, draw: random.Random, times: int) -> None:
    """Ask many things, of few tasks, so that callers get in each other's way."""
    leases = [1]
    for _ in range(times):
        with contextlib.suppress(Refusal):
            answer = ask_once(recorder, draw, leases)
            if lease := getattr(answer, "id", None):
                leases = [*leases, lease][-4:]


def ask_once(recorder: Recorder, draw: random.Random, leases: list[int]) -> Any:
    """The lease that was given, if one was."""
    name = draw.choice("abcdefgh")
    lease = draw.choice([*leases, leases[-1]])
    worker = draw.choice((None, "w1", "w2"))
    after = draw.sample("abc", draw.randint(0, 2)) if name > "c" else ()
    enqueue = Enqueue(draw.choice((name, None)), draw.choice((1, {"n": 1})), after)
    operators = (Cancel, Redrive, Resolve, Restore)
    ways: list[tuple[float, Callable[[], Any]]] = [
        (8, lambda: enqueue),
        (1, lambda: EnqueueAll([Enqueue(n, 1) for n in draw.sample("abcdefgh", 2)])),
        (6, lambda: Start(worker, draw.choice((None, 0.01)))),
        (5, lambda: Complete(lease, draw.choice((None, [1])))),
        (2, lambda: CompleteAndStart(lease, None, worker)),
        (3, lambda: Fail(lease, "no luck", draw.choice(("retryable", "permanent")))),
        (1, lambda: Renew(lease, 0.05)),
        (1, lambda: Release(lease)),
        (2, lambda: draw.choice(operators)(name)),
        (0.5, lambda: draw.choice((Tick(), RedriveAll(Select()), Pause(), Close()))),
        (1.5, lambda: draw.choice((Resume(), Reopen()))),
        (0.1, lambda: Reconfigure(recorder.queue.policy)),
    ]
    match draw.random():
        case chance if chance < 0.2:
            recorder.task(name)
            return None
        case chance if chance < 0.25:
            return recorder.ask(Start(worker), wait=0.005)
    way = draw.choices([way for _, way in ways], [weight for weight, _ in ways])[0]
    answer = recorder.ask(way())
    return answer if hasattr(answer, "expires") else None


def caller(path: Path, by: str) -> Work:
    """A process that tells of each call in a line of its own."""

    def work(tell: Callable[[str], None]) -> None:
        def written(call: Call) -> None:
            tell(base64.b64encode(pickle.dumps(call)).decode())

        with WorkQueue.open(path, segment_bytes=20_000) as q:
            ask_on(Recorder(q, by, written), random.Random(by), 1_000_000)

    return work


def read(line: str) -> Call:
    call = pickle.loads(base64.b64decode(line))
    assert isinstance(call, Call)
    return call


@pytest.mark.parametrize("record", [False, True], ids=["plain", "all recorded"])
def test_what_processes_are_answered_is_explained(tmp_path: Path, record: bool) -> None:
    """Five at a time ask, and are killed at any moment: one order of the log explains it all."""
    path = tmp_path / "q"
    rng = random.Random(time.time_ns() if THOROUGH else 3)
    recording = Recording()
    with WorkQueue.open(path, record=record, by="parent", **POLICY) as q:
        assert q.state.seq == 1
    names = (f"p{n}" for n in range(1_000_000))
    with children(*(caller(path, next(names)) for _ in range(CALLERS))) as running:

        def listen(seconds: float) -> None:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                for _, lines in hear(running, left):
                    for line in lines:
                        recording.hear(read(line))

        for _ in range(KILLS):
            listen(rng.uniform(0, 0.1))
            one = rng.choice(running)
            one.kill()
            code, rest = one.end()
            assert code == -signal.SIGKILL
            for line in rest:
                recording.hear(read(line))
            running[running.index(one)] = Child(caller(path, next(names)))
        listen(0.1)
        for one in running:
            one.kill()
            for line in one.end()[1]:
                recording.hear(read(line))
    check(path)
    with WorkQueue.open(path, read_only=True) as q:
        entries = list(q.entries())
    calls = recording.calls
    moments = explain(calls, entries)
    asked = Counter(type(call.command).__name__ for call in calls)
    refused = Counter(type(c.answer).__name__ for c in calls if isinstance(c.answer, Refusal))
    unanswered = [call for call in calls if call.end is None]
    print(
        f"\n{len(calls)} calls, {len(moments)} explained, {len(unanswered)} unanswered, "
        f"{len(entries)} entries, {dict(asked)}, {dict(refused)}"
    )
    assert len(moments) >= len(calls) - len(unanswered) > 100
    assert unanswered
    assert {"StaleLease", "UnknownTask", "OtherContent", "WrongStatus"} <= set(refused)


def test_what_threads_are_answered_is_explained() -> None:
    """On one handle, in memory: the values that they ask with are the objects themselves."""
    recording = Recording()
    with WorkQueue.in_memory(by="parent", **POLICY) as q:
        threads = [
            threading.Thread(
                target=ask_on, args=(Recorder(q, f"t{n}", recording.hear), random.Random(n), 150)
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        moments = explain(recording.calls, q.entries())
    assert len(moments) == len(recording.calls) == 600


# Lies.


@frozen
class History:
    """What was recorded, and what the log says; a lie is told by changing one of them."""

    calls: tuple[Call, ...]
    entries: tuple[Entry, ...]

    def of(self, number: int, **changes: Any) -> History:
        """Something else about a call."""
        calls = list(self.calls)
        calls[number] = evolve(calls[number], **changes)
        return History(tuple(calls), self.entries)

    def at(self, seq: int, **changes: Any) -> History:
        """Something else about an entry."""
        entries = list(self.entries)
        entries[seq - 1] = evolve(entries[seq - 1], **changes)
        return History(self.calls, tuple(entries))

    def explain(self) -> dict[Call, int]:
        return explain(self.calls, self.entries)


def honest() -> History:
    """Two callers, one after the other, by a clock that ticks."""
    recording, clock = Recording(), Ticks()
    told: list[Call] = []

    def tell(call: Call) -> None:
        recording.hear(call)
        told.append(call)

    with WorkQueue.in_memory(clock=clock, capacity=Capacity(1), record=False) as q:
        ann, bob = (Recorder(q, name, tell, clock=clock) for name in ("ann", "bob"))

        def refused(by: Recorder, command: Command) -> None:
            with pytest.raises(Refusal):
                by.ask(command)

        ann.ask(Enqueue("a", "x"))  # call 0, entry 2
        bob.ask(Enqueue("a", "x"))  # call 1: a repeat
        refused(bob, Enqueue("b"))  # call 2: full
        lease = bob.ask(Start("w"))  # call 3, entry 3
        ann.ask(Start("v"))  # call 4: nothing to start
        ann.task("a")  # call 5
        refused(ann, Complete(99))  # call 6: stale
        bob.ask(Complete(lease.id, "done"))  # call 7, entry 4
        ann.task("a")  # call 8
        ann.ask(Enqueue("b"))  # call 9, entry 5
        ann.ask(Pause())  # call 10, entry 6
        bob.ask(Start("w"))  # call 11: paused
        bob.ask(EnqueueAll([Enqueue("a", "x"), Enqueue("b")]))  # call 12: repeats
        ann.ask(RedriveAll(Select()))  # call 13: nothing to redrive
        return History(tuple(recording.calls), tuple(q.entries()))


def other(history: History, number: int, **changes: Any) -> Any:
    """The answer of a call, a little otherwise."""
    return evolve(history.calls[number].answer, **changes)


def swapped(history: History) -> History:
    """A log whose times fall: what ended first stands last."""
    calls, entries = list(history.calls), list(history.entries)
    one, two = calls[0], calls[10]
    with WorkQueue.in_memory(clock=Ticks()) as q:
        q.pause(by="ann")
        q.enqueue("a", "x", by="bob")
        entries = list(q.entries())
        task = q.task("a")
    first = evolve(one, by="bob", answer=task)
    second = evolve(two, begin=one.begin + timedelta(hours=1), end=one.end + timedelta(hours=1))
    entries[1] = evolve(entries[1], at=second.begin)
    entries[2] = evolve(entries[2], at=first.begin)
    return History((first, second), tuple(entries))


LIES: dict[str, tuple[Callable[[History], History], str]] = {
    "a lease of another": (
        lambda h: h.of(3, answer=other(h, 3, id=2)),
        "by its entry 3 it should be",
    ),
    "a payload of another": (lambda h: h.of(3, answer=other(h, 3, payload="y")), "should be"),
    "a lease that was not told": (lambda h: h.of(3, answer=None), "should be Lease"),
    "a status that was not so": (
        lambda h: h.of(7, answer=other(h, 7, status=Status.READY)),
        "by its entry 4 it should be",
    ),
    "a repeat as it was not": (
        lambda h: h.of(1, answer=other(h, 1, status=Status.DELAYED)),
        "it is answered Task",
    ),
    "a repeat of what had not come": (
        lambda h: h.of(1, begin=h.entries[0].at, end=h.entries[0].at),
        "it does",
    ),
    "an answer before there was a queue": (
        lambda h: h.of(1, begin=h.entries[0].at - DAY, end=h.entries[0].at - DAY),
        "it was over before that",
    ),
    "a refusal for nothing": (
        lambda h: h.of(9, answer=QueueFull(1, 1, 1, "waiting")),
        "by its entry 5 it should be",
    ),
    "a refusal too late": (
        lambda h: h.of(
            2,
            begin=h.calls[3].end + timedelta(microseconds=1),
            end=h.calls[3].end + timedelta(microseconds=2),
        ),
        "it does",
    ),
    "another reason": (
        lambda h: h.of(6, answer=StaleLease(98, "complete")),
        "it is refused: cannot complete: lease 99",
    ),
    "a yes for what is refused": (lambda h: h.of(6, answer=other(h, 7)), "it is refused"),
    "nothing to start, though there was": (
        lambda h: h.of(4, begin=h.calls[2].begin, end=h.calls[2].end, by="eve"),
        "it does",
    ),
    "an old look": (lambda h: h.of(8, answer=h.calls[5].answer), "the task is"),
    "a look ahead": (lambda h: h.of(5, answer=h.calls[8].answer), "the task is"),
    "a look at what was done after it": (
        lambda h: h.of(5, answer=h.calls[8].answer).of(7, begin=h.calls[5].begin),
        "the task is",
    ),
    "a task that was never there": (
        lambda h: h.of(8, command=Read("zoe")),
        "the task is None",
    ),
    "a yes that is not in the log": (
        lambda h: History(h.calls, h.entries[:-1]),
        "it does",
    ),
    "a yes whose entry is another": (
        lambda h: h.at(6, do="resume"),
        "entry 6 .resume. is not what was asked",
    ),
    "another result": (
        lambda h: h.of(7, command=Complete(3, "lost")),
        "entry 4 .complete. says",
    ),
    "another argument": (
        lambda h: h.at(4, ask={"lease": 2}),
        "says that .*'lease': 2.* was asked",
    ),
    "another worker": (lambda h: h.of(3, command=Start("v")), "entry 3 .start. says"),
    "an entry of nobody": (lambda h: h.at(6, by="eve"), "entry 6 .* by no call"),
    "an entry of no call": (
        lambda h: History(h.calls[:10] + h.calls[11:], h.entries),
        "entry 6 .* by no call",
    ),
    "an entry after the answer": (
        lambda h: h.at(6, at=h.calls[10].end + timedelta(microseconds=1)),
        "entry 6 .* by no call",
    ),
    "asked once, done twice": (
        lambda h: History(h.calls, (*h.entries, evolve(h.entries[5], seq=7, do="tick", events=()))),
        "it has entries .6, 7.",
    ),
    "a look that wrote": (lambda h: h.of(10, command=Read("a")), "is not what was asked"),
    "what ended first stands last": (swapped, "entry 3 was known to a call that had ended before"),
}


def test_what_is_true_is_explained() -> None:
    """Each call has its moment; of who was killed the entry counts, if there is one."""
    history = honest()
    moments = history.explain()
    assert [moments[call] for call in history.calls] == [2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 6, 6, 6, 6]
    for number in (0, 3, 7, 9, 10):
        unanswered = history.of(number, end=None, answer=None)
        unanswered = evolve(unanswered, calls=unanswered.calls[: number + 1])
        seq = moments[history.calls[number]]
        assert evolve(unanswered, entries=history.entries[:seq]).explain()
        assert len(evolve(unanswered, entries=history.entries[: seq - 1]).explain()) == number


@pytest.mark.parametrize(("lie", "found"), LIES.values(), ids=LIES)
def test_every_lie_is_found(lie: Callable[[History], History], found: str) -> None:
    """And told: what was asked, and what should have been the answer."""
    history = lie(honest())
    with pytest.raises(AssertionError, match=found):
        history.explain()


def test_nothing_to_start_means_that_nothing_was_due() -> None:
    """By the time at which the call began."""
    recording, clock = Recording(), Ticks()
    with WorkQueue.in_memory(clock=clock) as q:
        ann = Recorder(q, "ann", recording.hear, clock=clock)
        ann.ask(Enqueue("a", not_before=clock.at + timedelta(minutes=1)))
        ann.ask(Start("w"))
        history = History(tuple(recording.calls), tuple(q.entries()))
    assert list(history.explain().values()) == [2, 2]
    begin = history.calls[1].begin + timedelta(hours=1)
    with pytest.raises(AssertionError, match="it does"):
        history.of(1, begin=begin, end=begin).explain()


def test_a_start_that_waits_may_do_due_work_on_its_way() -> None:
    """And be refused, be given a task or have none in the end; another start gives one at most."""
    recording, clock = Recording(), Ticks()
    with WorkQueue.in_memory(clock=clock, retry=Retry(backoff=Backoff(3600))) as q:
        ann = Recorder(q, "ann", recording.hear, clock=clock)
        ann.ask(Enqueue("a"))
        ann.ask(Start("w", 0.5))
        ann.ask(Start("w"), wait=0)
        bob = Recorder(q, "bob", recording.hear, clock=clock)
        bob.ask(Enqueue("b"))
        lease = bob.ask(Start("w"))
        history = History(tuple(recording.calls), tuple(q.entries()))
    waited, started = history.calls[2], history.calls[4]
    assert history.entries[3].do == "start"
    assert history.explain()[waited] == 4
    told = list(history.calls[:2])
    busy = WorkerBusy("w", "b", lease.id)
    refused = evolve(waited, end=clock.at, answer=busy)
    assert explain([*told, refused, *history.calls[3:]], history.entries)[refused] == 6
    for answer in (WorkerBusy("w", "b", 5), WorkerBusy("v", "b", lease.id), lease):
        lie = evolve(waited, end=clock.at, answer=answer)
        with pytest.raises(AssertionError, match="ann asked Start"):
            explain([*told, lie, *history.calls[3:]], history.entries)
    one = evolve(waited, end=started.end, answer=lease)
    both = [*history.entries[:5], evolve(history.entries[5], by="ann")]
    assert explain([*told, one, history.calls[3]], both)[one] == 6
    twice = [*history.entries[:2], evolve(history.entries[2], at=waited.begin), *both[3:]]
    with pytest.raises(AssertionError, match="it has entries"):
        explain([*told[:1], one, history.calls[3]], twice)


def test_a_caller_asks_one_thing_after_the_other() -> None:
    """Else nobody knows which call an entry belongs to: that is a mistake of the recording."""
    history = honest()
    later = history.calls[5].begin + timedelta(microseconds=1)
    with pytest.raises(ValueError, match="ann asked two things at once"):
        history.of(4, end=later).explain()
    with pytest.raises(ValueError, match="the clock has fallen"):
        history.of(4, begin=later).explain()


def test_recorded_refusals_are_entries_of_their_calls() -> None:
    """With the reason that was told."""
    recording, clock = Recording(), Ticks()
    with WorkQueue.in_memory(clock=clock, record=True) as q:
        ann = Recorder(q, "ann", recording.hear, clock=clock)
        for command in (Complete(9), CompleteAndStart(9, None, "w"), Redrive("a")):
            with pytest.raises(Refusal):
                ann.ask(command)
        ann.ask(Start("w"))
        history = History(tuple(recording.calls), tuple(q.entries()))
    assert list(history.explain().values()) == [2, 3, 4, 5]
    for lie in (
        history.of(0, answer=StaleLease(8, "complete")),
        history.of(0, answer=None),
        history.of(0, command=Complete(8)),
        history.at(2, ask={**history.entries[1].ask, "refused": "full"}),
    ):
        with pytest.raises(AssertionError, match="its entry 2"):
            lie.explain()
