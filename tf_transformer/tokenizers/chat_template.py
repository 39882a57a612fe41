"""Chat templates: the messages of a conversation as the text that a model was trained on."""

import dataclasses
import datetime
import functools
import json
from pathlib import Path

from tf_transformer.errors import ArgumentError, MissingFileError, MissingPackage
from tf_transformer.json_text import parse_json

_MOST_CHARACTERS = 10_000_000  # of a prompt, and the largest number that a template may use


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """Renders a conversation with the Jinja template of a published chat model.

    The text is the one of `apply_chat_template` in transformers 5. It contains special tokens:
    encode it with `parse_special_tokens=True`, and without adding special tokens again. They are
    then parsed in the messages too; check messages from users for them.

    A template runs in Jinja's sandbox: it cannot reach Python's internals or change its input, and
    may not build a text of more than 10 million characters. It may still take long or much memory.

    Args:
        template: string, the Jinja template.
        special_tokens: dict of name -> token that the template may use, such as `bos_token`; None
            for a token that the model does not have.

    Raises:
        ImportError: If the package `jinja2` is not installed.
        ValueError: If the template is not valid.

    Example:
        >>> template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
        >>> ChatTemplate(template).render([{"role": "user", "content": "Hello"}])
        '<|user|>Hello'
    """

    template: str
    special_tokens: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self._compiled  # noqa: B018  raises if it is invalid

    def __reduce__(self):
        return type(self), (self.template, self.special_tokens)  # without the compiled template

    @classmethod
    def read(cls, folder, name="default"):
        """Read the template of a model in Hugging Face's layout.

        Args:
            folder: str or Path, with a `tokenizer_config.json`, and a `chat_template.jinja` or
                `additional_chat_templates` if the templates are not in it.
            name: str, which template if the folder has several, such as "tool_use".

        Raises:
            FileNotFoundError: If there is no `tokenizer_config.json`.
            ValueError: If there is no template of that name, or a file is invalid.
        """
        folder = Path(folder)
        path = folder / "tokenizer_config.json"
        if not path.is_file():
            raise MissingFileError("folder", "a tokenizer_config.json", "none", place=folder)
        try:
            config = parse_json(path.read_text(encoding="utf-8"))
            tokens = {k: v for k, v in config.items() if k.endswith("_token")}
            tokens = {k: v["content"] if isinstance(v, dict) else v for k, v in tokens.items()}
            field = config.get("chat_template") or {}
            if isinstance(field, list):
                field = {entry["name"]: entry["template"] for entry in field}
            field = {"default": field} if isinstance(field, str) else dict(field)
            files = {file.stem: file for file in folder.glob("additional_chat_templates/*.jinja")}
            if (folder / "chat_template.jinja").is_file():
                files["default"] = folder / "chat_template.jinja"
            texts = {stem: file.read_text(encoding="utf-8") for stem, file in files.items()}
            found = texts or field  # files replace the field, as in transformers
            if not all(isinstance(text, str) for entry in found.items() for text in entry):
                raise TypeError("a name or a template is not a string")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            expected = "a tokenizer_config.json and templates that can be read"
            raise ArgumentError("folder", expected, f"{error!r}", place=folder) from error
        if name not in found:
            remedy = "Only models that were trained on conversations have one."
            got = f"templates {sorted(found)}"
            raise ArgumentError("name", f"a chat template {name!r} in {folder}", got, remedy)
        tokens = {k: v for k, v in tokens.items() if isinstance(v, str | None)}
        return cls(found[name], tokens)

    def render(self, messages, add_generation_prompt=True, **variables):
        """Render a conversation as one text.

        Args:
            messages: list of dicts with "role" and usually "content", oldest first; an entry that
                is None counts as absent.
            add_generation_prompt: bool, whether the text ends with the beginning of an answer, for
                the model to continue. Pass False for a whole conversation, as in training.
            **variables: further values that the template uses, such as `tools`, a list of JSON
                schemas.

        Returns:
            String.

        Raises:
            ValueError: If a message has no role, if a value is not one that JSON can hold, or if
                the template refuses the messages or uses a variable that is not given.
        """
        if not isinstance(messages, list | tuple) or not messages:
            got = "none" if isinstance(messages, list | tuple) else type(messages).__name__
            raise ArgumentError("messages", "a list of at least one message", got)
        for number, message in enumerate(messages):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                expected = 'dicts with the string "role", such as "user"'
                raise ArgumentError("messages", expected, f"{message!r} as number {number}")
        try:
            given = json.loads(json.dumps([messages, variables], allow_nan=False))  # plain data
        except (RecursionError, TypeError, ValueError) as error:
            expected = "values that JSON can hold"
            remedy = "Describe tools by schemas."
            raise ArgumentError("messages", expected, error, remedy) from error
        messages = [{k: v for k, v in m.items() if v is not None} for m in given[0]]
        import jinja2  # installed: `__post_init__` needed it

        # A token that the model does not have is written as nothing.
        tokens = self.special_tokens.items()
        tokens = {k: jinja2.Undefined(name=k) if v is None else v for k, v in tokens}
        values = {"tools": None, "documents": None} | tokens | given[1]
        values |= {"messages": messages, "add_generation_prompt": bool(add_generation_prompt)}
        pieces, size = [], 0
        try:
            for piece in self._compiled.generate(values):
                pieces.append(piece)
                size += len(piece)
                if size > _MOST_CHARACTERS:
                    raise OverflowError(f"a text of more than {_MOST_CHARACTERS} characters")
        except Exception as error:  # a template can raise anything
            expected = "a conversation that the template accepts"
            got = f"{type(error).__name__}: {error}".rstrip(".")
            raise ArgumentError("messages", expected, got) from error
        return "".join(pieces)

    @functools.cached_property
    def _compiled(self):
        environment = _environment()
        try:
            return environment.from_string(self.template)
        except Exception as error:  # RecursionError or what Jinja raises
            raise ArgumentError("template", "a Jinja template", f"{error}".rstrip(".")) from error


@functools.cache
def _environment():
    """The sandbox that transformers uses: the same settings, functions and filters."""
    try:
        import jinja2.ext
        from jinja2 import nodes, sandbox
    except ImportError as error:
        message = 'chat templates need the package jinja2: pip install -e ".[chat]"'
        raise MissingPackage(message) from error

    class Unknown(jinja2.Undefined):
        """May be tested; writing it is an error, where transformers writes nothing."""

        __str__ = jinja2.Undefined._fail_with_undefined_error

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`, which marks what a model wrote and does not change the text."""

        tags = frozenset(["generation"])

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def bounded(function):
        """The function, without numbers that make a huge text, as in `"a".center(10**9)`."""

        @functools.wraps(function)
        def call(*args, **kwargs):
            numbers = [n for n in (*args, *kwargs.values()) if isinstance(n, int | float)]
            if any(abs(number) > _MOST_CHARACTERS for number in numbers):
                raise sandbox.SecurityError(f"no number above {_MOST_CHARACTERS} is allowed")
            return function(*args, **kwargs)

        return call

    class Environment(sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context, operator, left, right):
            left_size, right_size = (len(x) if hasattr(x, "__len__") else x for x in (left, right))
            if operator == "**" or abs(left_size * right_size) > _MOST_CHARACTERS:
                raise sandbox.SecurityError(f"{operator} may not make such large values")
            return left * right

        def call(self, context, function, /, *args, **kwargs):
            return bounded(super().call)(context, function, *args, **kwargs)

    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        # Unlike Jinja's own, without escapes for HTML.
        options = {"indent": indent, "separators": separators, "sort_keys": sort_keys}
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    options = {"trim_blocks": True, "lstrip_blocks": True, "undefined": Unknown}
    environment = Environment(extensions=[Generation, jinja2.ext.loopcontrols], **options)
    environment.filters["tojson"] = tojson
    environment.filters = {name: bounded(f) for name, f in environment.filters.items()}
    del environment.globals["lipsum"]  # random text
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return environment
