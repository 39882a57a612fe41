"""Base class of the presets whose models take an architecture."""

import dataclasses

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.fewest_weights import check_sizes
from tf_transformer.training.runs.base_preset import BasePreset
from tf_transformer.training.runs.precision import PRECISIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPreset(BasePreset):
    """Settings of a training run with the sizes of its model."""

    vocab_size: int
    num_layers: int | list
    d_model: int
    num_heads: int
    dff: int
    rate: float
    architecture: dict | None = None
    precision: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        if self.precision not in PRECISIONS:
            raise ArgumentError(
                "precision", f"one of {', '.join(PRECISIONS)}", f"{self.precision!r}"
            )
        sizes = (self.vocab_size, self.d_model, self.num_heads, self.dff, *self._layers)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ArgumentError(
                "vocab_size, d_model, num_heads, dff, num_layers", "positive ints", sizes
            )
        if self.architecture is not None:  # with every setting, those of defaults too
            object.__setattr__(self, "architecture", self.new_architecture().to_dict())

    @property
    def _layers(self):
        return (self.num_layers,) if isinstance(self.num_layers, int) else tuple(self.num_layers)

    def check_sizes(self, path, vocab_size):
        """Refuse sizes far beyond the weights in a file; see `fewest_weights.check_sizes`."""
        parts = self.new_architecture() or Architecture()
        layers = [(parts.num_groups or count, self.num_heads, self.dff) for count in self._layers]
        check_sizes(
            path.with_name("run.json"),
            path.stat().st_size // 4,
            vocab_size * (parts.embedding_size or self.d_model),
            self.d_model,
            parts.key_dim or self.d_model // self.num_heads,
            layers,
            parts,
        )

    def new_architecture(self):
        """The parts of the model."""
        return None if self.architecture is None else Architecture.from_dict(self.architecture)
