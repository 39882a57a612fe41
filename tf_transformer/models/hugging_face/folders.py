"""Reading and writing the folders of published models."""

import dataclasses
import math
import re
import reprlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.files import replacing, write_json
from tf_transformer.errors import ArgumentError, check, check_choice, is_number
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models import bert
from tf_transformer.models.base_model import (
    check_float,
    check_merged,
    check_sizes,
    short_collections,
)
from tf_transformer.models.bert.checkpoints.config_files import (
    RELATIVES,
    check_fields,
    label_fields,
    labels_of,
    read_json,
)
from tf_transformer.models.bert.checkpoints.files import (
    SafetensorsFile,
    check_weights,
    copy_side_files,
    name_in_file,
    unequal_copies,
)
from tf_transformer.models.bert.sentence_encoder import load_dense, read_pooling
from tf_transformer.models.hugging_face.decoders import DECODERS, SIZES
from tf_transformer.models.hugging_face.translators import TRANSLATORS
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.pooled_model import PooledModel
from tf_transformer.models.transformer import Transformer

FAMILIES = {**DECODERS, **TRANSLATORS}
BERTS = ("bert", "albert", *RELATIVES)
# The classes of `tf_transformer.bert` by the endings of the names in `architectures`.
_CLASSES = {
    "Model": bert.Bert,
    "ForMaskedLM": bert.BertForMaskedLM,
    "ForNextSentencePrediction": bert.BertForNextSentencePrediction,
    "ForPreTraining": bert.BertForPreTraining,
    "ForQuestionAnswering": bert.BertForQuestionAnswering,
    "ForSequenceClassification": bert.BertForSequenceClassification,
    "ForTokenClassification": bert.BertForTokenClassification,
}


def published_type(path):
    """The `model_type` of a folder in Hugging Face's layout; None for other places."""
    return read_json(Path(path) / "config.json", default={}).get("model_type")


def load(path, *, ignored_fields=(), **changes):
    """Create a built model from a published one's folder.

    `model_type` and `architectures` of `config.json` determine the class; docs/published.md has the
    models.

    Args:
        path: str or Path, a folder with `config.json` and `model.safetensors`, or the parts that
            `model.safetensors.index.json` lists.
        ignored_fields: collection of str, fields of `config.json` that are unknown here and do not
            change what the model computes; others are refused.
        changes: arguments of the class that replace what the file says, such as `rate` or `dtype`.

    Returns:
        A built `LanguageModel`, `Transformer` or model of `tf_transformer.bert`; or a `PooledModel`
        for a decoder with a head for classes.

    Raises:
        FileNotFoundError: If a file is missing, or the weights are pickled.
        ImportError: If the package `safetensors` is not installed.
        ValueError: If the kind of model is not supported, a field of the configuration may change
            the result and is unknown, or the weights do not match it; all differences are listed.

    Example:
        >>> from tf_transformer import Architecture, LanguageModel, LearnedPositions, PreNorm
        >>> gpt2 = Architecture(LearnedPositions(9), residual=PreNorm(), scale_embeddings=False)
        >>> model = LanguageModel(1, 8, 2, 16, 13, 9, architecture=gpt2, pad_id=None)
        >>> save_pretrained(model, "my-gpt2")
        >>> load("my-gpt2")([[3, 7]]).shape.as_list()
        [1, 2, 13]
    """
    file = Path(path) / "config.json"
    content = read_json(file)
    try:
        check_choice("model_type", content.get("model_type"), [*BERTS, *FAMILIES])
    except ArgumentError as error:
        raise error.inside(file) from None
    if content["model_type"] in BERTS:
        made = _bert_class(content, file)
        return made.from_pretrained(path, ignored_fields=ignored_fields, **changes)
    if has_classes(content):
        labels = labels_of(content, file) or ("LABEL_0", "LABEL_1")  # the default there
        head = {"labels": labels, "problem_type": content.get("problem_type")}
        head |= {"pad_id": content.get("pad_token_id"), "pooling": "lasttoken", "normalize": False}
        return _load_pooled(path, content, ignored_fields, **head, **changes)
    family, arguments = _described_by(content, file, ignored_fields)
    return _load(path, family, arguments, family.model, {**arguments, **changes})


def load_sentence_encoder(path, *, pooling=None, normalize=None, ignored_fields=()):
    """Create a `PooledModel` of sentence vectors from a decoder, or from the encoder of a T5.

    `modules.json` says how to pool, or else the arguments; they are those of `PooledModel`, and
    `normalize` is True by default. Errors: see `load`.
    """
    file = Path(path) / "config.json"
    given = {"pooling": pooling, "normalize": normalize}
    given = {name: value for name, value in given.items() if value is not None}
    head = {"normalize": True, **read_pooling(path), **given}
    expected = f'"lasttoken", "mean" or "cls", since there is no modules.json in {path}'
    check("pooling" in head, "pooling", expected, "None")
    model = _load_pooled(path, read_json(file), ignored_fields, **head)
    if model.dense is not None:
        load_dense(model.dense, path)
    return model


def has_classes(content):
    """Whether a `config.json` describes a decoder with a head for classes."""
    name = f"{content.get('architectures')}"
    return content.get("model_type") in DECODERS and "ForSequenceClassification" in name


def _load_pooled(path, content, ignored_fields, **head):
    """Load a `PooledModel` with the stack of a decoder, or the encoder of a T5."""
    if content["model_type"] not in (*DECODERS, "t5", "mt5"):
        raise ArgumentError("model_type", f"a decoder or T5 in {path}", content["model_type"])
    causal = content["model_type"] in DECODERS
    if not causal:
        content = {**content, "is_encoder_decoder": True}  # false for the encoder alone
    family, arguments = _described_by(content, Path(path) / "config.json", ignored_fields)
    sizes = arguments
    if not causal:
        sizes = {**arguments, "num_layers": int(np.ravel(arguments["num_layers"])[0])}
        sizes |= {"vocab_size": sizes["input_vocab_size"], "max_position": sizes["pe_input"]}
    fields = {there: sizes[here] for here, there in _OF_CONFIG.items()}
    own = {field.name for field in dataclasses.fields(bert.BertConfig)} & head.keys()
    config = bert.BertConfig(**fields, **{name: head.pop(name) for name in own})
    head |= {"architecture": arguments["architecture"], "causal": causal}
    return _load(path, _pooled(family), arguments, PooledModel, {"config": config, **head})


# Arguments of a `LanguageModel` -> fields of the config of a `PooledModel`.
_OF_CONFIG = {**SIZES, "rate": "hidden_dropout_prob"}


def _pooled(family):
    """The family with the names of a `PooledModel`."""
    head = ("final_layer/kernel", "score.weight", (1, 1))
    names = [row for row in family.names if row[0] != head[0]]
    copies = {name: of for name, of in family.copies.items() if name != "lm_head.weight"}
    left_over = rf"{family.left_over}|(lm_head|score)\.weight|decoder\..*"
    named = re.sub("LMHeadModel|ForCausalLM", "ForSequenceClassification", family.published_as)
    options = {"published_as": named, "left_over": left_over}
    return family._replace(names=(*names, head), copies=copies, **options)


def _described_by(content, file, ignored_fields):
    """The family of a `config.json`, and the arguments of its model."""
    family = FAMILIES[content["model_type"]]
    check_fields(content, family.fields, file, ignored_fields)
    given = {k: v for k, v in content.items() if v is not None or k in _OPTIONAL}
    _check_types(given, family.defaults, file)
    return family, family.read({**family.defaults, **given})


def _load(path, family, arguments, made, options):
    """Create a model of a class, and assign all weights of a file."""
    weights, parts = SafetensorsFile(path), arguments["architecture"]
    width, heads = arguments["d_model"], arguments["num_heads"]
    layers = [(np.sum(arguments["num_layers"]), heads, arguments["dff"])]
    found = sum(map(math.prod, weights.shapes.values()))
    table = width * arguments.get("vocab_size", arguments.get("input_vocab_size"))
    check_sizes(path, found, table, width, parts.key_dim or width // heads, layers, parts)
    with short_collections(4 * found):  # in float32
        model = made(**options)
        with keras.StatelessScope():  # which makes the values at its end: random ones take seconds
            model.build()
            for x in model.weights:
                x._initializer = lambda shape, dtype: tf.raw_ops.Empty(shape=shape, dtype=dtype)
    _assign(model, weights, family, arguments)
    return model


def _bert_class(content, file):
    """The class of a BERT or a relative, without `architectures` the bare model."""
    names = content.get("architectures") or ["BertModel"]
    name = f"{names[0]}" if isinstance(names, list) and len(names) == 1 else ""
    if name == "ElectraForPreTraining":
        return bert.ElectraForPreTraining
    found = re.fullmatch(r"(?:Bert|Albert|DistilBert|Electra|Roberta|XLMRoberta)(\w+)", name)
    if found and found[1] in _CLASSES:
        return _CLASSES[found[1]]
    expected = f"one name that ends in {', '.join(_CLASSES)}, in {file}"
    raise ArgumentError("architectures", expected, reprlib.repr(names))


# Where null has a meaning of its own; elsewhere it stands for the default.
_OPTIONAL = ("decoder_start_token_id", "head_dim", "n_inner", "num_decoder_layers")
_OPTIONAL += ("num_key_value_heads", "pad_token_id", "sliding_window")


def _check_types(given, defaults, file):
    """Check the fields that are used; whole numbers are ids, from 0, or sizes, from 1."""
    for name in given.keys() & defaults.keys():
        value, kind = given[name], type(defaults[name])
        if kind in (bool, str):
            expected = {bool: "true or false", str: "a string"}[kind]
            fits = type(value) is kind
        elif kind is float:
            is_rate = "drop" in name
            expected = "a number in [0, 1)" if is_rate else "a number, at least 0"
            fits = is_number(value) and value >= 0 and not (is_rate and value >= 1)
        else:
            least = 0 if name.endswith("_token_id") else 1
            expected = f"a whole number, at least {least}"
            fits = type(value) is int and least <= value < 2**31
        if not fits and value is not None:
            raise ArgumentError(name, f"{expected}, in {file}", reprlib.repr(value))


def save_pretrained(model, folder, tokenizer_from=None):
    """Write a model into a folder in which `transformers` loads the same model.

    Args:
        model: `LanguageModel`, `Transformer` or `PooledModel` with labels, with the architecture of
            a published one; or a model of `tf_transformer.bert`, see its `save_pretrained`.
        folder: str or Path; a model there is replaced.
        tokenizer_from: str or Path, the folder that the model came from: its vocabulary and
            `generation_config.json` are copied, and the ids of special tokens in its `config.json`;
            None keeps the replaced model's.

    Raises:
        FileExistsError: If the folder contains anything but a model.
        ImportError: If the package `safetensors` is not installed.
        OSError: If the folder cannot be written; its previous content is kept.
        ValueError: If no published model has the architecture, as after pruning; or if the model
            has int8 weights or adapters, see `merge_adapters` and `save_adapters`.

    Example:
        >>> from tf_transformer import Architecture, LanguageModel, LearnedPositions, PreNorm
        >>> gpt2 = Architecture(LearnedPositions(9), residual=PreNorm(), scale_embeddings=False)
        >>> model = LanguageModel(1, 8, 2, 16, 13, 9, architecture=gpt2, pad_id=None)
        >>> save_pretrained(model, "my-gpt2")
        >>> sorted(path.name for path in Path("my-gpt2").iterdir())
        ['config.json', 'model.safetensors']
    """
    from safetensors.numpy import save_file

    if hasattr(model, "save_pretrained"):
        model.save_pretrained(folder, tokenizer_from)
        return
    is_pooled = isinstance(model, PooledModel) and bool(model.config.labels)
    fits = is_pooled or isinstance(model, LanguageModel | Transformer)
    expected = "a LanguageModel, a Transformer, a PooledModel with labels or a model of "
    check(fits, "model", f"{expected}tf_transformer.bert", type(model).__name__)
    if not model.built:
        model.build()
    check_merged(model)
    check_float(model, "Save the original.")
    arguments = arguments_of(model)
    source = Path(folder if tokenizer_from is None else tokenizer_from)
    published = read_json(source / "config.json", default={})
    model_type, fields = described(model, arguments, published.get("model_type"))
    family = FAMILIES[model_type]
    if is_pooled:
        family = _pooled(family)
        fields |= label_fields(model.config.labels) | {"problem_type": model.config.problem_type}
    # An id that is None here, such as that of padding which is also an end, is the source's.
    fields = {k: v for k, v in fields.items() if v is not None or not k.endswith("_token_id")}
    config = {name: value for name, value in published.items() if name.endswith("_token_id")}
    config |= {"model_type": model_type, "architectures": [family.published_as], **fields}
    tensors = {}
    for there, homes in _homes(model, family).items():
        arrays = [_there(family, arguments, name, variable) for name, variable in homes]
        array = np.concatenate(arrays, -1) if arrays[1:] else arrays[0]
        tensors[there] = np.ascontiguousarray(array)
    with replacing(folder, only_with="config.json") as beside:
        beside.mkdir()
        write_json(beside / "config.json", config)
        save_file(tensors, beside / "model.safetensors", metadata={"format": "pt"})
        copy_side_files(source, beside)


def arguments_of(model):
    """The arguments of a model, with its architecture as an object."""
    config = model.get_config()
    if isinstance(model, PooledModel):
        arguments = {here: config["config"][there] for here, there in _OF_CONFIG.items()}
        arguments |= {"share_embeddings": True, "pad_id": config["pad_id"]}
    else:
        arguments = {name: config[name] for name in model._arguments}
    return {**arguments, "architecture": model.architecture or Architecture()}


def described(model, arguments, preferred=None):
    """The preferred family, or else the first, whose files can describe a model; its fields."""
    is_pruned = model.get_config().get("layer_sizes") is not None
    for model_type in sorted(FAMILIES, key=lambda name: name != preferred):
        family = FAMILIES[model_type]
        is_pooled = isinstance(model, PooledModel) and model_type in DECODERS
        if is_pruned or not (is_pooled or isinstance(model, family.model)):
            continue
        try:
            fields = family.write(arguments)
            check_fields({k: v for k, v in fields.items() if v is not None}, family.fields, "it")
            again = family.read({**family.defaults, **fields})
        except (AttributeError, ArgumentError):  # a part has no such setting
            continue
        if _canonical(again) == _canonical(arguments):
            return model_type, fields
    expected = f"the architecture of one of {', '.join(FAMILIES)}"
    remedy = "Save it as `.keras`, which keeps every architecture."
    raise ArgumentError("model", expected, arguments["architecture"].to_json(), remedy)


def _canonical(arguments):
    """Arguments whose equality means the same outputs."""
    parts, heads = arguments["architecture"], arguments["num_heads"]
    sizes = {
        "key_dim": parts.key_dim or arguments["d_model"] // heads,
        "num_key_value_heads": parts.num_key_value_heads or heads,
    }
    return {**arguments, "rate": 0.0, "architecture": dataclasses.replace(parts, **sizes)}


def _homes(model, family):
    """The tensors of a file, each with the names and the variables that it consists of."""
    homes = {}
    for variable in model.weights:
        ours = name_of(model, variable)
        if ours.startswith("dense/"):  # which has a file of its own
            continue
        there, (part, parts) = name_in_file(ours, family.names)
        homes.setdefault(there, [None] * parts)[part - 1] = ours, variable
    return homes


def name_of(model, variable):
    """A variable's name in the tables: without the model's name and the kind of positions."""
    name = variable.path.removeprefix(f"{model.path}/")
    return re.sub(r"/(learned|t5)_positions(_\d+)?/", "/positions/", name)


def _is_transposed(family, ours):
    """Whether a file has the matrix of a variable as (output, input)."""
    is_matrix = ours.endswith(("/kernel", "mha/positions/table", "mha1/positions/table"))
    return is_matrix and (family.transposed or ours.startswith("final_layer/"))


def _there(family, arguments, ours, variable):
    """A variable as its part of the tensor in the file."""
    array, factor = np.asarray(variable), family.factor(ours, arguments)
    array = array if factor == 1.0 else array / np.asarray(factor, array.dtype)
    array = array.T if _is_transposed(family, ours) else array
    return array[np.newaxis] if ours == _BIAS else array


_BIAS = "output_bias"  # files have it with an axis of size 1 before


def _shape(family, home):
    """The shape of a tensor in the file."""
    shapes = [tuple(variable.shape) for _, variable in home]
    shape = (*shapes[0][:-1], sum(shape[-1] for shape in shapes))
    shape = shape[::-1] if _is_transposed(family, home[0][0]) else shape
    return (1, *shape) if home[0][0] == _BIAS else shape


def _assign(model, file, family, arguments):
    """Assign all weights; names and shapes must match exactly."""
    is_bare = not any(name.startswith(family.prefix) for name in file.shapes)
    prefix = family.prefix if is_bare else ""
    homes = {name.removeprefix(prefix): home for name, home in _homes(model, family).items()}
    pairs = [[name.removeprefix(prefix) for name in pair] for pair in family.copies.items()]
    copies = {copy: of for copy, of in pairs if copy not in homes and of in file.shapes}

    def constant(there):
        return family.constants(there, file.shapes[there], arguments)

    def is_left_over(there):
        known = there in copies or constant(there) is not None
        return known or re.fullmatch(family.left_over, there)

    differences = list(unequal_copies(file, copies))
    for there in file.shapes.keys() - homes.keys():
        expected = constant(there)
        if expected is not None and not np.allclose(file.read(there), expected, atol=1e-3):
            differences.append(f"{there}: expected the positions that are computed here")
    shapes = {there: _shape(family, home) for there, home in homes.items()}
    check_weights(file, shapes, is_left_over, differences)

    def assign(there):
        with tf.device("CPU"):  # a thread does not inherit the caller's device
            parts = np.split(file.read(there), len(homes[there]), -1)
            for (ours, variable), part in zip(homes[there], parts, strict=True):
                array = tf.cast(tf.convert_to_tensor(part), variable.dtype)
                array = tf.transpose(array) if _is_transposed(family, ours) else array
                array = tf.reshape(array, variable.shape)
                factor = family.factor(ours, arguments)
                variable.assign(array if factor == 1.0 else array * factor)

    with ThreadPoolExecutor() as pool:  # most of the time goes into copies outside Python
        list(pool.map(assign, homes))
