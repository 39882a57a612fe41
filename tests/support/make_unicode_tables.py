"""Make tf_transformer/tokenizers/graph/unicode.npz by querying the Rust package per character.

    python tests/support/make_unicode_tables.py

Libraries are built with different versions of Unicode, so tables from another source would differ
from the Rust package. test_unicode_tables.py repeats the queries and compares.
"""

import unicodedata
from pathlib import Path

import numpy as np
from sentencepiece_models import precompiled
from tokenizers import Regex, normalizers, pre_tokenizers

import tf_transformer

PATH = Path(tf_transformer.__file__).parent / "tokenizers" / "graph" / "unicode.npz"

BLOCK = 256
POINTS = [point for point in range(0x110000) if not 0xD800 <= point < 0xE000]

# Bits of the table `classes`, as in tf_transformer/tokenizers/graph/texts.py.
CLASSES = (
    "bert_removed",
    "bert_space",
    "white_space",
    "bert_punctuation",
    "chinese",
    "nonspacing_mark",
    "combining_mark",
    "letter",
    "number",
    "regex_space",
    "nmt_removed",
    "nmt_space",
    "word",
    "numeric",
)

# Bits of the table `graphemes`: rules of Unicode Standard Annex 29, section 3.1.1, that a character
# takes part in, on the right or on the left of the place in question, or between the two.
GRAPHEME_PROPERTIES = (
    "joins_any",
    "joins_leading",
    "joins_vowel",
    "joins_trailing",
    "joins_pictograph",
    "joins_consonant",
    "control",
    "prepended",
    "before_leading",
    "before_vowel",
    "before_trailing",
    "pictograph",
    "consonant",
    "extends_pictograph",
    "extends_consonant",
    "links_consonants",
)
_LEADING, _VOWEL, _TRAILING, _MARK, _JOINER = "\u1100\u1161\u11a8\u0301\u200d"
_PICTOGRAPH, _CONSONANT, _LINKER, _PREPENDED = "\xa9\u0915\u094d\u0600"


def make_tables():
    """Return the contents of the file: name -> array."""
    tables = {}
    tables |= run_lengths("classes", character_classes())
    tables |= run_lengths("combining_class", combining_classes())
    tables |= run_lengths("graphemes", grapheme_properties())
    for name, normalizer in (
        ("nfd", normalizers.NFD()),
        ("nfkd", normalizers.NFKD()),
        ("lowercase", normalizers.Lowercase()),
    ):
        tables |= mapping(name, normalizer)
    return tables | compositions()


def suspects(silent):
    """Yield the code points of all blocks whose text is not `silent`; most blocks are."""
    for start in range(0, len(POINTS), BLOCK):
        block = POINTS[start : start + BLOCK]
        if not silent("".join(map(chr, block))):
            yield from block


def unchanged_by(normalizer):
    return lambda text: normalizer.normalize_str(text) == text


def character_classes():
    clean = bert(clean_text=True)
    chinese = bert(handle_chinese_chars=True)
    accents = bert(strip_accents=True)
    nfd, strip, nmt = normalizers.NFD(), normalizers.StripAccents(), normalizers.Nmt()
    words = pre_tokenizers.BertPreTokenizer()
    word, digits = pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)
    splits = [pre_tokenizers.Split(Regex(r), "isolated") for r in (r"\p{L}", r"\p{N}", r"\s")]

    def silent(text):
        return (
            all(unchanged_by(part)(text) for part in (clean, chinese, accents, nfd, strip, nmt))
            # Letters on both sides: white space at an edge would be dropped without a split.
            and len(words.pre_tokenize_str(f"a{text}a")) == len(digits.pre_tokenize_str(text)) == 1
            and all(len(split.pre_tokenize_str(f"\x00{text}\x00")) == 1 for split in splits)
            and [piece for piece, _ in word.pre_tokenize_str(f"a{text}")] == ["a", text]
        )

    values = np.zeros(0x110000, np.uint16)
    for point in suspects(silent):
        character = chr(point)
        cleaned, nmted = clean.normalize_str(character), nmt.normalize_str(character)
        pieces = len(words.pre_tokenize_str(f"a{character}a"))
        stable = nfd.normalize_str(character) == character
        answers = (
            cleaned == "",
            cleaned == " ",
            pieces == 2,
            pieces == 3,
            chinese.normalize_str(character) != character,
            stable and accents.normalize_str(character) == "",
            strip.normalize_str(character) == "",
            *(len(split.pre_tokenize_str(f"\x00{character}\x00")) == 3 for split in splits),
            nmted == "",
            nmted == " ",
            len(word.pre_tokenize_str(f"\x00a{character}")) == 2
            and word.pre_tokenize_str(f"\x00a{character}")[1][0] != "a",
            len(digits.pre_tokenize_str(f"a{character}")) == 2,
        )
        values[point] = sum(answer << bit for bit, answer in enumerate(answers))
    return values


def grapheme_properties():
    """Return the rules by which the normalizer Precompiled joins characters into clusters.

    It replaces a cluster of less than 6 bytes as a whole if a prefix is in its map, so what follows
    a key that begins a cluster is lost, and otherwise each character alone. No cluster of several
    characters that has one of 4 bytes is that short, except after one byte.
    """
    points = np.array([point for point in POINTS if point not in (10, 13)])

    def is_kept(pattern, keys, points=points):
        """Whether the map of the keys loses none of the characters."""
        texts = [pattern.replace("?", chr(point)) for point in points]
        answers = precompiled(dict.fromkeys(keys, "<")).normalize_str("\n".join(texts))
        kept = np.zeros(0x110000, bool)
        kept[points] = [len(answer) == len(pattern) for answer in answers.split("\n")]
        return kept

    others = points[(points >= 0x80) & (points < 0x10000)]
    keys = {chr(point) for point in others} - {_CONSONANT, _LINKER, _MARK}
    found = {
        "joins_any": ~is_kept("a?", "a"),
        "joins_leading": is_kept(f"{_PREPENDED}{_LEADING}?", _PREPENDED),
        "joins_vowel": is_kept(f"{_PREPENDED}{_VOWEL}?", _PREPENDED),
        "joins_trailing": is_kept(f"{_PREPENDED}{_TRAILING}?", _PREPENDED),
        "joins_pictograph": is_kept(f"{_PICTOGRAPH}{_JOINER}?", _PICTOGRAPH),
        "joins_consonant": is_kept(f"{_CONSONANT}{_LINKER}?{_MARK}", keys, others),
        "control": ~is_kept(f"?{_MARK}\u0302", _MARK),
        "prepended": is_kept(f"?b{_MARK}", "b"),
        "before_leading": is_kept(f"?{_LEADING}{_MARK}", _LEADING),
        "before_vowel": is_kept(f"?{_VOWEL}{_MARK}", _VOWEL),
        "before_trailing": is_kept(f"?{_TRAILING}{_MARK}", _TRAILING),
        "pictograph": is_kept(f"?{_JOINER}{_PICTOGRAPH}{_MARK}", _PICTOGRAPH),
        "consonant": is_kept(f"?{_LINKER}{_CONSONANT}{_MARK}", _CONSONANT),
        "extends_pictograph": is_kept(f"{_PICTOGRAPH}?{_JOINER}{_PICTOGRAPH}{_MARK}", _PICTOGRAPH),
        "extends_consonant": is_kept(f"{_CONSONANT}{_LINKER}?{_CONSONANT}{_MARK}", _CONSONANT),
        "links_consonants": is_kept(f"{_CONSONANT}?{_CONSONANT}{_MARK}", _CONSONANT),
    }
    found["joins_any"][[10, 13, *range(0xD800, 0xE000)]] = False
    found["control"][0xD800:0xE000] = False
    # A pictograph begins a sequence of its own, and what is prepended joins whatever follows.
    found["extends_pictograph"] &= ~found["pictograph"]
    for name in ("extends_consonant", "links_consonants"):
        found[name] &= ~found["prepended"]
    for name in found.keys() - {"control"}:
        found[name] &= ~found["control"]
    bits = [found[name].astype(np.uint16) << i for i, name in enumerate(GRAPHEME_PROPERTIES)]
    return np.bitwise_or.reduce(bits)


def combining_classes():
    """Return canonical combining classes, derived from the order of marks in normal form."""
    nfd = normalizers.NFD()

    def is_swapped(first, second):
        return first != second and nfd.normalize_str(first + second) == second + first

    lowest, highest = "\u0334", "\u0345"  # classes 1 and 240

    def is_mark(text):
        return is_swapped(text, lowest) or is_swapped(highest, text)

    def silent(text):
        return unchanged_by(nfd)("".join(f"x{c}{lowest}x{highest}{c}" for c in text))

    # `unicodedata` gives the class numbers, for marks that the Rust package knows.
    marks = [chr(point) for point in suspects(silent) if is_mark(chr(point))]
    ladder = {}
    for mark in filter(unicodedata.combining, marks):
        ladder.setdefault(unicodedata.combining(mark), mark)
    values = np.zeros(0x110000, np.uint8)
    for mark in marks:
        # Marks of the same class keep their order.
        [values[ord(mark)]] = [
            number
            for number, rung in ladder.items()
            if not is_swapped(mark, rung) and not is_swapped(rung, mark)
        ]
    return values


def mapping(name, normalizer):
    suspected = suspects(unchanged_by(normalizer))
    changed = [(p, normalizer.normalize_str(chr(p))) for p in suspected]
    changed = [(p, text) for p, text in changed if text != chr(p)]
    return {
        f"{name}_from": np.array([point for point, _ in changed], np.int32),
        f"{name}_lengths": np.array([len(text) for _, text in changed], np.uint8),
        f"{name}_to": np.array([ord(c) for _, text in changed for c in text], np.int32),
    }


def compositions():
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    rows = []
    for point in suspects(unchanged_by(nfd)):
        composed = chr(point)
        *first, second = nfd.normalize_str(composed)
        first = nfc.normalize_str("".join(first))
        if len(first) == 1 and nfc.normalize_str(first + second) == composed:
            rows.append((ord(first), ord(second), point))
    return {"compositions": np.array(rows, np.int32)}


def run_lengths(name, values):
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return {f"{name}_starts": starts.astype(np.int32), f"{name}_values": values[starts]}


def bert(**options):
    flags = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    return normalizers.BertNormalizer(**(dict.fromkeys(flags, False) | options))


if __name__ == "__main__":
    tables = make_tables()
    np.savez_compressed(PATH, **tables)
    print(PATH, PATH.stat().st_size, "bytes")
