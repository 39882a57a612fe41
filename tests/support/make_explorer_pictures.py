"""Make the pictures of docs/explorer.md: `python tests/support/make_explorer_pictures.py`.

It needs Chromium, a font with Chinese characters, and the models of `tests/real_weights.txt`.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from real_weights import minilm  # noqa: E402

from benchmarks.harness.chromium import open_page  # noqa: E402
from tf_transformer.export import shipped_model  # noqa: E402
from tf_transformer.visualize import explorer  # noqa: E402

PICTURES = ROOT / "docs" / "images"


def main():
    """Write the pictures."""
    folder = Path(tempfile.mkdtemp())
    text = "The cat sat on the mat because it was tired."
    bert = explorer(minilm(), text, folder / "bert.html")
    with open_page(bert, width=1000, height=620) as page:
        page.prefer("light")
        page.screenshot(PICTURES / "explorer-overview.png")
    with open_page(bert, width=1000, height=510) as page:
        page.prefer("light")
        page.press("2", "l", *"hh")
        page.point("ul:first-of-type li:nth-child(9) button")
        page.screenshot(PICTURES / "explorer-head.png")
        page.point("h1")
        page.press("3", *"tttttttt")
        page.prefer("dark")
        page.screenshot(PICTURES / "explorer-token.png")
    translation = explorer(
        shipped_model("en-zh"), ["He is reading a book.", "他在读一本书。"], folder / "zh.html"
    )
    with open_page(translation, width=1100, height=440) as page:
        page.prefer("light")
        page.press("s", "s", "4", "h", "h", "t", "t")
        page.screenshot(PICTURES / "explorer-layers.png")


if __name__ == "__main__":
    main()
