"""Write tests/vectors/text_generation/ with `generate` of transformers on torch, as a reference.

    python tests/vectors/make_text_generation_vectors.py

Requires torch, transformers and tokenizers; written with torch 2.13.0 and transformers 5.24.0. For
a GPT-2, a Llama, a Mistral and a Qwen2, stores a tiny model with random weights, a tokenizer, and
prompts with their continuations: decoded without special tokens, in float64, also until a stop
string.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

FOLDER = Path(__file__).resolve().parent / "text_generation"
SIZE = 288
TEXTS = ["the cat sat on the mat.", "an apple a day", "é 你好, the end.\n", "in the sun it is hot"]
_LLAMA = {
    **{"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"num_key_value_heads": 1, "intermediate_size": 17, "head_dim": 4},
    **{"max_position_embeddings": 43, "tie_word_embeddings": True},
}
MODELS = {
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 12, "n_layer": 2, "n_head": 2, "n_inner": 17, "n_positions": 43},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LLAMA),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**_LLAMA, "sliding_window": 7}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _LLAMA),
}
SETTINGS = [
    {"max_new_tokens": 24},
    {"max_new_tokens": 17, "repetition_penalty": 1.4},
    {"max_length": 21, "no_repeat_ngram_size": 2},
    {"max_new_tokens": 9, "num_beams": 3},
]
PROMPTS = ["the cat", "a", "é 你", "in the end, it is an apple", "on a day\n"]


QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(name):
    """A byte-level BPE, as GPT-2's; that of Llama 3 adds a start token."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        split = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), last])
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def with_bytes():
    """A BPE of characters with bytes for those that are unknown, as Mistral's and Llama 2's."""
    normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")],
    )
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizer
    trainer = trainers.BpeTrainer(vocab_size=60, show_progress=False)
    learner.train_from_iterator([text.replace("好", "") for text in TEXTS * 3], trainer)
    learned = json.loads(learner.to_str())["model"]
    names = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += sorted(learned["vocab"], key=learned["vocab"].get)
    settings = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    ids = {name: number for number, name in enumerate(names)}
    merges = [tuple(pair) for pair in learned["merges"]]
    tokenizer = Tokenizer(models.BPE(ids, merges, **settings))
    tokenizer.normalizer = normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    return tokenizer


def write_tokenizer(folder, name):
    tokenizer = with_bytes() if name == "mistral" else byte_level(name)
    if name in ("llama", "mistral"):
        tokens = [("<s>", tokenizer.token_to_id("<s>"))]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=tokens
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def continued(model, tokenizer, prompt, settings):
    """The text after the prompt, as the pipeline for text generation cuts it."""
    ids = tokenizer(prompt, return_tensors="pt").input_ids
    options = {"attention_mask": torch.ones_like(ids), "tokenizer": tokenizer}
    found = model.generate(ids, **options, **settings)[0]
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    before = tokenizer.decode(ids[0], **options)
    return tokenizer.decode(found, **options)[len(before) :], len(found) - ids.shape[1]


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    cases = []
    for name, (class_name, config_name, sizes) in MODELS.items():
        torch.manual_seed(9)
        folder = FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        ids = {"bos_token_id": 0, "eos_token_id": 1}
        tokenizer = write_tokenizer(folder, name)
        size = len(tokenizer)
        config = getattr(transformers, config_name)(vocab_size=size, **ids, **sizes)
        model = getattr(transformers, class_name)(config).eval()
        for key, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, mean=float("norm" in key or "ln_" in key), std=0.4)
        # Mostly letters and merged tokens, so that the texts are mostly valid UTF-8.
        known = {number for text in TEXTS for number in tokenizer(text).input_ids}
        known |= set(range(258, size))
        with torch.no_grad():
            table = model.get_input_embeddings().weight
            table[[number for number in range(size) if number not in known]] *= 0.3
        model.save_pretrained(folder)
        model.double()
        for row in SETTINGS:
            settings = {**ids, "pad_token_id": 1, "do_sample": False, **row}
            model.generation_config = transformers.GenerationConfig()
            for prompt in PROMPTS:
                text, count = continued(model, tokenizer, prompt, settings)
                case = {"model": name, "settings": settings, "prompt": prompt}
                cases.append({**case, "stop": [], "text": text, "tokens": count})
                if "num_beams" in row or len(text) < 6:
                    continue
                at = np.random.default_rng(len(cases)).integers(1, len(text) - 3)
                stop = [text[at : at + 2], text[-2:], "never"]
                until, count = continued(
                    model, tokenizer, prompt, {**settings, "stop_strings": stop}
                )
                cut = min(until.index(one) for one in stop if one in until)
                cases.append({**case, "stop": stop, "text": until[:cut], "tokens": count})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (FOLDER / "cases.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(lines)


if __name__ == "__main__":
    main()
