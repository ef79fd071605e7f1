"""A power cut before every call that a run makes of the disk, and all that it may leave."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

from disk import lines
from script import Run, kept, whole

from eventq.testing.faults import Choose, FaultyDisk, PowerCut, every_choice, lose_all

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"


def choices(seed: int) -> Iterable[Choose]:
    """All that may be left after a power cut; by default nothing unsynced, all, and three draws."""
    if THOROUGH:
        return every_choice()
    draw = Random(seed)
    return (lose_all, lambda count: count - 1, *[draw.randrange] * 3)


def test_a_power_cut_at_every_call(ram: Path) -> None:
    """Whatever of the unsynced is there or not: all that was answered yes is, nothing half is."""
    cuts = states = 0
    for nth in range(1, 1000):
        path, left = ram / str(nth) / "above" / "q", ram / str(nth) / "left"
        disk = FaultyDisk()
        disk.cut_power(nth)
        run = Run(path, disk)
        try:
            run.go()
            run.others_go_on()
        except PowerCut:
            cuts += 1
        else:
            break
        finally:
            run.shut()
        for choose in choices(nth):
            disk.leave(path, left, choose)
            states += 1
            whole(left, run.yes, len(lines(path)) + 1)
            kept(left, run)
            shutil.rmtree(left)
    print(f"{cuts} power cuts, {states} states of the disk after them")
    assert cuts > 130
    assert states >= 5 * cuts
