"""The docs are correct: examples run, links resolve, both languages agree, and other libraries'
masks behave as documented.
"""

import functools
import re
from pathlib import Path
from urllib.parse import unquote

import keras
import numpy as np
import pytest
import real_weights
import tensorflow as tf

from tf_transformer import MultiHeadAttention

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
TRANSLATED = [page for page in PAGES if not page.endswith(".zh-CN.md") and page != "README.md"]
WITHOUT_EXAMPLES = {
    "README.md": "the index",
    "command.md": "tests/cli/ runs the command",
    "design.md": "reasons",
    "figures.md": "results, included by the site",
    "notes.md": "names, which tests/test_site.py looks up",
    "results.md": "numbers, measured by benchmarks/",
}
WITH_LINKS = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        "saved_models/*.md",
        "benchmarks/*.md",
        "benchmarks/*/*.md",
    )
    for page in ROOT.glob(pattern)
)


def blocks(text, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [block for name, block in found if name == language]


@pytest.mark.parametrize("page", [page for page in TRANSLATED if page not in WITHOUT_EXAMPLES])
def test_the_examples_print_what_the_page_shows(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files here
    text = (DOCS / page).read_text("utf-8")
    block = r"```{}\n((?:(?!```).)*)```"
    examples = re.findall(rf"{block.format('python')}\n\n{block.format('text')}", text, re.S)
    assert examples
    names = {}
    for code, shown in examples:
        exec(compile(code, page, "exec"), names)
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("page", PAGES)
def test_every_example_is_run(page):
    text = (DOCS / page).read_text("utf-8")
    not_run = re.findall(r"```python\n((?:(?!```).)*)```\n\n(?!```text)", text, re.S)
    assert all("UniLM" in code for code in not_run)  # run below if the weights are installed
    if page.replace(".zh-CN", "") in WITHOUT_EXAMPLES:
        assert not blocks(text, "python")


@pytest.mark.real
@pytest.mark.parametrize("page", ["bert.md", "bert.zh-CN.md"])
def test_the_paraphrases_are_those_of_the_page(page, capsys, tmp_path, monkeypatch):
    folder = real_weights.simbert(tmp_path)
    monkeypatch.chdir(folder.parent)
    [code] = [c for c in blocks((DOCS / page).read_text("utf-8"), "python") if "UniLM" in c]
    names = {}
    exec(compile(code, page, "exec"), names)
    written = [text.decode() for text in names["tokenizer"].decode(names["ids"]).numpy()]
    assert re.search(r"  # (.*)\n", code)[1].split(" / ") == written


@pytest.mark.parametrize("page", TRANSLATED)
def test_both_languages_have_the_same_sections_and_code(page):
    english, chinese = (
        (DOCS / name).read_text("utf-8") for name in (page, page.replace(".md", ".zh-CN.md"))
    )
    for text, other in ((english, page.replace(".md", ".zh-CN.md")), (chinese, page)):
        assert f"]({other})" in text.split("\n## ")[0]  # the link to the other language
    assert [len(h) for h in re.findall(r"^#+", without_code(english), re.M)] == [
        len(h) for h in re.findall(r"^#+", without_code(chinese), re.M)
    ]
    for language in ("", "bash", "text"):
        assert blocks(english, language) == blocks(chinese, language)
    for code in blocks(chinese, "python"):
        compile(code, page, "exec")  # the English page's are run
    without_comments = [
        [re.sub(r" *#.*", "", code) for code in blocks(text, "python")]
        for text in (english, chinese)
    ]
    assert without_comments[0] == without_comments[1]


def test_the_index_has_every_page():
    index = (DOCS / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([^)/]*\.md)\)", index))
    assert linked == set(PAGES) - {"README.md"}


def without_code(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


@functools.cache
def anchors(path):
    """Return the anchors of a page's headings, as GitHub generates them."""
    found = []
    for heading in re.findall(r"^#+ +(.*?) *$", without_code(path.read_text("utf-8")), re.M):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{found.count(slug)}")
    return found


@pytest.mark.parametrize("page", WITH_LINKS)
def test_every_link_leads_somewhere(page):
    path = ROOT / page
    text = without_code(path.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = unquote(target).partition("#")
        to = (path.parent / file).resolve() if file else path
        assert to.exists(), f"{page}: {target}: no such file"
        if anchor:
            assert anchor in anchors(to), f"{page}: {target}: no such heading"


def test_a_heading_becomes_an_anchor_as_on_github(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b`-c, d\n\n## 用 Python 训练\n\n```\n# no heading\n```\n", "utf-8")
    assert anchors(page) == ["a-b-c-d", "用-python-训练"]


PADDING = np.array([[True, True, True, False, False], [True, False, True, True, True]])
BY_QUERY = np.array(np.random.default_rng(1).random((2, 3, 5)) > 0.4)
BY_QUERY[..., 0] = True  # an unmasked key for every query


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"attention_mask": BY_QUERY}, {"mask": BY_QUERY}),
        (
            {"attention_mask": BY_QUERY.astype(np.int32)},
            {"mask": tf.cast(BY_QUERY.astype(np.int32), tf.bool)},
        ),
        ({"key_mask": PADDING}, {"mask": PADDING}),
        ({"value_mask": PADDING}, {"mask": PADDING}),
        ({"use_causal_mask": True}, {"causal": True}),
    ],
    ids=["attention_mask", "integers", "key_mask", "value_mask", "use_causal_mask"],
)
def test_masks_of_keras_mean_what_the_table_says(theirs, ours):
    rng = np.random.default_rng(0)
    q, k, v = (tf.constant(rng.standard_normal((2, n, 8)), tf.float32) for n in (3, 5, 5))
    other = keras.layers.MultiHeadAttention(num_heads=2, key_dim=4)
    expected = other(q, v, k, **theirs)
    layer = MultiHeadAttention(d_model=8, num_heads=2)
    layer(q, k, v)
    layer.set_weights(
        [
            weight.reshape(-1, 8) if weight.size == 64 else weight.reshape(8)
            for weight in other.get_weights()
        ]
    )
    # Keras's order is query, key, value, output, as here: wq, wk, wv, dense.
    actual, _ = layer(q, k, v, **ours)
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert not np.allclose(actual, layer(q, k, v)[0], atol=1e-2), "the mask has no effect"
