"""A log is read strictly: one entry has one spelling, and nothing is quietly converted.

What is not read at all is damage at once; what is read though nobody writes it so is found by
encoding it again, which is what `verify` does. Nothing may pass both.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from disk import FIXTURES, ZEROS, body_of, seal
from disk import lines as lines_of

from eventq.storage.codec import NewerVersion, NotALine, decode, encode, from_plain, read

LOG = lines_of(FIXTURES / "good")
OPEN, ENQUEUE, BATCH, START, FAIL, CANCEL = (LOG[seq - 1] for seq in (1, 2, 4, 5, 8, 24))
TICK, SELECT, REFUSED = (LOG[seq - 1] for seq in (39, 46, 55))
Forgery = tuple[bytes, str, str | bytes]


def forged(line: bytes, old: str, new: str | bytes) -> bytes:
    """The line with one thing changed in its body, and a hash that fits."""
    body = body_of(line)
    assert body.count(old.encode()) == 1, (old, body)
    return seal(body.replace(old.encode(), new if isinstance(new, bytes) else new.encode()), ZEROS)


def spelled_again(line: bytes, *, first: bool) -> bytes:
    """The bytes that eventq writes for the entry that it reads there."""
    return encode(decode(line), ZEROS, first=first)[0]


UNREADABLE: list[tuple[bytes, str, str | bytes]] = [
    # Wrong types, which a lax reader would convert.
    (START, '"seq":5', '"seq":"5"'),
    (START, '"seq":5', '"seq":5.0'),
    (START, '"seq":5', '"seq":0.9'),
    (START, '"seq":5', '"seq":5e0'),
    (START, '"seq":5', '"seq":true'),
    (START, '"seq":5', '"seq":null'),
    (START, '"seq":5', '"seq":[5]'),
    (START, '"seq":5', '"seq":05'),
    (START, '"seq":5', '"seq":+5'),
    (START, '"v":1', '"v":true'),
    (START, '"v":1', '"v":1.0'),
    (START, '"v":1', '"v":"1"'),
    (START, '"attempt":1', '"attempt":"1"'),
    (START, '"attempt":1', '"attempt":1.5'),
    (START, '"attempt":1', '"attempt":true'),
    (START, '"attempt":1', '"attempt":null'),
    (START, '"task":"fetch"', '"task":7'),
    (START, '"task":"fetch"', '"task":null'),
    (START, '"expires":null', '"expires":0'),
    (START, '"expires":null', '"expires":"soon"'),
    (START, '"by":"w1"', '"by":1'),
    (START, '"do":"start"', '"do":null'),
    (START, '"ask":{', '"ask":null,"x":{'),
    (START, '{"worker":"w1","lease_for":null}', "[]"),
    (ENQUEUE, '"after":[]', '"after":"abc"'),
    (ENQUEUE, '"after":[]', '"after":[1]'),
    (ENQUEUE, '"after":[]', '"after":null'),
    (ENQUEUE, '"key":null', '"key":1'),
    (FAIL, '"kind":"retryable"', '"kind":"sometimes"'),
    (FAIL, '"kind":"retryable"', '"kind":null'),
    (FAIL, '"error":"HTTP 503"', '"error":503'),
    (OPEN, '"pool":null', '"pool":"w1"'),
    (OPEN, '"max_attempts":2', '"max_attempts":"2"'),
    (OPEN, '"max_attempts":2', '"max_attempts":2.0'),
    (OPEN, '"max_attempts":2', '"max_attempts":true'),
    (OPEN, '"max_attempts":2', '"max_attempts":0'),
    (OPEN, '"count":2', '"count":-1'),
    (OPEN, '"retention":{"count":2,"age":null}', '"retention":2'),
    # Times.
    (START, '"at":"2026-11-30T12:00:05.000000Z"', '"at":1796040005'),
    (START, "2026-11-30T12:00:05.000000Z", "2026-11-31T12:00:05.000000Z"),
    (START, "2026-11-30T12:00:05.000000Z", "noon"),
    # Fields that are not there, or should be.
    (START, '"by":"w1",', ""),
    (START, '"v":1,', ""),
    (START, ',"ask":{"worker":"w1","lease_for":null}', ""),
    (START, ',"expires":null', ""),
    (START, '"do":"start"', '"do":"start","mood":"good"'),
    (START, '"expires":null', '"expires":null,"mood":"good"'),
    (ENQUEUE, ',"payload":{"url":"https://example.org/","n":[1,1.0,-0.0,null,true]}', ""),
    (OPEN, '"retention":{"count":2,"age":null}', '"retention":{"count":2},"mood":"good"'),
    (OPEN, '{"count":2,"age":null}', '{"count":2,"age":null,"mood":"good"}'),
    (OPEN, '"age":null', '"age":60'),
    (OPEN, '"age":null', '"age":-1.0'),
    (OPEN, '"record":false', '"record":0'),
    (OPEN, '"record":false', '"record":null'),
    (OPEN, '"on_death":"open"', '"on_death":"shut"'),
    # Events.
    (START, '"type":"started",', ""),
    (START, '"type":"started"', '"type":null'),
    (START, '[{"type"', '[7,{"type"'),
    (START, '[{"type"', '[[],{"type"'),
    # Bytes.
    (ENQUEUE, "1,1.0", "NaN,1.0"),
    (ENQUEUE, "1,1.0", "Infinity,1.0"),
    (ENQUEUE, "1,1.0", "01,1.0"),
    (ENQUEUE, "1,1.0", "1.,1.0"),
    (ENQUEUE, "1,1.0", "1,,1.0"),
    (ENQUEUE, "https", "\x01https"),
    (ENQUEUE, "https", "\\ud800https"),
    (ENQUEUE, "https", b"\xff"),
    (ENQUEUE, "https", b"\xed\xa0\x80"),
    (ENQUEUE, "https", b"\xc0\xaf"),
    (FAIL, "HTTP 503", b"\xff"),
    (FAIL, "HTTP 503", b"\xed\xa0\x80"),
    (FAIL, "HTTP 503", "\\ud800"),
    (START, '{"v"', b'\xef\xbb\xbf{"v"'),
    (START, '{"v"', '[{"v"'),
    (START, '{"v"', "'v'"),
]


@pytest.mark.parametrize(("line", "old", "new"), UNREADABLE)
def test_what_is_no_line_is_never_read(line: bytes, old: str, new: str | bytes) -> None:
    """Not even when its hash fits; and it is damage, not the work of a newer eventq."""
    wrong = forged(line, old, new)
    for reads in (read, decode):
        with pytest.raises(NotALine) as caught:
            reads(wrong)
        assert not isinstance(caught.value, NewerVersion)


OTHER_SPELLINGS: list[Forgery] = [
    # Fields twice, in another order, or where they do not belong.
    (START, '"seq":5', '"seq":4,"seq":5'),
    (START, '"by":"w1"', '"by":"w2","by":"w1"'),
    (START, '"attempt":1', '"attempt":2,"attempt":1'),
    (START, '"lease_for":null', '"lease_for":1,"lease_for":null'),
    (START, '"type":"started"', '"type":"started","type":"started"'),
    (START, '{"v":1', '{"v":2,"v":1'),
    (START, '{"v":1', '{"v":1,"v":1'),
    (OPEN, '"count":2', '"count":3,"count":2'),
    (OPEN, '"queue":', '"queue":"x","queue":'),
    (START, '"by":"w1","do":"start"', '"do":"start","by":"w1"'),
    (START, '"type":"started","task":"fetch"', '"task":"fetch","type":"started"'),
    (OPEN, '"capacity":null,"pool":null', '"pool":null,"capacity":null'),
    (OPEN, '"capacity":null,', ""),
    (OPEN, '{"count":2,"age":null}', "{}"),
    (OPEN, ',"max_releases":1', ""),
    (OPEN, ',"prev":"' + "0" * 64 + '"', ""),
    (START, '"do":"start"', '"do":"start","why":null'),
    (START, '"do":"start"', '"do":"start","why":"I want to"'),
    (CANCEL, '"why":"asked by support",', ""),
    (START, '"ask":{', '"prev":"' + "0" * 64 + '","ask":{'),
    (START, '"do":"start"', '"do":"start","hash":""'),
    # Spaces.
    (START, '"seq":5', '"seq": 5'),
    (START, '{"v":1', ' {"v":1'),
    (START, '{"v":1', '\t{"v":1'),
    (START, '{"v":1', '\r{"v":1'),
    (START, '"expires":null}]', '"expires":null} ]'),
    (ENQUEUE, '"payload":{', '"payload": {'),
    (ENQUEUE, "true]},", "true]} ,"),
    # Numbers and texts.
    (START, '"task":"fetch"', '"task":"\\u0066etch"'),
    (START, '"task"', '"\\u0074ask"'),
    (BATCH, '"after":["parse"]', '"after":["\\u0070arse"]'),
    (FAIL, "HTTP 503", "HTTP\\u0020503"),
    (FAIL, "HTTP 503", "HTTP\\/503"),
    (FAIL, "HTTP 503", "HTTP\\u002f503"),
    (FAIL, '"type":"failed"', '"type":"\\u0066ailed"'),
    (START, '"attempt":1', '"attempt":-0'),
    # Times.
    (START, "05.000000Z", "05Z"),
    (START, "05.000000Z", "05.000Z"),
    (START, "05.000000Z", "05.0000000Z"),
    (START, "05.000000Z", "05.0000001Z"),
    (START, "05.000000Z", "05.000000z"),
    (START, "05.000000Z", "05.000000+00:00"),
    (START, "05.000000Z", "05.000000-00:00"),
    (START, "12:00:05.000000Z", "14:00:05.000000+02:00"),
    (START, "05.000000Z", "05.000000"),
    (START, "2026-11-30T", "2026-11-30t"),
    (START, "2026-11-30T", "2026-11-30 "),
]


@pytest.mark.parametrize(("line", "old", "new"), OTHER_SPELLINGS)
def test_another_spelling_never_stays_unseen(line: bytes, old: str, new: str | bytes) -> None:
    """It is no line, or it shows when the entry is encoded again."""
    first = line is OPEN
    assert spelled_again(seal(body_of(line), ZEROS), first=first) == seal(body_of(line), ZEROS)
    wrong = forged(line, old, new)
    try:
        again = spelled_again(wrong, first=first)
    except NotALine:
        return
    assert again != wrong


WRONGLY_ASKED: list[Forgery] = [
    (START, '"do":"start"', '"do":"explode"'),
    (START, '"do":"start"', '"do":"fail"'),
    (START, '"worker":"w1","lease_for":null', '"worker":"w1"'),
    (START, '"worker":"w1","lease_for":null', '"lease_for":null,"worker":"w1"'),
    (START, '"lease_for":null', '"lease_for":null,"mood":"good"'),
    (START, '"lease_for":null', '"lease_for":60'),
    (START, '"lease_for":null', '"lease_for":"60.0"'),
    (START, '"lease_for":null', '"lease_for":true'),
    (START, '"worker":"w1","lease', '"worker":1,"lease'),
    (FAIL, '"lease":7', '"lease":"7"'),
    (FAIL, '"lease":7', '"lease":7.0'),
    (FAIL, '"lease":7', '"lease":null'),
    (FAIL, '"lease":7', '"lease":true'),
    (FAIL, '"retry_after":null', '"retry_after":1'),
    (CANCEL, '"ask":{"lease":23}', '"ask":{}'),
    (TICK, '"ask":{}', '"ask":{"lease":null}'),
    (SELECT, '"how":"glob"', '"how":"guess"'),
    (SELECT, '"tasks":null', '"tasks":"abc"'),
    (SELECT, '"limit":null', '"limit":-1'),
    (SELECT, '"limit":null', '"limit":null,"mood":"good"'),
    (REFUSED, '"refused":"other_content"', '"refused":7'),
    (REFUSED, '"refused":"other_content",', ""),
    (REFUSED, '"id":"slow"', '"id":7'),
    (REFUSED, '"id":"slow"', '"id":""'),
    (REFUSED, '"id":"slow"', '"id":"slow","mood":"good"'),
    (REFUSED, '"after":[]', '"after":"abc"'),
    (REFUSED, '"max_attempts":null', '"max_attempts":0'),
    (REFUSED, '"not_before":null', '"not_before":"2026-11-30T12:00:00.000000"'),
    (REFUSED, '"do":"enqueue"', '"do":"start"'),
]


@pytest.mark.parametrize(("line", "old", "new"), WRONGLY_ASKED)
def test_what_was_asked_is_read_as_strictly(line: bytes, old: str, new: str | bytes) -> None:
    """By whoever reads the whole entry; the fold needs its events alone."""
    with pytest.raises(NotALine):
        decode(forged(line, old, new))


@pytest.mark.parametrize("version", [2, 3, 10**6, 2**80])
def test_a_newer_version_is_told_from_damage(version: int) -> None:
    """Also where it has fields and events that are not known yet; and nothing is skipped."""
    newer = (
        forged(START, '"v":1', f'"v":{version}'),
        forged(START, '"v":1', f'"v":{version},"mood":"good"'),
        forged(START, '{"v":1,"seq":5', f'{{"seq":5,"v":{version}'),
        seal(b'{"v":%d' % version, ZEROS),
        seal(body_of(forged(START, '"v":1', f'"v":{version}')).replace(b"started", b"lit"), ZEROS),
    )
    for line in newer:
        for reads in (read, decode):
            with pytest.raises(NewerVersion, match=rf"version {version} .* knows 1$"):
                reads(line)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"type":"started"', '"type":"exploded"'),
        ('"type":"started"', '"type":"Started"'),
        ('"type":"started"', '"type":"exploded","how":"loudly"'),
    ],
)
def test_an_event_that_is_not_known_may_be_of_a_newer_eventq(old: str, new: str) -> None:
    """No damage, since the hash fits: somebody meant it."""
    for reads in (read, decode):
        with pytest.raises(NewerVersion, match="which this eventq does not know"):
            reads(forged(START, old, new))


def test_a_command_that_is_not_known_may_be_of_a_newer_eventq() -> None:
    """Its events can be folded; what was asked cannot be told."""
    with pytest.raises(NewerVersion, match="a command 'snatch', which this eventq does not know"):
        decode(forged(START, '"do":"start"', '"do":"snatch"'))


@pytest.mark.parametrize("version", [0, -1, -(2**70)])
def test_no_eventq_wrote_an_older_version(version: int) -> None:
    """That is damage, whatever else the line holds."""
    for line in (
        forged(START, '"v":1', f'"v":{version}'),
        forged(START, '"v":1', f'"v":{version},"mood":"good"'),
    ):
        for reads in (read, decode):
            with pytest.raises(NotALine, match=f"no eventq ever wrote version {version}") as caught:
                reads(line)
            assert not isinstance(caught.value, NewerVersion)


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"{}\n", b"null\n", b"[]\n", b"{", b"\x00" * 300, b"\xff\n", b'"\n', b"7"]
)
def test_what_is_no_object_is_no_line(line: bytes) -> None:
    """However short."""
    for reads in (read, decode):
        with pytest.raises(NotALine):
            reads(line)


WRONG_PLAIN: list[Any] = [
    {},
    {"type": None},
    {"type": []},
    {"type": "exploded"},
    {"type": "readied"},
    {"type": "readied", "task": 7},
    {"type": "readied", "task": None},
    {"type": "readied", "task": "t", "mood": "good"},
    {"type": "started", "task": "t", "attempt": "1", "worker": None, "expires": None},
    {"type": "started", "task": "t", "attempt": 1.0, "worker": None, "expires": None},
    {"type": "started", "task": "t", "attempt": True, "worker": None, "expires": None},
    {"type": "started", "task": "t", "attempt": 1, "worker": 7, "expires": None},
    {"type": "started", "task": "t", "attempt": 1, "worker": None, "expires": "noon"},
    {"type": "started", "task": "t", "attempt": 1, "worker": None, "expires": 0},
    {"type": "started", "task": "t", "attempt": 1, "worker": None},
    {"type": "delayed", "task": "t", "until": "2026-11-30T12:00:00.000000"},
    {"type": "failed", "task": "t", "attempt": 1, "error": "", "kind": "sometimes"},
    {"type": "failed", "task": "t", "attempt": 1, "error": "", "kind": []},
    {"type": "failed", "task": "t", "attempt": 1, "error": 7, "kind": "permanent"},
    {"type": "cancelled", "task": "t", "error": 7},
    {"type": "opened", "queue": "q", "policy": {"pool": "abc"}},
    {"type": "opened", "queue": "q", "policy": {"retry": {"max_attempts": "3"}}},
    {"type": "opened", "queue": "q", "policy": {"capacity": {"limit": -1}}},
    {"type": "opened", "queue": "q", "policy": {"mood": "good"}},
    {"type": "opened", "queue": "q", "policy": None},
]


@pytest.mark.parametrize("wire", WRONG_PLAIN)
def test_plain_values_are_read_as_strictly(wire: Any) -> None:
    """Where cattrs alone would make a number of a text, or letters of a text."""
    with pytest.raises(NotALine):
        from_plain(wire)
    events = b'"events":[%b]' % json.dumps(wire, separators=(",", ":")).encode()
    body = b'{"v":1,"seq":2,"at":"2026-11-30T12:00:00.000000Z","by":null,"do":"tick","ask":{},'
    line = seal(body + events, ZEROS)
    try:
        assert spelled_again(line, first=False) != line
    except NotALine:
        return
    assert "until" in wire, "only a time without a zone is found by its spelling alone"
