"""BERT: the functions of the notes, the models, and published checkpoints."""

from tf_transformer.functional.activations import gelu, gelu_tanh, get_activation
from tf_transformer.models.bert.attention_layer import attention_layer
from tf_transformer.models.bert.bert import Bert
from tf_transformer.models.bert.bert_config import BertConfig
from tf_transformer.models.bert.bert_for_masked_lm import BertForMaskedLM
from tf_transformer.models.bert.bert_for_next_sentence_prediction import (
    BertForNextSentencePrediction,
)
from tf_transformer.models.bert.bert_for_pretraining import BertForPreTraining
from tf_transformer.models.bert.bert_for_question_answering import BertForQuestionAnswering
from tf_transformer.models.bert.bert_for_sequence_classification import (
    BertForSequenceClassification,
)
from tf_transformer.models.bert.bert_for_token_classification import BertForTokenClassification
from tf_transformer.models.bert.bert_layer_norm import BERTLayerNorm
from tf_transformer.models.bert.bert_self_attention import BERTSelfAttention
from tf_transformer.models.bert.bert_with_exits import BertWithExits
from tf_transformer.models.bert.checkpoints.config_files import read_config
from tf_transformer.models.bert.parameter_table import parameter_table
from tf_transformer.models.bert.published_configs import published_config
from tf_transformer.models.bert.sentence_encoder import SentenceEncoder
from tf_transformer.models.bert.text_inputs import read_tokenizer, text_inputs
from tf_transformer.models.bert.transformer_model import transformer_model
from tf_transformer.models.bert.two_towers import TwoTowers
from tf_transformer.models.bert.unilm import UniLM

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
