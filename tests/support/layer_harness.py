"""One harness for every layer: whatever runs it, saves it or builds it, the answer is the same.

A `Case` says how to make a layer and what to call it with; each `check_*` function takes one and
raises AssertionError. Call arguments may be nested (a model's pair of inputs).
"""

import copy
import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A layer and its calls.

    Attributes:
        make: `make(**kwargs)` -> a new layer; the keywords (`dtype`) go to its constructor.
        calls: call arguments by name, arrays of float32, int32 or bool; several sets that
            differ in batch and lengths. The first is the one that most checks use.
        options: call arguments that are no tensors, the same in every call.
    """

    make: Callable[..., keras.layers.Layer]
    calls: tuple[dict[str, Any], ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def apply(self, layer, arguments):
        """Call the layer, its first argument by position; the tensors of the result, flat."""
        (_, first), *others = arguments.items()
        result = layer(first, **dict(others), **self.options)
        return [tensor for tensor in tf.nest.flatten(result) if tensor is not None]

    def tensors(self, which=0):
        return tf.nest.map_structure(tf.constant, self.calls[which])

    def built(self, **kwargs):
        """A layer that has run once, no weight at the value it started from."""
        layer = self.make(**kwargs)
        self.apply(layer, self.tensors())
        rng = np.random.default_rng(11)
        for weight in layer.weights:
            if keras.backend.is_float_dtype(weight.dtype):
                weight.assign(weight + 0.1 * rng.standard_normal(weight.shape))
        return layer

    @functools.cached_property
    def layer(self):
        """The layer that all checks share; they leave it as it is."""
        return self.built()

    def signature(self):
        """`tf.TensorSpec` in the structure of a call, None wherever the calls differ."""

        def spec(*arrays):
            sizes = zip(*(array.shape for array in arrays), strict=True)
            shape = [same.pop() if len(same) == 1 else None for same in map(set, sizes)]
            return tf.TensorSpec(shape, arrays[0].dtype)

        return tf.nest.map_structure(spec, *self.calls)

    def function(self, layer, **options):
        """The layer as a `tf.function` of one structure of arguments."""
        # Nothing here needs autograph, and without it tracing takes half the time.
        return tf.function(
            lambda arguments: self.apply(layer, arguments), autograph=False, **options
        )

    @functools.cached_property
    def functional_model(self):
        """The layer inside a functional `keras.Model`, its inputs a flat list."""
        inputs = tf.nest.map_structure(
            lambda spec: keras.Input(batch_shape=tuple(spec.shape), dtype=spec.dtype.name),
            self.signature(),
        )
        return keras.Model(tf.nest.flatten(inputs), self.apply(self.layer, inputs))


def assert_same(actual, expected, tolerance=1e-5):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def check_compiled(case):
    """Eager = XLA, and a graph keeps the static shapes it is given: XLA and LiteRT need them."""
    arguments = case.tensors()
    eager = case.apply(case.layer, arguments)
    assert all(np.isfinite(tensor).all() for tensor in eager)
    compiled = case.function(case.layer, jit_compile=True)
    traced = compiled.get_concrete_function(arguments).structured_outputs
    assert [tensor.shape for tensor in traced] == [tensor.shape for tensor in eager]
    assert_same(compiled(arguments), eager)


def check_saved_model(case, folder):
    """Eager = `tf.function` of unknown lengths = the same saved and loaded, for every length."""
    module = tf.Module()
    # Keras lists of layers are invisible to tf.Module: without this, weights go missing.
    module.variables_of_the_layer = [weight.value for weight in case.layer.weights]
    module.serve = case.function(case.layer, input_signature=[case.signature()])
    # Served, not trained: saving gradients as well would take most of the time.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, folder, options=options)
    loaded = tf.saved_model.load(folder)
    for which in range(len(case.calls)):
        arguments = case.tensors(which)
        eager = case.apply(case.layer, arguments)
        assert_same(module.serve(arguments), eager)
        assert_same(loaded.serve(arguments), eager)


def check_symbolic(case):
    """Eager = inside a functional model, for every length; a longer call leaves nothing behind."""
    for which in (*range(len(case.calls)), 0):
        arguments = case.tensors(which)
        actual = tf.nest.flatten(case.functional_model(tf.nest.flatten(arguments)))
        assert_same(actual, case.apply(case.layer, arguments))


def check_keras_file(case, folder):
    """Eager = saved as `.keras` and loaded, without custom_objects."""
    arguments = case.tensors()
    case.functional_model.save(folder / "layer.keras")
    loaded = keras.models.load_model(folder / "layer.keras")
    actual = tf.nest.flatten(loaded(tf.nest.flatten(arguments)))
    assert_same(actual, case.apply(case.layer, arguments), 1e-6)


def check_config(case):
    """A layer made from the config has the same config and, given the weights, the same answer."""
    layer, arguments = case.layer, case.tensors()
    config = layer.get_config()
    kept = copy.deepcopy(config)
    assert type(type(layer).from_config(config)) is type(layer)
    assert config == kept, "from_config changed the caller's config"
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    case.apply(again, arguments)
    assert again.get_config() == layer.get_config()
    again.set_weights(layer.get_weights())
    assert_same(case.apply(again, arguments), case.apply(layer, arguments), 1e-6)


def check_gradients(case, layer=None):
    """Every trainable variable has a finite gradient."""
    layer, arguments = layer or case.layer, case.tensors()
    rng = np.random.default_rng(13)
    with tf.GradientTape() as tape:
        # Random weights: the plain sum of a normalised row is constant, its gradient zero.
        loss = sum(
            tf.reduce_sum(tf.cast(tensor, tf.float32) * rng.standard_normal(tensor.shape))
            for tensor in case.apply(layer, arguments)
        )
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, f"{variable.path} has no gradient"
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.path


def check_policy(case, policy):
    """Under another dtype policy: of its dtypes, finite, near the float32 layer's answer."""
    policy = keras.DTypePolicy(policy)
    layer, arguments = case.make(dtype=policy), case.tensors()
    case.apply(layer, arguments)
    layer.set_weights(case.layer.get_weights())
    outputs = case.apply(layer, arguments)
    assert {tensor.dtype.name for tensor in outputs} == {policy.compute_dtype}
    assert {weight.dtype for weight in layer.weights} <= {policy.variable_dtype}
    # Nothing overflowed, no mask was lost in a cast.
    for one, other in zip(outputs, case.apply(case.layer, arguments), strict=True):
        np.testing.assert_allclose(tf.cast(one, tf.float32), other, atol=0.1, rtol=0.1)
    if policy.compute_dtype != policy.variable_dtype:
        check_gradients(case, layer)
