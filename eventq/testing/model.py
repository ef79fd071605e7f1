"""The reference model: the whole queue again, written the slow, obvious way.

`Model` notes only what has happened to each task itself. Whether a task is PENDING, BLOCKED or
READY, who holds a key and what is due is worked out from that, from scratch, each time it is asked
(`facts`, `noted`); what follows is told from there (`telling`, `admission`, and here). It shares
the nouns with the queue that it audits (commands, events, refusals, the policy and the names of
the statuses) and none of its rules, so that a mistake has to be made twice, in two ways of
thinking, before it passes.

It foretells for each command the exact events in their exact order, or the refusal, and what is
answered; `look()` is everything that may be asked of the queue after it. It has no log: `copy()`
keeps an earlier moment.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from eventq.core.commands import (
    Cancel,
    Close,
    Complete,
    CompleteAndStart,
    Fail,
    Pause,
    Reconfigure,
    Redrive,
    RedriveAll,
    Release,
    Renew,
    Reopen,
    Resolve,
    Restore,
    Resume,
    Start,
    Tick,
)
from eventq.core.errors import (
    StaleLease,
    UnknownTask,
    UnknownWorker,
    WorkerBusy,
    WrongStatus,
)
from eventq.core.events import (
    Cancelled,
    Closed,
    Completed,
    Failed,
    Paused,
    Reconfigured,
    Redriven,
    Released,
    Renewed,
    Reopened,
    Resolved,
    Restored,
    Resumed,
    Started,
)
from eventq.core.lifecycle import Status
from eventq.core.select import Select
from eventq.testing.admission import Admission
from eventq.testing.facts import UNFINISHED, Look, canonical, plain
from eventq.testing.telling import Outcome

__all__ = ["Look", "Model", "Outcome", "canonical"]

S = Status


class Model(Admission):
    """A queue that foretells what a queue under the same policy does. Begin it with `Open`."""

    def _check_worker(self, worker: Hashable) -> None:
        pool = self.policy.pool
        if pool is not None and worker not in pool:
            raise UnknownWorker(worker, pool)

    def _hand_out(self, worker: Hashable, lease_for: timedelta | None) -> dict[str, Any] | None:
        self._carry_out_due()
        held = self.held_by(worker)
        if held is not None:
            raise WorkerBusy(worker, held, self._tasks[held].lease or 0)
        name = self.first()
        if name is None or self.dispatch == "paused":
            return None
        lasts = lease_for or self.policy.lease_for
        expires = None if lasts is None else self.after(lasts)
        here, facts = self.position + 1, self._tasks[name]
        self._tell(
            Started(name, facts.attempt + 1, worker, expires),
            name,
            own=S.RUNNING,
            told=S.RUNNING,
            attempt=facts.attempt + 1,
            lease=self.seq,
            worker=worker,
            expires=expires,
            timer=here,
            out=here,
        )
        if facts.task.key is not None:
            self.handed = (*self.handed, (facts.task.key, name, here))
        return self.lease(self.seq)

    def _start(self, command: Start) -> dict[str, Any] | None:
        self._check_worker(command.worker)
        return self._hand_out(command.worker, command.lease_for)

    def _current(self, lease: int, asked: str) -> str:
        holder = self.holder(lease)
        if holder is None:
            raise StaleLease(lease, asked)
        return holder

    def _complete(self, command: Complete | CompleteAndStart) -> dict[str, Any] | None:
        name = self._current(command.lease, "complete")
        result = command.result
        self._end(Completed(name, result), name, S.SUCCEEDED, result=result, error=None)
        return self.task(name)

    def _complete_and_start(self, command: CompleteAndStart) -> dict[str, Any] | None:
        self._check_worker(command.worker)
        self._complete(command)
        return self._hand_out(command.worker, command.lease_for)

    def _fail(self, command: Fail) -> dict[str, Any] | None:
        name = self._current(command.lease, "fail")
        failed = Failed(name, self._tasks[name].attempt, command.error, command.kind)
        final = command.kind == "permanent"
        self._fails(failed, command.error, final=final, retry_after=command.retry_after)
        return self.task(name)

    def _renew(self, command: Renew) -> dict[str, Any] | None:
        name = self._current(command.lease, "renew")
        lasts, ends = command.lease_for or self.policy.lease_for, self._tasks[name].expires
        if lasts is not None and ends is not None and self.after(lasts) - ends > lasts / 2:
            expires, here = self.after(lasts), self.position + 1
            self._tell(Renewed(name, expires), name, expires=expires, timer=here)
        return self.lease(command.lease)

    def _release(self, command: Release) -> dict[str, Any] | None:
        name = self._current(command.lease, "release")
        facts, limit = self._tasks[name], self.policy.retry.max_releases
        releases = facts.releases + 1
        if limit is not None and releases > limit:
            error = f"released {releases} times"
            self._fails(Failed(name, facts.attempt, error, "retryable"), error, final=False)
        else:
            waits = {"own": S.PENDING, "told": S.READY, "lease": None, "worker": None}
            counts = {"attempt": facts.attempt - 1, "releases": releases, "expires": None}
            self._tell(Released(name), name, **waits, **counts)
        return self.task(name)

    def _check_status(self, task: str, asked: str, allowed: Iterable[Status]) -> None:
        status = self.status(task)
        if status is S.ABSENT:
            raise UnknownTask(task, asked)
        if status not in allowed:
            raise WrongStatus(task, asked, status, [*allowed])

    def _redrive(self, command: Redrive) -> dict[str, Any] | None:
        name = command.task
        self._check_status(name, "redrive", (S.DEAD, S.PARKED))
        self._bring_back([name])
        return self.task(name)

    def _redrive_all(self, command: RedriveAll) -> list[dict[str, Any] | None]:
        names = self.meant(command.select)
        self._bring_back(names)
        return [self.task(name) for name in names]

    def meant(self, select: Select) -> list[str]:
        """The DEAD tasks that are selected, in the order of their death."""
        dead = [letter[0] for letter in self.letters(S.DEAD)]
        return [name for name in dead if self._is_meant(name, select)][: select.limit]

    def _is_meant(self, name: str, select: Select) -> bool:
        died, error = self._tasks[name].died, self._tasks[name].error or ""
        assert died is not None
        fits: dict[str, Callable[[str], bool]] = {
            "exact": lambda told: error == told,
            "prefix": lambda told: error[: len(told)] == told,
            "glob": lambda told: fnmatch.fnmatchcase(error, told),
            "regex": lambda told: re.search(told, error) is not None,
        }
        return (
            (select.tasks is None or name in select.tasks)
            and (select.error is None or fits[select.how](select.error))
            and (select.died_before is None or died < select.died_before)
            and (select.died_since is None or not died < select.died_since)
        )

    def _bring_back(self, names: Sequence[str]) -> None:
        """Redrive these, and only then tell what follows downstream of them."""
        for name in names:
            self._wait_afresh(Redriven(name), name, redrives=self._tasks[name].redrives + 1)
            self._line_up(name, None)
        self._follow(*names)

    def _cancel(self, command: Cancel) -> dict[str, Any] | None:
        name = command.task
        if command.lease is not None and self.holder(command.lease) != name:
            raise StaleLease(command.lease, "cancel")
        if name in self._tasks and self.status(name) is S.CANCELLED:
            return self.task(name)
        self._check_status(name, "cancel", UNFINISHED)
        self._end(Cancelled(name, command.error), name, S.CANCELLED, error=command.error)
        return self.task(name)

    def _restore(self, command: Restore) -> dict[str, Any] | None:
        name = command.task
        self._check_status(name, "restore", (S.CANCELLED,))
        self._wait_afresh(Restored(name), name)
        self._follow(name)
        return self.task(name)

    def _resolve(self, command: Resolve) -> dict[str, Any] | None:
        name = command.task
        self._check_status(name, "resolve", (S.DEAD, S.PARKED, S.CANCELLED))
        self._end(Resolved(name), name, S.SUCCEEDED, error=None)
        return self.task(name)

    def _close(self, _: Close) -> None:
        if self.admission == "open":
            self.admission = "closed"
            self._tell(Closed())

    def _reopen(self, _: Reopen) -> None:
        if self.admission == "closed":
            self.admission = "open"
            self._tell(Reopened())

    def _pause(self, _: Pause) -> None:
        if self.dispatch == "running":
            self.dispatch = "paused"
            self._tell(Paused())

    def _resume(self, _: Resume) -> None:
        if self.dispatch == "paused":
            self.dispatch = "running"
            self._tell(Resumed())

    def _reconfigure(self, command: Reconfigure) -> dict[str, Any]:
        if self.policy != command.policy:
            self.policy = command.policy
            self._tell(Reconfigured(command.policy))
        agreed: dict[str, Any] = plain(self.policy, durable=False)
        return agreed

    def _tick(self, _: Tick) -> None:
        self._carry_out_due()
