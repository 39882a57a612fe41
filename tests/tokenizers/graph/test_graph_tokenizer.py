"""Behavior shared by all graph tokenizers, except exactness."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tokenizer_files import MODELS

from tf_transformer.tokenizers import GraphBPE, GraphTokenizer, Tokenizer
from tf_transformer.tokenizers.graph import texts as graph_texts

pytestmark = pytest.mark.one_of(10, "texts")


@pytest.fixture(params=MODELS)
def kind(request):
    return request.param


@pytest.fixture
def graph(pair_of, kind):
    return pair_of(kind)[0]


@pytest.fixture
def python(pair_of, kind):
    return pair_of(kind)[1]


def as_texts(tensor):
    return [item.decode("utf-8") for item in tensor.numpy()]


def test_special_tokens(graph, python):
    assert graph.special_tokens == python.special_tokens
    assert graph.vocab_size == python.vocab_size
    ids = {role: int(number) for role, number in graph.special_ids().items()}
    assert ids["pad"] == graph.pad_id == python.pad_id == 0
    assert ids["start"] == graph.start_id == python.start_id
    assert ids["end"] == graph.end_id == python.end_id
    assert ("unknown" in ids) == (not isinstance(graph, GraphBPE))


def test_special_ids_are_dropped_in_ragged_and_dense(graph, python):
    hello, chinese = python.encode(["hello.", "我不知道。"])
    start, end = graph.start_id, graph.end_id
    rows = [[start, *hello, end], [0], [], [start, *chinese, end, 0, 0]]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    expected = python.decode(rows)
    for ids in (ragged, tf.cast(ragged, tf.int32), ragged.to_tensor()):
        assert as_texts(graph.decode(ids)) == expected
    assert expected[0] == "hello." and expected[1:3] == ["", ""]


def test_pieces_are_what_tokens_write(graph, python):
    ids = tf.range(graph.vocab_size)
    pieces = graph.pieces(ids).numpy()
    assert [bool(piece) for piece in pieces[: len(graph.special_tokens)]] == [False] * len(
        graph.special_tokens
    )
    [row] = python.encode(["he doesn't know 我不知道"])
    joined = b"".join(graph.pieces(tf.constant(row)).numpy()).decode("utf-8")
    assert joined.strip() == python.decode([row])[0].strip()


def test_types_and_empty_batch(graph):
    empty = graph.encode([])
    assert isinstance(empty, tf.RaggedTensor)
    assert empty.dtype == tf.int32 and empty.to_list() == []
    assert graph.encode(["", " "]).to_list() == [[], []]
    assert graph.decode(empty).shape == (0,)
    assert as_texts(graph.decode(tf.zeros([2, 0], tf.int32))) == ["", ""]


@pytest.mark.whole
def test_no_matrix_is_as_wide_as_the_longest_text(graph, python):
    texts = ["he"] * 20_000 + ["we "] * 10_000 + ["do you " * 30_000]  # it would take 50 GB
    assert graph.encode(texts).to_list() == python.encode(texts)


def test_rows_of_lengths():
    for lengths in ([2, 0, 3, 0], [0, 0], [], [1] * 100_000 + [100_000]):
        expected = np.repeat(np.arange(len(lengths)), lengths)
        for dtype in (tf.int32, tf.int64):
            found = graph_texts.rows_of(tf.constant(lengths, dtype))
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)


def test_what_makes_such_a_matrix_is_not_called():
    for path in Path(graph_texts.__file__).parent.glob("*.py"):
        calls = r"tf\.repeat\(|\.value_rowids\(|ragged\.boolean_mask\("
        assert not re.findall(calls, path.read_text("utf-8")), path


@pytest.mark.parametrize("length", [None, 1, 3, 50])
@pytest.mark.one_of(10)
def test_dense_ids_and_their_mask(graph, python, length):
    texts = ["he knows.", "", "we do not know the answer to that question"]
    ids, mask = graph.encode_dense(texts, length)
    rows = [row[:length] for row in python.encode(texts)]
    width = length or max(map(len, rows))
    assert ids.dtype == tf.int32 and mask.dtype == tf.bool
    assert ids.numpy().tolist() == [row + [0] * (width - len(row)) for row in rows]
    assert mask.numpy().tolist() == [[i < len(row) for i in range(width)] for row in rows]


def put_around(rewrite, post_processor, kind="wordpiece"):
    path = rewrite(lambda content: content.update(post_processor=post_processor), kind)
    return GraphTokenizer.from_file(path), Tokenizer.load(path)


BERT = {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
ROBERTA = {"type": "RobertaProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]}
ROBERTA |= {"trim_offsets": True, "add_prefix_space": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "two", "type_id": 0}},
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "two", "type_id": 0}},
    ],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {
        "two": {"id": "two", "ids": [3, 4], "tokens": ["[SEP]", "[MASK]"]},
        "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
    },
}


@pytest.mark.one_of(10)
@pytest.mark.parametrize(
    "post_processor",
    [
        None,
        BERT,
        ROBERTA,
        BYTE_LEVEL,
        TEMPLATE,
        {"type": "Sequence", "processors": [BYTE_LEVEL, TEMPLATE]},
    ],
)
def test_special_tokens_around_a_text_are_those_of_the_reference(rewrite, post_processor):
    graph, python = put_around(rewrite, post_processor)
    texts = ["he knows.", "", "we do not know the answer to that question"]
    expected = python.encode(texts, add_special_tokens=True)
    assert graph.encode(texts, add_special_tokens=True).to_list() == expected
    ids, mask = graph.encode_dense(texts, add_special_tokens=True)
    assert kept(ids, mask) == expected
    around = len(expected[1])
    ids, mask = graph.encode_dense(texts, around + 2, add_special_tokens=True)
    short = tf.ragged.constant([row[:2] for row in python.encode(texts)], tf.int32)
    assert kept(ids, mask) == graph.add_special_tokens(short).to_list()
    assert ids.shape == (3, around + 2)
    if around:
        with pytest.raises(ValueError, match=f"length: expected .*at least {around + 1}"):
            graph.encode_dense(texts, around, add_special_tokens=True)


def kept(ids, mask):
    return [row[keep].tolist() for row, keep in zip(ids.numpy(), mask.numpy(), strict=True)]


@pytest.mark.parametrize(
    ("post_processor", "part"),
    [
        ({"type": "Sequence", "processors": [TEMPLATE, BERT]}, "post_processor"),
        (TEMPLATE | {"single": TEMPLATE["single"][:2]}, "post_processor.single"),
        ({"type": "Other"}, "post_processor"),
    ],
)
def test_tokens_around_that_are_not_exact_are_refused(rewrite, post_processor, part):
    with pytest.raises(ValueError, match=f"'{part}' is not supported"):
        put_around(rewrite, post_processor)


@pytest.mark.parametrize("length", [0, -1, 2.5, "7"])
def test_a_length_that_is_none_is_refused(graph, length):
    with pytest.raises(ValueError, match="length: expected an integer of at least 1"):
        graph.encode_dense(["a"], length)


@pytest.mark.one_of(6)
def test_works_in_a_graph_with_one_trace(graph, python):
    traces = []

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def there_and_back(strings):
        traces.append(strings)
        ids = graph.encode(strings)
        return ids, graph.decode(ids)

    for texts in (["hi."], [], ["我不知道。", "", "tom left."]):
        ids, decoded = there_and_back(tf.constant(texts, tf.string))
        assert ids.to_list() == python.encode(texts)
        assert as_texts(decoded) == python.decode(python.encode(texts))
    assert len(traces) == 1


@pytest.mark.one_of(6)
def test_works_in_a_dataset(graph, python):
    texts = ["Hi.", "我不知道。", "Tom left."]
    batches = tf.data.Dataset.from_tensor_slices(texts).batch(2).map(graph.encode)
    assert [row for batch in batches for row in batch.to_list()] == python.encode(texts)


def test_wrong_shapes_and_types_are_refused(graph):
    with pytest.raises(ValueError, match="strings: .*Wrap a single text"):
        graph.encode("abc")
    with pytest.raises(ValueError, match=r"strings: .*\(1, 1\)"):
        graph.encode([["abc"]])
    with pytest.raises(ValueError, match=r"ids: .*\(2,\)"):
        graph.decode([5, 6])
    with pytest.raises(ValueError, match="ids: .*float32"):
        graph.decode([[5.0]])
    with pytest.raises(ValueError, match="ids: .*float32"):
        graph.decode(tf.ragged.constant([[5.0]]))


@pytest.mark.parametrize("number", [-1, 8000, 2**32 + 5])
def test_ids_outside_the_vocabulary_are_refused(graph, number):
    for ids in (tf.constant([[5, number]], tf.int64), tf.ragged.constant([[5, number], []])):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"ids: expected .*\[0, 8000\)"):
            graph.decode(ids)


class Server(tf.Module):
    """Stands in for an exported translator: strings in, strings and ids out."""

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
texts = tf.constant(json.load(sys.stdin))
for folder in sys.argv[1:]:
    module = tf.saved_model.load(folder)
    served = module.signatures["serving_default"](texts)
    ragged = module.tokenizer.encode_strings(texts)
    print(json.dumps([
        served["ids"].numpy().tolist(),
        ragged.to_list(),
        [text.decode() for text in module.tokenizer.decode_ids(ragged.to_tensor()).numpy()],
        [text.decode() for text in served["texts"].numpy()],
        {role: int(number) for role, number in module.tokenizer.special_ids().items()},
    ]))
assert not {"tokenizers", "tf_transformer", "tensorflow_text"} & set(sys.modules)
"""


@pytest.mark.slow
def test_saved_models_need_tensorflow_alone(pair_of, tmp_path, all_texts):
    moved = tmp_path / "moved"  # nothing may refer to the old path
    for kind in MODELS:
        server = Server(pair_of(kind)[0])
        signatures = {"serving_default": server.serve}
        tf.saved_model.save(server, str(tmp_path / "first" / kind), signatures=signatures)
    (tmp_path / "first").rename(moved)
    texts = ["Tom didn't know.", "", "我不知道。", "a\x00b", "👩🏽‍🚀 <pad>", *all_texts[::40]]
    process = subprocess.run(
        [sys.executable, "-c", RELOAD, *(moved / kind for kind in MODELS)],
        input=json.dumps(texts),
        cwd=tmp_path,
        env={"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    for kind, answer in zip(MODELS, process.stdout.splitlines(), strict=True):
        _, python = pair_of(kind)
        padded, ids, decoded, served, special = json.loads(answer)
        expected = python.encode(texts)
        longest = max(map(len, expected))
        assert ids == expected
        assert padded == [row + [0] * (longest - len(row)) for row in expected]
        assert decoded == served == python.decode(expected)
        assert special == python.ids_of_roles


@pytest.mark.one_of(6)
def test_saved_model_holds_core_operations_only(graph, tmp_path):
    tf.saved_model.save(graph, str(tmp_path / "model"))
    saved = tf.saved_model.load(str(tmp_path / "model"))
    functions = saved.encode_strings.concrete_functions + saved.decode_ids.concrete_functions
    for function in functions:
        definition = function.graph.as_graph_def(add_shapes=False)
        nodes = [definition.node, *(f.node_def for f in definition.library.function)]
        kinds = {node.op for part in nodes for node in part}
        assert not kinds & {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
        assert all(kind == "" or kind in dir(tf.raw_ops) for kind in kinds - library_of(definition))


def library_of(definition):
    return {function.signature.name for function in definition.library.function}


@pytest.mark.slow
def test_files_are_read_without_the_training_package(file_of):
    program = (
        "import sys\n"
        "sys.modules['tokenizers'] = None\n"
        "from tf_transformer.tokenizers import GraphTokenizer\n"
        "for path in sys.argv[1:]:\n"
        "    GraphTokenizer.from_file(path).encode(['Hi.'])\n"
    )
    command = [sys.executable, "-c", program, *map(file_of, MODELS)]
    subprocess.run(command, check=True, capture_output=True)
