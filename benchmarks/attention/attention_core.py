"""The attention core as a plain graph and compiled with XLA: `python -m benchmarks attention_core`.

The numbers behind `use_xla`: milliseconds of one forward pass and of one forward and backward pass,
measured in turn: as a plain graph, with the core compiled (`jit=True`), and with the core inside a
function that XLA compiles as a whole. A ratio is the median of the rounds' ratios, above 1 where
XLA is slower. Writes results/PROCESSOR/attention_core.md.
"""

import os
import statistics
import time

from benchmarks.harness.environments import SETTINGS
from benchmarks.harness.report import write_result

# (B, N, T, S, H): training buckets, a decoding step, longer texts, one long text.
SHAPES = [
    (64, 4, 16, 16, 32),
    (21, 4, 48, 48, 32),
    (64, 4, 1, 32, 32),
    (16, 8, 128, 128, 64),
    (4, 8, 512, 512, 64),
    (1, 8, 1024, 1024, 64),
    (32, 12, 128, 128, 64),
    (8, 12, 512, 512, 64),
    (1, 12, 2048, 2048, 64),
]


def functions(jit, whole=False):
    """Forward, and forward with backward; `whole` compiles each with XLA."""
    import tensorflow as tf

    from tf_transformer import scaled_dot_product_attention

    @tf.function(autograph=False, jit_compile=whole)
    def forward(q, k, v, mask):
        return scaled_dot_product_attention(q, k, v, mask, return_attention_weights=False, jit=jit)[
            0
        ]

    @tf.function(autograph=False, jit_compile=whole)
    def both(q, k, v, mask):
        with tf.GradientTape() as tape:
            tape.watch((q, k, v))
            output, _ = scaled_dot_product_attention(
                q, k, v, mask, return_attention_weights=False, jit=jit
            )
        return tape.gradient(output, (q, k, v))

    return forward, both


def seconds(function, arguments, repeats):
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(repeats):
        function(*arguments)
    return (time.perf_counter() - start) / repeats


def main(parser, arguments):
    """Write the table."""
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds")
    rounds = parser.parse_args(arguments).rounds
    os.environ.update({name: os.environ.get(name, SETTINGS[name]) for name in SETTINGS})
    import tensorflow as tf  # after the settings, which it reads once

    variants = functions(False), functions(True), functions("auto", whole=True)
    lines = [
        "| B, N, T, S, H | plain, forward | core / plain | whole / plain "
        "| plain, both | core / plain | whole / plain |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        b, n, t, s, h = shape
        q = tf.random.stateless_normal((b, n, t, h), (0, 1))
        k, v = (tf.random.stateless_normal((b, n, s, h), (0, seed)) for seed in (2, 3))
        mask = tf.cast(tf.random.stateless_uniform((b, 1, 1, s), (0, 4)) > 0.8, tf.float32)
        cells, arguments = [], (q, k, v, mask)
        for plain, *others in zip(*variants, strict=True):
            for one in (plain, *others):
                one(*arguments)
            repeats = max(1, int(0.1 / seconds(plain, arguments, 3)))
            times, ratios = [], []
            for _ in range(rounds):
                times.append(seconds(plain, arguments, repeats))
                ratios.append([seconds(one, arguments, repeats) / times[-1] for one in others])
            cells += [f"{1000 * statistics.median(times):.2f} ms"]
            cells += [f"{statistics.median(column):.2f}" for column in zip(*ratios, strict=True)]
        lines.append(f"| {', '.join(map(str, shape))} | {' | '.join(cells)} |")
    device = tf.config.list_logical_devices()[-1].device_type
    title = "The attention core, plain and with XLA"
    write_result("attention_core", title, ["\n".join(lines)], f"Device: {device}.")
