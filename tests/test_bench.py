"""The benchmarks run, and measure what they say: figures themselves are never asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import logs
from bench.__main__ import PARTS, main
from bench.debian import acyclic, is_cycle, knots
from bench.measure import LEAST, turns
from bench.table import Table

from eventq import WorkQueue
from eventq.core.commands import command
from eventq.core.decide import decide
from eventq.core.evolve import evolve
from eventq.core.lifecycle import Status
from eventq.core.state import State


@pytest.mark.parametrize("shape", logs.SHAPES)
def test_a_log_that_is_replayed_is_one_that_the_queue_would_write(
    tmp_path: Path, shape: str
) -> None:
    """Each entry, decided again, gives its events; and the file holds these entries."""
    state = State()
    entries = list(logs.entries(shape, 201))
    for entry in entries:
        events, after = decide(state, command(entry), entry.at)
        assert events == entry.events
        state = evolve(state, entry)
        assert state == after
    status = Status.READY if "waiting" in shape else Status.SUCCEEDED
    assert state.counts()[status] == len(state) == 201
    assert state.position == 201 * logs.SHAPES[shape][1] + 1
    logs.write(tmp_path / "queue", shape, 201)
    with WorkQueue.open(tmp_path / "queue", read_only=True) as queue:
        assert list(queue.entries()) == entries
        assert queue.state == state


def test_the_parts_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All that start no crowd of processes, at the least size."""
    parts = [part for part in PARTS if part not in ("disk", "peers")]
    assert main(["--least", "--json", "--folder", str(tmp_path), *parts]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["parts"]) == parts
    for tables in told["parts"].values():
        for table in tables:
            assert table["rows"]
            assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_cases_take_turns() -> None:
    """A case that gives several costs is asked for by case and step."""
    found = turns({"a": lambda: 2.0, "b": lambda: {"x": 4.0, "y": 1.0}}, LEAST)
    assert found.median("a") == 2
    assert found.ratio(("b", "x"), "a") == 2
    assert found.ratio(("b", "y"), "a") == 0.5


def test_a_table_says_what_was_missed() -> None:
    """With three digits that count, and by how much."""
    table = Table("Title", ["what", "figure"])
    table.row("one", 1234.5)
    table.row("two", None)
    table.ask("speed", 100.0, at_least=300)
    table.ask("growth", 1.0, at_most=1.5)
    text = str(table)
    assert "one    1,234" in text
    assert "speed: 100, asked at least 300: MISSED by a factor of 3" in text
    assert "growth: 1.00, asked at most 1.50: holds" in text


def test_the_graph_is_judged_by_other_means() -> None:
    """Knots, cycles and their absence, on graphs that can be seen through."""
    tied = {"a": ("b",), "b": ("c", "x"), "c": ("a",), "d": ("a",), "e": ("e",)}
    assert sorted(map(sorted, knots(tied))) == [["a", "b", "c"], ["e"]]
    assert is_cycle(tied, ["a", "b", "c", "a"])
    assert is_cycle(tied, ["e", "e"])
    assert not is_cycle(tied, ["a", "c", "b", "a"])
    assert not is_cycle(tied, ["a"])
    assert not acyclic(tied)
    assert acyclic({"d": ("a",), "b": ("c", "x")})
