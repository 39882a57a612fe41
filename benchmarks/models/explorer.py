"""Pages of attention, compared with bertviz: `python -m benchmarks explorer`.

Random attention in the shape of BERT-base, 12 layers of 12 heads of width 64. The size of the file,
and the time headless Chromium takes from opening it until it is drawn, in turn. bertviz's pages
load d3, jQuery and require.js from the network; here they load them from the disk, which takes less
time. Needs Chromium and npm. Writes results/PROCESSOR/explorer.md.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness.chromium import find_chromium, open_page
from benchmarks.harness.environments import run
from benchmarks.harness.report import spread, write_result

LAYERS, HEADS, WIDTH = 12, 12, 64
SCRIPTS = {
    "d3@5.7.0": "dist/d3.min.js",
    "jquery@2.1.0": "dist/jquery.min.js",
    "requirejs@2.3.6": "require.js",
}
# What a page has once it is drawn.
DRAWN = {"explorer": "[role=gridcell]", "head_view": "svg line", "model_view": "svg line"}


def arrays(tokens):
    """Queries and keys (L, N, T, H) and their weights (L, N, T, T), float32."""
    import numpy as np

    rng = np.random.default_rng(1)
    shape = (LAYERS, HEADS, tokens, WIDTH)
    queries, keys = (rng.standard_normal(shape, np.float32) for _ in range(2))
    scores = np.exp(2 * queries @ np.swapaxes(keys, 2, 3) / np.sqrt(WIDTH))
    weights = scores / scores.sum(-1, keepdims=True)
    return queries, keys, weights.astype(np.float32)


def write_own(path, queries, keys, weights):
    """Write the explorer's page."""
    from tf_transformer.functional.attention.scaled_dot_product import RecordedAttention
    from tf_transformer.visualize.attention import AttentionStack, explorer_page

    labels = [f"token{n}" for n in range(weights.shape[-1])]
    layers = [RecordedAttention(*layer) for layer in zip(queries, keys, weights, strict=True)]
    stack = AttentionStack("encoder", labels, labels, layers)
    path.write_text(explorer_page([stack], "random"), encoding="utf-8")


def fetch_scripts(folder):
    """Put the libraries that bertviz's pages load into `folder`."""
    for name, file in SCRIPTS.items():
        packed = subprocess.run(
            ["npm", "pack", "--silent", name],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        shutil.unpack_archive(folder / packed.stdout.strip(), folder / "unpacked")
        shutil.copy(folder / "unpacked" / "package" / file, folder / f"{name.split('@')[0]}.js")


def opened(file, mark):
    """Seconds from the navigation to a page until it is drawn, by the page's own clock."""
    script = f"""new Promise(done => {{
        const look = () => document.querySelector("{mark}")
            ? requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000)))
            : setTimeout(look, 1);
        look(); }})"""
    with open_page(file) as page:
        return page.js(script)


def table(tokens, rounds):
    """Markdown: the pages for one number of tokens."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        content = arrays(tokens)
        write_own(folder / "explorer.html", *content)
        np.save(folder / "weights.npy", content[-1])
        run("bertviz", "benchmarks.models.peers.bertviz_pages", str(folder))
        fetch_scripts(folder)
        times = {name: [] for name in DRAWN}
        for _ in range(rounds):
            for name, mark in DRAWN.items():
                times[name].append(opened(folder / f"{name}.html", mark))
        lines = ["| | MB | seconds to open |", "|---|---|---|"]
        for name, seconds in times.items():
            label = "tf_transformer" if name == "explorer" else f"bertviz, {name}"
            size = (folder / f"{name}.html").stat().st_size / 1e6
            lines.append(f"| {label} | {size:.1f} | {spread(seconds)} |")
    return "\n".join(lines)


def main(parser, arguments):
    """Write the tables."""
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds")
    parser.add_argument("--tokens", type=int, nargs="+", default=[64], help="lengths")
    options = parser.parse_args(arguments)
    if find_chromium() is None or shutil.which("npm") is None:
        parser.error("expected chromium and npm on the PATH")
    parts = [f"## {n} tokens\n\n{table(n, options.rounds)}" for n in options.tokens]
    note = "Medians of the rounds, with the smallest and the largest."
    write_result("explorer", "Pages of attention", parts, note)
