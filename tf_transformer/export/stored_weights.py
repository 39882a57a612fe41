"""Models whose SavedModel stores fewer bits for each weight."""

import uuid

import keras
import tensorflow as tf

from tf_transformer.compression.quantization import quantized
from tf_transformer.errors import ArgumentError
from tf_transformer.generation.ensemble import Ensemble

DTYPES = ("float16", "bfloat16")
# What the exporters use of a model.
_WITHOUT_WEIGHTS = ("config", "get_config", "reorder", "resize")
_WITH_WEIGHTS = ("encoder", "start", "step", "exit_early")


class StoredWeights:
    """A model whose SavedModel stores 16 bits a weight and computes in float32.

    Each weight is rounded once. Loading makes float32 weights from the rounded ones, so a step
    takes as long as without it; the files are half as large, and the weights take half more memory.
    `Translator`, and the classifiers and encoders of texts, take it in place of their model.

    Args:
        model: a built `Transformer` or BERT model in float32, or an `Ensemble` of several. Later
            changes of its weights have no effect.
        dtype: "float16" with 11 significant bits, or "bfloat16" with 8.

    Raises:
        ValueError: If the dtype is another one, or a weight is not float32, not finite or too large
            for it.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> stored = StoredWeights(model, "float16")
        >>> stored.weights[0].dtype
        'float16'
    """

    def __init__(self, model, dtype):
        if dtype not in DTYPES:
            raise ArgumentError("dtype", f"one of {', '.join(DTYPES)}", f"{dtype!r}")
        self.resources = [_InFloat32(weight, dtype) for weight in model.weights]
        self.weights = [resource.stored for resource in self.resources]
        by_id = {id(weight): x for weight, x in zip(model.weights, self.resources, strict=True)}
        self._call = _reading(model, by_id)
        for name in _WITHOUT_WEIGHTS:
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        for name in _WITH_WEIGHTS:  # an ensemble has several encoders, and none of its own
            if hasattr(model, name):
                setattr(self, name, _reading(getattr(model, name), by_id))

    def __call__(self, *arguments, **options):
        return self._call(*arguments, **options)


def stored(model, dtype, batches=None):
    """The model as it is, with `StoredWeights`, or `quantized`."""
    if dtype == "float32":
        return model
    if dtype != "int8":
        return StoredWeights(model, dtype)
    if isinstance(model, Ensemble):
        return Ensemble([quantized(one, batches) for one in model.models])
    return quantized(model, batches)


class _InFloat32(tf.saved_model.experimental.TrackableResource):
    """A float32 weight, made from its stored form here and wherever the SavedModel is loaded."""

    def __init__(self, weight, dtype):
        super().__init__()
        value = tf.convert_to_tensor(weight)
        if value.dtype != tf.float32:
            raise ArgumentError("model", "float32", f"{value.dtype.name} in {weight.path}")
        rounded = tf.cast(value, dtype)
        if not tf.reduce_all(tf.math.is_finite(rounded)):
            raise ArgumentError(
                "dtype",
                "one that can represent every weight",
                (
                    f"{dtype}, in which {weight.path} is not finite: its largest absolute "
                    f"value is {float(tf.reduce_max(tf.abs(value))):g}"
                ),
            )
        self.stored = keras.Variable(rounded, dtype=dtype, trainable=False, name=weight.name)
        # Found by name in a session, as TensorFlow Serving runs one.
        self._name = f"{weight.name}_{uuid.uuid4()}"
        self._initialize()

    def _create_resource(self):
        return tf.raw_ops.VarHandleOp(
            dtype=tf.float32, shape=self.stored.shape, shared_name=self._name
        )

    def _initialize(self):
        value = tf.cast(self.stored, tf.float32)
        tf.raw_ops.AssignVariableOp(resource=self.resource_handle, value=value)

    def read(self):
        value = tf.raw_ops.ReadVariableOp(resource=self.resource_handle, dtype=tf.float32)
        return tf.ensure_shape(value, self.stored.shape)


class _Scope(keras.StatelessScope):
    """Within it, variables of Keras have other values, read when they are used."""

    def __init__(self, by_id):
        super().__init__()
        self._by_id = by_id

    def get_current_value(self, variable):
        found = self._by_id.get(id(variable))
        return super().get_current_value(variable) if found is None else found.read()


def _reading(function, by_id):
    def call(*arguments, **options):
        with _Scope(by_id):
            return function(*arguments, **options)

    return call
