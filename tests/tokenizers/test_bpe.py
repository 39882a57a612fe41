import pytest

from tf_transformer.tokenizers import BPETokenizer

SMALLEST = 256 + 3


def test_file_gives_the_same_tokenizer(trained, tokenizer_path):
    loaded = BPETokenizer.load(str(tokenizer_path))
    texts = ["Tom didn't know.", "我不知道。", "C'est 100 % vrai !"]
    assert loaded.vocab_size == trained.vocab_size == 8000
    assert loaded.encode(texts) == trained.encode(texts)
    assert loaded.decode(loaded.encode(texts)) == texts


def test_common_words_of_each_language_are_single_ids(trained):
    [alone, *after] = trained.encode(["Tom", "Tom don't", "Tom mais", "Tom Tom"])
    assert len(alone) == 1
    assert [len(ids) for ids in after] == [2, 2, 2]
    assert [len(ids) for ids in trained.encode(["我", "什么", "。"])] == [1, 1, 1]


def test_no_merge_can_spell_a_special_token():
    tokenizer = BPETokenizer.train(["<pad> <s> </s>"] * 100, 400)
    assert all(min(ids) > 2 for ids in tokenizer.encode(["<pad>", "<s>", "</s>", "x</s>"]))


def test_pad_start_and_end_are_dropped_by_decode(trained):
    [ids] = trained.encode(["Hello."])
    assert trained.decode([[1, *ids, 2, 0, 0]]) == ["Hello."]
    assert trained.decode([[], [0, 1, 2]]) == ["", ""]
    assert (trained.pad_id, trained.start_id, trained.end_id) == (0, 1, 2)


def test_bytes_never_seen_in_training_are_encoded():
    tokenizer = BPETokenizer.train(["abc"], SMALLEST)
    assert tokenizer.vocab_size == SMALLEST
    [ids] = tokenizer.encode(["😀"])
    assert len(ids) == 4
    assert tokenizer.decode([ids]) == ["😀"]


def test_white_space_and_control_characters_become_one_space(trained):
    text = "\ufeff a\x00\t\u3000\u2028\x85b\u00a0 "
    assert trained.decode(trained.encode([text])) == ["\ufeff a b"]
    assert trained.encode(["", " \n\x7f", "\u2003"]) == [[], [], []]


def test_words_keep_the_space_before_them(trained):
    [[first, *others]] = trained.encode(["Tom Tom Tom Tom"])
    assert len(others) == 3 and len(set(others)) == 1 and first != others[0]
    assert trained.decode([[first], others]) == ["Tom", " Tom Tom Tom"]


@pytest.mark.parametrize("character, longest", [("a", 24), ("好", 24), ("7", 3), ("!", 4)])
def test_no_word_is_longer_than_its_bound(character, longest):
    tokenizer = BPETokenizer.train([character * longest * 2] * 5, 500)
    [ids] = tokenizer.encode([character * longest * 3])
    assert tokenizer.decode([[number] for number in ids]) == [character * longest] * 3


@pytest.mark.parametrize(
    "text, words", [("don't", 1), ("aujourd’hui", 1), ("a-b", 3), ("他，我", 3)]
)
def test_apostrophes_are_inside_words_and_punctuation_is_not(text, words):
    tokenizer = BPETokenizer.train([text] * 5, 500)
    assert len(tokenizer.encode([text])[0]) == words


def test_pairs_seen_once_are_not_merged():
    tokenizer = BPETokenizer.train(["abab cd"], 500)
    assert tokenizer.vocab_size == SMALLEST + 1
    assert [len(ids) for ids in tokenizer.encode(["ab", "cd"])] == [1, 2]
