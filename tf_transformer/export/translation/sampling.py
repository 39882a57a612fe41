"""How translations are sampled."""

import dataclasses
import zlib

import tensorflow as tf

from tf_transformer.generation.checks import check_range

_ALL_TOKENS = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The settings of `sample_decode` for any number of texts.

    Args:
        seed: int; the same seed and the same texts give the same translations.
        temperature: float above 0; values below 1 favor likely tokens.
        top_k: None, or int of at least 1: only the k most likely tokens.
        top_p: float above 0, at most 1: only the most likely tokens with this total probability.

    Raises:
        ValueError: If a number is out of range.

    Example:
        >>> Sampling(seed=1, top_k=20).temperature
        1.0
    """

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        check_range("seed", self.seed, 0)
        check_range("temperature", self.temperature, 0.0, above=True)
        check_range("top_k", self.top_k, 1)
        check_range("top_p", self.top_p, 0.0, 1.0, above=True)

    def arguments(self, first):
        """The arguments of `translate_sample` for one batch.

        Args:
            first: int, the number of texts before this batch: each batch draws other numbers.

        Returns:
            dict of scalar tensors.

        Example:
            >>> Sampling(seed=1).arguments(0)["top_p"].numpy()
            np.float32(1.0)
        """
        seed = zlib.crc32(f"{self.seed} {first}".encode()) >> 1  # below 2^31
        return {
            "seed": tf.constant(seed, tf.int32),
            "temperature": tf.constant(self.temperature, tf.float32),
            "top_k": tf.constant(self.top_k or _ALL_TOKENS, tf.int32),
            "top_p": tf.constant(self.top_p, tf.float32),
        }
