"""The base of the BERT models that run by LiteRT."""

import numpy as np

from tf_transformer.errors import ArgumentError
from tf_transformer.litert.lite_model import LiteModel, padded

BATCH = 16  # texts of similar length at once


class LiteBert(LiteModel):
    """A BERT model in LiteRT's format, with one function of texts."""

    def run(self, texts):
        """Run the model on texts, in batches of similar length."""
        facts = self.description
        most = facts["max_length"]
        rows = self.rows(texts, most - 2)
        if not rows:
            raise ArgumentError("texts", "at least one text", "none")
        rows = [[facts["cls_id"], *ids, facts["sep_id"]] for ids in rows]
        order = sorted(range(len(rows)), key=lambda n: len(rows[n]))
        results = [None] * len(rows)
        [function] = self.functions.values()
        for start in range(0, len(rows), BATCH):
            places = order[start : start + BATCH]
            ids, mask = padded([rows[n] for n in places], facts["pad_id"])
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
            inputs = {name: array[:, :most] for name, array in inputs.items()}
            [found] = function(**inputs).values()
            for n, row in zip(places, found, strict=True):
                results[n] = row
        return np.stack(results)
