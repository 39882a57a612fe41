"""Methods of runs that hold the run's folder."""

import contextlib
import functools

from tf_transformer.data.folder_lock import locked
from tf_transformer.distribution.workers import current_workers


def in_locked_folder(method):
    """Decorate a method so that it holds `self.folder` while it runs, on the chief of `Workers`.

    Args:
        method: of a class with the attribute `folder`.

    Returns:
        The method, which also raises what `locked` raises.

    Example:
        >>> from pathlib import Path
        >>> class Run:
        ...     folder = Path("runs/first")
        ...     @in_locked_folder
        ...     def train(self):
        ...         return "trained"
        >>> Run().train()
        'trained'
    """

    @functools.wraps(method)
    def held(self, *args, **kwargs):
        is_alone = current_workers().is_chief
        with locked(self.folder) if is_alone else contextlib.nullcontext():
            return method(self, *args, **kwargs)

    return held
