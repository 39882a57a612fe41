"""The StableHLO of the attention core: static shapes, no custom calls, tensors of bounded size.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import math
import re

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import (
    AttentionPlan,
    SmoothedCrossentropy,
    Transformer,
    additive_attention,
    scaled_dot_product_attention,
    stablehlo,
)
from tf_transformer.functional.attention import scored
from tf_transformer.functional.attention.scaled_dot_product import cached_attention

T, S = 131, 149
pytestmark = [
    pytest.mark.one_of(10, "parts"),
    pytest.mark.one_of(10),  # of the cases of each test
]
TILED = AttentionPlan("blockwise", query_block=32, key_block=64)
WINDOWED = AttentionPlan("windowed", query_block=16)
NOT_PLAIN = re.compile(
    r"custom_call|infeed|outfeed|send|recv|callback|"  # leaves the device or calls a library
    r"tensor<[^>]*\?|dynamic_reshape|dynamic_broadcast|dynamic_pad|dynamic_iota|dynamic_gather|"
    r"real_dynamic_slice|dimension_size"  # shapes known only at run time
)
every_dtype = pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])


def sizes(text):
    """Return the set of tensor sizes (element counts) in a module."""
    shapes = re.findall(r"tensor<((?:\d+x)*)[a-z]", text)
    return {math.prod(int(n) for n in shape.split("x")[:-1]) for shape in shapes}


def inputs(dtype):
    """Return specs of q, k and v, of shape (1, 2, T or S, 8)."""
    return [tf.TensorSpec((1, 2, length, 8), dtype) for length in (T, S, S)]


def forward(q, k, v, mask=None, **options):
    return scaled_dot_product_attention(
        q, k, v, mask, return_attention_weights=False, jit=True, **options
    )[0]


def with_gradients(q, k, v, *others, **options):
    with tf.GradientTape() as tape:
        tape.watch((q, k, v))
        output = forward(q, k, v, *others, **options)
    return output, tape.gradient(output, (q, k, v))


@pytest.mark.one_of(10)
@every_dtype
@pytest.mark.parametrize("run", [forward, with_gradients])
@pytest.mark.parametrize("plan", ["whole", TILED], ids=["whole", "blockwise"])
@pytest.mark.parametrize("case", ["bare", "padding", "causal", "causal dropout"])
def test_the_core_is_plain_and_blockwise_has_no_scores(dtype, run, plan, case):
    others = [tf.TensorSpec((1, 1, 1, S))] if case == "padding" else []
    dropout = (0.1, (1, 2)) if "dropout" in case else None
    text = stablehlo(
        lambda *tensors: run(*tensors, plan=plan, causal="causal" in case, dropout=dropout),
        *inputs(dtype),
        *others,
    )
    assert not NOT_PLAIN.search(text)
    assert "stablehlo.dot_general" in text
    assert (max(sizes(text)) >= T * S) == (plan == "whole")


@every_dtype
@pytest.mark.parametrize("weights_wanted", [False, True])
def test_additive_attention_is_plain_and_has_no_hidden_layer_of_all_pairs(
    dtype, weights_wanted, monkeypatch
):
    monkeypatch.setattr(scored, "_MOST_ELEMENTS", 1024)

    def both(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            results = additive_attention(*tensors, return_attention_weights=weights_wanted)
            total = sum(tf.reduce_sum(x) for x in results if x is not None)
        return *results[: 1 + weights_wanted], *tape.gradient(total, tensors)

    parameters = [tf.TensorSpec(shape) for shape in ((8, 7), (8, 7), (7,))]
    text = stablehlo(both, *inputs(dtype), *parameters)
    assert not NOT_PLAIN.search(text)
    if weights_wanted:
        assert max(sizes(text)) < 3 * 2 * T * S  # padded to whole blocks, for two heads
    else:
        assert max(sizes(text)) < T * S


@every_dtype
@pytest.mark.parametrize("run", [forward, with_gradients])
@pytest.mark.parametrize("case", ["bare", "padding", "causal", "causal dropout"])
def test_a_window_is_plain_and_has_no_scores(dtype, run, case):
    others = [tf.TensorSpec((1, 1, 1, S))] if case == "padding" else []
    options = {"causal": "causal" in case, "dropout": (0.1, (1, 2)) if "dropout" in case else None}
    text = stablehlo(
        lambda *tensors: run(*tensors, plan=WINDOWED, window=8, **options), *inputs(dtype), *others
    )
    assert not NOT_PLAIN.search(text)
    assert max(sizes(text)) < T * S / 3


@every_dtype
def test_the_cached_step_is_plain_and_as_large_as_its_cache(dtype):
    one, cache = (tf.TensorSpec((3, 2, n, 8), dtype) for n in (1, S))

    def step(q, key, value, keys, values, position):
        return cached_attention(q, key, value, (keys, values), position, jit=True)

    position = tf.TensorSpec((), tf.int32)
    text = stablehlo(step, one, one, one, cache, cache, position)
    assert not NOT_PLAIN.search(text)
    assert max(sizes(text)) == 3 * 2 * S * 8


@pytest.mark.parametrize(
    ("plan", "window"),
    [("whole", None), (TILED, None), (WINDOWED, 8)],
    ids=["whole", "blockwise", "windowed"],
)
@pytest.mark.parametrize("run", [forward, with_gradients])
def test_bfloat16_is_multiplied_as_such_and_added_in_float32(plan, window, run):
    text = stablehlo(lambda *tensors: run(*tensors, plan=plan, window=window), *inputs(tf.bfloat16))
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert products
    for line in products:
        types = re.findall(r"x([a-z]+\d+)>", line.split(" : ")[-1])
        assert types == ["bf16", "bf16", "f32"]


def test_a_spec_of_unknown_shape_is_refused():
    with pytest.raises(ValueError, match=r"specs\[1\]: .*fully known shape.*\(None, 3\)"):
        stablehlo(tf.add, tf.TensorSpec((2, 3)), tf.TensorSpec((None, 3)))


def test_the_text_names_no_file_of_this_machine():
    assert __file__ not in stablehlo(lambda x: x + x, tf.TensorSpec((2, 3)))
    assert "loc(" not in stablehlo(lambda x: tf.nn.softmax(x + x), tf.TensorSpec((2, 3)))


def test_a_constant_mask_is_stored_in_bytes_which_every_reader_understands():
    def earlier(x):
        positions = tf.range(37)
        return tf.where(positions[:, tf.newaxis] >= positions, x, 0.0)

    text = stablehlo(earlier, tf.TensorSpec((37, 37)))
    assert not re.search(r'dense<"0x\w+"> : tensor<[^>]*xi1>', text)
    stored = re.search(r'dense<"0x(\w+)"> : tensor<37x37xi8>', text).group(1)
    mask = np.frombuffer(bytes.fromhex(stored), np.uint8).reshape(37, 37)
    np.testing.assert_array_equal(mask, np.tri(37))


def test_no_source_locations_are_left_in_a_whole_training_step():
    model = Transformer(1, 8, 2, 8, 11, 11, 8, 8, share_embeddings=True)
    model.build()
    weights, others = model.trainable_variables, model.non_trainable_variables

    def step(source, target, *values):
        trained, states = values[: len(weights)], values[len(weights) :]
        with tf.GradientTape() as tape:
            tape.watch(trained)
            logits, _ = model.stateless_call(trained, states, (source, target), training=True)
            loss = SmoothedCrossentropy(0.1)(target, logits)
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, trained)]

    specs = [tf.TensorSpec(v.shape, v.dtype) for v in (*weights, *others)]
    text = stablehlo(step, *[tf.TensorSpec((3, 5), tf.int32)] * 2, *specs)
    assert "loc" not in text
