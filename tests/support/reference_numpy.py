"""The Transformer in float64 NumPy, written from the equations: the reference for the library.

The equations are those of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762), section
by section, in the arrangement of the classic TensorFlow study notes (post-norm, interleaved
sinusoids, no dropout because this is inference). The code is slow and imports only NumPy: it
shares nothing with the library, so that no bug can be on both sides of a test.

Axis letters: B batch, T target length, S source length, D model width, N heads, H head width
(D = N * H), F feed-forward width, V vocabulary.

Masks follow the notes everywhere in this file: 1 (or True) means BLOCKED. Tests must not pass them
as booleans to the library, where bool means the opposite. `create_masks` and its two parts
therefore return float32 zeros and ones, which both sides read the same way.

Parameters are nested dicts (and lists, for stacks) of arrays:

    linear         {"kernel": (in, out), "bias": (out,)}
    layer norm     {"gamma": (D,), "beta": (D,)}
    attention      {"wq", "wk", "wv", "dense"}: linear, (D, D)
    feed-forward   {"dense1": linear (D, F), "dense2": linear (F, D)}
    encoder layer  {"mha", "ffn", "layernorm1", "layernorm2"}
    decoder layer  {"mha1", "mha2", "ffn", "layernorm1", "layernorm2", "layernorm3"}
    encoder        {"embedding": (V, D), "layers": [encoder layer, ...]}
    decoder        {"embedding": (V, D), "layers": [decoder layer, ...]}
    transformer    {"encoder", "decoder", "final_layer": linear (D, V), or None when tied}

The number of heads does not follow from these shapes, so it is an argument where needed.
"""

import numpy as np

BLOCKED_SCORE = -1e9
PAD_ID = 0


# Attention: section 3.2


def softmax(x, axis=-1):
    """exp(x) / sum(exp(x)), shifted by the maximum to avoid overflow."""
    x = np.asarray(x, dtype=np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def scaled_dot_product_attention(q, k, v, blocked=None, bias=0.0):
    """softmax(q k^T / sqrt(H) + bias) v: equation 1.

    q is (..., T, H), k (..., S, H), v (..., S, Hv); `blocked` and `bias` broadcast to (..., T, S).
    A blocked score is replaced by -1e9, not shifted by it, so a row with every key blocked has
    exactly uniform weights. Returns the output (..., T, Hv) and the weights (..., T, S).
    """
    q, k, v, bias = (np.asarray(a, dtype=np.float64) for a in (q, k, v, bias))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + bias  # (..., T, S)
    if blocked is not None:
        scores = np.where(np.asarray(blocked) != 0, BLOCKED_SCORE, scores)
    weights = softmax(scores)
    return weights @ v, weights


def windowed_attention(q, k, v, window, causal=False, blocked=None, bias=0.0):
    """Equation 1 restricted to a neighborhood, section 4: one query at a time, with its keys only.

    Query t has the keys from t - window to t + window, with `causal` to t, that exist and are not
    blocked; without any, the mean of all values. Returns output and weights as above.
    """
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    h, s = q.shape[-1], k.shape[-2]
    shape = (*q.shape[:-1], s)
    blocked = np.broadcast_to(0.0 if blocked is None else blocked, shape)
    bias, weights = np.broadcast_to(bias, shape), np.zeros(shape)
    for at in np.ndindex(shape[:-1]):
        *head, i = at
        last = i if causal else i + window
        keys = [j for j in range(max(0, i - window), min(s, last + 1)) if not blocked[(*at, j)]]
        if keys:
            scores = [q[at] @ k[(*head, j)] / np.sqrt(h) + bias[(*at, j)] for j in keys]
            weights[at][keys] = softmax(np.array(scores))
        else:
            weights[at] = 1 / s
    return weights @ v, weights


def split_heads(x, num_heads):
    """(B, T, D) -> (B, N, T, H): head n has columns n*H to (n+1)*H."""
    batch, length, width = x.shape
    return x.reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def merge_heads(x):
    """(B, N, T, H) -> (B, T, D): undoes `split_heads`."""
    batch, heads, length, width = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * width)


def linear(params, x):
    """x W + b, or x W without a bias."""
    out = x @ np.asarray(params["kernel"], dtype=np.float64)
    if params.get("bias") is not None:
        out = out + params["bias"]
    return out


def multi_head_attention(params, q, k, v, blocked, num_heads):
    """Concat(head_1 .. head_N) W_O: section 3.2.2. Output (B, T, D), weights (B, N, T, S)."""
    q, k, v = (np.asarray(a, dtype=np.float64) for a in (q, k, v))
    q = split_heads(linear(params["wq"], q), num_heads)  # (B, N, T, H)
    k = split_heads(linear(params["wk"], k), num_heads)  # (B, N, S, H)
    v = split_heads(linear(params["wv"], v), num_heads)  # (B, N, S, H)
    heads, weights = scaled_dot_product_attention(q, k, v, blocked)
    return linear(params["dense"], merge_heads(heads)), weights


# The other sublayers: sections 3.1, 3.3 and 3.5


def layer_norm(x, gamma, beta, eps=1e-6):
    """gamma (x - mean) / sqrt(variance + eps) + beta over the last axis; biased variance."""
    x = np.asarray(x, dtype=np.float64)
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + eps) + beta


def relu(x):
    """max(0, x)."""
    return np.maximum(0.0, x)


def feed_forward(params, x, activation=relu):
    """max(0, x W1 + b1) W2 + b2: equation 2; BERT uses another activation."""
    return linear(params["dense2"], activation(linear(params["dense1"], x)))


def positional_encoding(length, d_model):
    """Sine on even columns, cosine on odd ones: section 3.5. Returns (1, length, D).

    Columns 2j and 2j + 1 share the angle position / 10000^(2j / D).
    """
    position = np.arange(length, dtype=np.float64)[:, None]
    column = np.arange(d_model)[None, :]
    angle = position / 10000.0 ** (2 * (column // 2) / d_model)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))[None]


# Masks: 1 = blocked


def padding_mask(seq):
    """(B, S) ids -> (B, 1, 1, S) float32, 1 where the id is padding."""
    return (np.asarray(seq) == PAD_ID).astype(np.float32)[:, None, None, :]


def look_ahead_mask(size):
    """(T, T) float32, 1 above the diagonal."""
    return np.triu(np.ones((size, size), dtype=np.float32), k=1)


def create_masks(inp, tar):
    """(encoder padding, decoder self-attention, decoder cross-attention).

    Decoder self-attention combines look-ahead and padding masks by their maximum; cross-attention
    attends to the encoder's output, so it uses the padding of `inp`.
    """
    combined = np.maximum(padding_mask(tar), look_ahead_mask(np.shape(tar)[1]))  # (B, 1, T, T)
    return padding_mask(inp), combined, padding_mask(inp)


# Layers and stacks: section 3.1, figure 1


def _norm(params, x, eps=1e-6):
    return layer_norm(x, params["gamma"], params["beta"], eps)


def encoder_layer(params, x, blocked, num_heads, activation=relu, eps=1e-6):
    """LayerNorm(x + Sublayer(x)) for self-attention, then for the feed-forward network."""
    attn, _ = multi_head_attention(params["mha"], x, x, x, blocked, num_heads)
    out1 = _norm(params["layernorm1"], x + attn, eps)
    inner = feed_forward(params["ffn"], out1, activation)
    return _norm(params["layernorm2"], out1 + inner, eps)


def decoder_layer(params, x, enc_output, look_ahead_blocked, padding_blocked, num_heads):
    """Self-attention, attention to the encoder, feed-forward; each as LayerNorm(x + Sublayer(x)).

    Returns out3 (B, T, D), weights_block1 (B, N, T, T) and weights_block2 (B, N, T, S).
    """
    attn1, weights_block1 = multi_head_attention(
        params["mha1"], x, x, x, look_ahead_blocked, num_heads
    )
    out1 = _norm(params["layernorm1"], x + attn1)
    attn2, weights_block2 = multi_head_attention(
        params["mha2"], out1, enc_output, enc_output, padding_blocked, num_heads
    )
    out2 = _norm(params["layernorm2"], out1 + attn2)
    out3 = _norm(params["layernorm3"], out2 + feed_forward(params["ffn"], out2))
    return out3, weights_block1, weights_block2


def embed(embedding, ids):
    """embedding[ids] * sqrt(D) + positions: sections 3.4 and 3.5. (B, T) -> (B, T, D)."""
    embedding = np.asarray(embedding, dtype=np.float64)
    ids = np.asarray(ids)
    d_model = embedding.shape[1]
    return embedding[ids] * np.sqrt(d_model) + positional_encoding(ids.shape[1], d_model)


def encoder(params, inp, blocked, num_heads):
    """(B, S) ids -> (B, S, D)."""
    x = embed(params["embedding"], inp)
    for layer in params["layers"]:
        x = encoder_layer(layer, x, blocked, num_heads)
    return x


def decoder(params, tar, enc_output, look_ahead_blocked, padding_blocked, num_heads):
    """(B, T) ids -> (B, T, D), and all layers' weights under the notes' names, counted from 1."""
    x = embed(params["embedding"], tar)
    attention_weights = {}
    for i, layer in enumerate(params["layers"], start=1):
        x, block1, block2 = decoder_layer(
            layer, x, enc_output, look_ahead_blocked, padding_blocked, num_heads
        )
        attention_weights[f"decoder_layer{i}_block1"] = block1
        attention_weights[f"decoder_layer{i}_block2"] = block2
    return x, attention_weights


def transformer(params, inp, tar, num_heads):
    """(B, S) and (B, T) ids -> logits (B, T, V) and the decoder's attention weights.

    With `final_layer` None the logits are x E^T without a bias, where E is the decoder's embedding
    (section 3.4).
    """
    enc_blocked, combined_blocked, dec_blocked = create_masks(inp, tar)
    enc_output = encoder(params["encoder"], inp, enc_blocked, num_heads)
    x, attention_weights = decoder(
        params["decoder"], tar, enc_output, combined_blocked, dec_blocked, num_heads
    )
    if params.get("final_layer") is None:
        logits = x @ np.asarray(params["decoder"]["embedding"], dtype=np.float64).T
    else:
        logits = linear(params["final_layer"], x)
    return logits, attention_weights


def greedy_decode(params, inp, start, end, max_len, num_heads):
    """Choose the likeliest next token, recomputing everything at each step.

    Returns int64 ids (B, 1 + n): `start`, then n <= max_len new tokens. A row keeps its `end` and
    is padded with 0 after it; decoding stops once every row has ended.
    """
    inp = np.asarray(inp)
    out = np.full((len(inp), 1), start, dtype=np.int64)
    ended = np.zeros(len(inp), dtype=bool)
    for _ in range(max_len):
        logits, _ = transformer(params, inp, out, num_heads)
        token = np.where(ended, PAD_ID, logits[:, -1].argmax(axis=-1))  # (B,)
        out = np.concatenate([out, token[:, None]], axis=1)
        ended |= token == end
        if ended.all():
            break
    return out


# Training: section 5


def log_softmax(x, axis=-1):
    """x - log(sum(exp(x)))."""
    x = np.asarray(x, dtype=np.float64)
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


def label_smoothed_cross_entropy(labels, logits, epsilon=0.1):
    """-sum_v target_v log p_v, target = (1 - epsilon) onehot + epsilon / V: section 5.4.

    The true class gets its share of the smoothing too. labels (B, T), logits (B, T, V). Returns
    the loss of each token (B, T), 0 at padding, and the mean over the tokens that are not padding.
    """
    labels = np.asarray(labels)
    log_p = log_softmax(logits)
    vocab = log_p.shape[-1]
    target = (1.0 - epsilon) * np.eye(vocab)[labels] + epsilon / vocab  # (B, T, V)
    keep = labels != PAD_ID
    per_token = np.where(keep, -(target * log_p).sum(axis=-1), 0.0)
    return per_token, per_token.sum() / max(keep.sum(), 1)


def weighted_cross_entropy(labels, logits, weights=1.0, ignored=None):
    """-log p_label of labels that count, by the weights of Keras.

    labels (...), logits (..., V), weights that broadcast to the labels. Returns what a loss is,
    divided by the number of labels that count, and what a metric is, by the sum of their weights.
    """
    labels = np.asarray(labels).astype(int)
    keep = labels != ignored
    log_p = log_softmax(logits)
    losses = -np.take_along_axis(log_p, np.where(keep, labels, 0)[..., None], -1)[..., 0]
    weights = np.broadcast_to(np.asarray(weights, np.float64), labels.shape) * keep
    total = np.where(keep, weights * losses, 0.0).sum()
    return total / keep.sum(), total / weights.sum()


def masked_accuracy(labels, logits):
    """Return the share of tokens, without padding, whose likeliest class is the label."""
    labels = np.asarray(labels)
    keep = labels != PAD_ID
    hit = (np.asarray(logits).argmax(axis=-1) == labels) & keep
    return hit.sum() / max(keep.sum(), 1)


def warmup_schedule(step, d_model, warmup_steps=4000):
    """D^-0.5 min(step^-0.5, step warmup^-1.5): equation 3. `step` counts from 1."""
    step = np.asarray(step, dtype=np.float64)
    return d_model**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


def adam_update(param, grad, m, v, step, learning_rate, beta1=0.9, beta2=0.98, eps=1e-9):
    """One step of Adam with the paper's constants (section 5.3); `step` counts from 1.

    Algorithm 1 of https://arxiv.org/abs/1412.6980: eps is added to the root of the corrected
    second moment. Keras adds it before the correction, which at eps = 1e-9 matters only for
    gradients about as small as that. Returns the new param, m and v.
    """
    m = beta1 * m + (1.0 - beta1) * grad
    v = beta2 * v + (1.0 - beta2) * grad**2
    m_hat = m / (1.0 - beta1**step)
    v_hat = v / (1.0 - beta2**step)
    return param - learning_rate * m_hat / (np.sqrt(v_hat) + eps), m, v


def numerical_gradient(f, x, eps=1e-6):
    """(f(x + eps e_i) - f(x - eps e_i)) / (2 eps) for each entry i of x; f returns a scalar."""
    x = np.array(x, dtype=np.float64)  # a copy: the caller's array stays unchanged
    gradient = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        kept = x[index]
        x[index] = kept + eps
        above = f(x)
        x[index] = kept - eps
        below = f(x)
        x[index] = kept
        gradient[index] = (above - below) / (2.0 * eps)
    return gradient
