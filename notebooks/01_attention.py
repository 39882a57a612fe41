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
# # Attention step by step on a real sentence
#
# The layers of the study notes in order. Each equation is shown next to the corresponding call, and
# each result is checked against a NumPy implementation of the equation.
#
# 按笔记的顺序逐层走一遍：公式在上，调用在下，每个结果都与 NumPy 写出的公式核对。

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import inspect
import time

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import tuned, verdict
from IPython.display import SVG

import tf_transformer
from tf_transformer import bert, load_corpus, split_pairs
from tf_transformer.export import load_transformer, shipped_model, translate_texts

np.set_printoptions(precision=3, suppress=True)
tf.keras.utils.set_random_seed(0)

# %% [markdown]
# ## 1 · From a sentence to ids 从句子到编号
#
# The library ships a trained English-Chinese translator. Its tokenizer splits sentences into
# subwords; shorter sentences in a batch are padded with 0.

# %%
trained, tokenizer = load_transformer(shipped_model("en-zh"))
sentences = ["Where is the station?", "He is reading a book in the library."]
ids = tokenizer.encode_strings(tf.constant(sentences)).to_tensor()
tokens = [[piece.decode().strip() for piece in tokenizer.pieces(row).numpy()] for row in ids]
print(ids.numpy())
print(tokens)

# %% [markdown]
# ## 2 · Embeddings and positions 词向量与位置编码
#
# $$PE_{(pos,\,2i)} = \sin\frac{pos}{10000^{2i/d}} \qquad
#   PE_{(pos,\,2i+1)} = \cos\frac{pos}{10000^{2i/d}}$$
#
# Attention by itself ignores word order, so position encodings are added to the embeddings. The
# embeddings are first scaled by $\sqrt{d}$ so that the encodings do not dominate them.
#
# 注意力本身看不到词序，所以把位置编码加到词向量上；词向量先乘 $\sqrt{d}$。

# %%
d_model = trained.get_config()["d_model"]
codes = tf_transformer.Positional_Encoding().positional_encoding(50, d_model)  # (1, 50, d_model)

position, column = np.arange(50)[:, None], np.arange(d_model)[None, :]
angle = position / 10000 ** (2 * (column // 2) / d_model)
np.testing.assert_allclose(
    codes[0], np.where(column % 2 == 0, np.sin(angle), np.cos(angle)), atol=1e-5
)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.imshow(codes[0], aspect="auto", cmap="RdBu")
left.set(title="The codes", xlabel="column", ylabel="position")
right.imshow(codes[0] @ tf.transpose(codes[0]), cmap="viridis")
right.set(title="Dot products of the codes: near means alike", xlabel="position", ylabel="position")
plt.show()

# %%
embedding = trained.encoder.embedding.embedding
x = embedding(ids) * d_model**0.5 + codes[:, : ids.shape[1]]  # (B, T, D)
x.shape

# %% [markdown]
# ## 3 · Masks 掩码
#
# In the notes' masks **1 means blocked**: padding is never attended to, and in the decoder no word
# may attend to a later one. `mask * -1e9` is added to the scores, so softmax gives 0 there.
#
# A boolean mask means the opposite, as in Keras and PyTorch: `True` = may attend. Integer masks
# raise an error, so that an inverted mask cannot go unnoticed.
#
# 笔记的约定：**1 = 屏蔽**；布尔 mask 则是 True = 可以看；整数 mask 直接报错。

# %%
padding = tf_transformer.create_padding_mask(ids)  # (B, 1, 1, T)
look_ahead = tf_transformer.create_look_ahead_mask(5)
print(padding[:, 0, 0].numpy())
print(look_ahead.numpy())
try:
    tf_transformer.scaled_dot_product_attention(x, x, x, mask=tf.ones((1, 1), tf.int32))
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# ## 4 · Scaled dot-product attention 缩放点积注意力
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$

# %%
keep_out = padding[:, 0]  # (B, 1, T): without the axis of the heads
output, weights = tf_transformer.scaled_dot_product_attention(x, x, x, keep_out)

scores = x.numpy().astype(np.float64) @ np.swapaxes(x, 1, 2) / np.sqrt(d_model)
scores += keep_out.numpy() * -1e9
expected = np.exp(scores - scores.max(-1, keepdims=True))
expected /= expected.sum(-1, keepdims=True)
np.testing.assert_allclose(weights, expected, atol=1e-5)
np.testing.assert_allclose(output, expected @ x.numpy(), atol=1e-4)
print("rows sum to", np.unique(np.round(weights.numpy().sum(-1), 5)))
print("weight on padding:", weights.numpy()[0][:, ids.numpy()[0] == 0].max())

# %% [markdown]
# ## 5 · What the notes say about the formula 笔记怎么说：公式
#
# From here on each experiment ends with a verdict on a claim of the notes, with the measured
# number. All verdicts: [CLAIMS.md](CLAIMS.md).
#
# 从这里开始，每个实验都以对笔记中一条论断的结论结束，并给出实测数字。全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# Interview questions 面试题：为什么叫 self-attention？注意力的计算公式是什么？动态权重与全连接层有什么区别？

# %%
error = np.abs(output - expected @ x.numpy()).max()
verdict(
    "C02",
    "holds",
    answer=(
        "Each output is a weighted sum of all V, and the weights of a row sum to 1.",
        "每个输出是全部 V 的加权和，每行权重之和为 1。",
    ),
    measured=(
        "The layer differs from the formula in float64 by {error:.1e} at most, where outputs reach "
        "{largest:.1f}; the rows of weights sum to 1 within {rows:.1e}.",
        "与 float64 公式最多相差 {error:.1e}（输出最大 {largest:.1f}）；每行权重之和与 1 相差不超过 {rows:.1e}。",
    ),
    error=error,
    largest=np.abs(output).max(),
    rows=np.abs(weights.numpy().astype(np.float64).sum(-1) - 1).max(),
)

# %%
rng = np.random.default_rng(0)
layer = tf_transformer.MultiHeadAttention(d_model=64, num_heads=4)


def moved(length):
    """The share of outputs that move when one of the tokens changes."""
    before = rng.standard_normal((1, length, 64)).astype(np.float32)
    after = before.copy()
    after[0, length // 2] = rng.standard_normal(64)
    one, other = (layer(value, value, value, None)[0] for value in (before, after))
    return np.mean((one.numpy() != other.numpy()).any(-1))


shares = {length: moved(length) for length in (5, 50, 200)}


def neighbors(model):
    """How often a head of the encoder looks most at the word before or after."""
    _, found = model.encoder(ids, return_attention_weights=True, mask=padding)
    rows = [row[n, :, : (ids[n] != 0).numpy().sum()] for row in found.values() for n in range(2)]
    best = [np.argmax(row[:, :, : row.shape[1]], -1) for row in map(np.asarray, rows)]
    near = [np.abs(one - np.arange(one.shape[-1])) == 1 for one in best]
    return np.mean(np.concatenate([one.ravel() for one in near]))


untrained = type(trained).from_config(trained.get_config())
untrained.build()
verdict(
    "C01",
    "holds",
    answer=(
        "Every output mixes the values of all tokens, its own included; which tokens matter is "
        "learned.",
        "每个输出都混合了所有词元（包括自己）的 V；该关注谁是训练出来的。",
    ),
    measured=(
        "One changed token moves {short:.0%}, {middle:.0%} and {long:.0%} of the outputs for 5, 50 "
        "and 200 tokens, even untrained. Training decides where to look: on two sentences a head "
        "of the trained encoder looks most at a neighbor in {trained:.0%} of rows, of an untrained "
        "one in {chance:.0%}.",
        "改变一个词元，长度 5、50、200 时分别有 {short:.0%}、{middle:.0%}、{long:.0%} 的输出改变，未训练的层也如此。关注谁"
        "由训练决定：在两句话上，训练后的编码器有 {trained:.0%} 的行最关注相邻词，未训练的为 {chance:.0%}。",
    ),
    short=shares[5],
    middle=shares[50],
    long=shares[200],
    trained=neighbors(trained),
    chance=neighbors(untrained),
)

# %%
# How much of a word's own value is in its output: the diagonal of the weights, over layers; with
# the residual the word itself comes back whole.
_, maps = trained.encoder(ids, return_attention_weights=True, mask=padding)
own = [float(np.mean([np.mean(np.diag(head)[:6]) for head in row[0]])) for row in maps.values()]
verdict(
    "C04",
    "holds when",
    answer=(
        "Only with the residual: attention mixes all V by weight, and the residual adds the word "
        "itself.",
        "只有加上残差才成立：注意力按权重混合所有 V，残差把词自己加回来。",
    ),
    measured=(
        "In the trained encoder, a word's own V has {first:.2f} of the weight in the first layer "
        "and {last:.2f} in the last, where an equal share of six tokens is 1/6. So inside "
        "attention the own V is one among all; through the residual the word's vector comes back "
        "whole.",
        "训练后的编码器里，词自己的 V 在第一层占权重 {first:.2f}，在最后一层占 {last:.2f}（六个词元平均是 1/6）。可见在注意力内部，自己"
        "的 V 只是其中之一；通过残差，词自己的向量才完整地保留下来。",
    ),
    first=own[0],
    last=own[-1],
)

# %%
lengths = (5, 50, 500)
shapes = [layer(*[tf.zeros((1, n, 64))] * 3, None)[0].shape[1] for n in lengths]
dense = tf.keras.layers.Dense(5 * 64)  # over the flattened input of 5 tokens
dense(tf.zeros((1, 5 * 64)))
refused = 0
for n in lengths[1:]:
    try:
        dense(tf.zeros((1, n * 64)))
    except ValueError:
        refused += 1
verdict(
    "C07",
    "holds",
    answer=(
        "The weights are computed from the tokens, so one set of parameters fits any length.",
        "权重由输入的词元现算，所以同一组参数适用于任意长度。",
    ),
    measured=(
        "One set of parameters gave outputs for {lengths} tokens. A dense layer over the flattened "
        "5 tokens refused {refused} of 2 other lengths. (A dense layer applied to each token fits "
        "any length too, but mixes no tokens.)",
        "同一组参数得到了 {lengths} 个词元的输出。按 5 个词元展平的全连接层拒绝了另外 2 种长度中的 {refused} 种。（逐词元的全连接层也适用"
        "于任意长度，但不混合词元。）",
    ),
    lengths=", ".join(map(str, shapes)),
    refused=refused,
)

# %%
drop = tf.keras.layers.Dropout(0.3)
even = tf.fill((40_000, 2, 5, 7), 1 / 7)  # draws, heads, queries, keys
dropped = drop(even, training=True).numpy()
unseen = (dropped == 0).all(axis=2)  # a key that no query of a head sees
sums = dropped.sum(-1)
verdict(
    "C08",
    "holds when",
    answer=(
        "For one query of one head: its zeroed weight drops that token's whole V; other queries "
        "still see it.",
        "对某个头的某个查询成立：权重置零就丢掉该词元的整个 V，其他查询仍能看到它。",
    ),
    measured=(
        "At a rate of 30 %, {zeros:.1%} of the weights are 0, independently by head, query and "
        "key. All 5 queries of a head lost the same key in {keys:.2%} of {cases:,} cases (0.3^5 "
        "= 0.24 %). The rest is scaled up: rows sum to {mean:.3f}, standard deviation "
        "{deviation:.2f}.",
        "丢弃率 30 % 时有 {zeros:.1%} 的权重为 0，对每个头、查询、键独立抽取。某个头的 5 个查询同时丢掉同一个键，在 {cases:,} 种情形中占 "
        "{keys:.2%}（0.3^5 = 0.24 %）。剩下的权重会放大：一行之和平均为 {mean:.3f}，标准差 {deviation:.2f}。",
    ),
    zeros=np.mean(dropped == 0),
    keys=unseen.mean(),
    cases=unseen.size,
    mean=sums.mean(),
    deviation=sums.std(),
)

# %% [markdown]
# ## 6 · Why scale 为什么除以 √d_k
#
# $$\operatorname{Var}(q \cdot k) = d_k, \qquad
#   \frac{\partial\,\text{softmax}(z)}{\partial z} = \operatorname{diag}(y) - y y^\top$$
#
# Interview questions 面试题：为什么除以 $\sqrt{d_k}$？为什么是根号，而不是 $d_k$？softmax 的梯度是什么？


# %%
def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def jacobian_norm(y):
    return np.linalg.norm(
        np.apply_along_axis(lambda p: np.diag(p) - np.outer(p, p), -1, y), axis=(-2, -1)
    )


def scored(d_k, divide, keys=32, rows=400):
    """softmax rows of random queries and keys with components of variance 1."""
    q, k = rng.standard_normal((rows, d_k)), rng.standard_normal((keys, d_k))
    return softmax(q @ k.T / divide(d_k))


widths = (4, 16, 64, 256, 1024)
plain = [np.median(jacobian_norm(scored(d, lambda d: 1))) for d in widths]
scaled = [np.median(jacobian_norm(scored(d, np.sqrt))) for d in widths]
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
axes.loglog(widths, plain, "o-", label="q·k")
axes.loglog(widths, scaled, "s-", label="q·k / √d_k")
axes.set(xlabel="d_k", ylabel="norm of the Jacobian of softmax", title="Gradients through softmax")
axes.legend()
plt.show()
verdict(
    "C09",
    "holds",
    answer=(
        "Unscaled, softmax saturates as d_k grows and its gradient vanishes; divided by √d_k it "
        "does not.",
        "不缩放时，d_k 越大 softmax 越饱和、梯度趋于 0；除以 √d_k 后不再如此。",
    ),
    measured=(
        "On random queries and 32 random keys with components of variance 1, the median norm of "
        "the softmax Jacobian falls from {small:.2f} at d_k = 4 to {large:.1e} at d_k = 1024; with "
        "scaling it stays at {scaled_small:.2f} and {scaled_large:.2f}.",
        "随机的查询和 32 个随机的键，各分量方差为 1：softmax 雅可比矩阵范数的中位数从 d_k = 4 时的 {small:.2f} 降到 d_k = "
        "1024 时的 {large:.1e}；缩放后分别为 {scaled_small:.2f} 和 {scaled_large:.2f}。",
    ),
    small=plain[0],
    large=plain[-1],
    scaled_small=scaled[0],
    scaled_large=scaled[-1],
)

# %%
before, after = (np.median(jacobian_norm(scored(64, divide))) for divide in (lambda d: 1, np.sqrt))
wide_before, wide_after = (
    np.median(jacobian_norm(scored(512, divide))) for divide in (lambda d: 1, np.sqrt)
)
verdict(
    "C14",
    "does not hold",
    answer=(
        "The other way round: the division moves softmax out of the region of tiny gradients.",
        "恰好相反：除以 √d_k 使 softmax 离开梯度极小的区域。",
    ),
    measured=(
        "It is the undivided product that moves softmax there; the comment turns the reason for "
        "the division into its effect. The norm of the Jacobian is {before:.2g} before and "
        "{after:.2g} after it at d_k = 64, {wide_before:.2g} and {wide_after:.2g} at 512.",
        "使 softmax 落入那里的是未相除的点积；这条注释把相除的原因写成了结果。d_k = 64 时雅可比范数在相除之前为 {before:.2g}，之后为 "
        "{after:.2g}；512 时为 {wide_before:.2g} 和 {wide_after:.2g}。",
    ),
    before=before,
    after=after,
    wide_before=wide_before,
    wide_after=wide_after,
)

# %%
q, k = rng.standard_normal((2, 20_000, 64))
shared = rng.standard_normal((20_000, 1))
mixed_q, mixed_k = (
    0.6**0.5 * part + 0.4**0.5 * shared for part in (q, k)
)  # variance 1, not independent
products, mixed_products = ((a * b).sum(-1) for a, b in ((q, k), (mixed_q, mixed_k)))
verdict(
    "C10",
    "holds when",
    answer=(
        "If the components are independent, q·k has variance d_k, and 1 after the division.",
        "若各分量相互独立，q·k 的方差为 d_k，除以 √d_k 后恢复为 1。",
    ),
    measured=(
        "At d_k = 64, q·k has mean {mean:.2f} and variance {independent:.1f}, after the division "
        "by 8 {restored:.3f}. If 40 % of each component's variance is shared, q·k has mean "
        "{shifted:.1f} and variance {dependent:.0f}. Vaswani et al. (2017) assume independence.",
        "d_k = 64 时 q·k 的均值为 {mean:.2f}，方差为 {independent:.1f}，除以 8 之后为 {restored:.3f}。若"
        "各分量的方差有 40 % 来自共同成分，q·k 的均值为 {shifted:.1f}，方差为 {dependent:.0f}。Vaswani 等（2017）"
        "明确假设了独立。",
    ),
    mean=products.mean(),
    independent=products.var(),
    restored=products.var() / 64,
    shifted=mixed_products.mean(),
    dependent=mixed_products.var(),
)

# %%
by_root, by_width = (np.var(products / divisor) for divisor in (8, 64))
y_root, y_width = scored(64, np.sqrt), scored(64, lambda d: d)
entropy_root, entropy_width = (-(y * np.log(y)).sum(-1).mean() for y in (y_root, y_width))
verdict(
    "C11",
    "does not hold",
    answer=(
        "“Scaled” means divided by √d_k; divided by d_k, the weights become nearly even.",
        "“缩放”指除以 √d_k；若除以 d_k，权重会变得几乎平均。",
    ),
    measured=(
        "At d_k = 64 the variance of scores divided by √d_k is {by_root:.2f}, divided by d_k "
        "{by_width:.3f}. Softmax over 32 keys then has an entropy of {entropy_width:.3f} nats of "
        "at most {most:.3f}, against {entropy_root:.2f} with √d_k.",
        "d_k = 64 时，除以 √d_k 的分数方差为 {by_root:.2f}，除以 d_k 则为 {by_width:.3f}；后者在 32 个键上的 "
        "softmax 熵为 {entropy_width:.3f}（最大 {most:.3f}），而除以 √d_k 时为 {entropy_root:.2f}。",
    ),
    by_root=by_root,
    by_width=by_width,
    entropy_width=entropy_width,
    most=np.log(32),
    entropy_root=entropy_root,
)

# %%
# d_model = 512 in 1, 4 and 16 heads: the score of a head is a sum over its own width.
variances = {
    heads: [np.var((q * k).sum(-1)) / divisor for divisor in (512, 512 / heads)]
    for heads in (1, 4, 16)
    for q, k in [rng.standard_normal((2, 20_000, 512 // heads))]
}
verdict(
    "C12",
    "holds when",
    answer=(
        "With one head; with several, d is the width of one head's queries and keys.",
        "只有一个头时成立；多头时，d 是一个头的 Q、K 的宽度。",
    ),
    measured=(
        "In a 512-wide layer with 4 and 16 heads, scores divided by √512 have variance {four:.2f} "
        "and {sixteen:.3f}; divided by the root of the head's own width, {own_four:.2f} and "
        "{own_sixteen:.2f}.",
        "512 维的层分 4 个头和 16 个头时，除以 √512 的分数方差为 {four:.2f} 和 {sixteen:.3f}；除以一个头宽度的平方根则为 "
        "{own_four:.2f} 和 {own_sixteen:.2f}。",
    ),
    four=variances[4][0],
    sixteen=variances[16][0],
    own_four=variances[4][1],
    own_sixteen=variances[16][1],
)

# %%
q, k = (tf.constant(rng.standard_normal((2, 7, 16)), tf.float32) for _ in range(2))
found = [
    tf_transformer.scaled_dot_product_attention(q, k, tf.ones((2, 7, width)), None)[0].shape[-1]
    for width in (8, 16, 32)
]
verdict(
    "C13",
    "holds when",
    answer=(
        "For Q and K always; for V only where d_v = d_k, as in the paper.",
        "对 Q、K 总成立；对 V 只在 d_v = d_k 时成立，论文正是如此。",
    ),
    measured=(
        "Q and K must agree in their last axis, V need not: with d_k = 16 and d_v = 8, 16 and 32 "
        "the same scores give outputs of widths {found}. The paper's base model has d_k = d_v = "
        "64 (N1); its formula allows any d_v (N4).",
        "Q 和 K 的最后一维必须相同，V 不必：d_k = 16，d_v = 8、16、32 时，同样的分数得到宽度 {found} 的输出。论文的 base 模型取 d_k = "
        "d_v = 64（如 N1），公式本身允许任意 d_v（如 N4）。",
    ),
    found=", ".join(map(str, found)),
)

# %%
z = rng.standard_normal(16)
times, plus = (np.abs(softmax(other) - softmax(z)).max() for other in (3 * z, z + 3))
verdict(
    "C15",
    "does not hold",
    answer=(
        "Adding one number to all inputs changes nothing; multiplying does, or scaling would have "
        "no effect.",
        "所有输入加同一个数，值不变；乘一个数就会变，否则缩放毫无作用。",
    ),
    measured=(
        "softmax(x + 3) differs from softmax(x) by {plus:.0e}, softmax(3x) by up to {times:.2f}. "
        "What multiplication by a positive number leaves alone is the order.",
        "softmax(x + 3) 与 softmax(x) 相差 {plus:.0e}，softmax(3x) 与它最多相差 {times:.2f}。乘以正数时"
        "不变的只是大小次序。",
    ),
    plus=plus,
    times=times,
)

# %%
z = tf.constant(rng.standard_normal(16))
with tf.GradientTape() as tape:
    tape.watch(z)
    y = tf.nn.softmax(z)
automatic = tape.jacobian(y, z).numpy()
formula = np.diag(y) - np.outer(y, y)
sharp = np.full(16, 1e-6)
sharp[0] = 1 - 15e-6
verdict(
    "C16",
    "holds",
    answer=(
        "The Jacobian is diag(y) − yyᵀ, and it goes to 0 as one weight nears 1.",
        "雅可比矩阵是 diag(y) − yyᵀ，某个权重接近 1 时趋于 0。",
    ),
    measured=(
        "Automatic differentiation and the formula differ by {error:.0e}. The norm is {norm:.2f} "
        "for a random row and {sharp:.0e} where one weight is 0.999985.",
        "自动微分与公式相差 {error:.0e}。随机一行的范数为 {norm:.2f}，某个权重为 0.999985 时为 {sharp:.0e}。",
    ),
    error=np.abs(automatic - formula).max(),
    norm=np.linalg.norm(formula),
    sharp=jacobian_norm(sharp[None])[0],
)

# %%
# Translators of one layer and one head, `python notebooks/train.py scores`.
tried = tuned("scores")


def last_fall(found):
    """How much the validation loss fell in the last 200 steps, of each seed."""
    return [losses[-2] - losses[-1] for losses in found["course_losses"]]


dot, scaled = tried["dot, 256"], tried["scaled, 256"]
verdict(
    "C120",
    "holds when",
    answer=(
        "At width 256, the only one tried: unscaled, a translator stays {gap:.1f} nats worse even at "
        "its own best rate.",
        "在宽度 256 时成立（只测了这一种）：学习率各取最好，不缩放仍高 {gap:.1f} nats。",
    ),
    measured=(
        "Translators of one layer and one head, six epochs, each at the best of three rates "
        "({dot_rate:g} and {scaled_rate:g} of the formula's), nats a token: unscaled {dot:.2f}, "
        "scaled {scaled:.2f} (gap {gap:.2f}). In the last 200 steps these fell {dot_fall:.2f} and "
        "{scaled_fall:.2f}: the gap is not closing. Queries and keys begin with variance 1.",
        "一层一个头的小翻译模型，六轮，各取三种学习率中最好的（公式的 {dot_rate:g} 倍和 {scaled_rate:g} 倍），每词元损失：不缩放 {dot:.2f}，缩放 "
        "{scaled:.2f}，相差 {gap:.2f}。最后 200 步分别下降 {dot_fall:.2f} 和 {scaled_fall:.2f}，差距没有缩小。查询和键的各分量初始方差"
        "为 1。",
    ),
    gap=np.mean(dot["loss"]) - np.mean(scaled["loss"]),
    dot=dot["loss"],
    scaled=scaled["loss"],
    dot_rate=dot["rate"],
    scaled_rate=scaled["rate"],
    dot_fall=last_fall(dot),
    scaled_fall=last_fall(scaled),
)

# %% [markdown]
# ## 7 · Q, K and V 三个矩阵
#
# Interview questions 面试题：Q、K、V 的权重矩阵哪里来的？Q 和 K 为什么用不同的矩阵？Q = K 会怎样？不乘 Q、K、V 矩阵会怎样？Q、K、V 要不要过激活函数？

# %%
words = tf.constant(rng.standard_normal((1, 64, 64)), tf.float32)
layer(words, words, words, None)
tied = words @ tf.random.normal((64, 64), stddev=64**-0.5)
other = words @ tf.random.normal((64, 64), stddev=64**-0.5)


def asymmetry(matrix):
    matrix = np.asarray(matrix)
    return np.linalg.norm(matrix - matrix.T) / np.linalg.norm(matrix + matrix.T)


raw = {
    name: (tied @ tf.transpose(k, (0, 2, 1)))[0] / 8 for name, k in (("tied", tied), ("two", other))
}
verdict(
    "C21",
    "holds",
    answer=(
        "With Q = K the scores are symmetric; after softmax, row by row, the weights are not.",
        "Q=K 时分数对称；softmax 按行归一化，之后的权重不再对称。",
    ),
    measured=(
        "‖A − Aᵀ‖ / ‖A + Aᵀ‖ of the scores is {tied:.2g} with Q = K and {two:.2f} with two "
        "matrices. Softmax divides each row by its own sum; for the weights with Q = K it is "
        "{after:.2f}.",
        "分数的 ‖A − Aᵀ‖ / ‖A + Aᵀ‖ 在 Q=K 时为 {tied:.2g}，两个矩阵时为 {two:.2f}。softmax 把每行除以各自的"
        "和，Q=K 时权重的这个比值为 {after:.2f}。",
    ),
    tied=asymmetry(raw["tied"]),
    two=asymmetry(raw["two"]),
    after=asymmetry(softmax(np.asarray(raw["tied"], np.float64))),
)

# %%
diagonal = {}
for width in (16, 64, 256, 768):
    vectors = rng.standard_normal((64, width))
    diagonal[width] = np.diag(softmax(vectors @ vectors.T / np.sqrt(width))).mean()
real = embedding(ids)[0, :6].numpy().astype(np.float64)
learned = np.diag(softmax(real @ real.T * d_model / np.sqrt(d_model))).mean()
verdict(
    "C22",
    "holds when",
    answer=(
        "With wide vectors of similar length: a word's score with itself is |x|²/√d, about √d.",
        "向量足够宽、长度相近时成立：词与自己的得分是 |x|²/√d，约为 √d。",
    ),
    measured=(
        "Among 64 random vectors with components of variance 1, the own weight is {narrow:.2f} at "
        "d = 16, {middle:.3f} at 64 and {wide:.5f} at 768; among the six embeddings of the first "
        "sentence in the trained translator (d = 256) {learned:.3f}.",
        "64 个各分量方差为 1 的随机向量中，自身权重在 d = 16 时为 {narrow:.2f}，64 时为 {middle:.3f}，768 时为 "
        "{wide:.5f}；训练好的翻译模型（d = 256）里，第一句的六个词向量为 {learned:.3f}。",
    ),
    narrow=diagonal[16],
    middle=diagonal[64],
    wide=diagonal[768],
    learned=learned,
)

# %%
equal = rng.standard_normal((200, 64))
equal /= np.linalg.norm(equal, axis=-1, keepdims=True)
table = (
    embedding.embeddings.numpy()
    if hasattr(embedding, "embeddings")
    else embedding(tf.range(2000)).numpy()
)
table = table[:2000].astype(np.float64)  # lengths as they were learned


def top_is_own(queries, keys):
    return np.mean((queries @ keys.T).argmax(-1) == np.arange(len(queries)))


w_q, w_k = rng.standard_normal((2, 64, 64)) / 8
verdict(
    "C23",
    "holds when",
    answer=(
        "With vectors of similar length, Q alone scores itself highest; two matrices lift this.",
        "各向量长度相近时，只用 Q 则自己得分最高；Q、K 一起用可以避免。",
    ),
    measured=(
        "With Q alone {equal:.0%} of 200 random vectors of one length score themselves highest, "
        "since x·y ≤ |x||y|, and {real:.1%} of 2,000 embeddings of the translator. With random W_Q "
        "and W_K {two:.1%} of the random vectors do, near chance (1/200). “More robust” was not "
        "measured.",
        "只用 Q 时，200 个等长的随机向量中 {equal:.0%} 对自己得分最高，因为 x·y ≤ |x||y|；翻译模型的 2,000 个词向量中为 "
        "{real:.1%}。用随机的 W_Q 和 W_K 时，随机向量中只有 {two:.1%}，接近随机（1/200）。“更稳健”没有测。",
    ),
    equal=top_is_own(equal, equal),
    real=top_is_own(table, table),
    two=top_is_own(equal @ w_q, equal @ w_k),
)

# %%
beaten = np.mean((table @ table.T > np.sum(table**2, -1)[:, None]).any(-1))
verdict(
    "C24",
    "holds when",
    answer=(
        "When vectors have similar lengths; a longer one in a similar direction can score higher.",
        "各向量长度相近时成立；方向相近而更长的向量，点积可以更大。",
    ),
    measured=(
        "A dot product does not ask that the vectors be identical: it grows with length and "
        "alignment. Of 2,000 embeddings of the trained translator {learned:.1%} have a larger "
        "product with another one than with themselves. If all had one length, none could, by "
        "Cauchy-Schwarz.",
        "点积并不要求两个向量相同：它随长度和方向的一致程度增大。训练好的翻译模型的 2,000 个词向量中，有 {learned:.1%} 与另一个词向量的点积大于"
        "与自己的点积。若长度都相等，由柯西不等式，与自己的点积一定最大。",
    ),
    learned=beaten,
)

# %%
# The loss on held-out pairs when two of the three matrices change places in every attention.
held_out = split_pairs(load_corpus("en-zh")).test[:100]
english, chinese = (
    tokenizer.encode_strings(tf.constant(side)) for side in zip(*held_out, strict=True)
)
start, end = (
    tf.fill((100, 1), tf.constant(token, english.dtype))
    for token in (tokenizer.start_id, tokenizer.end_id)
)
teacher = tf.concat([english, end], 1).to_tensor(), tf.concat([start, chinese], 1).to_tensor()
labels = tf.concat([chinese, end], 1).to_tensor()
attentions = [block.mha for block in trained.encoder.enc_layers]
for block in trained.decoder.dec_layers:
    attentions += [block.mha1, block.mha2]


def nats():
    """The translator's loss, nats a token."""
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, trained(teacher, training=False))
    return float(tf.reduce_mean(each[labels != 0]))


def exchange(first, second):
    for part in attentions:
        a, b = getattr(part, first), getattr(part, second)
        setattr(part, first, b)
        setattr(part, second, a)


def exchanged(first, second):
    exchange(first, second)
    found = nats()
    exchange(first, second)
    return found


wq = attentions[0].wq
product = x.numpy().astype(np.float64) @ wq.kernel.numpy() + wq.bias.numpy()
kernels = [dense.kernel for part in attentions for dense in (part.wq, part.wk, part.wv)]
learned, losses = [kernel.numpy() for kernel in kernels], [nats()]
draw = tf.keras.initializers.GlorotUniform(seed=0)  # as before training
for kernel in kernels:
    kernel.assign(draw(kernel.shape))
losses.append(nats())
for kernel, value in zip(kernels, learned, strict=True):
    kernel.assign(value)
verdict(
    "C17",
    "holds",
    answer=(
        "From training: drawn at random, learned with all other weights; each of the three has its "
        "own job.",
        "训练得来：先随机初始化，再与其他权重一起学习；三者分工不同。",
    ),
    measured=(
        "The layer is x·W + b within {error:.0e}, where outputs reach {largest:.0f}. On held-out "
        "pairs the shipped translator loses {whole:.2f} nats a token, {qk:.2f} with Q and K "
        "exchanged, {kv:.2f} with K and V, {qv:.2f} with Q and V, and {drawn:.2f} with all three "
        "drawn anew.",
        "这一层就是 x·W + b，误差不超过 {error:.0e}（输出最大 {largest:.0f}）。自带的翻译模型在留出句对上每个词元的损失为 "
        "{whole:.2f}，互换 Q、K 后为 {qk:.2f}，互换 K、V 后为 {kv:.2f}，互换 Q、V 后为 {qv:.2f}，三者重新随机初始化"
        "后为 {drawn:.2f}。",
    ),
    error=np.abs(wq(x) - product).max(),
    largest=np.abs(product).max(),
    whole=losses[0],
    qk=exchanged("wq", "wk"),
    kv=exchanged("wk", "wv"),
    qv=exchanged("wq", "wv"),
    drawn=losses[1],
)

# %%
token, kernel = x.numpy()[0, 0].astype(np.float64), wq.kernel.numpy()
by_columns = np.array([np.sum(token * column) for column in kernel.T])
verdict(
    "C119",
    "holds when",
    answer=(
        "If it means dot products: each component of q is the token's dot product with a column of "
        "W_Q.",
        "若“点乘”指点积：q 的每个分量是词向量与 W_Q 一列的点积，合起来就是矩阵乘法。",
    ),
    measured=(
        "For a token of the translator {columns} dot products with the columns of W_Q, plus the "
        "bias, give its q within {error:.0e}. Taken as an element-wise product it makes no sense: "
        "{tokens} × {columns} and {columns} × {columns} matrices do not fit.",
        "翻译模型的一个词元与 W_Q 的 {columns} 列分别做点积，再加偏置，与它的 q 相差 {error:.0e}。若理解为逐元素相乘则不通："
        "{tokens} × {columns} 与 {columns} × {columns} 的矩阵形状对不上。",
    ),
    columns=len(by_columns),
    error=np.abs(by_columns + wq.bias.numpy() - wq(x)[0, 0]).max(),
    tokens=x.shape[1],
)

# %%
# A dense layer without activation: f(a + b) = f(a) + f(b) - f(0).
a, b = (tf.random.stateless_normal((1, 50, d_model), (0, seed)) for seed in (1, 2))
projections = [dense for part in attentions for dense in (part.wq, part.wk, part.wv)]
bent = max(np.abs(f(a + b) - f(a) - f(b) + f(0 * a)).max() for f in projections)
defaults = inspect.signature(bert.attention_layer).parameters
linear = sum(defaults[f"{name}_act"].default is None for name in ("query", "key", "value"))
three_of_five = bert.attention_layer(a, a, num_attention_heads=3, size_per_head=5)
for dense in projections:
    dense.activation = tf.nn.relu
with_relu = nats()
for dense in projections:
    dense.activation = tf.keras.activations.linear
verdict(
    "C18",
    "does not hold",
    answer=(
        "No activation: Q, K and V are linear maps, and their widths may differ.",
        "没有激活函数：Q、K、V 都是线性映射，宽度也可以不同。",
    ),
    measured=(
        "The {count} projections are linear within {bent:.0e}; BERT's code has {linear} of 3 "
        "activations set to None. Relu, put into the trained translator, raises the loss from "
        "{plain:.2f} to {relu:.2f}. Three heads of 5 take {into} in, {out} out. "
        "Kyubyong/transformer, an early implementation, had relu; the paper has none.",
        "翻译模型的 {count} 个投影都是线性的，误差不超过 {bent:.0e}；BERT 代码的三个激活参数有 {linear} 个默认为 None。在训练好的翻译模型里加上 "
        "relu，损失从 {plain:.2f} 升到 {relu:.2f}。3 个 5 维的头是 {into} 进 {out} 出。早期的一个实现（"
        "Kyubyong/transformer）带 relu，论文没有。",
    ),
    count=len(projections),
    bent=bent,
    linear=linear,
    plain=nats(),
    relu=with_relu,
    into=d_model,
    out=three_of_five.shape[-1],
)

# %% [markdown]
# ## 8 · Masks, looked at closely 掩码细究
#
# Interview questions 面试题：Transformer 用到几种 Mask？为什么加一个很大的负数？1 表示可以看还是不可以看？


# %%
def on_blocked(score, value, dtype):
    """The weight of a blocked key beside three others, with this score more than theirs."""
    z = np.array([0, 0, 0, score], dtype) + np.array([0, 0, 0, value]).astype(dtype)
    return float(tf.nn.softmax(tf.constant(z))[3])


with np.errstate(over="ignore"):
    usual = max(on_blocked(10, value, "float32") for value in (-1e4, -1e9, -np.inf))
    small_number, large_number = (on_blocked(3e4, value, "float32") for value in (-1e4, -1e9))
    all_blocked = float(tf.nn.softmax(tf.constant([0.0, 1, 2, 3]) - 1e9)[3])
    without_float32 = float(tf.nn.softmax(tf.fill((4,), tf.constant(-1e9, tf.float16)))[0])
verdict(
    "C40",
    "holds when",
    answer=(
        "If the number is far below all scores and every row keeps a key.",
        "这个数远小于所有分数、且每行至少留一个键时成立。",
    ),
    measured=(
        "A blocked key that scores 10 more than the others gets {usual:.0f}; one that scores "
        "30,000 more, {small:.0f} with -10000 and {large:.0f} with -1e9. With all four keys "
        "blocked, float32 gives their plain average, {all:.2f} each; in float16 -1e9 is -inf, and "
        "the row {half}.",
        "被屏蔽的键比别的高 10 分时权重为 {usual:.0f}；高 30,000 分时，-10000 得 {small:.0f}，-1e9 得 "
        "{large:.0f}。四个键全被屏蔽时，float32 里是简单平均，各 {all:.2f}；float16 里 -1e9 变成 -inf，这一行是 "
        "{half}。",
    ),
    usual=usual,
    small=small_number,
    large=large_number,
    all=all_blocked,
    half=str(without_float32),
)

# %%
q, k, v = (tf.constant(rng.standard_normal((1, 6, 8)), tf.float32) for _ in range(3))
may_attend = tf.constant([[1.0, 1, 1, 1, 0, 0]])  # N0; the other two are made from it
blocked = 1 - may_attend  # N1
scores = tf.matmul(q, k, transpose_b=True) / 8**0.5
codes = {
    "N0": lambda mask: scores + (1 - mask) * -10000.0,
    "N1": lambda mask: scores + mask * -1e9,
    "N2": lambda mask: scores + mask,
}
masks = {"N0": may_attend, "N1": blocked, "N2": blocked * -1e9}
wrong = {
    (code, mask): float(
        tf.reduce_mean(tf.reduce_sum(tf.nn.softmax(codes[code](masks[mask]))[..., 4:], -1))
    )
    for code in codes
    for mask in masks
}
others = [weight for (code, mask), weight in wrong.items() if code != mask]
verdict(
    "C41",
    "holds when",
    answer=(
        "Only with its own code: under another note's code the padding may get all the weight.",
        "只与各自的代码配套时成立：混用时权重可能全落在填充上。",
    ),
    measured=(
        "With its own mask, each of the three codes gives two padded keys of six a weight of "
        "{own:.0f}. With another note's mask it reaches {worst:.0%}, and is right in {right} of 6 "
        "cases; no error says so. This library takes float masks as N1 and refuses integers.",
        "配自己的 mask 时，三段代码给六个键中两个填充的权重都是 {own:.0f}。换用别的笔记的 mask，最高达 {worst:.0%}，6 种情形中只有"
        " {right} 种正确，而且没有任何报错。本库的浮点 mask 按 N1 的约定，整数 mask 直接报错。",
    ),
    own=max(wrong[name, name] for name in codes),
    worst=max(others),
    right=sum(weight < 1e-6 for weight in others),
)

# %%
lower = tf.constant(np.tril(np.ones((6, 6))), tf.float32)
_, with_lower = tf_transformer.scaled_dot_product_attention(q, k, v, lower)
_, with_upper = tf_transformer.scaled_dot_product_attention(
    q, k, v, tf_transformer.create_look_ahead_mask(6)
)
future = np.triu(np.ones((6, 6)), 1)
# A boolean mask: 1 means visible.
_, with_visible = tf_transformer.scaled_dot_product_attention(
    q, k, v, tf.cast(lower[tf.newaxis], tf.bool)
)
leak, none, visible = (
    np.sum(found[0] * future, -1)[:-1].mean() for found in (with_lower, with_upper, with_visible)
)
verdict(
    "C42",
    "holds when",
    answer=(
        "Where 1 means visible; where 1 blocks, it is the upper triangle without the diagonal.",
        "1 表示可见时成立；1 表示屏蔽时，应为不含对角线的上三角。",
    ),
    measured=(
        "With 1 = visible, the lower triangle lets {visible:.0%} of the weight go to later words. "
        "But N1's padding mask marks with 1 what is blocked (m × -1e9): added in that way, the "
        "lower triangle lets {leak:.0%} through, the upper one {none:.0%}.",
        "1 表示可见时，用下三角则落在后面的词上的权重为 {visible:.0%}。但 N1 的 padding mask 用 1 表示屏蔽（m × -1e9）："
        "照这样加到分数上，下三角会让 {leak:.0%} 的权重落在后面的词上，上三角则为 {none:.0%}。",
    ),
    leak=leak,
    none=none,
    visible=visible,
)

# %%
target = tf.constant([[7, 8, 9, 0, 0]])
pad, ahead = (
    tf_transformer.create_padding_mask(target)[0, 0],
    tf_transformer.create_look_ahead_mask(5),
)
combined = {"sum": pad + ahead, "maximum": tf.maximum(pad, ahead)}
q5, k5, v5 = (tf.constant(rng.standard_normal((1, 5, 8)), tf.float32) for _ in range(3))
results = {
    name: tf_transformer.scaled_dot_product_attention(q5, k5, v5, mask)[0].numpy()
    for name, mask in combined.items()
}
verdict(
    "C44",
    "holds",
    answer=(
        "The encoder blocks padding, the decoder's self-attention later words too; adding the "
        "masks is enough.",
        "编码器屏蔽填充，解码器的自注意力还屏蔽后面的词；两个 mask 相加即可。",
    ),
    measured=(
        "Sum and maximum give outputs that differ by {difference:.0f}, though the sum is 2 at "
        "{twice} of 25 places: what is not 0 blocks. The maximum (`create_masks`) stays a mask of "
        "zeros and ones.",
        "相加与取最大值的输出相差 {difference:.0f}，尽管和在 25 处中的 {twice} 处为 2：非 0 即屏蔽。取最大值（"
        "`create_masks`）得到的仍是 0 和 1。",
    ),
    difference=np.abs(results["sum"] - results["maximum"]).max(),
    twice=int(np.sum(combined["sum"] == 2)),
)

# %%
stack = tf_transformer.DecoderLayer(64, num_heads=4, dff=128)
inputs = tf.Variable(rng.standard_normal((1, 6, 64)), dtype=tf.float32)
source = tf.constant(rng.standard_normal((1, 4, 64)), tf.float32)


def reach(mask):
    """The size of the gradient of output t by input j, (T, T)."""
    with tf.GradientTape(persistent=True) as tape:
        out, *_ = stack(inputs, source, False, mask, None)
        parts = [tf.reduce_sum(out[0, t] ** 3) for t in range(6)]
    return np.array([np.linalg.norm(tape.gradient(part, inputs)[0], axis=-1) for part in parts])


plain, strict = reach(tf_transformer.create_look_ahead_mask(6)), 1 - np.tril(np.ones((6, 6)), -1)
_, first_row = tf_transformer.scaled_dot_product_attention(q, k, v, tf.constant(strict, tf.float32))
verdict(
    "C45",
    "holds when",
    answer=(
        "When the target is shifted right: the mask hides later words, the shift the one being "
        "predicted.",
        "目标右移一位时成立：mask 遮住后面的词，右移遮住正在预测的词。",
    ),
    measured=(
        "The gradient of output t by later inputs is {later:.0f}, by its own input {own:.1f}: the "
        "mask alone leaves the input at t visible. Blocking the diagonal instead leaves the first "
        "row without a key, and {spread:.0%} of its weight goes to the future.",
        "输出 t 对后面输入的梯度为 {later:.0f}，对自身位置输入的梯度为 {own:.1f}：mask 本身并不遮住位置 t 的输入。若连对角线也屏蔽，"
        "第一行就没有键可看，{spread:.0%} 的权重落到未来。",
    ),
    later=plain[np.triu_indices(6, 1)].max(),
    own=np.diag(plain).mean(),
    spread=float(tf.reduce_sum(first_row[0, 0, 1:])),
)

# %% [markdown]
# ## 9 · Multiple heads 多头
#
# $$\text{MultiHead}(Q,K,V) = \text{Concat}(head_1,\dots,head_h)W^O,\quad
#   head_i = \text{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# `split_heads` splits the last axis: $(B, T, d) \to (B, h, T, d/h)$. Each head attends separately.

# %%
mha = tf_transformer.MultiHeadAttention(d_model=d_model, num_heads=4)
output, weights = mha(x, x, x, padding)
print("split:", mha.split_heads(x, x.shape[0]).shape)
print("output:", output.shape, "weights:", weights.shape)

# %% [markdown]
# The layer is untrained: its heads attend almost uniformly to all words.
#
# 未经训练的注意力头，几乎是平均地看所有词。

# %%
SVG(tf_transformer.attention_svg(weights[1], tokens[1], tokens[1]))

# %%
batch = tf.random.stateless_normal((128, 20, 32), (0, 3))
shapes = [
    bert.attention_layer(batch, batch, num_attention_heads=2, size_per_head=16).shape,
    bert.transformer_model(batch, hidden_size=32, num_attention_heads=2).shape,
]
try:
    bert.transformer_model(batch, num_attention_heads=2)  # hidden_size=768, the default
    refused = 0
except ValueError as error:
    refused = 1
    print("ValueError:", error)
verdict(
    "C28",
    "holds when",
    answer=(
        "With hidden_size set to 32 it passes and keeps its shape; the default, 768, is refused.",
        "设 hidden_size=32 时通过且形状不变；默认的 768 会被拒绝。",
    ),
    measured=(
        "`attention_layer` gives {attention}, the 12 layers of `transformer_model` with "
        "hidden_size=32 {model}. With the defaults the call is refused ({refused} of 1): 32 cannot "
        "be added to 768, and two heads would be {width} wide, not 16.",
        "`attention_layer` 得到 {attention}，设 hidden_size=32 时 12 层的 `transformer_model` "
        "得到 {model}。用默认值时调用被拒绝（{refused}/1 次）：宽度 32 无法与 768 相加，而且两个头各宽 {width}，不是 16。",
    ),
    attention="×".join(map(str, shapes[0])),
    model="×".join(map(str, shapes[1])),
    refused=refused,
    width=768 // 2,
)

# %%
many = tf_transformer.MultiHeadAttention(d_model=256, num_heads=8)
texts = tf.random.stateless_normal((16, 40, 256), (0, 4))
blocks_tail = tf.cast(tf.range(40) >= tf.range(20, 36)[:, None], tf.float32)[:, None]  # (B, 1, T)


def with_axis(texts, mask):
    """The library: (B, N, T, H)."""
    return many(texts, texts, texts, mask[:, None], return_attention_weights=False)[0]


def on_axis_0(texts, mask):
    """N1: (N * B, T, H), all texts of the first head first. The mask needs as many rows."""
    q, k, v = (tf.concat(tf.split(f(texts), 8, axis=-1), 0) for f in (many.wq, many.wk, many.wv))
    output, _ = tf_transformer.scaled_dot_product_attention(
        q, k, v, mask, return_attention_weights=False
    )
    return many.dense(tf.concat(tf.split(output, 8, axis=0), -1))


def milliseconds(function, *arrays):
    """The shortest of 15 calls of the compiled function."""
    compiled, times = tf.function(function, autograph=False), []
    for _ in range(15):
        begin = time.perf_counter()
        compiled(*arrays).numpy()
        times.append(1000 * (time.perf_counter() - begin))
    return min(times)


expected = with_axis(texts, blocks_tail)
tiled, repeated = tf.tile(blocks_tail, (8, 1, 1)), tf.repeat(blocks_tail, 8, axis=0)
errors = [np.abs(expected - on_axis_0(texts, mask)).max() for mask in (tiled, repeated)]
verdict(
    "C29",
    "holds when",
    answer=(
        "If the mask is tiled in the order of the heads; repeated row by row, silently wrong.",
        "mask 按头的顺序平铺时成立；若逐行重复，结果出错却不报错。",
    ),
    measured=(
        "With `tf.tile(mask, (h, 1, 1))`, and the output cut on axis 0 and joined on the last, it "
        "differs from the (B, h, T, d/h) version by {tiled:.1g}; with `tf.repeat` by up to "
        "{repeated:.2f}. It takes {stacked:.1f} ms, the other {axis:.1f} ms.",
        "用 `tf.tile(mask, (h, 1, 1))`，输出再沿第 0 轴切开、沿最后一轴拼回，则与 (B, h, T, d/h) 的写法相差 "
        "{tiled:.1g}；用 `tf.repeat` 则最多相差 {repeated:.2f}。耗时 {stacked:.1f} 毫秒，另一种写法 "
        "{axis:.1f} 毫秒。",
    ),
    tiled=errors[0],
    repeated=errors[1],
    stacked=milliseconds(on_axis_0, texts, tiled),
    axis=milliseconds(with_axis, texts, blocks_tail),
)

# %% [markdown]
# ## 10 · Encoder and decoder layers 编码层与解码层
#
# $$x_1 = \text{LayerNorm}(x + \text{MultiHead}(x,x,x)),\quad
#   x_2 = \text{LayerNorm}(x_1 + \text{FFN}(x_1)),\quad
#   \text{FFN}(x)=\max(0, xW_1+b_1)W_2+b_2$$
#
# They are called as in the notes, with positional arguments: `layer(x, training, mask)`. The
# decoder layer attends to the preceding words, then to the encoder output.

# %%
encoder_layer = tf_transformer.EncoderLayer(d_model, num_heads=4, dff=512)
memory = encoder_layer(x, False, padding)

decoder_layer = tf_transformer.DecoderLayer(d_model, num_heads=4, dff=512)
y = tf.random.normal((2, 5, d_model))
out, self_weights, cross_weights = decoder_layer(y, memory, False, look_ahead, padding)
print(memory.shape, out.shape, self_weights.shape, cross_weights.shape)

later = tf.concat([y[:, :3], tf.random.normal((2, 2, d_model))], axis=1)  # replaces words 4 and 5
again, *_ = decoder_layer(later, memory, False, look_ahead, padding)
np.testing.assert_array_equal(out[:, :3], again[:, :3])
print("The first three words do not see the last two change.")

# %% [markdown]
# ## 11 · Trained attention 训练之后
#
# The shipped translator has layers like these, with rotary positions and the norm before each
# sublayer: where each head of its last decoder layer looks in the English sentence while it
# generates each Chinese token. Hover over a square to see its value.
#
# 训练好的模型：写每个中文词时，最后一层解码器的各个头在看英文句子的哪里。

# %%
translator = tf.saved_model.load(str(shipped_model("en-zh")))
translations = translate_texts(translator, sentences)
for pair in zip(sentences, translations, strict=True):
    print(*pair, sep=" → ")
SVG(
    tf_transformer.attention_svg(
        *tf_transformer.translation_attention(trained, tokenizer, sentences[0], translations[0])
    )
)

# %% [markdown]
# ## 12 · Other scores 其他打分函数
#
# $$\text{additive: } w^\top \tanh(W q + U k), \quad \text{bilinear: } q^\top W k, \quad
#   \text{multiplicative: } q^\top k, \quad \text{scaled: } q^\top k / \sqrt{d_k}$$
#
# Additive attention with $d_k$ units takes about $4 d_k$ operations for each pair of a query and a
# key, a dot product $2 d_k$; the projections of the first two take $T d^2$ more.
#
# Interview questions 面试题：有几种注意力？加性注意力与点积注意力有什么区别？


# %%
def milliseconds(function, *arrays):
    """The shortest of five calls, compiled."""
    compiled, taken = tf.function(function, autograph=False), []
    compiled(*arrays)
    for _ in range(5):
        start = time.perf_counter()
        compiled(*arrays).numpy()
        taken.append(time.perf_counter() - start)
    return 1e3 * min(taken)


SCORES = {
    "additive": tf_transformer.AdditiveAttention(64),
    "bilinear": tf_transformer.BilinearAttention(),
    "multiplicative": tf_transformer.MultiplicativeAttention(),
    "scaled": lambda q, k, v: tf_transformer.scaled_dot_product_attention(q, k, v, None),
}
took = {
    (name, length): milliseconds(lambda q, k, v, layer=layer: layer(q, k, v)[0], *[x] * 3)
    for length in (128, 512, 2048)
    for x in [tf.random.stateless_normal((1, length, 64), (0, 1))]
    for name, layer in SCORES.items()
}
x = tf.random.stateless_normal((512, 64), (0, 1))
product = milliseconds(lambda q, k: tf.matmul(q, k, transpose_b=True), x, x)
summed = milliseconds(lambda q, k: tf.reduce_sum(q[:, None] * k, -1), x, x)
network = milliseconds(lambda q, k: tf.reduce_sum(tf.tanh(q[:, None] + k) * k[0], -1), x, x)

figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, style in zip(SCORES, ("o-", "s--", "^-.", "x:"), strict=True):
    axes.semilogy(
        ["128", "512", "2048"], [took[name, n] for n in (128, 512, 2048)], style, label=name
    )
axes.set(xlabel="T", ylabel="milliseconds", title="One head of width 64")
axes.legend()
plt.show()
verdict(
    "C05",
    "holds",
    answer=(
        "Alike in theory, but dot products are one matrix product; additive scores need a tanh for "
        "every pair.",
        "理论复杂度相近；点积可写成一次矩阵乘法，加性打分要对每一对算 tanh，慢得多。",
    ),
    measured=(
        "With d = 64 and T = 2,048 the layers take {add:.0f}, {bi:.1f}, {dot:.1f} and {scaled:.1f} "
        "ms on a CPU (additive, bilinear, multiplicative, scaled dot). At T = 512 the same dot "
        "products take {product:.2f} ms as one matmul, {summed:.0f} ms multiplied and summed one "
        "by one; additive scores {network:.0f}.",
        "d = 64，T = 2,048 时，各层在 CPU 上用时 {add:.0f}、{bi:.1f}、{dot:.1f}、{scaled:.1f} 毫秒（加"
        "性、双线性、乘法、缩放点积）。T = 512 时，同样的点积用一次 matmul 只要 {product:.2f} 毫秒，逐个相乘再求和要 "
        "{summed:.0f} 毫秒，加性打分要 {network:.0f} 毫秒。",
    ),
    add=took["additive", 2048],
    bi=took["bilinear", 2048],
    dot=took["multiplicative", 2048],
    scaled=took["scaled", 2048],
    product=product,
    summed=summed,
    network=network,
)

# %%
additive = tried["additive, 256"]
verdict(
    "C06",
    "holds when",
    answer=(
        "Against unscaled dot products, further behind as d grows (Britz et al. 2017); at 256 it "
        "beat scaled ones too.",
        "对不缩放的点积成立，差距随 d 增大（Britz 2017）；宽 256 也优于缩放点积。",
    ),
    measured=(
        "Translators as in C120, each at its best rate, nats a token: additive {additive:.2f}, scaled "
        "dot {scaled:.2f} (gap {gap:.2f}), dot {dot:.2f}. In the last 200 steps the first two fell by "
        "{additive_fall:.2f} and {scaled_fall:.2f}. Britz et al. (2017), additive against unscaled: "
        "22.47 and 21.78 BLEU at 512, 22.10 and 18.22 at 1,024.",
        "翻译模型同 C120，各用最好的学习率，每词元损失：加性 {additive:.2f}，缩放点积 {scaled:.2f}（相差 {gap:.2f}），不缩放的点积 {dot:.2f}；最后 200 "
        "步，前两者分别下降 {additive_fall:.2f} 和 {scaled_fall:.2f}。Britz 等（2017）加性与不缩放点积的 BLEU：512 维为 22.47 和 "
        "21.78，1,024 维为 22.10 和 18.22。",
    ),
    gap=np.mean(scaled["loss"]) - np.mean(additive["loss"]),
    additive=additive["loss"],
    scaled=scaled["loss"],
    dot=dot["loss"],
    additive_fall=last_fall(additive),
    scaled_fall=last_fall(scaled),
)
