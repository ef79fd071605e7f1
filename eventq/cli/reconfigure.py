"""`eventq reconfigure`: another policy from now on, told part by part."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from attrs import evolve as with_changes
from attrs import fields

from eventq import Backoff, Capacity, Keys, Policy, Retention
from eventq.cli.operate import open_queue
from eventq.cli.options import (
    LENGTH,
    NOTHING,
    OrNothing,
    by_option,
    examples,
    json_option,
    queue_option,
    why_option,
)
from eventq.cli.show import Screen, emit
from eventq.cli.wording import policy_words
from eventq.core.values import check_name
from eventq.storage.convert import unstructure

__all__ = ["reconfigure"]


def _number(least: int) -> OrNothing:
    return OrNothing(click.IntRange(least))


def _one_of(*words: str) -> OrNothing:
    return OrNothing(click.Choice(words))


def _part(name: str, kind: click.ParamType[Any], metavar: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=kind, metavar=metavar, help=text)


OPTIONS = (
    _part("--capacity", _number(0), "N", "Room for new tasks."),
    _part(
        "--counts", _one_of("waiting", "unresolved"), "WHICH", "Which fill it: waiting, unresolved."
    ),
    click.option(
        "--pool", multiple=True, metavar="NAME", help="A worker of the pool; again for each one."
    ),
    _part("--max-attempts", _number(1), "N", "Hand-outs before a new task is dead."),
    _part("--max-redrives", _number(0), "N", "Redrives before another death parks it."),
    _part("--max-releases", _number(0), "N", "Releases in a row before one is a failure."),
    _part("--backoff", OrNothing(LENGTH), "AGE", "The wait behind a failure, before it grows."),
    _part("--backoff-factor", click.FLOAT, "X", "How it grows with each attempt."),
    _part("--backoff-cap", LENGTH, "AGE", "How long it gets at most."),
    _part("--backoff-jitter", _one_of("full", "equal"), "HOW", "How it varies: full, equal."),
    _part("--lease-for", OrNothing(LENGTH), "AGE", "How long a lease runs."),
    _part(
        "--on-death", _one_of("open", "halt"), "WHAT", "What a death does to its key: open, halt."
    ),
    _part("--retention-count", _number(0), "N", "How many finished tasks are kept."),
    _part("--retention-age", OrNothing(LENGTH), "AGE", "How long each of them is kept."),
    _part("--record", _one_of("on", "off"), "ON", "Whether refusals are kept too: on, off."),
)
"""An option for every part of a policy."""


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def changed(policy: Policy, told: dict[str, Any]) -> Policy:
    """The policy with what was told; what was not stays. Raises BadValue, UsageError."""
    plain = {name: None if value is NOTHING else value for name, value in told.items()}

    def some(prefix: str, **names: str) -> dict[str, Any]:
        return {
            field: plain[prefix + name] for field, name in names.items() if prefix + name in told
        }

    retry = some("max_", max_attempts="attempts", max_redrives="redrives", max_releases="releases")
    keep = some("retention_", count="count", age="age")
    kept = with_changes(policy.retention or Retention(), **keep)
    return with_changes(
        policy,
        capacity=_capacity(policy.capacity, plain),
        pool=_pool(told["pool"]) if "pool" in told else policy.pool,
        retry=with_changes(policy.retry, backoff=_backoff(policy.retry.backoff, plain), **retry),
        lease_for=plain.get("lease_for", policy.lease_for),
        keys=Keys(plain["on_death"] or "open") if "on_death" in told else policy.keys,
        retention=(None if kept == Retention() else kept) if keep else policy.retention,
        record=plain["record"] == "on" if "record" in told else policy.record,
    )


def _capacity(now: Capacity | None, told: dict[str, Any]) -> Capacity | None:
    limit = told.get("capacity", None if now is None else now.limit)
    if limit is None:
        if told.get("counts") is not None:
            raise click.UsageError("--counts goes with a --capacity, and there is none")
        return None
    counts = told.get("counts", "waiting" if now is None else now.counts)
    return Capacity(limit, counts or "waiting")


def _backoff(now: Backoff | None, told: dict[str, Any]) -> Backoff | None:
    base: timedelta | None = told.get("backoff", None if now is None else now.base)
    parts = {name: f"backoff_{name}" for name in ("factor", "cap", "jitter")}
    given = {name: told[option] for name, option in parts.items() if option in told}
    if base is None:
        if given:
            raise click.UsageError("the parts of a backoff go with a --backoff, and there is none")
        return None
    if "jitter" in given:
        given["jitter"] = given["jitter"] or "none"
    return Backoff(base, **given) if now is None else with_changes(now, base=base, **given)


def _pool(names: tuple[str, ...]) -> tuple[str, ...] | None:
    if "none" in names:
        if len(names) > 1:
            raise click.UsageError("--pool none is for everybody: it goes with no other")
        return None
    for name in names:
        check_name("the name of a worker", name)
    return names


@click.command(
    epilog=examples(
        'eventq reconfigure --max-attempts 5 --queue nightly --why "a flaky server"',
        'eventq reconfigure --backoff 30s --backoff-cap 1h --queue nightly --why "x"',
        'eventq reconfigure --pool w1 --pool w2 --queue nightly --why "two machines"',
        "eventq reconfigure --capacity none --backoff none --queue nightly --why x",
    )
)
@_options
@why_option
@by_option
@queue_option
@json_option
def reconfigure(why: str, by: str | None, queue: Path, as_json: bool, **told: Any) -> None:
    """Agree on another policy, from now on.

    What is not told stays as it is; every part but the factor and the cap takes the word none, for
    off. Ages are like 30s, 5m, 2h or 1d; a number alone is seconds. --max-attempts is for new
    tasks: those that are there keep their own. Agreeing on what holds already is harmless, and
    writes nothing.

    --json: one object with policy (as agreed) and changed.
    """
    given = {name: value for name, value in told.items() if value not in (None, ())}
    if not given:
        raise click.UsageError("say what to change")
    with open_queue(queue, by) as q:
        before = q.policy
        wanted = changed(before, given)
        parts = {
            part.name: getattr(wanted, part.name)
            for part in fields(Policy)
            if part.init and getattr(wanted, part.name) != getattr(before, part.name)
        }
        after = q.reconfigure(why=why, **parts)
    if as_json:
        emit({"policy": unstructure(after), "changed": before != after})
        return
    word = "is agreed" if before != after else "holds already"
    Screen().line(f"this {word}: {policy_words(after)}")
