"""Keras masks, from `Embedding(mask_zero=True)` or `Masking`: obeyed, and passed on.

Axes: B batch, T queries, S keys, N = 7 heads, D = 14 width, F = 11 feed-forward, V = 11 words.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from loading import close

from tf_transformer import (
    Architecture,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    LanguageModel,
    MaskedAccuracy,
    SmoothedCrossentropy,
    TokenEmbedding,
    Transformer,
)
from tf_transformer.bert import BertConfig, BERTSelfAttention, attention_layer, transformer_model
from tf_transformer.functional.attention.plan import attention_plan
from tf_transformer.layers import (
    AdditiveAttention,
    AlibiPositions,
    BatchNorm,
    BilinearAttention,
    ComplexEncoderLayer,
    ComplexMultiHeadAttention,
    ComplexToReal,
    Dropout,
    FeedForward,
    FlatDense,
    GatedFeedForward,
    LayerNorm,
    MacaronFeedForward,
    MultiHeadAttention,
    MultiplicativeAttention,
    NaiveBatchNorm,
    Positional_Encoding,
    PreNorm,
    RMSNorm,
    RotaryPositions,
)
from tf_transformer.layers.feed_forwards import GatedDense
from tf_transformer.models.bert.encoder import BertEncoder

pytestmark = pytest.mark.one_of(3, "core")

N, D, F, V = 7, 14, 11, 11
SHORT = np.array([[5, 3]], np.int32)
# Padding at the end, in the middle and at the beginning; without positions only the order counts.
PADDED = np.array([[5, 3, 0, 0, 0], [0, 5, 0, 3, 0], [0, 0, 0, 5, 3]], np.int32)
SOURCE = np.array([[7, 0, 8], [9, 2, 4], [6, 0, 0]], np.int32)
CONFIG = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": N}
CONFIG |= {"intermediate_size": F, "vocab_size": V}
RNG = np.random.default_rng(5)
TABLE = RNG.standard_normal((V, D)).astype(np.float32)
VALUES = RNG.standard_normal((3, 3, 5)).astype(np.float32)


def embedded(ids, mask_zero=True):
    """Word vectors, which carry a Keras mask: True = keep."""
    layer = keras.layers.Embedding(V, D, mask_zero=mask_zero)
    layer.build()
    layer.set_weights([TABLE])
    return layer(ids)


def keras_mask(tensor):
    return getattr(tensor, "_keras_mask", None)


def large(layer):
    """Give a layer weights with which attention is far from uniform."""
    layer.set_weights([RNG.normal(0, 0.5, w.shape).astype(np.float32) for w in layer.get_weights()])
    return layer


def after_one_call(*layers):
    """Function of x that applies layers of self-attention, with large weights."""

    def apply(x):
        for layer in layers:
            is_mha = "Attention" in type(layer).__name__ and not isinstance(
                layer, BERTSelfAttention
            )
            inputs = (x, x, x) if is_mha else (x,)
            if not layer.built:
                layer(*inputs)
                large(layer)
            x = layer(*inputs)
            x = x[0] if isinstance(x, tuple) else x[-1] if isinstance(x, list) else x
        return x

    return apply


def decoder_layer(**options):
    layer = DecoderLayer(D, N, F)
    layer(embedded(SHORT), embedded(SHORT))
    large(layer)
    return lambda x: layer(x, x, **options)[0]


def architecture(**parts):
    return {"architecture": Architecture(**parts)}


CASES = {
    "two EncoderLayer": lambda: after_one_call(EncoderLayer(D, N, F), EncoderLayer(D, N, F)),
    "PreNorm, Macaron, GQA": lambda: after_one_call(
        *(
            EncoderLayer(
                D,
                N,
                F,
                **architecture(
                    residual=PreNorm(),
                    feed_forward=MacaronFeedForward(),
                    num_key_value_heads=1,
                    norm=RMSNorm(),
                ),
            )
            for _ in range(2)
        )
    ),
    "MultiHeadAttention": lambda: after_one_call(MultiHeadAttention(D, N)),
    "DecoderLayer": decoder_layer,
    "DecoderLayer causal": lambda: decoder_layer(causal=True),
    "AdditiveAttention": lambda: after_one_call(AdditiveAttention(F)),
    "BilinearAttention": lambda: after_one_call(BilinearAttention()),
    "MultiplicativeAttention": lambda: after_one_call(MultiplicativeAttention()),
    "ComplexMultiHeadAttention": lambda: after_one_call(ComplexMultiHeadAttention(D, N)),
    "ComplexEncoderLayer": lambda: after_one_call(
        ComplexEncoderLayer(D, N, F), ComplexEncoderLayer(D, N, F)
    ),
    "BERTSelfAttention": lambda: after_one_call(BERTSelfAttention(BertConfig(**CONFIG))),
    "BertEncoder": lambda: after_one_call(BertEncoder(BertConfig(**CONFIG))),
    "BertEncoder, PreNorm": lambda: after_one_call(
        BertEncoder(BertConfig(**CONFIG), **architecture(residual=PreNorm()))
    ),
}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", CASES)
def test_padding_changes_nothing_and_the_mask_goes_on(name):
    layer = CASES[name]()
    expected, output = layer(embedded(SHORT)), layer(embedded(PADDED))
    found, right = output[PADDED != 0], np.tile(expected[0], (3, 1))
    for part in (np.real, np.imag):
        close(part(found), part(right), 1e-6)
    np.testing.assert_array_equal(keras_mask(output), PADDED != 0)
    without = layer(embedded(PADDED, mask_zero=False))
    assert keras_mask(without) is None
    assert np.abs(without - output)[PADDED != 0].max() > 1e-4  # it is the mask that helps


@pytest.mark.parametrize(
    "function",
    [
        lambda x: transformer_model(x, None, D, 2, N, F),
        lambda x: attention_layer(x, x, None, N, D // N),
    ],
    ids=["transformer_model", "attention_layer"],
)
def test_functions_of_the_notes(function):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    model = large(keras.Model(ids, function(x)))
    output = model(PADDED)
    close(output[PADDED != 0], np.tile(model(SHORT)[0], (3, 1)), 1e-6)
    np.testing.assert_array_equal(keras_mask(output), PADDED != 0)


def test_attention_from_rows_to_rows():
    keep = (SOURCE != 0).reshape(9)
    queries, keys = RNG.random((15, D)), RNG.random((9, D)) * keep[:, None]
    lengths = {"batch_size": 3, "from_seq_length": 5, "to_seq_length": 3}
    keras.utils.set_random_seed(1)
    rows = attention_layer(
        queries, keras.layers.Masking()(keys), None, N, 2, do_return_2d_tensor=True, **lengths
    )
    keras.utils.set_random_seed(1)
    mask = np.broadcast_to(keep.reshape(3, 1, 3), (3, 5, 3)).astype(np.int32)
    expected = attention_layer(queries, keys, mask, N, 2, do_return_2d_tensor=True, **lengths)
    close(rows, expected, 1e-6)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("plan", ["whole", "rowwise", "blockwise"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("part", [None, RotaryPositions, AlibiPositions])
def test_plans_windows_and_positions(plan, window, part):
    if window and plan != "whole":
        pytest.skip("a window has plans of its own")
    layer = MultiHeadAttention(D, N, window=window, positions=part and part())
    x = embedded(PADDED)
    layer(x, x, x)
    large(layer)
    with attention_plan(plan):
        output, _ = layer(x, x, x, None, False, causal=True)
    plain = tf.convert_to_tensor(x.numpy())
    blocked = tf.cast(PADDED == 0, tf.float32)[:, None, None]
    expected, _ = layer(plain, plain, plain, blocked, causal=True)
    close(output, expected, 1e-5)


BOTH = {
    "float (T, S)": (RNG.random((5, 3)) < 0.4).astype(np.float32),
    "float (B, 1, 1, S)": (RNG.random((3, 1, 1, 3)) < 0.4).astype(np.float32),
    "float (B, N, T, S)": (RNG.random((3, N, 5, 3)) < 0.4).astype(np.float32),
    "bool (B, S)": np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]], bool),
    "bool (B, T, S)": RNG.random((3, 5, 3)) < 0.6,
    "bool (B, N, T, S)": RNG.random((3, N, 5, 3)) < 0.6,
}


@pytest.mark.parametrize("groups", [N, 1])
@pytest.mark.parametrize("name", BOTH)
def test_a_mask_and_a_keras_mask_both_block(name, groups):
    mask = BOTH[name]
    free = mask if mask.dtype == bool else mask == 0
    if mask.dtype == bool and mask.ndim < 4:
        free = free.reshape(3, 1, -1, 3)
    free = np.broadcast_to(free, (3, N, 5, 3)) & (SOURCE != 0)[:, None, None]
    layer = MultiHeadAttention(D, N, num_key_value_heads=groups)
    q, k, v = embedded(PADDED), embedded(SOURCE), tf.constant(VALUES)
    layer(q, k, v)
    large(layer)
    output, weights = layer(q, k, v, mask)
    expected, its_weights = layer(*(tf.convert_to_tensor(x.numpy()) for x in (q, k, v)), free)
    close(output, expected, 1e-6)
    close(weights, its_weights, 1e-6)
    assert keras_mask(output) is not None and keras_mask(weights) is None
    assert not np.allclose(output, layer(q, k, v)[0], atol=1e-3)


def test_by_position_and_in_training():
    layer = EncoderLayer(D, N, F, rate=0.0)
    look_ahead = np.triu(np.ones((5, 5), np.float32), 1)
    x = embedded(PADDED)
    layer(x)
    large(layer)
    free = (look_ahead == 0) & (PADDED != 0)[:, None, None]
    expected = layer(tf.convert_to_tensor(x.numpy()), True, free)
    output = layer(x, True, look_ahead)
    close(output, expected, 1e-6)
    np.testing.assert_array_equal(keras_mask(output), PADDED != 0)
    assert keras_mask(expected) is None  # a mask that is given is no Keras mask
    decoder = DecoderLayer(D, N, F, rate=0.0)
    source = embedded(SOURCE)
    decoder(x, source)
    large(decoder)
    extra = np.array([[[[0, 1, 0]]]], np.float32)
    output, *weights = decoder(x, source, True, look_ahead, extra)
    both = (extra == 0) & (SOURCE != 0)[:, None, None]
    plain = [tf.convert_to_tensor(t.numpy()) for t in (x, source)]
    expected, *its_weights = decoder(*plain, True, free, both)
    for found, right in zip((output, *weights), (expected, *its_weights), strict=True):
        close(found, right, 1e-6)
    np.testing.assert_array_equal(keras_mask(output), PADDED != 0)
    assert all(keras_mask(w) is None for w in weights)


def test_keras_own_attention_gives_the_same():
    theirs = keras.layers.MultiHeadAttention(N, D // N)
    ours = MultiHeadAttention(D, N)

    def inputs():  # anew: Keras's layer takes the masks away from its inputs
        v = np.where(SOURCE[..., None] == 2, 0, VALUES)  # a key without a value
        return embedded(PADDED), embedded(SOURCE), keras.layers.Masking()(v)

    q, k, v = inputs()
    theirs.build(q.shape, v.shape, k.shape)
    ours.build(q.shape, k.shape, v.shape)
    large(theirs)
    parts = (ours.wq, ours.wk, ours.wv, ours.dense)
    variables = [w for part in parts for w in (part.kernel, part.bias)]
    for variable, value in zip(variables, theirs.get_weights(), strict=True):
        variable.assign(np.reshape(value, variable.shape))
    for causal in (False, True):
        q, k, v = inputs()
        output, _ = ours(q, k, v, causal=causal)
        expected = theirs(q, v, k, use_causal_mask=causal)
        close(output[PADDED != 0], expected[PADDED != 0], 1e-6)
        np.testing.assert_array_equal(keras_mask(output), PADDED != 0)
        np.testing.assert_array_equal(keras_mask(expected), PADDED != 0)
    q, k, v = inputs()
    plain = ours(q, tf.convert_to_tensor(k.numpy()), v)[0]
    assert not np.allclose(output[0, 0], plain[0, 0], atol=1e-3)


def test_a_row_with_every_key_blocked_is_a_uniform_average():
    layer = MultiHeadAttention(D, N)
    x = embedded(np.array([[5, 3, 7], [0, 0, 0]]))
    layer(x, x, x)
    large(layer)
    output, weights = layer(x, x, x)
    close(weights[1], np.full((N, 3, 3), 1 / 3), 1e-6)
    close(output[1], np.tile(layer.dense(layer.wv(x[1:]))[0].numpy().mean(0), (3, 1)), 1e-6)


def classifier():
    return keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(V, D, mask_zero=True),
            EncoderLayer(D, N, F),
            EncoderLayer(D, N, F),
            keras.layers.GlobalAveragePooling1D(),
        ]
    )


@pytest.mark.slow
def test_a_model_ignores_padding_wherever_it_runs(tmp_path):
    model = large(classifier())
    expected = np.tile(model(SHORT), (3, 1))
    close(model(PADDED), expected, 1e-6)
    close(model.predict(PADDED, verbose=0), expected, 1e-6)
    close(tf.function(model, jit_compile=True)(PADDED), expected, 1e-6)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    close(loaded(PADDED), expected, 1e-6)
    model.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(tmp_path / "saved")
    close(served.serve(tf.constant(PADDED)), expected, 1e-6)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_in_half_precision(policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = large(classifier())
    finally:
        keras.config.set_dtype_policy("float32")
    close(model(PADDED), np.tile(model(SHORT), (3, 1)), 2e-2)  # other shapes round in other places


def test_a_part_of_a_functional_model_does_not_need_the_ids():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    layer = EncoderLayer(D, N, F)
    output = layer(layer(x))  # shared
    assert keras_mask(output) is not None
    whole, part = keras.Model(ids, output), keras.Model(x, output)
    plain = tf.convert_to_tensor(TABLE[PADDED])
    close(part(plain), layer(layer(plain)), 1e-6)
    close(whole(PADDED)[0, :2], whole(SHORT)[0], 1e-6)


def test_weights_in_a_functional_model_have_no_mask():
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    output, none = MultiHeadAttention(D, N)(x, x, x, return_attention_weights=False)
    assert none is None and keras_mask(output) is not None
    output, weights = MultiHeadAttention(D, N)(x, x, x)
    out, weights2 = EncoderLayer(D, N, F)(output, return_attention_weights=True)
    assert keras_mask(out) is not None
    assert keras_mask(weights) is None and keras_mask(weights2) is None
    found = keras.Model(ids, [out, weights, weights2])(PADDED)
    np.testing.assert_array_equal(keras_mask(found[0]), PADDED != 0)
    assert keras_mask(found[1]) is None
    assert np.all(found[2][1:, :, :, 0] == 0)  # in two rows padding comes first


def test_causal_and_padding_make_no_mask_of_queries_and_keys(monkeypatch):
    from tf_transformer.layers import multi_head_attention

    masks = []
    attend = multi_head_attention.grouped_attention

    def recording(q, k, v, times, mask, **options):
        masks.append(mask.shape)
        return attend(q, k, v, times, mask, **options)

    monkeypatch.setattr(multi_head_attention, "grouped_attention", recording)
    DecoderLayer(D, N, F)(embedded(PADDED), embedded(SOURCE), causal=True)
    assert masks == [(3, 1, 5), (3, 1, 3)]


PASS_ON = {
    "Positional_Encoding": lambda: Positional_Encoding(8),
    "RotaryPositions": RotaryPositions,
    "LayerNorm": LayerNorm,
    "RMSNorm": RMSNorm,
    "BatchNorm": BatchNorm,
    "NaiveBatchNorm": NaiveBatchNorm,
    "Dropout": lambda: Dropout(0.1),
    "FlatDense": lambda: FlatDense(5),
    "GatedDense": lambda: GatedDense(5),
    "FeedForward": lambda: FeedForward().network(D, F),
    "GatedFeedForward": lambda: GatedFeedForward().network(D, F),
    "ComplexToReal": lambda: ComplexToReal(5),
}


@pytest.mark.parametrize("name", PASS_ON)
def test_layers_that_mix_no_tokens_pass_the_mask_on(name):
    output = PASS_ON[name]()(embedded(PADDED))
    np.testing.assert_array_equal(keras_mask(output), PADDED != 0)


def test_a_norm_over_the_batch_leaves_padding_out():
    x = embedded(PADDED)
    plain = tf.convert_to_tensor(x.numpy())
    expected = BatchNorm()(plain, training=True, tokens=PADDED != 0)
    close(BatchNorm()(x, training=True), expected, 1e-6)
    assert not np.allclose(NaiveBatchNorm()(x, training=True), expected, atol=1e-3)
    layer = EncoderLayer(D, N, F, 0.0, architecture=Architecture(norm=BatchNorm()))
    layer(x)
    large(layer)
    expected = layer(plain, True, mask=PADDED != 0, tokens=PADDED != 0)
    close(layer(x, True), expected, 1e-6)


def test_masking_and_time_distributed():
    layer = large_encoder_layer()
    x = np.where(PADDED[..., None] == 0, 0.0, TABLE[PADDED])
    found, expected = layer(keras.layers.Masking()(x)), layer(embedded(PADDED))
    close(found[PADDED != 0], expected[PADDED != 0], 1e-6)
    many = keras.layers.TimeDistributed(layer)(embedded(PADDED[:, None]))
    close(many[:, 0], layer(embedded(PADDED)), 1e-6)
    np.testing.assert_array_equal(keras_mask(many), (PADDED != 0)[:, None])


def large_encoder_layer():
    layer = EncoderLayer(D, N, F)
    layer(embedded(SHORT))
    return large(layer)


def large_encoder():
    encoder = Encoder(2, D, N, F, V, 8)
    encoder(SHORT)
    return large(encoder)


def test_stacks_and_models_take_masks_of_ids():
    ids = tf.constant(PADDED)
    for stack in (Encoder(2, D, N, F, V, 8), LanguageModel(2, D, N, F, V, 8)):
        assert keras_mask(stack(ids)) is None  # id 0 makes no Keras mask
    model = large(stack)
    hidden = PADDED != 5
    ids._keras_mask = tf.constant(hidden)
    blocked = ((PADDED == 0) | ~hidden).astype(np.float32)[:, None, None]
    expected = model.logits(model.decoder(tf.constant(PADDED), False, blocked, causal=True))
    output = model(ids)
    close(output, expected, 1e-6)
    np.testing.assert_array_equal(keras_mask(output), hidden)
    decoder = Decoder(1, D, N, F, V, 8)
    output, _ = decoder(tf.constant(PADDED), embedded(SOURCE))
    plain = tf.convert_to_tensor(embedded(SOURCE).numpy())
    close(output, decoder(tf.constant(PADDED), plain, padding_mask=SOURCE != 0)[0], 1e-6)
    found, _ = decoder(tf.constant(PADDED), plain, enc_output_mask=tf.constant(SOURCE != 0))
    close(found, output, 1e-6)
    encoder, ids_alone = large_encoder(), tf.constant(PADDED)
    close(encoder(ids_alone, x_mask=tf.constant(hidden)), encoder(ids_alone, mask=hidden), 1e-6)
    model = Transformer(1, D, N, F, V, V, 8, 8, share_embeddings=True)  # no layer makes the logits
    assert keras_mask(model((tf.constant(SOURCE), tf.constant(PADDED)))) is None
    np.testing.assert_array_equal(keras_mask(model((tf.constant(SOURCE), ids))), hidden)


def test_what_cannot_be_taken_is_refused():
    with pytest.raises(ValueError, match="embedding: expected a table with mask_zero=False"):
        TokenEmbedding(V, D, 8, embedding=keras.layers.Embedding(V, D, mask_zero=True))
    ids = keras.layers.Masking()(tf.constant(PADDED))  # a mask (B,), of the last axis
    with pytest.raises(ValueError, match=r"Keras mask: expected bool \(3, 5\), .*got bool \(3,\)"):
        Encoder(1, D, N, F, V, 8)(ids)


LOSSES = {
    "mse": "mse",
    "sparse_categorical_crossentropy": "sparse_categorical_crossentropy",
    "SmoothedCrossentropy": SmoothedCrossentropy(0.0),
}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("whose", ["ours", "keras"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_of_fit_is_the_mean_over_tokens(loss, whose):
    ids = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(V, D, mask_zero=True)(ids)
    if whose == "ours":
        x = EncoderLayer(D, N, F, rate=0.0)(x)
    else:
        x = keras.layers.MultiHeadAttention(N, D // N)(x, x)
    sparse, ours = loss != "mse", loss == "SmoothedCrossentropy"
    activation = "softmax" if sparse and not ours else None
    y = keras.layers.Dense(4 if sparse else 1, activation)(x)
    model = keras.Model(ids, y)
    metrics = [MaskedAccuracy()] if ours else ["accuracy"] if sparse else []
    model.compile(keras.optimizers.SGD(0.0), LOSSES[loss], metrics=metrics)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, (3, 5, 1) if not sparse else (3, 5)).astype(np.float32)
    labels[0, :2] = [[0], [1]] if not sparse else [0, 1]
    outputs, mask = model(PADDED).numpy(), PADDED != 0
    if sparse:
        shares = tf.nn.softmax(outputs).numpy() if ours else outputs
        each = -np.log(np.take_along_axis(shares, labels[..., None].astype(int), -1)[..., 0])
    else:
        each = (outputs - labels)[..., 0] ** 2
    if ours:
        mask &= labels != 0  # both are left out
    expected = each[mask].mean()  # not over the 15 positions
    assert abs(expected - each.mean()) > 1e-3
    assert np.isclose(model.evaluate(PADDED, labels, verbose=0, return_dict=True)["loss"], expected)
    history = model.fit(PADDED, labels, epochs=1, verbose=0).history
    assert np.isclose(history["loss"][0], expected, rtol=1e-5)
    if sparse:
        hits = outputs.argmax(-1)[mask] == labels[mask]
        assert np.isclose(history["accuracy"][0], hits.mean())


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
def test_ids_keep_their_mask_when_they_are_converted(dtype):
    encoder = Encoder(2, 8, 2, 16, 13, 16)
    ids = tf.constant([[5, 3, 7, 7]], dtype)
    ids._keras_mask = tf.constant([[True, True, False, False]])
    np.testing.assert_allclose(encoder(ids)[:, :2], encoder([[5, 3]]), atol=1e-6)
