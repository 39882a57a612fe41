"""`--distribute` of the commands that train."""


def add_distribute_argument(parser):
    """Add `--distribute`.

    Args:
        parser: `ArgumentParser`.
    """
    parser.add_argument(
        "--distribute",
        metavar="auto|none|mirrored|workers|tpu",
        help="what trains together: all GPUs of this machine (mirrored), the processes that the "
        "environment variable TF_CONFIG names (workers), a TPU (default: auto, workers or mirrored "
        "where there are several)",
    )


def start_training(options):
    """Import TensorFlow and connect what trains together.

    Args:
        options: the parsed arguments, including `--distribute`.

    Returns:
        Context manager in which the model is created and trained.
    """
    from tf_transformer.cli.tensorflow_start import import_tensorflow

    def start():
        from tf_transformer.training.distribution import start_distribution

        return start_distribution(options.distribute or "auto")

    return import_tensorflow(start=start)
