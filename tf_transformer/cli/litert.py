"""The command `litert`, and LiteRT models for the commands that run models."""

from pathlib import Path

from tf_transformer.cli.tensorflow_start import import_tensorflow, require
from tf_transformer.errors import ArgumentError, MissingFileError

_EXAMPLES = 256  # texts, unless --examples has fewer


def add_commands(commands):
    """Add the parser of this file."""
    litert = commands.add_parser(
        "litert", help="write a model for LiteRT, which runs without TensorFlow, and check it"
    )
    litert.add_argument(
        "folder", help="a training run, the output of finetune, or a BERT checkpoint"
    )
    litert.add_argument("--output", metavar="FOLDER", required=True)
    litert.add_argument(
        "--weights-dtype",
        default="float32",
        choices=("float32", "float16", "int8", "full int8"),
        help="int8 rounds the operands of products, full int8 also values between products, with "
        "ranges from examples (default: float32)",
    )
    litert.add_argument(
        "--examples",
        metavar="FILE",
        help="texts, one per line, for the check and the ranges of full int8 (default: the "
        "training texts of a run; otherwise words of the vocabulary)",
    )
    litert.set_defaults(run=_litert)


def lite_model(folder, kind):
    """Load a model that `litert` wrote, without TensorFlow."""
    if folder is None or not (Path(folder) / "litert.json").is_file():
        return None
    from tf_transformer.litert import load, read_description

    found = read_description(folder)["kind"]
    if found != kind:
        raise ArgumentError("--model", f"a {kind}", f"a {found} for LiteRT: {folder}")
    return load(folder)


def _litert(options):
    require("ai_edge_litert", "lite")
    require("tokenizers", "lite")
    folder = Path(options.folder)
    examples = options.examples and _lines(options.examples)
    import_tensorflow()
    from tf_transformer.data.files import check_replaceable
    from tf_transformer.export import write_litert
    from tf_transformer.litert import DESCRIPTION

    check_replaceable(options.output, only_with=DESCRIPTION)
    if (folder / "run.json").is_file():
        model, tokenizer_file, texts = _of_run(folder)
        examples, settings = examples or texts, {}
    else:
        model, tokenizer_file, settings = _of_bert(folder)
    report = write_litert(
        model,
        tokenizer_file,
        options.output,
        weights_dtype=options.weights_dtype,
        examples=examples,
        **settings,
    )
    print(
        f"{report['bytes'] / 2**20:.1f} MiB, at most {report['difference']:.2g} of the largest "
        f"number of an output from the model\nModel: {options.output}"
    )


def _of_run(folder):
    from tf_transformer.tokenizers import TokenizerFile
    from tf_transformer.training import TrainingRun

    run = TrainingRun.open(folder)
    texts = [source for source, _ in run.split.train[:_EXAMPLES]]
    return run.best_model(), TokenizerFile.read(run.tokenizer_path), texts


def _of_bert(folder):
    """Return the model, its vocabulary, and the settings for texts."""
    from tf_transformer.export.text_models import read_text_settings
    from tf_transformer.models import bert
    from tf_transformer.models.bert.checkpoints.config_files import read_json
    from tf_transformer.models.bert.text_inputs import read_tokenizer_file

    inside, result = folder / "model", folder / "result.json"  # of finetune
    folder = inside if (inside / "config.json").is_file() else folder
    if not (folder / "config.json").is_file():
        raise MissingFileError(
            "folder",
            "a training run, the output of finetune, or a BERT checkpoint in Hugging Face's layout",
            folder,
        )
    names = read_json(folder / "config.json").get("architectures") or ["BertModel"]
    name = str(names[0] if isinstance(names, list) else names).replace("Albert", "Bert")
    kind = {
        "BertForSequenceClassification": bert.BertForSequenceClassification,
        "BertModel": bert.SentenceEncoder,
    }.get(name)
    if kind is None:
        raise ArgumentError(
            "folder",
            "a classifier or an encoder",
            f"{name} in {folder}",
            "Other heads and early exit have no form for LiteRT.",
        )
    longest, lowercase = read_text_settings(folder)
    if kind is bert.BertForSequenceClassification and result.is_file():
        longest = read_json(result)["settings"]["max_length"]
    settings = {"max_length": longest, "lowercase": lowercase}
    return kind.from_pretrained(folder), read_tokenizer_file(folder), settings


def _lines(path):
    from tf_transformer.data.readers import check_plain_text, text_of_line

    check_plain_text(path, "--examples")
    with open(path, "rb") as file:
        lines = [text_of_line(line, first=n == 0).strip() for n, line in enumerate(file)]
    lines = [line for line in lines if line][:_EXAMPLES]
    if not lines:
        raise ArgumentError("--examples", f"a text in {path}", "none")
    return lines
