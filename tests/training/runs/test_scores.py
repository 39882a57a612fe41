"""Scores use all references and reject invalid input."""

import pytest

from tf_transformer.training.losses import score_translations


def test_every_reference_counts():
    hypotheses, references = (
        ["the cat sat on the mat", "it rains"],
        [["x y z w", "the cat sat on the mat"], ["it rains"]],
    )
    scores = score_translations(hypotheses, references, "en")
    assert scores["bleu"] == 100.0 and scores["sentences"] == 2
    assert "tok:13a" in scores["bleu_signature"] and "nrefs:var" in scores["bleu_signature"]
    worse = score_translations(hypotheses, [["x y z w"], ["it rains"]], "en")
    assert worse["bleu"] < 50


def test_chinese_is_cut_into_characters():
    scores = score_translations(["我爱你中国"], [["我爱你中国"]], "zh")
    assert scores["bleu"] == 100.0 and "tok:zh" in scores["bleu_signature"]


@pytest.mark.parametrize(
    ("reference", "cut"),
    [
        ("我爱你,中国 ok", "zh"),
        ("私は猫が好きです", "char"),
        ("나는 고양이를 좋아한다", "char"),
        ("It says 中国.", "13a"),
        ("Я люблю тебя", "13a"),
    ],
)
@pytest.mark.parametrize("language", ["", "txt"])
def test_an_unknown_language_is_cut_by_its_script(reference, cut, language):
    scores = score_translations([reference], [[reference]], language)
    assert f"tok:{cut}" in scores["bleu_signature"]


@pytest.mark.parametrize(
    ("hypotheses", "references", "said"),
    [
        ([], [], "got 0 and 0"),
        (["a"], [["a"], ["b"]], "got 1 and 2"),
        (["a", "b"], [["a"], []], "none for sentence 1"),
        ("a", [["a"]], "hypotheses: expected a list of strings, got a string"),
        (["a", "b"], [["a"], "b"], "references: expected a list of strings, got a string"),
    ],
)
def test_bad_input(hypotheses, references, said):
    with pytest.raises(ValueError, match=said):
        score_translations(hypotheses, references, "en")
