"""What a model attends to in a text, in all of its stacks.

Axes: S source length, T target length.
"""

import tensorflow as tf

from tf_transformer.functional.attention.masks import create_padding_mask
from tf_transformer.functional.attention.recording import recorded_attention
from tf_transformer.models.bert.text_inputs import text_inputs
from tf_transformer.visualize.attention_stack import AttentionStack
from tf_transformer.visualize.token_labels import token_labels


def bert_stacks(model, tokenizer, texts):
    """Run BERT on a text or a pair, and keep its attention.

    Args:
        model: built `Bert`, or a model with one as `.bert`.
        tokenizer: its `GraphTokenizer`.
        texts: list of one or two str; what is longer than the position table is left out.

    Returns:
        list of one `AttentionStack`, "encoder".

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tf_transformer import bert
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\na\\nb")
        >>> model = bert.Bert(bert.BertConfig(7, 8, 1, 2, 9))
        >>> bert_stacks(model, bert.read_tokenizer(folder), ["a b", "a"])[0].keys
        ['[CLS]', 'a', 'b', '[SEP]', 'a', '[SEP]']
    """
    encoder = getattr(model, "bert", model)
    most = encoder.config.max_position_embeddings
    inputs = text_inputs(tokenizer, texts[:1], texts[1:] or None, most)
    with recorded_attention() as calls:
        encoder(inputs, training=False, return_attentions=True)
    labels = token_labels(tokenizer, inputs["input_ids"][0])
    return [AttentionStack.of("encoder", labels, labels, calls)]


def transformer_stacks(model, tokenizer, source, translation):
    """Run a translator on a text and its translation, as in training, and keep its attention.

    Args:
        model: built `Transformer`.
        tokenizer: a `GraphTokenizer`, or the one inside a loaded SavedModel.
        source, translation: str; what is longer than the model's limits is left out.

    Returns:
        list of three `AttentionStack`: "encoder", "decoder" and "cross". A row of "decoder" belongs
        to the token that is read, a row of "cross" to the token that is predicted next.

    Example:
        >>> import tempfile
        >>> from tf_transformer import BPETokenizer, GraphBPE, Transformer
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> BPETokenizer.train(["hello world"] * 9, vocab_size=300).save(path)
        >>> tokenizer = GraphBPE.from_file(path)
        >>> size = tokenizer.vocab_size
        >>> model = Transformer(1, 8, 2, 16, size, size, pe_input=16, pe_target=16)
        >>> [stack.queries for stack in transformer_stacks(model, tokenizer, "hello", "hello")]
        [['hello', '</s>'], ['<s>', 'hello'], ['hello', '</s>']]
    """
    source_ids, target_ids = teacher_forcing_ids(model, tokenizer, source, translation)
    padding = create_padding_mask(source_ids)
    with recorded_attention() as calls:
        encoded, _ = model.encoder(source_ids, False, padding, return_attention_weights=True)
        depth = len(calls)
        model.decoder(target_ids, encoded, False, None, padding, True, causal=True)
    of_source = [*token_labels(tokenizer, source_ids[0, :-1]), "</s>"]
    of_target = token_labels(tokenizer, target_ids[0, 1:])
    read, predicted = ["<s>", *of_target], [*of_target, "</s>"]
    decoder = calls[depth:]  # in turn to itself and to the encoder
    return [
        AttentionStack.of("encoder", of_source, of_source, calls[:depth]),
        AttentionStack.of("decoder", read, read, decoder[0::2]),
        AttentionStack.of("cross", predicted, of_source, decoder[1::2]),
    ]


def teacher_forcing_ids(model, tokenizer, source, translation):
    """The inputs of a translator for a text and its translation.

    Args:
        model, tokenizer, source, translation: see `transformer_stacks`.

    Returns:
        int32 tensors (1, S), which ends in the end token, and (1, T), which begins with the start
        token.

    Example:
        >>> import tempfile
        >>> from tf_transformer import BPETokenizer, GraphBPE, Transformer
        >>> path = tempfile.mkdtemp() + "/tokenizer.json"
        >>> BPETokenizer.train(["hello world"] * 9, vocab_size=300).save(path)
        >>> tokenizer = GraphBPE.from_file(path)
        >>> size = tokenizer.vocab_size
        >>> model = Transformer(1, 8, 2, 16, size, size, pe_input=16, pe_target=16)
        >>> ids = teacher_forcing_ids(model, tokenizer, "hello", "hello world")
        >>> [one.shape.as_list() for one in ids]
        [[1, 2], [1, 3]]
    """
    encoded = tokenizer.encode_strings(tf.constant([source, translation]))
    config = model.get_config()
    longest = config["pe_input"], config["pe_target"]
    source_ids, target_ids = (
        ids.numpy()[: most - 1] for ids, most in zip(encoded, longest, strict=True)
    )
    special = {role: int(number) for role, number in tokenizer.special_ids().items()}
    inputs = [[*source_ids, special["end"]]], [[special["start"], *target_ids]]
    return tuple(tf.constant(ids, tf.int32) for ids in inputs)
