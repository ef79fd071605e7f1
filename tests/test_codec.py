"""Lines on the wire: every name and the order of the fields frozen, and no other spelling taken."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from disk import FIXTURES, ZEROS, body_of, copied, cut_lines, digest_of, seal, segments, tour
from disk import lines as lines_of
from drawn import COMMAND, COUNT, EVENT, NAME, TEXT, TIME
from hypothesis import given
from hypothesis import strategies as st

from eventq import Backoff, Capacity, Keys, Policy, Retention, Retry
from eventq.core import events as e
from eventq.core.commands import COMMANDS, Command, command
from eventq.core.evolve import replay
from eventq.core.state import State
from eventq.storage.chain import fits, hash_of, next_hash, prev_of
from eventq.storage.codec import EVENTS, decode, encode, from_plain, plain_event, read

AT = datetime(2026, 11, 30, 12, 0, 0, 123456, tzinfo=UTC)
LATER = datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)

GOLDEN: list[tuple[e.Event, str]] = [
    (
        e.Enqueued("parse", e.Json(b'{"b":1,"a":2}'), ("fetch", "read"), "key", 5, LATER),
        (
            '{"type":"enqueued","task":"parse","payload":{"b":1,"a":2},"after":["fetch","read"],'
            '"key":"key","max_attempts":5,"not_before":"2027-01-02T03:04:05.000000Z"}'
        ),
    ),
    (
        e.Enqueued("parse"),
        (
            '{"type":"enqueued","task":"parse","payload":null,"after":[],'
            '"key":null,"max_attempts":null,"not_before":null}'
        ),
    ),
    (e.Readied("t"), '{"type":"readied","task":"t"}'),
    (
        e.Delayed("t", LATER),
        '{"type":"delayed","task":"t","until":"2027-01-02T03:04:05.000000Z"}',
    ),
    (
        e.Started("t", 2, "w", LATER),
        (
            '{"type":"started","task":"t","attempt":2,"worker":"w",'
            '"expires":"2027-01-02T03:04:05.000000Z"}'
        ),
    ),
    (
        e.Started("t", 1),
        '{"type":"started","task":"t","attempt":1,"worker":null,"expires":null}',
    ),
    (
        e.Renewed("t", LATER),
        '{"type":"renewed","task":"t","expires":"2027-01-02T03:04:05.000000Z"}',
    ),
    (e.Released("t"), '{"type":"released","task":"t"}'),
    (e.Completed("t", e.Json(b"[1.0]")), '{"type":"completed","task":"t","result":[1.0]}'),
    (e.Completed("t"), '{"type":"completed","task":"t","result":null}'),
    (
        e.Failed("t", 3, '\u2028\x00\n"', "permanent"),
        '{"type":"failed","task":"t","attempt":3,"error":"\u2028\\u0000\\n\\"","kind":"permanent"}',
    ),
    (e.Expired("t", 3), '{"type":"expired","task":"t","attempt":3}'),
    (e.Died("t"), '{"type":"died","task":"t"}'),
    (e.Parked("t"), '{"type":"parked","task":"t"}'),
    (e.Blocked("t", "r"), '{"type":"blocked","task":"t","root":"r"}'),
    (e.Unblocked("t"), '{"type":"unblocked","task":"t"}'),
    (e.Redriven("t"), '{"type":"redriven","task":"t"}'),
    (e.Restored("t"), '{"type":"restored","task":"t"}'),
    (e.Resolved("t"), '{"type":"resolved","task":"t"}'),
    (e.Cancelled("t", "old"), '{"type":"cancelled","task":"t","error":"old"}'),
    (e.Cancelled("t"), '{"type":"cancelled","task":"t","error":null}'),
    (e.Forgotten("t"), '{"type":"forgotten","task":"t"}'),
    (
        e.Opened("q", Policy()),
        (
            '{"type":"opened","queue":"q","policy":{"capacity":null,"pool":null,'
            '"retry":{"max_attempts":3,"max_redrives":3,"max_releases":null,"backoff":null},'
            '"retention":null,"lease_for":null,"keys":{"on_death":"open"},"record":false}}'
        ),
    ),
    (e.Closed(), '{"type":"closed"}'),
    (e.Reopened(), '{"type":"reopened"}'),
    (e.Paused(), '{"type":"paused"}'),
    (e.Resumed(), '{"type":"resumed"}'),
    (
        e.Reconfigured(
            Policy(
                capacity=Capacity(9, "unresolved"),
                pool=["w", "v"],
                retry=Retry(1, 2, 3, Backoff(1.5, 2, 60, "full")),
                retention=Retention(0, 86400),
                lease_for=0.25,
                keys=Keys("halt"),
                record=True,
            )
        ),
        (
            '{"type":"reconfigured","policy":{"capacity":{"limit":9,"counts":"unresolved"},'
            '"pool":["w","v"],"retry":{"max_attempts":1,"max_redrives":2,"max_releases":3,'
            '"backoff":{"base":1.5,"factor":2.0,"cap":60.0,"jitter":"full"}},'
            '"retention":{"count":0,"age":86400.0},"lease_for":0.25,'
            '"keys":{"on_death":"halt"},"record":true}}'
        ),
    ),
]


def line_of(*events: e.Event, **rest: Any) -> bytes:
    entry = e.Entry(7, AT, "tick", events, **rest)
    return encode(entry, b"ab" * 32, first=False)[0]


@pytest.mark.parametrize(("event", "wire"), GOLDEN, ids=lambda x: type(x).__name__)
def test_the_spelling_of_every_event_is_frozen(event: e.Event, wire: str) -> None:
    """Names, order and nulls: a log that was written once is read for ever."""
    line = line_of(event, by="w")
    assert body_of(line).decode() == (
        '{"v":1,"seq":7,"at":"2026-11-30T12:00:00.123456Z","by":"w","do":"tick","ask":{},'
        f'"events":[{wire}]'
    )
    assert decode(line).events == (event,)


def test_every_event_has_a_golden_spelling() -> None:
    """None is forgotten above, and no two are called the same."""
    assert {type(event) for event, _ in GOLDEN} == set(EVENTS)
    assert set(EVENTS) == {*e.TASK_EVENTS, *e.QUEUE_EVENTS}
    assert len(set(EVENTS.values())) == len(EVENTS)


ASKS: list[tuple[str, str]] = [
    ("open", '"ask":{}'),
    ("enqueue", '"ask":{}'),
    ("enqueue_all", '"ask":{}'),
    ("start", '"ask":{"worker":"w1","lease_for":null}'),
    ("start", '"ask":{"worker":"w1","lease_for":2.5}'),
    ("start", '"ask":{"worker":null,"lease_for":null}'),
    ("complete", '"ask":{"lease":28}'),
    ("complete_and_start", '"ask":{"lease":22,"worker":"w1","lease_for":null}'),
    ("fail", '"ask":{"lease":7,"retry_after":null}'),
    ("fail", '"ask":{"lease":47,"retry_after":0.5}'),
    ("renew", '"ask":{"lease":41,"lease_for":60.0}'),
    ("release", '"ask":{"lease":5}'),
    ("redrive", '"why":"they say it is back","ask":{}'),
    ("redrive", '"why":null,"ask":{}'),
    (
        "redrive_all",
        (
            '"why":"they say it is back","ask":{"select":{"tasks":null,"how":"glob",'
            '"error":"HTTP 5*","died_before":null,"died_since":"2026-11-30T12:00:00.000000Z",'
            '"limit":null}}'
        ),
    ),
    ("cancel", '"why":"asked by support","ask":{"lease":23}'),
    ("cancel", '"why":null,"ask":{"lease":null}'),
    ("restore", '"why":"needed after all","ask":{}'),
    ("resolve", '"why":"done by hand","ask":{}'),
    ("close", '"why":"moving house","ask":{}'),
    ("reopen", '"why":null,"ask":{}'),
    ("pause", '"why":"night","ask":{}'),
    ("resume", '"why":null,"ask":{}'),
    ("reconfigure", '"why":"for the night","ask":{}'),
    ("tick", '"ask":{}'),
    ("start", '"ask":{"refused":"unknown_worker","command":{"worker":"w3","lease_for":null}}'),
    (
        "cancel",
        (
            '"why":"a mistake","ask":{"refused":"unknown_task",'
            '"command":{"task":"nobody","lease":null,"error":"old"}}'
        ),
    ),
    (
        "enqueue",
        (
            '"ask":{"refused":"other_content","command":{"id":"slow","payload":[1.0],"after":[],'
            '"key":"account-7","max_attempts":null,"not_before":null}}'
        ),
    ),
    (
        "enqueue_all",
        (
            '"ask":{"refused":"cycle","command":{"tasks":['
            '{"id":"x","payload":{},"after":["y"],"key":null,"max_attempts":null,'
            '"not_before":null},{"id":"y","payload":null,"after":["x"],"key":null,'
            '"max_attempts":null,"not_before":null}]}}'
        ),
    ),
    ("restore", '"why":null,"ask":{"refused":"wrong_status","command":{"task":"slow"}}'),
]


@pytest.mark.parametrize(("do", "rest"), ASKS)
def test_the_spelling_of_every_command_is_frozen(do: str, rest: str) -> None:
    """`why` stands in the lines of operators' commands alone, `ask` in all, nulls included."""
    before = r'\{"v":1,"seq":\d+,"at":"2026-11-30T1[23]:\d\d:\d\d\.\d{6}Z","by":(null|"\w+"),'
    like = re.compile(f'{before}"do":"{do}",{re.escape(rest)},"events":'.encode())
    assert any(like.match(line) for line in lines_of(FIXTURES / "good"))


def test_every_command_has_a_golden_spelling() -> None:
    """None is forgotten above."""
    assert {do for do, _ in ASKS} == {command.do for command in COMMANDS}


def test_the_same_commands_write_the_same_bytes(tmp_path: Path) -> None:
    """A log of an earlier day differs from one of today in its queue's id and the hashes alone."""
    tour(tmp_path / "q")

    def bodies(path: Path) -> list[tuple[str, list[bytes]]]:
        id_ = re.search(rb'"queue":"([0-9a-f]{32})"', lines_of(path)[0])
        assert id_ is not None
        hashes = re.compile(rb'"(prev|hash)":"[0-9a-f]{64}"')
        return [
            (f.name, [hashes.sub(b"", x.replace(id_[1], b"")) for x in cut_lines(f.read_bytes())])
            for f in segments(path)
        ]

    assert bodies(tmp_path / "q") == bodies(FIXTURES / "good")


def test_the_chain() -> None:
    """The hash is over the digits of the line before and the body; the first line tells `prev`."""
    entry = e.Entry(1, AT, "close", (e.Closed(),))
    line, digest = encode(entry, b"0" * 64, first=True)
    body = body_of(line)
    assert body.endswith(b'"events":[{"type":"closed"}],"prev":"%b"' % ZEROS)
    assert line == seal(body, ZEROS)
    assert digest == next_hash(ZEROS, body) == hash_of(line) == digest_of(line)
    assert prev_of(line) == ZEROS
    assert prev_of(encode(entry, b"0" * 64, first=False)[0]) is None
    assert fits(line, ZEROS)
    assert not fits(line, digest)
    assert not fits(line[:-1], ZEROS)
    for wrong in (b"", b"\n", line[:-1], line[1:-2] + b"\n", line.replace(b'"hash"', b'"hush"')):
        assert hash_of(wrong) is None


def test_a_time_is_told_in_utc_with_six_decimals() -> None:
    """Whatever zone the clock is in."""
    there = datetime(2026, 11, 30, 14, tzinfo=timezone(timedelta(hours=2)))
    line = encode(e.Entry(2, there, "close", (e.Closed(),)), b"0" * 64, first=False)[0]
    assert b'"at":"2026-11-30T12:00:00.000000Z"' in line
    assert decode(line).at == there


SHELL = r"""
prev=0000000000000000000000000000000000000000000000000000000000000000
n=0
cat "$1"/log/*.jsonl > "$2"
while IFS= read -r line; do
    sum=$(printf %s "$prev${line%,\"hash\"*}" | sha256sum)
    sum=${sum%% *}
    n=$((n + 1))
    case $line in
        *",\"hash\":\"$sum\"}") prev=$sum ;;
        *) echo "line $n"; exit 1 ;;
    esac
done < "$2"
echo "$n $prev"
"""


def test_a_shell_can_check_a_log(tmp_path: Path) -> None:
    """With the one line of the design, also where a payload holds something like a hash."""
    path = copied(FIXTURES / "good", tmp_path / "q")

    def sh() -> subprocess.CompletedProcess[str]:
        asked = ["sh", "-c", SHELL, "sh", str(path), str(tmp_path / "all")]
        return subprocess.run(asked, capture_output=True, text=True, check=False)

    last = lines_of(path)[-1]
    assert sh().stdout == f"57 {digest_of(last).decode()}\n"
    file = segments(path)[1]
    file.write_bytes(file.read_bytes().replace(b"HTTP 404", b"HTTP 405"))
    assert (sh().returncode, sh().stdout) == (1, "line 12\n")


# Every value, there and back.


@given(
    st.tuples(COUNT, TIME, st.none() | NAME, st.none() | TEXT),
    st.lists(EVENT, max_size=3),
    COMMAND,
    st.booleans(),
    st.booleans(),
)
def test_every_entry_comes_back_the_same(
    head: tuple[int, datetime, str | None, str | None],
    events: list[e.Event],
    asked: Command,
    refused: bool,
    first: bool,
) -> None:
    """Whatever the texts hold; it is one line, and encoded again it is the same bytes."""
    seq, at, by, why = head
    ask = asked.refused("full") if refused else asked.ask()
    entry = e.Entry(seq, at, asked.do, tuple(events), ask, by, why if asked.operator else None)
    line, digest = encode(entry, b"cd" * 32, first=first)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == entry
    assert encode(decode(line), b"cd" * 32, first=first) == (line, digest)
    assert json.loads(line)["by"] == by
    if refused:
        assert command(decode(line)) == asked


@given(EVENT)
def test_msgspec_and_cattrs_read_the_same(event: e.Event) -> None:
    """The fast way of the log and the slow way for plain values give one event."""
    wire = json.loads(line_of(event))["events"][0]
    assert from_plain(wire) == event
    assert plain_event(event) == wire
    assert repr(plain_event(event)) == repr(wire)


def test_what_is_read_for_the_fold_folds_the_same() -> None:
    """`read` is the fast half of `decode`, and replay cannot tell them apart."""
    log = lines_of(FIXTURES / "good")
    assert replay(State(), map(read, log)) == replay(State(), map(decode, log))
    assert [read(line).at for line in log] == [decode(line).at for line in log]
