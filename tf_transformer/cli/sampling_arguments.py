"""The options of sampling."""

from tf_transformer.errors import ArgumentError

# The options of `sample_decode` that only it has.
_SAMPLING = {
    "seed": (int, "of the random numbers (default: 0)"),
    "temperature": (float, "below 1 favors likely tokens (default: 1.0)"),
    "top_k": (int, "only the K most likely tokens (default: all)"),
    "top_p": (float, "only the most likely tokens with this total probability (default: 1.0)"),
}


def add_sampling_arguments(parser, exclusive):
    """Add `--sample` and the options that need it."""
    exclusive.add_argument(
        "--sample", action="store_true", help="sample from the model's distribution"
    )
    for name, (kind, meaning) in _SAMPLING.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, help=f"with --sample: {meaning}")


def sampling_options(options):
    """Return the sampling options that were given, or None without `--sample`."""
    given = {name: getattr(options, name) for name in _SAMPLING}
    given = {name: value for name, value in given.items() if value is not None}
    if options.sample:
        return given
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ArgumentError(names, "--sample as well", "none")
    return None
