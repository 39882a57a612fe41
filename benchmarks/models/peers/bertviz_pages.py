"""bertviz's pages of the weights in a folder, with its libraries loaded from there."""

import re
import sys
from pathlib import Path

import numpy as np
import torch
from bertviz import head_view, model_view


def main(folder):
    """Write head_view.html and model_view.html."""
    weights = torch.from_numpy(np.load(folder / "weights.npy"))
    attention = [layer[None] for layer in weights]
    tokens = [f"token{n}" for n in range(weights.shape[-1])]
    for view in (head_view, model_view):
        page = view(attention, tokens, html_action="return").data
        page = re.sub(r"https://[^'\"]*/require[^'\"]*", "requirejs.js", page)
        page = re.sub(r"https://[^'\"]*/(d3|jquery)\.min", r"\1", page)
        (folder / f"{view.__name__}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
