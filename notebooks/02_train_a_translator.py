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
# # Train and export a translator
#
# English to Chinese on the bundled sentence pairs: `compile`, `fit`, training curves, translations,
# cross-attention, and a SavedModel that only needs TensorFlow. Takes three minutes on two cores.
# The command `tf-transformer train` does the same with longer training and scores the result.
#
# 用内置语料训练英译中：两个 CPU 核约三分钟；训练、画曲线、翻译、看注意力、导出 SavedModel。

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"  # a faster allocator, see benchmarks/NOTES.md

import tempfile
from pathlib import Path

import keras
import matplotlib.pyplot as plt
import tensorflow as tf
from IPython.display import SVG

from tf_transformer import (
    Architecture,
    BPETokenizer,
    GraphBPE,
    InverseSquareRootSchedule,
    MaskedAccuracy,
    SmoothedCrossentropy,
    Transformer,
    Translator,
    attention_svg,
    load_corpus,
    split_pairs,
    translation_attention,
)
from tf_transformer.data import BucketedBatches, group_references
from tf_transformer.export import translate_texts
from tf_transformer.layers import PreNorm
from tf_transformer.training import FusedAdam, MovingAverage, score_translations

keras.utils.set_random_seed(1)
folder = Path(tempfile.mkdtemp())

# %% tags=["parameters"]
EPOCHS = 3
PAIRS = None  # all of them

# %% [markdown]
# ## 1 · Sentence pairs 句对
#
# Pairs that share a sentence always go into the same split, so no test sentence is seen in
# training.

# %%
split = split_pairs(load_corpus("en-zh"))
train = split.train[:PAIRS]
print({"train": len(train), "validation": len(split.validation), "test": len(split.test)})
train[:3]

# %% [markdown]
# ## 2 · Joint vocabulary and batches 共享词表与分桶
#
# Byte-pair encoding merges the most frequent adjacent pairs until the vocabulary is full. Sentences
# of similar length share a bucket of fixed shape, which means little padding and few traces.

# %%
BPETokenizer.train([text for pair in train for text in pair], vocab_size=4000).save(
    folder / "tokenizer.json"
)
tokenizer = BPETokenizer.load(folder / "tokenizer.json")


def batches(pairs):
    """Length-bucketed batches of some pairs."""
    sources, targets = map(list, zip(*pairs, strict=True))
    return BucketedBatches(
        tokenizer.encode(sources),
        tokenizer.encode(targets),
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=(8, 12, 16, 24, 48),
        tokens_per_batch=1024,
    )


training, validation = batches(train), batches(split.validation)
print("batch shapes:", training.shapes)

# %% [markdown]
# ## 3 · `compile` and `fit`
#
# The paper's recipe: Adam with warm-up followed by inverse square root decay,
#
# $$lrate = d^{-0.5}\cdot\min(step^{-0.5},\; step\cdot warmup^{-1.5}),$$
#
# label smoothing, and one matrix shared by both embeddings and the output layer. Some things differ,
# since the run is short: encoder and decoder have one layer each, the rate is 0.8 of the paper's, each
# norm stands before its sublayer (pre-norm), which learns faster, and a moving average of the weights
# replaces the decay of the learning rate. `FusedAdam` is Keras's Adam in fewer operations.
#
# 论文的配方：Adam、先升后降的学习率、标签平滑、共享词表矩阵。训练时间短，有几处不同：编码器和解码器各只有一层；学习率为论文的 0.8 倍；
# 归一化放在子层之前（pre-norm，学得更快）；保留权重的滑动平均。`FusedAdam` 就是 Keras 的 Adam，只是运算更少。

# %%
model = Transformer(
    num_layers=1,
    d_model=128,
    num_heads=4,
    dff=512,
    input_vocab_size=tokenizer.vocab_size,
    target_vocab_size=tokenizer.vocab_size,
    pe_input=96,
    pe_target=96,
    share_embeddings=True,
    architecture=Architecture(residual=PreNorm()),
)
model.compile(
    FusedAdam(
        InverseSquareRootSchedule(d_model=128, warmup_steps=250, scale=0.8),
        beta_1=0.9,
        beta_2=0.98,
        epsilon=1e-9,
        use_ema=True,
        ema_momentum=0.985,
    ),
    SmoothedCrossentropy(0.1),
    metrics=[MaskedAccuracy()],
    jit_compile=False,  # on a CPU, compiling every batch shape costs more than it gains
)
history = model.fit(
    training.dataset(),
    steps_per_epoch=training.steps_per_epoch,
    validation_data=validation.dataset(epochs=1),
    epochs=EPOCHS,
    callbacks=[MovingAverage()],
    shuffle=False,
    verbose=2,
)
print(f"{model.count_params():,} weights")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axis, name in zip(axes, ("loss", "accuracy"), strict=True):
    for label, key in (("training", name), ("validation", f"val_{name}")):
        axis.plot(range(1, EPOCHS + 1), history.history[key], marker="o", label=label)
    axis.set(title=name, xlabel="epoch")
    axis.legend()
plt.show()

# %% [markdown]
# ## 4 · Translations 翻译
#
# Tokenizer, model and greedy decoding in one module: strings in, strings out.

# %%
translator = Translator(model, GraphBPE.from_file(folder / "tokenizer.json"))
sentences = ["I love China.", "Where is the station?", "He is reading a book."]
for pair in zip(sentences, translate_texts(translator, sentences), strict=True):
    print(*pair, sep=" → ")

# %% [markdown]
# BLEU on the first sentences of the test split, against all of their references.

# %%
sources, references = (part[:300] for part in group_references(split.test))
scores = score_translations(translate_texts(translator, sources), references, "zh")
scores

# %% [markdown]
# ## 5 · Cross-attention 两种语言之间的注意力

# %%
[translation] = translate_texts(translator, sentences[1:2])
attention = translation_attention(model, translator.tokenizer, sentences[1], translation)
SVG(attention_svg(*attention))

# %% [markdown]
# ## 6 · Save and load a SavedModel 导出与载入
#
# The model can be loaded in a process that has TensorFlow but not this library.

# %%
translator.save(folder / "translator")
loaded = tf.saved_model.load(str(folder / "translator"))
outputs = loaded.signatures["translate"](text=tf.constant(sentences))["translation"]
assert [text.decode() for text in outputs.numpy()] == translate_texts(translator, sentences)
[text.decode() for text in outputs.numpy()]
