"""Writing models for LiteRT.

Axes: B batch, T length, S source length, V vocabulary.
"""

import contextlib
import logging
import re
import tempfile
import warnings

import numpy as np
import tensorflow as tf

from tf_transformer import __version__, litert
from tf_transformer.data.files import check_replaceable, replacing, write_json
from tf_transformer.errors import ArgumentError, check, check_choice
from tf_transformer.export.text_models import INPUT_SPECS
from tf_transformer.functional.attention.plan import attention_plan
from tf_transformer.functional.tensors import portable
from tf_transformer.models.base_model import check_merged, check_padding, check_vocabulary
from tf_transformer.models.bert.heads import BertForSequenceClassification, answers_of
from tf_transformer.models.bert.sentence_encoder import SentenceEncoder
from tf_transformer.models.transformer import Transformer
from tf_transformer.tokenizers import Tokenizer


def convert(functions, weights, weights_dtype="float32", examples=None):
    """Convert concrete functions, given by name, to one LiteRT file with shared weights."""
    module = tf.Module()  # from a Keras model, the converter would make NaN
    module.weights = weights
    with tempfile.TemporaryDirectory() as folder, _quiet():
        tf.saved_model.save(module, folder, signatures=functions)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, [*functions])
        if weights_dtype != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if weights_dtype == "float16":
            converter.target_spec.supported_types = [tf.float16]
        if weights_dtype == "full int8":
            converter.representative_dataset = lambda: iter(examples)
        try:
            return converter.convert()
        except Exception as error:  # the converter raises nothing narrower
            lacking = re.search("TF Select ops: (.*)", str(error))
            reason = f"it has no operation {lacking[1]}" if lacking else error
            raise ArgumentError("model", "one that LiteRT can compute", reason) from error


@contextlib.contextmanager
def _quiet():
    """Suppress warnings about custom gradients, which the file does not need."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # The converter uses an interpreter that its own package deprecates.
            warnings.filterwarnings("ignore", ".*tf.lite.Interpreter is deprecated", UserWarning)
            yield
    finally:
        logger.setLevel(level)


def litert_functions(model):
    """Trace a model in operations that LiteRT supports: `(kind, functions by name, facts)`."""
    kinds = (BertForSequenceClassification, SentenceEncoder, Transformer)
    expected = f"one of {', '.join(kind.__name__ for kind in kinds)}"
    check(type(model) in kinds, "model", expected, type(model).__name__)
    check(model.built, "model", "a built model", "one without weights", "Call build().")
    check_merged(model)
    is_float = model.compute_dtype == "float32" and all(w.dtype != "int8" for w in model.weights)
    got = f"{model.dtype_policy.name} or int8 weights"
    remedy = "Pass the original; weights_dtype sets the dtype in the file."
    check(is_float, "model", "one in float32", got, remedy)
    return _of_translator(model) if isinstance(model, Transformer) else _of_bert(model)


def _of_bert(model):
    """`classify` or `encode`, from ids, types and mask (B, T) to answers or vectors."""
    config, facts = model.config, {"max_length": model.config.max_length}

    def classify(**inputs):
        return answers_of(model(inputs, training=False), config)

    def encode(**inputs):
        return {"vector": model(inputs, training=False)}

    kind, function = "text encoder", encode
    if isinstance(model, BertForSequenceClassification):
        kind, function = "classifier", classify
        facts |= {"labels": config.labels, "answers": config.answers}
    # LiteRT does not support the loops that compute a window in tiles.
    with portable(config.max_length), attention_plan("whole"):
        traced = tf.function(function, autograph=False).get_concrete_function(**INPUT_SPECS)
    return kind, {function.__name__: traced}, facts


def _of_translator(model):
    """`encode(ids, length)` to a state for `length` tokens; `step(token, **state)` to the next."""
    config = model.get_config()
    states = []  # the results of `start`, for their structure

    def encode(ids, length):
        states.append(model.start(ids, length))
        return _named(states[0])

    def step(token, **state):
        state = tf.nest.pack_sequence_as(states[0], [state[name] for name in _named(states[0])])
        logits, state = model.step(token, state)
        return {"logits": logits, **_named(state)}

    with portable(max(config["pe_input"], config["pe_target"])), attention_plan("whole"):
        encode = tf.function(encode, autograph=False).get_concrete_function(
            ids=tf.TensorSpec((None, None), tf.int32, name="ids"),
            length=tf.TensorSpec((), tf.int32, name="length"),
        )
        outputs = encode.structured_outputs.items()
        kept = {name: tf.TensorSpec(x.shape, x.dtype, name=name) for name, x in outputs}
        step = tf.function(step, autograph=False).get_concrete_function(
            token=tf.TensorSpec((None,), tf.int32, name="token"), **kept
        )
    facts = {"longest_source": config["pe_input"], "longest_target": config["pe_target"]}
    return "translator", {"encode": encode, "step": step}, facts


def _named(state):
    return {f"state_{n:02}": tensor for n, tensor in enumerate(tf.nest.flatten(state))}


# Largest difference from the model, relative to the largest number of an output.
TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "int8": 0.25, "full int8": 0.5}
COMPARED = 16  # texts
STEPS = 3  # of a translator, compared per text


def write_litert(
    model,
    tokenizer_file,
    folder,
    *,
    weights_dtype="float32",
    examples=None,
    max_length=None,
    lowercase=False,
):
    """Write a folder that `tf_transformer.litert` runs without TensorFlow.

    The file is run and compared with the model before the folder appears.

    Args:
        model: built `BertForSequenceClassification`, `SentenceEncoder` or `Transformer`.
        tokenizer_file: its `TokenizerFile`; for a BERT, `read_tokenizer_file(folder)`.
        folder: str or Path; a folder with a LiteRT model is replaced at the end.
        weights_dtype: "float32"; "float16", converted to float32 when the file is loaded; "int8",
            where the inputs of products are rounded when they are computed (dynamic); or "full
            int8", also between products where LiteRT can, with ranges from examples.
        examples: list of strings; the first 16 are compared. For "full int8" all determine the
            ranges, a hundred or more. None compares words of the vocabulary.
        max_length: None, or int, the maximum number of tokens of a text, for BERT.
        lowercase: bool, whether to lowercase texts before tokenization.

    Returns:
        dict: `bytes`, the size of the file; `difference`, the largest difference from the model,
        relative to the largest number of an output.

    Raises:
        FileExistsError: If the folder has other content.
        ImportError: If ai-edge-litert or tokenizers is not installed.
        ValueError: If an argument is invalid, LiteRT cannot compute the model, or the results of
            the file differ from the model's. Nothing is written then.

    Example:
        >>> from pathlib import Path
        >>> from tf_transformer.models.bert import BertConfig
        >>> from tf_transformer.models.bert.text_inputs import read_tokenizer_file
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = SentenceEncoder(BertConfig(7, 8, 1, 2, 16))
        >>> model.build()
        >>> report = write_litert(model, read_tokenizer_file("."), "my-lite-model")
        >>> litert.load("my-lite-model").encode(["a b", "b"]).shape
        (2, 8)
    """
    check_choice("weights_dtype", weights_dtype, TOLERANCES)
    check(examples or weights_dtype != "full int8", "examples", 'texts for "full int8"', "none")
    if examples is not None:
        examples = [text for text in examples if text.strip()]
        check(examples, "examples", "texts that are not blank", "none")
    if weights_dtype != "full int8" and examples:
        examples = examples[:COMPARED]
    check_replaceable(folder, only_with=litert.DESCRIPTION)
    litert.import_interpreter()
    tokenizer = Tokenizer(tokenizer_file)
    check_vocabulary(model, tokenizer, "tokenizer_file")
    if isinstance(model, Transformer):
        check_padding(model)
        expected = "the id 0 for padding, which the masks block"
        check(tokenizer.pad_id == 0, "tokenizer_file", expected, tokenizer.pad_id)
    kind, functions, facts = litert_functions(model)
    facts = {**facts, **_facts(kind, model, tokenizer, max_length), "lowercase": lowercase}
    probes = _probes(kind, functions, tokenizer, facts, examples)
    file = convert(functions, [w.value for w in model.weights], weights_dtype, probes)
    with replacing(folder, only_with=litert.DESCRIPTION) as beside:
        beside.mkdir()
        (beside / litert.MODEL).write_bytes(file)
        tokenizer.save(beside / litert.TOKENIZER)
        lite = litert.read_functions(beside / litert.MODEL)
        difference = _difference(functions, lite, probes[: COMPARED * (1 + STEPS)])
        most = TOLERANCES[weights_dtype]
        expected, got = f"a file within {most} of the model", f"{difference:.3g} on {weights_dtype}"
        check(difference <= most, "model", expected, got, "Try another weights_dtype.")  # nor NaN
        report = {"bytes": len(file), "difference": difference}
        description = {"version": __version__, "kind": kind, "weights_dtype": weights_dtype}
        write_json(beside / litert.DESCRIPTION, {**description, **facts, **report})
    return report


def _facts(kind, model, tokenizer, max_length):
    """Return the entries of `litert.json` about tokens."""
    if kind == "translator":
        ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
        return {**ends, "length_limit": (2, 10)}
    most = model.config.max_length
    check(max_length is None or 3 <= max_length <= most, "max_length", f"3 to {most}", max_length)
    ends = {"cls_id": tokenizer.start_id, "sep_id": tokenizer.end_id}
    return {"max_length": max_length or most, "pad_id": tokenizer.pad_id, **ends}


def _probes(kind, functions, tokenizer, facts, examples):
    """Return inputs of the functions, a list of `(name, dict of arrays)`."""
    if examples:
        texts = [text.lower() for text in examples] if facts["lowercase"] else examples
        rows = tokenizer.encode(texts)
    else:
        ids = np.random.default_rng(1).integers(5, tokenizer.vocab_size, (5, 17))
        rows = [row[: 3 + 3 * n].tolist() for n, row in enumerate(ids)]
    # All of the same length: the converter's calibration cannot change shapes.
    if kind != "translator":
        [name], inputs = functions, litert.bert_inputs(rows, facts)
        return [(name, {k: x[n : n + 1] for k, x in inputs.items()}) for n in range(len(rows))]
    probes, most = [], facts["longest_source"]
    ids, _ = litert.padded([[*row[: most - 1], facts["end_id"]] for row in rows])
    for row in ids[:, :most]:
        inputs = {"ids": row[np.newaxis], "length": np.int32(min(16, facts["longest_target"]))}
        probes.append(("encode", inputs))
        state, token = _by_tensorflow(functions["encode"], inputs), facts["start_id"]
        for _ in range(STEPS):
            inputs = {"token": np.array([token], np.int32), **state}
            probes.append(("step", inputs))
            state = _by_tensorflow(functions["step"], inputs)
            token = 1 + int(np.argmax(state.pop("logits")[0, 1:]))
    return probes


def _by_tensorflow(function, inputs):
    outputs = function(**{name: tf.constant(array) for name, array in inputs.items()})
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def _difference(functions, lite, probes):
    """Return the largest difference, relative to the output's largest number, or NaN."""
    worst = 0.0
    for name, inputs in probes:
        found = lite[name](**inputs)
        for key, expected in _by_tensorflow(functions[name], inputs).items():
            size = np.abs(expected, dtype=np.float64).max(initial=1e-9)
            worst = np.maximum(worst, np.abs(found[key] - expected).max(initial=0) / size)
    return float(worst)
