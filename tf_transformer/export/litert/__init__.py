"""Files for LiteRT."""

from tf_transformer.export.litert.write_litert import write_litert

__all__ = [
    "write_litert",
]
