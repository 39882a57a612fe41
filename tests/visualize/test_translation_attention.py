"""The attention weights of a sentence pair equal those of the model's forward pass."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import BPETokenizer, GraphBPE, Transformer
from tf_transformer.visualize import attention_svg, translation_attention

pytestmark = pytest.mark.one_of(3, "core")

SENTENCES = ["Where is the station?", "车站在哪里？"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    BPETokenizer.train(SENTENCES * 5, vocab_size=264).save(path)
    return GraphBPE.from_file(path)


def new_model(tokenizer, layers=2):
    sizes = {"pe_input": 64, "pe_target": 64, "share_embeddings": True}
    return Transformer(layers, 8, 2, 16, *[tokenizer.vocab_size] * 2, **sizes)


@pytest.fixture
def model(tokenizer):
    return new_model(tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, (1, 2), (3, 2)])
def test_weights_are_the_last_decoder_layers(tokenizer, layers):
    model = new_model(tokenizer, layers)
    weights, rows, columns = translation_attention(model, tokenizer, *SENTENCES)
    source, target = tokenizer.encode(SENTENCES).to_list()
    inputs = tf.constant([[*source, tokenizer.end_id]]), tf.constant([[1, *target]])
    _, attention = model(inputs, return_attention_weights=True)
    assert weights.shape == (2, len(target) + 1, len(source) + 1)
    np.testing.assert_array_equal(weights, attention["decoder_layer2_block2"][0])
    assert (len(rows), len(columns)) == weights.shape[1:]
    attention_svg(weights, rows, columns)


@pytest.mark.slow
def test_tokens_are_whole_characters_or_bytes(model, tokenizer):
    _, rows, columns = translation_attention(model, tokenizer, *SENTENCES)
    assert rows[-1] == columns[-1] == "</s>"
    written = b""
    for row in rows[:-1]:
        try:
            written += bytes.fromhex(row)
        except ValueError:
            written += row.encode()
    assert written.decode() == SENTENCES[1]
    # The vocabulary is so small that a character is split into several tokens.
    assert any(row.encode() not in written for row in rows[:-1])


def test_an_empty_text_has_its_end_alone(model, tokenizer):
    weights, rows, columns = translation_attention(model, tokenizer, "", "")
    np.testing.assert_allclose(weights, np.ones((2, 1, 1)), rtol=1e-6)
    assert rows == columns == ["</s>"]


def test_texts_past_the_table_of_positions_are_cut(model, tokenizer):
    weights, rows, columns = translation_attention(model, tokenizer, "ab " * 99, "车" * 99)
    assert weights.shape == (2, 64, 64)
    assert (len(rows), len(columns)) == (64, 64)
