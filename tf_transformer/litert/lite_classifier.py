"""Classes of texts, by LiteRT."""

from tf_transformer.litert.lite_bert import LiteBert


class LiteClassifier(LiteBert):
    """A text classifier in LiteRT's format; `labels` are the names of its classes.

    Args:
        folder, threads: see `LiteModel`.

    Raises:
        See `LiteModel`.

    Example:
        >>> LiteClassifier("nowhere")
        Traceback (most recent call last):
        tf_transformer.errors.MissingFileError: folder: expected litert.json, from write_litert, in
        nowhere.
    """

    @property
    def labels(self):
        """Tuple of C strings, in the order of the answers."""
        return tuple(self.description["labels"])

    def classify(self, texts):
        """Classify texts: what the answers are, see `export.TextClassifier`.

        Args:
            texts: list of N strings.

        Returns:
            `(labels, answers)`: list of N strings, those with the largest answer; float32 array
            (N, C), probabilities or the numbers of a regression.

        Raises:
            ValueError: If there is no text.
        """
        answers = self.run(texts)
        return [self.labels[n] for n in answers.argmax(1)], answers
