"""Parameter counts of BERT models by use."""

import numpy as np

# In matching order: a substring of the variable's name in lower case, and its use.
_PARTS = (
    ("_embeddings", "embeddings: words, positions, segments"),
    ("norm/", "layer normalisations"),
    ("embedding_hidden_mapping_in/", "mapping of the embeddings"),
    ("pooler/", "pooler"),
    ("/positions/", "positions inside attention"),
    ("/bias", "biases of attention and feed-forward"),
    ("/attention/", "attention: matrices of q, k, v and output"),
    ("", "feed-forward: matrices"),
)


def parameter_table(model):
    """Count the parameters of a model by use.

    Args:
        model: a built `Bert`, or one with a head.

    Returns:
        dict, part to number of parameters; "head" is everything above the encoder and the pooler,
        "all" the total.

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
            part = next(part for piece, part in _PARTS if piece in name.lower())
        table[part] = table.get(part, 0) + int(np.prod(variable.shape))
    return {**table, "all": sum(table.values())}
