"""A dense layer with GELU in float32 and in int8: `python -m benchmarks int8_product`.

Milliseconds in float32, and the time in int8 relative to it: static and dynamic ranges, and Keras's
own quantization. Measured in turn, medians of the rounds' ratios. Writes
results/PROCESSOR/int8_product.md.
"""

import statistics
import time

from benchmarks.harness.report import write_result

SHAPES = [(1, 384, 1536), (16, 384, 1536), (64, 256, 1024), (1024, 384, 1536), (1024, 768, 3072)]


def layers(rows, width, units):
    """Return graph functions by name, all with the same kernel."""
    import keras
    import tensorflow as tf

    from tf_transformer.layers.feed_forwards import FlatDense

    x = tf.random.stateless_normal((rows, width), (1, 2))
    made = {}
    for name in ("float32", "int8, static", "int8, dynamic", "Keras"):
        keras.utils.set_random_seed(0)
        kind = keras.layers.Dense if name == "Keras" else FlatDense
        layer = kind(units, activation="gelu")
        layer.build((None, width))
        if name != "float32":
            layer.quantize("int8")
        if name == "int8, static":
            layer.input_range = 4.0
        made[name] = tf.function(layer.__call__, autograph=False), x
    return made


def main(parser, arguments):
    """Measure and write the table."""
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds")
    options = parser.parse_args(arguments)
    lines = ["| rows, width, units | float32, ms | int8, static | int8, dynamic | Keras |"]
    lines.append("|---|---|---|---|---|")
    for shape in SHAPES:
        made = layers(*shape)
        for function, x in made.values():
            function(x), function(x)
        seconds = {name: [] for name in made}
        for _ in range(options.rounds):
            for name, (function, x) in made.items():
                start = time.perf_counter()
                for _ in range(10):
                    function(x)
                seconds[name].append((time.perf_counter() - start) / 10)
        first, *others = seconds.values()
        cells = [", ".join(map(str, shape)), f"{1000 * statistics.median(first):.2f}"]
        for other in others:
            ratios = [one / plain for one, plain in zip(other, first, strict=True)]
            cells.append(f"{statistics.median(ratios):.2f}")
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    remark = f"Two cores, medians of {options.rounds} rounds of ten calls."
    write_result("int8_product", "A dense layer with GELU in int8", [remark, "\n".join(lines)])
