"""The page of the explorer: one HTML file with its style, its program and its arrays.

Axes: N heads, T queries, S keys, H head width.
"""

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path

import numpy as np

_FOLDER = Path(__file__).parent / "page"
_SCRIPTS = ("text", "data", "drawing", "overview", "head", "token", "layers", "app")
LANGUAGES = {"en": "en", "zh": "zh-CN"}


def explorer_page(stacks, title, lang="en"):
    """Write attention as a page that needs nothing but a browser.

    The page has no text but that of `title` and of the labels, which stays text: markup in it is
    shown, not run. Its policy forbids every request and every script but its own.
    """
    data = {"lang": lang, "stacks": [_packed_stack(stack) for stack in stacks]}
    scripts = "\n".join(_read(f"{name}.js") for name in _SCRIPTS)
    style, script = _read("style.css"), f'(() => {{\n"use strict";\n{scripts}}})();\n'
    parts = {
        "lang": LANGUAGES[lang],
        "title": escape(title),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        # `<` could end the element, in `</script>`, or open a comment.
        "data": json.dumps(data).replace("<", "\\u003c"),
    }
    # In one pass, so that nothing is replaced within what was put in.
    return re.sub(r"@(\w+)@", lambda mark: parts[mark[1]], _read("page.html"))


def _read(name):
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text):
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _packed_stack(stack):
    return {
        "kind": stack.kind,
        "queries": stack.queries,
        "keys": stack.keys,
        "layers": [_packed_layer(layer) for layer in stack.layers],
    }


def _packed_layer(layer):
    weights = np.rint(np.clip(layer.weights, 0, 1) * 255).astype(np.uint8)
    packed = {"heads": len(weights), "width": layer.queries.shape[-1], "weights": _base64(weights)}
    for name in ("queries", "keys"):
        heads = np.asarray(getattr(layer, name))  # (N, T or S, H)
        scale = np.maximum(np.abs(heads).max(axis=(1, 2)), 1e-30) / 32767  # (N,)
        packed[name] = _base64(np.rint(heads / scale[:, None, None]).astype("<i2"))
        packed[f"{name}_scale"] = [float(f"{one:.6g}") for one in scale]
    return packed


def _base64(array):
    return base64.b64encode(array.tobytes()).decode()
