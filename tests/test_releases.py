"""Every release's log is read for ever: the same state, the same head, no byte changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from disk import check_chain, copied, lines, segments, untouched
from release import RELEASES, TOP, VERSION
from terminal import environment, eventq

from eventq import State, WorkQueue
from eventq.core.commands import COMMANDS
from eventq.core.errors import REFUSALS, BadValue
from eventq.core.evolve import evolve, replay
from eventq.core.lifecycle import Status
from eventq.storage.codec import EVENTS

PUBLISHED = sorted(folder for folder in RELEASES.iterdir() if folder.is_dir())


@pytest.fixture(params=PUBLISHED, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


def told(path: Path, head: str) -> Any:
    """What `eventq at` tells of the last entry."""
    return eventq("at", head.partition(":")[0], "--queue", path, "--json").value


def holds(then: Any, now: Any) -> bool:
    """Whether all that was told then is told now; a later eventq may tell more."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(
            name in now and holds(value, now[name]) for name, value in then.items()
        )
    if isinstance(then, list):
        return isinstance(now, list) and len(then) == len(now) and all(map(holds, then, now))
    return type(then) is type(now) and then == now


def test_the_log_of_this_version_is_among_them() -> None:
    """A release without one cannot be held to it later."""
    assert VERSION in [folder.name for folder in PUBLISHED]


def test_it_folds_to_the_same_state_and_head(release: Path, tmp_path: Path) -> None:
    """From its first line, entry by entry, and from a snapshot; reading changes nothing."""
    path = copied(release, tmp_path / "q")
    head = (release / "head").read_text().strip()
    state = json.loads((release / "state.json").read_text())
    with untouched(path):
        assert eventq("head", "--queue", path).out.strip() == head
        assert holds(state, told(path, head))
        with WorkQueue.open(path, read_only=True) as q:
            assert "{}:{}".format(*q.head) == head
            entries = list(q.entries())
            folded = State()
            for entry in entries:
                folded = evolve(folded, entry)
                folded.check()
            assert folded == q.state == replay(State(), entries)
    eventq("snapshot", "--queue", path)
    assert holds(state, told(path, head))


def test_it_verifies(release: Path, tmp_path: Path) -> None:
    """Intact, complete and legal, and not a byte is changed."""
    path = copied(release, tmp_path / "q")
    head = (release / "head").read_text().strip()
    with untouched(path):
        ran = eventq("verify", "--queue", path, "--head", head, "--json")
    assert (ran.code, ran.value["problems"], ran.value["notes"]) == (0, [], [])
    assert (ran.value["intact"], ran.value["complete"], ran.value["legal"]) == (True,) * 3


def test_it_can_be_gone_on_with(release: Path, tmp_path: Path) -> None:
    """By a writer of today."""
    path = copied(release, tmp_path / "q")
    before = lines(path)
    with WorkQueue.open(path) as q:
        q.enqueue("of today")
    assert check_chain(path)[:-1] == before


def test_the_log_of_this_version_uses_everything_that_there_is() -> None:
    """Every event and command, refusals of every kind, starts that got nothing, several segments,
    every status in the end, text that is no ASCII; no field that may be null is always, or never.
    """
    path = RELEASES / VERSION
    entries = [json.loads(line) for line in lines(path)]
    events = [event for entry in entries for event in entry["events"]]
    refused = [entry["ask"] for entry in entries if "refused" in entry["ask"]]
    assert {event["type"] for event in events} == set(EVENTS.values())
    accepted = {entry["do"] for entry in entries if "refused" not in entry["ask"]}
    assert accepted == {command.do for command in COMMANDS}
    assert {ask["refused"] for ask in refused} == {
        refusal.name for refusal in REFUSALS if refusal is not BadValue
    }
    nothing = [entry for entry in entries if not entry["events"]]
    assert {"start"} < {entry["do"] for entry in nothing}
    assert any(entry["do"] == "start" and "refused" not in entry["ask"] for entry in nothing)
    assert len(segments(path)) > 3
    assert any(not line.isascii() for line in lines(path))
    may_be_null = [
        *((f"{e['type']}.{name}", value) for e in events for name, value in e.items()),
        *((f"{e['do']}.{name}", value) for e in entries for name, value in e["ask"].items()),
        *((name, entry[name]) for entry in entries for name in ("by", "why") if name in entry),
    ]
    null = {name for name, value in may_be_null if value is None}
    assert null <= {name for name, value in may_be_null if value is not None}
    assert {"by", "why", "start.worker", "enqueued.key", "completed.result", "cancel.lease"} < null
    state = json.loads((path / "state.json").read_text())
    resting = {*Status} - {Status.ABSENT, Status.FAILED}
    assert {task["status"] for task in state["tasks"]} == resting


def test_a_published_log_is_never_written_anew(tmp_path: Path) -> None:
    """The script that writes one leaves what is there alone."""
    with untouched(RELEASES):
        done = subprocess.run(
            [sys.executable, TOP / "tests" / "release.py"],
            env=environment(),
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode == 1
    assert "is never edited" in done.stderr


def test_a_log_that_differs_would_be_noticed(tmp_path: Path) -> None:
    """The comparison compares."""
    path = tmp_path / "q"
    shutil.copytree(RELEASES / VERSION / "log", path / "log")
    state = json.loads((RELEASES / VERSION / "state.json").read_text())
    seq = int((RELEASES / VERSION / "head").read_text().partition(":")[0])
    assert holds(state, told(path, f"{seq}:"))
    assert not holds(state, told(path, f"{seq - 1}:"))
    assert not holds({"a": [1]}, {"a": [1.0]})
