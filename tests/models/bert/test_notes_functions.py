"""`transformer_model`, `attention_layer`, `BERTSelfAttention`, `BERTLayerNorm` against float64."""

import keras
import numpy as np
import pytest
import reference_bert as ref
import tensorflow as tf
from loading import close

from tf_transformer import bert
from tf_transformer.functional.attention.masks import additive_mask

pytestmark = pytest.mark.one_of(10, "bert")

B, F, T, D, N = 2, 5, 5, 14, 7


def randomised(weights):
    """Randomize the weights; return them as float64, by name below the first scope."""
    rng = np.random.default_rng(1)
    for weight in weights:
        weight.assign(rng.normal(0, 0.3, weight.shape))
    return {weight.path: np.asarray(weight, np.float64) for weight in weights}


def tensor(*shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mask(*shape):
    """Integers, 1 = may attend; every query has an open key, some have a blocked one."""
    keep = np.random.default_rng(3).integers(0, 2, shape)
    keep[..., 0] = 1
    assert (keep == 0).any()
    return keep.astype(np.int32)


def model_of(inputs, outputs):
    model = keras.Model(inputs, outputs)
    return model, randomised(model.weights)


class TestTransformerModel:
    SIZES = (D, 3, N, 11)

    @pytest.mark.parametrize("act", ["gelu", "gelu_tanh"])
    def test_all_layers_equal_the_reference(self, act):
        x, keep = keras.Input((T, D)), keras.Input((F, T), dtype="int32")
        outputs = bert.transformer_model(
            x,
            keep,
            *self.SIZES,
            intermediate_act_fn=getattr(bert, act),
            do_return_all_layers=True,
        )
        assert isinstance(outputs, list)
        model, params = model_of([x, keep], outputs)
        inputs, rows = tensor(B, T, D), mask(B, F, T)
        adder = (1.0 - rows) * -10000.0
        expected, _ = ref.encoder(inputs.astype(np.float64), params, N, 3, adder, getattr(ref, act))
        for one, other in zip(model([inputs, rows]), expected, strict=True):
            close(one, other)
        with pytest.raises(AssertionError):  # inverted mask
            close(model([inputs, 1 - rows])[-1], expected[-1])

    def test_gives_the_last_layer(self):
        x = keras.Input((T, D))
        keras.utils.set_random_seed(1)
        every = bert.transformer_model(x, None, *self.SIZES, do_return_all_layers=True)
        model, _ = model_of(x, every)
        last = keras.Model(x, bert.transformer_model(x, None, *self.SIZES))
        last.set_weights(model.get_weights())
        inputs = tensor(B, T, D)
        np.testing.assert_array_equal(last(inputs), model(inputs)[-1])

    def test_names_are_the_checkpoints(self):
        x = keras.Input((T, D))
        model = keras.Model(x, bert.transformer_model(x, None, *self.SIZES))
        paths = [weight.path for weight in model.weights]
        assert paths[:2] == [
            "encoder/layer_0/attention/self/query/kernel",
            "encoder/layer_0/attention/self/query/bias",
        ]
        assert len(paths) == 3 * 16 and len(set(paths)) == len(paths)

    def test_takes_plain_tensors_and_the_notes_shape(self):
        x = tf.random.uniform((128, 20, 32))
        output = bert.transformer_model(x, None, 32, 2, 2, 64)
        assert output.shape == (128, 20, 32)
        assert np.isfinite(output).all()

    def test_is_saved_and_loaded(self, tmp_path):
        x, keep = keras.Input((None, D)), keras.Input((None, None), dtype="int32")
        model, _ = model_of([x, keep], bert.transformer_model(x, keep, *self.SIZES))
        model.save(tmp_path / "model.keras")
        loaded = keras.models.load_model(tmp_path / "model.keras")
        inputs = tensor(B, T, D), mask(B, F, T)
        np.testing.assert_array_equal(loaded(inputs), model(inputs))

    def test_drops_in_training_only(self):
        x = keras.Input((T, D))
        model, _ = model_of(x, bert.transformer_model(x, None, *self.SIZES))
        inputs = tensor(B, T, D)
        np.testing.assert_array_equal(model(inputs), model(inputs, training=False))
        assert np.abs(model(inputs, training=True) - model(inputs)).max() > 0.01

    @pytest.mark.parametrize(
        "shape, changes, message",
        [
            ((B, T, 15), {"hidden_size": 15}, "multiple of the number of attention heads"),
            ((B, T, 12), {}, "input_tensor: expected width 14"),
            ((T, D), {}, "input_tensor: expected rank 3"),
            ((B, T, D), {"attention_mask": np.ones((B, F, T), np.float32)}, "1.0 = may attend"),
            ((B, T, D), {"intermediate_act_fn": "geluu"}, "hidden_act: expected one of gelu,"),
        ],
    )
    def test_refuses(self, shape, changes, message):
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        sizes = dict(zip(names, self.SIZES, strict=True))
        with pytest.raises(ValueError, match=message):
            bert.transformer_model(tensor(*shape), **{**sizes, **changes})


class TestAttentionLayer:
    WIDTHS = 6, 9  # from, to
    S = 3  # keys

    def layer(self, **options):
        """A model with rank-3 inputs and random weights."""
        q, k = keras.Input((F, self.WIDTHS[0])), keras.Input((self.S, self.WIDTHS[1]))
        keep = keras.Input((F, self.S), dtype="int32")
        return model_of([q, k, keep], bert.attention_layer(q, k, keep, N, 2, **options))

    def inputs(self):
        q, k = tensor(B, F, self.WIDTHS[0]), tensor(B, self.S, self.WIDTHS[1], seed=4)
        return q, k, mask(B, F, self.S)

    @pytest.mark.parametrize(
        "acts", [(None, None, None), ("tanh", "gelu", "relu")], ids=["linear", "acts"]
    )
    def test_equals_the_reference(self, acts):
        model, params = self.layer(
            **dict(zip(("query_act", "key_act", "value_act"), acts, strict=True))
        )
        q, k, keep = self.inputs()
        functions = (np.tanh, ref.gelu, lambda x: np.maximum(x, 0)) if acts[0] else acts
        expected, _ = ref.attention(
            np.float64(q), np.float64(k), params, "self", N, (1.0 - keep) * -10000.0, functions
        )
        close(model([q, k, keep]), expected)

    def test_matrices_in_and_out(self):
        model, _ = self.layer()
        q, k, keep = self.inputs()
        expected = model([q, k, keep])
        rows = [q.reshape(-1, self.WIDTHS[0]), k.reshape(-1, self.WIDTHS[1])]
        inputs = [keras.Input(x.shape[1:]) for x in rows]
        mask_input = keras.Input((F, self.S), dtype="int32")
        lengths = {"batch_size": B, "from_seq_length": F, "to_seq_length": self.S}
        outputs = [
            bert.attention_layer(*inputs, mask_input, N, 2, do_return_2d_tensor=flat, **lengths)
            for flat in (True, False)
        ]
        for output in outputs:
            again = keras.Model([*inputs, mask_input], output)
            again.set_weights(model.get_weights())
            result = np.reshape(again([*rows, keep]), expected.shape)
            np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
        assert outputs[0].shape == (B * F, N * 2)
        assert outputs[1].shape == (B, F, N * 2)

    def test_blocked_all_over_is_what_additive_means(self):
        # -10000 everywhere only affects the rounding, as in the published code.
        model, params = self.layer()
        q, k, keep = self.inputs()
        expected, _ = ref.attention(np.float64(q), np.float64(k), params, "self", N)
        close(model([q, k, np.zeros_like(keep)]), expected, 2e-3)

    @pytest.mark.parametrize(
        "q, k, options, message",
        [
            ((B, F, 6), (B * 3, 6), {}, "expected the same rank, 2 or 3"),
            ((B, 1, F, 6), (B, 1, 3, 6), {}, "expected the same rank, 2 or 3"),
            ((B * F, 6), (B * 3, 6), {"batch_size": B}, "expected all three"),
        ],
    )
    def test_refuses(self, q, k, options, message):
        with pytest.raises(ValueError, match=message):
            bert.attention_layer(tensor(*q), tensor(*k), **options)


class TestSelfAttention:
    CONFIG = bert.BertConfig(hidden_size=D, num_attention_heads=N)

    def test_equals_the_reference(self):
        layer = bert.BERTSelfAttention(self.CONFIG, name="self")
        x, keep = tensor(B, T, D), mask(B, T)
        layer(x)
        params = randomised(layer.weights)
        adder = additive_mask(keep)
        expected, _ = ref.attention(
            np.float64(x), np.float64(x), params, "self", N, adder.numpy()[:, 0]
        )
        close(layer(x, adder), expected)
        assert params.keys() >= {f"self/{name}/kernel" for name in ("query", "key", "value")}

    @pytest.mark.parametrize(
        "x, keep, message",
        [
            (tensor(B, T, D), mask(B, T), "Pass additive_mask"),
            (tensor(B, T, D), mask(B, T).astype(bool), "Pass additive_mask"),
            (tensor(B, T, D + 1), None, "expected .batch, length, 14."),
            (tensor(B, D), None, "hidden_states: expected"),
        ],
    )
    def test_refuses(self, x, keep, message):
        with pytest.raises(ValueError, match=message):
            bert.BERTSelfAttention(self.CONFIG)(x, keep)


class TestLayerNorm:
    def test_equals_the_reference(self):
        layer = bert.BERTLayerNorm(TestSelfAttention.CONFIG, name="norm")
        x = 3 + 2 * tensor(B, T, D)
        layer(x)
        params = randomised(layer.weights)
        close(layer(x), ref.layer_norm(np.float64(x), params, "norm"))
        assert [weight.name for weight in layer.weights] == ["gamma", "beta"]

    def test_epsilon(self):
        x = 1e-3 * tensor(B, T, D)
        layer = bert.BERTLayerNorm(TestSelfAttention.CONFIG, variance_epsilon=0.5, name="norm")
        layer(x)
        params = randomised(layer.weights)
        close(layer(x), ref.layer_norm(np.float64(x), params, "norm", 0.5))
        assert type(layer).from_config(layer.get_config()).epsilon == 0.5

    def test_refuses_another_width(self):
        with pytest.raises(ValueError, match="expected width 14"):
            bert.BERTLayerNorm(TestSelfAttention.CONFIG)(tensor(B, 3))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu(name):
    x = np.linspace(-6, 6, 1001)
    close(
        getattr(bert, name)(tf.constant(x)), getattr(ref, name)(x), 1e-7
    )  # the constants are float32


def test_the_two_forms_of_gelu_differ():
    x = np.linspace(-6, 6, 1001)
    assert 1e-4 < np.abs(bert.gelu(x) - bert.gelu_tanh(x)).max() < 5e-4


class TestSeveralCalls:
    """The notes call them in a loop, and layer names in a Keras model must be unique."""

    def test_two_attentions_in_a_model(self):
        x = keras.Input((T, D))
        first = bert.attention_layer(x, x, None, N, 2)
        model = keras.Model(x, bert.attention_layer(first, first, None, N, 2))
        assert [layer.name for layer in model.layers][1:] == ["self", "self_1"]
        assert model(tensor(B, T, D)).shape == (B, T, D)

    def test_two_encoders_in_a_model(self):
        x = keras.Input((T, D))
        first = bert.transformer_model(x, None, D, 1, N, 11)
        model = keras.Model(x, bert.transformer_model(first, None, D, 1, N, 11))
        assert [layer.name for layer in model.layers][1:] == ["encoder", "encoder_1"]


class TestArguments:
    def test_lists_are_tensors(self):
        rows = tensor(B * F, D).tolist()
        output = bert.attention_layer(
            rows, rows, None, N, 2, batch_size=B, from_seq_length=F, to_seq_length=T
        )
        assert output.shape == (B, F, D)
        assert bert.transformer_model(tensor(B, T, D).tolist(), None, D, 1, N, 11).shape == (
            B,
            T,
            D,
        )

    def test_no_activation(self):
        x = keras.Input((T, D))
        linear, params = model_of(
            x, bert.transformer_model(x, None, D, 1, N, 11, intermediate_act_fn=None)
        )
        inputs = tensor(B, T, D)
        adder = np.zeros((B, F, T))
        expected, _ = ref.encoder(inputs.astype(np.float64), params, N, 1, adder, lambda x: x)
        close(linear(inputs), expected[-1])

    @pytest.mark.parametrize(
        "shape, other, lengths, message",
        [
            ((10, D), (10, D), (2, 4, 5), r"from_tensor: expected 2 \* 4 rows .*from_seq_length"),
            ((10, D), (10, D), (2, 5, 4), r"to_tensor: expected 2 \* 4 rows .*to_seq_length"),
            (
                (2, 5, D),
                (3, 5, D),
                (None,) * 3,
                "to_tensor: expected the batch size of from_tensor, 2",
            ),
        ],
    )
    def test_sizes_that_do_not_fit(self, shape, other, lengths, message):
        names = ("batch_size", "from_seq_length", "to_seq_length")
        with pytest.raises(ValueError, match=message):
            bert.attention_layer(
                tensor(*shape), tensor(*other), **dict(zip(names, lengths, strict=True))
            )

    def test_integers(self):
        ids = np.ones((B, T, D), np.int32)
        with pytest.raises(ValueError, match="input_tensor: expected floats, got int32"):
            bert.transformer_model(ids, None, D, 1, N, 11)
        with pytest.raises(ValueError, match="from_tensor, to_tensor: expected floats"):
            bert.attention_layer(ids, ids)
