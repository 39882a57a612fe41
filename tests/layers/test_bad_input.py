"""Errors of layers for invalid input: the argument, what was expected, what was passed."""

import pytest
import tensorflow as tf

from tf_transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
    Positional_Encoding,
    TokenEmbedding,
    Transformer,
    scaled_dot_product_attention,
)
from tf_transformer.errors import ArgumentError

N, D, F = 7, 14, 11


def ones(*shape):
    return tf.ones(shape)


@pytest.fixture(scope="module")
def attention():
    layer = MultiHeadAttention(D, N)
    layer.build((None, None, D), (None, None, D), (None, None, D))
    return layer


@pytest.mark.parametrize("num_heads", [3, 0, -1])
def test_heads_that_do_not_divide_the_width(num_heads):
    for make in (
        lambda: MultiHeadAttention(D, num_heads),
        lambda: EncoderLayer(D, num_heads, F),
        lambda: Transformer(1, D, num_heads, F, 11, 13, 8, 8),
    ):
        with pytest.raises(ValueError, match=f"d_model=14 and num_heads={num_heads}"):
            make()


X = (2, 3, D)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("q", ((3, D), X, X)),
        ("k", (X, (3, D), X)),
        ("v", (X, X, (3, D))),
        ("q", ((2, 1, 3, D), X, X)),
        ("v", (X, X, (2, 1, 3, D))),
    ],
)
def test_a_rank_other_than_three_before_and_after_building(name, shapes, attention):
    rank = rf"{name}: expected \(batch, length, width\)"
    for layer in (MultiHeadAttention(D, N), attention):
        with pytest.raises(ValueError, match=rank):
            layer(*(ones(*shape) for shape in shapes))


@pytest.mark.parametrize(("part", "name"), [(0, "wq"), (1, "wk"), (2, "wv")])
def test_a_width_other_than_the_one_built_for(part, name, attention):
    inputs = [ones(*X)] * 3
    inputs[part] = ones(2, 3, 6)
    with pytest.raises(ValueError, match=rf"{name}.*expected axis -1.*14.*\(2, 3, 6\)"):
        attention(*inputs)


def test_keys_and_values_of_other_lengths(attention):
    with pytest.raises(ValueError, match="k, v: expected one value for each key"):
        attention(ones(2, 3, D), ones(2, 5, D), ones(2, 4, D))


def test_a_batch_of_values_is_not_folded_into_the_batch_of_keys(attention):
    # 2 x 6 and 4 x 3 tokens: the same number, indistinguishable after a reshape.
    with pytest.raises(ValueError, match="k, v: expected one value for each key"):
        attention(ones(2, 5, D), ones(2, 6, D), ones(4, 3, D))


def test_queries_and_keys_of_other_batches(attention):
    with pytest.raises(ValueError, match="q, k: expected the same batch"):
        attention(ones(2, 3, D), ones(3, 5, D), ones(3, 5, D))


@pytest.mark.parametrize("rate", [-0.1, 2, float("nan"), True, "0.1"])
def test_a_rate_of_dropout_is_a_share(rate):
    for make in (EncoderLayer, DecoderLayer):
        with pytest.raises(ArgumentError, match=r"rate: expected a number in \[0, 1\], got"):
            make(D, N, F, rate)


def test_an_encoder_layer_keeps_its_width():
    with pytest.raises(ValueError, match="x: expected .*14.*got.*6"):
        EncoderLayer(D, N, F)(ones(2, 3, 6))


@pytest.mark.parametrize("make", [lambda: MultiHeadAttention(D, N), lambda: EncoderLayer(D, N, F)])
def test_an_integer_mask(make):
    layer, x = make(), ones(2, 3, D)
    inputs = (x, x, x) if isinstance(layer, MultiHeadAttention) else (x,)
    with pytest.raises(ValueError, match="mask: expected float.*int32") as error:
        layer(*inputs, mask=tf.zeros((2, 1, 1, 3), tf.int32))
    assert "tf.cast(mask, tf.float32)" in str(error.value)
    assert "tf.cast(mask, tf.bool)" in str(error.value)


def test_a_mask_that_does_not_broadcast(attention):
    with pytest.raises(ValueError, match=r"mask: .*\(2, 7, 3, 5\).*got float32 \(2, 1, 1, 3\)"):
        attention(ones(2, 3, D), ones(2, 5, D), ones(2, 5, D), ones(2, 1, 1, 3))


def test_an_unknown_jit():
    q = ones(2, 3, D)
    for jit in ("yes", None):
        with pytest.raises(ValueError, match=f"jit: expected True, False or .*got {jit!r}"):
            scaled_dot_product_attention(q, q, q, jit=jit)


# Positional encoding

TOO_LONG = "expected at most 4 positions, the size of the table, got "


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (Positional_Encoding(max_position=4), ones(2, 5, D)),
        (TokenEmbedding(11, D, max_position=4), tf.ones((2, 5), tf.int32)),
    ],
    ids=["Positional_Encoding", "TokenEmbedding"],
)
def test_a_length_past_the_table(layer, x):
    with pytest.raises(ValueError, match=f"{TOO_LONG}length 5"):
        layer(x)
    static = tf.function(layer, autograph=False)
    with pytest.raises(ValueError, match="max_position, pe_input, pe_target"):
        static.get_concrete_function(x)
    spec = tf.TensorSpec((None, None, *x.shape[2:]), x.dtype)
    dynamic = tf.function(layer, input_signature=[spec], autograph=False)
    assert dynamic(x[:, :4]).shape == (2, 4, D)
    with pytest.raises(tf.errors.InvalidArgumentError, match=TOO_LONG):
        dynamic(x)


def test_a_start_past_the_table():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        Positional_Encoding(max_position=4)(ones(1, 2, D), start=3)


def test_an_embedding_of_another_size():
    other = TokenEmbedding(13, D, max_position=4).embedding
    with pytest.raises(ValueError, match=r"embedding: .*\(11, 14\), got \(13, 14\)"):
        TokenEmbedding(11, D, max_position=4, embedding=other)


# The Transformer


def test_one_table_for_two_vocabularies():
    message = "share_embeddings: .*input_vocab_size=11 and target_vocab_size=13"
    with pytest.raises(ValueError, match=message):
        Transformer(1, D, N, F, 11, 13, 8, 8, share_embeddings=True)


@pytest.mark.parametrize(("source", "target"), [(5, 3), (3, 5)])
def test_a_sentence_longer_than_its_table(source, target):
    model = Transformer(1, D, N, F, 11, 13, pe_input=4, pe_target=4)
    sizes = [tf.ones((1, length), tf.int32) for length in (source, target)]
    with pytest.raises(ValueError, match=f"{TOO_LONG}length 5"):
        model(tuple(sizes))


def test_more_steps_than_the_table_has_positions():
    model = Transformer(1, D, N, F, 11, 13, pe_input=4, pe_target=4)
    with pytest.raises(ValueError, match="max_length: .*4.*got 5"):
        model.start(tf.constant([[5, 6]]), 5)


def test_a_mask_in_the_place_of_training():
    """`layer(x, mask)`: the notes have `layer(x, training, mask)`."""
    x, mask = ones(2, 3, D), tf.zeros((2, 1, 1, 3))
    with pytest.raises(ValueError, match="training: expected a bool or None.*mask by name"):
        EncoderLayer(D, N, F)(x, mask)


def test_a_negative_number_of_layers():
    with pytest.raises(ValueError, match="num_layers: expected at least 0, got -1"):
        Transformer(-1, D, N, F, 11, 13, 8, 8)
