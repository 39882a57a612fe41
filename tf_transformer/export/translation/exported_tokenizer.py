"""The tokenizer inside an exported translator."""

import tensorflow as tf


class ExportedTokenizer(tf.Module):
    """The graph functions of a loaded tokenizer, with the properties that `Translator` reads.

    A SavedModel keeps functions and variables, not Python attributes: the ids of the special tokens
    come from `special_ids`, the size of the vocabulary from the translator.
    """

    def __init__(self, loaded, vocab_size):
        super().__init__(name="exported_tokenizer")
        self._loaded = loaded  # its tables are found, and saved again, through this attribute
        self.vocab_size = vocab_size
        ids = {role: int(number) for role, number in loaded.special_ids().items()}
        self.pad_id, self.start_id, self.end_id = ids["pad"], ids["start"], ids["end"]
        # Attributes, so that a SavedModel has them under the same names.
        self.encode_strings, self.decode_ids = loaded.encode_strings, loaded.decode_ids
        self.pieces, self.special_ids = loaded.pieces, loaded.special_ids
