"""What describes a family of published models; GPT-2, Llama, Mistral and Qwen2."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from tf_transformer.errors import ArgumentError, check, check_choice, is_number
from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.feed_forwards import FeedForward, GatedFeedForward
from tf_transformer.layers.norms import LayerNorm, RMSNorm
from tf_transformer.layers.positions import LearnedPositions, RotaryPositions
from tf_transformer.layers.residuals import PreNorm
from tf_transformer.models.bert.checkpoints.config_files import CONFIG, read_table
from tf_transformer.models.language_model import LanguageModel

# Fields that every configuration of transformers may have.
_COMMON = tuple(row for row in CONFIG if row.verdict == "harmless") + read_table("""
model_type architectures | used | the kind of model
quantization_config | [] | weights in another format
auto_map | [] | models with their own code
chunk_size_feed_forward | [0] | feed-forward networks in chunks
initializer_range initializer_factor init_std | harmless | new weights; a checkpoint has all weights
num_labels id2label problem_type | harmless | for models with a head for classes
pretraining_tp | harmless | the same products, in slices
""")


class Family(NamedTuple):
    """A family of published models: its configuration, and the names of its weights."""

    model: type
    published_as: str  # the class of transformers
    fields: tuple  # of config.json, see `read_table`
    defaults: dict  # of the fields that a file may leave out
    read: Callable  # (fields) -> the model's arguments
    write: Callable  # (arguments) -> fields, the inverse as far as there is one
    names: tuple  # rows (here, there, part), see `read_names`
    prefix: str  # which files of the bare model omit
    copies: dict  # names of copies of tied tensors -> the tensor
    left_over: str = "(?!)"  # pattern of what is not a weight
    # What a file may have, besides weights, of (name, shape, arguments); None for other names.
    constants: Callable = lambda name, shape, arguments: None
    transposed: bool = True  # whether the files have matrices as (output, input)
    factor: Callable = lambda name, arguments: 1.0  # of a weight here, over the one in the file


def fields_of(text):
    """The rows that all families share, then those of one, which take precedence."""
    return _COMMON + read_table(text)


def read_names(text, attention=()):
    """Read rows for `name_in_file`: a name here, one there, perhaps "part/parts" of a tensor."""
    # A row with STACK is for the encoder and the decoder, one with DENSE for all four dense layers.
    words = {"STACK": {name: name for name in ("encoder", "decoder")}}
    words["DENSE"] = dict(zip(("wq", "wk", "wv", "dense"), attention, strict=False))
    rows = []
    for line in text.strip().splitlines():
        here, there, part = (*line.split(), "1/1")[:3]
        part = tuple(map(int, part.split("/")))
        mark = next((mark for mark in words if mark in here), " ")
        for ours, theirs in words.get(mark, {"": ""}).items():
            rows.append((here.replace(mark, ours), there.replace(mark, theirs), part))
    return tuple(rows)


def padding_of(fields):
    """The id of padding; None where it is also the end of a text, which must be seen."""
    pad, end = fields["pad_token_id"], fields.get("eos_token_id")
    return None if pad is None or pad in (end if isinstance(end, list) else [end]) else pad


# Arguments of a `LanguageModel` -> the fields with the same values.
_OF_GPT2 = {
    **{"num_layers": "n_layer", "d_model": "n_embd", "num_heads": "n_head", "dff": "n_inner"},
    **{"vocab_size": "vocab_size", "max_position": "n_positions"},
    "share_embeddings": "tie_word_embeddings",
}
SIZES = {
    **{"num_layers": "num_hidden_layers", "d_model": "hidden_size", "dff": "intermediate_size"},
    **{"num_heads": "num_attention_heads", "vocab_size": "vocab_size"},
    "max_position": "max_position_embeddings",
}
_OF_LLAMA = {**SIZES, "share_embeddings": "tie_word_embeddings"}


def _read_gpt2(fields):
    """The arguments of a GPT-2; Radford et al. 2019, section 2.3."""
    return {
        **{ours: fields[name] for ours, name in _OF_GPT2.items()},
        "dff": fields["n_inner"] or 4 * fields["n_embd"],
        "rate": fields["resid_pdrop"],
        "pad_id": padding_of(fields),
        "architecture": Architecture(
            positions=LearnedPositions(fields["n_positions"]),
            norm=LayerNorm(fields["layer_norm_epsilon"]),
            residual=PreNorm(),
            feed_forward=FeedForward(fields["activation_function"]),
            scale_embeddings=False,
        ),
    }


def _write_gpt2(arguments):
    parts = arguments["architecture"]
    return {
        **{name: arguments[ours] for ours, name in _OF_GPT2.items()},
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), arguments["rate"]),
        "pad_token_id": arguments["pad_id"],
        "layer_norm_epsilon": parts.norm.epsilon,
        "activation_function": parts.feed_forward.activation,
    }


_GPT2 = Family(
    model=LanguageModel,
    published_as="GPT2LMHeadModel",
    fields=fields_of("""
n_layer n_embd n_head n_inner vocab_size n_positions | used | sizes
activation_function layer_norm_epsilon tie_word_embeddings pad_token_id | used | as named
resid_pdrop | used | the rate of all dropout in training
embd_pdrop attn_pdrop | harmless | in training, `resid_pdrop` is used instead
n_ctx n_special predict_special_tokens | harmless | no code reads them
scale_attn_weights | [true] | scores that are not divided by the root of a head's width
scale_attn_by_inverse_layer_idx | [false] | scores divided by the number of the layer
reorder_and_upcast_attn | harmless | scores and softmax are float32 here in any case
add_cross_attention is_decoder is_encoder_decoder | [false] | attention to an encoder
"""),
    defaults={
        **{"n_layer": 12, "n_embd": 768, "n_head": 12, "n_inner": None, "n_positions": 1024},
        **{"vocab_size": 50257, "activation_function": "gelu_new", "resid_pdrop": 0.1},
        **{"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "pad_token_id": None},
    },
    read=_read_gpt2,
    write=_write_gpt2,
    names=read_names("""
decoder/embedding/embedding/embeddings   transformer.wte.weight
decoder/embedding/positions/table        transformer.wpe.weight
decoder/layer{n}/layernorm1/             transformer.h.{n}.ln_1.
decoder/layer{n}/mha/wq/                 transformer.h.{n}.attn.c_attn.   1/3
decoder/layer{n}/mha/wk/                 transformer.h.{n}.attn.c_attn.   2/3
decoder/layer{n}/mha/wv/                 transformer.h.{n}.attn.c_attn.   3/3
decoder/layer{n}/mha/dense/              transformer.h.{n}.attn.c_proj.
decoder/layer{n}/layernorm2/             transformer.h.{n}.ln_2.
decoder/layer{n}/ffn/hidden/             transformer.h.{n}.mlp.c_fc.
decoder/layer{n}/ffn/output/             transformer.h.{n}.mlp.c_proj.
decoder/final_norm/                      transformer.ln_f.
final_layer/kernel                       lm_head.weight
"""),
    prefix="transformer.",
    copies={"lm_head.weight": "transformer.wte.weight"},
    left_over=r".*\.attn\.(bias|masked_bias)",
    transposed=False,
)


def _rotary(fields):
    """The positions of Llama and its relatives, from both forms of the fields."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    check(isinstance(rope, dict), "rope_scaling", "an object", f"{rope!r}")
    kind = rope.get("rope_type", rope.get("type", "default"))
    known = {"default": (), "linear": ("factor",), "llama3": _LLAMA3}
    check_choice("rope_type", kind, list(known))
    base = rope.get("rope_theta", fields["rope_theta"])
    used = {"rope_type", "type", "rope_theta", *known[kind]}
    if unknown := sorted(rope.keys() - used):
        expected = f"only {', '.join(sorted(used))} for {kind!r}"
        raise ArgumentError("rope_scaling", expected, ", ".join(unknown))
    if missing := [name for name in known[kind] if name not in rope]:
        raise ArgumentError("rope_scaling", f"{', '.join(missing)} for {kind!r}", "none")
    factor, *bands = [rope[name] for name in known[kind]] or [1.0]
    numbers = base, factor, *bands
    if not all(map(is_number, numbers)):
        raise ArgumentError("rope_scaling", "finite numbers", f"{rope!r}")
    return RotaryPositions(float(base), float(factor), "halves", bands or None)


_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def _read_llama(fields, attention_bias=False):
    """The arguments of a Llama or a relative."""
    heads, width = fields["num_attention_heads"], fields["hidden_size"]
    window, mlp_bias = fields.get("sliding_window"), fields.get("mlp_bias", False)
    return {
        **{ours: fields[name] for ours, name in _OF_LLAMA.items()},
        "rate": 0.0,
        "pad_id": padding_of(fields),
        "architecture": Architecture(
            positions=_rotary(fields),
            norm=RMSNorm(fields["rms_norm_eps"]),
            residual=PreNorm(),
            feed_forward=GatedFeedForward(fields["hidden_act"], use_bias=mlp_bias),
            key_dim=fields["head_dim"] or width // heads,
            num_key_value_heads=fields["num_key_value_heads"] or heads,
            # Here, the distance to the farthest key; there, the number of keys.
            window=None if window is None else window - 1,
            attention_bias=fields.get("attention_bias", attention_bias),
            scale_embeddings=False,
        ),
    }


def _write_llama(arguments, own=()):
    """The fields of a Llama or a relative, with those of its own."""
    parts = arguments["architecture"]
    positions = parts.positions
    owned = {
        "attention_bias": parts.attention_bias,
        "mlp_bias": parts.feed_forward.use_bias,
        "sliding_window": None if parts.window is None else parts.window + 1,
    }
    fields = {
        **{name: owned[name] for name in own},
        **{name: arguments[ours] for ours, name in _OF_LLAMA.items()},
        "pad_token_id": arguments["pad_id"],
        "rms_norm_eps": parts.norm.epsilon,
        "hidden_act": parts.feed_forward.activation,
        "head_dim": parts.key_dim or arguments["d_model"] // arguments["num_heads"],
        "num_key_value_heads": parts.num_key_value_heads or arguments["num_heads"],
        "rope_theta": positions.base,
    }
    if positions.bands is not None:
        rope = dict(zip(_LLAMA3, (positions.stretch, *positions.bands), strict=True))
        fields["rope_scaling"] = {"rope_type": "llama3", **rope}
    elif positions.stretch != 1.0:
        fields["rope_scaling"] = {"rope_type": "linear", "factor": positions.stretch}
    return fields


_LLAMA_FIELDS = """
num_hidden_layers hidden_size num_attention_heads intermediate_size vocab_size
    max_position_embeddings head_dim num_key_value_heads | used | sizes
hidden_act rms_norm_eps tie_word_embeddings pad_token_id | used | as named
rope_theta rope_scaling rope_parameters | used | rotary positions: default, linear and llama3
attention_dropout | harmless | only in training
"""
_LLAMA_DEFAULTS = {
    **{"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32},
    **{"intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 2048},
    **{"num_key_value_heads": None, "hidden_act": "silu", "rms_norm_eps": 1e-6},
    **{"tie_word_embeddings": False, "pad_token_id": None, "head_dim": None, "rope_theta": 1e4},
}
_LLAMA = Family(
    model=LanguageModel,
    published_as="LlamaForCausalLM",
    fields=fields_of(f"{_LLAMA_FIELDS}attention_bias mlp_bias | [false, true] | as named"),
    defaults=_LLAMA_DEFAULTS,
    read=_read_llama,
    write=functools.partial(_write_llama, own=("attention_bias", "mlp_bias")),
    names=read_names("""
decoder/embedding/embedding/embeddings   model.embed_tokens.weight
decoder/layer{n}/layernorm1/             model.layers.{n}.input_layernorm.
decoder/layer{n}/mha/wq/                 model.layers.{n}.self_attn.q_proj.
decoder/layer{n}/mha/wk/                 model.layers.{n}.self_attn.k_proj.
decoder/layer{n}/mha/wv/                 model.layers.{n}.self_attn.v_proj.
decoder/layer{n}/mha/dense/              model.layers.{n}.self_attn.o_proj.
decoder/layer{n}/layernorm2/             model.layers.{n}.post_attention_layernorm.
decoder/layer{n}/ffn/hidden/gate/        model.layers.{n}.mlp.gate_proj.
decoder/layer{n}/ffn/hidden/linear/      model.layers.{n}.mlp.up_proj.
decoder/layer{n}/ffn/output/             model.layers.{n}.mlp.down_proj.
decoder/final_norm/                      model.norm.
final_layer/kernel                       lm_head.weight
"""),
    prefix="model.",
    copies={"lm_head.weight": "model.embed_tokens.weight"},
    left_over=r".*\.rotary_emb\.inv_freq",
)
_MISTRAL = _LLAMA._replace(
    published_as="MistralForCausalLM",
    fields=fields_of(f"{_LLAMA_FIELDS}sliding_window | used | how many keys a token attends to"),
    defaults={
        **_LLAMA_DEFAULTS,
        **{"intermediate_size": 14336, "max_position_embeddings": 131072},
        **{"num_key_value_heads": 8, "sliding_window": 4096},
    },
    write=functools.partial(_write_llama, own=("sliding_window",)),
)
_QWEN2 = _LLAMA._replace(
    published_as="Qwen2ForCausalLM",
    fields=fields_of(f"""{_LLAMA_FIELDS}use_sliding_window | [false] | windows in some of the layers
sliding_window max_window_layers layer_types | harmless | only with `use_sliding_window`
use_mrope | [false] | positions in three dimensions
"""),
    defaults={
        **_LLAMA_DEFAULTS,
        **{"intermediate_size": 22016, "vocab_size": 151936, "max_position_embeddings": 32768},
        "num_key_value_heads": 32,
    },
    read=lambda fields: _read_llama({**fields, "sliding_window": None}, "qkv"),
    write=_write_llama,
)
DECODERS = {"gpt2": _GPT2, "llama": _LLAMA, "mistral": _MISTRAL, "qwen2": _QWEN2}
