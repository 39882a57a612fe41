"""The command `compress`."""

import sys

from tf_transformer.cli.tensorflow_start import import_tensorflow, require


def add_compress(commands):
    """Add the parser of this file."""
    compress = commands.add_parser(
        "compress", help="distil, prune and quantize a model by a recipe, and measure each step"
    )
    compress.add_argument("recipe", metavar="RECIPE", help="a JSON file, see docs/compression.md")
    compress.add_argument(
        "--output",
        metavar="FOLDER",
        required=True,
        help="a new folder; that of an interrupted call resumes it",
    )
    compress.set_defaults(run=_compress)


def _compress(options):
    for package in ("matplotlib", "sacrebleu", "safetensors", "tokenizers"):
        require(package, "train")
    import_tensorflow()
    from tf_transformer.compression.recipes import Recipe
    from tf_transformer.export import compress

    recipe = Recipe.read(options.recipe)
    compress(recipe, options.output, verbose=1 if sys.stdout.isatty() else 2)
    print(f"Table: {options.output}/README.md")
