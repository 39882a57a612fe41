"""How many heads a small translator needs."""

from functools import partial

from trainings.translator import trained

VARIANTS = {
    f"{heads} of width {64 // heads}": partial(trained, num_heads=heads)
    for heads in (1, 2, 4, 8, 16)
}
