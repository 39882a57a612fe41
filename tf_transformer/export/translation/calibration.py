"""Batches that show what goes into the layers of a translator."""

from tf_transformer.data import BucketedBatches


def calibration_batches(tokenizer, pairs, most=512):
    """Batches of training pairs, from which int8 weights learn the ranges of activations."""
    sides = zip(*pairs[:most], strict=True)
    sides = [tokenizer.encode_strings(list(side)).to_list() for side in sides]
    longest = max(len(row) for side in sides for row in side) + 1
    ends = {"start_id": tokenizer.start_id, "end_id": tokenizer.end_id}
    lengths = (*range(8, longest, 8), longest)
    return list(BucketedBatches(*sides, lengths=lengths, tokens_per_batch=1024, **ends).epoch(0))
