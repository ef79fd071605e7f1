"""The asyncio face: a queue whose methods are awaited, and a worker whose handlers are coroutines.

async def fetch(context):
    async with client.get(context.payload["url"]) as page:
        return await page.text()

async with AsyncWorkQueue.open("nightly") as q:
    await q.enqueue("fetch", {"url": "..."})
    await AsyncWorker(q, fetch, concurrency=100, drain=True).run()
"""

from eventq.aio.runtime import AsyncWorker
from eventq.aio.workqueue import AsyncWorkQueue

__all__ = ["AsyncWorkQueue", "AsyncWorker"]
