import json

import pytest

from tf_transformer.tokenizers import BPETokenizer, GraphBPE
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile


def test_vocabulary_and_merges_are_read_in_order(tokenizer_path):
    file = TokenizerFile.read(tokenizer_path)
    assert file.vocabulary[:3] == ("<pad>", "<s>", "</s>")
    assert len(file.vocabulary) == 8000
    written = json.loads(tokenizer_path.read_text(encoding="utf-8"))["model"]["merges"]
    assert [[file.vocabulary[a], file.vocabulary[b]] for a, b, _ in file.merges] == written
    assert all(
        file.vocabulary[a] + file.vocabulary[b] == file.vocabulary[c] for a, b, c in file.merges
    )


def test_merges_of_the_older_format_are_the_same(tokenizer_path, rewrite):
    def join(content):
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]

    assert TokenizerFile.read(rewrite(join)) == TokenizerFile.read(tokenizer_path)


def put(*keys_and_value):
    *keys, last, value = keys_and_value

    def change(content):
        for key in keys:
            content = content[key]
        content[last] = value

    return change


def swap_a_special_token(content):
    vocab = content["model"]["vocab"]
    vocab["<pad>"], vocab["!"] = vocab["!"], vocab["<pad>"]


def spell_a_special_token(content):
    content["model"]["vocab"]["<s"] = 8000
    content["model"]["merges"].append(["<s", ">"])


@pytest.mark.parametrize(
    "part, change",
    [
        ("normalizer", put("normalizer", None)),
        ("normalizer", put("normalizer", "normalizers", 0, "content", "_")),
        ("normalizer", put("normalizer", "normalizers", 1, "strip_left", False)),
        ("pre_tokenizer", put("pre_tokenizer", {"type": "Whitespace"})),
        ("pre_tokenizer", put("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", r"\s")),
        ("pre_tokenizer", put("pre_tokenizer", "pretokenizers", 1, "add_prefix_space", True)),
        ("decoder", put("decoder", {"type": "WordPiece"})),
        ("model", put("model", "type", "WordPiece")),
        ("model", put("model", "byte_fallback", True)),
        ("model", put("model", "unk_token", "<unk>")),
        ("model", put("model", "ignore_merges", True)),
        ("added_tokens", put("added_tokens", [])),
        ("added_tokens", put("added_tokens", 1, "content", "[CLS]")),
        ("post_processor", put("post_processor", {"type": "BertProcessing"})),
        ("truncation", put("truncation", {"max_length": 5})),
        ("padding", put("padding", {"pad_id": 0})),
        ("model.vocab", put("model", "vocab", "a", 8000)),
        ("model.vocab", put("model", "vocab", {"<pad>": 0, "<s>": 1, "</s>": 2})),
        ("model.vocab", put("model", "vocab", "你", 8000)),
        ("model.vocab", swap_a_special_token),
        ("model.merges", put("model", "merges", 0, ["a", "no such token"])),
        ("model.merges", lambda content: content["model"]["merges"].append(["<", "s>"])),
        ("model.merges", spell_a_special_token),
        (
            "model.merges",
            lambda content: content["model"]["merges"].append(content["model"]["merges"][0]),
        ),
    ],
)
def test_another_pipeline_is_refused_by_the_name_of_its_part(rewrite, part, change):
    path = rewrite(change)
    for load in (GraphBPE.from_file, BPETokenizer.load):
        with pytest.raises(ValueError, match=f"the part '{part}' of .*changed.json"):
            load(path)


@pytest.mark.parametrize(
    "content, message", [("[1", "is not JSON"), ("[]", "part 'model'"), ("{}", "part 'model'")]
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, message):
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        GraphBPE.from_file(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(b"\x80\xff\x00")
    with pytest.raises(ValueError, match="is not JSON"):
        BPETokenizer.load(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="path: .*none.json"):
        GraphBPE.from_file(tmp_path / "none.json")
