"""Write `warm_up_requests.tfrecord` with the classes of TensorFlow Serving.

`python tests/vectors/make_warm_up_requests.py`, where `pip install tensorflow-serving-api` was run.
"""

from pathlib import Path

import tensorflow as tf
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

BATCHES = [["Hello!"], ["", "中文 " * 99, "a\x00b"]]

if __name__ == "__main__":
    file = Path(__file__).with_name("warm_up_requests.tfrecord")
    with tf.io.TFRecordWriter(str(file)) as writer:
        for texts in BATCHES:
            log = PredictionLog()
            request = log.predict_log.request
            request.model_spec.signature_name = "serving_default"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts))
            writer.write(log.SerializeToString(deterministic=True))
