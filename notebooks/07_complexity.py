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
# # How much it costs: heads, parameters, complexity
#
# Operations are counted by TensorFlow's profiler in the graphs that run, not taken from formulas:
# a multiplication and an addition are two. Times are the best of several runs.
#
# 运算次数由 TensorFlow 的 profiler 在真正执行的计算图上统计，不是套公式：一乘一加算两次。时间取多次运行中最短的一次。
#
# Interview questions 面试题：Self-Attention 的时间复杂度是多少？多头为什么不增加复杂度？为什么要降维？与 RNN、CNN 相比如何？

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import time

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, verdict
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.profiler.model_analyzer import profile
from tensorflow.python.profiler.option_builder import ProfileOptionBuilder

import tf_transformer
from tf_transformer import bert

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)


def operations(function, *shapes):
    """How many floating-point operations a function of arrays of these shapes takes."""
    arguments = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    graph = tf.function(function, autograph=False).get_concrete_function(*arguments)
    frozen = convert_variables_to_constants_v2(graph).graph
    options = ProfileOptionBuilder(ProfileOptionBuilder.float_operation())
    return profile(frozen, options=options.with_empty_output().build()).total_float_ops


def seconds(function, *arrays, repeats=7):
    """The shortest time of a compiled call."""
    compiled, times = tf.function(function, autograph=False), []
    compiled(*arrays)
    for _ in range(repeats):
        start = time.perf_counter()
        tf.nest.map_structure(lambda x: x.numpy(), compiled(*arrays))
        times.append(time.perf_counter() - start)
    return min(times)


def exponent(sizes, costs):
    """The slope in a double logarithmic plot: cost ~ size^slope."""
    return np.polyfit(np.log(sizes), np.log(costs), 1)[0]


# %% [markdown]
# ## 1 · Heads 多头
#
# $$(B, T, d) \to (B, h, T, d/h), \qquad
#   \text{scores}: (B, h, T, T), \qquad \text{weights} \cdot V: (B, h, T, d/h)$$

# %%
accepted = {}
for width, heads in ((768, 12), (768, 10), (12, 768)):
    try:
        tf_transformer.MultiHeadAttention(d_model=width, num_heads=heads)
        accepted[width, heads] = 1
    except ValueError:
        accepted[width, heads] = 0
shape = tf_transformer.MultiHeadAttention(768, 12).split_heads(tf.zeros((2, 512, 768)), 2).shape
mebibytes = 32 * 12 * 512 * 512 * 4 / 2**20
verdict(
    "C26",
    "holds when",
    "The width must divide by the number of heads, not the other way round: 768 in 12 heads is accepted "
    "({twelve}), 768 in 10 and 12 in 768 are refused ({refused} of 2). A sentence of 512 tokens becomes "
    "{heads}×{length}×{width}; the scores of 32 sentences, 32×12×512×512, take {mebibytes:,.0f} MiB.",
    "是宽度要被头数整除，而不是反过来：768 分 12 头可以（{twelve}），768 分 10 头和 12 分 768 头被拒绝（2 种中的 {refused} 种）。512 个词元的句子变成 "
    "{heads}×{length}×{width}；32 句的分数 32×12×512×512 占 {mebibytes:,.0f} MiB。",
    twelve=accepted[768, 12],
    refused=2 - accepted[768, 10] - accepted[12, 768],
    heads=shape[1],
    length=shape[2],
    width=shape[3],
    mebibytes=mebibytes,
)

# %%
values, weights = (
    tf.random.normal((2, 3, 64, 512)),
    tf.nn.softmax(tf.random.normal((2, 3, 512, 512))),
)
as_written = tf.matmul(values, weights)
right = tf.matmul(weights, values, transpose_b=True)  # (B, h, 512, 512) (B, h, 512, 64)
difference = float(tf.reduce_max(tf.abs(tf.transpose(as_written, (0, 1, 3, 2)) - right)))
verdict(
    "C27",
    "does not hold",
    "The product as written runs, and gives {rows}×{columns}, not 512×64. It also sums over the queries in "
    "place of the keys: transposed, it differs from weights·V by up to {difference:.2f}. Right is "
    "512×512 times 512×64.",
    "按原文的写法能运行，但得到 {rows}×{columns}，而不是 512×64；而且它对查询而不是对键求和：转置后与 权重·V 最多相差 {difference:.2f}。"
    "正确的是 512×512 乘 512×64。",
    rows=as_written.shape[2],
    columns=as_written.shape[3],
    difference=difference,
)

# %%
fused = tf_transformer.MultiHeadAttention(d_model=64, num_heads=8)
x = tf.random.normal((2, 11, 64))
together, _ = fused(x, x, x, None)
parts = []
for head in range(8):
    own = slice(8 * head, 8 * head + 8)
    q, k, v = (
        x @ layer.kernel[:, own] + layer.bias[own] for layer in (fused.wq, fused.wk, fused.wv)
    )
    parts.append(tf_transformer.scaled_dot_product_attention(q, k, v, None)[0])
apart = fused.dense(tf.concat(parts, -1))
verdict(
    "C30",
    "holds",
    "Eight heads computed one by one from slices of the fused matrices, joined and multiplied by W_o, "
    "differ from the layer by {error:.1e}; {parameters:,} parameters either way.",
    "用融合矩阵的切片分别计算 8 个头，拼接后乘 W_o，与整层相差 {error:.1e}；两种算法的参数都是 {parameters:,} 个。",
    error=float(tf.reduce_max(tf.abs(together - apart))),
    parameters=fused.count_params(),
)

# %%
counts, sizes, scores = [], [], []
for heads in (1, 2, 4, 8, 16):
    layer = tf_transformer.MultiHeadAttention(d_model=256, num_heads=heads)
    counts.append(operations(lambda x, layer=layer: layer(x, x, x, None)[0], (1, 128, 256)))
    sizes.append(layer.count_params())
    scores.append(heads * 128 * 128)
verdict(
    "C34",
    "holds when",
    "As to parameters and multiplications: at width 256 the layer has {parameters:,} parameters with 1 and "
    "with 16 heads, and {ratio:.2f} times the operations (the softmax of more scores). The scores "
    "themselves take {memory:.0f} times the memory.",
    "对参数和乘法而言成立：宽度 256 时，1 个头与 16 个头的参数都是 {parameters:,} 个，运算次数之比为 {ratio:.2f}（多出来的是 softmax）。"
    "但分数矩阵的内存是 {memory:.0f} 倍。",
    parameters=sizes[-1],
    ratio=counts[-1] / counts[0],
    memory=scores[-1] / scores[0],
)

# %%
small = tf_transformer.MultiHeadAttention(d_model=256, num_heads=8)
large = tf_transformer.MultiHeadAttention(d_model=256, num_heads=8, key_dim=256)
of_small, of_large = (
    operations(lambda x, layer=layer: layer(x, x, x, None)[0], (1, 128, 256))
    for layer in (small, large)
)
verdict(
    "C36",
    "holds",
    "Eight heads of width 32 join to 256 and take {small:.1f} million operations on 128 tokens; eight of "
    "width 256 join to 2048, and take {ratio:.1f} times as many and {parameters:.1f} times the parameters.",
    "8 个 32 维的头拼成 256 维，128 个词元需要 {small:.1f} 百万次运算；8 个 256 维的头拼成 2048 维，运算是 {ratio:.1f} 倍，参数是 {parameters:.1f} 倍。",
    small=of_small / 1e6,
    ratio=of_large / of_small,
    parameters=large.count_params() / small.count_params(),
)

# %% [markdown]
# ## 2 · Attention, recurrence, convolution 自注意力、循环、卷积
#
# | layer | operations | steps in order | path between two words |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$, with projections $O(n^2 d + n d^2)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolution | $O(k n d^2)$ | $O(1)$ | $O(n / k)$, dilated $O(\log_k n)$ |

# %%
lengths, width = (64, 128, 256, 512, 1024), 64
products = [
    operations(lambda q, k: tf.matmul(q, k, transpose_b=True), (n, width), (n, width))
    for n in lengths
]
softmaxes = [operations(tf.nn.softmax, (n, n)) for n in lengths]
layer = tf_transformer.MultiHeadAttention(d_model=768, num_heads=12)
whole = [operations(lambda x: layer(x, x, x, None)[0], (1, n, 768)) for n in lengths]
# Fitted to a n^2 d + b n d^2: the two terms of all of it.
terms = np.array([[n * n * 768, n * 768**2] for n in lengths], float)
(quadratic, linear), *_ = np.linalg.lstsq(terms, np.array(whole, float), rcond=None)
left = np.abs(terms @ [quadratic, linear] / whole - 1).max()
share = quadratic * 512**2 * 768 / whole[3]
verdict(
    "C86",
    "holds",
    "Counted for n = 64 to 1024: the operations of QKᵀ grow as n^{product:.2f}, of softmax as "
    "n^{softmax:.2f}. Those of a whole layer with d = 768 are {quadratic:.2f} n²d + {linear:.2f} nd², within "
    "{left:.2%}. At n = 512 the n² terms are only {share:.0%} of it.",
    "n 从 64 到 1024 的实测运算次数：QKᵀ 按 n^{product:.2f} 增长，softmax 按 n^{softmax:.2f}。d = 768 的整层为 "
    "{quadratic:.2f} n²d + {linear:.2f} nd²，误差不超过 {left:.2%}。n = 512 时 n² 项只占 {share:.0%}。",
    product=exponent(lengths, products),
    softmax=exponent(lengths, softmaxes),
    quadratic=quadratic,
    linear=linear,
    left=left,
    share=share,
)


# %%
def step(d):
    """One step of an RNN: tanh(x W + h U), with m = d inputs."""
    w, u = tf.random.normal((d, d)), tf.random.normal((d, d))
    return operations(lambda x, h: tf.tanh(x @ w + h @ u), (1, d), (1, d))


widths = (32, 64, 128, 256)
steps = [step(d) for d in widths]
kernels = {k: keras.layers.Conv1D(64, k, padding="same", use_bias=False) for k in (3, 5, 7)}
convolved = {
    k: [operations(lambda x, layer=layer: layer(x), (1, n, 64)) for n in lengths]
    for k, layer in kernels.items()
}
by_k = exponent(list(kernels), [row[0] for row in convolved.values()])
one_place = convolved[3][0] / lengths[0] / 64 / 2  # of one kernel, in multiplications
verdict(
    "C87",
    "holds",
    "A step of an RNN with d inputs takes {step:.0f} operations at d = 64, 2(md + d²) = 16,384 and an "
    "activation; they grow as d^{width:.2f}. A convolution's grow as n^{length:.2f} and k^{kernel:.2f}; one kernel of "
    "3 at one place takes {place:.0f} multiplications, kd = 192.",
    "RNN 一步（m = d 个输入）在 d = 64 时为 {step:.0f} 次运算，即 2(md + d²) = 16,384 加激活，随 d^{width:.2f} 增长。卷积随 n^{length:.2f} 和 "
    "k^{kernel:.2f} 增长；宽 3 的一个卷积核在一处需要 {place:.0f} 次乘法，即 kd = 192。",
    step=steps[1],
    width=exponent(widths, steps),
    length=exponent(lengths, convolved[3]),
    kernel=by_k,
    place=one_place,
)

# %%
d, n = 64, 64
at = np.array([64, 256, 1024])
bare = [
    operations(
        lambda q, k, v: tf_transformer.scaled_dot_product_attention(q, k, v, None)[0],
        *[(1, length, d)] * 3,
    )
    for length in at
]
squares, singles = np.linalg.lstsq(np.stack([at**2, at], 1).astype(float), bare, rcond=None)[0]
mha = tf_transformer.MultiHeadAttention(d_model=d, num_heads=1)
block = tf_transformer.EncoderLayer(d, 1, 4 * d)
verdict(
    "C88",
    "holds when",
    "Only for the products QKᵀ and weights·V: at d = 64 they take fewer operations than an RNN up to n = "
    "{bare:.0f}. With the four projections self-attention takes {projected:.1f} times an RNN's operations at "
    "n = d = 64, a whole layer with its feed-forward network {complete:.1f} times; the terms in nd² alone are "
    "more than an RNN's, so that no length is short enough.",
    "只对 QKᵀ 和 权重·V 成立：d = 64 时，n 不超过 {bare:.0f} 时运算少于 RNN。n = d = 64 时，算上四个投影的自注意力是 RNN 的 {projected:.1f} 倍，"
    "带前馈网络的整层是 {complete:.1f} 倍；单是 nd² 的各项就超过 RNN，序列再短也一样。",
    bare=(steps[1] - singles) / squares,
    projected=operations(lambda x: mha(x, x, x, None)[0], (1, n, d)) / (n * steps[1]),
    complete=operations(lambda x: block(x, False, None), (1, n, d)) / (n * steps[1]),
)


# %%
def reach(layer, n, depth):
    """Whether the last output depends on the first of n inputs."""
    x = tf.Variable(tf.random.normal((1, n, 8)))
    with tf.GradientTape() as tape:
        y = x
        for _ in range(depth):
            y = layer(y)
        out = tf.reduce_sum(y[0, -1])
    return float(tf.reduce_sum(tf.abs(tape.gradient(out, x)[0, 0]))) > 0


def layers_needed(make, n):
    return next(depth for depth in range(1, 99) if reach(make(), n, depth))


attention = tf_transformer.MultiHeadAttention(d_model=8, num_heads=1)
path = {
    "attention": layers_needed(lambda: lambda x: attention(x, x, x, None)[0], 32),
    "convolution": layers_needed(lambda: keras.layers.Conv1D(8, 3, padding="same"), 32),
}
n = 256
costs = {
    "attention": operations(
        lambda q, k, v: tf_transformer.scaled_dot_product_attention(q, k, v, None)[0],
        *[(1, n, 512)] * 3,
    ),
    "rnn": n * step(512),
    "convolution": operations(keras.layers.Conv1D(512, 3, padding="same"), (1, n, 512)),
}
verdict(
    "C89",
    "holds when",
    "On path and steps always: from the first to the last of 32 words it takes {attention} layer, "
    "{convolution} convolutions of width 3, or 31 steps of an RNN, one after another. On cost only for the products "
    "QKᵀ and weights·V, and while n is small beside d: at n = 256, d = 512 they take {cheap:.2f} of an RNN's operations and "
    "{cheaper:.2f} of a convolution's; at n = 4096 it would be {dear:.0f} and {dearer:.1f} times. With the projections no "
    "length is short enough (C88).",
    "路径和步数上总是成立：从 32 个词的第一个到最后一个，需要 {attention} 层自注意力、{convolution} 层宽 3 的卷积，或 RNN 依次 31 步。代价上只对 QKᵀ 与权重·V 这两个乘积、且 n 小于 d 时成立："
    "n = 256、d = 512 时它们的运算是 RNN 的 {cheap:.2f}、卷积的 {cheaper:.2f}；n = 4096 时则是 {dear:.0f} 倍和 {dearer:.1f} 倍。算上投影，多短都不成立（C88）。",
    attention=path["attention"],
    convolution=path["convolution"],
    cheap=costs["attention"] / costs["rnn"],
    cheaper=costs["attention"] / costs["convolution"],
    dear=costs["attention"] / costs["rnn"] * 16,
    dearer=costs["attention"] / costs["convolution"] * 16,
)

# %%
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.loglog(lengths, whole, "o-", label="self-attention with projections")
axes.loglog(lengths, [n * step(768) for n in lengths], "s--", label="RNN")
axes.loglog(
    lengths,
    [operations(keras.layers.Conv1D(768, 3, padding="same"), (1, n, 768)) for n in lengths],
    "^:",
    label="convolution, k = 3",
)
axes.set(xlabel="length n", ylabel="operations", title="One layer of width 768")
axes.legend()
plt.show()

# %%
cell = keras.layers.SimpleRNN(64, return_sequences=True)
times = {}
for n in (64, 512):
    x = tf.random.normal((1, n, 64))
    times["rnn", n] = seconds(cell, x)
    times["attention", n] = seconds(lambda x: mha(x, x, x, None)[0], x)
x = tf.random.normal((1, 64, 64))
whole_output, _ = mha(x, x, x, None)
one_by_one = tf.concat([mha(x[:, i : i + 1], x, x, None)[0] for i in range(64)], 1)
verdict(
    "C93",
    "holds",
    "From 64 to 512 words an RNN takes {rnn:.1f} times as long, self-attention {attention:.1f} times, although "
    "its operations grow faster. Its queries one by one give what all together give, within {error:.0e}: none "
    "waits for another.",
    "从 64 个词到 512 个词，RNN 的时间变为 {rnn:.1f} 倍，自注意力为 {attention:.1f} 倍，尽管后者的运算增长更快。逐个查询与一起计算的结果相差 {error:.0e}：谁也不必等谁。",
    rnn=times["rnn", 512] / times["rnn", 64],
    attention=times["attention", 512] / times["attention", 64],
    error=float(tf.reduce_max(tf.abs(whole_output - one_by_one))),
)


# %%
def parameters(layer):
    layer.build((None, None, 512)) if not layer.built else None
    return layer.count_params()


block = tf_transformer.EncoderLayer(512, 8, 2048)
block(tf.zeros((1, 2, 512)), False, None)
sizes = {
    "rnn": parameters(keras.layers.SimpleRNN(512)),
    "gru": parameters(keras.layers.GRU(512)),
    "lstm": parameters(keras.layers.LSTM(512)),
    "transformer": block.count_params(),
}
verdict(
    "C94",
    "does not hold",
    "As to parameters: at width 512 an RNN has {rnn:,}, a GRU {gru:,}, an LSTM {lstm:,}, a Transformer layer "
    "{transformer:,}. What makes them slow is that their steps wait for each other (C93).",
    "参数规模上不成立：宽度 512 时 RNN 有 {rnn:,} 个参数，GRU {gru:,}，LSTM {lstm:,}，一层 Transformer {transformer:,}。它们慢在各步必须依次等待（C93）。",
    **sizes,
)

# %%
dense = keras.layers.Dense(512)
x = tf.random.normal((8, 128, 512))
flat = lambda x: tf.reshape(dense(tf.reshape(x, (-1, 512))), (8, 128, 512))  # noqa: E731
difference = float(tf.reduce_max(tf.abs(dense(x) - flat(x))))
ratios = [seconds(flat, x) / seconds(dense, x) for _ in range(5)]
verdict(
    "C85",
    "does not hold",
    "A reshape copies nothing: the dense layer takes {ratio:.2f} times as long on (1024, 512) as on "
    "(8, 128, 512), with results that differ by {difference:.0f}. (Brackets: the range of five rounds.)",
    "reshape 不复制数据：全连接层在 (1024, 512) 上的时间是在 (8, 128, 512) 上的 {ratio:.2f} 倍，结果相差 {difference:.0f}。（方括号为五轮的范围。）",
    ratio=ratios,
    difference=difference,
)

# %% [markdown]
# ## 3 · BERT-base, counted 参数量
#
# Interview questions 面试题：BERT-base 的参数量怎么算？

# %%
model = bert.Bert(bert.BertConfig(30522, 768, 12, 12, 3072))
model.build()
groups = {"embeddings": 0, "attention": 0, "feed-forward": 0, "norms": 0, "biases": 0, "pooler": 0}
for weight in model.weights:
    path, size = weight.path, int(np.prod(weight.shape))
    if "pooler" in path:
        group = "pooler"
    elif path.endswith(("gamma", "beta")):
        group = "norms"
    elif path.endswith("bias"):
        group = "biases"
    elif "embeddings" in path:
        group = "embeddings"
    else:
        group = "attention" if "attention" in path else "feed-forward"
    groups[group] += size
print(groups, f"all: {model.count_params():,}")

# %%
verdict(
    "C98",
    "holds",
    "The three tables of a built model have {counted:,} weights; the formula gives {formula:,}.",
    "建好的模型里三张表共有 {counted:,} 个权重；公式得 {formula:,}。",
    counted=groups["embeddings"],
    formula=(30522 + 512 + 2) * 768,
)

# %%
verdict(
    "C99",
    "does not hold",
    "An arithmetic slip: (768×768×3 + 768×768)×12 is {formula:,}, and so many weights the matrices of the "
    "built model have: {counted:,}. The notes have 28,331,552, which is {excess:,} too many.",
    "算错了：(768×768×3 + 768×768)×12 = {formula:,}，建好的模型里也是 {counted:,}。笔记写的是 28,331,552，多了 {excess:,}。",
    formula=(768 * 768 * 3 + 768 * 768) * 12,
    counted=groups["attention"],
    excess=28_331_552 - groups["attention"],
)

# %%
verdict(
    "C100",
    "holds",
    "{counted:,} counted, {formula:,} by the formula, without biases.",
    "数出 {counted:,}，公式为 {formula:,}，不含偏置。",
    counted=groups["feed-forward"],
    formula=(768 * 3072 + 3072 * 768) * 12,
)

# %%
verdict(
    "C101",
    "holds",
    "{counted:,} counted, {formula:,} by the formula: two in each of 12 layers and one after the embeddings.",
    "数出 {counted:,}，公式为 {formula:,}：12 层各两个，词向量之后一个。",
    counted=groups["norms"],
    formula=(768 + 768) * 25,
)

# %%
four = sum(groups[name] for name in ("embeddings", "attention", "feed-forward", "norms"))
verdict(
    "C102",
    "does not hold",
    "The four sum to {four:,} of {all:,}. The biases, {biases:,}, and the pooler, {pooler:,}, are missing.",
    "四项之和为 {four:,}，而全部是 {all:,}。漏了偏置 {biases:,} 和 pooler {pooler:,}。",
    four=four,
    all=model.count_params(),
    biases=groups["biases"],
    pooler=groups["pooler"],
)

# %% [markdown]
# ## 4 · Over a distance 长距离
#
# $$\frac{\partial y_t}{\partial x_{t-k}} \text{ of an RNN: a product of } k \text{ Jacobians}
#   \operatorname{diag}(\tanh') U^\top$$
#
# The copying task: among 65 tokens one is marked, k tokens before the last; at the last token the
# model must say which of 8 it was. Each network and each k is trained by itself on 19,200 texts
# (`python notebooks/train.py copying`).
#
# 复制任务：65 个词元中有一个带标记，位于末尾之前 k 位；模型要在最后一个词元处说出它是 8 个中的哪一个。每种网络、每个 k 单独训练，共 19,200 条文本。
#
# Interview questions 面试题：RNN 为什么难以捕捉长距离依赖？LSTM、GRU 解决了吗？CNN 呢？Self-Attention 为什么可以？


# %%
def rnn(deviation):
    """An RNN whose recurrent matrix has random entries, of so much over √64 each."""
    start = keras.initializers.RandomNormal(stddev=deviation / 8, seed=1)
    return keras.layers.SimpleRNN(
        64, return_sequences=True, recurrent_initializer=start, dtype="float64"
    )


def lstm(bias):
    """An LSTM with a bias of its forget gates."""
    start = lambda shape, dtype: tf.repeat(tf.constant([0, bias, 0, 0], dtype), 64)  # noqa: E731
    options = {"unit_forget_bias": False, "bias_initializer": start, "dtype": "float64"}
    return keras.layers.LSTM(64, return_sequences=True, **options)


def by_distance(layer, deviation=0.03):  # that of new embeddings
    """Norms of the gradient of the last output by the input k before it, k = 0 to 200."""
    x = deviation * tf.random.stateless_normal((8, 201, 64), (0, 1), dtype=tf.float64)
    upstream = tf.random.stateless_normal((8, 64), (0, 2), dtype=tf.float64)

    @tf.function(autograph=False)
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            last = tf.reduce_sum(layer(x)[:, -1] * upstream)
        return tape.gradient(last, x)

    return np.exp(np.log(tf.norm(gradient(x), axis=-1)).mean(0))[::-1]


keras.utils.set_random_seed(0)
mha = tf_transformer.MultiHeadAttention(64, 4, dtype="float64")
orthogonal = keras.layers.SimpleRNN(64, return_sequences=True, dtype="float64")
gradients = {
    "RNN, half as large": by_distance(rnn(0.5)),
    "RNN, 1.5 times as large": by_distance(rnn(1.5)),
    "RNN, orthogonal": by_distance(orthogonal),  # Keras's default
    "the same, inputs N(0, 1)": by_distance(orthogonal, 1),
    "GRU": by_distance(keras.layers.GRU(64, return_sequences=True, dtype="float64")),
    "LSTM": by_distance(lstm(1.0)),  # Keras's default
    "LSTM, forget bias 5": by_distance(lstm(5.0)),
    "attention": by_distance(lambda x: mha(x, x, x, None)[0]),
}
copied = trained("copying")
distances = [1, 2, 4, 8, 12, 16, 32, 64]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for (name, norms), style in zip(gradients.items(), ["-", "--", "-.", ":"] * 2, strict=True):
    left.semilogy(norms, style, label=name)
left.set(xlabel="k", ylabel="norm of the gradient", title="Untrained layers of width 64")
left.legend(fontsize=8)
for (name, found), style in zip(copied.items(), "osv^Dx+*P", strict=False):
    right.plot(distances, [np.mean(found[str(k)]) for k in distances], style + "-", label=name)
right.axhline(1 / 8, color="black", linestyle=":", label="chance")
right.set(xlabel="k", ylabel="marked tokens found", title="The copying task")
right.set_xscale("log", base=2)
right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for name, found in copied.items():
    print(name, *(f"{k}: {np.mean(found[str(k)]):.2f}" for k in distances))


# %%
def found(name, distance):
    """The share of marked tokens that a network found, one of each seed."""
    return copied[name][str(distance)]


verdict(
    "C90",
    "holds",
    "Exactly, in the copying task: a kernel of 3 finds {one_in:.0%} of the tokens 2 back and {one_out:.0%} of "
    "those 4 back (chance 12.5 %). Each layer more reaches 2 further: two layers find {two_in:.0%} at 4 and "
    "{two_out:.0%} at 8, six {six_in:.0%} at 12 and {six_out:.0%} at 16.",
    "在复制任务中完全如此：宽 3 的卷积核能找到往前 2 位的 {one_in:.0%}，往前 4 位只有 {one_out:.0%}（瞎猜为 12.5 %）。每加一层多看 2 位：两层在 4 位处为 {two_in:.0%}，8 位处为 "
    "{two_out:.0%}；六层在 12 位处为 {six_in:.0%}，16 位处为 {six_out:.0%}。",
    one_in=found("CNN, 1 layers", 2),
    one_out=found("CNN, 1 layers", 4),
    two_in=found("CNN, 2 layers", 4),
    two_out=found("CNN, 2 layers", 8),
    six_in=found("CNN, 6 layers", 12),
    six_out=found("CNN, 6 layers", 16),
)

# %%
# How the gradient by the input 101 back compares with that by the last but one.
kept = {name: norms[101] / norms[1] for name, norms in gradients.items()}
verdict(
    "C91",
    "holds when",
    "It depends on the weights, in gated layers too. Over 100 steps the gradient of a new RNN is multiplied by "
    "{half:.0e} with a recurrent matrix of half the usual size, {large:.0f} with 1.5 times, {orthogonal:.2f} with "
    "an orthogonal one (Keras's default; {wide:.0e} for inputs of variance 1); that of a GRU by {gru:.0e}, of an LSTM by "
    "{lstm:.0e}, with a forget bias of 5 by {biased:.1f}. Trained to find a token 16 back RNN, GRU and LSTM reach "
    "{rnn_16:.0%}, {gru_16:.0%} and {lstm_16:.0%}, 64 back {rnn_64:.0%}, {gru_64:.0%} and {lstm_64:.0%} (chance 12.5 %): "
    "here the plain RNN has the longest links.",
    "取决于权重，带门的也一样。往回 100 步，新建 RNN 的梯度：循环矩阵为通常大小的一半时乘以 {half:.0e}，1.5 倍时乘以 {large:.0f}，正交时（Keras 的默认）乘以 {orthogonal:.2f}"
    "（输入方差为 1 时为 {wide:.0e}）；GRU 乘以 {gru:.0e}，LSTM 乘以 {lstm:.0e}，遗忘门偏置为 5 时乘以 {biased:.1f}。训练它们找出 16 位之前的词元，RNN、GRU、LSTM 的正确率为 "
    "{rnn_16:.0%}、{gru_16:.0%}、{lstm_16:.0%}；64 位之前为 {rnn_64:.0%}、{gru_64:.0%}、{lstm_64:.0%}（瞎猜 12.5 %）：在这里记得最远的反而是普通 RNN。",
    half=kept["RNN, half as large"],
    large=kept["RNN, 1.5 times as large"],
    orthogonal=kept["RNN, orthogonal"],
    wide=kept["the same, inputs N(0, 1)"],
    gru=kept["GRU"],
    lstm=kept["LSTM"],
    biased=kept["LSTM, forget bias 5"],
    **{f"{name.lower()}_{k}": found(name, k) for name in ("RNN", "GRU", "LSTM") for k in (16, 64)},
)

# %%
verdict(
    "C92",
    "holds when",
    "The first half holds, the second for gated layers. The gradient of self-attention by an input is the same at all distances (ratio of "
    "{attention:.2f} between 101 and 1 back), and it finds {attention_2:.0%} of the tokens 2 back and "
    "{attention_64:.0%} of those 64 back. An LSTM falls from {lstm_2:.0%} at 2 to {lstm_64:.0%} at 64 (chance 12.5 %), six "
    "convolutions from {cnn_2:.0%} to {cnn_64:.0%}. But an RNN with an orthogonal recurrent matrix finds {rnn_2:.0%} at 2 "
    "and {rnn_64:.0%} at 64.",
    "前一半成立，后一半对带门的层成立。自注意力对各输入的梯度与距离无关（101 位之前与 1 位之前之比为 {attention:.2f}），往前 2 位能找到 {attention_2:.0%}，64 位 {attention_64:.0%}。LSTM 从 2 位的 "
    "{lstm_2:.0%} 降到 64 位的 {lstm_64:.0%}（瞎猜 12.5 %），六层卷积从 {cnn_2:.0%} 降到 {cnn_64:.0%}。但循环矩阵正交的 RNN 在 2 位处为 {rnn_2:.0%}，64 位处仍有 {rnn_64:.0%}。",
    attention=kept["attention"],
    attention_2=found("attention", 2),
    attention_64=found("attention", 64),
    lstm_2=found("LSTM", 2),
    lstm_64=found("LSTM", 64),
    cnn_2=found("CNN, 6 layers", 2),
    cnn_64=found("CNN, 6 layers", 64),
    rnn_2=found("RNN", 2),
    rnn_64=found("RNN", 64),
)
