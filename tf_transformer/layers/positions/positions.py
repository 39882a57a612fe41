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

    Attributes:
        max_position: None, or an int, the number of positions that the part can tell.

    Example:
        >>> class Reversed(Positions):
        ...     def add(self, x, start=0):
        ...         return x[:, ::-1]
        >>> Reversed().add(tf.constant([[1, 2]])).numpy().tolist()
        [[2, 1]]
    """

    max_position = None

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
        """Return what attention in one more layer holds: None, this part or a new one."""
        return self if self.in_attention else None

    def copy(self, dtype=None, name=None):
        """Return a new part with the same settings.

        Args:
            dtype: None, or the dtype policy of the copy.
            name: None, or the name of the copy, which is in the names of its variables.
        """
        config = {**self.get_config(), "name": name}
        if dtype is not None:
            # A part without a `get_config` of its own cannot serialize a policy object.
            policy = keras.dtype_policies.get(dtype)
            config["dtype"] = keras.dtype_policies.serialize(policy)
        return type(self).from_config(config)

    @property
    def in_embeddings(self):
        """bool, whether the part adds codes to embeddings."""
        return type(self).add is not Positions.add

    @property
    def in_attention(self):
        """bool, whether the part acts inside self-attention."""
        mine = type(self)
        return mine.rotate is not Positions.rotate or mine.by_distance is not Positions.by_distance

    def call(self, x, start=0):
        return self.add(x, start)


def part_config(part):
    """Serialize a part for the config of the layer that holds and builds it."""
    config = keras.saving.serialize_keras_object(part)
    if config is not None:
        config.pop("build_config", None)
    return config


def with_part(config):
    """Return a layer's config with its `positions` deserialized, for `from_config`."""
    part = keras.saving.deserialize_keras_object(config.get("positions"))
    return {**config, "positions": part}
