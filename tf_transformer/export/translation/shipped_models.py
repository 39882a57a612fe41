"""The models included in the package."""

from pathlib import Path

from tf_transformer.errors import MissingFileError

_PACKAGE = Path(__file__).parents[2]
_INSTALLED = _PACKAGE / "saved_models"
# In a checkout or an editable install, the folder is next to the package.
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "saved_models"


def shipped_model(name):
    """Find a model in `saved_models/`, in a checkout or in an installed package.

    Args:
        name: str, like "en-zh".

    Returns:
        Path of its folder.

    Raises:
        FileNotFoundError: If there is no such model.

    Example:
        >>> shipped_model("en-zh").name
        'en-zh'
    """
    path = _FOLDER / name
    if not path.is_dir():
        raise MissingFileError(
            name,
            "the name of a model included in tf_transformer",
            "another name",
            "Pass the folder of your own model with --model.",
        )
    return path
