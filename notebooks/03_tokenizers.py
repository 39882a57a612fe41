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
# # From text to tokens: BPE, WordPiece, Unigram
#
# How each of the three subword models is built, how it splits a word, how that affects sentence
# length, and how the same tokenizer runs inside a TensorFlow graph.
#
# 三种子词模型：词表怎样得到，一个词怎样被切开，句子因此有多长；以及同一个分词器如何放进 TensorFlow
# 计算图里，导出后不再需要任何其他依赖。

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import tensorflow as tf

from tf_transformer import (
    BPETokenizer,
    GraphTokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
    load_corpus,
)
from tf_transformer.tokenizers import metaspace_pipeline
from tf_transformer.tokenizers.wordpiece_trainer import learn_wordpieces

folder = Path(tempfile.mkdtemp())

# %% tags=["parameters"]
PAIRS = None  # all of them
SIZES = (4000, 6000, 8000, 12000, 16000)

# %%
pairs = load_corpus("en-zh")[:PAIRS]
english, chinese = zip(*pairs, strict=True)
texts = english + chinese
print(len(pairs), "pairs, as", pairs[-1])

# %% [markdown]
# ## 1 · Why subwords 为什么要子词
#
# A word vocabulary is large, and new sentences contain words unseen in training. A character
# vocabulary is small and covers everything, but sentences become long. Subwords are a compromise.
#
# 词表用整词，总有没见过的词；用单字，句子太长；子词居中。

# %%
seen = {word for text in english[::2] for word in text.lower().split()}
other = [word for text in english[1::2] for word in text.lower().split()]
unseen = sum(word not in seen for word in other) / len(other)
letters_seen = set("".join(english[::2]))
unseen_letters = sum(c not in letters_seen for t in english[1::2] for c in t)
print(f"words: {len(seen):,} in one half; of the other half {unseen:.1%} are new")
print(f"characters: {len(letters_seen)}; new in the other half: {unseen_letters}")

# %% [markdown]
# ## 2 · BPE: merge the most frequent pair 合并最常见的相邻对
#
# Training counts adjacent pairs, turns the most frequent pair into a token, and repeats until the
# vocabulary is full. To split a word, the same merges are applied in the same order. `trace` shows
# each merge: the rank of the pair in training (0 was the first merge) and the symbols after it.

# %%
SIZE = 8000
# All three models use the same pipeline, so that they differ only in the model.
bpe = BPETokenizer.train(texts, SIZE, metaspace_pipeline())

for word in bpe.trace("unbelievable"):
    print(word["word"])
    for merge in word["merges"]:
        print(f"  rank {merge['rank']:5d}  {' '.join(merge['symbols'])}")
    print("  ids", word["ids"])

# %% [markdown]
# ## 3 · WordPiece: mutual information, and the longest match 互信息与最长匹配
#
# Training merges the pair that most increases the likelihood of the corpus. This is not the most
# frequent pair, but the one that occurs together more often than its parts would by chance,
# $n_{ab}\log\frac{n_{ab}N}{n_a n_b}$. The first merges under both criteria on the same words:

# %%
counts = {"the": 60, "that": 25, "this": 25, "queen": 12, "quick": 9, "cats": 8, "hats": 8}
tokens = learn_wordpieces(counts, num_tokens=40)
characters = len({("" if i == 0 else "##") + c for word in counts for i, c in enumerate(word)})
print("by mutual information:", tokens[characters : characters + 6])
spelled = [word for word, count in counts.items() for _ in range(count)]
by_frequency = WordPieceTokenizer.train(spelled, 40)
added = by_frequency.ids_to_tokens(range(by_frequency.vocab_size))[-7:]
print("by frequency:         ", [token for token in added if len(token.strip("#")) > 1][:6])

# %% [markdown]
# Splitting a word uses no merges: from left to right, it takes the longest token that matches. `##`
# marks a token inside a word; `trace` lists the longer candidates that did not match.

# %%
wordpiece = WordPieceTokenizer.train(texts, SIZE)  # BERT's pipeline: lowercase, Chinese split
for word in wordpiece.trace("Unbelievably 我们"):
    print(word["word"])
    for match in word["matches"]:
        print(f"  {match['token']:12s} after {len(match['tried'])} longer ones", match["tried"][:3])

# %% [markdown]
# ## 4 · Unigram: from large to small, and the most likely path 由大到小，取概率最大的切法
#
# Training starts with all frequent substrings and drops those whose removal costs the least
# likelihood. Each token has a log-probability; a word is split so that the sum is largest (Viterbi
# algorithm).

# %%
unigram = UnigramTokenizer.train(texts, SIZE)
for word in unigram.trace("unbelievable 我不知道"):
    print(word["word"])
    for path in word["paths"]:
        print(f"  {path['score']:8.2f}  {' '.join(path['tokens'])}")

# %% [markdown]
# ## 5 · Vocabulary size and sentence length 词表大小与句子长度
#
# A larger vocabulary gives shorter sentences. Chinese characters alone fill a vocabulary of three
# thousand.

# %%
TRAIN = {
    "BPE": BPETokenizer.train,
    "WordPiece": WordPieceTokenizer.train,
    "Unigram": UnigramTokenizer.train,
}
lengths = {}
for name, train in TRAIN.items():
    for size in SIZES:
        tokenizer = train(texts, size, metaspace_pipeline())
        for language, part in (("English", english), ("Chinese", chinese)):
            count = sum(map(len, tokenizer.encode(part))) / len(part)
            lengths.setdefault((name, language), []).append(count)

_, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
for axis, language in zip(axes, ("English", "Chinese"), strict=True):
    for name in TRAIN:
        axis.plot(SIZES, lengths[name, language], marker="o", label=name)
    axis.set(title=language, xlabel="vocabulary size", ylabel="tokens per sentence")
    axis.legend()
plt.show()

# %% [markdown]
# ## 6 · The same tokenizer in a graph 放进计算图
#
# Each tokenizer is saved as one `tokenizer.json`, which Hugging Face's packages can read too.
# `GraphTokenizer` runs it with core TensorFlow operations and produces the same ids: in `tf.data`,
# in a SavedModel, or in a process that only has TensorFlow.

# %%
for name, tokenizer in (("bpe", bpe), ("wordpiece", wordpiece), ("unigram", unigram)):
    tokenizer.save(folder / f"{name}.json")
    graph = GraphTokenizer.from_file(folder / f"{name}.json")
    same = all(
        graph.encode(tf.constant(part)).to_list() == tokenizer.encode(part)
        for part in (english, chinese)
    )
    print(f"{type(graph).__name__:15s} {len(texts):,} sentences, all ids equal: {same}")

# %%
tf.saved_model.save(graph, str(folder / "saved"))
served = tf.saved_model.load(str(folder / "saved"))
ids = served.encode_strings(tf.constant(["Hello!", "我不知道。"]))
print(ids)
print([text.decode() for text in served.decode_ids(ids.to_tensor()).numpy()])

# %% [markdown]
# A translator can use any of them: `tf-transformer train --subword unigram`. The
# [results](../docs/results.md#subword-models) include a table of the scores.
