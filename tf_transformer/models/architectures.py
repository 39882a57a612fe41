"""Architectures of published models: their parts and sizes."""

import dataclasses

from tf_transformer.errors import check_choice
from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.feed_forwards import FeedForward, MacaronFeedForward
from tf_transformer.layers.norms import LayerNorm
from tf_transformer.layers.positions import LearnedPositions
from tf_transformer.layers.residuals import PreNorm
from tf_transformer.models.bert.bert import Bert
from tf_transformer.models.bert.bert_config import published_config
from tf_transformer.models.language_model import LanguageModel
from tf_transformer.models.transformer import Transformer

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

    @property
    def sizes(self):
        """dict, the sizes except the vocabulary size."""
        return {name: getattr(self, name) for name in SIZES}

    def choices(self):
        """Return only the parts, an `Architecture`."""
        names = [field.name for field in dataclasses.fields(Architecture)]
        return Architecture(**{name: getattr(self, name) for name in names})

    def to_dict(self):
        """See `Architecture`: only the parts."""
        return self.choices().to_dict()

    def model(self, vocab_size=None):
        """Create the model, with new weights."""
        size = vocab_size or self.vocab_size
        layers = (self.num_layers, self.d_model, self.num_heads, self.dff)
        options = {"rate": self.rate, "architecture": self.choices()}
        if self.model_class is Bert:
            model = Bert({**published_config(self.name).to_dict(), "vocab_size": size})
        elif self.model_class is LanguageModel:
            model = LanguageModel(*layers, size, self.positions.max_position, **options)
        else:
            most = 1024  # tokens
            model = Transformer(*layers, size, size, most, most, share_embeddings=True, **options)
        model.build()
        return model


_FACTS = ("model_class", "name", "source", "weights", "vocab_size", *SIZES)
_VASWANI = "Vaswani et al. 2017, table 3"
_WU = "Wu et al. 2021, table 2"
_LU = "Lu et al. 2019, section 5; pre-norm as in its program"
_RADFORD = "Radford et al. 2019, the smallest model"
_DEVLIN = "Devlin et al. 2019, section 3"
_LAN = "Lan et al. 2020, table 1"
_MACARON = {"feed_forward": MacaronFeedForward(), "residual": PreNorm()}
_GPT = {
    "positions": LearnedPositions(1024),
    "norm": LayerNorm(1e-5),
    "residual": PreNorm(),
    "feed_forward": FeedForward("gelu_new"),
    "scale_embeddings": False,
}
_BERT = {"positions": LearnedPositions(512), "norm": LayerNorm(1e-12)}
# Model, name, source, weights, size of the vocabulary, `SIZES`; then the parts.
_ROWS = (
    ((Transformer, "transformer-base", _VASWANI, 65_000_000, 37_000, 6, 512, 8, 2048, 0.1), {}),
    ((Transformer, "transformer-big", _VASWANI, 213_000_000, 37_000, 6, 1024, 16, 4096, 0.3), {}),
    ((Transformer, "transformer-tiny", _WU, 2_600_000, 9_700, 4, 128, 4, 256, 0.3), {}),
    # Half of the inner width twice: the number of weights of transformer-base.
    ((Transformer, "macaron-base", _LU, 65_000_000, 37_000, 6, 512, 8, 1024, 0.1), _MACARON),
    ((LanguageModel, "gpt2", _RADFORD, 124_000_000, 50_257, 12, 768, 12, 3072, 0.1), _GPT),
    (
        (Bert, "bert-base", _DEVLIN, 110_000_000, 30_522, 12, 768, 12, 3072, 0.1),
        {**_BERT, "feed_forward": FeedForward("gelu")},
    ),
    (
        (Bert, "albert-base", _LAN, 12_000_000, 30_000, 12, 768, 12, 3072, 0.0),
        {**_BERT, "feed_forward": FeedForward("gelu_new")},
    ),
)
PUBLISHED = {
    facts[1]: PublishedArchitecture(**dict(zip(_FACTS, facts, strict=True)), **parts)
    for facts, parts in _ROWS
}


def named(choices, sizes):
    """Return the name of a published architecture with these parts and sizes, or None."""
    wanted = choices, sizes
    return next((name for name, x in PUBLISHED.items() if (x.to_dict(), x.sizes) == wanted), None)


def get(name):
    """Return a published architecture, a `PublishedArchitecture`; `name` is a key of `PUBLISHED`.

    Raises:
        ValueError: If the name is unknown.

    Example:
        >>> get("transformer-big").d_model
        1024
    """
    check_choice("architecture", name, PUBLISHED)
    return PUBLISHED[name]
