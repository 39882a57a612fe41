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
    make: object

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
        model = self.make(self, vocab_size or self.vocab_size)
        model.build()
        return model


def _transformer(published, vocab_size):
    return Transformer(
        published.num_layers,
        published.d_model,
        published.num_heads,
        published.dff,
        vocab_size,
        vocab_size,
        pe_input=1024,
        pe_target=1024,
        rate=published.rate,
        share_embeddings=True,
        architecture=published.choices(),
    )


def _bert(published, vocab_size):
    return Bert({**published_config(published.name).to_dict(), "vocab_size": vocab_size})


def _language_model(published, vocab_size):
    return LanguageModel(
        published.num_layers,
        published.d_model,
        published.num_heads,
        published.dff,
        vocab_size,
        published.positions.max_position,
        published.rate,
        architecture=published.choices(),
    )


def _translator(name, sizes, weights, vocab_size, source, **parts):
    num_layers, d_model, num_heads, dff, rate = sizes
    return PublishedArchitecture(
        name=name,
        source=source,
        weights=weights,
        vocab_size=vocab_size,
        num_layers=num_layers,
        d_model=d_model,
        num_heads=num_heads,
        dff=dff,
        rate=rate,
        model_class=Transformer,
        make=_transformer,
        **parts,
    )


def _encoder(name, weights, source):
    config = published_config(name)
    return PublishedArchitecture(
        name=name,
        source=source,
        weights=weights,
        vocab_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        d_model=config.hidden_size,
        num_heads=config.num_attention_heads,
        dff=config.intermediate_size,
        rate=config.hidden_dropout_prob,
        model_class=Bert,
        make=_bert,
        positions=LearnedPositions(config.max_position_embeddings),
        norm=LayerNorm(config.layer_norm_eps),
        feed_forward=FeedForward(config.hidden_act),
    )


_VASWANI = "Vaswani et al. 2017, table 3"
PUBLISHED = {
    published.name: published
    for published in (
        _translator("transformer-base", (6, 512, 8, 2048, 0.1), 65_000_000, 37_000, _VASWANI),
        _translator("transformer-big", (6, 1024, 16, 4096, 0.3), 213_000_000, 37_000, _VASWANI),
        _translator(
            "transformer-tiny", (4, 128, 4, 256, 0.3), 2_600_000, 9_700, "Wu et al. 2021, table 2"
        ),
        # Half of the inner width twice: the number of weights of transformer-base.
        _translator(
            "macaron-base",
            (6, 512, 8, 1024, 0.1),
            65_000_000,
            37_000,
            "Lu et al. 2019, section 5; pre-norm as in its program",
            feed_forward=MacaronFeedForward(),
            residual=PreNorm(),
        ),
        PublishedArchitecture(
            name="gpt2",
            source="Radford et al. 2019, the smallest model",
            weights=124_000_000,
            vocab_size=50_257,
            num_layers=12,
            d_model=768,
            num_heads=12,
            dff=3072,
            rate=0.1,
            model_class=LanguageModel,
            make=_language_model,
            positions=LearnedPositions(1024),
            norm=LayerNorm(1e-5),
            residual=PreNorm(),
            feed_forward=FeedForward("gelu_new"),
        ),
        _encoder("bert-base", 110_000_000, "Devlin et al. 2019, section 3"),
        _encoder("albert-base", 12_000_000, "Lan et al. 2020, table 1"),
    )
}


def named(choices, sizes):
    """Return the name of a published architecture with these parts and sizes, or None.

    Args:
        choices: dict, see `Architecture.to_dict`.
        sizes: dict, see `PublishedArchitecture.sizes`.

    Example:
        >>> tiny = get("transformer-tiny")
        >>> named(tiny.to_dict(), tiny.sizes), named(tiny.to_dict(), {})
        ('transformer-tiny', None)
    """
    for name, published in PUBLISHED.items():
        if published.to_dict() == choices and published.sizes == sizes:
            return name
    return None


def get(name):
    """Return a published architecture.

    Args:
        name: str, a key of `PUBLISHED`.

    Returns:
        `PublishedArchitecture`.

    Raises:
        ValueError: If the name is unknown.

    Example:
        >>> get("transformer-big").d_model
        1024
    """
    check_choice("architecture", name, PUBLISHED)
    return PUBLISHED[name]
