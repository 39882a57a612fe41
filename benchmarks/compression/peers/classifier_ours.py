"""A classifier of this library: float32, and int8 with dynamic and static ranges."""

import tensorflow as tf

from benchmarks.compression.peers.classifier_calls import calls, seen_batches
from tf_transformer.compression import quantized
from tf_transformer.models.bert import BertForSequenceClassification

SHAPE = tf.TensorSpec((None, None), tf.int32)


def variants(case, arrays):
    """Graphs for all shapes, as in a SavedModel."""
    model = BertForSequenceClassification.from_pretrained(f"{case['folder']}/model", unpad=True)
    seen = [
        ({"input_ids": ids, "attention_mask": mask}, None) for ids, mask in seen_batches(arrays)
    ]
    models = {
        "tf_transformer": model,
        "tf_transformer, int8, dynamic": quantized(model),
        "tf_transformer, int8, static": quantized(model, seen),
    }
    return {name: _calls(case, arrays, one) for name, one in models.items()}


def _calls(case, arrays, model):
    @tf.function(input_signature=[SHAPE, SHAPE], autograph=False)
    def classify(ids, mask):
        return tf.nn.softmax(model({"input_ids": ids, "attention_mask": mask}, training=False))

    size = sum(weight.numpy().nbytes for weight in model.weights) / 2**20
    return calls(case, arrays, lambda ids, mask: classify(ids, mask).numpy(), size)
