"""Links between files of the repository, turned into links between pages of the site."""

import ast
import functools
import posixpath
import re
from urllib.parse import unquote

from public_names import ROOT

CODE = re.compile(r"^(```.*?^```$)", re.S | re.M)
# A list item that is only a link to a folder of results, or any link to a file or a picture; the
# text of a link may be a picture.
LINK = re.compile(
    r"^- \[(?P<title>[^\[\]]*)\]\((?P<results>\S*benchmarks/results/\S+/)\)$"
    r"|(?P<image>!?)\[(?P<text>(?:!\[[^\[\]]*\]\([^()]*\)|[^\[\]])*)\]\((?P<file>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)",
    re.M,
)


def rewritten(markdown, path, pages):
    """Return a page with its links changed.

    Args:
        markdown: str.
        path: str, the page's path in the repository.
        pages: dict of the paths of pages in the repository to those on the site.

    Returns:
        str. A list item that is only a link to a folder of results becomes a section with all of
        them. A link to a Python file whose text names something in it gets the line of its
        definition. What is not on the site is named instead of linked.

    Example:
        >>> pages = {"docs/a.md": "a.md", "README.md": "project/README.md"}
        >>> rewritten("[here](../README.md#top), [there](../setup.cfg)", "docs/a.md", pages)
        '[here](project/README.md#top), there (`setup.cfg`)'
    """
    parts = CODE.split(markdown)
    parts[::2] = [_rewritten(part, path, pages[path], pages) for part in parts[::2]]
    return "".join(parts)


def _rewritten(text, path, uri, pages):
    def link(match):
        place = _place(match["results"] or match["file"], path)
        if match["results"]:
            results = sorted(page for page in pages if page.startswith(f"{place}/"))
            blocks = [_result(page, uri, pages) for page in results if page.endswith(".md")]
            return "\n".join([f"### {match['title']}\n", *blocks])
        if place not in pages:
            return match[0] if match["image"] else f"{match['text']} (`{place}`)"
        target = posixpath.relpath(pages[place], posixpath.dirname(uri))
        anchor = "" if place.endswith(".ipynb") else match["anchor"] or ""  # Jupyter names others
        name = match["text"].strip("`")
        if place.endswith(".py") and name in definitions(place):
            line = definitions(place)[name]
            page = target.removesuffix(".md") + ".html"
            where = f"{posixpath.basename(place)}:{line}"
            return f'`{name}` <a href="{page}#__codelineno-0-{line}">{where}</a>'
        text = LINK.sub(link, match["text"])
        return f"{match['image']}[{text}]({target}{anchor})"

    return LINK.sub(link, text)


def _place(target, path):
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target)))


def _result(path, uri, pages):
    """Return a block that opens on a click, with the text of a result below its heading."""
    heading, _, text = (ROOT / path).read_text("utf-8").partition("\n")
    text = _rewritten(text.strip(), path, uri, pages)
    lines = re.sub(r"^#+ (.*)$", r"**\1**", text, flags=re.M).split("\n")
    name = posixpath.basename(path).removesuffix(".md")
    title = f'??? note "{heading.strip("# ")} ({name})"'
    return "\n".join([title, "", *(f"    {line}".rstrip() for line in lines), ""])


@functools.cache
def definitions(path):
    """Return the lines of what a Python file defines.

    Args:
        path: str, relative to the repository.

    Returns:
        dict of names such as "Encoder" and "Encoder.call" to int.

    Example:
        >>> "Encoder.call" in definitions("tf_transformer/layers/encoder.py")
        True
    """
    lines = {}

    def visit(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                lines[prefix + node.name] = node.lineno
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                lines.update({t.id: node.lineno for t in node.targets if isinstance(t, ast.Name)})

    visit(ast.parse((ROOT / path).read_text("utf-8")).body, "")
    return lines


def linked_sources(pages):
    """Return the Python files that pages link to.

    Args:
        pages: dict of the paths of pages in the repository to those on the site.

    Returns:
        list of str, paths in the repository.

    Example:
        >>> linked_sources({"benchmarks/README.md": "benchmarks/README.md"})[0]
        'benchmarks/attention/peers/torch_core.py'
    """
    found = set()
    for path in pages:
        if path.endswith(".md"):
            text = (ROOT / path).read_text("utf-8")
            files = (match["file"] for match in LINK.finditer(text) if match["file"])
            found.update(_place(file, path) for file in files if file.endswith(".py"))
    return sorted(found)
