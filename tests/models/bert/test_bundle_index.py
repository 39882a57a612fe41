"""The index of a TensorFlow checkpoint is read as TensorFlow reads it."""

import tensorflow as tf

from tf_transformer.models.bert.checkpoints.files import read_bundle_index

DTYPES = (tf.float32, tf.bfloat16, tf.float16, tf.int64, tf.bool, tf.complex64, tf.string)


def test_many_variables_in_several_blocks(tmp_path):
    names = [f"bert/encoder/layer_{n}/attention/output/dense/kernel" for n in range(701)]
    tensors = []
    for n in range(len(names)):
        dtype, shape = DTYPES[n % 7], (n % 3, n % 5 + 1)[: n % 4]
        tensors.append(tf.fill(shape, "a") if dtype == tf.string else tf.zeros(shape, dtype))
    prefix = tmp_path / "model.ckpt"
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=tensors,
    )
    assert prefix.with_name("model.ckpt.index").stat().st_size > 2**15
    shapes, dtypes = read_bundle_index(prefix)
    reader = tf.train.load_checkpoint(str(prefix))
    assert shapes == {k: tuple(v) for k, v in reader.get_variable_to_shape_map().items()}
    assert dtypes == {k: v.name for k, v in reader.get_variable_to_dtype_map().items()}
    assert list(shapes.values()) != sorted(shapes.values()) and len(set(dtypes.values())) == 7
