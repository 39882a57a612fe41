"""The same training in float32, bfloat16 and float16: `python -m benchmarks precision`.

A preset on the embedded corpus. Model, data and order are the same, and the precisions take turns
after every epoch, so that other work on the machine affects all of them alike. The last row doubles
its loss scale every 100 steps instead of 2,000: the scale is then always near the largest one
possible, and steps overflow again and again. Writes results/scores/precision.md.
"""

import math
import time

from benchmarks.harness.report import SCORES, spread, write_result

OFTEN = 100  # good steps before the loss scale doubles
VARIANTS = {
    "float32": ("float32", None),
    "mixed_bfloat16": ("mixed_bfloat16", None),
    "mixed_float16": ("mixed_float16", None),
    f"mixed_float16, scale doubled every {OFTEN} steps": ("mixed_float16", OFTEN),
}
COLUMNS = (
    "",
    "steps",
    "losses that are not finite",
    "skipped steps",
    "lowest, highest, last loss scale",
    "loss of the last epoch",
    "validation loss",
    "validation accuracy",
    "time of an epoch / float32's",
)


class Training:
    """One of the trainings that take turns."""

    def __init__(self, run, batches, validation, tokenizer, growth_steps):
        import keras

        from tf_transformer.training import MovingAverage

        steps = run.preset.epochs * batches.steps_per_epoch
        self.model = run.compiled_model(tokenizer, steps)
        if growth_steps:
            self.model.optimizer.dynamic_growth_steps = growth_steps
        self.batches, self.validation = batches, validation
        self.average = MovingAverage()
        self.losses, self.scales, self.seconds = [], [], []
        self.log = keras.callbacks.LambdaCallback(on_train_batch_end=self._step)

    def _step(self, batch, logs):
        self.losses.append(logs["loss"])  # the mean of the epoch so far
        self.scales.append(float(getattr(self.model.optimizer, "dynamic_scale", 1.0)))

    def epoch(self, number):
        """Train for one epoch."""
        start = time.perf_counter()
        self.model.fit(
            self.batches.dataset(number, epochs=1),
            steps_per_epoch=self.batches.steps_per_epoch,
            shuffle=False,
            verbose=0,
            callbacks=[self.average, self.log],
        )
        self.seconds.append(time.perf_counter() - start)

    def row(self, name, baseline):
        """A line of the table, with the averaged weights on the validation set."""
        scores = self.model.evaluate(
            self.validation.dataset(epochs=1), verbose=0, callbacks=[self.average], return_dict=True
        )
        optimizer = self.model.optimizer
        done = int(getattr(optimizer, "inner_optimizer", optimizer).iterations)
        scales = (min(self.scales), max(self.scales), self.scales[-1])
        ratios = [
            one / two for one, two in zip(self.seconds[1:], baseline.seconds[1:], strict=True)
        ]
        cells = (
            name,
            f"{len(self.losses):,}",
            sum(not math.isfinite(loss) for loss in self.losses),
            len(self.losses) - done,
            "–" if scales[1] == 1 else ", ".join(f"2^{math.log2(scale):g}" for scale in scales),
            f"{self.losses[-1]:.4f}",
            f"{scores['loss']:.4f}",
            f"{scores['accuracy']:.4f}",
            "1" if self is baseline else spread(ratios),
        )
        return f"| {' | '.join(map(str, cells))} |"


def main(parser, arguments):
    """Train and write the table."""
    parser.add_argument("--steps", type=int, default=10_000, help="at least so many, whole epochs")
    parser.add_argument("--preset", default="tiny", help="of `Preset`")
    options = parser.parse_args(arguments)
    import tempfile

    from tf_transformer.data import PairSource
    from tf_transformer.training import PRESETS, TrainingRun

    source, trainings = PairSource(corpus="en-zh"), {}
    with tempfile.TemporaryDirectory() as folder:
        run = TrainingRun(folder, source, PRESETS[options.preset])
        tokenizer = run.tokenizer
        sets = [run.batches(tokenizer, part) for part in (run.split.train, run.split.validation)]
        for name, (precision, growth_steps) in VARIANTS.items():
            run.preset = run.preset.with_changes({"precision": precision})
            trainings[name] = Training(run, *sets, tokenizer, growth_steps)
    epochs = max(2, math.ceil(options.steps / sets[0].steps_per_epoch))
    for number in range(epochs):
        for training in trainings.values():
            training.epoch(number)
        losses = ", ".join(f"{training.losses[-1]:.4f}" for training in trainings.values())
        print(f"epoch {number + 1} of {epochs}: {losses}", flush=True)
    baseline = trainings["float32"]
    lines = [training.row(name, baseline) for name, training in trainings.items()]
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    text = (
        f"The {options.preset} preset, {len(run.split.train):,} English-Chinese pairs, {epochs} "
        f"epochs. The precisions took turns after every epoch; a ratio of times is the median over "
        f"the epochs, without the first, with its range."
    )
    parts = [text, "\n".join([*head, *lines])]
    write_result("precision", "Training in float32, bfloat16 and float16", parts, "", SCORES)
