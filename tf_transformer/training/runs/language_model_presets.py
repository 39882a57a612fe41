"""Named presets for `tf-transformer train-lm --preset`."""

import dataclasses

from tf_transformer.errors import ArgumentError
from tf_transformer.training.runs.model_preset import ModelPreset


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelPreset(ModelPreset):
    """All settings of a training run of a language model other than the texts.

    Args:
        name, epochs, lengths, vocab_size, num_layers, d_model, num_heads, dff, rate, architecture,
            precision: see `ModelPreset`; longer texts are cut.
        patience: int, epochs without a lower validation loss before training stops.
        peak_learning_rate: float, see `WarmUpLinearDecay`.
        warmup_share: float in [0, 1), the share of all steps used for warm-up.
        weight_decay: float, for all weights except biases and normalization.
        tokens_per_batch: int, including padding.
        validation_share: float in (0, 1), the share of the documents that is held out.
        seed: int, seed for the weights, the dropout and the order of the batches.

    Raises:
        ValueError: Same as for `ModelPreset`, or if the learning rate is not positive.

    Example:
        >>> LANGUAGE_MODEL_PRESETS["tiny"].num_layers
        1
    """

    patience: int
    peak_learning_rate: float
    tokens_per_batch: int
    validation_share: float
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    seed: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.peak_learning_rate <= 0:
            raise ArgumentError("peak_learning_rate", "a positive number", self.peak_learning_rate)


LANGUAGE_MODEL_PRESETS = {
    # Minutes on two cores: sized for the embedded corpora or some megabytes of text.
    "small": LanguageModelPreset(
        name="small",
        vocab_size=4000,
        num_layers=2,
        d_model=128,
        num_heads=4,
        dff=512,
        rate=0.1,
        epochs=10,
        patience=3,
        peak_learning_rate=2e-3,
        tokens_per_batch=1024,
        lengths=(8, 12, 16, 24, 48, 128),
        validation_share=0.03,
    ),
    # Seconds: shows that every part works, learns almost nothing.
    "tiny": LanguageModelPreset(
        name="tiny",
        vocab_size=400,
        num_layers=1,
        d_model=32,
        num_heads=2,
        dff=64,
        rate=0.1,
        epochs=1,
        patience=1,
        peak_learning_rate=5e-3,
        tokens_per_batch=2048,
        lengths=(16, 64),
        validation_share=0.1,
    ),
}
