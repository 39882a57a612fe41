"""A published model in this library, as a plain graph and, in float32, with XLA."""

import functools

import tensorflow as tf

from benchmarks.decoding.peers.published_tasks import tasks
from tf_transformer import generate, generation_settings, load
from tf_transformer.compression import quantized


def variants(case, arrays):
    """`generate` with the settings of the folder, traced once for each number of beams."""
    with_xla = {"tf_transformer": False}
    if case["type"] == "int8":
        ids = tf.constant(arrays["ids"])
        model = load(case["folder"])
        model = quantized(model, [((ids, ids) if case["translates"] else ids, ids)])
    else:
        model = load(case["folder"], dtype=case["type"])
    if case["type"] == "float32" and case["xla"]:
        with_xla["tf_transformer, XLA"] = True
    found = {}
    for label, jit_compile in with_xla.items():
        found |= tasks(label, case, arrays, _generating(model, case, jit_compile))
    return found


def _generating(model, case, jit_compile):
    count = case["new_tokens"]

    @functools.cache
    def traced(beams):
        lengths = {"max_new_tokens": count, "min_new_tokens": count}
        settings = generation_settings(case["folder"], num_beams=beams, **lengths)
        call = functools.partial(generate, model, **settings, jit_compile=jit_compile)
        return tf.function(call, autograph=False)

    return lambda ids, beams: traced(beams)(tf.constant(ids))[:, -count:].numpy()
