"""A fake translator that converts text to upper case and records its batches."""

import tensorflow as tf


class UpperTranslator:
    """The interface used by `translate_texts` and `translate_file`; each word is a token."""

    def __init__(self, weight=1.0, fails_after=None):
        self.weights = [tf.Variable([weight])]
        self.tokenizer = self
        self.batches = []
        self.fails_after = fails_after

    def encode_strings(self, texts):
        return tf.ragged.map_flat_values(tf.strings.length, tf.strings.split(texts))

    def translate(self, texts):
        if self.fails_after is not None and len(self.batches) >= self.fails_after:
            raise KeyboardInterrupt
        self.batches.append([text.decode() for text in texts.numpy()])
        return tf.strings.upper(texts)

    def translate_beam(self, texts):
        upper = self.translate(texts)
        scores = tf.stack([tf.zeros(tf.shape(texts)), tf.fill(tf.shape(texts), -2.5)], 1)
        return {"translations": tf.stack([upper, texts], 1), "scores": scores}
