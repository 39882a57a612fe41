"""Writing and loading SavedModels, also with 16-bit weights; frozen functions and StableHLO."""

import re
import uuid
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

from tf_transformer.compression.quantization import quantized
from tf_transformer.data import BucketedBatches
from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.export.compile_for import as_new, unlocked
from tf_transformer.functional.attention.plan import without_cudnn
from tf_transformer.generation import Ensemble
from tf_transformer.models.base_model import check_merged
from tf_transformer.models.bert.checkpoints.files import read_bundle_index

# TensorFlow Serving looks for this file in the folder of a SavedModel.
REQUESTS = Path("assets.extra", "tf_serving_warmup_requests")
# Arguments of exported functions.
TEXTS = tf.TensorSpec((None,), tf.string, name="text")
SEED = tf.TensorSpec((), tf.int32, name="seed")
CHANCE = (
    tf.TensorSpec((), tf.float32, name="temperature"),
    tf.TensorSpec((), tf.int32, name="top_k"),
    tf.TensorSpec((), tf.float32, name="top_p"),
)


def save_module(module, path, signatures, warm_up=()):
    """Write a SavedModel for inference."""
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    with replacing(path, only_with="saved_model.pb") as beside, as_new(module):
        tf.saved_model.save(module, str(beside), signatures, options)
        _forget_custom_gradients(beside / "saved_model.pb")
        write_fingerprint(str(beside))
        if warm_up:
            write_warm_up_requests(beside, warm_up)


def write_warm_up_requests(folder, batches):
    """Write requests to `serving_default`, a TFRecord of `tensorflow.serving.PredictionLog`."""
    file = Path(folder) / REQUESTS
    file.parent.mkdir(exist_ok=True)
    # By hand, since the classes need another package; all fields are bytes.
    # Numbers: tensorflow_serving/apis/{prediction_log,predict,model}.proto
    with tf.io.TFRecordWriter(str(file)) as writer:
        for texts in batches:
            tensor = tf.make_tensor_proto([text.encode("utf-8") for text in texts])
            entry = _field(1, b"text") + _field(2, tensor.SerializeToString())
            request = _field(1, _field(3, b"serving_default")) + _field(2, entry)
            writer.write(_field(6, _field(1, request)))


def _field(number, content):
    """Encode a field of a protocol buffer: number, length of the content, content."""
    size, rest = [], len(content)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + content


def _forget_custom_gradients(file):
    """Remove the names of custom gradients, which each load would report as missing."""
    # If they were saved, they would be a third of the functions that loading rebuilds.
    saved = SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.attr.pop("_gradient_op_type", None)
    file.write_bytes(saved.SerializeToString(deterministic=True))


# What TensorFlow raises for a damaged SavedModel; AssertionError if its file lacks a variable.
_DAMAGES = AssertionError, AttributeError, LookupError, OSError, ValueError, tf.errors.OpError


def load_saved_model(path):
    """Load a SavedModel that this package wrote."""
    variables = Path(path) / "variables" / "variables"
    try:
        if (variables.parent / "variables.index").is_file():
            read_bundle_index(variables)  # TensorFlow ends the process if it is damaged
        loaded = tf.saved_model.load(str(path))
    except _DAMAGES as error:
        got = f"a damaged one ({(str(error) or repr(error)).splitlines()[0]})"
        expected, remedy = "an intact SavedModel", "Export it again."
        raise ArgumentError("path", expected, got, remedy, place=path) from error
    for value in vars(loaded).values():
        if isinstance(value, tf.types.experimental.PolymorphicFunction):
            unlocked(value)
    return loaded


def freeze(function, *specs):
    """Trace a function as a plain graph, with the values of its variables as constants.

    oneDNN packs a constant matrix once, but a variable in each call, which pays off for bfloat16
    on a processor with AMX (benchmarks/models/NOTES.md). The constants and the packed matrices take
    memory of their own, and later changes of the variables have no effect.

    Args:
        function: maps tensors to a nest of tensors, for example a layer or a loaded signature.
        *specs: a `tf.TensorSpec` for each argument; sizes that vary are None.

    Returns:
        A function of the same arguments, passed by position as tensors or arrays.

    Raises:
        ValueError: If a spec is not a `tf.TensorSpec`, or a call has a different number of
            arguments.

    Example:
        >>> layer = keras.layers.Dense(3)
        >>> layer.build((None, 2))
        >>> frozen = freeze(layer, tf.TensorSpec((None, 2)))
        >>> frozen(tf.ones((5, 2))).shape.as_list()
        [5, 3]
    """
    expected = "a tf.TensorSpec(shape, dtype) for each argument"
    for spec in specs:
        check(isinstance(spec, tf.TensorSpec), "specs", expected, f"{spec!r}")
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False)
    # Captures other than variables, such as a vocabulary's table, stay inputs.
    kept = {x.name for x in frozen.inputs[len(specs) :]}
    others = [x for x, inside in traced.graph.captures if inside.name in kept]

    def call(*inputs):
        if len(inputs) != len(specs):
            raise ArgumentError("inputs", f"{len(specs)} arguments, one for each spec", len(inputs))
        pairs = zip(inputs, specs, strict=True)
        inputs = [tf.convert_to_tensor(x, spec.dtype) for x, spec in pairs]
        return tf.nest.pack_sequence_as(traced.structured_outputs, frozen(*inputs, *others))

    return call


def stablehlo(function, *specs):
    """Compile a function for XLA and return it as StableHLO text, without running it.

    The text is lowered for a GPU, whether or not there is one, but names no device: it also runs on
    a TPU or anything else that reads StableHLO (`python -m benchmarks accelerator`).

    Args:
        function: a callable from tensors to tensors.
        *specs: `tf.TensorSpec`, one for each argument; ValueError unless its shape is fully known.

    Returns:
        str, one module whose `main` takes the arguments in order, without source locations.

    Example:
        >>> text = stablehlo(lambda x: x + x, tf.TensorSpec((2, 3)))
        >>> "stablehlo.add" in text and "tensor<2x3xf32>" in text
        True
    """
    expected = "a fully known shape, since XLA compiles for one shape"
    for i, spec in enumerate(specs):
        check(spec.shape.is_fully_defined(), f"specs[{i}]", expected, spec.shape)
    # Default arguments would count as inputs without a shape.
    compiled = tf.function(lambda *args: function(*args), jit_compile=True, autograph=False)
    with without_cudnn():
        text = compiled.experimental_get_compiler_ir(*specs)(stage="stablehlo", platform_name="GPU")
    text = re.sub(r"^#loc.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r' loc\((?:"[^"]*"|\([^()]*\)|[^()"])*\)', "", text)
    return re.sub(_BOOLEANS, _as_bytes, text)


_BOOLEANS = r'(%\w+) = stablehlo\.constant dense<"0x(\w+)"> : tensor<([\dx]+)xi1>'


def _as_bytes(match):
    """Write a constant mask with one byte per element: readers disagree about packed booleans."""
    name, packed, shape = match.groups()
    size = np.prod([int(n) for n in shape.split("x")])
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(packed), np.uint8), bitorder="little")[:size]
    return (
        f'{name}_i8 = stablehlo.constant dense<"0x{bits.tobytes().hex()}"> : tensor<{shape}xi8>\n'
        f"    {name} = stablehlo.convert {name}_i8 : (tensor<{shape}xi8>) -> tensor<{shape}xi1>"
    )


# The attributes of a model that exporters use.
_WITHOUT_WEIGHTS = ("config", "get_config", "published_as", "reorder", "resize")
_WITH_WEIGHTS = ("encoder", "start", "step", "exit_early")


class StoredWeights:
    """A model whose SavedModel stores 16 bits per weight and computes in float32.

    Each weight is rounded once. Loading creates float32 weights from the rounded ones: inference
    takes the same time, the files are half as large, and the weights take half more memory.
    `Translator`, `TextClassifier` and `TextEncoder` accept it in place of a model.

    Args:
        model: a built `Transformer` or BERT model in float32, or an `Ensemble` of several. Later
            changes of its weights have no effect.
        dtype: "float16" with 11 significant bits, or "bfloat16" with 8.

    Raises:
        ValueError: If the dtype is unknown, the model has adapters, or a weight is not float32, not
            finite or too large for the dtype.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> StoredWeights(model, "float16").weights[0].dtype
        'float16'
    """

    def __init__(self, model, dtype):
        check_choice("dtype", dtype, ("float16", "bfloat16"))
        for one in getattr(model, "models", [model]):
            check_merged(one)
        self.resources = [_InFloat32(weight, dtype) for weight in model.weights]
        self.weights = [resource.stored for resource in self.resources]
        by_id = {id(weight): x for weight, x in zip(model.weights, self.resources, strict=True)}
        self._call = _reading(model, by_id)
        for name in (*_WITHOUT_WEIGHTS, *_WITH_WEIGHTS):
            if hasattr(model, name):  # an ensemble has no `encoder`
                value = getattr(model, name)
                setattr(self, name, _reading(value, by_id) if name in _WITH_WEIGHTS else value)

    def __call__(self, *arguments, **options):
        return self._call(*arguments, **options)


def stored(model, dtype, batches=None):
    """Return the model unchanged, as `StoredWeights`, or `quantized` with ranges from batches."""
    if dtype == "float32":
        return model
    if dtype != "int8":
        return StoredWeights(model, dtype)
    if isinstance(model, Ensemble):
        return Ensemble([quantized(one, batches) for one in model.models])
    return quantized(model, batches)


def calibration_batches(tokenizer, pairs, most=512):
    """Return batches of training pairs that set the ranges of int8 activations."""
    sides = zip(*pairs[:most], strict=True)
    sides = [tokenizer.encode_strings(list(side)).to_list() for side in sides]
    longest = max(len(row) for side in sides for row in side) + 1
    ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    lengths = (*range(8, longest, 8), longest)
    return list(BucketedBatches(*sides, lengths=lengths, tokens_per_batch=1024, **ends).epoch(0))


class _InFloat32(tf.saved_model.experimental.TrackableResource):
    """A float32 weight, created from its stored form here and when the SavedModel is loaded."""

    def __init__(self, weight, dtype):
        super().__init__()
        value = tf.convert_to_tensor(weight)
        check(value.dtype == tf.float32, "model", "float32", f"{value.dtype.name} in {weight.path}")
        rounded = tf.cast(value, dtype)
        if not tf.reduce_all(tf.math.is_finite(rounded)):
            largest = f"its largest absolute value is {float(tf.reduce_max(tf.abs(value))):g}"
            got = f"{dtype}, in which {weight.path} is not finite: {largest}"
            raise ArgumentError("dtype", "one that can represent every weight", got)
        self.stored = keras.Variable(rounded, dtype=dtype, trainable=False, name=weight.name)
        # Sessions, as in TensorFlow Serving, find it by name.
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
    """Replaces the values of Keras variables, which are read when they are used."""

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
