"""Weights of checkpoints: the table of names, loading and saving."""

import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.data.files import write_json
from tf_transformer.errors import ArgumentError, MissingFileError
from tf_transformer.models.base_model import check_sizes
from tf_transformer.models.bert.checkpoints.config_files import (
    config_file,
    model_type_of,
    read_architecture,
    read_config,
)
from tf_transformer.models.bert.checkpoints.files import (
    H5File,
    SafetensorsFile,
    TensorflowFile,
    check_weights,
    name_in_file,
    unequal_copies,
)

# A row: the name here, in TensorFlow's checkpoints ("=" if it is the same), and in PyTorch's files.
_SHARED = """
bert/embeddings/word_embeddings              =  MODEL.embeddings.word_embeddings.weight
bert/embeddings/position_embeddings          =  MODEL.embeddings.position_embeddings.weight
bert/embeddings/token_type_embeddings        =  MODEL.embeddings.token_type_embeddings.weight
bert/embeddings/LayerNorm/                   =  MODEL.embeddings.LayerNorm.
bert/encoder/embedding_hidden_mapping_in/    =  MODEL.encoder.embedding_hidden_mapping_in.
classifier/kernel            output_weights                       classifier.weight
classifier/bias              output_bias                          classifier.bias
classifiers/layer_{n}/       =                                    classifiers.{n}.
cls/squad/kernel             cls/squad/output_weights             qa_outputs.weight
cls/squad/bias               cls/squad/output_bias                qa_outputs.bias
"""
_LAYERS = """
bert/encoder/layer_{n}/attention/self/query/ =  MODEL.encoder.layer.{n}.attention.self.query.
bert/encoder/layer_{n}/attention/self/key/   =  MODEL.encoder.layer.{n}.attention.self.key.
bert/encoder/layer_{n}/attention/self/value/ =  MODEL.encoder.layer.{n}.attention.self.value.
bert/encoder/layer_{n}/attention/output/dense/     =  MODEL.encoder.layer.{n}.attention.output.dense.
bert/encoder/layer_{n}/attention/output/LayerNorm/ =  MODEL.encoder.layer.{n}.attention.output.LayerNorm.
bert/encoder/layer_{n}/intermediate/dense/   =  MODEL.encoder.layer.{n}.intermediate.dense.
bert/encoder/layer_{n}/output/dense/         =  MODEL.encoder.layer.{n}.output.dense.
bert/encoder/layer_{n}/output/LayerNorm/     =  MODEL.encoder.layer.{n}.output.LayerNorm.
bert/pooler/dense/                           =  MODEL.pooler.dense.
"""  # noqa: E501
_BERT = """
cls/predictions/transform/dense/             =  cls.predictions.transform.dense.
cls/predictions/transform/LayerNorm/         =  cls.predictions.transform.LayerNorm.
cls/predictions/output_bias                  =  cls.predictions.bias
cls/seq_relationship/kernel  cls/seq_relationship/output_weights  cls.seq_relationship.weight
cls/seq_relationship/bias    cls/seq_relationship/output_bias     cls.seq_relationship.bias
"""

_GROUP = "bert/encoder/transformer/group_{n}/inner_group_0"
_LAYER = "albert.encoder.albert_layer_groups.{n}.albert_layers.0"
_ALBERT = f"""
bert/encoder/layer_{{n}}/attention/self/query/       {_GROUP}/attention_1/self/query/          {_LAYER}.attention.query.
bert/encoder/layer_{{n}}/attention/self/key/         {_GROUP}/attention_1/self/key/            {_LAYER}.attention.key.
bert/encoder/layer_{{n}}/attention/self/value/       {_GROUP}/attention_1/self/value/          {_LAYER}.attention.value.
bert/encoder/layer_{{n}}/attention/output/dense/     {_GROUP}/attention_1/output/dense/        {_LAYER}.attention.dense.
bert/encoder/layer_{{n}}/attention/output/LayerNorm/ {_GROUP}/LayerNorm/                       {_LAYER}.attention.LayerNorm.
bert/encoder/layer_{{n}}/intermediate/dense/         {_GROUP}/ffn_1/intermediate/dense/        {_LAYER}.ffn.
bert/encoder/layer_{{n}}/output/dense/               {_GROUP}/ffn_1/intermediate/output/dense/ {_LAYER}.ffn_output.
bert/encoder/layer_{{n}}/output/LayerNorm/           {_GROUP}/LayerNorm_1/                     {_LAYER}.full_layer_layer_norm.
bert/pooler/dense/                           =  albert.pooler.
cls/predictions/transform/dense/             =  predictions.dense.
cls/predictions/transform/LayerNorm/         =  predictions.LayerNorm.
cls/predictions/output_bias                  =  predictions.bias
cls/seq_relationship/kernel  cls/seq_relationship/output_weights  sop_classifier.classifier.weight
cls/seq_relationship/bias    cls/seq_relationship/output_bias     sop_classifier.classifier.bias
"""  # noqa: E501

# The relatives below have no checkpoints of TensorFlow here.
_OWN_LAYER = """
classifier/dense/                            -  classifier.dense.
classifier/out_proj/                         -  classifier.out_proj.
"""
_ROBERTA = """
cls/predictions/transform/dense/             -  lm_head.dense.
cls/predictions/transform/LayerNorm/         -  lm_head.layer_norm.
cls/predictions/output_bias                  -  lm_head.bias
"""
_ELECTRA = """
bert/encoder/embedding_hidden_mapping_in/    -  MODEL.embeddings_project.
cls/predictions/transform/dense/             -  generator_predictions.dense.
cls/predictions/transform/LayerNorm/         -  generator_predictions.LayerNorm.
cls/predictions/output_bias                  -  generator_lm_head.bias
discriminator_predictions/dense/             -  discriminator_predictions.dense.
discriminator_predictions/dense_prediction/  -  discriminator_predictions.dense_prediction.
"""
_DISTILBERT = """
bert/encoder/layer_{n}/attention/self/query/ -  MODEL.transformer.layer.{n}.attention.q_lin.
bert/encoder/layer_{n}/attention/self/key/   -  MODEL.transformer.layer.{n}.attention.k_lin.
bert/encoder/layer_{n}/attention/self/value/ -  MODEL.transformer.layer.{n}.attention.v_lin.
bert/encoder/layer_{n}/attention/output/dense/     -  MODEL.transformer.layer.{n}.attention.out_lin.
bert/encoder/layer_{n}/attention/output/LayerNorm/ -  MODEL.transformer.layer.{n}.sa_layer_norm.
bert/encoder/layer_{n}/intermediate/dense/   -  MODEL.transformer.layer.{n}.ffn.lin1.
bert/encoder/layer_{n}/output/dense/         -  MODEL.transformer.layer.{n}.ffn.lin2.
bert/encoder/layer_{n}/output/LayerNorm/     -  MODEL.transformer.layer.{n}.output_layer_norm.
bert/pooler/dense/                           -  MODEL.pooler.dense.
classifier/dense/                            -  pre_classifier.
classifier/out_proj/                         -  classifier.
cls/predictions/transform/dense/             -  vocab_transform.
cls/predictions/transform/LayerNorm/         -  vocab_layer_norm.
cls/predictions/output_bias                  -  vocab_projector.bias
"""
# Of each `model_type`: MODEL, and its own rows, which come before the shared ones.
_TABLES = {
    "bert": ("bert", _LAYERS + _BERT),
    "albert": ("albert", _ALBERT),
    "roberta": ("roberta", _LAYERS + _OWN_LAYER + _ROBERTA),
    "xlm-roberta": ("roberta", _LAYERS + _OWN_LAYER + _ROBERTA),
    "electra": ("electra", _LAYERS + _OWN_LAYER + _ELECTRA),
    "distilbert": ("distilbert", _DISTILBERT),
}

# What files contain besides the weights: an optimizer's step and moments; position numbers; the
# output projection, which is a copy of the word embeddings; an old name of its bias.
_BESIDES = {
    "tensorflow": r"global_step|.*/(adam_[mv]|AdamWeightDecayOptimizer(_1)?|lamb_[mv])",
    "safetensors": r"(.*\.)?embeddings\.(position_ids|token_type_ids)",
}
TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    "generator_lm_head.weight": "electra.embeddings.word_embeddings.weight",
    "vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight",
}


class NameTable(NamedTuple):
    """The variable names in one kind of file."""

    rows: tuple
    prefix: str
    besides: str

    def there(self, ours):
        """Return the name in the file of a variable here."""
        return name_in_file(ours, self.rows)[0] if self.rows else ours

    def is_transposed(self, ours):
        """Whether the file contains a variable's matrix transposed."""
        return ours.endswith("/kernel") and not self.there(ours).endswith("/kernel")

    def is_left_over(self, there):
        """Whether a model may ignore it: not a weight, a copy of a weight, a head or a pooler."""
        if there in TIED or re.fullmatch(self.besides, there):
            return True
        rows = [t for here, t in self.rows if not re.match("bert/(embeddings|encoder)/", here)]
        scopes = tuple(name.partition("{n}")[0] for name in rows if name[-1] in "/.")
        return there in rows or there.startswith(scopes)


def name_table(model_type, kind):
    """Return the names of one kind of model in one kind of file."""
    if model_type == "tf_transformer_bert":  # no other library can read it: its names are ours
        return NameTable((), "bert/", r"(?!bert/(embeddings|encoder)/).*")
    if kind != "safetensors" and model_type not in ("bert", "albert"):
        expected = f"safetensors of transformers for a model of type {model_type}"
        raise ArgumentError("path", expected, "a TensorFlow checkpoint")
    scope, own = _TABLES[model_type]
    text = (own + _SHARED).replace("MODEL", scope)
    rows = []
    for ours, tensorflow, safetensors in (row.split() for row in text.split("\n") if row):
        there = safetensors if kind == "safetensors" else tensorflow
        rows.append((ours, ours if there == "=" else there))
    prefix = f"{scope}." if kind == "safetensors" else "bert/"
    return NameTable(tuple(rows), prefix, _BESIDES[kind])


def save_folder(folder, variables, config, model_name, with_prefix, architecture=None):
    """Write `config.json` and `model.safetensors` into a folder."""
    from safetensors.numpy import save_file

    table = name_table(model_type_of(config, architecture), "safetensors")
    tensors = {}
    for ours, variable in variables.items():
        there = table.there(ours)
        array = np.asarray(variable)
        array = np.ascontiguousarray(array.T if table.is_transposed(ours) else array)
        tensors[there if with_prefix else there.removeprefix(table.prefix)] = array
    write_json(folder / "config.json", config_file(config, model_name, architecture))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class Checkpoint:
    """An open checkpoint: its configuration, and its weights by the names of variables here."""

    def __init__(self, path, changes, ignored_fields=()):
        self.file, path = _open(path)
        self.config = config = read_config(path, ignored_fields=ignored_fields, **changes)
        self.architecture = architecture = read_architecture(path)
        rows = config.vocab_size + config.type_vocab_size
        if architecture is None:
            rows += config.max_position_embeddings
        found = sum(map(math.prod, self.file.shapes.values()))
        sizes = rows * config.embedding_width, config.hidden_size
        key_dim = (architecture and architecture.key_dim) or config.head_size
        layers = [(1, *config.size_of(group)) for group in range(config.num_groups)]
        check_sizes(path, found, *sizes, key_dim, layers, architecture)
        self._table = table = name_table(model_type_of(config, architecture), self.file.kind)
        is_bare = not any(name.startswith(table.prefix) for name in self.file.shapes)
        self._prefix = table.prefix if is_bare else ""  # what the names in the file omit

    def _name(self, ours):
        return self._table.there(ours).removeprefix(self._prefix)

    def has(self, ours):
        """Whether the file has a variable."""
        return self._name(ours) in self.file.shapes

    def load(self, variables, new=()):
        """Load all variables but the `new` ones; names and shapes must match exactly."""
        file, table = self.file, self._table
        names = {ours: self._name(ours) for ours in variables if ours not in new}
        expected = {}
        for ours, there in names.items():
            shape = tuple(variables[ours].shape)
            expected[there] = shape[::-1] if table.is_transposed(ours) else shape
        predicts = any(name.startswith("cls/predictions/") for name in names)
        differences = unequal_copies(file, TIED if predicts else {})
        check_weights(file, expected, lambda x: table.is_left_over(self._prefix + x), differences)

        def read(ours):
            with tf.device("CPU"):  # a thread does not inherit the caller's device
                array = tf.convert_to_tensor(file.read(names[ours]))
                # TensorFlow transposes with several threads, NumPy with one.
                return tf.transpose(array) if table.is_transposed(ours) else array

        with ThreadPoolExecutor() as pool:  # most of the time goes into copies outside Python
            for ours, array in zip(names, pool.map(read, names), strict=True):
                variables[ours].assign(array)


def _google_config(folder):
    for name in ("bert_config.json", "albert_config.json", "config.json"):
        if (folder / name).is_file():
            return folder / name
    raise MissingFileError("path", f"bert_config.json in {folder}", "none")


def _open(path):
    """Find and open a checkpoint."""
    path = Path(path)
    if not path.is_dir():
        if not path.with_name(f"{path.name}.index").is_file():
            expected = "a local folder with a checkpoint, or the prefix of a TensorFlow checkpoint"
            got = f"{path}, which is neither"
            raise MissingFileError("path", expected, got, "Checkpoints are not downloaded.")
        return TensorflowFile(path), _google_config(path.parent)
    indices = sorted(path.glob("*.index"))
    safetensors, h5 = any(path.glob("*.safetensors*")), path / "tf_model.h5"
    published = safetensors or h5.is_file() or any(path.glob("*.bin"))
    if not indices or (published and (path / "config.json").is_file()):
        from_h5 = h5.is_file() and not safetensors
        return H5File(h5) if from_h5 else SafetensorsFile(path), path / "config.json"
    if len(indices) > 1:
        got = ", ".join(index.stem for index in indices)
        remedy = f"Name one: {indices[0].with_suffix('')}"
        raise MissingFileError("path", f"one checkpoint in {path}", got, remedy)
    return TensorflowFile(indices[0].with_suffix("")), _google_config(path)
