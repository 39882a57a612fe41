"""ALBERT's two ideas in a small translator: layers that share weights, narrow word vectors.

The one without them is "attention first" of `orders`: two layers a side, word vectors of width 64.
"""

from functools import partial

from tf_transformer.layers import Architecture
from trainings.translator import trained

VARIANTS = {
    "shared layers": partial(trained, architecture=Architecture(num_groups=1)),
    "one layer": partial(trained, layers=1),
    "narrow words": partial(trained, architecture=Architecture(embedding_size=16)),
    "both": partial(trained, architecture=Architecture(num_groups=1, embedding_size=16)),
}
