"""Named presets for `tf-transformer train --preset`."""

import dataclasses

from tf_transformer.errors import ArgumentError
from tf_transformer.tokenizers.subwords import SUBWORDS
from tf_transformer.training.runs.model_preset import ModelPreset


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset(ModelPreset):
    """All settings of a training run other than the data.

    Args:
        name, epochs, lengths, vocab_size, num_layers, d_model, num_heads, dff, rate, architecture,
            precision: see `ModelPreset`; the vocabulary is that of both languages.
        patience: int, epochs without a lower validation loss before training stops.
        warmup_steps: int, steps until the highest learning rate.
        learning_rate_scale: float, multiplies the schedule of the paper.
        label_smoothing: float, see `SmoothedCrossentropy`.
        average_momentum: float in [0, 1), momentum of the moving average of the weights.
        tokens_per_batch: int, tokens of each side in a batch.
        seed: int, seed for the weights, the dropout and the order of the batches.
        subword: str, one of `SUBWORDS`, the subword model.
        beta_2: float in (0, 1), Adam's. Smaller batches need a larger one, with the same half-life
            in tokens (Marek et al. 2025, arXiv 2507.07101).
        r_drop: float >= 0, alpha of `RDrop`; 0 turns it off, anything else doubles the time.
        short_repeats: int, how often an epoch takes each pair whose target has at most 4 tokens.
            Greetings and other short sentences are few and are learned last. Pairs from
            `tf-transformer prepare` are taken once.

    Raises:
        ValueError: Same as for `ModelPreset`, or if the subword model is unknown,
            or `beta_2`, `r_drop` or `short_repeats` is out of range.

    Example:
        >>> PRESETS["tiny"].num_layers
        1
    """

    patience: int
    warmup_steps: int
    learning_rate_scale: float
    label_smoothing: float
    average_momentum: float
    tokens_per_batch: int
    seed: int = 1
    subword: str = "bpe"
    beta_2: float = 0.98
    r_drop: float = 0.0
    short_repeats: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.subword not in SUBWORDS:
            raise ArgumentError("subword", f"one of {', '.join(SUBWORDS)}", f"{self.subword!r}")
        for name, expected, holds in (
            ("beta_2", "a number in (0, 1)", 0 < self.beta_2 < 1),
            ("r_drop", "a number of at least 0", self.r_drop >= 0),
            ("short_repeats", "an integer of at least 1", self.short_repeats >= 1),
        ):
            if not holds:
                raise ArgumentError(name, expected, getattr(self, name))


PRESETS = {
    # Minutes on two cores: sized for the embedded corpora, the best parts of
    # benchmarks/results/scores/variants.md. A Macaron block has two networks of half the width.
    "small": Preset(
        name="small",
        vocab_size=4000,
        num_layers=2,
        d_model=128,
        num_heads=4,
        dff=256,
        rate=0.1,
        architecture={
            "positions": {"part": "RotaryPositions"},
            "feed_forward": {"part": "MacaronFeedForward"},
        },
        epochs=16,
        patience=4,
        warmup_steps=800,
        learning_rate_scale=1.0,
        label_smoothing=0.1,
        average_momentum=0.998,
        tokens_per_batch=1024,
        lengths=(8, 12, 16, 24, 48),
        short_repeats=3,  # "Hello!" is one of 27,379 pairs
    ),
    # Seconds: shows that every part works, learns almost nothing.
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
    """Return a preset by name.

    Args:
        name: str.
        presets: dict of presets, by default those of the translator.

    Returns:
        The preset.

    Raises:
        ValueError: If there is no such preset.

    Example:
        >>> get_preset("base").d_model
        512
    """
    if name not in presets:
        raise ArgumentError("preset", f"one of {', '.join(presets)}", f"{name!r}")
    return presets[name]
