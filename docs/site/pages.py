"""The pages of the site that are not in docs/."""

import nbconvert
from public_names import ROOT, docstring, modules, public_names

PATTERNS = (
    "*.md",
    "docs/*.md",
    "docs/images/*",
    "benchmarks/*.md",
    "benchmarks/*/*.md",
    "benchmarks/results/*/*",
    "notebooks/*.md",
    "notebooks/*.ipynb",
    "saved_models/**/*.md",
    "saved_models/**/*.svg",
)


def repository_pages():
    """Return the files of the repository that become pages, and the pictures in them.

    Returns:
        dict of each path in the repository to the path in the site's sources.

    Example:
        >>> pages = repository_pages()
        >>> pages["docs/masks.md"], pages["README.md"]
        ('masks.md', 'project/README.md')
    """
    found = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
    return {path: _on_the_site(path) for path in (p.relative_to(ROOT).as_posix() for p in found)}


def _on_the_site(path):
    if "/" not in path:
        return f"project/{path}"  # docs/README.md is the first page
    return path.removeprefix("docs/").replace(".ipynb", ".md")


def notebook_files(path):
    """Return a notebook as Markdown, with the pictures that it shows.

    Args:
        path: str, relative to the repository.

    Returns:
        dict of file names to str or bytes.

    Example:
        >>> sorted(notebook_files("notebooks/03_tokenizers.ipynb"))[0]
        '03_tokenizers.md'
    """
    name = (ROOT / path).stem
    places = {"unique_key": name, "output_files_dir": name}
    text, resources = nbconvert.MarkdownExporter().from_filename(ROOT / path, dict(places))
    return {f"{name}.md": text, **resources["outputs"]}


def source_page(path):
    """Return a page with the source of a file, its lines numbered.

    Args:
        path: str, relative to the repository.

    Returns:
        str, Markdown.

    Example:
        >>> source_page("tf_transformer/bert.py").splitlines()[3]
        '# `tf_transformer/bert.py`'
    """
    text = (ROOT / path).read_text("utf-8")
    return (
        f"---\nsearch: {{exclude: true}}\n---\n# `{path}`\n\n"
        f'~~~~ {{.python linenums="1"}}\n{text}~~~~\n'
    )


def api_pages():
    """Return the pages of the reference, which mkdocstrings fills.

    Returns:
        dict of each page's path in the site's sources to its title and Markdown.

    Example:
        >>> api_pages()["api/models.md"][0]
        'tf_transformer.models'
    """
    rows = "\n".join(
        f"| [`{name}`][{place}] | {docstring(place).splitlines()[0]} |"
        for name, place in sorted(public_names("tf_transformer").items())
    )
    index = (
        f"# tf_transformer\n\n{docstring('tf_transformer')}\n\n"
        f"| `from tf_transformer import ...` | |\n|---|---|\n{rows}\n"
    )
    pages = {"api/README.md": ("tf_transformer", index)}
    for module in modules():
        entries = "\n\n".join(f"::: {place}" for place in public_names(module).values())
        text = f"# {module}\n\n{docstring(module)}\n\n{entries}\n"
        pages[f"api/{module.removeprefix('tf_transformer.')}.md"] = (module, text)
    return pages
