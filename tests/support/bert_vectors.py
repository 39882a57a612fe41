"""The models written by tests/vectors/make_bert_vectors.py."""

from pathlib import Path

from tf_transformer import bert

GOLDEN = Path(__file__).resolve().parents[1] / "vectors" / "bert"
# Folders written by make_bert_vectors.py, and our class for each.
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
HEADS = {
    "Model": bert.Bert,
    "ForPreTraining": bert.ElectraForPreTraining,
    "ForMaskedLM": bert.BertForMaskedLM,
    "ForSequenceClassification": bert.BertForSequenceClassification,
    "ForTokenClassification": bert.BertForTokenClassification,
    "ForQuestionAnswering": bert.BertForQuestionAnswering,
}
PREFIXES = {
    "Roberta": "roberta",
    "XLMRoberta": "xlm-roberta",
    "DistilBert": "distilbert",
    "Electra": "electra",
}
# The same for BERT's relatives.
RELATIVES = {
    path.name: HEADS[path.name.removeprefix(prefix)]
    for prefix in PREFIXES
    for path in sorted(GOLDEN.glob(f"{prefix}*"))
}
