"""The documentation site: every public name has a page, every link leads somewhere, nothing is
fetched from elsewhere.
"""

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "docs" / "site"
SYMBOL = re.compile(r"\[`([\w.]+)`\]\(\.\./(\S+?\.py)\)")
NEEDS = {"docstrings": ("griffe",), "pages": ("nbconvert",)}


def skip_without(*modules):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f'pip install -e ".[docs]": there is no {", ".join(missing)}')


@pytest.fixture(autouse=True)
def modules_of_the_site(monkeypatch):
    monkeypatch.syspath_prepend(SITE)


@pytest.mark.parametrize("name", ["docstrings", "pages", "public_names", "rewriting"])
def test_examples_run(name):
    skip_without(*NEEDS.get(name, ()))
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted and not result.failed


def test_public_names_are_those_of_the_packages():
    import public_names

    folders = {path.parent.name for path in (ROOT / "tf_transformer").glob("*/__init__.py")}
    assert {f"tf_transformer.{name}" for name in folders - {"cli"}} <= set(public_names.modules())
    for module in ["tf_transformer", *public_names.modules()]:
        package = importlib.import_module(module)
        names = public_names.public_names(module)
        assert set(names) == set(package.__all__) - {"__version__"}
        for name, place in names.items():
            home, _, defined = place.rpartition(".")
            found = getattr(importlib.import_module(home), defined)
            assert found is getattr(package, name)
            if callable(found):
                assert found.__module__ == home


@pytest.mark.parametrize("page", ["notes", "figures"])
def test_names_in_the_tables_are_in_their_files(page):
    from rewriting import definitions

    english, chinese = (
        SYMBOL.findall((ROOT / "docs" / f"{page}{ending}").read_text("utf-8"))
        for ending in (".md", ".zh-CN.md")
    )
    assert english and english == chinese
    assert [pair for pair in english if pair[0] not in definitions(pair[1])] == []


class Page(HTMLParser):
    """The anchors, links and assets of a page."""

    def __init__(self, path):
        super().__init__()
        self.text = path.read_text("utf-8")
        self.ids, self.links, self.assets = set(), set(), set()
        self.feed(self.text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        if tag == "a" and "href" in attrs:
            self.links.add(attrs["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in attrs:
            self.assets.add(attrs["src"])
        elif tag == "link":
            self.assets.add(attrs["href"])


@pytest.mark.slow
def test_the_built_site(tmp_path):
    """One test, since each process that runs one of several would build the site for itself."""
    skip_without("material", "mkdocstrings", "nbconvert", "latex2mathml", "jieba")
    config = SITE / "mkdocs.yml"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", tmp_path],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    found = [path for path in tmp_path.rglob("*.html") if path.name != "404.html"]
    pages = {path.relative_to(tmp_path).as_posix(): Page(path) for path in found}
    check_links(tmp_path, pages)
    check_reference(pages)
    check_lines(pages)
    check_results_and_notebooks(pages)
    check_languages_and_search(tmp_path, pages)


def check_links(folder, pages):
    """Every link, anchor and asset is there, and no asset is fetched from elsewhere."""
    broken = []
    for name, page in pages.items():
        for target in page.links | page.assets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                broken += [f"{name}: {target}"] if target in page.assets else []
                continue
            to = os.path.normpath(os.path.join(os.path.dirname(name), unquote(parts.path)))
            to, anchor = to if parts.path else name, unquote(parts.fragment)
            missing = anchor and to in pages and anchor not in pages[to].ids
            if missing or not (folder / to).exists():
                broken.append(f"{name}: {target}")
    assert broken == []
    styles = "".join(path.read_text("utf-8") for path in folder.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", styles)


def check_reference(pages):
    """Every public name has an entry, and sections of docstrings have their titles."""
    import public_names

    for module in public_names.modules():
        page = pages[f"api/{module.removeprefix('tf_transformer.')}.html"]
        assert set(public_names.public_names(module).values()) <= page.ids
    layers = pages["api/layers.html"].text
    assert "Call arguments" in layers and "<strong>Returns</strong>" in layers
    index = pages["api/index.html"].text
    assert all(f">{name}<" in index for name in public_names.public_names("tf_transformer"))


def check_lines(pages):
    """The page about the notes gives the line on which each name is defined."""
    for name, path in SYMBOL.findall((ROOT / "docs" / "notes.md").read_text("utf-8")):
        source = (ROOT / path).read_text("utf-8").splitlines()
        link = (
            rf'<code>{re.escape(name)}</code> <a href="source/{re.escape(path)}'
            rf'\.html#__codelineno-0-(\d+)">{re.escape(Path(path).name)}:\1</a>'
        )
        [line] = set(re.findall(link, pages["notes.html"].text))
        assert re.match(rf"\s*(def|class) {name.rpartition('.')[2]}\b", source[int(line) - 1])


def check_results_and_notebooks(pages):
    """All results are on one page, and notebooks have their pictures and formulas."""
    for page in ("figures.html", "figures.zh-CN.html"):
        blocks = re.findall(r"<summary>.*\((.*)\)</summary>((?s:.*?))</details>", pages[page].text)
        results = sorted(path.stem for path in (ROOT / "benchmarks" / "results").glob("*/*.md"))
        assert sorted(name for name, _ in blocks) == results
        assert all("<table>" in block for _, block in blocks)
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        page = pages[f"notebooks/{path.stem}.html"]
        assert any(asset.startswith(f"{path.stem}/") for asset in page.assets)
    assert "<math" in pages["notebooks/01_attention.html"].text
    assert not any("arithmatex" in page.text for page in pages.values())


def check_languages_and_search(folder, pages):
    """Both languages are there, labelled and searched; both color schemes are there."""
    assert '<html lang="en"' in pages["masks.html"].text
    assert '<html lang="zh"' in pages["masks.zh-CN.html"].text
    assert 'data-md-color-scheme="slate"' in pages["masks.html"].text
    index = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))
    texts = {entry["location"]: entry["text"] for entry in index["docs"]}
    assert index["config"]["lang"] == ["en", "zh"]
    assert "\u200b" in texts["masks.zh-CN.html"]  # divided into words
    assert not any(location.startswith("source/") for location in texts)
