"""The commands of sentence vectors: embed and search."""

import contextlib
import sys
from pathlib import Path

from tf_transformer.cli.litert import lite_model
from tf_transformer.cli.tensorflow_start import import_tensorflow
from tf_transformer.errors import ArgumentError, MissingFileError


def add_commands(commands):
    """Add the parsers of this file."""
    embed = commands.add_parser(
        "embed",
        help="encode every line of standard input or of a file as a vector, into an .npy file",
    )
    _add_encoder_arguments(embed)
    embed.add_argument(
        "--file", help="a text file instead of standard input, one sentence per line"
    )
    where = embed.add_mutually_exclusive_group()
    where.add_argument("--output", metavar="FILE", help="instead of standard output")
    where.add_argument(
        "--index", metavar="FOLDER", help="or an index for search, which knows its model"
    )
    embed.add_argument(
        "--vectors-dtype",
        choices=("float32", "float16", "int8", "pq", "hnsw"),
        help="of the index; pq is the smallest, hnsw the fastest for millions; both are "
        "approximate, by faiss (default: float32)",
    )
    embed.add_argument("--batch-size", type=int, default=64, help="lines at a time (default: 64)")
    embed.set_defaults(run=_embed)

    search = commands.add_parser("search", help="find the lines most similar to a query")
    search.add_argument("index", help="the vectors or the index that `embed` wrote")
    search.add_argument("query", nargs="+", help="one or several texts")
    _add_encoder_arguments(search)
    search.add_argument(
        "--lines", metavar="FILE", help="the file that was embedded, to show the texts"
    )
    search.add_argument("--top", type=int, default=5, help="number of results (default: 5)")
    search.set_defaults(run=_search)


def _add_encoder_arguments(parser):
    parser.add_argument(
        "--model",
        metavar="FOLDER",
        required=True,
        help="a checkpoint with its vocabulary, or a SavedModel from TextEncoder, or the output of "
        "litert",
    )
    parser.add_argument(
        "--pooling", help="mean, cls or pooler (default: the one in the folder, or mean)"
    )
    parser.add_argument(
        "--pooler-activation",
        help="for checkpoints that do not name it: tanh (default) or linear (SimBERT)",
    )


def _embed(options):
    from tf_transformer.data.files import check_replaceable, replacing
    from tf_transformer.data.readers import check_plain_text, text_of_line

    if options.vectors_dtype and not options.index:
        raise ArgumentError("--vectors-dtype", "--index as well", "none")
    if not options.index and options.output is None and sys.stdout.isatty():
        raise ArgumentError(
            "--output", "a file, or > vectors.npy", remedy="An .npy file cannot go to a terminal."
        )
    if options.output:
        check_replaceable(options.output)
    file = options.file
    if file is not None:
        check_plain_text(file, "--file")
    import_tensorflow()
    from tf_transformer.export import embed_lines, write_index, write_vectors
    from tf_transformer.export.vector_index import DESCRIPTION

    if options.index:
        check_replaceable(options.index, only_with=DESCRIPTION)
    encode = _encoder(options)

    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(open(file, "rb")) if file else sys.stdin.buffer
        texts = (text_of_line(line, first=n == 0).encode() for n, line in enumerate(lines))
        parts = _shown(embed_lines(encode, texts, options.batch_size))
        if options.index:
            write_index(options.index, parts, encode, options.vectors_dtype or "float32")
            return
        stream = sys.stdout.buffer
        if options.output:
            stream = stack.enter_context(replacing(options.output))
            stream = stack.enter_context(open(stream, "wb"))
        write_vectors(stream, parts, encode([""]).shape[1])
        stream.flush()


def _search(options):
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
        if len(texts) != count:
            raise ArgumentError(
                "--lines", f"the {count} lines that {options.index} was made from", len(texts)
            )
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
            text = f"\t{texts[row].decode('utf-8', 'replace').rstrip()}" if texts else ""
            print(f"{score:.4f}\t{row + 1}{text}")


def _vectors(path):
    """Return the memory-mapped vectors of an .npy file."""
    from tf_transformer.data.files import map_array

    try:
        vectors = map_array(path)
        if vectors.ndim != 2:
            raise ValueError(f"it has shape {vectors.shape}")
    except ValueError as error:
        raise ArgumentError("index", "an .npy file from `embed`", f"{path}: {error}") from error
    return vectors


def _encoder(options):
    """Return the function of `--model` from texts to vectors."""
    folder = Path(options.model)
    lite = lite_model(folder, "text encoder")
    if lite is not None:
        if options.pooling or options.pooler_activation:
            raise ArgumentError(
                "--pooling, --pooler-activation",
                "none for a LiteRT model, where they are fixed",
                f"them for {folder}",
            )
        return lambda texts: lite.encode([_text(text) for text in texts])
    import_tensorflow()
    import tensorflow as tf

    if (folder / "saved_model.pb").is_file():
        from tf_transformer.export.saving import load_saved_model

        loaded = load_saved_model(folder)
        if not hasattr(loaded, "encode") or options.pooling or options.pooler_activation:
            raise ArgumentError(
                "--model",
                "a SavedModel from TextEncoder, and no --pooling or --pooler-activation, which are "
                "fixed there",
                folder,
            )
        return lambda texts: loaded.encode(tf.constant(texts))
    from tf_transformer.export import TextEncoder

    names = ("pooling", "pooler_activation")
    changes = {name: getattr(options, name) for name in names if getattr(options, name)}
    encoder = TextEncoder.from_pretrained(folder, **changes)
    return lambda texts: encoder.encode(tf.constant(texts))


def _text(text):
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _existing(path, argument):
    if path is not None and not Path(path).is_file():
        raise MissingFileError(argument, "a file", f"{path}, which is not a file")
    return None if path is None else Path(path)


def _shown(parts):
    """Yield the parts, showing the number of lines on a terminal."""
    done = 0
    for part in parts:
        done += len(part)
        if sys.stderr.isatty():
            print(f"\r{done:,} lines", end="", file=sys.stderr, flush=True)
        yield part
    if sys.stderr.isatty():
        print(file=sys.stderr)
