"""Base class of the Python tokenizers, which use the Rust package `tokenizers`."""

import operator

from tf_transformer import tokenizers as package
from tf_transformer.data.files import replacing
from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.pipeline import SpecialTokenRoles
from tf_transformer.tokenizers.tokenizer_file import (
    READABLE,
    AddedToken,
    TokenizerFile,
    UnsupportedPart,
    check_spellings,
)
from tf_transformer.tokenizers.training import check_string, import_tokenizers


class Tokenizer(SpecialTokenRoles):
    """Converts texts to ids and back.

    Create one with `train` of a subclass, or load any `tokenizer.json` of the three models with
    `load`. `GraphTokenizer.from_file` and the packages `tokenizers` and `transformers` read the
    saved file too. Unlike in those packages, special tokens in a text are plain text by default,
    and the file's truncation and padding settings are ignored; other added tokens are matched as
    there.

    Args:
        file: a `TokenizerFile`.

    Raises:
        ImportError: If the `tokenizers` package is not installed.
        ValueError: If the file is for a different model, or the package cannot read it.

    Example:
        >>> from tf_transformer.tokenizers import BPETokenizer
        >>> BPETokenizer.train(["low lower lowest"], vocab_size=270).save("tokenizer.json")
        >>> tokenizer = Tokenizer.load("tokenizer.json")
        >>> ids, offsets = tokenizer.encode_with_offsets(["lower"])
        >>> tokenizer.ids_to_tokens(ids[0]), offsets
        (['low', 'e', 'r'], [[(0, 3), (3, 4), (4, 5)]])
    """

    model_type = None

    def __init__(self, file):
        if self.model_type not in (None, file.model["type"]):
            raise UnsupportedPart.of("model.type", self.model_type, file.model["type"])
        self._file, self._backend = file, _load_backend(file, parses_special=False)
        self._parsing_backend = None  # for prompts, made when it is needed
        self.special_tokens = dict(file.special_tokens)

    def __reduce__(self):
        # From the file: a copy of the package's object would lose `encode_special_tokens`.
        rebuilt = ("_file", "_backend", "_parsing_backend")
        state = {name: value for name, value in vars(self).items() if name not in rebuilt}
        return type(self), (self._file,), state

    @classmethod
    def load(cls, path):
        """Read a `tokenizer.json`; returns the tokenizer for the file's model.

        Raises:
            ImportError, ValueError: As for the class.
            FileNotFoundError: If the file does not exist.
        """
        file = TokenizerFile.read(path)
        # By its exported name, since the module of a subclass imports this one.
        chosen = getattr(package, f"{file.model['type']}Tokenizer") if cls is Tokenizer else cls
        try:
            return chosen(file)
        except UnsupportedPart as error:
            raise UnsupportedPart("path", READABLE, path, f"{error}") from error

    def save(self, path):
        """Write the tokenizer to a `tokenizer.json`, atomically."""
        with replacing(path) as beside:
            beside.write_text(self._file.text, encoding="utf-8")

    def add_tokens(self, tokens):
        """Add tokens that are matched in a text before the model splits the rest.

        A token that is new to the vocabulary gets the next id, so the model needs more rows; see
        `with_vocab_size`. A token of the vocabulary keeps its id.

        Args:
            tokens: iterable of strings, or of `tokenizers.AddedToken`s with other settings:
                `single_word`, `lstrip`, `rstrip`, `normalized` (True for a string: it matches any
                spelling that the normalizer makes equal, such as "[e1]" for "[E1]"), and
                `special`. A special token is matched in a text only with `parse_special_tokens`;
                `decode` drops it.

        Returns:
            Integer, the number of new tokens; tokens added before do not change.

        Raises:
            TypeError: If `tokens` is a single string, or one of them is neither.
            ValueError: If the normalizer turns a token into nothing or into another added token,
                or if it is white space with `lstrip`.
        """
        if isinstance(tokens, str):
            raise TypeError("tokens: expected an iterable of strings, got one string; use [token]")
        rust_token = import_tokenizers().AddedToken
        added = {token.content for token in self._file.added_tokens}
        new = {}
        for token in tokens:
            if not isinstance(token, str | rust_token):
                got = f"got {type(token).__name__}; decode bytes first"
                raise TypeError(f"tokens: expected strings or tokenizers.AddedToken objects, {got}")
            token = rust_token(token) if isinstance(token, str) else token
            if token.content in added:
                continue
            fields = {name: getattr(token, name) for name in AddedToken._fields if name != "id"}
            if not (self._normalized(token.content) if token.normalized else token.content):
                expected = "tokens that are not empty after normalization"
                remedy = "Use tokenizers.AddedToken(..., normalized=False)."
                raise ArgumentError("tokens", expected, f"{token.content!r}", remedy)
            new.setdefault(token.content, AddedToken(id=None, **fields))
        if new:
            Tokenizer.__init__(self, self._file.with_added_tokens(list(new.values())))
        return len(new)

    @property
    def vocab_size(self):
        """Integer, the number of ids, including special and added tokens."""
        return self._backend.get_vocab_size()

    def encode(self, texts, add_special_tokens=False, parse_special_tokens=False):
        """Turn texts into ids.

        Args:
            texts: iterable of B strings. Added tokens in them that are not special are matched.
            add_special_tokens: bool, whether to add the file's special tokens around each text
                (BERT: `[CLS]` and `[SEP]`).
            parse_special_tokens: bool, whether special tokens in the texts are matched too, for
                prompts such as those of `ChatTemplate`; by default they are plain text.

        Returns:
            List of B lists of integers; a blank text gives an empty list.

        Raises:
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If a text contains a lone surrogate, which UTF-8 cannot encode, or something
                that is not in the vocabulary, and there is no unknown token; or if special tokens
                are parsed and two of them are equal after normalization.
        """
        backend = self._backend
        if parse_special_tokens:  # another object, since threads may share this one
            self._parsing_backend = self._parsing_backend or _load_backend(self._file, True)
            backend = self._parsing_backend
        encode = backend.encode_batch_fast
        return [one.ids for one in _encoded(encode, texts, add_special_tokens)]

    def encode_with_offsets(self, texts):
        """Turn texts into ids, as `encode` does, with their positions in the text.

        Returns:
            `(ids, offsets)`: lists of B lists; an offset is `(start, end)` in characters of the
            original text. Tokens that are parts of one character share its offset.
        """
        encodings = _encoded(self._backend.encode_batch, texts, False)
        return [e.ids for e in encodings], [e.offsets for e in encodings]

    def decode(self, ids):
        """Turn ids back into texts; special tokens are dropped.

        Args:
            ids: iterable of B sequences of integers in `[0, vocab_size)`.

        Returns:
            List of B strings. Invalid UTF-8 bytes become U+FFFD.

        Raises:
            TypeError: If an id is not an integer.
            ValueError: If an id is outside the vocabulary.
        """
        # The package would keep special tokens that its normalizer changes.
        special = set(self._file.special_tokens.values())
        rows = [[n for n in self._check_ids(row) if n not in special] for row in ids]
        return self._backend.decode_batch(rows, skip_special_tokens=False)

    def ids_to_tokens(self, ids):
        """Convert an iterable of ids to a list of tokens, with the errors of `decode`."""
        vocabulary = self._file.vocabulary
        return [vocabulary[number] for number in self._check_ids(ids)]

    def tokens_to_ids(self, tokens):
        """Convert tokens, spelled as in the vocabulary, to ids; ValueError if one is unknown."""
        ids = {token: self._backend.token_to_id(token) for token in tokens}
        unknown = [token for token, number in ids.items() if number is None]
        if unknown:
            remedy = "Use `encode` to split a text into tokens."
            raise ArgumentError("tokens", "tokens of the vocabulary", f"also {unknown[:5]}", remedy)
        return [ids[token] for token in tokens]

    def trace(self, text):
        """Show how a text is tokenized: its words and the model's steps for each.

        Returns:
            List of dicts, one per word, with `word`, `tokens`, `ids` and the model's steps.

        Raises:
            TypeError, ValueError: If `text` is not a string, or contains an added token, which the
                model does not see.
        """
        [ids] = self.encode([text])
        found = {token.id for token in self._file.added_tokens if not token.special} & set(ids)
        text = self._normalized(text)
        words = [(text, None)] if text else []
        if self._backend.pre_tokenizer is not None:
            words = self._backend.pre_tokenizer.pre_tokenize_str(text)
        traces = [self._trace_word(word, self._file.model) for word, _ in words]
        traces = [trace | {"ids": self.tokens_to_ids(trace["tokens"])} for trace in traces]
        if found and [number for trace in traces for number in trace["ids"]] != ids:
            expected = "none of the added tokens, which the model does not see"
            got = self.ids_to_tokens(sorted(found))
            raise ArgumentError("text", expected, got, "Trace the texts around them.")
        return traces

    def _trace_word(self, word, model):
        raise NotImplementedError

    def _normalized(self, text):
        normalizer = self._backend.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def _check_ids(self, ids):
        try:
            ids = [operator.index(number) for number in ids]
        except TypeError as error:
            remedy = "wrap the ids of a single text as [ids]"
            message = f"ids: expected a row of integers for each text, got {ids!r}; {remedy}"
            raise TypeError(message) from error
        for number in ids:
            if not 0 <= number < self.vocab_size:
                expected = f"integers in [0, {self.vocab_size})"
                remedy = "Decode with the tokenizer that the model was trained with."
                raise ArgumentError("ids", expected, number, remedy)
        return ids


def _load_backend(file, parses_special):
    """The Rust package's tokenizer of a file; reads "<s>" in a text as a special token or not."""
    rust = import_tokenizers()
    try:
        backend = rust.Tokenizer.from_str(file.text)
    except Exception as error:  # the package raises nothing narrower
        expected = "a file that the package tokenizers can read"
        raise UnsupportedPart("path", expected, error) from error
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = not parses_special  # the file does not store it
    normalize = backend.normalizer.normalize_str if backend.normalizer else str
    normalized = [token for token in file.added_tokens if token.normalized]
    spellings = [normalize(token.content) for token in normalized]
    check_spellings(normalized, spellings, parses_special)
    return backend


def _encoded(encode, texts, add_special_tokens):
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of strings, got one string; use [text]")
    texts = [check_string(text) for text in texts]
    try:
        return encode(texts, add_special_tokens=add_special_tokens)
    except Exception as error:  # the package raises nothing narrower
        expected = "texts that the vocabulary can represent, or an unknown token in the vocabulary"
        raise ArgumentError("texts", expected, error) from error
