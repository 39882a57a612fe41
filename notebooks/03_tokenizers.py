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

import itertools
import math
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from claims import trained, verdict

from tf_transformer import (
    BPETokenizer,
    GraphTokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
    load_corpus,
)
from tf_transformer.tokenizers import metaspace_pipeline
from tf_transformer.tokenizers.training import count_words, learn_wordpieces

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

# %% [markdown]
# ## 7 · What the notes say about tokenizers 笔记怎么说：分词
#
# From here on each experiment ends with a verdict on a claim of the notes. All verdicts:
# [CLAIMS.md](CLAIMS.md).
#
# The first merges of each trainer on the English sentences are repeated with counts of our own. By
# how often is the merged pair the most frequent one, or the one of most mutual information? For
# Unigram, what a token is worth is the log-likelihood that the corpus loses without it.
#
# 从这里开始，每个实验都以对笔记中一条论断的结论结束。全部结论见 [CLAIMS.zh-CN.md](CLAIMS.zh-CN.md)。
#
# Interview questions 面试题：BPE 和 WordPiece 有什么区别？Unigram 是怎样得到词表的？

# %%
MERGES, LARGE, LESS = 50, 1000, 700
english_words = count_words(english, metaspace_pipeline())


def replayed(tokens):
    """How often a merge is that of the most frequent pair, and that of most information."""
    words = {word: list(word) for word in english_words}
    hits = []
    for token in tokens:
        symbols, pairs = Counter(), Counter()
        for word, parts in words.items():
            for part in parts:
                symbols[part] += english_words[word]
            for pair in itertools.pairwise(parts):
                pairs[pair] += english_words[word]
        total = symbols.total()
        information = {
            (a, b): count * math.log(count * total / (symbols[a] * symbols[b]))
            for (a, b), count in pairs.items()
        }
        chosen = max((pair for pair in pairs if "".join(pair) == token), key=pairs.get)
        hits.append([score[chosen] == max(score.values()) for score in (pairs, information)])
        for parts in words.values():
            for place in range(len(parts) - 2, -1, -1):
                if (*parts[place : place + 2],) == chosen:
                    parts[place : place + 2] = [token]
    return np.mean(hits, 0)


def vocabulary(train, size):
    """The tokens without the special ones, in their order."""
    tokenizer = train(english, size, metaspace_pipeline())
    first = len(tokenizer.special_tokens)
    return tokenizer.ids_to_tokens(range(first, tokenizer.vocab_size))


TRAIN_SMALL = {**TRAIN, "by information": WordPieceTokenizer.train_by_information}
learned = {name: vocabulary(train, LARGE) for name, train in TRAIN_SMALL.items()}
shares = {
    name: replayed([token for token in learned[name] if len(token) > 1][:MERGES])
    for name in TRAIN_SMALL
    if name != "Unigram"
}


def without_halves(tokens):
    """The share of tokens of three characters or more that no two other tokens make up."""
    longer = [token for token in tokens if len(token) > 2]
    known = set(tokens)
    return np.mean([not any({t[:n], t[n:]} <= known for n in range(1, len(t))) for t in longer])


# What the corpus loses without a token: its count, times what the best other split costs.
model = UnigramTokenizer.train(english, LARGE, metaspace_pipeline())
ids = list(itertools.chain.from_iterable(model.encode(english)))
counted = Counter(model.ids_to_tokens(ids))
scores = dict(model._file.model["vocab"])


def best_split(token):
    """The log-likelihood of the best split of a token into other tokens."""
    best = [0.0]
    for end in range(1, len(token) + 1):
        best.append(
            max(
                best[start] + scores.get(token[start:end], -1e9)
                for start in range(end)
                if (start, end) != (0, len(token))
            )
        )
    return best[-1]


longer = [token for token in learned["Unigram"] if len(token) > 1]
worth = np.array([counted[token] * (scores[token] - best_split(token)) for token in longer])
smaller = set(vocabulary(UnigramTokenizer.train, LESS))
pruned = np.array([token not in smaller for token in longer])
below = np.mean(worth[pruned][:, None] < worth[~pruned])
verdict(
    "C103",
    "holds when",
    answer=(
        "If WordPiece is trained as published; the usual trainer, of the package tokenizers, "
        "merges by frequency.",
        "若 WordPiece 按论文训练则成立；常用的 tokenizers 包其实按频率合并。",
    ),
    measured=(
        "Of {merges} merges, most frequent pair: BPE {bpe:.0%}, `train_by_information` "
        "{ours_frequent:.0%}, the package's WordPiece {package:.0%}; most informative: the last "
        "two {ours:.0%} and {package_information:.0%}. The package's vocabulary is BPE's ("
        "{same:.0%}). Of Unigram's longer tokens {unbuilt:.0%} are not joined from two others "
        "(BPE: {built:.0%}); those pruned are worth less in {below:.0%} of pairs.",
        "前 {merges} 次合并中，合并最常见的对：BPE {bpe:.0%}，`train_by_information` {ours_frequent:.0%}，"
        "tokenizers 包的 WordPiece {package:.0%}；合并互信息最大的对：后两者为 {ours:.0%} 和 "
        "{package_information:.0%}。该包的词表与 BPE 相同（{same:.0%}）。Unigram 由大到小：{unbuilt:.0%} 的较长词元不能由另"
        "外两个拼成（BPE 为 {built:.0%}）；{below:.0%} 的比较中，被删词元的价值低于留下的。",
    ),
    merges=MERGES,
    bpe=shares["BPE"][0],
    ours=shares["by information"][1],
    ours_frequent=shares["by information"][0],
    package=shares["WordPiece"][0],
    package_information=shares["WordPiece"][1],
    same=len(set(learned["BPE"]) & set(learned["WordPiece"])) / len(set(learned["BPE"])),
    unbuilt=without_halves(learned["Unigram"]),
    built=without_halves(learned["BPE"]),
    below=below,
)

# %% [markdown]
# Small English-French translators, trained on the same 14,000 short pairs with different
# vocabularies. A rare word is one outside the 2,000 most common ones.
#
# 用同样的 14,000 个短句对、不同的词表训练的英法小翻译模型；罕见词指 2,000 个最常见词以外的词。

# %%
found = trained("vocabularies")
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for place, (key, label) in enumerate(
    (("bleu_common", "common words"), ("bleu_rare", "a rare word"))
):
    heights = [np.mean(one[key]) for one in found.values()]
    axis.bar(np.arange(len(found)) + 0.4 * place, heights, 0.38, label=label)
axis.set_xticks(np.arange(len(found)) + 0.2, found, fontsize=8)
axis.set(ylabel="BLEU")
axis.legend(fontsize=8)
plt.show()

merges, matches = (  # of every English word, with the same vocabulary
    tokenizer.train(english, LARGE, metaspace_pipeline()).encode(list(english_words))
    for tokenizer in (BPETokenizer, WordPieceTokenizer)
)
otherwise = np.mean([one != other for one, other in zip(merges, matches, strict=True)])
verdict(
    "C104",
    "holds when",
    answer=(
        "For the paper's English-German; its English-French used word pieces, and BPE means "
        "byte pairs, not double bytes.",
        "对论文的英德翻译成立（英法用 word piece）；BPE 是“字节对”，非“双字节”。",
    ),
    measured=(
        "Of French test tokens {unknown:.1%} are unknown with 2,000 words, {in_bytes:.1%} with "
        "BPE. With the same {same:,d} tokens WordPiece splits {otherwise:.0%} of the words "
        "unlike BPE. Our small translators ({words:.1f} BLEU with words, {bpe:.1f} with BPE) "
        "cannot decide on quality; Sennrich et al. (2016) gained up to 1.3 BLEU over a back-off "
        "dictionary.",
        "子词确实缓解未登录词：法语测试句中，2,000 词的词表有 {unknown:.1%} 的词元未知，BPE 为 {in_bytes:.1%}。同样的 {same:,d} 个词元"
        "，WordPiece 对 {otherwise:.0%} 的词的切法与 BPE 不同。我们的小翻译模型（用词 {words:.1f} BLEU，BPE {bpe:.1f}）不足"
        "以判定翻译质量；Sennrich 等（2016）比回退词典最多高 1.3 BLEU。",
    ),
    unknown=found["2,000 words"]["unknown_target"][0],
    in_bytes=found["BPE"]["unknown_target"][0],
    same=LARGE,
    otherwise=otherwise,
    words=found["2,000 words"]["bleu"],
    bpe=found["BPE"]["bleu"],
)
