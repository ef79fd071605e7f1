"""How a queue is kept on disk: the format of its log, and what is promised of it.

A queue is a directory:

    log/        segments, named by their first seq: 00000000000000000001.jsonl
    snapshots/  states, named by the seq that they were taken after
    torn/       what a crash left of a last line, kept when it was cut off
    lock        the file whose kernel lock makes one writer of many; never removed

A segment holds entries, one a line, UTF-8, each ended by a newline alone:

    {"v":1,"seq":7,"at":"2026-11-30T12:00:00.123456Z","by":"worker-3","do":"fail",
     "ask":{"lease":5,"retry_after":null},"events":[...],"hash":"9f2c..."}

(on one line). `v` is the version of format and rules. `seq` counts entries, from 1, without gaps,
through all segments. `at` is UTC, never falls, and has six decimals. `by` says who asked, `do` for
what, `why` (of an operator's command, after `do`) what for; `ask` holds the arguments that the
events do not. The first line of a segment carries `prev`, the hash of the line before, just before
its own. `hash` is SHA-256 in lowercase hexadecimal over the 64 digits of the line before (64 zeros
before the first) and the bytes of this line up to, not including, its last `,"hash":"`.

An entry has one spelling: fields in this order, nulls included, no spaces. Payloads and results
are kept as the bytes that were written. A full segment is made read-only, synced, and followed by
the next.

What is promised:

* What was answered yes was synced to the disk before the answer, in order; it survives the death
  of the process, and a power cut as far as the disk is honest. What was not answered may or may
  not be there, whole or not at all.
* Reading changes nothing and needs no lock. Half a line at the end is not there yet.
* The next writer cuts off half a line that a crash left, under the lock, and keeps it in `torn/`.
  A last line that only lacks its newline is finished. Any other misfit is damage: it is told with
  its file, line and byte, and never mended.
* A write that fails is rolled back, and the queue can be used again. A sync that fails ends the
  handle, which answers nothing more.
* Nothing in a log is ever executed, imported or unpickled; no name of a file comes from a caller.
"""
