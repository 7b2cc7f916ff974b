"""A Pallas kernel whose block is a space: the program tries other shapes while it works, and keeps the fastest.

    KERNELCAST_TRIAL_SHARE=1 kernelcast probe -- python examples/pallas_blocks.py

Without a GPU or TPU Pallas interprets the kernel: the times are those of the CPU. Each shape is compiled once, between
two calls. That takes long beside this small kernel, so its trials may take more than the usual 1 % of the time.
"""

import argparse
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.profiler import StepTraceAnnotation

from kernelcast import probe

SIDE = 512
LAST = 30
"""Number of steps whose median time is printed."""
INTERPRETED = jax.default_backend() == "cpu"


def scaled(inputs: Any, outputs: Any, *, factor: float) -> None:
    """Multiply one block by a factor."""
    outputs[...] = inputs[...] * factor


def scale(array: jax.Array, *, rows: int, columns: int) -> jax.Array:
    """Multiply an array, in blocks of some rows and columns."""
    block = pl.BlockSpec((rows, columns), lambda row, column: (row, column))
    return pl.pallas_call(
        partial(scaled, factor=0.5),
        out_shape=jax.ShapeDtypeStruct(array.shape, array.dtype),
        grid=(array.shape[0] // rows, array.shape[1] // columns),
        in_specs=[block],
        out_specs=block,
        interpret=INTERPRETED,
    )(array)


def main(arguments: list[str] | None = None) -> None:
    """Call the kernel for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args(arguments).steps

    space = probe.space(
        "scale-block",
        {"rows": [32, 128, 512], "columns": [128, 512]},
        start={"rows": 32, "columns": 128},
        check=probe.close(),
    )
    run = probe.jax_static(space, scale, share=1.0)
    array = jnp.ones((SIDE, SIDE))
    times_ns = []
    for number in range(steps):
        began_ns = perf_counter_ns()
        with StepTraceAnnotation("scale", step_num=number):
            run(array).block_until_ready()
        times_ns.append(perf_counter_ns() - began_ns)
    first, last = (median(part) / 1000 for part in (times_ns[:LAST], times_ns[-LAST:]))
    print(f"{steps} steps, the first {LAST} took {first:.0f} us each, the last {LAST} {last:.0f} us")


if __name__ == "__main__":
    main()
