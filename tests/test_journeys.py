"""How many files one opens to follow a sentence, or a training step, to its matrix products."""

import sys

import pytest
import tensorflow as tf
from small_run import small_run
from tensorflow.python.ops import gen_math_ops
from tiny_bert import tiny_folder

import tf_transformer
from tf_transformer.export import TextEncoder, Translator
from tf_transformer.models.bert import SentenceEncoder, read_tokenizer
from tf_transformer.tokenizers import GraphTokenizer

PACKAGE = tf_transformer.__path__[0]
PRODUCTS = ("mat_mul", "batch_mat_mul_v2", "batch_mat_mul_v3")


def callers():
    frame = sys._getframe()
    while frame:
        if frame.f_code.co_filename.startswith(PACKAGE):
            yield frame.f_code.co_filename.removeprefix(PACKAGE)
        frame = frame.f_back


@pytest.fixture
def files(monkeypatch):
    """A set that fills with the files whose functions are running when matrices are multiplied."""
    seen = set()

    def noted(product):
        def call(*args, **kwargs):
            seen.update(callers())
            return product(*args, **kwargs)

        return call

    for name in PRODUCTS:
        monkeypatch.setattr(gen_math_ops, name, noted(getattr(gen_math_ops, name)))
    return seen


def check(files, most, *some):
    assert len(files) <= most, sorted(files)
    assert {f"/{name}.py" for name in some} <= files


def test_train_and_translate(files, tmp_path):
    run = small_run(tmp_path, epochs=1)
    run.train()
    check(files, 18, "training/runs/run", "layers/decoder", "functional/attention/whole")
    model = run.best_model()
    files.clear()
    translator = Translator(model, GraphTokenizer.from_file(run.tokenizer_path))
    translator.translate(tf.constant(["a cat"]))
    check(files, 14, "export/translation/translator", "generation/decoding", "layers/decoder")


def test_encode(files, tmp_path):
    folder = tiny_folder(tmp_path / "bert")
    model = SentenceEncoder.from_pretrained(folder)
    files.clear()
    TextEncoder(model, read_tokenizer(folder)).encode(["a good film"])
    check(files, 14, "export/text_models", "models/bert/bert", "functional/attention/whole")
