"""Write tests/vectors/pooled/ with transformers and sentence-transformers on torch, as a reference.

    python tests/vectors/make_pooled_vectors.py

Requires torch, transformers, tokenizers and sentence-transformers; written with torch 2.13.0,
transformers 5.24.0 and sentence-transformers 6.2.0. Stores tiny decoders with a head for classes,
and decoders and encoders of T5 with pooling, with random weights and tokenizers, and what they make
of some texts in float64: logits, with padding on either side, scores of the pipeline, vectors.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from make_text_generation_vectors import MODELS, TEXTS, byte_level, with_bytes
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from tokenizers import processors

FOLDER = Path(__file__).resolve().parent / "pooled"
SENTENCES = [*TEXTS, "a", "in the end, it is an apple on a mat in the sun, a hot day"]
END = "$A </s>"
# Folder -> its model, changes of the config, and the template of its special tokens.
CLASSIFIERS = {
    "gpt2": ("gpt2", {"num_labels": 3}, "$A"),
    "llama": ("llama", {"num_labels": 2, "pad_token_id": 1}, f"<s> {END}"),
    "mistral": (
        "mistral",
        {"num_labels": 1, "pad_token_id": 2, "problem_type": "regression"},
        "<s> $A",
    ),
    "qwen2": (
        "qwen2",
        {
            "id2label": {0: "bad", 1: "好", 2: "so-so", 3: "good"},
            "pad_token_id": 259,
            "problem_type": "multi_label_classification",
        },
        END,
    ),
}
_T5 = {
    **{"d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 7},
    **{"pad_token_id": 0, "decoder_start_token_id": 0},
}
_GATED = {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# Folder -> its model, the side of the padding, the pooling, further modules, the longest text, the
# template.
ENCODERS = {
    "gpt2-mean": ("gpt2", "right", "mean", [], None, "$A"),
    "llama-last": ("llama", "left", "lasttoken", [Normalize()], 9, f"<s> {END}"),
    "mistral-first": ("mistral", "right", "cls", [], 12, "$A"),
    "qwen2-last": ("qwen2", "left", "lasttoken", [Normalize()], None, END),
    "t5-mean": ("t5", "right", "mean", [Dense(12, 7, False), Normalize()], 15, END),
    "t5-gated": ("t5-gated", "right", "mean", [Dense(12, 5)], None, END),
}
T5 = {"t5": ("T5EncoderModel", "T5Config", _T5), "t5-gated": ("T5EncoderModel", "T5Config", _GATED)}


def tokenizer_of(name, template, **settings):
    made = with_bytes() if name == "mistral" else byte_level(name)
    names = ("<s>", "</s>")
    ids = [(token, made.token_to_id(token)) for token in names if token in template]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=ids)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
        **settings,
    )


def model_of(class_name, config_name, sizes):
    torch.manual_seed(9)
    config = getattr(transformers, config_name)(bos_token_id=0, eos_token_id=1, **sizes)
    model = getattr(transformers, class_name)(config).eval()
    for key, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in key or "ln_" in key), std=0.4)
    return model


def write_classifier(folder, name, changes, template):
    class_name, config_name, sizes = MODELS[name]
    tokenizer = tokenizer_of(name, template)
    pad = changes.get("pad_token_id")
    if pad is not None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
    head = class_name.replace("LMHeadModel", "ForCausalLM").replace(
        "CausalLM", "SequenceClassification"
    )
    model = model_of(head, config_name, {"vocab_size": len(tokenizer), **sizes, **changes})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model.double()
    case = {"texts": SENTENCES}
    with torch.no_grad():
        alone = [tokenizer(text, return_tensors="pt") for text in SENTENCES]
        case["logits"] = [model(**inputs).logits[0].tolist() for inputs in alone]
        for side in ("right", "left") if pad is not None else ():
            tokenizer.padding_side = side
            inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
            case[side] = {key: value.tolist() for key, value in inputs.items()}
            case[side]["logits"] = model(**inputs).logits.tolist()
    pipeline = transformers.pipeline("text-classification", model, tokenizer=tokenizer)
    case["answers"] = [pipeline(text, top_k=None) for text in SENTENCES]
    return case


def write_encoder(folder, name, side, pooling, further, longest, template):
    class_name, config_name, sizes = (MODELS | T5)[name]
    tokenizer = tokenizer_of(name, template, padding_side=side)
    tokenizer.pad_token = "</s>"
    class_name = class_name.replace("LMHeadModel", "Model").replace("ForCausalLM", "Model")
    size = len(tokenizer) + 1  # Qwen2's class adds a token
    model = model_of(class_name, config_name, {"vocab_size": size, **sizes})
    model.save_pretrained(folder / "plain")
    tokenizer.save_pretrained(folder / "plain")
    torch.manual_seed(4)
    for module in further:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    first = Transformer(str(folder / "plain"), max_seq_length=longest)
    modules = [first, Pooling(model.config.hidden_size, pooling_mode=pooling), *further]
    encoder = SentenceTransformer(modules=modules, device="cpu")
    encoder.save(str(folder), create_model_card=False)
    shutil.rmtree(folder / "plain")
    encoder.double()
    vectors = encoder.encode(SENTENCES, batch_size=4)
    return {"texts": SENTENCES, "vectors": np.asarray(vectors, np.float64).tolist()}


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    shutil.rmtree(FOLDER, ignore_errors=True)
    for kind, write, rows in (
        ("classifiers", write_classifier, CLASSIFIERS),
        ("encoders", write_encoder, ENCODERS),
    ):
        for name, row in rows.items():
            folder = FOLDER / kind / name
            folder.mkdir(parents=True)
            case = write(folder, *row)
            text = json.dumps(case, ensure_ascii=False)
            (folder / "cases.json").write_text(f"{text}\n", encoding="utf-8")
            print(name, *sorted(path.name for path in folder.rglob("*")))


if __name__ == "__main__":
    main()
