"""How a queue is kept on disk: the format of its log, and what is promised of it.

A queue is a directory:

    log/            segments, named by their first seq: 00000000000000000001.jsonl
    snapshots/      states, named by the seq that they were taken after
    redo            the end of the last segment once more, where a sync is cheap
    lock            what the kernel locks to make one writer of many; never removed
    torn/           what a crash left of a last line, kept when it was cut off
    unsynced        a mark that a sync has failed
    archived.jsonl  which segments were moved elsewhere, and where to

It is its owner's alone: folders are made 0700 and files 0600 at most, whatever the umask says.
(`eventq run` and `work` keep files of their own beside these.)

The log
=======

The log is the queue, with what `redo` has of its end after a power cut; all else can be lost. A
segment holds entries, one a line, UTF-8, each ended by a newline alone:

    {"v":1,"seq":7,"at":"2026-11-30T12:00:00.123456Z","by":"worker-3","do":"fail",
     "ask":{"lease":5,"retry_after":null},"events":[...],"hash":"9f2c..."}

(on one line). `v` is the version of format and rules. `seq` counts entries, from 1, without gaps,
through all segments. `at` is UTC, never falls, and has six decimals. `by` says who asked, `do` for
what, `why` (of an operator's command, after `do`) what for; `ask` holds the arguments that the
events do not. The first line of a segment carries `prev`, the hash of the line before, just before
its own. `hash` is SHA-256 in lowercase hexadecimal over the 64 digits of the line before (64 zeros
before the first) and the bytes of this line up to, not including, its last `,"hash":"`. So a shell
can check a log, and whoever keeps one hash elsewhere can prove all that stands before it.

An entry has one spelling: fields in this order, nulls included, no spaces. Payloads and results
are kept as the bytes that were written.

Writing
=======

A command takes the lock, reads what others have written since, decides, writes its line with one
call at the end of the last segment, lets the lock go, makes its answer while the disk begins to
write, syncs, and gives the answer. What it has read before is never taken for the end of the log:
the size of the file, under the lock, says where that is, and the bytes before it whether that line
still stands there. Whoever syncs, syncs for all who wait. A
segment that would grow too large is synced; then the lock file grows by a byte, which tells all
others to look for a new segment; then that is made, and its name synced before its first line is
written.

A handle that writes much writes each line to `redo` as well, under the same lock and behind the
segment, and syncs that file alone: it is 256 KiB long and written over in place, and a sync of it
takes two thirds of the time that one of a file takes which has grown. Byte x of the last segment
stands at x modulo that size. The segment is synced before what it may still lack is written over,
and where a line before ours does not stand in `redo`, since it is too long or another handle has
written it without. After a power cut, then, lines that were answered for may be missing at the end
of the last segment, or zeros may stand there before others: the lines stand in `redo`, and are
found by the chain alone, which nothing else continues. Who reads takes them from there; who opens
the queue to write puts them back first. A handle that is shut syncs the segment and empties `redo`,
unless another has the lock just then: a log at rest is its segments, but after a kill.

What was answered yes is on disk, in order, as far as the disk is honest: it survives the death of
the process and a power cut. With durability "process" it is written, and synced within a second
after: it survives the death of the process alone, and a power cut takes at most the end of the log
(some file systems may leave zeros in front of what was written last: that is damage, see below).
What was not answered may or may not be there, whole or not at all. No answer rests on an entry that
is less safe than itself.

A write that fails, for want of room or for an error, is rolled back under the same lock, and the
queue can be used again, by everyone. A sync that fails is never tried again, since the kernel may
have dropped what it could not write and not say so twice: the handle answers nothing more, and
leaves the mark. Who has the lock next puts a copy of the last segment, checked line by line and
synced, in its place before anything is appended.

What a caller sends with one command has a limit, 64 MiB unless told otherwise: a payload, a result,
a reason, a whole batch that is larger is refused before anything changes; a longer error is cut and
says so, since a failure can always be recorded. What follows from a command has no limit, and a
line of any size is read.

The lock
========

It is the kernel's lock, which ends with the process that holds it: no file of a dead process keeps
anybody out, and no number of a process is taken for its owner. It comes within a deadline (60
seconds, unless told otherwise) or an error says which process has it. Without locks in the file
system there is no writing. A child that was forked has no handle, and lets go of the lock that it
shares with its parent. A handler of a signal that breaks into what its own thread asks of a handle,
and asks as well, is refused: it would let go of the lock of what it broke into.

A handle looks, before each command but at most ten times a second, and always before it makes a
file, whether the lock, the segment and the `redo` that it has open are still those at their paths;
that the lock was not removed, that no name in `log/` has changed and that the segment still has the
last line that was read, is seen at every command. If the queue was moved away, or another was put
in its place, or copied over it, that is an error which changes nothing; the handle goes on when all
is back. A copy made of hard links is a queue of its own: who has the lock puts a copy of the last
segment in its place before it writes, and does without a `redo` that has another name.

Reading
=======

Reading changes nothing, needs no lock, works on media that cannot be written to and while others
append. Half a line at the end is not there yet. The next writer cuts it off under the lock, and
keeps it in `torn/`; zeros up to the end count as half a line. A last line that only lacks its
newline is finished, and one that `redo` has whole is written over from there.

Any other misfit is damage: a hash, a seq, a `prev`, a field that does not fit, a segment that is
missing or cut short. It is told with its file, line and byte, what was expected and what to do, and
is never mended. Nothing is written behind damage that a handle has read; what stands before it can
be read. Opening reads what a fold needs: what a snapshot covers is looked at by `verify` and by who
asks for that part of the past. The arguments in `ask`, and whether an entry has its one spelling,
are looked at by who reads entries and by `verify`. `eventq repair` makes a copy up to the damage
and says what is lost. `eventq verify` reads a log from its first line, trusts nothing else, and
says whether it is intact, complete against a head that was kept elsewhere, and legal.

Nothing in a log is ever executed, imported or unpickled; no name of a file comes from a caller.

Snapshots
=========

A snapshot is the state after an entry: a first line with the seq and the hash of that entry, the
version of the reducer and a checksum over all, then a line for each task. It is written aside and
renamed, after the log was synced so far. Opening takes the newest that fits its checksum, this
reducer and the line that stands in the log, and reads what follows; one that does not is passed
over for an older one, or for the log. A snapshot that is ahead of the log, by its name alone, means
that the end of the log is lost: an error says how much. Snapshots may be removed at any time.

The archive
===========

Closed segments that a snapshot covers can be moved to another folder, the oldest first, and be
brought back. Each is copied, synced, read again and recorded before it is taken out of the log, so
that it is in one place at least at every moment. The record keeps the hash of its last line, which
ties it to what follows. Whoever needs an entry that was archived, also to fold the log again when
no snapshot fits any more, is told which segments to bring back: history is never silently short.
A handle that asked nothing while the segment where it stood was archived begins anew at a snapshot,
as one that is opened then.

Versions
========

Every line that was ever written can be read for ever. One of an older version goes through a table
of steps, one from each version to the next, in `upcast`; a gap in it is found when it is imported.
A line of a newer version, or with an event or a command that is not known, is not damage: nothing
is written to such a log, and what stands before can be read. `fixtures/releases/` holds a log of
each release, with all that there was, its state and its head.
"""
