"""Every benchmark: what `python -m benchmarks` lists, and what `all` runs."""

import importlib
from dataclasses import dataclass

PRETRAINED = "a folder with all-MiniLM-L6-v2"
MULTI30K = "DATA, Multi30k's .gz files"


@dataclass(frozen=True)
class Benchmark:
    """A line of the list; the program is `benchmarks/SUBJECT/NAME.py`.

    Attributes:
        subject, name: str.
        summary: str, one line.
        time: str, approximate, on two cores.
        needs: str, what the user must provide; "" for a benchmark that `all` runs.
        peers: tuple of libraries from `harness/environments.py`, installed at the first run.
        results: tuple of str, the files in the folders of `results/` without their endings.
        calls: tuple of options, one for each call by `all`.
        rounds: whether there is an option `--rounds`.
    """

    subject: str
    name: str
    summary: str
    time: str
    needs: str = ""
    peers: tuple = ()
    results: tuple = ()
    calls: tuple = ((),)
    rounds: bool = True

    def load(self):
        """Import the module, whose `main(parser, arguments)` runs the benchmark."""
        return importlib.import_module(f"benchmarks.{self.subject}.{self.name}")


OURS, HUB, TORCH, HF = "tf_transformer", "keras-hub", "torch", "huggingface"
BERTVIZ = "bertviz"
BENCHMARKS = [
    Benchmark(
        "attention",
        "attention",
        "attention core: time and memory by length, compared with TensorFlow, Keras, torch",
        "30 min",
        peers=(OURS, TORCH),
        results=("attention-float32", "attention-bfloat16"),
        calls=((), ("--dtype", "bfloat16", "--longest", "2048")),
    ),
    Benchmark(
        "attention",
        "attention_core",
        "attention core: plain graph compared with XLA",
        "2 min",
        results=("attention_core",),
    ),
    Benchmark(
        "attention",
        "core_variants",
        "rotary, ALiBi, grouped heads, window, compared with keras-hub and torch",
        "3 min",
        peers=(OURS, HUB, TORCH),
        results=("core_variants",),
    ),
    Benchmark(
        "attention",
        "scores",
        "additive, bilinear and multiplicative scores: time, memory and parameters by length",
        "5 min",
        peers=(OURS,),
        results=("scores",),
    ),
    Benchmark(
        "attention",
        "window",
        "attention in a window compared with full attention, by length",
        "4 min",
        results=("window",),
    ),
    Benchmark(
        "attention",
        "stablehlo_cases",
        "write the programs that accelerator runs",
        "5 min",
        needs="FOLDER to write to",
        rounds=False,
    ),
    Benchmark(
        "attention",
        "accelerator",
        "attention core on a GPU or TPU through jax: errors and times",
        "10 min",
        needs="FOLDER of stablehlo_cases; jax",
        results=("accelerator-cpu", "accelerator-gpu"),
    ),
    Benchmark(
        "models",
        "stablehlo_step",
        "write the training steps that accelerator_step runs",
        "2 min",
        needs="FOLDER to write to",
        rounds=False,
    ),
    Benchmark(
        "models",
        "accelerator_step",
        "a training step on a GPU or TPU through jax, compared with torch",
        "5 min",
        needs="FOLDER of stablehlo_step; jax",
        results=("accelerator_step",),
    ),
    Benchmark(
        "models",
        "gpu",
        "TensorFlow on a GPU: training steps and BERT beside torch, translation",
        "10 min",
        needs="a GPU that TensorFlow sees",
        results=("gpu",),
    ),
    Benchmark(
        "models",
        "whole_models",
        "BERT-base's encoder, and training steps of the base Transformer",
        "15 min",
        peers=(OURS, HUB, TORCH, HF),
        results=("whole_models",),
    ),
    Benchmark(
        "models",
        "checkouts",
        "another checkout of this library: training, decoding, attention, BERT, translation",
        "6 min",
        needs="FOLDER, the other checkout",
        results=("checkouts",),
    ),
    Benchmark(
        "models",
        "explorer",
        "pages of attention: size and time to open, compared with bertviz",
        "5 min",
        needs="Chromium and npm",
        peers=(BERTVIZ,),
        results=("explorer",),
    ),
    Benchmark(
        "training",
        "train",
        "training the small preset: tokens per second and memory",
        "15 min",
        peers=(OURS, HUB, TORCH),
        results=("train",),
    ),
    Benchmark(
        "training",
        "variant_speed",
        "training steps with other positions, norms, feed-forward networks and heads",
        "5 min",
        results=("variant_speed",),
    ),
    Benchmark(
        "training",
        "train_step",
        "one training step under different settings of TensorFlow",
        "5 min",
        results=("train_step",),
    ),
    Benchmark(
        "training",
        "precision",
        "10,000 steps in float32, bfloat16 and float16: losses, skipped steps, time",
        "35 min",
        results=("precision",),
        rounds=False,
    ),
    Benchmark(
        "training",
        "scale",
        "a training step with 1, 2 and 4 processes: time, bytes, and what of the sum is hidden",
        "6 min",
        results=("scale",),
    ),
    Benchmark(
        "training",
        "accumulate",
        "gradients of a large batch, computed in parts: memory and time",
        "5 min",
        results=("accumulate",),
    ),
    Benchmark(
        "training",
        "recompute",
        "layers computed again for the gradients: memory and time",
        "5 min",
        results=("recompute",),
    ),
    Benchmark(
        "training",
        "prepare",
        "a synthetic corpus larger than memory prepared and read: time, memory, throughput",
        "an hour for 10 GB",
        needs="FOLDER with three times the room",
        results=("prepare",),
        rounds=False,
    ),
    Benchmark(
        "compression",
        "classifier",
        "a classifier without half of its heads, and in int8: accuracy, size, time",
        "20 min, reviews 1 hour",
        needs="SET, ARCHIVE, MODEL as for fine_tuning",
        results=("classifier-trec-6", "classifier-zh-reviews"),
    ),
    Benchmark(
        "compression",
        "translator_heads",
        "the included translator without half of its heads: BLEU, size, time",
        "1 hour",
        needs="FOLDER for translations and trainings",
        results=("translator_heads",),
    ),
    Benchmark(
        "compression",
        "chain",
        "a classifier distilled, pruned and in int8 by a recipe: what each step costs and brings",
        "10 min, reviews 1 hour",
        needs="SET, ARCHIVE, MODEL as for fine_tuning; FOLDER",
        results=("chain-trec-6", "chain-zh-reviews"),
        rounds=False,
    ),
    Benchmark(
        "compression",
        "early_exit",
        "a classifier with exits after every layer: accuracy and time by threshold",
        "10 min",
        needs="SET, ARCHIVE, MODEL as for fine_tuning",
        results=("early_exit-trec-6", "early_exit-zh-reviews"),
    ),
    Benchmark(
        "compression",
        "litert",
        "a classifier by LiteRT, compared with ONNX Runtime and torch, in float32 and int8",
        "10 min",
        needs="SET, ARCHIVE, MODEL as for fine_tuning",
        peers=(OURS, HF),
        results=("litert-trec-6", "litert-zh-reviews"),
    ),
    Benchmark(
        "compression",
        "int8_product",
        "a dense layer in float32 and int8, compared with Keras's quantization",
        "1 min",
        results=("int8_product",),
    ),
    Benchmark(
        "compression",
        "int8_translator",
        "the included translator in float32 and int8, compared with CTranslate2",
        "20 min",
        peers=("CTranslate2", OURS),
        results=("int8_translator",),
    ),
    Benchmark(
        "tokenization",
        "tokenization",
        "tokenizers in tf.data: sentences per second",
        "15 min",
        peers=(OURS, "tensorflow-text"),
        results=("tokenization",),
    ),
    Benchmark(
        "decoding",
        "heads",
        "decoding with fewer heads of keys and values: time and size of the caches",
        "3 min",
        results=("heads",),
    ),
    Benchmark(
        "decoding",
        "translate",
        "greedy and beam search: sentences per second and latency",
        "45 min",
        needs=f"{MULTI30K}; a run of multi30k",
        peers=(OURS, HUB, HF, "CTranslate2"),
        results=("translate",),
    ),
    Benchmark(
        "decoding",
        "published",
        "Marian, GPT-2 and Qwen2 with random weights: tokens per second in 32, 16 and 8 bits",
        "45 min",
        peers=(OURS, HF, "ctranslate2-transformers", "optimum-onnx"),
        results=("published",),
    ),
    Benchmark(
        "serving",
        "serving",
        "10,000 requests to the server from 16 clients, compared with CTranslate2 behind it",
        "15 min",
        peers=("served",),
        results=("serving",),
    ),
    Benchmark(
        "translation",
        "multi30k",
        "train Transformer-Tiny on Multi30k, English to German: BLEU",
        "2 h 15 min",
        needs=MULTI30K,
        results=("multi30k", "multi30k-beta-2-0.98", "multi30k-two-calls"),
        rounds=False,
    ),
    Benchmark(
        "translation",
        "quality",
        "BLEU of the small preset, compared with keras-hub's layers",
        "1 h",
        peers=(OURS, HUB),
        results=("quality",),
        rounds=False,
    ),
    Benchmark(
        "translation",
        "subwords",
        "BLEU of the small preset with BPE, WordPiece and Unigram",
        "40 min",
        needs="FOLDER to keep the trainings in",
        results=("subwords",),
        rounds=False,
    ),
    Benchmark(
        "translation",
        "variants",
        "parts of the architecture: BLEU, longer sentences, depth, weights, memory",
        "4 h",
        needs="FOLDER, which resumes",
        rounds=False,
        results=("variants",),
    ),
    Benchmark(
        "translation",
        "shipped",
        "train the English-Chinese model of saved_models/",
        "3 h",
        needs="FOLDER, which resumes",
        rounds=False,
    ),
    Benchmark(
        "translation",
        "translators",
        "exported translators: BLEU, time for a sentence and for 64",
        "5 min",
        needs="FOLDER ... of exported models",
        results=("translators-6-1",),
    ),
    Benchmark(
        "translation",
        "small_preset",
        "the small preset with three seeds: BLEU, minutes, the closing sentences",
        "40 min",
        rounds=False,
        results=("small_preset",),
    ),
    Benchmark(
        "translation",
        "try_preset",
        "BLEU of a preset with changed fields, on held-out pairs",
        "6 min",
        needs="FIELD=VALUE ...",
        rounds=False,
    ),
    Benchmark(
        "bert",
        "retrieval",
        "paraphrases found by vectors: before and after training, in every form of index",
        "7 min",
        needs=f"MODEL, {PRETRAINED}",
        results=("retrieval",),
    ),
    Benchmark(
        "bert",
        "bert",
        "sentence vectors of MiniLM: sentences per second",
        "20 min",
        needs=f"--model, {PRETRAINED}",
        peers=(OURS, HUB, HF),
        results=("bert",),
    ),
    Benchmark(
        "bert",
        "load_bert",
        "time and memory of loading BERT-base and GPT-2, compared with reading the file",
        "1 min",
        peers=(OURS,),
        results=("load_bert",),
    ),
    Benchmark(
        "bert",
        "fine_tuning",
        "accuracy of a fine-tuned BERT, compared with TF-IDF",
        "7 min to 2 h 30 min",
        needs="ARCHIVE of the texts; MODEL, a folder",
        peers=("scikit-learn",),
        results=("fine_tuning-trec-6", "fine_tuning-zh-reviews"),
        rounds=False,
    ),
    Benchmark(
        "bert",
        "errors_by_length",
        "accuracy of both by the length of the texts",
        "5 min",
        needs="ARCHIVE of the texts; MODEL, a folder of finetune",
        peers=("scikit-learn",),
        results=("errors_by_length-zh-reviews",),
        rounds=False,
    ),
]
BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}
