"""Who holds leases: how a runner's workers are called, and what frees a task whose lease never
expires when whoever holds it is gone, which is nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eventq.cli.inert import inert
from eventq.cli.options import typed
from eventq.core.record import Lease

__all__ = ["NAME", "endless", "if_gone"]

NAME = "runner"
"""The name of every runner; its workers are called runner/<pid>/<slot>."""


def endless(leases: Iterable[Lease]) -> list[Lease]:
    """Those of the leases that no time takes back."""
    return [lease for lease in leases if lease.expires is None]


def if_gone(lease: Lease) -> Iterator[str]:
    """What to type when the holder of this lease, which has no end, is gone: lines."""
    who = "nobody named" if lease.worker is None else inert(str(lease.worker))
    if isinstance(lease.worker, str) and lease.worker.startswith(f"{NAME}/"):
        yield f"if the runner is gone ({who}), the next one takes {inert(lease.task)} up again:"
        yield typed("run", "FLOW")
        return
    yield f"if its worker is gone ({who}), have {inert(lease.task)} handed out anew:"
    yield typed("cancel", lease.task, why=True)
    yield typed("restore", lease.task, why=True)
