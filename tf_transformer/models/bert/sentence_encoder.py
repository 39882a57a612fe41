"""Sentence vectors: BERT with pooling, and the training of two towers.

Axes: B batch, or pairs of a batch, T length, D hidden size, H hard negatives of a pair,
N = B (1 + H) documents.
"""

import dataclasses
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.files import write_json
from tf_transformer.distribution import global_mean
from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.functional.activations import get_activation
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.models.base_model import BaseModel
from tf_transformer.models.bert.bert import BertWithHead, dense_inputs
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.checkpoints.config_files import (
    DENSE,
    POOLING,
    check_fields,
    read_json,
)
from tf_transformer.models.bert.checkpoints.files import SafetensorsFile, check_weights

_TYPE = "sentence_transformers.models"
_ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": None,
    "torch.nn.modules.activation.Tanh": "tanh",
}
_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_pooler": "pooler",
    "pooling_mode_lasttoken": "lasttoken",
}
_OF_DENSE = {"in_features": int, "out_features": int, "bias": bool}
_PUBLISHED = ("mean", "cls", "lasttoken")


def pool_tokens(states, mask, pooling):
    """Pool the vectors of tokens."""
    states = tf.cast(states, tf.float32)
    if pooling == "cls":
        return states[:, 0]
    if mask is None:
        mask = tf.ones(tf.shape(states)[:2], tf.bool)
    expected = "(batch, length), which marks the padding"
    check(len(mask.shape) == 2, "attention_mask", expected, f"shape {tuple(mask.shape)}")
    if pooling == "lasttoken":
        places = tf.where(tf.cast(mask, tf.bool), tf.range(tf.shape(states)[1]), 0)
        return tf.gather(states, tf.reduce_max(places, axis=1), batch_dims=1)
    weights = tf.expand_dims(tf.cast(tf.cast(mask, tf.bool), tf.float32), -1)  # (B, T, 1)
    total = tf.reduce_sum(states * weights, axis=1)
    return total / tf.maximum(tf.reduce_sum(weights, axis=1), 1e-9)


def dense_layer(dense, name="dense"):
    """A dense layer on pooled vectors: (units, activation, use_bias)."""
    fits = isinstance(dense, tuple | list) and len(dense) == 3
    check(fits, "dense", "None or (units, activation, use_bias)", dense)
    units, activation, use_bias = dense
    options = {"use_bias": use_bias, "name": name, "dtype": "float32"}
    return FlatDense(units, get_activation(activation), **options)


def write_pooling(folder, pooling, normalize, width, dense=None):
    """Write the pooling, and what follows it, in the format of sentence-transformers."""
    kinds = ["Transformer", "Pooling", *["Dense"][: dense is not None], *["Normalize"][:normalize]]
    modules = [
        {"idx": n, "name": str(n), "path": f"{n}_{kind}" if n else "", "type": f"{_TYPE}.{kind}"}
        for n, kind in enumerate(kinds)
    ]
    # sentence-transformers has no pooler, and refuses fields that it does not know.
    shown = {mode: kind for mode, kind in _MODES.items() if kind in (pooling, *_PUBLISHED)}
    modes = {mode: kind == pooling for mode, kind in shown.items()}
    modes["word_embedding_dimension"] = width
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", modes)
    if dense is not None:
        from safetensors.numpy import save_file

        name = dense.get_config()["activation"]
        check_choice("dense", name, ("linear", "tanh"))
        name = next(there for there, here in _ACTIVATIONS.items() if (here or "linear") == name)
        fields = {"in_features": width, "out_features": dense.units, "bias": dense.use_bias}
        write_json(folder / "2_Dense" / "config.json", {**fields, "activation_function": name})
        weights = {name: np.ascontiguousarray(x.numpy().T) for name, x in _homes(dense).items()}
        save_file(weights, folder / "2_Dense" / "model.safetensors", metadata={"format": "pt"})


def read_pooling(path):
    """Read the settings of a sentence-transformers model: pooling, normalize and perhaps dense."""
    path, listed = Path(path), Path(path) / "modules.json"
    if not listed.is_file():
        return {}
    kinds = _modules(listed)
    file = path / kinds["Pooling"] / "config.json"
    content = read_json(file)
    check_fields(content, POOLING, file)
    modes = {key: mode for key, mode in content.items() if key.startswith("pooling_mode") and mode}
    found = [modes[key] if key == "pooling_mode" else _MODES.get(key) for key in modes]
    if found not in ([mode] for mode in _MODES.values()):
        raise ArgumentError("pooling", f"one of {', '.join(_MODES)} in {path}", modes)
    settings = {"pooling": found[0], "normalize": "Normalize" in kinds}
    if "Dense" in kinds:
        file = path / kinds["Dense"] / "config.json"
        content = read_json(file)
        check_fields(content, DENSE, file)
        name = content.get("activation_function", "torch.nn.modules.activation.Tanh")
        check_choice("activation_function", name, (*_ACTIVATIONS,))
        content = {"bias": True, **content}
        for field, kind in _OF_DENSE.items():
            got, expected = content.get(field), "true or false" if kind is bool else "an int"
            check(type(got) is kind, field, f"{expected} in {file}", f"{got!r}")
        units, use_bias = content["out_features"], content["bias"]
        shapes = {"linear.weight": (units, content["in_features"]), "linear.bias": (units,)}
        shapes = dict([*shapes.items()][: 1 + use_bias])
        check_weights(SafetensorsFile(file.parent), shapes, lambda _: False)  # before it is built
        settings["dense"] = units, _ACTIVATIONS[name], use_bias
    return settings


def load_dense(layer, path):
    """Assign the weights of a Dense of sentence-transformers, which has files of its own."""
    weights = SafetensorsFile(Path(path) / _modules(Path(path) / "modules.json")["Dense"])
    layer = _homes(layer)
    check_weights(weights, {name: x.shape[::-1] for name, x in layer.items()}, lambda _: False)
    for name, variable in layer.items():
        variable.assign(weights.read(name).T)


def _modules(listed):
    """The folders of a model's modules by their kinds."""
    modules = read_json(listed, list)
    try:
        kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
        paths = [module["path"] for module in modules]
        own = [m["type"] for m in modules if not m["type"].startswith("sentence_transformers.")]
    except (KeyError, TypeError, AttributeError) as error:
        expected = f"a type and a path for each module in {listed}"
        raise ArgumentError("path", expected, modules) from error
    known = ["Transformer", "Pooling", *(kind for kind in ("Dense", "Normalize") if kind in kinds)]
    if own or kinds != known or paths[0] != "":
        expected = f'in {listed} a Transformer of sentence-transformers with the path "", then a '
        expected += "Pooling and optionally a Dense and a Normalize"
        raise ArgumentError("path", expected, f"{', '.join(own or kinds)} with the paths {paths}")
    for kind, inside in zip(kinds[1:], paths[1:], strict=True):
        if not isinstance(inside, str) or ".." in Path(inside).parts or Path(inside).is_absolute():
            raise ArgumentError("path", f"a {kind} inside the folder in {listed}", f"{inside!r}")
    return dict(zip(kinds, paths, strict=True))


def _homes(layer):
    """The variables of a dense layer by their names in files, where they are transposed."""
    homes = {"linear.weight": layer.kernel, "linear.bias": layer.bias}
    return {name: variable for name, variable in homes.items() if variable is not None}


@keras.saving.register_keras_serializable(package="tf_transformer")
class SentenceEncoder(BertWithHead):
    """Pool token vectors into one vector of length 1 per sentence.

    Reimers and Gurevych 2019, "Sentence-BERT", section 3: the dot product of two of these vectors
    is their cosine similarity. Inputs and errors: see `Bert`.

    Args:
        config, unpad, architecture: see `Bert`.
        pooling: "mean" of the tokens, without padding by the `attention_mask` (B, T); "cls", the
            first one; "lasttoken"; or the output of the "pooler". Without a pooler, it raises a
            ValueError.
        normalize: bool, True scales every vector to length 1.
        dense: None, or (units F, activation, use_bias) of a dense layer on the pooled vectors;
            anything else raises a ValueError. `save_pretrained` writes tanh or no activation.

    Returns:
        float32 tensor (B, D), or (B, F) with a dense layer.

    Example:
        >>> model = SentenceEncoder(BertConfig(13, 8, 2, 2, 16))
        >>> vectors = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> vectors.shape.as_list(), round(float(tf.norm(vectors)), 4)
        ([1, 8], 1.0)
    """

    published_as = "BertModel"
    pooler_use = "optional"

    def __init__(self, config, *, pooling="mean", normalize=True, dense=None, **kwargs):
        check_choice("pooling", pooling, _MODES.values())
        config = BertConfig.of(config)
        if pooling != "pooler":
            config = dataclasses.replace(config, pooler_activation=None)
        elif config.pooler_activation is None:
            raise ArgumentError("pooling", '"mean" or "cls" for a model without a pooler')
        super().__init__(config, **kwargs)
        self.pooling, self.normalize, self._dense = pooling, normalize, dense
        self.dense = None if dense is None else dense_layer(dense)

    @classmethod
    def from_pretrained(cls, path, **changes):
        """See `Bert.from_pretrained`; by default the folder sets the other arguments."""
        found = read_pooling(path)
        model = super().from_pretrained(path, **{**found, **changes})
        if "dense" in found and model.dense is not None:
            load_dense(model.dense, path)
        return model

    @property
    def width(self):
        """int, the width of the vectors."""
        return self.config.hidden_size if self.dense is None else self.dense.units

    def build(self, input_shape=None):
        super().build()
        if self.dense is not None:
            self.dense.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        outputs, mask = self.bert(inputs, training=training), inputs.get("attention_mask")
        if self.pooling == "pooler":
            vectors = tf.cast(outputs["pooled_output"], tf.float32)
        else:
            vectors = pool_tokens(outputs["sequence_output"], mask, self.pooling)
        vectors = vectors if self.dense is None else self.dense(vectors)
        return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24) if self.normalize else vectors

    def write_side_files(self, folder):
        """See `write_pooling`."""
        width = self.config.hidden_size
        write_pooling(folder, self.pooling, self.normalize, width, self.dense)

    def variables_by_name(self):
        """See `PretrainedBert`; without the dense layer, see `write_pooling`."""
        names = super().variables_by_name()
        return {name: x for name, x in names.items() if not name.startswith("dense/")}

    def get_config(self):
        options = {"pooling": self.pooling, "normalize": self.normalize, "dense": self._dense}
        return {**super().get_config(), **options}


_BLOCKED = -1e9


@keras.saving.register_keras_serializable(package="tf_transformer")
class TwoTowers(BaseModel):
    """Bring the vectors of a query and its document together, and push others apart.

    The loss is the cross entropy of each query's document among all documents of the batch, with
    the scores q_i d_j / temperature: in-batch negatives, Henderson et al. 2017, section 4;
    sentence-transformers' MultipleNegativesRankingLoss. Differs from both: a document that equals
    the query's own, or belongs to an equal query, is not a negative.

    `compile` it without a loss and `fit` it on batches `((queries, documents),)` or `((queries,
    documents, negatives),)`. With several devices, a query only has the negatives on its own.

    Args:
        queries: `SentenceEncoder` with `normalize=True`.
        documents: None for the same encoder, or another `SentenceEncoder` of the same width.
        temperature: float above 0.

    Call arguments:
        inputs: `(queries, documents)` or `(queries, documents, negatives)`: dicts as for `Bert`,
            with B, B and B H texts; the negatives of a pair are adjacent.
        training: bool or None; dropout is only applied if true.

    Returns:
        float32 tensor (B, N), the scores; -1e9 for other documents that are not negatives.

    Raises:
        ValueError: If the temperature is not positive, an encoder does not normalize, or the widths
            differ.

    Example:
        >>> from tf_transformer.bert import BertConfig, SentenceEncoder
        >>> towers = TwoTowers(SentenceEncoder(BertConfig(13, 8, 1, 2, 16)))
        >>> queries = {"input_ids": np.array([[2, 7, 3], [2, 5, 3]])}
        >>> towers((queries, {"input_ids": np.array([[7], [5]])})).shape.as_list()
        [2, 2]
    """

    def __init__(self, queries, documents=None, *, temperature=0.05, **kwargs):
        super().__init__(**kwargs)
        self.autocast = False  # the encoders take ids
        check(temperature > 0, "temperature", "a number above 0", temperature)
        both = queries, documents or queries
        expected = "encoders with normalize=True, since scores are cosines"
        are_unit = all(encoder.normalize for encoder in both)
        check(are_unit, "queries, documents", expected, "normalize=False")
        widths = tuple(encoder.width for encoder in both)
        check(widths[0] == widths[1], "documents", f"an encoder of width {widths[0]}", widths)
        self.queries, self.documents, self.temperature = queries, documents, temperature

    @property
    def input_signature(self):
        """See `BaseModel`."""
        return tuple(
            {
                name: tf.TensorSpec(spec.shape, spec.dtype, f"{side}_{name}")
                for name, spec in self.queries.input_signature.items()
            }
            for side in ("queries", "documents")
        )

    def build(self, input_shape=None):
        for encoder in (self.queries, self.documents):
            if encoder is not None and not encoder.built:
                encoder.build()

    def call(self, inputs, training=None):
        queries, *others = inputs
        encode = self.documents or self.queries
        queries, others = self.queries.as_inputs(queries), [*map(encode.as_inputs, others)]
        left = self.queries(queries, training=training)  # (B, D)
        right = tf.concat([encode(side, training=training) for side in others], 0)  # (N, D)
        scores = tf.matmul(left, right, transpose_b=True) / self.temperature
        own = tf.eye(tf.shape(scores)[0], tf.shape(scores)[1], dtype=tf.bool)
        same = [_equal(encode, others[0], side) for side in others]
        same[0] |= _equal(self.queries, queries, queries)
        return tf.where(tf.concat(same, 1) & ~own, _BLOCKED, scores)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Mean cross entropy of each query's document, in nats."""
        del x, y, sample_weight, training
        own = tf.range(tf.shape(y_pred)[0])
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(own, y_pred)
        return global_mean(loss, tf.ones_like(loss))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Metrics of classes: the class of query i is i."""
        own = tf.range(tf.shape(y_pred)[0])
        return super().compute_metrics(x, own, y_pred, sample_weight)

    def get_config(self):
        encoders = {"queries": self.queries, "documents": self.documents}
        encoders = {k: v and keras.saving.serialize_keras_object(v) for k, v in encoders.items()}
        return {**super().get_config(), **encoders, "temperature": self.temperature}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        encoders = {
            name: keras.saving.deserialize_keras_object(config[name], custom_objects)
            for name in ("queries", "documents")
        }
        return cls(**{**config, **encoders})


def _equal(encoder, documents, others):
    """Which texts are the same: bool (B, N)."""
    pad_id = encoder.config.pad_token_id or 0
    ids, other_ids = (tf.cast(side["input_ids"], tf.int64) for side in (documents, others))
    length = tf.maximum(tf.shape(ids)[1], tf.shape(other_ids)[1])
    ids, other_ids = (
        tf.pad(x, [[0, 0], [0, length - tf.shape(x)[1]]], constant_values=pad_id)
        for x in (ids, other_ids)
    )
    return tf.reduce_all(tf.expand_dims(ids, 1) == other_ids, -1)
