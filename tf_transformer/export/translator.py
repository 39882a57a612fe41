"""Strings in, strings out: tokenizer, model and decoding in one SavedModel.

Axes: B batch, S source length, L most target tokens, D model width, n translations of a text.
"""

import tensorflow as tf

from tf_transformer.data.replacing import replacing
from tf_transformer.generation import beam_search, greedy_decode
from tf_transformer.generation.checks import check_range

_TEXTS = tf.TensorSpec((None,), tf.string, name="text")


class Translator(tf.Module):
    """A trained Transformer with its tokenizer, made of core TensorFlow operations only.

    Saved with `save`, it loads in a process that knows nothing but TensorFlow. Sources longer
    than the model's table of positions are cut there; a translation ends after twice the
    source's tokens plus 10 at the latest. A blank text gives an empty one.

    Args:
        model: a built `Transformer` whose vocabularies are the tokenizer's.
        tokenizer: a `GraphTokenizer` whose padding is the id 0.
        beam_size: int, the beams of `translate_beam`.
        length_penalty: float, see `beam_search`.
        n_best: int, 1 to `beam_size`, the translations that `translate_beam` gives of each text.

    Raises:
        ValueError: the vocabulary of the model is not the tokenizer's, or its padding is not 0; a
            number out of range.

    Example:
        >>> import tempfile
        >>> from tf_transformer import BPETokenizer, GraphBPE, Transformer
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> BPETokenizer.train(["hello world"], vocab_size=300).save(path)
        >>> tokenizer = GraphBPE.from_file(path)
        >>> size = tokenizer.vocab_size
        >>> model = Transformer(1, 8, 2, 16, size, size, pe_input=16, pe_target=16)
        >>> model.build()
        >>> translator = Translator(model, tokenizer)
        >>> translator.translate(tf.constant([""])).numpy().tolist()
        [b'']
    """

    def __init__(self, model, tokenizer, *, beam_size=5, length_penalty=0.6, n_best=1):
        super().__init__(name="translator")
        check_range("beam_size", beam_size, 1)
        check_range("length_penalty", length_penalty, 0)
        check_range("n_best", n_best, 1, beam_size)
        self._beam = {"beam_size": beam_size, "length_penalty": length_penalty, "n_best": n_best}
        config = model.get_config()
        sizes = {config["input_vocab_size"], config["target_vocab_size"]}
        if sizes != {tokenizer.vocab_size}:
            raise ValueError(
                f"tokenizer: expected {sorted(sizes)} tokens, as the model has, got "
                f"{tokenizer.vocab_size}. Use the tokenizer that the model was trained with."
            )
        if tokenizer.pad_id != 0:
            raise ValueError(
                f"tokenizer: expected the id 0 for padding, as the masks take it, got "
                f"{tokenizer.pad_id}. Train a vocabulary with this package."
            )
        self.tokenizer = tokenizer
        # Only the variables are tracked, and of the model only methods are kept: a Keras layer
        # held here would have its weights saved a second time.
        self.weights = [weight.value for weight in model.weights]
        self._encode, self._start, self._step = model.encoder.__call__, model.start, model.step
        self._reorder = model.reorder
        self._longest_source = config["pe_input"]
        self._longest_target = config["pe_target"]
        # Not by decoration, which holds the object weakly: `Translator(...).translate(texts)`.
        self.translate = tf.function(self.translate, input_signature=[_TEXTS], autograph=False)
        self.translate_beam = tf.function(
            self.translate_beam, input_signature=[_TEXTS], autograph=False
        )
        self.encode = tf.function(self.encode, input_signature=[_TEXTS], autograph=False)

    def translate(self, text):
        """Translate greedily: string (B,) -> string (B,)."""
        source, lengths = self._source(text)
        bounds = self._bounds(lengths)
        ids = greedy_decode(
            self._step,
            self._start(source, bounds["max_length"]),
            tf.shape(source)[0],
            **bounds,
        )
        return tf.where(tf.equal(lengths, 1), "", self.tokenizer.decode_ids(ids))

    def translate_beam(self, text):
        """Translate by `beam_search`: string (B,) -> `translations` string (B, n), the best first,
        and their `scores` float32 (B, n); "" and -inf where there are fewer.
        """
        source, lengths = self._source(text)
        bounds = self._bounds(lengths)
        ids, scores = beam_search(
            self._step,
            self._start(source, bounds["max_length"], self._beam["beam_size"]),
            tf.shape(source)[0],
            reorder=self._reorder,
            **bounds,
            **self._beam,
        )
        rows = tf.reshape(ids, (-1, bounds["max_length"]))
        translations = tf.reshape(self.tokenizer.decode_ids(rows), tf.shape(scores))
        blank = tf.expand_dims(tf.equal(lengths, 1), 1)
        return {"translations": tf.where(blank, "", translations), "scores": scores}

    def _bounds(self, lengths):
        # A sentence's own limit, not the batch's: what a row becomes must not hang on the others.
        limits = tf.minimum(2 * lengths + 10, self._longest_target)  # (B,)
        return {
            "start_id": self.tokenizer.start_id,
            "end_id": self.tokenizer.end_id,
            "limits": limits,
            "max_length": tf.reduce_max(tf.concat([limits, [1]], axis=0)),
        }

    def encode(self, text):
        """Run the encoder: string (B,) -> `ids` int32 (B, S), `vectors` float (B, S, D)."""
        source, _ = self._source(text)
        padding = tf.equal(source, 0)[:, tf.newaxis, tf.newaxis, :]
        vectors = self._encode(source, training=False, mask=tf.logical_not(padding))
        return {"ids": source, "vectors": vectors}

    def _source(self, text):
        ids = self.tokenizer.encode_strings(text)[:, : self._longest_source - 1]
        ends = tf.fill((tf.shape(text)[0], 1), self.tokenizer.end_id)
        ids = tf.concat([ids, ends], axis=1)  # ragged (B, (S))
        return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32)

    def save(self, path):
        """Write a SavedModel with the signatures `serving_default`, `translate`, `translate_beam`
        and `encode`.

        Args:
            path: str or Path of a folder; a SavedModel there is replaced once the new one is whole.

        Raises:
            FileExistsError: the folder holds something else.
            OSError: the disk is full or the folder cannot be written.
        """
        translate = tf.function(
            lambda text: {"translation": self.translate(text)}, input_signature=[_TEXTS]
        )
        with replacing(path, only_with="saved_model.pb") as beside:
            tf.saved_model.save(
                self,
                str(beside),
                signatures={
                    "serving_default": translate,
                    "translate": translate,
                    "translate_beam": self.translate_beam,
                    "encode": self.encode,
                },
            )
