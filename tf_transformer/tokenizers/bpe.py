"""Byte-level byte pair encoding in Python, trained and run by the Rust package `tokenizers`."""

import json
import os
from importlib import import_module
from pathlib import Path

from tf_transformer.tokenizers.pipeline import (
    DECODER,
    NORMALIZER,
    PRE_TOKENIZER,
    SPECIAL_TOKENS,
    byte_alphabet,
)
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile


class BPETokenizer:
    """A byte-level BPE tokenizer with one vocabulary for both languages.

    Sennrich et al. 2016, section 3.2, over the bytes of UTF-8 rather than characters (Radford et
    al. 2019, section 2.2): no text has an unknown symbol. The vocabulary is joint, as in "Attention
    Is All You Need", section 5.1, so source and target can share one embedding.

    Unlike the paper, which starts from tokenised text, this class cuts words itself: see
    `pipeline.py`. Build one with `BPETokenizer.train` or `BPETokenizer.load`; the file it saves is
    read by `GraphBPE` too, which gives the same ids inside a TensorFlow graph.

    Args:
        backend: a `tokenizers.Tokenizer` that runs the pipeline of this package.

    Example:
        >>> tokenizer = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=300)
        >>> ids = tokenizer.encode(["lower <pad>"])
        >>> tokenizer.decode(ids)
        ['lower <pad>']
    """

    pad_id = SPECIAL_TOKENS.index("<pad>")
    start_id = SPECIAL_TOKENS.index("<s>")
    end_id = SPECIAL_TOKENS.index("</s>")

    def __init__(self, backend):
        self._backend = backend
        # Not stored in the file: without it the text "<s>" would become the start id.
        self._backend.encode_special_tokens = True

    @classmethod
    def train(cls, texts, vocab_size):
        """Learns a vocabulary.

        Args:
            texts: iterable of strings, the sentences of both languages together.
            vocab_size: integer of at least 259 (256 bytes and 3 special tokens), the largest
                number of ids. A small corpus may run out of pairs that occur twice, and then the
                vocabulary is smaller: read the `vocab_size` property.

        Returns:
            A `BPETokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing.
            TypeError: `texts` is one string, or holds something that is not a string.
            ValueError: `vocab_size` is too small, or `texts` has no text.
        """
        smallest = 256 + len(SPECIAL_TOKENS)
        if vocab_size < smallest:
            raise ValueError(
                f"vocab_size: expected at least {smallest} (256 bytes and {len(SPECIAL_TOKENS)} "
                f"special tokens), received {vocab_size}; ask for more, 8000 is common"
            )
        texts = _list_of_strings(texts)
        if not any(text.strip() for text in texts):
            raise ValueError(
                f"texts: expected at least one text that is not blank, received {len(texts)} "
                "texts without any; check that the corpus was read"
            )
        rust = _import_tokenizers()
        # The file format is the one definition of the pipeline, so build from it, not from calls.
        backend = rust.Tokenizer.from_str(_untrained_json())
        trainer = rust.trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=byte_alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend)

    @classmethod
    def load(cls, path):
        """Reads a tokenizer that `save` wrote.

        Args:
            path: string or path of a `tokenizer.json`.

        Returns:
            A `BPETokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing (`GraphBPE` does not need it).
            FileNotFoundError: there is no such file.
            ValueError: the file holds another kind of tokenizer; the part is named.
        """
        rust = _import_tokenizers()
        TokenizerFile.read(path)
        return cls(rust.Tokenizer.from_file(os.fspath(path)))

    def save(self, path):
        """Writes the tokenizer as one `tokenizer.json`, whole or not at all.

        Args:
            path: string or path of the file to write; its folder must exist.
        """
        path = Path(path)
        # A reader never sees half a file: it is complete before it takes the name.
        partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
        partial.write_text(self._backend.to_str(pretty=True), encoding="utf-8")
        os.replace(partial, path)

    @property
    def vocab_size(self):
        """Integer, the number of ids, special tokens included."""
        return self._backend.get_vocab_size()

    def encode(self, texts):
        """Turns texts into ids, without start and end ids.

        Args:
            texts: iterable of B strings. Special tokens in them are plain text.

        Returns:
            List of B lists of integers; a blank text gives an empty list.

        Raises:
            TypeError: `texts` is one string, or holds something that is not a string.
        """
        texts = _list_of_strings(texts)
        encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids):
        """Turns ids back into texts; pad, start and end ids are dropped.

        Args:
            ids: iterable of B sequences of integers in `[0, vocab_size)`.

        Returns:
            List of B strings. Bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        rows = [[int(number) for number in row] for row in ids]
        for row in rows:
            for number in row:
                if not 0 <= number < self.vocab_size:
                    raise ValueError(
                        f"ids: expected integers in [0, {self.vocab_size}), received {number}; "
                        "decode with the tokenizer that the model was trained with"
                    )
        return self._backend.decode_batch(rows, skip_special_tokens=True)


def _list_of_strings(texts):
    if isinstance(texts, str):
        raise TypeError("texts: expected an iterable of strings, received one string; use [text]")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(
                f"texts: expected strings, received {type(text).__name__}; decode bytes first"
            )
    return texts


def _untrained_json():
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": NORMALIZER,
            "pre_tokenizer": PRE_TOKENIZER,
            "post_processor": None,
            "decoder": DECODER,
            "model": {"type": "BPE", "vocab": {}, "merges": []},
        }
    )


def _import_tokenizers():
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise ImportError(
            "BPETokenizer needs the package 'tokenizers', which is not installed; run "
            'pip install "tf_transformer[train]" (GraphBPE reads a saved file without it)'
        ) from error
