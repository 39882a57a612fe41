"""How many heads a small translator needs, and whether they keep it from overfitting."""

from functools import partial

from trainings.translator import trained

VARIANTS = {  # "three matrices" in `projections` has 4 of width 16
    **{
        f"{heads} of width {64 // heads}": partial(trained, num_heads=heads)
        for heads in (1, 2, 8, 16)
    },
    **{
        f"1000 pairs, {heads} heads": partial(trained, pairs=1000, epochs=60, num_heads=heads)
        for heads in (1, 16)
    },
}
