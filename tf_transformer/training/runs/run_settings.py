"""The settings of a run, in a file of its folder."""

import json
from pathlib import Path

from tf_transformer import __version__
from tf_transformer.data.replacing import replacing

FORMAT = 1


def write_settings(path, **settings):
    """Write the settings of a run, with the format and the version that wrote them.

    Args:
        path: str or Path of the JSON file.
        settings: what JSON can hold.

    Example:
        >>> write_settings("run.json", epochs=3)
        >>> read_settings("run.json", lambda settings: settings["epochs"])
        3
    """
    settings = {"format": FORMAT, "version": __version__, **settings}
    with replacing(path) as beside:
        beside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def read_settings(path, make):
    """Make a run of the settings that `write_settings` wrote.

    Args:
        path: str or Path of the JSON file.
        make: function of the dict of settings.

    Returns:
        What `make` returns.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another version of this format, damaged, or not what `make` can read.

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
                f"version {settings['version']}. Train anew, or install that version."
            )
        return make(settings)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: expected the settings of a run, got {error!r}.") from error
