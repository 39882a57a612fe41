"""Every public layer in the harness that Keras uses to test its own layers.

`run_layer_test` checks serialization, building, symbolic and eager calls, dtypes, training for one
batch with `fit`, saving, and mixed precision.
"""

import keras
import pytest
from keras.src.testing import TestCase

import tf_transformer.layers
from tf_transformer import bert

D, N, F = 8, 2, 11
CONFIG = {"vocab_size": 13, "hidden_size": D, "num_attention_heads": N, "intermediate_size": F}


# Constructor arguments and input shapes.
STACK = {"num_layers": 1, "d_model": D, "num_heads": N, "dff": F, "maximum_position_encoding": 7}
HIDDEN = (2, 5, D)
CASES = {
    "BatchNorm": ({}, HIDDEN),
    "ComplexDense": ({"units": F, "activation": "gelu"}, HIDDEN),
    "ComplexDropout": ({"rate": 0.3}, HIDDEN),
    "ComplexEmbedding": ({"vocab_size": 13, "d_model": D}, (2, 5)),
    "ComplexEncoder": (
        {"num_layers": 1, "d_model": D, "num_heads": N, "dff": F, "input_vocab_size": 13},
        (2, 5),
    ),
    "ComplexEncoderLayer": ({"d_model": D, "num_heads": N, "dff": F}, HIDDEN),
    "ComplexFeedForward": ({"d_model": D, "dff": F}, HIDDEN),
    "ComplexLayerNorm": ({}, HIDDEN),
    "ComplexMultiHeadAttention": (
        {"d_model": D, "num_heads": N},
        {"q_shape": (2, 3, D), "k_shape": HIDDEN, "v_shape": HIDDEN},
    ),
    "ComplexToReal": ({"units": F}, HIDDEN),
    "AdditiveAttention": (
        {"units": F},
        {"q_shape": (2, 3, D), "k_shape": (2, 5, 6), "v_shape": HIDDEN},
    ),
    "BilinearAttention": ({}, {"q_shape": (2, 3, D), "k_shape": (2, 5, 6), "v_shape": HIDDEN}),
    "Decoder": (
        STACK | {"target_vocab_size": 13},
        {"x_shape": (2, 3), "enc_output_shape": HIDDEN},
    ),
    "DecoderLayer": (
        {"d_model": D, "num_heads": N, "dff": F},
        {"x_shape": (2, 3, D), "enc_output_shape": HIDDEN},
    ),
    "Dropout": ({"rate": 0.3}, HIDDEN),
    "Encoder": (STACK | {"input_vocab_size": 13}, (2, 5)),
    "EncoderLayer": ({"d_model": D, "num_heads": N, "dff": F}, HIDDEN),
    "FlatDense": ({"units": F, "activation": "gelu"}, HIDDEN),
    "GatedDense": ({"units": F, "activation": "gelu"}, HIDDEN),
    "LayerNorm": ({}, HIDDEN),
    "LearnedPositions": ({"max_position": 7}, HIDDEN),
    "MultiHeadAttention": (
        {"d_model": D, "num_heads": N},
        {"q_shape": (2, 3, D), "k_shape": HIDDEN, "v_shape": HIDDEN},
    ),
    "NaiveBatchNorm": ({}, HIDDEN),
    "MultiplicativeAttention": (
        {},
        {"q_shape": (2, 3, D), "k_shape": HIDDEN, "v_shape": HIDDEN},
    ),
    "NoPositions": ({}, HIDDEN),
    "Positional_Encoding": ({"max_position": 7}, HIDDEN),
    "RMSNorm": ({}, HIDDEN),
    "SinusoidalPositions": ({}, HIDDEN),
    "TokenEmbedding": ({"vocab_size": 13, "d_model": D, "max_position": 7}, (2, 5)),
    "BERTLayerNorm": ({"config": CONFIG}, HIDDEN),
    "BERTSelfAttention": ({"config": CONFIG}, HIDDEN),
}
WITHOUT_WEIGHTS = (
    "ComplexDropout",
    "Dropout",
    "MultiplicativeAttention",
    "NoPositions",
    "Positional_Encoding",
    "SinusoidalPositions",
)
# Called by `MultiHeadAttention` alone: tests/layers/positions/ checks them there.
INSIDE_ATTENTION = {"AlibiPositions", "RotaryPositions", "ShawPositions", "T5Positions"}
PUBLIC = {
    name: getattr(home, name)
    for home in (tf_transformer.layers, bert)
    for name in home.__all__
    if isinstance(getattr(home, name), type) and issubclass(getattr(home, name), keras.Layer)
}


# Keras's harness calls `fit` with a generator and the default `shuffle=True`; Keras 3.15 saves its
# own variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed, but:UserWarning")
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't:DeprecationWarning")
@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", CASES)
def test_keras_own_harness(name):
    arguments, shape = CASES[name]
    TestCase().run_layer_test(
        PUBLIC[name],
        arguments,
        input_shape=shape,
        input_dtype=keras.tree.map_shape_structure(dtype_of, shape),
        supports_masking=True,
        # The harness trains with a single input, which is a dict if the layer has several.
        run_training_check=name not in WITHOUT_WEIGHTS and isinstance(shape, tuple),
    )


def dtype_of(shape):
    """Rank-2 inputs are token ids."""
    return "int32" if len(shape) == 2 else "float32"


def test_no_public_layer_is_left_out():
    layers = {name for name, layer in PUBLIC.items() if not issubclass(layer, keras.Model)}
    assert layers - INSIDE_ATTENTION == set(CASES)
