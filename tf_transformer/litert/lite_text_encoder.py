"""Vectors of texts, by LiteRT."""

from tf_transformer.litert.lite_bert import LiteBert


class LiteTextEncoder(LiteBert):
    """A sentence encoder in LiteRT's format.

    Args:
        folder, threads: see `LiteModel`.

    Raises:
        See `LiteModel`.

    Example:
        >>> LiteTextEncoder("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: folder: expected litert.json, from write_litert, in
        nowhere.
    """

    def encode(self, texts):
        """Encode texts.

        Args:
            texts: list of N strings.

        Returns:
            float32 array (N, D).

        Raises:
            ValueError: If there is no text.
        """
        return self.run(texts)
