"""Texts for RoBERTa and its relatives: ids, templates, exported encoders and classifiers."""

import dataclasses
import json
import random

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from loading import close
from sentencepiece_models import trained_model
from tiny_bert import TOKENS, randomised
from tiny_relatives import ROBERTA, relatives_folder, roberta_tokenizer
from tokenizers.processors import TemplateProcessing

from tf_transformer import TextClassifier, TextEncoder, bert, litert
from tf_transformer.export import write_litert
from tf_transformer.models.bert.bert_config import FAMILIES
from tf_transformer.tokenizers import TokenizerFile

pytestmark = pytest.mark.one_of(10, "published")

XLM_TEMPLATE = TemplateProcessing(
    single="<s> $A </s>",
    pair="<s> $A </s> </s> $B:1 </s>:1",
    special_tokens=[("<s>", 0), ("</s>", 2)],
)


def some_texts(seed, extra=()):
    words = [*TOKENS[5:], "Zoë's", "  ", "👍🏽", "it's", *extra]
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=rng.randint(0, 9))) for _ in range(23)]


@pytest.mark.parametrize("template", [None, XLM_TEMPLATE], ids=["RoBERTa", "a template"])
@pytest.mark.parametrize("max_length", [5, 6, 9, 40])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.one_of(10)
def test_equals_the_peer(tmp_path, template, max_length, paired):
    peer = roberta_tokenizer(tmp_path, template)
    peer.enable_padding(pad_id=1, pad_token="<pad>")
    peer.enable_truncation(max_length, strategy="longest_first")
    first, second = some_texts(1), some_texts(2)
    inputs = bert.text_inputs(
        bert.read_tokenizer(tmp_path), first, second if paired else None, max_length
    )
    expected = peer.encode_batch(list(zip(first, second, strict=True)) if paired else first)
    for name, field in (
        ("input_ids", "ids"),
        ("token_type_ids", "type_ids"),
        ("attention_mask", "attention_mask"),
    ):
        np.testing.assert_array_equal(inputs[name], [getattr(one, field) for one in expected])


def test_a_model_of_sentencepiece_alone(tmp_path):
    texts = ["the cat sat on the mat", "a cat, a mat; ﬁne"] * 9
    path = tmp_path / "sentencepiece.bpe.model"
    path.write_bytes(trained_model(texts, vocab_size=40))
    peer = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = bert.read_tokenizer(tmp_path)
    assert (tokenizer.pad_id, tokenizer.mask_id) == (1, peer.vocab_size() + 1)

    def expected(text):  # as in fairseq: <s>, <pad>, </s>, <unk>, then the other pieces
        return [number + 1 if number else 3 for number in peer.encode(text)]

    first, second = "the  mat ☺", "ﬁne cat"
    single, pair = (
        bert.text_inputs(tokenizer, [first]),
        bert.text_inputs(tokenizer, [first], [second]),
    )
    rows = [0, *expected(first), 2], [0, *expected(first), 2, 2, *expected(second), 2]
    assert [row["input_ids"][0].numpy().tolist() for row in (single, pair)] == [*rows]
    masked = bert.text_inputs(tokenizer, ["the <mask> mat"], mask="<mask>")["input_ids"]
    row = [0, *expected("the"), tokenizer.mask_id, *expected("mat"), 2]
    assert masked.numpy().tolist() == [row]
    added = tmp_path / "added_tokens.json"
    added.write_text('{"newest": 42}')
    with pytest.raises(ValueError, match="no added tokens without a tokenizer.json.*newest"):
        bert.read_tokenizer(tmp_path)
    added.unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "CamembertTokenizer"}')
    with pytest.raises(ValueError, match="tokenizer_class: expected one of XLMRobertaTokenizer"):
        bert.read_tokenizer(tmp_path)
    path.write_bytes(trained_model(texts, vocab_size=40, bos_id=-1))
    with pytest.raises(ValueError, match="'pieces' is not supported.*first <unk>, <s> and </s>"):
        (tmp_path / "tokenizer_config.json").unlink()
        bert.read_tokenizer(tmp_path)


def test_masks_take_the_spaces_before_them(tmp_path):
    peer = roberta_tokenizer(tmp_path)
    texts = [*some_texts(3, ["<mask>"] * 9), "a \u3000\u00a0<mask> b", "<mask><mask> <mask>"]
    inputs = bert.text_inputs(bert.read_tokenizer(tmp_path), texts, mask="<mask>")
    peer.enable_padding(pad_id=1, pad_token="<pad>")
    expected = [one.ids for one in peer.encode_batch(texts)]
    np.testing.assert_array_equal(inputs["input_ids"], expected)


def test_no_room(tmp_path):
    roberta_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="max_length: expected at least 5, got 4"):
        bert.text_inputs(bert.read_tokenizer(tmp_path), ["a"], ["a"], 4)


@pytest.mark.slow
def test_a_prefix_space_that_contradicts(tmp_path):
    roberta_tokenizer(tmp_path, add_prefix_space=True)
    assert (
        bert.read_tokenizer(tmp_path).encode(["a"]).to_list()
        == bert.read_tokenizer(tmp_path).encode([" a"]).to_list()
    )
    path = tmp_path / "tokenizer_config.json"
    path.write_text(path.read_text().replace("true", "false"))
    with pytest.raises(ValueError, match="add_prefix_space: expected True in .* got False"):
        bert.read_tokenizer(tmp_path)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("name", ["DistilBertTokenizer", "ElectraTokenizerFast"])
def test_a_vocabulary_of_words(tmp_path, name):
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    settings = {"tokenizer_class": name, "do_lower_case": True}
    if name.startswith("DistilBert"):
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert bert.read_tokenizer(tmp_path).encode(["Film"]).to_list() == [[TOKENS.index("film")]]


def test_a_vocabulary_of_merges_is_not_enough(tmp_path):
    roberta_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").rename(tmp_path / "vocab.json")
    with pytest.raises(FileNotFoundError, match="expected tokenizer.json, vocab.txt, s"):
        bert.read_tokenizer(tmp_path)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_an_encoder_from_strings(tmp_path, family):
    sizes = {"max_position_embeddings": 21}
    folder = relatives_folder(tmp_path, family, bert.SentenceEncoder, **sizes)
    encoder = TextEncoder.from_pretrained(folder)
    texts = ["a good film", "", "bad"]
    model, tokenizer = bert.SentenceEncoder.from_pretrained(folder), bert.read_tokenizer(folder)
    alone = np.concatenate([model(bert.text_inputs(tokenizer, [text])) for text in texts])
    close(encoder.encode(texts), alone)
    encoder.warm_up(4, 8)  # XLA, with rows and positions of padding
    close(encoder.encode(texts), alone)
    assert np.isfinite(encoder.encode(["a " * 90])).all()
    most = model.config.max_length
    assert most == (19 if "roberta" in family else 21)
    with pytest.raises(ValueError, match=f"max_length: expected at most {most}"):
        TextEncoder(model, tokenizer, most + 1)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_a_classifier_from_strings(tmp_path, family):
    folder = relatives_folder(tmp_path, family, bert.BertForSequenceClassification)
    model = bert.BertForSequenceClassification.from_pretrained(folder)
    classifier = TextClassifier(model, bert.read_tokenizer(folder))
    classifier.save(tmp_path / "saved")
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    texts = ["a good film", "", "bad"]
    inputs = bert.text_inputs(bert.read_tokenizer(folder), texts)
    expected = tf.nn.softmax(model(inputs))
    for answers in (classifier.classify(texts), loaded.classify(tf.constant(texts))):
        close(answers["probabilities"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_in_litert(tmp_path, family):
    """With positions that are counted, and without segments, which stay an input."""
    pytest.importorskip("ai_edge_litert")
    roberta_tokenizer(tmp_path / "tokenizer")
    config = dataclasses.replace(ROBERTA, vocab_size=312, pad_token_id=None, family=family)
    model = randomised(bert.BertForSequenceClassification(config))
    file = TokenizerFile.read(tmp_path / "tokenizer" / "tokenizer.json")
    texts = ["a good film", "", "bad", "the plot " * 9]
    write_litert(model, file, tmp_path / "lite", examples=texts)
    inputs = bert.text_inputs(
        bert.read_tokenizer(tmp_path / "tokenizer"), texts, None, config.max_length
    )
    _, probabilities = litert.load(tmp_path / "lite").classify(texts)
    np.testing.assert_allclose(probabilities, tf.nn.softmax(model(inputs)), atol=2e-6)
