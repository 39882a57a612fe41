"""LiteRT models where there is no TensorFlow, and folders that are damaged."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tiny_bert import CONFIG, randomised, tiny_folder

from tf_transformer import bert, litert
from tf_transformer.export import write_litert
from tf_transformer.models.bert.text_inputs import read_tokenizer_file

pytestmark = pytest.mark.one_of(10, "served")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    file = read_tokenizer_file(tiny_folder(folder / "bert"))
    write_litert(randomised(bert.SentenceEncoder(CONFIG)), file, folder / "lite")
    return folder / "lite"


@pytest.mark.slow
def test_runs_without_tensorflow(folder):
    script = (
        "import sys; sys.modules['tensorflow'] = sys.modules['keras'] = None\n"
        "from tf_transformer import litert\n"
        "print(litert.load(sys.argv[1]).encode(['a film', 'bad']).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )
    expected = litert.load(folder).encode(["a film", "bad"])
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-6)


@pytest.mark.slow
def test_texts_in_any_order_and_number(folder):
    model = litert.load(folder)
    texts = ["bad " * n for n in (7, 1, 20, 3)] * 9
    vectors = model.encode(texts)
    alone = np.concatenate([model.encode([text]) for text in texts])
    np.testing.assert_allclose(vectors, alone, atol=1e-6)


def test_bad_input(folder, tmp_path):
    model = litert.load(folder)
    with pytest.raises(ValueError, match="texts: expected at least one text, got none"):
        model.encode([])
    with pytest.raises(TypeError, match="texts: expected an iterable of strings, got one string"):
        model.encode("bad")
    with pytest.raises(FileNotFoundError, match="folder: expected litert.json, from write_litert"):
        litert.load(tmp_path)
    (tmp_path / "litert.json").write_text('{"kind": "painter"}')
    with pytest.raises(ValueError, match="expected a kind among classifier, .* got 'painter'"):
        litert.load(tmp_path)
    with pytest.raises(ValueError, match="threads: expected at least 1, got 0"):
        litert.load(folder, threads=0)
    for content in ("{", "[]"):
        (tmp_path / "litert.json").write_text(content)
        with pytest.raises(ValueError, match="litert.json: expected a description, got"):
            litert.load(tmp_path)
    for name in ("litert.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    for content in (b"", b"no model"):
        (tmp_path / "model.tflite").write_bytes(content)
        with pytest.raises(ValueError, match="path: expected a LiteRT file, got .*model.tflite"):
            litert.load(tmp_path)
