"""The state that a handle goes on from: changed in place for as long as nobody else holds it.

`decide(state, command)` makes a new state and leaves the one before as it is, which costs a copy
of all that it touches. A handle needs the one before only when something goes wrong midway: a
refusal behind the first event, a write that fails, an interrupt. So it goes on in place, and what
went wrong is undone by folding again, from the last state that was kept, the few entries since.
Only a break in the midst of keeping a state anew, some milliseconds once in a while, is undone
from the log itself.
"""

from __future__ import annotations

from datetime import datetime

from eventq.core.commands import Command
from eventq.core.decide import RULES
from eventq.core.downstream import Telling
from eventq.core.events import Event
from eventq.core.evolve import Folded, carry_out, replay
from eventq.core.state import Draft, State

__all__ = ["BYTES", "EVENTS", "Current"]

EVENTS = 1024
"""How many events, or entries without any, may pass before the state is kept anew: what an undoing
folds at most, but for one entry."""

BYTES = 1024 * 1024
"""How much of a log may: what is finished meanwhile is held on to for so long."""


class Current:
    """The state after the last entry, as `now`, which may be asked and not be held on to.

    It moves in steps: `decide` and `keep`, or `fold`, and when the entry is in the log, `settle`.
    Whatever breaks in between leaves it not `whole`, or at another seq than the log, for `restore`.
    `undo` is how many events that goes back at most; 0 where there is no log to read anew.
    """

    def __init__(self, state: State, undo: int = EVENTS) -> None:
        self._undo = undo
        self._go_on(_held(state))

    def _go_on(self, state: State) -> None:
        self.whole = False
        self._base = state
        self._since: list[Folded] = []
        self._events = self._bytes = 0
        self.now = Draft.of(state)
        self.whole = True

    def _move_base(self) -> None:
        """Go back no further than to here from now on."""
        self.whole = False
        alone = self._undo > 0
        if alone:
            self._since = []  # the base is given up first, and can then be changed in place
        self._go_on(self.now.done(alone=alone))

    def state(self) -> State:
        """This state, to be held on to: it never changes."""
        if self.now.seq != self._base.seq:
            self._move_base()
        return _held(self._base)

    def decide(self, command: Command, at: datetime) -> tuple[Event, ...]:
        """What follows from a command, carried out. Raises a Refusal."""
        telling = Telling(self.now, at)
        RULES[type(command)](telling, command)
        return tuple(telling.events)

    def fold(self, entry: Folded) -> None:
        """Carry out an entry. Raises ImpossibleEvent."""
        self.whole = False
        self._since.append(entry)
        carry_out(self.now, entry)

    def follow(self, entries: list[Folded]) -> None:
        """Carry out entries that others wrote. Raises ImpossibleEvent."""
        self.whole = False
        self._since += entries
        for entry in entries:
            carry_out(self.now, entry)
            self._events += len(entry.events) or 1
        self.whole = True
        if self._events > self._undo:
            self._move_base()

    def keep(self, entry: Folded) -> None:
        """This entry, which was decided here, is about to be written."""
        self._since.append(entry)

    def settle(self, size: int = 0) -> None:
        """The last entry is in the log, where it takes so many bytes."""
        self._events += len(self._since[-1].events) or 1
        self._bytes += size
        self.whole = True
        if self._events > self._undo or self._bytes > BYTES:
            self._move_base()

    def restore(self, seq: int) -> bool:
        """Fold anew what is known of a log that ends with this seq: whether it is all of it."""
        known = self._base.seq
        since = [entry for entry in self._since if known < entry.seq <= seq]
        if known + len(since) != seq:
            return False
        self._go_on(replay(self._base, since) if since else self._base)
        return True


def _held(state: State) -> State:
    """The same, which somebody may hold on to from now on."""
    for part in (state.records, state.leases, state.busy, state.holders, state.fronts):
        part.held = True
    return state
