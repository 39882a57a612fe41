"""Published encoder-decoders: Marian, BART, mBART, M2M100 with NLLB, and T5."""

import functools

import tensorflow as tf

from tf_transformer.errors import check
from tf_transformer.layers.architecture import Architecture
from tf_transformer.layers.feed_forwards import FeedForward, GatedFeedForward
from tf_transformer.layers.norms import LayerNorm, RMSNorm
from tf_transformer.layers.positions import LearnedPositions, SinusoidalPositions, T5Positions
from tf_transformer.layers.residuals import PreNorm
from tf_transformer.models.hugging_face.decoders import Family, fields_of, read_names
from tf_transformer.models.transformer import Transformer


def _one(fields, *names):
    """The value of two fields, for the encoder and the decoder, that must agree."""
    first, second = (fields[name] for name in names)
    expected, got = "one number for encoder and decoder", f"{first} and {second}"
    check(first == second, ", ".join(names), expected, got)
    return first


def _shared_arguments(fields, layers, longest, rate):
    """The arguments that all families read in the same way."""
    return {
        "num_layers": layers if layers[0] != layers[1] else layers[0],
        "d_model": fields["d_model"],
        **dict.fromkeys(("input_vocab_size", "target_vocab_size"), fields["vocab_size"]),
        **dict.fromkeys(("pe_input", "pe_target"), longest),
        "rate": rate,
        "pad_id": fields["pad_token_id"],
        "starts_with_padding": fields["decoder_start_token_id"] == fields["pad_token_id"],
    }


def _shared_fields(arguments, *stacks):
    """The fields that all families write in the same way, and the sizes of both stacks."""
    pad, layers = arguments["pad_id"], arguments["num_layers"]
    layers = (layers, layers) if isinstance(layers, int) else layers
    return {
        **dict(zip(stacks, layers, strict=True)),
        "d_model": arguments["d_model"],
        "vocab_size": arguments["input_vocab_size"],
        "pad_token_id": pad,
        "is_encoder_decoder": True,
        **({"decoder_start_token_id": pad} if arguments["starts_with_padding"] else {}),
    }


def _learned(longest):
    return LearnedPositions(longest, offset=2)


def _sinusoidal(longest, **options):
    return SinusoidalPositions("halves", **options)


def _read_bart(fields, positions=_learned, output_bias=True, **parts):
    """The arguments of BART or a relative, with other parts; Lewis et al. 2020, section 2."""
    same = {"decoder_vocab_size": "vocab_size", "num_hidden_layers": "encoder_layers"}
    for name, other in same.items():
        _one({name: fields[other], **fields}, other, name)
    longest = fields["max_position_embeddings"]
    layers = fields["encoder_layers"], fields["decoder_layers"]
    return {
        **_shared_arguments(fields, layers, longest, fields["dropout"]),
        "num_heads": _one(fields, "encoder_attention_heads", "decoder_attention_heads"),
        "dff": _one(fields, "encoder_ffn_dim", "decoder_ffn_dim"),
        "share_embeddings": True,
        "output_bias": output_bias,
        "architecture": Architecture(
            positions=positions(longest),
            norm=LayerNorm(1e-5),
            feed_forward=FeedForward(fields["activation_function"]),
            scale_embeddings=fields["scale_embedding"],
            **parts,
        ),
    }


def _write_bart(arguments):
    parts, heads = arguments["architecture"], ("encoder_attention_heads", "decoder_attention_heads")
    return {
        **_shared_fields(arguments, "encoder_layers", "decoder_layers"),
        **dict.fromkeys(heads, arguments["num_heads"]),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), arguments["dff"]),
        "max_position_embeddings": arguments["pe_input"],
        "dropout": arguments["rate"],
        "activation_function": parts.feed_forward.activation,
        "scale_embedding": parts.scale_embeddings,
    }


def _bart_fields(*true):
    """The fields of BART or a relative, and which of those that its code never reads are true."""
    fixed = ("normalize_before", "normalize_embedding", "add_final_layer_norm")
    fixed += ("static_position_embeddings",)
    reason = "another place of norms or kind of positions"
    rows = [f"{name} | [{str(name in true).lower()}] | {reason}\n" for name in fixed]
    return fields_of("".join([_BART_FIELDS, *rows]))


_BART_FIELDS = """
encoder_layers decoder_layers d_model encoder_attention_heads decoder_attention_heads
    encoder_ffn_dim decoder_ffn_dim vocab_size max_position_embeddings |
    used | sizes; heads and inner widths of both stacks must agree
num_hidden_layers | used | must be `encoder_layers`
activation_function scale_embedding pad_token_id decoder_start_token_id | used | as named
dropout | used | the rate of all dropout in training
is_encoder_decoder | [true] | decoders alone
tie_word_embeddings | [true] | tables that versions 4 and 5 of transformers share differently
is_decoder | [false] | decoders alone
share_encoder_decoder_embeddings | [true] | two vocabularies
decoder_vocab_size | used | must be `vocab_size`
attention_dropout activation_dropout classifier_dropout classif_dropout encoder_layerdrop
    decoder_layerdrop | harmless | only in training
add_bias_logits do_blenderbot_90_layernorm | [false] | other models, which transformers had here
extra_pos_embeddings | [2] | another offset of the positions
num_beams early_stopping length_penalty no_repeat_ngram_size max_length forced_bos_token_id
    forced_eos_token_id force_bos_token_to_be_generated bad_words_ids |
    harmless | settings of `generate`
replacing_rate student_encoder_layers student_decoder_layers save_step |
    harmless | how it was trained
"""
_BART_DEFAULTS = {
    **{"encoder_layers": 12, "decoder_layers": 12, "d_model": 1024, "vocab_size": 50265},
    **{"encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096},
    **{"decoder_ffn_dim": 4096, "max_position_embeddings": 1024, "dropout": 0.1},
    **{"activation_function": "gelu", "scale_embedding": False, "pad_token_id": 1},
    "decoder_start_token_id": 2,
}
_BART_NAMES = """
encoder/embedding/embedding/embeddings    model.shared.weight
output_bias                               final_logits_bias
STACK/embedding/positions/table           model.STACK.embed_positions.weight
STACK/embedding/norm/                     model.STACK.layernorm_embedding.
encoder/layer{n}/mha/DENSE/               model.encoder.layers.{n}.self_attn.DENSE.
encoder/layer{n}/layernorm1/              model.encoder.layers.{n}.self_attn_layer_norm.
encoder/layer{n}/layernorm2/              model.encoder.layers.{n}.final_layer_norm.
decoder/layer{n}/mha1/DENSE/              model.decoder.layers.{n}.self_attn.DENSE.
decoder/layer{n}/layernorm1/              model.decoder.layers.{n}.self_attn_layer_norm.
decoder/layer{n}/mha2/DENSE/              model.decoder.layers.{n}.encoder_attn.DENSE.
decoder/layer{n}/layernorm2/              model.decoder.layers.{n}.encoder_attn_layer_norm.
decoder/layer{n}/layernorm3/              model.decoder.layers.{n}.final_layer_norm.
STACK/layer{n}/ffn/hidden/                model.STACK.layers.{n}.fc1.
STACK/layer{n}/ffn/output/                model.STACK.layers.{n}.fc2.
STACK/final_norm/                         model.STACK.layer_norm.
"""


def _sinusoids(name, shape, arguments):
    """The table of positions that some files have; it must be the one that is computed here."""
    if name.endswith((".embed_positions.weight", ".embed_positions.weights")):
        part, codes = arguments["architecture"].positions, tf.zeros((1, *shape))
        return part.add(codes, start=-part.offset)[0].numpy()
    return None


_BART = Family(
    model=Transformer,
    published_as="BartForConditionalGeneration",
    fields=_bart_fields("normalize_embedding"),
    defaults=_BART_DEFAULTS,
    read=functools.partial(_read_bart, embedding_norm=True),
    write=_write_bart,
    names=read_names(_BART_NAMES, ("q_proj", "k_proj", "v_proj", "out_proj")),
    prefix="model.",
    copies={
        "lm_head.weight": "model.shared.weight",
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
    },
)
_MBART = _BART._replace(
    published_as="MBartForConditionalGeneration",
    fields=_bart_fields("normalize_before", "normalize_embedding", "add_final_layer_norm"),
    defaults={**_BART_DEFAULTS, "decoder_start_token_id": None},
    read=functools.partial(_read_bart, embedding_norm=True, residual=PreNorm()),
)
_M2M100 = _BART._replace(
    published_as="M2M100ForConditionalGeneration",
    fields=_bart_fields("normalize_before", "add_final_layer_norm", "static_position_embeddings"),
    defaults={**_BART_DEFAULTS, "vocab_size": 128112, "activation_function": "relu"}
    | {"scale_embedding": True},
    read=functools.partial(
        _read_bart,
        positions=functools.partial(
            _sinusoidal, offset=2, last_included=True, counts_padding=False
        ),
        output_bias=False,
        residual=PreNorm(),
    ),
    constants=_sinusoids,
)
_MARIAN = _BART._replace(
    published_as="MarianMTModel",
    fields=_bart_fields("static_position_embeddings"),
    defaults={**_BART_DEFAULTS, "vocab_size": 58101}
    | {"pad_token_id": 58100, "decoder_start_token_id": 58100},
    read=functools.partial(_read_bart, positions=_sinusoidal),
    constants=_sinusoids,
)


def _read_t5(fields):
    """The arguments of a T5; Raffel et al. 2020, section 2.1."""
    # transformers 5 writes that the tables are tied in any case.
    is_first = fields["tie_word_embeddings"] and fields["scale_decoder_outputs"]
    kind, _, activation = fields["feed_forward_proj"].rpartition("-")
    expected, got = 'an activation, or "gated-" and one', f"{fields['feed_forward_proj']!r}"
    check(kind in ("", "gated"), "feed_forward_proj", expected, got)
    if kind:
        activation = "gelu_new" if activation == "gelu" else activation
        network = GatedFeedForward(activation, use_bias=False)
    else:
        network = FeedForward(activation, use_bias=False)
    layers = fields["num_layers"], fields["num_decoder_layers"] or fields["num_layers"]
    return {
        # There is no longest text; caches of a decoder are made for `n_positions` tokens.
        **_shared_arguments(fields, layers, fields["n_positions"], fields["dropout_rate"]),
        "num_heads": fields["num_heads"],
        "dff": fields["d_ff"],
        "share_embeddings": True if is_first else "inputs",
        "output_bias": False,
        "architecture": Architecture(
            positions=T5Positions(
                fields["relative_attention_num_buckets"],
                fields["relative_attention_max_distance"],
            ),
            norm=RMSNorm(fields["layer_norm_epsilon"]),
            residual=PreNorm(),
            feed_forward=network,
            key_dim=fields["d_kv"],
            attention_bias=False,
            scale_embeddings=is_first,
        ),
    }


def _write_t5(arguments):
    parts = arguments["architecture"]
    gated = "gated-" if isinstance(parts.feed_forward, GatedFeedForward) else ""
    activation = parts.feed_forward.activation
    return {
        **_shared_fields(arguments, "num_layers", "num_decoder_layers"),
        "num_heads": arguments["num_heads"],
        "d_ff": arguments["dff"],
        "d_kv": parts.key_dim or arguments["d_model"] // arguments["num_heads"],
        "n_positions": arguments["pe_input"],
        "dropout_rate": arguments["rate"],
        "tie_word_embeddings": arguments["share_embeddings"] is True,
        "relative_attention_num_buckets": parts.positions.num_buckets,
        "relative_attention_max_distance": parts.positions.max_distance,
        "layer_norm_epsilon": parts.norm.epsilon,
        "feed_forward_proj": gated + ("gelu" if gated and activation == "gelu_new" else activation),
    }


def _t5_factor(name, arguments):
    """What a weight here is, over the one in the file."""
    # Scores are not divided by the root of a head's width there. In T5 1.0, the table is that of
    # the embeddings, and its logits are divided by the root of the width; here, the table is that
    # of the logits, and the embeddings are multiplied.
    parts = arguments["architecture"]
    if name.endswith("/wq/kernel"):
        return (parts.key_dim or arguments["d_model"] // arguments["num_heads"]) ** 0.5
    if parts.scale_embeddings and name == "encoder/embedding/embedding/embeddings":
        return arguments["d_model"] ** -0.5
    return 1.0


_T5_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
_T5_NAMES = f"""
encoder/embedding/embedding/embeddings    shared.weight
encoder/layer0/mha/positions/table        encoder.{_T5_BIAS}
decoder/layer0/mha1/positions/table       decoder.{_T5_BIAS}
STACK/final_norm/                         STACK.final_layer_norm.
final_layer/kernel                        lm_head.weight"""
_T5_NAMES += """
encoder/layer{n}/mha/DENSE/      encoder.block.{n}.layer.0.SelfAttention.DENSE.
encoder/layer{n}/layernorm1/     encoder.block.{n}.layer.0.layer_norm.
encoder/layer{n}/layernorm2/     encoder.block.{n}.layer.1.layer_norm.
encoder/layer{n}/ffn/hidden/     encoder.block.{n}.layer.1.DenseReluDense.wi.
encoder/layer{n}/ffn/hidden/gate/     encoder.block.{n}.layer.1.DenseReluDense.wi_0.
encoder/layer{n}/ffn/hidden/linear/   encoder.block.{n}.layer.1.DenseReluDense.wi_1.
encoder/layer{n}/ffn/output/     encoder.block.{n}.layer.1.DenseReluDense.wo.
decoder/layer{n}/mha1/DENSE/     decoder.block.{n}.layer.0.SelfAttention.DENSE.
decoder/layer{n}/layernorm1/     decoder.block.{n}.layer.0.layer_norm.
decoder/layer{n}/mha2/DENSE/     decoder.block.{n}.layer.1.EncDecAttention.DENSE.
decoder/layer{n}/layernorm2/     decoder.block.{n}.layer.1.layer_norm.
decoder/layer{n}/layernorm3/     decoder.block.{n}.layer.2.layer_norm.
decoder/layer{n}/ffn/hidden/     decoder.block.{n}.layer.2.DenseReluDense.wi.
decoder/layer{n}/ffn/hidden/gate/     decoder.block.{n}.layer.2.DenseReluDense.wi_0.
decoder/layer{n}/ffn/hidden/linear/   decoder.block.{n}.layer.2.DenseReluDense.wi_1.
decoder/layer{n}/ffn/output/     decoder.block.{n}.layer.2.DenseReluDense.wo.
"""
_T5 = Family(
    model=Transformer,
    published_as="T5ForConditionalGeneration",
    fields=fields_of("""
num_layers num_decoder_layers d_model num_heads d_ff d_kv vocab_size n_positions
    relative_attention_num_buckets relative_attention_max_distance | used | sizes
layer_norm_epsilon feed_forward_proj pad_token_id decoder_start_token_id | used | as named
tie_word_embeddings scale_decoder_outputs |
    used | either is false in T5 1.1, whose output projection is another matrix
dropout_rate | used | the rate of all dropout in training
is_encoder_decoder | [true] | encoders and decoders alone
is_decoder | [false] | decoders alone
is_gated_act dense_act_fn | harmless | follow from `feed_forward_proj`
classifier_dropout | harmless | only for a head for classes
"""),
    defaults={
        **{"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6},
        **{"num_decoder_layers": None, "num_heads": 8, "relative_attention_num_buckets": 32},
        **{"relative_attention_max_distance": 128, "dropout_rate": 0.1, "n_positions": 512},
        **{"layer_norm_epsilon": 1e-6, "feed_forward_proj": "relu", "pad_token_id": 0},
        **{"decoder_start_token_id": 0, "tie_word_embeddings": True},
        "scale_decoder_outputs": True,
    },
    read=_read_t5,
    write=_write_t5,
    names=read_names(_T5_NAMES, ("q", "k", "v", "o")),
    prefix="transformer.",  # no file has one
    copies=dict.fromkeys(
        ("lm_head.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
        "shared.weight",
    ),
    left_over=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    factor=_t5_factor,
)
# Xue et al. 2021, section 3.1: as T5 1.1. transformers 5 writes `tie_word_embeddings: true`, also
# where the output projection is another matrix, as it always is here.
_MT5 = _T5._replace(
    published_as="MT5ForConditionalGeneration",
    defaults={
        **_T5.defaults,
        **{"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6},
        **{"feed_forward_proj": "gated-gelu", "scale_decoder_outputs": False},
    },
)
TRANSLATORS = {"marian": _MARIAN, "bart": _BART, "mbart": _MBART, "m2m_100": _M2M100}
TRANSLATORS |= {"t5": _T5, "mt5": _MT5}
