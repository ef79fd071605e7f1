"""All that can be done to a small log, one thing at a time, and draws from it on a large one.

Each time the log must say where it is damaged, or end earlier, as after a crash, with a state that
it once had; never another state. What only ends earlier is found by a snapshot and by a head that
was kept. `pytest -s` shows how much was tried, and the verdicts.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, combinations
from pathlib import Path
from random import Random

import pytest
from attrs import frozen
from disk import FIXTURES, Ticks, copied, cut_lines, digest_of, lines, segments

from eventq import Enqueue, LinesLost, LogDamaged, State, WorkQueue
from eventq.core.evolve import evolve
from eventq.storage.verify import Fault, Verification
from eventq.testing.faults import (
    FaultyDisk,
    cut_log,
    damaged,
    double_line,
    double_segment,
    flip_bit,
    log_size,
    lose_line,
    lose_segment,
    swap_lines,
    swap_segments,
)

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
DRAWS = 3000 if THOROUGH else 60


@frozen
class Good:
    """A log before anything was done to it."""

    path: Path
    states: list[State]
    """The state after each entry, from 0."""
    hashes: list[str]
    begins: list[tuple[Path, int, int]]
    """Where each line begins, from entry 1 at index 1: the file, the line, the byte."""
    ends: list[tuple[Path, int, int]]
    """Where each ends, and so where something is missed that should follow in its file."""
    firsts: list[int]
    """The first entries of the segments."""

    @property
    def last(self) -> int:
        return len(self.states) - 1

    @classmethod
    def at(cls, path: Path) -> Good:
        states = [State()]
        with WorkQueue.open(path, read_only=True) as q:
            for entry in q.entries():
                states.append(evolve(states[-1], entry))
        begins, ends = [(segments(path)[0], 1, 0)], [(segments(path)[0], 1, 0)]
        for file in segments(path):
            byte = 0
            for number, line in enumerate(cut_lines(file.read_bytes()), 1):
                begins.append((file, number, byte))
                byte += len(line)
                ends.append((file, number + 1, byte))
        hashes = ["", *(digest_of(line).decode() for line in lines(path))]
        firsts = [int(file.stem) for file in segments(path)]
        return cls(path, states, hashes, begins, ends, firsts)

    def damaged_at(self, seq: int) -> str:
        """See that the damage is told, where this entry should stand, by all who come; and that
        what stands before it is read as it was."""
        self.told_to_reader(seq)
        with pytest.raises(LogDamaged) as caught:
            WorkQueue.open(self.path, disk=FaultyDisk())
        self.told(caught.value, seq)
        if seq > 1:
            with WorkQueue.open(self.path, read_only=True) as q:
                assert q.at(seq - 1) == self.states[seq - 1]
        verification = Verification(self.path, (self.last, self.hashes[-1]))
        for _ in verification.entries():
            pass
        verification.finish()  # what is behind the damage was not read, so it is not called lost
        (problem,) = verification.problems
        assert (problem.fault, problem.seq) == (Fault.DAMAGED, seq)
        return "damage named"

    def told_to_reader(self, seq: int) -> str:
        """As `damaged_at`, by a reader alone."""
        with (
            pytest.raises(LogDamaged) as caught,
            WorkQueue.open(self.path, read_only=True) as q,
        ):
            _ = q.state
        self.told(caught.value, seq)
        return "damage named"

    def told(self, error: LogDamaged, seq: int) -> None:
        """See that the error names the place where this entry stood, or where it is missed."""
        where = {self.ends[seq - 1], (self.path / "log" / f"{seq:020}.jsonl", 1, 0)}
        if seq <= self.last:
            where.add(self.begins[seq])
        assert error.seq == seq
        assert (error.file, error.line, error.byte) in where

    def ends_at(self, seq: int) -> str:
        """See that the log is read to this entry and written to behind it; that a head tells what
        is lost, and so does a snapshot."""
        verification = Verification(self.path, (self.last, self.hashes[-1]))
        for _ in verification.entries():
            pass
        verification.finish()
        snapshot = self.path / "snapshots" / f"{self.last:020}.jsonl"
        away = snapshot.with_suffix(".away")
        if seq == self.last:
            assert verification.faults <= {Fault.NOT_COMPLETE}  # it lacks its newline
            verdict = "last line finished"
        else:
            (problem,) = verification.problems
            assert problem.fault == Fault.NOT_COMPLETE
            away.rename(snapshot)
            try:
                for read_only in (True, False):
                    with pytest.raises(LinesLost) as caught:
                        WorkQueue.open(self.path, read_only=read_only)
                    assert caught.value.lost == self.last - seq
            finally:
                snapshot.rename(away)
            verdict = "ends earlier, told by head and snapshot"
        with WorkQueue.open(self.path, clock=Ticks(), disk=FaultyDisk()) as q:
            if seq:
                assert q.state == self.states[seq]
            q.enqueue("more")
        assert len(lines(self.path)) == max(seq, 1) + 1
        return verdict


@frozen
class Damage:
    """Something to be done to a log, and what is then to be found."""

    do: Callable[[Path], object]
    seq: int
    """The entry where the damage is told; or the last that is left, where the log ends earlier."""
    ends: bool = False


def tried(good: Good, damages: Iterable[Damage], every: int = 1) -> Counter[str]:
    """How often which verdict was right. Only one in `every` is shown to all who tell damage, the
    others to a reader alone."""
    verdicts: Counter[str] = Counter()
    for n, damage in enumerate(damages):
        with damaged(good.path):
            damage.do(good.path)
            if damage.ends:
                verdict = good.ends_at(damage.seq)
            elif n % every:
                verdict = good.told_to_reader(damage.seq)
            else:
                verdict = good.damaged_at(damage.seq)
        verdicts[verdict] += 1
    return verdicts


def cuts(good: Good) -> Iterator[Damage]:
    """At each byte of the last segment, and where an entry ends in the others, or a byte before."""
    end, ends = 0, {0: 0}
    for seq, line in enumerate(lines(good.path), 1):
        end += len(line)
        ends[end] = seq
    last = segments(good.path)[-1].stat().st_size
    for cut in sorted({*ends, *(at - 1 for at in ends if at), *range(end - last, end)} - {end}):
        left = max(seq for at, seq in ends.items() if at <= cut + 1)
        yield Damage(partial(cut_log, size=cut), left, ends=True)


def flips(good: Good, bits: Iterable[int] | None = None) -> Iterator[Damage]:
    """Of these bits, or each: found, but in the last newline, where the line is finished."""
    ends = list(accumulate(map(len, lines(good.path))))
    for bit in range(ends[-1] * 8) if bits is None else bits:
        seq = bisect_right(ends, bit // 8) + 1
        yield Damage(partial(flip_bit, bit=bit), seq, ends=bit >= ends[-1] * 8 - 8)


def of_lines(good: Good) -> Iterator[Damage]:
    """Each lost, doubled, or swapped with any other. Without its last the log looks whole."""
    for seq in range(1, good.last + 1):
        if seq < good.last:
            yield Damage(partial(lose_line, seq=seq), seq)
        else:
            yield Damage(partial(lose_line, seq=seq), seq - 1, ends=True)
        yield Damage(partial(double_line, seq=seq), seq + 1)
    for one, other in combinations(range(1, good.last + 1), 2):
        yield Damage(partial(swap_lines, one=one, other=other), one)


def of_segments(good: Good) -> Iterator[Damage]:
    """Each lost, doubled, or swapped with any other. Without its last the log looks whole."""
    for number, first in enumerate(good.firsts):
        if first < good.firsts[-1]:
            yield Damage(partial(lose_segment, number=number), first)
        else:
            yield Damage(partial(lose_segment, number=number), first - 1, ends=True)
        yield Damage(partial(double_segment, number=number), good.last + 1)
    for one, other in combinations(range(len(good.firsts)), 2):
        yield Damage(partial(swap_segments, one=one, other=other), good.firsts[one])


def prepared(path: Path) -> Good:
    """With a snapshot of its last entry laid aside."""
    for file in segments(path):
        file.chmod(0o600)
    with WorkQueue.open(path) as q:
        snapshot = q.snapshot()
    snapshot.rename(snapshot.with_suffix(".away"))
    return Good.at(path)


def small(path: Path) -> Good:
    """Three entries in two segments; a flipped bit of `J` or `*` makes a newline."""
    with WorkQueue.open(path, clock=Ticks(), segment_bytes=900) as q:
        q.enqueue("J*")
        q.start("w")
    return prepared(path)


def large(path: Path) -> Good:
    """Some 400 entries in a dozen segments."""
    with WorkQueue.open(path, clock=Ticks(), segment_bytes=12_000, disk=FaultyDisk()) as q:
        for n in range(20):
            q.enqueue_all(Enqueue(f"{n}.{i}", "x" * n * i, key=f"k{i % 3}") for i in range(10))
            for i in range(10):
                lease = q.start(f"w{i}")
                assert lease is not None
                q.complete(lease) if i % 3 else q.fail(lease, "HTTP 503")
    return prepared(path)


def test_all_that_can_be_done_to_a_small_log(ram: Path) -> None:
    """Every bit flipped, every cut, every line and segment lost, doubled or swapped."""
    few = small(ram / "few")
    more = prepared(copied(FIXTURES / "short", ram / "more"))
    found = {
        "bit": tried(few, flips(few), every=1 if THOROUGH else 11),
        "cut": tried(few, cuts(few)),
        "line": tried(more, of_lines(more)),
        "segment": tried(more, of_segments(more)),
    }
    for kind, verdicts in found.items():
        print(f"{kind}: {verdicts.total()} tried; {dict(verdicts)}")
    assert {kind: verdicts.total() for kind, verdicts in found.items()} == {
        "bit": log_size(few.path) * 8,
        "cut": segments(few.path)[-1].stat().st_size + 4,
        "line": 10 + 10 + 45,
        "segment": 4 + 4 + 6,
    }
    assert found["bit"]["last line finished"] == 8
    assert found["line"]["ends earlier, told by head and snapshot"] == 1
    assert found["segment"]["ends earlier, told by head and snapshot"] == 1


def test_draws_of_all_that_can_be_done_to_a_large_log(ram: Path) -> None:
    """The same, where it cannot all be tried."""
    good = large(ram / "q")
    assert good.last > 300
    assert len(good.firsts) > 8
    draw = Random(1)
    bits = range(log_size(good.path) * 8)
    damages = [list(kind(good)) for kind in (cuts, of_lines, of_segments)]
    damages.append(list(flips(good, draw.sample(bits, DRAWS))))
    verdicts: Counter[str] = Counter()
    for kind in damages:
        verdicts += tried(good, draw.sample(kind, min(len(kind), DRAWS // 4)))
    print(f"{verdicts.total()} tried; {dict(verdicts)}")
    assert verdicts.total() >= min(DRAWS, 60)
