"""Named presets for `tf-transformer pretrain --preset`."""

import dataclasses

from tf_transformer.errors import ArgumentError
from tf_transformer.training.runs.base_preset import BasePreset


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingPreset(BasePreset):
    """All settings of a pretraining run other than the texts.

    Args:
        name, epochs, lengths: see `BasePreset`.
        vocab_size: int, size of the vocabulary, if one is trained.
        num_hidden_layers, hidden_size, num_attention_heads, intermediate_size: see `BertConfig`.
        dropout: float in [0, 1), for embeddings, sublayers and attention weights.
        peak_learning_rate: float, see `WarmUpLinearDecay`.
        warmup_share: float in [0, 1), the share of all steps used for warm-up.
        weight_decay: float, for all weights except biases and layer normalization.
        tokens_per_batch: int, including padding.
        validation_share: float in (0, 1), the share of the documents that is held out.
        mask_rate: float in (0, 1), the share of the tokens to mask.
        whole_words: bool, whether to mask whole words.
        next_sentence: bool, or None to enable it if most sentences are not alone in their document.
        lowercase: bool, "uncased": removes case and accents.
        seed: int, seed for the weights, the dropout, the masks and the order of the batches.

    Example:
        >>> PRETRAINING_PRESETS["tiny"].num_hidden_layers
        1
    """

    vocab_size: int
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    dropout: float
    peak_learning_rate: float
    tokens_per_batch: int
    validation_share: float
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    mask_rate: float = 0.15
    whole_words: bool = False
    next_sentence: bool | None = None
    lowercase: bool = True
    seed: int = 1

    def __post_init__(self):
        super().__post_init__()
        for name, expected, holds in (
            ("peak_learning_rate", "a positive number", self.peak_learning_rate > 0),
            ("mask_rate", "a number in (0, 1)", 0 < self.mask_rate < 1),
            ("dropout", "a number in [0, 1)", 0 <= self.dropout < 1),
        ):
            if not holds:
                raise ArgumentError(name, expected, getattr(self, name))


PRETRAINING_PRESETS = {
    # Minutes on two cores: sized for the embedded corpus or some megabytes of text.
    "small": PretrainingPreset(
        name="small",
        vocab_size=6000,
        num_hidden_layers=2,
        hidden_size=128,
        num_attention_heads=4,
        intermediate_size=512,
        dropout=0.1,
        epochs=20,
        peak_learning_rate=2e-3,
        tokens_per_batch=2048,
        lengths=(10, 14, 20, 32, 64),
        validation_share=0.03,
    ),
    # Seconds: shows that every part works, learns almost nothing.
    "tiny": PretrainingPreset(
        name="tiny",
        vocab_size=400,
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        dropout=0.1,
        epochs=1,
        peak_learning_rate=2e-3,
        tokens_per_batch=4096,
        lengths=(16, 64),
        validation_share=0.1,
    ),
}
