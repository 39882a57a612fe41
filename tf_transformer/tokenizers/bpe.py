"""Byte pair encoding in Python, trained and run with the Rust package `tokenizers`."""

import itertools

from tf_transformer.tokenizers.pipeline import byte_alphabet, byte_level_pipeline
from tf_transformer.tokenizers.tokenizer import Tokenizer
from tf_transformer.tokenizers.tokenizer_file import TokenizerFile
from tf_transformer.tokenizers.training import (
    check_vocab_size,
    import_tokenizers,
    is_watched,
    train_content,
)


class BPETokenizer(Tokenizer):
    """Byte pair encoding: repeatedly merges the most frequent pair of adjacent symbols.

    Sennrich et al. 2016, section 3.2; by default over UTF-8 bytes rather than characters (Radford
    et al. 2019, section 2.2), so that no text has unknown symbols. The vocabulary is joint, as in
    "Attention Is All You Need", section 5.1, so source and target can share one embedding. The
    paper starts from tokenized text; here `pipeline` splits the text into words.

    Args:
        file: a `TokenizerFile` of a BPE model.

    Example:
        >>> tokenizer = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=300)
        >>> ids = tokenizer.encode(["lower <pad>"])
        >>> tokenizer.decode(ids)
        ['lower <pad>']
    """

    model_type = "BPE"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Learn a vocabulary.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, one text per
                line): the sentences of both languages together.
            vocab_size: integer, the maximum number of ids. With a small corpus the vocabulary may
                be smaller because the pairs run out; see the `vocab_size` property.
            pipeline: `Pipeline`, by default `byte_level_pipeline()`.
            min_frequency: integer, how often a pair must occur to be merged.

        Returns:
            A `BPETokenizer`.

        Raises:
            ImportError: If the `tokenizers` package is not installed.
            TypeError: If `texts` is a single string or contains a non-string.
            ValueError: If `vocab_size` is smaller than the alphabet, or `texts` contains no text.
        """
        rust = import_tokenizers()
        pipeline = pipeline or byte_level_pipeline()
        special = pipeline.special_tokens
        alphabet = byte_alphabet() if pipeline.unknown is None else []
        check_vocab_size(
            vocab_size,
            len(alphabet) + len(special) + (not alphabet),
            f"{len(special)} special tokens and {'256 bytes' if alphabet else 'an alphabet'}",
        )
        trainer = rust.trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            special_tokens=list(special),
            initial_alphabet=alphabet,
            show_progress=is_watched(),
        )
        model = {"type": "BPE", "unk_token": pipeline.unknown, "vocab": {}, "merges": []}
        return cls(TokenizerFile.of(train_content(texts, vocab_size, pipeline, model, trainer)))

    def _trace_word(self, word, model):
        """Add `merges`: the pair of each merge, its rank and the symbols after it."""
        if model.get("ignore_merges") and word in model["vocab"]:
            return {"word": word, "merges": [], "tokens": [word]}
        cut = len(model.get("continuing_subword_prefix") or "")
        ranks = {pair: rank for rank, pair in enumerate(self._file.merge_pairs)}
        symbols, merges = _symbols(word, model), []
        while len(symbols) > 1:
            pairs = list(itertools.pairwise(symbols))
            place = min(range(len(pairs)), key=lambda i: ranks.get(pairs[i], len(ranks)))
            left, right = pair = pairs[place]
            if pair not in ranks:
                break
            symbols[place : place + 2] = [left + right[cut:]]
            merges.append({"pair": pair, "rank": ranks[pair], "symbols": list(symbols)})
        return {"word": word, "merges": merges, "tokens": symbols}


def _symbols(word, model):
    """Return the symbols of a word before the first merge, with unknown characters replaced."""
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    symbols, is_after_unknown = [], False
    for place, character in enumerate(word):
        is_last = place == len(word) - 1
        symbol = prefix * (place > 0) + character + suffix * is_last
        in_bytes = [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8")]
        is_known = symbol in model["vocab"]
        if is_known:
            symbols.append(symbol)
        elif model.get("byte_fallback") and all(byte in model["vocab"] for byte in in_bytes):
            symbols += in_bytes
        elif model.get("unk_token") and not (model.get("fuse_unk") and is_after_unknown):
            symbols.append(model["unk_token"])
        is_after_unknown = not is_known
    return symbols
