"""`eventq why`: why a task does not run, what it comes from, and what to type next.

The answer is that of `queries.why`. What the state does not keep is found in the log: who
cancelled a task, and what has become of one that was forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from eventq import EventqError, State, Status, WorkQueue
from eventq.cli.holders import if_gone
from eventq.cli.options import examples, json_option, queue_option, task_argument, typed, unknown
from eventq.cli.past import lives_there, moment_facts
from eventq.cli.show import LONG, Screen, ago, emit, when
from eventq.cli.status import state_at
from eventq.cli.times import When, WhenType
from eventq.cli.wording import counted
from eventq.core.events import Cancelled, Completed, Resolved
from eventq.core.graph import blocks
from eventq.queries.history import Life, Moment
from eventq.queries.why import Kind, Step, Why, why
from eventq.storage.convert import moment

__all__ = ["explain"]

LINKS = 5
"""How many links of a chain are told at each of its ends, on a terminal."""


# What is said of the task at the end of a chain: "fetch, which <clause>".


def _running(step: Step, now: datetime | None) -> str:
    lease = step.lease
    assert lease is not None
    who = "nobody named" if lease.worker is None else lease.worker
    ends = "" if lease.expires is None else f", until {when(lease.expires)}"
    if lease.expires is not None and now is not None and lease.expires <= now:
        ends = f", which ran out {ago(lease.expires, now)}: the next start or tick takes it back"
    return f"is running under lease {lease.id}, attempt {lease.attempt}, by {who}{ends}"


def _delayed(step: Step, now: datetime | None) -> str:
    if step.until is not None and now is not None and step.until <= now:
        since = f"its delay is over since {when(step.until)}"
        return f"is delayed, but {since}: the next start or tick readies it"
    return f"is delayed until {when(step.until)}"


def _ready(step: Step) -> str:
    ahead = f" ({counted(step.ahead, 'task')} before it in the line)" if step.ahead else ""
    return f"is ready{ahead}"


_CLAUSES: dict[Kind, str | Callable[[Step, datetime | None], str]] = {
    Kind.UNTIL: _delayed,
    Kind.RUNNING: _running,
    Kind.PAUSED: lambda step, _: f"{_ready(step)}, but the queue is paused",
    Kind.UNASKED: lambda step, _: f"{_ready(step)}, but no worker has asked",
    Kind.DEAD: "is dead: {step.reason}",
    Kind.PARKED: "is parked, a person must look: {step.reason}",
    Kind.SUCCEEDED: "has succeeded",
    Kind.CANCELLED: "was cancelled",
    Kind.UNKNOWN: "nobody has enqueued",
}


def _clause(step: Step, now: datetime | None) -> str:
    told = _CLAUSES[step.kind]
    return told.format(step=step) if isinstance(told, str) else told(step, now)


def _ended(last: Moment) -> str:
    """When and by whom that came about, and why."""
    by = f" by {last.by}" if last.by else ""
    error = last.event.error if isinstance(last.event, Cancelled) else None
    said = "".join(f": {text}" for text in (error, last.why) if text)
    return f" (entry {last.seq}, {when(last.at)}{by}){said}"


_HAD = {
    Completed: "succeeded",
    Resolved: "been resolved by hand",
    Cancelled: "been cancelled",
}
"""How a task that was forgotten had ended: in no other way is one let go."""


def _free(state: State) -> int | None:
    """How many of a fixed pool could ask for a task; None: anybody may."""
    pool = state.policy.pool
    return None if pool is None else sum(worker not in state.busy for worker in pool)


def _workers(state: State) -> str:
    """What else there is to say where no worker has asked."""
    out = state.count(Status.RUNNING)
    if _free(state) == 0:
        return ", and none of the pool is free"
    return f" yet: {'one is' if out == 1 else f'{out:,} are'} busy" if out else ""


def headline(state: State, answer: Why, life: Life | None, now: datetime | None) -> str:
    """The answer in one sentence; `life` is what the log tells of the root, where it was asked;
    `now` is None for a moment of the past."""
    first, root = answer.steps[0], answer.root
    clause = _clause(root, now)
    if root.kind is Kind.UNASKED:
        clause += _workers(state)
    if life is not None and root.kind is not Kind.UNKNOWN:
        clause += _ended(life.last)
    elif life is not None:
        gone = life.moments[-1]
        clause += (
            f" since it was forgotten (entry {gone.seq}); before that it had "
            f"{_HAD[type(life.last.event)]}{_ended(life.last)}"
        )
    if len(answer.steps) == 1:
        if root.kind is Kind.UNKNOWN:
            clause = clause.replace("nobody has enqueued", "is unknown to the queue", 1)
        return f"{first.task} {clause}"
    if first.kind is Kind.BLOCKED:
        return f"{first.task} is blocked by {root.task}, which {clause}"
    links = [_link(first)]
    if len(answer.steps) > 2:
        last = answer.steps[-2]
        if last.key is None:
            links.append(f"waits for {root.task}")
        elif len(answer.steps) == 3:
            links.append(_link(last, named=False))
        else:
            links += [f"waits for {last.task}", _link(last, named=False)]
    return f"{', which '.join((*links, clause))}"


def _link(step: Step, *, named: bool = True) -> str:
    """What the task of this step waits for: the next one of the chain."""
    name = f"{step.task} " if named else ""
    if step.kind is Kind.BEHIND:
        return f"{name}is behind {step.on} of key {step.key}"
    if step.kind is Kind.SHUT:
        return f"{name}waits for its key {step.key}, which is shut by {step.on}"
    return f"{name}needs {step.on}"


# What to type next.


def _look_and(verb: str) -> Callable[[Why, State], Iterator[str]]:
    def next_for(answer: Why, _: State) -> Iterator[str]:
        yield typed("history", answer.root.task)
        yield typed(verb, answer.root.task, why=True)

    return next_for


def _missing(answer: Why, _: State) -> Iterator[str]:
    if len(answer.steps) > 1:
        yield f"enqueue {answer.root.task}, or give up what needs it:"
        yield typed("cancel", answer.steps[-2].task, why=True)
    else:
        yield typed("history", answer.task)


def _cancelled(answer: Why, _: State) -> Iterator[str]:
    yield typed("restore", answer.root.task, why=True)


def _wait(answer: Why, _: State) -> Iterator[str]:
    yield typed("history", answer.root.task)
    lease, due = answer.root.lease, answer.root.until
    if lease is not None:
        due = lease.expires
        if due is None:
            yield from if_gone(lease)
    if due is not None and due <= datetime.now(UTC):
        yield typed("tick")


def _paused(answer: Why, _: State) -> Iterator[str]:
    yield typed("resume", why=True)


def _unasked(_: Why, state: State) -> Iterator[str]:
    free = _free(state)
    if free == 0:
        yield "see what the workers hold, or let more of them in:"
        yield typed("status")
        yield typed("reconfigure", more=["--pool", "NAME", "--pool", "NAME"], why=True)
        return
    if free is not None:
        yield 'let a worker of the pool ask: q.start("NAME") in Python'
        return
    yield "let a worker ask: q.start() in Python, or"
    yield typed("work")
    yield typed("run", "FLOW")


_NEXT: dict[Kind, Callable[[Why, State], Iterator[str]]] = {
    Kind.DEAD: _look_and("redrive"),
    Kind.PARKED: _look_and("redrive"),
    Kind.CANCELLED: _cancelled,
    Kind.UNKNOWN: _missing,
    Kind.RUNNING: _wait,
    Kind.UNTIL: _wait,
    Kind.UNASKED: _unasked,
    Kind.PAUSED: _paused,
    Kind.SUCCEEDED: _wait,
}


# The command.

_TOLD_BY_THE_LOG = (Kind.UNKNOWN, Kind.CANCELLED, Kind.SUCCEEDED)


def _answer(queue: Path, state: State, task: str) -> tuple[Why, Life | None, EventqError | None]:
    """The answer, the life in which the log tells how its root ended, and what is to be told where
    the log should, and that part of it cannot be read."""
    answer = why(state, task)
    root = answer.root
    if root.kind not in _TOLD_BY_THE_LOG:
        return answer, None, None
    told, rest = lives_there(queue, root.task, state.seq)
    if told and type(told[-1].last.event) in _HAD:
        return answer, told[-1], None
    if root.kind is Kind.UNKNOWN and rest is not None:  # it may have been forgotten
        raise rest
    if root.kind is Kind.UNKNOWN and len(answer.steps) == 1:
        raise unknown(state, task, "say why")
    return answer, None, rest


@click.command(
    "why",
    epilog=examples(
        "eventq why report --queue nightly",
        "eventq why report --queue nightly --at 3",
        "eventq why report --queue nightly --at '2026-11-30 15:31:49Z'",
        "eventq why report --queue nightly --json",
    ),
)
@task_argument()
@click.option(
    "--at", type=WhenType(), metavar="WHEN", help="As it stood after this entry, or at this time."
)
@queue_option
@json_option
def explain(task: str, at: When | None, queue: Path, as_json: bool) -> None:
    """Say why TASK does not run, and what to type next.

    The answer names the root: a dead letter, say, or an id that nobody has enqueued, and the
    chain that leads to it. A finished task tells how it ended; a forgotten one is found in the
    log. WHEN is the seq of an entry, a time (UTC, unless it names its zone) or an age like 10m.
    Exits 3 for an id that was never enqueued; 6 where how the root ended is archived, when the
    rest was told.

    --json: one object with seq (the state's), task, kind (needs, missing, until, behind, shut,
    running, paused, unasked, blocked, dead, parked, succeeded, cancelled, unknown), root, message,
    steps (the chain: task, status, kind, on, needs, key, ahead, reason, error, until, lease,
    worker, expires) and ended (the event that ended the root's last life, or null).
    """
    if at is None:
        with WorkQueue.open(queue, read_only=True) as q:
            state = q.state
    else:
        state = state_at(queue, at)
    answer, life, rest = _answer(queue, state, task)
    said = headline(state, answer, life, datetime.now(UTC) if at is None else None)
    if as_json:
        emit(
            {
                "seq": state.seq,
                "task": task,
                "kind": answer.kind,
                "root": answer.root.task,
                "message": said,
                "steps": [_facts(step) for step in answer.steps],
                "ended": None if life is None else moment_facts(life.last),
            }
        )
    else:
        _show(Screen(), state, answer, said)
    if rest is not None:
        raise rest


def _show(screen: Screen, state: State, answer: Why, said: str) -> None:
    screen.line(screen.cut(said, LONG))
    _show_chain(screen, state, answer)
    screen.line()
    screen.line("next:")
    for line in _NEXT[answer.root.kind](answer, state):
        screen.line(f"  {line}")


def _facts(step: Step) -> dict[str, Any]:
    return {
        "task": step.task,
        "status": step.status,
        "kind": step.kind,
        "on": step.on,
        "needs": list(step.needs),
        "key": step.key,
        "ahead": step.ahead,
        "reason": step.reason,
        "error": step.error,
        "until": _moment(step.until),
        "lease": None if step.lease is None else step.lease.id,
        "worker": None if step.lease is None else step.lease.worker,
        "expires": _moment(step.lease.expires if step.lease else None),
    }


def _moment(at: datetime | None) -> str | None:
    return None if at is None else moment(at)


def _show_chain(screen: Screen, state: State, answer: Why) -> None:
    """The links between the task and its root, and what else the task needs: first what blocks."""
    first, *_ = answer.steps
    needs = {name: state.record(name) for name in first.needs if name != first.on}
    others = [f"{name} ({one.status})" for name, one in needs.items() if one and blocks(one)]
    others += [name for name, one in needs.items() if not one or not blocks(one)]
    if others:
        listed = ", ".join(others[:LINKS])
        more = f" and {len(others) - LINKS:,} more" if len(others) > LINKS else ""
        screen.line(screen.cut(f"  {first.task} also needs {listed}{more}", LONG))
    if len(answer.steps) < 3:
        return
    links = [
        _link(step).replace(step.task, f"{step.task} ({step.status})", 1)
        for step in answer.steps[:-1]
    ]
    between = len(links) - 2 * LINKS
    if screen.terminal and between > 1:
        links[LINKS:-LINKS] = [f"... {between:,} more links ..."]
    for link in links:
        screen.line(screen.cut(f"  {link}", LONG))
