"""What users test the trust in a log with: a disk that fails, a power cut, and damage to files.

A disk that fails at the call of your choice, and what is left when the power goes:

    from eventq import WorkQueue
    from eventq.testing.faults import FaultyDisk, every_choice

    def test_no_order_is_lost(tmp_path):
        disk = FaultyDisk()
        with WorkQueue.open(tmp_path / "q", disk=disk) as q:
            disk.fail("pwrite", error=errno.ENOSPC, written=7)      # the next write
            with pytest.raises(OSError):
                q.enqueue("a")
            q.enqueue("b")                                          # answered yes
            disk.cut_power(2)                                       # before the second call
            with pytest.raises(PowerCut):
                q.enqueue("c")
        for n, choose in enumerate(every_choice()):                 # all that may be left
            disk.leave(tmp_path / "q", tmp_path / f"left {n}", choose)
            with WorkQueue.open(tmp_path / f"left {n}") as q:
                assert q.task("b")                                  # "c" may be there, or not

The files of a log, damaged one way or another, and put back afterwards:

    from eventq.testing.faults import damaged, flip_bit

    def test_no_flipped_bit_goes_unseen(queue):
        for bit in range(log_size(queue) * 8 - 8):                  # the last newline is finished
            with damaged(queue):
                flip_bit(queue, bit)
                with pytest.raises(LogDamaged):
                    WorkQueue.open(queue)

All of it is deterministic; draw with a `random.Random(seed)` what is too much to be tried whole.
"""

from eventq.testing.faults.damage import (
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
from eventq.testing.faults.disk import Call, FaultyDisk, PowerCut, anywhere, in_three_places
from eventq.testing.faults.lasting import Choose, every_choice, lose_all

__all__ = [
    "Call",
    "Choose",
    "FaultyDisk",
    "PowerCut",
    "anywhere",
    "cut_log",
    "damaged",
    "double_line",
    "double_segment",
    "every_choice",
    "flip_bit",
    "in_three_places",
    "log_size",
    "lose_all",
    "lose_line",
    "lose_segment",
    "swap_lines",
    "swap_segments",
]
