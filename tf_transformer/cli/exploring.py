"""The command `explore`."""

from pathlib import Path

from tf_transformer.cli.arguments import model_path
from tf_transformer.cli.tensorflow_start import import_tensorflow
from tf_transformer.errors import ArgumentError


def add_commands(commands):
    """Add the parser of this file."""
    explore = commands.add_parser(
        "explore", help="write a page that shows what a model attends to in a text"
    )
    explore.add_argument(
        "text", nargs="+", help="a text; or a pair, for a translator a text and its translation"
    )
    explore.add_argument(
        "--model",
        metavar="FOLDER",
        help="an exported translator, the run of one, or a BERT checkpoint with its vocabulary "
        "(default: the English-Chinese translator)",
    )
    explore.add_argument(
        "--output", metavar="FILE", default="attention.html", help="default: attention.html"
    )
    explore.add_argument(
        "--lang", choices=("en", "zh"), default="en", help="of the page (default: en)"
    )
    explore.set_defaults(run=_explore)


def _explore(options):
    if len(options.text) > 2:
        raise ArgumentError("text", "one or two", len(options.text), "Quote each text.")
    import_tensorflow()
    from tf_transformer.visualize import explorer

    folder = Path(options.model) if options.model else model_path(None)
    path = explorer(folder, options.text, options.output, lang=options.lang)
    print(f"Page: {path}")
