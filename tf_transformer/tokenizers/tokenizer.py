"""What all tokenizers in Python have in common: the Rust package `tokenizers` runs them."""

import operator
import os
from importlib import import_module
from pathlib import Path

from tf_transformer.tokenizers.roles import SpecialTokenRoles
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import check_string, import_tokenizers
from tf_transformer.tokenizers.unsupported_part import UnsupportedPart


class Tokenizer(SpecialTokenRoles):
    """Texts to ids and back.

    Make one with `train` of a subclass, or read any `tokenizer.json` of the three models with
    `load`. What it saves is read by the graph tokenizers (`GraphTokenizer.from_file`), which give
    the same ids inside a TensorFlow graph, and by the `tokenizers` and `transformers` packages.

    Unlike there, special tokens in a text are text unless they are asked for, and a file's
    settings of truncation and padding are not followed.

    Args:
        file: a `TokenizerFile`.

    Raises:
        ImportError: the `tokenizers` package is missing.
        ValueError: the file is one of another model, or the package cannot read it.

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
        self._file = file
        try:
            self._backend = import_tokenizers().Tokenizer.from_str(file.text)
        except ImportError:
            raise
        except Exception as error:  # the package raises nothing narrower
            raise UnsupportedPart(f"The package tokenizers cannot read it: {error}.") from error
        self._backend.no_truncation()
        self._backend.no_padding()
        # Not stored in the file: without it the text "<s>" would become the start id.
        self._backend.encode_special_tokens = True
        self.special_tokens = dict(file.special_tokens)

    @classmethod
    def load(cls, path):
        """Reads a `tokenizer.json`.

        Args:
            path: string or path of the file.

        Returns:
            The tokenizer of the file's model; called on a subclass, one of that class.

        Raises:
            ImportError: the `tokenizers` package is missing (graph tokenizers do not need it).
            FileNotFoundError: there is no such file.
            ValueError: the file holds something else; the part is named.
        """
        file = TokenizerFile.read(path)
        chosen = _class_of(file.model["type"]) if cls is Tokenizer else cls
        try:
            return chosen(file)
        except UnsupportedPart as error:
            raise UnsupportedPart(f"path: {path} cannot be read. {error}") from error

    def save(self, path):
        """Writes the tokenizer as one `tokenizer.json`, whole or not at all.

        Args:
            path: string or path of the file to write; its folder must exist.
        """
        path = Path(path)
        # A reader never sees half a file: it is complete before it takes the name.
        partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
        partial.write_text(self._file.text, encoding="utf-8")
        os.replace(partial, path)

    @property
    def vocab_size(self):
        """Integer, the number of ids, special tokens included."""
        return self._backend.get_vocab_size()

    def encode(self, texts, add_special_tokens=False):
        """Turns texts into ids.

        Args:
            texts: iterable of B strings. Special tokens in them are plain text.
            add_special_tokens: bool, whether to put those around each text that the file names
                (BERT: `[CLS]` and `[SEP]`).

        Returns:
            List of B lists of integers; a blank text gives an empty list.

        Raises:
            TypeError: `texts` is one string, or holds something that is not a string.
            ValueError: a text holds a lone surrogate, which UTF-8 cannot write.
        """
        texts = _list_of_strings(texts)
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts):
        """Turns texts into ids and says where in the text each came from.

        Args:
            texts: as in `encode`.

        Returns:
            `(ids, offsets)`: lists of B lists; an offset is `(start, end)` in characters of the
            text as it was given. Tokens that are parts of one character share its offset.

        Raises:
            TypeError: as in `encode`.
        """
        encodings = self._backend.encode_batch(_list_of_strings(texts), add_special_tokens=False)
        return [e.ids for e in encodings], [e.offsets for e in encodings]

    def decode(self, ids):
        """Turns ids back into texts; special tokens are dropped.

        Args:
            ids: iterable of B sequences of integers in `[0, vocab_size)`.

        Returns:
            List of B strings. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            TypeError: what should be an integer is none.
            ValueError: an id is outside the vocabulary.
        """
        rows = [self._check_ids(row) for row in ids]
        return self._backend.decode_batch(rows, skip_special_tokens=True)

    def ids_to_tokens(self, ids):
        """Names tokens.

        Args:
            ids: iterable of integers in `[0, vocab_size)`.

        Returns:
            List of strings, as the vocabulary writes them.

        Raises:
            TypeError: what should be an integer is none.
            ValueError: an id is outside the vocabulary.
        """
        return [self._backend.id_to_token(number) for number in self._check_ids(ids)]

    def tokens_to_ids(self, tokens):
        """Looks tokens up.

        Args:
            tokens: iterable of strings, as the vocabulary writes them.

        Returns:
            List of integers.

        Raises:
            ValueError: a token is not in the vocabulary.
        """
        ids = {token: self._backend.token_to_id(token) for token in tokens}
        unknown = [token for token, number in ids.items() if number is None]
        if unknown:
            raise ValueError(
                f"tokens: expected tokens of the vocabulary, received also {unknown[:5]}; "
                "`encode` cuts a text into tokens"
            )
        return [ids[token] for token in tokens]

    def trace(self, text):
        """Shows how a text becomes tokens: its words, and the model's steps in each.

        Tokens that a file of elsewhere adds beside its model are not shown.

        Args:
            text: string.

        Returns:
            List of dicts, one for each word, with `word`, `tokens`, `ids` and the steps of the
            model: see the subclass.

        Raises:
            TypeError: `text` is not a string.
        """
        [text] = _list_of_strings([text])
        backend = self._backend
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        words = [(text, None)] if text else []
        if backend.pre_tokenizer is not None:
            words = backend.pre_tokenizer.pre_tokenize_str(text)
        traces = [self._trace_word(word, self._file.model) for word, _ in words]
        return [trace | {"ids": self.tokens_to_ids(trace["tokens"])} for trace in traces]

    def _trace_word(self, word, model):
        raise NotImplementedError

    def _check_ids(self, ids):
        try:
            ids = [operator.index(number) for number in ids]
        except TypeError as error:
            raise TypeError(
                f"ids: expected integers, and a row of them for each text, received {ids!r}; "
                "decode the ids of one text as [ids]"
            ) from error
        for number in ids:
            if not 0 <= number < self.vocab_size:
                raise ValueError(
                    f"ids: expected integers in [0, {self.vocab_size}), received {number}; "
                    "decode with the tokenizer that the model was trained with"
                )
        return ids


def _list_of_strings(texts):
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of strings, received one string; use [text]")
    return [check_string(text) for text in texts]


def _class_of(model_type):
    # A parent that knows its children has to wait until they exist.
    module = import_module(f"tf_transformer.tokenizers.{model_type.lower()}")
    return getattr(module, f"{model_type}Tokenizer")
