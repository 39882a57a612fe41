"""The BERT model and its inputs, loading and saving it, and a table of its parameters.

Axes: B batch, T length, N heads, D hidden size, L layers, M tokens.
"""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope  # no public name

from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.activations import get_activation
from tf_transformer.functional.tensors import (
    as_ids,
    asserted,
    dense,
    in_xla_program,
    portable_positions,
)
from tf_transformer.layers.architecture import Architecture, HasArchitecture
from tf_transformer.layers.base_layer import TakesIds
from tf_transformer.models.base_model import BaseModel, check_merged
from tf_transformer.models.bert.attention import (
    PackedLayout,
    PaddedLayout,
    tokens_in,
    without_drawing,
)
from tf_transformer.models.bert.bert_config import FAMILIES, BertConfig
from tf_transformer.models.bert.checkpoints.files import copy_side_files
from tf_transformer.models.bert.checkpoints.loading import Checkpoint, save_folder
from tf_transformer.models.bert.encoder import BertEmbeddings, BertEncoder

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
_EXPECTED = "a dict of input_ids and optionally token_type_ids and attention_mask"
# Parts of a model that a checkpoint may lack.
_ON_TOP = (
    "bert/pooler/",
    "cls/predictions/",
    "cls/seq_relationship/",
    "cls/squad/",
    "classifier/",
    "classifiers/",
    "discriminator_predictions/",
)


def dense_inputs(inputs, pad_id=0):
    """Convert the inputs of `Bert` to a dict of dense integer tensors; None counts as missing."""
    if not isinstance(inputs, Mapping) or inputs.get("input_ids") is None:
        got = sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise ArgumentError("inputs", _EXPECTED, got)
    ids = inputs["input_ids"]
    if isinstance(ids, tf.RaggedTensor):
        inputs = {**inputs, "input_ids": ids.to_tensor(pad_id)}
    found = {
        name: _mask(x) if name == "attention_mask" else as_ids(x, name)
        for name, x in inputs.items()
        if x is not None
    }
    if isinstance(ids, tf.RaggedTensor):  # the mask ends where the rows end
        keep = tf.sequence_mask(ids.row_lengths(), tf.shape(found["input_ids"])[1], tf.int32)
        mask = found.get("attention_mask")
        if mask is not None:
            while len(keep.shape) < len(mask.shape):
                keep = tf.expand_dims(keep, 1)  # (B, 1, T), of keys
            keep *= tf.cast(mask, tf.int32)
        found["attention_mask"] = keep
    return found


def _mask(mask):
    """Convert an attention mask to a dense tensor; float is refused, since its 1.0 would block."""
    mask = dense(mask, "attention_mask")
    dtype = tf.as_dtype(mask.dtype)
    if dtype.is_floating and in_symbolic_scope() and not isinstance(mask, keras.KerasTensor):
        return tf.cast(mask, tf.int32)  # Keras's placeholder for the mask
    if not (dtype.is_integer or dtype.is_bool):
        remedy = "An attention mask has 1 = may attend; cast it: tf.cast(mask, tf.int32)."
        raise ArgumentError("attention_mask", "integers", dtype.name, remedy)
    return mask


def checked_inputs(inputs):
    """`(ids, types, mask)`: two int32 or int64 (B, T); None, or bool, True = may attend."""
    inputs = dense_inputs(inputs)
    check(set(inputs) <= set(INPUTS), "inputs", _EXPECTED, sorted(inputs))
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    types = inputs.get("token_type_ids", tf.zeros_like(ids))
    ranks = {"input_ids": (ids, (2,)), "token_type_ids": (types, (2,))}
    if mask is not None:
        ranks["attention_mask"] = (mask, (2, 3, 4))
    for name, (tensor, allowed) in ranks.items():
        fits = tensor.shape.rank in allowed and tensor.shape[-1:].is_compatible_with(ids.shape[-1:])
        if not fits or not tensor.shape[:1].is_compatible_with(ids.shape[:1]):
            got = f"{tuple(tensor.shape)} with input_ids {tuple(ids.shape)}"
            raise ArgumentError(name, "a shape that matches input_ids (batch, length)", got)
    if mask is not None and not mask.dtype.is_bool:
        fits = tf.reduce_all((mask == 0) | (mask == 1))
        expected = "1 for what may be attended to and 0 for the rest"
        remedy = "A mask to add to scores has 0 = may attend: pass tf.cast(mask == 0, tf.int32)."
        mask = asserted(mask, fits, "attention_mask", expected, "other numbers", remedy)
    expected = "at least one token for each text, such as [CLS]"
    check(ids.shape[1] != 0, "input_ids", expected, f"shape {tuple(ids.shape)}")
    return ids, types, None if mask is None else tf.cast(mask, tf.bool)


@keras.saving.register_keras_serializable(package="tf_transformer")
class PretrainedBert(TakesIds, HasArchitecture, BaseModel):
    """A Keras model with a `BertConfig` that loads and saves published checkpoint formats."""

    # Overridden by subclasses.
    published_as = None  # name of the Hugging Face class
    head_scope = "no head"  # name prefix of the head's variables
    pooler_use = "unused"  # or "needed", or "optional"
    has_labels = False
    families = (None, *FAMILIES)  # of `BertConfig`

    def __init__(self, config, *, unpad=False, architecture=None, **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)
        names, family = " or ".join(map(str, self.families)), self.config.family
        expected = f"{names}, since other published models have no {type(self).__name__}"
        check(family in self.families, "family", expected, family)
        pooler_use = self.pooler_use_with(self.config)
        if pooler_use == "unused":
            self.config = dataclasses.replace(self.config, pooler_activation=None)
        elif pooler_use == "needed":
            found = self.config.pooler_activation is not None
            expected = f"an activation, since {type(self).__name__} uses the pooler"
            check(found, "pooler_activation", expected, "None", 'BERT uses "tanh".')
        if isinstance(architecture, Architecture):  # anything else: see ConfiguredLayer
            sizes = architecture.num_groups, architecture.embedding_size
            expected = "num_groups and embedding_size to be None, since the config has "
            expected += "num_hidden_groups and embedding_size"
            check(not any(sizes), "architecture", expected, f"{sizes[0]} and {sizes[1]}")
            for name in ("attention_bias", "scale_embeddings", "embedding_norm"):
                value, default = getattr(architecture, name), getattr(Architecture, name)
                expected = f"the default {name}: BERT has its own embeddings and biases"
                check(value == default, "architecture", expected, value)
        if self.has_labels:
            check(self.config.labels, "labels", "the names of the classes in the config", "none")
        self.unpad = unpad
        self.architecture = architecture
        self.supports_jit = not unpad  # read by Keras for jit_compile="auto"

    def __call__(self, *args, **kwargs):
        """Also accepts the inputs by name, as in transformers: `model(**tokens)`."""
        names = self.input_signature.keys() & kwargs.keys()
        named = {name: kwargs.pop(name) for name in names}
        if named and len(args) == 1 and not isinstance(args[0], Mapping):
            args, named["input_ids"] = (), args[0]
        if named and args:
            raise TypeError(f"inputs: expected a dict, or {sorted(named)} by name, got both.")
        return super().__call__(*([named] if named else args), **kwargs)

    @classmethod
    def pooler_use_with(cls, config):
        """Return the `pooler_use` of a model with this config."""
        return cls.pooler_use

    def as_inputs(self, inputs):
        """See `dense_inputs`."""
        return dense_inputs(inputs, self.config.pad_token_id or 0)

    @property
    def input_signature(self):
        """See `BaseModel`."""
        return {name: tf.TensorSpec((None, None), "int32", name) for name in INPUTS}

    @classmethod
    def from_pretrained(cls, path, *, new_head=False, ignored_fields=(), **changes):
        """Create a built model from a checkpoint.

        Args:
            path: str or Path: a folder in Hugging Face's layout (`config.json` and safetensors, or
                `tf_model.h5`) or Google's (`bert_config.json` and a TensorFlow checkpoint), or the
                prefix of a TensorFlow checkpoint.
            new_head: bool, True initializes the head (and the pooler, if the checkpoint has none)
                randomly, for fine-tuning; False requires it in the checkpoint. None loads the parts
                that the checkpoint has, for further training.
            ignored_fields: collection of str, fields of the configuration file that are unknown
                here and do not change what the model computes; others are refused.
            changes: fields of `BertConfig` that override the configuration file, and constructor
                arguments except `architecture`, which the checkpoint sets.

        Raises:
            FileNotFoundError: If a file is missing.
            ImportError: If the package `safetensors` is needed and not installed.
            ValueError: If the configuration or the weights do not match the model; all
                differences are listed.
        """
        if "architecture" in changes:
            name = f"{cls.__name__}.from_pretrained"
            expected = f"none for {name}, since a checkpoint has one already"
            raise ArgumentError("architecture", expected, f"{changes['architecture']!r}")
        names = {field.name for field in dataclasses.fields(BertConfig)} & changes.keys()
        fields = {name: changes.pop(name) for name in names}
        checkpoint = Checkpoint(path, fields, ignored_fields)
        config, has = checkpoint.config, checkpoint.has
        pooler = (f"bert/pooler/dense/{part}" for part in ("kernel", "bias"))
        if cls.pooler_use == "optional" and not any(map(has, pooler)):
            config = dataclasses.replace(config, pooler_activation=None)
        if cls.has_labels and not config.labels:  # the default of Hugging Face
            config = dataclasses.replace(config, labels=("LABEL_0", "LABEL_1"))
        model = cls(config, architecture=checkpoint.architecture, **changes)
        with without_drawing():  # the checkpoint has all weights of the encoder
            model.build()
        variables = model.variables_by_name()
        new = [cls.head_scope] if new_head else []
        if new_head is not False:
            # Only whole parts are new: a part must not be partly in the checkpoint.
            parts = {scope: [n for n in variables if n.startswith(scope)] for scope in _ON_TOP}
            new += [scope for scope, names in parts.items() if not any(map(has, names))]
        new = [name for name in variables if name.startswith(tuple(new))]
        checkpoint.load(variables, new)
        return model

    def save_pretrained(self, folder, tokenizer_from=None):
        """Save the model in Hugging Face's layout, in which `transformers` loads the same model.

        Models without a class there (a linear pooler, only one of narrow embeddings and sharing,
        an `architecture`) get a `model_type` of their own, which only `from_pretrained` loads.

        Args:
            folder: str or Path; a model there is replaced.
            tokenizer_from: str or Path of a folder whose vocabulary files are copied; None keeps
                the replaced model's.

        Raises:
            FileExistsError: If the folder contains anything but a model.
            ImportError: If the package `safetensors` is not installed.
            OSError: If the folder cannot be written; its previous content is kept.

        Example:
            >>> Bert(BertConfig(13, 8, 2, 2, 16)).save_pretrained("my-bert")
            >>> Bert.from_pretrained("my-bert").config.vocab_size
            13
        """
        if not self.built:
            self.build()
        check_merged(self)
        with replacing(folder, only_with="config.json") as beside:
            beside.mkdir()
            # `transformers` uses the number of labels as the output size of any head.
            unused = {} if self.has_labels else {"labels": (), "problem_type": None}
            config, names = dataclasses.replace(self.config, **unused), self.variables_by_name()
            with_prefix = self.head_scope != "no head"
            save_folder(beside, names, config, self.published_as, with_prefix, self.architecture)
            self.write_side_files(beside)
            copy_side_files(folder if tokenizer_from is None else tokenizer_from, beside)

    def write_side_files(self, folder):
        """Write additional files of a subclass into `folder`, a Path."""

    def variables_by_name(self):
        """Return a dict of the variables by their names in `checkpoints.loading.name_table`."""
        own = f"{self.path}/"
        return {variable.path.removeprefix(own): variable for variable in self.weights}

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict(), "unpad": self.unpad}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Bert(PretrainedBert):
    """Encoder that maps token ids to one vector per token and one for the whole text.

    Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", section 3. Its
    variables have the names used in the published TensorFlow checkpoints, under "bert/".

    Args:
        config: `BertConfig`, or its dict.
        unpad: bool, True skips padding, which saves time; the output for padding is then 0. It only
            takes effect if the mask has rank 2, and not in XLA programs, whose shapes are fixed.
        architecture: None for BERT's, or an `Architecture`. Its parts replace the positions, all
            normalizations up to the last layer, and the inside of the layers; `hidden_act` and
            `layer_norm_eps` then only apply to heads. If its positions have a limit, it must be at
            least `max_position_embeddings`.

    Call arguments:
        inputs: dict of integer tensors, see `as_ids` for what else is accepted:
            input_ids (B, T); if they are ragged, what is after the end of a row is blocked;
            token_type_ids (B, T), the segment of each token; zeros if missing;
            attention_mask, 1 = may attend: (B, T), which tokens are not padding; (B, T, T), which
            token (axis 1) attends to which (axis 2); or (B, 1 or N, T, T). All ones if missing,
            even if input_ids are padded. Bool masks mean the same.
        training: bool or None; dropout is only applied if true.
        return_hidden_states, return_attentions: bool.

    Returns:
        dict: `sequence_output` (B, T, D); `pooled_output` (B, D), tanh(first token W + b), if the
        model has a pooler; on request `hidden_states`, a list of L + 1 tensors (B, T, D)
        that starts with the input of the first layer, and `attentions`, L tensors (B, N, T, T). If
        the architecture has a final norm (`PreNorm`), the last hidden state is normalized by it.

    Raises:
        ValueError: If an input is unknown or missing, the mask is float, shapes do not match, an id
            is out of range, or T is larger than the `max_length` of the config or the positions of
            the architecture; the last two raise a `tf.errors.InvalidArgumentError` in a graph, and
            make all outputs for that text NaN in XLA.

    Example:
        >>> model = Bert(BertConfig(13, 8, 2, 2, 16, max_position_embeddings=5))
        >>> outputs = model({"input_ids": tf.constant([[2, 7, 3]])})
        >>> outputs["sequence_output"].shape.as_list(), outputs["pooled_output"].shape.as_list()
        ([1, 3, 8], [1, 8])
    """

    published_as = "BertModel"
    pooler_use = "optional"

    def __init__(self, config, *, unpad=False, architecture=None, name="bert", **kwargs):
        super().__init__(config, unpad=unpad, architecture=architecture, name=name, **kwargs)
        config = self.config
        options = {"architecture": architecture, "dtype": self.dtype_policy}
        self.embeddings = BertEmbeddings(config, name="embeddings", **options)
        self.encoder = BertEncoder(config, name="encoder", **options)
        self.pooler_dense = None
        if config.pooler_activation is not None:
            kernel = keras.initializers.TruncatedNormal(stddev=config.initializer_range)
            activation = get_activation(config.pooler_activation)
            options = {"kernel_initializer": kernel, "name": "dense", "dtype": self.dtype_policy}
            self.pooler_dense = keras.layers.Dense(config.hidden_size, activation, **options)

    def build(self, input_shape=None):
        self.embeddings.build((None, None))
        self.encoder.build((None, None, self.config.embedding_width))
        if self.pooler_dense is not None:
            with keras.name_scope("pooler"):
                self.pooler_dense.build((None, self.config.hidden_size))

    def call(self, inputs, training=None, return_hidden_states=False, return_attentions=False):
        embedded, mask = self.embed(inputs, training)
        layout = self.layout(embedded, mask)
        outputs, attentions = self.encoder.forward(
            layout.to_rows(embedded), layout, mask, None, training, return_attentions
        )
        wanted = outputs if return_hidden_states else outputs[-1:]
        hidden_states = [layout.to_batch(rows) for rows in wanted]
        for states in hidden_states:
            states.set_shape((*embedded.shape[:2], self.config.hidden_size))
        results = {"sequence_output": hidden_states[-1]}
        if self.pooler_dense is not None:
            results["pooled_output"] = self.pooler_dense(hidden_states[-1][:, 0])
        if return_hidden_states:
            results["hidden_states"] = hidden_states
        if return_attentions:
            results["attentions"] = attentions
        return results

    def embed(self, inputs, training=None):
        """Embed the inputs: (B, T, embedding width), and None or a bool mask, True = may attend."""
        ids, types, mask = checked_inputs(inputs)
        tokens = None if self.architecture is None else tokens_in(mask)
        return self.embeddings(ids, types, training=training, tokens=tokens), mask

    def layout(self, x, mask):
        """Choose the layout of the rows of (B, T, W): without padding if `unpad` takes effect."""
        fixed = in_xla_program() or portable_positions()
        if self.unpad and mask is not None and mask.shape.rank == 2 and not fixed:
            return PackedLayout(mask)
        return PaddedLayout(*tf.unstack(tf.shape(x)[:2]))

    def variables_by_name(self):
        """Same as in `PretrainedBert`, always under "bert/", not the model's own name."""
        return {f"bert/{name}": variable for name, variable in super().variables_by_name().items()}


@keras.saving.register_keras_serializable(package="tf_transformer")
class BertWithHead(PretrainedBert):
    """Base class with `Bert` as `self.bert`; a subclass adds its head and `call`."""

    def __init__(self, config, *, unpad=False, architecture=None, **kwargs):
        options = {"unpad": unpad, "architecture": architecture}
        super().__init__(config, **options, **kwargs)
        self.bert = Bert(self.config, **options, dtype=self.dtype_policy)

    def build(self, input_shape=None):
        self.bert.build()


# In matching order: a substring of the variable's name in lower case, and its use.
_PARTS = (
    ("_embeddings", "embeddings: words, positions, segments"),
    ("norm/", "layer normalizations"),
    ("embedding_hidden_mapping_in/", "mapping of the embeddings"),
    ("pooler/", "pooler"),
    ("/positions/", "positions inside attention"),
    ("/bias", "biases of attention and feed-forward"),
    ("/attention/", "attention: matrices of q, k, v and output"),
    ("", "feed-forward: matrices"),
)


def parameter_table(model):
    """Count the parameters of a model by use.

    Args:
        model: a built `Bert`, or one with a head.

    Returns:
        dict, part to number of parameters; "head" is everything above the encoder and the pooler,
        "all" the total.

    Example:
        >>> model = Bert(BertConfig(11, 8, 2, 2, 16))
        >>> model.build()
        >>> parameter_table(model)["pooler"]
        72
    """
    table = {}
    for name, variable in model.variables_by_name().items():
        part = "head"
        if name.startswith("bert/"):
            part = next(part for piece, part in _PARTS if piece in name.lower())
        table[part] = table.get(part, 0) + int(np.prod(variable.shape))
    if others := model.count_params() - sum(table.values()):  # of a `SentenceEncoder`
        table["head"] = table.get("head", 0) + others
    return {**table, "all": sum(table.values())}
