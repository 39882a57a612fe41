"""The error for files with parts that this package does not support."""


class UnsupportedPart(ValueError):
    """A part of a `tokenizer.json` is invalid or not supported by this package.

    Example:
        >>> print(UnsupportedPart.of("model.type", ["BPE"], "WordLevel"))
        The part 'model.type' is not supported: expected ['BPE'], got 'WordLevel'.
    """

    @classmethod
    def of(cls, part, expected, got):
        """Create the error for a part, given its name in the file."""
        return cls(f"The part {part!r} is not supported: expected {expected!r}, got {got!r}.")
