"""The command `python -m tests.bench`, from the root of the repository: measure, and print.

    python -m tests.bench                 everything; takes a good quarter of an hour
    python -m tests.bench --quick         the same with small sizes, in less than 30 seconds
    python -m tests.bench cycles replay   these parts alone
    python -m tests.bench --json          one JSON object, for a program to read

Each figure is the median of several turns, and the cases that are compared take turns within one
run, so that their ratios mean more than the figures. What waits for no disk is measured by the
time that the process was busy, so that other work on the machine counts little. Python's collector
of cycles is off while anything is measured, unless `--collector` is given. Peers that are not
installed are skipped, with a line that says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import evolve

from . import (
    claims,
    commands,
    cycles,
    deaths,
    debian,
    disk,
    kept,
    openings,
    others,
    passing,
    redrives,
    replays,
)
from .measure import LEAST, QUICK, WHOLE, Scale, machine
from .table import Table

__all__ = ["PARTS", "main"]

PARTS: dict[str, tuple[str, Callable[[Scale], Iterator[Table]]]] = {
    "cycles": ("the cycle check: chains, and tasks that arrive late", cycles.tables),
    "debian": ("all packages of Debian 12, in random order", debian.tables),
    "replay": ("reading a log: events a second, bytes a task", replays.tables),
    "opening": ("opening a queue with a million entries behind it", openings.tables),
    "kept": ("a state kept every 1,000 entries, and where replay spends its time", kept.tables),
    "deaths": ("a death with many tasks below it, and its redrive", deaths.tables),
    "claims": ("a claim, with 100,000 tasks in the way", claims.tables),
    "redrive": ("a bulk redrive of 10,000 dead letters on the command line", redrives.tables),
    "commands": ("commands in memory, with little and much in the queue", commands.tables),
    "passing": ("many tasks through a queue with retention: memory, time to open", passing.tables),
    "disk": ("commands on disk, synced, by one and by several processes", disk.tables),
    "peers": ("other queues in the same run", others.tables),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the arguments say, print it, and give the exit code."""
    told = _parser().parse_args(arguments)
    scale = {"quick": QUICK, "least": LEAST}.get(told.size, WHOLE)
    scale = evolve(scale, collector=told.collector, folder=told.folder or scale.folder)
    if told.tasks is not None:
        scale = evolve(scale, tasks=told.tasks)
    if told.turns is not None:
        scale = evolve(scale, repeats=told.turns)
    found: dict[str, list[Table]] = {}
    for part in told.parts or PARTS:
        print(f"measuring {part} ...", file=sys.stderr, flush=True)
        found[part] = []
        for table in PARTS[part][1](scale):
            found[part].append(table)
            if not told.json:
                print(table, flush=True)
    if told.json:
        parts = {part: [table.plain() for table in tables] for part, tables in found.items()}
        print(json.dumps({"machine": machine(), "size": told.size, "parts": parts}, indent=1))
    else:
        asked = [asked for tables in found.values() for table in tables for asked in table.asked]
        missed = sum(not each.holds for each in asked)
        print(f"{len(asked)} requirements looked at, {missed} missed.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts:\n" + "\n".join(f"  {name:10}{text}" for name, (text, _) in PARTS.items()),
    )
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="part", help="see below")
    parser.add_argument(
        "--quick",
        dest="size",
        action="store_const",
        const="quick",
        default="whole",
        help="small sizes, in less than 30 seconds",
    )
    parser.add_argument(
        "--least",
        dest="size",
        action="store_const",
        const="least",
        help="only to see that all parts run",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--turns", type=int, help="how many turns each case has at most")
    parser.add_argument("--tasks", type=int, help="how many tasks pass through in `passing`")
    parser.add_argument("--collector", action="store_true", help="leave Python's collector on")
    parser.add_argument("--folder", type=Path, help="the disk to measure (else that of temp files)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
