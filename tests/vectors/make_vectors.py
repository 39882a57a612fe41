"""Write the reference vectors to this folder from `tests/support/reference_numpy.py`.

    python tests/vectors/make_vectors.py

Writes three archives, identical on every run: attention.npz, layers.npz, transformer.npz. Inputs
and parameters are stored as float32, exactly as used; outputs and gradients are float64; ids are
int32. A mask is float32, 1 = blocked. Parameters have flat names such as
"params/encoder/layers/0/mha/wq/kernel"; `parameter_trees.unflatten(archive, "params")` rebuilds
the tree.

Axis letters: B=2 batch, T=3 target length, S=5 source length, N=7 heads, H=2 head width,
D=14 model width, F=11 feed-forward width, V=13 (source) and 19 (target) vocabulary. Lengths and
counts are distinct primes, so that a swapped axis cannot go unnoticed.

    attention.npz    q (B,N,T,H), k and v (B,N,S,H); for each CASE of open, padding, look_ahead,
                     blocked_row: CASE/mask (not for open), CASE/output, CASE/weights; look_ahead
                     is self-attention with separate CASE/q, CASE/k, CASE/v, (B,N,T,H).
                     padding/cotangent, padding/grad_{q,k,v}: the gradient of
                     sum(output * cotangent). wide/{v,mask,output,weights}: values wider than keys.
    layers.npz       mha, layer_norm, ffn, encoder_layer, decoder_layer: each NAME/params/...,
                     inputs and outputs; positional_encoding/14 and /7 (odd width), 11 positions
    transformer.npz  inp, tar, labels, masks, params, logits, enc_output, attention/..., loss,
                     accuracy, greedy decoding; tied_logits: the same parameters with the output
                     layer replaced by the decoder's embedding; grad/...: the gradient of loss_mean
                     with respect to the parameter of that name
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import parameter_trees as trees
import reference_numpy as ref

HERE = Path(__file__).resolve().parent
B, T, S, N, H = 2, 3, 5, 7, 2
D, F = N * H, 11
V_IN, V_TAR = 13, 19
START, END, MAX_LEN = 1, 3, 11
EPSILON = 0.1

# Padding inside the first row and at the end of the second, on both sides.
INP = np.array([[3, 0, 7, 11, 5], [2, 9, 4, 0, 0]], dtype=np.int32)
TAR = np.array([[1, 0, 12], [1, 17, 0]], dtype=np.int32)
LABELS = np.array([[6, 12, 2], [17, 2, 0]], dtype=np.int32)

GRADIENTS = (
    "encoder/embedding",
    "encoder/layers/0/mha/wq/kernel",
    "encoder/layers/1/layernorm2/gamma",
    "decoder/layers/0/mha1/wk/kernel",
    "decoder/layers/1/mha2/wv/bias",
    "final_layer/bias",
)


def as_stored(tree, prefix):
    """Flat names and float32, which is lossless: the random generators already round to float32."""
    return {name: a.astype(np.float32) for name, a in trees.flatten(tree, prefix).items()}


def attention_vectors():
    rng = np.random.default_rng(20170612)
    q = trees.random_array(rng, B, N, T, H)
    k = trees.random_array(rng, B, N, S, H)
    v = trees.random_array(rng, B, N, S, H)
    out = {"q": q.astype(np.float32), "k": k.astype(np.float32), "v": v.astype(np.float32)}

    def add_case(name, q, k, v, mask):
        output, weights = ref.scaled_dot_product_attention(q, k, v, mask)
        out.update({f"{name}/output": output, f"{name}/weights": weights})
        if mask is not None:
            out[f"{name}/mask"] = mask

    padding = ref.padding_mask(INP)  # (B, 1, 1, S)
    add_case("open", q, k, v, None)
    add_case("padding", q, k, v, padding)

    q2, k2, v2 = (trees.random_array(rng, B, N, T, H) for _ in range(3))
    out.update(as_stored({"q": q2, "k": k2, "v": v2}, "look_ahead"))
    add_case("look_ahead", q2, k2, v2, ref.look_ahead_mask(T))

    blocked_row = np.broadcast_to(padding, (B, 1, T, S)).copy()
    blocked_row[1, 0, 1] = 1.0  # every key, for the second query of the second sequence
    add_case("blocked_row", q, k, v, blocked_row)

    cotangent = trees.random_array(rng, B, N, T, H)
    out["padding/cotangent"] = cotangent.astype(np.float32)
    inputs = {"q": q, "k": k, "v": v}
    for name, array in inputs.items():

        def projected(x, name=name):
            given = {**inputs, name: x}
            output, _ = ref.scaled_dot_product_attention(**given, blocked=padding)
            return (output * cotangent).sum()

        out[f"padding/grad_{name}"] = ref.numerical_gradient(projected, array)

    wide = trees.random_array(rng, B, N, S, 3)
    out["wide/v"] = wide.astype(np.float32)
    add_case("wide", q, k, wide, padding)
    return out


def layer_vectors():
    rng = np.random.default_rng(1706)
    x = trees.random_array(rng, B, T, D)  # the target side
    y = trees.random_array(rng, B, S, D)  # the source side
    z = trees.random_array(rng, B, S, D)  # values that are not the keys
    source_mask, combined_mask, _ = ref.create_masks(INP, TAR)
    out = {}

    def add_case(name, params, inputs, outputs):
        out.update(as_stored(params, f"{name}/params"))
        out.update(as_stored(inputs, name))
        out.update({f"{name}/{key}": value for key, value in outputs.items()})

    params = trees.random_mha_params(rng, D)
    output, weights = ref.multi_head_attention(params, x, y, z, source_mask, N)
    inputs = {"q": x, "k": y, "v": z, "mask": source_mask}
    add_case("mha", params, inputs, {"output": output, "weights": weights})

    params = trees.random_layer_norm_params(rng, D)
    output = ref.layer_norm(x, params["gamma"], params["beta"])
    add_case("layer_norm", params, {"x": x}, {"output": output})

    params = trees.random_ffn_params(rng, D, F)
    add_case("ffn", params, {"x": x}, {"output": ref.feed_forward(params, x)})

    params = trees.random_encoder_layer_params(rng, D, F)
    output = ref.encoder_layer(params, y, source_mask, N)
    add_case("encoder_layer", params, {"x": y, "mask": source_mask}, {"out2": output})

    params = trees.random_decoder_layer_params(rng, D, F)
    out3, block1, block2 = ref.decoder_layer(params, x, y, combined_mask, source_mask, N)
    add_case(
        "decoder_layer",
        params,
        {"x": x, "enc_output": y, "look_ahead_mask": combined_mask, "padding_mask": source_mask},
        {"out3": out3, "weights_block1": block1, "weights_block2": block2},
    )

    out["positional_encoding/14"] = ref.positional_encoding(11, 14)
    out["positional_encoding/7"] = ref.positional_encoding(11, 7)
    return out


def transformer_vectors():
    # A seed (searched from 2000) with which greedy decoding produces several different tokens, ends
    # one row early but not the other, and always chooses by a margin of at least 0.05.
    rng = np.random.default_rng(3187)
    params = trees.random_transformer_params(
        rng, num_layers=2, d_model=D, dff=F, input_vocab_size=V_IN, target_vocab_size=V_TAR
    )
    logits, attention_weights = ref.transformer(params, INP, TAR, N)
    tied_logits, _ = ref.transformer({**params, "final_layer": None}, INP, TAR, N)
    enc_padding_mask, combined_mask, dec_padding_mask = ref.create_masks(INP, TAR)
    loss_per_token, loss_mean = ref.label_smoothed_cross_entropy(LABELS, logits, EPSILON)

    out = {
        "inp": INP,
        "tar": TAR,
        "labels": LABELS,
        "enc_padding_mask": enc_padding_mask,
        "combined_mask": combined_mask,
        "dec_padding_mask": dec_padding_mask,
        **as_stored(params, "params"),
        "enc_output": ref.encoder(params["encoder"], INP, enc_padding_mask, N),
        "logits": logits,
        "tied_logits": tied_logits,
        **{f"attention/{name}": weights for name, weights in attention_weights.items()},
        "loss_epsilon": np.float64(EPSILON),
        "loss_per_token": loss_per_token,
        "loss_mean": np.float64(loss_mean),
        "accuracy": np.float64(ref.masked_accuracy(LABELS, logits)),
        "greedy/start": np.int32(START),
        "greedy/end": np.int32(END),
        "greedy/max_len": np.int32(MAX_LEN),
        "greedy/tokens": ref.greedy_decode(params, INP, START, END, MAX_LEN, N).astype(np.int32),
    }

    flat = trees.flatten(params)
    for name in GRADIENTS:

        def loss(x, name=name):
            changed = trees.unflatten({**flat, name: x})
            logits, _ = ref.transformer(changed, INP, TAR, N)
            return ref.label_smoothed_cross_entropy(LABELS, logits, EPSILON)[1]

        out[f"grad/{name}"] = ref.numerical_gradient(loss, flat[name])
    return out


ARCHIVES = {
    "attention": attention_vectors,
    "layers": layer_vectors,
    "transformer": transformer_vectors,
}


def main():
    for name, make in ARCHIVES.items():
        path = HERE / f"{name}.npz"
        np.savez_compressed(path, **make())
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
