"""Comparison in float64."""

import numpy as np


def close(actual, expected, tolerance=1e-12):
    """Assert that two arrays, or an array and a number, agree up to rounding."""
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=tolerance, atol=tolerance)
