"""What lies upstream and downstream of a task: cycles, roots and what they block.

Pure questions over `Questions`; everything is iterative, so that depth costs nothing but time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from eventq.core.lifecycle import ROOTS, Status
from eventq.core.reading import Questions
from eventq.core.record import Record

__all__ = ["blocks", "find_cycle", "named_at_all", "root_above", "wanted"]

S = Status


def named_at_all(state: Questions, task: str) -> bool:
    """Whether anything that has not succeeded names this task."""
    return (
        next(state.dependents(task), None) is not None
        or next(state.dormant(task), None) is not None
    )


def wanted(state: Questions, task: str) -> bool:
    """Whether a PENDING task names this one."""
    return any(record.status is S.PENDING for record in state.dependents(task))


def blocks(record: Record | None) -> bool:
    """Whether whatever names this task is BLOCKED: it is a root, or BLOCKED itself."""
    return record is not None and (record.status in ROOTS or record.status is S.BLOCKED)


def root_above(state: Questions, after: Iterable[str]) -> str | None:
    """The root that is shown for a task with these dependencies; None where no root stands above.

    From the task upwards, through the first dependency that is a root or BLOCKED, as written.
    """
    while True:
        for dependency in after:
            record = state.record(dependency)
            if record is None:
                continue
            if record.status in ROOTS:
                return dependency
            if record.status is S.BLOCKED:
                after = record.task.after
                break
        else:
            return None


def find_cycle(state: Questions, task: str, after: tuple[str, ...]) -> list[str] | None:
    """The cycle that a new task with these dependencies would close, or None.

    The list begins and ends with the new id, and each id in it needs the next. Only a new task
    can close a cycle, and only through itself, so the search begins there; and nothing is
    searched when nobody names the new id. Else two breadth-first searches take turns, edge by
    edge: one upwards along what it needs, one downwards along what needs it. The answer is there
    as soon as either closes the cycle or runs out, so the cost is twice that of the cheaper side
    (two-way search, as compared by Bender, Fineman, Gilbert and Tarjan, "A New Approach to
    Incremental Cycle Detection and Related Problems", 2015; without their levels).
    """
    if not after:
        return None
    if task in after:
        return [task, task]
    if not named_at_all(state, task):
        return None

    def above(at: str) -> Iterable[str]:
        if at == task:
            return after
        record = state.record(at)
        return () if record is None or record.status is S.SUCCEEDED else record.task.after

    def below(at: str) -> Iterator[str]:
        for dependents in (state.dependents(at), state.dormant(at)):
            for record in dependents:
                yield record.task.task

    climb = _search(task, above, {task})
    sink = _search(task, below, set(after))
    while True:
        try:
            if (path := next(climb)) is not None:
                return path
            if (path := next(sink)) is not None:
                return [task, *reversed(path)]
        except StopIteration:
            return None


def _search(
    start: str, near: Callable[[str], Iterable[str]], goal: set[str]
) -> Iterator[list[str] | None]:
    """Breadth-first from `start`: None for each edge looked at, then the path to the goal, if any.

    A goal counts when an edge leads to it, so that `start` itself can be one.
    """
    came_from: dict[str, str] = {}
    frontier = deque([start])
    while frontier:
        at = frontier.popleft()
        for there in near(at):
            if there in goal:
                path = [there, at]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                yield path[::-1]
                return
            if there not in came_from:
                came_from[there] = at
                frontier.append(there)
            yield None
