"""Two checkouts of this library compared: `python -m benchmarks checkouts FOLDER`.

FOLDER is a checkout of another commit, such as `git worktree add FOLDER COMMIT` makes. One process
for each runs the same calls in turn. Writes the milliseconds there, and the median and quartiles of
the ratios, to results/PROCESSOR/checkouts.md.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness.report import write_result

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPP_MIN_LOG_LEVEL": "3"}
# name: (what it is, calls in a round)
CALLS = {
    "train": ("a training step of 64 pairs of 16 tokens, 2 + 2 layers, width 128", 5),
    "start": ("the first step of `fit`, 2 + 2 layers, each gradient clipped to a norm", 1),
    "decode": ("greedy decoding of 16 sentences with a cache, 30 steps", 3),
    "beams": ("four beams for 16 sentences, 30 steps", 2),
    "int8": ("20 dense layers with GELU in int8, 64 rows, 256 to 1,024 columns", 10),
    "eager": ("the same model, 2 pairs of 7 tokens, called eagerly", 10),
    "bert": ("two layers of BERT-base, 8 x 128 tokens", 3),
    "load": ("`Bert.from_pretrained` of these two layers", 1),
    "translate": ("the included translator, 16 sentences", 2),
    "whole": ("attention, 8 heads of 64, 512 positions, with gradients", 3),
    "rowwise": ("the same by rows, 1,024 positions", 2),
    "blockwise": ("the same by blocks, 1,024 positions", 2),
    "window": ("the same in a window of 64 keys on each side, 2,048 positions", 2),
    "additive": ("additive attention with 64 units, 256 positions, with gradients", 2),
}


def calls():
    """The functions of `CALLS`, each of which waits for its result."""
    return {**models(), **trained_models(), **attentions()}


def models():
    """Calls of a small translation model, and of a dense layer."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tf_transformer import (
        FusedAdam,
        InverseSquareRootSchedule,
        SmoothedCrossentropy,
        Transformer,
    )
    from tf_transformer.generation import beam_search, greedy_decode, repeat_rows
    from tf_transformer.layers import FlatDense

    keras.utils.set_random_seed(0)
    vocab, rng = 4000, np.random.default_rng(0)
    ids = [rng.integers(3, vocab, (64, 16), dtype=np.int32) for _ in range(3)]
    model = Transformer(2, 128, 4, 512, vocab, vocab, 96, 96, share_embeddings=True)
    model.build()
    optimizer = FusedAdam(InverseSquareRootSchedule(128, 400), 0.9, 0.98, 1e-9)
    model.compile(optimizer, SmoothedCrossentropy(), jit_compile=False)
    batches = iter(tf.data.Dataset.from_tensors(((ids[0], ids[1]), ids[2])).repeat())
    model.make_train_function()
    sentences, few = tf.constant(ids[0][:16]), tf.constant(ids[0][:2, :7])
    ends = {"start_id": 1, "end_id": vocab + 1, "max_length": 30}  # no sentence ends early

    @tf.function(autograph=False)
    def greedy(x):
        return greedy_decode(model.step, model.start(x, 30), 16, **ends)

    @tf.function(autograph=False)
    def beams(x):
        state = repeat_rows(model.start(x, 30), 4)
        return beam_search(model.step, state, 16, beam_size=4, **ends)[0]

    def start():
        model = Transformer(2, 128, 4, 512, vocab, vocab, 96, 96)
        optimizer = FusedAdam(InverseSquareRootSchedule(128, 400), clipnorm=1.0)
        model.compile(optimizer, SmoothedCrossentropy(), jit_compile=False)
        return model.fit((few, few), few, verbose=0)

    layer = FlatDense(1024, activation="gelu")
    layer.build((None, 256))
    layer.quantize("int8")
    layer.input_range = 4.0
    dense, x = tf.function(layer.__call__, autograph=False), tf.random.normal((64, 256))
    return {
        "train": lambda: float(model.train_function(batches)["loss"]),
        "start": start,
        "decode": lambda: greedy(sentences).numpy(),
        "beams": lambda: beams(sentences).numpy(),
        "int8": lambda: [dense(x) for _ in range(20)][-1].numpy(),
        "eager": lambda: model((few, few), training=False).numpy(),
    }


def trained_models():
    """Calls of BERT and of the included translator."""
    import numpy as np
    import tensorflow as tf

    from tf_transformer import Translator
    from tf_transformer.bert import Bert, BertConfig
    from tf_transformer.data import load_corpus
    from tf_transformer.export import load_transformer, shipped_model

    folder = tempfile.TemporaryDirectory()  # until the process ends
    model = Bert(BertConfig(num_hidden_layers=2))
    model.build()
    model.save_pretrained(folder.name)
    words = np.random.default_rng(0).integers(1, 30000, (8, 128), dtype=np.int32)
    inputs = {"input_ids": tf.constant(words), "attention_mask": tf.ones((8, 128), tf.int32)}
    encode = tf.function(lambda x: model(x)["sequence_output"], autograph=False)
    translator = Translator(*load_transformer(shipped_model("en-zh")))
    sources = [source for source, _ in load_corpus("en-zh")[:16]]
    return {
        "bert": lambda: encode(inputs).numpy(),
        "load": lambda: Bert.from_pretrained(folder.name).variables[0].numpy(),
        "translate": lambda: translator.translate(sources).numpy(),
    }


def attentions():
    """Calls of attention, forward and backward."""
    import tensorflow as tf

    from tf_transformer import additive_attention, scaled_dot_product_attention

    def normal(*shape):
        return tf.random.stateless_normal(shape, (0, len(shape)))

    def with_gradients(attend, *arguments):
        def both(*arguments):
            with tf.GradientTape() as tape:
                tape.watch(arguments)
                output = attend(*arguments)
            return tape.gradient(output, arguments)

        function = tf.function(both, autograph=False)
        return lambda: function(*arguments)[0].numpy()

    def by_plan(length, **options):
        options.update(return_attention_weights=False, jit=False)
        return with_gradients(
            lambda q, k, v: scaled_dot_product_attention(q, k, v, **options)[0],
            *3 * [normal(1, 8, length, 64)],
        )

    return {
        "whole": by_plan(512, plan="whole"),
        "rowwise": by_plan(1024, plan="rowwise"),
        "blockwise": by_plan(1024, plan="blockwise"),
        "window": by_plan(2048, window=64),
        "additive": with_gradients(
            lambda *x: additive_attention(*x, return_attention_weights=False)[0],
            *3 * [normal(4, 256, 64)],
            *2 * [normal(64, 64)],
            normal(64),
        ),
    }


def work():
    """For each line `NAME COUNT` of the input, print the median milliseconds of the calls."""
    functions = calls()
    for function in functions.values():
        for _ in range(3):
            function()
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        seconds = []
        for _ in range(int(count)):
            start = time.perf_counter()
            functions[name]()
            seconds.append(time.perf_counter() - start)
        print(1000 * statistics.median(seconds), flush=True)


def main(parser, arguments):
    """Run the rounds and write the table."""
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the other checkout")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds")
    options = parser.parse_args(arguments)
    before, after = (started(root) for root in (options.folder.resolve(), ROOT))
    lines = ["| call | ms there | here / there |", "|---|---|---|"]
    for name, (what, count) in CALLS.items():
        there, ratios = [], []
        for _ in range(options.rounds):
            milliseconds = [asked(process, name, count) for process in (before, after)]
            there.append(milliseconds[0])
            ratios.append(milliseconds[1] / milliseconds[0])
        low, middle, high = statistics.quantiles(ratios, n=4)
        cell = f"{middle:.3f} ({low:.3f} to {high:.3f})"
        lines.append(f"| {what} | {statistics.median(there):.1f} | {cell} |")
    for process in (before, after):
        process.communicate()
    commits = [commit(root) for root in (options.folder, ROOT)]
    setting = f"Here: {commits[1]}. There: {commits[0]}. In brackets the quartiles of the rounds."
    write_result("checkouts", "Two checkouts", ["\n".join(lines)], setting)


def started(root):
    """A process that measures the checkout in a folder."""
    if not (root / "tf_transformer").is_dir():
        raise SystemExit(f"FOLDER: expected a checkout with tf_transformer/, got {root}")
    program = f"import runpy; runpy.run_path({__file__!r})['work']()"
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": os.pathsep.join(map(str, (root, ROOT)))}
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=root,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"FOLDER: the library in {root} does not run this benchmark")
    return process


def asked(process, name, count):
    """The milliseconds of a call in a process."""
    process.stdin.write(f"{name} {count}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def commit(root):
    """The short name of the commit of a checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    return done.stdout.strip() or "no commit"
