"""The command `info`: the description of a model."""

import json
from pathlib import Path

from tf_transformer.cli.pair_arguments import add_model_argument, model_path
from tf_transformer.cli.tensorflow_start import import_tensorflow
from tf_transformer.errors import ArgumentError


def add_info(commands):
    """Add the parser of this file."""
    info = commands.add_parser(
        "info", help="describe a model: data, sizes, scores; or the parameters of a BERT"
    )
    info.add_argument("name", nargs="?", help="bert-base, albert-base, ..., or a folder")
    add_model_argument(info)
    info.set_defaults(run=_info)


def _info(options):
    if options.name is not None and options.model is not None:
        raise ArgumentError("name, --model", "one of them", "both")
    folder = options.model
    if options.name is not None:
        marks = ("run.json", "translator.json")
        if not any((Path(options.name) / mark).is_file() for mark in marks):
            _parameters(options.name)
            return
        folder = options.name
    import_tensorflow()
    from tf_transformer.export import saved_translator as saved

    path = model_path(folder)
    print(f"{path}\n{json.dumps(saved.read_description(path), indent=2, ensure_ascii=False)}")


def _parameters(name):
    import_tensorflow()
    from tf_transformer.models import bert
    from tf_transformer.models.bert.drawn_kernel import without_drawing

    if Path(name).exists() or Path(f"{name}.index").exists():
        model = bert.Bert.from_pretrained(name)
    else:
        model = bert.Bert(bert.published_config(name))
        with without_drawing():  # only the sizes are printed
            model.build()
    print(f"{name}\n{json.dumps(model.config.to_dict(), indent=2, ensure_ascii=False)}\n")
    for part, count in bert.parameter_table(model).items():
        print(f"{count:>13,}  {part}")
