"""Every event and every command, drawn by hypothesis, with texts that mean no good."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from hypothesis import strategies as st

from eventq import Backoff, Capacity, Keys, Policy, Retention, Retry, Select
from eventq.core import events as e
from eventq.core.commands import COMMANDS, Cancel, Enqueue, EnqueueAll
from eventq.storage.codec import EVENTS
from eventq.storage.payload import to_json

TEXT = st.text() | st.sampled_from(
    ["\u2028\x00\x1b[0m", '"\\', "\ufeff", "\U0010ffff", "</script>"]
)
NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=20)
COUNT = st.integers(1, 2**70)
TIME = st.datetimes(timezones=st.just(UTC))
LENGTH = st.timedeltas(timedelta(microseconds=1), timedelta(days=36525))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
).map(lambda value: to_json("it", value))
BACKOFF = st.builds(
    Backoff, LENGTH, st.floats(1, 1e300), LENGTH, st.sampled_from(["none", "full", "equal"])
)
POLICY = st.builds(
    Policy,
    st.none() | st.builds(Capacity, COUNT, st.sampled_from(["waiting", "unresolved"])),
    st.none() | st.lists(TEXT, max_size=3),
    st.builds(Retry, *[st.none() | COUNT] * 3, st.none() | BACKOFF),
    st.none() | st.builds(Retention, st.none() | COUNT, st.none() | LENGTH),
    st.none() | LENGTH,
    st.builds(Keys, st.sampled_from(["open", "halt"])),
    st.booleans(),
)
SELECT = st.builds(
    Select,
    st.none() | st.lists(NAME, max_size=3),
    st.sampled_from(["exact", "prefix", "glob"]),
    st.none() | TEXT,
    st.none() | TIME,
    st.none() | TIME,
    st.none() | COUNT,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.none() | NAME.filter(lambda name: name[0] != "#"),
    "task": NAME,
    "queue": NAME,
    "payload": JSON,
    "result": JSON,
    "after": st.lists(NAME, max_size=3, unique=True).map(tuple),
    "key": st.none() | NAME,
    "worker": st.none() | NAME,
    "lease": COUNT,
    "lease_for": st.none() | LENGTH,
    "retry_after": st.none() | LENGTH,
    "max_attempts": st.none() | COUNT,
    "attempt": COUNT,
    "not_before": st.none() | TIME,
    "until": TIME,
    "policy": POLICY,
    "select": SELECT,
    "kind": st.sampled_from(["retryable", "permanent"]),
    "expires": TIME,
}


def made(kind: Any) -> st.SearchStrategy[Any]:
    """Values of this class, with all fields drawn."""
    if kind is EnqueueAll:
        return st.builds(EnqueueAll, st.lists(made(Enqueue), max_size=3))
    fields = {field.name: FIELDS.get(field.name, TEXT) for field in kind.__attrs_attrs__}
    if kind is e.Started:
        fields["expires"] = st.none() | TIME
    for name in {e.Cancelled: ["error"], Cancel: ["error", "lease"]}.get(kind, ()):
        fields[name] = st.none() | fields[name]
    return st.builds(kind, **fields)


EVENT = st.one_of([made(kind) for kind in EVENTS])
COMMAND = st.one_of([made(kind) for kind in COMMANDS])
