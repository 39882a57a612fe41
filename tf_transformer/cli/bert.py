"""The commands of a pretrained BERT: finetune, classify, train-pairs, embed and search."""

import contextlib
import dataclasses
import sys
from pathlib import Path

from tf_transformer.cli.arguments import (
    add_command,
    add_device_arguments,
    add_settings,
    check_empty,
    given,
    import_tensorflow,
    lite_model,
    require,
    show_progress,
    start_training,
    write_result,
)
from tf_transformer.data.files import (
    check_plain_text,
    check_replaceable,
    map_array,
    read_tsv,
    replacing,
    text_of_line,
)
from tf_transformer.errors import ArgumentError, MissingFileError, check

# The options of `FineTuning` and their defaults, repeated since importing it takes seconds.
_SETTINGS = {
    "epochs": (5, "passes over the training texts"),
    "batch_size": (32, "texts per step"),
    "learning_rate": (1e-4, "peak learning rate, of the head"),
    "layer_decay": (0.95, "factor of the learning rate from each layer to the one below"),
    "max_length": (128, "maximum number of tokens of a text"),
    "seed": (1, "of the initial head, dropout and the order of the texts"),
    "accumulate": (1, "parts of a batch, one after another: less memory, the same result"),
}
# And for `train-pairs`.
_PAIR_SETTINGS = {
    "epochs": (3, "passes over the pairs"),
    "batch_size": (64, "pairs per step; each has the others' documents as negatives"),
    "learning_rate": (2e-5, "peak learning rate"),
    "max_length": (64, "maximum number of tokens of a text"),
    "seed": (1, "of dropout and the order of the pairs"),
}
_CHECKPOINT = "a BERT checkpoint with its vocabulary"


def add_classification(commands):
    """Add the commands `finetune` and `classify`."""
    finetune = add_command(commands, "finetune", _finetune)
    add = finetune.add_argument
    add("--model", metavar="FOLDER", required=True, help=_CHECKPOINT)
    add("--train", metavar="TSV", help="your texts: class, tab, text")
    add("--validation", metavar="TSV", help="default: 10 %% of --train")
    add("--test", metavar="TSV", help="default: 10 %% of --train")
    add("--data", help="or a published set: trec-6 or zh-reviews")
    add("--archive", metavar="FILE", help="the package that contains --data")
    add("--output", metavar="FOLDER", required=True)
    activation = "for checkpoints that do not name it: tanh (default) or linear"
    add("--pooler-activation", help=activation)
    add("--dropout", type=float, help="overrides the rates of the checkpoint")
    text = "a classifier after every layer; easy texts exit early, which changes the answer for at "
    text += "most this percentage of the validation texts"
    add("--early-exit", type=float, metavar="PERCENT", help=text)
    add_settings(finetune, _SETTINGS)
    finetune.set_defaults(max_length=None)  # or fewer, if the model has fewer positions
    add_device_arguments(finetune)

    add = add_command(commands, "classify", _classify).add_argument
    add("text", nargs="*", help="texts")
    model = "the output of finetune or litert, a SavedModel, or a checkpoint of a classifier"
    add("--model", metavar="FOLDER", required=True, help=model)


def _finetune(options):
    """fine-tune a pretrained BERT to classify texts, score it, export it"""
    require("bert", "safetensors")
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

    if current_workers().is_chief:
        check_empty(options.output)
    data = _data(options)
    has_exits = options.early_exit is not None
    if has_exits and not data.validation:
        raise ArgumentError("--early-exit", "texts for validation", "none", "See --validation.")
    settings = FineTuning(**given(options, _SETTINGS))
    keras.utils.set_random_seed(settings.seed)  # of the new head
    changes = given(options, ("pooler_activation",))
    if options.dropout is not None:
        rates = "hidden_dropout_prob", "attention_probs_dropout_prob"
        changes |= dict.fromkeys(rates, options.dropout)
    tokenizer = bert.read_tokenizer(options.model)
    kind = bert.BertWithExits if has_exits else bert.BertForSequenceClassification
    # The new head is for classes, regardless of the checkpoint's head.
    changes |= {"new_head": True, "labels": data.labels, "problem_type": None}
    model = kind.from_pretrained(options.model, unpad=True, **changes)
    if options.max_length is None:
        most = min(settings.max_length, model.config.max_length)
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
    from tf_transformer.compression import choose_exit, exit_points
    from tf_transformer.export import EarlyExitClassifier, TextClassifier
    from tf_transformer.models import bert
    from tf_transformer.training import text_batches

    output, length = Path(options.output), settings.max_length
    if options.early_exit is None:
        exported = TextClassifier.from_pretrained(output / "model", max_length=length)
    else:
        model = bert.BertWithExits.from_pretrained(output / "model", unpad=True)
        tokenizer = bert.read_tokenizer(output / "model")
        points = exit_points(model, text_batches(tokenizer, data.validation, settings))
        point = choose_exit(points, changed=options.early_exit / 100)
        rule = {"patience": point.patience, "entropy": point.entropy}
        exported = EarlyExitClassifier(model, tokenizer, length, **rule)
        result["early_exit"] = point._asdict()
        if data.test:
            test = text_batches(tokenizer, data.test, settings)
            [tested] = exit_points(model, test, [(point.patience, point.entropy)])
            result["early_exit"] |= {"test_accuracy": tested.accuracy, "test_layers": tested.layers}
    exported.save(output / "saved_model")
    write_result(output, result)


def _data(options):
    from tf_transformer.data.labelled_texts import load_labelled_texts, read_labelled_tsv

    if (options.train is None) == (options.data is None):
        raise ArgumentError("--train, --data", "one of them", "both or neither")
    if options.train:
        return read_labelled_tsv(options.train, options.validation, options.test)
    check(options.archive is not None, "--archive", "the package that contains --data", "none")
    return load_labelled_texts(options.data, options.archive)


def _classify(options):
    """class of the arguments, or of every line of the input, and its probability (the number of a
    regression)"""
    classify = _classifier(Path(options.model))
    texts = [text.encode() for text in options.text]
    for text in texts or (line.rstrip(b"\r\n") for line in sys.stdin.buffer):
        label, answer = classify(text)
        print(f"{label}\t{answer:.4f}\t{_text(text)}", flush=True)


def _classifier(folder):
    """Return the function of `--model` from bytes to a class and its probability or number."""
    lite = lite_model(folder, "classifier")
    if lite is not None:

        def classify_lite(text):
            [label], answers = lite.classify([_text(text)])
            return label, float(answers.max())

        return classify_lite
    inside = folder / "saved_model"
    folder = inside if inside.is_dir() else folder
    is_saved, is_published = ((folder / n).is_file() for n in ("saved_model.pb", "config.json"))
    if not (is_saved or is_published):
        expected = "the output of finetune, or a checkpoint of a classifier"
        raise MissingFileError("--model", expected, folder)
    if is_published:
        require("bert", "safetensors")
    import_tensorflow()
    import tensorflow as tf

    from tf_transformer.export import TextClassifier
    from tf_transformer.export.saving import load_saved_model

    model = (load_saved_model if is_saved else TextClassifier.from_pretrained)(folder)

    def classify(text):
        answer = model.classify(tf.constant([text]))
        label = answer.pop("label").numpy()[0].decode()
        # The number of layers is not an answer.
        [numbers] = answer.keys() & {"probabilities", "values"}
        return label, float(tf.reduce_max(answer[numbers]))

    return classify


def _text(text):
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def add_train_pairs(commands):
    """Add the command `train-pairs`."""
    pairs = add_command(commands, "train-pairs", _train_pairs)
    add = pairs.add_argument
    add("--model", metavar="FOLDER", required=True, help=_CHECKPOINT)
    add("--train", metavar="TSV", required=True, help="query, tab, document")
    add("--validation", metavar="TSV", help="pairs to score with (default: every tenth of --train)")
    add("--output", metavar="FOLDER", required=True)
    add("--temperature", type=float, default=0.05, help="of the scores (default: 0.05)")
    wrong = "number of wrong documents per query that the model finds before training"
    add("--hard-negatives", type=int, default=0, metavar="N", help=wrong)
    add_settings(pairs, _PAIR_SETTINGS)


def _train_pairs(options):
    """train a sentence encoder to find the document of a query, score it"""
    require("bert", "safetensors")
    check_empty(options.output)
    for name, least in (("hard_negatives", 0), ("batch_size", 2)):
        check(getattr(options, name) >= least, name, f"at least {least}", getattr(options, name))
    check(options.temperature > 0, "temperature", "a number above 0", options.temperature)
    train = read_tsv(options.train, "--train")
    if options.validation:
        validation = read_tsv(options.validation, "--validation")
    else:
        train, validation = [pair for n, pair in enumerate(train) if n % 10], train[::10]
    documents, least = {document for _, document in train}, options.hard_negatives + 2
    expected = f"at least {least} different documents to train on"
    check(len(documents) >= least, "--train", expected, len(documents))
    import_tensorflow()
    import keras

    from tf_transformer.export import TextEncoder
    from tf_transformer.export.text_models import read_text_settings
    from tf_transformer.models.bert import SentenceEncoder, read_tokenizer
    from tf_transformer.training import FineTuning, hard_negatives, retrieval_scores, train_pairs

    output = Path(options.output)
    settings = FineTuning(**given(options, _PAIR_SETTINGS))
    keras.utils.set_random_seed(settings.seed)
    encoder = SentenceEncoder.from_pretrained(options.model, unpad=True, normalize=True)
    tokenizer = read_tokenizer(options.model)
    longest, lowercase = read_text_settings(options.model, encoder.config.max_length)
    exported = TextEncoder(encoder, tokenizer, longest, lowercase)
    if lowercase:
        train = [(query.lower(), document.lower()) for query, document in train]
    print(f"{len(train)} pairs to train on, {len(validation)} to score with", flush=True)
    scores = {"before": retrieval_scores(*_searched(exported, validation))}
    negatives = None
    if options.hard_negatives:
        documents = list(dict.fromkeys(document for _, document in train))
        rows = hard_negatives(*_searched(exported, train), options.hard_negatives)
        negatives = [[documents[n] for n in row] for row in rows]
    output.mkdir(parents=True, exist_ok=True)
    how = {"temperature": options.temperature, "negatives": negatives}
    log = keras.callbacks.CSVLogger(output / "history.csv")
    verbose = 1 if sys.stdout.isatty() else 2
    train_pairs(encoder, tokenizer, train, settings, **how, callbacks=[log], verbose=verbose)
    scores["after"] = retrieval_scores(*_searched(exported, validation))
    encoder.save_pretrained(output / "model", tokenizer_from=options.model)
    exported.save(output / "saved_model")
    write_result(output, {"scores": scores, "settings": dataclasses.asdict(settings)})


def _searched(encoder, pairs):
    """Return vectors of queries and distinct documents, and the correct rows of each query."""
    import numpy as np

    from tf_transformer.export import embed_lines

    queries = [query for query, _ in pairs]
    rows, own = {}, {}
    for query, document in pairs:
        own.setdefault(query, set()).add(rows.setdefault(document, len(rows)))
    vectors = (
        np.concatenate(list(embed_lines(encoder.encode, texts))) for texts in (queries, list(rows))
    )
    return *vectors, [own[query] for query in queries]


def add_search(commands):
    """Add the commands `embed` and `search`."""
    embed = add_command(commands, "embed", _embed)
    _add_encoder_arguments(embed)
    add = embed.add_argument
    add("text", nargs="*", help="sentences (default: standard input, one sentence per line)")
    add("--file", help="a text file, one sentence per line")
    where = embed.add_mutually_exclusive_group()
    where.add_argument("--output", metavar="FILE", help="instead of standard output")
    index = "or an index for search, which knows its model"
    where.add_argument("--index", metavar="FOLDER", help=index)
    text = "of the index; pq is the smallest, hnsw the fastest for millions; both are approximate, "
    text += "by faiss (default: float32)"
    add("--vectors-dtype", choices=("float32", "float16", "int8", "pq", "hnsw"), help=text)
    add("--batch-size", type=int, default=64, help="lines at a time (default: 64)")

    search = add_command(commands, "search", _search)
    add = search.add_argument
    add("index", help="the vectors or the index that `embed` wrote")
    add("query", nargs="+", help="one or several texts")
    _add_encoder_arguments(search)
    add("--lines", metavar="FILE", help="the file that was embedded, to show the texts")
    add("--top", type=int, default=5, help="number of results (default: 5)")


def _add_encoder_arguments(parser):
    add = parser.add_argument
    text = "a checkpoint with its vocabulary, or a SavedModel from TextEncoder, or the output of "
    text += "litert"
    add("--model", metavar="FOLDER", required=True, help=text)
    pooling = "mean, cls, lasttoken, or pooler for BERT (default: the one in the folder; for BERT, "
    add("--pooling", help=f"{pooling}mean)")
    activation = "for checkpoints that do not name it: tanh (default) or linear (SimBERT)"
    add("--pooler-activation", help=activation)


def _embed(options):
    """encode texts, or every line of standard input or a file, as vectors in an .npy file"""
    check(not options.text or options.file is None, "text, --file", "one of them", "both")
    check(options.index or not options.vectors_dtype, "--vectors-dtype", "--index as well", "none")
    if not options.index and options.output is None and sys.stdout.isatty():
        remedy = "An .npy file cannot go to a terminal."
        raise ArgumentError("--output", "a file, or > vectors.npy", remedy=remedy)
    if options.output:
        check_replaceable(options.output)
    if options.file is not None:
        check_plain_text(options.file, "--file")
    import_tensorflow()
    from tf_transformer.export import embed_lines, write_index, write_vectors
    from tf_transformer.export.vector_index import DESCRIPTION

    if options.index:
        check_replaceable(options.index, only_with=DESCRIPTION)
    encode = _encoder(options)

    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(open(options.file, "rb")) if options.file else sys.stdin.buffer
        texts = (text_of_line(line, first=n == 0).encode() for n, line in enumerate(lines))
        if options.text:  # an argument may be no UTF-8 either
            texts = [text.encode("utf-8", "replace") for text in options.text]
        parts = _shown(embed_lines(encode, texts, options.batch_size))
        if options.index:
            write_index(options.index, parts, encode, options.vectors_dtype or "float32")
            return
        stream = sys.stdout.buffer
        if options.output:
            stream = stack.enter_context(replacing(options.output))
            stream = stack.enter_context(open(stream, "wb"))
        write_vectors(stream, parts, encode(["a"]).shape[1])
        stream.flush()


def _search(options):
    """find the lines most similar to a query"""
    import numpy as np

    lines = _existing(options.lines, "--lines")
    is_folder = Path(options.index).is_dir()
    vectors = None if is_folder else _vectors(_existing(options.index, "index"))
    import_tensorflow()
    from tf_transformer.export import VectorIndex, nearest

    index = VectorIndex(options.index) if is_folder else None
    count = index.rows if is_folder else len(vectors)
    texts = None
    if lines:
        texts = lines.read_bytes().removesuffix(b"\n").split(b"\n")
        expected = f"the {count} lines that {options.index} was made from"
        check(len(texts) == count, "--lines", expected, len(texts))
    encode = _encoder(options)
    queries = np.asarray(encode(options.query))
    if is_folder:
        index.check_model(encode)
        found = index.search(queries, options.top)
    else:
        found = nearest(vectors, queries, options.top)
    for query, scores, rows in zip(options.query, *found, strict=True):
        if len(options.query) > 1:
            print(f"{query}:")
        for score, row in zip(scores, rows, strict=True):
            if row < 0:  # an approximate index may find fewer
                break
            text = f"\t{_text(texts[row]).rstrip()}" if texts else ""
            print(f"{score:.4f}\t{row + 1}{text}")


def _vectors(path):
    try:
        vectors = map_array(path)
        if vectors.ndim != 2:
            raise ValueError(f"it has shape {vectors.shape}")
    except ValueError as error:
        raise ArgumentError("index", "an .npy file from `embed`", f"{path}: {error}") from error
    return vectors


def _encoder(options):
    """Return the function of `--model` from texts to vectors."""
    folder, changes = Path(options.model), given(options, ("pooling", "pooler_activation"))
    lite = lite_model(folder, "text encoder")
    if lite is not None:
        expected = "none for a LiteRT model, where they are fixed"
        check(not changes, "--pooling, --pooler-activation", expected, f"them for {folder}")
        return lambda texts: lite.encode([_text(text) for text in texts])
    import_tensorflow()
    import tensorflow as tf

    if (folder / "saved_model.pb").is_file():
        from tf_transformer.export.saving import load_saved_model

        loaded = load_saved_model(folder)
        if not hasattr(loaded, "encode") or changes:
            fixed = "no --pooling or --pooler-activation, which are fixed there"
            raise ArgumentError("--model", f"a SavedModel from TextEncoder, and {fixed}", folder)
        return lambda texts: loaded.encode(tf.constant(texts))
    from tf_transformer.export import TextEncoder

    encoder = TextEncoder.from_pretrained(folder, **changes)
    return lambda texts: encoder.encode(tf.constant(texts))


def _existing(path, argument):
    if path is not None and not Path(path).is_file():
        raise MissingFileError(argument, "a file", f"{path}, which is not a file")
    return None if path is None else Path(path)


def _shown(parts):
    """Yield the parts, showing the number of lines on a terminal."""
    done = 0
    for part in parts:
        done += len(part)
        show_progress(f"{done:,} lines", done=False)
        yield part
    show_progress(f"{done:,} lines", done=True)
