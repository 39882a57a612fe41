"""Texts in every script and edge cases, for tests that compare two tokenizers."""

import random
from importlib import metadata

# TensorFlow 2.19 reads them as U+FFFD.
_HAS_NONCHARACTERS = not metadata.version("tensorflow").startswith("2.19.")


def is_read(character):
    """Whether TensorFlow reads a character as it is."""
    point = ord(character)
    is_noncharacter = point & 0xFFFE == 0xFFFE or 0xFDD0 <= point < 0xFDF0
    return not 0xD800 <= point < 0xE000 and (_HAS_NONCHARACTERS or not is_noncharacter)


SEEDS = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ufeffmark",
    "\ufffe\uffff\U0010ffff",  # noncharacters, which are valid
    "\ufffd",
    "\ud7ff\ue000",  # the neighbors of the surrogates
    "<s>Tom</s><pad> <pad><unk>[CLS] [MASK]",
    "👩🏽‍🚀👨‍👩‍👧‍👦🇫🇷",
    "e\u0301\u0327\u0302\u0303" * 20,
    "\u1b44\u302e\u0300\u0334a\u0300\u0327\u093c",  # marks out of order, some not of category Mn
    "\u0344\u0958\u1e9b\u0323\ufb2c",  # characters that composition does not restore
    "각\u1100\u1161\u11a8\u11a8한",  # Hangul, composed and decomposed
    "שלום עולם مرحبا \u202eabc\u202c",
    "नमस्ते ไทย ລາວ မြန်မာ",
    "１２３４５６７８９０ 1234567890 ¼½ Ⅻ",
    "x" * 24 + " " + "y" * 25 + " " + "好" * 97,
    "x" * 100 + " " + "x" * 101,
    "?!" * 10 + "。" * 9 + "「『」』",
    "can't ’tis ‘so’ don’t I'm we'll they've '' 's'S 'sx 'lx '",
    "\\0 \\1 $& ^.*$ (a|b)",
    "\u200b\u200d\u2060\u180e\x85\u2028\u2029",
    "a\n\n b\r\n\tc  d   ",
    "▁a▁▁b ##c ##",
    "İstanbul ǅ ß ﬁ ẞ Σας ŉ ΐ",
    "𝒜𝔅 ｶﾞ ㍿ ﷺ ①",
    "㐀𠀀𪜀丽\U0002ffff",
]
SEEDS = ["".join(c if is_read(c) else "\ufffd" for c in text) for text in SEEDS]

_RANGES = [
    (0x0, 0x7F),
    (0x80, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0x109F),
    (0x1100, 0x11FF),
    (0x1E00, 0x1FFF),
    (0x2000, 0x206F),
    (0x2100, 0x2BFF),
    (0x3000, 0x30FF),
    (0x3400, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFFFF),
    (0x10000, 0x1FFFF),
    (0x1D100, 0x1D1FF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x2FFFF),
    (0xE000, 0x10FFFF),
]


def random_texts(count, seed, sentences=()):
    """Return random texts of runs of one script, single characters, pieces of sentences and seeds.

    Args:
        count: int.
        seed: int.
        sentences: list of str, texts to take pieces from.

    Returns:
        list of str without surrogates.
    """
    draw = random.Random(seed)

    def character(low, high):
        drawn = chr(draw.randint(low, high))
        return drawn if is_read(drawn) else " "

    def piece():
        span = draw.choice(_RANGES)
        kind = draw.randrange(6)
        if kind == 0:
            return draw.choice(SEEDS)
        if kind == 1:
            return character(*span) * draw.randint(1, 60)
        if kind == 2 and sentences:
            text = draw.choice(sentences)
            start = draw.randrange(len(text))
            return text[start : start + draw.randint(1, 20)]
        if kind == 3:
            return "".join(character(*draw.choice(_RANGES)) for _ in range(draw.randint(1, 8)))
        return "".join(character(*span) for _ in range(draw.randint(1, 30)))

    return ["".join(piece() for _ in range(draw.randint(0, 5))) for _ in range(count)]


def all_characters(separator):
    """Return texts of a hundred characters each, joined by a separator, covering Unicode."""
    points = list(filter(is_read, map(chr, range(0x110000))))
    return [separator.join(points[start : start + 100]) for start in range(0, len(points), 100)]
