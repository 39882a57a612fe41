"""The Unigram language model in Python, trained and run by the Rust package `tokenizers`."""

import heapq

from tf_transformer.tokenizers.pipeline import metaspace_pipeline
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import check_vocab_size, import_tokenizers, train_content

# What an unknown character costs beside the least likely token (SentencePiece's constant).
_UNKNOWN_PENALTY = 10.0

_PATHS_TO_SHOW = 3


class UnigramTokenizer(Tokenizer):
    """Writes each word with the tokens whose probabilities have the greatest product.

    Kudo 2018, section 3.2. Training begins with every frequent substring and drops, again and
    again, the tokens that the likelihood of the corpus misses least.

    Args:
        file: a `TokenizerFile` of a Unigram model.

    Example:
        >>> tokenizer = UnigramTokenizer.train(["low lower lowest"] * 9, vocab_size=30)
        >>> tokenizer.decode(tokenizer.encode(["lower  lowest"]))
        ['lower lowest']
    """

    model_type = "Unigram"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None):
        """Learns a vocabulary with a score for each token.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, a text a line).
            vocab_size: integer, the largest number of ids; see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `metaspace_pipeline()`.

        Returns:
            A `UnigramTokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing.
            TypeError: `texts` is one string, or holds something that is not a string.
            ValueError: `vocab_size` is smaller than the alphabet, or `texts` has no text, or the
                pipeline has no unknown token.
        """
        rust = import_tokenizers()
        pipeline = pipeline or metaspace_pipeline()
        if pipeline.unknown is None:
            raise ValueError(
                "pipeline: expected one with an unknown token, received one without; use "
                "metaspace_pipeline() or bert_pipeline()"
            )
        special = pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        trainer = rust.trainers.UnigramTrainer(
            vocab_size=vocab_size,
            special_tokens=list(special),
            unk_token=pipeline.unknown,
            show_progress=False,
        )
        # The trainer asks for a model that can be read, and this one cannot without an entry.
        model = {"type": "Unigram", "unk_id": 0, "vocab": [[pipeline.unknown, 0.0]]}
        content = train_content(texts, vocab_size, pipeline, model, trainer)
        # With 15 digits every reader of the file, the Rust package's too, gets the same float64.
        content["model"]["vocab"] = [
            [token, float(f"{score:.15g}")] for token, score in content["model"]["vocab"]
        ]
        return cls(TokenizerFile.of(content))

    def _trace_word(self, word, model):
        """Adds `paths`: the best rows of tokens with their scores, the best one first."""
        scores = dict(model["vocab"])
        unknown_score = min(scores.values()) - _UNKNOWN_PENALTY
        longest = max(map(len, scores))
        best = [[(0.0, ())]]  # for each place the best paths to it
        for end in range(1, len(word) + 1):
            paths = []
            for start in range(max(0, end - longest), end):
                token = word[start:end]
                score = scores.get(token, unknown_score if end - start == 1 else None)
                if score is not None:
                    paths += [(total + score, (*path, token)) for total, path in best[start]]
            best.append(heapq.nlargest(_PATHS_TO_SHOW, paths, key=lambda path: path[0]))
        unknown, _ = model["vocab"][model["unk_id"]]
        paths = [
            {"score": score, "tokens": [t if t in scores else unknown for t in path]}
            for score, path in best[-1]
        ]
        tokens = paths[0]["tokens"]
        tokens = [
            t
            for t, before in zip(tokens, [None, *tokens], strict=False)
            if not t == before == unknown
        ]
        return {"word": word, "paths": paths, "tokens": tokens}
