"""Token ids come in as every layer and model takes them: whole, in range, never in 16 bits.

Axes: B batch, T length, V vocabulary.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import ComplexEmbedding, Decoder, Encoder, LanguageModel, TokenEmbedding
from tf_transformer import Transformer as EncoderDecoder
from tf_transformer.bert import BertConfig, BertForTokenClassification, SentenceEncoder
from tf_transformer.functional.tensors import as_ids, in_vocabulary
from tf_transformer.layers.complex_encoder import ComplexEncoder

pytestmark = pytest.mark.one_of(3, "core")

V, D = 2053, 6
IDS = np.array([[5, 2048, 7], [2049, 8, 0]])
SIZES = {"num_layers": 1, "d_model": D, "num_heads": 3, "dff": 5, "rate": 0.0}
CONFIG = BertConfig(V, D, 1, 3, 5, max_position_embeddings=5, labels=("a", "b"))
STATES = np.random.default_rng(0).normal(size=(2, 3, D)).astype(np.float32)


class Rows(list):
    """What pandas and others are to TensorFlow: something that becomes an array."""

    def __array__(self, dtype=None, copy=None):
        return np.array(list(self), dtype)


MODELS = {
    "TokenEmbedding": (lambda: TokenEmbedding(V, D, 5, 0.0), None),
    "Encoder": (lambda: Encoder(**SIZES, input_vocab_size=V, maximum_position_encoding=5), None),
    "Decoder": (
        lambda: Decoder(**SIZES, target_vocab_size=V, maximum_position_encoding=5),
        lambda layer, ids: layer(ids, STATES, return_attention_weights=False)[0],
    ),
    "ComplexEmbedding": (lambda: ComplexEmbedding(V, D), None),
    "ComplexEncoder": (lambda: ComplexEncoder(**SIZES, input_vocab_size=V), None),
    "LanguageModel": (lambda: LanguageModel(**SIZES, vocab_size=V, max_position=5), None),
    "Transformer": (
        lambda: EncoderDecoder(
            **SIZES, input_vocab_size=V, target_vocab_size=V, pe_input=5, pe_target=5
        ),
        lambda model, ids: model((ids, ids)),
    ),
    "Bert": (
        lambda: BertForTokenClassification(CONFIG),
        lambda model, ids: model({"input_ids": ids}),
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def made(name):
    make, call = MODELS[name]
    model = make()
    return model, (lambda ids: call(model, ids)) if call else model


@pytest.mark.parametrize(
    "ids",
    [
        *(IDS.astype(f"{sign}int{bits}") for sign in ("", "u") for bits in (16, 32, 64)),
        IDS.astype(np.float32),
        IDS.astype(np.float64),
        IDS.tolist(),
        Rows(IDS.tolist()),
        tf.Variable(IDS),
        tf.ragged.constant([[5, 2048, 7], [2049, 8]]),
    ],
    ids=lambda ids: f"{type(ids).__name__} {getattr(ids, 'dtype', '')}",
)
def test_what_is_taken(ids):
    np.testing.assert_array_equal(as_ids(ids), IDS)
    assert as_ids(ids).dtype in (tf.int32, tf.int64)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_eight_bits_do_not_wrap_around(dtype):
    ids = np.array([[np.iinfo(dtype).max, 0]], dtype)
    assert as_ids(ids).numpy().tolist() == ids.tolist()


def test_64_bits_do_not_become_an_id_in_range():
    for number in (2**32 + 5, 2**64 - 5):
        with pytest.raises(ValueError, match=r"ids: expected ids in \[0, 11\)"):
            in_vocabulary(as_ids(np.array([[number]], np.uint64)), 11)


@pytest.mark.parametrize(
    "ids, message",
    [
        (IDS.astype(np.float16), "expected integers, got float16"),
        (tf.cast(IDS, tf.bfloat16), "expected integers, got bfloat16"),
        (IDS > 0, "expected integers, got bool"),
        ([[True]], "expected integers, got bool"),
        ([["a"]], "expected integers, got string"),
        (keras.Input((None,), dtype="float16"), "expected integers, got float16"),
        (IDS + 0.5, "expected whole numbers"),
        (np.array([[np.nan]]), "expected whole numbers"),
        (np.array([[np.inf]]), "expected whole numbers"),
        (np.array([[2.0**24]], np.float32), "expected whole numbers below 16777216"),
        (tf.sparse.from_dense(IDS), "expected a dense or ragged tensor, got a sparse one"),
        ([[1, 2], [3]], r"expected integers .*tf.ragged.constant\(ids\)"),
        (np.array([[1, 2], [3]], object), r"expected integers .*tf.ragged.constant\(ids\)"),
    ],
)
def test_what_is_refused(ids, message):
    with pytest.raises(ValueError, match=f"ids: {message}"):
        as_ids(ids)


def test_a_fraction_in_a_graph():
    whole = tf.constant([[5.0, 1.5]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="ids: expected whole numbers"):
        tf.function(as_ids)(whole)
    assert tf.function(as_ids, jit_compile=True)(whole).numpy().tolist() == [[5, -1]]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float16"])
def test_vectors_of_a_half_precision_policy_are_those_of_keras(policy):
    keras.config.set_dtype_policy(policy)
    try:
        layer, plain = TokenEmbedding(V, D, 5, 0.0), keras.layers.Embedding(V, D)
        inputs = keras.Input((None,))  # float32
        model = keras.Model(inputs, [layer(inputs), plain(inputs)])
        in_a_row = keras.Sequential([keras.Input((None,)), layer])
    finally:
        keras.config.set_dtype_policy("float32")
    plain.embeddings.assign(layer.embedding.embeddings)
    found, vectors = model(IDS)
    positions = layer.positions.positional_encoding(3, D)
    expected = tf.cast(vectors, tf.float32) * D**0.5 + positions
    np.testing.assert_allclose(tf.cast(found, tf.float32), expected, atol=2e-2)
    assert np.abs(found[0, 1] - vectors[1, 0]).max() > 0.1
    np.testing.assert_array_equal(in_a_row(IDS), found)
    np.testing.assert_array_equal(in_a_row.predict(IDS, verbose=0), found)


@pytest.mark.one_of(10)
@every_model
def test_neighbors_above_2048_stay_apart_in_half_precision(name):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        _, call = made(name)
        expected = call(IDS)
        inputs = keras.Input((None,))
        model = keras.Model(inputs, call(inputs)) if name != "Decoder" else call
    finally:
        keras.config.set_dtype_policy("float32")
    np.testing.assert_array_equal(model(IDS.astype(np.float32)), expected)
    other = np.where(IDS == 2048, 2049, IDS)
    assert np.abs(model(other)[0, 1] - expected[0, 1]).max() > 1e-3
    with pytest.raises(ValueError, match="expected integers, got float16"):
        call(IDS.astype(np.float16))


@pytest.mark.one_of(10)
@every_model
def test_ids_out_of_range(name):
    _, call = made(name)
    expected = call(IDS)
    graph = tf.function(call, input_signature=[tf.TensorSpec((None, None), tf.int64)])
    xla = tf.function(call, jit_compile=True)
    for bad in (V, -1, 2**32 + 5):
        ids = np.array(IDS)
        ids[1, 1] = bad
        argument = {"Transformer": "inp", "Bert": "input_ids"}.get(name, "ids")
        message = rf"{argument}: expected ids in \[0, {V}\) \(vocab_size\), got"
        with pytest.raises(ValueError, match=f"{message} {bad}"):
            call(ids)
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            graph(ids)
        found = xla(ids).numpy()
        assert np.isnan(found[1, 1]).all()
        np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(graph(IDS), expected, atol=1e-5)


@every_model
def test_other_ranks(name):
    _, call = made(name)
    for ids in (IDS[0], tf.constant(IDS[0]), IDS[0, 0], IDS[None]):
        message = rf"expected integers \(batch, length\), got shape \({str(np.shape(ids))[1:-1]}\)"
        with pytest.raises(ValueError, match=message):
            call(ids)


def test_the_transformer_names_the_side():
    model, _ = made("Transformer")
    with pytest.raises(ValueError, match=r"tar: expected ids in \[0, 2053\)"):
        model((IDS, IDS + V))
    with pytest.raises(ValueError, match="tar: expected integers, got float16"):
        model((IDS, IDS.astype(np.float16)))
    with pytest.raises(ValueError, match=r"inputs: expected \(inp, tar\)"):
        model(IDS)
    with pytest.raises(ValueError, match="inp: expected ids in"):
        model.start(IDS + V, 3)


def test_a_prompt_out_of_range():
    model, _ = made("LanguageModel")
    with pytest.raises(ValueError, match=r"prompt: expected ids in \[0, 2053\)"):
        model.start(np.array([[2**32 + 5]]), 3)


@pytest.mark.one_of(10)
@every_model
def test_ragged_ids_and_lists(name):
    model, call = made(name)
    ragged = tf.ragged.constant([[5, 2048, 7], [2049, 8]], dtype=tf.uint16)
    if name == "Bert":
        expected = model({"input_ids": IDS, "attention_mask": IDS != 0})
        assert np.abs(expected - call(IDS)).max() > 1e-5  # padding would count
    else:
        expected = call(IDS)
    np.testing.assert_array_equal(call(ragged), expected)
    if name != "Decoder":  # whose second argument is of one length
        np.testing.assert_array_equal(call(IDS.tolist()), call(IDS))
        spec = tf.RaggedTensorSpec((None, None), tf.uint16)
        graph = tf.function(call, input_signature=[spec])
        np.testing.assert_allclose(graph(ragged), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LanguageModel", "Bert"])
def test_ragged_batches_in_fit_and_predict(name):
    rows = tf.ragged.constant([[5, 2048, 7], [2049, 8], [3], [9, 10, 11, 4]])
    labels = np.array([[1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]])
    padded, mask = rows.to_tensor().numpy(), tf.sequence_mask(rows.row_lengths()).numpy()
    histories = []
    for ids in (rows, padded):
        keras.utils.set_random_seed(1)
        model, _ = made(name)
        model.build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, jit_compile=False)
        x = ids
        if name == "Bert":
            x = {"input_ids": ids} if ids is rows else {"input_ids": ids, "attention_mask": mask}
        data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(4)
        losses = model.fit(data, verbose=0, epochs=2, shuffle=False).history["loss"]
        histories.append((losses, model.predict(x, verbose=0)))
    np.testing.assert_allclose(histories[0][0], histories[1][0], rtol=1e-5)
    np.testing.assert_allclose(histories[0][1], histories[1][1], atol=1e-5)


def test_ragged_ids_of_bert_bring_their_mask():
    """Attention and sentence means never go beyond a row, whatever the mask."""
    model = SentenceEncoder(CONFIG)
    rows = tf.ragged.constant([[5, 6, 7], [8, 9]])
    ids, mask = rows.to_tensor(), np.array([[1, 1, 1], [1, 1, 0]])
    expected = model({"input_ids": ids, "attention_mask": mask})
    for given in (
        {"input_ids": rows},
        {"input_ids": rows, "token_type_ids": tf.zeros_like(rows), "attention_mask": None},
        {"input_ids": rows, "attention_mask": tf.ones_like(rows)},
        {"input_ids": rows, "attention_mask": np.ones((2, 3), bool)},
        {"input_ids": [[5, 6, 7], [8, 9, 0]], "attention_mask": mask.tolist()},
    ):
        np.testing.assert_array_equal(model(given), expected)
    plain = model.bert({"input_ids": ids, "attention_mask": mask})["sequence_output"]
    every = {"input_ids": rows, "attention_mask": np.ones((2, 3, 3), np.int32)}
    np.testing.assert_allclose(model.bert(every)["sequence_output"], plain, atol=1e-6)


@every_model
def test_no_rows(name):
    _, call = made(name)
    if name != "Decoder":
        assert call(IDS[:0]).shape[:2] == (0, 3)
