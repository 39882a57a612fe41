"""Sinusoidal positions against the reference, and the layer's methods named as in the notes."""

import numpy as np
import pytest
import reference_numpy as ref
import tensorflow as tf
from loading import close, vectors

from tf_transformer import Positional_Encoding
from tf_transformer.functional.positions import get_angles, sinusoidal_positions


@pytest.mark.parametrize("d_model", [14, 7])
def test_positions_match_the_vectors(d_model):
    table = sinusoidal_positions(11, d_model)
    assert table.dtype == np.float32
    close(table, vectors("layers")[f"positional_encoding/{d_model}"][0], 1e-7)


def test_far_positions_are_computed_in_float64():
    close(sinusoidal_positions(5000, 6)[-1], ref.positional_encoding(5000, 6)[0, -1], 1e-7)


def test_angles_come_in_pairs_of_columns():
    angles = get_angles(np.arange(3)[:, None], np.arange(4)[None], 4)
    close(angles, [[0, 0, 0, 0], [1, 1, 0.01, 0.01], [2, 2, 0.02, 0.02]], 1e-12)


def test_the_methods_of_the_notes():
    layer = Positional_Encoding()
    table = layer.positional_encoding(11, 14)
    assert table.shape == (1, 11, 14)
    close(table, vectors("layers")["positional_encoding/14"], 1e-7)
    close(layer.get_angles(np.array([[3]]), np.array([[0, 1]]), 2), [[3, 3]])


def test_sine_is_even_and_cosine_odd():
    table = Positional_Encoding().positional_encoding(2, 4)
    close(table[0, 1], [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)])


@pytest.mark.parametrize("start", [0, 2, tf.constant(2)])
def test_the_layer_adds_the_codes_from_start_on(start):
    x = np.random.default_rng(0).standard_normal((2, 3, 14)).astype(np.float32)
    expected = x + ref.positional_encoding(11, 14)[:, int(start) : int(start) + 3]
    close(Positional_Encoding(max_position=11)(x, start=start), expected)


def test_a_table_without_positions_is_refused():
    with pytest.raises(ValueError, match="max_position: expected an integer of at least 1, got 0"):
        Positional_Encoding(max_position=0)


def test_a_subclass_may_have_another_table():
    class Halved(Positional_Encoding):
        def positional_encoding(self, position, d_model):
            return super().positional_encoding(position, d_model) / 2

    close(Halved(3)(tf.zeros((1, 3, 14))), ref.positional_encoding(3, 14) / 2)
