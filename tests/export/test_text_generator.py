"""Continuations of texts: those of transformers; stop strings, samples, streams, SavedModels."""

import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from serving_contract import check_serving_contract
from small_generators import FOLDER, generator_folder

from tf_transformer import (
    Ensemble,
    GraphTokenizer,
    LanguageModel,
    TextGenerator,
    count_compilations,
    generate,
    load,
    sample_decode,
    stream_text,
)
from tf_transformer.export.saving import load_saved_model
from tf_transformer.export.text_generator import cut_at_stop

pytestmark = pytest.mark.one_of(10, "published")

CASES = json.loads((FOLDER / "cases.json").read_text("utf-8"))
GROUPS = [
    list(cases)
    for _, cases in itertools.groupby(CASES, lambda case: (case["model"], case["settings"]))
]
PROMPTS = ["the cat", "a", "é 你", "in the end, it is an apple"]
HOT = {"seed": 5, "temperature": 1.5, "top_k": 40, "top_p": 0.95}


def texts_of(tensor):
    return [text.decode() for text in tensor.numpy()]


def cut(text, stop):
    """The text before the stop string that ends first, as if it grew by single characters."""
    for end in range(len(text) + 1):
        found = [text[:end].index(one) for one in stop if text[:end].endswith(one)]
        if found:
            return text[: min(found)]
    return text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generator_folder(tmp_path_factory.mktemp("gpt2") / "gpt2", "gpt2", max_new_tokens=14)


@pytest.fixture(scope="module")
def counted(folder):
    """A generator, and a variable with how many steps its model ran."""
    model, steps = load(folder), tf.Variable(0)
    step = model.step

    def counting(tokens, state):
        steps.assign_add(1)
        return step(tokens, state)

    model.step = counting
    tokenizer = GraphTokenizer.from_file(folder / "tokenizer.json")
    return TextGenerator(model, tokenizer, end_id=1, start_id=0, max_new_tokens=14), steps


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    TextGenerator.from_pretrained(folder).save(path)
    return path


@pytest.mark.one_of(16)
@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_texts_are_those_of_transformers(number, tmp_path):
    cases = GROUPS[number]
    path = generator_folder(tmp_path / "m", cases[0]["model"], **cases[0]["settings"])
    generator = TextGenerator.from_pretrained(path)
    whole = [case for case in cases if not case["stop"]]
    prompts, expected = ([case[name] for case in whole] for name in ("prompt", "text"))
    assert texts_of(generator.generate(prompts)) == expected
    for case in cases:
        found = texts_of(generator.generate([case["prompt"]], stop=case["stop"]))
        assert found == [case["text"]], case


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4, len(GROUPS), 4))
def test_saved_models_of_all_kinds(number, tmp_path):
    cases = [case for case in GROUPS[number] if not case["stop"]]
    path = generator_folder(tmp_path / "m", cases[0]["model"], **cases[0]["settings"])
    TextGenerator.from_pretrained(path).save(tmp_path / "saved")
    loaded = load_saved_model(tmp_path / "saved")
    found = loaded.generate(tf.constant([case["prompt"] for case in cases]))
    assert texts_of(found) == [case["text"] for case in cases]


def test_there_are_enough_cases():
    assert len(GROUPS) == 16 and sum(bool(case["stop"]) for case in CASES) >= 30
    assert sum("\N{REPLACEMENT CHARACTER}" in case["text"] for case in CASES) >= 3


def test_the_text_of_the_ids_of_generate(counted, folder):
    generator, _ = counted
    tokenizer, model = generator.tokenizer, load(folder)
    ids = tokenizer.encode(PROMPTS)
    found = generate(model, ids, end_id=1, max_new_tokens=14)
    together = texts_of(generator.generate(PROMPTS))
    rows = zip(found.numpy(), ids.row_lengths().numpy(), strict=True)
    assert together == [texts_of(tokenizer.decode([row[count:]]))[0] for row, count in rows]
    assert together == [texts_of(generator.generate([prompt]))[0] for prompt in PROMPTS]


def test_samples_are_those_of_sample_decode(counted, folder):
    generator, _ = counted
    tokenizer, model = generator.tokenizer, load(folder)
    ids = tokenizer.encode(["the cat"]).to_tensor()
    count = ids.shape[1] - 1
    options = {**HOT, "start_id": ids[0, 0], "end_id": 1, "max_length": count + 25, "pad_id": None}
    options |= {"prompt_lengths": [count]}
    drawn = sample_decode(model.step, model.start(ids[:, 1:], 41), 1, **options)[:, count:]
    end = [*drawn.numpy()[0].tolist(), 1].index(1)
    [text] = texts_of(generator.sample(["the cat"], **HOT, max_new_tokens=25))
    assert [text] == texts_of(tokenizer.decode(drawn[:, :end])) and len(text) > 5
    assert [text] != texts_of(generator.sample(["the cat"], **{**HOT, "seed": 6}))


def test_a_sample_depends_on_its_place_and_not_on_other_texts(counted):
    """Finished texts leave a batch of more than eight."""
    generator, _ = counted
    texts = ["the"] * 17
    many = texts_of(generator.sample(texts, **HOT))
    assert len(set(many)) > 8
    assert texts_of(generator.sample(texts[:3], **HOT)) == many[:3]
    # One that most of the texts have, and some do not.
    counts = {one: sum(one in text for text in many) for one in "".join(many)}
    stop = [min(counts, key=lambda one: abs(counts[one] - 12))]
    assert 9 <= counts[stop[0]] <= 15
    stopped = texts_of(generator.sample(texts, **HOT, stop=stop))
    assert stopped == [cut(text, stop) for text in many]


def test_a_stop_string_ends_the_loop(counted):
    generator, steps = counted
    [prompt] = prompts = ["on a day\n"]
    [whole] = texts_of(generator.generate(prompts))
    for stop, kept in ((["na"], 4), (["x", whole[3:6]], 0), (["never"], 14)):
        steps.assign(0)
        found = texts_of(generator.generate(prompts, stop=stop))
        assert found == [cut(whole, stop)]
        if kept:
            text = whole[: whole.find(stop[0]) + len(stop[0])] if kept < 14 else whole
            new = len(generator.tokenizer.encode([text]).values)
            assert steps.numpy() == (new if kept < 14 else 14)  # none for the prompt
        else:
            assert steps.numpy() < 14
    assert texts_of(generator.generate(prompts, stop=[prompt])) == [whole]


@pytest.mark.parametrize("seed", range(3))
def test_the_first_stop_string(seed):
    rng = np.random.default_rng(seed)
    letters = np.array(list("aé\n"))

    def draw(least, most):
        return "".join(rng.choice(letters, rng.integers(least, most)))

    for _ in range(30):
        texts = [draw(0, 9) for _ in range(5)]
        stop = [draw(1, 5) for _ in range(rng.integers(0, 5))]
        found, is_cut = cut_at_stop(tf.constant(texts), tf.constant(stop, tf.string))
        assert texts_of(found) == [cut(text, stop) for text in texts], (texts, stop)
        assert is_cut.numpy().tolist() == [cut(text, stop) != text for text in texts]
    assert texts_of(cut_at_stop(tf.constant(["xaby"]), tf.constant(["aby", "b"]))[0]) == ["xa"]


def streamed(model, text, **options):
    """The pieces, and why the text ends."""
    pieces, stream = [], stream_text(model, text, **options)
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value


def test_a_stream_is_the_whole_text(counted):
    generator, _ = counted
    for seed, prompt in enumerate(PROMPTS[:2]):
        options = {**HOT, "seed": seed, "max_new_tokens": 30}
        [whole] = texts_of(generator.sample([prompt], **options))
        pieces, _ = streamed(generator, prompt, **options)
        assert "".join(pieces) == whole and len(pieces) > 5 and all(pieces)
        for stop in ([whole[4:6], "never"], [whole[3:9], whole[8:10]], [whole[-3:]]):
            [short] = texts_of(generator.sample([prompt], **options, stop=stop))
            pieces, ended = streamed(generator, prompt, **options, stop=stop)
            assert "".join(pieces) == short == cut(whole, stop) and ended == "stop"
    [whole] = texts_of(generator.generate(["a"]))
    pieces, ended = streamed(generator, "a")
    assert "".join(pieces) == whole and len(pieces) == 14 and ended == "length"


def test_a_stream_traces_its_step_once(counted):
    generator, steps = counted
    streamed(generator, "the", max_new_tokens=2)
    steps.assign(0)
    with count_compilations() as built:
        streamed(generator, "an apple", max_new_tokens=34)  # the cache grows
    assert built.traces == 0
    assert steps.numpy() == 34  # none for the prompt


def test_a_stream_ends_when_nobody_reads_it(counted):
    generator, steps = counted
    steps.assign(0)
    stream = generator.stream("a")
    next(stream), next(stream)
    stream.close()
    assert steps.numpy() <= 3


@pytest.mark.slow
def test_an_end_token_ends_a_text_and_is_no_part_of_it(counted, folder):
    """Here one that is not special."""
    generator, _ = counted
    [text] = texts_of(generator.generate(["on a day\n"]))
    assert text.startswith(" anan")
    [end] = generator.tokenizer.encode(["an"]).values.numpy()
    other = TextGenerator(load(folder), generator.tokenizer, end_id=(1, int(end)))
    assert texts_of(other.generate(["on a day\n"])) == [" "]
    assert streamed(other, "on a day\n") == ([" "], "stop")


@pytest.mark.slow
def test_loads_where_there_is_only_tensorflow(saved, counted, tmp_path):
    generator, _ = counted
    script = (
        "import json, sys, tensorflow as tf\n"
        "texts = tf.constant(json.load(sys.stdin))\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "found = [model.signatures['serving_default'](text=texts)]\n"
        "found.append(model.signatures['generate'](text=texts, seed=tf.constant(0),\n"
        "  max_new_tokens=tf.constant(5), stop=tf.constant([' '])))\n"
        "found.append(model.signatures['sample'](text=texts, seed=tf.constant(5),\n"
        "  temperature=tf.constant(1.5), top_k=tf.constant(40), top_p=tf.constant(0.95),\n"
        "  max_new_tokens=tf.constant(30), stop=tf.constant([], tf.string)))\n"
        "assert not any(name.startswith('tf_transformer') for name in sys.modules)\n"
        "print(json.dumps([[x.decode() for x in one['continuation'].numpy()] for one in found]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(saved)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        check=True,
    )
    plain, short, drawn = json.loads(done.stdout.splitlines()[-1])
    assert plain == texts_of(generator.generate(PROMPTS))
    assert short == texts_of(generator.generate(PROMPTS, max_new_tokens=5, stop=[" "]))
    assert drawn == texts_of(generator.sample(PROMPTS, **HOT, max_new_tokens=30))


@pytest.mark.slow
def test_a_saved_model_streams(saved, counted):
    generator, _ = counted
    loaded = load_saved_model(saved)
    for options in ({}, {**HOT, "stop": [" "], "max_new_tokens": 20}):
        assert streamed(loaded, "the", **options) == streamed(generator, "the", **options)


@pytest.mark.slow
def test_every_weight_is_stored_once_and_serving_can_run_it(saved, folder):
    stored = tf.train.list_variables(str(saved / "variables" / "variables"))
    sizes = {name: int(np.prod(shape)) for name, shape in stored}
    weights = sum(size for name, size in sizes.items() if name.startswith("weights/"))
    assert weights == load(folder).count_params()
    others = {name for name in sizes if not name.startswith("weights/")}
    assert others == {"_CHECKPOINTABLE_OBJECT_GRAPH", "settings/.ATTRIBUTES/VARIABLE_VALUE"}
    names = ("serving_default", "generate", "sample")
    assert check_serving_contract(saved) == {name: ["continuation"] for name in names}


@pytest.mark.parametrize(
    "texts, options, message",
    [
        (["a", "a" * 44], {}, "text: expected at most 43 tokens in each.* The longest has:.*44"),
        (["a"], {"max_new_tokens": 44}, "max_length, max_new_tokens: expected at most 43 tokens"),
        (["a"], {"max_new_tokens": -1}, "max_new_tokens: expected at least 0"),
        (["a"], {"stop": ["x", ""]}, "stop: expected strings that are not empty"),
    ],
)
def test_bad_input(counted, texts, options, message):
    generator, _ = counted
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        generator.generate(texts, **options)
    if len(texts) == 1:
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message[:14]):
            list(generator.stream(texts[0], **options))


@pytest.fixture(scope="module")
def bare(folder):
    """A generator without a start token."""
    tokenizer = GraphTokenizer.from_file(folder / "tokenizer.json")
    return TextGenerator(load(folder), tokenizer, end_id=(), max_length=30, stop=["you"])


@pytest.mark.slow
def test_without_a_start_token_a_text_needs_a_token(bare):
    with pytest.raises(tf.errors.InvalidArgumentError, match="expected at least one token in each"):
        bare.generate(["a", ""])


@pytest.mark.slow
def test_a_prompt_as_long_as_the_model_gets_a_token(bare):
    assert len(texts_of(bare.generate(["a" * 43], max_new_tokens=1))[0]) >= 1
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_new_tokens: expected at least 1"):
        bare.generate(["a" * 30])  # max_length


def test_a_text_without_tokens_begins_with_the_start_token(counted, folder):
    generator, _ = counted
    ids = generate(load(folder), [[0]], end_id=1, max_new_tokens=14)
    expected = texts_of(generator.tokenizer.decode(ids))
    assert texts_of(generator.generate(["a", ""]))[1:] == expected
    assert "".join(generator.stream("")) == expected[0]
    assert texts_of(generator.generate([])) == texts_of(generator.sample([])) == []


@pytest.mark.slow
def test_settings_of_the_folder(folder, tmp_path):
    fields = {"do_sample": True, "top_k": 9, "max_new_tokens": 20, "stop_strings": ["z"]}
    path = generator_folder(tmp_path / "m", "llama", **fields)
    generator = TextGenerator.from_pretrained(path, stop=["q"])
    settings = json.loads(generator.settings.numpy())
    assert settings["sampling"] == {"temperature": 1.0, "top_k": 9, "top_p": 1.0}
    assert settings["stop"] == ["z", "q"]
    one, other = (texts_of(generator.generate(PROMPTS, seed)) for seed in (1, 2))
    assert one != other and one == texts_of(generator.generate(PROMPTS, 1))
    assert "".join(generator.stream("the", seed=4)) == texts_of(generator.generate(["the"], 4))[0]
    # The start token that the tokenizer adds, once.
    none = (), ()
    assert generator._read(tf.constant(["a"]), *none)[0].to_list()[0].count(0) == 1
    assert generator._read(tf.constant([""]), *none)[0].to_list() == [[0]]


@pytest.mark.slow
def test_beams(tmp_path):
    path = generator_folder(tmp_path / "m", "gpt2", num_beams=2, max_new_tokens=5)
    generator = TextGenerator.from_pretrained(path)
    assert texts_of(generator.generate([])) == []
    with pytest.raises(tf.errors.InvalidArgumentError, match="stop: expected none with beams"):
        generator.generate(["a"], stop=["b"])
    with pytest.raises(ValueError, match="beams: expected none for a stream"):
        next(generator.stream("a"))
    with pytest.raises(ValueError, match="stop: expected none with beams"):
        TextGenerator.from_pretrained(path, stop=["b"])


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": Ensemble([LanguageModel(1, 8, 2, 16, 13, 9)])}, "model: expected a LanguageMod"),
        ({"model": LanguageModel(1, 8, 2, 16, 13, 9)}, "tokenizer: expected at most 13 tokens"),
        ({"end_id": 288}, "end_id: expected 0 to 287, got 288"),
        ({"start_id": -1}, "start_id: expected 0 to 287"),
        ({"n_best": 2}, "n_best: expected 1 to 1, got 2"),
        ({"stop": "abc"}, "stop: expected a list of strings"),
        ({"stop": [""]}, "stop: expected a list of strings that are not empty"),
        ({"max_length": 0}, "max_length: expected at least 1"),
    ],
)
def test_bad_settings(folder, changes, message):
    tokenizer = GraphTokenizer.from_file(folder / "tokenizer.json")
    model = changes.pop("model", None) or load(folder)
    with pytest.raises(ValueError, match=message):
        TextGenerator(model, tokenizer, **{"end_id": 1, **changes})
