import json
import random
import re

import pytest
from tokenizer_files import MODELS
from tokenizers import Tokenizer as RustTokenizer

from tf_transformer.tokenizers import (
    BPETokenizer,
    GraphBPE,
    GraphTokenizer,
    GraphUnigram,
    GraphWordPiece,
    Tokenizer,
    TokenizerFile,
    UnigramTokenizer,
    WordPieceTokenizer,
    bert_pipeline,
)
from tf_transformer.tokenizers.tokenizer_file import AddedToken

pytestmark = pytest.mark.one_of(10, "texts")

BERT_TOKENS = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "low", "##er", "l", "##e"]


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


def test_vocabulary_and_merges_are_read_in_order(tokenizer_path):
    file = TokenizerFile.read(tokenizer_path)
    assert file.vocabulary[:3] == ("<pad>", "<s>", "</s>")
    assert file.special_tokens == {"<pad>": 0, "<s>": 1, "</s>": 2}
    assert len(file.vocabulary) == 8000
    written = json.loads(tokenizer_path.read_text(encoding="utf-8"))["model"]["merges"]
    assert [[file.vocabulary[a], file.vocabulary[b]] for a, b, _ in file.merges] == written
    assert all(
        file.vocabulary[a] + file.vocabulary[b] == file.vocabulary[c] for a, b, c in file.merges
    )


def test_merges_of_the_older_format_are_the_same(tokenizer_path, rewrite):
    def join(content):
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]

    older, newer = TokenizerFile.read(rewrite(join)), TokenizerFile.read(tokenizer_path)
    assert older.merge_pairs == newer.merge_pairs and (older.merges == newer.merges).all()


def test_numbers_are_read_as_the_rust_package_reads_them():
    draw = random.Random(3)
    written = ["0.0", "-0.0", "-1e-5", "-2.5E3", "-1e-320", "-12345678901234567890123.25", "1e22"]
    written += ["-0.1000000000000000055511151231257827", "-7.1e-310", "-3", "1e-400"]
    written += [repr(-draw.random() * 10 ** draw.randint(-20, 20)) for _ in range(3000)]
    written += [f"-{draw.random() * 20:.{draw.randint(12, 22)}f}" for _ in range(3000)]
    entries = ", ".join(f'["t{i}", {number}]' for i, number in enumerate(written))
    text = (
        f'{{"version": "1.0", "model": {{"type": "Unigram", "unk_id": 0, "vocab": [{entries}]}}}}'
    )
    rust = json.loads(RustTokenizer.from_str(text).to_str())["model"]["vocab"]
    ours = TokenizerFile(text).model["vocab"]
    assert [score for _, score in ours] == [score for _, score in rust]
    # Some are deliberately not the nearest float64.
    assert [score for _, score in ours] != [float(number) for number in written]


@pytest.mark.parametrize("kind", MODELS)
def test_what_was_loaded_is_saved_byte_for_byte(file_of, tmp_path, kind):
    Tokenizer.load(file_of(kind)).save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == file_of(kind).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.json"]


@pytest.mark.parametrize("kind", MODELS)
def test_the_rust_package_reads_our_files(file_of, kind, all_texts):
    rust = RustTokenizer.from_file(str(file_of(kind)))
    ours = Tokenizer.load(file_of(kind))
    texts = all_texts[::100]
    assert [e.ids for e in rust.encode_batch(texts, add_special_tokens=False)] == ours.encode(texts)
    with_special = [e.ids for e in rust.encode_batch(texts)]
    assert with_special == ours.encode(texts, add_special_tokens=True)


@pytest.mark.slow
def test_each_class_reads_its_own_model(file_of):
    classes = {
        "bpe": (BPETokenizer, GraphBPE),
        "wordpiece": (WordPieceTokenizer, GraphWordPiece),
        "unigram": (UnigramTokenizer, GraphUnigram),
    }
    for kind, (python, graph) in classes.items():
        assert type(Tokenizer.load(file_of(kind))) is python
        assert type(GraphTokenizer.from_file(file_of(kind))) is graph
        for other, (other_python, other_graph) in classes.items():
            if other != kind:
                for load in (other_python.load, other_graph.from_file):
                    with pytest.raises(ValueError, match="'model.type' is not supported"):
                        load(file_of(kind))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("model.type", put("model", "type", "WordLevel")),
        ("model.vocab", put("model", "vocab", "a", 8000)),  # leaves its old id unused
        ("model.vocab", put("model", "vocab", "abc", 5)),  # used by another token
        ("model.vocab", put("model", "vocab", "abc", 8001)),
        ("model.vocab", put("model", "vocab", "abc", "5")),
        ("model.vocab", put("model", "vocab", ["a", "b"])),
        ("added_tokens", put("added_tokens", 1, "id", 7)),
        ("added_tokens", put("added_tokens", [{"content": "<s>", "id": 1}])),
        ("added_tokens", put("added_tokens", ["<s>"])),
    ],
)
def test_a_broken_vocabulary_is_refused(rewrite, part, change):
    path = rewrite(change)
    for load in (GraphBPE.from_file, BPETokenizer.load):
        with pytest.raises(ValueError, match=f"path: .*changed.json.*The part '{part}'"):
            load(path)


def test_a_unigram_token_with_two_scores_is_refused(rewrite):
    path = rewrite(lambda c: c["model"]["vocab"].append(["▁", -3.0]), "unigram")
    with pytest.raises(ValueError, match="each token once', got \"'▁' twice"):
        GraphUnigram.from_file(path)


@pytest.mark.parametrize("entry", [["a"], "a", ["a", "b"], [1, -2.0]])
def test_a_unigram_entry_that_is_no_token_and_score_is_refused(rewrite, entry):
    path = rewrite(lambda content: content["model"]["vocab"].append(entry), "unigram")
    with pytest.raises(ValueError, match="The part 'model.vocab' .* .a list of .token, score."):
        GraphUnigram.from_file(path)


def test_a_key_that_is_there_twice_is_refused(tokenizer_path, tmp_path):
    text = tokenizer_path.read_text(encoding="utf-8")
    path = tmp_path / "twice.json"
    path.write_text(text.replace('"Ġt":', '"Ġa":', 1), encoding="utf-8")
    with pytest.raises(ValueError, match="expected JSON, got The key 'Ġa' occurs twice"):
        Tokenizer.load(path)


def decoders(*names):
    """A Sequence of decoders. ByteLevel and ByteFallback write bytes, so only Fuse may follow."""
    settings = {"replacement": "_", "prepend_scheme": "never", "split": True}
    settings |= {"add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    return put(
        "decoder", {"type": "Sequence", "decoders": [{"type": n, **settings} for n in names]}
    )


def some_bytes(content):
    content["model"]["byte_fallback"] = True
    content["model"]["vocab"] += [["<0x00>", -20.0], ["<0x01>", -20.0]]


@pytest.mark.parametrize(
    ("kind", "part", "change"),
    [
        ("bpe", "normalizer", put("normalizer", {"type": "ByteLevel"})),
        ("bpe", "normalizer.pattern", put("normalizer", "normalizers", 0, "pattern", "Regex", ".")),
        ("bpe", "pre_tokenizer", put("pre_tokenizer", {"type": "UnicodeScripts"})),
        ("bpe", "pre_tokenizer", lambda c: c["pre_tokenizer"]["pretokenizers"].reverse()),
        ("bpe", "decoder", put("decoder", {"type": "CTC"})),
        ("bpe", "decoder", decoders("ByteLevel", "Metaspace")),
        ("bpe", "decoder", decoders("ByteFallback", "Metaspace", "Fuse")),
        ("bpe", "model.merges", put("model", "merges", [[]])),
        ("bpe", "model.merges", put("model", "merges", ["a"])),
        ("unigram", "model.unk_id", put("model", "unk_id", 8000)),
        ("bpe", "model.dropout", put("model", "dropout", 0.1)),
        ("bpe", "model.unk_token", put("model", "unk_token", "<unk>")),
        ("bpe", "model.vocab", lambda c: c["model"]["vocab"].update({"Z": 8000, "no Z": 57})),
        ("bpe", "model.merges", put("model", "merges", 0, ["a", "no such token"])),
        ("bpe", "model.merges", lambda c: c["model"]["merges"].append(c["model"]["merges"][0])),
        ("bpe of characters", "model.unk_token", put("model", "unk_token", "no such token")),
        ("wordpiece", "model.unk_token", put("model", "unk_token", "no such token")),
        ("unigram", "model.unk_id", put("model", "unk_id", None)),
        ("unigram", "model.byte_fallback", some_bytes),
    ],
)
def test_what_the_graph_cannot_do_is_refused_by_the_name_of_its_part(rewrite, kind, part, change):
    path = rewrite(change, kind)
    with pytest.raises(ValueError, match=f"path: .*changed.json.*The part '{part}' is not supp"):
        GraphTokenizer.from_file(path)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        (put("normalizer", {"type": "BertNormalizer"}), "clean_text"),
        (lambda content: content["model"].pop("unk_token"), "unk_token"),
    ],
)
def test_a_part_without_its_settings_is_refused(rewrite, change, setting):
    path = rewrite(change, "wordpiece")
    with pytest.raises(ValueError, match=f"path: .*changed.json.*all settings, got no '{setting}'"):
        GraphTokenizer.from_file(path)


def test_what_the_rust_package_cannot_read_is_refused(rewrite):
    path = rewrite(put("normalizer", {"type": "Nonsense"}))
    with pytest.raises(ValueError, match="path: .*changed.json.*the package tokenizers can read"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1", "expected JSON"),
        (b"[]", "part 'model'"),
        (b"{}", "part 'model'"),
        (b"\x80\xff", "utf-8"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, message):
    path = tmp_path / "other.json"
    path.write_bytes(content)
    for load in (GraphTokenizer.from_file, Tokenizer.load):
        with pytest.raises(ValueError, match=f"path: .*other.json.*{message}"):
            load(path)


def test_a_vocabulary_of_bert_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(ValueError, match="path: expected UTF-8, got .* in .*vocab.txt"):
        WordPieceTokenizer.load_vocabulary(path)


def test_missing_file_is_named(tmp_path):
    for load in (GraphTokenizer.from_file, Tokenizer.load, WordPieceTokenizer.load_vocabulary):
        with pytest.raises(FileNotFoundError, match="path: .*none.json"):
            load(tmp_path / "none.json")


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.one_of(4)
def test_vocabulary_of_bert(tmp_path, lowercase):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(BERT_TOKENS) + "\n", encoding="utf-8")
    tokenizer = WordPieceTokenizer.load_vocabulary(path, lowercase)
    graph = GraphWordPiece(TokenizerFile.read_vocabulary(path, bert_pipeline(lowercase)))
    texts = ["lower le", "LOWER", "é"]
    expected = {True: [[6, 7, 8, 9], [6, 7], [2]], False: [[6, 7, 8, 9], [2], [2]]}[lowercase]
    assert tokenizer.encode(texts) == graph.encode(texts).to_list() == expected
    assert tokenizer.encode(["le"], add_special_tokens=True) == [[3, 8, 9, 4]]
    roles = (graph.pad_id, graph.unknown_id, graph.start_id, graph.end_id, graph.mask_id)
    assert roles == (0, 2, 3, 4, 5)


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Files of published models have such lines. Ids as transformers 5.24 gives them, `BertTokenizer`.
LINES = {
    "end of lines": ("\r\n".join([*SPECIAL, "low", "##er", "l"]) + "\r\n", [5, 6, 7, 1], 8),
    "no end": ("\n".join([*SPECIAL, "low", "##er", "l"]), [5, 6, 7, 1], 8),
    "carriage returns": ("\r".join([*SPECIAL, "low", "##er", "l"]), [5, 6, 7, 1], 8),
    "blank": ("\n".join([*SPECIAL, "", "low", "", "##er", "l"]) + "\n", [6, 8, 9, 1], 10),
    "blank at the end": ("\n".join([*SPECIAL, "low", "##er", "l"]) + "\n\n\n", [5, 6, 7, 1], 10),
    "white space": (
        "\n".join([*SPECIAL, "\u2028", "\u3000", "low", "\x85", "\x1c", "##er", "l", " x"]),
        [7, 10, 11, 1],
        13,
    ),
    "repeated": ("\n".join([*SPECIAL, "low", "##er", "low", "l", "##er"]), [7, 9, 8, 1], 10),
    "a name of ours": (
        "\n".join([*SPECIAL, "", "low", "##er", "[line 6]", "l", "", ""]),
        [6, 7, 9, 1],
        11,
    ),
}


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", LINES)
def test_lines_of_a_vocabulary_are_read_as_by_hugging_face(tmp_path, name):
    text, ids, size = LINES[name]
    path = tmp_path / "vocab.txt"
    path.write_bytes(text.encode("utf-8"))
    tokenizer = WordPieceTokenizer.load_vocabulary(path)
    graph = GraphWordPiece(TokenizerFile.read_vocabulary(path, bert_pipeline()))
    for texts in (["lower\u3000l\u2028x"], ["lower  l x "]):
        assert tokenizer.encode(texts) == graph.encode(texts).to_list() == [ids]
    assert tokenizer.vocab_size == graph.vocab_size == size
    # `load_vocab` of transformers; a name of ours only where a later line has the same token.
    with open(path, encoding="utf-8") as reader:
        lines = [line.rstrip("\n") for line in reader.readlines()]
    theirs = {token: number for number, token in enumerate(lines)}
    assert theirs.items() <= {t: n for n, t in enumerate(graph._file.vocabulary)}.items()
    # Nothing that a text says becomes the id of a line that does not count.
    unused = set(range(size)) - set(theirs.values())
    names = [graph._file.vocabulary[number] for number in unused]
    assert not unused & {n for ids in tokenizer.encode([*names, " ".join(names)]) for n in ids}


def test_a_special_token_on_two_lines_has_the_id_of_the_last(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL, "low", "[SEP]"]))
    tokenizer = WordPieceTokenizer.load_vocabulary(path)
    assert tokenizer.encode(["low"], add_special_tokens=True) == [[2, 5, 6]]
    assert tokenizer.end_id == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\n".join(t for t in BERT_TOKENS if t not in ("[CLS]", "[MASK]")),
            r"got none of \['\[CLS\]', '\[MASK\]'\] .* do not insert or remove lines",
        ),
        ("", "got none of .*do not insert or remove lines"),
        ("\ufeff" + "\n".join(SPECIAL), "byte order mark, .*Remove the mark and keep every line"),
        ("\n".join([*SPECIAL, "low "]), "got 'low ' on line 6 .*Remove the white space and keep"),
        ("\n".join([*SPECIAL, "low\u3000", "low"]), "line 6 .*Remove the white space and keep"),
    ],
)
def test_a_broken_vocabulary_of_bert_is_refused(tmp_path, text, message):
    path = tmp_path / "vocab.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"path: expected .*{message}"):
        WordPieceTokenizer.load_vocabulary(path)


ADDED = {
    "id": 8000,
    "content": "[E1]",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": True,
    "special": False,
}


def add(*changes):
    return lambda content: content["added_tokens"].extend(ADDED | change for change in changes)


@pytest.mark.parametrize(
    "change",
    [
        add({"id": 8001}),
        # The Rust package would give the first the id 8000.
        add({"id": 8001, "content": "[E2]"}, {}),
        add({}, {"lstrip": True}),
        add({"content": ""}),
        add({"content": "<s>", "id": 1}),
        add({"lstrip": 1}),
        add({"content": " ", "lstrip": True}),  # a panic there
        lambda content: content["added_tokens"].append({"id": 8000, "content": "a", "special": 0}),
    ],
)
def test_added_tokens_that_the_rust_package_reads_otherwise_are_refused(rewrite, change):
    path = rewrite(change)
    for load in (GraphBPE.from_file, BPETokenizer.load):
        with pytest.raises(ValueError, match="The part 'added_tokens' is not supported"):
            load(path)


def test_scores_stay_as_they_are_written_when_tokens_are_added(rewrite, file_of):
    # Parsed, written and parsed again, it would be another number.
    number = "-7.100000000000000055511151231257827e-12"
    text = re.sub(r"-\d+\.\d+", number, file_of("unigram").read_text(encoding="utf-8"), count=1)
    assert number in text
    file = TokenizerFile(text)
    longer = file.with_added_tokens([AddedToken("[E1]", None, special=False)])
    assert longer.vocabulary == (*file.vocabulary, "[E1]")
    digits = re.compile(r"-?\d+\.[\de.+-]+")
    assert digits.findall(longer.text) == digits.findall(text)
    assert longer.model == file.model
