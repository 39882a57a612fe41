"""Checks of a model's sizes against its vocabulary and its weights."""

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.positions import (
    LearnedPositions,
    Positional_Encoding,
    ShawPositions,
    T5Positions,
)

_SLACK = 2**16  # numbers
_FREE = 2**24  # numbers of a table that is computed


def check_sizes(source, found, embedded, width, key_dim, layers, architecture=None):
    """Refuse sizes far beyond the weights in a file, before a model of them is built."""
    # Smaller differences are found when the shapes are compared.
    fewest = embedded + sum(
        count * width * (2 * heads * key_dim + inner) for count, heads, inner in layers
    )
    part = architecture and architecture.positions
    if isinstance(part, ShawPositions):
        fewest += 2 * part.max_distance * key_dim
    elif isinstance(part, T5Positions):
        fewest += part.num_buckets
    elif isinstance(part, LearnedPositions):
        fewest += part.max_position * width
    elif isinstance(part, Positional_Encoding):  # its table is not in the file
        fewest += max(part.max_position * width - _FREE, 0)
    if fewest > 4 * found + _SLACK:
        expected = f"the sizes of a model with at most {found:,} weights"
        got = f"the sizes of one with at least {fewest:,}"
        raise ArgumentError("path", expected, got, place=source)


def check_vocabulary(model, tokenizer, name="tokenizer"):
    """Check that a model has a row for each token; more rows are harmless."""
    rows = min(_sizes(model.get_config()).values())
    if rows < tokenizer.vocab_size:
        expected = f"at most {rows} tokens, as many as the model has rows of embeddings"
        remedy = "Use the vocabulary that the model was trained with; `with_vocab_size` makes a "
        remedy += "model for added tokens."
        raise ArgumentError(name, expected, tokenizer.vocab_size, remedy)


def with_vocab_size(model, vocab_size, target_vocab_size=None):
    """Return a model with more rows of embeddings, for tokens that were added to its tokenizer.

    The new model has the old one's weights. The added rows of the embeddings, the output projection
    and its bias are initialized as in a new model. Shared tables stay shared. The old model is
    unchanged; `compile` the new one before `fit`.

    Args:
        model: a built `Transformer`, `LanguageModel` or model of `tf_transformer.bert`.
        vocab_size: int, the size of the vocabulary (the source's of a `Transformer`),
            `tokenizer.vocab_size` or more; a multiple of 8 is faster on some devices.
        target_vocab_size: None, or int, for a `Transformer` whose target has another vocabulary.

    Returns:
        A built model of the same class.

    Raises:
        ValueError: If the model has no weights yet, int8 weights or no vocabulary, or a size is
            smaller than the model's.

    Example:
        >>> import tensorflow as tf
        >>> from tf_transformer import bert
        >>> model = bert.BertForMaskedLM(bert.BertConfig(13, 8, 2, 2, 16))
        >>> model.build()
        >>> larger = with_vocab_size(model, 15)
        >>> larger({"input_ids": tf.constant([[2, 14, 3]])}).shape.as_list()
        [1, 3, 15]
    """
    config = model.get_config()
    sizes = _sizes(config)
    if not sizes:
        expected = "a Transformer, a LanguageModel or a model of tf_transformer.bert"
        raise ArgumentError("model", expected, type(model).__name__)
    if not model.built:
        raise ArgumentError("model", "a built model", "one without weights", "Call build().")
    if any(weight.dtype == "int8" for weight in model.weights):
        remedy = "Add the tokens before you quantize."
        raise ArgumentError("model", "weights in floating point", "int8", remedy)
    if target_vocab_size is not None and "target_vocab_size" not in sizes:
        expected = f"None for a {type(model).__name__}, which has one vocabulary"
        raise ArgumentError("target_vocab_size", expected, target_vocab_size)
    new = dict.fromkeys(sizes, vocab_size)
    if target_vocab_size is not None:
        new["target_vocab_size"] = target_vocab_size
    for name, size in sizes.items():
        if not isinstance(new[name], int) or new[name] < size:
            argument, remedy = name.removeprefix("input_"), "Every token must keep its row."
            expected = f"an integer of at least {size}, the model's"
            raise ArgumentError(argument, expected, f"{new[name]!r}", remedy)
    inner = {"config": {**config["config"], **new}} if "config" in config else new
    larger = type(model).from_config({**config, **inner})
    larger.build_from_config(model.get_build_config())  # also restores which layers are frozen
    for weight, old in zip(larger.weights, model.weights, strict=True):
        value = weight.numpy()
        value[tuple(map(slice, old.shape))] = old.numpy()
        weight.assign(value)
        weight.trainable = old.trainable
    return larger


def _sizes(config):
    """The sizes of the vocabularies in a model's config: dict of name -> int."""
    names = ("input_vocab_size", "target_vocab_size", "vocab_size")
    config = config.get("config", config)  # of BERT
    return {name: config[name] for name in names if name in config}
