"""Byte pair encoding in Python, trained and run by the Rust package `tokenizers`."""

from tf_transformer.tokenizers.pipeline import byte_alphabet, byte_level_pipeline
from tf_transformer.tokenizers.tokenizer import (
    Tokenizer,
    check_vocab_size,
    import_tokenizers,
    train_content,
)


class BPETokenizer(Tokenizer):
    """Merges the most frequent pair of neighbours, again and again.

    Sennrich et al. 2016, section 3.2; by default over the bytes of UTF-8 rather than characters
    (Radford et al. 2019, section 2.2): no text has an unknown symbol. The vocabulary is joint, as
    in "Attention Is All You Need", section 5.1, so source and target can share one embedding.
    Unlike the paper, which starts from tokenised text, `pipeline` cuts the words.

    Args:
        content: dict, the content of a `tokenizer.json` with a BPE model.

    Example:
        >>> tokenizer = BPETokenizer.train(["low lower lowest", "new newer newest"], vocab_size=300)
        >>> ids = tokenizer.encode(["lower <pad>"])
        >>> tokenizer.decode(ids)
        ['lower <pad>']
    """

    model_type = "BPE"

    @classmethod
    def train(cls, texts, vocab_size, pipeline=None, min_frequency=2):
        """Learns a vocabulary.

        Args:
            texts: iterable of strings, or of `pathlib.Path`s of text files (UTF-8, a text a
                line): the sentences of both languages together.
            vocab_size: integer, the largest number of ids. A small corpus may run out of pairs,
                and then the vocabulary is smaller: read the `vocab_size` property.
            pipeline: `Pipeline`, by default `byte_level_pipeline()`.
            min_frequency: integer, how often a pair must occur to be merged.

        Returns:
            A `BPETokenizer`.

        Raises:
            ImportError: the `tokenizers` package is missing.
            TypeError: `texts` is one string, or holds something that is not a string.
            ValueError: `vocab_size` is smaller than the alphabet, or `texts` has no text.
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
            show_progress=False,
        )
        model = {"type": "BPE", "unk_token": pipeline.unknown, "vocab": {}, "merges": []}
        return cls(train_content(texts, vocab_size, pipeline, model, trainer))

    def _trace_word(self, word, model):
        """Adds `merges`: for each, the pair, its rank, and the symbols after it."""
        ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        symbols, merges = list(word), []
        while len(symbols) > 1:
            pairs = list(zip(symbols[:-1], symbols[1:], strict=True))
            place = min(range(len(pairs)), key=lambda i: ranks.get(pairs[i], len(ranks)))
            if pairs[place] not in ranks:
                break
            symbols[place : place + 2] = ["".join(pairs[place])]
            merges.append(
                {"pair": pairs[place], "rank": ranks[pairs[place]], "symbols": list(symbols)}
            )
        return {"word": word, "merges": merges, "tokens": symbols}
