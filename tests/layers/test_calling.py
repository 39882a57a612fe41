"""The notes' calling conventions and names, and dropout."""

import numpy as np
import pytest
import tensorflow as tf
from loading import case, close

from tf_transformer import (
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderLayer,
    MultiHeadAttention,
    Transformer,
    create_padding_mask,
)

pytestmark = pytest.mark.one_of(3, "core")

N, D, F = 7, 14, 11


@pytest.fixture
def x():
    return tf.constant(case("layers", "decoder_layer")["x"])  # (B=2, T=3, D=14)


@pytest.fixture
def enc_output():
    return tf.constant(case("layers", "decoder_layer")["enc_output"])  # (B=2, S=5, D=14)


MASK = create_padding_mask([[5, 0, 6], [7, 8, 0]])
SOURCE_MASK = create_padding_mask([[5, 0, 6, 7, 8], [7, 8, 9, 0, 0]])
INP, TAR = tf.constant([[5, 0, 6], [7, 8, 0]]), tf.constant([[1, 4], [1, 0]])


def test_encoder_layer_all_by_position(x):
    layer = EncoderLayer(D, N, F)
    by_position = layer(x, False, MASK)
    close(by_position, layer(x, training=False, mask=MASK), 0)
    close(by_position, layer(x=x, mask=MASK), 0)
    assert not np.allclose(by_position, layer(x, False))
    assert not np.allclose(by_position, layer(x, True, MASK))


def test_decoder_layer_all_by_position(x, enc_output):
    layer = DecoderLayer(D, N, F)
    look_ahead = tf.maximum(MASK, 1.0 - tf.linalg.band_part(tf.ones((3, 3)), -1, 0))
    out, block1, block2 = layer(x, enc_output, False, look_ahead, SOURCE_MASK)
    named = layer(x, enc_output, look_ahead_mask=look_ahead, padding_mask=SOURCE_MASK)
    for one, other in zip((out, block1, block2), named, strict=True):
        close(one, other, 0)
    # The masks were not swapped.
    assert (block1.numpy()[np.broadcast_to(look_ahead, block1.shape) == 1] == 0).all()
    assert (block2.numpy()[np.broadcast_to(SOURCE_MASK, block2.shape) == 1] == 0).all()
    assert layer(x, enc_output, False, look_ahead, SOURCE_MASK, False)[1:] == (None, None)


def test_multi_head_attention_all_by_position(x, enc_output):
    layer = MultiHeadAttention(D, N)
    output, weights = layer(x, enc_output, enc_output, SOURCE_MASK)
    assert output.shape == (2, 3, D) and weights.shape == (2, N, 3, 5)
    close(layer(x, enc_output, v=enc_output, mask=SOURCE_MASK)[0], output, 0)
    assert layer(x, enc_output, enc_output, SOURCE_MASK, False)[1] is None
    of_lists = SOURCE_MASK.numpy().tolist()
    close(layer(x, enc_output, enc_output, of_lists)[0], output, 0)


def test_stacks_all_by_position(enc_output):
    encoder = Encoder(1, D, N, F, 11, 8)
    close(encoder(INP, False, MASK), encoder(INP, mask=MASK), 0)
    decoder = Decoder(1, D, N, F, 11, 8)
    out, weights = decoder(TAR, enc_output, False, None, SOURCE_MASK)
    assert weights.keys() == {"decoder_layer1_block1", "decoder_layer1_block2"}
    close(out, decoder(TAR, enc_output, padding_mask=SOURCE_MASK)[0], 0)


@pytest.fixture(scope="module")
def model():
    model = Transformer(1, D, N, F, 13, 19, pe_input=8, pe_target=8, rate=0.5)
    model.build()
    return model


def test_transformer_as_the_notes_call_it(model):
    logits = model((INP, TAR), False)
    assert logits.shape == (2, 2, 19)
    close(model([INP, TAR], training=False), logits, 0)
    close(model(inputs=(INP, TAR)), logits, 0)
    close(model((INP.numpy(), TAR.numpy())), logits, 0)
    assert not np.allclose(model((INP, TAR), True), logits)
    again, weights = model((INP, TAR), False, True)
    close(again, logits, 1e-6)
    assert weights["decoder_layer1_block2"].shape == (2, N, 2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: EncoderLayer(D, N, F)(x, True, None, 1), "EncoderLayer: .*at most 3.*got 4"),
        (lambda x: DecoderLayer(D, N, F)(x, x, *[None] * 6), "DecoderLayer: .*at most 7.*got 8"),
        (
            lambda x: MultiHeadAttention(D, N)(x, x, x, None, True, None, False, 1),
            "at most 7.*got 8",
        ),
        (lambda x: EncoderLayer(D, N, F)(x, True, training=True), "training was given twice"),
    ],
    ids=["encoder layer", "decoder layer", "attention", "twice"],
)
def test_arguments_that_fit_nowhere(call, message, x):
    with pytest.raises(TypeError, match=message):
        call(x)


def test_transformer_with_too_many_arguments(model):
    with pytest.raises(TypeError, match=r"Transformer: .*\(inputs, training, .*got 4"):
        model((INP, TAR), False, False, None)


def test_sublayers_have_the_names_of_the_notes(model):
    encoder_layer, decoder_layer = model.encoder.enc_layers[0], model.decoder.dec_layers[0]
    for layer, names in (
        (encoder_layer.mha, "wq wk wv dense"),
        (encoder_layer, "mha ffn layernorm1 layernorm2 dropout1 dropout2"),
        (
            decoder_layer,
            "mha1 mha2 ffn layernorm1 layernorm2 layernorm3 dropout1 dropout2 dropout3",
        ),
        (model.encoder, "embedding"),
        (model.decoder, "embedding"),
        (model, "encoder decoder final_layer"),
    ):
        for name in names.split():
            assert getattr(layer, name).name == name
    norms = [getattr(encoder_layer, f"layernorm{i}") for i in (1, 2)]
    norms += [getattr(decoder_layer, f"layernorm{i}") for i in (1, 2, 3)]
    assert {norm.epsilon for norm in norms} == {1e-6}
    paths = [weight.path for weight in model.weights]
    assert len(set(paths)) == len(paths)
    assert any(path.endswith("encoder/layer0/mha/wq/kernel") for path in paths)


def test_split_heads_gives_each_head_its_own_columns(x):
    heads = MultiHeadAttention(D, N).split_heads(x, 2)
    assert heads.shape == (2, N, 3, 2)
    for n in range(N):
        close(heads[:, n], x[:, :, 2 * n : 2 * n + 2], 0)


# Dropout


def test_dropout_acts_only_when_training(x, enc_output):
    mask = None
    for layer, arguments in (
        (EncoderLayer(D, N, F, rate=0.5), (x,)),
        (DecoderLayer(D, N, F, rate=0.5), (x, enc_output)),
    ):

        def run(training, layer=layer, arguments=arguments):
            return tf.nest.flatten(layer(*arguments, training, mask))[0].numpy()

        still = run(False)
        np.testing.assert_array_equal(run(None), still)
        np.testing.assert_array_equal(run(False), still)
        assert not np.allclose(run(True), still)
        assert not np.allclose(run(True), run(True))


def test_a_rate_of_zero_trains_as_it_predicts(x):
    layer = EncoderLayer(D, N, F, rate=0.0)
    close(layer(x, True, MASK), layer(x, False, MASK), 0)


def test_dropout_falls_on_each_sublayer_and_on_the_embedding(monkeypatch):
    model = Transformer(1, D, N, F, 13, 19, pe_input=8, pe_target=8, rate=0.3)
    called = []
    original = Dropout.call

    def spy(self, inputs, training=False):
        called.append((self.path, self.rate, training))
        return original(self, inputs, training=training)

    monkeypatch.setattr(Dropout, "call", spy)
    model((INP, TAR), True)
    # Encoder: embedding, attention, feed-forward. Decoder: one more attention.
    assert len(called) == len(set(called)) == 3 + 4
    assert {(rate, training) for _, rate, training in called} == {(0.3, True)}
