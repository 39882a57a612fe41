"""The commands that show or serve a model: info, explore and serve."""

import json
from pathlib import Path

from tf_transformer.cli.arguments import (
    add_command,
    add_language_arguments,
    add_model_argument,
    given,
    is_published,
    languages_of,
    model_path,
    option,
)
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError

_LIMITS = {
    "most_batch": "texts that the model computes together (default: 32)",
    "most_waiting": "texts that may wait; further requests get 503 (default: 256)",
    "most_texts": "texts of a request (default: 64)",
    "most_characters": "characters of a text (default: 5000)",
    "most_new_tokens": "tokens that a language model adds to a text (default: 512)",
}


def add_info(commands):
    """Add the command `info`."""
    info = add_command(commands, "info", _info)
    info.add_argument("name", nargs="?", help="bert-base, albert-base, ..., or a folder")
    add_model_argument(info)


def _info(options):
    """describe a model: data, sizes, scores; or the parameters of a BERT"""
    if options.name is not None and options.model is not None:
        raise ArgumentError("name, --model", "one of them", "both")
    folder = options.model
    if options.name is not None:
        marks = ("run.json", "translator.json")
        if not any((Path(options.name) / mark).is_file() for mark in marks):
            _parameters(options.name)
            return
        folder = options.name
    import_tensorflow()
    from tf_transformer.export.translation import folder as saved

    path = model_path(folder)
    print(f"{path}\n{json.dumps(saved.read_description(path), indent=2, ensure_ascii=False)}")


def _parameters(name):
    import_tensorflow()
    from tf_transformer.models import bert
    from tf_transformer.models.bert.attention import without_drawing

    if Path(name).exists() or Path(f"{name}.index").exists():
        model = bert.Bert.from_pretrained(name)
    else:
        model = bert.Bert(bert.published_config(name))
        with without_drawing():  # only the sizes are printed
            model.build()
    print(f"{name}\n{json.dumps(model.config.to_dict(), indent=2, ensure_ascii=False)}\n")
    for part, count in bert.parameter_table(model).items():
        print(f"{count:>13,}  {part}")


def add_explore(commands):
    """Add the command `explore`."""
    add = add_command(commands, "explore", _explore).add_argument
    text = "a text; or a pair, for a translator a text and its translation"
    add("text", nargs="+", help=text)
    add(
        "--model",
        metavar="FOLDER",
        help="an exported translator, the run of one, or a BERT checkpoint with its vocabulary "
        "(default: the English-Chinese translator)",
    )
    add("--output", metavar="FILE", default="attention.html", help="default: attention.html")
    add("--lang", choices=("en", "zh"), default="en", help="of the page (default: en)")


def _explore(options):
    """write a page that shows what a model attends to in a text"""
    if len(options.text) > 2:
        raise ArgumentError("text", "one or two", len(options.text), "Quote each text.")
    import_tensorflow()
    from tf_transformer.visualize import explorer

    folder = Path(options.model) if options.model else model_path(None)
    path = explorer(folder, options.text, options.output, lang=options.lang)
    print(f"Page: {path}")


def add_serve(commands):
    """Add the command `serve`."""
    serve = add_command(commands, "serve", _serve)
    add_model_argument(serve)
    add = serve.add_argument
    add("--beam", action="store_true", help="translate with beam search")
    add_language_arguments(serve)
    host = "0.0.0.0 to accept requests from other machines (default: 127.0.0.1)"
    add("--host", default="127.0.0.1", help=host)
    add("--port", type=int, default=8000, help="(default: 8000)")
    for name, text in _LIMITS.items():
        add(option(name), type=int, metavar="N", help=text)


def _serve(options):
    """serve a translator, text generator or BERT model over HTTP"""
    require("serve", "fastapi", "uvicorn", "prometheus_client")
    import_tensorflow(optimize_graphs=False, share_operations=False)
    import uvicorn

    from tf_transformer.serving import Limits, Task, create_app

    limits = Limits(**given(options, _LIMITS))
    languages = languages_of(options, is_published(options.model))
    task = Task(model_path(options.model), beam=options.beam, **languages)
    print(f"POST http://{options.host}:{options.port}/{task.name}, see /docs", flush=True)
    address = {"host": options.host, "port": options.port}
    app = create_app(task, limits)
    uvicorn.run(app, **address, log_level="warning", timeout_graceful_shutdown=30)
