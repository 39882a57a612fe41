"""Whether the code that runs now is traced for a runtime with fewer operations."""

import contextlib
import contextvars

_LONGEST = contextvars.ContextVar("longest", default=None)


@contextlib.contextmanager
def portable(longest):
    """Within this context, traced functions use only operations that LiteRT has.

    It has no sine or cosine in float64 and no complex numbers, which `rotate` uses otherwise: there
    angles come from a table.
    """
    token = _LONGEST.set(longest)
    try:
        yield
    finally:
        _LONGEST.reset(token)


def portable_positions():
    """The number of positions of a portable function, or None outside of `portable`."""
    return _LONGEST.get()
