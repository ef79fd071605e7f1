"""Snapshots: a state on disk, tied to the line of the log that it was taken after.

`snapshots/<seq, 20 digits>.jsonl` holds a first line about the whole (with a checksum over the
rest) and one line for each task. A snapshot is never trusted further than that: one that does not
fit its log, its own checksum or the reducer that reads it is passed over, and an older one or the
log itself serves.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import cattrs
import msgspec

from eventq.core.events import Enqueued
from eventq.core.lifecycle import Status
from eventq.core.persistent import Map
from eventq.core.policy import Policy
from eventq.core.record import Record
from eventq.core.state import State, rebuilt
from eventq.storage.codec import kept, raw
from eventq.storage.convert import moment, structure, unstructure
from eventq.storage.disk import DISK, Disk, read_file
from eventq.storage.segments import Cursor

__all__ = ["REDUCER", "load", "save", "snapshot_path", "snapshots"]

REDUCER = 1
"""The version of what folding gives. It grows when the same log folds to another state."""


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    reducer: int
    seq: int
    hash: str
    segment: int
    offset: int
    queue: str
    policy: dict[str, Any]
    at: str
    position: int
    admission: str
    dispatch: str
    holders: dict[str, str]
    tasks: int
    checksum: str


class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """One task: what `Enqueued` said, then the rest of its record."""

    task: str
    payload: msgspec.Raw
    after: tuple[str, ...]
    key: str | None
    max_attempts: int | None
    not_before: datetime | None
    born: int
    status: Status
    needs: int
    attempt: int
    releases: int
    redrives: int
    mark: int
    until: datetime | None
    lease: int | None
    worker: str | None
    expires: datetime | None
    error: str | None
    result: msgspec.Raw
    ended: datetime | None
    timer: int
    since: datetime | None


def _row(record: Record) -> _Row:
    task = record.task
    return _Row(
        task.task,
        raw(task.payload),
        task.after,
        task.key,
        task.max_attempts,
        task.not_before,
        record.born,
        record.status,
        record.needs,
        record.attempt,
        record.releases,
        record.redrives,
        record.mark,
        record.until,
        record.lease,
        record.worker,  # type: ignore[arg-type]  # with a path, workers have names
        record.expires,
        record.error,
        raw(record.result),
        record.ended,
        record.timer,
        record.since,
    )


def _record(row: _Row) -> Record:
    task = Enqueued(
        row.task, kept(row.payload), row.after, row.key, row.max_attempts, row.not_before
    )
    return Record(
        task,
        row.born,
        row.status,
        row.needs,
        row.attempt,
        row.releases,
        row.redrives,
        row.mark,
        row.until,
        row.lease,
        row.worker,
        row.expires,
        row.error,
        kept(row.result),
        row.ended,
        row.timer,
        row.since,
    )


def snapshot_path(snapshots: Path, seq: int) -> Path:
    """The file of the snapshot taken after this entry."""
    return snapshots / f"{seq:020}.jsonl"


_NAME = re.compile(r"[0-9]{20}\.jsonl")


def snapshots(folder: Path) -> list[int]:
    """The seqs after which snapshots were taken, the newest first. Raises OSError."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - it tells where the folder may not be read
    except FileNotFoundError:
        return []
    return sorted((int(name[:20]) for name in names if _NAME.fullmatch(name)), reverse=True)


def save(folder: Path, state: State, cursor: Cursor, disk: Disk = DISK) -> Path:
    """Write a snapshot of this state, whose segment is synced up to there: aside, then renamed."""
    encode = msgspec.json.Encoder().encode
    rows = b"".join(encode(_row(record)) + b"\n" for record in state.in_order())
    assert state.at is not None
    assert cursor.hash is not None
    head = _Head(
        reducer=REDUCER,
        seq=state.seq,
        hash=cursor.hash.decode(),
        segment=cursor.first,
        offset=cursor.offset,
        queue=state.queue,
        policy=unstructure(state.policy),
        at=moment(state.at),
        position=state.position,
        admission=state.admission,
        dispatch=state.dispatch,
        holders=dict(sorted(state.holders.items())),
        tasks=len(state),
        checksum="",
    )
    head.checksum = _checksum(head, rows)
    target = snapshot_path(folder, state.seq)
    aside = target.with_suffix(f".{os.urandom(4).hex()}.tmp")
    try:
        disk.write_file(aside, encode(head) + b"\n" + rows)
        disk.rename(aside, target)
    except BaseException:
        with suppress(FileNotFoundError):
            disk.unlink(aside)
        raise
    disk.sync_folder(folder)
    return target


def _checksum(head: _Head, rows: bytes) -> str:
    bare = msgspec.structs.replace(head, checksum="")
    return hashlib.sha256(msgspec.json.encode(bare) + b"\n" + rows).hexdigest()


def load(folder: Path, seq: int, log: Path) -> tuple[State, Cursor] | None:
    """The state of this snapshot and its place in the log, or None when it does not fit."""
    try:
        first, rows = read_file(snapshot_path(folder, seq)).split(b"\n", 1)
        head = msgspec.json.decode(first, type=_Head)
        if head.reducer != REDUCER or head.seq != seq or _checksum(head, rows) != head.checksum:
            return None
        read = msgspec.json.Decoder(_Row).decode
        records = [_record(read(line)) for line in rows.split(b"\n")[:-1]]
        state = rebuilt(
            records,
            queue=head.queue,
            policy=structure(head.policy, Policy),
            seq=head.seq,
            at=datetime.fromisoformat(head.at),
            position=head.position,
            admission=head.admission,
            dispatch=head.dispatch,
            holders=Map(head.holders),
        )
    except (
        OSError,
        ValueError,
        RecursionError,
        msgspec.DecodeError,
        cattrs.BaseValidationError,
    ):
        return None
    cursor = Cursor(log, head.segment)
    cursor.offset, cursor.seq, cursor.hash = head.offset, head.seq, head.hash.encode()
    cursor.lines = head.seq - head.segment + 1
    return state, cursor
