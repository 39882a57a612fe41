"""The reference itself, compared with sources other than this library.

All other tests rely on `reference_numpy`, so it is checked against hand calculations, Keras and
TensorFlow in float64, and known values. See `test_reference_training` for training.
"""

import ast
import math
from pathlib import Path

import keras
import numpy as np
import parameter_trees as trees
import pytest
import reference_numpy as ref
import tensorflow as tf
from exact import close
from hypothesis import given, settings
from hypothesis import strategies as st

SUPPORT = Path(__file__).resolve().parent
VECTORS = SUPPORT.parent / "vectors"
# Keras rounds 1 / sqrt(H) to float32 even in a float64 layer; at H = 4 nothing is lost.
B, T, S, N, H = 2, 3, 5, 7, 4
D, F, V = N * H, 11, 19

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.one_of(10, "layers")]


def padded_ids():
    """Return source ids with padding inside the first row and at the end of the second."""
    return np.array([[3, 0, 7, 11, 5], [2, 9, 4, 0, 0]])


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_the_reference_imports_only_numpy():
    tree = ast.parse((SUPPORT / "reference_numpy.py").read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(n) for n in imports] == ["import numpy as np"]


# Attention


def hand_attention():
    """Return q, k, v with H = 4 (a scale of 1/2) and scores [[ln 3, 0], [0, ln 7]]."""
    q = np.array([[2.0, 0, 0, 0], [0, 2, 0, 0]])
    k = np.array([[math.log(3), 0, 0, 0], [0, math.log(7), 0, 0]])
    v = np.array([[8.0, 0], [0, 16]])
    return q, k, v


def test_attention_by_hand():
    output, weights = ref.scaled_dot_product_attention(*hand_attention())
    close(weights, [[3 / 4, 1 / 4], [1 / 8, 7 / 8]])
    close(output, [[6, 4], [1, 14]])


def test_attention_by_hand_with_the_future_blocked():
    blocked = np.array([[False, True], [False, False]])
    output, weights = ref.scaled_dot_product_attention(*hand_attention(), blocked)
    close(weights, [[1, 0], [1 / 8, 7 / 8]])
    close(output, [[8, 0], [1, 14]])
    assert weights[0, 1] == 0.0


def test_a_row_with_every_key_blocked_is_a_uniform_average():
    blocked = np.array([[True, True], [False, False]])
    output, weights = ref.scaled_dot_product_attention(*hand_attention(), blocked)
    np.testing.assert_array_equal(weights[0], [1 / 2, 1 / 2])
    np.testing.assert_array_equal(output[0], [4, 8])
    close(output[1], [1, 14])


def test_attention_scores_do_not_overflow():
    q, k, v = hand_attention()
    output, weights = ref.scaled_dot_product_attention(1e6 * q, k, v)
    np.testing.assert_array_equal(weights, np.eye(2))
    np.testing.assert_array_equal(output, v)


def test_float_and_bool_blocked_read_the_same(rng):
    q, k, v = (rng.standard_normal((B, N, n, H)) for n in (T, S, S))
    mask = ref.padding_mask(padded_ids())
    for a, b in zip(
        ref.scaled_dot_product_attention(q, k, v, mask),
        ref.scaled_dot_product_attention(q, k, v, mask.astype(bool)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from([1e-3, 1.0, 30.0]),
    target=st.integers(1, 5),
    source=st.integers(1, 7),
)
def test_attention_laws(seed, scale, target, source):
    rng = np.random.default_rng(seed)
    q = scale * rng.standard_normal((2, target, 3))
    k, v = rng.standard_normal((2, 2, source, 3))
    blocked = rng.random((2, target, source)) < 0.5
    output, weights = ref.scaled_dot_product_attention(q, k, v, blocked)

    close(weights.sum(-1), np.ones((2, target)))
    has_free_key = ~blocked.all(-1, keepdims=True)
    assert (weights[blocked & has_free_key] == 0.0).all()
    expected = np.broadcast_to(1 / source, weights.shape)
    np.testing.assert_array_equal(
        np.where(has_free_key, 0, weights), np.where(has_free_key, 0, expected)
    )
    # Blocked keys and values do not change a row, bitwise.
    never_seen = (blocked & has_free_key).all(1)  # (2, source): blocked in all rows, no row uniform
    changed_k = np.where(never_seen[..., None], 1e3, k)
    changed_v = np.where(never_seen[..., None], -1e3, v)
    again, _ = ref.scaled_dot_product_attention(q, changed_k, changed_v, blocked)
    np.testing.assert_array_equal(output, again)


def test_softmax_matches_tensorflow(rng):
    x = 10 * rng.standard_normal((B, T, S))
    close(ref.softmax(x), tf.nn.softmax(x).numpy())
    close(ref.softmax(x, axis=1), tf.nn.softmax(x, axis=1).numpy())
    close(ref.log_softmax(x), tf.nn.log_softmax(x).numpy())


def test_split_heads_gives_each_head_its_own_columns():
    x = np.arange(B * T * D).reshape(B, T, D)
    heads = ref.split_heads(x, N)
    assert heads.shape == (B, N, T, H)
    for n in range(N):
        np.testing.assert_array_equal(heads[:, n], x[:, :, n * H : (n + 1) * H])
    np.testing.assert_array_equal(ref.merge_heads(heads), x)


def keras_attention(params, q, k, v, may_attend):
    """Return a float64 `keras.layers.MultiHeadAttention` with the same weights."""
    layer = keras.layers.MultiHeadAttention(num_heads=N, key_dim=H, dtype="float64")
    layer.build(q.shape, v.shape, k.shape)
    # Keras's order is query, key, value, output; its kernels have separate axes for the heads.
    weights = []
    for name in ("wq", "wk", "wv"):
        weights += [params[name]["kernel"].reshape(D, N, H), params[name]["bias"].reshape(N, H)]
    weights += [params["dense"]["kernel"].reshape(N, H, D), params["dense"]["bias"]]
    layer.set_weights(weights)
    output, scores = layer(
        tf.constant(q),
        tf.constant(v),
        tf.constant(k),
        attention_mask=None if may_attend is None else tf.constant(may_attend),
        return_attention_scores=True,
    )
    return output.numpy(), scores.numpy()


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_matches_keras(rng, masked):
    params = trees.random_mha_params(rng, D)
    q, k, v = (rng.standard_normal((B, n, D)) for n in (T, S, S))
    mask = ref.padding_mask(padded_ids()) if masked else None
    output, weights = ref.multi_head_attention(params, q, k, v, mask, N)
    # Keras expects (B, T, S), True = may attend.
    may_attend = np.broadcast_to(mask[:, 0] == 0, (B, T, S)) if masked else None
    expected_output, expected_weights = keras_attention(params, q, k, v, may_attend)
    assert output.shape == (B, T, D)
    assert weights.shape == (B, N, T, S)
    close(output, expected_output)
    close(weights, expected_weights)


# The other sublayers


def test_layer_norm_by_hand():
    # Mean 2, biased variance 1.
    close(ref.layer_norm([1, 3], 5.0, 7.0, eps=0.0), [2, 12])
    close(ref.layer_norm([1, 3], 1.0, 0.0, eps=3.0), [-1 / 2, 1 / 2])


def keras_layer_norm(params, x):
    layer = keras.layers.LayerNormalization(epsilon=1e-6, dtype="float64")
    layer.build(x.shape)
    layer.set_weights([params["gamma"], params["beta"]])
    return layer(tf.constant(x)).numpy()


def test_layer_norm_matches_keras(rng):
    params = trees.random_layer_norm_params(rng, D)
    # A spread this small makes the epsilon matter.
    for scale in (1.0, 1e-3):
        x = scale * rng.standard_normal((B, T, D))
        close(
            ref.layer_norm(x, params["gamma"], params["beta"]), keras_layer_norm(params, x), 1e-10
        )


def keras_feed_forward(params, x):
    hidden = keras.layers.Dense(F, activation="relu", dtype="float64")
    out = keras.layers.Dense(D, dtype="float64")
    net = keras.Sequential([keras.Input(x.shape[1:], dtype="float64"), hidden, out])
    net.set_weights(
        [params[name][part] for name in ("dense1", "dense2") for part in ("kernel", "bias")]
    )
    return net(tf.constant(x)).numpy()


def test_feed_forward_matches_keras(rng):
    params = trees.random_ffn_params(rng, D, F)
    x = rng.standard_normal((B, T, D))
    close(ref.feed_forward(params, x), keras_feed_forward(params, x))


def test_positional_encoding_known_values():
    table = ref.positional_encoding(4, 4)
    assert table.shape == (1, 4, 4)
    np.testing.assert_array_equal(table[0, 0], [0, 1, 0, 1])
    # 10000^(2/4) = 100.
    expected = [math.sin(3), math.cos(3), math.sin(3 / 100), math.cos(3 / 100)]
    close(table[0, 3], expected)


@pytest.mark.parametrize("d_model", [D, 7])
def test_positional_encoding_is_a_rotation(d_model):
    """Each pair is (sin a, cos a), rotated by a fixed angle from one position to the next."""
    table = ref.positional_encoding(11, d_model)[0]
    assert table.shape == (11, d_model)
    pairs = d_model // 2
    sin, cos = table[:, 0 : 2 * pairs : 2], table[:, 1 : 2 * pairs : 2]
    close(sin**2 + cos**2, np.ones((11, pairs)))
    turn = np.array([math.exp(-2 * j / d_model * math.log(10000)) for j in range(pairs)])
    close(sin[1:], sin[:-1] * np.cos(turn) + cos[:-1] * np.sin(turn))


# Masks


def test_masks_known_values():
    source_mask, combined, cross_mask = ref.create_masks(padded_ids(), [[1, 0, 12], [1, 17, 0]])
    np.testing.assert_array_equal(source_mask[:, 0, 0], [[0, 1, 0, 0, 0], [0, 0, 0, 1, 1]])
    np.testing.assert_array_equal(source_mask, cross_mask)
    np.testing.assert_array_equal(
        combined[:, 0],
        [[[0, 1, 1], [0, 1, 1], [0, 1, 0]], [[0, 1, 1], [0, 0, 1], [0, 0, 1]]],
    )
    assert source_mask.shape == (B, 1, 1, S)
    assert combined.shape == (B, 1, T, T)
    np.testing.assert_array_equal(ref.look_ahead_mask(3), [[0, 1, 1], [0, 0, 1], [0, 0, 0]])
    assert {m.dtype for m in (source_mask, combined, ref.look_ahead_mask(3))} == {np.dtype("f4")}


# Layers and the model


def keras_encoder_layer(params, x, may_attend):
    attn, _ = keras_attention(params["mha"], x, x, x, may_attend)
    out1 = keras_layer_norm(params["layernorm1"], x + attn)
    return keras_layer_norm(params["layernorm2"], out1 + keras_feed_forward(params["ffn"], out1))


def keras_decoder_layer(params, x, enc_output, self_may, cross_may):
    attn1, block1 = keras_attention(params["mha1"], x, x, x, self_may)
    out1 = keras_layer_norm(params["layernorm1"], attn1 + x)
    attn2, block2 = keras_attention(params["mha2"], out1, enc_output, enc_output, cross_may)
    out2 = keras_layer_norm(params["layernorm2"], attn2 + out1)
    ffn = keras_feed_forward(params["ffn"], out2)
    return keras_layer_norm(params["layernorm3"], ffn + out2), block1, block2


@pytest.mark.parametrize("tied", [False, True])
def test_transformer_matches_keras_parts(rng, tied):
    """The whole model, assembled again from Keras layers."""
    params = trees.random_transformer_params(
        rng,
        num_layers=2,
        d_model=D,
        dff=F,
        input_vocab_size=13,
        target_vocab_size=V,
        tied=tied,
    )
    inp, tar = padded_ids(), np.array([[1, 0, 12], [1, 17, 0]])
    logits, weights = ref.transformer(params, inp, tar, N)

    source_may = np.broadcast_to((inp != 0)[:, None, :], (B, S, S))
    cross_may = source_may[:, :T]
    self_may = (tar != 0)[:, None, :] & np.tri(T, dtype=bool)

    def keras_embed(table, ids):
        layer = keras.layers.Embedding(*table.shape, dtype="float64")
        layer.build()
        layer.set_weights([table])
        positions = [
            [(math.cos if i % 2 else math.sin)(p / 10000 ** ((i - i % 2) / D)) for i in range(D)]
            for p in range(ids.shape[1])
        ]
        return layer(tf.constant(ids)).numpy() * math.sqrt(D) + np.array(positions)

    x = keras_embed(params["encoder"]["embedding"], inp)
    for layer in params["encoder"]["layers"]:
        x = keras_encoder_layer(layer, x, source_may)
    y = keras_embed(params["decoder"]["embedding"], tar)
    expected_weights = []
    for layer in params["decoder"]["layers"]:
        y, *blocks = keras_decoder_layer(layer, y, x, self_may, cross_may)
        expected_weights += blocks
    if tied:
        expected = np.einsum("btd,vd->btv", y, params["decoder"]["embedding"])
    else:
        expected = np.einsum("btd,dv->btv", y, params["final_layer"]["kernel"])
        expected = expected + params["final_layer"]["bias"]

    assert logits.shape == (B, T, V)
    close(logits, expected, 1e-10)
    names = [f"decoder_layer{i}_block{j}" for i in (1, 2) for j in (1, 2)]
    assert list(weights) == names
    for name, block in zip(names, expected_weights, strict=True):
        close(weights[name], block, 1e-10)


def test_greedy_decode_is_its_own_teacher():
    """One forward pass over the decoded rows predicts each of their tokens."""
    vectors = np.load(VECTORS / "transformer.npz")
    params = trees.unflatten(vectors, "params")
    start, end = int(vectors["greedy/start"]), int(vectors["greedy/end"])
    max_len = int(vectors["greedy/max_len"])
    tokens = ref.greedy_decode(params, vectors["inp"], start, end, max_len, N)
    np.testing.assert_array_equal(tokens, vectors["greedy/tokens"])
    logits, _ = ref.transformer(params, vectors["inp"], tokens[:, :-1], N)
    best = np.sort(logits, axis=-1)
    ends = 0
    for row, predicted, ranked in zip(tokens, logits.argmax(-1), best, strict=True):
        assert row[0] == start
        length = list(row).index(end) if end in row else len(row) - 1
        ends += end in row
        np.testing.assert_array_equal(row[1 : length + 1], predicted[:length])
        margin = ranked[:length, -1] - ranked[:length, -2]
        assert margin.min() > 0.05, "float32 could choose another token"
        assert len(set(row[: length + 1])) >= 4
        assert (row[length + 1 :] == 0).all()
    assert ends == 1, "expected one row to end early and one to reach max_len"
    assert tokens.shape[1] == 1 + max_len


def test_greedy_decode_stops_when_every_row_has_ended():
    vectors = np.load(VECTORS / "transformer.npz")
    params, tokens = trees.unflatten(vectors, "params"), vectors["greedy/tokens"]
    row = next(i for i in range(B) if vectors["greedy/end"] in tokens[i])
    start, end = int(vectors["greedy/start"]), int(vectors["greedy/end"])
    alone = ref.greedy_decode(params, vectors["inp"][row : row + 1], start, end, 11, N)
    assert alone[0, -1] == end
    np.testing.assert_array_equal(alone[0], tokens[row, : alone.shape[1]])
