"""The model card of an exported translator."""

import json

_LICENCES = {
    "embedded": (
        "Trained on sentence pairs of [Tatoeba](https://tatoeba.org), collected by "
        "manythings.org/anki, CC-BY 2.0 France; the authors of every sentence are named in "
        "`tf_transformer/data/corpora/`. The weights are under Apache-2.0."
    ),
    "own": "Trained on the user's own files; their licence applies.",
}


def model_card(description):
    """Write the model card of an exported translator."""
    source = {key: value for key, value in description["source"].items() if value}
    preset = {k: v for k, v in description["preset"].items() if k != "architecture"}
    preset = ", ".join(f"{key} {value}" for key, value in preset.items())
    parts = description["preset"].get("architecture")
    parts = f"`{json.dumps(parts)}`" if parts else "the paper's"
    pairs = ", ".join(f"{key} {value:,}" for key, value in description["pairs"].items())
    licence = _LICENCES["embedded" if "corpus" in source else "own"]
    licence = f"{licence} {description.get('credit', '')}".strip()
    scores = description["scores"]
    # A bar would end the table cell.
    bleu, chrf = (scores[f"{name}_signature"].replace("|", r"\|") for name in ("bleu", "chrf"))
    return f"""# {description["name"]}

A Transformer translator as a TensorFlow SavedModel: strings in, strings out. It needs
only TensorFlow.

```python
import tensorflow as tf

model = tf.saved_model.load("{description["name"]}")
model.translate(tf.constant(["..."]))
```

| | |
|---|---|
| data | {", ".join(f"{key} {value}" for key, value in source.items())} |
| sentence pairs | {pairs} |
| licence | {licence} |
| weights | {description["weights"]:,} ({description.get("weights_dtype", "float32")}) |
| sizes | {preset} |
| architecture | {parts} |
| BLEU on the whole test split | {scores["bleu"]} ({bleu}) |
| chrF | {scores["chrf"]} ({chrf}) |
| test sentences | {scores["sentences"]:,} |
| made by | tf_transformer {description["version"]}, `{description["command"]}` |

Signatures: `translate` and `serving_default` (`text` string -> `translation` string), greedily;
`translate_beam` (`text` -> `translations`, `scores`); `translate_sample` (`text`, `seed`,
`temperature`, `top_k`, `top_p` -> `translation`); `encode` (`text` -> `ids`, `vectors`); `warm_up`
and `warm_up_beam` (`rows`, `length` -> `programs`), which compile small batches of these sizes with
XLA. A source longer than the model's position table is truncated; unknown characters are read byte
by byte.

It was trained on the sentences above; expect poor translations of other kinds of text, and do not
rely on it where mistakes are costly.
{_judged(description.get("phrases", []))}"""


def _judged(phrases):
    """A section with the phrases and what a reader thought of their translations."""
    if not phrases:
        return ""
    rows = "\n".join(
        f"| {one['text']} | {one['translation']} | {'yes' if one['accepted'] else 'no'} "
        f"| {one['remark']} |"
        for one in phrases
    )
    return f"""
## Everyday phrases

Chosen before training, translated greedily, and judged by reading them. A speaker would accept
{sum(one["accepted"] for one in phrases)} of {len(phrases)} translations.

| text | translation | acceptable | remark |
|---|---|---|---|
{rows}
"""
