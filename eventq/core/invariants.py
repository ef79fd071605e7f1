"""The invariants of a state: one list of named predicates, used by `check()`, verify and tests.

Each is recomputed from the tasks alone, the slow and obvious way, and compared with what the
state keeps. READY, DELAYED and RUNNING mean that every dependency has SUCCEEDED, and so on: each
predicate says in its first line what always holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from eventq.core.lifecycle import FINISHED, ROOTS, Status
from eventq.core.ordered import Sorted
from eventq.core.record import Record
from eventq.core.state import State

__all__ = ["INVARIANTS", "broken"]

S = Status


def _listed(state: State, marks: Sorted[tuple[int, str]], where: Iterable[Record]) -> bool:
    return list(marks) == sorted((record.mark, record.task.task) for record in where)


def _standing_in(state: State, *statuses: Status) -> list[Record]:
    return [record for record in state.records.values() if record.status in statuses]


def counts(state: State) -> bool:
    """The counts are those of the tasks."""
    found = Counter(record.status for record in state.records.values())
    return all(
        state.standing[status] == found[status] for status in Status if status is not S.ABSENT
    )


def nobody_rests_in_failed(state: State) -> bool:
    """No task rests in FAILED or ABSENT."""
    return not _standing_in(state, S.FAILED, S.ABSENT)


def ids(state: State) -> bool:
    """Every task stands under its own id, and no two were born at once."""
    born = [record.born for record in state.records.values()]
    return len(born) == len(set(born)) and all(
        name == record.task.task for name, record in state.records.items()
    )


def line(state: State) -> bool:
    """The line holds the READY tasks without a key, and of each key the one that can go next."""
    ready = _standing_in(state, S.READY)
    free = [record for record in ready if record.task.key is None]
    behind: list[Record] = []
    by_key: dict[str, list[Record]] = {}
    for record in ready:
        if record.task.key is not None:
            by_key.setdefault(record.task.key, []).append(record)
    for key, of_key in by_key.items():
        holder = state.holder(key)
        if holder is None:
            free.append(min(of_key, key=lambda record: record.mark))
        elif holder.status in (S.DEAD, S.PARKED):
            behind.append(min(of_key, key=lambda record: record.mark))
        elif holder.status is S.READY:
            free.append(holder)
    return (
        _listed(state, state.in_line, free)
        and _listed(state, state.behind_dead, behind)
        and list(state.by_key)
        == sorted((r.task.key, r.mark, r.task.task) for r in ready if r.task.key is not None)
    )


def holders(state: State) -> bool:
    """Of the tasks of one key one at most is out, and it holds the key; no finished task does."""
    held = dict(state.holders.items())
    return all(
        held.get(record.task.key) == record.task.task
        for record in _standing_in(state, S.RUNNING)
        if record.task.key is not None
    ) and all(
        (record := state.records[name]) is not None
        and record.task.key == key
        and record.status not in FINISHED
        for key, name in held.items()
    )


def due(state: State) -> bool:
    """What is due some day are the leases that expire and the delays, each at its time."""
    return all(
        (record.until is not None) == (record.status is S.DELAYED)
        and (record.expires is None or record.status is S.RUNNING)
        for record in state.records.values()
    ) and list(state.due) == sorted(
        (record.until or record.expires, record.timer, record.task.task)
        for record in state.records.values()
        if record.until or record.expires
    )


def letters(state: State) -> bool:
    """The dead letters are the DEAD and the BLOCKED tasks, in the order of their death."""
    return _listed(state, state.in_letters, _standing_in(state, S.DEAD, S.BLOCKED))


def parking(state: State) -> bool:
    """The PARKED tasks are listed in the order in which they were parked."""
    return _listed(state, state.in_parking, _standing_in(state, S.PARKED))


def leases(state: State) -> bool:
    """Every RUNNING task has one current lease, and nothing else has one; none is from later."""
    running = {record.lease: record.task.task for record in _standing_in(state, S.RUNNING)}
    return (
        None not in running
        and len(running) == state.standing[S.RUNNING]
        and dict(state.leases.items()) == running
        and all(lease <= state.seq for lease in state.leases)
        and all(
            record.lease is record.worker is record.expires is None
            for record in state.records.values()
            if record.status is not S.RUNNING
        )
    )


def workers(state: State) -> bool:
    """A worker holds at most one task."""
    held = [record for record in _standing_in(state, S.RUNNING) if record.worker is not None]
    return len({record.worker for record in held}) == len(held) and dict(state.busy.items()) == {
        record.worker: record.lease for record in held
    }


def attempts(state: State) -> bool:
    """No task was handed out more often than it may be."""
    return all(
        0 <= record.attempt <= (record.task.max_attempts or record.attempt)
        for record in state.records.values()
    )


def needs(state: State) -> bool:
    """An unfinished task needs as many as it names that have not SUCCEEDED."""
    succeeded = {record.task.task for record in _standing_in(state, S.SUCCEEDED)}
    return all(
        record.needs == sum(name not in succeeded for name in record.task.after)
        for record in state.records.values()
        if record.status not in FINISHED
    )


def can_run(state: State) -> bool:
    """What is past PENDING and BLOCKED has all that it needs; what has it is past PENDING."""
    past = (S.READY, S.DELAYED, S.RUNNING, S.DEAD, S.PARKED)
    return all(record.needs == 0 for record in _standing_in(state, *past)) and all(
        record.needs > 0 for record in _standing_in(state, S.PENDING, S.BLOCKED)
    )


def blocked(state: State) -> bool:
    """A PENDING or BLOCKED task is BLOCKED if and only if a root stands above it."""
    below: dict[str, list[str]] = {}
    for name, record in state.records.items():
        for dependency in record.task.after:
            below.setdefault(dependency, []).append(name)
    succeeded = {record.task.task for record in _standing_in(state, S.SUCCEEDED)}
    frontier = [record.task.task for record in _standing_in(state, *ROOTS)]
    under_root: set[str] = set()
    while frontier:
        for name in below.get(frontier.pop(), ()):
            if name not in under_root and name not in succeeded:
                under_root.add(name)
                frontier.append(name)
    return all(
        (record.status is S.BLOCKED) == (record.task.task in under_root)
        for record in _standing_in(state, S.PENDING, S.BLOCKED)
    )


def edges(state: State) -> bool:
    """The edges are those of the unfinished tasks; those of CANCELLED ones are kept apart."""

    def of(records: Iterable[Record]) -> list[tuple[str, int, str]]:
        return sorted(
            (dependency, record.born, record.task.task)
            for record in records
            for dependency in record.task.after
        )

    unfinished = (r for r in state.records.values() if r.status not in FINISHED)
    return list(state.edges) == of(unfinished) and list(state.sleeping) == of(
        _standing_in(state, S.CANCELLED)
    )


def finished(state: State) -> bool:
    """What may be let go is what is finished and named by nothing unfinished."""
    named = {
        name
        for record in state.records.values()
        if record.status not in FINISHED
        for name in record.task.after
    }
    ended = _standing_in(state, *FINISHED)
    return all(
        (record.ended is not None) == (record.status in FINISHED)
        for record in state.records.values()
    ) and _listed(
        state, state.in_finished, [record for record in ended if record.task.task not in named]
    )


def acyclic(state: State) -> bool:
    """No unfinished task waits for itself, not even through a CANCELLED one."""
    left = {
        name: record.task.after
        for name, record in state.records.items()
        if record.status is not S.SUCCEEDED
    }
    waits = {name: sum(above in left for above in after) for name, after in left.items()}
    below: dict[str, list[str]] = {}
    for name, after in left.items():
        for above in after:
            below.setdefault(above, []).append(name)
    free = [name for name, number in waits.items() if not number]
    taken = 0
    while free:  # what waits for nothing is taken away, until nothing is left (Kahn, 1962)
        taken += 1
        for name in below.get(free.pop(), ()):
            waits[name] -= 1
            if not waits[name]:
                free.append(name)
    return taken == len(left)


INVARIANTS: dict[str, Callable[[State], bool]] = {
    predicate.__name__: predicate
    for predicate in (
        counts,
        nobody_rests_in_failed,
        ids,
        line,
        holders,
        due,
        letters,
        parking,
        leases,
        workers,
        attempts,
        needs,
        can_run,
        blocked,
        edges,
        finished,
        acyclic,
    )
}


def broken(state: State) -> list[str]:
    """The invariants that do not hold: for each its name and what should have held."""
    return [
        f"{name}: {(predicate.__doc__ or '').strip()}"
        for name, predicate in INVARIANTS.items()
        if not predicate(state)
    ]
