"""The sentences of Multi30k as the literature scores them: normalized, lower-cased, tokenized."""

import functools
import gzip
from pathlib import Path

LANGUAGES = ("en", "de")
TRAIN, VALIDATION = "train", "val"
TESTS = {"test 2016": "test_2016_flickr", "test 2017": "test_2017_flickr"}


@functools.cache
def pairs(folder, part):
    """Both sides of a part: two lists of lines in lower case, Moses' tokens separated by spaces."""
    return [_tokenized(read_lines(folder, part, language), language) for language in LANGUAGES]


def check_files(folder):
    """Raise an error for a folder that lacks a file, before anything is written."""
    for part in (TRAIN, VALIDATION, *TESTS.values()):
        for language in LANGUAGES:
            _path(folder, part, language)


def read_lines(folder, part, language):
    """The unchanged lines of `PART.LANGUAGE.gz`."""
    with gzip.open(_path(folder, part, language), "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\r\n") for line in file]


def _path(folder, part, language):
    path = Path(folder) / f"{part}.{language}.gz"
    if not path.is_file():
        raise SystemExit(
            f"data: expected a folder with Multi30k's {path.name}, got {folder}. The files are in "
            "the folder data/task1/raw of Multi30k's own repository."
        )
    return path


def _tokenized(lines, language):
    from sacremoses import MosesPunctNormalizer, MosesTokenizer  # not needed for --help

    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=False)
        for line in lines
    ]


def detokenized(lines, language):
    """Join Moses' tokens to texts, in lower case."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(language)
    return [detokenizer.detokenize(line.split(), unescape=False) for line in lines]
