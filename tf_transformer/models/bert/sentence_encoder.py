"""BERT for sentence embeddings.

Axes: B batch, T length, D hidden size.
"""

import dataclasses

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.bert_with_head import BertWithHead
from tf_transformer.models.bert.pooling import pool_tokens, read_pooling, write_pooling
from tf_transformer.models.bert.pretrained_bert import dense_inputs

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
            raise ArgumentError("pooling", f"one of {', '.join(POOLINGS)}", f"{pooling!r}")
        config = BertConfig.of(config)
        if pooling != "pooler":
            config = dataclasses.replace(config, pooler_activation=None)
        elif config.pooler_activation is None:
            raise ArgumentError("pooling", '"mean" or "cls" for a model without a pooler')
        super().__init__(config, **kwargs)
        self.pooling = pooling
        self.normalize = normalize

    @classmethod
    def from_pretrained(cls, path, **changes):
        """See `PretrainedBert.from_pretrained`; pooling and normalisation are read from the folder
        of a sentence-transformers model, unless they are in `changes`.
        """
        return super().from_pretrained(path, **{**read_pooling(path), **changes})

    def call(self, inputs, training=None):
        inputs = dense_inputs(inputs)
        outputs = self.bert(inputs, training=training)
        if self.pooling == "pooler":
            vectors = tf.cast(outputs["pooled_output"], tf.float32)
        else:
            states = outputs["sequence_output"]
            vectors = pool_tokens(states, inputs.get("attention_mask"), self.pooling)
        return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24) if self.normalize else vectors

    def write_side_files(self, folder):
        """Write the pooling in the format of sentence-transformers (which has no pooler)."""
        write_pooling(folder, self.pooling, self.normalize, self.config.hidden_size)

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}
