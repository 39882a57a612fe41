"""JSON from untrusted files."""

import collections
import json


def parse_json(text, parse_float=None):
    """Parse JSON; raise `json.JSONDecodeError` for anything else and for duplicate keys."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_distinct, parse_float=parse_float)
    except RecursionError:
        raise json.JSONDecodeError("It is nested too deeply", "", 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None


def _distinct(pairs):
    """A dict of pairs with distinct keys; for duplicates, Python would use the last value."""
    content = dict(pairs)
    if len(content) < len(pairs):
        [(key, _)] = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"The key {key!r} occurs twice")
    return content
