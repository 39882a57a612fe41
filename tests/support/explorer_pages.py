"""Random attention for pages of the explorer, and what is in a page."""

import base64
import json
import re

import numpy as np

from tf_transformer.functional.attention.scaled_dot_product import RecordedAttention
from tf_transformer.visualize.attention import AttentionStack, explorer_page


def random_stack(kind, queries, keys, heads=(2, 3), width=7, seed=3):
    """Return an `AttentionStack`, with a layer for each number of heads."""
    rng = np.random.default_rng(seed)

    def layer(n):
        q, k = (rng.standard_normal((n, len(x), width)) for x in (queries, keys))
        scores = 2 * q @ np.swapaxes(k, 1, 2) / np.sqrt(width)
        weights = np.exp(scores)
        return RecordedAttention(q, k, weights / weights.sum(-1, keepdims=True))

    return AttentionStack(kind, list(queries), list(keys), [layer(n) for n in heads])


def write_page(path, stacks, title="a title", lang="en"):
    """Write a page and return its path."""
    path.write_text(explorer_page(stacks, title, lang), encoding="utf-8")
    return path


def read_stacks(page):
    """Decode the arrays of a page, independently of its program."""
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return [_stack(stack) for stack in json.loads(data)["stacks"]]


def _stack(stack):
    lengths = {"queries": len(stack["queries"]), "keys": len(stack["keys"])}

    def layer(packed):
        heads, width = packed["heads"], packed["width"]
        vectors = (
            _array(packed[name], "<i2", (heads, length, width))
            * np.array(packed[f"{name}_scale"])[:, None, None]
            for name, length in lengths.items()
        )
        shape = (heads, *lengths.values())
        return RecordedAttention(*vectors, _array(packed["weights"], np.uint8, shape) / 255)

    layers = [layer(packed) for packed in stack["layers"]]
    return AttentionStack(stack["kind"], stack["queries"], stack["keys"], layers)


def _array(text, dtype, shape):
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)
