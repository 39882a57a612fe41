"""An architecture with the sizes of a published model."""

import dataclasses

from tf_transformer.layers.architecture import Architecture

SIZES = ("num_layers", "d_model", "num_heads", "dff", "rate")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class PublishedArchitecture(Architecture):
    """The parts and the sizes of a published model; `architectures.get` returns them by name."""

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
        """Create the model, with new weights."""
        model = self.make(self, vocab_size or self.vocab_size)
        model.build()
        return model
