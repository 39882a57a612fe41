"""JSON files in checkpoint folders."""

from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.json_text import parse_json


def read_json(path, kind=dict):
    """Read a JSON file."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError("path", "a JSON file", f"no file {path}")
    expected = {dict: "object", list: "array"}[kind]
    try:
        content = parse_json(path.read_bytes(), object_pairs_hook=_once)
        if not isinstance(content, kind):
            raise ValueError(f"a {type(content).__name__}")
    except ValueError as error:
        raise ArgumentError("path", f"a JSON {expected} in {path}", error) from error
    return content


def _once(pairs):
    """A dict of pairs whose keys differ; of two values Python would take the last."""
    content = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"{key!r} twice")
        content[key] = value
    return content
