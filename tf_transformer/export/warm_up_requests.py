"""The requests that TensorFlow Serving sends to a model before clients may."""

from pathlib import Path

import tensorflow as tf

from tf_transformer.export.buckets import lengths_of_buckets

# TensorFlow Serving looks for this file in the folder of a SavedModel.
REQUESTS = Path("assets.extra", "tf_serving_warmup_requests")
_LONGEST = 64  # a request of more tokens would delay the start


def warm_up_texts(longest):
    """Batches of texts, one text for each short bucket and all of them together."""
    # Two less: with a token at one end or at both a text is still in the bucket.
    lengths = [length for length in lengths_of_buckets(longest) if length <= _LONGEST]
    texts = [" ".join("a" * max(1, length - 2)) for length in lengths]
    return [*([text] for text in texts), texts]


def write_warm_up_requests(folder, batches):
    """Write requests to `serving_default`, a TFRecord of `tensorflow.serving.PredictionLog`."""
    file = Path(folder) / REQUESTS
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for batch in batches:
            writer.write(_prediction_log(batch))


def _prediction_log(texts):
    # By hand, as its classes are in a package of their own; all of its fields hold bytes.
    # Numbers: tensorflow_serving/apis/{prediction_log,predict,model}.proto
    tensor = tf.make_tensor_proto([text.encode("utf-8") for text in texts])
    entry = _field(1, b"text") + _field(2, tensor.SerializeToString())
    request = _field(1, _field(3, b"serving_default")) + _field(2, entry)
    return _field(6, _field(1, request))


def _field(number, content):
    """A field of a protocol buffer: its number, the length of its content, the content."""
    size, rest = [], len(content)
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    return bytes([number << 3 | 2, *size, rest]) + content
