"""A vocabulary as a trie. C code points."""

import numpy as np
import tensorflow as tf

from tf_transformer.tokenizers.graph.characters import NUM_CODES


class Trie(tf.Module):
    """Finds the tokens that begin at each of many positions, in parallel."""

    def __init__(self, *vocabularies):
        super().__init__(name="trie")
        children = {}  # node * NUM_CODES + code -> node
        tokens = {}
        num_nodes = len(vocabularies)
        for root, vocabulary in enumerate(vocabularies):
            for token, number in vocabulary.items():
                node = root
                for character in token:
                    child = children.setdefault(node * NUM_CODES + ord(character), num_nodes)
                    num_nodes += child == num_nodes
                    node = child
                tokens[node] = number
        self._token_of_node = np.full(num_nodes, -1, np.int32)
        self._token_of_node[list(tokens)] = list(tokens.values())
        self._children = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                # -1 matches no node; it is there because TensorFlow rejects an empty table.
                tf.constant([-1, *children], tf.int64),
                tf.constant([-1, *children.values()], tf.int32),
            ),
            default_value=-1,
        )

    def walk(self, codes, end, root):
        """Walk down the tree from every code point."""
        found = tf.zeros([0, 3], tf.int32)
        state = (0, tf.range(tf.size(codes)), root, found)
        vector = tf.TensorShape([None])

        def step(depth, places, nodes, found):
            inside = places + depth < tf.gather(end, places)
            places, nodes = tf.boolean_mask(places, inside), tf.boolean_mask(nodes, inside)
            keys = tf.cast(nodes, tf.int64) * NUM_CODES
            keys += tf.cast(tf.gather(codes, places + depth), tf.int64)
            nodes = self._children.lookup(keys)
            alive = nodes >= 0
            places, nodes = tf.boolean_mask(places, alive), tf.boolean_mask(nodes, alive)
            ids = tf.gather(self._token_of_node, nodes)
            depth += 1
            matches = tf.stack([places, tf.fill(tf.shape(places), depth), ids], axis=1)
            matches = tf.boolean_mask(matches, ids >= 0)
            return depth, places, nodes, tf.concat([found, matches], axis=0)

        *_, found = tf.while_loop(
            lambda depth, places, *_: tf.size(places) > 0,
            step,
            state,
            shape_invariants=(tf.TensorShape([]), vector, vector, tf.TensorShape([None, 3])),
        )
        return tf.unstack(found, axis=1)
