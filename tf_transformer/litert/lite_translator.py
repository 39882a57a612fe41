"""Translations, by LiteRT."""

import numpy as np

from tf_transformer.litert.lite_model import LiteModel, padded


class LiteTranslator(LiteModel):
    """A translator in LiteRT's format, which decodes greedily.

    Args:
        folder, threads: see `LiteModel`.

    Raises:
        See `LiteModel`.

    Example:
        >>> LiteTranslator("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: folder: expected litert.json, from write_litert, in
        nowhere.
    """

    def translate(self, texts):
        """Translate texts, one after the other.

        Args:
            texts: list of N strings; those that are too long are truncated.

        Returns:
            list of N strings; "" for a blank text.
        """
        rows = self.rows(texts, self.description["longest_source"] - 1)
        return self.tokenizer.decode([self._decode(ids) if ids else [] for ids in rows])

    def _decode(self, ids):
        facts = self.description
        ids = [*ids, facts["end_id"]]
        factor, offset = facts["length_limit"]
        most = min(factor * len(ids) + offset, facts["longest_target"])
        source, _ = padded([ids])
        source = source[:, : facts["longest_source"]]
        # Caches in steps too: a new size of them is a new shape for every layer.
        slots = min(-(-most // 16) * 16, facts["longest_target"])
        state = self.functions["encode"](ids=source, length=np.int32(slots))
        token, found, num_tokens = facts["start_id"], [], self.tokenizer.vocab_size
        while len(found) < most:
            outputs = self.functions["step"](token=np.array([token], np.int32), **state)
            # Never 0, the padding, nor an id without a token.
            token = 1 + int(np.argmax(outputs.pop("logits")[0, 1:num_tokens]))
            if token == facts["end_id"]:
                break
            found.append(token)
            state = outputs
        return found
