"""WordPiece in Python, trained and run with the Rust package `tokenizers`."""

from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.pipeline import bert_pipeline, tokenizer_json
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import (
    check_learned,
    check_vocab_size,
    checked_texts,
    count_words,
    import_tokenizers,
    is_watched,
    train_content,
)
from tf_transformer.tokenizers.wordpiece_trainer import learn_wordpieces


class WordPieceTokenizer(Tokenizer):
    """Splits each word from left to right, always taking the longest matching token.

    Schuster and Nakajima 2012; Devlin et al. 2019, the authors' tokenization.py. A word that
    cannot be split this way becomes one unknown token.

    Args:
        file: a `TokenizerFile` of a WordPiece model.

    Example:
        >>> tokenizer = WordPieceTokenizer.train(["low lower lowest"] * 2, vocab_size=22)
        >>> tokenizer.ids_to_tokens(tokenizer.encode(["LOWEST!"])[0])
        ['lowe', '##st', '[UNK]']
    """

    model_type = "WordPiece"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Learn a vocabulary by pair frequency, as BPE does.

        The Rust package, and thus BERT vocabularies trained with it, use this criterion. For the
        paper's criterion, mutual information, use `train_by_information`.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, one text per
                line).
            vocab_size: integer, the maximum number of ids; see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `bert_pipeline()`. With
                `metaspace_pipeline()`, which marks the beginnings of words rather than their
                insides, decoding restores the text, including spaces and case.
            min_frequency: integer, how often a pair must occur to be merged.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If `vocab_size` is smaller than the alphabet, `texts` contains no text, or
                the pipeline has no unknown token.
        """
        rust = import_tokenizers()
        pipeline = pipeline or bert_pipeline()
        model = _untrained(pipeline)
        special = pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        texts = list(checked_texts(texts))
        # The trainer would number the characters inside words in hash-table order, so that ties
        # between pairs would be broken differently each time. Passing them as special tokens fixes
        # their numbers; `train_content` takes the actual special tokens from the pipeline.
        prefix = model["continuing_subword_prefix"]
        inside = {prefix + c for word in count_words(texts, pipeline) for c in word[1:] if prefix}
        trainer = rust.trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=[*special, *sorted(inside)],
            continuing_subword_prefix=prefix,
            show_progress=is_watched(),
        )
        return cls(TokenizerFile.of(train_content(texts, vocab_size, pipeline, model, trainer)))

    @classmethod
    def train_by_information(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Learn a vocabulary by the mutual information of adjacent tokens; see `learn_wordpieces`.

        Arguments, return value and errors are the same as in `train`. Implemented in Python: takes
        seconds where `train` takes a fraction of a second.
        """
        import_tokenizers()
        pipeline = pipeline or bert_pipeline()
        model, special = _untrained(pipeline), pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        tokens = learn_wordpieces(
            count_words(texts, pipeline),
            vocab_size - len(special),
            model["continuing_subword_prefix"],
            min_frequency,
        )
        vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *tokens]))}
        check_vocab_size(vocab_size, len(vocabulary), "special tokens and the alphabet")
        check_learned(len(vocabulary), pipeline)
        special_ids = {token: vocabulary[token] for token in special}
        content = tokenizer_json(model | {"vocab": vocabulary}, pipeline, special_ids)
        return cls(TokenizerFile.of(content))

    @classmethod
    def load_vocabulary(cls, path, lowercase=True):
        """Read BERT's `vocab.txt`; see `TokenizerFile.read_vocabulary`.

        Args:
            path: string or path of the text file.
            lowercase: bool, whether the model is "uncased": the file does not specify it.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            FileNotFoundError: If the file does not exist.
            ValueError: If the file is not read by all programs alike or lacks one of BERT's special
                tokens; see `TokenizerFile.read_vocabulary`.
        """
        return cls(TokenizerFile.read_vocabulary(path, bert_pipeline(lowercase)))

    def _trace_word(self, word, model):
        """Add `matches`: for each token, its position and the longer candidates tried first."""
        vocabulary = model["vocab"]
        unknown = {"word": word, "matches": [], "tokens": [model["unk_token"]]}
        if len(word) > model["max_input_chars_per_word"]:
            return unknown
        matches, start = [], 0
        while start < len(word):
            prefix = model["continuing_subword_prefix"] if start else ""
            tried = [prefix + word[start:end] for end in range(len(word), start, -1)]
            found = next((token for token in tried if token in vocabulary), None)
            if found is None:
                return unknown | {"matches": matches, "no_token_at": start}
            end = start + len(found) - len(prefix)
            matches.append(
                {"token": found, "start": start, "end": end, "tried": tried[: tried.index(found)]}
            )
            start = end
        return {"word": word, "matches": matches, "tokens": [match["token"] for match in matches]}


def _untrained(pipeline):
    if pipeline.unknown is None:
        raise ArgumentError(
            "pipeline",
            "one with an unknown token",
            "one without",
            "Use bert_pipeline() or metaspace_pipeline().",
        )
    return {
        "type": "WordPiece",
        "unk_token": pipeline.unknown,
        # Only BERT's decoder removes "##" again.
        "continuing_subword_prefix": pipeline.decoder.get("prefix", ""),
        "max_input_chars_per_word": 100,
        "vocab": {},
    }
