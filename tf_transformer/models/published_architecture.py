"""An architecture with the sizes of a published model."""

import dataclasses

from tf_transformer.layers.architecture import Architecture

SIZES = ("num_layers", "d_model", "num_heads", "dff", "rate")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublishedArchitecture(Architecture):
    """The parts and the sizes of a published model; `architectures.get` returns them by name.

    Args:
        name: str, the key of `architectures.PUBLISHED`.
        source: str, where it was published.
        weights: int, the published number of weights, as exactly as it was published.
        vocab_size: int, the vocabulary that `weights` counts.
        num_layers, d_model, num_heads, dff: ints, see `Transformer`.
        rate: float, dropout rate.
        model_class: type, of the model.
        make: function `(published, vocab_size) -> keras.Model`.

    Example:
        >>> from tf_transformer import architectures
        >>> published = architectures.get("transformer-tiny")
        >>> published.sizes
        {'num_layers': 4, 'd_model': 128, 'num_heads': 4, 'dff': 256, 'rate': 0.3}
    """

    name: str
    source: str
    weights: int
    vocab_size: int
    num_layers: int
    d_model: int
    num_heads: int
    dff: int
    rate: float
    model_class: type
    make: object

    @property
    def sizes(self):
        """dict, the sizes besides that of the vocabulary."""
        return {name: getattr(self, name) for name in SIZES}

    def choices(self):
        """Return the parts alone, an `Architecture`."""
        names = [field.name for field in dataclasses.fields(Architecture)]
        return Architecture(**{name: getattr(self, name) for name in names})

    def to_dict(self):
        """See `Architecture`: the parts alone."""
        return self.choices().to_dict()

    def model(self, vocab_size=None):
        """Create the model, with new weights.

        Args:
            vocab_size: None for the published one, or int.

        Returns:
            A built `Transformer`, `Bert` or `LanguageModel`.

        Example:
            >>> from tf_transformer import architectures
            >>> model = architectures.get("transformer-tiny").model(vocab_size=100)
            >>> round(model.count_params(), -4)
            1340000
        """
        model = self.make(self, vocab_size or self.vocab_size)
        model.build()
        return model
