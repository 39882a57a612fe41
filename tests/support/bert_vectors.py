"""The models that tests/vectors/make_bert_vectors.py wrote."""

from pathlib import Path

from tf_transformer import bert

GOLDEN = Path(__file__).resolve().parents[1] / "vectors" / "bert"
# The folder of each model that make_bert_vectors.py wrote, and our class for it.
CLASSES = {
    "BertModel": bert.Bert,
    "BertForMaskedLM": bert.BertForMaskedLM,
    "BertForPreTraining": bert.BertForPreTraining,
    "BertForNextSentencePrediction": bert.BertForNextSentencePrediction,
    "BertForSequenceClassification": bert.BertForSequenceClassification,
    "BertForTokenClassification": bert.BertForTokenClassification,
    "BertForQuestionAnswering": bert.BertForQuestionAnswering,
    "AlbertModel": bert.Bert,
    "AlbertForMaskedLM": bert.BertForMaskedLM,
    "AlbertForPreTraining": bert.BertForPreTraining,
    "AlbertForSequenceClassification": bert.BertForSequenceClassification,
}
