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
from claims import trained, tuned, verdict
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
    "holds",
    answer=(
        "The width must be a multiple of the number of heads; N1 states it the wrong way round.",
        "宽度必须能被头数整除；N1 把两者说反了。",
    ),
    measured=(
        "Width 768 in 12 heads is accepted; 768 in 10 and 12 in 768 are refused ({refused} of "
        "2). A sentence of 512 tokens becomes {heads}×{length}×{width}. The scores of 32 "
        "sentences, 32×12×512×512, take {mebibytes:,.0f} MiB in float32.",
        "768 维分 12 头可以；768 分 10 头、12 分 768 头都被拒绝（2 种中的 {refused} 种）。512 个词元的句子变成 {heads}×{length}"
        "×{width}。32 句的分数 32×12×512×512 用 float32 占 {mebibytes:,.0f} MiB。",
    ),
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
    answer=(
        "The weights go on the left, weights·V; the product as written sums over queries, not "
        "keys.",
        "权重应在左边，即 权重·V；按原文的写法，求和沿的是 query 而不是 key。",
    ),
    measured=(
        "The product as written runs and gives {rows}×{columns} a head, not 512×64. Transposed, "
        "it still differs from weights·V by up to {difference:.2f}. Right is 512×512 times "
        "512×64.",
        "按原文的写法能运行，但每个头得到 {rows}×{columns}，不是 512×64。即使转置，与 权重·V 仍最多相差 {difference:.2f}。正确的是 "
        "512×512 乘 512×64。",
    ),
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
    answer=(
        "It is the same: each head's matrices are columns of the fused ones, and W_o joins the "
        "heads.",
        "一样：每个头的矩阵就是融合矩阵中的若干列，最后由 W_o 合并。",
    ),
    measured=(
        "Eight heads computed one by one from slices of the fused matrices, joined and "
        "multiplied by W_o, differ from the layer by {error:.1g}. Both ways have {parameters:,} "
        "parameters.",
        "用融合矩阵的切片逐个计算 8 个头，拼接后乘 W_o，与整层相差 {error:.1g}。两种算法的参数都是 {parameters:,} 个。",
    ),
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
    "holds",
    answer=(
        "Heads of width d/h cost what one head of width d costs, in parameters and in "
        "multiplications.",
        "h 个宽 d/h 的头与一个宽 d 的头相比，参数和乘法次数都相同。",
    ),
    measured=(
        "At width 256 the layer has {parameters:,} parameters with 1 and with 16 heads, and "
        "{ratio:.2f} times the operations (the softmax of more scores). Vaswani et al. (2017) "
        "say the same. What does grow is memory: the scores take {memory:.0f} times as much.",
        "宽度 256 时，1 个头与 16 个头的参数都是 {parameters:,} 个，运算次数之比为 {ratio:.2f}（多出来的是 softmax）。Vaswani 等（"
        "2017）也是这样说的。变大的是内存：分数矩阵占 {memory:.0f} 倍。",
    ),
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
    answer=(
        "Heads of width d/h join to width d; at full width, eight heads take {ratio:.1f} times "
        "the operations.",
        "宽 d/h 的头拼接后仍是 d 维；8 个头若不降维，运算是 {ratio:.1f} 倍。",
    ),
    measured=(
        "Eight heads of width 32 join to 256 and take {small:.1f} million operations on 128 "
        "tokens. Eight of width 256 join to 2048, with {ratio:.1f} times the operations and "
        "{parameters:.1f} times the parameters.",
        "8 个 32 维的头拼成 256 维，128 个词元需要 {small:.1f} 百万次运算。8 个 256 维的头拼成 2048 维，运算是 {ratio:.1f} 倍，参数"
        "是 {parameters:.1f} 倍。",
    ),
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
# | recurrent | $O(n d^2)$, an LSTM 4 times a plain RNN | $O(n)$ | $O(n)$ |
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
    answer=(
        "The products over all pairs cost n²d, the four projections nd²; together O(n²d + nd²).",
        "所有词两两之间的乘积是 n²d，四个投影是 nd²，合计 O(n²d + nd²)。",
    ),
    measured=(
        "Counted for n = 64 to 1024: QKᵀ grows as n^{product:.2f}, softmax as n^{softmax:.2f}. A "
        "whole layer with d = 768 takes {quadratic:.2f} n²d + {linear:.2f} nd² operations, "
        "within {left:.2%}. At n = 512 the n² terms are only {share:.0%} of it.",
        "n 从 64 到 1024 实测：QKᵀ 按 n^{product:.2f} 增长，softmax 按 n^{softmax:.2f} 增长。d = 768 的整层需要 "
        "{quadratic:.2f} n²d + {linear:.2f} nd² 次运算，误差不超过 {left:.2%}。n = 512 时，n² 项只占 {share:.0%}"
        "。",
    ),
    product=exponent(lengths, products),
    softmax=exponent(lengths, softmaxes),
    quadratic=quadratic,
    linear=linear,
    left=left,
    share=share,
)


# %%
def step(d, gates=1):
    """One step of an RNN: tanh(x W + h U), with m = d inputs; an LSTM has 4 times the columns."""
    w, u = tf.random.normal((d, gates * d)), tf.random.normal((d, gates * d))
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
    answer=(
        "At each position an RNN costs O(d²), d convolution kernels O(kd²); a text has n "
        "positions.",
        "每个位置上，RNN 为 O(d²)，d 个卷积核为 O(kd²)；一句有 n 个位置。",
    ),
    measured=(
        "An RNN's step with m = d = 64 takes {step:.0f} operations: 2(md + d²) = 16,384 and an "
        "activation. It grows as d^{width:.2f}. A convolution grows as n^{length:.2f} and k^"
        "{kernel:.2f}; one kernel of 3 at one place takes {place:.0f} multiplications, kd = 192.",
        "RNN 一步（m = d = 64）为 {step:.0f} 次运算，即 2(md + d²) = 16,384 加激活，随 d^{width:.2f} 增长。卷积随 n^"
        "{length:.2f} 和 k^{kernel:.2f} 增长；宽 3 的一个卷积核在一处需要 {place:.0f} 次乘法，即 kd = 192。",
    ),
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
own = operations(lambda x: mha(x, x, x, None)[0], (1, n, d))
block = tf_transformer.EncoderLayer(d, 1, 4 * d)
verdict(
    "C88",
    "holds when",
    answer=(
        "Only for QKᵀ and weights·V; with projections, attention is cheaper than an LSTM, never "
        "than a plain RNN.",
        "只算 QKᵀ 与 权重·V 时成立；算上投影，比 LSTM 省，比普通 RNN 贵。",
    ),
    measured=(
        "At d = 64 the two products take fewer operations than a plain RNN up to n = {bare:.0f}. "
        "At n = d self-attention with its four projections takes {projected:.1f} times the "
        "operations of an RNN, {gated:.2f} times an LSTM's; a whole layer with FFN "
        "{complete:.1f} times an RNN's.",
        "d = 64 时，n 不超过 {bare:.0f}，这两个乘积的运算少于普通 RNN。n = d 时，算上四个投影的自注意力是 RNN 的 {projected:.1f} 倍、"
        "LSTM 的 {gated:.2f} 倍；带前馈网络的整层是 RNN 的 {complete:.1f} 倍。",
    ),
    bare=(steps[1] - singles) / squares,
    projected=own / (n * steps[1]),
    gated=own / (n * step(d, gates=4)),
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
    answer=(
        "On cost only while n < d; its path is always the shortest, its steps fewer than an RNN's.",
        "代价只在 n 小于 d 时占优；路径总是最短，顺序步数也比 RNN 少。",
    ),
    measured=(
        "From the first to the last of 32 words: {attention} layer of attention, {convolution} "
        "convolutions of width 3, 31 steps of an RNN. At n = 256, d = 512 QKᵀ and weights·V take "
        "{cheap:.2f} of an RNN's operations, {cheaper:.2f} of a convolution's; at n = 4096 "
        "{dear:.0f} and {dearer:.1f} times.",
        "从 32 个词的第一个到最后一个：{attention} 层自注意力、{convolution} 层宽 3 的卷积，或 RNN 的 31 步。n = 256、d = 512 时"
        "，QKᵀ 与权重·V 的运算是 RNN 的 {cheap:.2f}、卷积的 {cheaper:.2f}；n = 4096 时是 {dear:.0f} 倍和 "
        "{dearer:.1f} 倍。",
    ),
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
    answer=(
        "An RNN's step needs the state before it; the queries of self-attention do not need each "
        "other.",
        "RNN 每一步都要等上一步的状态；自注意力的各个 query 互不等待。",
    ),
    measured=(
        "From 64 to 512 words an RNN takes {rnn:.1f} times as long, self-attention "
        "{attention:.1f} times, although its operations grow faster. Queries computed one by one "
        "give the same as all together, within {error:.1g}.",
        "从 64 个词到 512 个词，RNN 的时间变为 {rnn:.1f} 倍，自注意力为 {attention:.1f} 倍，尽管后者的运算增长更快。逐个 query 计算与一起"
        "计算的结果相差 {error:.1g}。",
    ),
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
    "attention": block.mha.count_params(),
    "transformer": block.count_params(),
}


def gradients_of(layer, variables):
    def gradients(x):
        with tf.GradientTape() as tape:
            out = tf.reduce_sum(layer(x) ** 2)
        return tape.gradient(out, variables)

    return gradients


recurrent = keras.layers.LSTM(512, return_sequences=True)
recurrent.build((None, None, 512))
x = tf.random.normal((8, 128, 512))
of_lstm = gradients_of(recurrent, recurrent.trainable_variables)
of_block = gradients_of(lambda x: block(x, False, None), block.trainable_variables)
slower = [seconds(of_lstm, x, repeats=5) / seconds(of_block, x, repeats=5) for _ in range(3)]
verdict(
    "C94",
    "holds when",
    answer=(
        "An LSTM is large only compared with attention alone, half its size; it is slow to train.",
        "LSTM 只有与单独的注意力相比才算参数多（2 倍）；训练慢成立。",
    ),
    measured=(
        "Parameters at width 512: RNN {rnn:,}, GRU {gru:,}, LSTM {lstm:,}; self-attention "
        "{attention:,}, a whole Transformer layer {transformer:,}. On a CPU, with 8 texts of 128 "
        "tokens, the gradients of the LSTM take {slower:.1f} times as long as those of the whole "
        "layer: its steps wait for each other (C93).",
        "宽度 512 时的参数：RNN {rnn:,}，GRU {gru:,}，LSTM {lstm:,}；自注意力 {attention:,}，一整层 Transformer "
        "{transformer:,}。在 CPU 上，8 句、每句 128 个词元，LSTM 算一次梯度的时间是一整层 Transformer 的 {slower:.1f} 倍：它的"
        "各步必须依次等待（C93）。（方括号为三轮的范围。）",
    ),
    rnn=sizes["rnn"],
    gru=sizes["gru"],
    lstm=sizes["lstm"],
    attention=sizes["attention"],
    transformer=sizes["transformer"],
    slower=slower,
)

# %%
dense = keras.layers.Dense(512)
x = tf.random.normal((8, 128, 512))
flat = lambda x: tf.reshape(dense(tf.reshape(x, (-1, 512))), (8, 128, 512))  # noqa: E731
difference = float(tf.reduce_max(tf.abs(dense(x) - flat(x))))
ratios = [seconds(flat, x) / seconds(dense, x) for _ in range(5)]
verdict(
    "C85",
    "not decided here",
    answer=(
        "The note speaks of TPUs; only a CPU was tried, and there reshapes are free.",
        "原文说的是 TPU；这里只试了 CPU，而 CPU 上 reshape 没有开销。",
    ),
    measured=(
        "On a CPU the dense layer takes {ratio:.2f} times as long with reshapes to (1024, 512) "
        "and back as on (8, 128, 512), with results that differ by {difference:.0f}. (Brackets: "
        "five rounds.) The same on a TPU, where arrays are stored in tiles, would decide it.",
        "在 CPU 上，全连接层先 reshape 成 (1024, 512) 再变回来，用时是直接在 (8, 128, 512) 上的 {ratio:.2f} 倍，结果相差 "
        "{difference:.0f}。（方括号为五轮的范围。）要判定，须在按块存放数组的 TPU 上做同样的比较。",
    ),
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
    answer=(
        "Right: the tables of tokens, positions and segments, all of width 768.",
        "对：词、位置、句段三张表，宽度都是 768。",
    ),
    measured=(
        "The three tables of a built model have {counted:,} weights; the formula gives "
        "{formula:,}.",
        "建好的模型里三张表共有 {counted:,} 个权重；公式得 {formula:,}。",
    ),
    counted=groups["embeddings"],
    formula=(30522 + 512 + 2) * 768,
)

# %%
verdict(
    "C99",
    "does not hold",
    answer=(
        "It is {counted:,}: the formula is right, the result was miscalculated.",
        "应为 {counted:,}：公式没错，乘积算错了。",
    ),
    measured=(
        "(768×768×3 + 768×768)×12 = {formula:,}, and the matrices of the built model have "
        "{counted:,} weights, biases not counted. The notes have 28,331,552, which is {excess:,} "
        "too many.",
        "(768×768×3 + 768×768)×12 = {formula:,}，建好的模型里这些矩阵也有 {counted:,} 个权重，不含偏置。笔记写的是 "
        "28,331,552，多了 {excess:,}。",
    ),
    formula=(768 * 768 * 3 + 768 * 768) * 12,
    counted=groups["attention"],
    excess=28_331_552 - groups["attention"],
)

# %%
verdict(
    "C100",
    "holds",
    answer=(
        "Right: two matrices in each of 12 layers, without biases.",
        "对：12 层各两个矩阵，不含偏置。",
    ),
    measured=(
        "{counted:,} counted, {formula:,} by the formula.",
        "数出 {counted:,}，公式为 {formula:,}。",
    ),
    counted=groups["feed-forward"],
    formula=(768 * 3072 + 3072 * 768) * 12,
)

# %%
verdict(
    "C101",
    "holds",
    answer=(
        "Right: gamma and beta of 25 norms, two in each layer and one after the embeddings.",
        "对：25 个归一化各有 gamma 和 beta，每层两个，词向量之后一个。",
    ),
    measured=(
        "{counted:,} counted, {formula:,} by the formula: 12 layers with two each, and one more.",
        "数出 {counted:,}，公式为 {formula:,}：12 层各两个，再加一个。",
    ),
    counted=groups["norms"],
    formula=(768 + 768) * 25,
)

# %%
four = sum(groups[name] for name in ("embeddings", "attention", "feed-forward", "norms"))
verdict(
    "C102",
    "does not hold",
    answer=(
        "The biases and the pooler are missing; with them there are {all:,} parameters.",
        "漏了偏置和 pooler；加上它们共 {all:,} 个参数。",
    ),
    measured=(
        "The four sum to {four:,} of {all:,}. The biases have {biases:,}, the pooler {pooler:,}. "
        "Whoever counts the pooler as part of the head still lacks the biases.",
        "四项之和为 {four:,}，而全部是 {all:,}。偏置有 {biases:,} 个，pooler 有 {pooler:,} 个。即使把 pooler 算进任务头，也还漏了"
        "偏置。",
    ),
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
# model must say which of 8 it was. Each network and each k is trained by itself on 38,400 texts
# (`python notebooks/train.py copying`): recurrent networks and attention at nine learning rates, of
# which the best counts, convolutions at one.
#
# 复制任务：65 个词元中有一个带标记，位于末尾之前 k 位；模型要在最后一个词元处说出它是 8 个中的哪一个。每种网络、每个 k 单独训练，各用 38,400 条文本；循环网络和自注意力试九个学习率，取最好的，卷积只用一个。
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


def by_distance(layer, deviation=1.0):
    """Norms of the gradient of the last output by the input k before it, k = 0 to 200.

    The inputs have this deviation: 1 after a norm, 0.03 as new embeddings.
    """
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
    "RNN, 3 times as large": by_distance(rnn(3.0)),
    "RNN, orthogonal": by_distance(orthogonal),  # Keras's default
    "the same, inputs near 0": by_distance(orthogonal, 0.03),
    "GRU": by_distance(keras.layers.GRU(64, return_sequences=True, dtype="float64")),
    "LSTM": by_distance(lstm(1.0)),  # Keras's default
    "LSTM, forget bias 5": by_distance(lstm(5.0)),
    "attention": by_distance(lambda x: mha(x, x, x, None)[0]),
}
copied = tuned("copying")  # "GRU at 64", for example
untuned = trained("copying")  # convolutions
arms = [name.removesuffix(" at 64") for name in copied if name.endswith(" at 64")]
distances = [8, 32, 64]


def found(name, distance):
    """The share of marked tokens that a network found, of each seed."""
    return {**untuned, **copied}[f"{name} at {distance}"]["found"]


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for (name, norms), style in zip(gradients.items(), ["-", "--", "-.", ":"] * 2, strict=True):
    left.semilogy(norms, style, label=name)
left.set(xlabel="k", ylabel="norm of the gradient", title="Untrained layers of width 64")
left.legend(fontsize=8)
for name, style in zip(arms, "osv^Dx", strict=True):
    right.plot(distances, [np.mean(found(name, k)) for k in distances], style + "-", label=name)
right.axhline(1 / 8, color="black", linestyle=":", label="chance")
right.set(xlabel="k", ylabel="marked tokens found", title="The copying task", xticks=distances)
right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for name, row in copied.items():
    print(f"{name}: rate {row['rate']:g}, found", *(f"{share:.2f}" for share in row["found"]))


# %%
verdict(
    "C90",
    "holds",
    answer=(
        "A convolution sees its receptive field and nothing beyond; each layer widens it by k − 1.",
        "卷积只看得到感受野之内，之外一无所知；每加一层，感受野增加 k − 1。",
    ),
    measured=(
        "In the copying task a kernel of 3 finds {one_in:.0%} of the tokens 2 back, {one_out:.0%}"
        " of those 4 back (chance 12.5 %). Two layers find {two_in:.0%} at 4 and {two_out:.0%} "
        "at 8; six layers {six_in:.0%} at 12 and {six_out:.0%} at 16.",
        "在复制任务中，宽 3 的卷积核能找到往前 2 位的 {one_in:.0%}，往前 4 位只有 {one_out:.0%}（瞎猜为 12.5 %）。两层在 4 位处为 "
        "{two_in:.0%}，8 位处为 {two_out:.0%}；六层在 12 位处为 {six_in:.0%}，16 位处为 {six_out:.0%}。",
    ),
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
    answer=(
        "With a high forget bias an LSTM keeps gradients that in a plain RNN vanish or explode.",
        "遗忘门偏置较大时，LSTM 能保住在普通 RNN 中会消失或爆炸的梯度。",
    ),
    measured=(
        "New layers, 100 steps back: gradients times {half:.0e} in a plain RNN with half the "
        "usual matrix, {large:.0e} with three times, {orthogonal:.0e} with an orthogonal one ("
        "{small:.2f} for inputs near 0); GRU {gru:.0e}, LSTM {lstm:.0e}, with forget bias 5 "
        "{biased:.1f}. Trained at its best rate, the orthogonal one remembers all the same (C92).",
        "新建的层、往回 100 步：普通 RNN 的循环矩阵为通常的一半时，梯度乘以 {half:.0e}，3 倍时乘以 {large:.0e}，正交时乘以 "
        "{orthogonal:.0e}（输入接近 0 时为 {small:.2f}）；GRU 乘以 {gru:.0e}，LSTM 乘以 {lstm:.0e}，遗忘门偏置为 5 时乘以"
        " {biased:.1f}。但学习率合适时，循环矩阵正交的 RNN 训练后照样记得住（C92）。",
    ),
    half=kept["RNN, half as large"],
    large=kept["RNN, 3 times as large"],
    orthogonal=kept["RNN, orthogonal"],
    small=kept["the same, inputs near 0"],
    gru=kept["GRU"],
    lstm=kept["LSTM"],
    biased=kept["LSTM, forget bias 5"],
)

# %%
verdict(
    "C92",
    "holds when",
    answer=(
        "For a plain RNN and a default LSTM; a GRU at its best rate finds tokens 64 back too.",
        "对普通 RNN 和默认的 LSTM 成立；GRU 学习率合适时能找到 64 步前的词元。",
    ),
    measured=(
        "Attention's gradient 101 back is {attention:.2f} times that 1 back. Copying over 64 steps, "
        "each at the best of nine rates: attention {attention_64:.0%} (8 back {attention_8:.0%}, one "
        "seed failed), LSTM {lstm_64:.0%} (chance 12.5 %; 32 back {lstm_32:.0%}), with open forget "
        "gates {open_64:.0%}, GRU {gru_64:.0%}, plain RNN {rnn_64:.0%} (32 back {rnn_32:.0%}), orthogonal "
        "{orthogonal_64:.0%}.",
        "自注意力对 101 位之前的梯度是 1 位之前的 {attention:.2f} 倍。复制 64 步之前的词元，学习率各取九个中最好的：自注意力找到 "
        "{attention_64:.0%}（8 步 {attention_8:.0%}，一个种子没学会）；LSTM {lstm_64:.0%}（瞎猜 12.5 %；32 步 {lstm_32:.0%}），遗忘门打开后 "
        "{open_64:.0%}；GRU {gru_64:.0%}，普通 RNN {rnn_64:.0%}（32 步 {rnn_32:.0%}），循环矩阵正交时 {orthogonal_64:.0%}。",
    ),
    attention=kept["attention"],
    attention_8=found("attention", 8),
    attention_64=found("attention", 64),
    lstm_32=found("LSTM", 32),
    lstm_64=found("LSTM", 64),
    open_64=found("LSTM, open", 64),
    gru_64=found("GRU", 64),
    rnn_32=found("RNN", 32),
    rnn_64=found("RNN", 64),
    orthogonal_64=found("orthogonal RNN", 64),
)
