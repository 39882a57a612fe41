"""A teacher's translations are kept, and an interrupted call continues."""

import pytest

from tf_transformer.compression import distilled_pairs

SOURCES = [f"text {n}" for n in range(7)]


class Teacher:
    """Translates into capitals until it is interrupted."""

    def __init__(self, calls):
        self.calls = calls
        self.seen = []

    def __call__(self, texts):
        if len(self.seen) == self.calls:
            raise KeyboardInterrupt
        self.seen.append(texts)
        return [text.upper() for text in texts]


def test_an_interrupted_call_continues_with_the_first_missing_file(tmp_path):
    first, second = Teacher(calls=2), Teacher(calls=9)
    with pytest.raises(KeyboardInterrupt):
        distilled_pairs(first, SOURCES, tmp_path / "parts", part_size=3)
    done = []
    pairs = distilled_pairs(second, SOURCES, tmp_path / "parts", part_size=3, progress=done.append)
    assert pairs == [(text, text.upper()) for text in SOURCES]
    assert first.seen + second.seen == [SOURCES[:3], SOURCES[3:6], SOURCES[6:]]
    assert done == [3, 6, 7]


def test_one_string_is_not_several(tmp_path):
    with pytest.raises(ValueError, match="sources: expected a list of strings, got a string"):
        distilled_pairs(lambda texts: texts, "ab", tmp_path)


def test_an_empty_translation_teaches_nothing(tmp_path):
    pairs = distilled_pairs(lambda texts: ["", *texts[1:]], ["a", "b"], tmp_path)
    assert pairs == [("b", "b")]


def test_sources_may_be_a_tuple(tmp_path):
    pairs = distilled_pairs(Teacher(calls=1), tuple(SOURCES), tmp_path)
    assert distilled_pairs(Teacher(calls=0), tuple(SOURCES), tmp_path) == pairs


def test_a_damaged_file_is_refused(tmp_path):
    distilled_pairs(Teacher(calls=1), SOURCES, tmp_path)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(ValueError, match="expected translations of these sources in .*others"):
        distilled_pairs(Teacher(calls=1), SOURCES, tmp_path)


def test_bad_input(tmp_path):
    distilled_pairs(Teacher(calls=1), SOURCES, tmp_path)
    with pytest.raises(ValueError, match="expected translations of these sources in .*others"):
        distilled_pairs(Teacher(calls=1), SOURCES[::-1], tmp_path)
    with pytest.raises(ValueError, match="translate: expected 7 translations, got 1"):
        distilled_pairs(lambda texts: texts[:1], SOURCES, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="part_size: expected at least 1, got 0"):
        distilled_pairs(Teacher(calls=1), SOURCES, tmp_path, part_size=0)
