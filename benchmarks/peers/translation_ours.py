"""A trained Transformer of this library, as one graph and by XLA."""

import tensorflow as tf

from tf_transformer.export.id_translator import IdTranslator
from tf_transformer.models import Transformer


def variants(case, arrays):
    """Greedy decoding or a beam over the same batches as the peers'."""
    sizes = case["model"]
    model = Transformer.from_config({k: v for k, v in sizes.items() if not k.endswith("_id")})
    model.build()
    for weight in model.weights:
        weight.assign(arrays[weight.path.split("/", 1)[1]])
    source = [
        arrays["source"][i : i + case["batch"]]
        for i in range(0, len(arrays["source"]), case["batch"])
    ]
    batches = [tf.constant(batch[:, : (batch != 0).sum(1).max()]) for batch in source]
    functions = {}
    for name, jit_compile in (("tf_transformer", False), ("tf_transformer, XLA", True)):
        translator = IdTranslator(
            model,
            sizes["start_id"],
            sizes["end_id"],
            beam_size=case["beam"],
            length_penalty=0.0,
            jit_compile=jit_compile,
        )
        functions[name] = _timed(translator, batches, case["beam"])
    return functions


def _timed(translator, batches, beam):
    def translate():
        rows = []
        for batch in batches:
            ids = translator.greedy(batch) if beam == 1 else translator.beam(batch)[0][:, 0]
            rows.append(ids.numpy())
        return [tf.ragged.constant([r[r != 0] for b in rows for r in b]).to_tensor().numpy()]

    return translate
