"""Verdicts on the claims of the notes, recorded where they are measured.

`claims.json` lists the claims. A notebook calls `verdict` after each experiment; `make.py` collects
what it recorded and writes CLAIMS.md.
"""

import json
from pathlib import Path

MIME = "application/vnd.tf-transformer.verdict+json"
CLAIMS = {
    claim["id"]: claim
    for claim in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
}
OUTCOMES = {"holds": "成立", "holds when": "有条件地成立", "does not hold": "不成立"}


def trained(name):
    """The results of `train.py NAME`: variant -> measurement -> a list with one number of each seed.

    `trained("heads")["4 of width 16"]["loss"]`, for example.
    """
    return _by_variant(Path(__file__).parent / "trainings" / f"{name}.json")


def variants():
    """The same of the translators that `python -m benchmarks variants` has trained."""
    return _by_variant(Path(__file__).parents[1] / "benchmarks/results/scores/variants.json")


def _by_variant(path):
    results = json.loads(path.read_text("utf-8"))["results"]
    return {
        variant: {key: [one[key] for one in seeds.values()] for key in next(iter(seeds.values()))}
        for variant, seeds in results.items()
        if seeds  # none is finished yet
    }


class Spread(list):
    """Numbers of seeds: formatted as their mean, with the smallest and the largest of several."""

    def __format__(self, form):
        if len(self) == 1:
            return format(self[0], form)
        mean, least, most = (format(x, form) for x in (sum(self) / len(self), min(self), max(self)))
        return f"{mean} [{least}, {most}]"


class verdict:  # called like a function
    """What an experiment says about a claim; the last line of a notebook's cell.

    Args:
        claim: str, "C01" and so on.
        outcome: "holds"; "holds when", under the condition that the texts name; or "does not hold",
            and the texts say what is right.
        english, chinese: str, the reason, with the measured numbers as format fields: "{norm:.2f}".
        values: the numbers by name; a list has one of each seed.

    Raises:
        ValueError: If the claim or the outcome does not exist, or a text leaves a number out.
    """

    def __init__(self, claim, outcome, english, chinese, **values):
        if claim not in CLAIMS:
            raise ValueError(f"claim: expected one of claims.json, got {claim!r}.")
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome: expected one of {', '.join(OUTCOMES)}, got {outcome!r}.")
        for text in (english, chinese):
            missing = [name for name in values if f"{{{name}" not in text]
            if missing or not values:
                raise ValueError(f"{claim}: expected all numbers in {text!r}, missing {missing}.")
        values = {
            name: Spread(map(float, value)) if isinstance(value, list) else _plain(value)
            for name, value in values.items()
        }
        self.record = {
            "claim": claim,
            "outcome": outcome,
            "texts": [english, chinese],
            "english": english.format(**values),
            "chinese": chinese.format(**values),
            "values": values,
        }

    def _repr_mimebundle_(self, **options):
        found = self.record
        claim, outcome = CLAIMS[found["claim"]], found["outcome"]
        lines = [
            f"**{found['claim']}** {claim['claim'][0]} — **{outcome}.** {found['english']}",
            f"{claim['claim'][1]} — **{OUTCOMES[outcome]}。**{found['chinese']}",
        ]
        return {"text/markdown": "\n\n".join(lines), MIME: found}


def _plain(value):
    """A number that JSON can hold."""
    return value if isinstance(value, (bool, int, str)) else float(value)
