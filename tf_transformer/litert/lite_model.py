"""A folder with a LiteRT file, its tokenizer and its description."""

from pathlib import Path

import numpy as np

from tf_transformer import litert as package
from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage
from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers import Tokenizer

DESCRIPTION = "litert.json"
MODEL = "model.tflite"
TOKENIZER = "tokenizer.json"
# What `export.write_litert` writes -> the class that runs it.
KINDS = {
    "classifier": "LiteClassifier",
    "text encoder": "LiteTextEncoder",
    "translator": "LiteTranslator",
}


class LiteModel:
    """Base class of the models that run by LiteRT, on a CPU.

    Args:
        folder: str or Path, written by `export.write_litert`.
        threads: int, for each product of matrices.

    Raises:
        FileNotFoundError: If the folder has no description.
        ImportError: If ai-edge-litert or tokenizers is not installed.
        ValueError: If the folder holds another kind of model, or the file cannot be read.

    Example:
        >>> LiteModel("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: folder: expected litert.json, from write_litert, in
        nowhere.
    """

    def __init__(self, folder, threads=1):
        self.description = read_description(folder)
        wanted = KINDS[self.description["kind"]]
        if type(self).__name__ in KINDS.values() and type(self).__name__ != wanted:
            raise ArgumentError(
                "folder",
                f"a model for {type(self).__name__}",
                f"one for {wanted}: {folder}",
                "Use tf_transformer.litert.load.",
            )
        self.tokenizer = Tokenizer.load(Path(folder) / TOKENIZER)
        self.functions = read_functions(Path(folder) / MODEL, threads)

    def rows(self, texts, most):
        """Ids of texts without special tokens, at most so many for each: list of lists."""
        if self.description["lowercase"] and not isinstance(texts, str):
            texts = [text.lower() for text in texts]
        return [ids[:most] for ids in self.tokenizer.encode(texts)]


def load(folder, threads=1):
    """Load a model that `export.write_litert` wrote.

    Args:
        folder, threads: see `LiteModel`.

    Returns:
        `LiteClassifier`, `LiteTextEncoder` or `LiteTranslator`.

    Raises:
        See `LiteModel`.

    Example:
        >>> load("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: folder: expected litert.json, from write_litert, in
        nowhere.
    """
    return getattr(package, KINDS[read_description(folder)["kind"]])(folder, threads)


def read_description(folder):
    """Read `litert.json`."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise MissingFileError("folder", f"{DESCRIPTION}, from write_litert, in {folder}")
    try:
        description = parse_json(path.read_bytes())
        kind = description.get("kind")
    except (ValueError, AttributeError) as error:
        raise ArgumentError("folder", "a description", error, place=path) from error
    if kind not in tuple(KINDS):  # it may not be hashable
        raise ArgumentError(
            "folder",
            f"a kind among {', '.join(KINDS)}",
            f"{kind!r}",
            "A newer version may have written it.",
            place=path,
        )
    return description


def read_functions(path, threads=1):
    """Load the functions of a LiteRT file."""
    if threads < 1:
        raise ArgumentError("threads", "at least 1", threads)
    interpreter_of = import_interpreter()
    try:
        interpreter = interpreter_of(str(path), num_threads=threads)
    except (ValueError, RuntimeError) as error:
        raise ArgumentError("path", "a LiteRT file", path) from error
    names = interpreter.get_signature_list()
    return {name: interpreter.get_signature_runner(name) for name in names}


def import_interpreter():
    """Return LiteRT's class, or raise ImportError with the command that installs it."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise MissingPackage('ai-edge-litert is not installed: pip install -e ".[lite]"') from error
    return Interpreter


def padded(rows, pad_id=0, multiple=8):
    """Make one array of rows of ids, as long as the longest row, rounded up.

    LiteRT plans its memory again for each new shape, so few lengths are better than many.
    """
    longest = max(map(len, rows))
    shape = len(rows), -(-longest // multiple) * multiple
    ids, mask = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    for n, row in enumerate(rows):
        ids[n, : len(row)], mask[n, : len(row)] = row, 1
    return ids, mask
