"""Position parts in float64 NumPy, from the papers' equations; see reference_numpy.py.

Axes: T target length, S source length, H head width, D model width.
"""

import math

import numpy as np


def distances(queries, keys):
    """Position of the key minus position of the query, (T, S)."""
    return np.arange(keys)[None, :] - np.arange(queries)[:, None]


def rotary(x, base=10000.0, stretch=1.0, pairing="interleaved", bands=None):
    """Multiply pair i at position p, as a complex number, by exp(i p / stretch / base^(2i / H)).

    With `bands`, wavelengths up to length / high are not stretched, and those above length / low
    are, as in the program of Llama 3.1; between, the two frequencies are weighted by the turns.
    """
    x = np.asarray(x, np.float64)
    length, width = x.shape[-2:]
    half = width // 2
    firsts = range(0, width, 2) if pairing == "interleaved" else range(half)
    seconds = range(1, width, 2) if pairing == "interleaved" else range(half, width)
    turned = np.empty_like(x)
    for i, (first, second) in enumerate(zip(firsts, seconds, strict=True)):
        frequency = base ** (-2 * i / width)
        if bands is None:
            frequency /= stretch
        else:
            low, high, context = bands
            wavelength = 2 * np.pi / frequency
            if wavelength > context / low:
                frequency /= stretch
            elif wavelength >= context / high:
                smooth = (context / wavelength - low) / (high - low)
                frequency = (1 - smooth) * frequency / stretch + smooth * frequency
        for p in range(length):
            z = x[..., p, first] + 1j * x[..., p, second]
            z = z * np.exp(1j * p * frequency)
            turned[..., p, first], turned[..., p, second] = z.real, z.imag
    return turned


def t5_bucket(distance, num_buckets, max_distance, causal):
    """One distance at a time."""
    first = 0
    if causal:
        distance = max(-distance, 0)
    else:
        num_buckets //= 2
        first, distance = (num_buckets if distance > 0 else 0), abs(distance)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + math.floor(share * (num_buckets - exact) + 1e-6), num_buckets - 1)


def t5_bias(table, queries, keys, max_distance, causal):
    """(N, T, S) from the learned table (N, buckets)."""
    bucket = np.vectorize(lambda d: t5_bucket(int(d), table.shape[1], max_distance, causal))
    return np.asarray(table, np.float64)[:, bucket(distances(queries, keys))]


def alibi_bias(num_heads, queries, keys):
    """(N, T, S) for a number of heads that is a power of two."""
    slopes = np.array([2.0 ** (-8.0 * (n + 1) / num_heads) for n in range(num_heads)])
    return -slopes[:, None, None] * np.abs(distances(queries, keys))


def shaw_terms(keys_table, values_table, queries, keys):
    """The vectors of all pairs, two arrays (T, S, H)."""
    most = len(keys_table) // 2
    at = np.clip(distances(queries, keys), -most, most) + most
    return np.asarray(keys_table, np.float64)[at], np.asarray(values_table, np.float64)[at]
