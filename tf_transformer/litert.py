"""Models in LiteRT's format, run without TensorFlow: `pip install -e ".[lite]"`.

`export.write_litert` writes them. These classes need numpy, ai-edge-litert and tokenizers.
"""

from pathlib import Path

import numpy as np

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage, check
from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers import Tokenizer

__all__ = ["LiteClassifier", "LiteModel", "LiteTextEncoder", "LiteTranslator", "load"]

DESCRIPTION, MODEL, TOKENIZER = "litert.json", "model.tflite", "tokenizer.json"
BATCH = 16  # texts of similar length at once


class LiteModel:
    """Base class of the models that run with LiteRT, on a CPU.

    Args:
        folder: str or Path, written by `export.write_litert`.
        threads: int, for each matrix product.

    Raises:
        FileNotFoundError: If the folder has no description.
        ImportError: If ai-edge-litert or tokenizers is not installed.
        ValueError: If the folder contains another kind of model, or the file cannot be read.
    """

    def __init__(self, folder, threads=1):
        self.description = read_description(folder)
        wanted = KINDS[self.description["kind"]]
        if type(self) in KINDS.values() and type(self) is not wanted:
            expected, got = f"a model for {type(self).__name__}", f"one for {wanted.__name__}"
            remedy = "Use tf_transformer.litert.load."
            raise ArgumentError("folder", expected, f"{got}: {folder}", remedy)
        self.tokenizer = Tokenizer.load(Path(folder) / TOKENIZER)
        self.functions = read_functions(Path(folder) / MODEL, threads)

    def rows(self, texts, most):
        """Ids of texts without special tokens, at most `most` for each: list of lists."""
        if self.description["lowercase"] and not isinstance(texts, str):
            texts = [text.lower() for text in texts]
        return [ids[:most] for ids in self.tokenizer.encode(texts)]


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
        expected = f"a kind among {', '.join(KINDS)}"
        remedy = "A newer version may have written it."
        raise ArgumentError("folder", expected, f"{kind!r}", remedy, place=path)
    return description


def read_functions(path, threads=1):
    """Load the functions of a LiteRT file."""
    check(threads >= 1, "threads", "at least 1", threads)
    interpreter_of = import_interpreter()
    try:
        interpreter = interpreter_of(str(path), num_threads=threads)
    except (ValueError, RuntimeError) as error:
        raise ArgumentError("path", "a LiteRT file", path) from error
    names = interpreter.get_signature_list()
    return {name: interpreter.get_signature_runner(name) for name in names}


def import_interpreter():
    """Return LiteRT's interpreter class, or raise ImportError with the command to install it."""
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as error:
        raise MissingPackage('ai-edge-litert is not installed: pip install -e ".[lite]"') from error
    return Interpreter


def padded(rows, pad_id=0, multiple=8):
    """Pad rows of ids to one array, as long as the longest row, rounded up."""
    # LiteRT plans its memory again for each new shape, so few lengths are better than many.
    longest = max(map(len, rows))
    shape = len(rows), -(-longest // multiple) * multiple
    ids, mask = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    for n, row in enumerate(rows):
        ids[n, : len(row)], mask[n, : len(row)] = row, 1
    return ids, mask


def bert_inputs(rows, facts):
    """The inputs of BERT for rows of ids without special tokens, by the facts in `litert.json`."""
    most = facts["max_length"]
    rows = [[facts["cls_id"], *ids[: most - 2], facts["sep_id"]] for ids in rows]
    ids, mask = padded(rows, facts["pad_id"])
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
    return {name: array[:, :most] for name, array in inputs.items()}


class LiteBert(LiteModel):
    """A BERT model in LiteRT's format, with one function of texts."""

    def run(self, texts):
        """Run the model on N texts, in batches of similar length: float32 (N, ...)."""
        rows = self.rows(texts, self.description["max_length"] - 2)
        check(rows, "texts", "at least one text", "none")
        order = np.argsort([len(ids) for ids in rows], kind="stable")
        [function] = self.functions.values()
        results = []
        for start in range(0, len(rows), BATCH):
            inputs = bert_inputs([rows[n] for n in order[start : start + BATCH]], self.description)
            [found] = function(**inputs).values()
            results.append(found)
        return np.concatenate(results)[np.argsort(order)]


class LiteClassifier(LiteBert):
    """A text classifier in LiteRT's format, see `LiteModel`; `labels` are its classes."""

    @property
    def labels(self):
        """Tuple of C strings, in the order of the answers."""
        return tuple(self.description["labels"])

    def classify(self, texts):
        """Classify N texts, at least one; long ones are truncated.

        Returns:
            `(labels, answers)`: list of N strings, the labels with the largest answers; float32
            array (N, C), probabilities or the outputs of a regression, see `export.TextClassifier`.
        """
        answers = self.run(texts)
        return [self.labels[n] for n in answers.argmax(1)], answers


class LiteTextEncoder(LiteBert):
    """A sentence encoder in LiteRT's format, see `LiteModel`."""

    def encode(self, texts):
        """Encode N texts, at least one; long ones are truncated: float32 array (N, D)."""
        return self.run(texts)


class LiteTranslator(LiteModel):
    """A translator in LiteRT's format, which decodes greedily, see `LiteModel`."""

    def translate(self, texts):
        """Translate texts, one after the other: list of N strings; long ones are truncated, and ""
        is the translation of a blank text.
        """
        rows = self.rows(texts, self.description["longest_source"] - 1)
        return self.tokenizer.decode([self._decode(ids) if ids else [] for ids in rows])

    def _decode(self, ids):
        facts = self.description
        ids = [*ids, facts["end_id"]]
        factor, offset = facts["length_limit"]
        most = min(factor * len(ids) + offset, facts["longest_target"])
        source, _ = padded([ids])
        source = source[:, : facts["longest_source"]]
        # Round up the caches too: each new size is a new shape for every layer.
        slots = min(-(-most // 16) * 16, facts["longest_target"])
        state = self.functions["encode"](ids=source, length=np.int32(slots))
        token, found, num_tokens = facts["start_id"], [], self.tokenizer.vocab_size
        while len(found) < most:
            outputs = self.functions["step"](token=np.array([token], np.int32), **state)
            # Never 0, the padding, or an id without a token.
            token = 1 + int(np.argmax(outputs.pop("logits")[0, 1:num_tokens]))
            if token == facts["end_id"]:
                break
            found.append(token)
            state = outputs
        return found


# What `export.write_litert` writes -> the class that runs it.
KINDS = {
    "classifier": LiteClassifier,
    "text encoder": LiteTextEncoder,
    "translator": LiteTranslator,
}


def load(folder, threads=1):
    """Load a model that `export.write_litert` wrote, for arguments and errors see `LiteModel`.

    Returns a `LiteClassifier`, `LiteTextEncoder` or `LiteTranslator`.
    """
    return KINDS[read_description(folder)["kind"]](folder, threads)
