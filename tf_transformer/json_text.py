"""JSON from untrusted files."""

import collections
import json

from tf_transformer.errors import ArgumentError


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


def check_format(content, known, remedy, place):
    """Refuse the content of a file whose format is not the known one of this version."""
    if content["format"] != known:
        got = f"{content['format']}, written by version {content['version']}"
        raise ArgumentError("path", f"format {known}", got, remedy, place=place)


def _distinct(pairs):
    """A dict of pairs with distinct keys; for duplicates, Python would use the last value."""
    content = dict(pairs)
    if len(content) < len(pairs):
        [(key, _)] = collections.Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"The key {key!r} occurs twice")
    return content
