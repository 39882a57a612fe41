"""Joins the texts of several requests into batches."""

import asyncio
import collections
import concurrent.futures


class Overloaded(Exception):
    """More texts wait than the server accepts; try again later.

    Example:
        >>> raise Overloaded("256 texts are waiting.")
        Traceback (most recent call last):
        tf_transformer.serving.batcher.Overloaded: 256 texts are waiting.
    """


class Batcher:
    """Joins the texts of requests that arrive together into batches for a model.

    Args:
        function: called in a thread with a list of strings; returns a list of results.
        limits: `Limits`.
        threads: int, batches computed side by side.

    Example:
        >>> from tf_transformer.serving.app import Limits
        >>> async def main():
        ...     batcher = Batcher(lambda texts: [text.upper() for text in texts], Limits())
        ...     found = await asyncio.gather(batcher(["a", "b"]), batcher(["c"]))
        ...     await batcher.close()
        ...     return found
        >>> asyncio.run(main())
        [['A', 'B'], ['C']]
    """

    def __init__(self, function, limits, threads=1):
        self._function = function
        self._limits = limits
        self._threads = threads
        self._waiting = collections.deque()  # (text, future of its result)
        self._arrived = asyncio.Event()
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._workers = []

    @property
    def waiting(self):
        """How many texts wait."""
        return len(self._waiting)

    async def __call__(self, texts):
        """Compute the results of some texts.

        Args:
            texts: list of str.

        Returns:
            list of the results.

        Raises:
            Overloaded: If too many texts wait.
        """
        if self.waiting + len(texts) > self._limits.most_waiting:
            raise Overloaded(f"{self.waiting} texts are waiting.")
        if not self._workers:
            self._workers = [asyncio.create_task(self._work()) for _ in range(self._threads)]
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in texts]
        self._waiting.extend(zip(texts, futures, strict=True))
        self._arrived.set()
        return await asyncio.gather(*futures)

    async def close(self):
        """Finish what waits, then stop."""
        while self._waiting:
            await asyncio.sleep(0.01)
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._pool.shutdown()

    async def _work(self):
        while True:
            await self._arrived.wait()
            if len(self._waiting) < self._limits.most_batch:
                await asyncio.sleep(self._limits.wait)  # others may join
            rows = min(self._limits.most_batch, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(rows)]
            if not self._waiting:
                self._arrived.clear()
            batch = [(text, future) for text, future in batch if not future.cancelled()]
            if batch:
                await asyncio.shield(self._compute(batch))

    async def _compute(self, batch):
        loop, texts = asyncio.get_running_loop(), [text for text, _ in batch]
        try:
            results = await loop.run_in_executor(self._pool, self._function, texts)
        except Exception as error:
            if len(batch) > 1:  # one text must not cost its neighbors their results
                for row in batch:
                    await self._compute([row])
                return
            results = [error]
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
