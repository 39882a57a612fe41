"""BERT's embeddings, its layer, and the stack of layers.

Axes: B batch, T length, M rows of a matrix of tokens, N heads, D hidden size, E width of the
embeddings, V vocabulary.
"""

import functools

import keras
import tensorflow as tf

from tf_transformer.errors import check
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.attention.masks import additive_mask, with_key_masks
from tf_transformer.functional.int8_product import LARGEST, to_int8
from tf_transformer.functional.tensors import as_ids, asserted, in_vocabulary
from tf_transformer.layers.architecture import Architecture, HasArchitecture
from tf_transformer.layers.base_layer import TakesIds
from tf_transformer.layers.feed_forwards import FeedForward, FlatDense
from tf_transformer.layers.multi_head_attention import check_heads
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.layers.positions import LearnedPositions, part_config, with_part
from tf_transformer.layers.residuals import Dropout
from tf_transformer.models.bert.attention import BertAttention, DrawnKernel, PaddedLayout, tokens_in
from tf_transformer.models.bert.bert_config import BertConfig


@functools.lru_cache(maxsize=8)  # each layer asks
def bert_architecture(config):
    """The `Architecture` of BERT, Devlin et al. 2019, section 3."""
    return Architecture(
        LearnedPositions(config.max_position_embeddings),
        LayerNorm(config.layer_norm_eps),
        feed_forward=FeedForward(config.hidden_act),
    )


@keras.saving.register_keras_serializable(package="tf_transformer")
class ConfiguredLayer(HasArchitecture, keras.layers.Layer):
    """Base class for the parts of BERT; without an `architecture`, names are the published ones."""

    def __init__(self, config, *, architecture=None, **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)
        fits = isinstance(architecture, Architecture | None)
        remedy = "For a dict use Architecture.from_dict."
        check(fits, "architecture", "None or an Architecture", f"{architecture!r}", remedy)
        self.architecture = architecture
        self.parts = architecture or bert_architecture(self.config)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertLayer(ConfiguredLayer):
    """Self-attention and a feed-forward network, each with dropout, a residual and a norm."""

    # With an `architecture`, feed-forward networks keep the initialization of Keras, whose standard
    # deviation is 0.023 in the size of BERT-base.
    ffn_before = ffn = None  # of an architecture

    def __init__(self, config, *, architecture=None, positions=None, group=0, **kwargs):
        super().__init__(config, architecture=architecture, **kwargs)
        config, parts, dtype = self.config, self.parts, self.dtype_policy
        width, (heads, inner) = config.hidden_size, config.size_of(group)
        groups, key_dim = parts.num_key_value_heads, parts.key_dim or config.head_size
        check_heads(width, heads, key_dim, groups, parts.share_qk)
        if positions is None and parts.positions.in_attention:
            positions = parts.positions.copy(dtype, name="positions").for_layer()
        self.group = group
        drawn = functools.partial(DrawnKernel, stddev=config.initializer_range)
        # Its seed is drawn before those of attention, which keeps the values of a random seed.
        kernel = drawn() if architecture is None else None
        self.attention = BertAttention(
            heads,
            key_dim,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
            initializer_range=config.initializer_range,
            positions=positions,
            num_key_value_heads=groups,
            share_qk=parts.share_qk,
            window=parts.window,
            name="self",
            dtype=dtype,
        )

        def dense(units, kernel, activation=None, name="dense"):
            return FlatDense(units, activation, kernel_initializer=kernel, name=name, dtype=dtype)

        if architecture is None:
            self.attention_output = dense(width, kernel)
            self.attention_norm = parts.new_norm("LayerNorm", dtype)
            self.intermediate = dense(inner, drawn(), get_activation(config.hidden_act))
            self.output_dense = dense(width, drawn())
            self.output_norm = parts.new_norm("LayerNorm", dtype)
        else:
            self.attention_output = dense(width, drawn(), name="output")
            self.ffn_before, self.ffn = parts.feed_forward.networks(width, inner, dtype)
            self.attention_norm = parts.new_norm("attention_norm", dtype)
            self.ffn_norm = parts.new_norm("ffn_norm", dtype)
        rate = config.hidden_dropout_prob
        self.dropout1, self.dropout2 = (Dropout(rate, dtype=dtype) for _ in range(2))
        if self.ffn_before is not None:
            self.ffn_before_norm = parts.new_norm("ffn_before_norm", dtype)
            self.dropout0 = Dropout(rate, dtype=dtype)

    def build(self, rows_shape):
        heads_shape = (*rows_shape[:-1], self.attention.query.units)
        with keras.name_scope("attention"):
            self.attention.build(rows_shape, rows_shape)
        if self.ffn is None:
            with keras.name_scope("attention"), keras.name_scope("output"):
                self.attention_output.build(heads_shape)
                self.attention_norm.build(rows_shape)
            with keras.name_scope("intermediate"):
                self.intermediate.build(rows_shape)
            with keras.name_scope("output"):
                self.output_dense.build((*rows_shape[:-1], self.intermediate.units))
                self.output_norm.build(rows_shape)
            return
        with keras.name_scope("attention"):
            self.attention_output.build(heads_shape)
        before = () if self.ffn_before is None else (self.ffn_before, self.ffn_before_norm)
        for layer in (self.attention_norm, self.ffn, self.ffn_norm, *before):
            layer.build(rows_shape)

    def forward(
        self, rows, layout, mask=None, bias=None, training=None, with_weights=False, tokens=None
    ):
        """Compute `(rows, weights)`; `tokens`, bool (M,), are for a norm over the batch."""

        def attend(y):
            context, weights = self.attention.attend(
                y, y, layout, layout, mask, bias, training, with_weights
            )
            return self.attention_output(context), weights

        def feed_forward(y):
            if self.ffn is not None:
                return self.ffn(y), None
            return self.output_dense(self.intermediate(y)), None

        join = functools.partial(self.parts.residual, training=training, tokens=tokens)
        if self.ffn_before is not None:
            rows, _ = join(
                rows, lambda y: (self.ffn_before(y), None), self.ffn_before_norm, self.dropout0
            )
        rows, weights = join(rows, attend, self.attention_norm, self.dropout1)
        norm = self.output_norm if self.ffn is None else self.ffn_norm
        rows, _ = join(rows, feed_forward, norm, self.dropout2)
        return rows, weights

    def get_config(self):
        positions = part_config(self.attention.positions)
        return {**super().get_config(), "positions": positions, "group": self.group}

    @classmethod
    def from_config(cls, config):
        return super().from_config(with_part(config))


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEmbeddings(TakesIds, ConfiguredLayer):
    """LayerNorm(word + position + segment), then dropout: ids (B, T) to (B, T, E).

    Devlin et al. 2019, section 3, figure 2. With a `pad_token_id`, positions leave out the padding,
    as in RoBERTa, Liu et al. 2019.
    """

    ids_name = "input_ids"

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        config, dtype = self.config, self.dtype_policy
        self.dropout = Dropout(config.hidden_dropout_prob, dtype=dtype)
        self.word_ranges = None  # of words in int8
        self.norm = self.parts.new_norm("norm" if self.architecture else "LayerNorm", dtype)
        positions = self.parts.positions
        self.positions = None  # BERT's are added with the segments, see `_added`
        if self.architecture is not None and positions.in_embeddings:
            self.positions = positions.copy(dtype, name="position_embeddings")
        longest, most = config.max_position_embeddings, positions.max_position
        expected = f"at least {longest} positions, the max_position_embeddings of the config"
        got = f"{most} of {type(positions).__name__}"
        check(most is None or most >= longest, "positions", expected, got)

    def build(self, input_shape):
        config, width = self.config, self.config.embedding_width
        initializer = DrawnKernel(stddev=config.initializer_range)

        def table(name, size):
            return self.add_weight((size, width), initializer.clone(), name=name)

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = None
        if config.type_vocab_size:
            self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        if self.architecture is None:
            size = config.max_position_embeddings
            self.position_embeddings = table("position_embeddings", size)
        if self.positions is not None:
            self.positions.build((None, None, width))
        self.norm.build((None, None, width))

    def call(self, input_ids, token_type_ids, training=None, *, tokens=None, input_ids_mask=None):
        tokens = input_ids_mask if tokens is None else tokens
        config, types = self.config, "token_type_ids"
        words, segments = config.vocab_size, max(1, config.type_vocab_size)
        input_ids, token_type_ids = as_ids(input_ids, self.ids_name), as_ids(token_type_ids, types)
        if not config.type_vocab_size:
            token_type_ids = tf.zeros_like(input_ids)
        input_ids = in_vocabulary(input_ids, words, self.ids_name)
        token_type_ids = in_vocabulary(token_type_ids, segments, types, "type_vocab_size")
        input_ids = self._of_length(input_ids)
        in_range = (input_ids >= 0) & (input_ids < words)
        in_range &= (token_type_ids >= 0) & (token_type_ids < segments)
        input_ids, token_type_ids = (tf.cast(x, tf.int32) for x in (input_ids, token_type_ids))
        places = self._places(input_ids)
        if self.architecture is None:  # its positions would belong to other rows
            in_range &= tf.reduce_max(places, -1, keepdims=True) < config.max_position_embeddings
        words = self._words(input_ids)  # (B, T, E)
        added, row, rows = self._added(token_type_ids, places)
        if self.positions is not None:
            words = self.positions.add(words)
        # The last row is for ids that are out of range.
        nan = tf.constant(float("nan"), added.dtype)
        added = tf.concat([added, tf.fill((1, added.shape[1]), nan)], 0)
        embedded = words + tf.gather(added, tf.where(in_range, row, rows))
        embedded = self.norm(embedded, training=training, tokens=tokens)
        return self.dropout(embedded, training=training)

    def quantize(self, mode="int8", type_check=True, config=None):
        """Round the word vectors to int8, one range for each; see `FlatDense.quantize`."""
        if mode != "int8":
            raise self._not_implemented_error(self.quantize)
        words, ranges = to_int8(tf.convert_to_tensor(self.word_embeddings), axis=1)
        del self.word_embeddings
        for name, value in (("word_embeddings", words), ("word_ranges", ranges)):
            options = {"dtype": value.dtype.name, "trainable": False, "name": name}
            weight = self.add_weight(value.shape, "zeros", **options)
            weight.assign(value)
            setattr(self, name, weight)

    def _words(self, input_ids):
        if self.word_ranges is None:
            return tf.gather(self._table(self.word_embeddings), input_ids)
        words = tf.gather(tf.convert_to_tensor(self.word_embeddings), input_ids)
        ranges = tf.gather(tf.convert_to_tensor(self.word_ranges), input_ids)
        words = tf.cast(words, tf.float32) * tf.expand_dims(ranges / LARGEST, -1)
        return tf.cast(words, self.compute_dtype)

    def _places(self, input_ids):
        """The position of each token: int32 (T,), or (B, T) if only tokens are counted."""
        pad = self.config.pad_token_id
        if pad is None or self.architecture is not None:
            return tf.range(tf.shape(input_ids)[1])
        is_token = tf.cast(tf.not_equal(input_ids, pad), tf.int32)
        return tf.cumsum(is_token, axis=1) * is_token + pad

    def _added(self, token_type_ids, places):
        """The term added to the words: a table, the row of each token (B, T), how many rows."""
        if self.token_type_embeddings is None:
            segments = tf.zeros((1, self.config.embedding_width), self.compute_dtype)
        else:
            segments = self._table(self.token_type_embeddings)
        if self.architecture is not None:
            return segments, token_type_ids, segments.shape[0]
        # The sums of all segments and positions are only a few rows.
        length = tf.shape(token_type_ids)[1]
        if self.config.pad_token_id is not None:
            length += self.config.pad_token_id + 1
            length = tf.minimum(length, self.config.max_position_embeddings)
        positions = self._table(self.position_embeddings)[:length]  # (T, E)
        added = tf.reshape(tf.expand_dims(segments, 1) + positions, (-1, segments.shape[1]))
        return added, token_type_ids * length + places, segments.shape[0] * length

    def _table(self, weight):
        return tf.cast(tf.convert_to_tensor(weight), self.compute_dtype)

    def _of_length(self, input_ids):
        """The ids, after a check that there are enough positions."""
        if self.architecture is not None:
            return input_ids  # positions with a limit check it
        most, length = self.config.max_length, input_ids.shape[1]
        pad, of = self.config.pad_token_id, "max_position_embeddings"
        of = of if pad is None else f"{of} - pad_token_id - 1"
        limit = f"at most {most} tokens ({of}), the model's number of positions"
        got = "more" if length is None or pad is not None else f"length {length}"
        error = ("input_ids", limit, got, "Truncate the texts.")
        if pad is not None:
            tokens = tf.reduce_sum(tf.cast(tf.not_equal(input_ids, pad), tf.int32), axis=1)  # (B,)
            return asserted(input_ids, tf.reduce_all(tokens <= most), *error)
        if length is None:
            return asserted(input_ids, tf.shape(input_ids)[1] <= most, *error)
        check(length <= most, *error)
        return input_ids


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertEncoder(ConfiguredLayer):
    """A stack of BERT layers; with groups, adjacent layers share weights."""

    def __init__(self, config, *, architecture=None, **kwargs):
        super().__init__(config, architecture=architecture, **kwargs)
        config, parts, dtype = self.config, self.parts, self.dtype_policy
        self.embedding_mapping = None
        if config.embedding_size is not None:
            kernel = DrawnKernel(stddev=config.initializer_range)
            options = {"kernel_initializer": kernel, "name": "embedding_hidden_mapping_in"}
            self.embedding_mapping = FlatDense(config.hidden_size, dtype=dtype, **options)
        positions = parts.positions.copy(dtype, name="positions")
        options = {"architecture": architecture, "dtype": dtype}
        self.groups = [
            BertLayer(
                config, positions=positions.for_layer(), group=n, name=f"layer_{n}", **options
            )
            for n in range(config.num_groups)
        ]
        self.group_of = tuple(map(config.group_of, range(config.num_hidden_layers)))
        has_norm = parts.residual.final_norm
        self.final_norm = parts.new_norm("final_norm", dtype) if has_norm else None

    def build(self, input_shape):
        width, shape = self.config.embedding_width, tuple(input_shape)
        expected = f"width {width}, for the residual connections"
        check(shape[-1] == width, "input_tensor", expected, f"shape {shape}")
        if self.embedding_mapping is not None:
            self.embedding_mapping.build((None, width))
        for layer in self.groups:
            layer.build((None, self.config.hidden_size))
        if self.final_norm is not None:
            self.final_norm.build((None, self.config.hidden_size))

    def call(self, input_tensor, attention_mask=None, training=None, *, input_tensor_mask=None):
        layout = PaddedLayout(*tf.unstack(tf.shape(input_tensor)[:2]))
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

    def forward(self, rows, layout, mask=None, bias=None, training=None, with_weights=False):
        """Compute all layers on a matrix of tokens: the input and all outputs, all weights."""
        outputs, weights = [self.widened(rows)], []
        for n in range(self.config.num_hidden_layers):
            rows, attention = self.forward_layer(
                n, outputs[-1], layout, mask, bias, training, with_weights
            )
            outputs.append(rows)
            weights.append(attention)
        return outputs, weights

    def widened(self, x):
        """Map embeddings to the width of the layers, if they are narrower."""
        return x if self.embedding_mapping is None else self.embedding_mapping(x)

    def forward_layer(self, n, rows, layout, mask=None, bias=None, training=None, weights=False):
        """Compute layer n, from 0, and after the last one the final norm; see `forward`."""
        layer = self.groups[self.group_of[n]]
        tokens = None if self.architecture is None else tokens_in(mask)
        if tokens is not None:
            tokens = layout.to_rows(tf.expand_dims(tokens, -1))[:, 0]
        rows, attention = layer.forward(rows, layout, mask, bias, training, weights, tokens)
        if self.final_norm is not None and n == self.config.num_hidden_layers - 1:
            rows = self.final_norm(rows, training=training, tokens=tokens)
        return rows, attention

    def compute_mask(self, inputs, previous_mask=None):
        """The Keras mask of the input, for each output."""
        return [super().compute_mask(inputs)] * self.config.num_hidden_layers
