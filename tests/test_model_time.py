"""The reference model on time, keys and what operators ask: small histories, told by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from eventq.core.backoff import delay
from eventq.core.commands import (
    Cancel,
    Complete,
    Enqueue,
    EnqueueAll,
    Fail,
    Open,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
)
from eventq.core.errors import StaleLease, WorkerBusy
from eventq.core.events import (
    Blocked,
    Completed,
    Delayed,
    Died,
    Event,
    Expired,
    Failed,
    Forgotten,
    Readied,
    Reconfigured,
    Redriven,
    Renewed,
    Resolved,
    Started,
    Unblocked,
)
from eventq.core.policy import Backoff, Keys, Policy, Retention, Retry
from eventq.core.select import Select
from eventq.testing.drawing import Seeded, draw_backoff
from eventq.testing.facts import DUE_AT_MOST
from eventq.testing.model import Model
from eventq.testing.telling import wait_after

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def opened(policy: Policy | None = None, *tasks: Enqueue) -> Model:
    model = Model()
    model.do(Open("q", policy or Policy()), START)
    for task in tasks:
        model.do(task, START)
    return model


def told(model: Model, seconds: float, *commands: Any) -> tuple[Event, ...]:
    """The events of the last of these commands, asked so many seconds after the start."""
    events: tuple[Event, ...] = ()
    for command in commands:
        events = model.do(command, at(seconds)).events
    return events


# Time.


def test_due_work_is_told_by_time_and_then_by_what_was_set_first() -> None:
    """Leases and delays in one order; each task takes its place as its turn comes."""
    model = opened(
        Policy(lease_for=10), Enqueue("a"), Enqueue("b"), Enqueue("c", not_before=at(10))
    )
    told(model, 5, Start("w"))
    told(model, 0, Start("v"))
    assert told(model, 9, Tick()) == ()
    assert told(model, 15, Tick()) == (
        Readied("c"),
        Expired("b", 1),
        Readied("b"),
        Expired("a", 1),
        Readied("a"),
    )
    assert model.line() == ["c", "b", "a"]


def test_a_renewed_lease_is_due_by_its_last_renewal() -> None:
    """Two leases that run out at once: the one that was set first is told first."""
    model = opened(Policy(lease_for=10), Enqueue("a"), Enqueue("b"))
    first = model.seq + 1
    told(model, 0, Start("w"))
    told(model, 8, Start("v"))
    assert told(model, 8, Renew(first)) == (Renewed("a", at(18)),)
    assert told(model, 18, Tick())[::2] == (Expired("b", 1), Expired("a", 1))


def test_a_renewal_is_told_where_it_moves_the_expiry_by_more_than_half() -> None:
    """The later of both expiries holds, and a lease without an end has nothing to renew."""
    model = opened(Policy(lease_for=10), Enqueue("a"))
    lease = model.seq + 1
    told(model, 0, Start())
    assert told(model, 5, Renew(lease)) == ()
    assert told(model, 5, Renew(lease, timedelta(seconds=2))) == ()
    assert told(model, 5.5, Renew(lease)) == (Renewed("a", at(15.5)),)
    assert told(model, 15.5, Tick())[0] == Expired("a", 1)
    with pytest.raises(StaleLease):
        model.do(Renew(lease), at(16))


def test_a_worker_is_busy_until_its_lease_has_run_out() -> None:
    """It is judged after the due work, and a refused start moves nothing."""
    model = opened(Policy(lease_for=10), Enqueue("a"), Enqueue("b"), Enqueue("c", not_before=at(3)))
    told(model, 0, Start("w"))
    before = model.look()
    with pytest.raises(WorkerBusy):
        model.do(Start("w"), at(9))
    assert model.look() == before
    assert told(model, 10, Start("w"))[-1] == Started("b", 1, "w", at(20))


def test_a_wait_follows_from_the_policy_or_from_who_failed() -> None:
    """And one that is over at once is none."""
    model = opened(Policy(retry=Retry(None, backoff=Backoff(2, 3, cap=10))), Enqueue("a"))
    for attempt, wait in ((1, 6), (2, 10)):
        told(model, attempt * 100, Start())
        assert told(model, attempt * 100, Fail(model.seq, "no")) == (
            Failed("a", attempt, "no", "retryable"),
            Delayed("a", at(attempt * 100 + wait)),
        )
    told(model, 300, Start())
    assert told(model, 300, Fail(model.seq, "no", retry_after=0))[1] == Readied("a")


def test_not_before_is_looked_at_when_all_else_is_there() -> None:
    """A PENDING task is not delayed, and one whose time has come goes into the line."""
    model = opened(None, Enqueue("a"), Enqueue("b", after=["a"], not_before=at(9)))
    told(model, 1, Start())
    assert told(model, 8, Complete(model.seq)) == (Completed("a"), Delayed("b", at(9)))
    assert told(model, 9, Start()) == (Readied("b"), Started("b", 1))


def test_one_entry_carries_out_a_thousand_due_things_at_most() -> None:
    """Leases, delays and what retention lets go are counted together; the rest comes next."""
    model = opened(Policy(retention=Retention(0)), Enqueue("z"))
    told(model, 0, Cancel("z"), EnqueueAll([Enqueue(not_before=at(1))] * DUE_AT_MOST))
    assert {type(event) for event in told(model, 1, Tick())} == {Readied}
    assert told(model, 1, Tick()) == (Forgotten("z"),)


def test_retention_counts_and_keeps_for_a_time() -> None:
    """What ended longest ago goes first; an age that has just been reached lets go."""
    model = opened(Policy(retention=Retention(2, timedelta(seconds=10))), *map(Enqueue, "abc"))
    for second, name in enumerate("abc"):
        told(model, second, Cancel(name))
    assert told(model, 3, Tick()) == (Forgotten("a"),)
    assert told(model, 10, Tick()) == ()
    assert told(model, 11, Tick()) == (Forgotten("b"),)


def test_waits_are_the_same_to_the_microsecond_when_worked_out_otherwise() -> None:
    """The model's own formula, jitter included, agrees with that of the core."""
    draw = Seeded(Random(1))
    for number in range(2000):
        backoff, attempt = draw_backoff(draw), draw.pick((1, 2, 3, 60, 5000))
        of = ("q", f"t{number}\N{SNOWMAN}", 2, attempt)
        texts = [str(part) for part in of]
        assert wait_after(backoff, attempt, texts) == delay(backoff, *of)


# Keys.


def keyed(on_death: Any = "open", retry: Retry | None = None) -> Model:
    tasks = [Enqueue(name, key="k") for name in "abc"]
    return opened(Policy(None, None, retry or Retry(), None, None, Keys(on_death)), *tasks)


def test_a_key_is_held_through_retry_and_release() -> None:
    """Its holder alone can start, wherever it stands in the line; a keyless task passes."""
    model = keyed()
    told(model, 0, Enqueue("z"), Start())
    told(model, 0, Fail(model.seq, "no", retry_after=5))
    assert told(model, 1, Start()) == (Started("z", 1),)
    assert told(model, 1, Start()) == ()
    told(model, 5, Start("w"))
    assert told(model, 5, Start()) == ()
    told(model, 5, Release(model.seq))
    assert model.line() == ["b", "c", "a"]
    assert model.first() == "a"
    assert model.holders() == {"k": "a"}


def test_the_first_in_line_follows_when_the_key_is_free() -> None:
    """After a success, a cancel, and what a person did by hand."""
    model = keyed()
    told(model, 0, Start())
    told(model, 0, Complete(model.seq))
    assert told(model, 0, Start()) == (Started("b", 1),)
    told(model, 0, Cancel("b"))
    assert model.holders() == {}
    told(model, 0, Restore("b"))
    assert told(model, 0, Start()) == (Started("c", 1),)


def test_a_dead_holder_gives_way_once_and_for_all() -> None:
    """To the next hand-out; redriven before it, it goes first, and after it, it waits."""
    model = keyed(retry=Retry(1))
    told(model, 0, Start())
    told(model, 0, Fail(model.seq, "no"), Redrive("a"))
    assert model.first() == "a"
    told(model, 0, Start())
    told(model, 0, Fail(model.seq, "no"), Start("w"))
    assert model.holders() == {"k": "b"}
    told(model, 0, Redrive("a"))
    assert model.first() is None
    told(model, 0, Complete(model.leases()[0]))
    assert model.first() == "c"


def test_a_dead_holder_shuts_its_key_under_halt() -> None:
    """Until a person redrives or resolves it, or agrees on another policy."""
    model = keyed("halt", Retry(1))
    told(model, 0, Start())
    told(model, 0, Fail(model.seq, "no"))
    assert told(model, 0, Start()) == ()
    told(model, 0, Reconfigure(Policy()))
    assert model.first() == "b"
    told(model, 0, Reconfigure(Policy(keys=Keys("halt"))), Resolve("a"))
    assert model.first() == "b"


# What operators ask.


def dead(model: Model, *names: str) -> None:
    """Let these die, a second after the other, each with its own name as the error."""
    for second, _ in enumerate(names):
        told(model, second, Start())
        told(model, second, Fail(model.seq, model.content(names[second]).task, "permanent"))


def test_a_bulk_redrive_tells_all_redriven_tasks_first() -> None:
    """In the order of their death, and then what each frees, nearest first."""
    model = opened(None, Enqueue("b"), Enqueue("a"), Enqueue("c", after=["a", "b"]))
    dead(model, "b", "a")
    assert told(model, 9, RedriveAll(Select())) == (
        Redriven("b"),
        Readied("b"),
        Redriven("a"),
        Readied("a"),
        Unblocked("c"),
    )


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, "abc"),
        ({"limit": 2}, "ab"),
        ({"limit": 0}, ""),
        ({"tasks": ["c", "a", "?"]}, "ac"),
        ({"tasks": []}, ""),
        ({"error": "b"}, "b"),
        ({"error": "[bc]", "how": "glob"}, "bc"),
        ({"error": "^[ab]$", "how": "regex", "limit": 1}, "a"),
        ({"error": "", "how": "prefix"}, "abc"),
        ({"died_since": at(1)}, "bc"),
        ({"died_before": at(1)}, "a"),
        ({"died_since": at(1), "died_before": at(2)}, "b"),
    ],
)
def test_a_selection_means_those_for_which_all_of_it_holds(
    chosen: dict[str, Any], names: str
) -> None:
    """The oldest of them, up to its limit."""
    model = opened(None, *map(Enqueue, "abc"))
    dead(model, *"abc")
    assert model.meant(Select(**chosen)) == list(names)


def test_what_a_person_did_by_hand_has_succeeded() -> None:
    """What waits for it goes on, at once; its error is gone."""
    model = opened(None, Enqueue("a"))
    dead(model, "a")
    assert told(model, 1, Enqueue("b", after=["a"]))[1:] == (Blocked("b", "a"),)
    assert told(model, 1, Resolve("a")) == (Resolved("a"), Unblocked("b"), Readied("b"))
    task = model.task("a")
    assert task is not None
    assert (task["error"], task["ended"]) == (None, at(1))


def test_while_paused_what_is_due_goes_on() -> None:
    """And nothing is handed out, until the queue is resumed."""
    model = opened(None, Enqueue("a", not_before=at(1)))
    told(model, 0, Pause())
    assert told(model, 0, Pause()) == ()
    assert told(model, 1, Start()) == (Readied("a"),)
    assert told(model, 1, Start()) == ()
    told(model, 1, Resume())
    assert told(model, 1, Start()) == (Started("a", 1),)


def test_another_policy_holds_from_the_next_command_on() -> None:
    """The same one again changes nothing; what was enqueued keeps its attempts."""
    model = opened(None, Enqueue("a"))
    other = Policy(retry=Retry(1), lease_for=5)
    assert told(model, 0, Reconfigure(other)) == (Reconfigured(other),)
    assert told(model, 0, Reconfigure(other)) == ()
    assert told(model, 0, Start()) == (Started("a", 1, None, at(5)),)
    assert told(model, 5, Tick()) == (Expired("a", 1), Readied("a"))


def test_recorded_refusals_and_empty_starts_take_a_number_and_a_time() -> None:
    """And nothing else changes; without `record` they leave no trace."""
    for record, more in ((True, 2), (False, 0)):
        model = opened(Policy(record=record))
        before = model.seq
        told(model, 5, Start())
        with pytest.raises(StaleLease):
            model.do(Complete(1), at(6))
        assert told(model, 7, Tick()) == ()
        assert model.seq == before + more
        assert model.at == (at(6) if record else START)


def test_a_death_by_expiry_tells_what_it_blocks() -> None:
    """An expired last attempt dies with the error of a lease that ran out."""
    model = opened(Policy(retry=Retry(1), lease_for=1), Enqueue("a"), Enqueue("b", after=["a"]))
    told(model, 0, Start())
    assert told(model, 1, Tick()) == (Expired("a", 1), Died("a"), Blocked("b", "a"))
    assert model.reason("a") == "failed after 1 attempts: lease expired"
