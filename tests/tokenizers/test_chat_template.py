"""Chat templates write the texts of transformers, and can do nothing else."""

import copy
import datetime
import json
import pickle
import subprocess
import sys

import pytest
from loading import VECTORS
from tokenizers import AddedToken

from tf_transformer.errors import MissingFileError
from tf_transformer.tokenizers import BPETokenizer, ChatTemplate, GraphTokenizer

STORED = json.loads((VECTORS / "chat.json").read_text(encoding="utf-8"))
USER = [{"role": "user", "content": "Hello <b>"}]


def rendered(template, messages=USER, tokens=(), **settings):
    return ChatTemplate(template, dict(tokens)).render(messages, **settings)


@pytest.mark.parametrize("name", STORED["templates"])
def test_texts_are_those_of_transformers(name):
    template = ChatTemplate(**STORED["templates"][name])
    cases = [case for case in STORED["cases"] if case["template"] == name]
    assert cases
    for case in cases:
        given = {"add_generation_prompt": case["add_generation_prompt"], **case["variables"]}
        if "error" in case:
            with pytest.raises(ValueError, match=f"messages: expected .*{case['error']}"):
                template.render(case["messages"], **given)
        else:
            assert template.render(case["messages"], **given) == case["text"]


def write(folder, config, **files):
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.jinja"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_a_folder_is_read(tmp_path):
    config = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "add_bos_token": True,
        "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
    }
    found = ChatTemplate.read(write(tmp_path, config))
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": None}
    assert found.render(USER) == "<s>Hello <b></s>"
    # Files replace the field.
    write(tmp_path, config, additional_chat_templates__rag="rag")
    with pytest.raises(ValueError, match=r"name: .*'default' in .*\['rag'\]"):
        ChatTemplate.read(tmp_path)
    write(tmp_path, config, chat_template="file", additional_chat_templates__rag="rag")
    assert ChatTemplate.read(tmp_path).render(USER) == "file"
    assert ChatTemplate.read(str(tmp_path), "rag").render(USER) == "rag"


def test_one_of_several_templates_is_read(tmp_path):
    named = [{"name": name, "template": f"this is {name}"} for name in ("default", "tool_use")]
    write(tmp_path, {"chat_template": named})
    assert ChatTemplate.read(tmp_path).template == "this is default"
    assert ChatTemplate.read(tmp_path, name="tool_use").template == "this is tool_use"
    with pytest.raises(ValueError, match=r"name: .*'rag' in .*\['default', 'tool_use'\]"):
        ChatTemplate.read(tmp_path, name="rag")


def test_a_folder_without_a_template_is_refused(tmp_path):
    with pytest.raises(MissingFileError, match="a tokenizer_config.json"):
        ChatTemplate.read(tmp_path)
    with pytest.raises(ValueError, match="name: expected a chat template 'default'"):
        ChatTemplate.read(write(tmp_path, {}))
    for wrong in (
        {"chat_template": [{"name": "default"}]},
        {"chat_template": 7},
        {"chat_template": [{"name": None, "template": "x"}]},
        [],
        {"x_token": {}},
    ):
        with pytest.raises(ValueError, match="expected a tokenizer_config.json and templates"):
            ChatTemplate.read(write(tmp_path, wrong))
    with pytest.raises(ValueError, match="template: expected a Jinja template"):
        ChatTemplate.read(write(tmp_path, {"chat_template": "{% if %}"}))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError: access to attribute '__class__'"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError: access to attribute '__init__'"),
        ("{{ raise_exception.__globals__ }}", "SecurityError: access to attribute '__globals__'"),
        ("{{ ''['__class__'] }}", "SecurityError|UndefinedError"),
        ("{{ '' | attr('__class__') }}", "SecurityError|UndefinedError"),
        ("{{ messages.append(1) }}", "SecurityError: access to attribute 'append'"),
        ("{% set x = messages[0].update(role='system') %}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError: no loader"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "SecurityError"),
        ("{% for i in range(1000000) %}{% endfor %}", "OverflowError: Range too big"),
        ("{{ 'a' * 10000000000 }}", "SecurityError"),
        ("{{ 10000000000 * 'a' }}", "SecurityError"),
        ("{{ 'a'.center(10000000000) }}", "SecurityError"),
        ("{{ 'a' | center(width=10000000000) }}", "SecurityError"),
        ("{{ messages | tojson(indent=10000000000) }}", "SecurityError"),
        ("{% for i in range(9999) %}{{ 'a' * 10000 }}{% endfor %}", "a text of more than 10000000"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ bos_token }}", "UndefinedError: 'bos_token' is undefined"),
        ("{{ messages[0].name }}", "UndefinedError"),
        ("{{ raise_exception('Only two roles') }}", "TemplateError: Only two roles"),
    ],
)
def test_what_a_template_may_not_do_is_an_error(template, message):
    with pytest.raises(ValueError, match=f"messages: expected a conversation .*({message})"):
        rendered(template)


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([], "at least one message, got none"),
        ("Hello", "at least one message, got str"),
        (["Hello"], "dicts with the string .*, got 'Hello' as number 0"),
        ([*USER, {"content": "no role"}], "as number 1"),
        ([{"role": 3, "content": "a"}], "as number 0"),
        ([{"role": "user", "content": {1}}], "values that JSON can hold, got Object of type set"),
        ([{"role": "user", "content": float("nan")}], "values that JSON can hold"),
    ],
)
def test_wrong_messages_are_refused(messages, message):
    with pytest.raises(ValueError, match=f"messages: expected .*{message}"):
        rendered("x", messages)


def test_what_is_given_to_a_template():
    assert rendered("{{ add_generation_prompt }}") == "True"
    assert rendered("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"
    assert (
        rendered("{{ tools is none }}{{ documents is none }}{{ x is defined }}") == "TrueTrueFalse"
    )
    assert rendered("{{ tools[0] | tojson }}", tools=[{"b": "<é>"}]) == '{"b": "<é>"}'
    assert rendered("{{ bos_token }}", tokens={"bos_token": "<s>"}, bos_token="own") == "own"
    none = rendered("{{ bos_token }}{{ bos_token is defined }}", tokens={"bos_token": None})
    assert none == "False"
    # An entry that is None is absent, as in transformers.
    absent = [{"role": "user", "content": None}]
    assert rendered("{{ 'content' in messages[0] }}", absent) == "False"
    year = f"{datetime.datetime.now().year}"
    assert rendered("{{ strftime_now('%Y') }}") == year


def test_rendering_changes_nothing():
    template = ChatTemplate("{% set messages = messages[1:] %}{{ messages | length }}")
    messages = [*USER, *USER]
    before = copy.deepcopy(messages)
    assert template.render(messages) == template.render(messages) == "1"
    assert messages == before


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda template: pickle.loads(pickle.dumps(template))]
)
def test_a_copy_is_the_same_template(copied):
    template = ChatTemplate("{{ bos_token }}{{ messages[0].role }}", {"bos_token": "<s>"})
    assert copied(template) == template
    assert copied(template).render(USER) == "<s>user"


def test_a_prompt_becomes_ids(tmp_path):
    tokenizer = BPETokenizer.train(["user assistant system hello"] * 3, vocab_size=280)
    marks = ["<|im_start|>", "<|im_end|>"]
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    tokenizer.save(tmp_path / "tokenizer.json")
    template = ChatTemplate(**STORED["templates"]["Qwen2"])
    text = template.render([{"role": "user", "content": "hello"}])
    [ids] = tokenizer.encode([text], parse_special_tokens=True)
    start, end = tokenizer.tokens_to_ids(marks)
    assert (ids.count(start), ids.count(end)) == (3, 2)
    graph = GraphTokenizer.from_file(tmp_path / "tokenizer.json")
    assert graph.encode([text], parse_special_tokens=True).to_list() == [ids]
    assert start not in tokenizer.encode([text])[0]


def test_without_jinja2_the_error_says_how_to_install_it():
    code = (
        "import sys\n"
        "sys.modules['jinja2'] = None\n"
        "from tf_transformer import ChatTemplate\n"
        "try:\n"
        "    ChatTemplate('x')\n"
        "except ImportError as error:\n"
        "    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install -e ".[chat]"' in run.stdout
