"""Tokenizers of three libraries in `tf.data` pipelines, over the same sentences."""

import io
import tempfile

import sentencepiece
import tensorflow as tf
import tensorflow_text

from tf_transformer import GraphTokenizer, Tokenizer
from tf_transformer.tokenizers import (
    BPETokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
)

SIZE = 8000
TRAIN = {
    "wordpiece": WordPieceTokenizer.train,
    "bpe": BPETokenizer.train,
    "unigram": UnigramTokenizer.train,
}


def variants(case, arrays):
    """Functions that read all sentences once; each returns the number of tokens."""
    texts = arrays["texts"].tobytes().decode("utf-8").split("\n")
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        TRAIN[case["model"]](texts, SIZE).save(file.name)
        graph, python = GraphTokenizer.from_file(file.name), Tokenizer.load(file.name)

    def call_rust(strings):
        return tf.ragged.constant(python.encode([s.decode("utf-8") for s in strings.numpy()]))

    ragged = tf.RaggedTensorSpec([None, None], tf.int32)

    def by_py_function(strings):
        return tf.py_function(call_rust, [strings], ragged)

    size = case["batch"]

    def python_alone():
        batches = (texts[i : i + size] for i in range(0, len(texts), size))
        return [sum(len(row) for batch in batches for row in python.encode(batch))]

    text = _tensorflow_text(case["model"], texts, python)
    return {
        "tf_transformer": _reader(graph.encode_strings, texts, size),
        "tensorflow_text": _reader(text, texts, size),
        "tokenizers, py_function": _reader(by_py_function, texts, size),
        "tokenizers, no TensorFlow": python_alone,
    }


def _reader(encode, texts, batch):
    strings = tf.constant(texts)
    dataset = tf.data.Dataset.from_tensors(strings).unbatch().batch(batch)
    dataset = dataset.map(lambda s: _count(encode(s)), num_parallel_calls=2).prefetch(2)
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    total = tf.function(lambda: dataset.reduce(tf.constant(0, tf.int64), lambda a, b: a + b))
    return lambda: [total().numpy()]


def _count(ids):
    return tf.reduce_sum(ids.row_lengths())


def _tensorflow_text(model, texts, python):
    if model == "wordpiece":
        vocabulary = python.ids_to_tokens(range(python.vocab_size))
        tokenizer = tensorflow_text.FastBertTokenizer(
            vocabulary, lower_case_nfd_strip_accents=True, token_out_type=tf.int32
        )
    else:
        trained = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=trained,
            vocab_size=SIZE,
            model_type=model,
            character_coverage=1.0,
            minloglevel=2,
        )
        tokenizer = tensorflow_text.SentencepieceTokenizer(trained.getvalue(), tf.int32)
    return tokenizer.tokenize
