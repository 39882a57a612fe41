"""Methods of runs that hold the run's folder."""

import contextlib
import functools

from tf_transformer.data.folder_lock import locked
from tf_transformer.distribution.workers import current_workers, together


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
