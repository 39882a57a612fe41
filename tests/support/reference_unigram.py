"""The Unigram model by enumerating every segmentation; for short words only."""

UNKNOWN_PENALTY = 10.0


def best_paths(word, scores, unknown="?", tolerance=1e-12):
    """Return all segmentations of the best score, with runs of unknown characters fused.

    Args:
        word: str.
        scores: dict of token -> log-probability, without the unknown token (0.0).
        unknown: str.
        tolerance: float, allowed difference from the best score.

    Returns:
        list of lists of str.
    """
    unknown_score = min(*scores.values(), 0.0) - UNKNOWN_PENALTY

    def ways(rest):
        if not rest:
            yield 0.0, []
        for length in range(1, len(rest) + 1):
            token = rest[:length]
            if token in scores:
                step = scores[token], token
            elif length == 1:
                step = unknown_score, unknown
            else:
                continue
            for score, tokens in ways(rest[length:]):
                yield step[0] + score, [step[1], *tokens]

    found = list(ways(word))
    best = max(score for score, _ in found)
    return [fused(tokens, unknown) for score, tokens in found if score >= best - tolerance]


def fused(tokens, unknown):
    pairs = zip(tokens, [None, *tokens[:-1]], strict=True)
    return [token for token, before in pairs if not token == before == unknown]
