"""Decoding with several models as one."""

import tensorflow as tf

from tf_transformer.errors import ArgumentError

# In the configs of `Transformer` and `LanguageModel`.
_VOCABULARIES = ("input_vocab_size", "target_vocab_size", "vocab_size", "pad_id")
_POSITIONS = ("pe_input", "pe_target", "max_position")


class Ensemble:
    """The mean of several models' probabilities, for every kind of decoding.

    p(y_t | y_<t, x) = 1/M sum_m p_m(y_t | y_<t, x), M models with the same vocabularies: Sutskever
    et al. 2014, section 3.6. An ensemble of translators can replace a `Transformer` in decoding, as
    in `Translator`; an ensemble of language models, a `LanguageModel`, as in `continue_texts`.
    Decoding takes M times the work of one model.

    Args:
        models: list of built models with `start`, `step`, `reorder` and `resize`, either all
            translators, such as `Transformer`, or all language models.

    Raises:
        ValueError: If there are no models, or their vocabularies differ in size.

    Example:
        >>> from tf_transformer import Transformer
        >>> models = [Transformer(1, 8, 2, 16, 11, 11, pe_input=9, pe_target=9) for _ in range(2)]
        >>> for model in models:
        ...     model.build()
        >>> ensemble = Ensemble(models)
        >>> state = ensemble.start(tf.constant([[5, 6, 2]]), max_length=4)
        >>> log_p, state = ensemble.step(tf.constant([1]), state)
        >>> log_p.shape.as_list()
        [1, 11]
    """

    def __init__(self, models):
        self.models = list(models)
        sizes = [_present(model.get_config(), _VOCABULARIES) for model in self.models]
        if not sizes or any(other != sizes[0] for other in sizes):
            expected = "one or more with vocabularies of the same size, which read the same ids"
            raise ArgumentError("models", expected, sizes)

    @property
    def weights(self):
        """The weights of all models."""
        return [weight for model in self.models for weight in model.weights]

    def get_config(self):
        """The configs of the `models`, their vocabularies, and the positions that all support."""
        configs = [model.get_config() for model in self.models]
        positions = [_present(config, _POSITIONS) for config in configs]
        return {
            "models": configs,
            **_present(configs[0], _VOCABULARIES),
            **{name: min(one[name] for one in positions) for name in positions[0]},
        }

    def start(self, inp, max_length, beam_size=1):
        """The states of all models before the first step; see the models' `start`."""
        return [model.start(inp, max_length, beam_size) for model in self.models]

    def prefill(self, state, start_ids):
        """See `LanguageModel.prefill`."""
        return self._each("prefill", state, start_ids)

    def step(self, tokens, state):
        """See `Transformer.step`; the logits are log probabilities, float32 (B * K, V)."""
        results = [model.step(tokens, own) for model, own in zip(self.models, state, strict=True)]
        log_p = [tf.nn.log_softmax(tf.cast(logits, tf.float32)) for logits, _ in results]
        mean = tf.reduce_logsumexp(log_p, axis=0) - tf.math.log(float(len(log_p)))
        return mean, [own for _, own in results]

    def reorder(self, state, rows):
        """See `Transformer.reorder`."""
        return self._each("reorder", state, rows)

    def resize(self, state, kept, room):
        """See `Transformer.resize`."""
        return self._each("resize", state, kept, room)

    def _each(self, name, state, *arguments):
        pairs = zip(self.models, state, strict=True)
        return [getattr(model, name)(own, *arguments) for model, own in pairs]


def _present(config, names):
    return {name: config[name] for name in names if name in config}
