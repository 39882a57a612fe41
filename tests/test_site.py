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


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the site; return its folder and its pages by path."""
    skip_without("material", "mkdocstrings", "nbconvert", "latex2mathml", "jieba")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "-f",
            SITE / "mkdocs.yml",
            "-d",
            folder,
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder, {path: Page(path) for path in folder.rglob("*.html") if path.name != "404.html"}


@pytest.mark.slow
def test_every_link_and_asset_is_there(built):
    folder, pages = built
    broken = []
    for path, page in pages.items():
        for target in page.links | page.assets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.assets:
                    broken.append(f"{path.name}: {target} is fetched from elsewhere")
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not to.exists() or (anchor and to in pages and anchor not in pages[to].ids):
                broken.append(f"{path.relative_to(folder)}: {target}")
    assert broken == []
    styles = "".join(path.read_text("utf-8") for path in folder.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", styles)


@pytest.mark.slow
def test_every_public_name_has_an_entry(built):
    import public_names

    folder, pages = built
    for module in public_names.modules():
        page = pages[folder / "api" / f"{module.removeprefix('tf_transformer.')}.html"]
        assert set(public_names.public_names(module).values()) <= page.ids
    encoder = pages[folder / "api" / "layers.html"].text
    assert "Call arguments" in encoder and "<strong>Returns</strong>" in encoder
    index = pages[folder / "api" / "index.html"].text
    assert all(f">{name}<" in index for name in public_names.public_names("tf_transformer"))


@pytest.mark.slow
def test_notes_show_the_lines(built):
    folder, pages = built
    text = (ROOT / "docs" / "notes.md").read_text("utf-8")
    for name, path in SYMBOL.findall(text):
        source = (ROOT / path).read_text("utf-8").splitlines()
        lines = re.findall(
            rf'<code>{re.escape(name)}</code> <a href="source/{re.escape(path)}'
            rf'\.html#__codelineno-0-(\d+)">{re.escape(Path(path).name)}:\1</a>',
            pages[folder / "notes.html"].text,
        )
        [line] = set(lines)
        assert re.match(rf"\s*(def|class) {name.rpartition('.')[2]}\b", source[int(line) - 1])


@pytest.mark.slow
def test_results_and_notebooks_are_included(built):
    folder, pages = built
    for page in ("figures.html", "figures.zh-CN.html"):
        shown = pages[folder / page].text
        for path in (ROOT / "benchmarks" / "results").rglob("*.md"):
            assert f"({path.stem})</summary>" in shown
    assert "<table>" in shown.split("<details")[1]
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        page = pages[folder / "notebooks" / f"{path.stem}.html"]
        assert any(asset.startswith(f"{path.stem}/") for asset in page.assets)
    assert "<math" in pages[folder / "notebooks" / "01_attention.html"].text
    assert "arithmatex" not in "".join(page.text for page in pages.values())


@pytest.mark.slow
def test_both_languages_are_there_and_searched(built):
    folder, pages = built
    assert '<html lang="en"' in pages[folder / "masks.html"].text
    assert '<html lang="zh"' in pages[folder / "masks.zh-CN.html"].text
    assert 'data-md-color-scheme="slate"' in pages[folder / "masks.html"].text
    index = json.loads((folder / "search" / "search_index.json").read_text("utf-8"))
    texts = {entry["location"]: entry["text"] for entry in index["docs"]}
    assert index["config"]["lang"] == ["en", "zh"]
    assert "\u200b" in texts["masks.zh-CN.html"]  # divided into words
    assert not any(location.startswith("source/") for location in texts)
