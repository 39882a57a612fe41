"""What MkDocs does for this site beyond its settings in mkdocs.yml.

Pages come from `docs/`, from Markdown elsewhere in the repository, the notebooks and the source of
the package. All of them are written for readers of the repository; here links between files become
links between pages.
"""

import html
import re

import latex2mathml.converter
from mkdocs.structure.files import File
from pages import ROOT, api_pages, notebook_files, repository_pages, source_page
from rewriting import linked_sources, rewritten

FILES = repository_pages()  # the path of each page in the repository: its path on the site


def on_config(config):
    """Make the navigation, the guides in the order of docs/README.md."""
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    link = r"\[(.*?)\]\((.*?)\)"
    rows = re.findall(rf"^\| {link} \| {link} \|", index, re.M)
    notebooks = sorted(uri for path, uri in FILES.items() if path.endswith(".ipynb"))
    config.nav = [
        {"Guides": ["README.md", *({row[0]: row[1]} for row in rows)]},
        {"中文": [{row[2]: row[3]} for row in rows]},
        {"Notebooks": notebooks},
        {"API": [{title: uri} for uri, (title, _) in api_pages().items()]},
    ]
    return config


def on_files(files, config):
    """Add the pages from outside of docs/."""
    FILES.update({path: f"source/{path}.md" for path in linked_sources(FILES)})
    for path, uri in FILES.items():
        if path.endswith(".ipynb"):
            for name, content in notebook_files(path).items():
                files.append(File.generated(config, f"notebooks/{name}", content=content))
        elif path.endswith(".py"):
            files.append(File.generated(config, uri, content=source_page(path)))
        elif not path.startswith("docs/"):
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for uri, (_, text) in api_pages().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links between files into links between pages."""
    uri = page.file.src_uri
    if uri.endswith(".zh-CN.md"):
        page.meta["language"] = "zh"  # read by theme/partials/language.html
    path = {uri: path for path, uri in FILES.items()}.get(uri, "")
    return rewritten(markdown, path, FILES) if path.endswith((".md", ".ipynb")) else markdown


def on_page_content(content, page, config, files):
    """Turn formulas into MathML, which browsers show without a script."""

    def formula(match):
        display = "inline" if match[1] == "span" else "block"
        return latex2mathml.converter.convert(html.unescape(match[2]), display=display)

    return re.sub(
        r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', formula, content, flags=re.S
    )
