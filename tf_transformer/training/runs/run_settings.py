"""The settings of a run, stored in a file in its folder."""

import json
from pathlib import Path

from tf_transformer import __version__
from tf_transformer.data.replacing import replacing

FORMAT = 1


def write_settings(path, **settings):
    """Write the settings of a run, with the format and package versions.

    Args:
        path: str or Path of the JSON file.
        settings: values that JSON can represent.

    Example:
        >>> write_settings("run.json", epochs=3)
        >>> read_settings("run.json", lambda settings: settings["epochs"])
        3
    """
    settings = {"format": FORMAT, "version": __version__, **settings}
    with replacing(path) as beside:
        beside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_settings(path, make):
    """Create a run from the settings written by `write_settings`.

    Args:
        path: str or Path of the JSON file.
        make: function of the dict of settings.

    Returns:
        The result of `make`.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file has another format version, is damaged, or `make` cannot read it.

    Example:
        >>> read_settings("run.json", dict)
        Traceback (most recent call last):
        FileNotFoundError: .: expected the folder of a run, got no run.json.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent}: expected the folder of a run, got no {path.name}.")
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        if settings["format"] != FORMAT:
            raise ValueError(
                f"{path}: expected format {FORMAT}, got {settings['format']}, written by "
                f"version {settings['version']}. Retrain, or install that version."
            )
        return make(settings)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected the settings of a run, got {error!r}.") from error
