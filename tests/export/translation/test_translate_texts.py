"""Texts are translated in batches of similar length and returned in input order."""

import concurrent.futures
import importlib
import itertools
import threading

import numpy as np
import pytest
from upper_translator import UpperTranslator

from tf_transformer.export.translation.translate_texts import (
    batches_by_length,
    count_tokens,
    n_best_translations,
    translate_texts,
)

# The function of the same name hides the module in its package.
module = importlib.import_module("tf_transformer.export.translation.translate_texts")
TEXTS = ["a b c", "", "d", "e f g h i j", "k l", "m n o", "\ud800 lone"]


@pytest.mark.parametrize("tokens_per_batch", [1, 7, 8, 1000])
@pytest.mark.parametrize("cores", [1, 3])
def test_texts_keep_their_order(monkeypatch, tokens_per_batch, cores):
    monkeypatch.setattr(module, "cores", lambda: cores)
    translator, done = UpperTranslator(), []
    texts = translate_texts(
        translator, TEXTS, tokens_per_batch=tokens_per_batch, progress=done.append
    )
    assert texts == ["A B C", "", "D", "E F G H I J", "K L", "M N O", "? LONE"]
    batches = batches_by_length(count_tokens(translator, TEXTS), tokens_per_batch)
    assert done == list(np.cumsum([len(batch) for batch in batches]))
    assert sorted(map(len, translator.batches)) == sorted(map(len, batches))


class Meeting(UpperTranslator):
    """Each call waits for another one."""

    def __init__(self):
        super().__init__()
        self.barrier = threading.Barrier(2, timeout=60)

    def translate(self, texts):
        self.barrier.wait()
        return super().translate(texts)


def test_every_core_has_a_batch(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 2)
    texts = translate_texts(Meeting(), TEXTS[:6], tokens_per_batch=1)
    assert texts == ["A B C", "", "D", "E F G H I J", "K L", "M N O"]


def test_a_stop_drops_the_batches_that_wait(monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 1)
    is_ending = threading.Event()

    class Threads(concurrent.futures.ThreadPoolExecutor):
        def shutdown(self, *arguments, **options):
            is_ending.set()
            super().shutdown(*arguments, **options)

    class Second(UpperTranslator):
        """Its second call is at work while the first one's progress is reported."""

        def translate(self, texts):
            assert not self.batches or is_ending.wait(60)
            return super().translate(texts)

    def stop(done):
        raise KeyboardInterrupt

    monkeypatch.setattr(concurrent.futures, "ThreadPoolExecutor", Threads)
    translator = Second()
    with pytest.raises(KeyboardInterrupt):
        translate_texts(translator, ["a"] * 1000, tokens_per_batch=1, progress=stop)
    assert len(translator.batches) <= 2


def test_no_text_is_no_work():
    translator = UpperTranslator()
    assert translate_texts(translator, []) == n_best_translations(translator, []) == []
    assert translator.batches == []


@pytest.mark.parametrize("budget", [1, 5, 20, 64, 997])
def test_batches_hold_like_lengths_and_no_more_than_their_tokens(budget):
    lengths = np.random.default_rng(budget).integers(0, 40, 211).tolist()
    batches = batches_by_length(lengths, budget)
    assert sorted(itertools.chain(*batches)) == list(range(211))
    before = max(lengths)
    for batch in batches:
        inside = [lengths[i] for i in batch]
        assert before >= inside[0] == max(inside)
        before = min(inside)
        assert len(batch) == 1 or len(batch) * (inside[0] + 1) <= budget  # 1 for the end token
    for batch in batches[:-1]:
        assert (len(batch) + 1) * (lengths[batch[0]] + 1) > budget


def test_the_beam_gives_all_and_the_best():
    translator = UpperTranslator()
    assert n_best_translations(translator, ["b", "a"]) == [
        [("B", 0.0), ("b", -2.5)],
        [("A", 0.0), ("a", -2.5)],
    ]
    assert translate_texts(translator, ["b", "a"], beam=True) == ["B", "A"]


def test_tokens_are_counted():
    assert count_tokens(UpperTranslator(), TEXTS) == [3, 0, 1, 6, 2, 3, 2]


def test_bad_input():
    translator = UpperTranslator()
    with pytest.raises(ValueError, match="tokens_per_batch: expected at least 1, got 0"):
        translate_texts(translator, TEXTS, tokens_per_batch=0)
    for call in (translate_texts, n_best_translations):
        with pytest.raises(
            ValueError, match=r"texts: expected a list .*Pass a single text as \[te"
        ):
            call(translator, "ab")
