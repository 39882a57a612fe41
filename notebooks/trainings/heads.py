"""How many heads a small translator needs, and whether they keep it from overfitting."""

from functools import partial

from trainings.translator import trained

EPOCHS = {1000: 60, 5000: 24}  # 540 and 1008 steps; all pairs take 1230
VARIANTS = {  # "three matrices" in `projections` has 4 of width 16
    **{
        f"{heads} of width {64 // heads}": partial(trained, num_heads=heads)
        for heads in (1, 2, 8, 16)
    },
    **{
        f"{pairs} pairs, {heads} heads": partial(
            trained, pairs=pairs, epochs=epochs, num_heads=heads
        )
        for pairs, epochs in EPOCHS.items()
        for heads in (1, 4, 16)
    },
    "1000 pairs, 4 heads, dropout 0.3": partial(trained, pairs=1000, epochs=60, rate=0.3),
}
