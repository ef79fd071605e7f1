"""Other queues in the same run, each in a file of its own; those not installed are skipped."""

from __future__ import annotations

from importlib import import_module

from .peer import Handle, Peer

__all__ = ["FILES", "Handle", "Peer", "installed"]

FILES = {
    "eventq_itself": "eventq",
    "sqlite_by_hand": "SQLite",
    "persist_queue": "persist-queue",
    "lite_queue": "litequeue",
    "huey_sqlite": "huey",
    "event_sourcing": "eventsourcing",
}
"""Each file here and the package that it needs."""


def installed() -> tuple[list[Peer], list[str]]:
    """The peers that can be measured, and the packages that are not installed."""
    peers: list[Peer] = []
    missing = []
    for file, package in FILES.items():
        try:
            peers += import_module(f".{file}", __package__).PEERS
        except ImportError:
            missing.append(package)
    return peers, missing
