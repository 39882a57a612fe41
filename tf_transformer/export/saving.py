"""Writing SavedModels, also with frozen or 16-bit weights, and their model cards."""

import json
import uuid
from pathlib import Path

import keras
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.saved_model.fingerprinting_utils import write_fingerprint

from tf_transformer.compression.quantization import quantized
from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError
from tf_transformer.export.compile_for import as_new
from tf_transformer.generation.ensemble import Ensemble

# TensorFlow Serving looks for this file in the folder of a SavedModel.
REQUESTS = Path("assets.extra", "tf_serving_warmup_requests")


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
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in batches:
            writer.write(_prediction_log(batch))


def _prediction_log(texts):
    # By hand, since its classes need another package; all of its fields are bytes.
    # Numbers: tensorflow_serving/apis/{prediction_log,predict,model}.proto
    tensor = tf.make_tensor_proto([text.encode("utf-8") for text in texts])
    entry = _field(1, b"text") + _field(2, tensor.SerializeToString())
    request = _field(1, _field(3, b"serving_default")) + _field(2, entry)
    return _field(6, _field(1, request))


def _field(number, content):
    """Encode a field of a protocol buffer: number, length of the content, content."""
    size, rest = [], len(content)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + content


def _forget_custom_gradients(file):
    """Remove the names of custom gradients, which each load would report as missing.

    If they were saved, they would be a third of the functions that loading rebuilds; inference does
    not need them.
    """
    saved = SavedModel.FromString(file.read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.attr.pop("_gradient_op_type", None)
    file.write_bytes(saved.SerializeToString(deterministic=True))


def freeze(function, *specs):
    """Trace a function as a plain graph, with the values of its variables as constants.

    oneDNN packs a constant matrix once, but a variable in each call. Freezing pays off for bfloat16
    on a processor with AMX, where packing takes about as long as multiplying: BERT-base's encoder
    takes 0.7 of the time for 8 texts of 128 tokens, half for one of 16
    (benchmarks/models/NOTES.md). The constants and the packed matrices take memory of their own,
    and later changes of the variables have no effect.

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
    for spec in specs:
        if not isinstance(spec, tf.TensorSpec):
            raise ArgumentError(
                "specs", "a tf.TensorSpec(shape, dtype) for each argument", f"{spec!r}"
            )
    traced = tf.function(function, autograph=False).get_concrete_function(*specs)
    frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False)
    # Captures other than variables, such as a vocabulary's table, stay inputs.
    kept = {x.name for x in frozen.inputs[len(specs) :]}
    others = [x for x, inside in traced.graph.captures if inside.name in kept]

    def call(*inputs):
        if len(inputs) != len(specs):
            raise ArgumentError("inputs", f"{len(specs)} arguments, one for each spec", len(inputs))
        inputs = [
            tf.convert_to_tensor(x, spec.dtype) for x, spec in zip(inputs, specs, strict=True)
        ]
        return tf.nest.pack_sequence_as(traced.structured_outputs, frozen(*inputs, *others))

    return call


_LICENSES = {
    "embedded": (
        "Trained on sentence pairs of [Tatoeba](https://tatoeba.org), collected by "
        "manythings.org/anki, CC-BY 2.0 France; the authors of every sentence are named in "
        "`tf_transformer/data/corpora/`. The weights are under Apache-2.0."
    ),
    "own": "Trained on the user's own files; their license applies.",
}


def model_card(description):
    """Return the model card, Markdown, of an exported translator from its description.

    The optional `credit` is a sentence about further data, and the optional `phrases` a list of
    dicts with `text`, `translation`, `accepted` (bool, whether a speaker would accept it) and
    `remark`. For the rest see `save_translator`.
    """
    source = {key: value for key, value in description["source"].items() if value}
    preset = {k: v for k, v in description["preset"].items() if k != "architecture"}
    preset = ", ".join(f"{key} {value}" for key, value in preset.items())
    parts = description["preset"].get("architecture")
    parts = f"`{json.dumps(parts)}`" if parts else "the paper's"
    pairs = ", ".join(f"{key} {value:,}" for key, value in description["pairs"].items())
    license = _LICENSES["embedded" if "corpus" in source else "own"]
    license = f"{license} {description.get('credit', '')}".strip()
    scores = description["scores"]
    # A bar would end the table cell.
    bleu, chrf = (scores[f"{name}_signature"].replace("|", r"\|") for name in ("bleu", "chrf"))
    return f"""# {description["name"]}

A Transformer translator as a TensorFlow SavedModel: strings in, strings out. It needs
only TensorFlow.

```python
import tensorflow as tf

model = tf.saved_model.load("{description["name"]}")
model.translate(tf.constant(["..."]))
```

| | |
|---|---|
| data | {", ".join(f"{key} {value}" for key, value in source.items())} |
| sentence pairs | {pairs} |
| license | {license} |
| weights | {description["weights"]:,} ({description.get("weights_dtype", "float32")}) |
| sizes | {preset} |
| architecture | {parts} |
| BLEU on the whole test split | {scores["bleu"]} ({bleu}) |
| chrF | {scores["chrf"]} ({chrf}) |
| test sentences | {scores["sentences"]:,} |
| made by | tf_transformer {description["version"]}, `{description["command"]}` |

Signatures: `translate` and `serving_default` (`text` string -> `translation` string),
greedy decoding; `translate_beam` (`text` -> `translations`, `scores`); `translate_sample`
(`text`, `seed`, `temperature`, `top_k`, `top_p` -> `translation`); `encode` (`text` ->
`ids`, `vectors`); `warm_up` and `warm_up_beam` (`rows`, `length` -> `programs`), which
compile small batches of these sizes with XLA. A source longer than the model's position
table is truncated; unknown characters are read byte by byte.

It was trained on the sentences above; expect poor translations of other kinds of text, and do not
rely on it where mistakes are costly.
{_judged(description.get("phrases", []))}"""


def _judged(phrases):
    """Return a section with phrases and a reader's judgment of their translations."""
    if not phrases:
        return ""
    rows = "\n".join(
        f"| {one['text']} | {one['translation']} | {'yes' if one['accepted'] else 'no'} "
        f"| {one['remark']} |"
        for one in phrases
    )
    accepted = sum(one["accepted"] for one in phrases)
    return f"""
## Everyday phrases

These phrases were chosen before training, translated with greedy decoding, and judged by
a reader. A speaker would accept {accepted} of {len(phrases)} translations.

| text | translation | acceptable | remark |
|---|---|---|---|
{rows}
"""


DTYPES = ("float16", "bfloat16")
# The attributes of a model that exporters use.
_WITHOUT_WEIGHTS = ("config", "get_config", "reorder", "resize")
_WITH_WEIGHTS = ("encoder", "start", "step", "exit_early")


class StoredWeights:
    """A model whose SavedModel stores 16 bits per weight and computes in float32.

    Each weight is rounded once. Loading creates float32 weights from the rounded ones, so inference
    takes the same time; the files are half as large, and the weights take half more memory.
    `Translator`, `TextClassifier` and `TextEncoder` accept it in place of a model.

    Args:
        model: a built `Transformer` or BERT model in float32, or an `Ensemble` of several. Later
            changes of its weights have no effect.
        dtype: "float16" with 11 significant bits, or "bfloat16" with 8.

    Raises:
        ValueError: If the dtype is unknown, or a weight is not float32, not finite or too large for
            the dtype.

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
        for name in _WITH_WEIGHTS:  # an ensemble has no `encoder`
            if hasattr(model, name):
                setattr(self, name, _reading(getattr(model, name), by_id))

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


class _InFloat32(tf.saved_model.experimental.TrackableResource):
    """A float32 weight, created from its stored form here and when the SavedModel is loaded."""

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
                f"{dtype}, in which {weight.path} is not finite: its largest absolute "
                f"value is {float(tf.reduce_max(tf.abs(value))):g}",
            )
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
