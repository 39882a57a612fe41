"""JSON from files that anybody may have written."""

import json


def parse_json(text, **options):
    """Parse JSON, with one kind of error for all that is not.

    Args:
        text: str.
        options: of `json.loads`.

    Returns:
        The content.

    Raises:
        json.JSONDecodeError: If the text is not JSON, or is nested more deeply than Python follows;
            it is a `ValueError`.

    Example:
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
        json.decoder.JSONDecodeError: It is nested too deeply: line 1 column 1 (char 0)
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise json.JSONDecodeError("It is nested too deeply", text, 0) from None
