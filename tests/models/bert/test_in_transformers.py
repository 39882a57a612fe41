"""Files written by `save_pretrained` load in transformers on torch; needs both installed."""

import dataclasses

import numpy as np
import pytest
from command_line import command_here
from tiny_bert import CONFIG, randomised, tiny_folder
from tiny_relatives import LABELS, ROWS, relatives_folder

from tf_transformer import TextClassifier, TextEncoder, bert

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # raised by transformers and torch

SHARED = {"embedding_size": 5, "num_hidden_groups": 1, "hidden_act": "gelu_new"}
NO_POOLER = {"hidden_act": "relu", "pooler_activation": None}
FAMILIES = {
    "Bert": {},
    "Albert": SHARED,
    "Roberta": {"family": "roberta", "hidden_act": "relu", "max_position_embeddings": 13},
    "XLMRoberta": {"family": "xlm-roberta", "max_position_embeddings": 13, "pad_token_id": 4},
    "DistilBert": {"family": "distilbert", **NO_POOLER},
    "Electra": {"family": "electra", "embedding_size": 5, **NO_POOLER},
}


@pytest.mark.parametrize("prefix, changes", FAMILIES.items(), ids=FAMILIES)
@pytest.mark.parametrize(
    "cls",
    [
        bert.Bert,
        bert.BertForMaskedLM,
        bert.BertForPreTraining,
        bert.BertForNextSentencePrediction,
        bert.BertForSequenceClassification,
        bert.BertForTokenClassification,
        bert.BertForQuestionAnswering,
        bert.ElectraForPreTraining,
    ],
)
def test_gives_the_same(cls, prefix, changes, tmp_path):
    config = bert.BertConfig.of({**CONFIG.to_dict(), "labels": ("no", "也许", "yes"), **changes})
    if config.family not in cls.families:
        pytest.skip("the family has no such head")
    if prefix == "Albert" and cls is bert.BertForNextSentencePrediction:
        pytest.skip("transformers has no such ALBERT")
    model = randomised(cls(config))
    model.save_pretrained(tmp_path / "saved")
    name = cls.published_as.replace("Bert", prefix, 1)
    theirs, report = getattr(transformers, name).from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    inputs = {
        "input_ids": np.array([[2, 7, 8, 3, 9, 3], [2, 6, 3, 0, 0, 0]]),
        "token_type_ids": np.array([[0, 0, 0, 0, 1, 1], [0] * 6]),
        "attention_mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0]]),
    }
    if config.type_vocab_size == 0:
        del inputs["token_type_ids"]
    if config.pad_token_id is not None:
        inputs["input_ids"][1] = [2, 6, 3, *[config.pad_token_id] * 3]
    with torch.no_grad():
        expected = theirs.eval()(**{key: torch.tensor(value) for key, value in inputs.items()})
    outputs = model(inputs)
    if cls is bert.Bert:
        names = {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"}
        pairs = [(key, names[key]) for key in outputs]
    elif isinstance(outputs, dict):
        pairs = [(key, key.replace("seq_relationship", "sop")) for key in outputs]
        pairs = [(a, a if a in expected else b) for a, b in pairs]
    else:
        outputs, pairs = {"logits": outputs}, [("logits", "logits")]
    for ours, other in pairs:
        np.testing.assert_allclose(outputs[ours], expected[other], atol=1e-5, rtol=1e-5)
    if config.labels and cls.has_labels:
        assert theirs.config.id2label == {0: "no", 1: "也许", 2: "yes"}


@pytest.mark.parametrize(
    "problem_type",
    [None, "single_label_classification", "multi_label_classification", "regression"],
)
@pytest.mark.parametrize("labels", [("a", "b", "c"), ("a",)])
def test_answers_are_those_of_the_pipeline(problem_type, labels, tmp_path):
    if problem_type == "single_label_classification" and len(labels) == 1:
        pytest.skip("both refuse it")
    config = dataclasses.replace(CONFIG, labels=labels, problem_type=problem_type)
    model = randomised(bert.BertForSequenceClassification(config))
    folder = tiny_folder(tmp_path / "words")
    model.save_pretrained(tmp_path / "saved", tokenizer_from=folder)
    pipeline = transformers.pipeline("text-classification", str(tmp_path / "saved"), device="cpu")
    text = "a good film"
    expected = {row["label"]: row["score"] for row in pipeline(text, top_k=None)}
    answer = TextClassifier(model, bert.read_tokenizer(folder)).classify([text])
    assert answer.pop("label").numpy()[0].decode() == pipeline(text)[0]["label"]
    [found] = answer.values()
    np.testing.assert_allclose(found[0], [expected[label] for label in labels], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "distilbert", "electra"])
def test_what_the_command_fine_tuned(tmp_path, family):
    folder, tsv = relatives_folder(tmp_path, family), tmp_path / "texts.tsv"
    tsv.write_text("".join(f"{LABELS[n]}\t{text}\n" for text, n in ROWS), "utf-8")
    files = [f"--{part}={tsv}" for part in ("train", "validation", "test")]
    tuned = ["--epochs", 2, "--model", folder, "--output", tmp_path / "tuned"]
    assert command_here("finetune", *files, *tuned).returncode == 0
    saved = str(tmp_path / "tuned" / "model")
    pipeline = transformers.pipeline("text-classification", saved, device="cpu")
    model = bert.BertForSequenceClassification.from_pretrained(saved)
    classifier = TextClassifier(model, bert.read_tokenizer(saved))
    texts = ["a good film", "the plot was bad , so bad !"]
    for row, text in zip(classifier.classify(texts)["probabilities"], texts, strict=True):
        scores = {answer["label"]: answer["score"] for answer in pipeline(text, top_k=None)}
        np.testing.assert_allclose(row, [scores[label] for label in LABELS], atol=1e-5)


@pytest.mark.parametrize("dense", [None, (5, "tanh", True), (7, None, False)])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize("prefix", ["Bert", "DistilBert"])
def test_sentence_transformers_has_the_same_vectors(prefix, pooling, dense, tmp_path):
    """Both read what the other wrote."""
    package = pytest.importorskip("sentence_transformers")
    config = bert.BertConfig.of({**CONFIG.to_dict(), **FAMILIES[prefix]})
    options = {"pooling": pooling, "normalize": dense is None, "dense": dense}
    model, folder = randomised(bert.SentenceEncoder(config, **options)), tmp_path / "saved"
    model.save_pretrained(folder, tokenizer_from=tiny_folder(tmp_path / "words"))
    texts = ["a good film", "film", "the plot was bad , so bad"]
    theirs = package.SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(texts)
    assert expected.shape == (3, model.width)
    np.testing.assert_allclose(
        TextEncoder.from_pretrained(folder).encode(texts), expected, atol=1e-5
    )
    theirs.save(str(tmp_path / "theirs"))
    again = TextEncoder.from_pretrained(tmp_path / "theirs")
    np.testing.assert_allclose(again.encode(texts), expected, atol=1e-5)
