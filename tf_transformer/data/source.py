"""Sources of texts and pairs, files or an included corpus, and their splits without leaks."""

import dataclasses
import hashlib
import unicodedata
from itertools import groupby
from os import PathLike
from pathlib import Path

from tf_transformer.data.batches import PreparedPairs
from tf_transformer.data.files import load_corpus, read_files, read_lines, read_tsv
from tf_transformer.errors import ArgumentError, check


def read_documents(paths):
    """Read BERT's pretraining format: one sentence per line, a blank line between documents.

    Devlin et al. 2019, `create_pretraining_data.py`. The end of a file also ends a document.
    Returns a list of documents, each a list of stripped sentences. `paths` is a str or Path of a
    UTF-8 text file, or an iterable of them; each may be gzipped. Raises a FileNotFoundError if a
    file does not exist, a ValueError if `paths` is empty, or a file is empty, damaged or not UTF-8.

    Example:
        >>> _ = Path("text.txt").write_text("It rains.\\nTake a coat.\\n\\nCats sleep.\\n")
        >>> read_documents("text.txt")
        [['It rains.', 'Take a coat.'], ['Cats sleep.']]
    """
    paths = [paths] if isinstance(paths, str | PathLike) else list(paths)
    check(paths, "paths", "at least one text file", "none")
    documents = []
    for path in paths:
        lines = [line.strip() for line in read_lines(path, "paths")]
        documents += [list(group) for has_text, group in groupby(lines, key=bool) if has_text]
    return documents


@dataclasses.dataclass(frozen=True)
class TextSource:
    """One side of an included corpus, or text files; both or neither is a ValueError.

    Args:
        corpus: str or None, a name that `load_corpus` accepts: every distinct sentence of its first
            language ("en-zh": English) is a document.
        files: strs, text files for `read_documents`.

    Example:
        >>> source = TextSource(corpus="en-zh")
        >>> source.name, source.load()[0]
        ('en', ['Hi.'])
    """

    corpus: str | None = None
    files: tuple = ()

    def __post_init__(self):
        check(not isinstance(self.files, str), "files", "a tuple of file names", f"{self.files!r}")
        object.__setattr__(self, "files", tuple(map(str, self.files)))
        if (self.corpus is None) == (not self.files):
            got = f"corpus {self.corpus} and {len(self.files)} files"
            raise ArgumentError("data", "either a corpus or text files", got)

    @property
    def name(self):
        """A short name, used for folders."""
        return self.corpus.split("-")[0] if self.corpus else Path(self.files[0]).name.split(".")[0]

    def load(self):
        """Read the documents, lists of sentences; see `load_corpus` and `read_documents`."""
        if self.corpus:
            return [[text] for text in dict.fromkeys(side for side, _ in load_corpus(self.corpus))]
        return read_documents(self.files)

    def with_paths(self, change):
        """Return the same source with `change(path)`, str to str, for each path."""
        return dataclasses.replace(self, files=tuple(map(change, self.files)))


@dataclasses.dataclass(frozen=True)
class PairSource:
    """An included corpus, pairs of files with one sentence per line, TSV files, or prepared shards.

    Args:
        corpus: str or None, a name that `load_corpus` accepts, such as "en-zh".
        source_file, target_file: None, or str or tuple of str: files aligned line by line, the
            first source file with the first target file.
        tsv: None, or str or tuple of str: files with source and target in the first two columns.
        prepared: None, or str, a folder that `prepare_pairs` wrote.

    Raises:
        ValueError: If not exactly one of the four is given, or the numbers of source and target
            files differ.

    Example:
        >>> source = PairSource(corpus="zh-en")
        >>> source.target_language, source.name
        ('en', 'zh-en')
    """

    corpus: str | None = None
    source_file: str | tuple[str, ...] | None = None
    target_file: str | tuple[str, ...] | None = None
    tsv: str | tuple[str, ...] | None = None
    prepared: str | None = None

    def __post_init__(self):
        for name in _FILES:
            object.__setattr__(self, name, _one_or_several(getattr(self, name)))
        if (self.source_file is None) != (self.target_file is None):
            got = f"{self.source_file} and {self.target_file}"
            raise ArgumentError("source_file, target_file", "both or neither", got)
        sources, targets = len(_several(self.source_file)), len(_several(self.target_file))
        expected, got = "as many target files as source files", f"{sources} and {targets}"
        check(sources == targets, "source_file, target_file", expected, got)
        choices = self.corpus, self.source_file, self.tsv, self.prepared
        given = sum(choice is not None for choice in choices)
        expected = "one of corpus, source_file with target_file, tsv, or prepared"
        check(given == 1, "data", expected, f"{given} of them")

    @property
    def name(self):
        """A short name for folders."""
        if self.corpus:
            return self.corpus
        return Path(_several(self.tsv or self.source_file or self.prepared)[0]).name.split(".")[0]

    @property
    def target_language(self):
        """Language code of the target side, from the corpus name or the file's suffix, or ""."""
        if self.prepared:
            return PairSource(**PreparedPairs(self.prepared).manifest["source"]).target_language
        return self.corpus.split("-")[1] if self.corpus else _suffix(_several(self.target_file))

    @property
    def files(self):
        """The files: a list of tuples, each a TSV file or two aligned files."""
        if self.tsv:
            return [(file,) for file in _several(self.tsv)]
        return list(zip(_several(self.source_file), _several(self.target_file), strict=True))

    def load(self):
        """Read the pairs, a list of (source, target) strings; for shards, a `PreparedPairs`.

        For errors, see `load_corpus`, `read_tsv` and `PreparedPairs`.
        """
        if self.prepared:
            return PreparedPairs(self.prepared)
        if self.corpus:
            return load_corpus(self.corpus)
        read = read_tsv if self.tsv else read_files
        return [pair for together in self.files for pair in read(*together)]

    def split(self, validation=None):
        """Return a `Split`; for prepared shards, its `train` is a `PreparedPairs`.

        `validation` is None, for a part of the data, or a `PairSource`; with prepared shards, which
        have their own, that is a ValueError. See also `load`.
        """
        pairs = self.load()
        if not self.prepared:
            if validation is None:
                return split_pairs(pairs)
            return split_with_validation(pairs, validation.load())
        check(validation is None, "validation", "none with prepared pairs, which have their own")
        return Split(pairs, pairs.held_out("validation"), pairs.held_out("test"))

    def with_paths(self, change):
        """Return the same source with `change(path)`, str to str, for each path."""
        changed = {name: tuple(map(change, _several(getattr(self, name)))) for name in _FILES}
        return dataclasses.replace(self, **changed)


_FILES = ("source_file", "target_file", "tsv", "prepared")


def _several(files):
    return (files,) if isinstance(files, str) else files or ()


def _one_or_several(files):
    """Return None, a str, or a tuple of two or more."""
    files = tuple(map(str, (files,) if isinstance(files, str | Path) else files or ()))
    return files if len(files) > 1 else next(iter(files), None)


def _suffix(files):
    suffixes = [suffix for suffix in Path(next(iter(files), "")).suffixes if suffix != ".gz"]
    return suffixes[-1][1:] if suffixes else ""


@dataclasses.dataclass(frozen=True)
class Split:
    """Three lists of `(source, target)` pairs that share no sentence.

    `train` is for training, `validation` for choosing a model, `test` for final results.

    Example:
        >>> Split(train=[("a", "b")], validation=[], test=[]).train
        [('a', 'b')]
    """

    train: list
    validation: list
    test: list


def split_pairs(pairs, test_share=0.04, validation_share=0.02):
    """Return a `Split` of pairs in which no sentence, on either side, is in two of the sets.

    Pairs that share a sentence, directly or through other pairs, form a group, which goes to one
    set, chosen by a hash of its text. Sentences that differ only in case, width (Unicode NFKC) or
    whitespace count as equal. The result depends only on the set of pairs, not on their order or on
    which language is the source. Each list keeps their order. Raises a ValueError if a share is
    negative, or the shares leave nothing for training.

    Args:
        pairs: iterable of `(source, target)` pairs of strings.
        test_share, validation_share: floats in [0, 1), the shares of the groups for these sets.

    Example:
        >>> pairs = [(f"a {n}", f"b {n}") for n in range(1000)] + [("a 7", "b seven")]
        >>> split = split_pairs(pairs)
        >>> len(split.train), len(split.validation), len(split.test)
        (940, 22, 39)
    """
    if test_share < 0 or validation_share < 0 or test_share + validation_share >= 1:
        expected = "two shares of at least 0 with a sum below 1"
        got, remedy = f"{test_share} and {validation_share}", "The defaults are 0.04 and 0.02."
        raise ArgumentError("test_share, validation_share", expected, got, remedy)
    pairs = list(pairs)
    split = Split(train=[], validation=[], test=[])
    for pair, group in zip(pairs, _group_names(pairs), strict=True):
        draw = uniform(group)
        if draw < test_share:
            split.test.append(pair)
        elif draw < test_share + validation_share:
            split.validation.append(pair)
        else:
            split.train.append(pair)
    return split


def split_with_validation(pairs, validation):
    """Return a `Split` of pairs into training and test sets, given a validation set.

    Like `split_pairs`, but pairs that share a sentence with the validation set are left out. Both
    are lists of `(source, target)` pairs of strings.

    Example:
        >>> split = split_with_validation([("a", "b"), ("c", "d")], [("A", "another b")])
        >>> split.train, split.validation
        ([('c', 'd')], [('A', 'another b')])
    """
    split = split_pairs(pairs, validation_share=0.0)
    train, test = (pairs_without(part, validation) for part in (split.train, split.test))
    return Split(train=train, validation=list(validation), test=test)


def pairs_without(pairs, held_out):
    """Return the list of pairs that share no sentence, on either side, with a held-out set.

    For pairs that join a training set later, such as a teacher's translations. Case, width and
    whitespace are ignored, as in `split_pairs`. Both are iterables of pairs of strings.

    Example:
        >>> held_out = [("Run!", "跑！")]
        >>> pairs_without([("Hi.", "嗨。"), ("run!", "快跑！"), ("Jog!", "跑!")], held_out)
        [('Hi.', '嗨。')]
    """
    sentences = {comparable(text) for pair in held_out for text in pair}
    return [pair for pair in pairs if sentences.isdisjoint(map(comparable, pair))]


def split_documents(documents, validation_share):
    """Split documents into lists `(train, validation)` that share no document, in their order.

    The set of a document depends only on its text, without case, width and whitespace. Raises a
    ValueError if the share is outside (0, 1), or a set is empty for lack of documents.

    Args:
        documents: iterable of lists of strings, the sentences of each document.
        validation_share: float in (0, 1), the share of the documents that goes to validation.

    Example:
        >>> train, validation = split_documents([[f"Text {n}."] for n in range(100)], 0.1)
        >>> len(train), len(validation)
        (91, 9)
    """
    check(0 < validation_share < 1, "validation_share", "0 < share < 1", validation_share)
    sets = ([], [])
    for document in documents:
        sets[uniform(comparable(" ".join(document))) < validation_share].append(document)
    got, remedy = f"{len(sets[0])} and {len(sets[1])} of them", "A blank line ends a document."
    check(all(sets), "documents", "enough for training and validation", got, remedy)
    return sets


def group_references(pairs):
    """Collect all translations of each source, as multi-reference BLEU needs them.

    Returns `(sources, references)` of an iterable of `(source, target)` pairs of strings: distinct
    sources in order of first appearance, and for each the list of its distinct targets.

    Example:
        >>> group_references([("Hi.", "嗨。"), ("Run.", "跑。"), ("Hi.", "你好。")])
        (['Hi.', 'Run.'], [['嗨。', '你好。'], ['跑。']])
    """
    # Dicts as sets that keep the order.
    targets_of = {}
    for source, target in pairs:
        targets_of.setdefault(source, {})[target] = None
    return list(targets_of), [list(targets) for targets in targets_of.values()]


def _group_names(pairs):
    """Return the smallest sentence of each pair's group, found by union-find."""
    # Of both languages, so that no leak is missed and the groups are the same in both directions.
    parent = {}

    def find(sentence):
        while parent[sentence] != sentence:
            parent[sentence] = parent[parent[sentence]]  # halve the path for the next search
            sentence = parent[sentence]
        return sentence

    keys = [(comparable(source), comparable(target)) for source, target in pairs]
    for source, target in keys:
        roots = [find(parent.setdefault(side, side)) for side in (source, target)]
        # The smaller sentence stays the root, so the root names its group in any order.
        parent[max(roots)] = min(roots)
    return [find(source) for source, _ in keys]


def comparable(sentence):
    """Map sentences that count as equal to the same text: without case, width and extra spaces."""
    # Case folding can undo NFKC (and vice versa), so normalize both before and after.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return " ".join(folded.split())


def uniform(name):
    """Map a text to a number in [0, 1) that, unlike `hash`, is the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8")).digest()[:6], "big") / 2**48
