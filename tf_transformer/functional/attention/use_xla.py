"""Decides whether XLA compiles the attention core."""

import logging

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.xla_context import has_accelerator, in_xla_program

# Programs that "auto" compiles in one process: each new shape takes XLA 0.2 to 1 second.
MOST_PROGRAMS = 64
_shapes = set()


def use_xla(jit, *shapes):
    """Decide whether XLA compiles the attention core.

    | where the core runs | "auto" |
    |---|---|
    | in a function that XLA compiles, `jit_compile=True` | part of that program, in XLA's form |
    | on a GPU or TPU, all shapes known | compiled |
    | on a GPU or TPU, a size unknown, or `MOST_PROGRAMS` shapes compiled before | plain graph |
    | on a CPU | plain graph, which is the faster one there (benchmarks/attention/NOTES.md) |
    """
    if jit not in (True, False, "auto"):
        raise ArgumentError("jit", 'True, False or "auto"', f"{jit!r}")
    if jit != "auto":
        return jit
    if in_xla_program():
        return True
    return has_accelerator() and _is_admitted(shapes)


def _is_admitted(shapes):
    if not all(shape.is_fully_defined() for shape in shapes):
        return False
    key = tuple(map(tuple, shapes))
    if key in _shapes:
        return True
    if len(_shapes) == MOST_PROGRAMS:
        return False
    _shapes.add(key)
    if len(_shapes) == MOST_PROGRAMS:
        logging.getLogger("tf_transformer").warning(
            "attention: compiled %d shapes; new shapes run as a plain graph from now on. Pad to "
            "fewer lengths, or pass jit=True or jit=False.",
            MOST_PROGRAMS,
        )
    return True
