"""What a server accepts."""

import dataclasses

from tf_transformer.errors import ArgumentError


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server accepts, and how it makes batches.

    Args:
        most_batch: int, texts that the model computes together at most.
        most_waiting: int, texts that may wait for it; further requests are refused with 503.
        wait: float, seconds that a text waits for others to join its batch.
        most_texts: int, texts of a request.
        most_characters: int, characters of a text.
        most_bytes: int, bytes of a request.

    Raises:
        ValueError: If a number is not positive, or `most_waiting` is below `most_texts`, so that a
            request could never be accepted.

    Example:
        >>> Limits(most_batch=8).most_waiting
        256
    """

    most_batch: int = 32
    most_waiting: int = 256
    wait: float = 0.002
    most_texts: int = 64
    most_characters: int = 5000
    most_bytes: int = 2**20

    def __post_init__(self):
        for name, value in vars(self).items():
            if not (value > 0 or (name == "wait" and value == 0)):
                raise ArgumentError(name, "a positive number", value)
        if self.most_waiting < self.most_texts:
            raise ArgumentError(
                "most_waiting",
                f"at least {self.most_texts}, the texts of a request",
                self.most_waiting,
            )
