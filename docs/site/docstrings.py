"""Docstrings as mkdocstrings reads them: it knows fewer sections than this library has."""

import re
import textwrap

import griffe

SECTION = re.compile(r"^([A-Z][A-Za-z ]+):\n((?:(?:    .*)?\n)+)", re.M)


def prepared(docstring):
    """Return a docstring that griffe can divide into sections.

    Args:
        docstring: str, without indentation.

    Returns:
        str.

    Example:
        >>> prepared("Adds.\\n\\nReturns:\\n    int: the sum.\\n\\nExample:\\n    >>> add(1, 2)")
        'Adds.\\n\\n**Returns**\\n\\nint: the sum.\\n\\nExamples:\\n    >>> add(1, 2)'
    """
    return SECTION.sub(lambda match: _section(*match.groups()), docstring + "\n").rstrip("\n")


def _section(title, body):
    items = re.findall(r"^    (\S.*(?:\n     .*)*)", body, re.M)
    if title == "Example":
        return f"Examples:\n{body}"
    if title in ("Returns", "Yields"):  # griffe would take the start of the sentence for a type
        return f"**{title}**\n\n{textwrap.dedent(body)}"
    if not all(re.match(r"[\w, *]+:", item) for item in items):  # "See ..."
        return "\n".join([f"**{title}**\n", *(f"- {item}" for item in items), "\n"])
    if title == "Call arguments":
        return f"Other Args: {title}\n{body}"
    return f"{title}:\n{body}"


class Sections(griffe.Extension):
    """Prepares every docstring that griffe reads."""

    def on_instance(self, *, obj, **kwargs):
        """Prepare the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = prepared(obj.docstring.value)
