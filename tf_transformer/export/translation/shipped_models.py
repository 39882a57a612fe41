"""The models that come with the package."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_INSTALLED = _PACKAGE / "saved_models"
# In a checkout, and so in an editable install, the folder lies beside the package.
_FOLDER = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "saved_models"


def shipped_model(name):
    """Find a model of the folder `saved_models/`, in a checkout as in an installed package.

    Args:
        name: str, like "en-zh".

    Returns:
        Path of its folder.

    Raises:
        FileNotFoundError: no such model was shipped.

    Example:
        >>> shipped_model("en-zh").name
        'en-zh'
    """
    path = _FOLDER / name
    if not path.is_dir():
        raise FileNotFoundError(
            f"{name}: expected a model that comes with tf_transformer, got a name that none has. "
            f"Name the folder of your own with --model."
        )
    return path
