"""What a step costs with several processes: `python -m benchmarks scale`.

Trains the small preset on the English-Chinese corpus with 1, 2 and 4 workers on this machine, one
thread each, with and without the sums of gradients, and times the sum alone. Writes the medians to
results/PROCESSOR/scale.md.
"""

import json
import os
import socket
import statistics
import subprocess
import sys

from benchmarks.harness.report import spread, write_result

COUNTS = (1, 2, 4)
SKIPPED = 5  # steps that are not timed: tracing


def main(parser, arguments):
    """Measure and write."""
    parser.add_argument("--rounds", type=int, default=3, help="all variants in turn")
    parser.add_argument("--steps", type=int, default=40, help="timed steps of a process")
    options = parser.parse_args(arguments)
    found = {(count, mode): [] for count in COUNTS for mode in ("sum", "apart", "alone")}
    for number in range(options.rounds):
        for count, mode in found:
            result = run(count, mode, options.steps)
            found[count, mode].append(result)
            print(f"round {number + 1}: {count} workers, {mode}: {result}", flush=True)
    lines = [
        "| workers | ms for a step | without the sums | the sum alone | hidden | MiB sent |",
        "|---" * 6 + "|",
    ]
    weights = found[1, "sum"][0]["weights"]
    for count in COUNTS:
        step, apart, alone = (
            [result["ms"] for result in found[count, mode]] for mode in ("sum", "apart", "alone")
        )
        sent = 2 * (count - 1) / count * 4 * weights / 2**20
        hidden = "–"
        if count > 1:
            shown = statistics.median(step) - statistics.median(apart)
            hidden = f"{max(0.0, 1 - shown / statistics.median(alone)):.0%}"
        row = f"| {count} | {spread(step, '.0f')} | {spread(apart, '.0f')} "
        lines.append(f"{row}| {spread(alone, '.1f')} | {hidden} | {sent:.1f} |")
    remark = (
        f"The small preset, {weights:,} weights, a batch of {found[1, 'sum'][0]['tokens']:,} "
        f"tokens of the target shared by all workers, one thread each, over loopback. Medians of "
        f"{options.steps} steps of the slowest worker, and their range over {options.rounds} "
        f"rounds. Without the sums: the same processes, which do not wait for each other. Hidden: "
        f"how much of the sum's time the step does not show. Sent: by each worker in a step."
    )
    write_result("scale", "Training with several processes", [remark, "\n".join(lines)], "")


def run(count, mode, steps):
    """Start the processes: the result of the slowest."""
    addresses = [f"localhost:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        task = {"type": "worker", "index": index}
        environment = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        call = [sys.executable, "-m", "benchmarks.training.scale", mode, str(steps)]
        processes.append(subprocess.Popen(call, env=environment, stdout=subprocess.PIPE))
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise SystemExit(f"scale: {count} workers, {mode}: a process failed")
    results = [json.loads(output.splitlines()[-1]) for output in outputs]
    return max(results, key=lambda result: result["ms"])


def free_ports(count):
    """Ports that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def worker(mode, steps):
    """One process: print a line of JSON."""
    import tempfile
    import time

    from tf_transformer.distribution import Workers, own_rows

    task = json.loads(os.environ["TF_CONFIG"])
    place = task["task"]["index"], len(task["cluster"]["worker"])
    workers = Workers.start() if mode != "apart" and place[1] > 1 else Workers(*place)
    import keras
    import tensorflow as tf

    from tf_transformer.data import PairSource
    from tf_transformer.tokenizers import train_subwords
    from tf_transformer.training import InverseSquareRootSchedule, TrainingRun, get_preset

    preset = get_preset("small")
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(folder, PairSource(corpus="en-zh"), preset)
        pairs = run.split.train[:4000]
        tokenizer = train_subwords("bpe", [text for pair in pairs for text in pair], 4000)
        keras.utils.set_random_seed(1)
        model = run.new_model(tokenizer)
        run.compile(model, InverseSquareRootSchedule(preset.d_model, preset.warmup_steps))
        data = own_rows(run.batches(tokenizer, pairs).dataset(), workers)
        times, weights = [], model.count_params()
        if mode == "alone":
            add = tf.function(lambda x: workers.sum([x])[0], autograph=False)
            gradients = tf.zeros(weights)
            work = lambda: add(gradients).numpy()  # noqa: E731
        else:
            batches = iter(data)
            model.make_train_function()
            work = lambda: float(model.train_function(batches)["loss"])  # noqa: E731
        for step in range(steps + SKIPPED):
            start = time.perf_counter()
            work()
            if step >= SKIPPED:
                times.append(1000 * (time.perf_counter() - start))
    ms = statistics.median(times) if workers.count > 1 or mode != "alone" else 0.0
    print(json.dumps({"ms": ms, "weights": weights, "tokens": preset.tokens_per_batch}))


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]))
