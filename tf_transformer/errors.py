"""Errors for invalid input from the caller, and checks that raise them. All others are bugs."""

import dataclasses
import difflib
import math
import re
import sys
import typing
from numbers import Real


class ArgumentError(ValueError):
    """An argument, or a file that an argument names, is not what was expected.

    Its message is `argument: expected ..., got .... Remedy.` The command `tf-transformer` shows it
    without a traceback, with the option in place of the argument.
    """

    ag_pass_through = True  # AutoGraph would raise its own error instead

    def __init__(self, argument, expected=None, got="", remedy=None, place=None):
        handled = sys.exc_info()[1]
        if expected is None and isinstance(handled, ArgumentError):
            # Keras creates a new error of the same type from a longer message; keep the parts.
            argument, expected, got, remedy, place = handled.args
        got = f"{got}"  # not the object, which may be large, or unknown to another process
        place = place and f"{place}"
        super().__init__(argument, expected, got, remedy, place)  # pickle and copy pass these again
        self.argument = argument
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.place = place

    def inside(self, place):
        """The same error with `place`, a str, before its own place in the message."""
        here = self.argument if self.place is None else self.place
        return type(self)(*self.args[:4], place=f"{place}: {here}")

    def __str__(self):
        place = self.argument if self.place is None else self.place
        got = f", got {self.got}" if self.got else ""
        remedy = "" if self.remedy is None else f" {self.remedy}"
        return f"{place}: expected {self.expected}{got}.{remedy}"


def check(holds, argument, expected, got="", remedy=None):
    """Raise an `ArgumentError` about an argument unless a condition holds."""
    if not holds:
        raise ArgumentError(argument, expected, got, remedy)


def check_fields(owner, *conditions):
    """Check each `(name, expected, holds)` of an object's fields."""
    for name, expected, holds in conditions:
        check(holds, name, expected, f"{getattr(owner, name)!r}")


_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    tuple: "a list",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_ALSO = {float: (int,), tuple: (list,), list: (tuple,)}  # JSON has no tuples, and writes 1 for 1.0


def is_number(value):
    """Whether a value is a finite number that a float can hold; JSON has larger ones."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def check_types(settings):
    """Check the type of each field of a dataclass, which may come from JSON."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        wanted = typing.get_args(field.type) or (field.type,)
        allowed = (*wanted, *(other for kind in wanted for other in _ALSO.get(kind, ())))
        fits = isinstance(value, allowed) and (bool in wanted or not isinstance(value, bool))
        if not fits or (float in wanted and isinstance(value, Real) and not is_number(value)):
            kinds = " or ".join(_KINDS[kind] for kind in wanted)
            raise ArgumentError(field.name, kinds, f"{value!r}")


def check_ranges(settings, ranges):
    """Check the types of a dataclass, and `(expected, holds, names)` of those not None."""
    check_types(settings)
    for expected, holds, names in ranges:
        for name in names.split():
            value = getattr(settings, name, None)
            check(value is None or holds(value), name, expected, f"{value!r}")


def did_you_mean(value, choices):
    """A suggestion of the closest choice, or "" if none is close."""
    close = difflib.get_close_matches(str(value), map(str, choices), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def check_choice(argument, value, choices):
    """Check that a value is one of several."""
    if value not in choices:
        known = ", ".join(map(str, choices))
        got = f"{value!r}{did_you_mean(value, choices)}"
        raise ArgumentError(argument, f"one of {known}", got)


def check_texts(argument, texts):
    """Refuse one string in place of several, whose characters would be taken for texts."""
    remedy = "Pass a single text as [text]."
    check(not isinstance(texts, str | bytes), argument, "a list of strings", "a string", remedy)


def message_of_graph(error):
    """The message of an `ArgumentError` that an exception of a graph carries, or None."""
    said = re.search(r"assertion failed: (.*: expected .*)", str(error))
    if said is None:
        return None
    # Each value is in brackets: "[text: expected ..., got more. The longest has:] [44]".
    values = re.fullmatch(r"\[(.*)\]", said[1])
    return (values[1].replace("] [", " ") if values else said[1]).replace("\\'", "'")


class MissingFileError(ArgumentError, FileNotFoundError):
    """A file or folder that an argument names does not exist."""


class ExistingFileError(ArgumentError, FileExistsError):
    """A file or folder already exists where an argument needs a new one."""


class MissingPackage(ImportError):
    """A package that an optional part of the library needs is not installed."""
