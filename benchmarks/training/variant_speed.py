"""The cost of a training step with other parts: `python -m benchmarks variant_speed`.

Every variant of `benchmarks/translation/variants.py`, as the small preset, in one process; in each
round all variants in turn. Writes the time of a step, compared with the paper's architecture in the
same round, to results/PROCESSOR/variant_speed.md.
"""

import statistics
import time

from benchmarks.harness.report import spread, write_result
from benchmarks.translation.variants import VARIANTS


def training(parts, settings, batch, length, accumulate=1):
    """Return a function that runs one training step in several parts."""
    import numpy as np
    import tensorflow as tf

    from tf_transformer import (
        Architecture,
        FusedAdam,
        InverseSquareRootSchedule,
        SmoothedCrossentropy,
        Transformer,
    )
    from tf_transformer.training import accumulate_gradients

    vocab = 4000
    sizes = {"num_layers": 2, "d_model": 128, "num_heads": 4, "dff": 512} | settings
    model = Transformer(
        **sizes,
        input_vocab_size=vocab,
        target_vocab_size=vocab,
        pe_input=96,
        pe_target=96,
        share_embeddings=True,
        architecture=Architecture.from_dict(parts),
    )
    model.build()
    optimizer = FusedAdam(InverseSquareRootSchedule(128, 400), 0.9, 0.98, 1e-9)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, SmoothedCrossentropy(), jit_compile=False)
    accumulate_gradients(model, accumulate)
    rng = np.random.default_rng(0)
    source, target, labels = (rng.integers(3, vocab, (batch, length), np.int32) for _ in range(3))
    batches = iter(tf.data.Dataset.from_tensors(((source, target), labels)).repeat())
    model.make_train_function()
    return lambda: model.train_function(batches)


def main(parser, arguments):
    """Time all variants in turn, write the table."""
    parser.add_argument("--rounds", type=int, default=30, help="timed rounds")
    parser.add_argument("--steps", type=int, default=3, help="training steps in a round")
    parser.add_argument("--batch", type=int, default=64, help="pairs in a batch")
    parser.add_argument("--length", type=int, default=16, help="tokens of each side")
    parser.add_argument("--only", nargs="+", help="some variants, by name")
    options = parser.parse_args(arguments)
    names = [name for name in VARIANTS if not options.only or name in options.only]
    steps = {n: training(*VARIANTS[n], options.batch, options.length) for n in names}
    for step in steps.values():  # traces
        step(), step()
    seconds = {name: [] for name in names}
    for _ in range(options.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(options.steps):
                step()
            seconds[name].append((time.perf_counter() - start) / options.steps)
    first = seconds[names[0]]
    lines = [f"| | milliseconds a step | speed / speed of {names[0]} |", "|---|---|---|"]
    for name, values in seconds.items():
        ratios = [one / other for one, other in zip(first, values, strict=True)]
        lines.append(f"| {name} | {1000 * statistics.median(values):.1f} | {spread(ratios)} |")
    remark = (
        f"The small preset, {options.batch} pairs of {options.length} tokens. Medians over the "
        f"rounds, in brackets the range of the ratios within a round."
    )
    setting = "All in one process, in turn."
    title = "Training steps by architecture"
    write_result("variant_speed", title, [remark, "\n".join(lines)], setting)
