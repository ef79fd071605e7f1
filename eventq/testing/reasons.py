"""Why a task does not run, as the reference model works it out: one task after the other.

The answer is a chain: why the task itself does not run, then why the task on which that rests does
not, and so on. Whatever is asked of one task is read off how all are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventq.core.lifecycle import Status
from eventq.testing.facts import ROOTS

if TYPE_CHECKING:
    from eventq.testing.noted import Noted

__all__ = ["Reasons"]

S = Status


class Reasons:
    """Why none of these tasks runs, for a queue that shows them so."""

    def __init__(self, queue: Noted, shown: dict[str, dict[str, Any]]) -> None:
        self._queue = queue
        self._shown = shown
        ready = [name for name in shown if self._status(name) is S.READY]
        self._line = sorted(ready, key=lambda name: shown[name]["place"])

    def _status(self, task: str) -> Status:
        return self._shown[task]["status"] if task in self._shown else S.ABSENT

    def steps(self, task: str) -> list[dict[str, Any]]:
        """The chain from this task to the one with which all would begin to move."""
        step = {
            "task": task,
            "status": self._status(task),
            "kind": "unknown",
            "on": None,
            "needs": (),
            "key": None,
            "ahead": 0,
            "reason": None,
            "lease": None,
            "until": None,
            "error": None,
            **self._why(task),
        }
        return [step] if step["on"] is None else [step, *self.steps(step["on"])]

    def _why(self, task: str) -> dict[str, Any]:
        """What is to be said of this task alone."""
        if task not in self._shown:
            return {}
        shown = self._shown[task]
        error = {"error": shown["error"]}
        match shown["status"]:
            case S.PENDING:
                on = self._towards_unknown(task)
                kind = "needs" if on in self._shown else "missing"
                return {"kind": kind, "on": on, "needs": self._unmet(task)}
            case S.BLOCKED:
                on = next(n for n in shown["after"] if self._status(n) in (*ROOTS, S.BLOCKED))
                return {"kind": "blocked", "on": on, "needs": self._unmet(task)}
            case S.READY:
                return error | self._waiting_for_its_turn(task)
            case S.DELAYED:
                return error | {"kind": "until", "until": shown["until"]}
            case S.RUNNING:
                return error | {"kind": "running", "lease": self._queue.lease(shown["lease"])}
            case S.DEAD | S.PARKED as status:
                return error | {"kind": status.lower(), "reason": self._queue.reason(task)}
            case status:
                return error | {"kind": status.lower()}

    def _unmet(self, task: str) -> tuple[str, ...]:
        """What it needs and has not SUCCEEDED."""
        after = self._shown[task]["after"]
        return tuple(name for name in after if self._status(name) is not S.SUCCEEDED)

    def _towards_unknown(self, task: str) -> str:
        """The first step of the shortest way to an id that nobody has enqueued; of those, of the
        one that comes first as written. Without any, what it needs first."""
        ways = {name: name for name in self._unmet(task)}
        for _ in self._shown:
            for end, first in ways.items():
                if end not in self._shown:
                    return first
            longer: dict[str, str] = {}
            for end, first in ways.items():
                if self._status(end) is S.PENDING:
                    for name in self._unmet(end):
                        longer.setdefault(name, first)
            ways = longer
        return self._unmet(task)[0]

    def _waiting_for_its_turn(self, task: str) -> dict[str, Any]:
        """Why this READY task has not been handed out."""
        ahead = self._kept_by(task)
        if ahead is not None:
            kind = "shut" if self._status(ahead) in (S.DEAD, S.PARKED) else "behind"
            return {"kind": kind, "on": ahead, "key": self._shown[task]["key"]}
        before = self._line[: self._line.index(task)]
        return {
            "kind": "paused" if self._queue.dispatch == "paused" else "unasked",
            "ahead": sum(self._kept_by(name) is None for name in before),
        }

    def _kept_by(self, task: str) -> str | None:
        """The task that goes before this READY one by their key, if one does."""
        key = self._shown[task]["key"]
        if key is None:
            return None
        holder = self._queue.holds(key)
        if not self._queue.may_go(task):
            return holder
        first = next(name for name in self._line if self._shown[name]["key"] == key)
        return None if task in (holder, first) else first
