"""How the commands that train use the devices: `--distribute`, `--deterministic`, `--precision`."""

OPTIONS = "distribute", "deterministic"  # allowed with --resume: they are no settings of the run


def add_device_arguments(parser):
    """Add `--distribute` and `--deterministic`."""
    parser.add_argument(
        "--distribute",
        metavar="auto|none|mirrored|workers|tpu",
        help="what trains together: all GPUs of this machine (mirrored), the processes that the "
        "environment variable TF_CONFIG names (workers), a TPU (default: auto, workers or mirrored "
        "where there are several)",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="only operations that give the same result every time: a run that was interrupted "
        "ends with the weights of one that was not, bit by bit (slower)",
    )


def add_precision_argument(parser):
    """Add `--precision`, a setting of the run."""
    parser.add_argument(
        "--precision",
        help="float32 (default); mixed_bfloat16, for accelerators and processors with AMX; "
        "mixed_float16, for GPUs without bfloat16",
    )


def add_accumulate_argument(parser):
    """Add `--accumulate`, a setting of the run."""
    parser.add_argument(
        "--accumulate",
        type=int,
        metavar="N",
        help="compute the gradient of each batch in N parts: less memory, the same result",
    )


def start_training(options):
    """Import TensorFlow and connect what trains together."""
    from tf_transformer.cli.tensorflow_start import import_tensorflow

    def start():
        import tensorflow as tf

        if options.deterministic:
            tf.config.experimental.enable_op_determinism()
        from tf_transformer.distribution import start_distribution

        return start_distribution(options.distribute or "auto")

    return import_tensorflow(start=start)
