"""A vector, or the logits of classes, for each text from a decoder or an encoder.

Axes: B batch, T length, D model width, F units of the last layer.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import check, check_choice
from tf_transformer.layers.architecture import HasArchitecture
from tf_transformer.layers.base_layer import TakesIds
from tf_transformer.layers.encoder import Encoder
from tf_transformer.models.base_model import BaseModel, check_pad_id
from tf_transformer.models.bert.bert import checked_inputs, dense_inputs
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.sentence_encoder import dense_layer, pool_tokens


@keras.saving.register_keras_serializable(package="tf_transformer")
class PooledModel(TakesIds, HasArchitecture, BaseModel):
    """Pool the states of a decoder, or of T5's encoder, into a vector or the logits of classes.

    `load` makes one of a folder such as that of a `LlamaForSequenceClassification`, and
    `TextEncoder.from_pretrained` one that gives vectors.

    Args:
        config: `BertConfig`: its sizes, `hidden_dropout_prob`, `labels` and `problem_type` count.
            With labels, the outputs are their logits, from a dense layer without a bias.
        architecture: None for `Encoder`'s, or an `Architecture`.
        causal: bool, whether a token attends to those before it only, as in a decoder.
        pooling: "lasttoken", "mean" or "cls", the first token.
        normalize: bool, True scales every vector to length 1.
        dense: None, or (units, activation, use_bias) of a dense layer on the pooled vectors.
        pad_id: None, or int, an id that is not the last token, whatever the mask says; it is the
            `pad_token_id` of a published classifier.

    Call arguments:
        inputs: dict of integer tensors (B, T), see `Bert`: `input_ids`, and `attention_mask` with 1
            for tokens and 0 for padding, on either side. A text has the positions that it has
            alone; for a GPT-2 transformers counts padding on the left. `token_type_ids` change
            nothing.
        training: bool or None; dropout is only applied if true.

    Returns:
        float32 tensor (B, D) or (B, F).

    Raises:
        ValueError: If the pooling is unknown, `pad_id` is no id, `dense` has other parts, or the
            mask another shape than (B, T); for the other inputs see `Bert`.

    Example:
        >>> config = BertConfig(13, 8, 2, 2, 16, labels=("no", "yes"))
        >>> model = PooledModel(config, pooling="lasttoken", normalize=False)
        >>> model({"input_ids": tf.constant([[2, 7, 3]])}).shape.as_list()
        [1, 2]
    """

    def __init__(
        self,
        config,
        *,
        architecture=None,
        causal=True,
        pooling="mean",
        normalize=True,
        dense=None,
        pad_id=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_choice("pooling", pooling, ("lasttoken", "mean", "cls"))
        self.config = config = BertConfig.of(config)
        self.architecture = architecture
        if pad_id is not None:
            check_pad_id(pad_id, config.vocab_size)
        self._options = {"causal": causal, "pooling": pooling, "normalize": normalize}
        self._options |= {"dense": dense, "pad_id": pad_id}
        sizes = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads)
        sizes += (config.intermediate_size, config.vocab_size, config.max_position_embeddings)
        options = {"name": "decoder" if causal else "encoder", "dtype": self.dtype_policy}
        options |= {"architecture": architecture, "pad_id": None}  # the mask tells the padding
        self.stack = Encoder(*sizes, config.hidden_dropout_prob, **options)
        if config.labels:
            self.dense = dense_layer((len(config.labels), None, False), "final_layer")
        else:
            self.dense = None if dense is None else dense_layer(dense)

    @property
    def input_signature(self):
        """See `BaseModel`."""
        names = ("input_ids", "attention_mask")
        return {name: tf.TensorSpec((None, None), "int32", name) for name in names}

    def as_inputs(self, inputs):
        """See `dense_inputs`."""
        return dense_inputs(inputs)

    def build(self, input_shape=None):
        self.stack.build((None, None))
        if self.dense is not None:
            self.dense.build((None, self.config.hidden_size))

    def call(self, inputs, training=None):
        ids, _, tokens = checked_inputs(inputs)
        if tokens is None:
            tokens = tf.ones_like(ids, tf.bool)
        else:  # (B, T); padding on the left moves to the right, so that a text begins at position 0
            check(tokens.shape.rank == 2, "attention_mask", "shape (batch, length)", tokens.shape)
            first = tf.argmax(tf.cast(tokens, tf.int32), axis=1, output_type=tf.int32)
            length = tf.shape(ids)[1]
            places = (first[:, tf.newaxis] + tf.range(length)) % length
            ids, tokens = (tf.gather(x, places, batch_dims=1) for x in (ids, tokens))
        mask, options = tokens[:, tf.newaxis, tf.newaxis], self._options
        states = self.stack(ids, training, mask, causal=options["causal"])
        if options["pad_id"] is not None:
            tokens &= ids != options["pad_id"]
        vectors = pool_tokens(states, tokens, options["pooling"])
        vectors = vectors if self.dense is None else self.dense(vectors)
        if options["normalize"]:
            return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24)
        return vectors

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict(), **self._options}
