"""One vector for each text from the vectors of its tokens.

Axes: B batch, T length, D hidden size.
"""

import json
from pathlib import Path

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.checkpoints.fields import POOLING, check_fields
from tf_transformer.models.bert.checkpoints.json_file import read_json

_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_pooler": "pooler",
}


def pool_tokens(states, mask, pooling):
    """Pool the vectors of tokens."""
    states = tf.cast(states, tf.float32)
    if pooling == "cls":
        return states[:, 0]
    if mask is None:
        return tf.reduce_mean(states, axis=1)
    if len(mask.shape) != 2:
        raise ArgumentError(
            "attention_mask",
            "(batch, length), which marks the padding",
            f"shape {tuple(mask.shape)}",
        )
    weights = tf.expand_dims(tf.cast(tf.cast(mask, tf.bool), tf.float32), -1)  # (B, T, 1)
    total = tf.reduce_sum(states * weights, axis=1)
    return total / tf.maximum(tf.reduce_sum(weights, axis=1), 1e-9)


def write_pooling(folder, pooling, normalize, width):
    """Write the pooling in the format of sentence-transformers (which has no pooler)."""
    modules = ["Transformer", "Pooling", *["Normalize"] * normalize]
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": f"{n}_{name}" * (name != "Transformer"),
            "type": f"sentence_transformers.models.{name}",
        }
        for n, name in enumerate(modules)
    ]
    modes = {mode: kind == pooling for mode, kind in _MODES.items()}
    modes["word_embedding_dimension"] = width
    (folder / "1_Pooling").mkdir()
    for path, content in (("modules.json", listed), ("1_Pooling/config.json", modes)):
        (folder / path).write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def read_pooling(path):
    """Read the pooling settings from the folder of a sentence-transformers model."""
    path = Path(path)
    if not (path / "modules.json").is_file():
        return {}
    modules = read_json(path / "modules.json", list)
    try:
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        paths = [module["path"] for module in modules]
        own = [m["type"] for m in modules if not m["type"].startswith("sentence_transformers.")]
    except (KeyError, TypeError, AttributeError) as error:
        raise ArgumentError(
            "path", f"a type and a path for each module in {path / 'modules.json'}", modules
        ) from error
    known = ["Transformer", "Pooling", "Normalize"]
    if own or kinds not in (known, known[:2]) or paths[0] != "":
        raise ArgumentError(
            "path",
            (
                f"in {path / 'modules.json'} a Transformer of sentence-transformers with the "
                'path "", then a Pooling and optionally a Normalize'
            ),
            f"{', '.join(own or kinds)} with the paths {paths}",
        )
    inside = paths[1]
    if not isinstance(inside, str) or ".." in Path(inside).parts or Path(inside).is_absolute():
        raise ArgumentError(
            "path", f"a Pooling inside the folder in {path / 'modules.json'}", f"{inside!r}"
        )
    content = read_json(path / inside / "config.json")
    check_fields(content, POOLING, path / inside / "config.json")
    modes = {key: mode for key, mode in content.items() if key.startswith("pooling_mode") and mode}
    found = [modes[key] if key == "pooling_mode" else _MODES.get(key) for key in modes]
    if found not in ([mode] for mode in _MODES.values()):
        raise ArgumentError("pooling", f"one of {', '.join(_MODES)} in {path}", modes)
    return {"pooling": found[0], "normalize": kinds == known}
