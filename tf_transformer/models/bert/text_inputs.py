"""The inputs of BERT from texts; tokenizers and vocabularies of checkpoints.

Axes: B batch, T length.
"""

import functools
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.data.files import replacing, write_json
from tf_transformer.errors import ArgumentError, MissingFileError, check, check_choice
from tf_transformer.functional.tensors import asserted
from tf_transformer.models.bert.checkpoints.config_files import (
    ALBERT_TOKENIZER,
    OWN,
    TOKENIZER,
    check_fields,
    read_json,
)
from tf_transformer.tokenizers import (
    GraphTokenizer,
    WordPieceTokenizer,
    bert_pipeline,
    read_sentencepiece,
)
from tf_transformer.tokenizers.graph.texts import characters_of, literal, replaced
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile, UnsupportedPart, fairseq_ids

# Fields of tokenizer_config.json -> fields of a BertNormalizer in a tokenizer.json.
_NORMALIZER = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
[_BERT_CLASSES] = (fields.only for fields in TOKENIZER if fields.names == "tokenizer_class")


def read_tokenizer(folder, lowercase=None):
    """Read the tokenizer of a checkpoint folder, as a `GraphTokenizer`.

    Args:
        folder: str or Path; its `tokenizer.json` is read, or else its `vocab.txt`, or
            ALBERT's `spiece.model`, or XLM-RoBERTa's `sentencepiece.bpe.model`.
        lowercase: bool, whether a `vocab.txt` belongs to an "uncased" model; None uses
            `tokenizer_config.json`, whose `strip_accents` and `tokenize_chinese_chars` also apply,
            or else the vocabulary: if it has a capital letter, the model is cased. An ALBERT's text
            is lowercased by default.

    Raises:
        FileNotFoundError: If the folder has none of these files.
        ValueError: If a file is invalid, or belongs to another tokenizer than BERT's, ALBERT's or
            XLM-RoBERTa's.

    Example:
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\nhello")
        >>> read_tokenizer(".").encode(["Hello"], add_special_tokens=True).to_list()
        [[2, 5, 3]]
    """
    file = read_tokenizer_file(folder, lowercase)
    path = Path(folder) / "tokenizer.json"
    return GraphTokenizer.from_file(path) if path.is_file() else GraphTokenizer.of(file)


def read_tokenizer_file(folder, lowercase=None):
    """Read the vocabulary of a checkpoint folder, as a `TokenizerFile`; see `read_tokenizer`."""
    path, vocabulary = Path(folder) / "tokenizer_config.json", Path(folder) / "vocab.txt"
    settings = read_json(path, default={})
    settings = {name: value for name, value in settings.items() if value is not None}
    if path.with_name("tokenizer.json").is_file():
        file = TokenizerFile.read(path.with_name("tokenizer.json"))
        _check_agreement(file, settings, path)
        return file
    if vocabulary.is_file():
        if lowercase is None:
            lowercase = settings.get("do_lower_case", not _has_capitals(vocabulary))
        check_tokenizer_settings(settings, TOKENIZER, path)
        chinese = settings.get("tokenize_chinese_chars", True)
        pipeline = bert_pipeline(lowercase, settings.get("strip_accents"), chinese)
        file = TokenizerFile.read_vocabulary(vocabulary, pipeline)
    elif path.with_name("spiece.model").is_file():
        check_tokenizer_settings(settings, ALBERT_TOKENIZER, path)
        _check_model_type(settings, path.with_name("config.json"), "albert")
        lowercase = settings.get("do_lower_case", True) if lowercase is None else lowercase
        file = _albert(path.with_name("spiece.model"), lowercase, settings.get("keep_accents"))
    elif path.with_name("sentencepiece.bpe.model").is_file():
        check_choice("tokenizer_class", settings.get("tokenizer_class"), _XLM_ROBERTA)
        _check_model_type(settings, path.with_name("config.json"), "xlm-roberta")
        file = _xlm_roberta(path.with_name("sentencepiece.bpe.model"))
    else:
        expected = "tokenizer.json, vocab.txt, spiece.model or sentencepiece.bpe.model"
        raise MissingFileError("folder", expected, "none of them", place=folder)
    refuse_added_tokens(path.parent, settings, file)
    return file


def _check_model_type(settings, path, expected):
    """Refuse a model whose tokenizer is another one, if nothing else says which it is."""
    if "tokenizer_class" not in settings:
        model_type = read_json(path, default={}).get("model_type")
        try:
            check_choice("model_type", model_type, (expected, OWN, None))
        except ArgumentError as error:
            raise error.inside(path) from None


_XLM_ROBERTA = ("XLMRobertaTokenizer", "XLMRobertaTokenizerFast", None)


def _xlm_roberta(path):
    """The vocabulary of an XLM-RoBERTa; Conneau et al. 2020."""
    ids = functools.partial(fairseq_ids, added=["<mask>"])
    content = read_sentencepiece(path, ids, ("<pad>", "<mask>")).content
    return _framed(content, "RobertaProcessing", "<s>", "</s>", "<mask>")


def _albert(path, lowercase, keeps_accents):
    """The vocabulary of an ALBERT; Lan et al. 2020, the authors' tokenization.py."""
    content = read_sentencepiece(path).content
    first = {"type": "ALBERT", "lowercase": lowercase, "strip_accents": not keeps_accents}
    content["normalizer"] = {"type": "Sequence", "normalizers": [first, content["normalizer"]]}
    # A piece that ends in a digit and a comma is cut again, without the comma.
    pieces = [p for p in content["model"]["vocab"] if p[-1] == "," and p[-2:-1].isdigit()]
    if pieces:
        graph = GraphTokenizer.of(TokenizerFile.of(content))
        rows = graph.encode([piece[:-1].replace(_SPACE, "") for piece in pieces]).to_list()
        for piece, row in zip(pieces, rows, strict=True):
            first, *others = (graph.vocabulary[number] for number in row)
            first = first if piece[0] == _SPACE else first.removeprefix(_SPACE)
            splits = content["model"].setdefault("splits", {})
            splits[piece] = [*([first] if first else []), *others, ","]
    return _framed(content, "BertProcessing", "[CLS]", "[SEP]", "[MASK]")


_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"


def _framed(content, kind, start, end, mask):
    """A file with the special tokens around its texts; the mask takes the spaces before it."""
    ids = {token["content"]: token["id"] for token in content["added_tokens"]}
    if missing := {start, end, mask, "<pad>"} - ids.keys():
        raise UnsupportedPart.of("pieces", f"{start}, {end}, {mask} and <pad>", sorted(missing))
    for token in content["added_tokens"]:
        token["lstrip"] = token["content"] == mask
    frame = {"type": kind, "cls": [start, ids[start]], "sep": [end, ids[end]]}
    return TokenizerFile.of({**content, "post_processor": frame})


def refuse_added_tokens(folder, settings, file):
    """Refuse further tokens next to a vocabulary: only a `tokenizer.json` fully defines them."""
    described = settings.get("added_tokens_decoder") or {}
    further = read_json(folder / "added_tokens.json", default={})
    try:
        described = [(token["content"], token["special"]) for token in described.values()]
        known = {token.content for token in file.added_tokens}
        known |= {token for token, is_special in described if is_special} & {*file.vocabulary}
        found = [t for t in (*(token for token, _ in described), *further) if t not in known]
    except (AttributeError, KeyError, TypeError) as error:
        expected = f"content and special of each token in {folder}"
        raise ArgumentError("added_tokens_decoder", expected, f"{error!r}") from error
    if found:
        expected = "no added tokens without a tokenizer.json"
        remedy = "Save the tokenizer as tokenizer.json, which defines it fully."
        raise ArgumentError("folder", expected, found[:5], remedy, place=folder)


def _has_capitals(path):
    # Invalid UTF-8 is reported later, by the reader; `[CLS]` and the like do not count.
    tokens = path.read_text("utf-8", errors="replace").split("\n")
    return any(re.search("[A-Z]", token) for token in tokens if not token.startswith("["))


def check_tokenizer_settings(settings, table, path):
    """Check a `tokenizer_config.json` next to another file than a `tokenizer.json`."""

    def content(token):
        return token.get("content") if isinstance(token, dict) else token

    plain = {name: content(v) if name.endswith("_token") else v for name, v in settings.items()}
    plain.pop("added_tokens_decoder", None)  # see `refuse_added_tokens`
    if str(plain.get("tokenizer_class")).startswith("DistilBert"):  # whose model has no segments
        plain.pop("model_input_names", None)
    check_fields(plain, table, path)
    for name in (*_NORMALIZER, "keep_accents", "add_bos_token", "add_eos_token", "legacy"):
        if not isinstance(settings.get(name), bool | None):
            raise ArgumentError(name, f"true, false or null in {path}", f"{settings[name]!r}")


def _check_agreement(file, settings, path):
    """Check that tokenizer.json agrees with `tokenizer_config.json`, which transformers follows."""
    kind = settings.get("tokenizer_class")
    part, step, names = "normalizer", "BertNormalizer", _NORMALIZER
    if kind in ("RobertaTokenizer", "RobertaTokenizerFast"):
        part, step, names = "pre_tokenizer", "ByteLevel", {"add_prefix_space": "add_prefix_space"}
    elif kind not in (*_BERT_CLASSES, None):
        return
    there = file.content.get(part)
    if not isinstance(there, dict) or there.get("type") != step:
        return
    if there.get("strip_accents") is None:
        there = {**there, "strip_accents": there.get("lowercase")}
    for name in filter(settings.__contains__, names):
        if settings[name] != there.get(names[name]):
            expected = f"{there.get(names[name])!r} in {path}, as in tokenizer.json"
            got = f"{settings[name]!r}. transformers follows {path.name}"
            raise ArgumentError(name, expected, got, "Correct the wrong file.")


def text_inputs(tokenizer, texts, pairs=None, max_length=512, mask=None):
    """Encode texts as `[CLS] text [SEP]`, or pairs as `[CLS] text [SEP] pair [SEP]`, for `Bert`.

    Devlin et al. 2019, section 3, figure 2. If a `tokenizer.json` adds other special tokens, these
    are used: `<s> text </s></s> pair </s>` for RoBERTa, all in segment 0. Long inputs are truncated
    at the end, in a pair the longer text first. Works in a graph.

    Args:
        tokenizer: `GraphTokenizer` with the roles start, end and padding.
        texts: string tensor (B,).
        pairs: None, or string tensor (B,), the second texts.
        max_length: int, maximum number of tokens, including special ones.
        mask: None, or str such as "[MASK]" that represents the mask token in the texts; everything
            else is plain text. RoBERTa's takes the spaces before it.

    Returns:
        dict of int32 tensors (B, T): `input_ids`, `token_type_ids`, `attention_mask`.

    Raises:
        ValueError: If `max_length` leaves no room for a token, a role is missing, or the numbers of
            texts and pairs differ.

    Example:
        >>> _ = Path("vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> inputs = text_inputs(read_tokenizer("."), ["a"], ["b a"])
        >>> inputs["input_ids"].numpy().tolist(), inputs["token_type_ids"].numpy().tolist()
        ([[2, 5, 3, 6, 5, 3]], [[0, 0, 0, 1, 1, 1]])
    """
    around = special_count(tokenizer, 1 if pairs is None else 2)
    check(max_length > around, "max_length", f"at least {around + 1}", max_length)
    rows = _encoded(tokenizer, texts, mask)
    most = max_length - around
    if pairs is None:
        return pad_segments(tokenizer, [rows[:, :most]])
    others = _encoded(tokenizer, pairs, mask)
    if not rows.shape[:1].is_compatible_with(others.shape[:1]):
        raise ArgumentError("pairs", f"one for each of {rows.shape[0]} texts", others.shape[0])
    lengths, other_lengths = (tf.cast(x.row_lengths(), tf.int32) for x in (rows, others))
    # The shorter text keeps up to half of the room; an odd token goes to the longer one.
    half = tf.where(lengths > other_lengths, most - most // 2, most // 2)
    kept = tf.minimum(lengths, tf.maximum(half, most - other_lengths))
    return pad_segments(tokenizer, [_cut(rows, kept), _cut(others, most - kept)])


def special_frame(tokenizer, texts):
    """The special tokens of `GraphTokenizer.frame`; BERT's if the file adds none."""
    frame = tokenizer.frame(texts)
    if frame:
        return frame
    start, end = tokenizer.start_id, tokenizer.end_id
    return [(start, 0), (None, 0), (end, 0), *[(None, 1), (end, 1)][: 2 * (texts - 1)]]


def special_count(tokenizer, texts=1):
    """Return the number of special tokens that `text_inputs` adds to one text or two."""
    return len(special_frame(tokenizer, texts)) - texts


def pad_segments(tokenizer, segments):
    """Same as `text_inputs`, but for ids: one or two ragged tensors (B, (T))."""
    batch, rest = segments[0].nrows(), iter(segments)
    parts, types = [], []
    for number, kind in special_frame(tokenizer, len(segments)):
        if number is None:
            parts.append(next(rest))
        else:
            parts.append(tf.RaggedTensor.from_tensor(tf.fill([batch, 1], number)))
        types.append(parts[-1].with_values(parts[-1].values * 0 + kind))
    ids, types = tf.concat(parts, 1), tf.concat(types, 1)
    # At least one position, even without texts: models read the first token.
    shape = tf.stack([batch, tf.maximum(ids.bounding_shape(axis=1), 1)])
    dense = ids.to_tensor(tokenizer.pad_id, shape=shape)
    return {
        "input_ids": dense,
        "token_type_ids": types.to_tensor(shape=shape),
        "attention_mask": tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1], tf.int32),
    }


def framed_inputs(tokenizer, texts, max_length):
    """Same as `text_inputs`, but only with the special tokens that the file adds; padding is 0."""
    around = max(len(tokenizer.frame()) - 1, 0)
    check(max_length > around, "max_length", f"at least {around + 1}", max_length)
    ids = tokenizer.add_special_tokens(tokenizer.encode(texts)[:, : max_length - around])
    counts, error = ids.row_lengths(), ("text", "at least one token in each", "none")
    ids = ids.with_values(asserted(ids.values, tf.reduce_all(counts > 0), *error))
    ids = ids.to_tensor(shape=tf.stack([ids.nrows(), tf.maximum(ids.bounding_shape(axis=1), 1)]))
    mask = tf.sequence_mask(counts, tf.shape(ids)[1], tf.int32)
    return {"input_ids": ids, "token_type_ids": tf.zeros_like(ids), "attention_mask": mask}


def _encoded(tokenizer, texts, mask):
    """string (B,) -> ragged (B, (T))."""
    if mask is None:
        return tokenizer.encode(texts)
    # Ragged (B, (P)), with a mask between two pieces.
    pieces = tf.strings.split(_without_spaces(tokenizer, texts, mask), mask)
    ids = tokenizer.encode(pieces.values)
    masks = tf.fill([ids.nrows(), 1], tokenizer.mask_id)
    ids = tf.concat([ids, tf.RaggedTensor.from_tensor(masks)], 1)
    return pieces.with_values(ids).merge_dims(1, 2)[:, :-1]


def _without_spaces(tokenizer, texts, mask):
    """Drop the white space next to masks that belongs to the mask token, as RoBERTa's."""
    [token] = (token for token in tokenizer.added_tokens if token.id == tokenizer.mask_id)
    if not (token.lstrip or token.rstrip):
        return texts
    codes = np.flatnonzero(characters_of("white_space"))
    spaces = "".join(["[", *(rf"\x{{{code:x}}}" for code in codes), "]*"])
    return replaced(texts, token.lstrip * spaces + literal(mask) + token.rstrip * spaces, mask)


def _cut(rows, most):
    """Keep the first tokens of each row: ragged (B, (T)), int32 (B,) -> ragged (B, (T'))."""
    lengths = tf.minimum(rows.row_lengths(), tf.cast(most, tf.int64))
    places = tf.ragged.range(rows.row_starts(), rows.row_starts() + lengths)
    return tf.gather(rows.values, places)


def read_bert_vocabulary(path, lowercase):
    """Read the vocabulary of a checkpoint."""
    path = Path(path)
    if path.is_dir():
        return WordPieceTokenizer(read_tokenizer_file(path))
    if path.suffix == ".json":
        return WordPieceTokenizer.load(path)
    return WordPieceTokenizer.load_vocabulary(path, lowercase)


def write_bert_vocabulary(folder, tokenizer, max_length):
    """Write a vocabulary as `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`."""
    folder = Path(folder)
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    file = TokenizerFile.read(path)
    normalizer = file.content.get("normalizer") or {}
    config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": normalizer.get("lowercase", False),
        "strip_accents": normalizer.get("strip_accents"),
        "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
        "model_max_length": max_length,
    }
    write_json(folder / "tokenizer_config.json", config)
    # Without the added tokens, which only the tokenizer.json can describe.
    tokens = file.vocabulary[: len(file.model["vocab"])]
    with replacing(folder / "vocab.txt") as beside:
        beside.write_text("\n".join(tokens) + "\n", encoding="utf-8")
