"""WorkQueue behind the adapter, in memory and on disk; and the laws that its log has to keep.

After every command the live state is held against what its log says: the entries fold to it, each
of them is what is decided again from the state before it, and `State.check()` finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Self

from attrs import asdict, fields

from eventq.core.commands import Open, command
from eventq.core.decide import decide
from eventq.core.errors import Refusal
from eventq.core.events import Entry, Event
from eventq.core.evolve import evolve, replay
from eventq.core.lifecycle import FINISHED
from eventq.core.policy import Policy
from eventq.core.record import DeadLetter, Lease
from eventq.core.state import State
from eventq.handle import no_answer
from eventq.queries.why import why
from eventq.storage.log import Log
from eventq.storage.memory import MemoryLog
from eventq.testing.adapter import Clock
from eventq.testing.facts import Look, plain
from eventq.workqueue import WorkQueue

__all__ = ["DurableWorkQueueAdapter", "WorkQueueAdapter"]

SEGMENT_BYTES = 3000
"""So little that a log soon has several segments."""

DROPPED = 20
"""How many handles are left open after crashes."""

EVERY = 16
"""The laws about the whole log are looked at every so many entries, and at the end."""


class WorkQueueAdapter:
    """A WorkQueue in memory."""

    durable = False

    def __init__(self, queue: WorkQueue) -> None:
        self.queue = queue
        self._folded = State()
        self._events: tuple[Event, ...] = ()
        self.check()

    @classmethod
    def open(cls, policy: Policy, clock: Clock) -> Self:
        """A queue under this policy."""
        return cls(_begun(MemoryLog(history=True), policy, clock))

    @property
    def id(self) -> str:
        """The id of the queue."""
        return self.queue.state.queue

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        """Call the method of that name."""
        seq = self.queue.state.seq
        self._events = ()
        arguments = dict(arguments)
        answer: Any
        if do == "enqueue_all":
            answer = self.queue.enqueue_all(arguments["tasks"])
        elif "policy" in arguments:
            arguments |= _parts(arguments.pop("policy"))
            answer = self.queue.reconfigure(**arguments)
        else:
            if do == "complete_and_start":
                arguments["lease"] = _lease_of(arguments["lease"], arguments.pop("worker", None))
            answer = getattr(self.queue, do)(**arguments)
        self._events = tuple(e for entry in self.queue.entries(seq + 1) for e in entry.events)
        return plain(answer, durable=self.durable)

    def events(self) -> Sequence[Event]:
        """The events of the entry that was written, if one was."""
        return self._events

    def look(self) -> Look:
        """Everything that the state can be asked."""
        state = self.queue.state
        tasks = state.tasks()
        names = [*(task.id for task in tasks), *(name for task in tasks for name in task.after)]
        first = state.first()
        return Look(
            state.seq,
            state.at,
            state.policy,
            state.admission,
            state.dispatch,
            [plain(task, durable=self.durable) for task in tasks],
            [task.id for task in state.line()],
            None if first is None else first.task.task,
            [plain(lease, durable=self.durable) for lease in state.running()],
            [(when, task) for when, _, task in state.due],
            dict(state.holders.items()),
            [_letter(letter) for letter in self.queue.dead_letters()],
            [_letter(letter) for letter in self.queue.parked()],
            state.counts(),
            {name: state.needed_by(name) for name in names},
            {task.id: self._why(state, task.id) for task in tasks if task.status not in FINISHED},
        )

    def _why(self, state: State, task: str) -> list[dict[str, Any]]:
        return [
            asdict(step, recurse=False) | {"lease": plain(step.lease, durable=self.durable)}
            for step in why(state, task).steps
        ]

    def check(self) -> None:
        """Check the laws that join the state and its log, for what was written since last time."""
        state = self.queue.state
        state.check()
        for entry in self.queue.entries(self._folded.seq + 1):
            before, self._folded = self._folded, evolve(self._folded, entry)
            assert before.at is None or before.at <= entry.at, f"entry {entry.seq}: time falls"
            _check_decided_again(before, entry, self._folded)
            if entry.seq % EVERY == 0:
                self._check_whole()
        assert self._folded == state, f"the log folds to {self._folded}, not to {state}"
        for task in state.tasks():
            assert self.queue.task(task.id) == task, f"the queue shows another {task.id}"

    def _check_whole(self) -> None:
        """Check that the whole log folds to the state, at once and one entry after the other, and
        from any moment in it."""
        entries = list(self.queue.entries())
        state = self.queue.state
        assert replay(State(), entries) == state, "the log, replayed, gives another state"
        assert reduce(evolve, entries, State()) == state, "the log folds to another state"
        middle = state.seq // 2
        assert replay(self.queue.at(middle), entries[middle:]) == state, (
            f"the state after entry {middle} and the entries since give another state"
        )

    def shut(self) -> None:
        """Check the whole log once more and let go of the queue."""
        self._check_whole()
        self.queue.shut()


class DurableWorkQueueAdapter(WorkQueueAdapter):
    """A WorkQueue on disk, through two handles; they can be dropped, and the log can be cut."""

    durable = True

    def __init__(self, path: Path, policy: Policy, clock: Clock) -> None:
        """Begin a queue at this path."""
        self._path = path
        self._clock = clock
        self._dropped: list[WorkQueue] = []
        _begun(Log(path, segment_bytes=SEGMENT_BYTES), policy, clock).shut()
        queue, self._other = self._open(**_parts(policy)), self._open()
        super().__init__(queue)

    def _open(self, **told: Any) -> WorkQueue:
        return WorkQueue.open(self._path, clock=self._clock, segment_bytes=SEGMENT_BYTES, **told)

    def ask(self, do: str, arguments: dict[str, Any]) -> Any:
        """Call the method of that name; two handles take turns, so that each has to catch up."""
        self.queue, self._other = self._other, self.queue
        return super().ask(do, arguments)

    def reopen(self) -> None:
        """Shut the handles and open the queue again: from the newest snapshot and what follows."""
        state = self.queue.state
        self.queue.shut()
        self._other.shut()
        self.queue, self._other = self._open(), self._open()
        assert self.queue.state == state, "the queue opened again stands otherwise"

    def snapshot(self) -> None:
        """Write a snapshot."""
        self.queue.snapshot()

    def last_line(self) -> int:
        """The bytes of the last line, or 0 once a snapshot rests on it."""
        kept = [int(file.stem) for file in (self._path / "snapshots").glob("*.jsonl")]
        if max(kept, default=0) >= self.queue.state.seq:
            return 0
        return len(self._segment().read_bytes().splitlines(keepends=True)[-1])

    def _segment(self) -> Path:
        return max((self._path / "log").glob("*.jsonl"))

    def crash(self, cut: int, *, zeros: bool) -> None:
        """Drop the handles, cut the log (or leave zeros there), and open the queue again.

        First for reading, which changes nothing; then for writing, which cuts the torn tail. The
        handles are shut much later, for nothing may depend on it.
        """
        self._dropped += self.queue, self._other
        while len(self._dropped) > DROPPED:
            self._dropped.pop(0).shut()
        segment = self._segment()
        line = segment.read_bytes()
        torn = line[: len(line) - cut] + (b"\0" * cut if zeros else b"")
        segment.write_bytes(torn)
        with WorkQueue.open(self._path, read_only=True, clock=self._clock) as reading:
            before = reading.state
        assert segment.read_bytes() == torn, "reading has changed the log"
        self.queue, self._other = self._open(), self._open()
        if cut != 1:
            assert self.queue.state == before, "mending the log has changed what could be read"
        if self._folded.seq > before.seq and cut > 1:
            self._folded = before

    def shut(self) -> None:
        """Check the whole log once more and let go of the queue."""
        super().shut()
        for handle in (self._other, *self._dropped):
            handle.shut()


def _parts(policy: Policy) -> dict[str, Any]:
    """The parts of a policy, as `open` and `reconfigure` take them."""
    return {part.name: getattr(policy, part.name) for part in fields(Policy) if part.init}


def _begun(log: Log | MemoryLog, policy: Policy, clock: Clock) -> WorkQueue:
    """A queue whose id is always the same, so that a seed gives the same waits each time."""
    queue = WorkQueue(log, State(), clock=clock, snapshots=False)
    queue._ask(Open("held-against-the-model", policy), no_answer)
    return queue


def _check_decided_again(before: State, entry: Entry, after: State) -> None:
    """Check that the command of this entry, decided again, gives its events or its refusal."""
    refused: str | None = None
    told: tuple[Event, ...] = ()
    decided = before
    try:
        told, decided = decide(before, command(entry), entry.at)
    except Refusal as refusal:
        refused = refusal.name
    recorded = entry.ask.get("refused")
    assert refused == recorded, f"entry {entry.seq}: decided again, its refusal is {refused}"
    assert told == entry.events, f"entry {entry.seq}: decided again, it is {told}"
    assert not told or decided == after, f"entry {entry.seq}: deciding and folding differ"


def _letter(letter: DeadLetter) -> tuple[str, Any, str, str]:
    return letter.id, letter.status, letter.reason, letter.root


def _lease_of(lease: Any, worker: Any) -> Any:
    """A lease that names its worker, for the one command that takes the worker from it."""
    return Lease(lease, "", None, 0, worker, None) if type(lease) is int else lease
