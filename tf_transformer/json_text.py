"""JSON from files that anybody may have written."""

import json

from tf_transformer.errors import ArgumentError


def parse_json(text, **options):
    """Parse JSON, with one kind of error for all that is not.

    Args:
        text: str, or bytes of UTF-8.
        options: of `json.loads`.

    Returns:
        The content.

    Raises:
        json.JSONDecodeError: If the text is not JSON or not UTF-8, or nested more deeply or with
            longer numbers than Python reads; it is a `ValueError`.

    Example:
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
        json.decoder.JSONDecodeError: It is nested too deeply: line 1 column 1 (char 0)
    """
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text, **options)
    except RecursionError:
        raise json.JSONDecodeError("It is nested too deeply", "", 0) from None
    except (json.JSONDecodeError, ArgumentError):
        raise
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
