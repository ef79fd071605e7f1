"""The shortest way to a difference that can be found by leaving out steps of a longer one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shortest"]

S = TypeVar("S")


def shortest(
    steps: Sequence[S], leads: Callable[[Sequence[S]], int | None], tries: int
) -> Sequence[S]:
    """The fewest of these steps that still lead there, as far as so many tries tell.

    `leads` says how many steps of a way it takes to get there; None: it does not lead there. Steps
    are left out in ever smaller runs, as delta debugging does (Zeller and Hildebrandt, 2002); in
    the end none can be left out by itself.
    """
    run = len(steps) // 2
    while run and tries > 0:
        at, found = 0, False
        while at < len(steps) and tries > 0:
            fewer = [*steps[:at], *steps[at + run :]]
            tries -= 1
            if (needed := leads(fewer)) is None:
                at += run
            else:
                steps, found = fewer[:needed], True
        if run > 1:
            run //= 2
        elif not found:
            break
    return steps
