"""Folding: replay and evolve agree, entries come without gaps, and no state is ever changed."""

from __future__ import annotations

import ast
import inspect
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest
from ledger import NOON, Ledger, Walk, told
from test_lifecycle import LATER, standing

from eventq.core import evolve as evolve_module
from eventq.core import steps
from eventq.core.commands import Complete
from eventq.core.errors import ImpossibleEvent
from eventq.core.events import (
    Closed,
    Completed,
    Delayed,
    Enqueued,
    Entry,
    Expired,
    Failed,
    Opened,
    Readied,
    Reconfigured,
    Released,
    Renewed,
    Resolved,
    Started,
)
from eventq.core.evolve import evolve, replay
from eventq.core.lifecycle import Status
from eventq.core.policy import Backoff, Policy, Retention, Retry
from eventq.core.state import State, rebuilt

S = Status


def history(seed: int, steps: int = 250) -> list[Entry]:
    """The entries of a random walk."""
    retention = Retention(2) if seed % 2 else None
    retry = Retry(max_redrives=1, max_releases=1, backoff=Backoff(2) if seed % 3 == 0 else None)
    walk = Walk(seed, rich=seed % 4 > 0, retry=retry, retention=retention)
    return walk.walk(steps).entries


@pytest.mark.parametrize("seed", range(20))
def test_replay_is_evolve_again_and_again(seed: int) -> None:
    """`replay(state, entries) == reduce(evolve, entries, state)`, from any entry on."""
    entries = history(seed)
    states = [State()]
    for entry in entries:
        states.append(evolve(states[-1], entry))
    assert replay(State(), entries) == reduce(evolve, entries, State()) == states[-1]
    assert told(replay(State(), entries)) == told(states[-1])
    for cut in (1, 2, len(entries) // 2, len(entries)):
        assert told(replay(states[cut], entries[cut:])) == told(states[-1])
    states[-1].check()


@pytest.mark.parametrize("seed", range(4))
def test_replay_is_what_decide_came_to(seed: int) -> None:
    """Deciding folds as it goes, and comes to the state that folding its entries comes to."""
    ledger = Walk(seed, rich=True).walk(250)
    assert told(replay(State(), ledger.entries)) == told(ledger.state)


@pytest.mark.parametrize("every", [1, 3, 10])
def test_replay_hands_out_every_nth_state(every: int) -> None:
    """That after each entry whose seq is a multiple; the end is the same as without."""
    entries = history(5)
    kept: list[State] = []
    end = replay(State(), entries, keep=kept.append, every=every)
    assert [state.seq for state in kept] == list(range(every, len(entries) + 1, every))
    assert told(end) == told(replay(State(), entries))
    for state in kept:
        assert told(state) == told(replay(State(), entries[: state.seq]))


def test_replay_counts_by_seq_and_not_from_where_it_begins() -> None:
    """So two replays that meet keep the same states."""
    entries = history(6)
    middle = replay(State(), entries[:7])
    kept: list[int] = []
    replay(middle, entries[7:], keep=lambda state: kept.append(state.seq), every=5)
    assert kept == list(range(10, len(entries) + 1, 5))


@pytest.mark.parametrize("seed", range(6))
def test_no_state_moves_when_later_ones_do(seed: int) -> None:
    """States kept on the way tell the same at the end, and several futures leave one past alone."""
    entries = history(seed, 400)
    facts: list[tuple[State, Any]] = []

    def keep(state: State) -> None:
        facts.append((state, told(state)))

    replay(State(), entries, keep=keep, every=4)
    for state, then in facts:
        replay(state, entries[state.seq : state.seq + 9])
        evolve(state, Entry(state.seq + 1, NOON, "tick", (Enqueued("elsewhere"),)))
        assert told(state) == then
    assert len(facts) > 40


@pytest.mark.parametrize("seed", range(10))
def test_the_lists_of_a_state_follow_from_its_tasks(seed: int) -> None:
    """A state can be rebuilt from its records alone, as a snapshot does, and goes on the same."""
    entries = history(seed, 300)
    half = len(entries) // 2
    state = replay(State(), entries[:half])
    rest = ("queue", "policy", "seq", "at", "position", "admission", "dispatch", "holders")
    again = rebuilt(
        [record.copy(None) for record in state.in_order()],
        **{name: getattr(state, name) for name in rest},
    )
    again.check()
    assert told(again) == told(state)
    assert told(replay(again, entries[half:])) == told(replay(state, entries[half:]))


def test_nothing_of_an_iterator_is_read_twice() -> None:
    """Entries may come from a file, one at a time."""

    def once() -> Iterator[Entry]:
        yield from entries

    entries = history(2)
    assert replay(State(), once()) == replay(State(), entries)


@pytest.mark.parametrize("seq", [-1, 0, 1, 2, 4, 1000])
def test_a_gap_between_entries_is_an_error(seq: int) -> None:
    """Entries are numbered from 1, one by one; a repeat and a gap are both refused."""
    state = Ledger().tasks(a="").state
    facts = told(state)
    assert state.seq == 2
    with pytest.raises(ValueError, match=f"entry {seq} cannot follow entry 2"):
        evolve(state, Entry(seq, NOON, "tick", (Closed(),)))
    assert told(state) == facts
    with pytest.raises(ValueError, match="cannot follow entry 0"):
        replay(State(), [Entry(2, NOON, "open", (Opened("q", Policy()),))])


def test_a_gap_in_the_middle_of_a_replay_is_an_error() -> None:
    """Wherever it is."""
    entries = history(1)
    with pytest.raises(ValueError, match="entry 9 cannot follow entry 7"):
        replay(State(), [*entries[:7], *entries[8:]])


def test_positions_count_events_and_seqs_count_entries() -> None:
    """An entry's time is that of its state; an event's position is the number of events so far."""
    ledger = Ledger().tasks(a="", b="x")
    entries = ledger.entries
    assert [entry.seq for entry in entries] == [1, 2, 3]
    state = State()
    for entry in entries:
        before, state = state, evolve(state, entry)
        assert state.position == before.position + len(entry.events)
        assert (state.seq, state.at) == (entry.seq, entry.at)
    assert all(one.at < other.at for one, other in pairwise(entries))
    assert ledger.task("a").place == 3


def test_an_entry_without_events_still_counts() -> None:
    """A recorded refusal is an entry in which nothing happened."""
    state = evolve(State(), Entry(1, NOON, "open", (Opened("q", Policy()),)))
    after = evolve(state, Entry(2, LATER, "enqueue", ()))
    assert (after.seq, after.at, after.position) == (2, LATER, 1)


# What events do that no command of today leads to, but a log may hold.


def test_an_expired_lease_is_a_failure_of_its_own() -> None:
    """Its error is `lease expired`; the attempt counted at the hand-out stands."""
    q = Ledger(retry=Retry(max_attempts=1)).tasks(a="")
    q.start("w")
    q.fold(Expired("a", 1), Readied("a"))
    task = q.task("a")
    assert (task.attempt, task.error, task.lease) == (1, "lease expired", None)
    assert q.state.held_by("w") is None
    q.state.check()


def test_one_entry_hands_out_one_task() -> None:
    """Its seq is the id of the lease: two leases with one id cannot be."""
    q = Ledger().tasks(a="", b="")
    entries = [
        *q.entries,
        Entry(q.state.seq + 1, NOON, "start", (Started("a", 1), Started("b", 1))),
    ]
    with pytest.raises(ImpossibleEvent, match="Started cannot happen to task 'b'"):
        evolve(q.state, entries[-1])
    with pytest.raises(ImpossibleEvent, match="Started cannot happen to task 'b'"):
        replay(State(), entries)


def test_a_renewed_lease_expires_later() -> None:
    """And is the same lease."""
    q = Ledger().tasks(a="").fold(Started("a", 1, "w", NOON))
    lease = q.lease("a")
    q.fold(Renewed("a", LATER))
    after = q.state.lease(lease)
    assert after is not None
    assert (after.id, after.expires, after.worker) == (lease, LATER, "w")


def test_a_delayed_task_waits_out_of_the_line() -> None:
    """Until it is readied, at the back; cancelling it takes its time away."""
    q = Ledger().tasks(a="", b="x")
    q.start()
    q.fold(Failed("a", 1, "e", "retryable"), Delayed("a", LATER))
    assert (q.status("a"), q.task("a").until, q.line()) == (S.DELAYED, LATER, [])
    q.fold(Readied("a"))
    assert (q.task("a").until, q.line()) == (None, ["a"])
    q.fold(Delayed("b", LATER))
    q.fold(Readied("b"))
    assert q.line() == ["a", "b"]


def test_a_released_task_goes_back_to_its_place() -> None:
    """The place that it had when it was handed out."""
    q = Ledger().tasks(a="", b="", c="")
    place = q.task("a").place
    q.run("a")
    q.run("b")
    q.fold(Released("b")).fold(Released("a"))
    assert q.line() == ["a", "b", "c"]
    assert q.task("a").place == place
    q.state.check()


@pytest.mark.parametrize("status", [S.DEAD, S.PARKED, S.CANCELLED])
def test_a_resolved_task_has_succeeded(status: Status) -> None:
    """It leaves the list where it stood, has no error, and meets the need of what names it."""
    state = standing(status)
    at = NOON + timedelta(days=1)
    state = evolve(state, Entry(state.seq + 1, NOON, "x", (Enqueued("below", None, ("t",)),)))
    below = state.record("below")
    assert below is not None
    assert below.needs == 1
    state = evolve(state, Entry(state.seq + 1, at, "x", (Resolved("t"), Readied("below"))))
    task = state.task("t")
    assert task is not None
    assert (task.status, task.error, task.ended, task.result) == (S.SUCCEEDED, None, at, None)
    state.check()


def test_another_policy_stands_from_its_entry_on() -> None:
    """It touches nothing else."""
    q = Ledger().tasks(a="")
    before = told(q.state)
    q.fold(Reconfigured(Policy(pool=["w"])))
    assert q.state.policy == Policy(pool=["w"])
    after = told(q.state)
    assert after[5:] == before[5:]


def test_what_ends_is_dated_by_its_entry() -> None:
    """`ended` is the time of the entry, and goes when the task is restored."""
    q = Ledger().tasks(a="", b="")
    q.fold(Started("a", 1)).fold(Completed("a", "result"))
    assert (q.task("a").ended, q.task("a").result) == (q.at, "result")


def test_folding_asks_no_rule() -> None:
    """Policy is carried and never consulted: no name of a limit is read in the fold."""
    limits = {"max_attempts", "max_redrives", "max_releases", "capacity", "pool", "retention"}
    for module in (evolve_module, steps):
        tree = ast.parse(inspect.getsource(module))
        read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assert not limits & read


def test_a_long_history_folds_in_time_that_grows_with_its_events() -> None:
    """Four times the entries take about four times as long."""
    ledger = Ledger(check=False, retry=Retry(max_attempts=None))
    for i in range(3000):
        ledger.tasks(**{f"t{i}": ""})
    for _ in range(3000):
        lease = ledger.start()
        ledger.do(Complete(lease))
    entries = ledger.entries

    def seconds(n: int) -> float:
        best = float("inf")
        for _ in range(3):
            begun = time.perf_counter()
            replay(State(), entries[:n])
            best = min(best, time.perf_counter() - begun)
        return best

    assert seconds(len(entries)) < 12 * seconds(len(entries) // 4)
