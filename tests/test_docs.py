"""The docs are correct: examples run, calls and commands exist, presets have the printed sizes,
links resolve, both languages agree, and other libraries' masks behave as documented.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import keras
import numpy as np
import pytest
import real_weights
import tensorflow as tf

import tf_transformer
from tf_transformer import MultiHeadAttention
from tf_transformer.cli import _parser
from tf_transformer.training import LANGUAGE_MODEL_PRESETS, PRESETS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
TRANSLATED = [page for page in PAGES if not page.endswith(".zh-CN.md") and page != "README.md"]
WITHOUT_EXAMPLES = {
    "README.md": "the index",
    "command.md": "tests/cli/ runs the command",
    "design.md": "reasons",
    "figures.md": "results, included by the site",
    "gpu.md": "needs a GPU",
    "notes.md": "names, which tests/test_site.py looks up",
    "results.md": "numbers, measured by benchmarks/",
    "versions.md": "what runs with what",
}
TAKING_MINUTES = ("published.md",)
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


# Pictures of Chinese on a machine without a font for it; tests/visualize has the warning itself.
@pytest.mark.one_of(20)
@pytest.mark.filterwarnings("ignore:No installed font shows Chinese:UserWarning")
@pytest.mark.filterwarnings("ignore:Glyph .* missing from font:UserWarning")
@pytest.mark.parametrize(
    "page", [page for page in TRANSLATED if page not in (*WITHOUT_EXAMPLES, *TAKING_MINUTES)]
)
def test_the_examples_print_what_the_page_shows(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may write files here
    run_examples(page, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", TAKING_MINUTES)
def test_the_examples_of_a_long_page(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(page, capsys)


def run_examples(page, capsys):
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
    not_run = [code for code in not_run if not code.startswith("# transformers 4\n")]
    assert all("UniLM" in code for code in not_run)  # run below if the weights are installed
    assert [wrong for code in not_run for wrong in wrong_calls(code)] == []
    imports = [node for code in not_run for node in ast.walk(ast.parse(code))]
    for node in (node for node in imports if isinstance(node, ast.ImportFrom)):
        module = importlib.import_module(node.module)
        assert all(hasattr(module, alias.name) for alias in node.names)
    if page.replace(".zh-CN", "") in WITHOUT_EXAMPLES:
        assert not blocks(text, "python")


@pytest.mark.slow
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


OTHERS = ("IPython", "keras", "nn", "np", "tf")


@functools.cache
def ours():
    """Return what the names in the docs may mean, as far as they are of this library.

    Returns:
        `(names, methods)`: dicts of lists, of everything that a folder of the package exports, and
        of the methods of those classes, without their `self`.
    """
    names = {"tf_transformer": [tf_transformer], "bert": [tf_transformer.bert]}
    names["architectures"] = [tf_transformer.architectures]
    methods = {}
    modules = pkgutil.walk_packages(tf_transformer.__path__, "tf_transformer.")
    for folder in ["tf_transformer", *(module.name for module in modules if module.ispkg)]:
        package = importlib.import_module(folder)
        for name in dir(package):
            value = getattr(package, name)
            if str(getattr(value, "__module__", "")).startswith("tf_transformer"):
                names.setdefault(name, []).append(value)
            if inspect.isclass(value):
                for method, function in inspect.getmembers(value, callable):
                    bound = functools.partial(function, None)
                    bound = bound if inspect.isfunction(function) else function
                    methods.setdefault(method, []).append(bound)
    return names, methods


def meant(function):
    """Return all that the expression before a parenthesis may mean, nothing if it is not ours."""
    names, methods = ours()
    root, *attributes = ast.unparse(function).split(".")
    of_a_result = any(isinstance(node, ast.Call) for node in ast.walk(function))
    if of_a_result or root not in names:  # or of a variable, or a method's name
        name = attributes[-1] if attributes else root
        return [] if root in OTHERS else methods.get(name, [])
    found = names[root]
    for name in attributes:
        found = [getattr(one, name, missing) for one in found]
    return found


def missing(*, never):
    """Take the place of an attribute that is not there: no call fits it."""


def fits(call, function):
    """Whether a function takes the arguments of a call; `...` stands for any others."""
    signature = inspect.signature(function)
    names = list(signature.parameters)
    shown = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_whole = not any(getattr(argument, "value", None) is ... for argument in shown)
    for position, argument in enumerate(call.args if is_whole else ()):
        name = getattr(argument, "id", None)
        if name in names and names.index(name) != position:  # `f(dff, d_model)` for the reverse
            return False
    try:
        given = {keyword.arg: None for keyword in call.keywords}
        signature.bind(*call.args, **given) if is_whole else signature.bind_partial(**given)
    except TypeError:
        return False
    return True


def wrong_calls(code):
    """Return the calls in a line of code that name something of ours and do not fit it."""
    try:
        tree = ast.parse(code)
    except SyntaxError:  # an equation or a piece of a call
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    asked = [(call, meant(call.func)) for call in calls]
    return [
        ast.unparse(call)
        for call, functions in asked
        if functions and not any(fits(call, function) for function in functions)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_calls_in_sentences_and_tables_fit_the_signatures(page):
    text = without_code((DOCS / page).read_text("utf-8"))
    if page.startswith(("coming_from.", "masks.")):  # the first columns show other libraries
        text = re.sub(r"^\|[^|]*\|", "", text, flags=re.M)
    calls = [code for code in re.findall(r"`([^`\n]+)`", text) if "(" in code]
    assert [wrong for code in calls for wrong in wrong_calls(code)] == []


@pytest.mark.parametrize(
    "code",
    [
        "TokenizerFile.read_vocabulary('vocab.txt', lower=True)",
        "GraphWordPiece(TokenizerFile.read_vocabulary('vocab.txt', lower=True))",
        "bert.text_inputs(tokenizer, texts, pairs, n, n, n, n, n, n)",
        "EncoderLayer(d_model, dff, num_heads)",
        "model.save_pretrained()",
        "Ensemble()",
        "bert.Bert.from_pretrain(folder)",
        "bert.read_tokenizers()",
    ],
)
def test_a_wrong_call_is_noticed(code):
    assert wrong_calls(code)


@functools.cache
def options():
    """Return the options of each command of `tf-transformer`: `{"train": {"--corpus", ...}}`."""
    [commands] = [action.choices for action in _parser()._actions if action.choices]
    return {name: set(parser._option_string_actions) for name, parser in commands.items()}


def command_lines(text):
    """Return the arguments of every command in a page's code, without redirections."""
    fenced = re.findall(r"^```(?:bash|yaml|)\n(.*?)^```$", text, re.S | re.M)
    indented = re.findall(r"^ {4}.*\n", without_code(text), re.M)
    for line in "".join([*fenced, *indented]).splitlines():
        found = re.search(r"(?:^|[ /])tf-transformer ([^<>|&]*)", line)
        if found and "[" not in line:  # not the overview of docs/command.md
            yield shlex.split(found[1])


@pytest.mark.parametrize(
    "page", [page for page in WITH_LINKS if re.match("docs|README|saved", page)]
)
def test_commands_are_what_the_parser_takes(page):
    text = (ROOT / page).read_text("utf-8")
    for words in command_lines(text):
        _parser().parse_args(words)
    for code in re.findall(r"`([^`\n]*--[^`\n]*)`", without_code(text)):
        command, *words = code.removeprefix("tf-transformer ").split()
        if command in ("python", ".venv/bin/python", "pip", "pytest"):
            continue
        known = options().get(command) or set().union(*options().values())
        named = {word for word in (command, *words) if re.fullmatch("--[a-z-]+", word)}
        assert named - {"--whole", "--rounds"} <= known, code


def test_the_overview_of_the_command_names_its_options():
    [overview, *_] = blocks((DOCS / "command.md").read_text("utf-8"), "")
    commands = re.findall(r"^tf-transformer (\S+)((?:.|\n )*)", overview, re.M)
    assert {name for name, _ in commands} == set(options())
    for name, rest in commands:
        assert set(re.findall(r"--[a-z-]+", rest)) <= options()[name], name


@pytest.mark.parametrize(
    "page, presets, ends",  # a translator's longest side has one token fewer: its end
    [("training", PRESETS, 1), ("language_model", LANGUAGE_MODEL_PRESETS, 0)],
)
@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_the_table_of_presets_has_their_numbers(page, presets, ends, language):
    text = (DOCS / f"{page}{language}.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| (\d+) \| (.*?) \| (\d+) \| (\d+) \|", text, re.M)
    shown = {name: [cell.replace(",", "") for cell in cells] for name, *cells in rows}
    assert shown == {
        name: [
            " + ".join([str(preset.num_layers)] * (2 if preset in PRESETS.values() else 1)),
            str(preset.d_model),
            str(preset.vocab_size),
            str(preset.lengths[-1] - ends),
            str(preset.epochs),
        ]
        for name, preset in presets.items()
    }
