"""`eventq.aio`: a queue that is awaited, and a worker whose handlers are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import errands
import pytest

from eventq import (
    BadValue,
    Enqueue,
    HandleFinished,
    NotAQueue,
    OtherContent,
    Retry,
    Status,
    UnknownWorker,
    WorkerBusy,
    WorkQueue,
)
from eventq.aio import AsyncWorker, AsyncWorkQueue
from eventq.core.events import Renewed, Started
from eventq.worker import Context, Permanent, TaskFailed, Witness
from eventq.worker.outcome import ERROR_LIMIT


@pytest.fixture(autouse=True)
def _look_often(monkeypatch) -> None:
    """Wait less long between two looks at leases."""
    monkeypatch.setattr("eventq.worker.keeper.LOOK", 0.05)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "q"


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """In a loop of its own, which complains about whatever blocks it or is left over."""
    return asyncio.run(asyncio.wait_for(main, 60))


async def until(what: Callable[[], Awaitable[Any] | Any]) -> Any:
    """Wait until this is true, and give it."""
    async with asyncio.timeout(20):
        while True:
            found = what()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.005)


async def stands(q: AsyncWorkQueue, name: str = "a") -> tuple[Status, int]:
    found = await q.task(name)
    assert found is not None
    return found.status, found.attempt


async def drain(q: AsyncWorkQueue | WorkQueue, handler: Any, **more: Any) -> None:
    await AsyncWorker(q, handler, drain=True, **more).run()


# The queue.


def test_every_method_of_the_queue_can_be_awaited():
    """What is public there is here, with its documentation; only `shut` is the end of a `with`,
    `alone` is for the commands of one thread, and `unarchive` needs no open queue."""
    there = {name for name in dir(WorkQueue) if not name.startswith("_")}
    there -= {"shut", "alone", "unarchive"}
    for name in there:
        here = getattr(AsyncWorkQueue, name)
        assert inspect.getdoc(here)
        if name not in ("open", "in_memory", "path", "wake"):
            assert inspect.iscoroutinefunction(here) or inspect.isasyncgenfunction(here)


def test_a_queue_is_used_as_the_other_is(path):
    """Every call goes to the one queue, and its answers and refusals come back."""

    async def main() -> None:
        async with AsyncWorkQueue.open(path, retry=Retry(max_attempts=1), by="me") as q:
            assert (await q.enqueue("a", {"row": 1}, key="k")).id == "a"
            await q.enqueue_all([Enqueue("b", after=["a"]), Enqueue("c")])
            with pytest.raises(OtherContent):
                await q.enqueue("a", {"row": 2})
            lease = await q.start("w", lease_for=60)
            assert lease is not None
            with pytest.raises(WorkerBusy):
                await q.start("w", wait=10)
            assert (await q.renew(lease)).id == lease.id
            await q.release(lease)
            lease = await q.start("w")
            following = await q.complete_and_start(lease, [1])
            assert following.task == "c"
            await q.fail(following, "no")
            assert [letter.id for letter in await q.dead_letters()] == ["c"]
            assert await q.parked() == []
            await q.redrive_all(why="again")
            await q.cancel("b", why="never mind")
            await q.restore("b")
            await q.pause()
            assert await q.start() is None
            await q.resume()
            await q.tick()
            await q.close()
            await q.reopen()
            assert (await q.reconfigure(lease_for=5)).lease_for == (await q.policy()).lease_for
            assert (await q.clock_behind()).total_seconds() == 0
            state = await q.state()
            assert (await q.head())[0] == state.seq
            assert await q.at(state.seq) == state
            assert [entry.seq async for entry in q.entries(3)] == list(range(3, state.seq + 1))
            assert (await q.snapshot()).exists()
            assert q.path == path
            assert q.queue.task("a") == await q.task("a")
        with pytest.raises(HandleFinished):
            q.queue.tick()

    run(main())


def test_what_opening_raises_comes_from_the_with(tmp_path):
    """And no thread is left."""

    async def main() -> None:
        with pytest.raises(NotAQueue):
            async with AsyncWorkQueue.open(tmp_path / "none", read_only=True):
                pass
        with pytest.raises(RuntimeError, match="async with"):
            await AsyncWorkQueue.in_memory().tick()

    before = threading.active_count()
    run(main())
    run(until(lambda: threading.active_count() == before))


def test_a_queue_that_was_open_stays_open():
    """`AsyncWorkQueue(q)` lends it."""

    async def main() -> None:
        async with AsyncWorkQueue(q) as lent:
            await lent.enqueue("a")

    with WorkQueue.in_memory() as q:
        run(main())
        assert q.start().task == "a"


def test_the_loop_goes_on_while_a_disk_is_waited_for(path, monkeypatch):
    """A sync that takes long holds up its caller alone."""
    syncing, go = threading.Event(), threading.Event()
    sync = os.fdatasync

    def slow(fd: int) -> None:
        syncing.set()
        assert go.wait(20)
        sync(fd)

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            monkeypatch.setattr(os, "fdatasync", slow)
            asked = asyncio.create_task(q.enqueue("a"))
            await until(syncing.is_set)
            assert not asked.done()
            go.set()
            assert (await asked).id == "a"

    run(main())


def test_a_start_waits_without_spinning_and_is_woken_at_once(path, monkeypatch):
    """However many wait, one thread does it for them; a wait ends when its time is over."""
    asked = []
    start = WorkQueue.start
    monkeypatch.setattr(
        WorkQueue, "start", lambda *args, **more: asked.append(1) or start(*args, **more)
    )

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            waiting = [asyncio.create_task(q.start(f"w{n}", wait=30)) for n in range(20)]
            short = await asyncio.gather(*(q.start(f"s{n}", wait=0.3) for n in range(3)))
            assert short == [None] * 3
            assert len(asked) == 20 + 3 + 1 + 3  # the first of each, that which waits, the last
            await q.enqueue_all(Enqueue() for _ in range(20))
            leases = await asyncio.gather(*waiting)
            assert len({lease.task for lease in leases}) == 20

    run(main())


def test_a_wait_ends_when_a_closed_queue_has_nothing_left():
    """As it does for a queue that is not awaited; so does `leases`."""

    async def main() -> list[str]:
        async with AsyncWorkQueue.in_memory() as q:
            await q.enqueue_all([Enqueue("a"), Enqueue("b")])
            await q.close()
            seen = []
            async for lease in q.leases("w"):
                seen.append(lease.task)
                await q.complete(lease)
            assert await q.start("w", wait=30) is None
            return seen

    assert run(main()) == ["a", "b"]


def test_who_waits_no_more_leaves_no_thread_behind(path):
    """A wait that is cancelled ends, and so does each of a queue that is left; a worker is
    drained, too, when somebody else did the last of the work."""

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            waiting = asyncio.create_task(q.start("w", wait=3600))
            await until(lambda: q.queue._watches)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(lambda: not q.queue._watches)
            await q.enqueue("a")
            lease = await q.start("other")
            drained = asyncio.create_task(drain(q, handler))
            left = asyncio.create_task(q.wait(lambda state, _: state.counts()[Status.DEAD]))
            await q.complete(lease)
            await drained
        with pytest.raises(RuntimeError, match="open no more"):
            await left

    async def handler(_: Context) -> None: ...

    run(main())


@pytest.mark.parametrize("asked", ["start", "waiting", "complete_and_start"])
def test_no_lease_is_lost_when_its_caller_is_cancelled(path, monkeypatch, asked):
    """Cancelled after the grant and before the answer: the task is released again."""
    granted, go = threading.Event(), threading.Event()
    sync = os.fdatasync

    def slow(fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            granted.set()
            assert go.wait(20)
        sync(fd)

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            if asked == "complete_and_start":
                lease = await q.start("w")
                await q.enqueue("b")
                call = q.complete_and_start(lease)
            elif asked == "waiting":
                await q.pause()
                call = q.start("w", wait=30)
            else:
                call = q.start("w")
            monkeypatch.setattr(os, "fdatasync", slow)
            caller = asyncio.create_task(call)
            if asked == "waiting":
                await until(q._turn.locked)
                with WorkQueue.open(path) as other:
                    other.resume()
            await until(granted.is_set)
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            go.set()
        with WorkQueue.open(path) as q:
            last = "b" if asked == "complete_and_start" else "a"
            told = [x for e in q.entries() for x in e.events if getattr(x, "task", "") == last]
            assert [type(x).__name__ for x in told][-2:] == ["Started", "Released"]
            assert (q.task(last).status, q.task(last).attempt) == (Status.READY, 0)

    run(main())


def test_a_call_cancelled_before_it_began_asks_nothing(path):
    """Nothing is released that was not granted."""

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            caller = asyncio.create_task(q.start("w"))
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            assert await stands(q) == (Status.READY, 0)
            assert (await q.task("a")).releases == 0

    run(main())


def test_callers_cancelled_at_any_moment_lose_nothing(path):
    """Hundreds of starts, cancelled a little later each: every task is either answered or READY."""

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue_all(Enqueue(f"t{n}") for n in range(100))
            held = []
            for number in range(100):
                caller = asyncio.create_task(q.start(wait=0.01))
                await asyncio.sleep(number * 0.0001)
                caller.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    held.append((await caller).task)
        with WorkQueue.open(path) as q:
            running = {lease.task for lease in q.state.running()}
            assert running == set(held)

    run(main())


# The worker.


def test_handlers_run_at_the_same_time_in_one_loop():
    """Forty handlers meet; each has a worker name of its own."""

    async def main() -> None:
        async with AsyncWorkQueue.in_memory() as q:
            await q.enqueue_all(Enqueue(f"t{n}", n) for n in range(80))
            meet = asyncio.Barrier(40)

            async def handler(context: Context) -> int:
                await meet.wait()
                return context.payload * 2

            await drain(q, handler, concurrency=40, name="me")
            for n in range(80):
                assert (await q.task(f"t{n}")).result == n * 2
            entries = [entry async for entry in q.entries()]
            started = [x for e in entries for x in e.events if isinstance(x, Started)]
            assert {x.worker for x in started} == {f"me/{n}" for n in range(1, 41)}

    run(main())


def test_whatever_is_raised_is_a_failure_of_the_task(path):
    """As for every worker; SystemExit and KeyboardInterrupt do not get to the loop."""

    async def handler(context: Context) -> None:
        if context.payload == "cancelled":
            raise asyncio.CancelledError
        errands.raise_hostile(context)

    async def main() -> None:
        async with AsyncWorkQueue.open(path, retry=Retry(max_attempts=1)) as q:
            for name in [*errands.HOSTILE, "cancelled"]:
                if name != "stop":  # of which Python makes something else, in a coroutine
                    await q.enqueue(name, name)
            await drain(q, handler, concurrency=5)
            for name, (_, begins) in errands.HOSTILE.items():
                if name != "stop":
                    error = (await q.task(name)).error
                    assert error.startswith(begins)
                    assert len(error.encode()) <= ERROR_LIMIT
            assert (await q.task("cancelled")).error == "CancelledError"

    run(main())


def test_results_and_kinds_of_failure_are_as_for_every_worker(path):
    """What cannot be stored, `Permanent`, types told, a wait told."""

    async def handler(context: Context) -> Any:
        match context.task:
            case "set":
                return {1}
            case "permanent":
                raise Permanent("never")
            case "lookup":
                raise KeyError("row")
            case _:
                raise TaskFailed("later", retry_after=0.05)

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            for name in ("set", "permanent", "lookup", "later"):
                await q.enqueue(name, max_attempts=2)
            await drain(q, handler, permanent=[LookupError])
            tasks = {name: await q.task(name) for name in ("set", "permanent", "lookup", "later")}
            assert [task.attempt for task in tasks.values()] == [1, 1, 1, 2]
            assert tasks["set"].error.startswith("the result cannot be stored: ")

    run(main())


def test_a_lease_is_renewed_while_the_handler_awaits_or_blocks(path):
    """The thread that renews is none of the loop's."""

    def renewed(q: WorkQueue) -> int:
        return sum(isinstance(x, Renewed) for e in q.entries() for x in e.events)

    async def handler(_: Context) -> None:
        await until(lambda: renewed(q) >= 1)
        while renewed(q) < 2:  # and the loop stands still
            time.sleep(0.01)

    with WorkQueue.open(path) as q:
        q.enqueue("a")
        run(drain(q, handler, lease_for=0.3))
        assert (q.task("a").status, q.task("a").attempt) == (Status.SUCCEEDED, 1)


def test_a_handler_whose_lease_is_lost_is_cancelled(path):
    """What it did is dropped, and the worker goes on."""
    dropped = []

    class Told(Witness):
        def dropped(self, lease: Any) -> None:
            dropped.append(lease.task)

    async def main() -> None:
        began, cancelled = asyncio.Event(), asyncio.Event()

        async def handler(context: Context) -> None:
            if context.task == "a":
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    assert context.lost
                    cancelled.set()

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            worker = AsyncWorker(q, handler, witness=Told())
            running = asyncio.create_task(worker.run())
            await began.wait()
            await q.cancel("a")
            await cancelled.wait()
            await q.enqueue("b")
            await until(lambda: _succeeded(q, "b"))
            worker.stop()
            await running
            assert (await stands(q))[0] is Status.CANCELLED

    run(main())
    assert dropped == ["a"]


async def _succeeded(q: AsyncWorkQueue, name: str) -> bool:
    return (await stands(q, name))[0] is Status.SUCCEEDED


@pytest.mark.parametrize("grace", [30, 0.05])
def test_stopping_lets_handlers_finish_within_the_grace(path, grace):
    """After it they are cancelled and their tasks handed back, at no attempt."""

    async def main() -> None:
        began, go, cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(_: Context) -> str:
            began.set()
            try:
                await go.wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise ValueError("while cleaning up") from None
            return "done"

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            await q.enqueue("b")
            worker = AsyncWorker(q, handler, grace=grace)
            running = asyncio.create_task(worker.run())
            await began.wait()
            worker.stop()
            if grace == 30:
                go.set()
            await running
            assert cancelled.is_set() is (grace != 30)
            assert await stands(q) == ((Status.SUCCEEDED, 1) if grace == 30 else (Status.READY, 0))
            assert await stands(q, "b") == (Status.READY, 0)

    run(main())


def test_who_asks_twice_or_cancels_the_run_wants_it_now(path):
    """No grace: handlers are cancelled, and what they were at is handed back."""

    async def once(
        q: AsyncWorkQueue, end: Callable[[AsyncWorker, asyncio.Task[None]], Any]
    ) -> None:
        began = asyncio.Event()

        async def handler(_: Context) -> None:
            began.set()
            await asyncio.Event().wait()

        worker = AsyncWorker(q, handler, grace=3600)
        running = asyncio.create_task(worker.run())
        await began.wait()
        end(worker, running)
        await asyncio.wait({running})
        assert await stands(q) == (Status.READY, 0)

    async def main() -> None:
        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            await once(q, lambda worker, _: (worker.stop(), worker.stop()))
            await once(q, lambda _, running: running.cancel())
            assert (await q.task("a")).releases == 2

    run(main())


def test_a_handler_that_does_not_listen_is_left_alone(path, monkeypatch):
    """Its task is handed back all the same, and the run comes to an end."""
    monkeypatch.setattr("eventq.aio.runtime.PATIENCE", 0.05)

    async def main() -> None:
        began, go = asyncio.Event(), asyncio.Event()

        async def handler(_: Context) -> None:
            began.set()
            while not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go.wait()

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            worker = AsyncWorker(q, handler, grace=0)
            running = asyncio.create_task(worker.run())
            await began.wait()
            worker.stop()
            await running
            assert await stands(q) == (Status.READY, 0)
            go.set()

    run(main())


def test_a_signal_of_the_loop_can_stop_a_worker(path):
    """The worker takes no signal by itself."""

    async def main() -> None:
        async def handler(_: Context) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            worker = AsyncWorker(q, handler)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
            await worker.run()
            assert await stands(q) == (Status.SUCCEEDED, 1)

    run(main())


def test_draining_waits_for_what_comes_by_itself(path):
    """Delays and leases that run out; a paused queue hands out nothing."""

    async def main() -> None:
        async def handler(_: Context) -> None: ...

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("theirs")
            await q.start("other", lease_for=0.2)
            await drain(q, handler, concurrency=3)
            assert await stands(q, "theirs") == (Status.SUCCEEDED, 2)
            await q.enqueue("later")
            await q.pause()
            await drain(q, handler)
            assert await stands(q, "later") == (Status.READY, 0)

    run(main())


def test_a_closed_queue_and_a_taken_name_are_waited_out(path, monkeypatch):
    """Without spinning."""
    asked = []
    start = WorkQueue.start
    monkeypatch.setattr(
        WorkQueue, "start", lambda *args, **more: asked.append(1) or start(*args, **more)
    )

    async def main() -> None:
        done = asyncio.Event()

        async def handler(_: Context) -> None:
            done.set()

        async with AsyncWorkQueue.open(path) as q:
            await q.enqueue("a")
            await q.start("w/1", lease_for=0.3)
            worker = AsyncWorker(q, handler, name="w")
            running = asyncio.create_task(worker.run())
            await done.wait()
            await q.close()
            asked.clear()
            await asyncio.sleep(0.3)
            assert len(asked) <= 2
            worker.stop()
            await running

    run(main())


def test_a_busy_worker_costs_one_entry_a_task(path):
    """Completing one and starting the next is one."""

    async def main() -> list[str]:
        async def handler(_: Context) -> None: ...

        async with AsyncWorkQueue.open(path) as q:
            for number in range(20):
                await q.enqueue(f"t{number}")
            await drain(q, handler)
            return [entry.do async for entry in q.entries(22)]

    assert run(main()) == ["start"] + ["complete_and_start"] * 20


def test_a_run_raises_what_the_queue_says(path):
    """A pool without these workers; a worker runs once; a path is opened and shut."""

    async def handler(_: Context) -> None: ...

    async def main() -> None:
        async with AsyncWorkQueue.open(path, pool=["w/1"]) as q:
            await q.enqueue("a")
            worker = AsyncWorker(path, handler, name="other")
            with pytest.raises(UnknownWorker):
                await worker.run()
            with pytest.raises(RuntimeError, match="has run already"):
                await worker.run()
            assert await stands(q) == (Status.READY, 0)
            await drain(q, handler, name="w")
            assert await stands(q) == (Status.SUCCEEDED, 1)
            stopped = AsyncWorker(q, handler, name="w")
            stopped.stop()
            await stopped.run()

    run(main())


def test_a_plain_function_is_for_the_other_worker():
    """It would hold up the loop."""
    with pytest.raises(BadValue, match=r"eventq\.worker\.Worker"):
        AsyncWorker("q", lambda _: None)  # type: ignore[arg-type, return-value]
