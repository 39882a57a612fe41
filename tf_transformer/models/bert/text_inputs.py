"""Texts to what BERT reads.

Axes: B batch, T length.
"""

import re
from pathlib import Path

import tensorflow as tf

from tf_transformer.models.bert.checkpoints.json_file import read_json
from tf_transformer.tokenizers import GraphTokenizer, bert_pipeline
from tf_transformer.tokenizers.graph.graph_wordpiece import GraphWordPiece
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile


def read_tokenizer(folder, lowercase=None):
    """The tokenizer of a checkpoint's folder, as graph operations.

    Args:
        folder: str or Path; its `tokenizer.json` is read, or else its `vocab.txt`.
        lowercase: bool, whether a `vocab.txt` is of an "uncased" model; None asks
            `tokenizer_config.json`, whose `strip_accents` and `tokenize_chinese_chars` are followed
            too, and without one the vocabulary: with a capital letter it is of a cased model.

    Returns:
        `GraphTokenizer`.

    Raises:
        FileNotFoundError: the folder has neither file.
        ValueError: as `GraphTokenizer.from_file` and `WordPieceTokenizer.load_vocabulary`; a
            `vocab.txt` of another tokenizer than BERT's.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\nhello")
        >>> read_tokenizer(folder).encode(["Hello"], add_special_tokens=True).to_list()
        [[2, 5, 3]]
    """
    path = Path(folder) / "tokenizer.json"
    if path.is_file():
        return GraphTokenizer.from_file(path)
    return GraphWordPiece(read_tokenizer_file(folder, lowercase))


def read_tokenizer_file(folder, lowercase=None):
    """The vocabulary of a checkpoint's folder, as a `TokenizerFile`.

    Args, raises: as of `read_tokenizer`.

    Example:
        >>> read_tokenizer_file("nowhere")
        Traceback (most recent call last):
        FileNotFoundError: folder: expected tokenizer.json or vocab.txt in nowhere.
    """
    folder = Path(folder)
    if (folder / "tokenizer.json").is_file():
        return TokenizerFile.read(folder / "tokenizer.json")
    if not (folder / "vocab.txt").is_file():
        raise FileNotFoundError(f"folder: expected tokenizer.json or vocab.txt in {folder}.")
    settings = folder / "tokenizer_config.json"
    settings = read_json(settings) if settings.is_file() else {}
    if lowercase is None:
        lowercase = settings.get("do_lower_case", not _has_capitals(folder / "vocab.txt"))
    return TokenizerFile.read_vocabulary(folder / "vocab.txt", _pipeline(settings, lowercase))


def _has_capitals(path):
    # What is no UTF-8 is named by who reads it; `[CLS]` and its like say nothing.
    tokens = path.read_text("utf-8", errors="replace").split("\n")
    return any(re.search("[A-Z]", token) for token in tokens if not token.startswith("["))


def _pipeline(settings, lowercase):
    """BERT's, as a `tokenizer_config.json` wants it."""
    for name, allowed in (
        ("tokenizer_class", ("BertTokenizer", "BertTokenizerFast", None)),
        ("do_basic_tokenize", (True, None)),
    ):
        if settings.get(name) not in allowed:
            raise ValueError(
                f"{name}: expected {allowed[0]} in tokenizer_config.json beside a vocab.txt, got "
                f"{settings[name]}. Save the tokenizer as a tokenizer.json, which says how it cuts."
            )
    return bert_pipeline(
        lowercase,
        settings.get("strip_accents"),
        settings.get("tokenize_chinese_chars", True),
    )


def text_inputs(tokenizer, texts, pairs=None, max_length=512, mask=None):
    """`[CLS] text [SEP]`, or `[CLS] text [SEP] pair [SEP]`, as `Bert` takes it.

    Devlin et al. 2019, section 3, figure 2. Too long ones are cut at their ends, of a pair the
    longer text first. Works in a graph; core operations only.

    Args:
        tokenizer: `GraphTokenizer` with the roles start, end and padding.
        texts: string tensor (B,).
        pairs: None, or string tensor (B,), the second texts.
        max_length: int, most tokens, special ones included.
        mask: None, or str such as "[MASK]", which in the texts then stands for the mask token; all
            else in a text is text.

    Returns:
        dict of int32 tensors (B, T): `input_ids`, `token_type_ids`, `attention_mask`.

    Raises:
        ValueError: `max_length` leaves no room for a token; a role is missing; another number of
            pairs than of texts.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> inputs = text_inputs(read_tokenizer(folder), ["a"], ["b a"])
        >>> inputs["input_ids"].numpy().tolist(), inputs["token_type_ids"].numpy().tolist()
        ([[2, 5, 3, 6, 5, 3]], [[0, 0, 0, 1, 1, 1]])
    """
    around = 2 if pairs is None else 3
    if max_length <= around:
        raise ValueError(f"max_length: expected at least {around + 1}, got {max_length}.")
    rows = _encoded(tokenizer, texts, mask)
    most = max_length - around
    if pairs is None:
        return pad_segments(tokenizer, [rows[:, :most]])
    others = _encoded(tokenizer, pairs, mask)
    if not rows.shape[:1].is_compatible_with(others.shape[:1]):
        raise ValueError(
            f"pairs: expected one for each of the {rows.shape[0]} texts, got {others.shape[0]}."
        )
    lengths, other_lengths = (tf.cast(x.row_lengths(), tf.int32) for x in (rows, others))
    # The shorter one keeps up to half of the room, the odd place goes to the longer.
    half = tf.where(lengths > other_lengths, most - most // 2, most // 2)
    kept = tf.minimum(lengths, tf.maximum(half, most - other_lengths))
    return pad_segments(tokenizer, [_cut(rows, kept), _cut(others, most - kept)])


def pad_segments(tokenizer, segments):
    """`[CLS] ids [SEP]`, or `[CLS] ids [SEP] ids [SEP]`, padded, as `Bert` takes it.

    What `text_inputs` does with the tokens of its texts, for ids that are there already.

    Args:
        tokenizer: `GraphTokenizer` with the roles start, end and padding.
        segments: list of ragged int32 tensors (B, (T)), the first and the second texts.

    Returns:
        dict of int32 tensors (B, T): `input_ids`, `token_type_ids`, `attention_mask`.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> tokenizer = read_tokenizer(folder)
        >>> pad_segments(tokenizer, [tokenizer.encode(["a", "b a"])])["input_ids"].numpy().tolist()
        [[2, 5, 3, 0], [2, 6, 5, 3]]
    """
    batch = segments[0].nrows()
    start, end = (
        tf.RaggedTensor.from_tensor(tf.fill([batch, 1], number))
        for number in (tokenizer.start_id, tokenizer.end_id)
    )
    framed = [
        tf.concat([start, segments[0], end], 1),
        *(tf.concat([ids, end], 1) for ids in segments[1:]),
    ]
    ids = tf.concat(framed, 1)
    types = tf.concat([part.with_values(part.values * 0 + n) for n, part in enumerate(framed)], 1)
    # At least one place, also of no texts: a model takes the first one.
    shape = tf.stack([batch, tf.maximum(ids.bounding_shape(axis=1), 1)])
    dense = ids.to_tensor(tokenizer.pad_id, shape=shape)
    return {
        "input_ids": dense,
        "token_type_ids": types.to_tensor(shape=shape),
        "attention_mask": tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1], tf.int32),
    }


def _encoded(tokenizer, texts, mask):
    """string (B,) -> ragged (B, (T))."""
    if mask is None:
        return tokenizer.encode(texts)
    pieces = tf.strings.split(texts, mask)  # ragged (B, (P)), and a mask between two of them
    ids = tokenizer.encode(pieces.values)
    masks = tf.fill([ids.nrows(), 1], tokenizer.mask_id)
    ids = tf.concat([ids, tf.RaggedTensor.from_tensor(masks)], 1)
    return pieces.with_values(ids).merge_dims(1, 2)[:, :-1]


def _cut(rows, most):
    """The first tokens of each row: ragged (B, (T)), int32 (B,) -> ragged (B, (T'))."""
    lengths = tf.minimum(rows.row_lengths(), tf.cast(most, tf.int64))
    places = tf.ragged.range(rows.row_starts(), rows.row_starts() + lengths)
    return tf.gather(rows.values, places)
