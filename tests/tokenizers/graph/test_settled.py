"""The beginning of a text that no further token changes, for decoders of all kinds."""

import json

import numpy as np
import pytest
import tensorflow as tf
from tokenizer_files import MAKERS

from tf_transformer.tokenizers import GraphTokenizer, Tokenizer

pytestmark = pytest.mark.one_of(3, "core")

KINDS = ("bpe", "wordpiece", "unigram", "GPT-2", "GPT", "Llama 2", "Unigram of bytes", "BERT")
TEXTS = ["the cat sat on the mat", "naïve 你好!\n", "it's the end.", "\ufffd \x00 é"]


@pytest.fixture(scope="module")
def pair(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizers") / "tokenizer.json"
    MAKERS[request.param]([*TEXTS, "the cats sit"] * 30, path)
    return GraphTokenizer.from_file(path), Tokenizer.load(path)


def settled(graph, rows):
    return [text.decode() for text in graph.settled(tf.ragged.constant(rows, tf.int32)).numpy()]


@pytest.mark.parametrize("pair", KINDS, indirect=True)
def test_it_stays_and_is_not_late(pair):
    graph, python = pair
    rng = np.random.default_rng(3)
    rows = [*python.encode(TEXTS), *rng.integers(0, graph.vocab_size, (40, 12)).tolist()]
    parts = [(row, row[:count]) for row in rows for count in range(1, len(row) + 1)]
    wholes, known = (python.decode([pair[n] for pair in parts]) for n in (0, 1))
    for (row, part), whole, text, found in zip(
        parts, wholes, known, settled(graph, [part for _, part in parts]), strict=True
    ):
        assert whole.startswith(found) and text.startswith(found), (row, len(part))
    for row in python.encode(TEXTS[:1]):  # at most a token later
        for count in range(2, len(row)):
            [found] = settled(graph, [row[:count]])
            assert found.startswith(python.decode([row[: count - 1]])[0].rstrip())


@pytest.mark.parametrize("pair", ["GPT-2"], indirect=True)
def test_byte_level_is_never_late(pair):
    graph, python = pair
    [row] = python.encode(["the cat é"])
    parts = [row[:count] for count in range(1, len(row) + 1)]
    expected = [text.rstrip("\ufffd") for text in python.decode(parts)]
    assert settled(graph, parts) == expected


@pytest.mark.parametrize("pair", ["bpe"], indirect=True)
def test_a_file_that_replaces_parts_of_texts_is_refused(pair, tmp_path):
    _, python = pair
    python.save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}
    steps = [content["decoder"], {"type": "Fuse"}, replace]
    content["decoder"] = {"type": "Sequence", "decoders": steps}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    graph = GraphTokenizer.from_file(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="decoder.*no Replace after Fuse"):
        settled(graph, [[1]])
