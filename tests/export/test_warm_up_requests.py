"""The requests with which TensorFlow Serving warms up a model."""

from pathlib import Path

import pytest
import tensorflow as tf
from tiny_bert import tiny_folder

from tf_transformer import TextEncoder, count_compilations
from tf_transformer.export.compile_for import bucket_lengths, warm_up_texts
from tf_transformer.export.saving import REQUESTS, save_module, write_warm_up_requests

VECTOR = Path(__file__).parents[1] / "vectors" / "warm_up_requests.tfrecord"
BATCHES = [["Hello!"], ["", "中文 " * 99, "a\x00b"]]


def test_the_file_is_that_of_the_classes_of_tensorflow_serving(tmp_path):
    write_warm_up_requests(tmp_path, BATCHES)
    assert (tmp_path / "assets.extra/tf_serving_warmup_requests").read_bytes() == (
        VECTOR.read_bytes()
    )


@pytest.mark.parametrize("longest", [1, 5, 8, 11, 20, 64, 65, 512])
def test_one_text_for_each_short_bucket_and_all_of_them_together(longest):
    *each, together = warm_up_texts(longest)
    assert [[text] for text in together] == each and len(each) <= 4
    for ends in (1, 2):  # tokens around the text
        lengths = [min(len(text.split()) + ends, longest) for text in together]
        buckets = [min(b for b in bucket_lengths(longest) if b >= n) for n in lengths]
        expected = [n for n in (8, 16, 32, 64) if n < longest] + [longest] * (longest <= 64)
        assert buckets == expected


@pytest.mark.slow
def test_after_them_a_text_of_any_warm_length_compiles_nothing(tmp_path):
    encoder = TextEncoder.from_pretrained(tiny_folder(tmp_path / "bert"), jit_compile=True)
    for batch in warm_up_texts(11):
        encoder.encode(batch)
    with count_compilations() as built:
        for words in (1, 6, 7, 30):
            encoder.encode(["good " * words])
    assert built.xla == 0


def test_a_replaced_model_has_the_requests_of_the_new_one(tmp_path):
    save_module(tf.Module(), tmp_path / "model", {}, [["a"], ["b"]])
    save_module(tf.Module(), tmp_path / "model", {}, [["c"]])
    [record] = tf.data.TFRecordDataset(str(tmp_path / "model" / REQUESTS))
    assert b"B\x01c" in record.numpy()
