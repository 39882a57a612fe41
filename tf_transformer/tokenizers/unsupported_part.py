"""The error for files that hold more than this package runs."""


class UnsupportedPart(ValueError):
    """A part of a `tokenizer.json` that is broken, or that this package does not run.

    Example:
        >>> print(UnsupportedPart.of("model.type", ["BPE"], "WordLevel"))
        The part 'model.type' is not supported: expected ['BPE'], received 'WordLevel'.
    """

    @classmethod
    def of(cls, part, expected, received):
        """The error for a part, by its name in the file."""
        return cls(
            f"The part {part!r} is not supported: expected {expected!r}, received {received!r}."
        )
