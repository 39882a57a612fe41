"""Build the notebooks from the `.py` files in this folder: `python notebooks/make.py [NAME ...]`.

Runs each `NAME.py` (jupytext's percent format) from top to bottom and stores it with its outputs as
`NAME.ipynb`, then writes the verdicts of all notebooks to CLAIMS.md, the questions that they answer
to INTERVIEW.md, and what is wrong in the notes to ERRATA.md, each with its .zh-CN.md. Edit the
`.py`; `tests/test_notebooks.py` fails if anything is out of sync.
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
IN_A_SENTENCE = {
    "holds when": "holds under a condition",
    "not decided here": "is not decided here",
}
QUESTIONS = json.loads((FOLDER / "questions.json").read_text("utf-8"))


def sources():
    """The text files, in order."""
    return sorted(path for path in FOLDER.glob("[0-9]*.py"))


def run(notebook, folder=FOLDER):
    """Run all cells in place; drop standard error and TensorFlow's log."""
    NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # changes with every run
        if cell.cell_type == "code":
            cell.outputs = [o for o in cell.outputs if not is_log(o)]
    return notebook


def is_log(output):
    """Whether an output is startup noise, or a line of TensorFlow's log."""
    text = output.get("text", "")
    return output.get("name") == "stderr" or text.startswith(("INFO:tensor", "WARNING:tensor"))


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
    listed = "{} hold, {} hold under a condition, {} do not hold, {} could not be decided here"
    chinese = "{} 条成立，{} 条有条件地成立，{} 条不成立，{} 条此处未能判定"
    lines = [
        (
            "# The claims of the notes\n\nEnglish · [中文](CLAIMS.zh-CN.md)\n\n"
            f"Of {len(CLAIMS)} claims {listed.format(*counts)}. The numbers unfold below each answer, "
            "with a link to the experiment; brackets hold the smallest and the largest of three seeds, "
            "or of what the text names. N0 to N4 are the five notes; behind each stands the section. By "
            "question: [interview](INTERVIEW.md). What the notes get wrong: [errata](ERRATA.md). Written "
            "by `python notebooks/make.py`."
        ),
        (
            "# 笔记中的论断\n\n[English](CLAIMS.md) · 中文\n\n"
            f"{len(CLAIMS)} 条论断中，{chinese.format(*counts)}。每条结论下可以展开实测数字，并附实验链接；"
            "方括号内是三个随机种子（或文中所说的几次测量）的最小值与最大值。N0 至 N4 是五篇笔记，其后是小节名。"
            "按问题查看：[面试题](INTERVIEW.zh-CN.md)。"
            "笔记的错误见[勘误](ERRATA.zh-CN.md)。由 `python notebooks/make.py` 生成。"
        ),
    ][language:][:1]
    head = [
        "number | claim | verdict | in an interview",
        "编号 | 论断 | 结论 | 面试这样答",
    ][language]
    section = None
    for number, claim in CLAIMS.items():
        if claim["section"][language] != section:
            section = claim["section"][language]
            lines.append(f"\n## {section}\n\n{head}\n---|---|---|---")
        record = by_claim[number]
        texts = claim["claim"] if language == 0 else claim["claim"][1:]
        where = (" ({}, {})", "（{}，{}）")[language].format(claim["source"], claim["place"])
        claimed = f"{'<br>'.join(texts)}{where}"
        outcome = (record["outcome"], OUTCOMES[record["outcome"]])[language]
        row = (number, claimed, answered(record, outcome, language), claim["interview"][language])
        lines.append(" | ".join(text.replace("|", r"\|") for text in row))
    return "\n".join(lines) + "\n"


def answered(record, outcome, language):
    """A verdict and its answer; the measurement unfolds below."""
    summary = ("measured", "实测")[language]
    measured = f"{record['measured'][language]} {link(record)}"
    details = f"<details><summary>{summary}</summary>{measured}</details>"
    colon = (": ", "：")[language]
    return f"**{outcome}**{colon}{record['answer'][language]}{details}"


def interview_page(records, language):
    """INTERVIEW.md: the questions of the notes, each answered by its claims."""
    by_claim = {record["claim"]: record for record in records}
    claims = ("CLAIMS.md", "CLAIMS.zh-CN.md")[language]
    lines = [
        (
            "# Interview questions\n\nEnglish · [中文](INTERVIEW.zh-CN.md)\n\n"
            f"The {len(QUESTIONS)} questions that the notes ask, answered in a sentence or two by what "
            f"was [measured]({claims}). Written by `python notebooks/make.py`."
        ),
        (
            "# 面试题\n\n[English](INTERVIEW.md) · 中文\n\n"
            f"笔记里的 {len(QUESTIONS)} 个问题，每个用一两句话回答，依据是[实测]({claims})。"
            "由 `python notebooks/make.py` 生成。"
        ),
    ][language:][:1]
    section = None
    for asked in QUESTIONS:
        if asked["section"][language] != section:
            section = asked["section"][language]
            lines.append(f"\n## {section}")
        lines.append(f"\n### {asked['question'][language]}\n")
        for number in asked["claims"]:
            outcome = by_claim[number]["outcome"]
            outcome = (IN_A_SENTENCE.get(outcome, outcome), OUTCOMES[outcome])[language]
            answer = CLAIMS[number]["interview"][language]
            claim = ("(the notes' claim {} {})", "（笔记的论断 {}：{}）")[language].format(
                link(by_claim[number]), outcome
            )
            lines.append(f"- {answer}{' ' * (1 - language)}{claim}")
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
            claim["claim"][language] + (" ({})", "（{}）")[language].format(claim["source"]),
            erratum["right"][language],
            erratum["proof"][language],
            f"{record['measured'][language]} {link(record)}",
        )
        lines = [f"- **{label}** {text}" for label, text in zip(labels, texts, strict=True)]
        parts.append(f"## {record['claim']}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


PAGES = {"CLAIMS": claims_page, "INTERVIEW": interview_page, "ERRATA": errata_page}


def pages():
    """The texts of all pages by file name, from the stored notebooks."""
    records = [record for path in sources() for record in verdicts(path.with_suffix(".ipynb"))]
    return {
        f"{name}{ending}": page(records, language)
        for name, page in PAGES.items()
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
