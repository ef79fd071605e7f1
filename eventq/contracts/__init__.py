"""The classic small contracts, each a thin face over the same core.

* `eventq.contracts.bounded.WorkQueue`: a bounded queue whose workers hold one item each.
* `eventq.contracts.dependencies.WorkQueue`: tasks that wait for each other, and their deaths.
* `eventq.contracts.pool.WorkerPool`: a fixed pool of workers and a limit on unresolved jobs.

Each is in memory by default and durable when it is given a path, and keeps its own words and its
own ways of saying no. None has a rule of its own: what happens is decided by the core.
"""

__all__: list[str] = []
