"""Verdicts on the claims of the notes, recorded where they are measured.

`claims.json` lists the claims. A notebook calls `verdict` after each experiment; `make.py` collects
what it recorded and writes CLAIMS.md.
"""

import json
import re
from pathlib import Path

RATE = ", rate "  # between the names of an arm and of its learning rate
MIME = "application/vnd.tf-transformer.verdict+json"
CLAIMS = {
    claim["id"]: claim
    for claim in json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
}
OUTCOMES = {
    "holds": "成立",
    "holds when": "有条件地成立",
    "does not hold": "不成立",
    "not decided here": "此处未能判定",
}
# An answer is read in one breath.
_MOST_WORDS, _MOST_CHARACTERS, _MOST_NUMBERS = 20, 45, 2
_MOST_MEASURED = 53  # English words of what was measured, a number with its spread being one
# A condition is named by one of these words, or by how the sentence begins.
_CONDITIONS = (
    re.compile(
        r"\b(if|when|where|while|without|only|once|until|unless|against)\b"
        r"|^(with|in|for|at|on|under|after|against)\b",
        re.IGNORECASE,
    ),
    re.compile("若|如果|只|仅|才|时|除非|需|须|前提|^[对在与就由用]"),
)


def trained(name):
    """The results of `train.py NAME`: variant -> measurement -> a list with one number of each seed.

    `trained("heads")["4 of width 16"]["loss"]`, for example.
    """
    return _by_variant(Path(__file__).parent / "trainings" / f"{name}.json")


def tuned(name):
    """The same of each arm at its best learning rate, which is there as "rate"."""
    found = trained(name)
    losses = {variant: one["loss"][0] for variant, one in found.items() if RATE in variant}
    best = best_rates(losses)
    return {
        arm: {**found[variant], "rate": float(variant.partition(RATE)[2])}
        for arm, variant in best.items()
    }


def best_rates(losses):
    """The best of the variants "ARM, rate 2" of each arm, by arm; other variants by their names.

    Args:
        losses: variant -> the loss of its first seed.
    """
    best = {}
    for variant, loss in losses.items():
        arm = variant.partition(RATE)[0]
        if arm not in best or loss < losses[best[arm]]:
            best[arm] = variant
    return best


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

    mean = property(lambda self: sum(self) / len(self))  # alone: "{loss.mean:.2f}"

    def __format__(self, form):
        if len(self) == 1:
            return format(self[0], form)
        mean, least, most = (format(x, form) for x in (self.mean, min(self), max(self)))
        return f"{mean} [{least}, {most}]"


class verdict:  # called like a function
    """What an experiment says about a claim; the last line of a notebook's cell.

    Args:
        claim: str, "C01" and so on.
        outcome: "holds"; "holds when", under the condition that the answer names; "does not hold",
            and the answer says what is right; or "not decided here", and `measured` says what it
            would take.
        answer: (English, Chinese), one sentence of at most 20 words, or 45 characters, with at most
            two numbers: `"{loss.mean:.2f}"` is the mean alone.
        measured: (English, Chinese), all measured numbers as format fields, with their spread:
            `"{loss:.2f}"`; in English about fifty words.
        values: the numbers by name; a list has one of each seed.

    Raises:
        ValueError: If the claim or the outcome does not exist, a text is too long, an answer names
            no condition, or `measured` leaves a number out.
    """

    def __init__(self, claim, outcome, answer, measured, **values):
        if claim not in CLAIMS:
            raise ValueError(f"claim: expected one of claims.json, got {claim!r}.")
        if outcome not in OUTCOMES:
            raise ValueError(f"outcome: expected one of {', '.join(OUTCOMES)}, got {outcome!r}.")
        for text in measured:
            missing = [name for name in values if f"{{{name}" not in text]
            if missing or not values:
                raise ValueError(f"{claim}: expected all numbers in {text!r}, missing {missing}.")
        if (size := len(measured[0].split())) > _MOST_MEASURED:
            raise ValueError(
                f"{claim}: expected at most {_MOST_MEASURED} words, got {size}: {measured[0]!r}."
            )
        values = {
            name: Spread(map(float, value)) if isinstance(value, list) else _plain(value)
            for name, value in values.items()
        }
        self.record = {
            "claim": claim,
            "outcome": outcome,
            "texts": [list(answer), list(measured)],
            "answer": [text.format(**values) for text in answer],
            "measured": [text.format(**values) for text in measured],
            "values": values,
        }
        _check_answer(self.record)

    def _repr_mimebundle_(self, **options):
        found = self.record
        claim, outcome = CLAIMS[found["claim"]], found["outcome"]
        rows = zip(
            claim["claim"],
            (outcome, OUTCOMES[outcome]),
            found["answer"],
            found["measured"],
            strict=True,
        )
        texts = (f"**{found['claim']}** {c} — **{o}.** {a}\n\n{m}" for c, o, a, m in rows)
        return {"text/markdown": "\n\n".join(texts), MIME: found}


def _check_answer(record):
    """Refuse an answer that is long, full of numbers, or without its condition."""
    claim, (english, chinese) = record["claim"], record["answer"]
    sizes = (len(english.split()), _MOST_WORDS, english), (len(chinese), _MOST_CHARACTERS, chinese)
    for size, most, text in sizes:
        if size > most:
            raise ValueError(
                f"{claim}: expected an answer of at most {most}, got {size}: {text!r}."
            )
    for text, condition in zip(record["answer"], _CONDITIONS, strict=True):
        numbers = re.findall(r"\d[\d,.]*", text)
        if len(numbers) > _MOST_NUMBERS:
            raise ValueError(f"{claim}: expected at most {_MOST_NUMBERS} numbers in {text!r}.")
        first = re.split(r"(?<=[.;:。；])", text)[0]
        if record["outcome"] == "holds when" and not condition.search(first):
            raise ValueError(f"{claim}: expected the condition in {first!r}.")


def _plain(value):
    """A number that JSON can hold."""
    return value if isinstance(value, (bool, int, str)) else float(value)
