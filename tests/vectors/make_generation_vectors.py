"""Write tests/vectors/generation/ with `generate` of transformers on torch, as a reference.

    python tests/vectors/make_generation_vectors.py

Requires torch and transformers; written with torch 2.13.0 and transformers 5.24.0. Stores settings,
inputs of different lengths, and the tokens that models generate from each input alone, in float64.
Inputs whose tokens depend on small changes of the logits are left out. The models are those of
tests/vectors/published; the weights of the translators, which repeat a single token, are scaled.
"""

import json
import re
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers

VECTORS = Path(__file__).resolve().parent
FOLDER = VECTORS / "generation"
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "marian": "MarianMTModel",
    "bart": "BartForConditionalGeneration",
}
# Patterns of names, and factors, found by trying.
SCALED = {
    "marian": {
        r"decoder.*self_attn\.[qk]_proj\.weight": 3.0,
        r"decoder.*self_attn\.(v|out)_proj\.weight": 2.0,
        r"encoder_attn\.(v|out)_proj\.weight": 0.5,
        r"decoder.*fc[12]\.weight": 3.0,
        r"(proj|fc[12])\.bias|final_logits_bias": 0.5,
        r"norm\.bias": 0.0,
    },
    "bart": {
        r"shared\.weight": 0.3,
        r"decoder.*self_attn\.[qk]_proj\.weight": 3.0,
        r"decoder.*self_attn\.(v|out)_proj\.weight": 2.0,
        r"encoder_attn\.(v|out)_proj\.weight": 0.5,
        r"decoder.*fc[12]\.weight|(proj|fc[12])\.bias": 0.5,
        r"norm.*\.bias|final_logits_bias": 0.0,
        r"decoder\.layers\.2\.final_layer_norm\.weight": -1.0,
    },
}
_BEAMS = {"num_beams": 3, "max_new_tokens": 12}
_MARIAN = {
    "bad_words_ids": [[28]],
    "forced_eos_token_id": "end",
    "renormalize_logits": True,
    "num_beams": 4,
    "max_length": 16,
}
ENDS = {"gpt2": [3, 8, 17], "marian": [2, 8, 25], "bart": [4, 18, 22]}
DECODERS = [
    {"max_new_tokens": 9},
    {"max_length": 15, "min_length": 12, "repetition_penalty": 1.7},
    {"max_new_tokens": 11, "no_repeat_ngram_size": 2, "min_new_tokens": 5},
    {"max_new_tokens": 11, "bad_words_ids": "frequent", "begin_suppress_tokens": "first"},
    {"max_new_tokens": 7, "forced_eos_token_id": "end", "suppress_tokens": "first"},
    {**_BEAMS, "early_stopping": False, "length_penalty": 2.0},
    {**_BEAMS, "early_stopping": True, "length_penalty": 0.4, "num_return_sequences": 3},
    {**_BEAMS, "early_stopping": "never", "length_penalty": 1.5, "num_return_sequences": 2},
    {**_BEAMS, "early_stopping": "never", "length_penalty": -0.7, "num_return_sequences": 3},
    {**_BEAMS, "early_stopping": False, "length_penalty": -1.0, "min_new_tokens": 3},
    {**_BEAMS, "no_repeat_ngram_size": 2, "bad_words_ids": "frequent", "renormalize_logits": True},
    {**_BEAMS, "repetition_penalty": 1.3, "early_stopping": True, "begin_suppress_tokens": "first"},
]
TRANSLATORS = [
    {"max_length": 14, "no_repeat_ngram_size": 3},
    {**_MARIAN},
    {**_MARIAN, "early_stopping": True, "num_return_sequences": 4, "length_penalty": 0.6},
    {**_BEAMS, "forced_bos_token_id": 13, "begin_suppress_tokens": "first", "min_length": 6},
    {**_BEAMS, "repetition_penalty": 1.4, "no_repeat_ngram_size": 1, "early_stopping": "never"},
    {**_BEAMS, "bad_words_ids": "frequent", "suppress_tokens": [4, 6], "num_return_sequences": 2},
    {"max_new_tokens": 8, "forced_bos_token_id": 6, "forced_eos_token_id": 20},
]
CASES = {"gpt2": DECODERS, "marian": TRANSLATORS, "bart": TRANSLATORS}
_EACH, _TRIES = 8, 40


def scale(model, factors):
    """Multiply the weights whose names match."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            for pattern, factor in factors.items():
                if re.search(pattern, name) and "embed_tokens" not in name:
                    tensor.mul_(factor)


class Noise(transformers.LogitsProcessor):
    """Changes logits by less than what may be lost in float32 there and here."""

    def __init__(self, seed):
        self.rng = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids, scores):
        return scores + 1e-4 * torch.rand(scores.shape, generator=self.rng)


def generated(model, ids, settings, seed=None):
    """The tokens of one text, a list for each result, without padding."""
    noise = [] if seed is None else [Noise(seed)]
    ids = torch.tensor([ids])
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), logits_processor=noise, **settings
    )
    return [
        without_padding(row.tolist(), settings, prompt(model, ids[0].tolist())) for row in found
    ]


def prompt(model, ids):
    return 1 if model.config.is_encoder_decoder else len(ids)


def without_padding(row, settings, start):
    ends = [at for at, token in enumerate(row) if at >= start and token in settings["eos_token_id"]]
    return row[: ends[0] + 1] if ends else row


def filled(model, settings, inputs):
    """Settings whose words are those that the model would generate."""
    plain = {name: value for name, value in settings.items() if not isinstance(value, str)}
    plain |= {"early_stopping": settings.get("early_stopping", False)}
    found = [generated(model, ids, plain)[0][prompt(model, ids) :] for ids in inputs]
    pairs = [tuple(row[at : at + 2]) for row in found for at in range(len(row) - 1)]
    ordered = sorted(set(pairs), key=lambda pair: (-pairs.count(pair), pair))[:4]
    first = int("forced_bos_token_id" in settings)
    firsts = sorted({row[first] for row in found} - set(settings["eos_token_id"]))[:3]
    single = next(token for token in range(10, 28) if token not in settings["eos_token_id"])
    values = {
        "frequent": [*map(list, ordered), [single], settings["eos_token_id"][:1]],
        "first": firsts,
        "end": settings["eos_token_id"][0],
    }
    return {
        name: values.get(value, value) if isinstance(value, str) else value
        for name, value in settings.items()
    }


def main():
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    rng, cases = np.random.default_rng(11), []
    for name, rows in CASES.items():
        model = getattr(transformers, CLASSES[name]).from_pretrained(VECTORS / "published" / name)
        if name in SCALED:
            scale(model, SCALED[name])
            model.save_pretrained(FOLDER / name)
            (FOLDER / name / "generation_config.json").unlink()
        model.double().eval()
        model.generation_config = transformers.GenerationConfig()
        for number, row in enumerate(rows):
            settings = {"eos_token_id": ENDS[name][: 1 + number % 3], "do_sample": False, **row}
            settings["pad_token_id"] = 28
            if model.config.is_encoder_decoder:
                settings["decoder_start_token_id"] = model.config.decoder_start_token_id
            inputs = [rng.integers(6, 28, rng.integers(1, 9)).tolist() for _ in range(_TRIES)]
            settings = filled(model, settings, inputs[:12])
            kept = []
            for ids in inputs:
                tokens = generated(model, ids, settings)
                if len(kept) == _EACH or tokens in [other for _, other in kept]:
                    continue
                if all(generated(model, ids, settings, seed) == tokens for seed in range(3)):
                    kept.append((ids, tokens))
            cases.append(
                {
                    "model": name,
                    "settings": settings,
                    "inputs": [ids for ids, _ in kept],
                    "tokens": [tokens for _, tokens in kept],
                }
            )
            lengths = [len(one[0]) for _, one in kept]
            print(name, row, len(kept), lengths, len({tuple(t[0][-3:]) for _, t in kept}))
    print(sum(len(case["inputs"]) for case in cases), "inputs")
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
