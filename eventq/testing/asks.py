"""What to ask of a queue next: commands, bad values and policies, drawn so that little is wasted.

A queue asked at random hardly ever gets far: ids do not match, leases are stale, nothing dies. So
what is drawn here knows how the queue stands (by the model), mostly asks what will be carried out,
and turns to what will be refused often enough. Few ids, so that they meet; dependencies on ids
that are not there yet, so that tasks arrive late and cycles close.

Where the draws come from is left open: a seeded `random.Random`, or hypothesis, which can shrink.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from attrs import evolve, field, frozen

from eventq.core.commands import COMMANDS, OF_THE_QUEUE, Command, Enqueue, EnqueueAll
from eventq.core.events import Json
from eventq.core.lifecycle import Status
from eventq.core.policy import Capacity, Policy, Retention, Retry
from eventq.testing.bad import BAD, BAD_ON_DISK
from eventq.testing.facts import UNFINISHED
from eventq.testing.model import Model

__all__ = [
    "ASKS",
    "Ask",
    "Draw",
    "Opaque",
    "Seeded",
    "draw_arguments",
    "draw_ask",
    "draw_bad",
    "draw_policy",
    "of_use",
]

S = Status
T = TypeVar("T")

IDS = "abcdefgh"
POOL = ("w1", "w2")
WORKERS = (None, "w1", "w2", "w3")
HASHABLE = ("host", 7)
"""A worker that only a queue in memory takes."""

ERRORS = ("", "HTTP 503", "[red]lost\x1b[0m\n\N{SNOWMAN}", "\ud800")


class Draw(Protocol):
    """Where choices come from."""

    def pick(self, options: Sequence[T]) -> T:
        """One of these."""

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred draws."""


@frozen
class Seeded:
    """Choices from a seeded source: the same seed gives the same commands."""

    random: Random

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random.random() * len(options))]

    def chance(self, percent: int) -> bool:
        return self.random.random() * 100 < percent


class Opaque:
    """A payload for a queue in memory, which must hand back the same object and never look at it:
    it cannot be compared with another, nor hashed."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise AssertionError(f"payload {self!r} was compared with {other!r}")

    __hash__ = None  # type: ignore[assignment]


IN_MEMORY: tuple[Any, ...] = (Opaque("this"), Opaque("that"), None)
ON_DISK: tuple[Any, ...] = (
    None,
    {"a": 1, "b": [True, "\u2028\x00\N{SNOWMAN}"]},
    {"b": [True, "\u2028\x00\N{SNOWMAN}"], "a": 1},
    {"a": 1.0, "b": [True, "\u2028\x00\N{SNOWMAN}"]},
    1,
    1.0,
    True,
    "1",
)


@frozen
class Ask:
    """One thing asked: the name of a command and its arguments, as the caller gives them.

    `bad`: no queue could take these values, so that they are to be refused as BadValue.
    """

    do: str
    arguments: dict[str, Any] = field(factory=dict)
    bad: bool = False

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.do}({given})"

    def command(self, *, durable: bool) -> Command:
        """The command that is meant; where a log keeps it, with its values as JSON texts."""
        command = _COMMANDS[self.do](**self.arguments)
        return _as_json(command) if durable else command


_COMMANDS: dict[str, Callable[..., Command]] = {command.do: command for command in COMMANDS}


def _json(value: Any) -> Json | None:
    return None if value is None else Json(json.dumps(value).encode())


def _as_json(command: Any) -> Command:
    if isinstance(command, EnqueueAll):
        return EnqueueAll(map(_as_json, command.tasks))  # type: ignore[arg-type]
    for name in ("payload", "result"):
        if hasattr(command, name):
            command = evolve(command, **{name: _json(getattr(command, name))})
    assert isinstance(command, Command)
    return command


def draw_policy(draw: Draw) -> Policy:
    """A policy under which much happens within few commands."""
    capacity = None
    if draw.chance(40):
        capacity = Capacity(draw.pick((3, 2, 5, 1, 0)), draw.pick(("waiting", "unresolved")))
    retention = Retention(draw.pick((0, 2))) if draw.chance(50) else None
    retry = Retry(
        max_attempts=draw.pick((1, 2, 3, None)),
        max_redrives=draw.pick((None, 1, 0)),
        max_releases=draw.pick((None, 1, 0)),
    )
    return Policy(capacity, POOL if draw.chance(30) else None, retry, retention)


# One function for each command: its arguments, for a queue that stands like this model.


def _standing(model: Model, *statuses: Status) -> list[str]:
    return [name for name in model.ids() if model.status(name) in statuses]


def _an_id(model: Model, draw: Draw, *wished: Status, unknown: int = 8) -> str:
    """The id of a task, mostly one that stands in one of these."""
    there = _standing(model, *wished)
    if there and draw.chance(80):
        # Each status is as likely as the others, however many tasks stand in it.
        status = draw.pick([s for s in wished if _standing(model, s)])
        return draw.pick(_standing(model, status))
    known = model.ids()
    return draw.pick(IDS) if not known or draw.chance(unknown) else draw.pick(known)


def _a_lease(model: Model, draw: Draw, stale: int = 8) -> int:
    """A lease, mostly a current one."""
    current = model.leases()
    if current and not draw.chance(stale):
        return draw.pick(current)
    return draw.pick(range(1, model.seq + 3))


def _anyone(values: Sequence[Any]) -> tuple[Hashable, ...]:
    return (*WORKERS, "stranger", HASHABLE) if values is IN_MEMORY else (*WORKERS, "stranger")


def _a_worker(model: Model, draw: Draw, values: Sequence[Any]) -> Hashable:
    """A worker, mostly one that may start."""
    if draw.chance(10):
        return draw.pick(_anyone(values))
    may = WORKERS if model.policy.pool is None else POOL
    free = [worker for worker in may if model.held_by(worker) is None]
    return draw.pick(may if draw.chance(10) else free or may)


def _content(
    model: Model, draw: Draw, values: Sequence[Any], also: Sequence[str]
) -> dict[str, Any]:
    """What a new task may be; `also` are ids that it may name besides the known ones."""
    given: dict[str, Any] = {}
    if draw.chance(40):
        given["payload"] = draw.pick(values)
    if draw.chance(65):
        names = [*model.ids(), *IDS, *also, f"#{model.seq + 1}", f"#{model.seq + 2}"]
        rooted = _standing(model, S.DEAD, S.PARKED, S.CANCELLED, S.BLOCKED)
        given["after"] = [
            draw.pick(rooted if rooted and draw.chance(25) else names)
            for _ in range(draw.pick((1, 2, 3)))
        ]
    if draw.chance(15):
        given["max_attempts"] = draw.pick((1, 2, None, OF_THE_QUEUE))
    return given


def _again(model: Model, draw: Draw, name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A known task once more: mostly the same content, else other content."""
    content = model.content(name)
    payload, after = content.payload, list(content.after)
    if type(payload) is Json:
        payload = payload.value()
        if isinstance(payload, dict) and draw.chance(50):
            payload = dict(reversed(payload.items()))
    if draw.chance(30):
        if draw.chance(50):
            payload = draw.pick(values)
        else:
            after.append(draw.pick(IDS))
    if after and draw.chance(30):
        after = [*reversed(after), after[0]]
    return {"id": name, "payload": payload, "after": after}


def _enqueue(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    known = [name for name in model.ids() if not name.startswith("#")]
    if known and draw.chance(15):
        return _again(model, draw, draw.pick(known), values)
    content = _content(model, draw, values, ())
    free = [name for name in IDS if name not in known]
    if not free or draw.chance(20):
        return content
    wanted = [name for name in free if model.needed_by(name)]
    return {"id": draw.pick(wanted if wanted and draw.chance(50) else free), **content}


def _enqueue_all(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    batch: list[Enqueue] = []
    made: list[str] = [f"#{model.seq + 1}.{n}" for n in (1, 2)]
    for _ in range(draw.pick((2, 3, 4, 1, 0))):
        if batch and draw.chance(15):
            batch.append(draw.pick(batch))
            continue
        given = _enqueue(model, draw, values)
        if "after" not in given and draw.chance(30):
            given["after"] = [draw.pick([*made, *(t.id for t in batch if t.id is not None)])]
        batch.append(Enqueue(**given))
    return {"tasks": batch}


def _start(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    return {"worker": _a_worker(model, draw, values)}


def _complete(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"lease": _a_lease(model, draw)}
    if draw.chance(40):
        given["result"] = draw.pick(values)
    return given


def _complete_and_start(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    given = _complete(model, draw, values)
    lease = model.lease(given["lease"])
    busy = [worker for worker in _anyone(values) if model.held_by(worker) is not None]
    if lease is not None and not draw.chance(30):
        given["worker"] = lease["worker"]
    else:
        given["worker"] = draw.pick(busy if busy and draw.chance(50) else _anyone(values))
    return given


def _fail(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    kind = "permanent" if draw.chance(25) else "retryable"
    return {"lease": _a_lease(model, draw), "error": draw.pick(ERRORS), "kind": kind}


def _release(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"lease": _a_lease(model, draw)}


def _redrive(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"task": _an_id(model, draw, S.DEAD, S.PARKED)}


def _cancel(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"task": _an_id(model, draw, *UNFINISHED)}
    if draw.chance(25):
        task = model.task(given["task"])
        own = task and task["lease"]
        given["lease"] = own if own and draw.chance(60) else _a_lease(model, draw)
    if draw.chance(30):
        given["error"] = draw.pick(ERRORS)
    return given


def _restore(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"task": _an_id(model, draw, S.CANCELLED)}


def _nothing(*_: Any) -> dict[str, Any]:
    return {}


ASKS: dict[str, tuple[int, Callable[[Model, Draw, Sequence[Any]], dict[str, Any]]]] = {
    "enqueue": (24, _enqueue),
    "enqueue_all": (8, _enqueue_all),
    "start": (22, _start),
    "complete": (9, _complete),
    "complete_and_start": (5, _complete_and_start),
    "fail": (14, _fail),
    "release": (5, _release),
    "redrive": (7, _redrive),
    "cancel": (6, _cancel),
    "restore": (5, _restore),
    "close": (1, _nothing),
    "reopen": (2, _nothing),
    "tick": (3, _nothing),
}
"""For each command how often it is asked, and what draws its arguments."""


def draw_arguments(do: str, model: Model, draw: Draw, *, durable: bool) -> Ask:
    """This command, with arguments for a queue that stands like this model."""
    return Ask(do, ASKS[do][1](model, draw, ON_DISK if durable else IN_MEMORY))


_SPREAD = [do for do, (weight, _) in ASKS.items() for _ in range(weight)]


def of_use(do: str, model: Model) -> bool:
    """Whether this command can be carried out at all, with the right arguments."""
    if do in ("complete", "complete_and_start", "fail", "release"):
        return bool(model.leases())
    if do == "redrive":
        return bool(_standing(model, S.DEAD, S.PARKED))
    if do == "restore":
        return bool(_standing(model, S.CANCELLED))
    return do != "start" or bool(model.line())


def draw_ask(model: Model, draw: Draw, *, durable: bool) -> Ask:
    """Anything that may be asked of a queue that stands like this model."""
    if draw.chance(3):
        return draw_bad(draw, durable=durable)
    if model.admission == "closed" and draw.chance(20):
        return Ask("reopen")
    do = draw.pick(_SPREAD)
    while not of_use(do, model) and draw.chance(85):
        do = draw.pick(_SPREAD)
    return draw_arguments(do, model, draw, durable=durable)


def draw_bad(draw: Draw, *, durable: bool) -> Ask:
    """Something that no queue can take."""
    do, arguments = draw.pick((*BAD, *BAD_ON_DISK) if durable else BAD)
    return Ask(do, arguments, bad=True)
