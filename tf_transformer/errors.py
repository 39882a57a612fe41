"""The errors that mean the caller's input; anything else that is raised is a bug."""

import sys


class ArgumentError(ValueError):
    """An argument, or a file that an argument names, is not what was expected.

    Its message is `argument: expected ..., got .... Remedy.` The command `tf-transformer` shows it
    without a traceback, with the option in place of the argument.
    """

    ag_pass_through = True  # AutoGraph would raise an error of its own instead

    def __init__(self, argument, expected=None, got="", remedy=None, place=None):
        handled = sys.exc_info()[1]
        if expected is None and isinstance(handled, ArgumentError):
            # Keras makes a new error of the same type from a longer message: the parts stay.
            argument, expected, got, remedy, place = handled.args
        got = f"{got}"  # not the object, which may be large, or unknown to another process
        place = place and f"{place}"
        super().__init__(argument, expected, got, remedy, place)  # what pickle and copy pass again
        self.argument = argument
        self.expected = expected
        self.got = got
        self.remedy = remedy
        self.place = place

    def inside(self, place):
        """The same error, whose message begins with what is around its place: str."""
        here = self.argument if self.place is None else self.place
        return type(self)(*self.args[:4], place=f"{place}: {here}")

    def __str__(self):
        place = self.argument if self.place is None else self.place
        got = f", got {self.got}" if self.got else ""
        remedy = "" if self.remedy is None else f" {self.remedy}"
        return f"{place}: expected {self.expected}{got}.{remedy}"


def check_fields(owner, *conditions):
    """Raise an `ArgumentError` for the first of `(name, expected, holds)` that does not hold."""
    for name, expected, holds in conditions:
        if not holds:
            raise ArgumentError(name, expected, f"{getattr(owner, name)!r}")


class MissingFileError(ArgumentError, FileNotFoundError):
    """A file or folder that an argument names is not there."""


class ExistingFileError(ArgumentError, FileExistsError):
    """A file or folder is in the place where an argument wants a new one."""


class MissingPackage(ImportError):
    """A package that an optional part of the library needs is not installed."""
