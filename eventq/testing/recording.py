"""Recording calls from outside: asks a WorkQueue, and tells of each call when it begins and ends.

    # in each of several processes, with `tell` the `send` of a pipe to the parent
    recorder = Recorder(WorkQueue.open("nightly"), "process 3", tell)
    lease = recorder.ask(Start("w3"))
    recorder.ask(Complete(lease.id, "done"))

    # in the parent, which has put what it was told into `recording`
    explain(recording.calls, WorkQueue.open("nightly", read_only=True).entries())

A call is told before it is made, and again with its answer: so that of a caller which is killed
in between is known, too.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from attrs import define, evolve, field, fields

from eventq.core.commands import Command, CompleteAndStart, EnqueueAll, Reconfigure
from eventq.core.errors import Refusal
from eventq.core.policy import Policy
from eventq.core.record import Lease
from eventq.storage.payload import to_json
from eventq.testing.histories import Call, Read
from eventq.workqueue import WorkQueue

__all__ = ["Recorder", "Recording"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Recorder:
    """Asks a queue under a name of its own, and tells of each call twice: asked, and answered."""

    def __init__(
        self,
        queue: WorkQueue,
        by: str,
        tell: Callable[[Call], object],
        *,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        """`by` is nobody else's, neither at the same time nor later; `clock` is the queue's."""
        self.queue = queue
        self._by = by
        self._tell = tell
        self._clock = clock

    def ask(self, command: Command, **more: Any) -> Any:
        """Call the method of this command; `more` are arguments that are not part of it (`wait`,
        `why`). Answers, or raises, what it does."""
        kept = command if self.queue.path is None else _kept(command)
        return self._call(kept, lambda: _called(self.queue, command, by=self._by, **more))

    def task(self, name: str) -> Any:
        """Look at one task."""
        return self._call(Read(name), lambda: self.queue.task(name))

    def _call(self, command: Command | Read, call: Callable[[], Any]) -> Any:
        asked = Call(self._by, self._clock(), command)
        self._tell(asked)
        try:
            answer = call()
        except Refusal as refusal:
            self._tell(evolve(asked, end=self._clock(), answer=refusal))
            raise
        self._tell(evolve(asked, end=self._clock(), answer=answer))
        return answer


@define
class Recording:
    """Keeps what recorders tell."""

    _calls: dict[tuple[str, datetime], Call] = field(factory=dict)

    def hear(self, call: Call) -> None:
        """Note a call, or its answer."""
        self._calls[call.by, call.begin] = call

    @property
    def calls(self) -> list[Call]:
        """All calls, each with its answer if one came."""
        return list(self._calls.values())


def _kept(command: Any) -> Command:
    """The command with its payload or result as a log on disk keeps it."""
    if isinstance(command, EnqueueAll):
        return EnqueueAll(map(_kept, command.tasks))  # type: ignore[arg-type]
    for name in ("payload", "result"):
        if hasattr(command, name):
            command = evolve(command, **{name: to_json(name, getattr(command, name))})
    assert isinstance(command, Command)
    return command


def _called(queue: WorkQueue, command: Command, **more: Any) -> Any:
    """What the method of this command answers."""
    given = {part.name: getattr(command, part.name) for part in fields(type(command))}
    if isinstance(command, CompleteAndStart):
        given["lease"] = Lease(command.lease, "", None, 0, given.pop("worker"), None)
    if isinstance(command, Reconfigure):
        policy = given.pop("policy")
        given = {part.name: getattr(policy, part.name) for part in fields(Policy) if part.init}
    return getattr(queue, command.do)(**given, **more)
