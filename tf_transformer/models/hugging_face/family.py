"""What describes a family of published models."""

from collections.abc import Callable
from typing import NamedTuple

from tf_transformer.models.bert.checkpoints.config_files import CONFIG, read_table

# Fields that every configuration of transformers may have.
_COMMON = tuple(row for row in CONFIG if row.verdict == "harmless") + read_table("""
model_type architectures | used | the kind of model
quantization_config | [] | weights in another format
auto_map | [] | models with their own code
chunk_size_feed_forward | [0] | feed-forward networks in chunks
initializer_range initializer_factor init_std | harmless | new weights; a checkpoint has all weights
num_labels id2label problem_type | harmless | for models with a head for classes
pretraining_tp | harmless | the same products, in slices
""")


class Family(NamedTuple):
    """A family of published models: its configuration, and the names of its weights."""

    model: type
    published_as: str  # the class of transformers
    fields: tuple  # of config.json, see `read_table`
    defaults: dict  # of the fields that a file may leave out
    read: Callable  # (fields) -> the model's arguments
    write: Callable  # (arguments) -> fields, the inverse as far as there is one
    names: tuple  # rows (here, there, part), see `read_names`
    prefix: str  # which files of the bare model omit
    copies: dict  # names of copies of tied tensors -> the tensor
    left_over: str = "(?!)"  # pattern of what is not a weight
    # What a file may have, besides weights, of (name, shape, arguments); None for other names.
    constants: Callable = lambda name, shape, arguments: None
    transposed: bool = True  # whether the files have matrices as (output, input)
    factor: Callable = lambda name, arguments: 1.0  # of a weight here, over the one in the file


def fields_of(text):
    """The rows of a family's own fields, then those that all share."""
    own = read_table(text)
    named = {name for row in own for name in row.names.split()}
    kept = (
        row._replace(names=" ".join(name for name in row.names.split() if name not in named))
        for row in _COMMON
    )
    return own + tuple(row for row in kept if row.names)


def read_names(text, *stacks):
    """Read rows of a name here, one in the files, and perhaps "part/parts" of a joint tensor.

    A name that ends in "/" stands for all leaves: kernel and gamma are `weight`, bias and beta
    `bias` in the files. `{n}` is the number of a layer, and STACK each of the `stacks`.
    """
    lines = [
        line.replace("STACK", stack)
        for line in text.strip().splitlines()
        for stack in (stacks if "STACK" in line else ("",))
    ]
    rows = [(*line.split(), "1/1")[:3] for line in lines]
    return tuple((here, there, tuple(map(int, part.split("/")))) for here, there, part in rows)
