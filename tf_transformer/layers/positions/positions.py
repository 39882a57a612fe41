"""What all parts that tell the order of tokens have in common.

Axes: B batch, N heads, T query length, S key length, H head width, D model width.
"""

import keras

from tf_transformer.layers.notes_layer import NotesLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class Positions(NotesLayer, keras.layers.Layer):
    """Base class of the parts that tell a model the order of its tokens.

    A part overrides what it needs: `add` for codes that are added to the embeddings, `rotate` and
    `by_distance` for what happens inside self-attention. Whatever it does not override does
    nothing. A stack of layers has one part; attention builds it with the shape of its heads,
    (B, N, T, H), and embeddings build one that overrides `add` with theirs, (B, T, D).

    Example:
        >>> class Reversed(Positions):
        ...     def add(self, x, start=0):
        ...         return x[:, ::-1]
        >>> Reversed().add(tf.constant([[1, 2]])).numpy().tolist()
        [[2, 1]]
    """

    def add(self, x, start=0):
        """Add codes to embeddings.

        Args:
            x: float tensor (B, T, D).
            start: int or scalar int32 tensor, the position of the first token.

        Returns:
            (B, T, D).
        """
        del start
        return x

    def rotate(self, heads, positions):
        """Change queries or keys by their position.

        Args:
            heads: float tensor (B, N, T, H).
            positions: int32 tensor (T,).

        Returns:
            Tensor like `heads`.
        """
        del positions
        return heads

    def by_distance(self, q, keys, causal):
        """Return what attention adds by the distance of key and query.

        Args:
            q: float tensor (B, N, T, H), the queries.
            keys: int or scalar int32 tensor S, the number of keys; more than T while decoding.
            causal: bool, whether keys after the query are blocked.

        Returns:
            None or `ByDistance`.
        """
        del q, keys, causal
        return None

    def for_layer(self):
        """Return the part for one more layer of a stack: this one, unless each has its own."""
        return self

    def call(self, x, start=0):
        return self.add(x, start)
