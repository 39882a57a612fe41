"""Products of int8 matrices, with TensorFlow's oneDNN kernel.

Axes: M rows, K width of the input, N width of the output.
"""

import tensorflow as tf
from tensorflow.python.framework import kernels, op_def_library

from tf_transformer.errors import ArgumentError
from tf_transformer.functional.activations import gelu, gelu_tanh
from tf_transformer.functional.tensors import has_accelerator, in_xla_program

LARGEST = 127
# On processors without VNNI oneDNN adds 128 to x and sums pairs of products in 16 bits, which
# saturate: 2 * 255 * 64 still fits.
LARGEST_WEIGHT = 64
_OPERATION = "_QuantizedMatMul"
_FUSED = {gelu: "GeluExact", gelu_tanh: "GeluApproximate", tf.nn.relu: "Relu"}


def int8_product(x, kernel, ranges, bias=None, activation=None, *, most=None, transposed=False):
    """activation(x W + b), x rounded to 8 bits and W, from `to_int8`, to 7, which are stored in 8.

    Jacob et al. 2018, section 2, without zero points. 127 stands for `most` in x, or for the
    largest number of a row, which takes more time. In a graph on a CPU, later changes of a variable
    have no effect: oneDNN packs the kernel at the first call.
    """
    _check_range(kernel)
    dtype, x = x.dtype, tf.cast(x, tf.float32)
    bias = tf.zeros_like(ranges) if bias is None else tf.cast(bias, tf.float32)
    with_onednn = _has_onednn()
    multiply = _by_onednn if with_onednn else _in_float32
    if most is not None:
        x = _rounded_at_once(x, most) if with_onednn else _rounded(x, most)
        return tf.cast(multiply(x, most, kernel, ranges, bias, activation, transposed), dtype)
    # oneDNN compiles an operation for its range, so the ranges of rows are applied afterwards.
    x, rows = to_int8(x, axis=1)
    output = multiply(x, 1.0, kernel, ranges, tf.zeros_like(ranges), None, transposed)
    output = output * tf.expand_dims(rows, 1) + bias
    return tf.cast(output if activation is None else activation(output), dtype)


def to_int8(values, axis, largest=LARGEST):
    """Round a matrix to int8, with a range for each row or column."""
    values = tf.cast(values, tf.float32)
    ranges = tf.reduce_max(tf.abs(values), axis, keepdims=True)
    ranges = tf.where(tf.equal(ranges, 0), 1.0, ranges)  # only zeros; NaN stays NaN
    rounded = tf.cast(tf.round(values * (largest / ranges)), tf.int8)
    return rounded, tf.squeeze(ranges, axis) * (LARGEST / largest)


def _check_range(kernel):
    """Check the kernel during tracing; at each call this would cost as much as a row's product."""
    if tf.executing_eagerly():
        return
    if isinstance(kernel, tf.Variable):
        with tf.init_scope():
            values = kernel.numpy() if tf.executing_eagerly() else None
    else:
        values = tf.get_static_value(kernel)
    largest = 0 if values is None else max(values.max(initial=0), -int(values.min(initial=0)))
    if largest > LARGEST_WEIGHT:
        within = f"integers within -{LARGEST_WEIGHT}..{LARGEST_WEIGHT}"
        expected = f"{within}, whose products are exact on every processor"
        remedy = "Round it with to_int8 and LARGEST_WEIGHT, as compression.quantized does."
        raise ArgumentError("kernel", expected, largest, remedy)


def _rounded(x, most):
    steps = tf.round(x * (LARGEST / most))
    return tf.cast(tf.clip_by_value(steps, -LARGEST, LARGEST), tf.int8)


def _rounded_at_once(x, most):
    """`_rounded` in one operation, which XLA does not have."""
    most = tf.constant(most, tf.float32)
    rounded, _, _ = tf.raw_ops.QuantizeV2(
        input=x, min_range=-most, max_range=most, T=tf.qint8, mode="SCALED", narrow_range=True
    )
    return tf.bitcast(rounded, tf.int8)


def _has_onednn():
    """Whether a graph is being traced for a CPU, and TensorFlow has the operation."""
    if tf.executing_eagerly() or in_xla_program() or has_accelerator():
        return False
    found = kernels.get_registered_kernels_for_op(_OPERATION).kernel
    return any(kernel.device_type == "CPU" for kernel in found)


def _by_onednn(x, most, kernel, ranges, bias, activation, transposed):
    fused = [_FUSED[activation]] if activation in _FUSED else []
    device_outputs, _ = op_def_library.apply_op(
        _OPERATION,
        device_inputs=[tf.bitcast(x, tf.qint8), tf.bitcast(kernel, tf.qint8), bias],
        host_inputs=[tf.constant(-most), tf.constant(most), ranges, ranges],
        Tdevice_outputs=[tf.float32],
        Thost_outputs=[],
        T1=tf.qint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=tf.float32,
        transpose_a=False,
        transpose_b=transposed,
        fused_ops=["BiasAdd", *fused, "Dequantize"],
        is_weight_const=True,
        is_bias_const=True,
        input_quant_mode="SCALED",
        output_quant_mode="SCALED",
        leakyrelu_alpha=0.0,
        name="int8_product",
    )
    output = tf.ensure_shape(device_outputs[0], (x.shape[0], bias.shape[0]))
    return output if fused or activation is None else activation(output)


def _in_float32(x, most, kernel, ranges, bias, activation, transposed):
    x, kernel = (tf.cast(integers, tf.float32) for integers in (x, kernel))
    sums = tf.matmul(x, kernel, transpose_b=transposed)
    output = sums * (ranges * most / LARGEST**2) + bias
    return output if activation is None else activation(output)
