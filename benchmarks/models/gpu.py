"""TensorFlow on a GPU: `python -m benchmarks gpu`.

Times training steps of the base Transformer as `fit` takes them, with the optimizer, beside torch;
BERT-base's encoder; and the included translator, greedily and with beams. Needs a GPU that
TensorFlow sees; torch is optional. Writes results/NAME-OF-THE-GPU/gpu.md.
"""

import contextlib
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial

import numpy as np

from benchmarks.harness.report import RESULTS, spread, write_result
from benchmarks.models.stablehlo_step import BASE

BATCH, LENGTH = 128, 64
SENTENCES = 2048
REMARK = """\
Medians of the rounds, in brackets their range; all variants of a table in turn in each round, each
library in a process of its own. A step of training is forward, backward and Adam, dropout 0.1,
label smoothing, no padding; float32 products are TensorFloat-32. torch drops attention weights too.
"""


def step(policy, compiled):
    """A function that takes a step of `fit`: forward, backward and Adam."""
    import keras
    import tensorflow as tf

    from tf_transformer import FusedAdam, SmoothedCrossentropy, Transformer

    keras.utils.set_random_seed(0)
    sizes = [BASE[name] for name in ("layers", "width", "heads", "dff")]
    vocabulary, positions = (BASE["vocab"],) * 2, (BASE["positions"],) * 2
    model = Transformer(*sizes, *vocabulary, *positions, share_embeddings=True, dtype=policy)
    model.build()
    model.compile(FusedAdam(1e-4, 0.9, 0.98, 1e-9), SmoothedCrossentropy(0.1), jit_compile=compiled)
    model.make_train_function()
    source, target, expected = map(tf.constant, ids())
    batches = iter(tf.data.Dataset.from_tensors(((source, target), expected)).repeat())
    return lambda: float(model.train_function(batches)["loss"])


def step_by_torch(autocast, compiled):
    """The same step by torch."""
    import torch

    from benchmarks.training.peers.pytorch import TorchTransformer

    torch.set_float32_matmul_precision("high")  # TensorFloat-32, as TensorFlow's default
    model = TorchTransformer(BASE, 0.1).cuda().train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused=True)
    source, target, expected = (torch.from_numpy(x).long().cuda() for x in ids())

    def loss():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            logits = model.logits(model.decode(target, model.encode(source), source))
        return torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), expected.flatten(), ignore_index=0, label_smoothing=0.1
        )

    function = torch.compile(loss) if compiled else loss

    def step():
        optimizer.zero_grad()
        result = function()
        result.backward()
        optimizer.step()
        return float(result)

    return step


def ids():
    """Source, target and expected ids without padding."""
    rng = np.random.default_rng(0)
    return rng.integers(3, BASE["vocab"], (3, BATCH, LENGTH), np.int32)


def bert(policy, compiled):
    """A function that encodes the rows: our BERT-base."""
    import tensorflow as tf

    from tf_transformer.models.bert import Bert, BertConfig

    model = Bert(BertConfig(), dtype=policy)
    encode = tf.function(
        lambda rows: model({"input_ids": rows})["sequence_output"], jit_compile=compiled
    )
    rows = tf.constant(texts_of_bert())
    return lambda: encode(rows)[0, 0].numpy()


def bert_by_torch(half):
    """The same by torch and transformers."""
    import torch
    from transformers import BertConfig, BertModel

    torch.set_float32_matmul_precision("high")
    model = BertModel(BertConfig(), add_pooling_layer=False).cuda().eval()
    rows = torch.from_numpy(texts_of_bert()).long().cuda()

    def encode():
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=half):
            return model(rows).last_hidden_state[0, 0].float().cpu().numpy()

    return encode


def texts_of_bert():
    """Ids of 64 texts of 128 tokens."""
    return np.random.default_rng(0).integers(1000, 30000, (64, 128), np.int32)


def attention(batch, length, causal, plan):
    """A function that computes attention of 12 heads of 64 in bfloat16, and its gradients."""
    import tensorflow as tf

    from tf_transformer import scaled_dot_product_attention

    @tf.function(jit_compile=True, autograph=False)
    def both(q, k, v):
        with tf.GradientTape() as tape:
            tape.watch([q, k, v])
            output, _ = scaled_dot_product_attention(
                q, k, v, causal=causal, plan=plan, return_attention_weights=False
            )
        return tape.gradient(output, [q, k, v])

    inputs = [tf.cast(x, tf.bfloat16) for x in heads(batch, length)]
    return lambda: both(*inputs)[0][0, 0, 0].numpy()


def attention_by_torch(batch, length, causal):
    """The same by torch's `scaled_dot_product_attention`."""
    import torch

    inputs = [
        torch.from_numpy(x).to("cuda", torch.bfloat16).requires_grad_()
        for x in heads(batch, length)
    ]

    def both():
        output = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=causal)
        gradients = torch.autograd.grad(output, inputs, torch.ones_like(output))
        return gradients[0][0, 0, 0].float().cpu().numpy()

    return both


def heads(batch, length):
    """Queries, keys and values."""
    return np.random.default_rng(0).standard_normal((3, batch, 12, length, 64), np.float32)


def translations(beam, jit):
    """A function that translates the sentences with the included model."""
    from tf_transformer.data import load_corpus, split_pairs
    from tf_transformer.export import Translator, load_transformer, shipped_model
    from tf_transformer.export.translation.translate_texts import translate_texts

    sentences = [source for source, _ in split_pairs(load_corpus("en-zh")).train[:SENTENCES]]
    translator = Translator(*load_transformer(shipped_model("en-zh")), beam_size=4, jit_compile=jit)
    return lambda: translate_texts(translator, sentences, beam=beam, tokens_per_batch=16384)


def ready(title, name):
    """Build a function in this process: the seconds of that and of its first call."""
    start = time.perf_counter()
    RUNNING[name] = PARTS[title][0][name]()
    RUNNING[name]()
    seconds = time.perf_counter() - start
    RUNNING[name](), RUNNING[name]()
    return seconds


def timed(name, calls):
    """Seconds of a call of a function in this process, the median of some."""
    each = []
    for _ in range(calls):
        start = time.perf_counter()
        RUNNING[name]()
        each.append(time.perf_counter() - start)
    return statistics.median(each)


def measured(title, names, rounds):
    """Seconds of a call of each function in each round, and of building it and its first call."""
    with contextlib.ExitStack() as stack:
        homes, first = {}, {}
        for name in names:
            library = name.split(",")[0]
            if library not in homes:
                process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
                homes[library] = stack.enter_context(process)
            try:
                first[name] = homes[library].submit(ready, title, name).result()
                print(f"{name}: ready after {first[name]:.0f} s", flush=True)
            except ImportError as error:
                print(f"{name}: left out, {error}", flush=True)
            except BrokenProcessPool:
                print(f"{name}: its process has ended, {library} is left out", flush=True)
                first = {one: s for one, s in first.items() if not one.startswith(f"{library},")}
        calls = PARTS[title][3]
        seconds = {name: [] for name in first}
        for _ in range(rounds):
            for name, each in seconds.items():
                each.append(homes[name.split(",")[0]].submit(timed, name, calls).result())
    return seconds, first


def attention_part(batch, length, causal):
    """A title, and the row of `PARTS` for it."""
    sizes = batch, length, causal
    plans = ("whole", "fused") if length < 10_000 else ("blockwise", "fused")
    functions = {f"tf_transformer, {plan}": partial(attention, *sizes, plan) for plan in plans}
    functions["torch"] = partial(attention_by_torch, *sizes)
    how = "causal" if causal else "no mask"
    title = f"Attention and its gradients, {batch} x 12 heads x {length:,} x 64, bfloat16, {how}"
    return title, (functions, "calls/s", 1, 10)


RUNNING = {}  # the functions of a process
PARTS = {
    **dict(
        attention_part(batch, length, causal)
        for batch, length in ((4, 1024), (1, 4096), (1, 16384))
        for causal in (False, True)
    ),
    "Training steps of the base Transformer, 128 pairs of 64 tokens": (
        {
            "tf_transformer, float32": partial(step, "float32", False),
            "tf_transformer, float32, XLA": partial(step, "float32", True),
            "tf_transformer, bfloat16": partial(step, "mixed_bfloat16", False),
            "tf_transformer, bfloat16, XLA": partial(step, "mixed_bfloat16", True),
            "torch, float32": partial(step_by_torch, False, False),
            "torch, float32, compiled": partial(step_by_torch, False, True),
            "torch, bfloat16": partial(step_by_torch, True, False),
            "torch, bfloat16, compiled": partial(step_by_torch, True, True),
        },
        "target tokens/s",
        BATCH * LENGTH,
        10,
    ),
    "BERT-base's encoder, 64 texts of 128 tokens": (
        {
            "tf_transformer, float32": partial(bert, "float32", False),
            "tf_transformer, float32, XLA": partial(bert, "float32", True),
            "tf_transformer, bfloat16": partial(bert, "mixed_bfloat16", False),
            "tf_transformer, bfloat16, XLA": partial(bert, "mixed_bfloat16", True),
            "transformers, float32": partial(bert_by_torch, False),
            "transformers, bfloat16": partial(bert_by_torch, True),
        },
        "texts/s",
        64,
        10,
    ),
    f"The included translator, {SENTENCES:,} sentences": (
        {
            "tf_transformer, greedy": partial(translations, False, False),
            "tf_transformer, greedy, XLA": partial(translations, False, True),
            "tf_transformer, beam 4": partial(translations, True, False),
            "tf_transformer, beam 4, XLA": partial(translations, True, True),
        },
        "sentences/s",
        SENTENCES,
        1,
    ),
}


def main(parser, arguments):
    """Measure the parts and write the tables."""
    parser.add_argument("--rounds", type=int, default=5, help="of each part")
    parser.add_argument(
        "--xla", action="store_true", help="also compiled whole, which takes minutes"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # torch needs some memory too
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        parser.error("expected a GPU that TensorFlow sees, got none.")
    name = tf.config.experimental.get_device_details(gpus[0])["device_name"]
    folder = RESULTS / "-".join(name.lower().split()[:2])
    tables = []
    for title, (functions, unit, count, _) in PARTS.items():
        names = [name for name in functions if options.xla or "XLA" not in name]
        seconds, first = measured(title, names, options.rounds)
        lines = [f"## {title}", "", f"| | ms | {unit} | building and first call, s |"]
        lines.append("|---|---|---|---|")
        for variant, each in seconds.items():
            middle = spread([1000 * x for x in each])
            speed = count / statistics.median(each)
            lines.append(f"| {variant} | {middle} | {speed:,.0f} | {first[variant]:.0f} |")
        tables.append("\n".join(lines))
        write_result("gpu", f"TensorFlow on {name}", [REMARK, *tables], "", folder)
