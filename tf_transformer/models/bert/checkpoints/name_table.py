"""Names of BERT variables in checkpoints from other libraries.

A row: the name here, the name in a TensorFlow checkpoint ("=" if it is the same), the name in a
safetensors file in Hugging Face's layout. A row ending in "/" or "." stands for a layer, whose
variables are named as in `_LEAVES`. {n} is the number of a layer, or of a group of shared layers.
"""

import re
from typing import NamedTuple

from tf_transformer.models.bert.checkpoints.own_names import OwnNames

_LEAVES = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}

_BERT = """
bert/embeddings/word_embeddings              =  bert.embeddings.word_embeddings.weight
bert/embeddings/position_embeddings          =  bert.embeddings.position_embeddings.weight
bert/embeddings/token_type_embeddings        =  bert.embeddings.token_type_embeddings.weight
bert/embeddings/LayerNorm/                   =  bert.embeddings.LayerNorm.
bert/encoder/embedding_hidden_mapping_in/    =  bert.encoder.embedding_hidden_mapping_in.
bert/encoder/layer_{n}/attention/self/query/ =  bert.encoder.layer.{n}.attention.self.query.
bert/encoder/layer_{n}/attention/self/key/   =  bert.encoder.layer.{n}.attention.self.key.
bert/encoder/layer_{n}/attention/self/value/ =  bert.encoder.layer.{n}.attention.self.value.
bert/encoder/layer_{n}/attention/output/dense/     =  bert.encoder.layer.{n}.attention.output.dense.
bert/encoder/layer_{n}/attention/output/LayerNorm/ =  bert.encoder.layer.{n}.attention.output.LayerNorm.
bert/encoder/layer_{n}/intermediate/dense/   =  bert.encoder.layer.{n}.intermediate.dense.
bert/encoder/layer_{n}/output/dense/         =  bert.encoder.layer.{n}.output.dense.
bert/encoder/layer_{n}/output/LayerNorm/     =  bert.encoder.layer.{n}.output.LayerNorm.
bert/pooler/dense/                           =  bert.pooler.dense.
cls/predictions/transform/dense/             =  cls.predictions.transform.dense.
cls/predictions/transform/LayerNorm/         =  cls.predictions.transform.LayerNorm.
cls/predictions/output_bias                  =  cls.predictions.bias
cls/seq_relationship/kernel  cls/seq_relationship/output_weights  cls.seq_relationship.weight
cls/seq_relationship/bias    cls/seq_relationship/output_bias     cls.seq_relationship.bias
classifier/kernel            output_weights                       classifier.weight
classifier/bias              output_bias                          classifier.bias
classifiers/layer_{n}/       =                                    classifiers.{n}.
cls/squad/kernel             cls/squad/output_weights             qa_outputs.weight
cls/squad/bias               cls/squad/output_bias                qa_outputs.bias
"""  # noqa: E501

_GROUP = "bert/encoder/transformer/group_{n}/inner_group_0"
_LAYER = "albert.encoder.albert_layer_groups.{n}.albert_layers.0"
_ALBERT = f"""
bert/embeddings/word_embeddings              =  albert.embeddings.word_embeddings.weight
bert/embeddings/position_embeddings          =  albert.embeddings.position_embeddings.weight
bert/embeddings/token_type_embeddings        =  albert.embeddings.token_type_embeddings.weight
bert/embeddings/LayerNorm/                   =  albert.embeddings.LayerNorm.
bert/encoder/embedding_hidden_mapping_in/    =  albert.encoder.embedding_hidden_mapping_in.
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
classifier/kernel            output_weights                       classifier.weight
classifier/bias              output_bias                          classifier.bias
classifiers/layer_{{n}}/     =                                    classifiers.{{n}}.
cls/squad/kernel             cls/squad/output_weights             qa_outputs.weight
cls/squad/bias               cls/squad/output_bias                qa_outputs.bias
"""  # noqa: E501

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
}


class NameTable(NamedTuple):
    """The variable names in one kind of file."""

    rows: tuple
    prefix: str
    besides: str

    def there(self, ours):
        """Return the name in the file of a variable here."""
        [number] = re.findall(r"layer_(\d+)", ours) or [""]
        general = re.sub(r"layer_\d+", "layer_{n}", ours)
        scope, leaf = general.rsplit("/", 1)
        for here, there in self.rows:
            if here == general:
                return there.replace("{n}", number)
            if here == f"{scope}/":
                leaf = _LEAVES[leaf] if there.endswith(".") else leaf
                return there.replace("{n}", number) + leaf
        raise KeyError(ours)

    def is_transposed(self, ours):
        """Whether the file contains a variable's matrix transposed."""
        return ours.endswith("/kernel") and not self.there(ours).endswith("/kernel")

    def is_left_over(self, there):
        """Whether a model may ignore it: no weight, a copy of a weight, a head or a pooler."""
        if there in TIED or re.fullmatch(self.besides, there):
            return True
        rows = [t for here, t in self.rows if not re.match("bert/(embeddings|encoder)/", here)]
        scopes = tuple(name.partition("{n}")[0] for name in rows if name[-1] in "/.")
        return there in rows or there.startswith(scopes)


def name_table(architecture, kind):
    """Return the names of one kind of model in one kind of file."""
    if architecture == "tf_transformer_bert":
        return OwnNames()
    text = {"bert": _BERT, "albert": _ALBERT}[architecture]
    rows = []
    for row in text.strip().splitlines():
        ours, tensorflow, safetensors = row.split()
        there = safetensors if kind == "safetensors" else tensorflow
        rows.append((ours, ours if there == "=" else there))
    prefix = f"{architecture}." if kind == "safetensors" else "bert/"
    return NameTable(tuple(rows), prefix, _BESIDES[kind])
