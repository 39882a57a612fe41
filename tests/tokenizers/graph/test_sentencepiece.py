"""The graph tokenizers give the ids of the package sentencepiece, and its map that of Rust's."""

import base64
import pickle
import random

import pytest
import sentencepiece
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2
from sentencepiece_models import charsmap, precompiled, precompiled_part, trained_model
from unicode_texts import SEEDS, all_characters, random_texts

from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers import GraphTokenizer, Tokenizer, read_sentencepiece
from tf_transformer.tokenizers.graph.texts import Texts
from tf_transformer.tokenizers.graph.words import Normalizer

pytestmark = pytest.mark.one_of(10, "texts")

RULES = {
    **{"a": "X", "ab": "Y z", "\u0301": "Z", "é": "e ", "b\u0302c": "bc", "가": "ga", "\t": " "},
    **{"  ": " ", " x": "  ", "q": "  r", "\xa9": "", "\r": " ", "क": "k", "\u0600": "pp"},
}
SYMBOLS = ["<sep>", "▁▁", "Tom", "ab", "x  y"]
KINDS = {
    "unigram": {},
    "bpe": {"model_type": "bpe"},
    "unigram of bytes": {"byte_fallback": True},
    "bpe of bytes": {"model_type": "bpe", "byte_fallback": True},
    "spaces kept": {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"},
    "no prefix": {"add_dummy_prefix": False, "normalization_rule_name": "nmt_nfkc_cf"},
    "symbols": {"user_defined_symbols": SYMBOLS},
    "rules": {"normalization_rule_tsv": "rules.tsv", "user_defined_symbols": SYMBOLS},
    "suffix": {"treat_whitespace_as_suffix": True},
    "bpe, suffix": {
        "model_type": "bpe",
        "treat_whitespace_as_suffix": True,
        "remove_extra_whitespaces": False,
    },
}


@pytest.fixture(scope="module")
def model_of(corpus_texts, tmp_path_factory):
    """A function: kind -> the path of a model, and the package's processor of it."""
    folder, models = tmp_path_factory.mktemp("sentencepiece"), {}
    rules = [[" ".join(f"{ord(c):X}" for c in text) for text in rule] for rule in RULES.items()]
    (folder / "rules.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rules))

    def make(kind):
        if kind not in models:
            settings = dict(KINDS[kind])
            if "normalization_rule_tsv" in settings:
                settings["normalization_rule_tsv"] = str(folder / "rules.tsv")
            texts = [*corpus_texts["en"][:900], *corpus_texts["zh"][:300]]
            path = folder / f"{kind}.model"
            path.write_bytes(trained_model(texts, **settings))
            models[kind] = path, sentencepiece.SentencePieceProcessor(model_file=str(path))
        return models[kind]

    return make


def spaced_texts(count):
    """Random texts of what the rules, the spaces and the symbols of the models meet."""
    draw = random.Random(3)
    words = [*"abxqé▁\tz", " ", "  ", "b\u0302c", "\u0301", "\u3000", "①", "ﷺ", "\u200b", "\r\n"]
    words += [*SYMBOLS, "<s>", "</s>", "<unk>", "<0x41>", "😀", "好"]
    return ["".join(draw.choices(words, k=draw.randrange(10))) for _ in range(count)]


def check_ids(graph, expected, texts):
    for start in range(0, len(texts), 1000):
        batch = texts[start : start + 1000]
        ids = graph.encode(batch).to_list()
        for text, got, wanted in zip(batch, ids, expected(batch), strict=True):
            assert got == wanted, repr(text)


@pytest.mark.one_of(5)
@pytest.mark.parametrize("kind", KINDS)
def test_ids(model_of, corpus_texts, request, kind):
    path, processor = model_of(kind)
    count = 50_000 if request.config.getoption("--whole") else 1000
    texts = SEEDS + spaced_texts(count) + random_texts(count, 4, corpus_texts["zh"])
    check_ids(GraphTokenizer.from_file(path), processor.encode, texts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unigram", "bpe", "rules"])
def test_every_character_and_sentence(model_of, corpus_texts, kind):
    path, processor = model_of(kind)
    texts = [*all_characters(" a"), *corpus_texts["en"][::7], *corpus_texts["zh"][::7], "ab " * 900]
    check_ids(GraphTokenizer.from_file(path), processor.encode, texts)


@pytest.mark.one_of(5)
@pytest.mark.parametrize("kind", KINDS)
def test_decoded_texts(model_of, kind):
    path, processor = model_of(kind)
    graph, draw = GraphTokenizer.from_file(path), random.Random(5)
    left_out = {*graph.special_tokens.values()}  # and bytes, where an invalid run differs
    left_out |= {i for i in range(graph.vocab_size) if processor.is_byte(i)}
    ids = [i for i in range(graph.vocab_size) if i not in left_out]
    spaces = [processor.piece_to_id("▁")] * 3
    rows = [draw.choices([*spaces, *draw.sample(ids, 20)], k=draw.randrange(7)) for _ in range(900)]
    decoded = graph.decode(tf.ragged.constant(rows, tf.int32, ragged_rank=1)).numpy()
    assert [text.decode() for text in decoded] == processor.decode(rows)
    if processor.is_byte(ids[0] - 1):
        assert graph.decode(graph.encode(["😀 好"])).numpy()[0].decode() == "😀 好"


def test_the_numbers_of_another_vocabulary(model_of):
    path, processor = model_of("unigram")
    pieces = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
    kept = [piece for piece in pieces if piece != "▁I"][::-1]  # one piece has no id
    ids = {piece: number for number, piece in enumerate(["<pad>", *kept])}
    graph = GraphTokenizer.from_file(path).__class__(read_sentencepiece(path, ids))
    texts = ["I am", "\U0001f600I\U0001f600 \U0001f601\U0001f602", "</s>"]
    expected = [
        [ids.get(piece, ids["<unk>"]) for piece in row]
        for row in processor.encode(texts, out_type=str)
    ]
    assert graph.encode(texts).to_list() == expected
    assert graph.special_tokens == {name: ids[name] for name in ("<unk>", "<s>", "</s>")}


@pytest.mark.slow
def test_a_saved_model_and_a_copy(model_of, tmp_path):
    path, processor = model_of("unigram of bytes")
    graph = GraphTokenizer.from_file(path)
    texts = ["Tom  is 😀.", "", "</s>", "好"]
    assert pickle.loads(pickle.dumps(graph)).encode(texts).to_list() == processor.encode(texts)
    tf.saved_model.save(graph, str(tmp_path / "saved"))
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    assert loaded.encode_strings(tf.constant(texts)).to_list() == processor.encode(texts)


def test_the_python_tokenizers_refuse_a_model(model_of):
    path, _ = model_of("unigram")
    with pytest.raises(ArgumentError, match="that the package tokenizers can read"):
        Tokenizer(read_sentencepiece(path))


def changed(model, **fields):
    """The bytes of a model whose trainer's settings are followed by others, which count."""
    content = sentencepiece_model_pb2.ModelProto.FromString(model)
    for name, value in fields.items():
        if name == "scores":
            for number, score in value.items():
                content.pieces[number].score = score
        elif name == "pieces":
            for number, (piece, kind) in value.items():
                content.pieces[number].piece, content.pieces[number].type = piece, kind
        else:
            setattr(content.trainer_spec, name, value)
    return content.SerializeToString()


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("unigram", {"model_type": 3}, "'trainer_spec.model_type' .*1 or 2, Unigram or BPE.*3"),
        ("unigram", {"byte_fallback": True}, "256 bytes for byte_fallback, else none.*0 bytes"),
        ("unigram", {"pieces": {5: ("▁", 1), 6: ("▁", 1)}}, "each piece once"),
        ("unigram", {"pieces": {0: ("<unk>", 3)}}, "one that is unknown"),
        ("unigram", {"scores": {9: float("nan")}}, "finite scores"),
        ("bpe", {"scores": {700: 0.0, 701: 0.0}}, "another score for each merge"),
        ("bpe", {"pieces": {9: ("Tom", 4)}}, "no user-defined or unused ones in BPE.*'Tom'"),
        ("bpe", {"pieces": {1: ("¤", 3)}}, "no control symbol of one character in BPE"),
        ("bpe", {"pieces": {9: ("\u1234x", 1)}}, "a piece for each character.*'\u1234'"),
    ],
)
def test_refused_models(model_of, tmp_path, kind, fields, message):
    path = tmp_path / "other.model"
    path.write_bytes(changed(model_of(kind)[0].read_bytes(), **fields))
    with pytest.raises(ArgumentError, match=message):
        GraphTokenizer.from_file(path)


def test_other_files_are_refused(model_of, tmp_path):
    data = model_of("bpe")[0].read_bytes()
    for content in (b"", b"{}", data[:-7], data[3:]):
        (tmp_path / "other.model").write_bytes(content)
        with pytest.raises(ArgumentError):
            read_sentencepiece(tmp_path / "other.model")
    with pytest.raises(FileNotFoundError, match="expected a model of SentencePiece"):
        read_sentencepiece(tmp_path / "none.model")
    with pytest.raises(ArgumentError, match="an id for '<unk>'"):
        read_sentencepiece(model_of("bpe")[0], {"a": 0})


def test_the_precompiled_normalizer_of_the_rust_package(request):
    """Clusters of less than 6 bytes become what their first key says."""
    draw = random.Random(7)
    characters = "ab xcq\r\n\t\u0301\u0302\u200d\xa9\xae\u1100\u1161\u11a8가각क\u094d\u093c\u0600"
    characters += "\u0903é\U0001f600\U0001f1e6\U00016d63\U00011f42\U000e0001\u2028"
    count = 100_000 if request.config.getoption("--whole") else 20_000
    texts = SEEDS + ["".join(draw.choices(characters, k=draw.randrange(9))) for _ in range(count)]
    reference, normalize = precompiled(RULES), Normalizer(precompiled_part(RULES))
    normalized = normalize(Texts.of(tf.constant(texts))).strings.numpy()
    for text, got in zip(texts, normalized, strict=True):
        assert got.decode() == reference.normalize_str(text), repr(text)


@pytest.mark.parametrize(
    "blob", ["", "!", "AAAA", "/////w==", "AAQAAP" + "A" * 1000, "loop", "not a text"]
)
def test_damaged_maps_are_refused(blob):
    if blob == "loop":  # the node of "a" is its own child
        data, place = bytearray(charsmap({"aa": "b"})), 4 + 4 * (256 ^ ord("a"))
        data[place : place + 4] = (ord("a") | ord("a") << 10).to_bytes(4, "little")
        blob = base64.b64encode(data).decode()
    if blob == "not a text":
        blob = base64.b64encode(charsmap({"a": "b"})[:-2] + b"\xff\0").decode()
    part = {"type": "Precompiled", "precompiled_charsmap": blob}
    with pytest.raises(ArgumentError, match="precompiled_charsmap"):
        Normalizer(part)
