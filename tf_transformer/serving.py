"""An HTTP server for exported models: JSON in, JSON out."""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import time
from typing import Annotated

import fastapi
import pydantic
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, exposition
from starlette.exceptions import HTTPException

from tf_transformer import __version__
from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import load_saved_model
from tf_transformer.export.translation.translate_texts import translate_texts
from tf_transformer.export.translation.translator import cores

__all__ = ["Batcher", "Limits", "Overloaded", "Task", "create_app"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server accepts, and how it forms batches; ValueError for a number out of range.

    Args:
        most_batch: int, the maximum number of texts in a batch of the model.
        most_waiting: int, texts that may wait for it, at least `most_texts`; more get 503.
        wait: float, seconds that a text waits for others to join its batch.
        most_texts, most_bytes: int, texts and bytes of a request.
        most_characters: int, characters of a text.
    """

    most_batch: int = 32
    most_waiting: int = 256
    wait: float = 0.002
    most_texts: int = 64
    most_characters: int = 5000
    most_bytes: int = 2**20

    def __post_init__(self):
        for name, value in vars(self).items():
            if not (value > 0 or (name == "wait" and value == 0)):
                raise ArgumentError(name, "a positive number", value)
        if self.most_waiting < self.most_texts:
            expected = f"at least {self.most_texts}, the texts of a request"
            raise ArgumentError("most_waiting", expected, self.most_waiting)


class Overloaded(Exception):
    """Too many texts are waiting; try again later."""


class Batcher:
    """Joins the texts of requests that arrive together into batches for a model.

    Args:
        function: called in a thread with a list of strings; returns a list of results.
        limits: `Limits`.
        threads: int, batches computed at the same time.
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
        """The number of waiting texts."""
        return len(self._waiting)

    async def __call__(self, texts):
        """Compute a list of results, or raise `Overloaded` if too many texts are waiting."""
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
        """Finish the waiting texts, then stop."""
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
            if len(batch) > 1:  # one bad text must not fail the others
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


class BodyLimit:
    """An ASGI middleware that answers 413 when a request has more bytes than allowed."""

    def __init__(self, app, most):
        self.app = app
        self.most = most

    async def __call__(self, scope, receive, send):
        """Answer a request; see the ASGI specification."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":  # the client has disconnected
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.most:
                error = f"body: expected at most {self.most:,} bytes, got more."
                refusal = JSONResponse({"error": error}, 413, {"connection": "close"})
                await refusal(scope, receive, send)
                return
        given = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])

        async def again():
            message = next(given, None)
            return await receive() if message is None else message

        await self.app(scope, again, send)


class Task:
    """An exported model and what it does: translate, classify or embed.

    Args:
        folder: str or Path of the SavedModel of a `Translator`, `TextClassifier`,
            `EarlyExitClassifier` or `TextEncoder`; anything else raises a ValueError.
        beam: bool, whether a translator searches with beams; ValueError for another model.

    Attributes:
        name: "translate", "classify" or "embed", the path of the service.
        threads: int, batches to compute at the same time.
    """

    def __init__(self, folder, beam=False):
        self._model = load_saved_model(folder)
        self._beam = beam
        kinds = {"translate": "translate", "classify": "classify", "encode": "embed"}
        found = [name for method, name in kinds.items() if hasattr(self._model, method)]
        if not found:
            expected = "an exported translator, classifier or sentence encoder"
            raise ArgumentError("model", expected, f"another SavedModel, {folder}")
        self.name = found[0]
        if beam and self.name != "translate":
            raise ArgumentError("beam", "a translator", f"a model to {self.name}")
        self.threads = cores()

    def __call__(self, texts):
        """Compute the results of some texts."""
        if self.name == "translate":
            found = translate_texts(self._model, texts, beam=self._beam)
            return [{"translation": text} for text in found]
        if self.name == "classify":
            found = self._model.classify(texts)
            labels = [label.decode("utf-8") for label in found["label"].numpy()]
            [kind] = found.keys() & {"probabilities", "values"}
            rows = zip(labels, found[kind].numpy().tolist(), strict=True)
            return [{"label": label, kind: row} for label, row in rows]
        return [{"vector": row} for row in self._model.encode(texts).numpy().tolist()]


def create_app(task, limits=None):
    """Create the web application of a model, a `fastapi.FastAPI`, for any ASGI server.

    POST /translate, /classify or /embed with `{"texts": [...]}` returns `{"results": [...]}`, one
    for each text. GET /healthz reports whether the server is up, /metrics its counters in the
    Prometheus format, /docs and /openapi.json what it accepts. A refused request gets
    `{"error": "..."}` with 400 (not JSON, or texts that the model refuses), 413 (too large), 422
    (other content) or 503 (overloaded, with Retry-After).

    Args:
        task: `Task`, or another function of a list of strings with `name` and `threads`.
        limits: None for the defaults, or `Limits`.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> app = create_app(Task(shipped_model("en-zh")))
        >>> sorted(app.openapi()["paths"])
        ['/healthz', '/metrics', '/translate']
    """
    limits = limits or Limits()
    registry = CollectorRegistry()
    requests = Counter("requests", "Answered requests by status", ["status"], registry=registry)
    seconds = Histogram("request_seconds", "Time from the request to its answer", registry=registry)
    waiting = Gauge("waiting_texts", "Waiting texts", registry=registry)
    batcher = None
    waiting.set_function(lambda: batcher.waiting if batcher else 0)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        nonlocal batcher
        batcher = Batcher(task, limits, task.threads)
        yield
        await batcher.close()

    title = f"tf_transformer: {task.name}"
    app = fastapi.FastAPI(title=title, version=__version__, lifespan=lifespan)
    text = Annotated[str, pydantic.Field(max_length=limits.most_characters)]
    texts = Annotated[list[text], pydantic.Field(min_length=1, max_length=limits.most_texts)]
    body = pydantic.create_model("Texts", texts=(texts, ...))
    answer = pydantic.create_model("Results", results=(list[dict], ...))

    @app.post(f"/{task.name}", response_model=answer)
    async def compute(request: body):
        try:
            return {"results": await batcher(request.texts)}
        except Overloaded as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from error
        except ArgumentError as error:
            if error.argument != "texts":  # the server's error: do not reveal its files
                raise
            raise HTTPException(400, str(error)) from error

    @app.get("/healthz")
    async def healthz():
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics():
        content = exposition.generate_latest(registry)
        return Response(content, media_type=exposition.CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refused(request, error):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request, error):
        first = error.errors()[0]  # without the input, which may be long
        place = ".".join(map(str, first["loc"][1:]))
        status = 400 if first["type"] == "json_invalid" else 422
        return JSONResponse({"error": f"{place}: {first['msg']}"}, status)

    @app.exception_handler(Exception)
    async def failed(request, error):
        return JSONResponse({"error": f"{type(error).__name__} in the model."}, 500)

    @app.middleware("http")
    async def counted(request, call_next):
        start = time.perf_counter()
        response = await call_next(request)
        if request.url.path == f"/{task.name}":
            requests.labels(response.status_code).inc()
            seconds.observe(time.perf_counter() - start)
        return response

    app.add_middleware(BodyLimit, most=limits.most_bytes)
    return app
