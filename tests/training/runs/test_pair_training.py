"""Two towers: the loss, false negatives, training on pairs, and the scores of a search."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from random_weights import randomize

from tf_transformer import bert
from tf_transformer.bert import BertConfig, SentenceEncoder, TwoTowers
from tf_transformer.training import FineTuning, hard_negatives, retrieval_scores, train_pairs

pytestmark = pytest.mark.one_of(10, "runs")

CONFIG = BertConfig(13, 24, 2, 4, 11, max_position_embeddings=11, hidden_dropout_prob=0.0)


def encoder(seed=1):
    model = SentenceEncoder(CONFIG)
    model.build()
    return randomize(model, seed)


def side(rows, length, seed):
    rng = np.random.default_rng(seed)
    return {"input_ids": rng.integers(1, 13, (rows, length)).astype(np.int32)}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("hard", [False, True])
def test_loss_and_scores(separate, hard):
    left, right = encoder(1), encoder(2) if separate else None
    towers = TwoTowers(left, right, temperature=0.3)
    inputs = [side(5, 7, 1), side(5, 3, 2)] + ([side(10, 4, 3)] if hard else [])
    vectors = [np.asarray((right or left)(x), np.float64) for x in inputs]
    vectors[0] = np.asarray(left(inputs[0]), np.float64)
    expected = vectors[0] @ np.concatenate(vectors[1:]).T / 0.3
    scores = towers(tuple(inputs))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    p = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    towers.compile(metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")])
    loss, accuracy = towers.evaluate(tf.data.Dataset.from_tensors((tuple(inputs),)), verbose=0)
    assert loss == pytest.approx(-np.log(np.diag(p)).mean(), rel=1e-4)
    assert accuracy == pytest.approx((expected.argmax(1) == np.arange(5)).mean())


def test_the_same_document_is_no_negative():
    documents = side(5, 3, 2)
    documents["input_ids"][3] = documents["input_ids"][1]
    negatives = {"input_ids": np.pad(documents["input_ids"], [[0, 0], [0, 2]])}
    queries = side(5, 7, 1)
    queries["input_ids"][4] = queries["input_ids"][0]
    scores = TwoTowers(encoder())((queries, documents, negatives)).numpy()
    blocked = np.zeros((5, 10), bool)
    blocked[0, 4] = blocked[4, 0] = True  # the other document of the same query
    for i, j in ((1, 3), (3, 1)):
        blocked[i, j] = blocked[i, 5 + j] = True
    blocked[range(5), range(5, 10)] = True
    np.testing.assert_array_equal(scores == -1e9, blocked)


def test_saved(tmp_path):
    towers = TwoTowers(encoder(1), encoder(2), temperature=0.3)
    inputs = side(5, 7, 1), side(5, 3, 2)
    expected = towers(inputs)
    towers.save(tmp_path / "towers.keras")
    again = keras.models.load_model(tmp_path / "towers.keras")
    np.testing.assert_array_equal(again(inputs), expected)
    assert again.temperature == 0.3


@pytest.fixture
def tokenizer(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    return bert.read_tokenizer(tmp_path)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("hard", [False, True])
def test_training_brings_pairs_together(hard, tokenizer):
    rng = np.random.default_rng(5)
    rows = [rng.choice(list("abcdefgh"), 4) for _ in range(48)]
    pairs = [(" ".join(row), " ".join(row[::-1])) for row in rows]
    keras.utils.set_random_seed(1)
    model = SentenceEncoder(CONFIG)
    model.build()
    own = [{n} for n in range(48)]

    def scores():
        sides = [
            model(bert.text_inputs(tokenizer, list(x))).numpy() for x in zip(*pairs, strict=True)
        ]
        return retrieval_scores(*sides, own), sides

    before, sides = scores()
    negatives = None
    if hard:
        rows = hard_negatives(*sides, own, count=2)
        negatives = [[pairs[n][1] for n in row] for row in rows]
    settings = FineTuning(epochs=25, batch_size=16, learning_rate=3e-3, max_length=9)
    history = train_pairs(model, tokenizer, pairs, settings, negatives=negatives, verbose=0)
    after, _ = scores()
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]
    assert after["mrr"] > max(0.9, before["mrr"])


def test_scores_against_ranking_one_by_one():
    rng = np.random.default_rng(3)
    queries, documents = rng.standard_normal((17, 5)), rng.standard_normal((23, 5))
    own = [set(rng.choice(23, 1 + n % 3, replace=False).tolist()) for n in range(17)]
    ranks = []
    for query, right in zip(queries, own, strict=True):
        order = sorted(range(23), key=lambda n: -(documents[n] @ query))
        # Right documents do not stand in each other's way.
        wrong = [n for n in order if n not in right]
        best = max(documents[n] @ query for n in right)
        ranks.append(1 + sum(documents[n] @ query > best for n in wrong))
    found = retrieval_scores(queries, documents, own, at=(1, 3))
    assert found["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert found["recall@3"] == pytest.approx(np.mean([rank <= 3 for rank in ranks]))
    mined = hard_negatives(queries, documents, own, count=3, first=2)
    broken = retrieval_scores(queries * np.nan, documents, own, at=(1,))
    assert broken["recall@1"] == 0 and broken["mrr"] < 0.1
    same = retrieval_scores(queries * 0, documents, own, at=(1,))
    assert same["recall@1"] == 0
    for row, query, right in zip(mined, queries, own, strict=True):
        wrong = sorted(set(range(23)) - right, key=lambda n: -(documents[n] @ query))
        assert row.tolist() == wrong[2:5]


def test_bad_input(tokenizer):
    settings = FineTuning(max_length=9)
    with pytest.raises(ValueError, match="temperature: expected a number above 0, got 0"):
        TwoTowers(encoder(), temperature=0)
    other = SentenceEncoder(BertConfig(13, 8, 2, 2, 11))
    with pytest.raises(ValueError, match="documents: expected an encoder of width 24"):
        TwoTowers(encoder(), other)
    with pytest.raises(ValueError, match="expected encoders with normalize=True"):
        TwoTowers(SentenceEncoder(CONFIG, normalize=False))
    with pytest.raises(ValueError, match="batch_size: expected at least 2, since the other"):
        train_pairs(encoder(), tokenizer, [("a", "b")] * 2, FineTuning(max_length=9, batch_size=1))
    with pytest.raises(ValueError, match="pairs: expected at least 2, got 1"):
        train_pairs(encoder(), tokenizer, [("a", "b")], settings)
    with pytest.raises(ValueError, match="max_length: expected at most 11"):
        train_pairs(encoder(), tokenizer, [("a", "b")] * 2, FineTuning(max_length=12))
    for negatives in ([["a"]], [["a"], ["a", "b"]], [[], []]):
        with pytest.raises(ValueError, match="negatives: expected equally many for each of the 2"):
            train_pairs(encoder(), tokenizer, [("a", "b")] * 2, settings, negatives=negatives)
    vectors = np.eye(3, dtype=np.float32)
    with pytest.raises(ValueError, match="count, first: expected 3 wrong documents"):
        hard_negatives(vectors, vectors, [{0}, {1}, {2}], count=2)
    for options in ({"count": 0}, {"first": -1}):
        with pytest.raises(ValueError, match=rf"{next(iter(options))}: expected at least"):
            hard_negatives(vectors, vectors, [{0}, {1}, {2}], **options)
    with pytest.raises(ValueError, match="query_vectors, document_vectors: expected finite"):
        hard_negatives(vectors * np.nan, vectors, [{0}, {1}, {2}], first=0)
    for own in ([{0}, {1}], [{0}, {1}, set()], [{0}, {1}, {3}], [{0}, {1}, {-1}], [{0}] * 4):
        for function in (hard_negatives, retrieval_scores):
            with pytest.raises(ValueError, match="own: expected for each of 3 queries one or more"):
                function(vectors, vectors, own)
