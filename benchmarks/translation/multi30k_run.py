"""One training of Transformer-Tiny on Multi30k, and its scores."""

import itertools
import json
import os

from benchmarks.translation import multi30k_texts as texts

# 4 + 4 layers of width 128 (section 3.1 of the paper). Batch size and learning rate were chosen on
# the validation set.
SIZES = {"num_layers": 4, "d_model": 128, "num_heads": 4, "dff": 256}
LENGTHS = (*range(6, 33), 36, 40, 48, 64)
POSITIONS = 128
TOKENS_PER_BATCH = 512
PEAK, WARMUP_STEPS = 1.5e-3, 2000
# Close to the paper's program, which divides by the length and tunes nothing.
BEAM_SIZE, LENGTH_PENALTY = 5, 1.0
AVERAGE = "average.weights.h5"
# Two trainings in parallel, one thread each, are a fifth faster than one after the other with two.
ONE_CORE = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


def run_seed(options, seed):
    """Train a seed in its folder, or resume it there, and score it."""
    os.environ.update(ONE_CORE)  # before TensorFlow is imported
    from tf_transformer.cli.arguments import import_tensorflow

    import_tensorflow()
    folder = options.output / f"seed-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = joint_tokenizer(options.data, folder, options.vocabulary)
    calls = note_call(options, folder)
    model, epochs = train(options, seed, folder, tokenizer)
    model.save_weights(folder / AVERAGE)
    weights = model.count_params()
    scores = {"seed": seed, "weights": weights, "epochs": epochs, "calls": calls}
    validation = translate(options.data, texts.VALIDATION, model, tokenizer)
    scores["validation"] = tokenized_bleu(validation, options.data, texts.VALIDATION)["bleu"]
    for name, part in texts.TESTS.items():
        lines = translate(options.data, part, model, tokenizer)
        (folder / f"{part}.hypotheses").write_text("\n".join(lines) + "\n", encoding="utf-8")
        scores[name] = {
            "tokenized": tokenized_bleu(lines, options.data, part),
            "detokenized": detokenized_bleu(lines, options.data, part),
        }
    (folder / "scores.json").write_text(json.dumps(scores, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(scores), flush=True)


def joint_tokenizer(data, folder, size):
    """The vocabulary of both languages, trained once."""
    from tf_transformer import BPETokenizer

    path = folder / "tokenizer.json"
    if not path.exists():
        lines = itertools.chain(*texts.pairs(data, texts.TRAIN))
        BPETokenizer.train(list(lines), vocab_size=size).save(path)
    tokenizer = BPETokenizer.load(path)
    if tokenizer.vocab_size != size:
        raise SystemExit(
            f"--vocabulary: expected {tokenizer.vocab_size}, the size of {path}, got {size}; "
            "give another --output to train from scratch"
        )
    return tokenizer


def note_call(options, folder):
    """Record this call and return the settings of all calls that trained in the folder."""
    path = folder / "calls.json"
    calls = json.loads(path.read_text("utf-8")) if path.exists() else []
    call = (
        f"--vocabulary {options.vocabulary} --epochs {options.epochs} --dropout "
        f"{' '.join(map(str, options.dropout))} --beta-2 {options.beta_2} "
        f"--average {options.average} --r-drop {options.r_drop}"
    )
    if call not in calls[-1:]:
        path.write_text(json.dumps([*calls, call], indent=2) + "\n", encoding="utf-8")
        calls.append(call)
    return calls


def load_run(folder):
    """The averaged model of a finished seed, and its tokenizer."""
    from tf_transformer import BPETokenizer

    if not (folder / AVERAGE).is_file():
        raise SystemExit(f"--run: expected a finished seed of multi30k, got {folder}.")
    tokenizer = BPETokenizer.load(folder / "tokenizer.json")
    model = build_model(tokenizer.vocab_size)
    model.load_weights(folder / AVERAGE)
    return model, tokenizer


def build_model(vocabulary, dropout=0.0):
    """Transformer-Tiny."""
    from tf_transformer import Transformer

    sizes = {"input_vocab_size": vocabulary, "target_vocab_size": vocabulary}
    positions = {"pe_input": POSITIONS, "pe_target": POSITIONS}
    options = {"rate": dropout, "share_embeddings": True, "name": "transformer"}
    model = Transformer(**SIZES, **sizes, **positions, **options)
    model.build()
    return model


def train(options, seed, folder, tokenizer):
    """Return the averaged model and its epochs, more than requested if the folder has more."""
    import keras

    from tf_transformer.data import BucketedBatches
    from tf_transformer.training import (
        FusedAdam,
        LastWeights,
        RDrop,
        SmoothedCrossentropy,
        WarmUpLinearDecay,
        average_weights,
        resumable_fit,
    )

    batches, validation = (
        BucketedBatches(
            *map(tokenizer.encode, texts.pairs(options.data, part)),
            start_id=tokenizer.start_id,
            end_id=tokenizer.end_id,
            lengths=LENGTHS,
            tokens_per_batch=TOKENS_PER_BATCH,
            seed=seed,
        )
        for part in (texts.TRAIN, texts.VALIDATION)
    )
    steps = options.epochs * batches.steps_per_epoch
    last = LastWeights(folder / "last", options.average)
    # The paper's 0.3 from the start delays a model of this width by dozens of epochs.
    for part, dropout in enumerate(options.dropout, 1):
        keras.utils.set_random_seed(seed)
        model = trained = build_model(tokenizer.vocab_size, dropout)
        if options.r_drop:
            trained = RDrop(model, options.r_drop)
            trained.build()
        schedule = WarmUpLinearDecay(PEAK, WARMUP_STEPS, steps)
        optimizer = FusedAdam(schedule, beta_1=0.9, beta_2=options.beta_2, epsilon=1e-9)
        optimizer.build(trained.trainable_variables)
        trained.compile(optimizer, loss=SmoothedCrossentropy(0.1), jit_compile=False)
        epochs = options.epochs * part // len(options.dropout)
        print(f"dropout {dropout} until epoch {epochs}", flush=True)
        # Each part resumes from the checkpoint of the previous one.
        resumable_fit(trained, batches, validation, folder, epochs=epochs, callbacks=[last])
    average_weights(trained, last.paths)
    return model, int(optimizer.iterations) // batches.steps_per_epoch


def translate(data, part, model, tokenizer):
    """Moses' tokens of the translations of a part."""
    import tensorflow as tf

    from tf_transformer.export import IdTranslator
    from tf_transformer.export.translation.translate_texts import batches_by_length

    translator = IdTranslator(
        model,
        tokenizer.start_id,
        tokenizer.end_id,
        beam_size=BEAM_SIZE,
        length_penalty=LENGTH_PENALTY,
    )
    sources = tokenizer.encode(texts.pairs(data, part)[0])
    found = [None] * len(sources)
    for rows in batches_by_length([len(source) for source in sources], 2048):
        batch = tf.ragged.constant([[*sources[i], tokenizer.end_id] for i in rows], dtype=tf.int32)
        ids, _ = translator.beam(batch.to_tensor())
        for i, row in zip(rows, ids[:, 0].numpy(), strict=True):
            found[i] = row[row != 0].tolist()
    return tokenizer.decode(found)


def tokenized_bleu(lines, data, part):
    """BLEU of unchanged tokens in lower case, which the paper reports."""
    from sacrebleu.metrics import BLEU

    return _score(BLEU(tokenize="none", force=True), lines, texts.pairs(data, part)[1])


def detokenized_bleu(lines, data, part):
    """sacreBLEU of texts in lower case against the unchanged references."""
    from sacrebleu.metrics import BLEU

    german = texts.LANGUAGES[1]
    references = texts.read_lines(data, part, german)
    return _score(BLEU(lowercase=True), texts.detokenized(lines, german), references)


def _score(metric, lines, references):
    score = metric.corpus_score(lines, [references]).score
    return {"bleu": round(score, 2), "signature": str(metric.get_signature())}
