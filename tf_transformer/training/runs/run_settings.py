"""The settings of a run in its folder, one process at a time, and its precision."""

import contextlib
import functools
import json
import os
from pathlib import Path

import keras

from tf_transformer import __version__
from tf_transformer.data.files import locked, replacing
from tf_transformer.distribution.workers import current_workers, together
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json
from tf_transformer.training.optimizers import GlobalLossScale


def in_locked_folder(method):
    """Decorate a method so that it holds `self.folder` while it runs, on the chief of `Workers`.

    Several workers first agree on the folder and on what `self.facts()` returns.
    """

    @functools.wraps(method)
    def held(self, *args, **kwargs):
        workers = current_workers()
        with contextlib.ExitStack() as stack:
            with together():
                if workers.is_chief:
                    stack.enter_context(locked(self.folder))
                facts = self.facts() if workers.count > 1 else {}
            workers.agree(self.folder, **facts)
            return method(self, *args, **kwargs)

    return held


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@contextlib.contextmanager
def precision_scope(precision):
    """Build the layers in a `with` block for a precision."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def with_loss_scale(optimizer, precision):
    """Return the optimizer for a precision: float16 needs a loss scale."""
    return GlobalLossScale(optimizer) if precision == "mixed_float16" else optimizer


FORMAT = 1


def write_settings(path, **settings):
    """Write the settings of a run, with the format and package versions."""
    folder = str(Path(path).parent.resolve())  # where the run is now: see `found_again`
    settings = {"format": FORMAT, "version": __version__, "folder": folder, **settings}
    with replacing(path) as beside:
        beside.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def found_again(file, settings, folder):
    """Find a file named in the settings of a run, even if the run's folder has moved."""
    folder = Path(folder).resolve()
    path = folder / file  # an absolute path stays unchanged
    # Not `path.exists()`, which raises an error for a name that no file can have.
    if not os.path.exists(path) and "folder" in settings:
        moved = folder / os.path.relpath(path, settings["folder"])
        path = moved if os.path.exists(moved) else path
    return os.path.normpath(path)


def read_settings(path, make):
    """Create a run from the settings written by `write_settings`."""
    path = Path(path)
    if not path.is_file():
        got = f"no {path.name}"
        raise MissingFileError("folder", "the folder of a run", got, place=path.parent)
    try:
        settings = parse_json(path.read_bytes())
        if settings["format"] != FORMAT:
            raise ArgumentError(
                "path",
                f"format {FORMAT}",
                f"{settings['format']}, written by version {settings['version']}",
                "Retrain, or install that version.",
                place=path,
            )
        return make(settings)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ArgumentError("path", "the settings of a run", f"{error!r}", place=path) from error
