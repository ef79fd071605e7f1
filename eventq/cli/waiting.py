"""What of a queue waits for a time, and what waits for a key: for `status` and `at`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from attrs import frozen

from eventq.cli.show import Column, Screen, ago, when
from eventq.cli.wording import counted
from eventq.core.lifecycle import Status
from eventq.core.record import Record
from eventq.core.state import State
from eventq.storage.convert import moment

__all__ = ["delayed_facts", "delayed_words", "key_facts", "show_keys", "shut_keys"]

S = Status

MOST = 10
"""How many keys are shown; the rest is counted."""


def _next_delayed(state: State) -> Record | None:
    """The task whose delay ends first."""
    if not state.count(S.DELAYED):
        return None
    found = (state.record(name) for _, _, name in state.due)
    return next(one for one in found if one is not None and one.status is S.DELAYED)


def delayed_facts(state: State) -> dict[str, Any]:
    """How many tasks are delayed, and which is the first to go on, and when."""
    first = _next_delayed(state)
    return {
        "count": state.count(S.DELAYED),
        "next": None if first is None or first.until is None else moment(first.until),
        "task": None if first is None else first.task.task,
    }


def delayed_words(state: State, now: datetime | None) -> str:
    """The same in words; empty where nothing is delayed."""
    first = _next_delayed(state)
    if first is None or first.until is None:
        return ""
    number = counted(state.count(S.DELAYED), "task")
    near = "" if now is None else f" ({ago(first.until, now)})"
    return f"{number}, the next due {when(first.until)}{near}: {first.task.task}"


@frozen
class _Held:
    """A key that a task holds."""

    key: str
    task: str
    status: Status
    shut: bool
    """Whether none of its tasks can go until a person has moved the holder."""
    waiting: int
    """How many READY tasks wait for it."""


def _held(state: State) -> Iterator[_Held]:
    """The keys that are held, the shut ones first, by name."""
    halts = state.policy.keys.on_death == "halt"
    ready = Counter(key for key, _, _ in state.by_key)
    found = []
    for key in state.holders:
        holder = state.holder(key)
        assert holder is not None
        shut = halts and holder.status in (S.DEAD, S.PARKED)
        waiting = ready[key] - (holder.status is S.READY)
        found.append(_Held(key, holder.task.task, holder.status, shut, waiting))
    yield from sorted(found, key=lambda one: (not one.shut, one.key))


def key_facts(state: State) -> list[dict[str, Any]]:
    """Every key that is held, by whom, and how many wait for it."""
    return [
        {
            "key": one.key,
            "task": one.task,
            "status": one.status,
            "shut": one.shut,
            "waiting": one.waiting,
        }
        for one in _held(state)
    ]


def shut_keys(state: State) -> dict[str, str]:
    """For each task that shuts its key: which, and how many wait for it, in words."""
    return {
        one.task: f"its key {one.key} ({one.waiting:,} waiting)" for one in _held(state) if one.shut
    }


def show_keys(screen: Screen, state: State) -> None:
    """The keys that are held, with a word for those that are shut."""
    found = list(_held(state))
    if not found:
        return
    screen.line()
    screen.table(
        (
            Column("KEY", gives=True),
            Column("HELD BY", gives=True),
            Column("STATUS"),
            Column("WAITING", right=True),
            Column(""),
        ),
        [
            (one.key, one.task, one.status, f"{one.waiting:,}", "shut" if one.shut else "")
            for one in found[:MOST]
        ],
    )
    if len(found) > MOST:
        shut = sum(one.shut for one in found[MOST:])
        screen.line(f"and {counted(len(found) - MOST, 'key')} more, {shut:,} of them shut")
