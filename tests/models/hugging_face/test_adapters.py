"""Adapters: outputs of peft on torch, both directions; training; what keeps or refuses them."""

import copy
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from tf_transformer import (
    Architecture,
    Ensemble,
    FlatDense,
    FusedAdam,
    LanguageModel,
    LearnedPositions,
    PreNorm,
    SmoothedCrossentropy,
    TextEncoder,
    Transformer,
    add_adapters,
    bert,
    greedy_decode,
    load,
    load_adapters,
    merge_adapters,
    save_adapters,
    save_pretrained,
    with_vocab_size,
)
from tf_transformer.compression import prune_heads, quantized
from tf_transformer.export.saving import StoredWeights
from tf_transformer.export.translation.translator import IdTranslator
from tf_transformer.export.write_litert import litert_functions
from tf_transformer.models.bert.text_inputs import read_tokenizer
from tf_transformer.training import RDrop

pytestmark = pytest.mark.one_of(10, "published")

VECTORS = Path(__file__).parents[2] / "vectors"
NAMES = sorted(path.name for path in (VECTORS / "adapters").iterdir())
BASES = sorted(path.name for path in (VECTORS / "published").iterdir())
every = pytest.mark.parametrize("name", NAMES)
IDS = np.array([[7, 11, 5, 9], [3, 8, 6, 2]], np.int32)


def base_of(name):
    return max((base for base in BASES if name.startswith(base)), key=len)


def loaded(name):
    """The base of adapters, its inputs, which outputs count, and the expected ones."""
    folder = VECTORS / "published" / base_of(name)
    given = np.load(folder / "golden.npz")
    inputs, tokens = given["input_ids"], given["attention_mask"].astype(bool)
    if "decoder_input_ids" in given:
        inputs = inputs, given["decoder_input_ids"]
        tokens = np.ones_like(inputs[1], bool)
    expected = np.load(VECTORS / "adapters" / name / "golden.npz")["logits"]
    return load(folder), inputs, tokens, expected


def tensors_in(folder):
    return load_file(folder / "adapter_model.safetensors")


def without_adapters():
    gpt2 = Architecture(LearnedPositions(9), residual=PreNorm(), scale_embeddings=False)
    model = LanguageModel(1, 12, 2, 17, 29, 9, rate=0.5, architecture=gpt2, pad_id=None)
    model.build()
    return model


def small():
    """A small model with adapters that change its outputs."""
    model = without_adapters()
    for layer in add_adapters(model, rank=2, alpha=3, targets=("wq", "wv", "hidden")):
        layer.lora_kernel_b.assign(np.random.default_rng(3).normal(0, 0.3, (2, layer.units)))
    return model


@every
def test_outputs_are_those_of_peft(name):
    model, inputs, tokens, expected = loaded(name)
    close = {"rtol": 1e-5, "atol": 1e-5}
    load_adapters(model, VECTORS / "adapters" / name)
    np.testing.assert_allclose(model(inputs)[tokens], expected[tokens], **close)
    merge_adapters(model)
    np.testing.assert_allclose(model(inputs)[tokens], expected[tokens], **close)


@every
def test_what_is_written_is_what_was_read(name, tmp_path):
    model, inputs, _, _ = loaded(name)
    load_adapters(model, VECTORS / "adapters" / name)
    save_adapters(model, tmp_path / "adapters")
    written, read = tensors_in(tmp_path / "adapters"), tensors_in(VECTORS / "adapters" / name)
    assert written.keys() == read.keys()
    for key, array in written.items():
        # B of T5's queries is multiplied and divided by a root.
        np.testing.assert_allclose(array, read[key], rtol=2e-7 * name.startswith("t5"))
    again, *_ = loaded(name)
    load_adapters(again, tmp_path / "adapters")
    np.testing.assert_allclose(again(inputs), model(inputs), rtol=1e-6 * name.startswith("t5"))


@pytest.mark.parametrize(
    ("name", "targets", "written"),
    [
        ("gpt2", ("wq", "wk", "wv"), ["c_attn"]),
        ("gpt2", ("wq", "wv"), ["c_attn"]),
        ("gpt2", ("dense",), [f"transformer.h.{n}.attn.c_proj" for n in range(3)]),
        ("llama", ("wq", "final_layer"), ["lm_head", "q_proj"]),
        ("t5", "all-linear", ["k", "o", "q", "v", "wi", "wo"]),
    ],
)
def test_trained_adapters_are_written(name, targets, written, tmp_path):
    """GPT-2's c_attn is three layers here, whose A differ once they are trained."""
    folder, rng = VECTORS / "published" / name, np.random.default_rng(5)
    model, again = load(folder), load(folder)
    inputs = (IDS, IDS) if hasattr(model, "encoder") else IDS
    plain = model(inputs)
    layers = add_adapters(model, rank=2, alpha=3, targets=targets)
    np.testing.assert_array_equal(model(inputs), plain)
    for layer in layers:
        limit = layer.kernel.shape[0] ** -0.5
        assert 0.3 * limit < np.std(layer.lora_kernel_a) < np.max(layer.lora_kernel_a) < limit
        layer.lora_kernel_b.assign(rng.normal(0, 0.3, layer.lora_kernel_b.shape))
    save_adapters(model, tmp_path / "adapters")
    config = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    assert sorted(config["target_modules"]) == written
    load_adapters(again, tmp_path / "adapters")
    assert np.max(np.abs(model(inputs) - plain)) > 0.1
    np.testing.assert_allclose(again(inputs), model(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, FusedAdam])
def test_training_changes_the_adapters_alone(optimizer, tmp_path):
    model = small()
    before = {weight.path: weight.numpy() for weight in model.weights}
    model.compile(optimizer(0.01), SmoothedCrossentropy(0.0))
    model.fit(IDS, IDS, epochs=2, verbose=0)
    changed = {w.path for w in model.weights if not np.array_equal(w, before[w.path])}
    assert len(changed) == 2 * 3 == len(model.trainable_weights)
    assert all("/lora_kernel_" in path for path in changed)
    slots = sum(np.prod(variable.shape) for variable in model.optimizer.variables)
    assert slots <= 2 * sum(np.prod(weight.shape) for weight in model.trainable_weights) + 9
    trained, predicted = model(IDS), model.predict(IDS, verbose=0)
    np.testing.assert_allclose(predicted, trained, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"without adapters.*Call merge_adapters"):
        save_pretrained(model, tmp_path / "model")
    merge_adapters(model)
    assert [weight.path for weight in model.weights] == [
        path for path in before if "lora" not in path
    ]
    np.testing.assert_allclose(model(IDS), trained, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(model.predict(IDS, verbose=0), trained, rtol=1e-5, atol=1e-5)
    save_pretrained(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model")(IDS), model(IDS))
    with pytest.raises(ValueError, match=r"[Uu]nknown variable|variables|not recognized"):
        model.fit(IDS, IDS, verbose=0)  # the optimizer is that of the adapters
    model.compile(optimizer(0.01), SmoothedCrossentropy(0.0))
    model.fit(IDS, IDS, verbose=0)
    assert np.any(model(IDS) != trained)


def test_gradients_are_those_of_the_sum():
    """With respect to A and B, in float64, of the kernel W + alpha / r A B."""
    x, w = (np.random.default_rng(n).normal(size=size) for n, size in ((1, (5, 7)), (2, (7, 3))))
    layer = FlatDense(3, "tanh", dtype="float64")
    layer.build((None, 7))
    layer.enable_lora(2, 5)
    layer.lora_kernel_b.assign(np.ones((2, 3)))
    layer.bias.assign(np.arange(3.0))
    layer._kernel.assign(w)
    a, b = (tf.constant(v.numpy(), tf.float64) for v in (layer.lora_kernel_a, layer.lora_kernel_b))
    with tf.GradientTape() as tape:
        tape.watch((a, b))
        expected = tf.tanh(x @ (w + 2.5 * a @ b) + tf.range(3.0, dtype=tf.float64))
    wanted = tape.gradient(expected, (a, b))
    with tf.GradientTape() as tape:
        found = layer(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    weights = [layer.lora_kernel_a.value, layer.lora_kernel_b.value]
    for one, other in zip(tape.gradient(found, weights), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_small_products_count_in_16_bits(dtype):
    layer = FlatDense(1, use_bias=False, dtype=dtype)
    layer.build((None, 2))
    layer._kernel.assign([[1.0], [-1.0]])
    layer.enable_lora(1)
    layer.lora_kernel_a.assign([[1.0], [1.0]])
    layer.lora_kernel_b.assign([[2.0**-13]])  # lost in the sum with 1
    assert float(layer(tf.ones((1, 2)))[0, 0]) == 2.0**-12


def test_all_ways_to_compute():
    model = small()
    expected = model(IDS)
    for jit in (False, True):
        found = tf.function(model, jit_compile=jit)(IDS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    traced = tf.function(model)
    traced(IDS)
    state = model.start(IDS[:1, :0], 6)
    ends = {"start_id": 7, "end_id": 3, "pad_id": None, "max_length": 6}
    found = np.pad(greedy_decode(model.step, state, 1, **ends), ((0, 0), (1, 0)))
    found[:, 0] = 7
    logits = model(found[:1])
    np.testing.assert_array_equal(np.argmax(logits, -1)[0, :-1], found[0, 1:])
    merge_adapters(model)
    np.testing.assert_allclose(traced(IDS), expected, rtol=1e-5, atol=1e-5)


def deep_copied(model, folder):
    return copy.deepcopy(model)


def as_keras(model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


def as_weights(model, folder):
    model.save_weights(folder / "model.weights.h5")
    other = small()
    other.load_weights(folder / "model.weights.h5")
    return other


def as_checkpoint(model, folder):
    path = tf.train.Checkpoint(model=model).save(folder / "checkpoint")
    other = small()
    tf.train.Checkpoint(model=other).restore(path).assert_existing_objects_matched()
    return other


def cloned(model, folder):
    other = keras.models.clone_model(model)
    other.set_weights(model.get_weights())
    return other


def inside_another(model, folder):
    outer = RDrop(model)
    outer(IDS)
    outer.save(folder / "outer.keras")
    return keras.models.load_model(folder / "outer.keras").model


def with_more_tokens(model, folder):
    return with_vocab_size(model, 31)


@pytest.mark.parametrize(
    "copied",
    [
        deep_copied,
        as_keras,
        as_weights,
        as_checkpoint,
        cloned,
        inside_another,
        with_more_tokens,
    ],
)
def test_copies_have_the_adapters(copied, tmp_path):
    model = small()
    model.decoder.final_norm.gamma.trainable = True
    model.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0), run_eagerly=True)
    model.fit(IDS, IDS, verbose=0)
    other = copied(model, tmp_path)
    np.testing.assert_allclose(other(IDS)[..., :29], model(IDS), rtol=1e-6, atol=1e-6)
    assert [weight.name for weight in other.weights] == [weight.name for weight in model.weights]
    alphas = {x.lora_alpha for x in other._flatten_layers() if isinstance(x, FlatDense)}
    assert alphas == {None, 3}
    if copied not in (as_weights, as_checkpoint):
        flags = [[weight.trainable for weight in one.weights] for one in (other, model)]
        assert flags[0] == flags[1] and sum(flags[0]) == 7
    before = other(IDS)
    other.compile(keras.optimizers.Adam(0.01), SmoothedCrossentropy(0.0), run_eagerly=True)
    other.fit(IDS, IDS, verbose=0)
    assert np.any(other(IDS) != before)
    merge_adapters(other)


def test_a_layer_from_its_config_has_the_adapter():
    layer = FlatDense(3)
    layer.build((None, 5))
    layer.enable_lora(2, 7)
    again = FlatDense.from_config(layer.get_config())
    again.build((None, 5))
    assert (again.lora_rank, again.lora_alpha) == (2, 7)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(tf.ones((1, 5))), layer(tf.ones((1, 5))))
    again.merge_lora()
    assert "lora_rank" not in again.get_config()
    with pytest.raises(ValueError, match="layer: expected no adapter, got one in"):
        layer.quantize("int8")


def test_plain_weights_are_not_those_of_adapters(tmp_path):
    plain, model = without_adapters(), small()
    plain.save_weights(tmp_path / "plain.weights.h5")
    model.save_weights(tmp_path / "adapted.weights.h5")
    with pytest.raises(ValueError, match="expected 4 variables, but received 0"):
        model.load_weights(tmp_path / "plain.weights.h5")
    with pytest.raises(ValueError, match=r"expected the 20 weights of this model"):
        plain.load_weights(tmp_path / "adapted.weights.h5")


def test_an_exported_model_has_the_adapters(tmp_path):
    model = small()
    model.export(tmp_path / "model", verbose=False)
    exported = tf.saved_model.load(tmp_path / "model")
    found = exported.serve(IDS)
    np.testing.assert_allclose(found, model(IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_exported_translator_has_the_adapters(tmp_path):
    model = Transformer(1, 8, 2, 16, 13, 13, 9, 9)
    model.build()
    plain = model((IDS, IDS))
    for layer in add_adapters(model, rank=2, targets="all-linear"):
        layer.lora_kernel_b.assign(np.random.default_rng(3).normal(size=(2, layer.units)))
    translator = IdTranslator(model, 1, 2, num_tokens=13)
    expected = translator.greedy(IDS)
    tf.saved_model.save(translator, tmp_path / "model", {"greedy": translator.greedy})
    exported = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_array_equal(exported.greedy(IDS), expected)
    merge_adapters(model)
    assert np.max(np.abs(model((IDS, IDS)) - plain)) > 0.1
    np.testing.assert_array_equal(IdTranslator(model, 1, 2, num_tokens=13).greedy(IDS), expected)


@pytest.mark.slow
def test_an_exported_encoder_has_the_adapters(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb")
    model = bert.SentenceEncoder(bert.BertConfig(7, 8, 1, 2, 9))
    model.build()
    for layer in [x for x in model._flatten_layers() if isinstance(x, FlatDense)]:
        layer.enable_lora(2)
        layer.lora_kernel_b.assign(np.random.default_rng(3).normal(size=(2, layer.units)))
    encoder = TextEncoder(model, read_tokenizer(tmp_path))
    expected = encoder.encode(["a b", "b"])
    encoder.save(tmp_path / "model")
    exported = tf.saved_model.load(tmp_path / "model")
    np.testing.assert_allclose(exported.encode(tf.constant(["a b", "b"])), expected, atol=1e-6)
    for layer in [x for x in model._flatten_layers() if getattr(x, "lora_enabled", False)]:
        layer.merge_lora()
    merged = TextEncoder(model, read_tokenizer(tmp_path)).encode(["a b", "b"])
    np.testing.assert_allclose(merged, expected, rtol=1e-5, atol=1e-5)


REFUSE = {
    "save_pretrained": lambda model: save_pretrained(model, "model"),
    "quantized": quantized,
    "prune_heads": lambda model: prune_heads(model, {}),
    "litert": litert_functions,
    "StoredWeights": lambda model: StoredWeights(model, "float16"),
    "StoredWeights of an ensemble": lambda model: StoredWeights(Ensemble([model]), "float16"),
    "add_adapters": add_adapters,
    "load_adapters": lambda model: load_adapters(model, VECTORS / "adapters" / "t5-attention"),
}


@pytest.mark.parametrize("name", REFUSE)
def test_what_would_lose_adapters_refuses_them(name):
    model = Transformer(1, 8, 2, 16, 11, 11, 9, 9)
    model.build()
    add_adapters(model, targets=("dense",))
    with pytest.raises(ValueError, match="model: expected a model without adapters, got adapters"):
        REFUSE[name](model)


def test_a_bert_does_not_lose_them_either(tmp_path):
    model = bert.Bert(bert.BertConfig(13, 8, 1, 2, 16))
    model.build()
    dense = next(x for x in model._flatten_layers() if isinstance(x, FlatDense))
    dense.enable_lora(2)
    with pytest.raises(ValueError, match="model without adapters, got adapters in 1 layers"):
        model.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="a LanguageModel or a Transformer, got Bert"):
        merge_adapters(model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank: expected an int of at least 1, got 0"),
        ({"alpha": float("nan")}, "alpha: expected a finite number, got nan"),
        ({"targets": "wq"}, "targets: expected .*names among dense, final_layer, hidden, output"),
        ({"targets": ("q_proj",)}, "targets: .*got .'q_proj',"),
        ({"targets": ()}, "targets: "),
    ],
)
def test_bad_settings(settings, message):
    model = LanguageModel(1, 8, 2, 16, 13, 9, share_embeddings=False)
    model.build()
    with pytest.raises(ValueError, match=message):
        add_adapters(model, **settings)
    assert len(model.trainable_weights) == len(model.weights)


def test_models_without_adapters_weights_or_a_family(tmp_path):
    model = LanguageModel(1, 8, 2, 16, 13, 9)
    with pytest.raises(ValueError, match=r"model: expected a built model.*Call build"):
        add_adapters(model)
    model.build()
    for function in (merge_adapters, lambda model: save_adapters(model, tmp_path / "model")):
        with pytest.raises(ValueError, match="model: expected a model with adapters, got none"):
            function(model)
    with pytest.raises(ValueError, match="expected weights in floating point, got int8"):
        add_adapters(quantized(model))
    add_adapters(model)
    with pytest.raises(ValueError, match="model: expected the architecture of one of gpt2"):
        save_adapters(model, tmp_path / "model")


def test_parts_of_one_matrix_have_one_scale(tmp_path):
    model = small()
    model.decoder.enc_layers[0].mha.wk.enable_lora(2, 4)
    with pytest.raises(ValueError, match=r"one alpha / r for the parts of transformer.h.0.attn"):
        save_adapters(model, tmp_path / "adapters")


@pytest.fixture
def folder(tmp_path):
    """A function: a copy of adapters for GPT-2, with other fields and tensors."""

    def changed(fields=None, tensors=None):
        there = tmp_path / "adapters"
        shutil.copytree(VECTORS / "adapters" / "gpt2-attention", there)
        path = there / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | (fields or {})))
        arrays = tensors_in(there) | (tensors or {})
        kept = {key: value for key, value in arrays.items() if value is not None}
        save_file(kept, there / "adapter_model.safetensors")
        return there

    return changed


A = "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"


@pytest.mark.parametrize(
    ("fields", "tensors", "message"),
    [
        ({"peft_type": "IA3"}, None, "peft_type: expected 'LORA' in .*other adapters"),
        ({"use_dora": True}, None, "expected False in .*other forms of A and B"),
        ({"bias": "all"}, None, "trained biases"),
        ({"modules_to_save": ["lm_head"]}, None, "layers that were trained as a whole"),
        ({"init_lora_weights": "pissa"}, None, "initial values that also change the weights"),
        ({"alora_invocation_tokens": [3]}, None, "adapters that only apply after certain tokens"),
        ({"new_field": 3}, None, "expected only known fields"),
        ({"r": 2.0}, None, r"expected whole numbers from 1 on, got 2\.0"),
        ({"rank_pattern": {"c_attn": 0}}, None, "expected whole numbers from 1 on, got 0"),
        ({"rank_pattern": {"c_attn": 3}}, None, r"lora_A.weight: expected shape \(3, 12\)"),
        ({"rank_pattern": {"(a*)*$": 3}}, None, "an object whose keys are names of layers"),
        ({"lora_alpha": True}, None, "expected a finite number, got True"),
        ({"lora_alpha": 10**400}, None, "expected a finite number, got 1000"),
        ({"r": 10**400, "use_rslora": True}, None, "expected whole numbers from 1 on, got 1000"),
        ({"use_rslora": 1}, None, "expected true or false, got 1"),
        (None, {A: None}, f"{A}: missing in the file"),
        (None, {A: np.ones((2, 11), np.float32)}, f"{A}: expected shape .2, 12., got .2, 11."),
        (None, {A: np.ones((2, 12), np.int32)}, f"{A}: expected floats, got I32"),
        (None, {A.replace("h.0", "h.3"): np.ones((2, 12), np.float32)}, "h.3.*not in the model"),
        (None, {A.replace("_A", "_embedding_A"): np.ones((2, 12), np.float32)}, "not in the model"),
    ],
)
def test_files_that_do_not_fit(folder, fields, tensors, message):
    model = load(VECTORS / "published" / "gpt2")
    with pytest.raises(ValueError, match=message):
        load_adapters(model, folder(fields, tensors))
    assert len(model.trainable_weights) == len(model.weights)


def test_files_that_are_missing_or_empty(folder, tmp_path):
    model, there = load(VECTORS / "published" / "gpt2"), folder({"new_field": 3})
    load_adapters(model, there, ignored_fields=["new_field"])
    model = load(VECTORS / "published" / "gpt2")
    save_file({}, there / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="adapters for at least one layer, got none"):
        load_adapters(model, there, ignored_fields=["new_field"])
    (there / "adapter_model.safetensors").rename(there / "adapter_model.bin")
    with pytest.raises(FileNotFoundError, match=r"adapter_model.safetensors .*a pickle"):
        load_adapters(model, there, ignored_fields=["new_field"])
    with pytest.raises(FileNotFoundError, match="adapter_config.json"):
        load_adapters(model, tmp_path)
