"""What can be agreed for a queue, and what no queue could take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eventq import Select, WorkQueue
from eventq.core.errors import BadValue
from eventq.core.policy import Capacity, Policy, Retention, Retry

NO_NUMBERS: list[Any] = [True, False, 1.0, "1", b"1", [], object(), float("nan"), 2**0.5]


def test_the_defaults_are_those_of_the_design() -> None:
    """No capacity, an open pool, three attempts, three redrives, any releases, keep all."""
    assert Policy() == Policy(None, None, Retry(3, 3, None), None)
    assert Capacity(5).counts == "waiting"


@pytest.mark.parametrize("value", [*NO_NUMBERS, -1, None, -(10**30)])
def test_a_limit_is_a_whole_number(value: Any) -> None:
    """Never a bool, never below zero; a capacity cannot be without one, a retention can."""
    with pytest.raises(BadValue, match=r"limit must be a whole number of at least 0, not"):
        Capacity(value)
    if value is None:
        assert Retention(value) == Retention()
        return
    with pytest.raises(BadValue, match=r"count must be a whole number of at least 0 or None, not"):
        Retention(value)


@pytest.mark.parametrize("value", [10**100 + 1, 10**5000], ids=["large", "huge"])
def test_a_number_that_no_log_could_hold_is_refused(value: int) -> None:
    """Whatever it is to count; one of more digits than Python writes is not written out either."""
    at_most = r"must be a whole number of at least [01] and at most 10\*\*100"
    with pytest.raises(BadValue, match=at_most):
        Capacity(value)
    with WorkQueue.in_memory() as q:
        for ask in (
            lambda: q.enqueue("a", max_attempts=value),
            lambda: q.complete(value),
            lambda: q.redrive_all(Select(limit=value)),
        ):
            with pytest.raises(BadValue, match=at_most):
                ask()
        with pytest.raises(IndexError, match="there is no entry"):
            q.at(value)


@pytest.mark.parametrize("value", [0, 1, 10**30])
def test_limits_may_be_zero_and_may_be_large(value: int) -> None:
    """Zero admits nothing, and keeps nothing."""
    assert Capacity(value).limit == Retention(value).count == value


@pytest.mark.parametrize(
    ("name", "least"), [("max_attempts", 1), ("max_redrives", 0), ("max_releases", 0)]
)
def test_a_limit_of_retries_may_be_none(name: str, least: int) -> None:
    """None is no limit; a task must be tried at least once."""
    assert getattr(Retry(**{name: None}), name) is None
    assert getattr(Retry(**{name: least}), name) == least
    words = f"{name} must be a whole number of at least {least} or None, not"
    for value in [*NO_NUMBERS, least - 1]:
        with pytest.raises(BadValue, match=words):
            Retry(**{name: value})


@pytest.mark.parametrize("counts", ["waiting", "unresolved"])
def test_what_a_capacity_may_count(counts: Any) -> None:
    """One of two words."""
    assert Capacity(1, counts).counts == counts


@pytest.mark.parametrize("counts", ["WAITING", "", "running", None, 1, [], True])
def test_what_a_capacity_may_not_count(counts: Any) -> None:
    """Any other word, and whatever is no word."""
    with pytest.raises(BadValue, match="'waiting' or 'unresolved'"):
        Capacity(1, counts)


def test_a_pool_is_a_collection_of_workers() -> None:
    """Repeats are dropped, equal as the keys of a dict are, and the order is kept."""
    assert Policy(pool=["b", "a", "b"]).pool == ("b", "a")
    assert Policy(pool=(name for name in "xyx")).pool == ("x", "y")
    assert Policy(pool=[1, True, 1.0, "1", (None,)]).pool == (1, "1", (None,))
    assert Policy(pool={"a": 1}).pool == ("a",)
    assert Policy(pool=[]).pool == ()


@pytest.mark.parametrize("pool", ["w1", b"w1", "", 3, [[]], [{}], object(), True])
def test_what_is_no_pool(pool: Any) -> None:
    """A text is no collection of its letters, a number no collection, a list no worker."""
    with pytest.raises(BadValue, match="pool must be a collection"):
        Policy(pool=pool)


def test_nobody_is_no_worker_of_a_pool() -> None:
    """None stands for a start that names no worker."""
    with pytest.raises(BadValue, match="None"):
        Policy(pool=["w1", None])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Policy(capacity=5),  # type: ignore[arg-type]
        lambda: Policy(capacity=True),  # type: ignore[arg-type]
        lambda: Policy(retry=3),  # type: ignore[arg-type]
        lambda: Policy(retry=None),  # type: ignore[arg-type]
        lambda: Policy(retention=0),  # type: ignore[arg-type]
        lambda: Policy(retention=Capacity(1)),  # type: ignore[arg-type]
    ],
)
def test_each_part_of_a_policy_is_of_its_kind(make: Callable[[], Policy]) -> None:
    """A bare number does not say what it limits."""
    with pytest.raises(BadValue, match="must be a "):
        make()


def test_a_policy_is_a_value() -> None:
    """Equal by content, usable as a key, and never changed."""
    policy = Policy(Capacity(1), ["a"], Retry(1), Retention(0))
    assert policy == Policy(Capacity(1), ("a",), Retry(1), Retention(0))
    assert hash(policy) == hash(Policy(Capacity(1), ("a",), Retry(1), Retention(0)))
    assert policy != Policy(Capacity(1, "unresolved"), ["a"], Retry(1), Retention(0))
    with pytest.raises(AttributeError):
        policy.capacity = None  # type: ignore[misc]


def test_a_bad_value_is_a_value_error() -> None:
    """So it is caught by who knows nothing of eventq."""
    with pytest.raises(ValueError, match="whole number"):
        Capacity(-1)
