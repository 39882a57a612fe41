"""Build the notebooks from the `.py` files in this folder: `python notebooks/make.py [NAME ...]`.

Runs each `NAME.py` (jupytext's percent format) from top to bottom and stores it with its outputs as
`NAME.ipynb`, then writes the verdicts of all notebooks to CLAIMS.md, and what is wrong in the notes
to ERRATA.md, each with its .zh-CN.md. Edit the `.py`; `tests/test_notebooks.py` fails if anything
is out of sync.
"""

import argparse
import json
import re
from pathlib import Path

import jupytext
import nbformat
from claims import CLAIMS, MIME, OUTCOMES
from nbclient import NotebookClient

FOLDER = Path(__file__).parent


def sources():
    """The text files, in order."""
    return sorted(path for path in FOLDER.glob("[0-9]*.py"))


def run(notebook, folder=FOLDER):
    """Run all cells in place; drop standard error, which is startup noise."""
    NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # changes with every run
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if o.get("name") != "stderr"]
    return notebook


def read(path):
    """The notebook described by a text file, with numbered cell ids."""
    notebook = jupytext.read(path)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # random ids would change in every diff
    return notebook


def verdicts(path):
    """The records of a stored notebook, each with the heading above its cell."""
    found, heading = [], ""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = [heading, *re.findall(r"^#+ (.+)$", cell.source, re.M)][-1]
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                found.append({**output.data[MIME], "notebook": path.stem, "heading": heading})
    return found


def claims_page(records, language):
    """CLAIMS.md, or with language 1 the Chinese CLAIMS.zh-CN.md."""
    by_claim = {record["claim"]: record for record in records}
    counts = [sum(record["outcome"] == outcome for record in records) for outcome in OUTCOMES]
    listed = "{} hold, {} hold under a condition, {} do not hold".format(*counts)
    chinese = "{} 条成立，{} 条有条件地成立，{} 条不成立".format(*counts)
    lines = [
        (
            "# The claims of the notes\n\nEnglish · [中文](CLAIMS.zh-CN.md)\n\n"
            f"Of {len(CLAIMS)} claims {len(by_claim)} have a verdict: {listed}. Each is measured in "
            f"a notebook; brackets hold the smallest and the largest of three seeds, or of what the text "
            f"names. What the notes get wrong: [errata](ERRATA.md). Written by `python notebooks/make.py`."
        ),
        (
            "# 笔记中的论断\n\n[English](CLAIMS.md) · 中文\n\n"
            f"{len(CLAIMS)} 条论断中 {len(by_claim)} 条已有结论：{chinese}。每条都在笔记本里实测；"
            f"方括号内是三个随机种子（或文中所说的几次测量）的最小值与最大值。笔记的错误见[勘误](ERRATA.zh-CN.md)。"
            f"由 `python notebooks/make.py` 生成。"
        ),
    ][language:][:1]
    head = ["number | claim | verdict | measured", "编号 | 论断 | 结论 | 实测"][language]
    section = None
    for number, claim in CLAIMS.items():
        if claim["section"][language] != section:
            section = claim["section"][language]
            lines.append(f"\n## {section}\n\n{head}\n---|---|---|---")
        record = by_claim.get(number)
        if record is None:
            result = "– | –"
        else:
            outcome, text = record["outcome"], record[("english", "chinese")[language]]
            result = f"{(outcome, OUTCOMES[outcome])[language]} | {text} {link(record)}"
        text = claim["claim"][language].replace("|", r"\|")
        lines.append(f"{number} | {text} ({claim['source']}) | {result}")
    return "\n".join(lines) + "\n"


def link(record):
    """A link from a page to the cell's heading."""
    anchor = record["heading"].replace(" ", "-")
    return f"[{record['claim']}]({record['notebook']}.ipynb#{anchor})"


def errata_page(records, language):
    """ERRATA.md, or with language 1 the Chinese ERRATA.zh-CN.md."""
    errata = json.loads((FOLDER / "errata.json").read_text("utf-8"))
    wrong = [record for record in records if record["outcome"] == "does not hold"]
    if missing := {record["claim"] for record in wrong} - set(errata):
        raise SystemExit(f"errata.json: expected what is right, and why, for {sorted(missing)}.")
    head = (
        f"# Errata of the notes\n\nEnglish · [中文](ERRATA.zh-CN.md)\n\n{len(wrong)} of the "
        f"[claims](CLAIMS.md) do not hold. For each: what the notes say, what is right, why, and "
        f"what was measured. Written by `python notebooks/make.py`.",
        f"# 笔记勘误\n\n[English](ERRATA.md) · 中文\n\n[论断](CLAIMS.zh-CN.md)中有 {len(wrong)} 条"
        f"不成立。每条列出笔记的说法、正确的说法、理由和实测结果。由 `python notebooks/make.py` 生成。",
    )
    labels = (("Notes", "Right", "Why", "Measured"), ("笔记", "正确", "理由", "实测"))[language]
    parts = [head[language]]
    for record in sorted(wrong, key=lambda record: list(CLAIMS).index(record["claim"])):
        claim, erratum = CLAIMS[record["claim"]], errata[record["claim"]]
        texts = (
            f"{claim['claim'][language]} ({claim['source']})",
            erratum["right"][language],
            erratum["proof"][language],
            f"{record[('english', 'chinese')[language]]} {link(record)}",
        )
        lines = [f"- **{label}** {text}" for label, text in zip(labels, texts, strict=True)]
        parts.append(f"## {record['claim']}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def pages():
    """The texts of all pages by file name, from the stored notebooks."""
    records = [record for path in sources() for record in verdicts(path.with_suffix(".ipynb"))]
    return {
        f"{name}{ending}": page(records, language)
        for name, page in (("CLAIMS", claims_page), ("ERRATA", errata_page))
        for language, ending in enumerate((".md", ".zh-CN.md"))
    }


def main():
    """Run the requested notebooks, by default all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="01_attention, for example")
    names = parser.parse_args().names
    for path in [FOLDER / f"{name}.py" for name in names] or sources():
        print(path.stem, flush=True)
        nbformat.write(run(read(path)), path.with_suffix(".ipynb"))
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
