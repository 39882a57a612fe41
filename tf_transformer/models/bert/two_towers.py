"""Training of sentence encoders on pairs of texts.

Axes: B pairs of a batch, H hard negatives of a pair, N = B (1 + H) documents, T length.
"""

import keras
import tensorflow as tf

from tf_transformer.distribution.global_mean import global_mean
from tf_transformer.errors import ArgumentError
from tf_transformer.models.base_model import BaseModel
from tf_transformer.models.bert.pretrained_bert import dense_inputs

_BLOCKED = -1e9


@keras.saving.register_keras_serializable(package="tf_transformer")
class TwoTowers(BaseModel):
    """Brings the vectors of a query and its document together, and others apart.

    The loss is the cross entropy of each query's document among all documents of the batch, with
    the scores q_i d_j / temperature: in-batch negatives, Henderson et al. 2017, "Efficient Natural
    Language Response Suggestion for Smart Reply"; sentence-transformers'
    MultipleNegativesRankingLoss. Differs from both: a document that equals the query's own, or
    belongs to an equal query, is no negative; a batch of paraphrases often has some.

    `compile` it without a loss and `fit` it on batches `((queries, documents),)` or `((queries,
    documents, negatives),)`. Larger batches have more negatives and give better vectors; with
    several devices, the negatives of a query are those on its device.

    Args:
        queries: `SentenceEncoder` with `normalize=True`.
        documents: None for the same encoder, or another `SentenceEncoder` of the same width.
        temperature: float above 0.

    Call arguments:
        inputs: `(queries, documents)` or `(queries, documents, negatives)`: dicts as for `Bert`,
            with B, B and B H texts; the negatives of a pair are adjacent.
        training: bool or None.

    Returns:
        float32 tensor (B, N), the scores; documents that are no negatives have -1e9.

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
        if not temperature > 0:
            raise ArgumentError("temperature", "a number above 0", temperature)
        for encoder in (queries, documents):
            if encoder is not None and not encoder.normalize:
                raise ArgumentError(
                    "queries, documents",
                    "encoders with normalize=True, since scores are cosines",
                    "normalize=False",
                )
        widths = queries.config.hidden_size, (documents or queries).config.hidden_size
        if widths[0] != widths[1]:
            raise ArgumentError("documents", f"an encoder of width {widths[0]}", widths)
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
        queries, *others = map(dense_inputs, inputs)
        encode = self.documents or self.queries
        left = self.queries(queries, training=training)  # (B, D)
        right = tf.concat([encode(side, training=training) for side in others], 0)  # (N, D)
        scores = tf.matmul(left, right, transpose_b=True) / self.temperature
        own = tf.eye(tf.shape(scores)[0], tf.shape(scores)[1], dtype=tf.bool)
        same = [_equal(others[0], side) for side in others]
        same[0] |= _equal(queries, queries)
        return tf.where(tf.concat(same, 1) & ~own, _BLOCKED, scores)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Mean cross entropy of each query's document, in nats."""
        del x, y, sample_weight, training
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(_own(y_pred), y_pred)
        return global_mean(loss, tf.ones_like(loss))

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Metrics of classes: the class of query i is i."""
        del y
        return super().compute_metrics(x, _own(y_pred), y_pred, sample_weight)

    def get_config(self):
        encoders = {"queries": self.queries, "documents": self.documents}
        return {
            **super().get_config(),
            **{
                name: encoder and keras.saving.serialize_keras_object(encoder)
                for name, encoder in encoders.items()
            },
            "temperature": self.temperature,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        encoders = [
            keras.saving.deserialize_keras_object(encoder, custom_objects)
            for encoder in (config.pop("queries"), config.pop("documents"))
        ]
        return cls(*encoders, **config)


def _own(scores):
    return tf.range(tf.shape(scores)[0])


def _equal(documents, others):
    """Which texts are the same: bool (B, N)."""
    ids, other_ids = (tf.cast(side["input_ids"], tf.int64) for side in (documents, others))
    length = tf.maximum(tf.shape(ids)[1], tf.shape(other_ids)[1])
    ids, other_ids = (tf.pad(x, [[0, 0], [0, length - tf.shape(x)[1]]]) for x in (ids, other_ids))
    return tf.reduce_all(tf.expand_dims(ids, 1) == other_ids, -1)
