"""Published models: outputs of transformers on torch, both directions, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tf_transformer import greedy_decode
from tf_transformer.models.hugging_face import load, save_pretrained

FOLDER = Path(__file__).parents[2] / "vectors" / "published"
NAMES = sorted(path.name for path in FOLDER.iterdir())
every = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def models():
    """A function: name -> the model and what transformers computes."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = load(FOLDER / name), dict(np.load(FOLDER / name / "golden.npz"))
        return made[name]

    return of


def has_encoder(model):
    return hasattr(model, "encoder")


@every
def test_outputs_are_those_of_transformers(models, name):
    model, expected = models(name)
    inputs, tokens = expected["input_ids"], expected["attention_mask"].astype(bool)
    assert (not tokens.all()) == (model.pad_id is not None)
    if has_encoder(model):
        inputs = inputs, expected["decoder_input_ids"]
        tokens = np.ones_like(inputs[1], bool)
    # At padding, outputs mean nothing.
    found = model(inputs)
    np.testing.assert_allclose(found[tokens], expected["logits"][tokens], rtol=1e-5, atol=1e-5)


def hidden_states(stack, ids, attend):
    """The inputs of all layers and the last output."""
    states, x = [], stack.embedding(ids)
    for layer in getattr(stack, "enc_layers", None) or stack.dec_layers:
        states.append(x)
        x = attend(layer, x)
    return [*states, x if stack.final_norm is None else stack.final_norm(x)]


@every
def test_hidden_states_are_those_of_transformers(models, name):
    model, expected = models(name)
    tokens = expected["attention_mask"].astype(bool)
    mask, ids = tokens[:, np.newaxis, np.newaxis], expected["input_ids"]
    if not has_encoder(model):
        found = hidden_states(model.decoder, ids, lambda f, x: f(x, mask=mask, causal=True))
        pairs = [(found, expected["hidden_states"], tokens)]
    else:
        encoder = hidden_states(model.encoder, ids, lambda f, x: f(x, mask=mask))
        targets, last = expected["decoder_input_ids"], encoder[-1]
        decoder = hidden_states(
            model.decoder, targets, lambda f, x: f(x, last, padding_mask=mask, causal=True)[0]
        )
        everywhere = np.ones_like(targets, bool)
        pairs = [
            (encoder, expected["encoder_hidden_states"], tokens),
            (decoder, expected["decoder_hidden_states"], everywhere),
        ]
    for found, wanted, real in pairs:
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one[real], other[real], rtol=1e-5, atol=1e-5)


@every
def test_greedy_tokens_are_those_of_generate(models, name):
    model, expected = models(name)
    prompts, wanted = expected["prompts"], expected["greedy"]
    start, length = int(wanted[0, 0]), wanted.shape[1] - 1
    inputs = prompts if has_encoder(model) else prompts[:, 1:]
    state = model.start(inputs, length)
    ends = {"start_id": start, "end_id": 3, "pad_id": None, "max_length": length}
    found = greedy_decode(model.step, state, len(prompts), **ends)
    np.testing.assert_array_equal(found, wanted[:, 1:])


@every
def test_a_saved_folder_is_the_same(models, name, tmp_path):
    model, _ = models(name)
    save_pretrained(model, tmp_path / "model", tokenizer_from=FOLDER / name)
    ours, theirs = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "model", FOLDER / name)
    )
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        # T5's are multiplied and divided by roots.
        np.testing.assert_allclose(array, theirs[key], rtol=2e-7 * name.startswith("t5"))
    again = load(tmp_path / "model")
    assert again.get_config() == {**model.get_config(), "name": again.name}
    written, read = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "model", FOLDER / name)
    )
    assert written["architectures"] == read["architectures"]
    assert {key: written.get(key) for key in read if key.endswith("_token_id")} == {
        key: value for key, value in read.items() if key.endswith("_token_id")
    }
