"""Parts of the architecture compared: `python -m benchmarks variants FOLDER`.

Trains each variant of the paper's model with the settings of the small preset, the same budget and
three seeds on the English-Chinese corpus, without its test split, and scores it on pairs held out
from training: those as long as the ones trained on, and longer ones. Two trainings run at once, one
core each.

Resumable: the same command resumes where it stopped. results/scores/variants.json keeps the result
of every finished training, FOLDER the trainings in progress. Writes variants.md and variants.png
beside it, of the variants whose seeds are all finished.
"""

import concurrent.futures
import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.report import SCORES, write_result
from benchmarks.translation.train_variant import LONGEST
from tf_transformer.data.files import replacing

# name: (parts in which it differs from the paper, settings of the preset)
TWO_THIRDS = 342  # of dff: three matrices instead of two
VARIANTS = {
    "sinusoidal, post-norm (the paper)": ({}, {}),
    "no positions": ({"positions": {"part": "NoPositions"}}, {}),
    "learned positions": ({"positions": {"part": "LearnedPositions", "max_position": 96}}, {}),
    "Shaw": ({"positions": {"part": "ShawPositions", "max_distance": 16}}, {}),
    "T5 buckets": ({"positions": {"part": "T5Positions"}}, {}),
    "ALiBi": ({"positions": {"part": "AlibiPositions"}}, {}),
    "rotary": ({"positions": {"part": "RotaryPositions"}}, {}),
    "pre-norm": ({"residual": {"part": "PreNorm"}}, {}),
    "no residual": ({"residual": {"part": "NoResidual"}}, {}),
    "RMS norm": ({"norm": {"part": "RMSNorm"}}, {}),
    "batch norm": ({"norm": {"part": "BatchNorm"}}, {}),
    "batch norm over padding too": ({"norm": {"part": "NaiveBatchNorm"}}, {}),
    "GELU": ({"feed_forward": {"part": "FeedForward", "activation": "gelu"}}, {}),
    "SwiGLU": (
        {"feed_forward": {"part": "GatedFeedForward", "activation": "silu"}},
        {"dff": TWO_THIRDS},
    ),
    "GEGLU": (
        {"feed_forward": {"part": "GatedFeedForward", "activation": "gelu"}},
        {"dff": TWO_THIRDS},
    ),
    "Macaron": ({"feed_forward": {"part": "MacaronFeedForward"}}, {"dff": 256}),
    "2 heads of keys and values": ({"num_key_value_heads": 2}, {}),
    "1 head of keys and values": ({"num_key_value_heads": 1}, {}),
    "queries = keys": ({"share_qk": True}, {}),
    "window of 4": ({"window": 4}, {}),
    "8 heads of width 32": ({"key_dim": 32}, {"num_heads": 8}),
}
DEPTHS = {
    f"{name}, {depth} layers": ({"residual": {"part": part}}, {"num_layers": depth, "d_model": 64})
    for depth in (2, 6, 12)
    for name, part in (("post-norm", "PostNorm"), ("pre-norm", "PreNorm"))
}
LENGTHS = (6, 8, 10, 12, 48)  # training sees up to 12 (LONGEST); the rest is only scored


KEPT = SCORES / "variants.json"


def trained(folder, name, seed, budget):
    """Return the result of one training, started or resumed in its own folder."""
    parts, settings = {**VARIANTS, **DEPTHS}[name]
    words = "".join(c if c.isalnum() else "-" for c in name)
    path = Path(folder) / f"{words}-{seed}"
    preset = {"lengths": LENGTHS, "dff": 512, **settings, **budget}
    preset |= {"seed": seed, "architecture": parts, "short_repeats": 1}
    program = "benchmarks.translation.train_variant"
    subprocess.run([sys.executable, "-m", program, str(path), json.dumps(preset)], check=True)
    return json.loads((path / "result.json").read_text("utf-8"))


def read_kept(budget):
    """The results of finished trainings: variant -> seed -> result."""
    if not KEPT.is_file():
        return {}
    kept = json.loads(KEPT.read_text("utf-8"))
    if kept["budget"] != budget:
        raise SystemExit(
            f"--preset, --epochs: expected those of {KEPT}, {kept['budget']}, got {budget}. "
            "Remove that file to begin again."
        )
    return kept["results"]


def train_missing(folder, names, seeds, budget, at_once):
    """Train variants without a result, some in parallel; save each result when it is ready."""
    results = read_kept(budget)
    with concurrent.futures.ThreadPoolExecutor(at_once) as trainings:
        submitted = {
            trainings.submit(trained, folder, name, seed, budget): (name, str(seed))
            for seed in seeds
            for name in names
            if str(seed) not in results.get(name, {})
        }
        for done in concurrent.futures.as_completed(submitted):
            name, seed = submitted[done]
            results.setdefault(name, {})[seed] = done.result()
            print(f"{name}, seed {seed}: BLEU {results[name][seed]['bleu']:.2f}", flush=True)
            kept = {"budget": budget, "results": results}
            with replacing(KEPT) as beside:
                beside.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return results


def mean_and_range(values):
    """Like "29.10 (28.99 to 29.21)", or "29.10" for one value."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(results):
    """Markdown: one line for each variant; means over the seeds, and their range."""
    columns = ("bleu", "2x_bleu", "4x_bleu", "loss", "2x_loss", "4x_loss")
    lines = [
        "| variant | BLEU | 2x | 4x | loss | 2x | 4x | weights | tokens/s | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, seeds in results.items():
        scores = [mean_and_range([seed[key] for seed in seeds]) for key in columns]
        first = seeds[0]  # the others may have been trained on another machine
        sizes = [f"{first[key]:,.0f}" for key in ("weights", "tokens_per_second", "peak_mib")]
        cells = [name, *scores, *sizes]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(results, path):
    """BLEU of each variant and seed, the best mean on top."""
    import matplotlib.pyplot as plt

    means = {name: statistics.mean(s["bleu"] for s in seeds) for name, seeds in results.items()}
    names = sorted(means, key=means.get)
    _, axes = plt.subplots(figsize=(7, 0.3 * len(names) + 1), layout="constrained")
    for key, mark, label in (
        ("bleu", "o", "as long as in training"),
        ("2x_bleu", "x", "up to twice as long"),
        ("4x_bleu", "+", "up to four times as long"),
    ):
        points = [(seed[key], name) for name in names for seed in results[name]]
        axes.plot(*zip(*points, strict=True), mark, label=label)
    axes.set_xlabel("BLEU on held-out pairs, one mark for each seed")
    axes.legend()
    plt.savefig(path)


def main(parser, arguments):
    """Train what is missing, write the tables."""
    parser.add_argument("folder", help="for the trainings in progress")
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each variant")
    parser.add_argument("--only", nargs="+", help="some variants, by name")
    parser.add_argument("--preset", default="small", help="to change")
    parser.add_argument("--epochs", type=int, default=10, help="instead of the preset's")
    parser.add_argument("--at-once", type=int, default=2, help="trainings, one core each")
    options = parser.parse_args(arguments)
    names = options.only or [*VARIANTS, *DEPTHS]
    unknown = set(names) - {*VARIANTS, *DEPTHS}
    if unknown:
        parser.error(f"--only: expected names of {[*VARIANTS, *DEPTHS]}, got {sorted(unknown)}")
    budget = {"preset": options.preset, "epochs": options.epochs}
    seeds = range(1, options.seeds + 1)
    results = train_missing(options.folder, names, seeds, budget, options.at_once)
    whole = {name: [*some.values()] for name, some in results.items() if len(some) >= len(seeds)}
    tables = []
    for title, variants in (("Parts", VARIANTS), ("Depth", DEPTHS)):
        found = {name: whole[name] for name in variants if name in whole}
        if found:
            tables += [f"## {title}", table(found)]
        if found and variants is VARIANTS:
            draw(found, SCORES / "variants.png")
            tables.append("![BLEU of each variant and seed](variants.png)")
    remark = (
        f"The paper's model with the settings of the {options.preset} preset and "
        f"{options.epochs} epochs, trained on pairs of at most "
        f"{LONGEST} tokens, everything else the same; seeds: {options.seeds}. Scores on held-out "
        f"pairs (mean of the seeds and their range), decoded greedily. 2x: pairs of {LONGEST + 1} "
        f"to {2 * LONGEST} tokens. 4x: three to five held-out pairs in one text, of "
        f"{2 * LONGEST + 1} to {4 * LONGEST} "
        f"tokens. Loss is nats per token with the right tokens before it. Tokens per second are "
        f"those of the target in the fastest epoch of seed 1, on one core, next to another "
        f"training; seeds may have been trained on different processors."
    )
    write_result("variants", "Parts of the architecture", [remark, *tables], "", SCORES)
