"""Older versions of the format: read in the form of the present one, by steps without a gap."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, ZEROS, body_of, copied, lines, seal, segments

from eventq import State, WorkQueue
from eventq.core.events import Enqueued, Failed, Json
from eventq.core.evolve import replay
from eventq.storage.codec import NotALine, decode, read
from eventq.storage.newer import version_of
from eventq.storage.segments import Cursor
from eventq.storage.upcast import STEPS, VERSION, Step, Steps, checked


def since_zero(line: dict[str, Any]) -> dict[str, Any]:
    """From a version that there never was: it said `broke` and knew one kind of failure."""
    for event in line["events"]:
        if event["type"] == "broke":
            event["type"] = "failed"
            event["kind"] = "retryable"
    return line


OLDER: Steps = checked({0: since_zero}, first=0)


def older(line: bytes, last: bytes = ZEROS) -> bytes:
    """The line as that version would have written it."""
    body = body_of(line).replace(b'{"v":1,', b'{"v":0,', 1)
    body = body.replace(b'"type":"failed"', b'"type":"broke"')
    return seal(
        body.replace(b',"kind":"retryable"', b"").replace(b',"kind":"permanent"', b""), last
    )


def as_older(path: Path) -> None:
    """Make every other line of this log one of version 0, and put the chain right."""
    last = ZEROS
    for file in segments(path):
        text = b""
        for line in file.read_bytes().splitlines(keepends=True):
            body = body_of(line)
            if b',"prev":"' in body:
                body = body[: body.rindex(b',"prev":"')] + b',"prev":"%b"' % last
            changed = seal(body, last)
            if b'"type":"failed"' in line or b'"seq":1,' in line:
                changed = older(changed, last)
            text += changed
            last = changed[-67:-3]
        file.write_bytes(text)


def test_an_older_log_folds_through_the_steps(tmp_path: Path) -> None:
    """To the same state as if it had been written today, and to the same entries."""
    path = copied(FIXTURES / "short", tmp_path / "q")
    with WorkQueue.open(path) as q:
        state, entries = q.state, list(q.entries())
    as_older(path)
    assert {version_of(line) for line in lines(path)} == {0, 1}
    folded = replay(State(), Cursor(path / "log").forward(partial(read, steps=OLDER)))
    assert folded == state
    again = list(Cursor(path / "log").forward(partial(decode, steps=OLDER)))
    assert again == entries
    assert any(isinstance(event, Failed) for entry in again for event in entry.events)


def test_payloads_keep_their_bytes_on_the_way() -> None:
    """Another spelling of the same value stays as it was written."""
    spelled = b'{ "b":1.0, "a":1E2, "a":' + b"9" * 30 + b"}"
    body = (
        b'{"v":0,"seq":2,"at":"2026-11-30T12:00:00.000000Z","by":null,"do":"enqueue","ask":{},'
        b'"events":[{"type":"enqueued","task":"t","payload":%b,"after":[],"key":null,'
        b'"max_attempts":null,"not_before":null}]' % spelled
    )
    (event,) = decode(seal(body, ZEROS), OLDER).events
    assert isinstance(event, Enqueued)
    assert event.payload == Json(spelled)
    (event,) = read(seal(body, ZEROS), OLDER).events
    assert event.payload == Json(spelled)


def test_what_is_no_line_of_its_version_is_damage() -> None:
    """A step that finds not what it looks for, or makes no line of it; a version that never was."""
    good = b'{"v":0,"seq":2,"at":"2026-11-30T12:00:00.000000Z","by":null,"do":"tick","ask":{}'
    for rest in (b"", b',"events":[{}]', b',"events":7', b',"events":[{"type":"exploded"}]'):
        for reads in (read, decode):
            with pytest.raises(NotALine, match="does not read as an entry of version 0"):
                reads(seal(good + rest, ZEROS), OLDER)
    for steps in (STEPS, OLDER):
        with pytest.raises(NotALine, match="no eventq ever wrote version -1"):
            read(seal(good.replace(b'"v":0', b'"v":-1') + b',"events":[]', ZEROS), steps)


@pytest.mark.parametrize("there", [[], [1], [1, 3], [1, 2, 3, 4], [0, 1, 2, 3], [2, 3]])
def test_a_gap_between_versions_is_found_at_once(there: list[int]) -> None:
    """As is a step that leads nowhere: `checked` runs when the module is imported."""
    steps: dict[int, Step] = dict.fromkeys(there, since_zero)
    with pytest.raises(ValueError, match=r"versions 1 to 3 of the format need a step"):
        checked(steps, last=4)
    assert checked(dict.fromkeys([1, 2, 3], since_zero), last=4)


def test_every_version_that_there_was_has_its_step() -> None:
    """The table of this eventq is the checked one."""
    assert sorted(STEPS) == list(range(1, VERSION))
