"""Checks for every layer: the output is the same however it is built, run or saved.

A `Case` defines how to make a layer and its call arguments; each `check_*` function takes a case
and raises AssertionError. Call arguments may be nested (a model's pair of inputs).
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
    """A layer and its call arguments.

    Attributes:
        make: `make(**kwargs)` -> a new layer; the keywords (`dtype`) go to the constructor.
        calls: call arguments by name, arrays of float32, complex64, int32 or bool; several sets of
            different batch sizes and lengths. Most checks use only the first.
        options: call arguments that are not tensors, the same in every call.
        full_precision: whether outputs are complex64 and float32 under half-precision policies too.
    """

    make: Callable[..., keras.layers.Layer]
    calls: tuple[dict[str, Any], ...]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    full_precision: bool = False

    def apply(self, layer, arguments):
        """Call the layer, its first argument by position; return a flat list of tensors."""
        (_, first), *others = arguments.items()
        result = layer(first, **dict(others), **self.options)
        return [tensor for tensor in tf.nest.flatten(result) if tensor is not None]

    def tensors(self, which=0):
        return tf.nest.map_structure(tf.constant, self.calls[which])

    def built(self, **kwargs):
        """Return a built layer, with every weight moved away from its initial value."""
        layer = self.make(**kwargs)
        self.apply(layer, self.tensors())
        rng = np.random.default_rng(11)
        for weight in layer.weights:
            if keras.backend.is_float_dtype(weight.dtype):
                weight.assign(weight + 0.1 * rng.standard_normal(weight.shape))
        return layer

    @functools.cached_property
    def layer(self):
        """The layer shared by all checks, which must not modify it."""
        return self.built()

    def signature(self):
        """Return `tf.TensorSpec`s in the structure of a call, None where the calls differ."""

        def spec(*arrays):
            sizes = zip(*(array.shape for array in arrays), strict=True)
            shape = [same.pop() if len(same) == 1 else None for same in map(set, sizes)]
            return tf.TensorSpec(shape, arrays[0].dtype)

        return tf.nest.map_structure(spec, *self.calls)

    def function(self, layer, **options):
        """Return the layer as a `tf.function` of one nested argument."""
        # No layer needs autograph, and tracing without it takes half the time.
        return tf.function(
            lambda arguments: self.apply(layer, arguments), autograph=False, **options
        )

    @functools.cached_property
    def functional_model(self):
        """The layer inside a functional `keras.Model` whose inputs are a flat list."""
        inputs = tf.nest.map_structure(
            lambda spec: keras.Input(batch_shape=tuple(spec.shape), dtype=spec.dtype.name),
            self.signature(),
        )
        return keras.Model(tf.nest.flatten(inputs), self.apply(self.layer, inputs))


def assert_same(actual, expected, tolerance=1e-5):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def floats(tensor):
    """Return a complex tensor as its two parts, a float one as it is."""
    if tensor.dtype.is_complex:
        tensor = tf.stack([tf.math.real(tensor), tf.math.imag(tensor)], axis=-1)
    return tf.cast(tensor, tf.float32)


def floats_of(dtype):
    """Return the name of a float dtype, or of the parts of a complex one."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype.name, dtype.name)


def check_compiled(case):
    """Check that eager = XLA and that graphs keep static shapes, as XLA and LiteRT require."""
    arguments = case.tensors()
    eager = case.apply(case.layer, arguments)
    assert all(np.isfinite(tensor).all() for tensor in eager)
    compiled = case.function(case.layer, jit_compile=True)
    traced = compiled.get_concrete_function(arguments).structured_outputs
    assert [tensor.shape for tensor in traced] == [tensor.shape for tensor in eager]
    assert_same(compiled(arguments), eager)


def check_saved_model(case, folder):
    """Check that eager = `tf.function` of unknown lengths = SavedModel, for every length."""
    module = tf.Module()
    # tf.Module does not track Keras lists of layers: without this, weights go missing.
    module.variables_of_the_layer = [weight.value for weight in case.layer.weights]
    module.serve = case.function(case.layer, input_signature=[case.signature()])
    # Only for serving: saving custom gradients would take most of the time.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, folder, options=options)
    loaded = tf.saved_model.load(folder)
    for which in range(len(case.calls)):
        arguments = case.tensors(which)
        eager = case.apply(case.layer, arguments)
        assert_same(module.serve(arguments), eager)
        assert_same(loaded.serve(arguments), eager)


def check_symbolic(case):
    """Check that eager = functional model for every length, also after a longer call."""
    for which in (*range(len(case.calls)), 0):
        arguments = case.tensors(which)
        actual = tf.nest.flatten(case.functional_model(tf.nest.flatten(arguments)))
        assert_same(actual, case.apply(case.layer, arguments))


def check_keras_file(case, folder):
    """Check that eager = saved as `.keras` and loaded, without custom_objects."""
    arguments = case.tensors()
    case.functional_model.save(folder / "layer.keras")
    loaded = keras.models.load_model(folder / "layer.keras")
    actual = tf.nest.flatten(loaded(tf.nest.flatten(arguments)))
    assert_same(actual, case.apply(case.layer, arguments), 1e-6)


def check_config(case):
    """Check that `from_config` restores the config and, given the weights, the same outputs."""
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
    """Check that every trainable variable has a finite gradient."""
    layer, arguments = layer or case.layer, case.tensors()
    rng = np.random.default_rng(13)
    with tf.GradientTape() as tape:
        # A random weighting: the sum of a normalized row is constant, so its gradient is zero.
        loss = sum(
            tf.reduce_sum(tensor * rng.standard_normal(tensor.shape))
            for tensor in map(floats, case.apply(layer, arguments))
        )
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, f"{variable.path} has no gradient"
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.path


def check_policy(case, policy):
    """Check dtypes under another policy, and that outputs are close to the float32 layer's."""
    policy = keras.DTypePolicy(policy)
    layer, arguments = case.make(dtype=policy), case.tensors()
    case.apply(layer, arguments)
    layer.set_weights(case.layer.get_weights())
    outputs = case.apply(layer, arguments)
    dtype = policy.compute_dtype
    if case.full_precision and dtype != "float64":
        dtype = "float32"
    assert {floats_of(tensor.dtype) for tensor in outputs} == {dtype}
    assert {weight.dtype for weight in layer.weights} <= {policy.variable_dtype}
    # No overflow, and no mask lost in a cast.
    for one, other in zip(outputs, case.apply(case.layer, arguments), strict=True):
        np.testing.assert_allclose(floats(one), floats(other), atol=0.1, rtol=0.1)
    if policy.compute_dtype != policy.variable_dtype:
        check_gradients(case, layer)
