"""The sizes and settings of a BERT, and of published ones."""

import dataclasses
from numbers import Integral
from typing import NamedTuple

from tf_transformer.errors import ArgumentError, check, check_choice, check_fields, is_number
from tf_transformer.functional.activations import ACTIVATIONS, get_activation
from tf_transformer.layers.architecture import check_layer_sizes

_RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "qa_dropout")
_MOST_LAYERS = 10_000
_MAY_BE_NONE = ("embedding_size", "num_hidden_groups", "classifier_dropout", "qa_dropout")
# Hugging Face's problem types -> what turns a text classifier's logits into answers.
_PROBLEM_TYPES = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "linear",
}


class Family(NamedTuple):
    """What a published relative of BERT computes that the other settings do not say."""

    prefix: str  # of its classes in transformers
    pad_token_id: int | None = None  # positions are counted from it, see `BertConfig`
    has_segments: bool = True
    classifier_activation: str | None = None  # of a text classifier's layer in a pooler's place
    classifier_drops_input: bool = False  # dropout before that layer, too
    word_activation: str | None = None  # of the layer that predicts words; None for `hidden_act`
    classifier_dropout: float | None = None  # if the config does not set it
    qa_dropout: float | None = None  # the same


_OF_ROBERTA = {
    "pad_token_id": 1,
    "classifier_activation": "tanh",
    "classifier_drops_input": True,
    "word_activation": "gelu",
}
FAMILIES = {
    "roberta": Family("Roberta", **_OF_ROBERTA),
    "xlm-roberta": Family("XLMRoberta", **_OF_ROBERTA),
    "distilbert": Family(
        "DistilBert",
        has_segments=False,
        classifier_activation="relu",
        classifier_dropout=0.2,
        qa_dropout=0.1,
    ),
    "electra": Family(
        "Electra", classifier_activation="gelu", classifier_drops_input=True, word_activation="gelu"
    ),
}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Architecture of a BERT model; the defaults are BERT-base, uncased.

    Devlin et al. 2019, "BERT", section 3; `embedding_size` and `num_hidden_groups` are from Lan et
    al. 2020, "ALBERT", section 3.1. The field names match the published files.

    Args:
        vocab_size, hidden_size: int, V and D, a multiple of `num_attention_heads`.
        num_hidden_layers, num_attention_heads: int, L, at most 10,000, and N.
        intermediate_size: int, inner width of the feed-forward network.
        hidden_act: str, a name of `functional.activations`, or a function.
        hidden_dropout_prob: float in [0, 1), dropout rate of embeddings and sublayers.
        attention_probs_dropout_prob: float in [0, 1), dropout rate of attention weights.
        max_position_embeddings: int, rows of the table of positions; `max_length` is the maximum
            sequence length in tokens.
        type_vocab_size: int, number of segments; always 0 for DistilBERT, which ignores them.
        initializer_range: float, standard deviation for initializing weights.
        layer_norm_eps: float, added to the variance in layer normalization.
        embedding_size: None (same as `hidden_size`), or int, the width of the embeddings, which a
            matrix then maps to D.
        num_hidden_groups: None, or int G, groups of adjacent layers that share weights.
        pooler_activation: str, "tanh" as published; None for a model without a pooler.
        classifier_dropout: None (same as `hidden_dropout_prob`; 0.2 for DistilBERT), or float,
            dropout rate before a classifier (of texts, for DistilBERT).
        labels: tuple of str, the class names of a classifier.
        layer_sizes: None, or (heads, inner width) of each layer with its own weights, as after
            `compression.pruned`. `num_attention_heads` then only sets the width of a head.
        problem_type: None, or the kind of a text classifier, as in Hugging Face's files:
            "single_label_classification", "multi_label_classification" or "regression". Without it,
            `answers` are a softmax over several labels, a sigmoid for one.
        tie_word_embeddings: bool; models that predict words need True, since their output layer is
            the table of word embeddings.
        family: None for BERT and ALBERT, or the published relative whose heads, segments and
            positions the model has: "roberta" (Liu et al. 2019), "xlm-roberta" (Conneau et al.
            2020), "distilbert" (Sanh et al. 2019) or "electra" (Clark et al. 2020).
        pad_token_id: None, positions are counted from 0; or int, for RoBERTa and XLM-RoBERTa (1 by
            default): the id and the position of padding; tokens are counted from the next number.
        qa_dropout: None (0.1 for DistilBERT), or float, dropout rate before answers to questions.

    Raises:
        ValueError: If an argument is out of range; the message names it.

    Example:
        >>> BertConfig(hidden_size=312, num_attention_heads=12).head_size
        26
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: object = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    embedding_size: int | None = None
    num_hidden_groups: int | None = None
    pooler_activation: str | None = "tanh"
    classifier_dropout: float | None = None
    labels: tuple = ()
    layer_sizes: tuple | None = None
    problem_type: str | None = None
    tie_word_embeddings: bool = True
    family: str | None = None
    pad_token_id: int | None = None
    qa_dropout: float | None = None

    def __post_init__(self):
        check(not isinstance(self.labels, str), "labels", "a tuple of strings", f"{self.labels!r}")
        known = self.family in (None, *FAMILIES)
        check_fields(self, ("family", f"one of {', '.join(FAMILIES)}, or None", known))
        if not self.traits.has_segments:
            object.__setattr__(self, "type_vocab_size", 0)
        for name in ("pad_token_id", "classifier_dropout", "qa_dropout"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(self.traits, name))
        object.__setattr__(self, "labels", tuple(self.labels or ()))
        for name, default in ((field.name, field.default) for field in dataclasses.fields(self)):
            value = getattr(self, name)
            is_left_out = name == "type_vocab_size" and not self.traits.has_segments
            if is_left_out or (value is None and name in _MAY_BE_NONE):
                continue
            if isinstance(default, bool):
                check_fields(self, (name, "True or False", isinstance(value, bool)))
            elif isinstance(default, int) or name in _MAY_BE_NONE[:2]:
                check_fields(self, (name, "a positive integer", _is_size(value)))
            elif name in _RATES:
                check_fields(
                    self, (name, "a number in [0, 1)", is_number(value) and 0 <= value < 1)
                )
            elif isinstance(default, float):
                check_fields(self, (name, "a positive number", is_number(value) and value > 0))
        are_strings = all(isinstance(label, str) for label in self.labels)
        is_known = self.problem_type in (None, *_PROBLEM_TYPES)
        check_fields(
            self,
            ("labels", "distinct strings", are_strings and len({*self.labels}) == len(self.labels)),
            ("problem_type", f"one of {', '.join(_PROBLEM_TYPES)}, or None", is_known),
        )
        if self.problem_type == "single_label_classification" and len(self.labels) == 1:
            expected = f"at least two labels for {self.problem_type}"
            remedy = 'With one label use "regression", or None for a probability.'
            raise ArgumentError("problem_type", expected, self.labels, remedy)
        if self.hidden_size % self.num_attention_heads:
            expected = "the hidden size to be a multiple of the number of attention heads"
            got = f"{self.hidden_size} and {self.num_attention_heads}"
            raise ArgumentError("hidden_size, num_attention_heads", expected, got)
        layers = self.num_hidden_layers
        per_layer = f"at most one group for each of the {layers} layers"
        check_fields(
            self,
            ("num_hidden_layers", f"at most {_MOST_LAYERS:,}", layers <= _MOST_LAYERS),
            ("num_hidden_groups", per_layer, self.num_groups <= layers),
        )
        self._check_padding()
        if self.layer_sizes is not None:
            names = ("heads", "inner width")
            sizes = check_layer_sizes(self.layer_sizes, self.num_groups, names)
            object.__setattr__(self, "layer_sizes", sizes)
        for name in ("hidden_act", "pooler_activation"):
            value = getattr(self, name)
            named = isinstance(value, str) or callable(value)
            none = value is None and name == "pooler_activation"
            check_fields(self, (name, "the name of an activation, or a function", named or none))
            try:
                get_activation(value)
            except ArgumentError as error:
                raise ArgumentError(name, *error.args[1:]) from None

    def _check_padding(self):
        pad = self.pad_token_id
        if self.traits.pad_token_id is None:
            expected = "None, since the positions of this family are not counted from padding"
            check(pad is None, "pad_token_id", expected, pad)
            return
        is_id = isinstance(pad, Integral) and not isinstance(pad, bool)
        is_id = is_id and 0 <= pad < self.vocab_size
        check_fields(
            self,
            ("pad_token_id", f"an integer in [0, {self.vocab_size})", is_id),
            ("max_position_embeddings", "more than pad_token_id + 1", self.max_length > 0),
        )

    @property
    def traits(self):
        """The `Family`."""
        return FAMILIES.get(self.family, Family("Bert"))

    @property
    def max_length(self):
        """Maximum sequence length in tokens, without padding if positions do not count it."""
        before = 0 if self.pad_token_id is None else self.pad_token_id + 1
        return self.max_position_embeddings - before

    @property
    def head_size(self):
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self):
        """Width of the embeddings: `embedding_size`, or D if it is None."""
        return self.embedding_size or self.hidden_size

    @property
    def num_groups(self):
        """Number of layers with separate weights: G, or L without groups."""
        return self.num_hidden_groups or self.num_hidden_layers

    @property
    def answers(self):
        """What turns a text classifier's logits into answers: "softmax", "sigmoid" or "linear"."""
        # As in the pipeline of transformers.
        default = "sigmoid" if len(self.labels) == 1 else "softmax"
        return _PROBLEM_TYPES.get(self.problem_type, default)

    def size_of(self, group):
        """The numbers of heads and of inner units of the layers in group `group`."""
        if self.layer_sizes is None:
            return self.num_attention_heads, self.intermediate_size
        return self.layer_sizes[group]

    def group_of(self, layer):
        """Index of the weights that layer number `layer` uses."""
        return layer * self.num_groups // self.num_hidden_layers

    @classmethod
    def of(cls, config):
        """Return a config, or create one from a dict; a ValueError lists all unknown keys."""
        if isinstance(config, cls):
            return config
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(config) - set(known))
        expected, got = f"the keys {', '.join(known)}", f"also {', '.join(unknown)}"
        remedy = "For a file from another library use `read_config`."
        check(not unknown, "config", expected, got, remedy)
        return cls(**config)

    def to_dict(self):
        """Return the fields as JSON-serializable values; a ValueError for an unnamed function."""
        fields = {**dataclasses.asdict(self), "labels": list(self.labels)}
        for name in ("hidden_act", "pooler_activation"):
            if callable(fields[name]):
                names = [key for key, function in ACTIVATIONS.items() if function is fields[name]]
                expected = f"one of {', '.join(ACTIVATIONS)} in a saved config"
                check(names, name, expected, f"the function {fields[name]!r}")
                fields[name] = names[0]
        return fields


def _is_size(value):
    return isinstance(value, Integral) and not isinstance(value, bool) and value > 0


def _bert(layers, width, vocab_size=30522):
    return BertConfig(vocab_size, width, layers, max(1, width // 64), 4 * width)


def _albert(layers, width, heads):
    config = _bert(layers, width, 30000)
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    own = {"hidden_act": "gelu_new", "embedding_size": 128, "num_hidden_groups": 1}
    return dataclasses.replace(config, num_attention_heads=heads, **own, **without_dropout)


# BERT: Devlin et al. 2019, section 3, and Turc et al. 2019, "Well-Read Students Learn Better",
# table 1; ALBERT: Lan et al. 2020, table 1, without dropout as in version 2.
PUBLISHED_CONFIGS = {
    "bert-tiny": _bert(2, 128),
    "bert-mini": _bert(4, 256),
    "bert-small": _bert(4, 512),
    "bert-medium": _bert(8, 512),
    "bert-base": _bert(12, 768),
    "bert-large": _bert(24, 1024),
    "bert-base-chinese": _bert(12, 768, 21128),
    "albert-base": _albert(12, 768, 12),
    "albert-large": _albert(24, 1024, 16),
    "albert-xlarge": _albert(24, 2048, 16),
    "albert-xxlarge": _albert(12, 4096, 64),
}


def published_config(name):
    """Return the configuration of a published model, uncased English unless the name differs.

    Args:
        name: str, a key of `PUBLISHED_CONFIGS`; for others a ValueError lists them.

    Example:
        >>> published_config("bert-base").hidden_size
        768
    """
    check_choice("name", name, PUBLISHED_CONFIGS)
    return PUBLISHED_CONFIGS[name]
