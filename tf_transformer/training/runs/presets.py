"""Presets: the sizes and settings of a run."""

import dataclasses
import typing

from tf_transformer.errors import ArgumentError, check_fields
from tf_transformer.layers.architecture import Architecture
from tf_transformer.models.sizes import check_sizes
from tf_transformer.tokenizers.subwords import SUBWORDS
from tf_transformer.training.runs.run_settings import PRECISIONS

_LONGEST = 1_000_000


@dataclasses.dataclass(frozen=True)
class BasePreset:
    """Settings of a training run.

    Args:
        name: str, the name of the preset.
        epochs: int, the maximum number of passes over the data.
        lengths: ints, the bucket lengths; the last one is the maximum text length.
        accumulate: int, the parts in which the gradient of a batch is computed, to save memory; see
            `accumulate_gradients`.

    Raises:
        ValueError: If a field is of another type, the number of epochs or parts is below 1 or the
            lengths do not increase.

    Example:
        >>> BasePreset("mine", epochs=3, lengths=[8, 16]).lengths
        (8, 16)
    """

    name: str
    epochs: int
    lengths: tuple
    accumulate: int = 1

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        for name in ("epochs", "accumulate"):
            if getattr(self, name) < 1:
                raise ArgumentError(name, "at least 1", getattr(self, name))
        object.__setattr__(self, "lengths", tuple(self.lengths))  # JSON gives a list
        if (
            not self.lengths
            or not all(isinstance(length, int) for length in self.lengths)
            or list(self.lengths) != sorted(set(self.lengths))
            or not 1 <= self.lengths[0] <= self.lengths[-1] <= _LONGEST
        ):
            raise ArgumentError("lengths", f"increasing ints from 1 to {_LONGEST:,}", self.lengths)

    def with_changes(self, changes):
        """A copy with some fields changed; values of None are ignored.

        Args:
            changes: dict, field name to new value or None.

        Returns:
            A preset of the same class.

        Raises:
            ValueError: Same as for the class.
        """
        changes = {name: value for name, value in changes.items() if value is not None}
        return dataclasses.replace(self, **changes)


def _check_type(field, value):
    """Raise ValueError unless a value, which may come from JSON, is of the type of its field."""
    wanted = typing.get_args(field.type) or (field.type,)
    others = {float: (int,), tuple: (list,), list: (tuple,)}
    allowed = (*wanted, *(other for kind in wanted for other in others.get(kind, ())))
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in wanted):
        names = " or ".join(kind.__name__.replace("NoneType", "None") for kind in wanted)
        raise ArgumentError(field.name, names, f"{value!r}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPreset(BasePreset):
    """Settings of a training run with the sizes of its model.

    Args:
        name, epochs, lengths: see `BasePreset`.
        vocab_size: int, size of the vocabulary.
        num_layers, d_model, num_heads, dff, rate: see `Transformer`.
        architecture: None for that of the paper, or what `Architecture.to_dict` returns.
        precision: str, one of `PRECISIONS`, the Keras dtype policy of training; the trained weights
            are float32 in all. bfloat16 is for accelerators and processors with AMX, float16 for
            GPUs without bfloat16: it needs a loss scale, see `GlobalLossScale`.

    Raises:
        ValueError: Same as for `BasePreset`, or if a size is not positive, or a part or the
            precision is unknown.

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
        """Refuse sizes far beyond the weights in a file; see `models.sizes.check_sizes`.

        Args:
            path: Path of the weights, in float32.
            vocab_size: int, V.

        Raises:
            ValueError: If the model has far more weights.
        """
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
        """The parts of the model.

        Returns:
            None for those of the paper, or `Architecture`.
        """
        return None if self.architecture is None else Architecture.from_dict(self.architecture)


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
        check_fields(
            self,
            ("beta_2", "a number in (0, 1)", 0 < self.beta_2 < 1),
            ("r_drop", "a number of at least 0", self.r_drop >= 0),
            ("short_repeats", "an integer of at least 1", self.short_repeats >= 1),
        )


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
        check_fields(
            self,
            ("peak_learning_rate", "a positive number", self.peak_learning_rate > 0),
            ("mask_rate", "a number in (0, 1)", 0 < self.mask_rate < 1),
            ("dropout", "a number in [0, 1)", 0 <= self.dropout < 1),
        )


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
