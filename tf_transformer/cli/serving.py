"""The command `serve`: an exported model behind HTTP."""

from tf_transformer.cli.arguments import model_path
from tf_transformer.cli.tensorflow_start import import_tensorflow, require

_LIMITS = {
    "most_batch": "texts that the model computes together (default: 32)",
    "most_waiting": "texts that may wait; further requests get 503 (default: 256)",
    "most_texts": "texts of a request (default: 64)",
    "most_characters": "characters of a text (default: 5000)",
}


def add_commands(commands):
    """Add the parser of this file."""
    serve = commands.add_parser("serve", help="serve a translator, classifier or encoder by HTTP")
    serve.add_argument(
        "--model", metavar="FOLDER", help="an exported model (default: the English-Chinese one)"
    )
    serve.add_argument("--beam", action="store_true", help="translate with beam search")
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="0.0.0.0 to accept requests from other machines (default: 127.0.0.1)",
    )
    serve.add_argument("--port", type=int, default=8000, help="(default: 8000)")
    for name, text in _LIMITS.items():
        serve.add_argument(f"--{name.replace('_', '-')}", type=int, metavar="N", help=text)
    serve.set_defaults(run=_serve)


def _serve(options):
    for package in ("fastapi", "uvicorn", "prometheus_client"):
        require(package, "serve")
    import_tensorflow(optimize_graphs=False, share_operations=False)
    import uvicorn

    from tf_transformer.serving import Limits, Task, create_app

    given = {name: getattr(options, name) for name in _LIMITS}
    limits = Limits(**{name: value for name, value in given.items() if value is not None})
    task = Task(model_path(options.model), beam=options.beam)
    print(f"POST http://{options.host}:{options.port}/{task.name}, see /docs", flush=True)
    uvicorn.run(
        create_app(task, limits),
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_graceful_shutdown=30,
    )
