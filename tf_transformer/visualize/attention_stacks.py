"""What a model attends to in a text, in all of its stacks.

Axes: S source length, T target length.
"""

import tensorflow as tf

from tf_transformer.functional.attention.masks import create_padding_mask
from tf_transformer.functional.attention.scaled_dot_product import recorded_attention
from tf_transformer.models.bert.text_inputs import text_inputs
from tf_transformer.visualize.attention_stack import AttentionStack
from tf_transformer.visualize.token_labels import token_labels


def bert_stacks(model, tokenizer, texts):
    """Run BERT on a text or a pair, and keep its attention."""
    encoder = getattr(model, "bert", model)
    most = encoder.config.max_position_embeddings
    inputs = text_inputs(tokenizer, texts[:1], texts[1:] or None, most)
    with recorded_attention() as calls:
        encoder(inputs, training=False, return_attentions=True)
    labels = token_labels(tokenizer, inputs["input_ids"][0])
    return [AttentionStack.of("encoder", labels, labels, calls)]


def transformer_stacks(model, tokenizer, source, translation):
    """Run a translator on a text and its translation, as in training, and keep its attention."""
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
    """The inputs of a translator for a text and its translation."""
    encoded = tokenizer.encode_strings(tf.constant([source, translation]))
    config = model.get_config()
    longest = config["pe_input"], config["pe_target"]
    source_ids, target_ids = (
        ids.numpy()[: most - 1] for ids, most in zip(encoded, longest, strict=True)
    )
    special = {role: int(number) for role, number in tokenizer.special_ids().items()}
    inputs = [[*source_ids, special["end"]]], [[special["start"], *target_ids]]
    return tuple(tf.constant(ids, tf.int32) for ids in inputs)
