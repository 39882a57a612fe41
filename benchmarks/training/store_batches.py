"""Store batches of the small preset: `python -m benchmarks.training.store_batches FILE.npz COUNT`.

They are the same for all libraries. Runs in the environment of this library.
"""

import sys
import tempfile
from itertools import islice

import numpy as np

from tf_transformer import BPETokenizer, load_corpus, split_pairs
from tf_transformer.data import BucketedBatches
from tf_transformer.training import PRESETS


def main(path, count):
    """Write `count` batches of the first epoch."""
    preset = PRESETS["small"]
    sources, targets = map(list, zip(*split_pairs(load_corpus("en-zh")).train, strict=True))
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        BPETokenizer.train(sources + targets, preset.vocab_size).save(file.name)
        tokenizer = BPETokenizer.load(file.name)
    batches = BucketedBatches(
        tokenizer.encode(sources),
        tokenizer.encode(targets),
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        lengths=preset.lengths,
        tokens_per_batch=preset.tokens_per_batch,
    )
    arrays = {}
    for i, ((source, target_in), target_out) in enumerate(islice(batches.epoch(0), int(count))):
        arrays.update({f"a{i}": source, f"b{i}": target_in, f"c{i}": target_out})
    np.savez(path, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
