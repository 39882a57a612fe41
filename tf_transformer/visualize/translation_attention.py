"""Cross-attention of a translation to its source.

Axes: N heads, T target length, S source length.
"""

from tf_transformer.visualize.attention_stacks import teacher_forcing_ids
from tf_transformer.visualize.token_labels import token_labels


def translation_attention(model, tokenizer, source, translation):
    """Attention of the decoder's last layer to the source, with the tokens of both sides.

    The model reads the translation as in training (teacher forcing), so row t is the attention
    while predicting token t, and the last row predicts the end. Texts longer than the model's
    position table are truncated, as in `Translator`.

    Args:
        model: `Transformer` with the vocabulary of `tokenizer`.
        tokenizer: `GraphTokenizer`, or the one inside a loaded SavedModel.
        source: str.
        translation: str.

    Returns:
        `(weights, target_tokens, source_tokens)`: float32 array (N, T, S), T and S strings; the
        arguments of `attention_svg`. Both sides end in "</s>"; a token that is only part of a
        character is written as its bytes in hexadecimal.

    Example:
        >>> import tempfile
        >>> from tf_transformer import BPETokenizer, GraphBPE, Transformer
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> BPETokenizer.train(["hello world"] * 9, vocab_size=300).save(path)
        >>> tokenizer = GraphBPE.from_file(path)
        >>> size = tokenizer.vocab_size
        >>> model = Transformer(1, 8, 2, 16, size, size, pe_input=16, pe_target=16)
        >>> weights, rows, columns = translation_attention(model, tokenizer, "hello", "hello world")
        >>> weights.shape, rows, columns
        ((2, 3, 2), ['hello', 'world', '</s>'], ['hello', '</s>'])
    """
    inputs = teacher_forcing_ids(model, tokenizer, source, translation)
    _, attention = model(inputs, False, return_attention_weights=True)
    layers = model.get_config()["num_layers"]  # of encoder and decoder, or both numbers
    last = f"decoder_layer{layers if isinstance(layers, int) else layers[1]}_block2"
    ids = inputs[1][0, 1:], inputs[0][0, :-1]
    tokens = [[*token_labels(tokenizer, one), "</s>"] for one in ids]
    return attention[last][0].numpy(), *tokens
