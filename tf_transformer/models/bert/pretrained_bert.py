"""Base class of the BERT models: config, variable names, loading and saving."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path

import keras
import tensorflow as tf
from keras.src.backend.common.symbolic_scope import in_symbolic_scope  # no public name

from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError
from tf_transformer.functional.ids import as_ids, dense
from tf_transformer.layers.architecture import Architecture, with_architecture
from tf_transformer.layers.base_layer import NotesLayer, TakesIds
from tf_transformer.models.base_model import BaseModel
from tf_transformer.models.bert.attention import without_drawing
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.checkpoints.loading import (
    load_variables,
    read_checkpoint,
    save_folder,
)

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "sentence_bert_config.json",  # maximum length of a text
)
# Parts of a model that a checkpoint may lack.
_ON_TOP = (
    "bert/pooler/",
    "cls/predictions/",
    "cls/seq_relationship/",
    "cls/squad/",
    "classifier/",
    "classifiers/",
)


@keras.saving.register_keras_serializable(package="tf_transformer")
class PretrainedBert(TakesIds, NotesLayer, BaseModel):
    """A Keras model with a `BertConfig` that loads and saves published checkpoint formats.

    Args:
        config: `BertConfig`, or its dict.
        unpad: bool, see `Bert`.
        jit: True, False or "auto", whether to compile the attention core with XLA.
        architecture: None, or an `Architecture`, see `Bert`.

    Example:
        >>> class Empty(PretrainedBert):
        ...     pass
        >>> Empty(BertConfig(hidden_size=24)).config.hidden_size
        24
    """

    # Overridden by subclasses.
    published_as = None  # name of the Hugging Face class
    head_scope = "no head"  # name prefix of the head's variables
    pooler_use = "unused"  # or "needed", or "optional"
    has_labels = False

    def __init__(self, config, *, unpad=False, jit="auto", architecture=None, **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)
        if self.pooler_use == "unused":
            self.config = dataclasses.replace(self.config, pooler_activation=None)
        elif self.pooler_use == "needed" and self.config.pooler_activation is None:
            raise ArgumentError(
                "pooler_activation",
                f"an activation, since {type(self).__name__} uses the pooler",
                "None",
                'BERT uses "tanh".',
            )
        if isinstance(architecture, Architecture) and (  # anything else: see LayerWithArchitecture
            architecture.num_groups or architecture.embedding_size
        ):
            raise ArgumentError(
                "architecture",
                "num_groups and embedding_size to be None, since the config has "
                "num_hidden_groups and embedding_size",
                f"{architecture.num_groups} and {architecture.embedding_size}",
            )
        if self.has_labels and not self.config.labels:
            raise ArgumentError("labels", "the names of the classes in the config", "none")
        self.unpad = unpad
        self.jit = jit
        self.architecture = architecture
        self.supports_jit = not unpad  # read by Keras for jit_compile="auto"

    def __call__(self, *args, **kwargs):
        """Also takes the inputs by name, as in transformers: `model(**tokens)`."""
        names = self.input_signature.keys() & kwargs.keys()
        named = {name: kwargs.pop(name) for name in names}
        if named and len(args) == 1 and not isinstance(args[0], Mapping):
            args, named["input_ids"] = (), args[0]
        if named and args:
            raise TypeError(f"inputs: expected a dict, or {sorted(named)} by name, got both.")
        return super().__call__(*([named] if named else args), **kwargs)

    def taken(self, inputs):
        """See `dense_inputs`."""
        return dense_inputs(inputs)

    @property
    def input_signature(self):
        """See `BaseModel`."""
        names = ("input_ids", "token_type_ids", "attention_mask")
        return {name: tf.TensorSpec((None, None), "int32", name) for name in names}

    @classmethod
    def from_pretrained(cls, path, *, new_head=False, ignored_fields=(), **changes):
        """Create a model from a checkpoint.

        Args:
            path: str or Path: a folder in Hugging Face's layout (`config.json` and safetensors, or
                the `tf_model.h5` of its TensorFlow classes), a folder in Google's layout
                (`bert_config.json` and a TensorFlow checkpoint), or the prefix of a TensorFlow
                checkpoint.
            new_head: bool, True initializes the head (and the pooler, if the checkpoint has none)
                randomly, for fine-tuning; False requires it in the checkpoint. None loads the parts
                that the checkpoint has, for further training.
            ignored_fields: collection of str, fields of the configuration file that are unknown
                here and do not change what the model computes; others are refused.
            changes: fields of `BertConfig` that override the configuration file (`labels`, a
                dropout rate, `pooler_activation="linear"`), and constructor arguments, except
                `architecture`, which is that of the checkpoint.

        Returns:
            The built model.

        Raises:
            FileNotFoundError: If a file is missing.
            ImportError: If the package `safetensors` is needed and not installed.
            ValueError: If the configuration or the weights do not match the model; all
                differences are listed.

        Example:
            >>> import os, tempfile
            >>> from tf_transformer.models.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
            >>> model.build()
            >>> folder = os.path.join(tempfile.mkdtemp(), "bert")
            >>> model.save_pretrained(folder)
            >>> Bert.from_pretrained(folder).count_params() == model.count_params()
            True
        """
        fields = {field.name for field in dataclasses.fields(BertConfig)}
        if "architecture" in changes:
            raise ArgumentError(
                "architecture",
                (f"none for {cls.__name__}.from_pretrained, since a checkpoint has one already"),
                f"{changes['architecture']!r}",
            )
        file, config, architecture, has = read_checkpoint(
            path,
            {name: value for name, value in changes.items() if name in fields},
            ignored_fields,
        )
        pooler = (f"bert/pooler/dense/{part}" for part in ("kernel", "bias"))
        if cls.pooler_use == "optional" and not any(map(has, pooler)):
            config = dataclasses.replace(config, pooler_activation=None)
        if cls.has_labels and not config.labels:  # the default of Hugging Face
            config = dataclasses.replace(config, labels=("LABEL_0", "LABEL_1"))
        options = {name: value for name, value in changes.items() if name not in fields}
        model = cls(config, architecture=architecture, **options)
        with without_drawing():  # the checkpoint has all weights of the encoder
            model.build()
        variables = model.variables_by_name()
        new = [cls.head_scope] if new_head else []
        if new_head is not False:
            # Only whole parts are new: a part must not be partly in the checkpoint.
            parts = {scope: [n for n in variables if n.startswith(scope)] for scope in _ON_TOP}
            new += [scope for scope, names in parts.items() if not any(map(has, names))]
        new = [name for name in variables if name.startswith(tuple(new))]
        load_variables(file, variables, config, new, architecture)
        return model

    def save_pretrained(self, folder, tokenizer_from=None):
        """Save the model in Hugging Face's layout.

        `transformers` loads it with the same results. Models without a class there (a linear
        pooler, narrow embeddings without sharing, sharing without narrow embeddings, an
        `architecture`) get a separate `model_type`, which `transformers` rejects; `from_pretrained`
        loads all of them.

        Args:
            folder: str or Path; a model there is replaced.
            tokenizer_from: str or Path of a folder whose vocabulary files are copied; None keeps
                those of the replaced model.

        Raises:
            FileExistsError: If the folder contains anything but a model.
            ImportError: If the package `safetensors` is not installed.
            OSError: If the folder cannot be written; its previous content is kept.

        Example:
            >>> import os, tempfile
            >>> from tf_transformer.models.bert import Bert, BertConfig
            >>> model = Bert(BertConfig(13, 8, 2, 2, 16))
            >>> model.build()
            >>> folder = os.path.join(tempfile.mkdtemp(), "bert")
            >>> model.save_pretrained(folder)
            >>> sorted(os.listdir(folder))
            ['config.json', 'model.safetensors']
        """
        if not self.built:
            self.build()
        with replacing(folder, only_with="config.json") as beside:
            beside.mkdir()
            with_prefix = self.head_scope != "no head"
            # `transformers` takes the number of labels as the output size of any head.
            config = self.config
            if not self.has_labels:
                config = dataclasses.replace(config, labels=(), problem_type=None)
            save_folder(
                beside,
                self.variables_by_name(),
                config,
                self.published_as,
                with_prefix,
                self.architecture,
            )
            self.write_side_files(beside)
            source = Path(folder if tokenizer_from is None else tokenizer_from)
            for name in _TOKENIZER_FILES:
                if (source / name).is_file():
                    shutil.copy(source / name, beside)

    def write_side_files(self, folder):
        """Write additional files of a subclass into `folder`, a Path."""

    def variables_by_name(self):
        """Return the variables by their names in `checkpoints.loading.name_table`.

        Returns:
            dict, name to Keras variable.

        Example:
            >>> from tf_transformer.models.bert.bert import Bert
            >>> model = Bert(BertConfig(11, 8, 1, 2, 9))
            >>> model.build()
            >>> model.variables_by_name()["bert/pooler/dense/bias"].shape.as_list()
            [8]
        """
        own = f"{self.path}/"
        return {variable.path.removeprefix(own): variable for variable in self.weights}

    def get_config(self):
        return {
            **super().get_config(),
            "config": self.config.to_dict(),
            "unpad": self.unpad,
            "jit": self.jit,
            "architecture": self.architecture and self.architecture.to_dict(),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))


def dense_inputs(inputs):
    """Convert the inputs of `Bert` to dense tensors of integers.

    Args:
        inputs: dict, or another mapping as tokenizers make it; see `Bert`. A value of None counts
            as missing.

    Returns:
        dict of tensors. If `input_ids` are ragged, its `attention_mask` ends where their rows end.

    Raises:
        ValueError: If there are no `input_ids`, or an input has another dtype.
    """
    if not isinstance(inputs, Mapping) or inputs.get("input_ids") is None:
        got = sorted(inputs) if isinstance(inputs, Mapping) else type(inputs).__name__
        raise ArgumentError(
            "inputs", "a dict of input_ids and optionally token_type_ids and attention_mask", got
        )
    ids = inputs["input_ids"]
    found = {
        name: _mask(x) if name == "attention_mask" else as_ids(x, name)
        for name, x in inputs.items()
        if x is not None
    }
    if isinstance(ids, tf.RaggedTensor):
        keep = tf.sequence_mask(ids.row_lengths(), tf.shape(found["input_ids"])[1], tf.int32)
        mask = found.get("attention_mask")
        if mask is not None:
            while len(keep.shape) < len(mask.shape):
                keep = tf.expand_dims(keep, 1)  # (B, 1, T), of keys
            keep *= tf.cast(mask, tf.int32)
        found["attention_mask"] = keep
    return found


def _mask(mask):
    """An attention mask as a dense tensor, not float: elsewhere in this library 1.0 blocks."""
    mask = dense(mask, "attention_mask")
    dtype = tf.as_dtype(mask.dtype)
    if dtype.is_floating and in_symbolic_scope() and not isinstance(mask, keras.KerasTensor):
        return tf.cast(mask, tf.int32)  # Keras's stand-in for the mask that will come
    if not (dtype.is_integer or dtype.is_bool):
        raise ArgumentError(
            "attention_mask",
            "integers",
            dtype.name,
            "An attention mask has 1 = may attend; cast it: tf.cast(mask, tf.int32).",
        )
    return mask
