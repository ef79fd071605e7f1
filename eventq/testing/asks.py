"""What to ask of a queue next: commands, bad values and policies, drawn so that little is wasted.

A queue asked at random hardly ever gets far: ids do not match, leases are stale, nothing dies. So
what is drawn here knows how the queue stands (by the model), mostly asks what will be carried out,
and turns to what will be refused often enough. Few ids, so that they meet; dependencies on ids
that are not there yet, so that tasks arrive late and cycles close; two keys, so that tasks stand
in each other's way; lengths of time that are over before long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from attrs import evolve, field, fields, frozen

from eventq.core.commands import COMMANDS, OF_THE_QUEUE, Command, Enqueue, EnqueueAll
from eventq.core.events import Json
from eventq.core.lifecycle import Status
from eventq.core.policy import Policy
from eventq.core.select import Select
from eventq.testing.bad import BAD, BAD_ON_DISK
from eventq.testing.drawing import IN_MEMORY, LENGTHS, ON_DISK, POOL, Draw, draw_policy
from eventq.testing.facts import UNFINISHED
from eventq.testing.model import Model

__all__ = ["ASKS", "Ask", "draw_arguments", "draw_ask", "draw_bad", "of_use"]

S = Status

IDS = "abcdefgh"
KEYS = ("k", "l")
WORKERS = (None, "w1", "w2", "w3")
HASHABLE = ("host", 7)
"""A worker that only a queue in memory takes."""

ERRORS = ("", "HTTP 503", "[red]lost\x1b[0m\n\N{SNOWMAN}", "\ud800")
SELECTING = (
    ("prefix", "HTTP"),
    ("exact", "HTTP 503"),
    ("exact", ""),
    ("exact", "lease expired"),
    ("glob", "*5?3"),
    ("glob", "[[]red[]]*"),
    ("regex", "5.3$|^lost"),
    ("regex", "released|expired"),
)
"""How the errors above are told apart, and those that eventq gives itself."""


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
        given = {name: value for name, value in self.arguments.items() if name != "why"}
        if self.do == "redrive_all":
            given.setdefault("select", Select())
        if self.do == "reconfigure" and "policy" not in given:
            given = {"policy": given}
        command = _COMMANDS[self.do](**given)
        return _as_json(command) if durable else command


_COMMANDS: dict[str, type[Command]] = {command.do: command for command in COMMANDS}


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
    if draw.chance(40):
        given["key"] = draw.pick(KEYS)
    if draw.chance(20):
        given["not_before"] = _a_time(model, draw)
    return given


def _a_time(model: Model, draw: Draw) -> datetime:
    """A time not far from the last entry, as some clock on earth shows it."""
    assert model.at is not None
    zone = draw.pick((UTC, timezone(timedelta(hours=-5, minutes=-30))))
    return (model.at + timedelta(seconds=draw.pick((2, 1, 0, -5, 40, 7200)))).astimezone(zone)


def _again(model: Model, draw: Draw, name: str, values: Sequence[Any]) -> dict[str, Any]:
    """A known task once more: mostly the same content, else other content."""
    content = model.content(name)
    payload, after, key = content.payload, list(content.after), content.key
    if isinstance(payload, Json):
        payload = payload.value()
        if isinstance(payload, dict) and draw.chance(50):
            payload = dict(reversed(payload.items()))
    if draw.chance(40):
        if draw.chance(40):
            payload = draw.pick(values)
        elif draw.chance(50):
            key = draw.pick((None, *KEYS))
        else:
            after.append(draw.pick(IDS))
    if after and draw.chance(30):
        after = [*reversed(after), after[0]]
    return {"id": name, "payload": payload, "after": after, "key": key}


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
    return {"worker": _a_worker(model, draw, values), **_a_length(draw, 25)}


def _a_length(draw: Draw, percent: int, name: str = "lease_for") -> dict[str, Any]:
    """In so many of a hundred draws an argument that is a length of time."""
    return {name: draw.pick(LENGTHS)} if draw.chance(percent) else {}


def _complete(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"lease": _a_lease(model, draw)}
    if draw.chance(40):
        given["result"] = draw.pick(values)
    return given


def _complete_and_start(model: Model, draw: Draw, values: Sequence[Any]) -> dict[str, Any]:
    given = _complete(model, draw, values)
    lease = model.lease(given["lease"])
    others = {held["worker"] for held in map(model.lease, model.leases()) if held and held != lease}
    busy = [worker for worker in _anyone(values) if worker is not None and worker in others]
    if lease is not None and not draw.chance(40):
        given["worker"] = lease["worker"]
    else:
        given["worker"] = draw.pick(busy if busy and draw.chance(50) else _anyone(values))
    return given | _a_length(draw, 25)


def _fail(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    kind = "permanent" if draw.chance(35) else "retryable"
    given = {"lease": _a_lease(model, draw), "error": draw.pick(ERRORS), "kind": kind}
    return given | _a_length(draw, 25, "retry_after")


def _renew(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"lease": _a_lease(model, draw), **_a_length(draw, 60)}


def _release(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"lease": _a_lease(model, draw)}


def _redrive(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"task": _an_id(model, draw, S.DEAD, S.PARKED)}


def _redrive_all(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    """Any of the DEAD tasks; mostly by something that holds for one of them."""
    chosen: dict[str, Any] = {}
    if draw.chance(20):
        chosen["tasks"] = [_an_id(model, draw, S.DEAD) for _ in range(draw.pick((1, 2, 0)))]
    if draw.chance(30):
        chosen["how"], chosen["error"] = draw.pick(SELECTING)
    if draw.chance(15):
        chosen[draw.pick(("died_before", "died_since"))] = _a_time(model, draw)
    if draw.chance(60):
        chosen["limit"] = draw.pick((1, 1, 2, 0))
    return {"select": Select(**chosen)} if chosen or draw.chance(50) else {}


def _resolve(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    return {"task": _an_id(model, draw, S.DEAD, S.PARKED, S.CANCELLED)}


def _reconfigure(model: Model, draw: Draw, _: Sequence[Any]) -> dict[str, Any]:
    """Another policy, mostly in one or two parts."""
    other = draw_policy(draw)
    names = [part.name for part in fields(Policy) if part.init]
    parts = [draw.pick(names) for _ in range(draw.pick((1, 2, 0)))]
    return {"policy": evolve(model.policy, **{part: getattr(other, part) for part in parts})}


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
    "renew": (5, _renew),
    "redrive": (5, _redrive),
    "redrive_all": (5, _redrive_all),
    "cancel": (6, _cancel),
    "restore": (5, _restore),
    "resolve": (3, _resolve),
    "close": (1, _nothing),
    "reopen": (2, _nothing),
    "pause": (1, _nothing),
    "resume": (2, _nothing),
    "reconfigure": (3, _reconfigure),
    "tick": (4, _nothing),
}
"""For each command how often it is asked, and what draws its arguments."""


def draw_arguments(do: str, model: Model, draw: Draw, *, durable: bool) -> Ask:
    """This command, with arguments for a queue that stands like this model."""
    given = ASKS[do][1](model, draw, ON_DISK if durable else IN_MEMORY)
    if _COMMANDS[do].operator and draw.chance(10):
        given["why"] = draw.pick(ERRORS)
    return Ask(do, given)


_SPREAD = [do for do, (weight, _) in ASKS.items() for _ in range(weight)]


def of_use(do: str, model: Model) -> bool:
    """Whether this command can be carried out at all, with the right arguments."""
    if do in ("complete", "complete_and_start", "fail", "release", "renew"):
        return bool(model.leases())
    if do == "redrive":
        return bool(_standing(model, S.DEAD, S.PARKED))
    if do == "redrive_all":
        return bool(_standing(model, S.DEAD))
    if do == "restore":
        return bool(_standing(model, S.CANCELLED))
    if do == "resolve":
        return bool(_standing(model, S.DEAD, S.PARKED, S.CANCELLED))
    return do != "start" or bool(model.line() or model.due())


def draw_ask(model: Model, draw: Draw, *, durable: bool) -> Ask:
    """Anything that may be asked of a queue that stands like this model."""
    if draw.chance(3):
        return draw_bad(draw, durable=durable)
    if model.admission == "closed" and draw.chance(20):
        return Ask("reopen")
    if model.dispatch == "paused" and draw.chance(20):
        return Ask("resume")
    if len(_standing(model, S.DEAD)) > 1 and draw.chance(20):
        return draw_arguments("redrive_all", model, draw, durable=durable)
    do = draw.pick(_SPREAD)
    while not of_use(do, model) and draw.chance(85):
        do = draw.pick(_SPREAD)
    return draw_arguments(do, model, draw, durable=durable)


def draw_bad(draw: Draw, *, durable: bool) -> Ask:
    """Something that no queue can take."""
    do, arguments = draw.pick((*BAD, *BAD_ON_DISK) if durable else BAD)
    return Ask(do, arguments, bad=True)
