"""Decoding one token per row against cached keys and values.

Axes: B batch, K rows per sentence (beams), L cache length in tokens, G heads of keys and values,
H head width, D model width, V vocabulary.
"""

import keras
import tensorflow as tf

from tf_transformer.errors import ArgumentError
from tf_transformer.layers.architecture import with_architecture
from tf_transformer.layers.base_layer import NotesLayer, TakesIds
from tf_transformer.models.base_model import BaseModel


def check_max_length(max_length, most, name):
    """Check the number of steps against the positions of a model."""
    if isinstance(max_length, int) and max_length > most:
        raise ArgumentError(
            "max_length", f"at most {most} ({name}), the decoder's number of positions", max_length
        )


def first_state(caches, batch_size, beam_size, max_length):
    """The state of a `DecodingModel` before the first step."""
    return {
        "position": tf.constant(0),
        "caches": caches,
        # Which row wrote the token that each row has read at each position; -1: none yet.
        "lineage": tf.fill((batch_size, beam_size, max_length), -1),
        "source": {},  # further inputs of `decoder.step`
    }


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecodingModel(TakesIds, NotesLayer, BaseModel):
    """Base class of the models that decode with a cache: `step`, `reorder` and `resize`.

    The K rows of a sentence share one cache. A row that forks from another copies nothing: its
    lineage records which row wrote each of its tokens, and a mask shows it only those slots.

    A subclass has `decoder`, an `Encoder` or `Decoder`; `start`, which returns `first_state` and
    whatever else it needs; and `logits`, from (..., D) to (..., V). Its config has the dict
    `_arguments`, and `architecture`, None or an `Architecture`.

    Example:
        >>> from tf_transformer import LanguageModel, greedy_decode
        >>> model = LanguageModel(1, 8, 2, 16, vocab_size=11, max_position=9)
        >>> state = model.start(tf.constant([[5, 7]]), max_length=4)
        >>> ids = greedy_decode(model.step, state, 1, start_id=1, end_id=2, max_length=4)
        >>> ids[0, :2].numpy().tolist()
        [5, 7]
    """

    def step(self, tokens, state):
        """Read one token per row and predict the next.

        Args:
            tokens: integer tensor (B * K,), the start token first.
            state: from `start`, then from the last `step`.

        Returns:
            `(logits, state)`: float tensor (B * K, V), and the state for the next step.
        """
        position, lineage = state["position"], state["lineage"]
        batch, beams, length = tf.unstack(tf.shape(lineage))
        rows = tf.range(beams)
        here = tf.equal(tf.range(length), position)  # (L,)
        lineage = tf.where(here, tf.expand_dims(rows, 1), lineage)  # (B, K, L)
        mask = tf.equal(tf.expand_dims(lineage, -1), rows)  # (B, K, L, K)
        x, caches = self.decoder.step(
            tf.reshape(tokens, (batch, beams)),
            caches=state["caches"],
            position=position,
            mask=tf.reshape(mask, (batch, 1, beams, length * beams)),
            **state["source"],
        )
        logits = self.logits(tf.reshape(x, (batch * beams, x.shape[-1])))
        return logits, {**state, "position": position + 1, "caches": caches, "lineage": lineage}

    def reorder(self, state, rows):
        """Reorder rows so that they continue from other rows, for `beam_search`.

        The caches are unchanged: only the record of which row wrote which token is updated.

        Args:
            state: from `step`.
            rows: int32 tensor (B * K,): row r continues from row `rows[r]`.

        Returns:
            The state.
        """
        lineage = state["lineage"]
        shape = tf.shape(lineage)
        flat = tf.reshape(lineage, (shape[0] * shape[1], shape[2]))
        return {**state, "lineage": tf.reshape(tf.gather(flat, rows), shape)}

    def resize(self, state, sentences, room):
        """Keep some of the sentences and enlarge the caches, for `decode_loop`.

        Args:
            state: from `start` or `step`.
            sentences: int32 tensor (B',), the indices of the sentences to keep.
            room: int or scalar int32 tensor, the number of tokens per sentence that the new state
                has room for, unless it already has room for more.

        Returns:
            The state.
        """
        position, others = state["position"], {k: v for k, v in state.items() if k != "position"}
        state = tf.nest.map_structure(lambda x: tf.gather(x, sentences), others)
        _, beams, length = tf.unstack(tf.shape(state["lineage"]))
        more = tf.maximum(room - length, 0)
        lineage = tf.pad(state["lineage"], [[0, 0], [0, 0], [0, more]], constant_values=-1)
        slots = [[0, 0], [0, 0], [0, beams * more], [0, 0]]
        caches = tf.nest.map_structure(lambda cache: tf.pad(cache, slots), state["caches"])
        return {**state, "position": position, "lineage": lineage, "caches": caches}

    def get_config(self):
        # Not in `_arguments`: Keras would track the dict, and a config with it cannot be copied.
        architecture = self.architecture and self.architecture.to_dict()
        return {**super().get_config(), **self._arguments, "architecture": architecture}

    @classmethod
    def from_config(cls, config):
        return cls(**with_architecture(config))
