"""Training settings and tables of presets."""

import dataclasses

from tf_transformer.errors import ArgumentError, check_choice, check_ranges
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.base_model import check_sizes
from tf_transformer.tokenizers.models import SUBWORDS

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
_LONGEST = 1_000_000
# What is expected of a number, whether one is that, and the settings for which it must hold.
_RANGES = (
    (
        "at least 1",
        lambda x: x >= 1,
        "accumulate batch_size d_model dff epochs hidden_size intermediate_size num_heads "
        "num_attention_heads num_hidden_layers short_repeats tokens_per_batch vocab_size",
    ),
    ("a positive number", lambda x: x > 0, "learning_rate peak_learning_rate"),
    ("a number of at least 0", lambda x: x >= 0, "weight_decay r_drop"),
    ("a number in (0, 1)", lambda x: 0 < x < 1, "beta_2 mask_rate"),
    ("a number in [0, 1)", lambda x: 0 <= x < 1, "dropout rate"),
    ("a number in [0, 1]", lambda x: 0 <= x <= 1, "warmup_share"),
    ("a number in (0, 1]", lambda x: 0 < x <= 1, "layer_decay"),
    ("at least 3, of which 2 are [CLS] and [SEP]", lambda x: x >= 3, "max_length"),
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Immutable training settings, checked when created."""

    def __post_init__(self):
        check_ranges(self, _RANGES)
        for name, choices in (("precision", PRECISIONS), ("subword", SUBWORDS)):
            if hasattr(self, name):
                check_choice(name, getattr(self, name), choices)

    def with_changes(self, changes):
        """Return a checked copy with the fields in a dict changed; values of None are ignored."""
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BasePreset(Settings):
    """The fields that all presets share; see `Preset`."""

    name: str
    vocab_size: int
    epochs: int
    lengths: tuple
    tokens_per_batch: int
    patience: int | None = None
    seed: int = 1
    accumulate: int = 1
    precision: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "lengths", tuple(self.lengths))  # JSON gives a list
        if (
            not self.lengths
            or not all(isinstance(length, int) for length in self.lengths)
            or list(self.lengths) != sorted(set(self.lengths))
            or not 1 <= self.lengths[0] <= self.lengths[-1] <= _LONGEST
        ):
            raise ArgumentError("lengths", f"increasing ints from 1 to {_LONGEST:,}", self.lengths)

    @property
    def batching(self):
        """The settings that the batches of all runs have."""
        return {name: getattr(self, name) for name in ("lengths", "tokens_per_batch", "seed")}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPreset(BasePreset):
    """The fields that presets of translators and language models share; see `Preset`."""

    num_layers: int | list
    d_model: int
    num_heads: int
    dff: int
    rate: float
    architecture: dict | None = None

    def __post_init__(self):
        super().__post_init__()
        if not all(isinstance(count, int) and count > 0 for count in self._layers):
            raise ArgumentError("num_layers", "positive ints", f"{self.num_layers!r}")
        if self.architecture is not None:  # with every setting, those of defaults too
            object.__setattr__(self, "architecture", self.new_architecture().to_dict())

    @property
    def _layers(self):
        return (self.num_layers,) if isinstance(self.num_layers, int) else tuple(self.num_layers)

    def check_sizes(self, path, vocab_size):
        """Refuse sizes far beyond the weights in a file; see `models.base_model.check_sizes`."""
        parts = self.new_architecture() or Architecture()
        layers = [(parts.num_groups or count, self.num_heads, self.dff) for count in self._layers]
        source, weights = path.with_name("run.json"), path.stat().st_size // 4
        embeddings = vocab_size * (parts.embedding_size or self.d_model)
        key_dim = parts.key_dim or self.d_model // self.num_heads
        check_sizes(source, weights, embeddings, self.d_model, key_dim, layers, parts)

    def new_architecture(self):
        """Return the `Architecture` of the model, or None for the paper's."""
        return None if self.architecture is None else Architecture.from_dict(self.architecture)

    def new_model(self, model_class, *vocab_sizes, **settings):
        """Create a model with the sizes of the preset."""
        sizes = (self.num_layers, self.d_model, self.num_heads, self.dff, *vocab_sizes)
        settings |= {"rate": self.rate, "architecture": self.new_architecture()}
        model = model_class(*sizes, **settings)
        model.build()
        return model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preset(ModelPreset):
    """All settings of a training run of a translator other than the data.

    Args:
        name: str, the name of the preset.
        vocab_size: int, size of the vocabulary, if one is trained; here shared by both languages.
        epochs: int, the maximum number of passes over the data.
        lengths: ints, the bucket lengths; the last one is the maximum text length.
        tokens_per_batch: int, tokens in a batch, including padding; here of each side.
        patience: int, epochs without a lower validation loss before training stops, or None.
        seed: int, seed for the weights, the dropout and the order of the batches.
        accumulate: int, the parts in which the gradient of a batch is computed, to save memory; see
            `accumulate_gradients`.
        precision: str, one of `PRECISIONS`, the Keras dtype policy of training; the trained weights
            are float32 in all. mixed_bfloat16 is for accelerators and processors with AMX,
            mixed_float16 for GPUs without bfloat16: it needs a loss scale, see `GlobalLossScale`.
        num_layers, d_model, num_heads, dff, rate: see `Transformer`.
        architecture: None for the paper's, or the result of `Architecture.to_dict`.
        warmup_steps: int, steps until the highest learning rate.
        learning_rate_scale: float, multiplies the schedule of the paper.
        label_smoothing: float, see `SmoothedCrossentropy`.
        average_momentum: float in [0, 1), momentum of the moving average of the weights.
        subword: str, one of `SUBWORDS`, the subword model.
        beta_2: float in (0, 1), Adam's. Smaller batches need a larger one, with the same half-life
            in tokens (Marek et al. 2025, arXiv 2507.07101).
        r_drop: float >= 0, alpha of `RDrop`; 0 turns it off, anything else doubles the time.
        short_repeats: int, how often an epoch takes each pair whose target has at most 4 tokens.
            Greetings and other short sentences are few and are learned last. Pairs from
            `tf-transformer prepare` are taken once.

    Raises:
        ValueError: If a field is of another type or out of range, the lengths do not increase, or
            the subword model, the precision or a part of the architecture is unknown.

    Example:
        >>> PRESETS["tiny"].with_changes({"epochs": 3, "seed": None}).epochs
        3
    """

    warmup_steps: int
    learning_rate_scale: float
    label_smoothing: float
    average_momentum: float
    subword: str = "bpe"
    beta_2: float = 0.98
    r_drop: float = 0.0
    short_repeats: int = 1


# In each preset the sizes, the data and the schedule stand together.
PRESETS = {
    # Minutes on two cores: sized for the included corpora, the best parts of
    # benchmarks/results/scores/variants.md. A Macaron block has two networks of half the width.
    "small": Preset(
        name="small", vocab_size=4000, num_layers=2, d_model=128, num_heads=4, dff=256, rate=0.1,
        architecture={
            "positions": {"part": "RotaryPositions"},
            "feed_forward": {"part": "MacaronFeedForward"},
        },
        tokens_per_batch=1024, lengths=(8, 12, 16, 24, 48),
        short_repeats=3,  # "Hello!" is one of 27,379 pairs
        epochs=16, patience=4, warmup_steps=800, learning_rate_scale=1.0, label_smoothing=0.1,
        average_momentum=0.998,
    ),
    # Seconds: shows that every part works, learns almost nothing.
    "tiny": Preset(
        name="tiny", vocab_size=400, num_layers=1, d_model=32, num_heads=2, dff=64, rate=0.1,
        tokens_per_batch=4096, lengths=(16, 32, 96),
        epochs=1, patience=1, warmup_steps=100, learning_rate_scale=1.0, label_smoothing=0.1,
        average_momentum=0.9,
    ),
    # The base model of the paper, table 3: for large corpora and an accelerator.
    "base": Preset(
        name="base", vocab_size=37000, num_layers=6, d_model=512, num_heads=8, dff=2048, rate=0.1,
        tokens_per_batch=25000, lengths=(16, 32, 64, 128),
        epochs=20, patience=4, warmup_steps=4000, learning_rate_scale=1.0, label_smoothing=0.1,
        average_momentum=0.999,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelPreset(ModelPreset):
    """All settings of a run of a language model other than the texts; for errors, see `Preset`.

    Args:
        name, vocab_size, epochs, lengths, tokens_per_batch, patience, seed, accumulate, precision,
            architecture: see `Preset`; longer texts are cut.
        num_layers, d_model, num_heads, dff, rate: see `LanguageModel`.
        peak_learning_rate, validation_share, warmup_share, weight_decay: see `PretrainingPreset`.

    Example:
        >>> LANGUAGE_MODEL_PRESETS["tiny"].num_layers
        1
    """

    num_layers: int
    peak_learning_rate: float
    validation_share: float
    warmup_share: float = 0.1
    weight_decay: float = 0.01


LANGUAGE_MODEL_PRESETS = {
    # Minutes on two cores: sized for the included corpora or some megabytes of text.
    "small": LanguageModelPreset(
        name="small", vocab_size=4000, num_layers=2, d_model=128, num_heads=4, dff=512, rate=0.1,
        tokens_per_batch=1024, lengths=(8, 12, 16, 24, 48, 128), validation_share=0.03,
        epochs=10, patience=3, peak_learning_rate=2e-3,
    ),
    # Seconds: shows that every part works, learns almost nothing.
    "tiny": LanguageModelPreset(
        name="tiny", vocab_size=400, num_layers=1, d_model=32, num_heads=2, dff=64, rate=0.1,
        tokens_per_batch=2048, lengths=(16, 64), validation_share=0.1,
        epochs=1, patience=1, peak_learning_rate=5e-3,
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingPreset(BasePreset):
    """All settings of a pretraining run other than the texts; for errors, see `Preset`.

    Args:
        name, vocab_size, epochs, lengths, tokens_per_batch, patience, seed, accumulate, precision:
            see `Preset`; the seed also determines the masks.
        num_hidden_layers, hidden_size, num_attention_heads, intermediate_size: see `BertConfig`.
        dropout: float in [0, 1), for embeddings, sublayers and attention weights.
        peak_learning_rate: float, see `WarmUpLinearDecay`.
        validation_share: float in (0, 1), the share of the documents that is held out.
        warmup_share: float in [0, 1], the share of all steps used for warm-up.
        weight_decay: float, for all weights except biases and normalization.
        mask_rate: float in (0, 1), the share of the tokens to mask.
        whole_words: bool, whether to mask whole words.
        next_sentence: bool, or None to enable it if most sentences are not alone in their document.
        lowercase: bool, "uncased": removes case and accents.

    Example:
        >>> PRETRAINING_PRESETS["tiny"].num_hidden_layers
        1
    """

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    dropout: float
    peak_learning_rate: float
    validation_share: float
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    mask_rate: float = 0.15
    whole_words: bool = False
    next_sentence: bool | None = None
    lowercase: bool = True

    def check_sizes(self, path, vocab_size):
        """Refuse sizes far beyond the weights in a file; see `models.base_model.check_sizes`."""
        heads, width = self.num_attention_heads, self.hidden_size
        layers = [(self.num_hidden_layers, heads, self.intermediate_size)]
        source, weights = path.with_name("run.json"), path.stat().st_size // 4
        check_sizes(source, weights, vocab_size * width, width, width // heads, layers)


PRETRAINING_PRESETS = {
    # Minutes on two cores: sized for the included corpus or some megabytes of text.
    "small": PretrainingPreset(
        name="small", vocab_size=6000, num_hidden_layers=2, hidden_size=128,
        num_attention_heads=4, intermediate_size=512, dropout=0.1,
        tokens_per_batch=2048, lengths=(10, 14, 20, 32, 64), validation_share=0.03,
        epochs=20, peak_learning_rate=2e-3,
    ),
    # Seconds: shows that every part works, learns almost nothing.
    "tiny": PretrainingPreset(
        name="tiny", vocab_size=400, num_hidden_layers=1, hidden_size=32,
        num_attention_heads=2, intermediate_size=64, dropout=0.1,
        tokens_per_batch=4096, lengths=(16, 64), validation_share=0.1,
        epochs=1, peak_learning_rate=2e-3,
    ),
}  # fmt: skip


def get_preset(name, presets=PRESETS):
    """Return a preset by its name in a dict, by default the translators'; or raise a ValueError.

    Example:
        >>> get_preset("base").d_model
        512
    """
    check_choice("preset", name, presets)
    return presets[name]
