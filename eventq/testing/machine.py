"""The state machine that lets hypothesis drive a queue and its model with the same commands.

`QueueMachine` drives a WorkQueue in memory, `DurableQueueMachine` one on disk, which is also
closed, opened, crashed and kept in snapshots. For a queue of your own, override `make`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from eventq.core.policy import Policy
from eventq.testing.adapter import Adapter, Clock, DurableAdapter
from eventq.testing.asks import Ask, draw_arguments, draw_ask, draw_bad, of_use
from eventq.testing.drawing import draw_policy, draw_time
from eventq.testing.pair import Pair
from eventq.testing.workqueue import DurableWorkQueueAdapter, WorkQueueAdapter

__all__ = ["DurableQueueMachine", "QueueMachine"]


class _Drawn:
    """Choices made by hypothesis. It shrinks towards the first option, and towards no chance."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def pick(self, options: Any) -> Any:
        return self._draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) >= 100 - percent


@st.composite
def _policies(draw: st.DrawFn) -> Policy:
    return draw_policy(_Drawn(draw))


@st.composite
def _asks(draw: st.DrawFn, do: str | None = None) -> Ask:
    """What to ask of the queue as it stands: this command, or anything."""
    pair = draw(st.runner()).pair
    if do is None:
        return draw_ask(pair.model, _Drawn(draw), durable=pair.queue.durable)
    return draw_arguments(do, pair.model, _Drawn(draw), durable=pair.queue.durable)


@st.composite
def _times(draw: st.DrawFn) -> timedelta:
    return draw_time(_Drawn(draw))


@st.composite
def _bad(draw: st.DrawFn) -> Ask:
    return draw_bad(_Drawn(draw), durable=draw(st.runner()).pair.queue.durable)


@st.composite
def _crashes(draw: st.DrawFn) -> dict[str, Any]:
    """How many bytes of the last line a crash takes, and whether zeros are left there."""
    size = draw(st.runner()).pair.can_lose()
    cut = draw(st.integers(0, size) | st.sampled_from(range(min(3, size + 1))))
    return {"cut": cut, "zeros": cut > 1 and draw(st.booleans())}


def _while_of_use(do: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return precondition(lambda machine: of_use(do, machine.pair.model))


_while_durable = precondition(lambda machine: isinstance(machine.pair.queue, DurableAdapter))


class QueueMachine(RuleBasedStateMachine):
    """Drives a queue against the model. `QueueMachine.TestCase` is the test.

    There is a rule for each command, taken while it can be carried out; `anything` asks what may
    well be refused.
    """

    pair: Pair

    def make(self, policy: Policy, clock: Clock) -> Adapter:
        """Open a queue under this policy, whose time is that of this clock."""
        return WorkQueueAdapter.open(policy, clock)

    @initialize(policy=_policies())
    def open(self, policy: Policy) -> None:
        self.pair = Pair(policy, self.make)

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.queue.shut()

    @rule(ask=_asks())
    def anything(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @rule(by=_times())
    def time_passes(self, by: timedelta) -> None:
        self.pair.pass_time(by)

    @rule(ask=_bad())
    def bad_value(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @rule(ask=_asks("enqueue"))
    def enqueue(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @rule(ask=_asks("enqueue_all"))
    def enqueue_all(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("start")
    @rule(ask=_asks("start"))
    def start(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("complete")
    @rule(ask=_asks("complete"))
    def complete(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("complete_and_start")
    @rule(ask=_asks("complete_and_start"))
    def complete_and_start(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("fail")
    @rule(ask=_asks("fail"))
    def fail(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("renew")
    @rule(ask=_asks("renew"))
    def renew(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("release")
    @rule(ask=_asks("release"))
    def release(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("redrive")
    @rule(ask=_asks("redrive"))
    def redrive(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("redrive_all")
    @rule(ask=_asks("redrive_all"))
    def redrive_all(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("cancel")
    @rule(ask=_asks("cancel"))
    def cancel(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("restore")
    @rule(ask=_asks("restore"))
    def restore(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("resolve")
    @rule(ask=_asks("resolve"))
    def resolve(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("close")
    @rule(ask=_asks("close"))
    def close(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("reopen")
    @rule(ask=_asks("reopen"))
    def reopen(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("pause")
    @rule(ask=_asks("pause"))
    def pause(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("resume")
    @rule(ask=_asks("resume"))
    def resume(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("reconfigure")
    @rule(ask=_asks("reconfigure"))
    def reconfigure(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_of_use("tick")
    @rule(ask=_asks("tick"))
    def tick(self, ask: Ask) -> None:
        self.pair.ask(ask)

    @_while_durable
    @rule()
    def open_again(self) -> None:
        self.pair.reopen()

    @_while_durable
    @rule()
    def snapshot(self) -> None:
        self.pair.snapshot()

    @_while_durable
    @rule(how=_crashes())
    def crash(self, how: dict[str, Any]) -> None:
        self.pair.crash(**how)


class DurableQueueMachine(QueueMachine):
    """The same for a queue on disk, in a directory of its own that is removed afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(tempfile.mkdtemp(prefix="eventq-"))

    def make(self, policy: Policy, clock: Clock) -> Adapter:
        return DurableWorkQueueAdapter(self._directory / "queue", policy, clock)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self._directory)
