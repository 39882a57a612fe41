"""Named sizes: what `tf-transformer train --preset` chooses between."""

import dataclasses

from tf_transformer.training.runs.base_preset import BasePreset

SUBWORDS = ("bpe", "wordpiece", "unigram")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset(BasePreset):
    """Everything that decides a training run but the data.

    Args:
        name, epochs, lengths: as of `BasePreset`.
        vocab_size: int, tokens of the joint vocabulary.
        num_layers, d_model, num_heads, dff, rate: of `Transformer`.
        patience: int, epochs without a lower validation loss that end the training.
        warmup_steps: int, steps until the highest learning rate.
        learning_rate_scale: float, multiplies the schedule of the paper.
        label_smoothing: float, of `SmoothedCrossentropy`.
        average_momentum: float in [0, 1), of the moving average of the weights.
        tokens_per_batch: int, tokens of each side in a batch.
        seed: int, of the weights, the dropout and the order of the batches.
        subword: str, one of `SUBWORDS`, the model that cuts words.

    Raises:
        ValueError: as `BasePreset`, or a subword model that is none.

    Example:
        >>> PRESETS["tiny"].num_layers
        1
    """

    vocab_size: int
    num_layers: int
    d_model: int
    num_heads: int
    dff: int
    rate: float
    patience: int
    warmup_steps: int
    learning_rate_scale: float
    label_smoothing: float
    average_momentum: float
    tokens_per_batch: int
    seed: int = 1
    subword: str = "bpe"

    def __post_init__(self):
        super().__post_init__()
        if self.subword not in SUBWORDS:
            raise ValueError(
                f"subword: expected one of {', '.join(SUBWORDS)}, got {self.subword!r}."
            )


PRESETS = {
    # Minutes on two cores: what the embedded corpora can teach.
    "small": Preset(
        name="small",
        vocab_size=4000,
        num_layers=2,
        d_model=128,
        num_heads=4,
        dff=512,
        rate=0.1,
        epochs=18,
        patience=4,
        warmup_steps=800,
        learning_rate_scale=1.0,
        label_smoothing=0.1,
        average_momentum=0.998,
        tokens_per_batch=1024,
        lengths=(8, 12, 16, 24, 48),
    ),
    # Seconds: proves that every part works, learns next to nothing.
    "tiny": Preset(
        name="tiny",
        vocab_size=400,
        num_layers=1,
        d_model=32,
        num_heads=2,
        dff=64,
        rate=0.1,
        epochs=1,
        patience=1,
        warmup_steps=100,
        learning_rate_scale=1.0,
        label_smoothing=0.1,
        average_momentum=0.9,
        tokens_per_batch=4096,
        lengths=(16, 32, 96),
    ),
    # The base model of the paper, table 3: for large corpora and an accelerator.
    "base": Preset(
        name="base",
        vocab_size=37000,
        num_layers=6,
        d_model=512,
        num_heads=8,
        dff=2048,
        rate=0.1,
        epochs=20,
        patience=4,
        warmup_steps=4000,
        learning_rate_scale=1.0,
        label_smoothing=0.1,
        average_momentum=0.999,
        tokens_per_batch=25000,
        lengths=(16, 32, 64, 128),
    ),
}


def get_preset(name, presets=PRESETS):
    """Find a preset by its name.

    Args:
        name: str.
        presets: dict of the presets, those of the translator by default.

    Returns:
        The preset.

    Raises:
        ValueError: no such preset.

    Example:
        >>> get_preset("base").d_model
        512
    """
    if name not in presets:
        raise ValueError(f"preset: expected one of {', '.join(presets)}, got {name!r}.")
    return presets[name]
