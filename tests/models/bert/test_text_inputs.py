"""Text inputs against the Rust package, and the tokenizer of a folder."""

import json
import random

import numpy as np
import pytest
import tensorflow as tf
from tiny_bert import TOKENS, tiny_folder
from tokenizers import AddedToken, BertWordPieceTokenizer, Tokenizer

from tf_transformer import TextEncoder, WordPieceTokenizer, bert, with_vocab_size
from tf_transformer.models.bert.text_inputs import (
    read_bert_vocabulary,
    read_tokenizer_file,
    write_bert_vocabulary,
)

pytestmark = pytest.mark.one_of(10, "texts")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("model") / "bert")


@pytest.fixture(scope="module")
def peer(folder, tmp_path_factory):
    """The same vocabulary in the Rust package."""
    path = tmp_path_factory.mktemp("peer") / "tokenizer.json"
    WordPieceTokenizer.load_vocabulary(folder / "vocab.txt").save(path)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_padding()
    return tokenizer


def texts(seed):
    rng = random.Random(seed)
    return [" ".join(rng.choices(TOKENS[5:], k=rng.randint(0, 9))) for _ in range(97)]


@pytest.mark.one_of(10)
@pytest.mark.parametrize("max_length", [4, 5, 8, 9, 13, 40])
@pytest.mark.parametrize("paired", [False, True])
def test_equals_the_peer(folder, peer, max_length, paired):
    first, second = texts(1), texts(2)
    inputs = bert.text_inputs(
        bert.read_tokenizer(folder), first, second if paired else None, max_length
    )
    peer.enable_truncation(max_length, strategy="longest_first")
    expected = peer.encode_batch(list(zip(first, second, strict=True)) if paired else first)
    for name, field in (
        ("input_ids", "ids"),
        ("token_type_ids", "type_ids"),
        ("attention_mask", "attention_mask"),
    ):
        assert inputs[name].dtype == tf.int32
        np.testing.assert_array_equal(inputs[name], [getattr(one, field) for one in expected])


@pytest.mark.slow
def test_works_in_a_graph(folder):
    tokenizer = bert.read_tokenizer(folder)
    spec = tf.TensorSpec((None,), tf.string)
    graph = tf.function(
        lambda a, b: bert.text_inputs(tokenizer, a, b, 9), input_signature=[spec, spec]
    )
    for one, other in zip(
        graph(texts(1), texts(2)).values(),
        bert.text_inputs(tokenizer, texts(1), texts(2), 9).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_an_empty_batch(folder):
    inputs = bert.text_inputs(bert.read_tokenizer(folder), tf.constant([], tf.string))
    # Length 1, not 0: a model takes the vector at the first position.
    assert {name: tensor.shape for name, tensor in inputs.items()} == dict.fromkeys(inputs, (0, 1))


def test_another_number_of_pairs_is_refused(folder):
    with pytest.raises(ValueError, match="pairs: expected one for each of 2 texts, got 1"):
        bert.text_inputs(bert.read_tokenizer(folder), ["a", "b"], ["a"])


@pytest.mark.parametrize("paired", [False, True])
def test_masks_in_texts(folder, peer, paired):
    tokenizer = bert.read_tokenizer(folder)
    texts = ["a [MASK] film", "[MASK]", "[MASK][MASK] good[MASK]", "", "the plot was [mask]."]
    pairs = texts[::-1] if paired else None
    inputs = bert.text_inputs(tokenizer, texts, pairs, mask="[MASK]")
    peer.no_truncation()
    expected = peer.encode_batch(list(zip(texts, pairs, strict=True)) if paired else texts)
    np.testing.assert_array_equal(inputs["input_ids"], [one.ids for one in expected])
    plain = bert.text_inputs(tokenizer, texts)["input_ids"].numpy()
    assert not (plain == tokenizer.mask_id).any()


@pytest.mark.parametrize("most, pairs", [(2, None), (3, ["a"])])
def test_refuses_no_room(folder, most, pairs):
    with pytest.raises(ValueError, match=f"max_length: expected at least {most + 1}"):
        bert.text_inputs(bert.read_tokenizer(folder), ["a"], pairs, most)


class TestTokenizerOfAFolder:
    @pytest.fixture(autouse=True)
    def traces_nothing(self):
        """Every text has its own tokenizer, and tracing would take most of the time."""
        tf.config.run_functions_eagerly(True)
        yield
        tf.config.run_functions_eagerly(False)

    def ids(self, folder, text, **options):
        return bert.read_tokenizer(folder, **options).encode([text]).to_list()[0]

    @pytest.fixture
    def own(self, tmp_path):
        (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS, "Film"]))
        return tmp_path

    def test_is_uncased_unless_it_says_otherwise(self, own):
        lower, upper = TOKENS.index("film"), len(TOKENS)
        (own / "tokenizer_config.json").write_text("{}")
        assert self.ids(own, "Film") == [upper]  # inferred from the capital in the vocabulary
        assert self.ids(own, "Film", lowercase=True) == [lower]
        (own / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
        assert self.ids(own, "Film") == [lower]
        (own / "tokenizer_config.json").unlink()
        (own / "vocab.txt").write_text("\n".join(TOKENS))
        assert self.ids(own, "Film") == [lower]
        (own / "vocab.txt").write_text("\n".join([*TOKENS, "Film"]))
        (own / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
        assert self.ids(own, "Film") == [upper]
        assert self.ids(own, "Film", lowercase=True) == [lower]

    @pytest.mark.parametrize(
        "settings",
        [
            {"do_lower_case": True, "strip_accents": False},
            {"do_lower_case": False, "strip_accents": True},
            {"do_lower_case": True, "tokenize_chinese_chars": False},
        ],
    )
    def test_follows_the_settings_as_the_peer(self, tmp_path, settings):
        words = ["café", "cafe", "Café", "Cafe", "我", "们", "我们"]
        (tmp_path / "vocab.txt").write_text("\n".join([*TOKENS[:5], *words]), "utf-8")
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "BertTokenizer", **settings})
        )
        peer = BertWordPieceTokenizer(
            str(tmp_path / "vocab.txt"),
            lowercase=settings["do_lower_case"],
            strip_accents=settings.get("strip_accents"),
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        )
        for text in ("Café café", "我们"):
            expected = peer.encode(text, add_special_tokens=False).ids
            assert self.ids(tmp_path, text) == expected

    @pytest.mark.parametrize(
        "content, message",
        [
            ('{"tokenizer_class": "BertJapaneseTokenizer"}', "tokenizer_class: expected 'BertTok"),
            ('{"do_basic_tokenize": false}', "do_basic_tokenize: expected True"),
            ('{"do_lower_case": "no"}', "do_lower_case: expected true, false or null"),
            ('{"unk_token": "good"}', "unk_token: expected '.UNK.'.* got 'good'"),
            ('{"unk_token": {"content": "good"}}', "unk_token: expected '.UNK.'.* got 'good'"),
            ('{"truncation_side": "left"}', "truncation_side: expected 'right'"),
            ('{"wordpieces_prefix": "@"}', "wordpieces_prefix: expected '##'"),
            ('{"stem": true}', "stem: expected only known fields in .*tokenizer_config.json"),
            (
                '{"added_tokens_decoder": {"6": {"content": "good", "special": false}}}',
                r"expected no added tokens without a tokenizer.json, got \['good'\]",
            ),
            ('{"do_lower', "expected a JSON object in .*tokenizer_config.json"),
        ],
    )
    def test_refuses_another_tokenizer(self, own, content, message):
        (own / "tokenizer_config.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            bert.read_tokenizer(own)

    def test_takes_what_transformers_writes(self, own):
        """The fields of transformers 4.44 and 5.24 for BERT."""
        token = {"lstrip": False, "normalized": False, "rstrip": False, "special": True}
        settings = {
            "added_tokens_decoder": {"0": {"content": "[PAD]", **token}},
            "clean_up_tokenization_spaces": True,
            "cls_token": {"content": "[CLS]", **token},
            "do_basic_tokenize": True,
            "do_lower_case": True,
            "mask_token": "[MASK]",
            "max_length": 128,
            "model_max_length": 512,
            "never_split": None,
            "pad_to_multiple_of": None,
            "pad_token": "[PAD]",
            "pad_token_type_id": 0,
            "padding_side": "right",
            "sep_token": "[SEP]",
            "stride": 0,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            "tokenizer_class": "BertTokenizer",
            "truncation_side": "right",
            "truncation_strategy": "longest_first",
            "unk_token": "[UNK]",
            "backend": "tokenizers",
            "is_local": True,
            "extra_special_tokens": {},
        }
        (own / "tokenizer_config.json").write_text(json.dumps(settings))
        assert self.ids(own, "Film") == [TOKENS.index("film")]

    def test_null_is_the_default(self, own):
        (own / "vocab.txt").write_text("\n".join(TOKENS))
        names = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
        (own / "tokenizer_config.json").write_text(json.dumps(dict.fromkeys(names)))
        assert self.ids(own, "F\u00edlm\u597d") == [TOKENS.index("film"), TOKENS.index("\u597d")]

    @pytest.mark.parametrize("normalizer", [[1], "BertNormalizer", 5])
    def test_a_normalizer_of_another_type(self, own, peer, normalizer):
        content = {**json.loads(peer.to_str()), "normalizer": normalizer}
        (own / "tokenizer.json").write_text(json.dumps(content))
        (own / "tokenizer_config.json").write_text('{"do_lower_case": true}')
        for read in (bert.read_tokenizer, lambda path: read_bert_vocabulary(path, True)):
            with pytest.raises(ValueError, match="path: "):
                read(own)

    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"do_lower_case": False}, "do_lower_case: expected True in .* got False"),
            ({"do_lower_case": True, "strip_accents": False}, "strip_accents: expected True"),
            ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars: expected True"),
            ({"do_lower_case": True, "strip_accents": True}, None),
            ({"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}, None),
        ],
    )
    def test_files_that_contradict_each_other(self, own, peer, settings, message):
        """transformers 4 and 5 replace the normalizer of tokenizer.json by these settings."""
        peer.save(str(own / "tokenizer.json"))
        (own / "tokenizer_config.json").write_text(json.dumps(settings))
        if message is None:
            assert self.ids(own, "Film") == [TOKENS.index("film")]
            return
        with pytest.raises(ValueError, match=f"{message}.*transformers follows tokenizer_config"):
            bert.read_tokenizer(own)
        with pytest.raises(ValueError, match=message):
            read_tokenizer_file(own)

    def test_prefers_tokenizer_json(self, own, peer):
        peer.save(str(own / "tokenizer.json"))
        assert bert.read_tokenizer(own).vocab_size == len(TOKENS)

    def test_refuses_a_folder_without(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="expected tokenizer.json, vocab.txt, s"):
            bert.read_tokenizer(tmp_path)


def described(content, special):
    return {"added_tokens_decoder": {"20": {"content": content, "special": special}}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("added_tokens.json", {"[E1]": 20}),
        ("tokenizer_config.json", described("[E1]", True)),  # it has no row
        ("tokenizer_config.json", described("film", False)),  # found within words too
    ],
)
def test_added_tokens_beside_a_vocabulary_are_refused(tmp_path, name, content):
    path = tiny_folder(tmp_path / "bert")
    (path / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match="bert: expected no added tokens .*tokenizer.json, whi"):
        bert.read_tokenizer(path)


@pytest.mark.slow
@pytest.mark.parametrize("content", [described("[SEP]", True), described("film", True)])
def test_special_tokens_beside_a_vocabulary_are_plain_text(tmp_path, content):
    path = tiny_folder(tmp_path / "bert")
    expected = bert.read_tokenizer(path).encode(["film [SEP]"]).to_list()
    (path / "tokenizer_config.json").write_text(json.dumps(content))
    (path / "added_tokens.json").write_text(json.dumps({"[SEP]": 3}))
    assert bert.read_tokenizer(path).encode(["film [SEP]"]).to_list() == expected


@pytest.mark.parametrize(
    "content",
    [
        ["[E1]"],
        {"20": {"content": "[E1]"}},
        {"20": 5},
        {"20": {"content": ["[E1]"], "special": False}},
    ],
)
def test_added_tokens_of_another_type_are_refused(tmp_path, content):
    path = tiny_folder(tmp_path / "bert")
    (path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": content}))
    with pytest.raises(ValueError, match="added_tokens_decoder: expected content and special"):
        bert.read_tokenizer(path)


@pytest.mark.slow
def test_a_written_vocabulary_reads_added_tokens(tmp_path):
    path = tiny_folder(tmp_path / "bert")
    tokenizer = read_bert_vocabulary(path, lowercase=True)
    size = tokenizer.vocab_size
    tokenizer.add_tokens(["[E1]", AddedToken("\n", normalized=False)])
    write_bert_vocabulary(path, tokenizer, max_length=11)
    assert bert.read_tokenizer(path).encode(["film[E1]"]).to_list()[0][1] == size
    assert len((path / "vocab.txt").read_text().splitlines()) == size
    model = with_vocab_size(bert.SentenceEncoder.from_pretrained(path), tokenizer.vocab_size)
    model.save_pretrained(path)
    again = TextEncoder.from_pretrained(path)
    vectors = again.encode(tf.constant(["film [E1]", "film", "film [E1]"])).numpy()
    np.testing.assert_allclose(vectors[0], vectors[2], rtol=1e-6)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3
