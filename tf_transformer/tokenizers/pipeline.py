"""The steps before and after the model, and the special tokens."""

from dataclasses import dataclass

from tf_transformer.errors import ArgumentError

_NAMES = {
    "pad": ("<pad>", "[PAD]"),
    "start": ("<s>", "[CLS]", "<bos>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "<eos>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]"),
    "mask": ("[MASK]", "<mask>"),
}


def _id_of(role, meaning):
    """A property with the id of the special token that has a role."""
    return property(lambda self: self._id_of_role(role), doc=f"Integer, the id {meaning}.")


class SpecialTokenRoles:
    """Ids of special tokens by their role, for classes with a dict `special_tokens`."""

    pad_id = _id_of("pad", "of padding")
    start_id = _id_of("start", "that starts a text")
    end_id = _id_of("end", "that ends a text")
    unknown_id = _id_of("unknown", "of text that the vocabulary cannot represent")
    mask_id = _id_of("mask", "that replaces masked tokens (BERT)")

    @property
    def ids_of_roles(self):
        """Dict of role -> integer, for the roles that have a special token."""
        return {
            role: self._id_of_role(role)
            for role, names in _NAMES.items()
            if self.special_tokens.keys() & set(names)
        }

    def _id_of_role(self, role):
        for name in _NAMES[role]:
            if name in self.special_tokens:
                return self.special_tokens[name]
        expected, got = f"one of the special tokens {_NAMES[role]}", list(self.special_tokens)
        remedy = "Train a vocabulary that has one, or use `special_tokens`."
        raise ArgumentError(f"{role}_id", expected, got, remedy)


BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# C0 controls and space; DEL, C1 controls and no-break space; every other code point with the
# Unicode property White_Space (the list is frozen on purpose).
_SPACES = (
    r"\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)

_DIGITS = r"\x{30}-\x{39}"

# The apostrophes U+0027 and U+2019 are excluded: "don't" and "aujourd’hui" are single words.
_PUNCTUATION = (
    r"\x{21}-\x{26}\x{28}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e}"  # ASCII
    r"\x{a1}\x{a7}\x{ab}\x{b6}\x{b7}\x{bb}\x{bf}"  # Latin-1: ¡ § « ¶ · » ¿
    r"\x{2010}-\x{2018}\x{201a}-\x{2027}\x{2030}-\x{205e}"  # general punctuation: – — “ ” … •
    r"\x{3001}-\x{3003}\x{3008}-\x{3011}\x{3014}-\x{301f}\x{30fb}"  # CJK: 、 。 《 》 「 」
    r"\x{fe10}-\x{fe19}\x{fe30}-\x{fe6b}"  # vertical and small forms: ﹐
    r"\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff20}\x{ff3b}-\x{ff40}\x{ff5b}-\x{ff65}"  # full width: ， ？
)

SPACE_PATTERN = f"[{_SPACES}]+"

# "<" is punctuation and "s" is a letter, so no word, and hence no merge, can spell "<s>": a special
# token written in a text is always encoded as plain text.
WORD_PATTERN = (
    rf" ?[^\x{{20}}{_DIGITS}{_PUNCTUATION}]{{1,24}}"
    rf"| ?[{_DIGITS}]{{1,3}}"
    rf"| ?[{_PUNCTUATION}]{{1,4}}"
)

_METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"

# Metaspace writes spaces as this character, so in a text it is read as a space.
_SPACE_OR_METASPACE_PATTERN = rf"[{_SPACES}\x{{2581}}]+"

# The regular expressions that Oniguruma and RE2 are known to interpret identically.
SHARED_PATTERNS = (
    SPACE_PATTERN,
    _SPACE_OR_METASPACE_PATTERN,
    WORD_PATTERN,
    " {2,}",  # SentencePiece's normalizer, converted to a tokenizer.json
    " +",
)


@dataclass(frozen=True)
class Pipeline:
    """The parts around the model in a `tokenizer.json`."""

    normalizer: dict
    pre_tokenizer: dict
    decoder: dict
    special_tokens: tuple
    unknown: str | None = None
    around: tuple | None = None


def byte_level_pipeline():
    """A `Pipeline` of words as UTF-8 bytes, each written as a letter of `byte_alphabet`.

    Radford et al. 2019, section 2.2: 256 tokens can represent any text. Only for BPE.

    Example:
        >>> byte_level_pipeline().special_tokens
        ('<pad>', '<s>', '</s>')
    """
    settings = dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), False)
    byte_level = {"type": "ByteLevel"} | settings
    return Pipeline(
        normalizer=_single_spaces(SPACE_PATTERN),
        pre_tokenizer=_words_then(byte_level),
        decoder=byte_level,
        special_tokens=("<pad>", "<s>", "</s>"),
    )


def metaspace_pipeline():
    """A `Pipeline` of words as characters, with U+2581 for the space before each word.

    Kudo and Richardson 2018 (SentencePiece), section 3.2. Characters not seen in training become
    `<unk>`. U+2581 in a text is read as a space.

    Example:
        >>> metaspace_pipeline().unknown
        '<unk>'
    """
    prepend = {"type": "Prepend", "prepend": " "}
    # "never": the normalizer has already prepended the first word's space.
    metaspace = {"type": "Metaspace", "replacement": _METASPACE, "split": False}
    return Pipeline(
        normalizer=_single_spaces(_SPACE_OR_METASPACE_PATTERN, prepend),
        pre_tokenizer=_words_then(metaspace | {"prepend_scheme": "never"}),
        decoder=metaspace | {"prepend_scheme": "always"},
        special_tokens=("<pad>", "<s>", "</s>", "<unk>"),
        unknown="<unk>",
    )


def bert_pipeline(lowercase=True, strip_accents=None, chinese_characters=True):
    """BERT's `Pipeline`: words, single punctuation marks and single Chinese characters.

    Devlin et al. 2019, in the authors' `tokenization.py`.

    Args:
        lowercase: bool, whether to lowercase the text ("uncased").
        strip_accents: bool, or None for the same as `lowercase`.
        chinese_characters: bool, whether each Chinese character is a word.

    Example:
        >>> bert_pipeline().around
        ('[CLS]', '[SEP]')
    """
    return Pipeline(
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": chinese_characters,
            "strip_accents": strip_accents,
            "lowercase": lowercase,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        special_tokens=BERT_SPECIAL_TOKENS,
        unknown="[UNK]",
        around=("[CLS]", "[SEP]"),
    )


def wordpiece_model(unknown, prefix, vocabulary):
    """The part "model" of WordPiece."""
    return {
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": prefix,
        "max_input_chars_per_word": 100,
        "vocab": vocabulary,
    }


def special_entries(ids):
    """The part "added_tokens" of special tokens, a dict of string -> id."""
    settings = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": ids[token], "content": token, **settings, "special": True}
        for token in sorted(ids, key=ids.get)
    ]


def tokenizer_json(model, pipeline, special_ids):
    """Combine a model and its pipeline."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special_entries(special_ids),
        "normalizer": pipeline.normalizer,
        "pre_tokenizer": pipeline.pre_tokenizer,
        "post_processor": _template(pipeline, special_ids),
        "decoder": pipeline.decoder,
        "model": model,
    }


def _template(pipeline, special_ids):
    if pipeline.around is None or not special_ids:
        return None

    def piece(kind, name, type_id=0):
        return {kind: {"id": name, "type_id": type_id}}

    before, after = pipeline.around
    single = [piece("SpecialToken", before), piece("Sequence", "A"), piece("SpecialToken", after)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, piece("Sequence", "B", 1), piece("SpecialToken", after, 1)],
        "special_tokens": {
            token: {"id": token, "ids": [special_ids[token]], "tokens": [token]}
            for token in pipeline.around
        },
    }


def _single_spaces(pattern, *others):
    replace = {"type": "Replace", "pattern": {"Regex": pattern}, "content": " "}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    return {"type": "Sequence", "normalizers": [replace, strip, *others]}


def _words_then(step):
    split = {"type": "Split", "pattern": {"Regex": WORD_PATTERN}}
    split |= {"behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, step]}


def byte_alphabet():
    """Return the 256 characters that stand for the bytes in GPT-2's vocabulary."""
    # Printable Latin-1 bytes stand for themselves; the others take the code points from U+0100 on.
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]
