"""JSON from files that anybody may have written."""

import json

from tf_transformer.errors import ArgumentError


def parse_json(text, **options):
    """Parse JSON, with one kind of error for all that is not."""
    try:
        return json.loads(text.decode() if isinstance(text, bytes) else text, **options)
    except RecursionError:
        raise json.JSONDecodeError("It is nested too deeply", "", 0) from None
    except (json.JSONDecodeError, ArgumentError):
        raise
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None
