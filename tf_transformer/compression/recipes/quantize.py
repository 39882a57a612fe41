"""The step of a recipe that stores fewer bits."""

import dataclasses
from typing import ClassVar

from tf_transformer.errors import ArgumentError

_DTYPES = {
    "tensorflow": ("int8", "float16", "bfloat16"),
    "litert": ("int8", "float16", "full int8", "float32"),
}
_RANGES = ("static", "dynamic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantize:
    """Export with fewer bits for each weight; the last step.

    Args:
        dtype: "int8", "float16" and others, see `export.stored_weights.stored` and `write_litert`.
        ranges: "static" (the default) or "dynamic", for int8 by TensorFlow alone, see `quantized`;
            LiteRT's "int8" is always dynamic.
        runtime: "tensorflow" writes a SavedModel, "litert" a folder for `tf_transformer.litert`.

    Raises:
        ValueError: If the runtime, or the dtype for it, is unknown, or ranges have no meaning.

    Example:
        >>> Quantize(runtime="litert").dtype
        'int8'
    """

    name: ClassVar[str] = "quantize"

    dtype: str = "int8"
    ranges: str | None = None
    runtime: str = "tensorflow"

    def __post_init__(self):
        has_ranges = self.runtime == "tensorflow" and self.dtype == "int8"
        if has_ranges and self.ranges is None:
            object.__setattr__(self, "ranges", "static")
        for name, choices in (
            ("runtime", tuple(_DTYPES)),
            ("dtype", _DTYPES.get(self.runtime, ())),
            ("ranges", _RANGES if has_ranges else (None,)),
        ):
            if getattr(self, name) not in choices:
                known = ", ".join(map(str, choices))
                raise ArgumentError(name, f"one of {known}", f"{getattr(self, name)!r}")

    def rehearse(self, model):
        """The model: the weights are rounded when it is exported."""
        return model

    def apply(self, model, task, folder):
        """The model: the weights are rounded when it is exported."""
        return model
