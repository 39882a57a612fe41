"""A trained Transformer of this library, as a plain graph and with XLA."""

import tensorflow as tf

from benchmarks.decoding.peers.batches import batches
from tf_transformer.export import IdTranslator
from tf_transformer.models import Transformer


def variants(case, arrays):
    """Greedy decoding or beam search."""
    model = new_model(case, arrays)
    sources = [tf.constant(batch) for batch in batches(case, arrays)]
    return {
        name: translating(model, case, sources, jit_compile)
        for name, jit_compile in (("tf_transformer", False), ("tf_transformer, XLA", True))
    }


def new_model(case, arrays):
    """A Transformer with the weights in `arrays`."""
    sizes = {k: v for k, v in case["model"].items() if not k.endswith("_id")}
    model = Transformer.from_config(sizes)
    model.build()
    for weight in model.weights:
        weight.assign(arrays[weight.path.split("/", 1)[1]])
    return model


def translating(model, case, sources, jit_compile=False):
    """A function that yields the translations of each batch."""
    translate = translation(model, case, jit_compile)
    return lambda: map(translate, sources)


def translation(model, case, jit_compile=False):
    """A function from ids to translations."""
    translator = IdTranslator(
        model,
        case["model"]["start_id"],
        case["model"]["end_id"],
        beam_size=case["beam"],
        length_penalty=0.0,
        jit_compile=jit_compile,
    )

    def translate(source):
        greedy = case["beam"] == 1
        ids = translator.greedy(source) if greedy else translator.beam(source)[0][:, 0]
        return ids.numpy()

    return translate
