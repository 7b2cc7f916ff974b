"""JAX: `jax_programs jit`, `jax_programs pallas`; launches by the probe's records."""

import os
import sys

from tests.gpu.day.programs.kernels import answer, cannot
from tests.gpu.day.programs.records import Records, recorded

CALLS = 1000
SIDE = 512


def jitted() -> Records:
    """A product and an elementwise function."""
    import jax
    import jax.numpy as jnp

    function = jax.jit(lambda x: jnp.tanh(x @ x) * 0.5)
    x = function(jnp.ones((SIDE, SIDE))).block_until_ready()
    with recorded(lambda: x.block_until_ready()) as records:  # noqa: PLW0108  the name is bound to another array later
        for _ in range(CALLS):
            x = function(x)
        x.block_until_ready()
    return records


def pallas() -> Records:
    """A kernel of Pallas that adds two matrices, compiled by way of Triton."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as lowering

    def kernel(x, y, out) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        out[...] = x[...] + y[...]

    block = pl.BlockSpec((128, 128), lambda i, j: (i, j))
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((SIDE, SIDE), jnp.float32),
        grid=(SIDE // 128, SIDE // 128),
        in_specs=[block, block],
        out_specs=block,
        name="day_pallas",
        compiler_params=lowering.CompilerParams(num_warps=8),
    )
    function, x = jax.jit(call), jnp.ones((SIDE, SIDE))
    result = function(x, x).block_until_ready()
    if float(result.sum()) != 2.0 * SIDE * SIDE:
        raise SystemExit("Pallas computed a wrong sum")
    with recorded(lambda: result.block_until_ready()) as records:  # noqa: PLW0108  the name is bound to another array later
        for _ in range(CALLS):
            result = function(x, x)
        result.block_until_ready()
    return records


def main() -> None:
    """Run the mode that the command line names."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    if jax.default_backend() != "gpu":
        cannot(f"JAX computes on {jax.default_backend()} here")
    records = pallas() if sys.argv[1] == "pallas" else jitted()
    launches = {name: count for name, (count, _ns) in records.kernels.items()}
    answer(calls=CALLS, launches=launches, lost=records.lost)


if __name__ == "__main__":
    main()
