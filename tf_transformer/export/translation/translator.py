"""Tokenizer, model and decoding in one SavedModel: strings in, strings out.

Axes: B batch, S source length, L maximum target length, D model width, n size of an n-best list.
"""

import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.export.saving import save_module
from tf_transformer.export.small_batches import warm_up_signature
from tf_transformer.export.translation.id_translator import CHANCE, IdTranslator
from tf_transformer.export.warm_up_requests import warm_up_texts
from tf_transformer.generation.allowed_tokens import IMPOSSIBLE
from tf_transformer.models.vocabulary import check_vocabulary

_TEXTS = tf.TensorSpec((None,), tf.string, name="text")


class Translator(tf.Module):
    """A trained Transformer with its tokenizer, made of core TensorFlow operations.

    Saved with `save`, it loads in a process that has only TensorFlow. Sources longer than the
    model's position table are truncated. A translation has at most twice as many tokens as the
    source, including its end token, plus 10, unless `length_limit` is set. A blank text gives an
    empty translation. `warm_up(rows, length)` compiles `translate` for small batches and
    `warm_up_beam` compiles `translate_beam`, see `SmallBatches.warm_up`.

    Args:
        model: a built `Transformer` with a row for each token, or an `Ensemble` of such models,
            which has no `encode`. Ids of further rows are never chosen.
        tokenizer: a `GraphTokenizer` whose padding is the id 0, or an `ExportedTokenizer`.
        **decoding: `beam_size`, `length_penalty`, `n_best`, `min_length`, `no_repeat_ngram`,
            `length_limit`, `jit_compile` of `IdTranslator`.

    Raises:
        ValueError: If the tokenizer has more tokens than the model, its padding id is not 0, or a
            number is out of range.

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

    def __init__(self, model, tokenizer, **decoding):
        super().__init__(name="translator")
        config = model.get_config()
        check_vocabulary(model, tokenizer)
        if tokenizer.pad_id != 0:
            raise ArgumentError(
                "tokenizer",
                "the id 0 for padding, which the masks block",
                tokenizer.pad_id,
                "Train a vocabulary with this package.",
            )
        self.tokenizer = tokenizer
        ends = tokenizer.start_id, tokenizer.end_id
        self.decoding = IdTranslator(model, *ends, num_tokens=tokenizer.vocab_size, **decoding)
        self.weights = self.decoding.weights
        # Variables: a SavedModel does not restore other attributes.
        self.settings = tf.Variable(self.decoding.settings, trainable=False)
        self.num_tokens = tf.Variable(tokenizer.vocab_size, trainable=False)
        encoder = getattr(model, "encoder", None)
        self._longest_source = config["pe_input"]
        # Not a decorator, which would keep only a weak reference: `Translator(...).translate()`.
        self.translate = tf.function(self.translate, input_signature=[_TEXTS], autograph=False)
        self.translate_beam = tf.function(
            self.translate_beam, input_signature=[_TEXTS], autograph=False
        )
        self.translate_sample = tf.function(
            self.translate_sample, input_signature=[_TEXTS, *CHANCE], autograph=False
        )
        self.warm_up, self.warm_up_beam = self.decoding.warm_up, self.decoding.warm_up_beam
        self.encode = None
        if encoder is not None:  # an ensemble has one for each model
            self._encoder_call = encoder.__call__  # the method alone: see `IdTranslator`
            self.encode = tf.function(self._encode, input_signature=[_TEXTS], autograph=False)

    def translate(self, text):
        """Translate greedily: string (B,) -> string (B,)."""
        source, lengths = self._source(text)
        translations = self.tokenizer.decode_ids(self.decoding.greedy(source))
        return tf.where(tf.equal(lengths, 1), "", translations)

    def translate_beam(self, text):
        """Translate with `beam_search`: string (B,) -> `translations` string (B, n), the best
        first, and their `scores` float32 (B, n); "" and -inf where there are fewer. A blank text
        has one translation, the empty one, with score 0.
        """
        source, lengths = self._source(text)
        ids, scores = self.decoding.beam(source)
        rows = tf.reshape(ids, (-1, tf.shape(ids)[2]))
        translations = tf.reshape(self.tokenizer.decode_ids(rows), tf.shape(scores))
        blank = tf.expand_dims(tf.equal(lengths, 1), 1)
        certain = tf.where(tf.range(tf.shape(scores)[1]) == 0, 0.0, IMPOSSIBLE)
        return {
            "translations": tf.where(blank, "", translations),
            "scores": tf.where(blank, certain, scores),
        }

    def translate_sample(self, text, seed, temperature, top_k, top_p):
        """Translate with `sample_decode`: string (B,) -> string (B,); see `IdTranslator.sample`."""
        source, lengths = self._source(text)
        ids = self.decoding.sample(source, seed, temperature, top_k, top_p)
        return tf.where(tf.equal(lengths, 1), "", self.tokenizer.decode_ids(ids))

    def _encode(self, text):
        """Run the encoder: string (B,) -> `ids` int32 (B, S), `vectors` float (B, S, D)."""
        source, _ = self._source(text)
        padding = tf.equal(source, 0)[:, tf.newaxis, tf.newaxis, :]
        vectors = self._encoder_call(source, training=False, mask=tf.logical_not(padding))
        return {"ids": source, "vectors": vectors}

    def _source(self, text):
        ids = self.tokenizer.encode_strings(text)[:, : self._longest_source - 1]
        ends = tf.fill((tf.shape(text)[0], 1), self.tokenizer.end_id)
        ids = tf.concat([ids, ends], axis=1)  # ragged (B, (S))
        return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32)

    def save(self, path):
        """Write a SavedModel with the signatures `serving_default`, `translate`, `translate_beam`,
        `translate_sample`, `warm_up`, `warm_up_beam` and, except for an ensemble, `encode`, and
        requests with which TensorFlow Serving warms it up.

        Args:
            path: str or Path of a folder; a SavedModel there is replaced at the end.

        Raises:
            FileExistsError: If the folder holds something else.
            OSError: If the disk is full or the folder cannot be written.
        """
        translate = tf.function(
            lambda text: {"translation": self.translate(text)}, input_signature=[_TEXTS]
        )
        sample = tf.function(
            lambda *inputs: {"translation": self.translate_sample(*inputs)},
            input_signature=[_TEXTS, *CHANCE],
        )
        signatures = {
            "serving_default": translate,
            "translate": translate,
            "translate_beam": self.translate_beam,
            "translate_sample": sample,
            "warm_up": warm_up_signature(self.warm_up),
            "warm_up_beam": warm_up_signature(self.warm_up_beam),
        }
        if self.encode is not None:
            signatures["encode"] = self.encode
        save_module(self, path, signatures, warm_up_texts(self._longest_source))
