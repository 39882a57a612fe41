"""The option `--architecture` of the commands that train."""

from pathlib import Path

from tf_transformer.errors import ArgumentError


def add_architecture_argument(parser, names):
    """Add the option."""
    parser.add_argument(
        "--architecture",
        metavar="FILE|NAME",
        help="parts of the model: a JSON file of Architecture.to_json(), or a published model with "
        f"its sizes: {names}",
    )


def architecture_changes(given, model_class):
    """The fields of the preset that the option changes."""
    from tf_transformer.layers import Architecture
    from tf_transformer.models import architectures

    path = Path(given)
    if path.is_file() or path.suffix == ".json":
        return {"architecture": Architecture.from_json(path.read_bytes()).to_dict()}
    published = architectures.get(given)
    if published.model_class is not model_class:
        raise ArgumentError(
            "--architecture",
            f"a {model_class.__name__}",
            f"{given!r}, a {published.model_class.__name__}",
        )
    return {**published.sizes, "architecture": published.to_dict()}
