import logging

import pytest
import tensorflow as tf
from attention_plans import near, normal, some_inputs

from tf_transformer import (
    EncoderLayer,
    LanguageModel,
    MultiHeadAttention,
    scaled_dot_product_attention,
)
from tf_transformer.functional.attention import plan as module
from tf_transformer.functional.attention.plan import attention_plan, use_xla

pytestmark = pytest.mark.one_of(10, "layers")


@pytest.fixture
def accelerator(monkeypatch):
    """Let the core believe in a GPU that has compiled nothing yet; XLA uses the CPU."""
    monkeypatch.setattr(module, "has_accelerator", lambda: True)
    monkeypatch.setattr(module, "_shapes", set())


def compiled_calls(function, *inputs):
    graph = tf.function(function, autograph=False).get_concrete_function(*inputs).graph
    calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    return sum(op.get_attr("_XlaMustCompile") for op in calls)


@pytest.mark.parametrize("jit", [True, False])
def test_an_explicit_choice_is_obeyed(jit, accelerator):
    assert use_xla(jit) is jit
    compiled = tf.function(lambda: use_xla(jit), jit_compile=True, autograph=False)
    assert bool(compiled()) is jit


def test_a_context_sets_what_a_call_leaves_open():
    with attention_plan(jit=True), attention_plan("whole"):
        assert use_xla("auto") and not use_xla(False)
        with attention_plan(jit="auto"):
            assert not use_xla("auto") and use_xla(True)
    assert not use_xla("auto")
    with pytest.raises(ValueError, match="jit: expected True, False or"), attention_plan(jit="on"):
        pass


def test_auto_is_a_plain_graph_on_a_cpu():
    x = normal(2, 7, 8)
    assert not use_xla("auto", x.shape, x.shape)
    layer = EncoderLayer(8, 2, 16)
    assert compiled_calls(layer, x) == 0


@pytest.mark.slow
def test_a_context_compiles_the_cores_of_a_model_and_of_its_cached_steps():
    model = LanguageModel(2, 8, 2, 16, vocab_size=11, max_position=9)
    ids = tf.constant([[1, 5, 7]])
    state = model.start(ids, 4)
    with attention_plan(jit=True):
        assert compiled_calls(model, ids) == 2
        assert compiled_calls(lambda rows: model.step(rows, state)[0], ids[:, 0]) == 2
    assert compiled_calls(model, ids) == 0


def test_auto_compiles_the_core_of_the_default_layers_on_an_accelerator(accelerator):
    layer, x = EncoderLayer(8, 2, 16), normal(2, 7, 8)
    expected = layer(x)
    assert compiled_calls(layer, x) == 1
    near(tf.function(layer)(x), expected.numpy(), "float32")


def test_auto_compiles_a_cached_step_on_an_accelerator(accelerator):
    layer, x = MultiHeadAttention(8, 2), normal(2, 1, 8)
    layer(x, x, x)
    cache = tf.zeros((2, 2, 5, 4)), tf.zeros((2, 2, 5, 4))
    assert compiled_calls(lambda x: layer.step(x, cache, 0)[0], x) == 1


def test_inside_a_program_auto_is_the_form_for_xla():
    q, k, v, g = some_inputs()

    def gradients(jit):
        @tf.function(jit_compile=True, autograph=False)
        def run(q, k, v):
            with tf.GradientTape() as tape:
                tape.watch([q, k, v])
                output, _ = scaled_dot_product_attention(q, k, v, jit=jit)
                total = tf.reduce_sum(output * g)
            return tape.gradient(total, [q, k, v])

        return run

    # Only that form has barriers around the products of its backward pass.
    program = gradients("auto").experimental_get_compiler_ir(q, k, v)(stage="hlo")
    assert program.count("opt-barrier(") == 4
    plain = gradients(jit=False)
    assert "opt-barrier(" not in plain.experimental_get_compiler_ir(q, k, v)(stage="hlo")
    for one, other in zip(gradients("auto")(q, k, v), plain(q, k, v), strict=True):
        near(one, other.numpy(), "float32")


def test_a_compiled_training_step_of_a_default_layer_has_that_form():
    layer, x = EncoderLayer(8, 2, 16), normal(2, 7, 8)
    layer(x)

    @tf.function(jit_compile=True, autograph=False)
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(loss, layer.trainable_variables)

    assert "opt-barrier(" in step.experimental_get_compiler_ir(x)(stage="hlo")


def test_an_unknown_size_is_not_compiled(accelerator):
    assert not use_xla("auto", tf.TensorShape((2, None, 8)))
    assert not use_xla("auto", tf.TensorShape((2, 7, 8)), tf.TensorShape(None))


def test_many_shapes_end_in_a_plain_graph_and_one_line_says_so(accelerator, monkeypatch, caplog):
    monkeypatch.setattr(module, "MOST_PROGRAMS", 3)
    shapes = [tf.TensorShape((2, length, 8)) for length in range(1, 7)]
    with caplog.at_level(logging.WARNING, "tf_transformer"):
        assert [use_xla("auto", s) for s in shapes] == [True] * 3 + [False] * 3
        assert [use_xla("auto", s) for s in shapes] == [True] * 3 + [False] * 3
    [record] = [record for record in caplog.records if record.name == "tf_transformer"]
    assert record.getMessage().startswith("attention: compiled 3 shapes; new shapes run as a plain")
