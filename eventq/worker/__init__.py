"""Workers: a handler, which is a Python function, is called for each task of a queue.

def fetch(context):
    return download(context.payload["url"])

Worker("nightly", fetch, concurrency=4).run()

What the handler returns is the result of the task; what it raises is its failure. The lease is
renewed while the handler runs; a worker that is killed loses it, and the task comes back.
"""

from eventq.worker.context import Context, Permanent, TaskFailed
from eventq.worker.outcome import Failure
from eventq.worker.places import ProcessNotStarted
from eventq.worker.runtime import Worker
from eventq.worker.witness import Witness

__all__ = [
    "Context",
    "Failure",
    "Permanent",
    "ProcessNotStarted",
    "TaskFailed",
    "Witness",
    "Worker",
]
