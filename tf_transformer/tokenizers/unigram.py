"""The Unigram language model in Python, trained and run with the Rust package `tokenizers`."""

import heapq
import itertools

from tf_transformer.tokenizers.pipeline import metaspace_pipeline
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import UNKNOWN_PENALTY, TokenizerFile
from tf_transformer.tokenizers.training import (
    check_unknown,
    check_vocab_size,
    import_tokenizers,
    is_watched,
    train_content,
)

# The step between the scores that the trainer gives to characters it would have dropped.
_SCORE_STEP = 0.0001

_PATHS_TO_SHOW = 3


class UnigramTokenizer(Tokenizer):
    """Splits each word into the tokens with the greatest product of probabilities.

    Kudo 2018, section 3.2. Training starts with all frequent substrings and repeatedly drops the
    tokens whose removal reduces the likelihood of the corpus least.

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
        """Learn a vocabulary with a score for each token.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, one text per
                line).
            vocab_size: integer, the maximum number of ids; see `BPETokenizer.train`.
            pipeline: `Pipeline` with an unknown token, by default `metaspace_pipeline()`.

        Returns:
            A `UnigramTokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If `vocab_size` is smaller than the alphabet, `texts` contains no text, or
                the pipeline has no unknown token.
        """
        rust = import_tokenizers()
        pipeline = pipeline or metaspace_pipeline()
        check_unknown(pipeline)
        special = pipeline.special_tokens
        check_vocab_size(vocab_size, len(special) + 1, "special tokens and an alphabet")
        trainer = rust.trainers.UnigramTrainer(
            vocab_size=vocab_size,
            special_tokens=list(special),
            unk_token=pipeline.unknown,
            show_progress=is_watched(),
        )
        # The trainer needs a model it can parse, and a Unigram model needs at least one entry.
        model = {"type": "Unigram", "unk_id": 0, "vocab": [[pipeline.unknown, 0.0]]}
        content = train_content(texts, vocab_size, pipeline, model, trainer)
        vocabulary = content["model"]["vocab"]
        special, learned = vocabulary[: len(special)], vocabulary[len(special) :]
        content["model"]["vocab"] = [*special, *_settled(learned)]
        return cls(TokenizerFile.of(content))

    def _trace_word(self, word, model):
        """Add `paths`: the best segmentations with their scores, best first."""
        scores = dict(model["vocab"])
        unknown_score = min(scores.values()) - UNKNOWN_PENALTY
        longest = max(map(len, scores))
        best = [[(0.0, ())]]  # the best paths to each position
        for end in range(1, len(word) + 1):
            paths = []
            for start in range(max(0, end - longest), end):
                token = word[start:end]
                score = scores.get(token, unknown_score if end - start == 1 else None)
                if score is not None:
                    paths += [(total + score, (*path, token)) for total, path in best[start]]
            best.append(heapq.nlargest(_PATHS_TO_SHOW, paths, key=lambda path: path[0]))
        paths = [{"score": score, "tokens": list(path)} for score, path in best[-1]]
        tokens = _with_unknown(paths[0]["tokens"], scores, model)
        return {"word": word, "paths": paths, "tokens": tokens}


def _with_unknown(path, scores, model):
    """Return a path's tokens, with unknown characters replaced by tokens of the vocabulary."""
    unknown, _ = model["vocab"][model["unk_id"]]
    tokens = []
    for is_unknown, run in itertools.groupby(path, lambda t: t == unknown or t not in scores):
        text = "".join(run_tokens := list(run))
        in_bytes = [f"<0x{byte:02X}>" for byte in text.encode("utf-8")]
        if not is_unknown:
            tokens += run_tokens
        elif text != unknown and model.get("byte_fallback") and scores.keys() >= set(in_bytes):
            tokens += in_bytes
        else:
            tokens.append(unknown)
    return tokens


def _settled(vocabulary):
    """Make the vocabulary the same for every training on the same texts.

    The trainer sums in random order, which affects the last digits of a score, and gives the
    characters it would have dropped scores in steps of 0.0001 above the lowest one, also in random
    order. Here scores are rounded to six digits (so that every reader parses the same float64),
    these characters get the lowest score, and ties are sorted alphabetically.
    """
    least = min(score for _, score in vocabulary)
    settled = []
    for token, score in vocabulary:
        steps = (score - least) / _SCORE_STEP
        if len(token) == 1 and abs(steps - round(steps)) < 1e-6 and steps < len(vocabulary):
            score = least
        settled.append([token, float(f"{score:.6g}")])
    return sorted(settled, key=lambda entry: (-entry[1], entry[0]))
