"""The options that name sentence pairs, and exported models."""

from pathlib import Path

from tf_transformer.errors import ArgumentError


def add_pair_arguments(parser, default, own):
    """Add `--corpus`, `--source-file` with `--target-file`, and `--tsv`."""
    parser.add_argument("--corpus", help=f"en-zh, zh-en, en-fr or fr-en (default: {default})")
    parser.add_argument(
        "--source-file",
        nargs="+",
        metavar="FILE",
        help=f"{own}, one sentence per line, UTF-8, gzipped or not",
    )
    parser.add_argument(
        "--target-file", nargs="+", metavar="FILE", help="their translations, line by line"
    )
    parser.add_argument(
        "--tsv", nargs="+", metavar="FILE", help="or files with source, tab, target"
    )


def pair_source(options):
    """Return the `PairSource` of the options, with absolute paths, or None if there is none."""
    from tf_transformer.data import PairSource

    names = ("corpus", "source_file", "target_file", "tsv", "prepared")
    given = {name: getattr(options, name, None) for name in names}
    given = {name: value for name, value in given.items() if value}
    return PairSource(**given).with_paths(_absolute) if given else None


def validation_source(options):
    """Return the `PairSource` of `--validation-file`, or None."""
    from tf_transformer.data import PairSource

    files = options.validation_file or ()
    if len(files) > 2:
        raise ArgumentError(
            "--validation-file", "a TSV file, or a source and a target file", f"{len(files)} files"
        )
    if not files:
        return None
    names = ("tsv",) if len(files) == 1 else ("source_file", "target_file")
    return PairSource(**dict(zip(names, files, strict=True))).with_paths(_absolute)


def _absolute(file):
    return str(Path(file).resolve())


def add_model_argument(parser):
    """Add `--model`, an exported translator."""
    parser.add_argument(
        "--model", metavar="FOLDER", help="an exported model (default: the English-Chinese one)"
    )


def model_path(folder):
    """Return the folder of an exported model, of the one in a run, or for None the included one."""
    from tf_transformer.export.translation.shipped_models import shipped_model

    path = Path(folder) if folder else shipped_model("en-zh")
    inside = path / "saved_model"  # the folder of a run is accepted too
    return inside if (path / "run.json").is_file() and inside.is_dir() else path
