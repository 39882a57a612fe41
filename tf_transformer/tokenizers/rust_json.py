"""JSON as the Rust package `tokenizers` reads it."""

from tf_transformer.json_text import parse_json
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


def rust_json(text):
    """Parse JSON with the Rust package's numbers, whose last digit may differ from Python's."""
    return parse_json(text, object_pairs_hook=_distinct, parse_float=_rust_float)


def _distinct(pairs):
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise UnsupportedPart("path", "each key once", f"{twice!r} twice", "Remove one.")
    return result


def _rust_float(text):
    """The number serde_json parses, which may be adjacent to the nearest float64."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    exponent = int(exponent or 0)
    significand = 0
    for place, digit in enumerate(whole + fraction):
        if significand * 10 + int(digit) >= 2**64:  # all remaining digits are dropped
            exponent += max(len(whole) - place, 0)
            break
        significand = significand * 10 + int(digit)
        exponent -= place >= len(whole)
    value = float(significand)
    while exponent < -308 and value:
        value, exponent = value / 1e308, exponent + 308
    value = value / float(f"1e{-exponent}") if exponent < 0 else value * float(f"1e{exponent}")
    return -value if text.startswith("-") else value
