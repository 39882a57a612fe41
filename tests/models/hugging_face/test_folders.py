"""Published models: outputs of transformers on torch, both directions, bad input."""

import json
import shutil
import weakref
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tf_transformer import (
    Architecture,
    GatedFeedForward,
    LanguageModel,
    LayerNorm,
    LearnedPositions,
    Positional_Encoding,
    PreNorm,
    RMSNorm,
    RotaryPositions,
    Transformer,
    bert,
    greedy_decode,
)
from tf_transformer.compression import quantized
from tf_transformer.models import base_model
from tf_transformer.models.hugging_face import load, save_pretrained

pytestmark = pytest.mark.one_of(10, "published")

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


def test_a_model_that_another_replaces_is_freed(monkeypatch):
    monkeypatch.setattr(base_model, "_MOST_SKIPPED", 3 * 2**22)
    gone = [weakref.ref(load(FOLDER / "gpt2")) for _ in range(12)]
    assert sum(model() is not None for model in gone) <= 4


def hidden_states(stack, ids, tokens, attend):
    """The inputs of all layers and the last output."""
    states, x = [], stack.embedding(ids, tokens=tokens)
    for layer in getattr(stack, "enc_layers", None) or stack.dec_layers:
        states.append(x)
        x = attend(layer, x)
    return [*states, x if stack.final_norm is None else stack.final_norm(x)]


@pytest.mark.one_of(10)
@every
def test_hidden_states_are_those_of_transformers(models, name):
    model, expected = models(name)
    tokens = expected["attention_mask"].astype(bool)
    mask, ids = tokens[:, np.newaxis, np.newaxis], expected["input_ids"]
    if not has_encoder(model):
        found = hidden_states(model.decoder, ids, tokens, lambda f, x: f(x, mask=mask, causal=True))
        pairs = [(found, expected["hidden_states"], tokens)]
    else:
        encoder = hidden_states(model.encoder, ids, tokens, lambda f, x: f(x, mask=mask))
        targets, last = expected["decoder_input_ids"], encoder[-1]
        everywhere = np.ones_like(targets, bool)
        decoder = hidden_states(
            model.decoder,
            targets,
            everywhere,
            lambda f, x: f(x, last, padding_mask=mask, causal=True)[0],
        )
        pairs = [
            (encoder, expected["encoder_hidden_states"], tokens),
            (decoder, expected["decoder_hidden_states"], everywhere),
        ]
    for found, wanted, real in pairs:
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one[real], other[real], rtol=1e-5, atol=1e-5)


@pytest.mark.one_of(10)
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


@pytest.mark.one_of(4)
@every
def test_a_saved_folder_is_the_same(models, name, tmp_path):
    model, _ = models(name)
    save_pretrained(model, tmp_path / "model", tokenizer_from=FOLDER / name)
    ours, theirs = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "model", FOLDER / name)
    )
    assert ours.keys() == theirs.keys()
    for key, array in ours.items():
        # T5's queries, and its table where the output shares it, are multiplied by roots and back.
        is_scaled = "t5" in name and key.endswith(("Attention.q.weight", "shared.weight"))
        np.testing.assert_allclose(array, theirs[key], rtol=2e-7 * is_scaled)
    again = load(tmp_path / "model")
    assert again.get_config() == {**model.get_config(), "name": again.name}
    written, read = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "model", FOLDER / name)
    )
    assert written["architectures"] == read["architectures"]
    assert written["model_type"] == read["model_type"]
    assert {key: written.get(key) for key in read if key.endswith("_token_id")} == {
        key: value for key, value in read.items() if key.endswith("_token_id")
    }


@pytest.fixture
def folder(tmp_path):
    """A function: a copy of a model's folder, with other fields and tensors."""

    def copy(name, fields=None, tensors=None):
        there = tmp_path / name
        shutil.copytree(FOLDER / name, there)
        config = json.loads((there / "config.json").read_text()) | (fields or {})
        (there / "config.json").write_text(json.dumps(config))
        weights = load_file(there / "model.safetensors") | (tensors or {})
        kept = {key: value for key, value in weights.items() if value is not None}
        save_file(kept, there / "model.safetensors")
        return there

    return copy


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gpt2", {"model_type": "gpt_neo"}, "model_type.*expected one of .*llama.*'gpt_neo'"),
        ("gpt2", {"new_field": 3}, "new_field: expected only known fields"),
        ("gpt2", {"auto_map": {"AutoModel": "modeling.py"}}, "auto_map.*their own code"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights: expected True"),
        ("gpt2", {"activation_function": "prelu"}, "activation.*'prelu'"),
        ("gpt2", {"n_embd": 13}, "n_head|num_heads"),
        ("gpt2", {"n_layer": 4}, r"h\.3\.ln_1\.weight: missing in the file"),
        ("gpt2", {"n_embd": 6_000_000}, "sizes of a model with at most"),
        ("gpt2", {"n_inner": 19}, r"mlp\.c_fc\.weight: expected shape \(12, 19\), got \(12, 17\)"),
        ("gpt2", {"pad_token_id": 29}, r"pad_id: expected an id in \[0, 29\)"),
        ("llama", {"rope_scaling": {"type": "yarn"}, "rope_parameters": None}, "rope_type.*'yarn'"),
        ("llama3", {"rope_parameters": {"rope_type": "llama3"}}, "rope_scaling: expected factor"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2, "beta": 1}}, "beta"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window: expected False"),
        ("bart", {"decoder_ffn_dim": 19}, "encoder_ffn_dim, decoder_ffn_dim: expected one number"),
        ("marian", {"decoder_vocab_size": 31}, "vocab_size, decoder_vocab_size: expected one"),
        (
            "marian",
            {"static_position_embeddings": False},
            "static_position_embeddings: expected True",
        ),
        ("t5", {"feed_forward_proj": "mixed-relu"}, "feed_forward_proj: expected an activation"),
        ("mbart", {"tie_word_embeddings": False}, "tie_word_embeddings: .*share differently"),
    ],
)
def test_a_config_that_does_not_fit(folder, name, fields, message):
    with pytest.raises(ValueError, match=message):
        load(folder(name, fields))


ONES = np.ones((29, 12), np.float32)


@pytest.mark.parametrize(
    ("name", "tensors", "message"),
    [
        ("gpt2", {"transformer.ln_f.weight": None}, "ln_f.weight: missing in the file"),
        ("gpt2", {"transformer.other": ONES}, "transformer.other: in the file, with shape"),
        ("gpt2", {"lm_head.weight": ONES}, "lm_head.weight: expected to equal transformer.wte"),
        ("gpt2", {"transformer.wte.weight": ONES.astype(np.int32)}, "expected floats, got I32"),
        (
            "marian",
            {"model.encoder.embed_positions.weight": ONES},
            "the positions that are computed",
        ),
        ("bart", {"model.decoder.embed_tokens.weight": ONES}, "to equal model.shared.weight"),
        ("t5-gated", {"lm_head.weight": None}, "lm_head.weight: missing in the file"),
        ("mt5", {"lm_head.weight": None}, "lm_head.weight: missing in the file"),
    ],
)
def test_weights_that_do_not_fit(folder, name, tensors, message):
    with pytest.raises(ValueError, match=message):
        load(folder(name, tensors=tensors))


def test_what_files_may_have_besides_weights(folder):
    wte = load_file(FOLDER / "gpt2" / "model.safetensors")["transformer.wte.weight"]
    bias = np.ones((1, 1, 23, 23), bool)
    there = folder("gpt2", None, {"lm_head.weight": wte, "transformer.h.0.attn.bias": bias})
    load(there)
    table = Positional_Encoding().positional_encoding(23, 12)[0]
    halves = np.concatenate([table[:, 0::2], table[:, 1::2]], 1)
    load(folder("marian", None, {"model.encoder.embed_positions.weight": halves}))


def test_a_file_without_the_prefix_is_the_same_model(models, tmp_path):
    model, _ = models("gpt2")
    shutil.copytree(FOLDER / "gpt2", tmp_path / "bare")
    weights = load_file(tmp_path / "bare" / "model.safetensors")
    bare = {key.removeprefix("transformer."): value for key, value in weights.items()}
    save_file(bare, tmp_path / "bare" / "model.safetensors")
    for one, other in zip(load(tmp_path / "bare").weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_shards_and_their_absence(models, tmp_path):
    model, _ = models("llama")
    shutil.copytree(FOLDER / "llama", tmp_path / "shards")
    weights = load_file(tmp_path / "shards" / "model.safetensors")
    (tmp_path / "shards" / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for part, keys in (("a.safetensors", names[::2]), ("b.safetensors", names[1::2])):
        save_file({key: weights[key] for key in keys}, tmp_path / "shards" / part)
        index |= dict.fromkeys(keys, part)
    text = json.dumps({"weight_map": index})
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(text)
    for one, other in zip(load(tmp_path / "shards").weights, model.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    (tmp_path / "shards" / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="b.safetensors, listed in the index"):
        load(tmp_path / "shards")


def test_folders_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file .*config.json"):
        load(tmp_path)
    shutil.copy(FOLDER / "gpt2" / "config.json", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(FileNotFoundError, match="a pickle, which can run arbitrary code"):
        load(tmp_path)


def test_an_architecture_that_no_published_model_has(tmp_path):
    model = LanguageModel(1, 8, 2, 16, 13, 11)
    model.build()
    with pytest.raises(ValueError, match=r"model: expected the architecture of one of gpt2"):
        save_pretrained(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_made_here_is_written_for_transformers(tmp_path):
    parts = Architecture(
        RotaryPositions(pairing="halves"),
        norm=RMSNorm(),
        residual=PreNorm(),
        feed_forward=GatedFeedForward("silu", use_bias=False),
        attention_bias=False,
        scale_embeddings=False,
    )
    model = LanguageModel(1, 8, 2, 16, 13, 11, architecture=parts, pad_id=None)
    model.build()
    save_pretrained(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again([[3, 7]]), model([[3, 7]]))
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "llama"


def test_changes_replace_what_the_file_says():
    assert load(FOLDER / "gpt2", rate=0.5, dtype="bfloat16").decoder.rate == 0.5


@pytest.mark.parametrize(
    ("folder_name", "expected"),
    [
        ("BertModel", bert.Bert),
        ("BertForPreTraining", bert.BertForPreTraining),
        ("AlbertForSequenceClassification", bert.BertForSequenceClassification),
        ("ElectraForPreTraining", bert.ElectraForPreTraining),
        ("RobertaForMaskedLM", bert.BertForMaskedLM),
    ],
)
def test_a_head_has_its_class(folder_name, expected):
    assert type(load(FOLDER.parent / "bert" / folder_name)) is expected


def test_a_head_without_a_class(tmp_path):
    shutil.copytree(FOLDER.parent / "bert" / "BertModel", tmp_path / "bert")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    config["architectures"] = ["BertForMultipleChoice"]
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="architectures: .*got ..BertForMultipleChoice"):
        load(tmp_path / "bert")


def test_what_cannot_be_written(tmp_path):
    pruned = {"encoder": [(1, 5)], "decoder": [(1, 1, 5)]}
    sizes = (1, 8, 2, 16, 13, 13, 9, 9)
    parts = Architecture(LearnedPositions(9, 2), norm=LayerNorm(1e-5), embedding_norm=True)
    options = {"architecture": parts, "share_embeddings": True, "output_bias": True}
    whole = Transformer(*sizes, **options)
    save_pretrained(whole, tmp_path / "unbuilt")  # builds it
    assert json.loads((tmp_path / "unbuilt" / "config.json").read_text())["model_type"] == "bart"
    with pytest.raises(ValueError, match="model: expected the architecture of one of"):
        save_pretrained(Transformer(*sizes, layer_sizes=pruned, **options), tmp_path / "model")
    with pytest.raises(ValueError, match="model: expected weights in floating point, got int8"):
        save_pretrained(quantized(whole), tmp_path / "model")
    expected = "model: expected a LanguageModel, a Transformer, a PooledModel with labels or a"
    with pytest.raises(ValueError, match=expected):
        save_pretrained(keras.Sequential(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_bert_is_written_by_its_own_method(tmp_path):
    model = load(FOLDER.parent / "bert" / "RobertaModel")
    save_pretrained(model, tmp_path / "model")
    assert type(load(tmp_path / "model")) is bert.Bert


def test_a_padding_that_is_also_an_end_stays_in_the_file(folder, tmp_path):
    there = folder("gpt2", {"pad_token_id": 3, "eos_token_id": 3})
    model = load(there)
    assert model.pad_id is None
    save_pretrained(model, tmp_path / "model", tokenizer_from=there)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["pad_token_id"] == 3
