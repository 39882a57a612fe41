"""Attention scores in float64 NumPy, from the equations of the papers; see reference_numpy.py.

Axes: T target length, S source length, D and D_k widths of queries and keys, U units.
"""

import numpy as np
import reference_numpy as ref


def attend(scores, v, blocked=None):
    """Output (..., T, H_v) and weights (..., T, S); 1 (or True) means BLOCKED."""
    if blocked is not None:
        scores = np.where(np.asarray(blocked) != 0, ref.BLOCKED_SCORE, scores)
    weights = ref.softmax(scores)
    return weights @ np.asarray(v, np.float64), weights


def additive_scores(q, k, query_kernel, key_kernel, score_vector):
    """Each pair on its own: w . tanh(W^T q + U^T k), Bahdanau et al. 2015, appendix A.1.2."""
    q, k, w = (np.asarray(x, np.float64) for x in (q, k, score_vector))
    first, second = (np.asarray(x, np.float64).T for x in (query_kernel, key_kernel))
    scores = np.empty((*q.shape[:-1], k.shape[-2]))
    for place in np.ndindex(scores.shape):
        *lead, t, s = place
        query, key = q[(*lead, t)], k[(*lead, s)]
        scores[place] = w @ np.tanh(first @ query + second @ key)
    return scores


def multiplicative_scores(q, k):
    """q . k, "dot" in Luong et al. 2015, section 3.1."""
    return np.einsum("...th,...sh->...ts", *(np.asarray(x, np.float64) for x in (q, k)))


def bilinear_scores(q, k, kernel):
    """q^T W k, "general" in Luong et al. 2015, section 3.1."""
    q, kernel, k = (np.asarray(x, np.float64) for x in (q, kernel, k))
    return np.einsum("...td,de,...se->...ts", q, kernel, k)


SCORES = {
    "additive": additive_scores,
    "multiplicative": multiplicative_scores,
    "bilinear": bilinear_scores,
}


def attention(name, inputs, blocked=None):
    """Output and weights of `inputs`: q, k, v, and the parameters of the score."""
    q, k, v, *parameters = inputs
    return attend(SCORES[name](q, k, *parameters), v, blocked)


def numeric_gradients(name, inputs, ups, blocked=None, step=1e-6):
    """Central differences of sum(output * ups[0]) + sum(weights * ups[1]), for each input."""

    def total(changed):
        pairs = zip(attention(name, changed, blocked), ups, strict=False)
        return sum((x * up).sum() for x, up in pairs)

    gradients = []
    for which, x in enumerate(inputs):
        gradient = np.empty(x.shape)
        for place in np.ndindex(x.shape):
            moved = [np.array(other, np.float64) for other in inputs]
            moved[which][place] += step
            above = total(moved)
            moved[which][place] -= 2 * step
            gradient[place] = (above - total(moved)) / (2 * step)
        gradients.append(gradient)
    return gradients
