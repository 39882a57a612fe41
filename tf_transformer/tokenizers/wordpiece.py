"""WordPiece in Python, trained and run by the Rust package `tokenizers`."""

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
    """Cuts each word from the left, always with the longest token that fits.

    Schuster and Nakajima 2012; Devlin et al. 2019, the authors' tokenization.py. A word that no
    row of tokens fits becomes one unknown token.

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
        """Learns a vocabulary as BPE does, by the frequency of pairs.

        That is what the Rust package, and BERT vocabularies made with it, do. The criterion of the
        paper, mutual information, is in `train_by_information`.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, a text a line).
            vocab_size: integer, the largest number of ids; see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `bert_pipeline()`. With
                `metaspace_pipeline()`, which marks beginnings of words rather than their insides,
                decoding gives back the text, spaces and case included.
            min_frequency: integer, how often a pair must occur to be merged.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing.
            TypeError: `texts` is one string, or holds something that is not a string.
            ValueError: `vocab_size` is smaller than the alphabet, or `texts` has no text, or
                the pipeline has no unknown token.
        """
        rust = import_tokenizers()
        pipeline = pipeline or bert_pipeline()
        model = _untrained(pipeline)
        special = pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        texts = list(checked_texts(texts))
        # The trainer would number the characters inside words in the order of a hash table, and
        # ties between pairs would fall differently each time. Given as special tokens they have
        # their numbers before; what is special in the end, `train_content` takes from the pipeline.
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
        """Learns a vocabulary by the mutual information of neighbours; see `learn_wordpieces`.

        Args, returns and errors: as in `train`. In Python, so it takes seconds where `train` takes
        a part of one.
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
        """Reads BERT's `vocab.txt`.

        Args:
            path: string or path of the text file.
            lowercase: bool, whether the model is "uncased": the file does not say.

        Returns:
            A `WordPieceTokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing.
            FileNotFoundError: there is no such file.
            ValueError: a token stands there twice, or a special token of BERT is missing.
        """
        return cls(TokenizerFile.read_vocabulary(path, bert_pipeline(lowercase)))

    def _trace_word(self, word, model):
        """Adds `matches`: for each token where it lies, and the longer ones that did not fit."""
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
        raise ValueError(
            "pipeline: expected one with an unknown token, received one without; use "
            "bert_pipeline() or metaspace_pipeline()"
        )
    return {
        "type": "WordPiece",
        "unk_token": pipeline.unknown,
        # Of the decoders only BERT's takes "##" away again.
        "continuing_subword_prefix": pipeline.decoder.get("prefix", ""),
        "max_input_chars_per_word": 100,
        "vocab": {},
    }
