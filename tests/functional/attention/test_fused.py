"""Fused attention: what is handed to cuDNN, computed by a stand-in, and which calls it takes.

The GPU is pretended; test_on_a_gpu.py runs cuDNN itself.

Axes: B batch, N heads, T target length, S source length, H head width.
"""

import json
import logging
import re

import emulated_cudnn
import numpy as np
import pytest
import tensorflow as tf
from attention_plans import near, normal
from fused_cases import CASES, B, H, N, blocked_of, check, check_rate, inputs, padding, rows, run

from tf_transformer import (
    AttentionPlan,
    LanguageModel,
    attention_plan,
    scaled_dot_product_attention,
)
from tf_transformer.export import stablehlo
from tf_transformer.functional.attention import fused, plan
from tf_transformer.functional.attention.by_distance import ByDistance

pytestmark = pytest.mark.one_of(10, "forms")


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setattr(plan, "capability", lambda: (9, 0))


@pytest.fixture
def emulated(monkeypatch):
    """Run the calls of cuDNN with a stand-in; the names of the calls."""
    names = []

    def call(name, *arguments):
        names.append(name)
        return emulated_cudnn.call_cudnn(name, *arguments)

    monkeypatch.setattr(fused, "call_cudnn", call)
    return names


@pytest.mark.one_of(4)
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_those_of_float64(case, emulated):
    t, s, mask, options = CASES[case]
    q, k, v, g = inputs(t, s)
    output, gradients = run(q, k, v, g, mask if mask is None else tf.constant(mask), **options)
    check(output, gradients, (q, k, v, g), blocked_of(t, s, mask, options))
    kind = "Softmax" if case in ("no mask", "padding", "one padding for all") else ""
    assert emulated[0].startswith(f"__cudnn$fmha{kind}") and emulated[1] == emulated[0] + "Backward"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_bias_has_a_gradient(dtype, emulated):
    given = inputs(6, 10, dtype)
    bias = normal(1, N, 6, 10, seed=7, dtype=dtype)
    output, gradients = run(*given, bias=bias)
    exact = tf.cast(bias, tf.float64).numpy()
    expected = check(output, gradients, given, np.zeros((1, 1)), exact)
    near(gradients[3], expected["bias"], dtype)
    low = tf.where(tf.range(10) < 9, tf.constant(-np.inf, dtype), bias)
    only = run(*given, bias=low)[0]
    near(only, np.broadcast_to(tf.cast(given[2], tf.float64)[:, :, 9:], only.shape), dtype)


@pytest.mark.parametrize("has_gradient", [True, False])
def test_scores_by_distance_are_a_bias(has_gradient, emulated):
    given = inputs(6, 10)
    table = normal(N, 5, seed=7, dtype="bfloat16")
    output, gradients = run(*given, bias=ByDistance(table, None, None, 1, has_gradient))
    columns = np.clip(np.arange(10) + 1 - np.arange(6)[:, None], -2, 2) + 2
    exact = tf.cast(table, tf.float64).numpy()[:, columns][np.newaxis]
    expected = check(output, gradients[:3], given, np.zeros((1, 1)), exact)
    of_table = np.zeros((N, 5))
    np.add.at(of_table, (slice(None), columns), expected["bias"][0])
    if has_gradient:
        near(gradients[3], of_table, "bfloat16")
    else:
        assert gradients[3] is None


@pytest.mark.one_of(6)
@pytest.mark.parametrize("case", ["padding", "causal, padding", "queries"])
def test_what_is_blocked_changes_no_bit(case, emulated):
    t, s, mask, options = CASES[case]
    q, k, v, g = inputs(t, s)
    mask = np.array(mask)
    mask[..., 4] = 1
    mask[1] = mask[0]
    hidden = np.broadcast_to(np.swapaxes(mask, 2, 3).all(3, keepdims=True), k.shape)
    output, gradients = run(q, k, v, g, tf.constant(mask), **options)
    others = (
        tf.where(hidden, tf.cast(173.0, k.dtype), k),
        tf.where(hidden, tf.cast(-3e4, v.dtype), v),
    )
    free_rows = ~mask.all(-1, keepdims=True) & np.ones((1, 1, t, 1), bool)
    g = tf.where(free_rows, g, tf.zeros((), g.dtype))
    (output, gradients), (other, changed) = (
        run(q, *pair, g, tf.constant(mask), **options) for pair in ((k, v), others)
    )
    rows = np.broadcast_to(free_rows, output.shape)
    np.testing.assert_array_equal(other.numpy()[rows], output.numpy()[rows])
    np.testing.assert_array_equal(changed[0], gradients[0])
    for gradient in changed[1:]:
        assert not tf.cast(gradient, tf.float32).numpy()[hidden].any()


@pytest.mark.slow
def test_dropout_has_its_rate_and_repeats(emulated):
    q, _, v, g = inputs(64, 64)
    q = k = tf.zeros_like(q)  # equal weights
    kept = tf.ones_like(v)

    def drawn(seed):
        return run(q, k, kept, g, dropout=(0.3, seed))[0]

    one = drawn(tf.constant([3, 4]))
    check_rate(one, 0.3, 64)
    np.testing.assert_array_equal(drawn(tf.constant([3, 4])), one)
    assert (drawn(tf.constant([3, 5])) != one).numpy().any()
    unknown = [run(q, k, kept, g, dropout=(0.3, tf.Variable([3, 4])))[0] for _ in range(2)]
    np.testing.assert_array_equal(*unknown)
    assert all(name.startswith("__cudnn$fmhaSoftmaxDropout") for name in emulated)

    @tf.function(jit_compile=True, autograph=False)
    def two_layers(seed):
        options = {"dropout": (0.3, seed), "plan": "fused", "return_attention_weights": False}
        return [scaled_dot_product_attention(q, k, kept, **options)[0] for _ in range(2)]

    first, second = two_layers(tf.constant([3, 4]))
    assert (first != second).numpy().any()


# What the program contains


def calls_of(function, *arguments):
    """The custom calls in the HLO of a function: target, shapes of operands, settings."""
    compiled = tf.function(function, jit_compile=True, autograph=False)
    text = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")
    found = []
    for line in text.splitlines():
        if 'custom_call_target="__cudnn' in line:
            target = re.search(r'custom_call_target="([^"]+)"', line)[1]
            operands = re.findall(r"(\w+\[[\d,]*\])", line.split("operand_layout_constraints=")[1])
            settings = json.loads(line[line.index("backend_config=") + len("backend_config=") :])
            found.append((target, operands, settings["cudnn_fmha_backend_config"]))
    return found


def test_the_program_has_a_call_forward_and_one_backward():
    q, k, v, _ = inputs(6, 10)
    mask = tf.constant(padding(10))

    def attend(q, k, v, mask):
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            output, _ = scaled_dot_product_attention(q, k, v, mask, return_attention_weights=False)
        return tape.gradient(output, [q, k, v])

    forward, backward = calls_of(attend, q, k, v, mask)
    queries, keys, sums, lengths = f"bf16[3,2,6,{H}]", f"bf16[3,2,10,{H}]", "f32[3,2,6]", "s32[3]"
    assert forward[:2] == ("__cudnn$fmhaSoftmax", [queries, keys, keys, lengths, lengths])
    operands = [queries, keys, keys, sums, queries, queries, lengths, lengths]
    assert backward[:2] == ("__cudnn$fmhaSoftmaxBackward", operands)
    for _, _, settings in (forward, backward):
        assert settings["mask_type"] == "PADDING" and np.isclose(settings["fmha_scale"], H**-0.5)
        assert settings["intermediate_tensor_shape"]["dimensions"] == ["3", "2", "6", "10"]


def test_a_language_model_needs_no_scores_of_all_pairs():
    model = LanguageModel(2, 32, 4, 48, 19, max_position=16, rate=0.0, dtype="bfloat16")
    model.build()
    calls = calls_of(model, tf.ones((2, 16), tf.int32))
    assert [call[0] for call in calls] == ["__cudnn$fmhaScaleBiasSoftmax"] * 2
    assert calls[0][2]["mask_type"] == "CAUSAL" and calls[0][1][3] == "bf16[2,1,16,16]"


# Which calls


def chosen(*given, **options):
    return run(*given, plan="auto", **options)


def test_auto_takes_what_it_can_and_the_plan_switches_it_off(emulated):
    given = inputs(6, 10)
    chosen(*given)
    assert emulated.count("__cudnn$fmhaSoftmax") == 1
    with attention_plan("whole"):
        expected, _ = chosen(*given)
    assert len(emulated) == 2
    near(run(*given)[0], tf.cast(expected, tf.float64).numpy(), "bfloat16")
    q, k, v, _ = given
    scaled_dot_product_attention(q, k, v)  # with weights
    assert len(emulated) == 4


def test_the_next_plan_is_taken_and_said_once(emulated, caplog, monkeypatch):
    monkeypatch.setattr(plan, "has_accelerator", lambda: True)
    plan._log_once.cache_clear()
    with caplog.at_level(logging.INFO, "tf_transformer"):
        for _ in range(2):
            chosen(*inputs(6, 10, "float32"))
    # TensorFlow's logger may warn of retracing: the earlier tests traced the same function.
    messages = [r.getMessage() for r in caplog.records if r.name == "tf_transformer"]
    assert messages == ["attention: not by cuDNN: float32; it needs bfloat16 or float16"]
    assert emulated == []


OTHERS = {
    "float32": (inputs(6, 10, "float32"), {}, "float32; it needs bfloat16 or float16"),
    "rank": ([x[0] for x in inputs(6, 10)], {}, "the shape .*; it needs .batch, heads"),
    "width": ([x[..., :4] for x in inputs(6, 10)], {}, "heads of width 4, .* multiple of 8"),
    "values": ((*inputs(6, 10)[:2], inputs(6, 10)[2][..., :4], None), {}, "values of width 4"),
    "window": (inputs(6, 6), {"window": 2}, "a window; it needs causal self-attention"),
    "window and mask": (
        inputs(6, 6),
        {"window": 2, "causal": True, "mask": tf.constant(padding(6))},
        "a window with a mask",
    ),
    "odd": (inputs(7, 10), {"mask": tf.constant(rows(7, 10))}, "lengths 7 and 10; it needs even"),
    "half": (inputs(6, 10, "float16"), {"mask": tf.constant(rows(6, 10))}, "a mask in float16"),
    "bias": (
        inputs(6, 10),
        {"bias": tf.zeros((B, 1, 6, 10), tf.bfloat16)},
        "a bias .*needs .1, 2, 6, 10",
    ),
    "wide bias": (inputs(6, 10), {"bias": tf.zeros((1, N, 6, 10))}, "a bias in float32, .*rounded"),
    "both": (
        inputs(6, 10),
        {"bias": tf.zeros((1, N, 6, 10), tf.bfloat16), "mask": tf.constant(rows(6, 10))},
        "a mask and a bias",
    ),
    "tables": (
        inputs(6, 10),
        {"bias": ByDistance(keys=tf.zeros((3, H), tf.bfloat16))},
        "relative positions with tables",
    ),
}


@pytest.mark.one_of(6)
@pytest.mark.parametrize("case", OTHERS)
def test_by_name_a_call_that_it_cannot_take_is_refused(case):
    (q, k, v, g), options, message = OTHERS[case]
    g = tf.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    with pytest.raises(ValueError, match=f'plan: expected "fused" for a call .*got .*{message}'):
        run(q, k, v, g, **options)
    with attention_plan("fused"), pytest.raises(ValueError, match=message):
        chosen(q, k, v, g, **options)
    chosen(q, k, v, g, **options)


def test_what_is_no_gpu_for_it(monkeypatch):
    given = inputs(6, 10)
    with tf.device("CPU:0"), pytest.raises(ValueError, match="for the CPU, by tf.device"):
        run(*given)

    @tf.function(jit_compile=True, autograph=False)
    def on_the_cpu():
        with tf.device("CPU:0"):
            return scaled_dot_product_attention(*given[:3], return_attention_weights=False)[0]

    on_the_cpu()
    for gpu, message in (((7, 5), "capability 7.5; it needs 8.0"), (None, "no NVIDIA GPU")):
        monkeypatch.setattr(plan, "capability", lambda gpu=gpu: gpu)
        with pytest.raises(ValueError, match=message):
            run(*given)
        chosen(*given)
    monkeypatch.setattr(plan, "capability", lambda: (8, 0))
    wide = [tf.repeat(x, 32, -1) for x in given]
    with pytest.raises(ValueError, match="width 256, .*at most 128"):
        run(*wide)


def test_what_needs_more_than_the_scores():
    q, k, v, g = inputs(6, 10)
    with pytest.raises(ValueError, match="weights"):
        run(q, k, v, g, return_attention_weights=True)
    with pytest.raises(ValueError, match="a plain graph; it needs XLA"):
        scaled_dot_product_attention(
            q, k, v, plan="fused", return_attention_weights=False, jit=False
        )
    with pytest.raises(ValueError, match="mask: expected float"):
        run(q, k, v, g, tf.ones((B, 1, 1, 10), tf.int32))
    with pytest.raises(ValueError, match="plan: expected .*fused.* or an AttentionPlan"):
        AttentionPlan("flash")


def test_dropout_in_a_loop_is_refused(emulated):
    q, k, v, _ = inputs(6, 10)

    @tf.function(jit_compile=True, autograph=False)
    def loop(q):
        def body(i, q):
            options = {"dropout": (0.3, [1, 2]), "plan": "fused", "return_attention_weights": False}
            return i + 1, scaled_dot_product_attention(q, k, v, **options)[0]

        return tf.while_loop(lambda i, q: i < 3, body, (0, q))

    with pytest.raises(ValueError, match="dropout in a loop"):
        loop(q)


def test_deterministic_operations_keep_the_old_plans(emulated, monkeypatch):
    monkeypatch.setattr(plan.config, "is_op_determinism_enabled", lambda: True)
    chosen(*inputs(6, 10))
    assert emulated == []


def test_a_portable_program_has_none():
    def attend(q, k, v):
        return scaled_dot_product_attention(q, k, v, return_attention_weights=False)[0]

    q, k, v, _ = inputs(6, 10)
    assert calls_of(attend, q, k, v)
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in (q, k, v)]
    assert "__cudnn" not in stablehlo(attend, *specs)
