"""`generate` with published settings: the tokens of transformers on torch; bad input.

Axes: B batch, K beams, L maximum length.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer import Ensemble, LanguageModel, generate
from tf_transformer.models.hugging_face import generation_settings, load

pytestmark = pytest.mark.one_of(10, "parts")

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = json.loads((VECTORS / "generation" / "cases.json").read_text())
PAD = 28


@pytest.fixture(scope="module")
def models():
    """A function: name -> the model."""
    made = {}

    def of(name):
        if name not in made:
            home = "published" if name == "gpt2" else "generation"
            made[name] = load(VECTORS / home / name)
        return made[name]

    return of


def case(folder, number, **changes):
    """A model's name, its settings, which the folder gets, and the expected tokens."""
    content = CASES[number]
    (folder / "generation_config.json").write_text(json.dumps(content["settings"]))
    settings = generation_settings(folder, **changes)
    assert settings["pad_id"] == PAD
    return content["model"], settings, content["inputs"], list(itertools.chain(*content["tokens"]))


def inputs_of(model, texts):
    if isinstance(model, LanguageModel):
        return tf.ragged.constant(texts, tf.int32)
    return tf.ragged.constant(texts, tf.int32).to_tensor(model.pad_id)


def assert_tokens(ids, expected):
    assert ids.dtype == tf.int32 and ids.shape == (len(expected), max(map(len, expected)))
    rows = [[*row, *[PAD] * (ids.shape[1] - len(row))] for row in expected]
    np.testing.assert_array_equal(ids, rows)


@pytest.mark.one_of(10)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_tokens_are_those_of_transformers(models, tmp_path, number):
    """In one batch, the tokens that every text gets alone."""
    name, settings, texts, expected = case(tmp_path, number)
    model = models(name)
    assert_tokens(generate(model, inputs_of(model, texts), **settings), expected)


def test_there_are_enough_cases():
    assert sum(len(case["inputs"]) for case in CASES) >= 200
    names = set().union(*(case["settings"] for case in CASES))
    assert len(names) >= 20
    for name in ("early_stopping", "length_penalty"):
        assert len({str(case["settings"].get(name)) for case in CASES}) >= 4


# Of each model, one with beams and rules.
@pytest.mark.one_of(10)
@pytest.mark.parametrize("number", [10, 14, 23])
@pytest.mark.parametrize("way", ["a graph", "XLA"])
def test_graph_and_xla_give_the_same_tokens(models, tmp_path, number, way):
    name, settings, texts, expected = case(tmp_path, number)
    model = models(name)
    inputs = inputs_of(model, texts)
    if way == "XLA":
        found = generate(model, inputs, **settings, jit_compile=True)
    else:
        found = tf.function(lambda x: generate(model, x, **settings), autograph=False)(inputs)
    assert_tokens(found, expected)


class Uncached(LanguageModel):
    """Runs the whole model on all tokens at every step."""

    def start(self, prompt, max_length, beam_size=1):
        prompt = self._read_prompt(prompt)
        rows = tf.shape(prompt)[0] * beam_size
        read = tf.zeros((rows, 23), tf.int32)
        return {"prompt": prompt, "read": read, "count": tf.zeros((rows,), tf.int32)}

    def prefill(self, state, start_ids):
        return state, state["prompt"][:, :0]

    def step(self, tokens, state):
        read, count, prompt = state["read"], state["count"], state["prompt"]
        here = tf.equal(tf.range(23), count[:, tf.newaxis])
        read = tf.where(here, tokens[:, tf.newaxis], read)
        logits = tf.gather(self(read), count, batch_dims=1)
        prompt = tf.pad(prompt, [[0, 0], [0, 23]], constant_values=-1)
        wanted = tf.repeat(prompt, tf.shape(read)[0] // tf.shape(prompt)[0], axis=0)
        wanted = tf.gather(wanted, count, batch_dims=1)[:, tf.newaxis]
        only = tf.where(tf.equal(tf.range(29), wanted), 0.0, -float("inf"))
        logits = tf.where(wanted >= 0, only, logits)
        return logits, {"prompt": prompt[:, :-23], "read": read, "count": count + 1}

    def reorder(self, state, rows):
        return {**state, "read": tf.gather(state["read"], rows)}

    def resize(self, state, kept, room):
        beams = tf.shape(state["read"])[0] // tf.shape(state["prompt"])[0]
        rows = tf.reshape(kept[:, tf.newaxis] * beams + tf.range(beams), (-1,))
        kept = {"prompt": tf.gather(state["prompt"], kept)}
        return kept | {name: tf.gather(state[name], rows) for name in ("read", "count")}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("number", [1, 7])
def test_uncached_decoding_gives_the_same_tokens(models, tmp_path, number):
    _, settings, texts, expected = case(tmp_path, number)
    cached = models("gpt2")
    config = {k: v for k, v in cached.get_config().items() if k in cached._arguments}
    model = Uncached(**config, architecture=cached.architecture)
    model.build()
    model.set_weights(cached.get_weights())
    assert_tokens(generate(model, inputs_of(model, texts), **settings), expected)


@pytest.mark.slow
def test_samples(models, tmp_path):
    changes = {"do_sample": True, "num_beams": 1, "num_return_sequences": 3, "top_k": 7}
    _, settings, texts, _ = case(tmp_path, 3, **changes, top_p=0.9)
    assert settings["sampling"] == {"temperature": 1.0, "top_k": 7, "top_p": 0.9}
    inputs = inputs_of(models("gpt2"), texts)
    one, again, other = (
        generate(models("gpt2"), inputs, **settings, seed=seed).numpy().tolist()
        for seed in (1, 1, 2)
    )
    assert len(one) == 3 * len(texts) and one == again != other
    words = settings["token_rules"]["bad_words"]
    banned = {word[0] for word in words if len(word) == 1}
    prompts = [text for text in texts for _ in range(3)]
    assert banned and len({tuple(row) for row in one}) > len(texts)
    for row, prompt in zip(one, prompts, strict=True):
        assert row[: len(prompt)] == prompt and not banned & set(row[len(prompt) :])


def test_a_prompt_may_contain_the_end(models):
    settings = {"end_id": (3, 8), "pad_id": PAD, "max_new_tokens": 3}
    ids = generate(models("gpt2"), [[7, 3, 9], [8, 8, 3]], **settings)
    assert ids[:, :3].numpy().tolist() == [[7, 3, 9], [8, 8, 3]]
    assert ids.shape[1] > 3 and (ids[:, 3] != PAD).numpy().all()


@pytest.mark.slow
def test_a_default_number_of_tokens(models):
    ids = generate(models("gpt2"), [[7], [9]], end_id=())
    assert ids.shape == (2, 21)
    ids = generate(models("gpt2"), [[7, 8, 9, 10, 11], [9, 8, 9, 10, 11]], end_id=())
    assert ids.shape == (2, 23)  # all positions


@pytest.mark.parametrize("strategy", [{}, {"sampling": {}}, {"beams": {"beam_size": 2}}])
@pytest.mark.parametrize("name, first", [("gpt2", {}), ("bart", {"start_id": 2})])
def test_no_texts(models, name, first, strategy):
    ids = generate(
        models(name),
        tf.zeros((0, 3), tf.int32),
        end_id=2,
        n_best=2 if strategy else 1,
        **first,
        **strategy,
    )
    assert ids.shape[0] == 0 and ids.dtype == tf.int32


@pytest.mark.parametrize(
    "name, inputs, options, message",
    [
        ("gpt2", [[7, 8]], {"max_length": 2}, "max_length: expected more tokens than in every"),
        ("gpt2", [[7, 8]], {"max_length": 30}, "max_length.*: expected at most 23 tokens"),
        ("gpt2", [[7, 8]], {"max_new_tokens": 0}, "max_new_tokens: expected at least 1, got 0"),
        ("gpt2", [[7, 8]], {"n_best": 2}, "n_best: expected 1 to 1, got 2"),
        ("gpt2", [[7, 8]], {"start_id": 2}, "start_id: expected None for a language model"),
        ("gpt2", tf.ragged.constant([[7], []]), {}, "inputs: expected at least one token"),
        ("gpt2", tf.zeros((2, 0), tf.int32), {}, "inputs: expected at least one token"),
        ("gpt2", [[7.5, 8]], {}, "inputs: expected whole numbers"),
        ("gpt2", tf.ragged.constant([[7.5, 8], [7]]), {}, "inputs: expected whole numbers"),
        ("gpt2", tf.ragged.constant([[29, 8], [7]]), {}, r"inputs: expected ids in \[0, 29\)"),
        ("gpt2", [7, 8], {}, r"inputs: expected integers \(batch, length\), got shape \(2,\)"),
        ("gpt2", [[7, 8], [7]], {}, "inputs: expected integers .*rows of different lengths"),
        ("bart", [[7, 8]], {}, "start_id: expected the id with which targets begin"),
        ("bart", [[7, 8]], {"start_id": 29}, "start_id: expected 0 to 28, got 29"),
        ("gpt2", [[7, 8]], {"end_id": (3, 29)}, "end_id: expected 0 to 28, got 29"),
        ("gpt2", [[7, 8]], {"end_id": None}, r"end_id: expected an id, or \(\) for none"),
        ("gpt2", [[7]], {"beams": {"beam_size": 2}, "sampling": {}}, "expected one of them"),
        ("gpt2", [[7]], {"beams": {"n_best": 2}}, "beams: expected a dict with beam_size"),
        ("gpt2", [[7]], {"beams": 2}, "beams: expected a dict with beam_size, got 2"),
        (
            "gpt2",
            [[7]],
            {"num_beams": 2},
            "options: expected one of .*, got 'num_beams'.*settings",
        ),
        ("gpt2", [[7]], {"sampling": True}, "sampling: expected a dict of options, got True"),
    ],
)
def test_bad_input(models, name, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        generate(models(name), inputs, **{"end_id": 2, **options})


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="model: expected a LanguageModel or a Transformer, got"):
        generate(Ensemble([LanguageModel(1, 8, 2, 16, 13, 9)]), [[7]], end_id=2)
