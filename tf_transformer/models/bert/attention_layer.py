"""Attention as a function, as in the notes.

Axes: B batch, F length of the queries, T length of the keys, N heads, H head width.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.attention.masks import additive_mask, with_key_masks
from tf_transformer.models.bert.bert_attention import BertAttention
from tf_transformer.models.bert.notes_call import as_tensor, unique_name
from tf_transformer.models.bert.token_layout import padded_layout


def attention_layer(
    from_tensor,
    to_tensor,
    attention_mask=None,
    num_attention_heads=1,
    size_per_head=512,
    query_act=None,
    key_act=None,
    value_act=None,
    attention_probs_dropout_prob=0.0,
    initializer_range=0.02,
    do_return_2d_tensor=False,
    batch_size=None,
    from_seq_length=None,
    to_seq_length=None,
):
    """Create multi-head attention and apply it from one tensor to another.

    softmax(Q K^T / sqrt(H) + (1 - attention_mask) * -10000) V in each head, "Attention Is All You
    Need", section 3.2.2, without an output projection.

    Args:
        from_tensor: float tensor (B, F, width) or (B * F, width), or `keras.Input`.
        to_tensor: float tensor (B, T, width) or (B * T, width).
        attention_mask: None, or an integer tensor (B, F, T), 1 = may attend.
        num_attention_heads, size_per_head: int, N and H.
        query_act, key_act, value_act: None, functions, or names of `functional.activations`.
        attention_probs_dropout_prob: float in [0, 1), dropout of attention weights.
        initializer_range: float, standard deviation of new kernels.
        do_return_2d_tensor: bool, True returns a matrix.
        batch_size, from_seq_length, to_seq_length: int, B, F and T; required for matrices.

    Keras masks: padding of `to_tensor` is blocked, and the mask of `from_tensor` passed on.

    Returns:
        (B, F, N * H), or (B * F, N * H) with `do_return_2d_tensor`.

    Raises:
        ValueError: If the ranks of the two tensors differ or are neither 2 nor 3, lengths are
            missing or do not match the matrices, the batch sizes differ, an input is an integer
            tensor, or the mask is float.

    Differs from the notes: dropout is only applied in training; a float mask is rejected.

    Example:
        >>> rows = attention_layer(
        ...     tf.ones((2, 3, 8)), tf.ones((2, 5, 8)), None, 2, 4, do_return_2d_tensor=True
        ... )
        >>> rows.shape.as_list()
        [6, 8]
    """
    from_tensor, to_tensor = as_tensor(from_tensor), as_tensor(to_tensor)
    rank = len(from_tensor.shape)
    if rank != len(to_tensor.shape) or rank not in (2, 3):
        raise ArgumentError(
            "from_tensor, to_tensor",
            "the same rank, 2 or 3",
            f"shapes {tuple(from_tensor.shape)} and {tuple(to_tensor.shape)}",
        )
    lengths = (batch_size, from_seq_length, to_seq_length)
    if rank == 2 and None in lengths:
        raise ArgumentError(
            "batch_size, from_seq_length, to_seq_length",
            "all three, since from_tensor is a matrix",
            lengths,
        )
    for name, tensor, length in (
        ("from_tensor", from_tensor, from_seq_length),
        ("to_tensor", to_tensor, to_seq_length),
    ):
        rows = tensor.shape[0]
        if rank == 2 and rows is not None and rows != batch_size * length:
            raise ArgumentError(
                name,
                f"{batch_size} * {length} rows (batch_size, "
                f"{name.removesuffix('tensor')}seq_length)",
                f"shape {tuple(tensor.shape)}",
            )
    batches = (tensor.shape[0] for tensor in (from_tensor, to_tensor))
    if rank == 3 and len({*batches} - {None}) > 1:
        raise ArgumentError(
            "to_tensor",
            f"the batch size of from_tensor, {from_tensor.shape[0]}",
            f"shape {tuple(to_tensor.shape)}",
        )
    layer = _Attention(
        num_attention_heads,
        size_per_head,
        query_act=query_act,
        key_act=key_act,
        value_act=value_act,
        attention_probs_dropout_prob=attention_probs_dropout_prob,
        initializer_range=initializer_range,
        lengths=lengths if rank == 2 else None,
        do_return_2d_tensor=do_return_2d_tensor,
        name=unique_name("self"),
    )
    return layer(from_tensor, to_tensor, attention_mask)


@keras.saving.register_keras_serializable(package="tf_transformer")
class _Attention(BertAttention):
    """The layer behind `attention_layer`, so that it can be part of a Keras model."""

    def __init__(self, *args, lengths, do_return_2d_tensor, **kwargs):
        super().__init__(*args, **kwargs)
        self.lengths = lengths
        self.do_return_2d_tensor = do_return_2d_tensor

    def call(
        self, from_tensor, to_tensor, attention_mask=None, training=None, *, to_tensor_mask=None
    ):
        mask = with_key_masks(None, to_tensor, to_tensor_mask)  # (B, 1, T) or (1, B * T)
        if self.lengths is None:
            batch, queries = tf.unstack(tf.shape(from_tensor)[:2])
            keys = tf.shape(to_tensor)[1]
            static = from_tensor.shape[:2]
        else:
            batch, queries, keys = self.lengths
            static = (batch, queries)
            mask = mask if mask is None else tf.reshape(mask, (batch, 1, keys))
        from_layout, to_layout = padded_layout(batch, queries), padded_layout(batch, keys)
        rows, _ = self.attend(
            from_layout.to_rows(from_tensor),
            to_layout.to_rows(to_tensor),
            from_layout,
            to_layout,
            mask,
            bias=None if attention_mask is None else additive_mask(attention_mask),
            training=training,
        )
        if self.do_return_2d_tensor:
            return rows
        output = from_layout.to_batch(rows)
        output.set_shape((*static, rows.shape[-1]))
        return output

    def compute_mask(self, inputs, previous_mask=None):
        """The Keras mask of `from_tensor`, if the output has its axes."""
        if self.do_return_2d_tensor != (self.lengths is not None):
            return None
        return super().compute_mask(inputs, previous_mask)

    def get_config(self):
        return {
            **super().get_config(),
            "lengths": self.lengths,
            "do_return_2d_tensor": self.do_return_2d_tensor,
        }
