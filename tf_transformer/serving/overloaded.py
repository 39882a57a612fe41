"""The error of a server that has too much to do."""


class Overloaded(Exception):
    """More texts wait than the server accepts; try again later.

    Example:
        >>> raise Overloaded("256 texts are waiting.")
        Traceback (most recent call last):
        tf_transformer.serving.overloaded.Overloaded: 256 texts are waiting.
    """
