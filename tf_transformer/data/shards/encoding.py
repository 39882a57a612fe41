"""From the texts of a part to token ids in TFRecord files, in a process of its own.

A record is a `tf.train.Example` with the int64 lists `source` and `target`.
"""

import collections
import functools
import itertools
import json

from tf_transformer.data.replacing import replacing
from tf_transformer.data.split import comparable, uniform
from tf_transformer.tokenizers import Tokenizer

_AT_ONCE = 1024  # pairs tokenized at once
_FRAME = 16  # bytes of a record besides its content


def scan_part(part, path, held_out_share, sample_share):
    """Read a part once: check every line, draw candidates for the held-out sets and a sample."""
    found = {"held_out": [], "sample": []}
    for source, target in part.pairs():
        draw = uniform(comparable(source))
        if draw < held_out_share:
            found["held_out"].append([draw, source, target])
        draw = uniform(f"sample\t{source}\t{target}") if sample_share < 1 else 0.0
        if draw < sample_share:
            found["sample"].append([draw, source, target])
    with replacing(path) as beside:
        beside.write_text(json.dumps(found), "utf-8")


def encode_part(part, path, tokenizer_path, held_out_path, count):
    """Write the ids of a part's pairs to a TFRecord file, sorted by shard."""
    import tensorflow as tf

    tokenizer, held_out = _tokenizer(tokenizer_path), _held_out(held_out_path)
    records = collections.defaultdict(list)
    sizes = collections.defaultdict(collections.Counter)
    pairs = part.pairs()
    while chunk := list(itertools.islice(pairs, _AT_ONCE)):
        kept = [pair for pair in chunk if held_out.isdisjoint(map(comparable, pair))]
        ids = [tokenizer.encode([pair[side] for pair in kept]) for side in (0, 1)]
        for pair, source, target in zip(kept, *ids, strict=True):
            shard = int(uniform("\t".join(pair)) * count)
            records[shard].append(_example(source, target))
            sizes[shard][max(len(source), len(target))] += 1
    index = {}
    with replacing(path) as beside, tf.io.TFRecordWriter(str(beside)) as writer:
        for shard in sorted(records):
            for record in records[shard]:
                writer.write(record)
            index[shard] = {
                "bytes": sum(len(record) + _FRAME for record in records[shard]),
                "pairs": len(records[shard]),
                "sizes": dict(sorted(sizes[shard].items())),
            }
    with replacing(path.with_name(f"{path.name}.json")) as beside:
        beside.write_text(json.dumps(index), "utf-8")


def _example(source, target):
    import tensorflow as tf

    lists = {"source": source, "target": target}
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in lists.items()
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


# A process of the pool encodes many parts.


@functools.cache
def _tokenizer(path):
    return Tokenizer.load(path)


@functools.cache
def _held_out(path):
    return frozenset(json.loads(path.read_text("utf-8")))
