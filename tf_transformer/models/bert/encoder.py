"""BERT's embeddings and its stack of layers.

Axes: B batch, T length, M tokens, N heads, D hidden size, E width of the embeddings, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import additive_mask, with_key_masks
from tf_transformer.functional.ids import as_ids, asserted, in_vocabulary
from tf_transformer.functional.int8_product import LARGEST, to_int8
from tf_transformer.layers.base_layer import TakesIds
from tf_transformer.layers.dropout import Dropout
from tf_transformer.layers.flat_dense import FlatDense
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.models.bert.attention import DrawnKernel
from tf_transformer.models.bert.layers import (
    BertArchitectureLayer,
    BertLayer,
    LayerWithArchitecture,
)
from tf_transformer.models.bert.token_layout import padded_layout, token_rows


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEmbeddings(TakesIds, LayerWithArchitecture):
    """LayerNorm(word + position + segment), then dropout.

    Devlin et al. 2019, section 3, figure 2. The three tables are named as in the published
    checkpoints.

    Args:
        config: `BertConfig`, or its dict.
        architecture: None, or an `Architecture`: its norm replaces LayerNorm, and its positions, if
            they are added to embeddings, the table of positions. There is no table otherwise.

    Call arguments:
        input_ids, token_type_ids: integer tensors (B, T); see `as_ids`.
        training: bool or None; dropout is only applied if true.
        tokens: None, or bool tensor (B, T), False for padding, for a norm over the batch; by
            default the Keras mask of `input_ids`.

    Returns:
        (B, T, E).

    Raises:
        ValueError: If T is larger than the table of positions, or in eager mode an id is out of
            range. If the positions of an architecture are fewer than `max_position_embeddings`,
            which does not limit T otherwise.
        tf.errors.InvalidArgumentError: If, in a graph, an id is out of range or T is too large. XLA
            cannot raise errors: there all outputs for that text are NaN.
    """

    ids_name = "input_ids"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        dtype = self.dtype_policy
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=dtype)
        self.word_ranges = None  # of words in int8
        self.positions = None
        if self.architecture is None:
            self.norm = LayerNorm(config.layer_norm_eps, name="LayerNorm", dtype=dtype)
            return
        self.norm = self.architecture.new_norm("norm", dtype)
        positions = self.architecture.positions
        if positions.in_embeddings:
            self.positions = positions.copy(dtype, name="position_embeddings")
        longest = config.max_position_embeddings
        if positions.max_position is not None and positions.max_position < longest:
            raise ArgumentError(
                "positions",
                f"at least {longest} positions, the max_position_embeddings of the config",
                f"{positions.max_position} of {type(positions).__name__}",
            )

    def build(self, input_shape):
        config, width = self.config, self.config.embedding_width
        initializer = DrawnKernel(stddev=config.initializer_range)
        sizes = {
            "word_embeddings": config.vocab_size,
            "token_type_embeddings": config.type_vocab_size,
        }
        if self.architecture is None:
            sizes["position_embeddings"] = config.max_position_embeddings
        for name, size in sizes.items():
            table = self.add_weight(name=name, shape=(size, width), initializer=initializer.clone())
            setattr(self, name, table)
        if self.positions is not None:
            self.positions.build((None, None, width))
        self.norm.build((None, None, width))

    def call(self, input_ids, token_type_ids, training=None, *, tokens=None, input_ids_mask=None):
        tokens = input_ids_mask if tokens is None else tokens
        config, types = self.config, "token_type_ids"
        input_ids, token_type_ids = as_ids(input_ids, self.ids_name), as_ids(token_type_ids, types)
        input_ids = in_vocabulary(input_ids, config.vocab_size, self.ids_name)
        token_type_ids = in_vocabulary(
            token_type_ids, config.type_vocab_size, types, "type_vocab_size"
        )
        input_ids = self._of_length(input_ids)
        in_range = (
            (input_ids >= 0)
            & (input_ids < config.vocab_size)
            & (token_type_ids >= 0)
            & (token_type_ids < config.type_vocab_size)
        )
        if self.architecture is None:  # its positions would be those of other rows
            in_range &= tf.shape(input_ids)[1] <= config.max_position_embeddings
        input_ids, token_type_ids = (tf.cast(x, tf.int32) for x in (input_ids, token_type_ids))
        words = self._words(input_ids)  # (B, T, E)
        added, row, rows = self._added(token_type_ids)
        if self.positions is not None:
            words = self.positions.add(words)
        # One more row, the last, for what is out of range.
        nan = tf.constant(float("nan"), added.dtype)
        added = tf.concat([added, tf.fill((1, config.embedding_width), nan)], 0)
        embedded = words + tf.gather(added, tf.where(in_range, row, rows))
        embedded = self.norm(embedded, training=training, tokens=tokens)
        return self.dropout(embedded, training=training)

    def quantize(self, mode="int8", type_check=True, config=None):
        """Round the word vectors to 8 bits, one range for each; the other tables are small.

        Args:
            mode: "int8", the only one.
            type_check, config: as in Keras; not used.

        Raises:
            NotImplementedError: If the mode is another one.
        """
        if mode != "int8":
            raise self._not_implemented_error(self.quantize)
        words, ranges = to_int8(tf.convert_to_tensor(self.word_embeddings), axis=1)
        del self.word_embeddings
        for name, value in (("word_embeddings", words), ("word_ranges", ranges)):
            weight = self.add_weight(
                value.shape, "zeros", value.dtype.name, trainable=False, name=name
            )
            weight.assign(value)
            setattr(self, name, weight)

    def _words(self, input_ids):
        if self.word_ranges is None:
            return tf.gather(self._table(self.word_embeddings), input_ids)
        words = tf.gather(tf.convert_to_tensor(self.word_embeddings), input_ids)
        ranges = tf.gather(tf.convert_to_tensor(self.word_ranges), input_ids)
        words = tf.cast(words, tf.float32) * tf.expand_dims(ranges / LARGEST, -1)
        return tf.cast(words, self.compute_dtype)

    def _added(self, token_type_ids):
        """What is added to the words: a table, the row for each token (B, T), the number of rows.

        BERT's positions are part of it: all sums of a segment and a position are few rows.
        """
        segments = self._table(self.token_type_embeddings)
        if self.architecture is not None:
            return segments, token_type_ids, self.config.type_vocab_size
        length = tf.shape(token_type_ids)[1]
        positions = self._table(self.position_embeddings)[:length]  # (T, E)
        added = tf.reshape(tf.expand_dims(segments, 1) + positions, (-1, segments.shape[1]))
        row = token_type_ids * length + tf.range(length)
        return added, row, self.config.type_vocab_size * length

    def _table(self, weight):
        return tf.cast(tf.convert_to_tensor(weight), self.compute_dtype)

    def _of_length(self, input_ids):
        """The ids, which must be no more than there are positions."""
        if self.architecture is not None:
            return input_ids  # positions with a limit check it
        most, length = self.config.max_position_embeddings, input_ids.shape[1]
        error = ArgumentError(
            "input_ids",
            f"at most {most} tokens (max_position_embeddings), the model's number of positions",
            "more" if length is None else f"length {length}",
            "Truncate the texts.",
        )
        if length is None:
            return asserted(input_ids, tf.shape(input_ids)[1] <= most, error)
        if length > most:
            raise error
        return input_ids


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEncoder(LayerWithArchitecture):
    """A stack of BERT layers; with groups, adjacent layers share weights.

    Devlin et al. 2019, section 3; weight sharing and narrower embeddings follow Lan et al. 2020,
    "ALBERT", section 3.1.
    """

    def __init__(self, config, *, jit="auto", **kwargs):
        super().__init__(config, **kwargs)
        config = self.config
        self.jit = jit
        self.embedding_mapping = None
        if config.embedding_size is not None:
            self.embedding_mapping = FlatDense(
                config.hidden_size,
                kernel_initializer=DrawnKernel(stddev=config.initializer_range),
                name="embedding_hidden_mapping_in",
                dtype=self.dtype_policy,
            )
        self.final_norm = None
        options = [
            {"group": n, "jit": jit, "name": f"layer_{n}", "dtype": self.dtype_policy}
            for n in range(config.num_groups)
        ]
        if self.architecture is None:
            self.groups = [BertLayer(config, **one) for one in options]
            return
        parts = self.architecture
        positions = parts.positions.copy(self.dtype_policy, name="positions")
        self.groups = [
            BertArchitectureLayer(
                config, architecture=parts, positions=positions.for_layer(), **one
            )
            for one in options
        ]
        if parts.residual.final_norm:
            self.final_norm = parts.new_norm("final_norm", self.dtype_policy)

    def build(self, input_shape):
        width = self.config.embedding_width
        if input_shape[-1] != width:
            raise ArgumentError(
                "input_tensor",
                f"width {width}, for the residual connections",
                f"shape {tuple(input_shape)}",
            )
        if self.embedding_mapping is not None:
            self.embedding_mapping.build((None, width))
        for layer in self.groups:
            layer.build((None, self.config.hidden_size))
        if self.final_norm is not None:
            self.final_norm.build((None, self.config.hidden_size))

    def call(self, input_tensor, attention_mask=None, training=None, *, input_tensor_mask=None):
        layout = padded_layout(*tf.unstack(tf.shape(input_tensor)[:2]))
        mask, bias = None, None if attention_mask is None else additive_mask(attention_mask)
        if self.architecture is not None and bias is not None:  # its positions may need the bias
            mask, bias = tf.equal(bias, 0.0), None  # (B, 1, F or 1, T)
        padding = with_key_masks(None, input_tensor, input_tensor_mask)  # (B, 1, T)
        if padding is not None:
            mask = padding if mask is None else mask & tf.expand_dims(padding, 1)
        outputs, _ = self.forward(layout.to_rows(input_tensor), layout, mask, bias, training)
        outputs = [layout.to_batch(rows) for rows in outputs[1:]]
        for output in outputs:
            output.set_shape((*input_tensor.shape[:2], self.config.hidden_size))
        return outputs

    def forward(
        self,
        rows,
        layout,
        mask=None,
        bias=None,
        training=None,
        return_attention_weights=False,
    ):
        """Compute all layers on a matrix of tokens."""
        outputs, weights = [self.widened(rows)], []
        for n in range(self.config.num_hidden_layers):
            rows, attention = self.forward_layer(
                n, outputs[-1], layout, mask, bias, training, return_attention_weights
            )
            outputs.append(rows)
            weights.append(attention)
        return outputs, weights

    def widened(self, x):
        """Map embeddings to the width of the layers, if they are narrower."""
        return x if self.embedding_mapping is None else self.embedding_mapping(x)

    def forward_layer(self, n, rows, layout, mask=None, bias=None, training=None, weights=False):
        """Compute layer n, from 0, and after the last one the final norm; see `forward`."""
        layer = self.groups[self.config.group_of(n)]
        rows, attention = layer.forward(rows, layout, mask, bias, training, weights)
        if self.final_norm is not None and n == self.config.num_hidden_layers - 1:
            tokens = token_rows(mask, layout)
            rows = self.final_norm(rows, training=training, tokens=tokens)
        return rows, attention

    def compute_mask(self, inputs, previous_mask=None):
        """The Keras mask of the input, for each output."""
        return [super().compute_mask(inputs)] * self.config.num_hidden_layers

    def get_config(self):
        return {**super().get_config(), "jit": self.jit}
