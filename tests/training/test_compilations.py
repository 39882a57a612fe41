"""Counting compilations, and checking that training and translation compile little."""

import pytest
import tensorflow as tf

from tf_transformer import count_compilations
from tf_transformer.data import PairSource, load_corpus
from tf_transformer.export.translation.folder import load_translator, shipped_model
from tf_transformer.training import PRESETS, TrainingRun


@pytest.mark.slow
def test_traces_and_xla_programs_are_counted():
    core = tf.function(lambda x: x @ x, jit_compile=True, autograph=False)
    outer = tf.function(
        lambda x: core(x) + 1, input_signature=[tf.TensorSpec([None, None])], autograph=False
    )
    with count_compilations() as built:
        for size in (2, 3, 2):
            outer(tf.ones((size, size)))
    assert (built.traces, built.xla) == (2, 2)  # outer and core; core for sizes 2 and 3
    with count_compilations() as built:
        outer(tf.ones((3, 3)))
    assert (built.traces, built.xla) == (0, 0)


def test_an_error_inside_ends_the_count():
    with pytest.raises(KeyError), count_compilations():
        raise KeyError
    with count_compilations():
        pass


def test_a_second_profiler_is_refused():
    with (
        count_compilations(),
        pytest.raises(RuntimeError, match="another profiler is running"),
        count_compilations(),
    ):
        pass


@pytest.mark.slow
def test_training_on_the_embedded_corpus_builds_two_programs_a_bucket(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tf_transformer.data.source.load_corpus", lambda name: load_corpus(name)[::20]
    )
    preset = PRESETS["tiny"].with_changes({"tokens_per_batch": 384})
    run = TrainingRun(tmp_path, PairSource(corpus="en-zh"), preset)
    with count_compilations() as built:
        run.train()
    # The loss and its gradient; everything else runs in graphs that accept any shape.
    assert built.xla == 2 * len(preset.lengths)
    assert built.traces <= 20


@pytest.mark.slow
def test_translating_builds_one_graph_for_all_batches_and_lengths():
    translator = load_translator(shipped_model("en-zh"))
    with count_compilations() as first:
        translator.translate(tf.constant(["I see."]))
    assert first.xla == 0
    with count_compilations() as later:
        translator.translate(tf.constant(["I love China.", "Where is the station?"]))
        translator.translate(tf.constant(["He is reading a book."] * 5))
    assert (later.traces, later.xla) == (0, 0)
