"""The models that come with the package."""

from importlib import resources
from pathlib import Path


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
    for folder in resources.files("tf_transformer.saved_models")._paths:
        if (Path(folder) / name).is_dir():
            return Path(folder) / name
    raise FileNotFoundError(
        f"{name}: expected a model that comes with tf_transformer, got a name that none has. "
        f"Name the folder of your own with --model."
    )
