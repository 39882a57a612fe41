"""Decoding with fewer heads of keys and values: `python -m benchmarks heads`.

Greedy decoding of one model with 8, 2 and 1 heads of keys and values, in one process, in turn.
Writes the time of a step, the size of the caches and the number of weights to
results/PROCESSOR/heads.md.
"""

import statistics
import time

from benchmarks.harness.report import spread, write_result

D_MODEL, HEADS, LAYERS, VOCAB = 512, 8, 2, 1000


def decoder(groups, batch, source, length):
    """`(run, bytes, weights)`: a function that decodes `length` tokens of each sentence."""
    import tensorflow as tf

    from tf_transformer import Architecture, Transformer, greedy_decode

    choice = Architecture(num_key_value_heads=groups)
    model = Transformer(
        LAYERS, D_MODEL, HEADS, 2048, VOCAB, VOCAB, source, length, architecture=choice
    )
    model.build()
    texts = tf.random.stateless_uniform((batch, source), (1, 2), 3, VOCAB, tf.int32)

    @tf.function(autograph=False)
    def run():
        state = model.start(texts, length)
        return greedy_decode(model.step, state, batch, start_id=1, end_id=VOCAB, max_length=length)

    state = model.start(texts, length)
    caches = tf.nest.flatten((state["caches"], state["source"]["memories"]))
    return run, sum(4 * cache.shape.num_elements() for cache in caches), model.count_params()


def main(parser, arguments):
    """Time all in turn, write the table."""
    parser.add_argument("--rounds", type=int, default=7, help="timed rounds")
    parser.add_argument("--batch", type=int, default=32, help="sentences")
    parser.add_argument("--source", type=int, default=64, help="tokens of a source")
    parser.add_argument("--length", type=int, default=256, help="tokens to decode")
    options = parser.parse_args(arguments)
    sizes = options.batch, options.source, options.length
    decoders = {groups: decoder(groups, *sizes) for groups in (8, 2, 1)}
    seconds = {groups: [] for groups in decoders}
    for round_ in range(options.rounds + 1):
        for groups, (run, _, _) in decoders.items():
            start = time.perf_counter()
            run()
            if round_:  # the first one traces
                seconds[groups].append(time.perf_counter() - start)
    lines = [
        "| heads of keys and values | milliseconds a step | time / time of 8 heads | caches, MiB | "
        "weights |",
        "|---|---|---|---|---|",
    ]
    for groups, (_, size, weights) in decoders.items():
        ratios = [one / all_ for one, all_ in zip(seconds[groups], seconds[8], strict=True)]
        step = 1000 * statistics.median(seconds[groups]) / options.length
        lines.append(
            f"| {groups} | {step:.2f} | {spread(ratios)} | {size / 2**20:.1f} | {weights:,} |"
        )
    remark = (
        f"{LAYERS} + {LAYERS} layers, width {D_MODEL}, {HEADS} heads of queries; {options.batch} "
        f"sources of {options.source} tokens, {options.length} tokens decoded greedily. Medians "
        f"over the rounds, in brackets the range of the ratios within a round."
    )
    title = "Decoding with fewer heads of keys and values"
    write_result("heads", title, [remark, "\n".join(lines)], "All in one process, in turn.")
