r"""The one text pipeline that both tokenizers run, written so that two regex engines agree on it.

`BPETokenizer` runs it in Rust (Oniguruma), `GraphBPE` in TensorFlow (RE2). Classes such as `\s` or
`\p{L}` follow the Unicode version each engine was built with, so the same file could give other
ids in training and in serving. Every class here is therefore a list of code points, in the
`\x{...}` notation that both engines read alike.

The pipeline:

1. each run of control characters and white space becomes one space; the ends are stripped;
2. the text is cut into words, each with the space before it (GPT-2's habit: a word's position in
   the sentence is in the token, and decoding needs no rule about where spaces go; Chinese, which
   has no spaces, is untouched by it). A word is at most 24 letters, 3 digits or 4 punctuation
   marks long, which bounds the work for one word whatever the length of the line;
3. each word becomes its UTF-8 bytes, each byte written as one printable character.
"""

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>")

# C0 controls and space, DEL and C1 controls and no-break space, then every other code point that
# has the Unicode property White_Space (the list is frozen here on purpose).
_SPACES = (
    r"\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)

_DIGITS = r"\x{30}-\x{39}"

# The apostrophes U+0027 and U+2019 are absent: "don't" and "aujourd’hui" are single words.
_PUNCTUATION = (
    r"\x{21}-\x{26}\x{28}-\x{2f}\x{3a}-\x{40}\x{5b}-\x{60}\x{7b}-\x{7e}"  # ASCII
    r"\x{a1}\x{a7}\x{ab}\x{b6}\x{b7}\x{bb}\x{bf}"  # Latin-1: ¡ § « ¶ · » ¿
    r"\x{2010}-\x{2018}\x{201a}-\x{2027}\x{2030}-\x{205e}"  # general punctuation: – — “ ” … •
    r"\x{3001}-\x{3003}\x{3008}-\x{3011}\x{3014}-\x{301f}\x{30fb}"  # CJK: 、 。 《 》 「 」
    r"\x{fe10}-\x{fe19}\x{fe30}-\x{fe6b}"  # vertical and small forms: ﹐
    r"\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff20}\x{ff3b}-\x{ff40}\x{ff5b}-\x{ff65}"  # full width: ， ？
)

SPACE_PATTERN = f"[{_SPACES}]+"

# "<" is punctuation and "s" a letter, so no word, hence no merge, can ever spell "<s>": a special
# token written in a text is always encoded as plain text.
WORD_PATTERN = (
    rf" ?[^\x{{20}}{_DIGITS}{_PUNCTUATION}]{{1,24}}"
    rf"| ?[{_DIGITS}]{{1,3}}"
    rf"| ?[{_PUNCTUATION}]{{1,4}}"
)

# The same pipeline as a Hugging Face `tokenizer.json` spells it.
NORMALIZER = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Replace", "pattern": {"Regex": SPACE_PATTERN}, "content": " "},
        {"type": "Strip", "strip_left": True, "strip_right": True},
    ],
}
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": False,
    "use_regex": False,
}
PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {
            "type": "Split",
            "pattern": {"Regex": WORD_PATTERN},
            "behavior": "Isolated",
            "invert": False,
        },
        _BYTE_LEVEL,
    ],
}
DECODER = _BYTE_LEVEL


def byte_alphabet():
    """Returns the 256 characters that stand for the bytes 0 to 255 in a vocabulary.

    Printable Latin-1 bytes stand for themselves; the others take the code points from U+0100 on,
    in order, as in GPT-2 (Radford et al. 2019, section 2.2).

    Returns:
        A list of 256 one-character strings, indexed by byte.

    Example:
        >>> alphabet = byte_alphabet()
        >>> alphabet[ord("a")], alphabet[ord(" ")]
        ('a', 'Ġ')
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]
