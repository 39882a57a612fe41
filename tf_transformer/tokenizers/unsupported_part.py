"""The error for files with parts that this package does not support."""

from tf_transformer.errors import ArgumentError


class UnsupportedPart(ArgumentError):
    """A part of a `tokenizer.json` is invalid or not supported by this package."""

    @classmethod
    def of(cls, part, expected, got):
        """Create the error for a part, given its name in the file."""
        place = f"The part {part!r} is not supported"
        return cls("path", f"{expected!r}", f"{got!r}", place=place)
