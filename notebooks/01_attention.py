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
# # Attention step by step on a real sentence
#
# The layers of the study notes in order. Each equation is shown next to the corresponding call, and
# each result is checked against a NumPy implementation of the equation.
#
# 按笔记的顺序逐层走一遍：公式在上，调用在下，每个结果都与 NumPy 写出的公式核对。

# %%
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # silence TensorFlow's startup messages

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from IPython.display import SVG

import tf_transformer
from tf_transformer.export.translation.saved_translator import load_transformer
from tf_transformer.export.translation.shipped_models import shipped_model
from tf_transformer.export.translation.translate_texts import translate_texts

np.set_printoptions(precision=3, suppress=True)
tf.random.set_seed(0)

# %% [markdown]
# ## 1 · From a sentence to ids 从句子到编号
#
# The library ships a trained English-Chinese translator. Its tokenizer splits sentences into
# subwords; shorter sentences in a batch are padded with 0.

# %%
trained, tokenizer = load_transformer(shipped_model("en-zh"))
sentences = ["Where is the station?", "He is reading a book in the library."]
ids = tokenizer.encode_strings(tf.constant(sentences)).to_tensor()
tokens = [[piece.decode().strip() for piece in tokenizer.pieces(row).numpy()] for row in ids]
print(ids.numpy())
print(tokens)

# %% [markdown]
# ## 2 · Embeddings and positions 词向量与位置编码
#
# $$PE_{(pos,\,2i)} = \sin\frac{pos}{10000^{2i/d}} \qquad
#   PE_{(pos,\,2i+1)} = \cos\frac{pos}{10000^{2i/d}}$$
#
# Attention by itself ignores word order, so position encodings are added to the embeddings. The
# embeddings are first scaled by $\sqrt{d}$ so that the encodings do not dominate them.
#
# 注意力本身看不到词序，所以把位置编码加到词向量上；词向量先乘 $\sqrt{d}$。

# %%
d_model = trained.get_config()["d_model"]
codes = tf_transformer.Positional_Encoding().positional_encoding(50, d_model)  # (1, 50, d_model)

position, column = np.arange(50)[:, None], np.arange(d_model)[None, :]
angle = position / 10000 ** (2 * (column // 2) / d_model)
np.testing.assert_allclose(
    codes[0], np.where(column % 2 == 0, np.sin(angle), np.cos(angle)), atol=1e-5
)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
left.imshow(codes[0], aspect="auto", cmap="RdBu")
left.set(title="The codes", xlabel="column", ylabel="position")
right.imshow(codes[0] @ tf.transpose(codes[0]), cmap="viridis")
right.set(title="Dot products of the codes: near means alike", xlabel="position", ylabel="position")
plt.show()

# %%
embedding = trained.encoder.embedding.embedding
x = embedding(ids) * d_model**0.5 + codes[:, : ids.shape[1]]  # (B, T, D)
x.shape

# %% [markdown]
# ## 3 · Masks 掩码
#
# In the notes' masks **1 means blocked**: padding is never attended to, and in the decoder no word
# may attend to a later one. `mask * -1e9` is added to the scores, so softmax gives 0 there.
#
# A boolean mask means the opposite, as in Keras and PyTorch: `True` = may attend. Integer masks
# raise an error, so that an inverted mask cannot go unnoticed.
#
# 笔记的约定：**1 = 屏蔽**；布尔 mask 则是 True = 可以看；整数 mask 直接报错。

# %%
padding = tf_transformer.create_padding_mask(ids)  # (B, 1, 1, T)
look_ahead = tf_transformer.create_look_ahead_mask(5)
print(padding[:, 0, 0].numpy())
print(look_ahead.numpy())
try:
    tf_transformer.scaled_dot_product_attention(x, x, x, mask=tf.ones((1, 1), tf.int32))
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# ## 4 · Scaled dot-product attention 缩放点积注意力
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V$$

# %%
keep_out = padding[:, 0]  # (B, 1, T): without the axis of the heads
output, weights = tf_transformer.scaled_dot_product_attention(x, x, x, keep_out)

scores = x.numpy().astype(np.float64) @ np.swapaxes(x, 1, 2) / np.sqrt(d_model)
scores += keep_out.numpy() * -1e9
expected = np.exp(scores - scores.max(-1, keepdims=True))
expected /= expected.sum(-1, keepdims=True)
np.testing.assert_allclose(weights, expected, atol=1e-5)
np.testing.assert_allclose(output, expected @ x.numpy(), atol=1e-4)
print("rows sum to", np.unique(np.round(weights.numpy().sum(-1), 5)))
print("weight on padding:", weights.numpy()[0][:, ids.numpy()[0] == 0].max())

# %% [markdown]
# Why divide by $\sqrt{d_k}$? If components have mean 0 and variance 1, dot products have variance
# $d_k$: softmax saturates, and its gradient vanishes.
#
# 为什么除以 $\sqrt{d_k}$：点积方差随 $d_k$ 增大，softmax 饱和，梯度趋于 0。

# %%
for d_k in (4, 64, 1024):
    q, k = tf.random.normal((1000, d_k)), tf.random.normal((1000, d_k))
    dots = tf.reduce_sum(q * k, axis=-1)
    print(f"d_k {d_k:5}: variance {np.var(dots):7.1f}, scaled {np.var(dots / d_k**0.5):.2f}")

# %% [markdown]
# ## 5 · Multiple heads 多头
#
# $$\text{MultiHead}(Q,K,V) = \text{Concat}(head_1,\dots,head_h)W^O,\quad
#   head_i = \text{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# `split_heads` splits the last axis: $(B, T, d) \to (B, h, T, d/h)$. Each head attends separately.

# %%
mha = tf_transformer.MultiHeadAttention(d_model=d_model, num_heads=4)
output, weights = mha(x, x, x, padding)
print("split:", mha.split_heads(x, x.shape[0]).shape)
print("output:", output.shape, "weights:", weights.shape)

# %% [markdown]
# The layer is untrained: its heads attend almost uniformly to all words.
#
# 未经训练的注意力头，几乎是平均地看所有词。

# %%
SVG(tf_transformer.attention_svg(weights[1], tokens[1], tokens[1]))

# %% [markdown]
# ## 6 · Encoder and decoder layers 编码层与解码层
#
# $$x_1 = \text{LayerNorm}(x + \text{MultiHead}(x,x,x)),\quad
#   x_2 = \text{LayerNorm}(x_1 + \text{FFN}(x_1)),\quad
#   \text{FFN}(x)=\max(0, xW_1+b_1)W_2+b_2$$
#
# They are called as in the notes, with positional arguments: `layer(x, training, mask)`. The
# decoder layer attends to the preceding words, then to the encoder output.

# %%
encoder_layer = tf_transformer.EncoderLayer(d_model, num_heads=4, dff=512)
memory = encoder_layer(x, False, padding)

decoder_layer = tf_transformer.DecoderLayer(d_model, num_heads=4, dff=512)
y = tf.random.normal((2, 5, d_model))
out, self_weights, cross_weights = decoder_layer(y, memory, False, look_ahead, padding)
print(memory.shape, out.shape, self_weights.shape, cross_weights.shape)

later = tf.concat([y[:, :3], tf.random.normal((2, 2, d_model))], axis=1)  # replaces words 4 and 5
again, *_ = decoder_layer(later, memory, False, look_ahead, padding)
np.testing.assert_array_equal(out[:, :3], again[:, :3])
print("The first three words do not see the last two change.")

# %% [markdown]
# ## 7 · Trained attention 训练之后
#
# The shipped translator has layers like these, with rotary positions and the norm before each
# sublayer: where each head of its last decoder layer looks in the English sentence while it
# generates each Chinese token. Hover over a square to see its value.
#
# 训练好的模型：写每个中文词时，最后一层解码器的各个头在看英文句子的哪里。

# %%
translator = tf.saved_model.load(str(shipped_model("en-zh")))
translations = translate_texts(translator, sentences)
for pair in zip(sentences, translations, strict=True):
    print(*pair, sep=" → ")
SVG(
    tf_transformer.attention_svg(
        *tf_transformer.translation_attention(trained, tokenizer, sentences[0], translations[0])
    )
)
