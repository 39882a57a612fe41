"""What the parameters of a BERT are for."""

import numpy as np

# In the order in which a variable's name is looked at: a piece of the name, and what it is for.
_PARTS = (
    ("_embeddings", "embeddings: words, positions, segments"),
    ("LayerNorm/", "layer normalisations"),
    ("embedding_hidden_mapping_in/", "mapping of the embeddings"),
    ("pooler/", "pooler"),
    ("/bias", "biases of attention and feed-forward"),
    ("/attention/", "attention: matrices of q, k, v and output"),
    ("", "feed-forward: matrices"),
)


def parameter_table(model):
    """Count the parameters of a model by their use.

    Args:
        model: a built `Bert`, or one with a head.

    Returns:
        dict, part to the number of its parameters; "head" is what lies above the encoder and the
        pooler, "all" the sum.

    Example:
        >>> from tf_transformer.models.bert import Bert, BertConfig
        >>> model = Bert(BertConfig(11, 8, 2, 2, 16, max_position_embeddings=7))
        >>> model.build()
        >>> table = parameter_table(model)
        >>> table["attention: matrices of q, k, v and output"] == 2 * 4 * 8 * 8
        True
        >>> table["all"] == model.count_params()
        True
    """
    table = {}
    for name, variable in model.variables_by_name().items():
        part = "head"
        if name.startswith("bert/"):
            part = next(part for piece, part in _PARTS if piece in name)
        table[part] = table.get(part, 0) + int(np.prod(variable.shape))
    return {**table, "all": sum(table.values())}
