"""Models whose weights are stored in 8 bits and multiplied as integers."""

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.errors import ArgumentError, check
from tf_transformer.functional.int8_product import LARGEST, LARGEST_WEIGHT, to_int8
from tf_transformer.layers.embeddings import TokenEmbedding
from tf_transformer.layers.feed_forwards import FlatDense
from tf_transformer.models.base_model import check_merged, short_collections
from tf_transformer.models.bert.encoder import BertEmbeddings
from tf_transformer.models.bert.heads import BertForMaskedLM


def quantized(model, batches=None):
    """Create a copy of a model with int8 weights and int8 products, for inference.

    Kernels of dense layers are rounded with one range per column, word vectors with one per row;
    inputs of dense layers are rounded when they are computed. Norms, softmax and sums stay in
    float32. Weights are within -64..64, 7 bits, for which products are exact on every processor,
    see `int8_product`; word vectors of a BERT, which are only looked up, have 8 bits.

    Args:
        model: built `Transformer` or BERT model in float32; it does not change.
        batches: None, for one range per token (dynamic); or iterable of batches as for `fit`, a few
            hundred examples, whose largest input of each layer becomes its range (static, faster).

    Returns:
        A model of the same class, which can be exported. To keep it as a Keras model, save the
        original and quantize again: `.keras` files of quantized models cannot be read.

    Raises:
        ValueError: If the model is not built, computes in 16 bits or has int8 weights or adapters,
            there is no batch, or values are not finite for the batches.

    Example:
        >>> from tf_transformer import Transformer
        >>> model = Transformer(1, 8, 2, 16, 11, 11, pe_input=16, pe_target=16)
        >>> model.build()
        >>> ids = tf.constant([[1, 5, 6, 2]])
        >>> smaller = quantized(model, [((ids, ids), ids)])
        >>> bool(tf.reduce_max(tf.abs(smaller((ids, ids)) - model((ids, ids)))) < 0.1)
        True
    """
    check(model.built, "model", "a built model", "one without weights", "Call build().")
    check_merged(model)
    if model.compute_dtype != "float32":
        expected = "one that computes in float32"
        remedy = "Create it with dtype='float32' and load the weights."
        raise ArgumentError("model", expected, model.compute_dtype, remedy)
    if any(weight.dtype == "int8" for weight in model.weights):
        raise ArgumentError("model", "float weights", "int8", "Pass the original.")
    copy = type(model).from_config(model.get_config())
    copy.build()
    for weight, value in zip(copy.weights, model.weights, strict=True):
        weight.assign(value)
    layers = list(dict.fromkeys(copy._flatten_layers()))  # ALBERT's once
    products = {layer: "call" for layer in layers if isinstance(layer, FlatDense)}
    products |= {layer: "product" for layer in layers if isinstance(layer, TokenEmbedding)}
    if batches is not None:
        _calibrate(copy, products, batches)
    tables = () if isinstance(copy, BertForMaskedLM) else (BertEmbeddings,)  # used by its head
    with short_collections(4 * copy.count_params()):  # Keras collects for each lost variable
        for layer in layers:
            if isinstance(layer, keras.layers.Embedding):
                _quantize_table(layer)
            elif isinstance(layer, (FlatDense, *tables)):
                layer.quantize("int8")
    return copy


def _quantize_table(embedding):
    """Round word vectors, which `TokenEmbedding.product` may multiply; Keras rounds to 127."""
    rounded, ranges = to_int8(tf.convert_to_tensor(embedding.embeddings), 1, LARGEST_WEIGHT)
    embedding.quantize("int8")
    embedding.embeddings.assign(rounded)
    embedding.embeddings_scale.assign(LARGEST / ranges)


def _calibrate(model, products, batches):
    """Set the `input_range` of each layer to the largest absolute input of its method."""
    largest = dict.fromkeys(products, 0.0)

    def watching(layer, method):
        function = getattr(layer, method)

        def watched(inputs, *arguments, **options):
            # NumPy's maximum of NaN and a number is NaN.
            largest[layer] = float(np.maximum(largest[layer], np.max(np.abs(inputs), initial=0.0)))
            return function(inputs, *arguments, **options)

        setattr(layer, method, watched)

    seen = 0
    try:
        for layer, method in products.items():
            watching(layer, method)
        for batch in batches:
            seen += 1
            model(keras.utils.unpack_x_y_sample_weight(batch)[0], training=False)
    finally:
        for layer, method in products.items():
            vars(layer).pop(method, None)
    check(seen, "batches", "at least one batch", "none")
    for layer, most in largest.items():
        if not np.isfinite(most):
            got = f"{most} in the input of {layer.path}"
            raise ArgumentError("model, batches", "finite values", got)
        layer.input_range = most or None
