"""The web application of a served model."""

import contextlib
import time
from typing import Annotated

import fastapi
import prometheus_client
import pydantic
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from tf_transformer import __version__
from tf_transformer.errors import ArgumentError
from tf_transformer.serving.batcher import Batcher
from tf_transformer.serving.body_limit import BodyLimit
from tf_transformer.serving.limits import Limits
from tf_transformer.serving.overloaded import Overloaded


def create_app(task, limits=None):
    """Create the web application of a model, for any ASGI server.

    POST /translate, /classify or /embed with `{"texts": [...]}` gives `{"results": [...]}`, one for
    each text. GET /healthz says whether the server is up, /metrics its counters in the format of
    Prometheus, /docs and /openapi.json what it accepts. A request that the server refuses gets
    `{"error": "..."}` with 400 (no JSON, or texts that the model refuses), 413 (too large), 422
    (other content) or 503 (too much to do, with Retry-After).

    Args:
        task: `Task`, or another function of a list of strings with `name` and `threads`.
        limits: None for the defaults, or `Limits`.

    Returns:
        `fastapi.FastAPI`.

    Example:
        >>> from tf_transformer.export import shipped_model
        >>> from tf_transformer.serving.task import Task
        >>> app = create_app(Task(shipped_model("en-zh")))
        >>> sorted(app.openapi()["paths"])
        ['/healthz', '/metrics', '/translate']
    """
    limits = limits or Limits()
    registry = prometheus_client.CollectorRegistry()
    requests = prometheus_client.Counter(
        "requests", "Answered requests by status", ["status"], registry=registry
    )
    seconds = prometheus_client.Histogram(
        "request_seconds", "Time from the request to its answer", registry=registry
    )
    batcher = None
    waiting = prometheus_client.Gauge("waiting_texts", "Texts that wait", registry=registry)
    waiting.set_function(lambda: batcher.waiting if batcher else 0)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        nonlocal batcher
        batcher = Batcher(task, limits, task.threads)
        yield
        await batcher.close()

    app = fastapi.FastAPI(
        title=f"tf_transformer: {task.name}", version=__version__, lifespan=lifespan
    )
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
            if error.argument != "texts":  # of the server, whose files are nobody else's business
                raise
            raise HTTPException(400, str(error)) from error

    @app.get("/healthz")
    async def healthz():
        return {"status": "ok"}

    @app.get("/metrics")
    async def metrics():
        content = prometheus_client.generate_latest(registry)
        return Response(content, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refused(request, error):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request, error):
        first = error.errors()[0]  # without the input, which may be as long as the request
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
