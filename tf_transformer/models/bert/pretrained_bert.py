"""What every model of BERT has: a config, names of its variables, and folders."""

import dataclasses
import shutil
from pathlib import Path

import keras

from tf_transformer.data.replacing import replacing
from tf_transformer.layers.notes_layer import NotesLayer
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.checkpoints.loading import load_variables, read_checkpoint
from tf_transformer.models.bert.checkpoints.saving import save_folder
from tf_transformer.models.bert.drawn_kernel import without_drawing
from tf_transformer.models.variables_first import VariablesFirst

_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "sentence_bert_config.json",  # how long texts may be
)
# The parts of a model that a checkpoint may be without.
_ON_TOP = ("bert/pooler/", "cls/predictions/", "cls/seq_relationship/", "cls/squad/", "classifier/")


@keras.saving.register_keras_serializable(package="tf_transformer")
class PretrainedBert(NotesLayer, VariablesFirst, keras.Model):
    """A Keras model with a `BertConfig` that reads and writes the checkpoints of elsewhere.

    Args:
        config: `BertConfig`, or its dict.
        unpad: bool, see `Bert`.
        jit: True, False or "auto": compile the attention core with XLA.

    Example:
        >>> class Empty(PretrainedBert):
        ...     pass
        >>> Empty(BertConfig(hidden_size=24)).config.hidden_size
        24
    """

    # Where the subclasses differ.
    published_as = None  # the name of Hugging Face's class
    head_scope = "no head"  # what the names of its own variables begin with
    pooler_use = "unused"  # or "needed", or "optional"
    has_labels = False

    def __init__(self, config, *, unpad=False, jit="auto", **kwargs):
        super().__init__(**kwargs)
        self.config = BertConfig.of(config)
        if self.pooler_use == "unused":
            self.config = dataclasses.replace(self.config, pooler_activation=None)
        elif self.pooler_use == "needed" and self.config.pooler_activation is None:
            raise ValueError(
                f"pooler_activation: expected one, since {type(self).__name__} reads the pooler's "
                f'output, got None. BERT\'s is "tanh".'
            )
        if self.has_labels and not self.config.labels:
            raise ValueError("labels: expected the names of the classes in the config, got none.")
        self.unpad = unpad
        self.jit = jit
        self.supports_jit = not unpad  # Keras's jit_compile="auto" asks

    @classmethod
    def from_pretrained(cls, path, *, new_head=False, **changes):
        """Make the model of a checkpoint, with its weights.

        Args:
            path: str or Path: a folder in Hugging Face's layout (`config.json` and safetensors), a
                folder of Google's (`bert_config.json` and a TensorFlow checkpoint), or the
                prefix of such a checkpoint.
            new_head: bool, True leaves the head (and the pooler, if the checkpoint has none) at its
                random start, for fine-tuning; False expects it in the checkpoint. None reads what
                of them the checkpoint has, to train on.
            changes: fields of `BertConfig`, instead of what the configuration says (`labels`, a
                rate of dropout, `pooler_activation="linear"`), and arguments of the constructor.

        Returns:
            The model, built.

        Raises:
            FileNotFoundError: a file is missing.
            ImportError: the package `safetensors` is needed and not installed.
            ValueError: the configuration or the weights are not what they should be; everything
                that differs is listed.

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
        file, config, has = read_checkpoint(
            path, {name: value for name, value in changes.items() if name in fields}
        )
        pooler = (f"bert/pooler/dense/{part}" for part in ("kernel", "bias"))
        if cls.pooler_use == "optional" and not any(map(has, pooler)):
            config = dataclasses.replace(config, pooler_activation=None)
        if cls.has_labels and not config.labels:  # what a file without names means
            config = dataclasses.replace(config, labels=("LABEL_0", "LABEL_1"))
        options = {name: value for name, value in changes.items() if name not in fields}
        model = cls(config, **options)
        with without_drawing():  # the checkpoint has all of the encoder's weights
            model.build()
        variables = model.variables_by_name()
        new = [cls.head_scope] if new_head else []
        if new_head is not False:
            # Whole parts only: of a part that is there nothing may be missing.
            parts = {scope: [n for n in variables if n.startswith(scope)] for scope in _ON_TOP}
            new += [scope for scope, names in parts.items() if not any(map(has, names))]
        load_variables(file, variables, config, [n for n in variables if n.startswith(tuple(new))])
        return model

    def save_pretrained(self, folder, tokenizer_from=None):
        """Write the model in Hugging Face's layout.

        `transformers` reads it with the same results. A model that it has no class for (a linear
        pooler, narrow embeddings without sharing, sharing without narrow embeddings) gets a
        `model_type` of its own, which it refuses; `from_pretrained` here reads them all.

        Args:
            folder: str or Path; a model there is replaced.
            tokenizer_from: str or Path of a folder whose vocabulary files go along; None keeps
                those of the model that is replaced.

        Raises:
            FileExistsError: the folder holds something else than a model.
            ImportError: the package `safetensors` is not installed.
            OSError: the folder cannot be written; what it held is still there.

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
            # The number of labels is that of every head's outputs to `transformers`.
            labels = self.config.labels if self.has_labels else ()
            config = dataclasses.replace(self.config, labels=labels)
            save_folder(beside, self.variables_by_name(), config, self.published_as, with_prefix)
            self.write_side_files(beside)
            source = Path(folder if tokenizer_from is None else tokenizer_from)
            for name in _TOKENIZER_FILES:
                if (source / name).is_file():
                    shutil.copy(source / name, beside)

    def write_side_files(self, folder):
        """What a subclass writes beside the weights: into a Path of a folder."""

    def variables_by_name(self):
        """The variables by the names that `checkpoints.name_table` has for them.

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
        }
