"""An HTTP server for exported models: JSON in, JSON out."""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import secrets
import time
import weakref
from pathlib import Path
from typing import Annotated

import fastapi
import pydantic
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, exposition
from starlette.exceptions import HTTPException

from tf_transformer import __version__
from tf_transformer.errors import ArgumentError, check, message_of_graph
from tf_transformer.export.saving import load_saved_model
from tf_transformer.export.spans import MOST_ANSWERS, text_model_for
from tf_transformer.export.text_generator import ALL, TextGenerator, stream_text
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
        most_new_tokens: int, tokens that a language model adds to a text.
    """

    most_batch: int = 32
    most_waiting: int = 256
    wait: float = 0.002
    most_texts: int = 64
    most_characters: int = 5000
    most_bytes: int = 2**20
    most_new_tokens: int = 512

    def __post_init__(self):
        for name, value in vars(self).items():
            check(value > 0 or (name == "wait" and value == 0), name, "a positive number", value)
        expected = f"at least {self.most_texts}, the texts of a request"
        check(self.most_waiting >= self.most_texts, "most_waiting", expected, self.most_waiting)


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
        self._function, self._limits, self._threads = function, limits, threads
        self._waiting = collections.deque()  # (text, future of its result)
        self._arrived = asyncio.Event()
        self._pool, self._workers = concurrent.futures.ThreadPoolExecutor(threads), []

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
            if not future.done():
                failed = isinstance(result, Exception)
                (future.set_exception if failed else future.set_result)(result)


class BodyLimit:
    """An ASGI middleware that answers 413 when a request has more bytes than allowed."""

    def __init__(self, app, most):
        self.app, self.most = app, most

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
    """An exported model and what it does: translate, classify, embed, fill, answer, tag, generate.

    Args:
        folder: str or Path of the SavedModel of a `Translator`, `EarlyExitClassifier`,
            `TextClassifier`, `TextEncoder`, `MaskFiller`, `QuestionAnswerer`, `TokenClassifier`
            or `TextGenerator`, or of a published model for one of the last six, see their
            `from_pretrained`; anything else raises a ValueError.
        beam: bool, whether a translator searches with beams; ValueError for another model.
        languages: `source_language` and `target_language` of a published translator, see
            `TextGenerator.from_pretrained`; ValueError for another model.

    Attributes:
        name: str, what it does, such as "translate"; the path of the service.
        threads: int, batches to compute at the same time.
        languages: list of str, from which requests to a published translator choose.
    """

    def __init__(self, folder, beam=False, **languages):
        is_published = (Path(folder) / "config.json").is_file()
        made = text_model_for(folder) or TextGenerator
        if languages and not (is_published and made is TextGenerator):
            got = f"another, {folder}"
            raise ArgumentError(", ".join(languages), "a published translator", got)
        load = made.from_pretrained if is_published else load_saved_model
        self._model, self._beam = load(folder, **languages), beam
        methods = ("translate", "classify", "encode", "fill", "answer", "tag", "generate")
        found = [method for method in methods if hasattr(self._model, method)]
        expected = "an exported translator, classifier, sentence encoder, text generator, or "
        expected += "model for masks, answers or entities"
        check(found, "model", expected, f"another SavedModel, {folder}")
        self.name = "embed" if found[0] == "encode" else found[0]
        translates = self.name == "translate"
        check(translates or not beam, "beam", "a translator", f"a model to {self.name}")
        self._settings = json.loads(self._model.settings.numpy()) if self.name == "generate" else {}
        self.languages = self._settings.get("languages", ())
        self.threads = cores()

    def __call__(self, texts):
        """Compute the results of some texts; to generate, of `(text, options)`, see `generate`; to
        answer, of `(question, context)`, perhaps with `top_k`; to fill, of `(text, top_k)`.
        """
        if self.name == "translate":
            found = translate_texts(self._model, texts, beam=self._beam)
            return [{"translation": text} for text in found]
        if self.name == "classify":
            found = self._model.classify(texts)
            [kind] = found.keys() & {"probabilities", "values"}
            return _records({"label": found["label"], kind: found[kind]})
        if self.name == "embed":
            return _records({"vector": self._model.encode(texts)})
        if self.name == "tag":
            rows = map(_records, _records(self._model.tag(texts)))
            return [{"entities": [one for one in row if one["score"]]} for row in rows]
        with _refusing():
            if self.name == "generate":
                return self._generate(texts)
            if self.name == "answer":
                return _by_kind(texts, [request[2:] for request in texts], self._answer)
            texts, counts = zip(*texts, strict=True)
            found = _records(self._model.fill(list(texts), max(counts)))
        rows = [_records({"token": x["tokens"], "score": x["scores"]}) for x in found]
        return [{"fillings": row[:count]} for row, count in zip(rows, counts, strict=True)]

    def _answer(self, requests):
        """Answer questions, all with the same `top_k`, if any."""
        questions, contexts, *counts = map(list, zip(*requests, strict=True))
        if not counts:
            return _records(self._model.answer(questions, contexts))
        rows = map(_records, _records(self._model.answers(questions, contexts, counts[0][0])))
        return [{"answers": [one for one in row if one["score"]]} for row in rows]

    def _generate(self, requests):
        """Continue texts; those with equal options together, samples alone."""
        kinds = [
            # A sample depends on its place in a batch.
            place
            if self._settings["sampling"] or options.keys() & _CHANCE.keys()
            else (options["max_new_tokens"], *options["stop"], *(x in options for x in _LANGUAGES))
            for place, (_, options) in enumerate(requests)
        ]

        def continued(group):
            texts, given = zip(*group, strict=True)
            languages = [name for name in _LANGUAGES if name in given[0]]
            options = given[0] | {name: [each[name] for each in given] for name in languages}
            call = self._model.sample if options.keys() & _CHANCE.keys() else self._model.generate
            return _records({"continuation": call(texts, **options)})

        return _by_kind(requests, kinds, continued)

    def stream(self, text, options):
        """Return a generator of the pieces of a continuation, see `stream_text`."""
        with _refusing():
            return (yield from stream_text(self._model, text, **options))

    def most_new_tokens(self, given, most):
        """The `max_new_tokens` of a request: as given, or what the settings say up to `most`."""
        own = self._settings["max_new_tokens"] or (self._settings["max_length"] or 21) - 1
        return given or (most if own > most else 0)


def _by_kind(requests, kinds, compute):
    """Compute requests, those of one kind together; the results in their order."""
    results = {}
    for kind in dict.fromkeys(kinds):
        places = [place for place, other in enumerate(kinds) if other == kind]
        results |= zip(places, compute([requests[place] for place in places]), strict=True)
    return [results[place] for place in range(len(requests))]


def _records(columns):
    """Turn a dict of equally long lists or tensors into a list of dicts."""
    lists = [x if isinstance(x, list) else x.numpy().tolist() for x in columns.values()]
    rows = zip(*lists, strict=True)
    rows = [[x.decode("utf-8") if isinstance(x, bytes) else x for x in row] for row in rows]
    return [dict(zip(columns, row, strict=True)) for row in rows]


class Refused(Exception):
    """The model cannot do what a request asks."""


@contextlib.contextmanager
def _refusing():
    """Raise `Refused` for what a model says of a request."""
    try:
        yield
    except Exception as error:
        message = str(error) if isinstance(error, ArgumentError) else message_of_graph(error)
        if message is None or message.partition(":")[0] not in _OF_REQUEST:
            raise
        raise Refused(message) from error


_CHANCE = {
    "temperature": Annotated[float, pydantic.Field(ge=0, allow_inf_nan=False)],
    "top_k": Annotated[int, pydantic.Field(ge=1, le=ALL)],
    "top_p": Annotated[float, pydantic.Field(gt=0, le=1)],
}
_OF_REQUEST = {"text", "stop", "max_new_tokens", "max_length, max_new_tokens", "beams", *_CHANCE}
_LANGUAGES = ("source_language", "target_language")
_OF_REQUEST |= {"question", "context", *_LANGUAGES}


def _generation_fields(limits, languages):
    """What a request to /generate may have besides its texts."""
    most = Annotated[int, pydantic.Field(ge=1, le=limits.most_new_tokens)]
    stop = Annotated[str, pydantic.Field(min_length=1, max_length=100)]
    stop = Annotated[list[stop], pydantic.Field(max_length=16)]
    seed = Annotated[int, pydantic.Field(ge=0, lt=2**31)]
    fields = {"max_new_tokens": most, "seed": seed, **_CHANCE}
    fields |= dict.fromkeys(_LANGUAGES, str) if languages else {}
    fields = {name: (kind | None, None) for name, kind in fields.items()}
    return {**fields, "stop": (stop, []), "stream": (bool, False)}


def _options(task, limits, request):
    """The options of a request to /generate, for `stream_text`."""
    most = task.most_new_tokens(request.max_new_tokens, limits.most_new_tokens)
    seed = secrets.randbelow(2**31) if request.seed is None else request.seed
    chance = request.model_dump(include={*_CHANCE}, exclude_none=True)
    languages = request.model_dump(include={*_LANGUAGES}, exclude_none=True)
    if chance.get("temperature") == 0:  # the likeliest token
        chance = {"top_k": 1}
    return {"max_new_tokens": most, "stop": request.stop, "seed": seed, **chance, **languages}


def _with_top_k(request):
    """Each text of a request, or each question with its context, and `top_k`, if it is given."""
    *fields, top_k = dict(request).values()
    further = () if top_k is None else (top_k,)
    if len({len(texts) for texts in fields}) > 1:
        got = " and ".join(f"{len(texts)}" for texts in fields)
        raise Refused(f"questions, contexts: expected as many of both, got {got}.")
    return [(*row, *further) for row in zip(*fields, strict=True)]


class Streams:
    """Answers with the pieces of a text as server-sent events, a thread for each processor."""

    def __init__(self, task, limits):
        self._task, self._limits = task, limits
        self._pool = concurrent.futures.ThreadPoolExecutor(task.threads)
        self._open = weakref.WeakSet()  # a response that is left alone is forgotten

    async def response(self, texts, options):
        """Compute the first piece, then answer; errors before it are raised."""
        if len(texts) > 1:
            raise Refused(f"texts: expected one text for a stream, got {len(texts)}.")
        if len(self._open) >= self._limits.most_waiting:
            raise Overloaded(f"{len(self._open)} texts are streamed.")
        pieces = self._task.stream(*texts, options)
        self._open.add(pieces)
        events = self._events(pieces, await self._next(pieces))
        return StreamingResponse(events, media_type="text/event-stream")

    def close(self):
        """Stop after the steps that are being computed."""
        self._pool.shutdown()

    async def _events(self, pieces, event):
        while event:
            yield f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
            try:
                event = await self._next(pieces) if "piece" in event else None
            except Refused as error:
                event = {"error": str(error)}
            except Exception as error:
                event = {"error": f"{type(error).__name__} in the model."}

    async def _next(self, pieces):
        """The next piece, or why the text ends."""

        def compute():
            try:
                return {"piece": next(pieces)}
            except StopIteration as end:
                return {"finish_reason": end.value}

        return await asyncio.get_running_loop().run_in_executor(self._pool, compute)


def create_app(task, limits=None):
    """Create the web application of a model, a `fastapi.FastAPI`, for any ASGI server.

    POST /translate, /classify, /embed, /fill or /tag with `{"texts": [...]}` returns
    `{"results": [...]}`, one for each text; /answer takes `questions` and `contexts` instead. Both
    /fill and /answer also take `top_k`; /generate takes `max_new_tokens`, `stop`, `seed`,
    `temperature`, `top_k`, `top_p`, for a published translator with languages `source_language` and
    `target_language`, and, for one text, `stream`, which returns server-sent events.
    GET /healthz reports whether the server is up, /metrics its counters in the Prometheus format,
    /docs and /openapi.json what it accepts. A refused request gets `{"error": "..."}` with 400 (not
    JSON, or texts that the model refuses), 413 (too large), 422 (other content) or 503 (overloaded,
    with Retry-After).

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
    batcher = streams = None
    waiting.set_function(lambda: batcher.waiting if batcher else 0)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        nonlocal batcher, streams
        batcher, streams = Batcher(task, limits, task.threads), Streams(task, limits)
        yield
        await batcher.close()
        streams.close()

    title = f"tf_transformer: {task.name}"
    app = fastapi.FastAPI(title=title, version=__version__, lifespan=lifespan)
    text = Annotated[str, pydantic.Field(max_length=limits.most_characters)]
    texts = Annotated[list[text], pydantic.Field(min_length=1, max_length=limits.most_texts)]
    several = Annotated[int, pydantic.Field(ge=1, le=MOST_ANSWERS)] | None
    generation = _generation_fields(limits, getattr(task, "languages", ()))
    fields = {"generate": generation, "fill": {"top_k": (_CHANCE["top_k"], 5)}}
    fields["answer"] = {"top_k": (several, None)}
    names = ("questions", "contexts") if task.name == "answer" else ("texts",)
    fields = dict.fromkeys(names, (texts, ...)) | fields.get(task.name, {})
    body = pydantic.create_model("Texts", __config__={"extra": "forbid"}, **fields)
    answer = pydantic.create_model("Results", results=(list[dict], ...))

    @app.post(f"/{task.name}", response_model=answer)
    async def compute(request: body):
        try:
            if task.name == "generate":
                options = _options(task, limits, request)
                if request.stream:
                    return await streams.response(request.texts, options)
                seed, numbered = options["seed"], enumerate(request.texts)
                items = [(x, options | {"seed": (seed + n) % 2**31}) for n, x in numbered]
            elif task.name in ("answer", "fill"):
                items = _with_top_k(request)
            else:
                items = request.texts
            return {"results": await batcher(items)}
        except Overloaded as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from error
        except (Refused, ArgumentError) as error:
            if getattr(error, "argument", "texts") != "texts":  # ours: do not reveal its files
                raise
            raise HTTPException(400, str(error)) from error

    @app.get("/healthz")
    async def healthz():
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics():
        media_type = exposition.CONTENT_TYPE_LATEST
        return Response(exposition.generate_latest(registry), media_type=media_type)

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
