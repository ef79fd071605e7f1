"""Several processes at once: each is started afresh, all begin together, all are counted."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

__all__ = ["Work", "rate"]

Work = Callable[[Path, int, int], Callable[[], Any]]
"""Given the folder, the number of the process and a count: opens what it needs, and gives what is
to be measured. A function of a module, so that another process can find it."""


def _run(
    work: Work, folder: Path, number: int, count: int, begin: Barrier, told: Any, keep: bool
) -> None:
    act = work(folder, number, count)
    gc.collect()
    gc.freeze()  # as in `measure.turns`
    if not keep:
        gc.disable()
    begin.wait()
    began = time.perf_counter()
    act()
    told.put((began, time.perf_counter()))


def rate(work: Work, folder: Path, processes: int, count: int, *, collector: bool = False) -> float:
    """How often a second, by all processes together, if each does it `count` times; with Python's
    collector of cycles on or off."""
    context = multiprocessing.get_context("spawn")
    begin, told = context.Barrier(processes), context.SimpleQueue()
    started = [
        context.Process(target=_run, args=(work, folder, number, count, begin, told, collector))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process of the benchmark ended with {process.exitcode}")
    times: list[tuple[float, float]] = [told.get() for _ in started]
    return processes * count / (max(end for _, end in times) - min(start for start, _ in times))
