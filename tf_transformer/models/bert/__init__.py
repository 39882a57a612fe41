"""BERT: the functions of the notes, the models, and published checkpoints."""

from tf_transformer.functional.activations import gelu, gelu_tanh, get_activation
from tf_transformer.models.bert.bert import Bert, parameter_table
from tf_transformer.models.bert.bert_config import BertConfig, published_config
from tf_transformer.models.bert.checkpoints.config_files import read_config
from tf_transformer.models.bert.exits import BertWithExits
from tf_transformer.models.bert.heads import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    ElectraForPreTraining,
    UniLM,
)
from tf_transformer.models.bert.notes import (
    BERTLayerNorm,
    BERTSelfAttention,
    attention_layer,
    transformer_model,
)
from tf_transformer.models.bert.sentence_encoder import SentenceEncoder, TwoTowers
from tf_transformer.models.bert.text_inputs import read_tokenizer, text_inputs

__all__ = [
    "BERTLayerNorm",
    "BERTSelfAttention",
    "Bert",
    "BertConfig",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertWithExits",
    "ElectraForPreTraining",
    "SentenceEncoder",
    "TwoTowers",
    "UniLM",
    "attention_layer",
    "gelu",
    "gelu_tanh",
    "get_activation",
    "parameter_table",
    "published_config",
    "read_config",
    "read_tokenizer",
    "text_inputs",
    "transformer_model",
]
