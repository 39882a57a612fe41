"""A published model in transformers on torch, eagerly, as `generate` runs by default."""

import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from benchmarks.decoding.peers.published_tasks import tasks


def variants(case, arrays):
    """`generate` with caches."""
    kind = AutoModelForSeq2SeqLM if case["translates"] else AutoModelForCausalLM
    model = kind.from_pretrained(case["folder"], dtype=getattr(torch, case["type"])).eval()
    return tasks("transformers", case, arrays, generating(model, case))


def generating(model, case):
    """`generate` of a model with the interface of transformers."""
    count = case["new_tokens"]

    @torch.inference_mode()
    def generate(ids, beams):
        ids = torch.from_numpy(ids).long()
        found = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=beams,
            do_sample=False,
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=case["pad_id"],
        )
        return found[:, -count:]

    return generate
