"""The commands of text classification: `finetune` and `classify`."""

import dataclasses
import json
import sys
from pathlib import Path

from tf_transformer.cli.arguments import add_device_arguments, start_training
from tf_transformer.cli.litert import lite_model
from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError, MissingFileError

# The options of `FineTuning` and their defaults, repeated since importing it takes seconds.
_SETTINGS = {
    "epochs": (5, "passes over the training texts"),
    "batch_size": (32, "texts per step"),
    "learning_rate": (1e-4, "peak learning rate, of the head"),
    "layer_decay": (0.95, "factor of the learning rate from each layer to the one below"),
    "max_length": (128, "maximum number of tokens of a text"),
    "seed": (1, "of the initial head, dropout and the order of the texts"),
    "accumulate": (
        1,
        "parts of a batch, one after another: less memory, the same result",
    ),
}


def add_commands(commands):
    """Add the parsers of this file."""
    finetune = commands.add_parser(
        "finetune", help="fine-tune a pretrained BERT to classify texts, score it, export it"
    )
    finetune.add_argument(
        "--model", metavar="FOLDER", required=True, help="a BERT checkpoint with its vocabulary"
    )
    finetune.add_argument("--train", metavar="TSV", help="your texts: class, tab, text")
    finetune.add_argument("--validation", metavar="TSV", help="default: 10 %% of --train")
    finetune.add_argument("--test", metavar="TSV", help="default: 10 %% of --train")
    finetune.add_argument("--data", help="or a published set: trec-6 or zh-reviews")
    finetune.add_argument("--archive", metavar="FILE", help="the package that contains --data")
    finetune.add_argument("--output", metavar="FOLDER", required=True)
    finetune.add_argument(
        "--pooler-activation", help="for checkpoints that do not name it: tanh (default) or linear"
    )
    finetune.add_argument("--dropout", type=float, help="overrides the rates of the checkpoint")
    finetune.add_argument(
        "--early-exit",
        type=float,
        metavar="PERCENT",
        help="a classifier after every layer; easy texts exit early, which changes the answer for "
        "at most this percentage of the validation texts",
    )
    for name, (default, meaning) in _SETTINGS.items():
        finetune.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            help=f"{meaning} (default: {default})",
        )
    add_device_arguments(finetune)
    finetune.set_defaults(run=_finetune)

    classify = commands.add_parser(
        "classify",
        help="class of the arguments, or of every line of the input, and its probability (the "
        "number of a regression)",
    )
    classify.add_argument("text", nargs="*", help="texts")
    classify.add_argument(
        "--model",
        metavar="FOLDER",
        required=True,
        help="the output of finetune or of litert, or a SavedModel",
    )
    classify.set_defaults(run=_classify)


def _finetune(options):
    require("safetensors", "bert")
    if options.early_exit is not None and not 0 <= options.early_exit <= 100:
        raise ArgumentError("--early-exit", "0 to 100 percent", options.early_exit)
    with start_training(options):
        tuned = _finetune_on(options)
    if tuned is not None:  # on the chief
        _export(options, *tuned)


def _before_training(options):
    """Return data, settings, tokenizer and model; errors in the input are found here."""
    import keras

    from tf_transformer.distribution import current_workers
    from tf_transformer.models import bert
    from tf_transformer.training import FineTuning

    output = Path(options.output)
    if current_workers().is_chief and output.exists() and any(output.iterdir()):
        raise ArgumentError("--output", "a new folder", f"{output}, which is not empty")
    data = _data(options)
    if options.early_exit is not None and not data.validation:
        raise ArgumentError("--early-exit", "texts for validation", "none", "See --validation.")
    settings = FineTuning().with_changes({name: getattr(options, name) for name in _SETTINGS})
    keras.utils.set_random_seed(settings.seed)  # of the new head
    changes = {}
    if options.dropout is not None:
        changes["hidden_dropout_prob"] = options.dropout
        changes["attention_probs_dropout_prob"] = options.dropout
    if options.pooler_activation:
        changes["pooler_activation"] = options.pooler_activation
    tokenizer = bert.read_tokenizer(options.model)
    has_exits = options.early_exit is not None
    kind = bert.BertWithExits if has_exits else bert.BertForSequenceClassification
    model = kind.from_pretrained(
        # The new head is for classes, regardless of the checkpoint's head.
        options.model,
        new_head=True,
        unpad=True,
        labels=data.labels,
        problem_type=None,
        **changes,
    )
    if options.max_length is None:
        most = min(settings.max_length, model.config.max_position_embeddings)
        settings = settings.with_changes({"max_length": most})
    return data, settings, tokenizer, model


def _finetune_on(options):
    """Fine-tune, score and save; return what to export on the chief, otherwise None."""
    import keras

    from tf_transformer.distribution import current_workers, own_rows, together
    from tf_transformer.training import fine_tune, text_batches

    workers, output = current_workers(), Path(options.output)
    with together():
        data, settings, tokenizer, model = _before_training(options)
    parts = {name: len(getattr(data, name)) for name in ("train", "validation", "test")}
    callbacks, verbose = [], 0
    if workers.is_chief:
        print(f"{parts}; classes: {', '.join(data.labels)}", flush=True)
        output.mkdir(parents=True, exist_ok=True)
        callbacks.append(keras.callbacks.CSVLogger(output / "history.csv"))
        verbose = 1 if sys.stdout.isatty() else 2
    fine_tune(model, tokenizer, data, settings, callbacks=callbacks, verbose=verbose)
    result = {"data": parts, "settings": dataclasses.asdict(settings)}
    if data.test:
        test = own_rows(text_batches(tokenizer, data.test, settings))
        loss, accuracy = model.evaluate(test, verbose=0)
        result |= {"test_accuracy": round(accuracy, 4), "test_loss": round(loss, 4)}
    workers.leave()
    if not workers.is_chief:
        return None
    model.save_pretrained(output / "model", tokenizer_from=options.model)
    return data, settings, result


def _export(options, data, settings, result):
    """Export the saved model, reloaded since variables of several replicas cannot be exported."""
    from tf_transformer.models import bert

    output, has_exits = Path(options.output), options.early_exit is not None
    kind = bert.BertWithExits if has_exits else bert.BertForSequenceClassification
    model = kind.from_pretrained(output / "model", unpad=True)
    tokenizer = bert.read_tokenizer(output / "model")
    exported, report = _exported(model, tokenizer, data, settings, options.early_exit)
    result |= report
    exported.save(output / "saved_model")
    text = json.dumps(result, indent=2)
    (output / "result.json").write_text(text + "\n", encoding="utf-8")
    print(f"{text}\nModel: {output / 'model'}, SavedModel: {output / 'saved_model'}")


def _exported(model, tokenizer, data, settings, early_exit):
    """Return the classifier to save, and a report about its exits."""
    from tf_transformer.compression import choose_exit, exit_points
    from tf_transformer.export import EarlyExitClassifier, TextClassifier
    from tf_transformer.training import text_batches

    if early_exit is None:
        return TextClassifier(model, tokenizer, settings.max_length), {}
    points = exit_points(model, text_batches(tokenizer, data.validation, settings))
    point = choose_exit(points, changed=early_exit / 100)
    exported = EarlyExitClassifier(
        model,
        tokenizer,
        settings.max_length,
        patience=point.patience,
        entropy=point.entropy,
    )
    report = point._asdict()
    if data.test:
        test = text_batches(tokenizer, data.test, settings)
        [tested] = exit_points(model, test, [(point.patience, point.entropy)])
        report |= {"test_accuracy": tested.accuracy, "test_layers": tested.layers}
    return exported, {"early_exit": report}


def _data(options):
    from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv

    if (options.train is None) == (options.data is None):
        raise ArgumentError("--train, --data", "one of them", "both or neither")
    if options.train:
        return read_labelled_tsv(options.train, options.validation, options.test)
    if options.archive is None:
        raise ArgumentError("--archive", "the package that contains --data", "none")
    return load_labelled_texts(options.data, options.archive)


def _classify(options):
    classify = _classifier(Path(options.model))
    texts = [text.encode() for text in options.text]
    for text in texts or (line.rstrip(b"\r\n") for line in sys.stdin.buffer):
        label, answer = classify(text)
        print(f"{label}\t{answer:.4f}\t{text.decode('utf-8', 'replace')}", flush=True)


def _classifier(folder):
    """Return the function of `--model` from bytes to a class and its probability or number."""
    lite = lite_model(folder, "classifier")
    if lite is not None:

        def classify_lite(text):
            [label], answers = lite.classify([text.decode("utf-8", "replace")])
            return label, float(answers.max())

        return classify_lite
    inside = folder / "saved_model"
    folder = inside if inside.is_dir() else folder
    if not (folder / "saved_model.pb").is_file():
        raise MissingFileError("--model", "the output of finetune", folder)
    import_tensorflow()
    import tensorflow as tf

    from tf_transformer.export.saving import load_saved_model

    model = load_saved_model(folder)

    def classify(text):
        answer = model.classify(tf.constant([text]))
        label = answer.pop("label").numpy()[0].decode()
        # The number of layers is not an answer.
        [numbers] = answer.keys() & {"probabilities", "values"}
        return label, float(tf.reduce_max(answer[numbers]))

    return classify
