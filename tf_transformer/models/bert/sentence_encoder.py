"""BERT for sentence embeddings.

Axes: B batch, T length, D hidden size.
"""

import dataclasses
import json
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.checkpoints.json_file import read_json

POOLINGS = ("mean", "cls", "pooler")


@keras.saving.register_keras_serializable(package="tf_transformer")
class SentenceEncoder(BertWithHead):
    """Pool token vectors into one vector of length 1 per sentence.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3: the dot product of two of these vectors
    is their cosine similarity.

    Args:
        config, unpad, jit, architecture: see `Bert`.
        pooling: "mean" over all tokens except padding, "cls" for the first token, or "pooler" for
            the pooler's output.
        normalize: bool, True scales every vector to length 1.

    Call arguments:
        inputs, training: see `Bert`; the mean only includes tokens in the `attention_mask` (B, T),
            or all tokens if there is none.

    Returns:
        float32 tensor (B, D).

    Raises:
        ValueError: If the pooling is unknown, or "pooler" for a model without one; see also `Bert`.

    Example:
        >>> from tf_transformer.models.bert.bert_config import BertConfig
        >>> model = SentenceEncoder(BertConfig(13, 8, 2, 2, 16))
        >>> vectors = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> vectors.shape.as_list(), round(float(tf.norm(vectors)), 4)
        ([1, 8], 1.0)
    """

    published_as = "BertModel"
    pooler_use = "optional"

    def __init__(self, config, *, pooling="mean", normalize=True, **kwargs):
        if pooling not in POOLINGS:
            raise ValueError(f"pooling: expected one of {', '.join(POOLINGS)}, got {pooling!r}.")
        config = BertConfig.of(config)
        if pooling != "pooler":
            config = dataclasses.replace(config, pooler_activation=None)
        elif config.pooler_activation is None:
            raise ValueError('pooling: expected "mean" or "cls" for a model without a pooler.')
        super().__init__(config, **kwargs)
        self.pooling = pooling
        self.normalize = normalize

    @classmethod
    def from_pretrained(cls, path, **changes):
        """See `PretrainedBert.from_pretrained`; pooling and normalisation are read from the folder
        of a sentence-transformers model, unless they are in `changes`.
        """
        return super().from_pretrained(path, **{**read_settings(path), **changes})

    def call(self, inputs, training=None):
        outputs = self.bert(inputs, training=training)
        if self.pooling == "pooler":
            vectors = tf.cast(outputs["pooled_output"], tf.float32)
        else:
            states = tf.cast(outputs["sequence_output"], tf.float32)
            vectors = self._pool(states, inputs.get("attention_mask"))
        return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24) if self.normalize else vectors

    def _pool(self, states, mask):
        if self.pooling == "cls":
            return states[:, 0]
        if mask is None:
            return tf.reduce_mean(states, axis=1)
        if len(mask.shape) != 2:
            raise ValueError(
                f"attention_mask: expected (batch, length), which marks the padding, got shape "
                f"{tuple(mask.shape)}."
            )
        weights = tf.expand_dims(tf.cast(mask, states.dtype), -1)  # (B, T, 1)
        total = tf.reduce_sum(states * weights, axis=1)
        return total / tf.maximum(tf.reduce_sum(weights, axis=1), 1e-9)

    def write_side_files(self, folder):
        """Write the pooling in the format of sentence-transformers (which has no pooler)."""
        modules = ["Transformer", "Pooling", *["Normalize"] * self.normalize]
        listed = [
            {
                "idx": n,
                "name": str(n),
                "path": f"{n}_{name}" * (name != "Transformer"),
                "type": f"sentence_transformers.models.{name}",
            }
            for n, name in enumerate(modules)
        ]
        modes = {mode: pooling == self.pooling for mode, pooling in _MODES.items()}
        modes["word_embedding_dimension"] = self.config.hidden_size
        (folder / "1_Pooling").mkdir()
        for path, content in (("modules.json", listed), ("1_Pooling/config.json", modes)):
            (folder / path).write_text(json.dumps(content, indent=2) + "\n", "utf-8")

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}


_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_pooler": "pooler",
}


def read_settings(path):
    """Read the pooling settings from the folder of a sentence-transformers model.

    Args:
        path: str or Path of a folder.

    Returns:
        dict: `pooling` and `normalize`, or empty if the folder has no settings.

    Raises:
        ValueError: If the pooling is not supported here.

    Example:
        >>> read_settings("nowhere")
        {}
    """
    path = Path(path)
    if not (path / "modules.json").is_file():
        return {}
    modules = read_json(path / "modules.json", list)
    try:
        of_kind = {module["type"].rsplit(".", 1)[-1]: module["path"] for module in modules}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"path: expected a type and a path for each module in {path / 'modules.json'}, got "
            f"{modules}."
        ) from error
    if set(of_kind) - {"Transformer", "Pooling", "Normalize"} or "Pooling" not in of_kind:
        raise ValueError(
            f"path: expected in {path / 'modules.json'} a Transformer, a Pooling and optionally a "
            f"Normalize, got {', '.join(of_kind)}."
        )
    content = read_json(path / of_kind["Pooling"] / "config.json")
    modes = [key for key, value in content.items() if key.startswith("pooling_mode") and value]
    pooling = _MODES.get(modes[0]) if len(modes) == 1 else None
    if modes == ["pooling_mode"] and content["pooling_mode"] in ("mean", "cls"):  # a newer spelling
        pooling = content["pooling_mode"]
    if pooling is None:
        raise ValueError(
            f"pooling: expected one of {', '.join(_MODES)} in {path}, got {', '.join(modes)}."
        )
    return {"pooling": pooling, "normalize": "Normalize" in of_kind}
