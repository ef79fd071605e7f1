"""How a whole queue stands: what is over, what never can be without a person, and what that says.

Pure: a state in, an answer out.
"""

from __future__ import annotations

from attrs import frozen

from eventq.cli.exits import Exit
from eventq.core.lifecycle import Status
from eventq.core.record import DeadLetter, Lease
from eventq.core.state import State

__all__ = ["Standing", "standing"]

S = Status


@frozen
class Standing:
    """How a queue stands when nothing of it can run. Lists of ids stand in the order in which
    the tasks were enqueued, or died."""

    counts: dict[Status, int]
    dead: tuple[DeadLetter, ...]
    parked: tuple[DeadLetter, ...]
    blocked: dict[str, list[str]]
    """What each root blocks."""
    missing: dict[str, list[str]]
    """What waits directly for an id that nobody has enqueued."""
    cancelled: tuple[str, ...]
    """Those that keep others from running: cancelled roots."""
    elsewhere: tuple[Lease, ...]
    """What runs under somebody's lease."""
    paused: bool

    @property
    def code(self) -> Exit:
        """The exit code that says so; the highest wins."""
        left = S.PENDING, S.READY, S.DELAYED, S.RUNNING
        stuck = self.parked or self.cancelled or any(self.counts.get(status) for status in left)
        return Exit.STUCK if stuck else Exit.DEAD_LETTERS if self.dead else Exit.FINE


def standing(state: State) -> Standing:
    """How this queue stands."""
    dead = []
    blocked: dict[str, list[str]] = {}
    for letter in state.dead_letters():
        if letter.status is S.DEAD:
            dead.append(letter)
        else:
            blocked.setdefault(letter.root, []).append(letter.id)
    missing: dict[str, list[str]] = {}
    cancelled = []
    counts = state.counts()
    if counts.get(S.PENDING) or counts.get(S.CANCELLED):
        for task in state.tasks():
            if task.status is S.PENDING:
                for name in task.after:
                    if name not in state:
                        missing.setdefault(name, []).append(task.id)
            elif task.status is S.CANCELLED and state.needed_by(task.id):
                cancelled.append(task.id)
    return Standing(
        counts,
        tuple(dead),
        tuple(state.parked()),
        blocked,
        missing,
        tuple(cancelled),
        tuple(state.running()),
        state.dispatch == "paused",
    )
