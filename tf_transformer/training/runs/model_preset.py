"""Base class of the presets whose models take an architecture."""

import dataclasses

from tf_transformer.layers.architecture import Architecture
from tf_transformer.training.runs.base_preset import BasePreset


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPreset(BasePreset):
    """Settings of a training run with the sizes of its model.

    Args:
        name, epochs, lengths: see `BasePreset`.
        vocab_size: int, size of the vocabulary.
        num_layers, d_model, num_heads, dff, rate: see `Transformer`.
        architecture: None for that of the paper, or what `Architecture.to_dict` returns.

    Raises:
        ValueError: Same as for `BasePreset`, or if a part is unknown.

    Example:
        >>> sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "dff": 16, "rate": 0.1}
        >>> parts = {"residual": {"part": "PreNorm"}}
        >>> preset = ModelPreset(
        ...     name="mine", epochs=1, lengths=[8], vocab_size=300, architecture=parts, **sizes
        ... )
        >>> preset.architecture["residual"]
        {'part': 'PreNorm'}
    """

    vocab_size: int
    num_layers: int | list
    d_model: int
    num_heads: int
    dff: int
    rate: float
    architecture: dict | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.architecture is not None:  # with every setting, those of defaults too
            object.__setattr__(self, "architecture", self.new_architecture().to_dict())

    def new_architecture(self):
        """The parts of the model.

        Returns:
            None for those of the paper, or `Architecture`.
        """
        return None if self.architecture is None else Architecture.from_dict(self.architecture)
