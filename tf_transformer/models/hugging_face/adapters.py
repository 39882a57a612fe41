"""Adapters for fine-tuning with few weights, in files of Hugging Face's `peft`.

Axes: D width of a layer's input, F of its output, r rank of its adapter.
"""

import math
import re
import reprlib
import statistics
from pathlib import Path

import keras
import numpy as np

from tf_transformer.data.files import replacing, write_json
from tf_transformer.errors import ArgumentError, check
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.models.base_model import adapted_layers, check_float, check_merged
from tf_transformer.models.bert.checkpoints.config_files import check_fields, read_json, read_table
from tf_transformer.models.bert.checkpoints.files import (
    SafetensorsFile,
    check_weights,
    name_in_file,
)
from tf_transformer.models.hugging_face.folders import FAMILIES, arguments_of, described, name_of
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model"


def add_adapters(model, rank=8, alpha=16, targets=("wq", "wv")):
    """Add low-rank adapters to dense layers, and freeze all other weights.

    A layer computes f(x W + alpha / r (x A) B + b) with A (D, r), random, and B (r, F), at first 0,
    so that the model's outputs do not change: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large
    Language Models", section 4.1. A is drawn as in `peft`, from U(-1 / sqrt(D), 1 / sqrt(D)).

    Add adapters before `compile`, so that the optimizer has slots for A and B alone. Copies, files
    and checkpoints keep them, and `save_adapters` writes them alone.

    Args:
        model: built `LanguageModel` or `Transformer`; it is changed.
        rank: int, r.
        alpha: number, the scale of the adapters before it is divided by the rank.
        targets: collection of str, names of the layers: "wq", "wk", "wv" and "dense" of attention;
            "hidden", or "gate" and "linear", and "output" of feed-forward networks; "final_layer".
            "all-linear" stands for all but the last.

    Returns:
        list of the adapted layers.

    Raises:
        ValueError: If the model is not built, has adapters or int8 weights, or a number or a name
            is not valid.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(1, 8, 2, 16, vocab_size=13, max_position=9)
        >>> model.build()
        >>> [layer.name for layer in add_adapters(model, rank=2)]
        ['wq', 'wv']
        >>> sum(weight.shape.num_elements() for weight in model.trainable_weights)
        64
    """
    layers = _free_layers(model)
    check(type(rank) is int and rank >= 1, "rank", "an int of at least 1", f"{rank!r}")
    _check_alpha("alpha", alpha)
    ends = {name: name.split("/")[-2] for name in layers}
    if targets == "all-linear":
        targets = set(ends.values()) - {"final_layer"}
    if isinstance(targets, str) or not targets or set(targets) - set(ends.values()):
        known = ", ".join(sorted(set(ends.values())))
        raise ArgumentError("targets", f'"all-linear" or names among {known}', f"{targets!r}")
    chosen = [layer for name, layer in layers.items() if ends[name] in targets]
    _enable(model, [(layer, rank, alpha) for layer in chosen])
    return chosen


def merge_adapters(model):
    """Add the adapters of a model to its kernels, for inference without extra work or files.

    W becomes W + alpha / r A B, and all weights train again; `compile` before `fit`.

    Args:
        model: `LanguageModel` or `Transformer` with adapters; it is changed.

    Raises:
        ValueError: If it has none.

    Example:
        >>> from tf_transformer import LanguageModel
        >>> model = LanguageModel(1, 8, 2, 16, vocab_size=13, max_position=9)
        >>> model.build()
        >>> _ = add_adapters(model)
        >>> merge_adapters(model)
        >>> len(model.trainable_weights) == len(model.weights)
        True
    """
    for layer in _with_adapters(model):
        layer.merge_lora()
    for value in (False, True):  # Keras does not propagate a value that is already set
        model.trainable = value
    _trace_anew(model)


def save_adapters(model, folder):
    """Write the adapters of a model into a folder that `peft` and `load_adapters` read.

    Args:
        model: `LanguageModel` or `Transformer` with adapters and the architecture of a published
            model.
        folder: str or Path; adapters there are replaced.

    Raises:
        FileExistsError: If the folder contains anything but adapters.
        ImportError: If the package `safetensors` is not installed.
        OSError: If the folder cannot be written; its previous content is kept.
        ValueError: If the model has no adapters, or no published model has its architecture; or if
            one matrix in the files is several layers here whose alpha / r differs.

    Example:
        >>> from tf_transformer import Architecture, LanguageModel, LearnedPositions, PreNorm
        >>> gpt2 = Architecture(LearnedPositions(9), residual=PreNorm(), scale_embeddings=False)
        >>> model = LanguageModel(1, 8, 2, 16, 13, 9, architecture=gpt2, pad_id=None)
        >>> model.build()
        >>> _ = add_adapters(model, rank=2)
        >>> save_adapters(model, "my-adapters")
        >>> sorted(path.name for path in Path("my-adapters").iterdir())
        ['adapter_config.json', 'adapter_model.safetensors']
    """
    from safetensors.numpy import save_file

    _with_adapters(model)
    arguments = arguments_of(model)
    family = FAMILIES[described(model, arguments)[0]]
    modules = _modules(model, family)
    tensors, ranks, alphas = {}, {}, {}
    for module, parts in modules.items():
        if any(layer.lora_enabled for _, layer in parts):
            a, b, alphas[module] = _joined(module, parts, family, arguments)
            ranks[module] = len(a)
            tensors |= dict(zip(_tensors(module), (a, b), strict=True))
    rank, alpha = (statistics.mode(values.values()) for values in (ranks, alphas))
    is_decoder = isinstance(model, LanguageModel)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if is_decoder else "SEQ_2_SEQ_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": alpha,
        "rank_pattern": {module: other for module, other in ranks.items() if other != rank},
        "alpha_pattern": {module: other for module, other in alphas.items() if other != alpha},
        "target_modules": _targets(modules, ranks),
        "fan_in_fan_out": not family.transposed,
        "bias": "none",
    }
    with replacing(folder, only_with=_CONFIG) as beside:
        beside.mkdir()
        write_json(beside / _CONFIG, config)
        save_file(tensors, beside / f"{_WEIGHTS}.safetensors", metadata={"format": "pt"})


def load_adapters(model, folder, *, ignored_fields=()):
    """Add the adapters in a folder of `peft` to a model, and freeze all other weights.

    Args:
        model: built `LanguageModel` or `Transformer` that `load` returned; it is changed.
        folder: str or Path, a folder with `adapter_config.json` and `adapter_model.safetensors`.
        ignored_fields: collection of str, fields of `adapter_config.json` that are unknown here and
            do not change what the model computes; others are refused.

    Raises:
        FileNotFoundError: If a file is missing, or the weights are pickled.
        ImportError: If the package `safetensors` is not installed.
        ValueError: If the model has adapters or int8 weights; if the kind of adapter is not
            supported, or a field may change the result and is unknown; or if the weights do not
            match the model: all differences are listed.

    Example:
        >>> from tf_transformer import Architecture, LanguageModel, LearnedPositions, PreNorm
        >>> gpt2 = Architecture(LearnedPositions(9), residual=PreNorm(), scale_embeddings=False)
        >>> model = LanguageModel(1, 8, 2, 16, 13, 9, architecture=gpt2, pad_id=None)
        >>> model.build()
        >>> _ = add_adapters(model, rank=2)
        >>> save_adapters(model, "my-adapters")
        >>> merge_adapters(model)
        >>> load_adapters(model, "my-adapters")
        >>> len(model.trainable_weights)  # wk is a part of the same matrix in the file
        6
    """
    _free_layers(model)
    path = Path(folder) / _CONFIG
    config = read_json(path)
    check_fields(config, _FIELDS, path, ignored_fields)
    try:
        settings = _settings(config)
    except ArgumentError as error:
        raise error.inside(path) from None
    arguments = arguments_of(model)
    family = FAMILIES[described(model, arguments)[0]]
    file = SafetensorsFile(folder, _WEIGHTS)
    found, shapes = [], {}
    for module, parts in _modules(model, family).items():
        names = _tensors(module)
        if file.shapes.keys() & set(names):
            rank, alpha = settings(module)
            units = sum(layer.units for _, layer in parts)
            shapes |= {names[0]: (rank, parts[0][1].kernel.shape[0]), names[1]: (units, rank)}
            found.append((names, rank, alpha, parts))
    check_weights(file, shapes, lambda name: False)
    check(found, "folder", "adapters for at least one layer", f"none in {folder}")
    _enable(model, [(layer, rank, alpha) for _, rank, alpha, parts in found for _, layer in parts])
    for names, _, _, parts in found:
        a, b = (np.asarray(file.read(name), np.float32) for name in names)
        ends = np.cumsum([layer.units for _, layer in parts])[:-1]
        for (ours, layer), rows in zip(parts, np.split(b, ends), strict=True):
            layer.lora_kernel_a.assign(a.T)
            layer.lora_kernel_b.assign(rows.T * np.float32(family.factor(ours, arguments)))


_FIELDS = read_table("""
peft_type | ["LORA"] | other adapters
r lora_alpha use_rslora rank_pattern alpha_pattern | used | rank and scale of each adapter
target_modules exclude_modules layers_to_transform layers_pattern |
    harmless | the names of the weights say which layers have adapters
fan_in_fan_out | harmless | A and B are stored in the same way for both kinds of kernels
bias | ["none"] | trained biases
lora_bias | [false] | adapters with a bias
modules_to_save | [[]] | layers that were trained as a whole
trainable_token_indices | [[], {}] | trained rows of the embeddings
target_parameters | [[]] | adapters of weights that belong to no dense layer
use_dora use_qalora use_bdlora | [false] | other forms of A and B
kasa_config monteclora_config velora_config arrow_config | [] | other forms of A and B
alora_invocation_tokens | [[]] | adapters that only apply after certain tokens
layer_replication | [[]] | layers that are used several times
megatron_config | [] | layers that are spread over devices
init_lora_weights | [true, false, "gaussian", "eva", "orthogonal"] |
    initial values that also change the weights of the model
corda_config lora_ga_config | [] | initial values that also change the weights of the model
loftq_config | [{}] | initial values that also change the weights of the model
eva_config ensure_weight_tying | harmless | how training began
lora_dropout | harmless | only in training
task_type base_model_name_or_path revision auto_mapping inference_mode peft_version runtime_config
    megatron_core qalora_group_size | harmless | origin and use of the file
""")


def _settings(config):
    """A function: name of a layer in the files -> rank and alpha of its adapter."""
    given = {"r": 8, "lora_alpha": 8, "use_rslora": False, "rank_pattern": {}, "alpha_pattern": {}}
    given |= {name: config[name] for name in given if config.get(name) is not None}
    if type(given["use_rslora"]) is not bool:
        raise ArgumentError("use_rslora", "true or false", f"{given['use_rslora']!r}")
    for name in ("rank_pattern", "alpha_pattern"):
        fits = isinstance(given[name], dict)
        # Other patterns may take forever.
        fits = fits and all(re.fullmatch(r"\^?[\w.]+", key, re.ASCII) for key in given[name])
        check(fits, name, "an object whose keys are names of layers", reprlib.repr(given[name]))
    for rank in (given["r"], *given["rank_pattern"].values()):
        if type(rank) is not int or not 1 <= rank < 2**31:
            raise ArgumentError("r, rank_pattern", "whole numbers from 1 on", reprlib.repr(rank))
    for alpha in (given["lora_alpha"], *given["alpha_pattern"].values()):
        _check_alpha("lora_alpha, alpha_pattern", alpha)

    def of(module):
        def value(name, pattern):
            keys = (key for key in given[pattern] if re.match(rf"(.*\.)?({key})$", module))
            return given[pattern].get(next(keys, None), given[name])

        rank, alpha = value("r", "rank_pattern"), value("lora_alpha", "alpha_pattern")
        # Kalajdzievski 2023, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA".
        return rank, alpha * math.sqrt(rank) if given["use_rslora"] else alpha

    return of


def _check_alpha(name, alpha):
    if type(alpha) not in (int, float) or not abs(alpha) < 1e30:  # neither NaN nor a huge int
        raise ArgumentError(name, "a finite number", reprlib.repr(alpha))


def _layers(model):
    """The dense layers of a model, by the names of their kernels in the tables."""
    if not isinstance(model, LanguageModel | Transformer):
        raise ArgumentError("model", "a LanguageModel or a Transformer", type(model).__name__)
    check(model.built, "model", "a built model", "one without weights", "Call build().")
    dense = {id(x._kernel): x for x in model._flatten_layers() if isinstance(x, FlatDense)}
    return {name_of(model, w): dense[id(w)] for w in model.weights if id(w) in dense}


def _free_layers(model):
    """`_layers` of a model that has neither adapters nor int8 weights."""
    layers = _layers(model)
    check_merged(model)
    check_float(model, "Pass the original.")
    return layers


def _with_adapters(model):
    """The layers of a model that have adapters, at least one."""
    _layers(model)
    if not (adapted := adapted_layers(model)):
        raise ArgumentError("model", "a model with adapters", "none", "Call add_adapters.")
    return adapted


def _enable(model, adapters):
    """Add adapters `(layer, rank, alpha)`, and freeze all other weights."""
    for weight in model.weights:
        weight.trainable = False
    uniform = keras.initializers.VarianceScaling(1 / 3, "fan_in", "uniform")  # `peft`'s
    for layer, rank, alpha in adapters:
        layer.enable_lora(rank, alpha, a_initializer=uniform.clone())
    _trace_anew(model)


def _trace_anew(model):
    """Forget functions that were traced with other weights."""
    model.train_function = model.test_function = model.predict_function = None


def _modules(model, family):
    """The layers in a family's files, with `(name, layer)` of their parts: c_attn has three."""
    modules = {}
    for ours, layer in _layers(model).items():
        there, (part, parts) = name_in_file(ours, family.names)
        modules.setdefault(there.removesuffix(".weight"), [None] * parts)[part - 1] = ours, layer
    return modules


def _tensors(module):
    return tuple(f"base_model.model.{module}.lora_{matrix}.weight" for matrix in "AB")


def _joined(module, parts, family, arguments):
    """A (r, D), B (F, r) and alpha of a layer in the files."""
    adapted = [layer for _, layer in parts if layer.lora_enabled]
    alpha, rank = adapted[0].lora_alpha, adapted[0].lora_rank
    if any(layer.lora_alpha / layer.lora_rank != alpha / rank for layer in adapted):
        expected = f"one alpha / r for the parts of {module}"
        raise ArgumentError("model", expected, ", ".join(layer.path for layer in adapted))
    a = [np.asarray(layer.lora_kernel_a).T for layer in adapted]
    # What was read, or trained in part, has one A; otherwise each part has rows of its own.
    is_one = all(np.array_equal(one, a[0]) for one in a)
    total = rank if is_one else sum(map(len, a))
    b, first = [], 0
    for ours, layer in parts:
        b.append(np.zeros((layer.units, total), np.float32))
        if layer.lora_enabled:
            columns = slice(first, first + layer.lora_rank)
            factor = np.float32(family.factor(ours, arguments))
            b[-1][:, columns] = np.asarray(layer.lora_kernel_b).T / factor
            first = first if is_one else columns.stop
    alpha = alpha if is_one else alpha * total / rank
    alpha = int(alpha) if alpha == int(alpha) else alpha
    a = np.ascontiguousarray(a[0] if is_one else np.concatenate(a))
    return a, np.concatenate(b), alpha


def _targets(modules, adapted):
    """The last parts of the names of adapted layers, or whole names if other layers have them."""
    ends = {module.split(".")[-1] for module in adapted}
    others = {module.split(".")[-1] for module in modules if module not in adapted}
    return sorted(adapted if ends & others else ends)
