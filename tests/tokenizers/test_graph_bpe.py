import json
import random
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.tokenizers import BPETokenizer, GraphBPE

EDGES = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ufeffmark",
    "\ufffe\uffff\U0010ffff",
    "<s>Tom</s><pad> <pad>",
    "👩🏽‍🚀👨‍👩‍👧‍👦🇫🇷",
    "e\u0301\u0302\u0303" * 20,
    "שלום עולם مرحبا \u202eabc\u202c",
    "１２３４５６７８９０ 1234567890",
    "x" * 24 + " " + "y" * 25 + " " + "好" * 97,
    "?!" * 10 + "。" * 9 + "「『」』",
    "can't ’tis ‘so’ don’t",
    "\\0 \\1 $& ^.*$",
    "\u200b\u200d\u2060\u180e",
]


def random_texts(count, seed):
    """Strings that mix every script and oddity, runs of one kind next to single characters."""
    draw = random.Random(seed)
    ranges = [(0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x590, 0x6FF), (0x2000, 0x206F)]
    ranges += [(0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xFE00, 0xFFFF), (0x1F300, 0x1FAFF)]
    ranges += [(0xE000, 0x10FFFF)]

    def piece():
        low, high = draw.choice(ranges)
        kind = draw.randrange(4)
        if kind == 0:
            return draw.choice(EDGES)
        if kind == 1:
            return chr(draw.randint(low, high)) * draw.randint(1, 60)
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 30)))

    return ["".join(piece() for _ in range(draw.randint(0, 6))) for _ in range(count)]


def normalised(text):
    """The pipeline's first step, written another way: by Unicode category and property."""
    spaced = "".join(
        " " if unicodedata.category(c) in ("Cc", "Zs", "Zl", "Zp") else c for c in text
    )
    return re.sub(" +", " ", spaced).strip(" ")


def as_texts(tensor):
    return [item.decode("utf-8") for item in tensor.numpy()]


@pytest.fixture(scope="module")
def graph(tokenizer_path):
    return GraphBPE.from_file(tokenizer_path)


@pytest.mark.parametrize("language", ["en", "zh", "fr"])
def test_every_corpus_sentence_has_the_reference_ids(graph, trained, corpus_texts, language):
    texts = list(corpus_texts[language])
    encoded = graph.encode(texts)
    assert encoded.to_list() == trained.encode(texts)
    assert as_texts(graph.decode(encoded)) == [normalised(text) for text in texts]


def test_random_unicode_has_the_reference_ids(graph, trained):
    texts = EDGES + random_texts(4000, seed=7)
    encoded = graph.encode(texts)
    expected = trained.encode(texts)
    for text, ids, reference in zip(texts, encoded.to_list(), expected, strict=True):
        assert ids == reference, repr(text)
    decoded = as_texts(graph.decode(encoded))
    assert decoded == trained.decode(expected) == [normalised(text) for text in texts]


def test_every_code_point_of_the_basic_plane_has_the_reference_ids(graph, trained):
    # The planes above it hold letters only, as far as the pipeline knows: a sample of them will do.
    points = [chr(p) for p in range(0x10000) if not 0xD800 <= p < 0xE000]
    points += [chr(p) for p in range(0x10000, 0x110000, 0x101)]
    # Between letters and between digits, so that each point's class shows in the words.
    texts = [
        separator.join(points[start : start + 100])
        for separator in "x1"
        for start in range(0, len(points), 100)
    ]
    for start in range(0, len(texts), 100):
        batch = texts[start : start + 100]
        assert graph.encode(batch).to_list() == trained.encode(batch)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_any_order_of_merges_has_the_reference_ids(rewrite, corpus_texts, seed):
    # A trained list never makes a better-ranked pair by a merge; a shuffled one does at once.
    path = rewrite(lambda content: random.Random(seed).shuffle(content["model"]["merges"]))
    texts = list(corpus_texts["zh"][:2000]) + list(corpus_texts["en"][-2000:])
    texts += ["aaaaaaa", "abababab", "哈哈哈哈哈哈", "mississippi" * 2]
    assert GraphBPE.from_file(path).encode(texts).to_list() == BPETokenizer.load(path).encode(texts)


def test_second_occurrence_waits_for_a_better_pair(rewrite):
    def keep_two_merges(content):
        vocab = dict(list(content["model"]["vocab"].items())[:259])
        content["model"] |= {"vocab": vocab | {"ab": 259, "aba": 260}}
        content["model"]["merges"] = [["ab", "a"], ["a", "b"]]

    path = rewrite(keep_two_merges)
    [ids] = GraphBPE.from_file(path).encode(["abab"]).to_list()
    assert [ids] == BPETokenizer.load(path).encode(["abab"])
    assert ids[0] == 260 and len(ids) == 2


def test_no_merges_at_all(tmp_path):
    path = tmp_path / "bytes.json"
    tokenizer = BPETokenizer.train(["abc"], 259)
    tokenizer.save(path)
    assert GraphBPE.from_file(path).encode(["héllo", ""]).to_list() == tokenizer.encode(
        ["héllo", ""]
    )


@pytest.mark.parametrize("text", ["我知道" * 3333, "x" * 10000, "hello " * 1666, "😀" * 10000])
def test_long_lines(graph, trained, text):
    assert graph.encode([text]).to_list() == trained.encode([text])


def test_a_batch_equals_its_rows_one_by_one(graph):
    texts = [*EDGES, "Tom and Tom and Tom.", "Tom"]
    together = graph.encode(texts).to_list()
    assert together == [graph.encode([text]).to_list()[0] for text in texts]


def test_broken_utf8_is_read_as_replacement_characters(graph, trained):
    draw = random.Random(11)
    lead = [0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF5, 0x9F, 0xA0, 0x82, 0x41]
    broken = [bytes(draw.choices([*lead, draw.randrange(256)], k=8)) for _ in range(2000)]
    readable = [item.decode("utf-8", errors="replace") for item in broken]
    assert graph.encode(broken).to_list() == trained.encode(readable)


def test_any_ids_decode_to_the_reference_text(graph, trained):
    ids = np.random.default_rng(13).integers(0, 8000, (1000, 17), dtype=np.int32)
    ids[::2] %= 259  # half of the rows: single bytes, mostly broken UTF-8
    assert as_texts(graph.decode(ids)) == trained.decode(ids)


def test_special_ids_are_dropped_in_ragged_and_dense(graph, trained):
    hello, chinese = trained.encode(["Hello.", "我不知道。"])
    rows = [[1, *hello, 2], [0], [], [1, *chinese, 2, 0, 0]]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    for ids in (ragged, tf.cast(ragged, tf.int32), ragged.to_tensor()):
        assert as_texts(graph.decode(ids)) == ["Hello.", "", "", "我不知道。"]
    assert (graph.pad_id, graph.start_id, graph.end_id) == (0, 1, 2)
    assert graph.vocab_size == trained.vocab_size


def test_types_and_empty_batch(graph):
    empty = graph.encode([])
    assert isinstance(empty, tf.RaggedTensor)
    assert empty.dtype == tf.int32 and empty.to_list() == []
    assert graph.encode(["", " "]).to_list() == [[], []]
    assert graph.decode(empty).shape == (0,)
    assert as_texts(graph.decode(tf.zeros([2, 0], tf.int32))) == ["", ""]


def test_works_in_a_graph_with_one_trace(graph, trained):
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def there_and_back(strings):
        traces.append(strings)
        ids = graph.encode(strings)
        return ids, graph.decode(ids)

    for texts in (["Hi."], [], ["我不知道。", "", "Tom left."]):
        ids, decoded = there_and_back(tf.constant(texts, tf.string))
        assert ids.to_list() == trained.encode(texts)
        assert as_texts(decoded) == texts
    assert len(traces) == 1


def test_works_in_a_dataset(graph, trained):
    texts = ["Hi.", "我不知道。", "Tom left."]
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(graph.encode)
    assert [row for batch in batches for row in batch.to_list()] == trained.encode(texts)


@pytest.mark.parametrize("number", [-1, 8000])
def test_ids_outside_the_vocabulary_are_refused(graph, number):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"expected integers in \[0, 8000\)"):
        graph.decode([[5, number]])


def test_wrong_shapes_and_types_are_refused(graph):
    with pytest.raises(ValueError, match="strings: .*wrap a single text"):
        graph.encode("abc")
    with pytest.raises(ValueError, match=r"strings: .*\(1, 1\)"):
        graph.encode([["abc"]])
    with pytest.raises(ValueError, match=r"ids: .*\(2,\)"):
        graph.decode([5, 6])
    with pytest.raises(ValueError, match="ids: .*float32"):
        graph.decode([[5.0]])


class Server(tf.Module):
    """What an exported translator looks like from here: strings in, strings and ids out."""

    def __init__(self, tokenizer):
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(self, strings):
        ids = self.tokenizer.encode(strings)
        return {"ids": ids.to_tensor(), "texts": self.tokenizer.decode(ids)}


RELOAD = """
import json, sys
import tensorflow as tf
folder, texts = sys.argv[1], json.loads(sys.argv[2])
module = tf.saved_model.load(folder)
served = module.signatures["serving_default"](tf.constant(texts))
ragged = module.tokenizer.encode_strings(tf.constant(texts))
assert not {"tokenizers", "tf_transformer"} & set(sys.modules)
print(json.dumps([
    served["ids"].numpy().tolist(),
    ragged.to_list(),
    [text.decode() for text in module.tokenizer.decode_ids(ragged.to_tensor()).numpy()],
    [text.decode() for text in served["texts"].numpy()],
]))
"""


def test_saved_model_needs_tensorflow_alone(graph, trained, tmp_path):
    server = Server(graph)
    tf.saved_model.save(
        server, str(tmp_path / "first"), signatures={"serving_default": server.serve}
    )
    moved = (tmp_path / "first").rename(tmp_path / "moved")  # nothing may point at the old place
    texts = ["Tom didn't know.", "", "我不知道。", "a\x00b", "👩🏽‍🚀 <pad>"]
    process = subprocess.run(
        [sys.executable, "-c", RELOAD, str(moved), json.dumps(texts)],
        cwd=tmp_path,
        env={"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    padded, ids, decoded, served = json.loads(process.stdout)
    expected = trained.encode(texts)
    longest = max(map(len, expected))
    assert ids == expected
    assert padded == [row + [0] * (longest - len(row)) for row in expected]
    assert decoded == served == [normalised(text) for text in texts]


def test_file_is_read_without_the_training_package(tokenizer_path):
    program = (
        "import sys\n"
        "sys.modules['tokenizers'] = None\n"
        "from tf_transformer.tokenizers import GraphBPE\n"
        f"print(GraphBPE.from_file({str(tokenizer_path)!r}).encode(['Hi.']).to_list())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
