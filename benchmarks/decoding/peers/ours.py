"""A trained Transformer of this library, as a plain graph and with XLA."""

import tensorflow as tf

from benchmarks.decoding.peers.batches import batches
from tf_transformer.export import IdTranslator
from tf_transformer.models import Transformer


def variants(case, arrays):
    """Greedy decoding or beam search."""
    sizes = case["model"]
    model = Transformer.from_config({k: v for k, v in sizes.items() if not k.endswith("_id")})
    model.build()
    for weight in model.weights:
        weight.assign(arrays[weight.path.split("/", 1)[1]])
    sources = [tf.constant(batch) for batch in batches(case, arrays)]
    return {
        name: _translator(model, case, sources, jit_compile)
        for name, jit_compile in (("tf_transformer", False), ("tf_transformer, XLA", True))
    }


def _translator(model, case, sources, jit_compile):
    translator = IdTranslator(
        model,
        case["model"]["start_id"],
        case["model"]["end_id"],
        beam_size=case["beam"],
        length_penalty=0.0,
        jit_compile=jit_compile,
    )

    def translate():
        for source in sources:
            greedy = case["beam"] == 1
            ids = translator.greedy(source) if greedy else translator.beam(source)[0][:, 0]
            yield ids.numpy()

    return translate
